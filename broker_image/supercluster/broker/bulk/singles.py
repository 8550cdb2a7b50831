"""Entries that have one message each, as a publisher that waits for each acknowledgement leaves them: a run of
them is taken as a whole.

Only their sizes and checksums are looked at one by one. The entries of a run are laid out alike, so that each
field is a slice at the same place of all of them.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from isal.isal_zlib import crc32

from supercluster.broker.jetstream.encoding.sections import RUN, SECTION, Section, places_in_messages
from supercluster.broker.raft.entry import HEADER, EntryKind

RUN_MIN = 32
"""Fewer entries are not worth the work."""
_HEAD = struct.Struct("<II32xIB")
"""Of `HEADER`: size, checksum, count, kind."""
_TIME, _FIRST, _KIND = 24, 32, HEADER.size
"""Where they begin in an entry."""
_SECTION = HEADER.size + SECTION.size
_BATCH, _MESSAGES, _OWN_MESSAGES = int(EntryKind.BATCH), int(Section.MESSAGES), int(Section.OWN_MESSAGES)
_NONE, _ONE = bytes(4), b"\1\0\0\0"


@dataclass(frozen=True, slots=True)
class Run:
    """Messages of consecutive sequences, in the layout of `_Rows`."""

    end: int
    """Where the next entry begins."""
    first: int
    count: int
    seqs: bytes
    times: bytes
    lengths: bytes
    body: pa.Buffer
    size_bytes: int


class Singles:
    """The runs of a block's entries. They are asked for in rising order."""

    def __init__(self, data: bytes, view: memoryview) -> None:
        self._data, self._view = data, view
        self._none_before = 0
        """These entries were looked at, and are no run."""

    def take(self, at: int, count_max: int, size_max: int) -> Run | None:
        """The run that begins there; None: the entry is to be taken by itself."""
        if at < self._none_before:
            return None
        places = self._places(at, count_max, size_max)
        found = self._run(at, places) if len(places) > RUN_MIN else None
        if found is None:
            self._none_before = at + places[-1]
        return found

    def _places(self, at: int, count_max: int, size_max: int) -> array[int]:
        """Where the entries with one message begin, counted from the first one, and where the last one ends."""
        data, view, begin = self._data, self._view, at
        places = array("i", (0,))
        stop = min(len(data) - HEADER.size, begin + size_max)
        while at <= stop and len(places) <= count_max:
            size, crc, count, kind = _HEAD.unpack_from(data, at)
            end = at + size
            if count != 1 or kind != _BATCH or size <= _SECTION or end > len(data):
                break
            if crc32(view[at + 8 : end]) != crc:
                break
            places.append(end - begin)
            at = end
        return places

    def _run(self, at: int, places: array[int]) -> Run | None:
        """None: the entries are not laid out alike, or have more than their messages."""
        data, count = self._data, len(places) - 1
        buffers = [None, pa.py_buffer(places), pa.py_buffer(self._view[at : at + places[-1]])]
        entries = pa.Array.from_buffers(pa.binary(), count, buffers)
        sizes = pc.binary_length(entries)
        same: list[tuple[int, int, bytes]] = []
        """What all of them have: from where, to where."""

        def like_the_first(begin: int, end: int) -> None:
            same.append((begin, end, data[at + begin : at + end]))

        like_the_first(_KIND, _KIND + 1)
        kind, block = data[at + _KIND], _SECTION
        if kind == _MESSAGES:
            second, run = (place - at for place in places_in_messages(data, at + block))
            like_the_first(block, block + 2)
            like_the_first(second, second + 2)
            same += [(run + 8, run + 12, _ONE), (run + 20, run + 24, _NONE)]
            block = run + RUN.size
        elif kind != _OWN_MESSAGES:
            return None
        same.append((block, block + 4, _ONE))
        body = block + 16
        shortest, longest = pc.min_max(sizes).as_py().values()
        if shortest < body:
            return None
        if any(_of_all(entries, begin, end) != value * count for begin, end, value in same):
            return None
        of_sections = pc.subtract(sizes, pa.scalar(_SECTION, pa.int32())).buffers()[1].to_pybytes()
        if _of_all(entries, _KIND + 1, _SECTION) != of_sections:
            return None
        seqs = _of_all(entries, _FIRST, _FIRST + 8)
        first = int.from_bytes(seqs[:8], "little")
        if seqs != array("Q", range(first, first + count)).tobytes():
            return None
        size_bytes = places[-1] - count * body
        return Run(
            at + places[-1],
            first,
            count,
            seqs,
            _of_all(entries, _TIME, _TIME + 8),
            _of_all(entries, block + 4, body),
            pc.binary_slice(entries, body, longest).buffers()[2].slice(0, size_bytes),
            size_bytes,
        )


def _of_all(entries: pa.Array, begin: int, end: int) -> bytes:
    """The same place of all of them, behind each other."""
    found: bytes = (
        pc.binary_slice(entries, begin, end).buffers()[2].slice(0, len(entries) * (end - begin)).to_pybytes()
    )
    return found
