"""The replicated state of one stream: the result of applying the committed entries, equal on every replica.

`applying` is a function of the state and the entry alone: no clock, no randomness, no I/O but reading the same
log (SF-13). It may take several turns. Until its end the state is neither that of the entry nor that of the one
before it (`docs/adr/checkpoints.md`, "Long entries"). Messages themselves stay in the log (RP-4). This class holds the bounds, the subjects, the
deleted sequences, the message ids in the duplicate window, the sessions of publishing brokers, and the
consumers.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Container, Generator, Sequence
from dataclasses import dataclass, field

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.encoding.sections import (
    Block,
    MessagesSection,
    Section,
    SessionKey,
    VerdictRun,
    decode_block,
    decode_messages,
    decode_mirrored,
    decode_session,
    sections,
)
from supercluster.broker.jetstream.sink.records import Commit, Release, StageRequest, decode_abort
from supercluster.broker.jetstream.sink.sink import Outcome, Sink
from supercluster.broker.jetstream.state.carried import decode_range, first_carried
from supercluster.broker.jetstream.state.consumer import ConsumerState
from supercluster.broker.jetstream.state.cut import CUT_SECTIONS, NO_CUT, At, CutStage, Opened, after
from supercluster.broker.jetstream.state.log_reader import (
    MESSAGE_OVERHEAD_BYTES,
    MessageReader,
    logical_bytes,
)
from supercluster.broker.jetstream.state.message_ids import MessageIds
from supercluster.broker.jetstream.state.message_ttl import ttl_seconds
from supercluster.broker.jetstream.state.publish_sessions import PublishSessions
from supercluster.broker.jetstream.state.retained_messages import RetainedMessages
from supercluster.broker.jetstream.state.source_positions import (
    OriginPosition,
    decode_taken,
    keep_position,
)
from supercluster.broker.jetstream.state.source_readers import decode_reader
from supercluster.broker.jetstream.turn.slices import Job, at_once, emptying
from supercluster.broker.ports import StreamLog
from supercluster.broker.protocol.headers import header_value
from supercluster.broker.raft.entry import Entry

MSG_ID = b"Nats-Msg-Id"
SINK_SECTIONS = frozenset(
    (
        Section.SINK_STAGE,
        Section.SINK_COMMIT,
        Section.SINK_RELEASED,
        Section.SINK_ABORT,
        Section.SINK_FORGET,
    )
)
ROLLUP = b"Nats-Rollup"


@dataclass(slots=True)
class Applied:
    """What an entry did, for the leader to tell those who wait for it."""

    index: int
    verdicts: list[tuple[SessionKey, VerdictRun]] = field(default_factory=list)
    opened: list[SessionKey] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    """One number per command section, in order: messages purged, 1 or 0 for deleted."""
    consumers: dict[str, None] = field(default_factory=dict)
    """Consumers that came, changed or went."""
    carried: bool = False
    """The entry has messages once more: what stood before it may not be needed any more."""
    presumes_emptied: bool = False
    """The entry has messages once more that were taken out of this state."""
    marked: bool = False
    """The entry sets a mark: the state as of it is to be compared (`moves`)."""
    unstaged: bool = False
    """The entry may have let rows go that were staged in the log."""
    cut: bool = False
    """The entry took the stream to another stage of its cut."""


class StreamState(RetainedMessages):
    """A stream's replicated state. `log` is read, never written."""

    def __init__(self, config: StreamConfig, created_ns: int, log: StreamLog) -> None:
        super().__init__(config, log)
        self.created_ns = created_ns
        self.leader_time_ns = 0
        self.applied_index = 0
        self.config_version = 0
        self.message_ids = MessageIds()
        self.last_message_id = b""
        self.sessions = PublishSessions()
        self.move_note = b""
        """What a moving stream's leaders leave for one another (`moves.note`)."""
        self.cut = NO_CUT
        """Where the stream stands between two super-clusters."""
        self.origins: dict[str, OriginPosition] = {}
        """Up to where messages of other streams are taken, by the origin's key (`config/sources.py`)."""
        self.sink = Sink()
        """Writers that repeat their batches, and what is staged for them."""
        self.late: tuple[int, StreamState] | None = None
        """Of a state without messages: the one that counts from that entry on (`StreamReplica.emptied_state`)."""
        self.emptied_below = 0
        """Messages before this one were taken out of a state that was read, and nothing stands for them (`StreamReplica.emptied_state`)."""

    def read_from(self, log: StreamLog) -> None:
        """The log that the state is of was opened anew."""
        self.reader = MessageReader(log, self.carried)

    # ---- applying -------------------------------------------------------------------------------------------------

    def apply(self, entry: Entry) -> Applied:
        """Apply the next committed entry in one go."""
        done = Applied(entry.index)
        at_once(self.applying(entry, done))
        return done

    def applying(self, entry: Entry, done: Applied) -> Job:
        """Apply the next committed entry, and note what it did. Yields how many messages it took away since the last time, where
        it takes away many.

        Raises:
            WireError: the entry is not what a leader writes; the state is unusable then.
        """
        first_seq = self.first_seq
        self.leader_time_ns = max(self.leader_time_ns, entry.time_ns)
        if entry.has_sections:
            next_seq = entry.first_seq
            for kind, body in sections(entry.payload):
                if kind == Section.MESSAGES:
                    found = decode_messages(body)
                    next_seq = yield from self._apply_messages(found, next_seq, entry.time_ns, done)
                elif kind == Section.MIRRORED:
                    next_seq = yield from self._store_mirrored(*decode_mirrored(body), next_seq)
                    self._forget_message_ids(entry.time_ns)
                elif kind == Section.OWN_MESSAGES:
                    next_seq = yield from self._store_own(decode_block(body), next_seq, entry.time_ns)
                else:
                    yield from self._apply_command(kind, body, entry, done)
        self.applied_index = entry.index
        if self.first_seq != first_seq:
            self.consumers.begins_at(self.first_seq)

    def passed(self, entry: Entry) -> None:
        """An entry was applied whose effects a later snapshot has."""
        self.leader_time_ns = max(self.leader_time_ns, entry.time_ns)
        self.applied_index = entry.index

    def _apply_messages(
        self, found: MessagesSection, next_seq: int, time_ns: int, done: Applied
    ) -> Generator[int, None, int]:
        session = self.sessions.current(found.session)
        if session is None:
            raise AssertionError(
                f"{self.config.name}: messages of session {found.session}, which is not open"
            )
        session.record(found.run, found.confirmed)
        done.verdicts.append((found.session, found.run))
        stored = found.run.stored
        if stored == 0:
            return next_seq
        self._forget_message_ids(time_ns)
        block = decode_block(found.block)
        if found.run.exceptions or block.has_headers:
            left_out = {item.offset for item in found.run.exceptions}
            yield from self._store_with_headers(block, left_out, next_seq, time_ns)
        else:
            self._store_plain(block, next_seq, time_ns)
            if self.schedules:
                self.schedules.plain(block.subjects())
        return self._were_stored(next_seq, stored)

    def _store_own(self, block: Block, next_seq: int, time_ns: int) -> Generator[int, None, int]:
        self._forget_message_ids(time_ns)
        if block.has_headers or self.config.allow_msg_schedules:
            yield from self._store_with_headers(block, (), next_seq, time_ns)
        elif block.count:
            self._store_plain(block, next_seq, time_ns)
        return self._were_stored(next_seq, block.count)

    def _store_plain(self, block: Block, first_seq: int, time_ns: int) -> None:
        """A block without headers: nothing is looked at but its subjects."""
        self.bytes += block.size_bytes + block.count * MESSAGE_OVERHEAD_BYTES
        self.subjects.add_many(block.subjects(), first_seq)
        self.last_message_id = b""
        self._add_stored(first_seq, block.count, time_ns)

    def _store_mirrored(
        self, times_ns: Sequence[int], block: Block, first_seq: int
    ) -> Generator[int, None, int]:
        """Messages under their origin's sequences; between them some that the origin does not have."""
        subjects, is_first = block.subjects(), self.messages == 0
        if not block.has_headers and all(subjects):
            self.bytes += sum(block.lengths) + block.count * MESSAGE_OVERHEAD_BYTES
            self._add_stored(first_seq, block.count, times_ns[-1])
            self.subjects.add_many(subjects, first_seq)
            if is_first:
                self.first_time_ns = times_ns[0]
            return self._were_stored(first_seq, block.count)
        parts = block.parts()
        for offset, time_ns in enumerate(times_ns):
            subject, header, payload = parts[3 * offset : 3 * offset + 3]
            if subject:
                if rollup := self._rollup_of(header):
                    yield from self._roll_up(rollup, subject, first_seq + offset)
                self._store_one(first_seq + offset, time_ns, subject, header, payload)
            else:
                self._add_removed(first_seq + offset)
        return self._were_stored(first_seq, block.count)

    def _origin_taken(self, key: str, position: OriginPosition) -> None:
        mirror = self.config.mirror
        keep_position(self.origins, key, position, frozenset(self.config.origins))
        if mirror is not None and not mirror.filters and position.up_to > self.last_seq:
            self._skip_to(position.up_to)  # The origin has nothing of all that either.

    def _skip_to(self, last_seq: int) -> None:
        """There are no messages up to there. Whatever messages there are: a replay from a base without the old ones has to
        end in the same place (Replica.emptied_state)."""
        if last_seq <= self.last_seq:
            return
        if self.messages:
            self.gaps.add(self.last_seq + 1, last_seq)
        else:
            self.first_seq = last_seq + 1
        self.last_seq = last_seq

    def _were_stored(self, first_seq: int, count: int) -> int:
        if self.config.retention == "interest":
            self._remove_unwanted(first_seq, first_seq + count - 1)
        self._enforce_limits()
        return first_seq + count

    def _store_with_headers(self, block: Block, left_out: Container[int], seq: int, time_ns: int) -> Job:
        parts = block.parts()
        for offset in range(block.count):
            if offset not in left_out:
                subject, header, payload = parts[3 * offset : 3 * offset + 3]
                if rollup := self._rollup_of(header):
                    yield from self._roll_up(rollup, subject, seq)
                self._store_one(seq, time_ns, subject, header, payload)
                seq += 1

    def _store_one(self, seq: int, time_ns: int, subject: bytes, header: bytes, payload: bytes) -> None:
        config = self.config
        self.last_message_id = b""
        if header:
            message_id = header_value(header, MSG_ID)
            if message_id and config.mirror is None and config.duplicate_window_ns:
                self.message_ids.add(message_id, seq, time_ns)
            self.last_message_id = message_id or b""
            if config.allow_msg_ttl:
                self.ttls.add(seq, ttl_seconds(header) or 0, time_ns)
        if config.allow_msg_schedules:
            self.remove(self.schedules.stored(subject, header, seq, time_ns))
        self.bytes += logical_bytes(subject, header, payload)
        self.subjects.add(subject, seq)
        self._add_stored(seq, 1, time_ns)

    def _rollup_of(self, header: bytes) -> bytes | None:
        return header_value(header, ROLLUP) if header and self.config.allow_rollup_hdrs else None

    def _roll_up(self, how: bytes, subject: bytes, seq: int) -> Job:
        """Remove what a roll-up message stands for: all of its subject, or all of the stream, before `seq`."""
        if how.lower() == b"all":
            yield from self._removing_up_to(seq - 1)
        else:
            start = self.subjects.first_seq_hint(subject)
            yield from self._removing_where(subject.__eq__, self.subjects.count(subject), start, seq - 1)

    def _forget_message_ids(self, now_ns: int) -> None:
        """Drop message ids older than the duplicate window, by leader time."""
        self.message_ids.forget_until(now_ns - self.config.duplicate_window_ns)

    def known_message_id(self, message_id: bytes, now_ns: int) -> int | None:
        """Sequence of the message with that id inside the duplicate window."""
        found = self.message_ids.find(message_id)
        if found is None or found[1] <= now_ns - self.config.duplicate_window_ns:
            return None
        return found[0]

    def _apply_cut(self, kind: int, body: memoryview, entry: Entry, done: Applied) -> None:
        cut = after(self.cut, kind, body, At(entry.index, entry.term, self.last_seq, self.leader_time_ns))
        done.cut = cut is not self.cut
        if done.cut and cut.stage is CutStage.OPEN:
            self.sessions.from_world(Opened.decode(Reader(body)).world)
        self.cut = cut

    def _apply_sink(self, kind: int, reader: Reader, entry: Entry) -> int:
        sink = self.sink
        if kind == Section.SINK_STAGE:
            return sink.stage(StageRequest.decode(reader), entry.index, entry.time_ns)
        if kind == Section.SINK_COMMIT:
            return sink.commit(Commit.decode(reader), entry.index)
        if kind == Section.SINK_ABORT:
            return sink.abort(*decode_abort(reader))
        if kind == Section.SINK_FORGET:
            return sink.forget(reader.text())
        sink.release(Release.decode(reader))
        return Outcome.TAKEN

    def _apply_command(self, kind: int, body: memoryview, entry: Entry, done: Applied) -> Job:
        reader = Reader(body)
        if kind == Section.CONSUMER_OPS:
            yield from self._apply_consumer_ops(reader.text(), bytes(reader.rest()))
        elif kind == Section.SESSION_OPEN:
            key = decode_session(reader)
            if self.sessions.open(key):
                done.opened.append(key)
        elif kind == Section.MOVE_NOTE:
            done.marked = bool(reader.u8())
            self.move_note = bytes(reader.rest())
        elif kind in CUT_SECTIONS:
            self._apply_cut(kind, body, entry, done)
        elif kind == Section.ORIGIN_TAKEN:
            self._origin_taken(*decode_taken(reader))
        elif kind == Section.ORIGIN_READER:
            yield from self._reader_took(*decode_reader(reader))
            done.results.append(1)
        elif kind == Section.ORIGIN_READER_END:
            yield from self._drop_reader(reader.text())
            done.results.append(1)
        elif kind in SINK_SECTIONS:
            done.results.append(self._apply_sink(kind, reader, entry))
            done.unstaged |= kind != Section.SINK_STAGE
        elif kind == Section.RESTORED:
            self._skip_to(reader.u64())
        elif kind == Section.CONSUMER_RESTORED:
            restored = ConsumerState.restore(reader.rest())
            self._add_consumer(restored)
            done.consumers[restored.name] = None
            done.results.append(1)
        elif kind == Section.CONSUMER_PUT:
            request = json.loads(bytes(reader.rest()))
            self._put_consumer(request, entry.time_ns)
            done.consumers[str(request["name"])] = None
            done.results.append(1)
        elif kind == Section.CONSUMER_DELETE:
            name = reader.text()
            done.results.append(1 if (yield from self._delete_consumer(name)) else 0)
            done.consumers[name] = None
        elif kind == Section.PURGE:
            done.results.append(self._purge(json.loads(bytes(reader.rest()))))
        elif kind == Section.DELETE_MESSAGE:
            done.results.append(1 if self.remove(reader.u64()) else 0)
        elif kind == Section.CARRIED:
            self.carried.put(*decode_range(body), entry.index)
            self.carried.drop_below(self.first_seq)
            done.carried = True
            done.presumes_emptied = 0 < first_carried(body) < self.emptied_below
            done.results.append(1)
        elif kind == Section.EXPIRE:
            done.results.append(self._remove_up_to(reader.u64()))
        elif kind == Section.EXPIRE_MESSAGES:
            first, last, due = reader.u64(), reader.u64(), array("Q")
            due.frombytes(reader.rest())
            done.results.append(self._expire(first, last, due))
        elif kind == Section.SCHEDULES_DUE:
            self.schedules.found_out(reader.rest())
            done.results.append(1)
        elif kind == Section.CONFIG_PUT:
            version, created_ns = reader.u64(), reader.u64()
            # It is later once more only behind a forced recovery (SF-9): readers tell streams apart by it.
            self.created_ns = max(self.created_ns, created_ns) if self.config_version else created_ns
            self.config = StreamConfig.from_json(json.loads(bytes(reader.rest())))
            if self.config_version == 0 and self.last_seq == 0:
                self.first_seq = max(self.config.first_seq, 1)
                self.last_seq = self.first_seq - 1
            self.config_version = max(self.config_version, version)
            self._enforce_limits()
            done.results.append(1)
        else:
            raise AssertionError(f"{self.config.name}: section of unknown kind {kind} in entry {entry.index}")

    def discarding(self) -> Job:
        """A job that frees the state, which nobody uses any more."""
        yield from self.subjects.discarding()
        yield from self.message_ids.discarding()
        for name in list(self.consumers):
            state = self.consumers.as_it_is(name)
            if state is not None:
                yield from emptying(state.pending)
