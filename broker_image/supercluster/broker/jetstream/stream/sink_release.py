"""A stream's leader releases the rows of committed batches as messages (`sink/sink.py`), one bounded entry at
a time.

An entry has the messages and the position that they reach. So no row becomes a message twice and none is
skipped, whichever leaders fail. The next entry is built from applied state. A row that the stream refuses
stops its batch and is retried: a committed batch is never dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.encoding.sections import Exceptional, Section, decode_block, sections
from supercluster.broker.jetstream.publish.atomic_batches import Candidate
from supercluster.broker.jetstream.publish.held_stream import HeldStream
from supercluster.broker.jetstream.publish.leader_turn import LeaderTurn
from supercluster.broker.jetstream.sink.records import (
    Release,
    Stage,
    StagedBlock,
    StageRequest,
    Writer,
    encode_abort,
)
from supercluster.broker.ports import StreamLog

# An entry of so many rows, or of so many bytes and one row: some milliseconds' work.
PART_ROWS_MAX = 2048
PART_BYTES_MAX = 1024 * 1024
# As for publishes: appended and not applied.
UNAPPLIED_BYTES_MAX = 16 * 1024 * 1024
# A stream that does not take the next row, or a log without room, is looked at again after this.
HELD_MS = 250
STOPPED_MS = 1000
CHECK_MS = 10_000
# What stages that are not committed may keep of the log, before idle ones go.
PINNED_BYTES_MAX = 4 * 1024 * 1024 * 1024


class SinkRelease:
    """See the module. One per replica; does something while it leads."""

    def __init__(self, stream: HeldStream) -> None:
        self._stream = stream
        self._is_under_way = False
        self._at_ms = self._check_ms = 0
        self._block: tuple[StagedBlock | None, list[bytes]] = None, []
        """The one that the last rows came from, which may have more."""
        self.waiting_bytes = 0
        """Of blocks that came and are not in the log."""
        self.stopped: dict[str, Exceptional] = {}
        """What is said to the next row of these writers' batches."""

    def begin(self) -> None:
        """This replica leads, with everything applied that its predecessors committed."""
        self._is_under_way, self._at_ms, self._check_ms = False, 0, 0
        self._block = None, []
        self.stopped = {}

    def deadline_ms(self) -> int | None:
        """When the next rows can be released, or stages may have to go."""
        sink = self._stream.state.sink
        if self._is_under_way or not (sink.unreleased or sink.stages):
            return None
        return self._at_ms if sink.unreleased else self._check_ms

    def put(self, turn: LeaderTurn) -> None:
        """The next rows of the oldest batch become a part of this turn's entry."""
        due_ms = self.deadline_ms()
        if turn.is_hidden or due_ms is None or turn.now_ms < due_ms or turn.proposal.is_full:
            return
        if turn.log.is_scarce or turn.admission.end.unapplied_bytes > UNAPPLIED_BYTES_MAX:
            self._at_ms = self._check_ms = turn.now_ms + HELD_MS
            return
        for writer in self._stream.state.sink.unreleased.values():
            if self._put(turn, writer):
                return
        if self._stream.state.sink.unreleased:
            self._at_ms = turn.now_ms + STOPPED_MS
        self._check_ms = turn.now_ms + CHECK_MS
        self._put_abort(turn)

    def _put(self, turn: LeaderTurn, writer: Writer) -> bool:
        """False: the stream does not take the writer's next row."""
        end, messages = turn.admission.end, turn.admission.messages
        first_seq, own, size = end.next_seq, list[bytes](), 0
        refused: Exceptional | None = None
        for row in self._rows(turn.log, writer):
            if len(own) >= 3 * PART_ROWS_MAX or size > PART_BYTES_MAX:
                break
            refused = messages.admit(row) or messages.judge_taken(row, end.next_seq, turn.time_ns)
            if refused is not None:
                break
            end.note_stored(row.subject, row.header, row.payload, end.next_seq)
            end.next_seq += 1
            own += (row.subject, row.header, row.payload)
            size += row.size_bytes
        if refused is not None:
            self.stopped[writer.batch.writer] = refused
        else:
            self.stopped.pop(writer.batch.writer, None)
        if not own:
            return False
        release = Release(writer.batch, writer.released, writer.released + len(own) // 3)
        turn.proposal.put_own(own, first_seq)
        turn.proposal.add(Section.SINK_RELEASED, [release.encode()])
        turn.proposal.commands.append(self._done)
        self._is_under_way = True
        return True

    def _put_abort(self, turn: LeaderTurn) -> None:
        """A stage that nobody goes on with keeps a bounded part of the log."""
        sink = self._stream.state.sink
        first = min((stage.blocks[0].index for stage in sink.stages.values()), default=None)
        if first is None or turn.log.bytes_behind(first - 1) < PINNED_BYTES_MAX:
            return
        for stage in sink.idle(turn.time_ns)[:1]:
            turn.proposal.add(Section.SINK_ABORT, [encode_abort(stage.batch, [stage.token])])
            turn.proposal.commands.append(self._done)
            self._is_under_way = True

    def _done(self, result: int | None) -> None:
        self._is_under_way = False
        if not self._stream.state.sink.unreleased:
            self._block = None, []

    def _rows(self, log: StreamLog, writer: Writer) -> Iterator[Candidate]:
        """The rows of the batch that are not released, in order."""
        for stage, number, skipped in writer.blocks_from(writer.released):
            staged = stage.blocks[number - 1]
            if self._block[0] is not staged:
                self._block = staged, _block(log, stage, number)
            parts = self._block[1]
            for at in range(3 * skipped, len(parts), 3):
                yield Candidate(*parts[at : at + 3])


def _block(log: StreamLog, stage: Stage, number: int) -> list[bytes]:
    """Subject, header and payload of each row."""
    staged = stage.blocks[number - 1]
    entry = log.entry(staged.index)
    if entry is not None:
        for kind, body in sections(entry.payload):
            if kind != Section.SINK_STAGE:
                continue
            found = StageRequest.decode(Reader(body))
            is_named = (found.token, found.number) == (stage.token, number)
            if is_named and crc32(found.block) == staged.crc:
                return decode_block(found.block).parts()
    raise AssertionError(f"entry {staged.index} lacks rows of {stage.batch}, which are not released")
