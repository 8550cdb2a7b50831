"""The records of a stream's sink transactions (`sink/sink.py`), and their encoding in entries and snapshots."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from supercluster.broker.jetstream.encoding.codec import Reader, text, u32, u64


@dataclass(frozen=True, slots=True)
class BatchKey:
    writer: str
    number: int


@dataclass(frozen=True, slots=True)
class StagedBlock:
    """A block where it stands in the log."""

    index: int
    rows: int
    size_bytes: int
    crc: int


@dataclass(slots=True)
class Stage:
    """The blocks of one token. `crc` is of all of them, one behind the other."""

    batch: BatchKey
    token: str
    rows: int = 0
    crc: int = 0
    touched_ns: int = 0
    blocks: list[StagedBlock] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(block.size_bytes for block in self.blocks)

    def encode(self) -> bytes:
        head = text(self.batch.writer) + u64(self.batch.number) + text(self.token)
        numbers = u64(self.rows) + u32(self.crc) + u64(self.touched_ns) + u32(len(self.blocks))
        columns = (
            array("Q", (block.index for block in self.blocks)),
            array("I", (block.rows for block in self.blocks)),
            array("I", (block.size_bytes for block in self.blocks)),
            array("I", (block.crc for block in self.blocks)),
        )
        return b"".join((head, numbers, *(column.tobytes() for column in columns)))

    @classmethod
    def decode(cls, reader: Reader) -> Stage:
        found = cls(BatchKey(reader.text(), reader.u64()), reader.text())
        found.rows, found.crc, found.touched_ns = reader.u64(), reader.u32(), reader.u64()
        count = reader.u32()
        columns = (reader.column(code, count) for code in "QIII")
        found.blocks = [StagedBlock(*numbers) for numbers in zip(*columns, strict=True)]
        return found


RUNS_MAX = 4
"""Of a batch, whose writes are remembered: a commit that was long on its way is one run more."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a commit says of one token: its rows and their CRC."""

    token: str
    rows: int
    crc: int


@dataclass(frozen=True, slots=True)
class Commit:
    """`offsets_hash` is of the file that says what the batch consists of; empty where the writer has none."""

    batch: BatchKey
    offsets_hash: str
    parts: tuple[Part, ...]
    run: str = ""
    """Of the batch: who repeats it does so in another run. Empty: the writer has none."""
    write: str = ""
    """One of the writes that a run has to the stream. A second one has other rows."""

    def encode(self) -> bytes:
        """Body of a section SINK_COMMIT."""
        head = text(self.batch.writer) + u64(self.batch.number) + text(self.offsets_hash)
        head += text(self.run) + text(self.write)
        parts = (text(part.token) + u64(part.rows) + u32(part.crc) for part in self.parts)
        return b"".join((head, u32(len(self.parts)), *parts))

    @classmethod
    def decode(cls, reader: Reader) -> Commit:
        batch, offsets_hash = BatchKey(reader.text(), reader.u64()), reader.text()
        run, write = reader.text(), reader.text()
        parts = (Part(reader.text(), reader.u64(), reader.u32()) for _ in range(reader.u32()))
        return cls(batch, offsets_hash, tuple(parts), run, write)


@dataclass(slots=True)
class Writer:
    """The last batch of a writer: 0 <= released <= rows."""

    batch: BatchKey
    offsets_hash: str
    index: int
    """Of the commit entry: batches are released in this order."""
    rows: int
    released: int = 0
    stages: list[Stage] = field(default_factory=list)
    """Of the batch, in the order of its rows, until the last row is released."""
    writes: dict[str, str] = field(default_factory=dict)
    """Which write each run of the batch has: the last `RUNS_MAX` runs in the order in which their commits came."""

    def note(self, run: str, write: str) -> None:
        """A run has this write, unless it had one before."""
        if run:
            self.writes.setdefault(run, write)
        while len(self.writes) > RUNS_MAX:
            del self.writes[next(iter(self.writes))]

    def encode(self) -> bytes:
        head = text(self.batch.writer) + u64(self.batch.number) + text(self.offsets_hash)
        head += u32(len(self.writes)) + b"".join(
            text(run) + text(write) for run, write in self.writes.items()
        )
        numbers = u64(self.index) + u64(self.rows) + u64(self.released) + u32(len(self.stages))
        return b"".join((head, numbers, *(stage.encode() for stage in self.stages)))

    @classmethod
    def decode(cls, reader: Reader) -> Writer:
        batch, offsets_hash = BatchKey(reader.text(), reader.u64()), reader.text()
        writes = {reader.text(): reader.text() for _ in range(reader.u32())}
        found = cls(batch, offsets_hash, reader.u64(), reader.u64(), reader.u64(), writes=writes)
        found.stages = [Stage.decode(reader) for _ in range(reader.u32())]
        return found

    def blocks_from(self, row: int) -> Iterator[tuple[Stage, int, int]]:
        """The blocks that have the rows from that one on: their stage, number, and how many rows of them come before."""
        at = 0
        for stage in self.stages:
            for number, block in enumerate(stage.blocks, 1):
                if at + block.rows > row:
                    yield stage, number, max(0, row - at)
                at += block.rows


@dataclass(frozen=True, slots=True)
class Release:
    """Rows of a batch, `first` to `end - 1`, are messages of the entry that says so."""

    batch: BatchKey
    first: int
    end: int

    def encode(self) -> bytes:
        """Body of a section SINK_RELEASED."""
        return text(self.batch.writer) + u64(self.batch.number) + u64(self.first) + u64(self.end)

    @classmethod
    def decode(cls, reader: Reader) -> Release:
        return cls(BatchKey(reader.text(), reader.u64()), reader.u64(), reader.u64())


@dataclass(frozen=True, slots=True)
class StageRequest:
    """The next block of a token, counted from 1."""

    batch: BatchKey
    token: str
    number: int
    block: bytes | memoryview = field(repr=False)

    def encode(self) -> list[bytes | memoryview]:
        """Body of a section SINK_STAGE."""
        head = text(self.batch.writer) + u64(self.batch.number) + text(self.token) + u32(self.number)
        return [head, self.block]

    @classmethod
    def decode(cls, reader: Reader) -> StageRequest:
        batch = BatchKey(reader.text(), reader.u64())
        return cls(batch, reader.text(), reader.u32(), reader.rest())


def encode_abort(batch: BatchKey, tokens: Iterable[str]) -> bytes:
    """Body of a section SINK_ABORT."""
    found = tuple(tokens)
    head = text(batch.writer) + u64(batch.number) + u32(len(found))
    return head + b"".join(map(text, found))


def decode_abort(reader: Reader) -> tuple[BatchKey, tuple[str, ...]]:
    batch = BatchKey(reader.text(), reader.u64())
    return batch, tuple(reader.text() for _ in range(reader.u32()))
