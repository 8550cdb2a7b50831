"""Deliveries that wait for their operation's commit: what a leader that is cut off does not hand out."""

from __future__ import annotations

import pytest
from tests.broker.jetstream.consumer.consumer_story import SECOND, Source, Story, shown

from supercluster.broker.jetstream.consumer.commit_gate import HELD_BYTES_MAX, STALL_MS_MAX, CommitGate
from supercluster.broker.jetstream.consumer.pull import Delivery


class Clients:
    """What left the broker."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def deliver(self, deliveries: list[Delivery]) -> None:
        self.said += shown(deliveries)

    def news(self) -> list[str]:
        said, self.said = self.said, []
        return said


@pytest.fixture
def source() -> Source:
    found = Source()
    for n in range(6):
        found.store(f"s.{n}")
    return found


@pytest.fixture
def clients() -> Clients:
    return Clients()


def ask(story: Story, handing_out: CommitGate, *, inbox: str = "in", **request: object) -> None:
    """A pull request and the pump behind it."""
    payload = str(request).replace("'", '"').replace("True", "true").encode()
    story.leader.on_pull(payload, inbox.encode(), story.now_ns, story.has_interest)
    pump(story, handing_out)


def pump(story: Story, handing_out: CommitGate) -> None:
    handing_out.add(story.leader, story.leader.pump(story.source, story.now_ns, story.has_interest))


@pytest.mark.covers("SF-2")
def test_a_delivery_leaves_behind_its_entry(source: Source, clients: Clients) -> None:
    story, handing_out = Story(source, ack_policy="explicit"), CommitGate(clients.deliver)
    ask(story, handing_out, batch=2)
    assert clients.news() == []
    handing_out.proposed(7, 1, 0)
    handing_out.committed(6, 0)
    assert clients.news() == []
    handing_out.committed(7, 0)
    assert clients.news() == ["in<s.0 1.1.1.5", "in<s.1 1.2.2.4"]


@pytest.mark.covers("SF-2", "SF-29")
def test_behind_a_stall_a_delivery_leaves_once_the_leadership_is_confirmed(
    source: Source, clients: Clients
) -> None:
    story, handing_out = Story(source, ack_policy="explicit"), CommitGate(clients.deliver)
    ask(story, handing_out, batch=1)
    handing_out.proposed(7, 1, 0, 500)
    ask(story, handing_out, batch=1)
    handing_out.proposed(8, 1, 0, 500)
    assert not handing_out.committed(7, 500 + STALL_MS_MAX + 1)
    assert handing_out.committed(8, 500 + STALL_MS_MAX + 1), "it is asked once"
    assert clients.news() == []
    handing_out.leads_surely(8, 500 + STALL_MS_MAX + 1)
    assert clients.news() == ["in<s.0 1.1.1.5", "in<s.1 1.2.2.4"]


def test_a_request_for_too_few_bytes_is_told_so_at_once(source: Source, clients: Clients) -> None:
    story, handing_out = Story(source, ack_policy="explicit"), CommitGate(clients.deliver)
    ask(story, handing_out, batch=1, max_bytes=1)
    handing_out.proposed(7, 1, 0)
    (said,) = clients.news()
    assert "409" in said


def test_without_acknowledgements_nothing_waits(source: Source, clients: Clients) -> None:
    story, handing_out = Story(source, ack_policy="none"), CommitGate(clients.deliver)
    ask(story, handing_out, batch=1)
    handing_out.proposed(7, 1, 0)
    assert clients.news() == ["in<s.0 1.1.1.5"]


def test_a_status_stays_behind_the_messages_before_it(source: Source, clients: Clients) -> None:
    story, handing_out = Story(source, ack_policy="explicit"), CommitGate(clients.deliver)
    ask(story, handing_out, inbox="one", batch=9, expires=SECOND)
    handing_out.proposed(7, 1, 0)
    story.at(SECOND)
    pump(story, handing_out)
    handing_out.proposed(7, 1, 0)
    assert clients.news() == []
    handing_out.committed(7, 0)
    assert clients.news()[-2:] == [
        "one<s.5 1.6.6.0",
        "one<408 Request Timeout Nats-Pending-Messages: 3 Nats-Pending-Bytes: 0",
    ]
    ask(story, handing_out, inbox="two", batch=1, no_wait=True)
    handing_out.proposed(7, 1, 0)
    assert clients.news() == ["two<404 No Messages"], "nothing is held any more"


def test_bytes_that_a_request_was_not_given_are_its_again(source: Source, clients: Clients) -> None:
    story, handing_out = Story(source, ack_policy="explicit"), CommitGate(clients.deliver)
    ask(story, handing_out, batch=6, max_bytes=100)
    handing_out.not_proposed()
    story.leader.rewind(story.committed, last_seq=source.last_seq)
    pump(story, handing_out)
    handing_out.proposed(7, 1, 0)
    handing_out.committed(7, 0)
    again = clients.news()
    story, handing_out = Story(source, ack_policy="explicit"), CommitGate(clients.deliver)
    ask(story, handing_out, batch=6, max_bytes=100)
    handing_out.proposed(7, 1, 0)
    handing_out.committed(7, 0)
    assert clients.news() == again
    assert again[-1].startswith("in<409 Message Size Exceeds MaxBytes")


def test_a_consumer_that_is_deleted_takes_its_deliveries_along(source: Source, clients: Clients) -> None:
    gone, other = Story(source, ack_policy="explicit"), Story(source, ack_policy="explicit")
    handing_out = CommitGate(clients.deliver)
    ask(gone, handing_out, inbox="gone", batch=1)
    ask(other, handing_out, inbox="other", batch=1)
    handing_out.proposed(7, 1, 0)
    handing_out.take_back(gone.leader)
    assert shown(gone.leader.close(409, "Consumer Deleted")) == ["gone<409 Consumer Deleted"]
    handing_out.committed(7, 0)
    assert clients.news() == ["other<s.0 1.1.1.5"]


@pytest.mark.covers("MV-11")
def test_what_waits_for_commits_is_bounded(clients: Clients) -> None:
    source = Source()
    for _ in range(5):
        source.store("s", b"x" * (HELD_BYTES_MAX // 4))
    story, handing_out = Story(source, ack_policy="explicit"), CommitGate(clients.deliver)
    story.leader.on_pull(b"100", b"in", 0, story.has_interest)
    for index in range(1, 5):
        assert not handing_out.is_full
        pump(story, handing_out)
        handing_out.proposed(index, 1, 0)
    assert handing_out.is_full
    handing_out.committed(1, 0)
    assert not handing_out.is_full
