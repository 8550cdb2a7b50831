"""The transcoder's process: it makes Arrow columns of blocks of a stream's log (`docs/adr/bulk-reads.md`).

A job is a line of JSON on the standard input (`Job`), and a line on the standard output answers it. The
messages are read from the log's file with the broker's own decoder. Types and values are those of Spark's
source (`spark/columns.py`). A column is an Arrow IPC stream in a file of its own, which gets its name
when it is whole. This module and `singles.py` alone know pyarrow, and no other one imports them.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from isal.isal_zlib import crc32

from supercluster.broker.bulk.layout import UNFINISHED, WORD_BYTES
from supercluster.broker.bulk.singles import Run, Singles
from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.encoding.sections import (
    RUN,
    SECTION,
    Section,
    count_of,
    places_in_messages,
)
from supercluster.broker.jetstream.state.interior_deletes import InteriorDeletes
from supercluster.broker.jetstream.state.log_reader import decode_stored
from supercluster.broker.raft.entry import HEADER, CorruptRecordError, EntryKind, decode_entry

NICENESS = 10
ROWS_PER_BATCH = 10_000
BYTES_PER_BATCH = 8 << 20
CHUNK_BYTES = 16 << 20
"""Of a file whose words are added up at a time."""

TYPES: dict[str, pa.DataType] = {
    "sequence": pa.int64(),
    "time": pa.timestamp("us", tz="UTC"),
    "subject": pa.string(),
    "headers": pa.map_(pa.string(), pa.list_(pa.string())),
    "payload": pa.binary(),
}


PARTS = ("subject", "headers", "payload")
"""Of a message, as they lie in an entry."""


class JobError(Exception):
    """The block cannot be made into columns."""


class _Rows:
    """Messages that were gathered for the next batch, as they lie in entries: three lengths for each, and the bytes of all
    parts. They become columns without a step for each message."""

    def __init__(self) -> None:
        self.seqs = array("q")
        self.times = array("Q")
        self.kept = bytearray()
        """One for each message that is there; 0 for one that was deleted, or is outside of the block."""
        self.lengths = bytearray()
        self.parts: list[bytes | memoryview | pa.Buffer] = []
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self.seqs)

    def columns(self, names: Sequence[str]) -> pa.RecordBatch:
        lengths = array("I")
        lengths.frombytes(self.lengths)
        # Subject, header and payload of each message behind each other: one text is every third one.
        offsets = array("i", accumulate(lengths, initial=0))
        if offsets[-1] != self.size_bytes:
            raise JobError(f"parts of {self.size_bytes} bytes have lengths of {offsets[-1]}")
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(self.parts))]
        parts = pa.Array.from_buffers(pa.binary(), len(lengths), buffers)
        kept = None
        if not all(self.kept):
            kept = pa.Array.from_buffers(pa.uint8(), len(self), [None, pa.py_buffer(self.kept)]).cast(
                pa.bool_()
            )

        def column(name: str) -> pa.Array:
            if name in PARTS:
                places = array("i", range(PARTS.index(name), len(lengths), len(PARTS)))
                found = parts.take(_integers(places, pa.int32()))
            else:
                found = (
                    _integers(self.seqs, pa.int64())
                    if name == "sequence"
                    else _integers(self.times, pa.uint64())
                )
            return _CONVERTED[name](found if kept is None else found.filter(kept))

        return pa.RecordBatch.from_arrays([column(name) for name in names], names=list(names))


def _integers(values: array[int], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _times(found: pa.Array) -> pa.Array:
    return pc.divide(found, 1000).cast(pa.int64()).cast(TYPES["time"])


def _texts(found: pa.Array) -> pa.Array:
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([text.decode("utf-8", "replace") for text in found.to_pylist()], pa.string())


def _headers(found: pa.Array) -> pa.Array:
    if not pc.any(pc.greater(pc.binary_length(found), 0)).as_py():
        return pa.nulls(len(found), TYPES["headers"])
    ends: list[int | None] = []
    names: list[bytes] = []
    counts: list[int] = [0]
    values: list[bytes] = []
    for block in found.to_pylist():
        ends.append(len(names) if block else None)
        for name, those in parse_headers(block).items() if block else ():
            names.append(name)
            values += those
            counts.append(len(values))
    of_names = pa.ListArray.from_arrays(pa.array(counts, pa.int32()), _texts(pa.array(values, pa.binary())))
    offsets = pa.array([*ends, len(names)], pa.int32())
    return pa.MapArray.from_arrays(offsets, _texts(pa.array(names, pa.binary())), of_names)


_CONVERTED: dict[str, Callable[[pa.Array], pa.Array]] = {
    "sequence": lambda found: found,
    "time": _times,
    "subject": _texts,
    "headers": _headers,
    "payload": lambda found: found,
}


def parse_headers(header: bytes) -> dict[bytes, list[bytes]]:
    """As Spark's source reads them: a repeated name keeps all its values. Names that are no UTF-8 are compared as they are read."""
    values: dict[bytes, list[bytes]] = {}
    for line in header.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            if not name.isascii():
                name = name.decode("utf-8", "replace").encode()
            values.setdefault(name, []).append(value.strip())
    return values


class _Column:
    """The file of one column, under another name until it is whole."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self._schema = pa.schema([pa.field(name, TYPES[name])])
        self._unfinished = path.with_name(path.name + UNFINISHED)
        self._sink = pa.OSFile(str(self._unfinished), "wb")
        self._writer = pa.ipc.new_stream(self._sink, self._schema)

    def write(self, found: pa.Array) -> None:
        self._writer.write_batch(pa.RecordBatch.from_arrays([found], schema=self._schema))

    @property
    def size_bytes(self) -> int:
        return int(self._sink.tell())

    def finish(self) -> dict[str, Any]:
        self._writer.close()
        self._sink.close()
        with pa.memory_map(str(self._unfinished)) as file:
            size, total = file.size(), 0
            if size % WORD_BYTES:
                raise JobError(f"{size} bytes are not whole words")
            while buffer := file.read_buffer(CHUNK_BYTES):
                words = pa.Array.from_buffers(pa.uint64(), len(buffer) // WORD_BYTES, [None, buffer])
                total += pc.sum(words).as_py()
        self._unfinished.rename(self.path)
        return {"size": size, "sum": total % (1 << 64)}

    def drop(self) -> None:
        if not self._sink.closed:
            self._sink.close()
        self._unfinished.unlink(missing_ok=True)


def _read(path: str, begin: int, end: int) -> bytes:
    """Raises JobError, OSError."""
    with Path(path).open("rb", buffering=0) as file:
        data = os.pread(file.fileno(), end - begin, begin)
    if len(data) < end - begin:
        raise JobError("the file ends before the block does")
    return data


def _plain_blocks(data: bytes, at: int, end: int, count: int) -> list[tuple[int, int, int]]:
    """Where the blocks of an entry's payload begin and end, and how many messages each has. None of them: the entry has other
    messages too, or a number of a block was not stored."""
    size: int
    found: list[tuple[int, int, int]] = []
    while at < end:
        kind, size = SECTION.unpack_from(data, at)
        block = at + SECTION.size
        at = block + size
        if kind == Section.MESSAGES:
            _, run = places_in_messages(data, block)
            _, messages, _, exceptions = RUN.unpack_from(data, run)
            if exceptions:
                return []
            block = run + RUN.size
        elif kind == Section.OWN_MESSAGES:
            messages = count_of(memoryview(data)[block:at])
        else:
            continue
        found.append((block, at, messages))
        count -= messages
    return [] if count else found


def _gather_run(run: Run, rows: _Rows, holes: _Holes) -> int:
    rows.seqs.frombytes(run.seqs)
    rows.times.frombytes(run.times)
    rows.lengths += run.lengths
    rows.parts.append(run.body)
    rows.size_bytes += run.size_bytes
    rows.kept += holes.kept(run.first, run.count)
    return run.end


def gather(data: bytes, at: int, rows: _Rows, holes: _Holes) -> int:
    """Take an entry's messages; returns where the next entry begins. Raises CorruptRecordError, WireError."""
    size: int
    size, crc, _, _, time_ns, first, count, kind = HEADER.unpack_from(data, at)
    end = at + size
    if not HEADER.size <= size or end > len(data):
        raise CorruptRecordError(at, f"size {size} leaves the block")
    if not count:
        return end
    if kind != EntryKind.BATCH:
        raise CorruptRecordError(at, f"messages in an entry of kind {kind}")
    view = memoryview(data)
    if crc32(view[at + 8 : end]) != crc:
        raise CorruptRecordError(at, "checksum differs")
    blocks = _plain_blocks(data, at + HEADER.size, end, count)
    for start, stop, messages in blocks:
        body = start + 4 + 12 * messages
        rows.lengths += data[start + 4 : body]
        rows.parts.append(view[body:stop])
        rows.size_bytes += stop - body
    times: Sequence[int] = ()
    if not blocks:
        decoded = decode_stored(decode_entry(data, at))
        rows.lengths += array("I", map(len, decoded.parts)).tobytes()
        rows.parts += decoded.parts
        rows.size_bytes += decoded.size_bytes
        times = decoded.times_ns
    if count == 1 and not times:
        rows.seqs.append(first)
        rows.times.append(time_ns)
    else:
        rows.seqs.extend(range(first, first + count))
        rows.times.extend(times or array("Q", (time_ns,)) * count)
    rows.kept += holes.kept(first, count)
    return end


class _Holes:
    """Sequences without a message, and those that are outside of the block. They are asked for in rising order."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._first, self._last = job["first"], job["last"]
        deleted = InteriorDeletes()
        for piece in job["deleted"]:
            deleted.take(Reader(memoryview(base64.b64decode(piece))))
        self.ranges = _joined([*_runs(deleted, self._first, self._last), *map(tuple, job["gaps"])])
        self._at = 0
        """Ranges before this one were passed."""

    def kept(self, first: int, count: int) -> bytes:
        """One for each sequence that has a message of the block."""
        ranges, last = self.ranges, first + count - 1
        while self._at < len(ranges) and ranges[self._at][1] < first:
            self._at += 1
        is_inside = self._first <= first and last <= self._last
        if is_inside and (self._at == len(ranges) or last < ranges[self._at][0]):
            return b"\1" * count
        there = bytearray(b"\1" * count)
        for begin, end in ((first, self._first - 1), (self._last + 1, last)):
            _blank(there, first, begin, end)
        for at in range(self._at, len(ranges)):
            if ranges[at][0] > last:
                break
            _blank(there, first, *ranges[at])
        return bytes(there)


def _blank(there: bytearray, first: int, begin: int, end: int) -> None:
    start, stop = max(0, begin - first), min(len(there), end + 1 - first)
    if start < stop:
        there[start:stop] = bytes(stop - start)


def _runs(deleted: InteriorDeletes, first: int, last: int) -> Iterator[tuple[int, int]]:
    start = stop = 0
    for seq in deleted:
        if not first <= seq <= last:
            continue
        if start and seq == stop + 1:
            stop = seq
            continue
        if start:
            yield start, stop
        start = stop = seq
    if start:
        yield start, stop


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and found[-1][1] + 1 == first:
            found[-1] = found[-1][0], last
        else:
            found.append((first, last))
    return found


def transcode(job: dict[str, Any]) -> dict[str, Any]:
    """Make the columns of a job.

    Raises:
        JobError, CorruptRecordError, OSError, ValueError: they cannot be made; no file is left.
    """
    holes = _Holes(job)
    data = _read(job["path"], job["begin"], job["end"])
    singles = Singles(data, memoryview(data))
    columns: list[_Column] = []
    total = at = 0
    try:
        columns += [_Column(name, Path(path)) for name, path in job["columns"].items()]
        while at < len(data) or not at:
            rows = _Rows()
            while at < len(data) and len(rows) < ROWS_PER_BATCH and rows.size_bytes < BYTES_PER_BATCH:
                run = singles.take(at, ROWS_PER_BATCH - len(rows), BYTES_PER_BATCH - rows.size_bytes)
                at = _gather_run(run, rows, holes) if run else gather(data, at, rows, holes)
            found = rows.columns([column.name for column in columns])
            for column, values in zip(columns, found.columns, strict=True):
                for start in range(0, len(values), _step(rows)) or (0,):
                    column.write(values.slice(start, _step(rows)))
            total += found.num_rows
            if sum(column.size_bytes for column in columns) > job["bytes_max"]:
                raise JobError(f"the columns take more than {job['bytes_max']} bytes")
        if total != job["rows"]:
            raise JobError(f"there are {total} messages, not {job['rows']}")
        made = {column.name: column.finish() for column in columns}
        return {"rows": total, "deleted": holes.ranges, "columns": made}
    except BaseException:
        for column in columns:
            column.drop()
            column.path.unlink(missing_ok=True)
        raise


def _step(rows: _Rows) -> int:
    """So many of the rows are a batch: an entry may have more than one has."""
    return max(1, min(ROWS_PER_BATCH, len(rows) * BYTES_PER_BATCH // max(1, rows.size_bytes)))


def answer(line: str) -> dict[str, Any]:
    try:
        return transcode(json.loads(line))
    except (JobError, CorruptRecordError, OSError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    os.nice(NICENESS)
    pa.set_cpu_count(1)
    for line in sys.stdin:
        print(json.dumps(answer(line)), flush=True)


if __name__ == "__main__":
    main()
