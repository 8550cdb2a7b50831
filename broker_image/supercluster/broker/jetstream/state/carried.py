"""Messages that were carried forward: written again at the log's end, so that the log before them can be
dropped.

A log is dropped from its beginning, so one old message retains all entries after it: those of removed
messages, and those of consumers' deliveries and acknowledgements. If these are most of the log, the stream's
leader copies the remaining messages into new entries, with their sequences, times and headers
(`publish/carrying.py`). This module records which entry has which run of sequences, as part of the replicated
state. Messages after the last run are where they were first written.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from supercluster.broker.jetstream.encoding.codec import Reader, WireError, u32, u64
from supercluster.broker.jetstream.encoding.sections import decode_mirrored, encode_mirrored


def encode_carried(
    first: int, last: int, seqs: Sequence[int], times_ns: Sequence[int], parts: Sequence[bytes]
) -> list[bytes | memoryview]:
    """Body of a section CARRIED: all messages that the stream has from `first` to `last`."""
    head = u64(first) + u64(last) + u32(len(seqs)) + array("Q", seqs).tobytes()
    return [head, *encode_mirrored(times_ns, parts)]


def decode_range(body: memoryview) -> tuple[int, int]:
    reader = Reader(body)
    return reader.u64(), reader.u64()


def first_carried(body: memoryview) -> int:
    """The oldest message's sequence; 0: there is none."""
    reader = Reader(body)
    reader.u64(), reader.u64()
    return reader.u64() if reader.u32() else 0


def decode_carried(body: memoryview) -> tuple[array[int], array[int], list[bytes]]:
    """Sequences, times, and subject, header, payload per message.

    Raises:
        WireError: there are not as many of each.
    """
    reader = Reader(body)
    reader.u64(), reader.u64()
    seqs = reader.column("Q", reader.u32())
    times, block = decode_mirrored(reader.rest())
    if len(times) != len(seqs):
        raise WireError(f"{len(seqs)} sequences for {len(times)} messages")
    return seqs, times, block.parts()


ROWS_PER_PART = 4096


class Carried:
    """Stretches of sequences, in rising order, and the entry that has each one's messages."""

    __slots__ = ("_firsts", "_indexes", "_lasts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._indexes: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._lasts)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """(first, last, index of the entry) of each stretch."""
        return zip(self._firsts, self._lasts, self._indexes, strict=True)

    @property
    def last_seq(self) -> int:
        """The last sequence of all stretches; 0 when there is none."""
        return self._lasts[-1] if self._lasts else 0

    def index_of(self, seq: int) -> int | None:
        """The entry that has the message, if the stream has it."""
        at = bisect_left(self._lasts, seq)
        return self._indexes[at] if at < len(self._lasts) and self._firsts[at] <= seq else None

    def put(self, first: int, last: int, index: int) -> None:
        """A stretch was carried, some of it perhaps for the second time."""
        at = bisect_left(self._lasts, first)
        end = at
        kept: list[tuple[int, int, int]] = []
        while end < len(self._firsts) and self._firsts[end] <= last:
            old_first, old_last, old_index = self._firsts[end], self._lasts[end], self._indexes[end]
            if old_first < first:
                kept.append((old_first, first - 1, old_index))
            if old_last > last:
                kept.append((last + 1, old_last, old_index))
            end += 1
        kept = sorted([*kept, (first, last, index)])
        self._firsts[at:end] = [each[0] for each in kept]
        self._lasts[at:end] = [each[1] for each in kept]
        self._indexes[at:end] = [each[2] for each in kept]

    def drop_below(self, seq: int) -> None:
        """The stream begins at `seq` now."""
        count = bisect_left(self._lasts, seq)
        for kept in (self._firsts, self._lasts, self._indexes):
            del kept[:count]

    def clear(self) -> None:
        for kept in (self._firsts, self._lasts, self._indexes):
            kept.clear()

    def encoded(self) -> list[bytes]:
        """In parts for `take`."""
        rows = [u64(first) + u64(last) + u64(index) for first, last, index in self]
        return [b"".join(rows[at : at + ROWS_PER_PART]) for at in range(0, len(rows), ROWS_PER_PART)]

    def take(self, reader: Reader) -> None:
        """The next part."""
        while reader.left:
            for kept in (self._firsts, self._lasts, self._indexes):
                kept.append(reader.u64())
