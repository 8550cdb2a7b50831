"""The replicated state of a stream: limits, removals, retention, message ids, snapshots, and its sameness everywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.jetstream.publish.stream_story import (
    ORIGIN,
    SECOND,
    SUBJECTS,
    StreamStory,
    Triple,
    block,
    check_whole,
    config,
    message,
)
from tests.support.tiers import examples

from supercluster.broker.jetstream.encoding.codec import u64
from supercluster.broker.jetstream.encoding.sections import Section, SessionKey, encode_session
from supercluster.broker.jetstream.publish.admission import Admission, Answer
from supercluster.broker.jetstream.state import messages
from supercluster.broker.jetstream.state.log_reader import logical_bytes
from supercluster.broker.jetstream.state.snapshot import restore, snapshot_of
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.protocol.subjects import matches


def purge(story: StreamStory, **wanted: Any) -> int:
    return story.command(Section.PURGE, json.dumps(wanted).encode())[0]


def subjects_of(story: StreamStory) -> dict[int, bytes]:
    found = {seq: story.state.message(seq) for seq in story.held()}
    return {seq: item.subject for seq, item in found.items() if item is not None}


def test_limits_in_messages_and_bytes_take_the_oldest() -> None:
    story = StreamStory(config(max_msgs=3))
    story.store(*[message()] * 5)
    assert (story.held(), story.state.first_seq) == ([3, 4, 5], 3)
    one = message(payload=b"x" * 20)
    story = StreamStory(config(max_bytes=3 * logical_bytes(*one)))
    story.store(*[one] * 4)
    assert (story.held(), story.state.bytes) == ([2, 3, 4], 3 * logical_bytes(*one))
    story.store(message(payload=b"x" * 1000))
    assert (story.held(), story.state.bytes, story.state.first_seq) == ([], 0, 6)
    assert story.store(message()) == [6]


@pytest.mark.parametrize("limit", [1, 2])
def test_limits_per_subject_leave_the_newest_of_each(limit: int) -> None:
    story = StreamStory(config(max_msgs_per_subject=limit))
    for _ in range(3):
        story.store(message(b"s.a"), message(b"s.b"))
    story.store(message(b"s.c"))
    kept = subjects_of(story)
    assert list(kept.values()).count(b"s.a") == limit
    assert kept == {
        seq: subject
        for seq, subject in {
            1: b"s.a",
            2: b"s.b",
            3: b"s.a",
            4: b"s.b",
            5: b"s.a",
            6: b"s.b",
            7: b"s.c",
        }.items()
        if seq > 6 - 2 * limit
    }
    assert story.state.messages == len(kept)


@pytest.mark.covers("SF-13")
def test_expiry_is_an_entry_and_takes_what_it_names() -> None:
    story = StreamStory()
    story.store(*[message()] * 5)
    story.now_ns += 1000 * SECOND
    story.store(message())
    assert story.held() == [1, 2, 3, 4, 5, 6], "time alone removes nothing"
    assert story.command(Section.EXPIRE, u64(4)) == [4]
    assert (story.held(), story.state.first_seq) == ([5, 6], 5)


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        ({}, []),
        ({"keep": 2}, [5, 6]),
        ({"seq": 4}, [4, 5, 6]),
        ({"seq": 100}, []),
        ({"filter": "s.a"}, [2, 4, 6]),
        ({"filter": "s.*"}, []),
        ({"filter": "s.a", "keep": 1}, [2, 4, 5, 6]),
        ({"filter": "s.a", "seq": 5}, [2, 4, 5, 6]),
        ({"filter": "s.nothing"}, [1, 2, 3, 4, 5, 6]),
        ({"keep": 10}, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_purges(wanted: dict[str, Any], left: list[int]) -> None:
    story = StreamStory()
    story.store(*[message(b"s.a"), message(b"s.b")] * 3)
    assert purge(story, **wanted) == 6 - len(left)
    assert story.held() == left
    assert story.state.last_seq == 6
    assert story.store(message()) == [7]
    assert story.state.messages == len(left) + 1


def test_deletes_in_the_middle_at_the_ends_and_of_nothing() -> None:
    story = StreamStory()
    story.store(*[message(b"s.%d" % (number % 2)) for number in range(6)])

    def delete(seq: int) -> int:
        return story.command(Section.DELETE_MESSAGE, u64(seq))[0]

    assert [delete(3), delete(3), delete(9), delete(0)] == [1, 0, 0, 0]
    assert (story.held(), sorted(story.state.deleted)) == ([1, 2, 4, 5, 6], [3])
    assert delete(6) == 1
    assert story.state.subjects.last_seq(b"s.1") == 4
    assert [delete(1), delete(2)] == [1, 1]
    assert (story.state.first_seq, sorted(story.state.deleted)) == (4, [6])
    assert [delete(5), delete(4)] == [1, 1]
    assert (story.state.messages, story.state.bytes, story.state.first_seq) == (0, 0, 7)
    assert not story.state.deleted
    assert len(story.state.subjects) == 0


def roll(subject: bytes, how: str) -> Triple:
    return message(subject, b"sum", Nats_Rollup=how)


def test_roll_ups_remove_what_they_stand_for_also_in_their_own_block() -> None:
    story = StreamStory(config(allow_rollup_hdrs=True))
    story.store(message(b"s.a"), message(b"s.b"))
    story.store(message(b"s.a"), roll(b"s.a", "sub"), message(b"s.a"))
    assert story.held() == [2, 4, 5]
    story.store(message(b"s.c"), roll(b"s.b", "all"), message(b"s.d"))
    assert story.held() == [7, 8]
    kept = [roll(b"s.b", "all"), message(b"s.d")]
    assert story.state.bytes == sum(logical_bytes(*one) for one in kept)
    assert story.state.subjects.subjects() == {"s.b": 1, "s.d": 1}
    assert purge(story) == 2
    odd = b"s.\xff\xfe"
    story.store(message(odd), roll(odd, "sub"))
    assert len(story.held()) == 1


@pytest.mark.covers("SF-29")
@pytest.mark.parametrize("more", [{"max_msgs_per_subject": 1}, {"max_msgs_per_subject": 300}])
@pytest.mark.parametrize("discard", [{}, {"discard": "new", "max_bytes": 1 << 30}])
def test_limits_per_subject_look_at_each_message_of_an_entry_a_few_times(
    more: dict[str, int], discard: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at all of them for each that goes: an entry of 2,000 messages held the loop for seconds."""
    looks = 0
    index = messages._index

    def counted(subjects: list[bytes], subject: bytes, start: int) -> int:
        nonlocal looks
        found = index(subjects, subject, start)
        looks += (found if found >= 0 else len(subjects)) - start + 1
        return found

    monkeypatch.setattr(messages, "_index", counted)
    story = StreamStory(config(**more, **discard))
    for _ in range(2):
        story.store(*[message(b"s.%d" % (number % 5)) for number in range(2000)])
    assert story.state.messages == 5 * more["max_msgs_per_subject"]
    # Once per subject for what lies between two of its messages, and once more for a leader that judges.
    assert looks < 2 * 2 * 4000 * 5


def test_a_configuration_is_an_entry_and_its_limits_hold_at_once() -> None:
    story = StreamStory()
    story.store(*[message()] * 5)
    wanted = json.dumps(config(max_msgs=2, subjects=["s.>", "t"]).to_json()).encode()
    story.command(Section.CONFIG_PUT, u64(9) + u64(7), wanted)
    assert (story.held(), story.state.config_version, story.admission.end.config_version) == ([4, 5], 9, 9)
    story.command(Section.CONFIG_PUT, u64(4) + u64(7), wanted)
    assert story.state.config_version == 9


def test_a_stream_may_begin_at_a_later_sequence() -> None:
    story = StreamStory(config(first_seq=100))
    assert story.store(message(), message()) == [100, 101]
    assert story.held() == [100, 101]


def test_message_ids_are_forgotten_by_leader_time() -> None:
    story = StreamStory(config(duplicate_window=10 * SECOND))
    story.store(message(Nats_Msg_Id="1"))
    story.now_ns += 5 * SECOND
    story.store(message(Nats_Msg_Id="2"))
    assert story.state.known_message_id(b"1", story.now_ns) == 1
    story.now_ns += 5 * SECOND
    story.store(message())
    assert story.state.known_message_id(b"1", story.now_ns) is None
    assert list(story.state.message_ids) == [b"2"]


# ---- the same entries give the same state, whoever applies them and whenever it was written down in between ---------

MESSAGES = st.tuples(
    st.sampled_from(SUBJECTS), st.sampled_from(["", "1", "2", "roll-sub", "roll-all"]), st.binary(max_size=8)
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.lists(MESSAGES, min_size=1, max_size=6)),
        st.tuples(st.sampled_from(["delete", "expire", "purge_seq", "purge_keep"]), st.integers(0, 30)),
        st.tuples(st.just("purge_subject"), st.sampled_from(["s.a", "s.*", ">", "s.none"])),
        st.tuples(st.just("wait"), st.integers(1, 8)),
        st.tuples(st.sampled_from(["snapshot", "new_leader", "commit", "session"]), st.just(0)),
    ),
    max_size=25,
)
CONFIGS = st.sampled_from(
    [
        {},
        {"max_msgs": 5},
        {"max_bytes": 200},
        {"max_msgs_per_subject": 1},
        {"max_msgs_per_subject": 2, "max_msgs": 6},
        {"discard": "new", "max_msgs": 6},
        {"discard": "new", "max_bytes": 300},
        {"discard": "new", "max_msgs_per_subject": 2, "discard_new_per_subject": True},
    ]
)


def built(one: tuple[bytes, str, bytes]) -> Triple:
    subject, what, payload = one
    if what.startswith("roll"):
        return message(subject, payload, Nats_Rollup=what[5:])
    return message(subject, payload, **({"Nats_Msg_Id": what} if what else {}))


def take_step(story: StreamStory, kind: str, value: Any, session: SessionKey) -> SessionKey:
    if kind == "publish":
        # A refusal is a verdict like any other here; what is judged twice would show in the numbers.
        story.publish(*map(built, value), key=session)
    elif kind == "delete":
        story.append((Section.DELETE_MESSAGE, [u64(value)]))
    elif kind == "expire":
        story.append((Section.EXPIRE, [u64(min(value, story.state.last_seq))]))
    elif kind in ("purge_seq", "purge_keep", "purge_subject"):
        field = {"purge_seq": "seq", "purge_keep": "keep", "purge_subject": "filter"}[kind]
        story.append((Section.PURGE, [json.dumps({field: value}).encode()]))
    elif kind == "wait":
        story.now_ns += value * SECOND
    elif kind == "new_leader":
        story.new_leader()
    elif kind == "commit":
        story.commit(2)
    elif kind == "session":
        session = SessionKey(session.node, session.incarnation, session.counter + 1)
        story.append((Section.SESSION_OPEN, [encode_session(session)]))
        story.admission.end.opened(session)
    return session


@pytest.mark.covers("SF-11", "SF-12", "SF-13", "RP-4")
@settings(max_examples=examples(60, 400))
@given(CONFIGS, STEPS)
def test_replicas_are_equal_whatever_happened_in_between(
    fields: dict[str, Any], steps: list[tuple[str, Any]]
) -> None:
    story = StreamStory(config(allow_rollup_hdrs=True, duplicate_window=10 * SECOND, **fields))
    session = ORIGIN
    restored: StreamState | None = None
    for kind, value in steps:
        if kind == "snapshot":
            restored = restore(snapshot_of(story.state), story.log)
        session = take_step(story, kind, value, session)
    story.commit()
    check_whole(story.state)
    final = snapshot_of(story.state)
    replay = StreamState(story.config, 0, story.log)
    for entry in story.log.entries(1, story.log.last_index, 1 << 40):
        replay.apply(entry)
    assert snapshot_of(replay) == final
    if restored is not None:
        for entry in story.log.entries(restored.applied_index + 1, story.log.last_index, 1 << 40):
            restored.apply(entry)
        assert snapshot_of(restored) == final
    # A leader made anew continues where the log ends.
    assert Admission(story.state, []).end.next_seq == story.state.last_seq + 1
    assert story.offer(block(message()), story.numbers.get(session, 0) + 1, session).answer is Answer.TAKEN


def test_matching_purges_use_the_same_rule_as_subscriptions() -> None:
    story = StreamStory(config(subjects=[">"], no_ack=True))
    names = [b"a", b"a.b", b"a.b.c", b"b.b", b"a.\xff"]
    story.store(*[message(name) for name in names])
    purge(story, filter="a.*")
    assert list(subjects_of(story).values()) == [name for name in names if not matches(name, b"a.*")]
