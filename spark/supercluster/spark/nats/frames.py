"""Deliveries of one consumer as columns: what reads of a socket brought is cut by a few passes of Arrow's, and no Python object
is made per message.

All deliveries of a consumer have the same subscription and reply subject up to their numbers. So the bytes are split at that
text, and the rest follows from the sizes in the control lines. Each message has to begin where the one before it ends, so text
in a payload that looks like a delivery is noticed. `take_frames` takes all messages or none: where anything else stands between them, or
a size is wrong, the parser takes one message after another. numpy is not used: executors do not have to have it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from supercluster.spark.columns import arrow_schema, constant, map_of_headers
from supercluster.spark.wire import PAYLOAD_BYTES_MAX, Message, WireParser

SAMPLE_BYTES = 65_536
MESSAGES_MIN = 16
"""Fewer in so many bytes are read one by one: small reads, and payloads that are copied in the end anyway."""
ROWS_MAX = 65_536
SEQUENCE, COUNT, TIME, PENDING = range(4)
NUMBERS = 5
"""In a control line; the last one is the size. A header block's size stands before it."""
_LINE = b"\r\n"
_KINDS = (b"MSG ", b"HMSG ")
_SPACES = bytes.maketrans(b".", b" ")
_INT32 = [pa.scalar(value, pa.int32()) for value in range(5)]
_INT32_ZERO = pa.array([0], pa.int32())
_COUNTING = pa.array(range(ROWS_MAX), pa.int64())
_EVEN = pc.multiply(_COUNTING, 2)
_STEPS = {step: pc.multiply(_COUNTING, step).cast(pa.int32()) for step in (NUMBERS, NUMBERS + 1)}
"""Where the numbers of control lines begin that are all of one kind."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Of control lines."""

    values: pa.Int64Array
    """All of them."""
    firsts: pa.Int32Array
    """Of each line the place of its first one, and where the last line's end."""
    size: int
    """How many each line has; 0: they differ."""

    def column(self, place: int) -> pa.Int64Array:
        """One of each line, counted from its first one."""
        if not self.size:
            return self.values.take(pc.add(self.firsts.slice(0, len(self.firsts) - 1), _INT32[place]))
        return self._every(place)

    def sizes(self) -> tuple[pa.Int64Array, pa.Int64Array | None]:
        """Of the header blocks with payload, and of the header blocks; None: there are none."""
        if self.size == NUMBERS:
            return self._every(NUMBERS - 1), None
        if self.size:
            return self._every(NUMBERS), self._every(NUMBERS - 1)
        ends = self.firsts.slice(1)
        heads = self.values.take(pc.subtract(ends, _INT32[2]))
        total = self.values.take(pc.subtract(ends, _INT32[1]))
        return total, pc.if_else(self.with_headers(), heads, 0)

    def with_headers(self) -> pa.BooleanArray:
        rows = len(self.firsts) - 1
        return pc.greater(pc.subtract(self.firsts.slice(1), self.firsts.slice(0, rows)), NUMBERS)

    def is_regular(self) -> bool:
        if self.size:
            return True
        rows = len(self.firsts) - 1
        counts = pc.min_max(pc.subtract(self.firsts.slice(1), self.firsts.slice(0, rows)))
        return bool(counts["min"].as_py() == NUMBERS and counts["max"].as_py() == NUMBERS + 1)

    def _every(self, place: int) -> pa.Int64Array:
        picked = array("q", memoryview(self.values.buffers()[1]).cast("q")[place :: self.size])
        return pa.Array.from_buffers(pa.int64(), len(picked), [None, pa.py_buffer(picked)])


@dataclass(frozen=True, slots=True)
class Frames:
    """Deliveries that follow one another. Starts and ends are places in `data`."""

    rows: int
    data: pa.Buffer
    source: bytes
    """What the messages were cut from."""
    numbers: Numbers
    controls: pa.BinaryArray
    """`MSG` or `HMSG` and the subject."""
    body_starts: pa.Int32Array
    payload_starts: pa.Int32Array
    payload_ends: pa.Int32Array

    def counts_on_from(self, first: int) -> bool:
        """Is the consumer's count dense, and does it begin there?"""
        return bool(pc.subtract(self.numbers.column(COUNT), first).equals(_COUNTING.slice(0, self.rows)))

    def span(self) -> tuple[int, int, int | None] | None:
        """The first sequence, the last one, and the first one that is missing in between; None where they do not ascend."""
        sequences = self.numbers.column(SEQUENCE)
        first, last = sequences[0].as_py(), sequences[-1].as_py()
        if pc.subtract(sequences, first).equals(_COUNTING.slice(0, self.rows)):
            return first, last, None
        steps = pc.subtract(sequences.slice(1), sequences.slice(0, self.rows - 1))
        if pc.min(steps).as_py() < 1:
            return None
        return first, last, sequences[pc.index(pc.greater(steps, 1), True).as_py()].as_py() + 1

    @property
    def pending(self) -> int:
        """How many messages the consumer has to deliver after the last one of these."""
        return int(self.numbers.values[self.numbers.firsts[self.rows - 1].as_py() + PENDING].as_py())

    @property
    def payload_bytes(self) -> int:
        return int(self.payload_ends[-1].as_py() - self.payload_starts[0].as_py())

    def messages(self) -> list[Message]:
        """The same as the parser has them."""
        return WireParser().feed(self.source)

    def batch(self, names: tuple[str, ...], stream: str) -> pa.RecordBatch:
        """The columns `names`; no other one is built."""
        makers: dict[str, Callable[[], pa.Array]] = {
            "stream": partial(constant, stream, self.rows),
            "sequence": partial(self.numbers.column, SEQUENCE),
            "time": self._times,
            "subject": self._subjects,
            "headers": self._headers,
            "payload": partial(_cut_out, self.data, self.payload_starts, self.payload_ends),
        }
        return pa.RecordBatch.from_arrays([makers[name]() for name in names], schema=arrow_schema(names))

    def _times(self) -> pa.TimestampArray:
        return pc.divide(self.numbers.column(TIME), 1_000).cast(pa.timestamp("us", tz="UTC"))

    def _subjects(self) -> pa.StringArray:
        places, size = _offsets(self.controls), self.numbers.size
        starts = pc.add(places.slice(0, self.rows), _INT32[4])
        if size != NUMBERS:
            starts = pc.add(starts, self.numbers.with_headers().cast(pa.int32()))
        found = _cut_out(self.controls.buffers()[2], starts, places.slice(1))
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array([each.decode("utf-8", "replace") for each in found.to_pylist()], pa.string())

    def _headers(self) -> pa.MapArray:
        return map_of_headers(_cut_out(self.data, self.body_starts, self.payload_starts))


def take_frames(prefix: bytes, buffer: bytes) -> tuple[Frames | None, int]:
    """All whole deliveries of the buffer, and where they end; or none, and 0.

    Args:
        prefix: what stands between a delivery's subject and its numbers.
    """
    if buffer.count(prefix, 0, SAMPLE_BYTES) < MESSAGES_MIN:
        return None, 0
    bounds = pa.py_buffer(array("i", (0, len(buffer))))
    whole = pa.Array.from_buffers(pa.binary(), 1, [None, bounds, pa.py_buffer(buffer)])
    pieces = pc.split_pattern(whole, pattern=prefix).values
    rows = len(pieces) - 1
    if not _is_whole(buffer, buffer.rfind(prefix) + len(prefix)):
        rows -= 1
    if not 0 < rows < ROWS_MAX:
        return None, 0
    data, places = pieces.buffers()[2], _offsets(pieces)
    starts = places.slice(1, rows)
    line_sizes = pc.find_substring(pieces.slice(1, rows), pattern=_LINE)
    if pc.min(line_sizes).as_py() < 0:
        return None, 0
    line_ends = pc.add(starts, line_sizes)
    numbers = _numbers(_cut_out(data, starts, line_ends))
    if numbers is None:
        return None, 0
    total, heads = numbers.sizes()
    if not _are_sizes(total if heads is None else heads, total):
        return None, 0
    body_starts = pc.add(line_ends, _INT32[2])
    payload_ends = pc.add(body_starts, total.cast(pa.int32()))
    begins = pc.add(payload_ends, _INT32[2])
    control_starts = pa.concat_arrays([_INT32_ZERO, begins.slice(0, rows - 1)])
    # The piece behind the last row may be inside of its payload.
    if (
        pc.min(pc.subtract(starts, control_starts)).as_py() <= 0
        or begins[-1].as_py() > places[rows + 1].as_py()
    ):
        return None, 0
    controls = _cut_out(data, control_starts, starts)
    if not _are_controls(controls, numbers):
        return None, 0
    end = begins[-1].as_py() + rows * len(prefix)
    frames = Frames(
        rows=rows,
        data=data,
        source=buffer[:end],
        numbers=numbers,
        controls=controls,
        body_starts=body_starts,
        payload_starts=body_starts if heads is None else pc.add(body_starts, heads.cast(pa.int32())),
        payload_ends=payload_ends,
    )
    return frames, end


def _is_whole(buffer: bytes, at: int) -> bool:
    """Of a delivery whose numbers begin there."""
    line_end = buffer.find(_LINE, at)
    size = buffer[at:line_end].rpartition(b" ")[2]
    return line_end >= 0 and size.isdigit() and line_end + int(size) + 2 * len(_LINE) <= len(buffer)


def _numbers(lines: pa.BinaryArray) -> Numbers | None:
    """None: a line has others."""
    _, places, text = lines.buffers()
    spaced = pa.py_buffer(memoryview(text).tobytes().translate(_SPACES))
    words = pc.split_pattern(
        pa.Array.from_buffers(pa.string(), len(lines), [None, places, spaced]), pattern=" "
    )
    firsts = words.offsets
    sizes = (size for size, steps in _STEPS.items() if firsts.equals(steps.slice(0, len(firsts))))
    try:
        numbers = Numbers(words.values.cast(pa.int64()), firsts, next(sizes, 0))
    except pa.ArrowInvalid:
        return None
    return numbers if numbers.is_regular() else None


def _are_sizes(heads: pa.Int64Array, total: pa.Int64Array) -> bool:
    """Does `0 <= head <= total <= PAYLOAD_BYTES_MAX` hold everywhere?"""
    most = pc.max(total).as_py()
    if heads is total:
        return bool(pc.min(total).as_py() >= 0 and most <= PAYLOAD_BYTES_MAX)
    least = min(pc.min(heads).as_py(), pc.min(pc.subtract(total, heads)).as_py())
    return bool(least >= 0 and most <= PAYLOAD_BYTES_MAX)


def _are_controls(controls: pa.BinaryArray, numbers: Numbers) -> bool:
    """Is each of them the beginning of one control line, of the kind that the number of its sizes says?"""
    text = memoryview(controls.buffers()[2]).tobytes()
    if text.count(b" ") != len(controls) or b"\r" in text:
        return False
    if numbers.size:
        return bool(pc.all(pc.starts_with(controls, pattern=_KINDS[numbers.size - NUMBERS])).as_py())
    plain, headed = (pc.starts_with(controls, pattern=kind) for kind in _KINDS)
    return bool(headed.equals(numbers.with_headers()) and pc.all(pc.or_(plain, headed)).as_py())


def _offsets(found: pa.BinaryArray) -> pa.Int32Array:
    return pa.Array.from_buffers(pa.int32(), len(found) + 1, [None, found.buffers()[1]], offset=found.offset)


def _view(places: pa.Int32Array) -> memoryview:
    return memoryview(places.buffers()[1]).cast("i")[places.offset : places.offset + len(places)]


def _cut_out(data: pa.Buffer, starts: pa.Int32Array, ends: pa.Int32Array) -> pa.BinaryArray:
    """Pieces of `data`, which ascend: every other one of an array that has what is between them too."""
    rows = len(starts)
    bounds = memoryview(bytearray(8 * rows + 4)).cast("i")
    bounds[0:-1:2], bounds[1::2] = _view(starts), _view(ends)
    bounds[-1] = bounds[-2]
    both = pa.Array.from_buffers(pa.binary(), 2 * rows, [None, pa.py_buffer(bounds), data])
    return both.take(_EVEN.slice(0, rows))
