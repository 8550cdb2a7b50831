"""Blocks of rows, as brokers keep them, from columns of Arrow: nothing is done for each row.

A block is a count, three lengths for each row (subject, header, payload), and all bytes one behind the other, little endian.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

from supercluster.spark.sink_calls import Block, RowTooLargeError

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_BLOCK = 8_192
LENGTHS_BYTES = 12
"""Of one row."""
_COUNT = Struct("<I")


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """The rows of one batch, in arrays of one kind of binary values. A null is empty."""

    subject: pa.Array | bytes
    """Bytes: all rows have this one."""
    headers: pa.Array | None
    """None: no row has any."""
    payload: pa.Array

    def lengths(self) -> list[pa.Array | int]:
        """Of subject, header and payload: of each row, or one for all."""
        subject = len(self.subject) if isinstance(self.subject, bytes) else _lengths(self.subject)
        return [subject, 0 if self.headers is None else _lengths(self.headers), _lengths(self.payload)]

    def joined(self, first: int, end: int) -> memoryview:
        """The bytes of these rows, one behind the other."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = self.payload.type
        subject = pa.scalar(self.subject, kind) if isinstance(self.subject, bytes) else self.subject
        columns = [each for each in (subject, self.headers, self.payload) if each is not None]
        some = [each[first:end] if isinstance(each, pa.Array) else each for each in columns]
        found = pc.binary_join_element_wise(
            *some, pa.scalar(b"", kind), null_handling="replace", null_replacement=""
        )
        return memoryview(found.buffers()[2])


def blocks(batches: Iterable[MessageColumns], bytes_max: int) -> Iterator[Block]:
    """As few blocks as hold the rows, in order, each of at most so many bytes.

    Raises:
        RowTooLargeError: one row alone is too large.
    """
    gathered = _Gathered(bytes_max)
    for columns in batches:
        rows, found = len(columns.payload), columns.lengths()
        lengths, ends = _interleaved(found, rows), _ends(found)
        first, before = 0, 0
        while first < rows:
            end = min(
                bisect_right(ends, before + gathered.room_bytes, first), first + gathered.room_rows, rows
            )
            if end == first and not gathered.rows:
                raise RowTooLargeError(ends[first] - before, bytes_max)
            if end > first:
                gathered.add(lengths[3 * first : 3 * end], columns.joined(first, end))
                first, before = end, ends[end - 1]
            if first < rows:
                yield gathered.block()
                gathered = _Gathered(bytes_max)
    if gathered.rows:
        yield gathered.block()


class _Gathered:
    """The rows of the next block, perhaps of several batches."""

    def __init__(self, bytes_max: int) -> None:
        self.rows = 0
        self.room_bytes = bytes_max - _COUNT.size
        self._lengths: list[array[int]] = []
        self._data: list[memoryview] = []

    @property
    def room_rows(self) -> int:
        return ROWS_PER_BLOCK - self.rows

    def add(self, lengths: array[int], data: memoryview) -> None:
        size = sum(lengths)
        self.rows += len(lengths) // 3
        self.room_bytes -= size + LENGTHS_BYTES * (len(lengths) // 3)
        self._lengths.append(lengths)
        self._data.append(data[:size])

    def block(self) -> Block:
        return Block(self.rows, b"".join((_COUNT.pack(self.rows), *self._lengths, *self._data)))


def _lengths(column: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())


def _interleaved(lengths: Sequence[pa.Array | int], rows: int) -> array[int]:
    """Three for each row."""
    import pyarrow as pa

    found = array("I", bytes(LENGTHS_BYTES * rows))
    for place, each in enumerate(lengths):
        numbers = (
            array("I", [each]) * rows if isinstance(each, int) else _numbers("I", each.cast(pa.uint32()))
        )
        found[place::3] = numbers
    return found


def _ends(lengths: Sequence[pa.Array | int]) -> array[int]:
    """What the rows up to each one take in a block, with it."""
    import pyarrow.compute as pc

    sizes = lengths[-1]
    for each in (*lengths[:-1], LENGTHS_BYTES):
        sizes = pc.add(sizes, each)
    return _numbers("q", pc.cumulative_sum(sizes))


def _numbers(code: str, column: pa.Array) -> array[int]:
    found = array(code)
    start = column.offset * found.itemsize
    found.frombytes(memoryview(column.buffers()[1])[start : start + len(column) * found.itemsize])
    return found
