"""What a state holds, as copies compare it: equal counts of other things are a difference; how it is hashed is none."""

from __future__ import annotations

import pytest
from tests.broker.jetstream.publish.stream_story import StreamStory, message

from supercluster.broker.jetstream.encoding.codec import u64
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.links.comparison_frames import HashesAsked, HashesTold
from supercluster.broker.jetstream.moves.range_hasher import HASH_PAUSE_MS, RangeHasher, hashing
from supercluster.broker.jetstream.state import digest as state_digest
from supercluster.broker.jetstream.state.digest import digesting
from supercluster.broker.jetstream.state.snapshot import restore, snapshot_of
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.turn.slices import at_once
from supercluster.broker.moves.comparison import Comparison


def story(*deleted: int, ids: tuple[str, ...] = (), subjects: bytes = b"ssssss") -> StreamStory:
    found = StreamStory()
    found.store(
        *[message(b"s." + bytes([name]), b"%d" % number) for number, name in enumerate(subjects)],
        *[message(b"s.id", Nats_Msg_Id=name) for name in ids],
    )
    for seq in deleted:
        found.command(Section.DELETE_MESSAGE, u64(seq))
    return found


def digest(state: StreamState) -> bytes:
    return at_once(digesting(state))


@pytest.mark.covers("SF-6", "MV-6")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (story(3), story(5)),
        (story(2, 4), story(3, 4)),
        (story(ids=("a", "b")), story(ids=("a", "c"))),
        (story(ids=("a", "b")), story(ids=("b", "a"))),
        (story(subjects=b"aabbcc"), story(subjects=b"aabbbc")),
        (story(subjects=b"aabbcc"), story(subjects=b"aabbcd")),
    ],
    ids=["deleted", "deleted-of-two", "ids", "ids-elsewhere", "counts-of-subjects", "subjects"],
)
def test_as_many_but_others_are_another_state(one: StreamStory, other: StreamStory) -> None:
    assert digest(one.state) != digest(other.state)


@pytest.mark.covers("SF-6")
def test_the_digest_is_of_the_moment_and_the_same_after_a_restart_and_however_it_is_sliced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = story(2, 5, 4, ids=("a", "b"))
    expected = digest(found.state)
    restored = restore(snapshot_of(found.state), found.log)
    assert digest(restored) == expected
    monkeypatch.setattr(state_digest, "SLICE_UNITS", 1)
    noted = digesting(found.state)
    next(noted)
    found.command(Section.DELETE_MESSAGE, u64(3))
    found.store(message(b"s.later"))
    assert at_once(noted) == expected != digest(found.state)


@pytest.mark.covers("SF-6")
def test_of_many_subjects_the_count_is_compared_and_deletes_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_digest, "SUBJECTS_MAX", 0)
    one, other = story(2, 3).state, story(2, 3, subjects=b"tttttt").state
    assert digest(one) == digest(other)
    other.deleted.discard(3)
    other.deleted.add(4)
    assert digest(one) != digest(other)


def test_a_large_state_is_hashed_in_slices_before_the_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_digest, "SLICE_UNITS", 4)
    found = story(2, 4, ids=("a", "b"))
    expected = at_once(hashing(found.state)) + digest(found.state)
    auditor = RangeHasher(found.log)
    job = auditor.marked(7, found.state)
    told: list[HashesTold] = []
    auditor.ask(HashesAsked("g", "m", 1, 7, 1, 0), told.append, 0)
    slices = now_ms = 0
    while auditor.state_at(7) == b"":
        now_ms += HASH_PAUSE_MS
        auditor.advance(found.state, 7, now_ms)
        assert told == [], "the state is not known yet"
        slices += next(job, None) is not None
        found.command(Section.DELETE_MESSAGE, u64(found.state.first_seq))
    assert slices > 1
    assert auditor.state_at(7) == expected


@pytest.mark.covers("SF-6")
@pytest.mark.parametrize(
    ("theirs", "difference"),
    [
        (b"h" * 16 + b"c" * 16, ""),
        (b"h" * 16 + b"x" * 16, "m differs in its deleted sequences, message ids or subjects at entry 9"),
        (b"x" * 16 + b"c" * 16, "m differs in its state at entry 9"),
    ],
    ids=["equal", "contents", "state"],
)
def test_a_difference_says_whether_it_is_in_the_contents(theirs: bytes, difference: str) -> None:
    comparison = Comparison(1, 9, 1, 0)
    comparison.with_members(["m"])
    comparison.own_end(b"h" * 16 + b"c" * 16)
    comparison.answered("m", 0, [], is_end=True, state=theirs)
    assert comparison.difference.startswith(difference)
    assert bool(comparison.difference) == bool(difference)
    assert comparison.equal == (frozenset() if difference else frozenset({"m"}))
