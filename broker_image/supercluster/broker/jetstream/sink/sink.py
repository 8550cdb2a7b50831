"""The state of sink transactions: writers that repeat their batches, such as Spark's queries. It is
replicated with the stream that they write to.

Rows are staged as blocks in the stream's log, under a random token for each attempt, without sequences. One
commit entry of a writer and a batch lists tokens; their rows, in that order, form the batch. Release entries
contain the rows as messages, and the position reached. Rows become messages in no other way
(`docs/adr/spark-sink.md`).

Every request is judged here, when its entry is applied, so all replicas come to the same outcome. Nothing
here reads the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from isal.isal_zlib import crc32

from supercluster.broker.jetstream.encoding.codec import Reader, u8, u32
from supercluster.broker.jetstream.encoding.sections import decode_block
from supercluster.broker.jetstream.sink.records import (
    BatchKey,
    Commit,
    Release,
    Stage,
    StagedBlock,
    StageRequest,
    Writer,
)
from supercluster.broker.protocol.durations import SECOND_NS

WRITERS_MAX = 1024
"""A writer is never forgotten by time: when there are so many, new ones are refused."""
STAGED_BYTES_MAX = 1024 * 1024 * 1024
BLOCKS_MAX = 16_384
"""Of one stream, whether they are committed or not, until their rows are released."""
IDLE_NS = 600 * SECOND_NS
"""A stage without a new block for so long goes when its room is needed."""


class Outcome(IntEnum):
    """What became of a request."""

    TAKEN = 1
    KNOWN = 2
    """It was taken before."""
    BATCH_OLD = 3
    OFFSETS_DIFFER = 4
    STAGE_MISSING = 5
    STAGE_DIFFERS = 6
    OUT_OF_ORDER = 7
    STAGES_FULL = 8
    WRITERS_FULL = 9
    UNRELEASED = 10
    WRITER_MISSING = 11
    OTHER_WRITE = 12
    """The batch is committed, by another write of the same run: these are other rows."""


class Sink:
    """All writers of one stream."""

    def __init__(self) -> None:
        self.stages: dict[str, Stage] = {}
        """What is staged and not committed, by token."""
        self.writers: dict[str, Writer] = {}
        self.unreleased: dict[str, Writer] = {}
        """Writers whose batch is not released wholly, in the order of their commits."""
        self.was_used = False
        """Was anything staged since this state was read? Not replicated."""
        self._bytes = 0
        self._blocks = 0

    def __bool__(self) -> bool:
        return bool(self.stages or self.writers)

    # ---- requests -------------------------------------------------------------------------------------------------

    def stage(self, request: StageRequest, index: int, now_ns: int) -> Outcome:
        """A block of an attempt is in the log at `index`. `now_ns` is leader time."""
        outcome = self.judge_stage(request)
        stage = self.stages.get(request.token)
        if outcome is not Outcome.TAKEN:
            return outcome
        size = len(request.block)
        if not self._make_room(size, request.token, now_ns):
            return Outcome.STAGES_FULL
        if stage is None:
            stage = self.stages[request.token] = Stage(request.batch, request.token)
        rows = decode_block(request.block).count
        stage.blocks.append(StagedBlock(index, rows, size, crc32(request.block)))
        stage.rows += rows
        stage.crc = crc32(request.block, stage.crc)
        stage.touched_ns = now_ns
        self.was_used = True
        self._bytes += size
        self._blocks += 1
        return Outcome.TAKEN

    def judge_stage(self, request: StageRequest) -> Outcome:
        """What is to be said without a look at the room."""
        writer = self.writers.get(request.batch.writer)
        if writer is not None and request.batch.number <= writer.batch.number:
            return Outcome.BATCH_OLD
        if writer is None and len(self.writers) >= WRITERS_MAX:
            return Outcome.WRITERS_FULL
        stage = self.stages.get(request.token)
        if stage is None:
            return Outcome.TAKEN if request.number == 1 else Outcome.STAGE_MISSING
        if stage.batch != request.batch:
            return Outcome.STAGE_DIFFERS
        if request.number <= len(stage.blocks):
            is_same = crc32(request.block) == stage.blocks[request.number - 1].crc
            return Outcome.KNOWN if is_same else Outcome.STAGE_DIFFERS
        return Outcome.TAKEN if request.number == len(stage.blocks) + 1 else Outcome.OUT_OF_ORDER

    def idle(self, now_ns: int) -> list[Stage]:
        """Stages that got no block for long, the longest idle first."""
        found = [stage for stage in self.stages.values() if stage.touched_ns <= now_ns - IDLE_NS]
        return sorted(found, key=lambda stage: (stage.touched_ns, stage.token))

    def _make_room(self, size: int, token: str, now_ns: int) -> bool:
        """Where the stages are full, those go that were idle the longest."""
        is_full = self._bytes + size > STAGED_BYTES_MAX or self._blocks >= BLOCKS_MAX
        idle = [stage for stage in self.idle(now_ns) if stage.token != token] if is_full else []
        while self._bytes + size > STAGED_BYTES_MAX or self._blocks >= BLOCKS_MAX:
            if not idle:
                return False
            self._drop(idle.pop(0).token)
        return True

    def commit(self, request: Commit, index: int) -> Outcome:
        """Make the named stages the writer's batch; all others of the writer go."""
        outcome = self.judge_commit(request)
        batch = request.batch
        if outcome is Outcome.TAKEN:
            stages = [self.stages.pop(part.token) for part in request.parts]
            rows = sum(stage.rows for stage in stages)
            writer = Writer(batch, request.offsets_hash, index, rows, 0, stages)
            self.writers[batch.writer] = self.unreleased[batch.writer] = writer
            if not rows:
                self._let_go(writer)
        if outcome in (Outcome.TAKEN, Outcome.KNOWN):
            self.writers[batch.writer].note(request.run, request.write)
            for stage in [stage for stage in self.stages.values() if stage.batch.writer == batch.writer]:
                if stage.batch.number <= batch.number:
                    self._drop(stage.token)
        return outcome

    def judge_commit(self, request: Commit) -> Outcome:
        """The same batch again gets the first answer, whatever its stages are called now."""
        batch, writer = request.batch, self.writers.get(request.batch.writer)
        if writer is None and len(self.writers) >= WRITERS_MAX:
            return Outcome.WRITERS_FULL
        if writer is not None and batch.number < writer.batch.number:
            return Outcome.BATCH_OLD
        if writer is not None and batch.number == writer.batch.number:
            is_same = request.offsets_hash == writer.offsets_hash
            if is_same and writer.writes.get(request.run, request.write) != request.write:
                return Outcome.OTHER_WRITE
            return Outcome.KNOWN if is_same else Outcome.OFFSETS_DIFFER
        if batch.writer in self.unreleased:
            return Outcome.UNRELEASED
        if len({part.token for part in request.parts}) < len(request.parts):
            return Outcome.STAGE_DIFFERS
        for part in request.parts:
            stage = self.stages.get(part.token)
            if stage is None:
                return Outcome.STAGE_MISSING
            if stage.batch != batch or (stage.rows, stage.crc) != (part.rows, part.crc):
                return Outcome.STAGE_DIFFERS
        return Outcome.TAKEN

    def abort(self, batch: BatchKey, tokens: Sequence[str]) -> int:
        """Drop these stages of the batch, unless they are committed. Returns how many there were."""
        found = [token for token in tokens if token in self.stages and self.stages[token].batch == batch]
        for token in found:
            self._drop(token)
        return len(found)

    def forget(self, name: str) -> Outcome:
        """The writer comes no more: its place in the table is free."""
        if name not in self.writers:
            return Outcome.WRITER_MISSING
        if name in self.unreleased:
            return Outcome.UNRELEASED
        del self.writers[name]
        for token in [token for token, stage in self.stages.items() if stage.batch.writer == name]:
            self._drop(token)
        return Outcome.TAKEN

    # ---- releases -------------------------------------------------------------------------------------------------

    def release(self, release: Release) -> None:
        """The entry that is applied has these rows as messages."""
        writer = self.writers.get(release.batch.writer)
        if writer is None or writer.batch != release.batch or writer.released != release.first:
            raise AssertionError(f"{release}, and the writer is {writer}")
        if not release.first < release.end <= writer.rows:
            raise AssertionError(f"{release} of {writer.rows} rows")
        writer.released = release.end
        if writer.released == writer.rows:
            self._let_go(writer)

    def first_index(self) -> int | None:
        """The first entry that has rows which may yet be released."""
        stages = [stage for writer in self.unreleased.values() for stage in writer.stages]
        return min(
            (stage.blocks[0].index for stage in (*self.stages.values(), *stages) if stage.blocks),
            default=None,
        )

    def _drop(self, token: str) -> None:
        self._freed(self.stages.pop(token))

    def _let_go(self, writer: Writer) -> None:
        for stage in writer.stages:
            self._freed(stage)
        writer.stages = []
        del self.unreleased[writer.batch.writer]

    def _freed(self, stage: Stage) -> None:
        self._bytes -= stage.size_bytes
        self._blocks -= len(stage.blocks)

    @property
    def staged_bytes(self) -> int:
        """Of all blocks that are kept."""
        return self._bytes

    # ---- the whole ------------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Equal states give equal bytes."""
        writers = (self.writers[name].encode() for name in sorted(self.writers))
        stages = (self.stages[token].encode() for token in sorted(self.stages))
        return b"".join((u8(0), u32(len(self.writers)), *writers, u32(len(self.stages)), *stages))

    @classmethod
    def decode(cls, reader: Reader) -> Sink:
        """
        Raises:
            ValueError: a layout of a newer broker.
        """
        layout = reader.u8()
        if layout != 0:
            raise ValueError(f"a sink's state of layout {layout}, this broker reads 0")
        sink = cls()
        for _ in range(reader.u32()):
            writer = Writer.decode(reader)
            sink.writers[writer.batch.writer] = writer
        for _ in range(reader.u32()):
            stage = Stage.decode(reader)
            sink.stages[stage.token] = stage
        for writer in sorted(sink.writers.values(), key=lambda writer: writer.index):
            if writer.stages:
                sink.unreleased[writer.batch.writer] = writer
        sink.was_used = bool(sink)
        held = [stage for writer in sink.unreleased.values() for stage in writer.stages]
        for stage in (*sink.stages.values(), *held):
            sink._bytes += stage.size_bytes
            sink._blocks += len(stage.blocks)
        return sink
