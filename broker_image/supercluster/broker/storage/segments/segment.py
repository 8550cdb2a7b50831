"""A segment: one file of records, from one index on, without a gap.

Header, little endian, 64 bytes: magic, version, checksum, epoch, base index, base term, first possible
sequence. Records as in `raft/entry.py` follow. The epoch tells the files of a log that was thrown away from
those that replaced it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from isal.isal_zlib import crc32

from supercluster.broker.raft.entry import Entry
from supercluster.broker.raft.errors import NewerFormatError
from supercluster.broker.storage.disk.disk import File
from supercluster.broker.storage.segments.index import EntryIndex

_HEAD = struct.Struct("<8sIIQQQQ16x")
_MAGIC = b"SCsegmt\0"
_VERSION = 1
SEGMENT_HEAD_BYTES = _HEAD.size
SEGMENT_SUFFIX = ".seg"
INDEX_SUFFIX = ".idx"


@dataclass(frozen=True, slots=True)
class SegmentHead:
    epoch: int
    base_index: int
    base_term: int
    next_seq: int
    """Sequence that the first message in it has at least."""


def encode_head(head: SegmentHead) -> bytes:
    packed = _HEAD.pack(_MAGIC, _VERSION, 0, head.epoch, head.base_index, head.base_term, head.next_seq)
    return packed[:12] + struct.pack("<I", crc32(packed[16:])) + packed[16:]


def decode_head(data: bytes, path: str) -> SegmentHead | None:
    """None when it is cut short or damaged. Raises NewerFormatError."""
    if len(data) < _HEAD.size:
        return None
    magic, version, crc, epoch, base_index, base_term, next_seq = _HEAD.unpack_from(data)
    fits = crc32(data[16 : _HEAD.size]) == crc
    # A later version's checksum covers its number: with this one's checksum, a bit of the number turned over.
    if magic == _MAGIC and version > _VERSION and not fits:
        raise NewerFormatError(path, version, _VERSION)
    if magic != _MAGIC or version != _VERSION or not fits:
        return None
    return SegmentHead(epoch, base_index, base_term, next_seq)


def segment_stem(epoch: int, first_index: int) -> str:
    """Name without suffix. Fixed width: names sort as the log does."""
    return f"{epoch:08d}-{first_index:020d}"


def parse_stem(name: str) -> tuple[int, int] | None:
    """(epoch, index) of a file name of this store; None for any other file."""
    epoch, dash, index = name.partition(".")[0].partition("-")
    if not dash or len(epoch) != 8 or len(index) != 20 or not (epoch + index).isdigit():
        return None
    return int(epoch), int(index)


@dataclass(slots=True)
class Segment:
    """A segment as the log knows it. `index` is None while a sealed segment's side-car is not loaded."""

    epoch: int
    first_index: int
    base_term: int
    last_index: int
    last_term: int
    size_bytes: int
    first_seq: int
    next_seq: int
    index: EntryIndex | None = field(default_factory=EntryIndex)
    full: bool = False
    """Nothing is appended any more."""
    sealed: bool = False
    """Full, its last entry committed, and its side-car written."""
    synced_bytes: int = 0
    file: File | None = None

    @classmethod
    def empty(cls, head: SegmentHead) -> Segment:
        """One that has its head and nothing else."""
        base, term, seq = head.base_index, head.base_term, head.next_seq
        return cls(head.epoch, base + 1, term, base, term, SEGMENT_HEAD_BYTES, seq, seq)

    @property
    def facts(self) -> tuple[int, ...]:
        """As the head of its side-car has them."""
        count = self.last_index - self.first_index + 1
        terms = (self.base_term, self.last_term)
        return self.epoch, self.first_index, count, self.size_bytes, *terms, self.first_seq, self.next_seq

    @property
    def stem(self) -> str:
        return segment_stem(self.epoch, self.first_index)

    def note(self, entries: Sequence[Entry]) -> None:
        """Entries were written at the end."""
        index = self.index
        assert index is not None, "an active segment has its index in memory"
        offset = self.size_bytes
        next_seq = self.next_seq
        for entry in entries:
            count = entry.count
            if count:
                index.add(offset, entry.first_seq, count)
                next_seq = entry.first_seq + count
            else:
                index.add(offset, next_seq, 0)
            offset += len(entry.record)
        self.size_bytes = offset
        self.next_seq = next_seq
        self.last_index = entries[-1].index
        self.last_term = entries[-1].term

    def extent(self, index: EntryIndex, entry_index: int) -> tuple[int, int]:
        """(offset, end) of a held entry."""
        position = entry_index - self.first_index
        offsets = index.offsets
        end = offsets[position + 1] if position + 1 < len(offsets) else self.size_bytes
        return offsets[position], end
