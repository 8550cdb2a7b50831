"""Push consumers: what goes to the deliver subject when, and what a client answers. Texts as nats-server 2.15.1 has them."""

from __future__ import annotations

from functools import partial

import pytest
from tests.broker.jetstream.consumer.consumer_story import MS, SECOND, Source, Story, shown

from supercluster.broker.jetstream.consumer.push import WINDOW_BYTES_FIRST, parse_flow_subject
from supercluster.broker.jetstream.consumer.rate_limit import BURST_BYTES
from supercluster.broker.jetstream.subjects.interest_watch import InterestWatch


def push_story(source: Source, **config: object) -> Story:
    """A push consumer that somebody listens to."""
    story = Story(source, deliver_subject="d", **config)
    assert story.leader.bind(0, is_bound=True)
    return story


@pytest.fixture
def source() -> Source:
    found = Source()
    for n in range(3):
        found.store(f"s.{n}")
    return found


def test_nothing_is_sent_before_somebody_listens(source: Source) -> None:
    story = Story(source, deliver_subject="d", ack_policy="explicit")
    assert not story.leader.is_ready
    assert story.pump() == []
    assert story.leader.bind(0, is_bound=True)
    assert not story.leader.bind(0, is_bound=True), "that is no news"
    assert story.pump() == ["d<s.0 1.1.1.2", "d<s.1 1.2.2.1", "d<s.2 1.3.3.0"]
    assert story.pump() == []


def test_who_goes_leaves_what_is_not_acknowledged_to_who_comes(source: Source) -> None:
    story = push_story(source, ack_policy="explicit", ack_wait=SECOND)
    assert len(story.pump()) == 3
    story.ack(1)
    story.leader.bind(0, is_bound=False)
    assert story.at(2 * SECOND).pump() == []
    assert story.leader.next_deadline_ns() is None, "nobody spins for what nobody takes"
    story.leader.bind(2 * SECOND, is_bound=True)
    assert story.pump() == ["d<s.1 2.2.4.0", "d<s.2 2.3.5.0"]


def test_a_heartbeat_comes_when_nothing_else_did_for_so_long(source: Source) -> None:
    story = push_story(source, ack_policy="none", idle_heartbeat=200 * MS)
    assert len(story.at(100 * MS).pump()) == 3
    assert story.leader.next_deadline_ns() == 300 * MS
    assert story.at(299 * MS).pump() == []
    assert story.at(300 * MS).pump() == ["d<100 Idle Heartbeat Nats-Last-Consumer: 3 Nats-Last-Stream: 3"]
    assert story.leader.next_deadline_ns() == 500 * MS
    story.leader.bind(400 * MS, is_bound=False)
    assert story.at(500 * MS).pump() == []


def flow_story(count: int) -> Story:
    source = Source()
    for _ in range(count):
        source.store("s", payload=b"x" * 100_000)
    return push_story(source, ack_policy="none", idle_heartbeat=SECOND, flow_control=True)


def sent(story: Story) -> tuple[int, list[bytes]]:
    """How many messages a pump sent, and the flow control requests."""
    items = [
        item
        for delivery in story.leader.pump(story.source, story.now_ns, story.has_interest)
        for item in delivery.items
    ]
    asked = [item[1] for item in items if item[1].startswith(b"$JS.FC.")]
    return sum(item[1].startswith(b"$JS.ACK.") for item in items), asked


def test_a_client_that_does_not_answer_is_sent_a_window_and_no_more() -> None:
    story = flow_story(100)
    count, (asked,) = sent(story)
    assert count == WINDOW_BYTES_FIRST // 100_000 + 1
    assert sent(story) == (0, [])
    assert not story.leader.has_more
    (beat,) = shown(story.leader.pump(story.source, SECOND, story.has_interest))
    assert beat.endswith(f"Nats-Consumer-Stalled: {asked.decode()}")
    assert not story.leader.on_flow(b"$JS.FC.S.c.999"), "that was not asked"
    assert sent(story) == (0, [])
    assert story.leader.on_flow(asked)
    assert not story.leader.on_flow(asked), "once"
    more, (next_asked,) = sent(story)
    assert more > count, "the window doubles with each answer"
    assert next_asked != asked


def test_a_flow_control_request_names_stream_and_consumer() -> None:
    _, (asked,) = sent(flow_story(20))
    assert parse_flow_subject(asked) == ("S", "c")
    assert parse_flow_subject(b"$JS.FC.S.c") is None
    assert parse_flow_subject(b"$JS.ACK.S.c.1") is None


def test_what_never_left_the_broker_does_not_count_as_sent() -> None:
    story = flow_story(30)
    deliveries = story.leader.pump(story.source, 0, story.has_interest)
    for delivery in reversed(deliveries):
        story.leader.take_back(delivery)
    story.leader.rewind(story.committed, last_seq=story.source.last_seq)
    again = story.leader.pump(story.source, 0, story.has_interest)
    assert [item[:2] for delivery in again for item in delivery.items] == [
        item[:2] for delivery in deliveries for item in delivery.items
    ]


def test_a_new_listener_is_not_held_to_what_the_one_before_did_not_answer() -> None:
    story = flow_story(100)
    count, _ = sent(story)
    story.leader.bind(0, is_bound=False)
    story.leader.bind(0, is_bound=True)
    assert sent(story)[0] == count


def test_a_rate_limit_lets_a_burst_go_and_then_so_much_per_second() -> None:
    source = Source()
    for _ in range(30):
        source.store("s", payload=b"x" * (BURST_BYTES // 10 - 1))
    story = push_story(source, ack_policy="none", rate_limit_bps=8 * BURST_BYTES // 10)
    assert len(story.pump()) == 10
    assert not story.leader.has_more
    due_ns = story.leader.next_deadline_ns()
    assert due_ns is not None
    assert 0.99 * SECOND < due_ns <= SECOND
    assert len(story.at(SECOND).pump()) == 1
    assert len(story.at(3 * SECOND + MS).pump()) == 2


def test_replay_original_keeps_the_gaps_and_ends_when_it_has_caught_up() -> None:
    source = Source()
    for time_ns in (5 * SECOND, 6 * SECOND, 8 * SECOND):
        source.store("s", time_ns=time_ns)
    story = push_story(source, ack_policy="none", replay_policy="original")
    assert len(story.pump()) == 1
    assert story.leader.next_deadline_ns() == SECOND
    assert story.at(SECOND - 1).pump() == []
    assert len(story.at(SECOND).pump()) == 1
    assert story.at(2 * SECOND).pump() == []
    assert len(story.at(3 * SECOND).pump()) == 1
    assert story.pump() == []
    source.store("s", time_ns=100 * SECOND)
    assert len(story.pump()) == 1, "what comes now is not replayed"


def test_an_ephemeral_push_consumer_is_inactive_while_nobody_listens(source: Source) -> None:
    story = push_story(source, durable_name="", inactive_threshold=SECOND)
    assert not story.leader.is_inactive(10 * SECOND, story.has_interest)
    story.leader.bind(10 * SECOND, is_bound=False)
    assert story.leader.next_deadline_ns() == 11 * SECOND
    assert not story.leader.is_inactive(11 * SECOND - 1, story.has_interest)
    assert story.leader.is_inactive(11 * SECOND, story.has_interest)


@pytest.mark.covers("MV-11")
def test_a_client_that_takes_too_little_is_sent_nothing_more(source: Source) -> None:
    story = push_story(source)
    assert story.leader.is_held_back(lambda inbox: False)
    assert not story.leader.is_held_back(lambda inbox: True)


def test_a_pull_request_is_told_that_the_consumer_pushes(source: Source) -> None:
    story = push_story(source)
    assert shown(story.leader.on_pull(b"", b"in", 0, story.has_interest)) == ["in<409 Consumer is push based"]


def test_only_what_a_subscription_is_about_is_told_of_it() -> None:
    interests = InterestWatch()
    told: list[str] = []
    for subject in ("_INBOX.a.1", "_INBOX.a.2", "_INBOX.b.1", "d.x"):
        interests.watch("$G", subject.encode(), ("g", subject), partial(told.append, subject))
    for pattern, wanted in [
        (b"_INBOX.a.1", ["_INBOX.a.1"]),
        (b"_INBOX.a.*", ["_INBOX.a.1", "_INBOX.a.2"]),
        (b"_INBOX.*.1", ["_INBOX.a.1", "_INBOX.b.1"]),
        (b">", ["_INBOX.a.1", "_INBOX.a.2", "_INBOX.b.1", "d.x"]),
        (b"d", []),
        (b"e.>", []),
    ]:
        told.clear()
        interests.changed("$G", pattern)
        assert told == wanted, pattern
    interests.changed("other", b">")
    assert len(told) == 0
    for subject in ("_INBOX.a.1", "_INBOX.a.2", "_INBOX.b.1", "d.x"):
        interests.forget("$G", subject.encode(), ("g", subject))
    interests.changed("$G", b">")
    assert told == []
