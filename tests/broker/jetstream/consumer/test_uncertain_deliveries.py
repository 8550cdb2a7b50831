"""Deliveries of a deposed leader: they leave when their entry is committed after all, and their requests go on as they should."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.broker.jetstream.consumer.consumer_story import SECOND, Source, Story, shown

from supercluster.broker.jetstream.consumer.commit_gate import CommitGate
from supercluster.broker.jetstream.consumer.pull import Delivery
from supercluster.broker.jetstream.consumer.uncertain_deliveries import (
    DOUBT_MS_MAX,
    LOOK_MS,
    UncertainDeliveries,
)

ENTRY, TERM = 7, 3


@dataclass
class Deposed:
    """A leader that is about to be deposed, and what leaves its broker."""

    story: Story
    said: list[str] = field(default_factory=list)
    given_back: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.handing_out = CommitGate(self.deliver)
        self.listens = True
        self.in_doubt = UncertainDeliveries(self.deliver, lambda inbox: self.listens)

    def deliver(self, deliveries: list[Delivery]) -> None:
        self.said += shown(deliveries)

    def ask(self, inbox: str, payload: str, *, orphan: bool = False) -> None:
        def back(rest: bytes) -> None:
            batch, _, others = rest.decode().partition(",")
            size = others.partition('"max_bytes": ')[2].partition(",")[0]
            self.given_back.append(f"{inbox}{batch[9:]}{' of ' + size if size else ''}")

        story = self.story
        story.leader.on_pull(
            payload.encode(), inbox.encode(), 0, story.has_interest, None if orphan else back
        )

    def pump(self, index: int, at_ms: int = 0) -> None:
        story = self.story
        self.handing_out.add(story.leader, story.leader.pump(story.source, story.now_ns, story.has_interest))
        self.handing_out.proposed(index, TERM, at_ms)

    def depose(self, applied_index: int = 0) -> None:
        self.in_doubt.keep(self.handing_out.leave(), applied_index)
        self.deliver(self.story.leader.give_back(0, self.in_doubt))

    def applied(self, index: int, term: int = TERM, now_ms: int = 0) -> None:
        self.in_doubt.applied(index, term, now_ms, now_ms * 1_000_000)


def deposed(count: int = 6, **config: Any) -> Deposed:
    source = Source()
    for n in range(count):
        source.store(f"s.{n}")
    return Deposed(Story(source, **{"ack_policy": "explicit", **config}))


@pytest.mark.covers("SF-2", "SF-29")
def test_what_was_applied_behind_a_stall_leaves_once_somebody_listens() -> None:
    old = deposed(2)
    old.ask("one", "2")
    old.pump(ENTRY)
    assert not old.handing_out.committed(ENTRY, 2000)
    old.listens = False
    old.depose(applied_index=ENTRY)
    old.applied(ENTRY + 1, term=TERM + 1)
    assert not old.said, "the link that it would take is gone"
    old.listens = True
    old.in_doubt.tick(LOOK_MS, LOOK_MS * 1_000_000)
    assert [line.partition(" ")[0] for line in old.said] == ["one<s.0", "one<s.1"]


@pytest.mark.covers("SF-2", "MV-10")
def test_what_is_committed_under_the_next_leader_leaves_and_what_is_open_of_its_requests_goes_on() -> None:
    old = deposed()
    old.ask("one", "2")
    old.ask("two", "9")
    old.pump(ENTRY)
    old.ask("three", "1")
    old.depose()
    assert old.given_back == ["three 1"], "what the others got is not known"
    old.applied(ENTRY - 1, term=TERM - 1)
    assert not old.said
    old.applied(ENTRY)
    assert [line.partition(" ")[0] for line in old.said] == [
        "one<s.0",
        "one<s.1",
        "two<s.2",
        "two<s.3",
        "two<s.4",
        "two<s.5",
    ]
    assert old.given_back == ["three 1", "two 5"]
    assert not old.in_doubt
    assert old.in_doubt.deadline_ms() is None


@pytest.mark.covers("SF-2", "MV-10")
def test_where_another_entry_came_to_stand_nothing_leaves_and_requests_go_on_as_they_were() -> None:
    old = deposed()
    old.ask("one", "2")
    old.ask("two", "9")
    old.pump(ENTRY)
    old.depose()
    old.applied(ENTRY, term=TERM + 1)
    old.applied(ENTRY + 1, term=TERM + 1)
    assert (old.said, old.given_back) == ([], ["one 2", "two 9"])


@pytest.mark.covers("MV-10")
def test_a_request_that_two_entries_served_goes_on_when_both_are_decided() -> None:
    old = deposed(count=2)
    old.ask("in", "5")
    old.pump(ENTRY)
    old.story.source.store("s.2")
    old.pump(ENTRY + 1)
    old.depose()
    old.applied(ENTRY)
    assert (len(old.said), old.given_back) == (2, [])
    old.applied(ENTRY + 1, term=TERM + 1)
    assert (len(old.said), old.given_back) == (2, ["in 3"]), "two of five are there"


def test_bytes_count_as_messages_do() -> None:
    old = deposed()
    old.ask("in", '{"batch": 6, "max_bytes": 1000}')
    old.pump(ENTRY)
    old.depose()
    old.in_doubt.give_up(0)
    assert old.given_back == ["in 6 of 1000"]


def test_who_cannot_be_sent_on_is_told_when_it_is_known_what_it_got() -> None:
    old = deposed(count=1)
    old.ask("in", "2", orphan=True)
    old.pump(ENTRY)
    old.depose()
    assert not old.said
    old.applied(ENTRY)
    assert old.said[1:] == ["in<409 Leadership Change"]


@pytest.mark.covers("SF-2")
@pytest.mark.parametrize(
    ("config", "until_ms"),
    [
        ({}, DOUBT_MS_MAX),
        ({"ack_wait": 2 * SECOND}, 1000),
        ({"ack_wait": 2 * SECOND, "max_deliver": 4, "backoff": [SECOND, 8 * SECOND]}, 500),
    ],
)
def test_nothing_leaves_that_may_have_been_handed_out_again(config: dict[str, Any], until_ms: int) -> None:
    """The next leader does that when the time for the acknowledgement is over, and may have it confirmed."""
    for now_ms, leaves in ((until_ms, True), (until_ms + 1, False)):
        old = deposed(**config)
        old.ask("in", "1")
        old.pump(ENTRY)
        old.depose()
        assert old.in_doubt.deadline_ms() == until_ms + 1
        old.applied(ENTRY, now_ms=now_ms)
        assert (bool(old.said), bool(old.given_back)) == (leaves, not leaves)


def test_requests_wait_no_longer_than_that_when_nothing_is_applied() -> None:
    old = deposed()
    old.ask("in", "1")
    old.pump(ENTRY)
    old.depose()
    old.in_doubt.tick(DOUBT_MS_MAX, 0)
    assert not old.given_back
    old.in_doubt.tick(DOUBT_MS_MAX + 1, 0)
    assert (old.said, old.given_back) == ([], ["in 1"])


@pytest.mark.covers("MV-10")
def test_what_is_committed_waits_until_somebody_listens_and_no_longer_than_the_rest() -> None:
    """The link over which the client is reached may come back behind the one over which the entry came."""
    for listens in (True, False):
        old = deposed()
        old.ask("in", "2")
        old.pump(ENTRY)
        old.depose()
        old.listens = False
        old.applied(ENTRY, now_ms=100)
        assert (old.said, old.in_doubt.deadline_ms()) == ([], 100 + LOOK_MS)
        old.in_doubt.tick(100 + LOOK_MS, 0)
        assert (old.said, old.in_doubt.deadline_ms()) == ([], 100 + 2 * LOOK_MS)
        old.listens = listens
        old.in_doubt.tick(DOUBT_MS_MAX if listens else DOUBT_MS_MAX + 1, 0)
        assert len(old.said) == (2 if listens else 0)
        assert old.given_back == ([] if listens else ["in 2"])
        assert not old.in_doubt


@pytest.mark.covers("SF-2")
def test_an_entry_that_was_passed_over_by_a_snapshot_is_not_taken_for_committed() -> None:
    old = deposed()
    old.ask("in", "1")
    old.pump(ENTRY)
    old.depose()
    old.applied(ENTRY + 9)
    assert (old.said, old.given_back) == ([], ["in 1"])
