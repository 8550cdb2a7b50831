"""Pause, reset, priority groups and advisories on a consumer's leader. Texts as nats-server 2.15.1 has them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.broker.jetstream.consumer.consumer_story import MS, SECOND, Source, Story, shown

from supercluster.broker.jetstream.consumer.ack_wait_changes import moved_deadlines
from supercluster.broker.jetstream.consumer.advisories import Told


@pytest.fixture
def source() -> Source:
    found = Source()
    for n in range(6):
        found.store(f"s.{n}")
    return found


def wait(story: Story, inbox: str, **request: object) -> list[str]:
    """A request that waits for five seconds."""
    return story.ask(inbox, expires=5 * SECOND, **request)


def told(story: Story) -> list[Told]:
    outbox = story.leader.take_ops()
    assert outbox is not None
    return outbox.told


# ---- pause --------------------------------------------------------------------------------------------------------


def test_a_paused_consumer_hands_out_nothing_until_its_time(source: Source) -> None:
    story = Story(source, ack_policy="explicit", pause_until="1970-01-01T00:00:02Z")
    assert story.leader.pause_news(0) is True
    assert story.leader.pause_news(1) is None, "told once"
    assert wait(story, "in") == []
    assert story.leader.next_deadline_ns() == 2 * SECOND
    assert story.at(2 * SECOND - 1).pump() == []
    assert story.at(2 * SECOND).pump() == ["in<s.0 1.1.1.5"]
    assert story.leader.pause_news(2 * SECOND) is False


def test_what_waits_for_redelivery_waits_for_the_pause_as_well(source: Source) -> None:
    story = Story(source, ack_policy="explicit", ack_wait=SECOND)
    assert len(story.ask(batch=1)) == 1
    story.commit()
    story.committed.update_config(
        type(story.committed.config).from_json(
            story.committed.config.to_json() | {"pause_until": "1970-01-01T00:00:03Z"}
        )
    )
    story.leader.update_config(story.committed, story.now_ns)
    assert story.at(2 * SECOND).ask(expires=5 * SECOND) == []
    assert story.at(3 * SECOND).pump() == ["in<s.0 2.1.2.5"]


# ---- changed waits ------------------------------------------------------------------------------------------------


def update(story: Story, **changes: object) -> None:
    """A committed entry changes the configuration; what the leader has to say to that is committed behind it."""
    config = story.committed.config
    story.committed.update_config(type(config).from_json({**config.to_json(), **changes}))
    story.leader.update_config(story.committed, story.now_ns)
    story.commit()


def test_a_shorter_ack_wait_holds_for_what_waits_already(source: Source) -> None:
    story = Story(source, ack_policy="explicit", ack_wait=10 * SECOND)
    assert len(story.ask(batch=2)) == 2
    story.commit()
    story.at(SECOND)
    update(story, ack_wait=3 * SECOND)
    assert [due for _, due in story.committed.pending.values()] == [3 * SECOND] * 2
    story.new_leader()
    assert story.at(3 * SECOND).ask("again", batch=2) == ["again<s.0 2.1.3.4", "again<s.1 2.2.4.4"]


def test_a_longer_ack_wait_puts_off_what_waits_already_and_not_what_is_due(source: Source) -> None:
    story = Story(source, ack_policy="explicit", ack_wait=SECOND)
    story.ask(batch=1)
    story.at(SECOND // 2).ask(batch=1)
    story.commit()
    story.at(SECOND)
    update(story, ack_wait=10 * SECOND)
    assert [due for _, due in story.committed.pending.values()] == [SECOND, SECOND // 2 + 10 * SECOND]
    assert story.ask(batch=2, expires=5 * SECOND)[0] == "in<s.0 2.1.3.4"


def test_a_wait_that_is_over_by_the_new_ack_wait_is_over_now(source: Source) -> None:
    story = Story(source, ack_policy="explicit", ack_wait=10 * SECOND)
    story.ask(batch=1)
    story.commit()
    story.at(5 * SECOND)
    update(story, ack_wait=SECOND)
    assert story.committed.pending[1][1] == 5 * SECOND
    assert story.ask(batch=1) == ["in<s.0 2.1.2.5"]


def test_a_changed_backoff_holds_by_how_often_a_message_was_delivered(source: Source) -> None:
    story = Story(source, ack_policy="explicit", backoff=[SECOND, 20 * SECOND], max_deliver=5)
    story.ask(batch=1)
    story.at(SECOND).ask(batch=2)
    story.commit()
    before = [due for _, due in story.committed.pending.values()]
    assert before == [21 * SECOND, 2 * SECOND]
    update(story, backoff=[2 * SECOND, 5 * SECOND, 6 * SECOND])
    assert [due for _, due in story.committed.pending.values()] == [6 * SECOND, 3 * SECOND]


def test_what_was_delivered_for_the_last_time_does_not_come_again_by_a_changed_wait(source: Source) -> None:
    source.keeps_until_acknowledged = True
    story = Story(source, ack_policy="explicit", ack_wait=SECOND, max_deliver=1)
    story.ask(batch=1)
    story.at(SECOND).ask(batch=1)
    story.commit()
    assert story.committed.exhausted == {1}
    update(story, ack_wait=10 * SECOND)
    assert story.committed.exhausted == {1}
    assert story.committed.pending[2][1] == 11 * SECOND


def test_deadlines_that_are_moved_are_of_a_bounded_number() -> None:
    source = Source()
    for n in range(10):
        source.store(f"s.{n}")
    story = Story(source, ack_policy="explicit", ack_wait=20 * SECOND)
    for n in range(10):
        story.at(n).ask(batch=1)
    found = moved_deadlines(
        story.leader.state,
        story.committed.config,
        replace(story.committed.config, ack_wait_ns=30 * SECOND),
        10,
        deadlines_max=4,
    )
    assert [(list(op.seqs), op.time_ns + op.delay_ns - 30 * SECOND) for op in found] == [
        ([1, 2, 3], 2),
        ([4, 5, 6], 5),
        ([7, 8, 9], 8),
        ([10], 9),
    ]


# ---- reset --------------------------------------------------------------------------------------------------------


def test_a_reset_is_an_operation_that_every_replica_applies(source: Source) -> None:
    story = Story(source, ack_policy="explicit", durable_name="c")
    story.ask(batch=4)
    story.ack(1)
    done: list[int | None] = []
    story.leader.reset(3, 0, source.last_seq, done.append)
    outbox = story.leader.take_ops()
    assert outbox is not None
    story.committed.apply(outbox.ops, last_seq=source.last_seq)
    assert story.committed.snapshot() == story.leader.state.snapshot()
    assert (story.committed.delivered_cseq, story.committed.delivered_sseq) == (0, 2)
    assert (story.committed.ack_floor_cseq, story.committed.ack_floor_sseq) == (0, 2)
    assert not story.committed.pending
    for call in outbox.dones:
        call(1)
    assert done == [1]
    assert story.ask(batch=2) == ["in<s.2 1.3.1.3", "in<s.3 1.4.2.2"]


def test_who_asked_for_a_reset_that_was_not_proposed_asks_again(source: Source) -> None:
    story = Story(source, ack_policy="explicit")
    done: list[int | None] = []
    story.leader.reset(3, 0, source.last_seq, done.append)
    story.leader.rewind(story.committed, last_seq=source.last_seq)
    assert done == [None]
    story.leader.reset(3, 0, source.last_seq, done.append)
    story.leader.give_back(0)
    assert done == [None, None]


@pytest.mark.covers("MV-10")
def test_a_reset_into_the_future_stands_at_the_streams_end_and_waits(source: Source) -> None:
    story = Story(source, ack_policy="explicit")
    story.leader.reset(8, 0, source.last_seq, lambda result: None)
    story.commit()
    assert story.committed.delivered_sseq == source.last_seq
    assert wait(story, "in") == []
    source.store("s.7th")
    assert story.pump() == []
    source.store("s.8th")
    assert story.pump() == ["in<s.8th 1.8.1.0"]


# ---- priority groups ----------------------------------------------------------------------------------------------


def test_overflow_requests_wait_until_enough_is_there() -> None:
    source = Source()
    story = Story(source, ack_policy="explicit", priority_policy="overflow", priority_groups=["A"])
    assert wait(story, "far", group="A", min_pending=3) == []
    source.store("a")
    source.store("a")
    assert story.pump() == []
    assert wait(story, "near", group="A") == ["near<a 1.1.1.1"]
    source.store("a")
    assert story.pump() == []
    source.store("a")
    assert story.pump() == ["far<a 1.2.2.2"]


def test_the_lowest_priority_number_is_served_first_and_equals_in_turn() -> None:
    source = Source()
    story = Story(source, ack_policy="explicit", priority_policy="prioritized", priority_groups=["A"])
    for inbox, number in (("five", 5), ("one", 1), ("uno", 1), ("zero", 0)):
        assert wait(story, inbox, batch=2, group="A", priority=number) == []
    served = []
    for _ in range(7):
        source.store("a")
        served += [line.partition("<")[0] for line in story.pump()]
    assert served == ["zero", "zero", "one", "uno", "one", "uno", "five"]


def pinned_story(source: Source, **config: object) -> Story:
    return Story(
        source, ack_policy="explicit", priority_policy="pinned_client", priority_groups=["A"], **config
    )


def test_a_pin_holds_others_back_until_it_is_over(source: Source) -> None:
    story = pinned_story(source, priority_timeout=SECOND)
    priority = story.leader.priority
    assert story.ask("one", group="A") == ["one<s.0 1.1.1.5"]
    pin = priority.pin_id
    assert priority.take_news() == [(pin, "")]
    assert wait(story, "other", group="A") == []
    assert story.leader.next_deadline_ns() == SECOND
    assert story.at(SECOND // 2).ask("one", group="A", id=pin) == ["one<s.1 1.2.2.4"]
    assert story.at(SECOND).pump() == [], "what it asked put the end off"
    assert story.at(SECOND + SECOND // 2).pump() == ["other<s.2 1.3.3.3"]
    assert priority.pin_id not in ("", pin)
    assert priority.take_news() == [("", "timeout"), (priority.pin_id, "")]


def test_messages_of_a_pinned_client_carry_its_id(source: Source) -> None:
    story = pinned_story(source)
    story.leader.on_pull(b'{"batch":2,"group":"A"}', b"in", 0, story.has_interest)
    (delivery,) = story.leader.pump(source, 0, story.has_interest)
    pin = story.leader.priority.pin_id.encode()
    assert [item[2] for item in delivery.items] == [b"NATS/1.0\r\nNats-Pin-Id: %b\r\n\r\n" % pin] * 2


def test_a_stale_id_is_told_423(source: Source) -> None:
    story = pinned_story(source)
    story.ask("one", group="A")
    pin = story.leader.priority.pin_id
    assert shown(story.leader.on_pull(b'{"group":"A","id":"x"}', b"in", 0, story.has_interest)) == [
        "in<423 Nats-Pin-Id mismatch"
    ]
    assert wait(story, "one", group="A", id=pin, batch=9)[-1].startswith("one<s.5")
    story.leader.priority.unpin("admin")
    assert story.pump() == ["one<423 Nats-Wrong-Pin-Id Nats-Pending-Messages: 4 Nats-Pending-Bytes: 0"]
    assert story.leader.num_waiting == 0


def test_the_next_leader_pins_whoever_comes_first(source: Source) -> None:
    story = pinned_story(source)
    story.ask("one", group="A")
    rests: list[bytes] = []
    request = b'{"batch":1,"group":"A","expires":5000000000}'
    story.leader.on_pull(request, b"other", 0, story.has_interest, rests.append)
    story.pump()
    story.leader.give_back(0)
    story.commit()
    story.new_leader()
    (rest,) = rests
    story.leader.on_pull(rest, b"other", 0, story.has_interest)
    assert story.pump() == ["other<s.1 1.2.2.4"]


# ---- what is told -------------------------------------------------------------------------------------------------


def test_what_became_of_messages_is_told_with_the_operation(source: Source) -> None:
    story = Story(source, ack_policy="explicit", max_deliver=2, ack_wait=SECOND, sample_freq="100")
    story.ask(batch=3)
    story.commit()
    story.now_ns = 100 * MS
    story.leader.on_ack(1, b"", b"", story.now_ns, story.has_interest, 1)
    story.leader.on_ack(2, b"-NAK", b"", story.now_ns, story.has_interest, 2)
    story.leader.on_ack(3, b"+TERM broken", b"", story.now_ns, story.has_interest, 3)
    assert [(each.subject, each.fields) for each in told(story)] == [
        (
            "METRIC.CONSUMER.ACK",
            {"consumer_seq": 1, "stream_seq": 1, "ack_time": 100 * MS, "deliveries": 1},
        ),
        ("ADVISORY.CONSUMER.MSG_NAKED", {"consumer_seq": 2, "stream_seq": 2, "deliveries": 1}),
        (
            "ADVISORY.CONSUMER.MSG_TERMINATED",
            {"consumer_seq": 3, "stream_seq": 3, "deliveries": 1, "reason": "broken"},
        ),
    ]
    story.ask(batch=1)
    story.leader.take_ops()
    story.at(5 * SECOND).ask(batch=1)
    assert [(each.subject, each.fields) for each in told(story)] == [
        ("ADVISORY.CONSUMER.MAX_DELIVERIES", {"stream_seq": 2, "deliveries": 2})
    ]


def test_a_part_of_acknowledgements_is_sampled() -> None:
    source = Source()
    for _ in range(400):
        source.store("s")
    story = Story(source, ack_policy="explicit", sample_freq="25%")
    story.ask(batch=400)
    story.commit()
    for seq in range(1, 401):
        story.leader.on_ack(seq, b"", b"", 0, story.has_interest, seq)
    assert 60 < len(told(story)) < 140
