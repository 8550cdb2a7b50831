"""The leader's verdicts: against the end of its log, once and for all."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.jetstream.publish.stream_story import ORIGIN, SECOND, StreamStory, block, config, message
from tests.support.tiers import examples

from supercluster.broker.jetstream.encoding.codec import WireError, u64
from supercluster.broker.jetstream.encoding.sections import Exceptional, Section, SessionKey, Verdict
from supercluster.broker.jetstream.links.frames import Forward
from supercluster.broker.jetstream.publish import log_tail, refusals
from supercluster.broker.jetstream.publish.admission import Answer
from supercluster.broker.jetstream.publish.message_admission import (
    FULL_BYTES,
    FULL_MESSAGES,
    FULL_SUBJECT,
    ROLLUP_REFUSED,
    SOURCE_REFUSED,
)
from supercluster.broker.jetstream.state.log_reader import logical_bytes
from supercluster.broker.jetstream.state.subject_index import SubjectIndex

REFUSED, DUPLICATE, REROUTE, VOID = Verdict.REFUSED, Verdict.DUPLICATE, Verdict.REROUTE, Verdict.VOID


@pytest.mark.covers("SF-10")
def test_only_the_next_number_is_taken() -> None:
    story = StreamStory()
    assert story.offer(block(message(), message()), 3).answer is Answer.AGAIN_FROM
    assert story.offer(block(message(), message()), 1).answer is Answer.TAKEN
    assert story.offer(block(message(), message()), 1).answer is Answer.KNOWN
    assert story.offer(block(message()), 5).next_number == 3
    overlapping = story.offer(block(message(b"s.1"), message(b"s.2"), message(b"s.3")), 2)
    [piece] = overlapping.pieces
    assert (piece.section.run.first_number, piece.section.run.count) == (3, 2)
    story.commit()
    stored = [story.state.message(seq) for seq in story.held()]
    assert [found.subject for found in stored if found] == [b"s.a", b"s.a", b"s.2", b"s.3"]


@pytest.mark.covers("SF-10")
def test_a_newer_session_of_a_broker_shuts_out_the_older_one() -> None:
    story = StreamStory()
    newer, other_volume = SessionKey("east-0", "vol-a", 2), SessionKey("east-0", "vol-b", 1)
    assert story.offer(block(message()), 1, newer).answer is Answer.OPEN_FIRST
    story.open(newer)
    assert story.offer(block(message()), 1, ORIGIN).answer is Answer.SHUT_OUT
    assert story.offer(block(message()), 1, newer).answer is Answer.TAKEN
    story.open(other_volume)
    assert story.offer(block(message()), 2, newer).answer is Answer.SHUT_OUT
    assert not story.admission.end.may_open(newer)
    assert story.offer(block(message()), 1, other_volume).answer is Answer.TAKEN


def test_garbage_is_no_block() -> None:
    story = StreamStory()
    with pytest.raises(WireError):
        story.offer(b"\x09\x00\x00\x00oops", 1)
    assert story.publish(message()) == [(1,)]


@pytest.mark.covers("SF-12")
def test_message_ids_are_known_in_flight_and_committed_until_their_window_is_over() -> None:
    story = StreamStory(config(duplicate_window=10 * SECOND))
    one = message(Nats_Msg_Id="one")
    assert story.publish(one, one, message()) == [(1,), (DUPLICATE, 0, 1), (2,)]
    assert story.publish(one) == [(DUPLICATE, 0, 1)]
    story.new_leader()
    assert story.publish(one) == [(DUPLICATE, 0, 1)]
    story.commit()
    story.now_ns += 9 * SECOND
    assert story.publish(one) == [(DUPLICATE, 0, 1)]
    story.now_ns += 2 * SECOND
    assert story.publish(one) == [(3,)]
    story.commit()
    assert story.publish(one) == [(DUPLICATE, 0, 3)]


@pytest.mark.covers("SF-12")
def test_of_two_creates_in_flight_one_wins_whoever_leads() -> None:
    story = StreamStory()
    create = message(b"s.k", Nats_Expected_Last_Subject_Sequence="0")
    assert story.publish(create, create) == [(1,), (REFUSED, 10071, 1)]
    assert story.publish(create) == [(REFUSED, 10071, 1)]
    story.new_leader()
    assert story.publish(create) == [(REFUSED, 10071, 1)]
    assert story.publish(message(b"s.other", Nats_Expected_Last_Subject_Sequence="0")) == [(2,)]
    # Blocks that were taken as a whole count too.
    assert story.publish(message(b"s.plain"), message(b"s.plain")) == [(3,), (4,)]
    assert story.publish(message(b"s.plain", Nats_Expected_Last_Subject_Sequence="3")) == [
        (REFUSED, 10071, 4)
    ]
    assert story.publish(message(b"s.plain", Nats_Expected_Last_Subject_Sequence="4")) == [(5,)]
    story.commit()
    assert story.publish(message(b"s.plain", Nats_Expected_Last_Subject_Sequence="5")) == [(6,)]


def test_expectations_are_held_against_the_end_of_the_log() -> None:
    story = StreamStory()
    story.publish(message(Nats_Msg_Id="one"))
    assert story.publish(message(Nats_Expected_Last_Sequence="0")) == [(REFUSED, 10071, 1)]
    assert story.publish(message(Nats_Expected_Last_Sequence="1", Nats_Expected_Last_Msg_Id="one")) == [(2,)]
    assert story.publish(message(Nats_Expected_Last_Msg_Id="one")) == [(REFUSED, 10070, 0)]
    assert story.publish(message(Nats_Expected_Stream="T")) == [(REFUSED, 10060, 0)]
    assert story.publish(message(Nats_Expected_Stream="S")) == [(3,)]
    for bad in ("x", "-1", "1.0", "9" * 5000, "9" * 20):
        assert story.publish(message(Nats_Expected_Last_Sequence=bad)) == [(REFUSED, 10071, 3)]
    assert story.publish(message(Nats_Expected_Last_Sequence="", Nats_Msg_Id="two")) == [(4,)]
    assert story.publish(message(Nats_Expected_Last_Msg_Id="one")) == [(REFUSED, 10070, 0)]
    assert story.texts == [b"two"]


def test_of_several_broken_rules_clients_are_told_the_one_that_nats_tells() -> None:
    story = StreamStory()
    story.publish(message(Nats_Msg_Id="one"), message())
    rules = (
        ("Nats_Incr", "1", (REFUSED, 10168, 0)),
        ("Nats_Expected_Stream", "T", (REFUSED, 10060, 0)),
        ("Nats_TTL", "1", (REFUSED, 10166, 0)),
        ("Nats_Expected_Last_Sequence", "9", (REFUSED, 10071, 2)),
        ("Nats_Expected_Last_Subject_Sequence", "8", (REFUSED, 10071, 2)),
        ("Nats_Schedule", "x", (REFUSED, 10188, 0)),
        ("Nats_Stream_Source", "X 1 > > x", (REFUSED, ROLLUP_REFUSED, SOURCE_REFUSED)),
        ("Nats_Msg_Id", "one", (DUPLICATE, 0, 1)),
        ("Nats_Expected_Last_Msg_Id", "two", (REFUSED, 10070, 0)),
        ("Nats_Rollup", "x", (REFUSED, 10111, 0)),
    )
    for first in range(len(rules)):
        headers = {name: value for name, value, _ in rules[first:]}
        assert story.publish(message(b"s.a", b"", **headers)) == [rules[first][2]]
    both = message(Nats_TTL="bad", Nats_Msg_Id="one"), message(Nats_TTL="bad", Nats_Rollup="x")
    assert story.publish(*both) == [(DUPLICATE, 0, 1), (REFUSED, 10165, 0)]


def test_a_verdict_of_a_later_version_is_told_as_a_refusal() -> None:
    told = refusals.of_publish(Exceptional(0, REFUSED, 10999, 0))
    assert (told.code, told.err_code, told.description) == (400, 10999, "the message is refused")
    forged = refusals.of_publish(Exceptional(0, REFUSED, ROLLUP_REFUSED, SOURCE_REFUSED))
    assert (forged.code, forged.err_code) == (400, 10227)


@pytest.mark.covers("SF-12")
def test_an_expectation_may_be_about_another_subject_than_the_message_has() -> None:
    about = "Nats_Expected_Last_Subject_Sequence_Subject"
    story = StreamStory()
    assert story.store(message(b"s.k.1"), message(b"s.other")) == [1, 2]

    def expects(subject: str, sequence: str) -> list[tuple[int, ...]]:
        return story.publish(
            message(b"s.new", b"", **{"Nats_Expected_Last_Subject_Sequence": sequence, about: subject})
        )

    assert expects("s.k.1", "0") == [(REFUSED, 10071, 1)]
    assert expects("s.k.1", "1") == [(3,)]
    assert expects("s.new", "0") == [(REFUSED, 10071, 3)]
    assert expects("s.k.*", "1") == [(4,)]
    # What is in flight counts, blocks that were taken as a whole too, for whoever leads.
    assert story.publish(message(b"s.k.2")) == [(5,)]
    assert expects("s.k.>", "1") == [(REFUSED, 10071, 5)]
    story.new_leader()
    assert expects("s.k.>", "1") == [(REFUSED, 10071, 5)]
    assert expects("s.k.>", "5") == [(6,)]
    story.commit()
    assert expects("s.*.*", "5") == [(7,)]
    assert expects("s..x", "0") == [(8,)]
    assert expects("s.*.>.x", "1") == [(REFUSED, 10071, 0)]
    assert story.publish(message(b"s.new", b"", **{about: "s.k.1"})) == [(REFUSED, 10193, 0)]


def test_what_no_stream_allows_is_refused_and_not_stored_in_silence() -> None:
    story = StreamStory()
    for header, code in (
        ("Nats_TTL", 10166),
        ("Nats_Incr", 10168),
        ("Nats_Batch_Id", 10174),
        ("Nats_Schedule", 10188),
    ):
        assert story.publish(message(b"s.a", b"", **{header: "1"})) == [(REFUSED, code, 0)]
    assert story.publish(message(My_Nats_TTL="1")) == [(1,)]


def test_sequences_begin_where_the_first_configuration_says() -> None:
    story = StreamStory(config(subjects=["s.>"]))
    wanted = config(first_seq=100)
    body = u64(1) + u64(7) + json.dumps(wanted.to_json()).encode()
    story.append((Section.CONFIG_PUT, [body]))
    story.admission.end.configured(wanted)
    # Messages may follow before it is applied, under this leader and under the next.
    assert story.publish(message()) == [(100,)]
    story.new_leader()
    assert story.publish(message(Nats_Expected_Last_Sequence="100")) == [(101,)]
    story.commit()
    assert (story.state.first_seq, story.state.last_seq, story.held()) == (100, 101, [100, 101])
    story.admission.end.configured(wanted)
    assert story.publish(message()) == [(102,)]


@pytest.mark.parametrize("committed", [False, True])
def test_a_leader_without_messages_finds_where_the_sequences_begin(committed: bool) -> None:
    story = StreamStory(config(subjects=["s.>"]))
    wanted = config(first_seq=100)
    story.append((Section.CONFIG_PUT, [u64(1) + u64(7) + json.dumps(wanted.to_json()).encode()]))
    if committed:
        story.commit()
    story.new_leader()
    assert story.publish(message()) == [(100,)]


def test_sizes_roll_ups_and_sealed_streams() -> None:
    story = StreamStory(config(max_msg_size=10))
    assert story.publish(message(payload=b"x" * 11), message(payload=b"x" * 10)) == [
        (REFUSED, 10054, 0),
        (1,),
    ]
    assert story.publish(message(Nats_Rollup="sub")) == [(REFUSED, 10054, 0)]
    assert StreamStory().publish(message(Nats_Rollup="sub")) == [(REFUSED, 10111, 0)]
    rolling = StreamStory(config(allow_rollup_hdrs=True))
    assert rolling.publish(message(Nats_Rollup="some"), message(Nats_Rollup="all")) == [
        (REFUSED, 10111, 1),
        (1,),
    ]
    assert rolling.texts == [b"some", b""]
    assert rolling.publish(message(Nats_Rollup="ALL")) == [(2,)]
    rolling.commit()
    assert rolling.held() == [2]
    assert rolling.publish(message(Long="x" * 65_600)) == [(REFUSED, 10097, 0)]
    sealed = StreamStory(config(sealed=True))
    assert sealed.publish(message(), message(Nats_Msg_Id="1")) == [(REFUSED, 10109, 0)] * 2


def test_what_was_given_up_what_went_elsewhere_and_what_has_no_room() -> None:
    story = StreamStory()
    assert story.publish((b"", b"", b""), message()) == [(VOID, 0, 0), (1,)]
    assert story.publish(message(), message(), room=False) == [(REFUSED, 10023, 0)] * 2
    story.commit()
    assert story.held() == [1]


@pytest.mark.covers("SF-14")
def test_a_subject_that_is_not_the_streams_is_routed_again() -> None:
    story = StreamStory()
    assert story.publish(message(b"t.x", Any="header"), message()) == [(REROUTE, 0, 0), (1,)]
    # Without headers a block is looked into when its taker's map is older than the configuration.
    story.admission.end.config_version = 7
    old_map = Forward(ORIGIN, 3, 0, 6, block(message(b"t.x"), message()))
    [piece] = story.admission.take(old_map, story.now_ns).pieces
    section = piece.section
    assert section is not None
    assert [(item.offset, item.verdict) for item in section.run.exceptions] == [(0, REROUTE)]


def test_a_full_stream_counts_what_is_in_flight() -> None:
    story = StreamStory(config(discard="new", max_msgs=3))
    assert story.publish(*[message()] * 5) == [
        (1,),
        (2,),
        (3,),
        (REFUSED, 10077, FULL_MESSAGES),
        (REFUSED, 10077, FULL_MESSAGES),
    ]
    assert story.publish(message()) == [(REFUSED, 10077, FULL_MESSAGES)]
    story.commit()
    assert story.publish(message()) == [(REFUSED, 10077, FULL_MESSAGES)]


@pytest.mark.parametrize("turnover", ["one block", "many blocks", "committed", "new leader"])
def test_bytes_in_flight_count_exactly(turnover: str) -> None:
    one = message(payload=b"x" * 50)
    size = logical_bytes(*one)
    story = StreamStory(config(discard="new", max_bytes=4 * size + size // 2))
    verdicts: list[tuple[int, ...]] = []
    if turnover == "one block":
        verdicts = story.publish(*[one] * 6)
    else:
        for _ in range(6):
            verdicts += story.publish(one)
            if turnover == "committed":
                story.commit()
            elif turnover == "new leader":
                story.new_leader()
    full = (REFUSED, 10077, FULL_BYTES)
    assert verdicts == [(1,), (2,), (3,), (4,), full, full]
    story.commit()
    assert story.state.bytes == 4 * size
    assert story.publish(message(b"s", payload=b"")) == [(REROUTE, 0, 0)]


def test_a_full_subject_counts_what_is_in_flight() -> None:
    story = StreamStory(config(discard="new", max_msgs_per_subject=2, discard_new_per_subject=True))
    full = (REFUSED, 10077, FULL_SUBJECT)
    assert story.publish(*[message(b"s.a")] * 3, message(b"s.b")) == [(1,), (2,), full, (3,)]
    story.new_leader()
    assert story.publish(message(b"s.a"), message(b"s.b"), message(b"s.b")) == [full, (4,), full]
    story.commit()
    assert story.publish(message(b"s.a"), message(b"s.c")) == [full, (5,)]
    story.commit()
    assert story.held() == [1, 2, 3, 4, 5]


@pytest.mark.covers("SF-11")
def test_a_number_keeps_its_first_verdict() -> None:
    story = StreamStory()
    story.publish(message(Nats_Expected_Last_Sequence="5"), message())
    story.new_leader()
    assert story.offer(block(message(Nats_Expected_Last_Sequence="0"), message()), 1).answer is Answer.KNOWN
    story.commit()
    session = story.state.sessions.current(ORIGIN)
    assert session is not None
    (run,) = session.verdicts(1, 2)
    assert [(item.offset, item.verdict, item.code) for item in run.exceptions] == [(0, REFUSED, 10071)]
    assert (run.count, run.first_seq) == (2, 1)


@pytest.mark.covers("SF-11")
def test_a_verdict_is_kept_however_long_its_publisher_is_silent() -> None:
    """It may repeat the number then, and no clock tells that it does not."""
    story = StreamStory()
    story.store(message())
    story.now_ns += 3600 * 10**9
    story.store(message())
    session = story.state.sessions.current(ORIGIN)
    assert session is not None
    assert sum(run.count for run in session.verdicts(1, 2)) == 2


@pytest.mark.covers("SF-29")
@settings(max_examples=examples(80, 1_000), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("store"), st.integers(0, 3)),
            st.tuples(st.just("delete"), st.integers(1, 20)),
            st.tuples(st.just("purge"), st.just(0)),
        ),
        max_size=25,
    )
)
def test_the_last_message_of_a_pattern_is_known_whatever_was_removed(steps: list[tuple[str, int]]) -> None:
    story = StreamStory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_tail, "PATTERN_MESSAGES_MAX", 4)
        patch.setattr(log_tail, "PATTERNS_MAX", 2)
        for what, number in steps:
            if what == "store":
                story.store(message((b"s.a", b"s.b", b"s.c.d", b"s.e")[number]))
            elif what == "delete":
                story.command(Section.DELETE_MESSAGE, u64(number))
            else:
                story.command(Section.PURGE, b"{}")
            for pattern in ("s.*", "s.c.>", "*.b", "t.*")[number % 2 :]:
                wanted = story.state.subjects.last_for_filters(pattern)
                assert story.admission.end.last_of_subject(pattern.encode()) == wanted


@pytest.mark.covers("SF-29")
def test_all_subjects_are_asked_about_a_pattern_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream may have a million, and every publish may name the pattern."""
    story = StreamStory()
    story.store(*(message(b"s.%d" % number) for number in range(50)))
    asked: list[str] = []
    last_for_filters = SubjectIndex.last_for_filters

    def counted(index: SubjectIndex, *filters: str) -> int:
        asked.extend(filters)
        return last_for_filters(index, *filters)

    monkeypatch.setattr(SubjectIndex, "last_for_filters", counted)
    for number in range(30):
        header = {"Nats_Expected_Last_Subject_Sequence": str(50 + number)}
        header["Nats_Expected_Last_Subject_Sequence_Subject"] = "s.*"
        assert story.publish(message(b"s.%d" % number, b"", **header)) == [(51 + number,)]
        story.commit()
    assert asked == ["s.*"]
