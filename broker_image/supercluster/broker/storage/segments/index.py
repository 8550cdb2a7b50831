"""The positions of the entries of one segment: 16 bytes per entry, in memory and in the segment's side-car
file.

The side-car (`.idx`) is written when a segment is sealed, so that opening a log of a million messages reads a
few headers. It is never needed: without one, or with a bad one, the segment is scanned. Layout, little
endian::

    head    _HEAD: magic, version, head crc, epoch, first index, count, bytes of the segment, base term, last term,
            first sequence, next sequence, number of term runs, body crc
    runs    (u64 first index, u64 term) each; the head's crc covers them
    body    u32 offsets, u32 counts, u64 sequences, one of each per entry
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from isal.isal_zlib import crc32

from supercluster.broker.storage.disk.disk import File

_HEAD = struct.Struct("<8sIIQQQQQQQQII")
_RUN = struct.Struct("<QQ")
_MAGIC = b"SCindex\0"
_VERSION = 1
_HEAD_READ_BYTES = 4096
_BIG_ENDIAN = sys.byteorder == "big"


class EntryIndex:
    """Offset, count and first sequence of every entry of a segment, in order. An entry without messages has the
    sequence that would come next, so that sequences never go back along the arrays."""

    __slots__ = ("counts", "offsets", "seqs")

    def __init__(self) -> None:
        self.offsets = array("I")
        self.counts = array("I")
        self.seqs = array("Q")

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, offset: int, seq: int, count: int) -> None:
        self.offsets.append(offset)
        self.counts.append(count)
        self.seqs.append(seq)

    def truncate(self, length: int) -> None:
        del self.offsets[length:]
        del self.counts[length:]
        del self.seqs[length:]

    def position_of_seq(self, seq: int) -> int | None:
        """Position of the entry that has message `seq`."""
        position = bisect_right(self.seqs, seq) - 1
        if position < 0 or seq >= self.seqs[position] + self.counts[position]:
            return None
        return position


@dataclass(frozen=True, slots=True)
class SideCar:
    """What a side-car's head says of its segment."""

    epoch: int
    first_index: int
    count: int
    data_bytes: int
    base_term: int
    last_term: int
    first_seq: int
    next_seq: int
    runs: tuple[tuple[int, int], ...]
    body_offset: int
    body_crc: int


def encode_side_car(index: EntryIndex, facts: tuple[int, ...], runs: list[tuple[int, int]]) -> bytes:
    """`facts` are the segment's: the first fields of `SideCar`, up to its next sequence."""
    body = b"".join(_little(part).tobytes() for part in (index.offsets, index.counts, index.seqs))
    head = _HEAD.pack(_MAGIC, _VERSION, 0, *facts, len(runs), crc32(body))
    head += b"".join(_RUN.pack(*run) for run in runs)
    return b"".join((head[:12], struct.pack("<I", crc32(head[16:])), head[16:], body))


def read_side_car(file: File) -> SideCar | None:
    """The head of a side-car; None when it is damaged or of another version."""
    data = file.pread(0, _HEAD_READ_BYTES)
    if len(data) < _HEAD.size:
        return None
    magic, version, crc, *facts, runs, body_crc = _HEAD.unpack_from(data)
    size = _HEAD.size + runs * _RUN.size
    if magic != _MAGIC or version != _VERSION or size > file.size():
        return None
    if size > len(data):
        data = file.pread(0, size)
    if crc32(data[16:size]) != crc:
        return None
    told: list[Any] = [*facts, tuple(_RUN.iter_unpack(data[_HEAD.size : size])), size, body_crc]
    return SideCar(*told)


def read_index(file: File, head: SideCar) -> EntryIndex | None:
    """The arrays; None when they are damaged."""
    size = head.count * 16
    body = file.pread(head.body_offset, size)
    if len(body) != size or crc32(body) != head.body_crc:
        return None
    index = EntryIndex()
    index.offsets.frombytes(body[: head.count * 4])
    index.counts.frombytes(body[head.count * 4 : head.count * 8])
    index.seqs.frombytes(body[head.count * 8 :])
    for part in (index.offsets, index.counts, index.seqs):
        if _BIG_ENDIAN:
            part.byteswap()
    return index


def _little(values: array[int]) -> array[int]:
    if not _BIG_ENDIAN:
        return values
    copy = values[:]
    copy.byteswap()
    return copy
