"""A stream's leader releases the rows of committed batches as messages (`sink/sink.py`), one bounded entry at
a time.

An entry has the messages and the position that they reach. So no row becomes a message twice and none is
skipped, whichever leaders fail. The next entry is built from applied state. A row that the stream refuses
stops its batch and is retried: a committed batch is never dropped.

Rows without headers go into the entry as the block that they came in, without work per row, where nothing
about a single row could have it refused or changed. Others are judged one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from isal.isal_zlib import crc32

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.encoding.sections import (
    Block,
    Exceptional,
    Section,
    decode_block,
    sections,
)
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
# The same of rows that nothing is done for one by one, when they are released and when they are applied.
WHOLE_ROWS_MAX = 8192
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
        self._held: _Held | None = None
        """The block that the last rows came from, which may have more."""
        self.waiting_bytes = 0
        """Of blocks that came and are not in the log."""
        self.stopped: dict[str, Exceptional] = {}
        """What is said to the next row of these writers' batches."""

    def begin(self) -> None:
        """This replica leads, with everything applied that its predecessors committed."""
        self._is_under_way, self._at_ms, self._check_ms = False, 0, 0
        self._held = None
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
        blocks = self._whole_blocks(turn, writer)
        if not blocks:
            return self._put_each(turn, writer)
        end, released = turn.admission.end, writer.released
        for block in blocks:
            turn.proposal.put_block(block, end.next_seq)
            end.note_block(block)
            end.next_seq += block.count
            released += block.count
        self.stopped.pop(writer.batch.writer, None)
        self._put_position(turn, writer, released)
        return True

    def _whole_blocks(self, turn: LeaderTurn, writer: Writer) -> list[Block]:
        """The next rows in the blocks that they came in, or parts of these; none where the next row has to be looked at."""
        messages, found, size = turn.admission.messages, list[Block](), 0
        left = WHOLE_ROWS_MAX if _only_adds(turn.admission.end.config) else PART_ROWS_MAX
        for stage, number, skipped in writer.blocks_from(writer.released):
            whole = self._block(turn.log, stage, number).block
            block = whole.cut(skipped, min(whole.count, skipped + left))
            size += block.size_bytes
            if size > PART_BYTES_MAX or not messages.takes_whole(block):
                break
            if not messages.captures(set(block.subjects())):
                break
            found.append(block)
            left -= block.count
            if left <= 0:
                break
        return found

    def _put_each(self, turn: LeaderTurn, writer: Writer) -> bool:
        """The next rows, one by one."""
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
        turn.proposal.put_own(own, first_seq)
        self._put_position(turn, writer, writer.released + len(own) // 3)
        return True

    def _put_position(self, turn: LeaderTurn, writer: Writer, end: int) -> None:
        """Behind the rows before `end`, in their entry."""
        release = Release(writer.batch, writer.released, end)
        turn.proposal.add(Section.SINK_RELEASED, [release.encode()])
        turn.proposal.commands.append(self._done)
        self._is_under_way = True

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
            self._held = None

    def _rows(self, log: StreamLog, writer: Writer) -> Iterator[Candidate]:
        """The rows of the batch that are not released, in order."""
        for stage, number, skipped in writer.blocks_from(writer.released):
            parts = self._block(log, stage, number).parts()
            for at in range(3 * skipped, len(parts), 3):
                yield Candidate(*parts[at : at + 3])

    def _block(self, log: StreamLog, stage: Stage, number: int) -> _Held:
        if self._held is None or self._held.staged is not stage.blocks[number - 1]:
            self._held = _Held(stage.blocks[number - 1], _read(log, stage, number))
        return self._held


@dataclass(slots=True)
class _Held:
    """A block that was read from the log."""

    staged: StagedBlock
    block: Block
    _parts: list[bytes] = field(default_factory=list)

    def parts(self) -> list[bytes]:
        """Subject, header and payload of each row."""
        if not self._parts:
            self._parts = self.block.parts()
        return self._parts


def _only_adds(config: StreamConfig) -> bool:
    """Does a message that is stored take no other one's place, and need nobody who wants it?"""
    limits = (config.max_msgs, config.max_bytes, config.max_msgs_per_subject)
    return config.retention != "interest" and max(limits) <= 0


def _read(log: StreamLog, stage: Stage, number: int) -> Block:
    staged = stage.blocks[number - 1]
    entry = log.entry(staged.index)
    if entry is not None:
        for kind, body in sections(entry.payload):
            if kind != Section.SINK_STAGE:
                continue
            found = StageRequest.decode(Reader(body))
            is_named = (found.token, found.number) == (stage.token, number)
            if is_named and crc32(found.block) == staged.crc:
                return decode_block(found.block)
    raise AssertionError(f"entry {staged.index} lacks rows of {stage.batch}, which are not released")
