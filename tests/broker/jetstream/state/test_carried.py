"""Messages that were carried forward are the same to whoever reads them, and a part of a round is bounded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.jetstream.publish.stream_story import StreamStory, config, message

from supercluster.broker.jetstream.encoding.codec import Reader, u64
from supercluster.broker.jetstream.encoding.sections import Section, sections
from supercluster.broker.jetstream.publish import carrying
from supercluster.broker.jetstream.publish.carrying import Carrying
from supercluster.broker.jetstream.state import lookup
from supercluster.broker.jetstream.state.carried import Carried, encode_carried
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.state.stream_reader import StreamReader
from supercluster.broker.jetstream.turn.slices import at_once


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 20)), max_size=15), st.integers(0, 70))
def test_the_newest_stretch_counts(puts: list[tuple[int, int]], below: int) -> None:
    found, model = Carried(), dict[int, int]()
    for index, (first, more) in enumerate(puts, 100):
        found.put(first, first + more, index)
        model.update(dict.fromkeys(range(first, first + more + 1), index))

    def is_same(carried: Carried) -> bool:
        return {seq: carried.index_of(seq) for seq in range(90)} == {seq: model.get(seq) for seq in range(90)}

    assert is_same(found)
    assert found.last_seq == max(model, default=0)
    again = Carried()
    for part in found.encoded():
        again.take(Reader(part))
    assert is_same(again)
    found.drop_below(below)
    assert all(found.index_of(seq) == model.get(seq) for seq in range(below, 90))
    assert not [last for _, last, _ in found if last < below]


def carrying_of(story: StreamStory, **fields: Any) -> Carrying:
    log = SimpleNamespace(
        bytes_behind=lambda index: 1 << 40, segment_bytes=1 << 20, has_room=lambda size: True, is_scarce=False
    )
    raft = SimpleNamespace(membership=SimpleNamespace(members=("a@1", "b@1")))
    found: Any = {"log": log, "move": None, "least_index": lambda: 1, **fields}
    stream: Any = SimpleNamespace(state=story.state, assignment=SimpleNamespace(move=found["move"]))
    replica: Any = SimpleNamespace(log=found["log"], raft=raft)
    return Carrying(replica, stream, found["least_index"])


def carry(story: StreamStory) -> list[tuple[int, int]]:
    """A whole round; sequences and bytes of its parts."""
    round_, now_ms = carrying_of(story), 0
    parts: list[tuple[int, int]] = []
    for _ in range(1000):
        turn = story.turn()
        turn.now_ms, proposal = now_ms, turn.proposal
        round_.put(turn)
        if not proposal.payload:
            return parts
        payload = b"".join(proposal.payload)
        ((kind, body),) = sections(payload)
        story.append((kind, [body]))
        done = story.commit()
        for each in proposal.commands:
            each(1)
        assert done
        parts.append((Reader(body).u64(), len(payload)))
        now_ms += carrying.PART_PAUSE_MS
    raise AssertionError("a round without an end")


def read(state: StreamState, end: int) -> list[Any]:
    """What readers see of a stream in every way there is."""
    source = StreamReader(state)
    batch = source.read(1, 1000, 1 << 20)
    return [
        [state.message(seq) for seq in range(end)],
        (batch.seqs, batch.subjects, batch.headers, batch.payloads, batch.times),
        [source.read(seq, 2, 50).seqs for seq in range(end)],
        [at_once(lookup.next_from(state, seq, "s.b")) for seq in range(end)],
        [lookup.seq_at(state, state.first_time_ns + at) for at in range(0, 20, 3)],
        at_once(lookup.last_of(state, "s.a")),
        [source.pending_count(filters, after) for filters in ((), ("s.a",)) for after in range(end)],
        [source.next_matching(("s.b",), seq) for seq in range(end)],
    ]


BLOCKS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=8)


@settings(max_examples=25, deadline=None)
@given(BLOCKS, st.sets(st.integers(1, 30)), st.sampled_from(["none", "s2"]), st.data())
def test_who_reads_sees_no_difference(
    blocks: list[list[int]], deleted: set[int], compression: str, data: st.DataObject
) -> None:
    story = StreamStory(config(compression=compression))
    for numbers in blocks:
        story.now_ns += 1
        story.store(*[message((b"s.a", b"s.b")[number % 2], b"x" * number) for number in numbers])
    story.now_ns += 1
    story.store(message(b"s.a", b"y", Some="header"))
    for seq in sorted(deleted):
        story.append((Section.DELETE_MESSAGE, [u64(seq)]))
    story.commit()
    end = story.state.last_seq + 2
    before = read(story.state, end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(carrying, "PART_MESSAGES_MAX", data.draw(st.integers(1, 6)))
        patch.setattr(carrying, "PART_ENTRIES_MAX", data.draw(st.integers(1, 4)))
        carry(story)
        assert bool(story.state.carried) == bool(story.state.messages)
        story.state.reader.forget()
        assert read(story.state, end) == before
        restored = story.restored()
        assert read(restored, end) == before
        carry(story)
    assert read(story.state, end) == before
    for seq in [one.seq for one in before[0] if one is not None]:
        story.append((Section.DELETE_MESSAGE, [u64(seq)]))
    story.commit()
    assert (story.state.messages, story.state.bytes, bool(story.state.carried)) == (0, 0, False)


def test_a_part_is_bounded_by_messages_bytes_and_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying, "PART_BYTES_MAX", 1000)
    story = StreamStory()
    for _ in range(carrying.PART_ENTRIES_MAX + 10):
        story.store(message(b"s.a", b"x"))
    story.store(*[message(b"s.a", b"x" * 300)] * 20)
    parts = carry(story)
    firsts = [first for first, _ in parts]
    assert firsts[:2] == [1, carrying.PART_ENTRIES_MAX + 1]
    assert all(size <= 1000 + 100 * 20 for _, size in parts[1:])
    assert len(parts) == 1 + 1 + 20 // 3
    monkeypatch.setattr(carrying, "PART_MESSAGES_MAX", 50)
    assert len(carry(story)) > len(parts)


@pytest.mark.parametrize(
    "fields",
    [
        {"least_index": lambda: None},
        {"move": "running"},
        {"log": SimpleNamespace(bytes_behind=lambda index: 100, segment_bytes=200, is_scarce=False)},
        {"log": SimpleNamespace(is_scarce=True)},
    ],
    ids=["a message is missing", "a move", "little is pinned", "a full disk"],
)
def test_no_round_begins(fields: dict[str, Any]) -> None:
    story = StreamStory()
    story.store(message())
    turn = story.turn()
    carrying_of(story, **fields).put(turn)
    assert not turn.proposal.payload


def test_a_stretch_names_its_ends() -> None:
    body = b"".join(encode_carried(3, 9, [4], [7], [b"s.a", b"", b"x"]))
    story = StreamStory()
    story.store(*[message()] * 9)
    story.append((Section.CARRIED, [body]))
    story.commit()
    assert list(story.state.carried) == [(3, 9, story.log.last_index)]
