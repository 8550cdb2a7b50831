"""Reads a segment from its beginning: builds its index, and reports where and how it is damaged.

A record is valid if its checksum is right, its index is the next one and its term does not decrease. The
first invalid record is the damage. `recovery` judges its meaning (a torn tail, a lost record), for which it
needs to know whether a valid record follows.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from isal.isal_zlib import crc32

from supercluster.broker.bounds import RECORD_BYTES_MAX
from supercluster.broker.raft.entry import (
    HEADER,
    HEADER_BYTES,
    CorruptRecordError,
    decode_entry,
)
from supercluster.broker.storage.disk.disk import File, read_twice
from supercluster.broker.storage.segments.index import EntryIndex

_CHUNK_BYTES = 4 * 1024 * 1024
_INDEX = struct.Struct("<Q")
_INDEX_OFFSET = 8
# How many places are tried in the search for a good record behind a damaged one.
_CANDIDATES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Damage:
    """The first record of a segment that cannot be taken."""

    index: int
    offset: int
    why: str
    cut_short: bool
    """The file ends inside the record, and nothing good stands behind its beginning: a write that was interrupted."""


@dataclass(slots=True)
class Scanned:
    """What the good part of a segment holds."""

    index: EntryIndex = field(default_factory=EntryIndex)
    runs: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0
    last_term: int = 0
    next_seq: int = 1
    damage: Damage | None = None


def scan(file: File, *, offset: int, first_index: int, base_term: int, next_seq: int) -> Scanned:
    """Read records from `offset` to the end of the file. Raises UnreadableError."""
    found = Scanned(end=offset, last_term=base_term, next_seq=next_seq)
    size_all = file.size()
    expected, last_term = first_index, base_term
    # Plain local names: a segment may have hundreds of thousands of records, and a broker's start waits for them.
    add_offset, add_count, add_seq = (
        found.index.offsets.append,
        found.index.counts.append,
        found.index.seqs.append,
    )
    unpack = HEADER.unpack_from
    view, start, position = memoryview(b""), offset, 0
    why, bad = "", False
    while (here := start + position) < size_all:
        if position + HEADER_BYTES > len(view):
            start, position, view = here, 0, memoryview(read_twice(file, here, _CHUNK_BYTES))
            if len(view) < HEADER_BYTES:
                why = "the file ends inside a record's header"
                break
        size, crc, index, term, _, first_seq, count, _ = unpack(view, position)
        if not HEADER_BYTES <= size <= RECORD_BYTES_MAX:
            why, bad = f"size {size} is out of range", True
            break
        if here + size > size_all:
            why = f"a record of {size} bytes with {size_all - here} left in the file"
            break
        if position + size > len(view):
            start, position, view = here, 0, memoryview(read_twice(file, here, max(_CHUNK_BYTES, size)))
        end = position + size
        if crc32(view[position + 8 : end]) != crc:
            why, bad = "checksum differs", True
            break
        if index != expected or term < last_term:
            why, bad = (
                f"index {index} in term {term}, expected {expected} in a term from {last_term} on",
                True,
            )
            break
        if term != last_term or expected == first_index:
            found.runs.append((index, term))
            last_term = term
        add_offset(here)
        add_count(count)
        if count:
            add_seq(first_seq)
            next_seq = first_seq + count
        else:
            add_seq(next_seq)
        expected += 1
        position = end
    found.end, found.last_term, found.next_seq = here, last_term, next_seq
    if why:
        found.damage = _damage(file, here, size_all, expected, why, bad=bad)
    return found


def _damage(file: File, offset: int, size: int, index: int, why: str, *, bad: bool) -> Damage:
    """`bad`: the record is there as a whole, and wrong."""
    if bad:
        return Damage(index, offset, why, cut_short=False)
    rest = read_twice(file, offset, min(size - offset, RECORD_BYTES_MAX))
    if len(rest) >= HEADER_BYTES and crc32(rest[8:]) == HEADER.unpack_from(rest)[1]:
        return Damage(
            index, offset, f"{why}, though its checksum is right: its size is wrong", cut_short=False
        )
    if _has_record(rest, index + 1):
        return Damage(index, offset, f"{why}, though entry {index + 1} stands behind it", cut_short=False)
    return Damage(index, offset, why, cut_short=True)


def _has_record(data: bytes, index: int) -> bool:
    """Is there a whole record of that index anywhere in `data`?"""
    pattern = _INDEX.pack(index)
    position = data.find(pattern, _INDEX_OFFSET)
    for _ in range(_CANDIDATES_MAX):
        if position < 0:
            return False
        try:
            decode_entry(data, position - _INDEX_OFFSET)
        except CorruptRecordError:
            position = data.find(pattern, position + 1)
        else:
            return True
    return True  # Too many to try: the careful answer.
