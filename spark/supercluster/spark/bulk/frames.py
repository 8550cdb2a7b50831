"""The frames of an answer of the bulk port: bytes in, blocks of columns and the end out.

Bodies are read into buffers of Arrow's, and columns lie in them as they came. No step is made per row.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from supercluster.spark.columns import arrow_schema

VERSION = 1
COLUMN, END = 1, 2
HEAD = struct.Struct("<BBHIQQQ")
WORD_BYTES = 8
MODULUS = 1 << 64
BODY_BYTES_MAX = 1 << 30
"""A larger size is garbage, and no reason to make room for it."""
SEQUENCE = "sequence"
WHY_CHARACTERS_MAX = 400

ReadInto = Callable[[memoryview], int]
"""Reads some bytes, and says how many; 0: there are no more."""


class BrokenAnswerError(Exception):
    """The answer ended early, or a part of it is not what it should be. Blocks before that are good."""


class OtherVersionError(Exception):
    """The frames have a layout that this reader does not know."""

    def __init__(self, version: int) -> None:
        super().__init__(f"its frames have version {version}, and this reader knows {VERSION}")


@dataclass(frozen=True, slots=True)
class Block:
    """Messages that follow one another."""

    first: int
    """A sequence of the block; none of its messages is below."""
    columns: dict[str, pa.ChunkedArray]
    sequences: pa.Int64Array
    """They ascend."""

    def between(self, low: int, high: int) -> tuple[int, int]:
        """Where the rows from `low` to `high` begin and end."""
        return self._place(low), self._place(high + 1)

    def _place(self, sequence: int) -> int:
        low, high = 0, len(self.sequences)
        while low < high:
            middle = (low + high) // 2
            if self.sequences[middle].as_py() < sequence:
                low = middle + 1
            else:
                high = middle
        return low

    def gaps(self, expected: int) -> list[tuple[int, int]]:
        """Ranges without a message, where `expected` is the first sequence that there may be one of."""
        found, sequences = [], self.sequences
        if not len(sequences):
            return []
        if sequences[0].as_py() > expected:
            found.append((expected, sequences[0].as_py() - 1))
        if sequences[-1].as_py() - sequences[0].as_py() >= len(sequences):
            before, after = sequences.slice(0, len(sequences) - 1), sequences.slice(1)
            skips = pc.greater(pc.subtract(after, before), 1)
            pairs = zip(before.filter(skips).to_pylist(), after.filter(skips).to_pylist(), strict=True)
            found += [(low + 1, high - 1) for low, high in pairs]
        return found


@dataclass(frozen=True, slots=True)
class End:
    """What the answer has covered."""

    first: int
    last: int
    """Below `first`: nothing."""
    rows: int
    deleted: list[tuple[int, int]]
    """Ranges without a message, that do not touch one another."""
    lineage: str
    sums: int
    why: str = ""
    """Why the broker sends no more, where it has more."""


def read_frames(read_into: ReadInto, columns: Sequence[str]) -> Iterator[Block | End]:
    """The blocks, which have the `columns` of the request, and then the end.

    Raises:
        BrokenAnswerError: bytes are missing, or a frame is not what has to come next.
        OtherVersionError: the frames have another layout.
    """
    total, last, begun = 0, 0, (0, 0)
    block: dict[str, pa.ChunkedArray] = {}
    while True:
        head = bytearray(HEAD.size)
        _fill(read_into, memoryview(head))
        kind, place, version, rows, first, length, added = HEAD.unpack(head)
        if version != VERSION:
            raise OtherVersionError(version)
        if length > BODY_BYTES_MAX or length % WORD_BYTES:
            raise BrokenAnswerError(f"a frame has {length} bytes")
        body = pa.allocate_buffer(length)
        _fill(read_into, memoryview(body).cast("B"))
        if sum_of(body) != added:
            raise BrokenAnswerError(f"the bytes of a frame at sequence {first} have another sum")
        if kind == END and not block:
            yield _end(body, total)
            return
        if kind != COLUMN or place != len(block) or first <= last or (block and begun != (first, rows)):
            raise BrokenAnswerError(
                f"a frame of kind {kind}, column {place}, at sequence {first} is out of order"
            )
        total = (total + added) % MODULUS
        block[columns[place]] = _column(body, columns[place], rows)
        begun = first, rows
        if len(block) == len(columns):
            sequences = _ascending(block[SEQUENCE], first)
            yield Block(first, block, sequences)
            last = sequences[-1].as_py() if len(sequences) else first
            block = {}


def sum_of(body: pa.Buffer) -> int:
    words = pa.Array.from_buffers(pa.uint64(), body.size // WORD_BYTES, [None, body])
    return int(pc.sum(words).as_py() or 0)


def _fill(read_into: ReadInto, view: memoryview) -> None:
    while view:
        size = read_into(view)
        if not size:
            raise BrokenAnswerError("it ends without an end frame")
        view = view[size:]


def _column(body: pa.Buffer, name: str, rows: int) -> pa.ChunkedArray:
    try:
        table = pa.ipc.open_stream(body).read_all()
        table.validate()
    except (pa.ArrowException, OSError) as error:
        raise BrokenAnswerError(f"column {name} is no Arrow stream: {error}") from None
    if table.num_rows != rows or table.schema.types != arrow_schema([name]).types:
        raise BrokenAnswerError(
            f"column {name} has {table.num_rows} rows of {rows}, and types {table.schema.types}"
        )
    return table.column(0)


def _ascending(column: pa.ChunkedArray, first: int) -> pa.Int64Array:
    sequences = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], pa.int64())
    rows = len(sequences)
    if rows and sequences[0].as_py() < first:
        raise BrokenAnswerError(f"a block of sequence {first} begins at {sequences[0]}")
    if rows > 1 and pc.min(pc.subtract(sequences.slice(1), sequences.slice(0, rows - 1))).as_py() < 1:
        raise BrokenAnswerError(f"sequences of the block at {first} do not ascend")
    return sequences


def _end(body: pa.Buffer, total: int) -> End:
    try:
        told = json.loads(memoryview(body).tobytes())
        end = End(
            first=int(told["first"]),
            last=int(told["last"]),
            rows=int(told["rows"]),
            deleted=merged((int(low), int(high)) for low, high in told["deleted"]),
            lineage=str(told["lineage"]),
            sums=int(told["sums"]),
            why=str(told.get("why", ""))[:WHY_CHARACTERS_MAX],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise BrokenAnswerError(f"its end frame cannot be read: {error!r}") from None
    if end.sums != total:
        raise BrokenAnswerError("the sums of its frames are not those that its end frame tells")
    return end


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same sequences, in ascending ranges that do not touch one another."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(high, found[-1][1])
        elif low <= high:
            found.append((low, high))
    return found
