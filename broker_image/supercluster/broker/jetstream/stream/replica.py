"""One stream's replica on one broker: its state machine, and its work while it leads (`stream/leader.py`).

It assembles the parts of a stream's copy (`stream/copy.py`); no other part takes it as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from supercluster.broker.jetstream.api import answers
from supercluster.broker.jetstream.backup.receiver import RestoreReceiver
from supercluster.broker.jetstream.backup.sender import SnapshotSender
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.consumer.leaders import ConsumerLeaders
from supercluster.broker.jetstream.encoding.sections import Section, sections
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.migration.current import CurrentMigration
from supercluster.broker.jetstream.migration.migrating_stream import MigratingStream
from supercluster.broker.jetstream.moves.current import CurrentMove
from supercluster.broker.jetstream.moves.moving_stream import MovingStream
from supercluster.broker.jetstream.moves.range_hasher import RangeHasher
from supercluster.broker.jetstream.publish.carrying import Carrying
from supercluster.broker.jetstream.publish.held_stream import HeldStream
from supercluster.broker.jetstream.publish.host import StreamHost
from supercluster.broker.jetstream.publish.inbox import PublishInbox
from supercluster.broker.jetstream.publish.proposal import Done
from supercluster.broker.jetstream.publish.republish import Republisher
from supercluster.broker.jetstream.publish.trimming import Trimming
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.sources.origin_reads import OriginReads
from supercluster.broker.jetstream.sources.puller import SourcePuller
from supercluster.broker.jetstream.state.cut import CutStage
from supercluster.broker.jetstream.state.snapshot import StreamView, late_part, read, snapshot_of
from supercluster.broker.jetstream.state.source_readers import account_and_stream
from supercluster.broker.jetstream.state.stream import Applied, StreamState
from supercluster.broker.jetstream.stream.appender import Appender
from supercluster.broker.jetstream.stream.call import info
from supercluster.broker.jetstream.stream.copy import StreamCopy
from supercluster.broker.jetstream.stream.leader import StreamLeader
from supercluster.broker.jetstream.stream.log_head import LogHead
from supercluster.broker.jetstream.stream.sink_release import SinkRelease
from supercluster.broker.jetstream.stream.waiters import Waiters
from supercluster.broker.jetstream.turn.slices import SLICE_UNITS, Job
from supercluster.broker.jetstream.turn.state_view import pieces_of
from supercluster.broker.migration.worlds import world_of
from supercluster.broker.ports import OpenedGroup, StreamLog
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.config import ReadState
from supercluster.broker.raft.entry import Entry, EntryKind
from supercluster.broker.raft.errors import ReplicaError
from supercluster.broker.raft.node import RaftNode

# The account whose streams the command line and the resources name.
OPERATOR_ACCOUNT = "$G"
# What takes messages away, and what may make retention do so.
_FREEING = (
    Section.PURGE,
    Section.DELETE_MESSAGE,
    Section.EXPIRE,
    Section.EXPIRE_MESSAGES,
    Section.CONFIG_PUT,
    Section.CONSUMER_DELETE,
    Section.SINK_ABORT,
)


class StreamReplica(Replica):
    host: StreamHost

    def __init__(
        self, assignment: Assignment, member: str, log: StreamLog, raft: RaftNode, host: StreamHost
    ) -> None:
        super().__init__(assignment.group, member, log, raft, host)
        group, account, name = assignment.group, assignment.account, assignment.name
        self.stream = HeldStream(assignment, StreamState(assignment.config, assignment.created_ns, log))
        self.consumers = ConsumerLeaders(group, account, name, host)
        inbox = PublishInbox(group, host)
        puller = SourcePuller(group, account, name, host)
        origin_reads = OriginReads(host.tell_target, self._command_soon, self._takes_from_here)
        self._range_hasher = RangeHasher(log)
        waiters = Waiters(self._reply)
        appender = Appender(self, self.stream, host, inbox, self.consumers, waiters)
        self.move = CurrentMove(
            MovingStream(
                self,
                self.stream,
                host,
                self._range_hasher,
                appender.put_note,
                lambda: appender.grown_bytes,
            )
        )
        self.migration = CurrentMigration(
            MigratingStream(self, self.stream, host, appender.put_cut, lambda: appender.is_cut_pending),
            waiters.opened,
        )
        snapshots = SnapshotSender(group, self.stream, host, self.consumers.advisories)
        restores = RestoreReceiver(
            self, self.stream, host, self.consumers.advisories, self.when_configured, self.created_answer
        )
        self._head = LogHead(self, self.stream)
        self._republisher = Republisher()
        self.copy = StreamCopy(
            self,
            self.stream,
            self._range_hasher,
            host,
            waiters,
            appender,
            inbox,
            Trimming(lambda: host.touch_next(self.id)),
            self.consumers,
            puller,
            origin_reads,
            self.move,
            self.migration,
            snapshots,
            restores,
            SinkRelease(self.stream),
        )
        self._leader = StreamLeader(self.copy, Carrying(self, self.stream, self._head.least_index))

    @property
    def assignment(self) -> Assignment:
        """What the map says of the stream."""
        return self.stream.assignment

    @property
    def state(self) -> StreamState:
        """The stream as far as it is applied."""
        return self.stream.state

    @property
    def recover_command(self) -> str:
        account, name = self.assignment.account, self.assignment.name
        if account == OPERATOR_ACCOUNT:
            return f"supercluster recover stream {name}"
        return f"GET /admin/streams/{account}/{name}/recover"

    @staticmethod
    def blank_state(assignment: Assignment) -> bytes:
        """The state before the first entry: that one brings the configuration, the same for every replica."""
        blank = StreamConfig(name=assignment.name, subjects=(assignment.name,))
        return snapshot_of(StreamState(blank, 0, None))  # type: ignore[arg-type]  # A snapshot does not read the log.

    # ---- state machine --------------------------------------------------------------------------------------------

    def apply_entry(self, entry: Entry) -> Job:
        republished = self._republisher.of_entry(self.state, entry) if self.serves else []
        if self.state.late is not None:
            self.removed_by_entry = 0
            self._pass(entry, *self.state.late)
            return
        done, most = Applied(entry.index), self.state.messages + entry.count
        for removed in self.state.applying(entry, done):
            most -= removed
            yield removed
        self.removed_by_entry = max(0, most - self.state.messages)
        if done.cut:
            self.host.cut_moved(self.id)
        if done.presumes_emptied:
            raise self.log.lose(f"entry {entry.index} has messages of a state that is gone")
        if done.carried:
            self._head.look_again()
        if done.unstaged:
            self._head.look_again()
        if self.state.discarded:
            self.host.in_slices(self, self.state.discarded.pop().discarding())
        for message in republished:
            self.host.republish(self.assignment.account, message)
        if done.marked:
            self.host.in_slices(self, self._range_hasher.marked(entry.index, self.state))
        if done.marked or entry.kind == EntryKind.CONFIG:
            self.move.wake()
            self.migration.wake()
        if self.consumers.in_doubt:
            clock = self.host.clock
            self.consumers.in_doubt.applied(entry.index, entry.term, clock.machine_ms(), clock.now_ns())
        if self.serves:
            self._leader.applied(entry, done)

    def _pass(self, entry: Entry, index: int, late: StreamState) -> None:
        """The state that counts comes with the entry `index`; it lacks nothing of those before it."""
        if entry.index < index:
            self.state.passed(entry)
        else:
            self.take_state(late)
        if entry.kind == EntryKind.CONFIG:
            self.move.wake()

    @property
    def is_at_its_end(self) -> bool:
        """A copy that follows another super-cluster's group goes on behind HANDED in a group of its own."""
        following, cut = self.assignment.following, self.state.cut
        return (
            following is not None
            and self.id == following.source
            and cut.stage is CutStage.HANDED
            and cut.attempt >= following.attempt
        )

    @property
    def may_checkpoint(self) -> bool:
        return self.state.late is None and super().may_checkpoint

    def state_view(self) -> StreamView:
        return StreamView(self.state)

    def let_go(self, state: object) -> None:
        assert isinstance(state, StreamState)
        self.host.in_slices(self, state.discarding())

    def discarding(self) -> Job:
        yield from super().discarding()
        yield from self.state.discarding()

    def restoring(self, data: memoryview) -> Generator[int, None, StreamState]:
        return read(data, self.log)

    def take_state(self, state: object) -> None:
        assert isinstance(state, StreamState)
        self.let_go(self.state)
        self.stream.take_state(state)
        self.consumers.in_doubt.give_up(self.host.clock.now_ns())

    def go_on_from(self, closed: StreamCopy, commit_index: int) -> None:
        """In place of `recover`: log and state are those of a copy that this broker has just closed. To read the state from the
        disk takes the longer the larger it is, and publishers wait meanwhile."""
        before, state = closed.replica, closed.stream.state
        before.checkpoints.give_up()
        blank = StreamState(state.config, state.created_ns, before.log)
        closed.stream.take_state(blank)  # It is freed with the copy.
        state.read_from(self.log)
        self.applied_index, self.membership_applied = before.applied_index, before.membership_applied
        self.take_state(state)
        self.checkpoints.taken_over(before.checkpoints)
        self.recovered(commit_index)

    def applied_time_ns(self) -> int:
        return self.state.leader_time_ns

    def keep_from_index(self) -> int:
        """The entry of the oldest message, or of the oldest that is still to be compared; all applied ones may go when the
        stream is empty."""
        if self.state.late is not None:
            return self.log.base_index + 1
        audited = self._range_hasher.keep_from_index(self.host.clock.monotonic_ms())
        kept = self._head.least_index() or 0
        staged = self.state.sink.first_index()
        kept = min(kept, staged or kept)
        if self.stream.is_closed:
            # Copies of the other super-cluster get what closed it as entries, never within a state.
            kept = min(kept, self.state.cut.fenced_index)
        return min(kept, audited or kept)

    def kept_durably(self) -> int:
        if not (self.state.carried or self.state.sink.was_used):
            return super().kept_durably()
        return self._head.kept_durably()

    @property
    def waits_for_disk(self) -> bool:
        return self._head.waits_for_disk

    def checkpointed(self, index: int, needs_from: int) -> None:
        self._head.checkpointed(index, needs_from)

    def holds_its_head(self) -> bool:
        return self._head.least_index() is not None

    def frees_room(self, entry: Entry) -> bool:
        """Raft's own are among them, and what opens a closed stream: without a leader, and while it is closed, nothing is purged."""
        if entry.kind != EntryKind.BATCH:
            return True
        return any(kind in _FREEING for kind, _ in sections(entry.payload))

    def emptied_state(self, data: memoryview, *, for_member: bool) -> Generator[int, None, list[bytes]]:
        """Also the state that counts from what is applied here on, where messages were carried forward: those stand in no
        order in which a replay could follow what removes them."""
        state = yield from read(data, self.log, without_messages=True)
        # A member is as sure of what it is sent as this replica is.
        state.emptied_below = self.state.emptied_below if for_member else state.first_seq
        while for_member and self.is_mid_entry:
            yield SLICE_UNITS
        if for_member and self.state.carried:
            state.late = self.applied_index, self.state
        view, late = StreamView(state), StreamView(state.late[1]) if state.late is not None else None
        try:
            pieces = yield from pieces_of(view)
            if late is not None and state.late is not None:
                found = yield from pieces_of(late)
                pieces += late_part(state.late[0], found)
        finally:
            view.close()
            if late is not None:
                late.close()
        return pieces

    def join_requested(self, member: str) -> None:
        """A target's copy is open; or a member came back as somebody else (SF-4)."""
        if world_of(node_of(member)):
            self.migration.asked_to_join(member)
        elif not self.move.takes_in(member):
            super().join_requested(member)

    # ---- leading --------------------------------------------------------------------------------------------------

    def preparing(self) -> Job:
        return self.consumers.opening(self.state, self.host.clock.now_ns())

    def stop_preparing(self) -> None:
        self.consumers.forget()

    def start_serving(self, now_ms: int) -> None:
        self._leader.begin(now_ms)

    def stop_serving(self) -> None:
        self._leader.end()

    def propose_turn(self, now_ms: int) -> None:
        self._leader.propose(now_ms)

    def after_turn(self, now_ms: int) -> None:
        if self.serves:
            self._leader.after_turn(now_ms)

    def reads_ready(self, reads: list[ReadState], failed: list[int]) -> None:
        self._leader.reads_ready(reads, failed)

    def fail(self, error: ReplicaError) -> None:
        super().fail(error)
        self.consumers.in_doubt.give_up(self.host.clock.now_ns())

    def stop(self, *, is_deleted: bool = False) -> None:
        if is_deleted and self.serves:
            self.consumers.advisories.stream_action("delete")
            self.consumers.close("Consumer Deleted")
        super().stop(is_deleted=is_deleted)
        self.consumers.in_doubt.give_up(self.host.clock.now_ns())

    # ---- what comes in --------------------------------------------------------------------------------------------

    def _command_soon(self, kind: int, body: list[bytes | memoryview], done: Done) -> None:
        """A change that this leader makes by itself, behind what the turn has proposed."""
        self.copy.waiters.command(kind, body, done)
        self.host.touch_next(self.id)

    def when_configured(self, version: int, run: Callable[[], None]) -> None:
        """Call it when that configuration is in force; not at all, if this replica ceases to lead before."""
        self.copy.waiters.for_version(version, run, lambda: None)
        self.host.touch_next(self.id)

    def created_answer(self) -> bytes:
        return answers.stream_create_answer(info(self.copy), did_create=False)

    def _reply(self, subject: bytes) -> None:
        self.host.network.publish(self.assignment.account, subject, b"", b"", b"")

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> bool:
        """Do what is due; True when a turn is needed."""
        due = super().tick(now_ms)
        head_ms = self._head.deadline_ms(lagged=self._head_waits)
        if head_ms is not None and now_ms >= head_ms:
            self._head.looked(now_ms)
            self._head_is_due = due = True
        self._range_hasher.advance(self.state, self.applied_index, now_ms)
        self.consumers.in_doubt.tick(self.host.clock.machine_ms(), self.host.clock.now_ns())
        if self.serves:
            due |= self._leader.tick(now_ms)
        return due

    def _takes_from_here(self, stream: str, key: str) -> bool:
        """By the map: does that stream take messages of this one under that key? Yes, while the map may be old."""
        if not self.host.map.is_fresh:
            return True
        found = self.host.map.stream_of(*account_and_stream(stream, self.assignment.account))
        origin = found.config.origins.get(key) if found is not None else None
        return origin is not None and origin.name == self.assignment.name

    def deadline_ms(self) -> int | None:
        found = super().deadline_ms()
        audit_ms = self._range_hasher.deadline_ms(self.applied_index)
        doubt_ms = self.consumers.in_doubt.deadline_ms()
        if doubt_ms is not None:
            doubt_ms += self.host.clock.monotonic_ms() - self.host.clock.machine_ms()
        deadlines = [found, audit_ms, doubt_ms, self._head.deadline_ms(lagged=self._head_waits)]
        if self.serves and not self.raft.is_handing_over:
            deadlines += self._leader.deadlines_ms()
        return min((at for at in deadlines if at is not None), default=None)


def ends_before(closed: StreamCopy, opened: OpenedGroup) -> bool:
    """Is the closed copy's state that of the entry before the log's last one, with which another group begins?"""
    replica, is_late = closed.replica, closed.stream.state.late is not None
    is_whole = not (opened.doubtful or opened.lost or is_late or replica.is_mid_entry)
    return is_whole and replica.applied_index == opened.log.last_index - 1
