"""Frames for the comparison of a stream's copies: a leader asks for hashes of ranges, and a copy answers with
a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from supercluster.broker.jetstream.encoding.codec import Reader, WireError, blob, text, u8, u32, u64
from supercluster.broker.moves.range_hash import PAGE_RANGES, RangeHash

Body = list[bytes | memoryview]


@dataclass(frozen=True, slots=True)
class HashesAsked:
    """MOVE_HASHES: the hashes of `member`'s ranges from `from_range` on, of entries up to the mark."""

    group: str
    member: str
    number: int
    """The asker's: answers carry it."""
    mark: int
    floor_seq: int
    from_range: int

    @property
    def order(self) -> tuple[int, int]:
        """Later comparisons have a larger one: the asker's term, and within it the mark, for which each appends an entry."""
        return self.number >> 16, self.mark


def encode_ask(ask: HashesAsked) -> Body:
    numbers = (ask.number, ask.mark, ask.floor_seq, ask.from_range)
    return [text(ask.group) + text(ask.member) + b"".join(map(u64, numbers))]


def decode_ask(body: memoryview) -> HashesAsked:
    reader = Reader(body)
    group, member, number, mark = reader.text(), reader.text(), reader.u64(), reader.u64()
    floor_seq, from_range = reader.u64(), reader.u64()
    return HashesAsked(group, member, number, mark, floor_seq, from_range)


class Answered(IntEnum):
    """What an answer is."""

    PAGE = 0
    """More ranges follow: ask for them."""
    END = 1
    LACKS_HEAD = 2
    """The copy has nothing before `first_seq` any more."""


@dataclass(frozen=True, slots=True)
class HashesTold:
    """MOVE_HASHED."""

    group: str
    member: str
    number: int
    from_range: int
    status: Answered
    first_seq: int = 0
    state: bytes = b""
    """With END: hash of the state as of the mark; empty when it is not known (any more)."""
    ranges: Sequence[RangeHash] = ()


def encode_told(told: HashesTold) -> Body:
    head = text(told.group) + text(told.member) + u64(told.number) + u64(told.from_range)
    head += u8(told.status) + u64(told.first_seq) + blob(told.state) + u32(len(told.ranges))
    return [
        head,
        *(
            u64(found.number)
            + u64(found.first_seq)
            + u64(found.count)
            + u64(found.size_bytes)
            + blob(found.digest)
            for found in told.ranges
        ),
    ]


def decode_told(body: memoryview) -> HashesTold:
    reader = Reader(body)
    group, member, number, from_range = reader.text(), reader.text(), reader.u64(), reader.u64()
    status, first_seq, state, count = reader.u8(), reader.u64(), bytes(reader.blob()), reader.u32()
    if count > PAGE_RANGES + 1 or status > Answered.LACKS_HEAD:
        raise WireError(f"an answer with {count} ranges and status {status}")
    ranges = [
        RangeHash(reader.u64(), reader.u64(), reader.u64(), reader.u64(), bytes(reader.blob()))
        for _ in range(count)
    ]
    return HashesTold(group, member, number, from_range, Answered(status), first_seq, state, ranges)
