"""Blocks of a copy: they join, stay as they are while the log grows, and their versions tell what they show."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.bulk.blocks import Block, Bounds, Version, block_of, blocks_of, version_of
from supercluster.broker.ports import LogSegment

ENTRIES = st.lists(st.tuples(st.integers(1, 120), st.integers(0, 4)), min_size=1, max_size=60)
HEAD_BYTES = 64


def segment_of(entries: list[tuple[int, int]], *, is_full: bool = False, first_seq: int = 1) -> LogSegment:
    """Of entries with so many bytes and messages."""
    offsets, seqs, at, seq = [], [], HEAD_BYTES, first_seq
    for size, count in entries:
        offsets.append(at)
        seqs.append(seq)
        at, seq = at + size, seq + count
    return LogSegment("a.seg", 1, first_seq, seq, at, is_full, offsets, seqs)


@given(ENTRIES, st.integers(1, 200))
def test_blocks_of_a_full_segment_join_and_have_all_of_it(entries: list[tuple[int, int]], size: int) -> None:
    segment = segment_of(entries, is_full=True)
    blocks = blocks_of(segment, len(entries), size)
    seqs = [seq for block in blocks for seq in range(block.first, block.last + 1)]
    assert seqs == list(range(1, segment.next_seq))
    for block in blocks:
        assert block_of(blocks, block.first) == block == block_of(blocks, block.last)
        inside = {
            offset
            for offset, seq in zip(segment.offsets, segment.seqs, strict=True)
            if block.begin <= offset < block.end
        }
        told = sum(
            count for offset, (_, count) in zip(segment.offsets, entries, strict=True) if offset in inside
        )
        assert told == block.last - block.first + 1
        assert block.end in (*segment.offsets, segment.size_bytes)
    assert block_of(blocks, segment.next_seq) is None


@given(ENTRIES, ENTRIES, st.integers(1, 200))
def test_a_block_stays_as_it_is_while_its_segment_grows(
    entries: list[tuple[int, int]], more: list[tuple[int, int]], size: int
) -> None:
    before = blocks_of(segment_of(entries), len(entries), size)
    after = blocks_of(segment_of(entries + more), len(entries) + len(more), size)
    full = blocks_of(segment_of(entries + more, is_full=True), len(entries) + len(more), size)
    assert after[: len(before)] == before
    assert full[: len(after)] == after
    assert len(full) <= len(after) + 1


@given(ENTRIES, st.integers(0, 60), st.integers(1, 200))
def test_no_block_has_an_entry_that_is_not_applied(
    entries: list[tuple[int, int]], applied: int, size: int
) -> None:
    segment = segment_of(entries, is_full=True)
    blocks = blocks_of(segment, applied, size)
    assert blocks == blocks_of(segment, len(entries), size)[: len(blocks)]
    assert all(
        block.end <= (*segment.offsets, segment.size_bytes)[min(applied, len(entries))] for block in blocks
    )


def test_a_version_tells_what_the_block_shows() -> None:
    block, deleted = Block("a.seg", 0, 100, 10, 19), {5, 12, 13, 25}

    def absent(first: int, last: int) -> int:
        return sum(first <= seq <= last for seq in deleted)

    assert version_of(block, Bounds(1, 9, absent)) == Version(10, 8)
    assert version_of(block, Bounds(13, 9, absent)) == Version(13, 6)
    assert version_of(block, Bounds(14, 9, absent)) == Version(14, 6)
    assert version_of(block, Bounds(30, 9, absent)).rows == 0
