"""The transcoder's process: it makes Arrow columns of blocks of a stream's log (`docs/adr/bulk-reads.md`).

A job is a line of JSON on the standard input (`Job`), and a line on the standard output answers it. The
messages are read from the log's file with the broker's own decoder. Types and values are those of Spark's
source (`spark/datasource/rows.py`). A column is an Arrow IPC stream in a file of its own, which gets its name
when it is whole. This module alone knows pyarrow, and no other one imports it.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from array import array
from collections.abc import Callable, Iterator
from itertools import compress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from supercluster.broker.bulk.layout import COLUMNS, WORD_BYTES
from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.state.interior_deletes import InteriorDeletes
from supercluster.broker.jetstream.state.log_reader import DecodedEntry, decode_stored
from supercluster.broker.raft.entry import HEADER, CorruptRecordError, decode_entry

NICENESS = 10
ROWS_PER_BATCH = 10_000
BYTES_PER_BATCH = 8 << 20
READ_BYTES = 1 << 20
CHUNK_BYTES = 16 << 20
"""Of a file whose words are added up at a time."""

TYPES: dict[str, pa.DataType] = {
    "sequence": pa.int64(),
    "time": pa.timestamp("us", tz="UTC"),
    "subject": pa.string(),
    "headers": pa.map_(pa.string(), pa.list_(pa.string())),
    "payload": pa.binary(),
}


class JobError(Exception):
    """The block cannot be made into columns."""


class _Rows:
    """Messages that were gathered for the next batch."""

    def __init__(self) -> None:
        self.seqs = array("q")
        self.times = array("Q")
        self.subjects: list[bytes] = []
        self.headers: list[bytes] = []
        self.payloads: list[bytes] = []
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self.seqs)

    def add(self, found: DecodedEntry, start: int, end: int, kept: list[bool] | None) -> None:
        """An entry's messages from one place to another; `kept` says which of them are there, None: all."""
        times = found.times_ns[start:end] if found.times_ns else array("Q", (found.time_ns,)) * (end - start)
        seqs = range(found.first_seq + start, found.first_seq + end)
        columns = [found.parts[3 * start + part : 3 * end : 3] for part in range(3)]
        if kept is not None:
            seqs, times = compress(seqs, kept), compress(times, kept)  # type: ignore[assignment]
            columns = [list(compress(column, kept)) for column in columns]
        self.seqs.extend(seqs)
        self.times.extend(times)
        for gathered, column in zip((self.subjects, self.headers, self.payloads), columns, strict=True):
            gathered += column
        self.size_bytes += sum(map(len, columns[1])) + sum(map(len, columns[2]))

    def array_of(self, column: str) -> pa.Array:
        return _ARRAYS[column](self)


def _integers(values: array[int], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _times(rows: _Rows) -> pa.Array:
    return pc.divide(_integers(rows.times, pa.uint64()), 1000).cast(pa.int64()).cast(TYPES["time"])


def _subjects(rows: _Rows) -> pa.Array:
    found = pa.array(rows.subjects, pa.binary())
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([subject.decode("utf-8", "replace") for subject in rows.subjects], pa.string())


def _headers(rows: _Rows) -> pa.Array:
    if not any(rows.headers):
        return pa.nulls(len(rows), TYPES["headers"])
    known: dict[bytes, list[tuple[str, list[str]]] | None] = {b"": None}
    for block in rows.headers:
        if block not in known:
            known[block] = list(parse_headers(block).items())
    return pa.array(list(map(known.__getitem__, rows.headers)), TYPES["headers"])


_ARRAYS: dict[str, Callable[[_Rows], pa.Array]] = {
    "sequence": lambda rows: _integers(rows.seqs, pa.int64()),
    "time": _times,
    "subject": _subjects,
    "headers": _headers,
    "payload": lambda rows: pa.array(rows.payloads, pa.binary()),
}


def parse_headers(header: bytes) -> dict[str, list[str]]:
    """As Spark's source reads them: a repeated name keeps all its values."""
    values: dict[str, list[str]] = {}
    for line in header.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            text = value.strip().decode("utf-8", "replace")
            values.setdefault(name.decode("utf-8", "replace"), []).append(text)
    return values


class _Column:
    """The file of one column, under another name until it is whole."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self._schema = pa.schema([pa.field(name, TYPES[name])])
        self._unfinished = path.with_name(path.name + ".new")
        self._sink = pa.OSFile(str(self._unfinished), "wb")
        self._writer = pa.ipc.new_stream(self._sink, self._schema)

    def write(self, rows: _Rows) -> None:
        self._writer.write_batch(pa.RecordBatch.from_arrays([rows.array_of(self.name)], schema=self._schema))

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


def entries(path: str, begin: int, end: int) -> Iterator[DecodedEntry]:
    """The messages of the entries in a range of a file. Raises JobError, CorruptRecordError, OSError."""
    with Path(path).open("rb", buffering=READ_BYTES) as file:
        file.seek(begin)
        while begin < end:
            head = file.read(HEADER.size)
            if len(head) < HEADER.size:
                raise JobError("the file ends before the block does")
            size: int = HEADER.unpack(head)[0]
            if not HEADER.size <= size <= end - begin:
                raise CorruptRecordError(begin, f"size {size} leaves the block")
            entry = decode_entry(head + file.read(size - HEADER.size))
            if entry.count:
                yield decode_stored(entry)
            begin += size


class _Holes:
    """Sequences without a message."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.deleted = InteriorDeletes()
        for piece in job["deleted"]:
            self.deleted.take(Reader(memoryview(base64.b64decode(piece))))
        self.ranges = _joined([*_runs(self.deleted, job["first"], job["last"]), *map(tuple, job["gaps"])])

    def kept(self, first: int, end: int) -> list[bool] | None:
        if not self.deleted:
            return None
        there = self.deleted.absent(first, end)
        if len(there) == end - first:
            return None
        kept = [False] * (end - first)
        for seq in there:
            kept[seq - first] = True
        return kept


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
    first, last, holes = job["first"], job["last"], _Holes(job)
    columns: list[_Column] = []
    total = 0
    try:
        columns += [
            _Column(COLUMNS[COLUMNS.index(name)], Path(path)) for name, path in job["columns"].items()
        ]
        rows = _Rows()

        def flush() -> None:
            nonlocal rows, total
            for column in columns:
                column.write(rows)
            total += len(rows)
            rows = _Rows()
            if sum(column.size_bytes for column in columns) > job["bytes_max"]:
                raise JobError(f"the columns take more than {job['bytes_max']} bytes")

        for found in entries(job["path"], job["begin"], job["end"]):
            start = max(0, first - found.first_seq)
            end = min(found.count, last + 1 - found.first_seq)
            while start < end:
                stop = min(end, start + ROWS_PER_BATCH - len(rows))
                rows.add(found, start, stop, holes.kept(found.first_seq + start, found.first_seq + stop))
                start = stop
                if len(rows) >= ROWS_PER_BATCH or rows.size_bytes >= BYTES_PER_BATCH:
                    flush()
        if rows or not total:
            flush()
        if total != job["rows"]:
            raise JobError(f"there are {total} messages, not {job['rows']}")
        made = {column.name: column.finish() for column in columns}
        return {"rows": total, "deleted": holes.ranges, "columns": made}
    except BaseException:
        for column in columns:
            column.drop()
            column.path.unlink(missing_ok=True)
        raise


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
