"""Long runs of sequences inside a stream that never had a message.

A mirror has its origin's sequences, and may have received few of its messages. Runs are stored in rising
order by their ends, each with the number of sequences in the runs before it, so that a binary search covers a
million of them. Short ones are among the stream's deleted sequences (`sections.MIRRORED`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from supercluster.broker.jetstream.encoding.codec import Reader, blob

# How many stretches before the stream's beginning are kept until they are dropped at once.
_SLACK = 1024
# Stretches in one part of a snapshot: some milliseconds' work.
PART_ROWS = 4096


class Gaps:
    __slots__ = ("_before", "_ends", "_head", "_starts", "_total")

    def __init__(self) -> None:
        self._starts = array("Q")
        self._ends = array("Q")
        self._before = array("Q")
        """Sequences of all stretches before this one, dropped ones included."""
        self._head = 0
        """Stretches before this place are gone."""
        self._total = 0

    def __bool__(self) -> bool:
        return self._head < len(self._starts)

    def __contains__(self, seq: int) -> bool:
        return self.past(seq) != seq

    @property
    def count(self) -> int:
        """Sequences in all stretches."""
        return self._total - self._before[self._head] if self else 0

    def add(self, first: int, last: int) -> None:
        """A stretch behind all others; one that follows the last without a message in between goes on with it."""
        if self and self._ends[-1] + 1 == first:
            self._ends[-1] = last
            self._total += last - first + 1
            return
        self._starts.append(first)
        self._ends.append(last)
        self._before.append(self._total)
        self._total += last - first + 1

    def past(self, seq: int) -> int:
        """`seq`, or what follows the stretch that it lies in."""
        at = bisect_right(self._starts, seq, self._head) - 1
        return self._ends[at] + 1 if at >= self._head and seq <= self._ends[at] else seq

    def before(self, seq: int) -> int:
        """`seq`, or what stands before the stretch that it lies in."""
        at = bisect_right(self._starts, seq, self._head) - 1
        return self._starts[at] - 1 if at >= self._head and seq <= self._ends[at] else seq

    def count_behind(self, seq: int) -> int:
        """How many of their sequences are greater than `seq`."""
        at = bisect_left(self._ends, seq + 1, self._head)
        if at == len(self._ends):
            return 0
        return self._total - self._before[at] - max(0, seq + 1 - self._starts[at])

    def drop_below(self, seq: int) -> None:
        """The stream begins at `seq` now, which lies in none."""
        self._head = bisect_left(self._ends, seq, self._head)
        if self._head > _SLACK and self._head * 2 > len(self._starts):
            for kept in (self._starts, self._ends, self._before):
                del kept[: self._head]
            self._head = 0

    def clear(self) -> None:
        self._head = self._total = 0
        for kept in (self._starts, self._ends, self._before):
            del kept[:]

    def stretches(self) -> Iterator[tuple[int, int]]:
        """(first, last) of each."""
        return zip(self._starts[self._head :], self._ends[self._head :], strict=True)

    def within(self, first: int, last: int) -> list[tuple[int, int]]:
        """(first, last) of each stretch from `first` to `last`, cut to that."""
        begin = bisect_left(self._ends, first, self._head)
        end = bisect_right(self._starts, last, self._head)
        found = zip(self._starts[begin:end], self._ends[begin:end], strict=True)
        return [(max(start, first), min(stop, last)) for start, stop in found]

    def encoded(self) -> Iterator[bytes]:
        """All of it as it is now, in parts for `take`."""
        starts, ends = self._starts[self._head :], self._ends[self._head :]

        def parts() -> Iterator[bytes]:
            for at in range(0, len(starts), PART_ROWS):
                columns = (each[at : at + PART_ROWS] for each in (starts, ends))
                yield b"".join(blob(column.tobytes()) for column in columns)

        return parts()

    def take(self, reader: Reader) -> None:
        """Add a part: stretches behind those that are there."""
        starts, ends = reader.column_in_blob("Q"), reader.column_in_blob("Q")
        for first, last in zip(starts, ends, strict=True):
            self.add(first, last)
