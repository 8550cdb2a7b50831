"""The blocks of a stream's copy: runs of entries of one file, each about as large as the others.

A block's place depends on nothing but the file, so that all requests for it find the same columns. Only whole
blocks count, of applied entries: nothing is appended to them, and no cut reaches them. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from supercluster.broker.ports import LogSegment

BLOCK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes `begin` to `end` of a file, which have the sequences from `first` to `last`, as far as there are messages."""

    path: str
    begin: int
    end: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Version:
    """What a block shows of its messages. They only become fewer, so that as many from the same one on are the same."""

    first: int
    """No message before this one is in it."""
    rows: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """What of a copy may be served."""

    first: int
    """The first sequence that is there, and was not carried forward."""
    applied_index: int
    absent: Callable[[int, int], int]
    """How many sequences from one to another have no message."""


def blocks_of(segment: LogSegment, applied_index: int, block_bytes: int = BLOCK_BYTES) -> list[Block]:
    """All whole blocks of a file."""
    offsets, found = segment.offsets, []
    at, first = 0, segment.first_seq
    while at < len(offsets):
        begin = offsets[at]
        after = bisect_left(offsets, begin + block_bytes, at + 1)
        if after < len(offsets):
            end, next_seq = offsets[after], segment.seqs[after]
        elif segment.is_full or segment.size_bytes >= begin + block_bytes:
            end, next_seq = segment.size_bytes, segment.next_seq
        else:
            break
        if segment.first_index + after - 1 > applied_index:
            break
        if next_seq > first:
            found.append(Block(segment.path, begin, end, first, next_seq - 1))
            first = next_seq
        at = after
    return found


def block_of(blocks: list[Block], seq: int) -> Block | None:
    """The one that has the sequence."""
    at = bisect_left(blocks, seq, key=lambda block: block.last)
    return blocks[at] if at < len(blocks) and blocks[at].first <= seq else None


def version_of(block: Block, bounds: Bounds) -> Version:
    """What the block shows now."""
    first = max(block.first, bounds.first)
    if first > block.last:
        return Version(first, 0)
    return Version(first, block.last - first + 1 - bounds.absent(first, block.last))
