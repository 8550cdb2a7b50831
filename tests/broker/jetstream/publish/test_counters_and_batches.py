"""Messages that the leader stores as something else: counters, and atomic batches.

Codes, texts and orders were compared with nats-server 2.15.1.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.broker.jetstream.publish.stream_story import (
    MS,
    SECOND,
    SECOND_SESSION,
    StreamStory,
    block,
    config,
    message,
)

from supercluster.broker.jetstream.config.sources import Origin
from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.encoding.sections import (
    Exceptional,
    Verdict,
    VerdictRun,
    decode_run,
    encode_run,
)
from supercluster.broker.jetstream.publish import atomic_batches, refusals
from supercluster.broker.jetstream.publish.atomic_batches import Candidate
from supercluster.broker.jetstream.publish.source_rewrite import SourceRewrite
from supercluster.broker.jetstream.sources.puller import _is_held
from supercluster.broker.jetstream.state.log_reader import decode_stored
from supercluster.broker.protocol.headers import header_value

REFUSED, WORDED, STAGED = Verdict.REFUSED, Verdict.WORDED, Verdict.STAGED


def counters(**fields: Any) -> StreamStory:
    return StreamStory(config(allow_msg_counter=True, **fields))


def incr(by: str, subject: bytes = b"s.a", **more: Any) -> tuple[bytes, bytes, bytes]:
    return message(subject, b"", Nats_Incr=by, **more)


def values(story: StreamStory) -> list[str]:
    stored = [story.state.message(seq) for seq in story.held()]
    return [json.loads(found.payload)["val"] for found in stored if found]


def part(
    number: int,
    batch: str = "b",
    commit: str = "",
    subject: bytes = b"s.a",
    payload: bytes = b"",
    **more: Any,
) -> Any:
    if commit:
        more["Nats_Batch_Commit"] = commit
    return message(subject, payload, Nats_Batch_Id=batch, Nats_Batch_Sequence=str(number), **more)


def atomic(**fields: Any) -> StreamStory:
    return StreamStory(config(allow_atomic=True, **fields))


# ---- counters -------------------------------------------------------------------------------------------------------


@pytest.mark.covers("SF-12")
def test_increments_add_up_at_the_end_of_the_log_and_each_is_told_its_sum() -> None:
    story = counters()
    assert story.publish(incr("1"), incr("+5"), incr("-10"), incr("7", b"s.b")) == [
        (WORDED, 0, seq) for seq in (1, 2, 3, 4)
    ]
    assert story.texts == [b'"val":"1"', b'"val":"6"', b'"val":"-4"', b'"val":"7"']
    story.publish(incr("1"))
    story.new_leader()  # What is not committed counts for the next leader too.
    story.publish(incr("1" + "0" * 30))
    assert story.texts == [b'"val":"%d"' % (10**30 - 3)]
    story.commit()
    assert values(story) == ["1", "6", "-4", "7", "-3", str(10**30 - 3)]
    story.publish(incr("3", b"s.b"))
    assert story.texts == [b'"val":"10"']


def test_what_is_no_increment_is_refused() -> None:
    story = counters()
    for by, code in (
        ("1.5", 10171),
        ("abc", 10171),
        ("--1", 10171),
        ("0x10", 10171),
        ("1_0", 10171),
        ("", 10169),
    ):
        assert story.publish(incr(by)) == [(REFUSED, code, 0)]
    assert story.publish(message(), message(payload=b"x", Nats_Incr="1")) == [
        (REFUSED, 10169, 0),
        (REFUSED, 10170, 0),
    ]
    for name in (
        "Stream",
        "Last_Sequence",
        "Last_Subject_Sequence",
        "Last_Msg_Id",
        "Last_Subject_Sequence_Subject",
    ):
        assert story.publish(incr("1", **dict[str, Any]({f"Nats_Expected_{name}": "S"}))) == [
            (REFUSED, 10171, 0)
        ]
    assert story.publish(incr("1", Nats_Rollup="sub")) == [(REFUSED, 10171, 0)]
    assert StreamStory().publish(incr("1"), incr("x")) == [(REFUSED, 10168, 0), (REFUSED, 10171, 0)]
    assert counters(max_msg_size=20).publish(incr("1")) == [(REFUSED, 10054, 0)]


def test_a_repeated_increment_counts_once() -> None:
    story = counters()
    one = incr("1", Nats_Msg_Id="x")
    assert story.publish(one, one, incr("1")) == [(WORDED, 0, 1), (Verdict.DUPLICATE, 0, 1), (WORDED, 0, 2)]
    assert story.texts[2] == b'"val":"2"'


def test_a_counter_keeps_its_sources_and_starts_anew_when_it_was_purged() -> None:
    story = counters(max_msgs_per_subject=1)
    sources = '{"X":{"y":"3"}}'
    story.publish(incr("1", Nats_Counter_Sources=sources), incr("1"))
    story.commit()
    assert values(story) == ["2"]
    found = story.state.message(2)
    assert found is not None
    assert sources.encode() in found.header
    story.state.remove(2)
    story.publish(incr("4"))
    assert story.texts == [b'"val":"4"']


def test_a_subject_that_holds_no_counter_is_broken() -> None:
    story = StreamStory()
    story.store(message(payload=b'{"val":5}'))
    story.state.config = config(allow_msg_counter=True)
    story.new_leader()
    assert story.publish(incr("1")) == [(REFUSED, 10172, 0)]


def took(story: StreamStory, seq: int, said: str, subject: str = "a.x", **more: str) -> Any:
    """A source's message is judged and, when it is taken, stored: its header and sum, or the refusal's err_code."""
    origin = Origin.from_json(
        {"name": "A", "subject_transforms": [{"src": "a.>", "dest": "s.>"}]}, "stream source"
    )
    conversion = SourceRewrite(origin, "token", is_mirror=False)
    _, header, payload = message(subject.encode(), said.encode(), **{"Nats_Incr": "1", **more})
    found = Candidate(
        conversion.subject(subject.encode(), seq), conversion.header(header, subject.encode(), seq), payload
    )
    refusal = story.admission.messages.judge_taken(found, story.admission.end.next_seq, story.now_ns)
    if refusal is not None:
        return refusal.code
    story.admission.end.note_own((found.subject, found.header, found.payload))
    return (
        header_value(found.header, b"Nats-Incr"),
        header_value(found.header, b"Nats-Counter-Sources"),
        found.payload,
    )


@pytest.mark.covers("SF-12")
def test_what_a_source_says_counts_by_what_it_is_more_than_what_was_heard_before() -> None:
    story = counters()
    story.publish(incr("100", b"s.x"))
    assert took(story, 1, '{"val":"5"}') == (b"5", b'{"A":{"a.x":"5"}}', b'{"val":"105"}')
    assert took(story, 2, '{"val":"3"}') == (b"-2", b'{"A":{"a.x":"3"}}', b'{"val":"103"}')
    # Some were left out, and one comes again.
    assert took(story, 9, '{"val":"50"}') == (b"47", b'{"A":{"a.x":"50"}}', b'{"val":"150"}')
    assert took(story, 9, '{"val":"50"}') == (b"0", b'{"A":{"a.x":"50"}}', b'{"val":"150"}')
    # The stream's own increments keep what was heard.
    story.publish(incr("1", b"s.x"))
    assert story.texts == [b'"val":"151"']
    assert took(story, 10, '{"val":"51"}') == (b"1", b'{"A":{"a.x":"51"}}', b'{"val":"152"}')
    assert took(story, 11, '{"val":"7"}', "a.&") == (b"7", b'{"A":{"a.\\u0026":"7"}}', b'{"val":"7"}')


def test_a_source_that_is_no_counter_is_passed_over_and_one_that_cannot_be_added_waits() -> None:
    story = counters()
    assert took(story, 1, "hello") == 10169
    assert took(story, 1, '{"val":"5"}', Nats_Incr="") == 10169
    story.publish(
        incr("1", b"s.x", Nats_Counter_Sources="junk"),
        incr("1", b"s.y", Nats_Counter_Sources='{"A":{"a.y":5}}'),
    )
    assert took(story, 1, '{"val":"5"}') == 10172
    assert took(story, 1, '{"val":"5"}', "a.y") == 10172
    assert _is_held(Exceptional(0, REFUSED, 10172))
    assert not _is_held(Exceptional(0, REFUSED, 10169))
    tight = counters(max_msg_size=90)
    assert took(tight, 1, '{"val":"5"}') == 10054


# ---- atomic batches -------------------------------------------------------------------------------------------------


@pytest.mark.covers("SF-12", "SF-11")
def test_a_batch_is_stored_as_a_whole_in_one_entry_when_it_is_committed() -> None:
    story = atomic()
    assert story.publish(message(), part(1, subject=b"s.1"), part(2, subject=b"s.2"), message()) == [
        (1,),
        (STAGED, 0, 0),
        (STAGED, 0, 0),
        (2,),
    ]
    assert story.publish(message(), part(3, commit="1"), message()) == [(3,), (WORDED, 0, 6), (7,)]
    assert story.texts[1] == b'"batch":"b","count":3'
    entry = story.uncommitted[-1]
    assert [decode_stored(entry).message(seq).subject for seq in range(3, 8)] == [
        b"s.a",
        b"s.1",
        b"s.2",
        b"s.a",
        b"s.a",
    ]
    story.commit()
    assert story.held() == [1, 2, 3, 4, 5, 6, 7]
    assert story.admission.batches.bytes == 0


def test_an_end_marker_commits_and_is_not_stored() -> None:
    story = atomic()
    assert story.publish(part(1), part(2, commit="eob"))[1] == (WORDED, 0, 1)
    assert story.publish(part(1, commit="eob")) == [(REFUSED, atomic_batches.INCOMPLETE, 0)]
    assert story.publish(part(1, commit="1")) == [(WORDED, 0, 2)]


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([part(2)], atomic_batches.INCOMPLETE),
        ([part(0)], atomic_batches.INCOMPLETE),
        ([part(1), part(3)], atomic_batches.INCOMPLETE),
        ([part(1), part(1)], atomic_batches.INCOMPLETE),
        ([part(1), part(2, commit="yes")], atomic_batches.INVALID_COMMIT),
        ([message(Nats_Batch_Id="b")], atomic_batches.NO_SEQUENCE),
        ([message(Nats_Batch_Id="b", Nats_Batch_Sequence="x")], atomic_batches.NO_SEQUENCE),
        ([part(1, "x" * 65)], atomic_batches.INVALID_ID),
        ([part(1001)], atomic_batches.TOO_LARGE),
    ],
)
def test_a_batch_that_goes_wrong_is_dropped(parts: list[Any], code: int) -> None:
    story = atomic()
    *held, last = story.publish(*parts)
    assert held == [(STAGED, 0, 0)] * (len(parts) - 1)
    assert last == (REFUSED, code, 0)
    assert story.publish(part(2, commit="1")) == [(REFUSED, atomic_batches.INCOMPLETE, 0)]
    assert story.publish(part(1, "y" * 64, commit="1")) == [(WORDED, 0, 1)]


@pytest.mark.parametrize(
    ("first", "last", "code"),
    [
        ({"Nats_Expected_Stream": "T"}, {}, 10060),
        ({"Nats_TTL": "bad"}, {}, 10165),
        ({"Nats_Expected_Last_Msg_Id": "x"}, {}, atomic_batches.UNSUPPORTED_HEADER),
        ({"Nats_Msg_Id": "m"}, {"Nats_Msg_Id": "m"}, atomic_batches.DUPLICATE_ID),
        ({"Nats_Msg_Id": "known"}, {}, atomic_batches.DUPLICATE_ID),
        ({"Nats_Expected_Last_Sequence": "9"}, {}, 10071),
        ({}, {"Nats_Expected_Last_Sequence": "1"}, 10071),
        ({}, {"Nats_Expected_Last_Sequence": "2"}, 10164),
        ({"Nats_Expected_Last_Subject_Sequence": "9"}, {}, 10071),
        ({}, {"Nats_Expected_Last_Subject_Sequence": "2"}, 10164),
        ({}, {"Nats_Rollup": "sub"}, 10111),
        ({}, {"Nats_Rollup": "all"}, 10111),
    ],
)
@pytest.mark.covers("SF-12")
def test_what_is_refused_on_commit_leaves_no_trace(
    first: dict[str, Any], last: dict[str, Any], code: int
) -> None:
    story = atomic(allow_rollup_hdrs=True, allow_msg_ttl=True)
    story.publish(message(b"s.k", Nats_Msg_Id="known"))
    found = story.publish(part(1, **first), part(2, commit="1", **last))
    assert found[0] == (STAGED, 0, 0)
    assert found[1][:2] == (REFUSED, code)
    assert story.publish(
        message(Nats_Expected_Last_Subject_Sequence="0", Nats_Expected_Last_Msg_Id="known")
    ) == [(2,)]
    assert story.publish(message(Nats_Msg_Id="m", Nats_Expected_Last_Sequence="2")) == [(3,)]
    story.commit()
    assert story.held() == [1, 2, 3]


def test_a_batch_that_has_no_room_is_refused_as_a_whole() -> None:
    story = atomic(discard="new", max_msgs=3)
    story.publish(message(), message())
    assert story.publish(part(1), part(2, commit="1"))[1] == (REFUSED, 10077, 0)
    assert story.publish(message()) == [(3,)]
    assert story.publish(part(1, "c", commit="1"), room=False) == [(REFUSED, 10023, 0)]


@pytest.mark.covers("SF-11", "SF-12")
def test_a_refused_batch_leaves_nothing_behind_in_what_a_full_stream_counts() -> None:
    story = atomic(discard="new", max_msgs=3, max_msgs_per_subject=1)
    story.store(message(b"s.a"), message(b"s.b"), message(b"s.c"))
    refused = story.publish(part(1, subject=b"s.a"), part(2, commit="1", subject=b"s.d"))
    assert refused[1] == (REFUSED, 10077, 0)
    assert story.admission.end.messages_before(story.admission.end.next_seq) == 3
    assert story.publish(message(b"s.d")) == [(REFUSED, 10077, 0)], "no room was made by what was refused"


def test_a_half_received_batch_goes_with_its_leader() -> None:
    story = atomic()
    story.publish(part(1), part(2))
    story.new_leader()
    assert story.publish(part(3, commit="1")) == [(REFUSED, atomic_batches.INCOMPLETE, 0)]
    # What is sent again is known: its verdict is in the log.
    story.commit()
    assert story.offer(block(part(1)), 1).pieces == ()
    assert story.held() == []


def test_a_batch_may_come_through_several_brokers() -> None:
    story = atomic()
    story.open(SECOND_SESSION)
    story.publish(part(1))
    assert story.publish(part(2, commit="1"), key=SECOND_SESSION) == [(WORDED, 0, 2)]


def test_batches_are_bounded_in_number_size_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    story = atomic()
    assert story.publish(*(part(1, str(each)) for each in range(51)))[49:] == [
        (STAGED, 0, 0),
        (REFUSED, atomic_batches.TOO_MANY, 0),
    ]
    assert story.admission.batches.next_ns() == story.now_ns + atomic_batches.IDLE_MS_MAX * MS
    story.now_ns += 6 * SECOND
    story.publish(part(2, "7"))
    story.now_ns += 4 * SECOND + MS
    assert story.publish(part(2, "8", "1"), part(3, "7", "1")) == [
        (REFUSED, atomic_batches.INCOMPLETE, 0),
        (WORDED, 0, 3),
    ]
    assert story.admission.batches.next_ns() is None
    monkeypatch.setattr(atomic_batches, "BATCH_BYTES_MAX", 1000)
    assert story.publish(part(1, payload=b"x" * 600), part(2, payload=b"x" * 600))[1] == (
        REFUSED,
        atomic_batches.TOO_LARGE,
        0,
    )
    assert story.texts[1] == b"1000 bytes"
    monkeypatch.setattr(atomic_batches, "HELD_BYTES_MAX", 1000)
    assert story.publish(*(part(1, str(each), payload=b"x" * 600) for each in range(2)))[1] == (
        REFUSED,
        atomic_batches.TOO_MANY,
        0,
    )


def test_a_thousand_messages_are_a_batch_and_one_more_is_too_many() -> None:
    story = atomic()
    found = story.publish(*(part(number) for number in range(1, 1000)), part(1000, commit="1"))
    assert found[-1] == (WORDED, 0, 1000)
    assert story.publish(*(part(number) for number in range(1, 1001)), part(1001, commit="1"))[-1] == (
        REFUSED,
        atomic_batches.TOO_LARGE,
        0,
    )
    assert story.publish(*(part(number) for number in range(1, 1001)), part(1001, commit="eob"))[-1] == (
        WORDED,
        0,
        2000,
    )


def test_a_stream_that_stops_allowing_batches_drops_them() -> None:
    story = atomic()
    story.publish(part(1))
    story.admission.end.config = config()
    assert story.publish(part(2)) == [(REFUSED, atomic_batches.DISABLED, 0)]
    story.admission.end.config = config(allow_atomic=True)
    assert story.publish(part(2, commit="1")) == [(REFUSED, atomic_batches.INCOMPLETE, 0)]
    assert StreamStory().publish(part(1), message(Nats_Batch_Id="")) == [(REFUSED, 10174, 0), (1,)]


def test_batches_of_increments_add_up() -> None:
    story = StreamStory(config(allow_atomic=True, allow_msg_counter=True))
    story.publish(part(1, Nats_Incr="1"), part(2, Nats_Incr="2"), part(3, commit="1", Nats_Incr="3"))
    story.commit()
    assert values(story) == ["1", "3", "6"]
    assert story.publish(part(1, Nats_Incr="1"), part(2, commit="1"))[1] == (REFUSED, 10169, 0)
    story.publish(incr("1"))
    assert story.texts == [b'"val":"7"']


# ---- words ----------------------------------------------------------------------------------------------------------


def test_what_a_verdict_says_besides_travels_with_it() -> None:
    run = VerdictRun(
        5,
        4,
        9,
        (
            Exceptional(0, REFUSED, 10070, 0, b"id"),
            Exceptional(2, WORDED, 0, 9, b'"val":"1"'),
            Exceptional(3, STAGED),
        ),
    )
    assert decode_run(Reader(encode_run(run))) == run
    assert run.tail(7).exceptions == (Exceptional(0, WORDED, 0, 9, b'"val":"1"'), Exceptional(1, STAGED))


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (Exceptional(0, REFUSED, 10070, 0, b"m1"), "wrong last msg ID: m1"),
        (Exceptional(0, REFUSED, 10071, 7), "wrong last sequence: 7"),
        (Exceptional(0, REFUSED, 10111, 1, b'a"b'), 'rollup value invalid: "a\\"b"'),
        (Exceptional(0, REFUSED, 10111, 0), "rollup not permitted"),
        (Exceptional(0, REFUSED, 10111, 2), "batch rollup sub invalid"),
        (Exceptional(0, REFUSED, 10111, 3), "batch rollup all invalid"),
        (Exceptional(0, REFUSED, 10177, 0, b"Nats-X"), "atomic publish unsupported header used: Nats-X"),
        (Exceptional(0, REFUSED, 10199, 0, b"1000"), "atomic publish batch is too large: 1000"),
        (Exceptional(0, REFUSED, 10077, 2), "maximum messages per subject exceeded"),
    ],
)
def test_refusals_have_natss_words(item: Exceptional, text: str) -> None:
    assert refusals.of_publish(item).description == text
