"""What consumers read of a stream: batches within bounds, and exact counts of what is left for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.jetstream.publish.stream_story import StreamStory, config, message, result_of

from supercluster.broker.jetstream.encoding.codec import u64
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.state import lookup
from supercluster.broker.jetstream.state.stream_reader import StreamReader
from supercluster.broker.protocol.subjects import matches
from supercluster.broker.raft.entry import Entry
from supercluster.broker.storage.log.memory_log import MemoryLog

SUBJECTS = (b"s.a", b"s.b", b"s.c.d")
FILTERS = ((), (">",), ("s.*",), ("s.a",), ("s.a", "s.c.>"), ("t",))


def story_of(blocks: list[list[int]], deleted: set[int]) -> StreamStory:
    story = StreamStory()
    for numbers in blocks:
        story.now_ns += 1
        story.store(*[message(SUBJECTS[number % 3], b"x" * number) for number in numbers])
    for seq in sorted(deleted):
        story.append((Section.DELETE_MESSAGE, [u64(seq)]))
    story.commit()
    return story


BLOCKS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=6)


@given(BLOCKS, st.sets(st.integers(1, 30)), st.integers(0, 32), st.integers(1, 10), st.integers(1, 200))
def test_a_batch_is_a_stretch_of_what_is_stored(
    blocks: list[list[int]], deleted: set[int], start: int, count_max: int, bytes_max: int
) -> None:
    story = story_of(blocks, deleted)
    source = StreamReader(story.state)
    batch = source.read(start, count_max, bytes_max)
    wanted = [seq for seq in story.held() if seq >= start]
    got = list(batch.seqs)
    assert got == wanted[: len(got)]
    assert len(got) <= count_max
    assert bool(got) == bool(wanted)
    rows = zip(batch.seqs, batch.subjects, batch.headers, batch.payloads, batch.times, strict=True)
    for seq, subject, header, payload, time_ns in rows:
        found = story.state.message(seq)
        assert found is not None
        assert (found.subject, found.header, found.payload, found.time_ns) == (
            subject,
            header,
            payload,
            time_ns,
        )
    # Every byte but the first message's is within the bound: whole entries are never read beyond it.
    sizes = [
        len(s) + len(h) + len(p)
        for s, h, p in zip(batch.subjects, batch.headers, batch.payloads, strict=True)
    ]
    assert sum(sizes[:-1]) <= bytes_max
    seen, at = [], start
    while len(batch := source.read(at, count_max, bytes_max)):
        seen += list(batch.seqs)
        at = seen[-1] + 1
    assert seen == wanted


def test_what_was_deleted_is_passed_without_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    story = StreamStory(config(max_msgs_per_subject=1))
    story.store(message(b"s.old"))
    for _ in range(100):
        story.store(message(b"s.new"))
    story.commit()
    source, reads = StreamReader(story.state), [0]
    entry = MemoryLog.entry

    def counted(log: MemoryLog, index: int) -> Entry | None:
        reads[0] += 1
        return entry(log, index)

    monkeypatch.setattr(MemoryLog, "entry", counted)
    story.state.reader.forget()
    assert list(source.read(1, 10, 10_000).seqs) == [1, 101]
    assert list(source.read(2, 10, 10_000).seqs) == [101]
    found = result_of(lookup.next_from(story.state, 2))
    assert found is not None
    assert found.seq == 101
    assert reads[0] <= 4
    story.append((Section.DELETE_MESSAGE, [u64(1)]))
    story.commit()
    assert (story.state.first_seq, len(story.state.deleted)) == (101, 0)


@given(BLOCKS, st.sets(st.integers(1, 30)), st.integers(0, 32), st.sampled_from(FILTERS))
def test_what_is_pending_is_counted_exactly(
    blocks: list[list[int]], deleted: set[int], after: int, filters: tuple[str, ...]
) -> None:
    story = story_of(blocks, deleted)
    source = StreamReader(story.state)
    found = [story.state.message(seq) for seq in story.held() if seq > after]
    patterns = [item.encode() for item in filters] or [b">"]
    wanted = sum(1 for one in found if one and any(matches(one.subject, pattern) for pattern in patterns))
    assert source.pending_count(filters, after) == wanted
    following = source.next_matching(filters, after + 1)
    firsts = [one.seq for one in found if one and any(matches(one.subject, pattern) for pattern in patterns)]
    if firsts:
        assert following is not None
        assert after < following <= firsts[0]


@pytest.mark.parametrize("after", [0, 4, 8])
def test_an_empty_stream_has_nothing(after: int) -> None:
    source = StreamReader(StreamStory().state)
    assert source.pending_count((), after) == 0
    assert len(source.read(after, 10, 100)) == 0
