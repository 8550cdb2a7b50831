"""Stories of pull consumers: what a client that asks, acknowledges or stays away gets to see.

The texts, numbers and orders were compared with nats-server 2.15.1.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.jetstream.consumer.consumer_story import MS, SECOND, Source, Story, shown

from supercluster.broker.jetstream.config.consumer_checks import read_consumer
from supercluster.broker.jetstream.encoding.ack_subjects import parse_ack_subject
from supercluster.broker.jetstream.state.consumer import ConsumerState
from supercluster.broker.jetstream.state.consumer_ops import Op, OpKind, encode_ops


@pytest.fixture
def source() -> Source:
    found = Source()
    for n in range(6):
        found.store(f"s.{n % 3}", header=b"NATS/1.0\r\nk: v\r\n\r\n" if n % 2 else b"")
    return found


def test_a_batch_is_handed_out_with_the_numbers_that_acknowledgements_need(source: Source) -> None:
    story = Story(source, ack_policy="explicit")
    assert story.ask(batch=2) == ["in<s.0 1.1.1.5", "in<s.1 1.2.2.4"]
    assert story.ask(batch=2) == ["in<s.2 1.3.3.3", "in<s.0 1.4.4.2"]
    assert story.leader.num_waiting == 0
    assert story.leader.num_pending(source) == 2


def test_an_acknowledgements_subject_is_read_back(source: Source) -> None:
    story = Story(source, ack_policy="explicit")
    story.leader.on_pull(b"", b"in", 0, story.has_interest)
    ((item,),) = [delivery.items for delivery in story.leader.pump(source, 0, story.has_interest)]
    assert item[1] == b"$JS.ACK.S.c.1.1.1.7.5"
    found = parse_ack_subject(item[1])
    assert found is not None
    assert found == ("S", "c", 1, 1, 1)
    assert parse_ack_subject(b"$JS.ACK.domain.hash.S.c.1.2.3.4.5") == ("S", "c", 1, 2, 3)
    assert parse_ack_subject(b"$JS.ACK.S.c.1.x.1.7.5") is None
    assert parse_ack_subject(b"$JS.ACK.S.c.1") is None


def test_no_wait_takes_what_is_there_and_says_that_there_is_no_more(source: Source) -> None:
    story = Story(source, ack_policy="explicit")
    assert story.ask(batch=5, no_wait=True) == [f"in<s.{n % 3} 1.{n + 1}.{n + 1}.{5 - n}" for n in range(5)]
    assert story.ask(batch=5, no_wait=True) == ["in<s.2 1.6.6.0", "in<404 No Messages"]
    assert story.ask(batch=5, no_wait=True) == ["in<404 No Messages"]


def test_no_wait_with_expires_waits_for_its_first_message_only(source: Source) -> None:
    story = Story(source, ack_policy="explicit", deliver_policy="new")
    assert story.ask(batch=5, no_wait=True, expires=SECOND) == []
    source.store("s.0")
    assert story.pump() == ["in<s.0 1.7.1.0", "in<404 No Messages"]
    assert story.ask(batch=5, no_wait=True, expires=SECOND) == []
    assert story.at(SECOND).pump() == [
        "in<408 Request Timeout Nats-Pending-Messages: 5 Nats-Pending-Bytes: 0"
    ]


@pytest.mark.covers("SF-18")
def test_without_room_to_note_it_nothing_is_handed_out_and_requests_end_in_their_time(source: Source) -> None:
    story = Story(source, ack_policy="explicit", ack_wait=SECOND)
    assert len(story.ask(batch=1)) == 1
    story.leader.on_pull(b'{"batch":2,"expires":5000000000}', b"in", 0, story.has_interest)
    story.at(2 * SECOND)
    assert story.leader.pump(source, story.now_ns, story.has_interest, serves=False) == []
    assert story.leader.next_deadline_ns() == 5 * SECOND, "a message that is due makes nobody spin"
    assert shown(story.leader.pump(source, 5 * SECOND, story.has_interest, serves=False)) == [
        "in<408 Request Timeout Nats-Pending-Messages: 2 Nats-Pending-Bytes: 0"
    ]
    assert story.ask(batch=2) == ["in<s.0 2.1.2.5", "in<s.1 1.2.3.4"]


def test_a_request_waits_for_messages_until_it_expires() -> None:
    source = Source()
    story = Story(source, ack_policy="none")
    assert story.ask(batch=3, expires=SECOND) == []
    assert story.leader.next_deadline_ns() == SECOND
    source.store("a")
    assert story.at(5).pump() == ["in<a 1.1.1.0"]
    assert story.at(SECOND).pump() == [
        "in<408 Request Timeout Nats-Pending-Messages: 2 Nats-Pending-Bytes: 0"
    ]
    assert story.leader.next_deadline_ns() is None


def test_idle_heartbeats_come_while_nothing_does() -> None:
    source = Source()
    story = Story(source, ack_policy="none")
    assert story.ask(batch=3, expires=SECOND, idle_heartbeat=400 * MS) == []
    assert story.leader.next_deadline_ns() == 400 * MS
    assert story.at(400 * MS).pump() == ["in<100 Idle Heartbeat Nats-Last-Consumer: 0 Nats-Last-Stream: 0"]
    source.store("a")
    assert story.at(700 * MS).pump() == ["in<a 1.1.1.0"]
    assert story.at(800 * MS).pump() == []
    assert story.leader.next_deadline_ns() == SECOND


@pytest.mark.parametrize(
    ("request_json", "said"),
    [
        (b"{bad", "400 Bad Request - invalid JSON"),
        (b'{"batch":"x"}', "400 Bad Request - invalid JSON: request: field 'batch'"),
        (b'{"expires":800,"idle_heartbeat":500}', "400 Bad Request - heartbeat value too large"),
        (b'{"idle_heartbeat":500}', "400 Bad Request - heartbeat value too large"),
        (b'{"min_pending":5}', "400 Bad Request - Not a Overflow Priority consumer"),
        (b'{"batch":10}', "409 Exceeded MaxRequestBatch of 5"),
        (b'{"expires":5000000000}', "409 Exceeded MaxRequestExpires of 1s"),
        (b'{"max_bytes":1000}', "409 Exceeded MaxRequestMaxBytes of 100"),
        (b'{"batch":10,"expires":-5}', "409 Exceeded MaxRequestBatch of 5"),
        (
            b'{"batch":3,"expires":-5,"no_wait":true,"max_bytes":7}',
            "408 Request Timeout Nats-Pending-Messages: 3 Nats-Pending-Bytes: 7",
        ),
    ],
)
def test_a_request_that_is_not_taken_is_told_why(source: Source, request_json: bytes, said: str) -> None:
    story = Story(source, ack_policy="explicit", max_batch=5, max_expires=SECOND, max_bytes=100)
    (line,) = shown(story.leader.on_pull(request_json, b"in", 0, story.has_interest))
    assert line.startswith("in<" + said)
    assert story.leader.num_waiting == 0


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        *((b"", 1), (b"5", 5), (b'{"batch":-5}', 1), (b'{"batch":0}', 1)),
        *((b"0", 1), (b"-1", 1), (b"x", 1), (b"5x", 1), (b"1.5", 1), (b"[]", 1), (b'"5"', 1)),
    ],
)
def test_a_request_may_be_a_number_or_empty(source: Source, payload: bytes, count: int) -> None:
    story = Story(source, ack_policy="explicit")
    assert story.leader.on_pull(payload, b"in", 0, story.has_interest) == []
    assert len(story.pump()) == count


@pytest.mark.covers("MV-11")
def test_at_most_max_waiting_requests_wait(source: Source) -> None:
    story = Story(source, ack_policy="explicit", deliver_policy="new", max_waiting=2)
    assert story.ask("one", expires=SECOND) == story.ask("two", expires=2 * SECOND) == []
    assert story.ask("three") == ["three<409 Exceeded MaxWaiting"]
    said = story.at(SECOND).ask("four")
    assert said == ["one<408 Request Timeout Nats-Pending-Messages: 1 Nats-Pending-Bytes: 0"]
    story.gone.add(b"two")
    assert story.ask("five") == []
    source.store("s.0")
    source.store("s.1")
    assert story.pump() == ["four<s.0 1.7.1.1", "five<s.1 1.8.2.0"]


def test_a_request_whose_inbox_nobody_listens_to_gets_nothing(source: Source) -> None:
    story = Story(source, ack_policy="explicit", deliver_policy="new")
    story.ask("one", batch=2)
    story.ask("two", batch=2)
    story.gone.add(b"one")
    source.store("s.0")
    assert story.pump() == ["two<s.0 1.7.1.0"]


def test_max_bytes_counts_the_whole_message(source: Source) -> None:
    story = Story(source, ack_policy="none")
    small = "in<409 Message Size Exceeds MaxBytes Nats-Pending-Messages: 5 Nats-Pending-Bytes: 30"
    assert story.ask(batch=5, max_bytes=30) == [small]
    # 3 bytes of subject, 21 of reply subject, 10 of payload.
    assert story.ask(batch=5, max_bytes=40) == [
        "in<s.0 1.1.1.5",
        "in<409 Message Size Exceeds MaxBytes Nats-Pending-Messages: 4 Nats-Pending-Bytes: 6",
    ]
    assert story.ask(batch=1) == ["in<s.1 1.2.2.4"]
    assert story.ask(batch=5, max_bytes=34) == [
        "in<s.2 1.3.3.3",
        "in<409 Message Size Exceeds MaxBytes Nats-Pending-Messages: 4 Nats-Pending-Bytes: 0",
    ]


def test_who_asked_for_bytes_is_told_that_the_batch_is_complete(source: Source) -> None:
    story = Story(source, ack_policy="none")
    assert story.ask(batch=2, max_bytes=100) == [
        "in<s.0 1.1.1.5",
        "in<s.1 1.2.2.4",
        "in<409 Batch Completed Nats-Pending-Messages: 0 Nats-Pending-Bytes: 14",
    ]
    assert story.ask(batch=1, max_bytes=34) == ["in<s.2 1.3.3.3"], "bytes that came out even say it, too"
    assert story.ask(batch=1) == ["in<s.0 1.4.4.2"]


def test_headers_only_tells_the_size(source: Source) -> None:
    story = Story(source, ack_policy="explicit", headers_only=True)
    story.leader.on_pull(b"2", b"in", 0, story.has_interest)
    (delivery,) = story.leader.pump(source, 0, story.has_interest)
    assert [(item[2], item[3]) for item in delivery.items] == [
        (b"NATS/1.0\r\nNats-Msg-Size: 10\r\n\r\n", b""),
        (b"NATS/1.0\r\nk: v\r\nNats-Msg-Size: 10\r\n\r\n", b""),
    ]


def test_requests_share_what_comes(source: Source) -> None:
    story = Story(source, ack_policy="none", deliver_policy="new")
    story.ask("one", batch=3)
    story.ask("two", batch=3)
    for _ in range(2):
        source.store("a")
    assert story.pump() == ["one<a 1.7.1.1", "one<a 1.8.2.0"]
    source.store("b")
    assert story.pump() == ["two<b 1.9.3.0"]
    source.store("c")
    assert story.pump() == ["one<c 1.10.4.0"]


def test_a_filter_skips_what_does_not_match(source: Source) -> None:
    story = Story(source, ack_policy="explicit", filter_subject="s.1")
    assert story.leader.num_pending(source) == 2
    assert story.ask(batch=5, no_wait=True) == ["in<s.1 1.2.1.1", "in<s.1 1.5.2.0", "in<404 No Messages"]
    source.store("s.2")
    source.store("s.1")
    assert story.leader.num_pending(source) == 1
    assert story.ask(batch=5, no_wait=True) == ["in<s.1 1.8.3.0", "in<404 No Messages"]


def test_wildcards_and_several_filters(source: Source) -> None:
    story = Story(source, ack_policy="none", filter_subjects=["s.0", "x.>"])
    source.store("x.y")
    assert story.ask(batch=2) == ["in<s.0 1.1.1.2", "in<s.0 1.4.2.1"]
    assert story.ask(batch=2, no_wait=True) == ["in<x.y 1.7.3.0", "in<404 No Messages"]


def test_a_rare_subject_behind_a_wildcard_is_found_without_reading_everything() -> None:
    source = Source()
    for _ in range(3000):
        source.store("common.a")
    source.store("rare.a")
    for _ in range(100):
        source.store("common.b")
    story = Story(source, ack_policy="none", filter_subject="rare.*")
    assert story.ask(batch=1) == ["in<rare.a 1.3001.1.0"]
    assert source.reads < 20


def test_a_scan_that_finds_nothing_goes_on_in_the_next_turn() -> None:
    source = Source()
    for n in range(20_000):
        source.store("common" if n else "rare")
    source.store("rare")
    story = Story(
        source, ack_policy="none", filter_subject="r*re"
    )  # Not a wildcard: a literal that is not there.
    assert story.ask(batch=1, no_wait=True) == ["in<404 No Messages"]
    # The index only knows that "rare" begins at 1 and ends at 20,001: between them every message is looked at.
    story = Story(source, ack_policy="none", filter_subject="rare")
    assert story.ask(batch=2, no_wait=True) == ["in<rare 1.1.1.1"]
    turns = 0
    while story.leader.has_more:
        turns += 1
        last = story.pump()
    assert turns == 4
    assert last == ["in<rare 1.20001.2.0"]


@pytest.mark.parametrize(
    ("config", "seqs", "pending"),
    [
        ({"deliver_policy": "all"}, [1, 2, 3], 6),
        ({"deliver_policy": "last"}, [6], 1),
        ({"deliver_policy": "last", "filter_subject": "s.0"}, [4], 1),
        ({"deliver_policy": "new"}, [], 0),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 5}, [5, 6], 2),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 50}, [], 0),
        ({"deliver_policy": "by_start_time", "opt_start_time": "1970-01-01T00:00:00.000000008Z"}, [], 0),
        (
            {"deliver_policy": "by_start_time", "opt_start_time": "1970-01-01T00:00:00.000000001Z"},
            [1, 2, 3],
            6,
        ),
        ({"deliver_policy": "last_per_subject", "filter_subject": ">"}, [4, 5, 6], 3),
        ({"deliver_policy": "last_per_subject", "filter_subjects": ["s.0", "s.2"]}, [4, 6], 2),
        ({"deliver_policy": "last_per_subject", "filter_subject": "none"}, [], 0),
    ],
)
@pytest.mark.covers("MV-10")
def test_where_a_consumer_begins(
    source: Source, config: dict[str, Any], seqs: list[int], pending: int
) -> None:
    story = Story(source, ack_policy="explicit", **config)
    assert story.committed.ack_floor_sseq <= source.last_seq
    assert story.leader.num_pending(source) == pending
    said = [line for line in story.ask(batch=3, no_wait=True) if "404" not in line]
    assert [int(line.split(".")[2]) for line in said] == seqs


def test_last_per_subject_goes_on_with_what_comes_later(source: Source) -> None:
    story = Story(source, ack_policy="explicit", deliver_policy="last_per_subject", filter_subject=">")
    source.store("s.0")
    assert story.ask(batch=2) == ["in<s.0 1.4.1.3", "in<s.1 1.5.2.2"]
    story.commit()
    story.new_leader()
    assert story.ask(batch=9, no_wait=True) == ["in<s.2 1.6.3.1", "in<s.0 1.7.4.0", "in<404 No Messages"]
    story.commit()
    assert story.committed.last_seqs == ()


def test_a_start_in_the_future_skips_what_comes_before_it(source: Source) -> None:
    story = Story(source, ack_policy="none", deliver_policy="by_start_sequence", opt_start_seq=9)
    assert story.ask(batch=5) == []
    for _ in range(4):
        source.store("a")
    assert story.pump() == ["in<a 1.9.1.1", "in<a 1.10.2.0"]


def test_what_is_not_acknowledged_in_time_comes_again(source: Source) -> None:
    story = Story(source, ack_policy="explicit", ack_wait=SECOND)
    assert len(story.ask(batch=3)) == 3
    story.ack(2)
    assert story.commit() == []
    assert story.ask(batch=9, expires=60 * SECOND)[-1] == "in<s.2 1.6.6.0"
    assert story.leader.next_deadline_ns() == SECOND
    assert story.at(SECOND - 1).pump() == []
    assert story.at(SECOND).pump() == [
        "in<s.0 2.1.7.0",
        "in<s.2 2.3.8.0",
        "in<s.0 2.4.9.0",
        "in<s.1 2.5.10.0",
        "in<s.2 2.6.11.0",
    ]
    story.commit()
    assert (story.committed.num_redelivered, story.committed.num_ack_pending) == (5, 5)
    assert (story.committed.delivered_cseq, story.committed.ack_floor_cseq) == (11, 0)


def test_after_max_deliver_a_message_is_given_up(source: Source) -> None:
    story = Story(source, ack_policy="explicit", ack_wait=SECOND, max_deliver=2)
    assert story.ask(batch=1) == ["in<s.0 1.1.1.5"]
    assert story.at(SECOND).ask(batch=1) == ["in<s.0 2.1.2.5"]
    assert story.at(2 * SECOND).ask(batch=1) == ["in<s.1 1.2.3.4"]
    story.commit()
    assert list(story.committed.pending) == [2]
    assert story.committed.ack_floor_sseq == 1


def test_where_a_message_stays_until_it_is_acknowledged_one_that_was_given_up_waits_for_that(
    source: Source,
) -> None:
    source.keeps_until_acknowledged = True
    story = Story(source, ack_policy="explicit", ack_wait=SECOND, max_deliver=1, max_ack_pending=2)
    assert story.ask(batch=2) == ["in<s.0 1.1.1.5", "in<s.1 1.2.2.4"]
    assert story.at(SECOND).ask(batch=2) == ["in<s.2 1.3.3.3", "in<s.0 1.4.4.2"]
    story.commit()
    # It takes none of max_ack_pending's room and is never due, here and on the next leader.
    assert (story.committed.num_ack_pending, story.committed.ack_floor_sseq) == (2, 0)
    story.new_leader()
    assert story.ask(batch=1, no_wait=True) == ["in<404 No Messages"]
    # It is wanted no more by who refuses it, and settled by who acknowledges it.
    for payload in (b"-NAK", b"+WPI"):
        story.ack(1, payload, reply="r")
        assert story.commit() == ["r"]
    assert story.ask(batch=1, no_wait=True) == ["in<404 No Messages"]
    assert story.committed.wants(1, b"s.0")
    story.ack(1, reply="r")
    assert story.commit() == ["r"]
    assert not story.committed.wants(1, b"s.0")
    assert (list(story.committed.pending), story.committed.ack_floor_sseq) == ([2, 3, 4], 1)
    assert story.ask(batch=1, expires=60 * SECOND) == []
    assert story.leader.next_deadline_ns() == 2 * SECOND
    story.ack(2, b"+TERM")
    story.commit()
    assert (list(story.committed.pending), story.committed.ack_floor_sseq) == ([3, 4], 2)


def test_what_is_no_acknowledgement_is_answered_and_does_nothing(source: Source) -> None:
    story = Story(source, ack_policy="explicit")
    story.ask(batch=2)
    story.commit()
    for payload in (b"+FOO", b"foo", b"+ACK x"):
        assert story.ack(1, payload, reply="r") == []
        assert story.commit() == ["r"]
    assert list(story.committed.pending) == [1, 2]
    # What was never delivered is not confirmed.
    story.ack(3, b"+ACK", reply="r")
    assert story.commit() == []
    # And what asks for more gets one message, whatever it says besides.
    assert story.ack(1, b"+NXT x", reply="r") == []
    assert story.pump() == ["r<s.2 1.3.3.3"]


def test_with_ack_all_a_termination_is_for_all_before_it(source: Source) -> None:
    story = Story(source, ack_policy="all")
    story.ask(batch=6)
    story.ack(4)
    story.ack(5, b"-NAK")
    story.ack(6, b"+TERM")
    story.commit()
    assert (list(story.committed.pending), story.committed.ack_floor_sseq) == ([], 6)


def test_who_was_given_up_is_kept_over_a_snapshot_and_goes_with_its_message(source: Source) -> None:
    source.keeps_until_acknowledged = True
    story = Story(source, ack_policy="explicit", ack_wait=SECOND, max_deliver=1)
    story.ask(batch=3)
    assert story.at(SECOND).ask(batch=1) == ["in<s.0 1.4.4.2"]
    story.commit()
    assert story.committed.exhausted == {1, 2, 3}
    restored = ConsumerState.restore(story.committed.snapshot())
    assert (restored.exhausted, restored.num_ack_pending) == ({1, 2, 3}, 1)
    assert restored.snapshot() == story.committed.snapshot()
    restored.drop_below(2)
    restored.drop_gone([3])
    assert (restored.exhausted, list(restored.pending), restored.ack_floor_sseq) == ({2}, [2, 4], 1)


def test_brokers_of_the_version_before_wrote_that_nothing_is_pending_and_that_is_read_as_they_meant_it() -> (
    None
):
    state = ConsumerState(
        name="c",
        config=read_consumer({"name": "c", "ack_policy": "explicit", "max_deliver": 1}),
        created_ns=1,
        start_seq=1,
    )
    ops = [Op(OpKind.DELIVERED, [1, 2], 5), Op(OpKind.EXHAUSTED, [1], 6)]
    assert state.apply(encode_ops(ops), last_seq=2) == []
    assert (list(state.pending), state.ack_floor_sseq) == ([2], 1)


def test_backoff_sets_the_wait_of_each_delivery() -> None:
    source = Source()
    source.store("a")
    story = Story(source, ack_policy="explicit", backoff=[SECOND, 3 * SECOND])
    assert story.ask(batch=4, expires=60 * SECOND) == ["in<a 1.1.1.0"]
    for seconds, delivery in ((1, 2), (4, 3), (7, 4)):
        assert story.leader.next_deadline_ns() == seconds * SECOND
        assert story.at(seconds * SECOND - 1).pump() == []
        assert story.at(seconds * SECOND).pump() == [f"in<a {delivery}.1.{delivery}.0"]
    story.commit()


def test_a_nak_brings_the_message_back_at_once_or_after_its_delay(source: Source) -> None:
    story = Story(source, ack_policy="explicit")
    story.ask(batch=3)
    story.ack(1, b"-NAK")
    story.ack(2, b'-NAK {"delay": 5000000}')
    story.ack(3, b"-NAK 1s")
    assert story.ask(batch=1) == ["in<s.0 2.1.4.3"]
    story.at(5 * MS)
    assert story.ask(batch=1) == ["in<s.1 2.2.5.3"]
    story.at(SECOND)
    assert story.ask(batch=1) == ["in<s.2 2.3.6.3"]
    story.commit()


def test_progress_begins_the_wait_anew(source: Source) -> None:
    story = Story(source, ack_policy="explicit", ack_wait=SECOND)
    story.ask(batch=1)
    story.at(SECOND - 1).ack(1, b"+WPI")
    assert story.at(SECOND).ask(batch=1) == ["in<s.1 1.2.2.4"]
    assert story.at(2 * SECOND - 1).ask(batch=1) == ["in<s.0 2.1.3.4"]
    story.commit()


def test_a_terminated_message_never_comes_again(source: Source) -> None:
    story = Story(source, ack_policy="explicit", ack_wait=SECOND)
    story.ask(batch=1)
    story.ack(1, b"+TERM no good", "r")
    assert story.commit() == ["r"]
    assert story.at(5 * SECOND).ask(batch=1) == ["in<s.1 1.2.2.4"]
    assert story.committed.ack_floor_sseq == 1


def test_next_acknowledges_and_asks_for_more(source: Source) -> None:
    story = Story(source, ack_policy="explicit")
    story.ask(batch=1)
    assert story.ack(1, b"+NXT", "more") == []
    assert story.pump() == ["more<s.1 1.2.2.4"]
    assert story.ack(2, b'+NXT {"batch":2}', "more") == []
    assert story.pump() == ["more<s.2 1.3.3.3", "more<s.0 1.4.4.2"]
    assert story.commit() == []
    assert list(story.committed.pending) == [3, 4]


@pytest.mark.covers("SF-2")
def test_a_double_ack_is_answered_only_after_its_entry_is_committed(source: Source) -> None:
    story = Story(source, ack_policy="explicit")
    story.ask(batch=2)
    assert story.ack(1, b"+ACK", "first") == []
    assert story.ack(1, b"", "again") == []
    assert 1 in story.committed.pending or story.committed.delivered_sseq == 0
    assert story.commit() == ["first", "again"]
    assert list(story.committed.pending) == [2]
    story.ack(1, b"", "late")
    assert story.commit() == ["late"]


def test_what_is_no_acknowledgement_is_ignored(source: Source) -> None:
    story = Story(source, ack_policy="explicit")
    story.ask(batch=1)
    story.commit()
    story.ack(99, b"", "beyond")
    story.ack(0, b"", "none")
    story.ack(1, b"garbage")
    story.ack(1, b"+WPI later")
    assert story.commit() == []
    assert list(story.committed.pending) == [1]


def test_acknowledging_one_acknowledges_all_before_it_under_ack_all(source: Source) -> None:
    story = Story(source, ack_policy="all")
    story.ask(batch=5)
    story.ack(3, b"", "r")
    assert story.commit() == ["r"]
    assert list(story.committed.pending) == [4, 5]
    assert (story.committed.ack_floor_cseq, story.committed.ack_floor_sseq) == (3, 3)
    story.ack(2)
    assert list(story.leader.state.pending) == [4, 5]


def test_many_acknowledgements_of_a_turn_are_one_operation() -> None:
    source = Source()
    for _ in range(200):
        source.store("a")
    sizes = []
    for policy in ("explicit", "all"):
        story = Story(source, ack_policy=policy)
        story.ask(batch=200)
        story.commit()
        for seq in range(1, 201):
            story.ack(seq)
        outbox = story.leader.take_ops()
        assert outbox is not None
        story.committed.apply(outbox.ops, last_seq=200)
        assert story.committed.ack_floor_sseq == 200
        assert story.committed.snapshot() == story.leader.state.snapshot()
        sizes.append(len(outbox.ops))
    assert max(sizes) < 64


@pytest.mark.covers("MV-11")
def test_at_most_max_ack_pending_messages_are_out(source: Source) -> None:
    story = Story(source, ack_policy="explicit", max_ack_pending=2)
    assert len(story.ask(batch=5)) == 2
    assert story.pump() == []
    story.ack(2)
    assert story.pump() == ["in<s.2 1.3.3.3"]
    story.commit()
    assert len(story.committed.pending) == 2


def test_a_deposed_leaders_uncommitted_deliveries_come_again(source: Source) -> None:
    story = Story(source, ack_policy="explicit", ack_wait=SECOND)
    story.ask(batch=1)
    story.commit()
    story.ask(batch=2)
    story.ack(1)
    story.new_leader()
    assert story.ask(batch=2) == ["in<s.1 1.2.2.4", "in<s.2 1.3.3.3"]
    assert story.at(SECOND).ask(batch=1) == ["in<s.0 2.1.4.3"]
    story.commit()


def test_a_new_leader_redelivers_what_the_old_one_handed_out(source: Source) -> None:
    story = Story(source, ack_policy="explicit", ack_wait=SECOND)
    story.ask(batch=2)
    story.commit()
    story.new_leader()
    assert story.leader.close(409, "Leadership Change") == []
    assert story.ask(batch=9, expires=9 * SECOND)[0] == "in<s.2 1.3.3.3"
    assert story.leader.next_deadline_ns() == SECOND
    assert story.at(SECOND).pump()[:2] == ["in<s.0 2.1.7.0", "in<s.1 2.2.8.0"]


def test_a_message_that_left_the_stream_is_not_delivered_again(source: Source) -> None:
    story = Story(source, ack_policy="explicit", ack_wait=SECOND)
    story.ask(batch=2)
    story.commit()
    source.remove(2)
    assert story.at(SECOND).ask(batch=2) == ["in<s.0 2.1.3.4", "in<s.2 1.3.4.3"]
    story.commit()
    assert list(story.committed.pending) == [1, 3]


def test_removals_are_followed_in_the_count_of_pending_messages(source: Source) -> None:
    story = Story(source, ack_policy="explicit", filter_subject="s.*", ack_wait=SECOND)
    assert story.leader.num_pending(source) == 6
    assert story.ask(batch=1) == ["in<s.0 1.1.1.5"]
    for seq in (1, 3):
        story.removed(seq)
    assert story.leader.num_pending(source) == 4
    assert story.ask(batch=2) == ["in<s.1 1.2.2.3", "in<s.0 1.4.3.2"]
    for seq in (2, 4, 5, 6):
        source.remove(seq)
    story.committed.drop_below(7)
    assert story.leader.num_pending(source) == 0
    assert story.leader.state.num_ack_pending == 0
    source.store("s.9")
    assert story.ask(batch=1) == ["in<s.9 1.7.4.0"]


def test_a_purge_that_nobody_told_of_is_noticed(source: Source) -> None:
    story = Story(source, ack_policy="explicit", filter_subject="s.*")
    assert story.leader.num_pending(source) == 6
    assert len(story.ask(batch=2)) == 2
    for seq in range(1, 6):
        source.remove(seq)
    assert story.leader.num_pending(source) == 1
    assert (story.leader.state.num_ack_pending, story.leader.state.ack_floor_sseq) == (0, 5)
    assert story.ask(batch=3, no_wait=True) == ["in<s.2 1.6.3.0", "in<404 No Messages"]


def test_a_proposal_that_was_not_taken_is_taken_back(source: Source) -> None:
    story = Story(source, ack_policy="explicit")
    story.ask(batch=2)
    first = story.leader.take_ops()
    assert first is not None
    assert len(story.ask("in", batch=9, expires=SECOND)) == 4
    story.ack(1, b"", "promised")
    lost = story.leader.take_ops()
    assert lost is not None
    assert lost.replies == [b"promised"]
    story.leader.rewind(story.committed, [first.ops], last_seq=source.last_seq)
    assert list(story.leader.state.pending) == [1, 2]
    assert story.pump() == [f"in<s.{n % 3} 1.{n + 1}.{n + 1}.{5 - n}" for n in range(2, 6)]
    story.committed.apply(first.ops, last_seq=source.last_seq)
    assert story.commit() == []


def test_deleting_the_consumer_ends_its_requests(source: Source) -> None:
    story = Story(source, ack_policy="explicit", deliver_policy="new")
    story.ask("one")
    story.ask("two")
    assert shown(story.leader.close(409, "Consumer Deleted")) == [
        "one<409 Consumer Deleted",
        "two<409 Consumer Deleted",
    ]
    assert story.leader.num_waiting == 0


def test_a_consumer_nobody_uses_becomes_inactive(source: Source) -> None:
    story = Story(source, ack_policy="none", deliver_policy="new", inactive_threshold=5 * SECOND)
    assert story.leader.next_deadline_ns() == 5 * SECOND
    story.at(3 * SECOND).ask("in", batch=1)
    assert not story.leader.is_inactive(5 * SECOND, story.has_interest)
    assert not story.leader.is_inactive(8 * SECOND, story.has_interest)
    story.gone.add(b"in")
    assert not story.leader.is_inactive(13 * SECOND - 1, story.has_interest)
    assert story.leader.is_inactive(13 * SECOND, story.has_interest)
    assert not story.leader.is_inactive(14 * SECOND, story.has_interest)
    assert story.leader.is_inactive(18 * SECOND, story.has_interest)


def test_a_durable_consumer_without_a_threshold_never_becomes_inactive(source: Source) -> None:
    story = Story(source, ack_policy="none")
    assert story.leader.next_deadline_ns() is None
    assert not story.leader.is_inactive(10**18, story.has_interest)


def test_one_turn_is_one_batch_of_operations_for_any_number_of_requests(source: Source) -> None:
    story = Story(source, ack_policy="none")
    for n in range(3):
        story.leader.on_pull(b"2", f"in{n}".encode(), 0, story.has_interest)
    assert len(story.pump()) == 6
    outbox = story.leader.take_ops()
    assert outbox is not None
    assert len(outbox.ops) < 64
    assert story.leader.take_ops() is None
    assert list(story.committed.apply(outbox.ops, last_seq=6)) == [1, 2, 3, 4, 5, 6]


def test_a_pump_is_bounded_and_says_that_there_is_more() -> None:
    source = Source()
    for _ in range(5000):
        source.store("a", b"x")
    story = Story(source, ack_policy="none")
    assert len(story.ask(batch=5000, no_wait=True)) == 4096
    assert story.leader.has_more
    assert len(story.pump()) == 904
    assert not story.leader.has_more


def test_a_changed_filter_takes_effect_for_what_is_not_delivered_yet(source: Source) -> None:
    story = Story(source, ack_policy="explicit")
    story.ask(batch=1)
    story.commit()
    wanted = read_consumer({**story.committed.config.to_json(), "filter_subject": "s.2"})
    story.committed.update_config(wanted)
    story.leader.update_config(story.committed, story.now_ns)
    assert story.ask(batch=5, no_wait=True) == ["in<s.2 1.3.2.1", "in<s.2 1.6.3.0", "in<404 No Messages"]
