"""One stream's replica on one broker; on the leader also the judge of publishes and the consumers' leaders.

Per turn the leader appends what came in as few entries: openings of sessions, blocks of messages in the order of their
arrival, commands, and one batch of operations per consumer. What waits for an entry (API answers, double acks) is
answered when the entry is applied, or not at all when the leader is deposed: then the asker repeats.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any

from supercluster.broker.jetstream.api import answers as api_answers
from supercluster.broker.jetstream.api import parser as api
from supercluster.broker.jetstream.backup.format import RESTORE_PREFIX
from supercluster.broker.jetstream.backup.receiver import Restores
from supercluster.broker.jetstream.backup.sender import Snapshots
from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.consumer.leaders import ConsumerLeaders
from supercluster.broker.jetstream.consumer.pull import GiveBack
from supercluster.broker.jetstream.encoding.codec import text, u8, u64
from supercluster.broker.jetstream.encoding.sections import Section, sections
from supercluster.broker.jetstream.links.frames import Request
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.restoring import is_bare
from supercluster.broker.jetstream.moves.current import CurrentMove
from supercluster.broker.jetstream.moves.range_hasher import RangeHasher
from supercluster.broker.jetstream.publish.admission import Admission
from supercluster.broker.jetstream.publish.carrying import Carrying
from supercluster.broker.jetstream.publish.expiry import Expiry
from supercluster.broker.jetstream.publish.host import StreamHost
from supercluster.broker.jetstream.publish.inbox import PublishInbox
from supercluster.broker.jetstream.publish.interest_switch import put_interest
from supercluster.broker.jetstream.publish.proposal import Done, Proposal
from supercluster.broker.jetstream.publish.republish import Republisher
from supercluster.broker.jetstream.publish.scheduling import Scheduling
from supercluster.broker.jetstream.publish.trimming import Trimming
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.sources.puller import SourcePuller
from supercluster.broker.jetstream.sources.server import OriginReads
from supercluster.broker.jetstream.state.snapshot import StreamView, late_part, read, snapshot_of
from supercluster.broker.jetstream.state.source_readers import account_and_stream
from supercluster.broker.jetstream.state.stream import Applied, StreamState
from supercluster.broker.jetstream.state.stream_reader import StreamSource
from supercluster.broker.jetstream.stream import api as stream_api
from supercluster.broker.jetstream.stream import call as stream_call
from supercluster.broker.jetstream.stream.appender import Appending
from supercluster.broker.jetstream.stream.preferred_leader import Preference
from supercluster.broker.jetstream.stream.waiters import Waiting
from supercluster.broker.jetstream.turn.slices import Job
from supercluster.broker.jetstream.turn.state_view import pieces_of
from supercluster.broker.moves.note import Note
from supercluster.broker.ports import StreamLog
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.config import ReadState, Role
from supercluster.broker.raft.entry import Entry, EntryKind
from supercluster.broker.raft.errors import DiskError, ReplicaError
from supercluster.broker.raft.node import Raft

# Retention moves the stream's first message all the time; whole segments become free far less often.
HEAD_CHECK_MS = 2000
# Checkpoints of which it is known what they need: only one that is durable counts, so a few newer ones wait for that.
LEAST_AT_MAX = 16
# Of more subjects in one turn nobody asks which consumers they are for: all that wait are served.
GROWN_SUBJECTS_MAX = 4096

# What takes messages away, and what may make retention do so.
_FREEING = (
    Section.PURGE,
    Section.DELETE_MESSAGE,
    Section.EXPIRE,
    Section.EXPIRE_MESSAGES,
    Section.CONFIG_PUT,
    Section.CONSUMER_DELETE,
)


class StreamReplica(Replica):
    """See the module."""

    host: StreamHost

    def __init__(
        self, assignment: Assignment, member: str, log: StreamLog, raft: Raft, host: StreamHost
    ) -> None:
        super().__init__(assignment.group, member, log, raft, host)
        self.assignment = assignment
        self.state = StreamState(assignment.config, assignment.created_ns, log)
        self.consumers = ConsumerLeaders(assignment.group, assignment.account, assignment.name, host)
        self.source = StreamSource(self.state)
        self.intake = PublishInbox(assignment.group, host)
        self.sourcing = SourcePuller(assignment.group, assignment.account, assignment.name, host)
        self.origin_reads = OriginReads(host.tell_target, self._command_soon, self._takes_from_here)
        self.auditor = RangeHasher(log)
        self.move = CurrentMove(self)
        self.coming: dict[str, list[ConsumerConfig | None]] = {}
        """Consumers that were asked for (None: to go) and are not applied yet, as the requests have them one behind the other:
        when the newest is not taken, it is the one before that the log ends with."""
        self.snapshots = Snapshots(self)
        self.restores = Restores(self)
        """What makes the stream, while it is not whole."""
        self._waiting = Waiting(self._reply)
        self.appending = Appending(self, self._waiting)
        self.expiry = Expiry()
        self.trimming = Trimming(lambda: host.touch_next(self.id))
        self.scheduling = Scheduling()
        self._config_told = 0
        self._has_grown = False
        self._grown_subjects: set[bytes] = set()
        self._all_subjects = False
        """Were messages stored since the last turn, perhaps such as nobody has a verdict for?"""
        self._is_bare = False
        """Is what is being replayed a state without its messages, and no other is known?"""
        self._bare_until = 0
        self.carrying = Carrying(self)
        self._least_at: dict[int, int] = {}
        """Checkpoint → the first entry that has a message of the stream then, where messages were carried."""
        self._head_seq = 0
        self._head_check_ms = 0
        self._preference = Preference(self)
        self._republisher = Republisher()
        self._confirmation = 0
        """The newest question whether this replica still leads."""

    @staticmethod
    def blank_state(assignment: Assignment) -> bytes:
        """The state before the first entry: that one brings the configuration, the same for every replica."""
        blank = StreamConfig(name=assignment.name, subjects=(assignment.name,))
        return snapshot_of(StreamState(blank, 0, None))  # type: ignore[arg-type]  # A snapshot does not read the log.

    # ---- state machine --------------------------------------------------------------------------------------------

    def apply_entry(self, entry: Entry) -> None:
        republished = self._republisher.of_entry(self.state, entry) if self.serves else []
        if self.state.late is not None:
            self.removed_by_entry = 0
            self._pass(entry, *self.state.late)
            return
        before = self.state.messages
        done = self.state.apply(entry)
        self.removed_by_entry = max(0, before + entry.count - self.state.messages)
        if done.carried:
            if entry.index <= self._bare_until:
                raise self.log.lose(f"entry {entry.index} has messages of a state that is damaged")
            self._head_seq = 0
        if self.state.discarded:
            self.host.in_slices(self, self.state.discarded.pop().discarding())
        for message in republished:
            self.host.republish(self.assignment.account, message)
        if done.marked:
            self.host.in_slices(self, self.auditor.marked(entry.index, self.state))
        if done.marked or entry.kind == EntryKind.CONFIG:
            self.move.wake()
        if self.consumers.in_doubt:
            clock = self.host.clock
            self.consumers.in_doubt.applied(entry.index, entry.term, clock.machine_ms(), clock.now_ns())
        if self.serves:
            if entry.count:
                self._has_grown = True
                self._note_subjects(entry)
            self._applied_as_leader(done)

    def _pass(self, entry: Entry, index: int, late: StreamState) -> None:
        """The state that counts comes with the entry `index`; it lacks nothing of those before it."""
        if entry.index < index:
            self.state.passed(entry)
        else:
            self.take_state(late)
        if entry.kind == EntryKind.CONFIG:
            self.move.wake()

    def recovered(self, commit_index: int) -> None:
        self._bare_until = commit_index if self._is_bare else 0
        super().recovered(commit_index)

    @property
    def may_checkpoint(self) -> bool:
        return self.state.late is None

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
        self.state = state
        self.source = StreamSource(self.state)
        self.consumers.in_doubt.give_up(self.host.clock.now_ns())

    def applied_time_ns(self) -> int:
        return self.state.leader_time_ns

    def keep_from_index(self) -> int:
        """The entry of the oldest message, or of the oldest that is still to be compared; all applied ones may go when the
        stream is empty."""
        if self.state.late is not None:
            return self.log.base_index + 1
        audited = self.auditor.keep_from_index(self.host.clock.monotonic_ms())
        kept = self.least_index() or 0
        return min(kept, audited or kept)

    def kept_durably(self) -> int:
        """As of the newest checkpoint that every recovery has: what was carried is durable, or the first copy of it stays (SF-31)."""
        if not self.state.carried:
            return super().kept_durably()
        found = self.log.durable_checkpoint
        for index in [index for index in self._least_at if index < found]:
            del self._least_at[index]
        return self._least_at.get(found, 0)

    @property
    def waits_for_disk(self) -> bool:
        return bool(self._least_at) and self.log.durable_checkpoint < max(self._least_at)

    def checkpointed(self, index: int, needs_from: int) -> None:
        if self.state.carried and self.log.want_durable(index):
            self._least_at[index] = needs_from
            if len(self._least_at) > LEAST_AT_MAX:
                del self._least_at[min(self._least_at)]

    def least_index(self) -> int | None:
        """The first entry that has a message which the stream has; what comes next, where it has none. None: one of them is
        not in the log."""
        state = self.state
        if not state.messages:
            return self.applied_index + 1
        found = [
            index for first, last, index in state.carried if state.past(max(first, state.first_seq)) <= last
        ]
        place = state.past(max(state.first_seq, state.carried.last_seq + 1))
        if place <= state.last_seq:
            index = self.log.index_of_seq(place)
            if index is None:
                return None
            found.append(index)
        least = min(found, default=self.applied_index + 1)
        return least if least > self.log.base_index else None

    def holds_its_head(self) -> bool:
        return self.least_index() is not None

    def emptied_state(self, data: memoryview, *, for_member: bool) -> Generator[int, None, list[bytes]]:
        """Also the state that counts from what is applied here on, where messages were carried forward: those stand in no
        order in which a replay could follow what removes them."""
        state = yield from read(data, self.log, without_messages=True)
        if not for_member:
            self._is_bare = state.late is None
        elif self.state.carried:
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

    def set_assignment(self, assignment: Assignment) -> None:
        """The meta group has a new configuration: the leader writes it into the stream's log."""
        self.assignment = assignment
        self.move.follow(self.host.clock.monotonic_ms())

    @property
    def is_hidden(self) -> bool:
        """Is the stream still being restored, or its own configuration not in force yet? Nothing but the restore is done."""
        return is_bare(self.state.config)

    @property
    def has_no_voter(self) -> bool:
        """Was the stream's only voter the copy whose place this one took, after it had lost data? It learns from nobody
        then, and may never vote by itself (SF-4)."""
        found = self.assignment
        voters = (*found.members, *self.raft.membership.all_voters)
        return (
            not self.serves
            and found.move is None
            and found.config.storage == "file"
            and all(node_of(voter) == self.host.node and voter != self.member for voter in voters)
        )

    # ---- moving -----------------------------------------------------------------------------------------------------

    def put_note(self, note: Note) -> int:
        """Append what a move's leader leaves for the next one. Returns the entry's index; 0: it was not taken."""
        proposal = Proposal()
        proposal.add(Section.MOVE_NOTE, [u8(note.mark), note.encode()])
        before = self.log.last_index
        self.appending.propose(proposal)
        return self.log.last_index if self.log.last_index > before else 0

    def join_requested(self, member: str) -> None:
        """A target's copy is open; or a member came back as somebody else (SF-4)."""
        if not self.move.takes_in(member):
            super().join_requested(member)

    # ---- leading --------------------------------------------------------------------------------------------------

    def start_serving(self, now_ms: int) -> None:
        self.appending.begin()
        self._config_told = self.state.config_version
        self.expiry, self.scheduling = Expiry(), Scheduling()
        self.consumers.open(self.state, self.host.clock.now_ns())
        self.source = StreamSource(self.state)
        self.state.on_removed = self._removed
        self.consumers.want_counts(
            name for name, consumer in self.state.consumers.items() if consumer.config.filter_subjects
        )
        self._count_pending()
        if len(self.raft.membership.voters) > 1:
            consumers = list(self.state.consumers)
            self.consumers.advisories.leader_elected(self.host.node, self._replicas(), consumers)
        self.move.follow(now_ms)
        self.restores.start(now_ms)
        if self.sourcing.is_behind(self.state.config):
            self.host.touch_next(self.id)  # A leader of one replica may begin behind its part of this turn.

    def stop_serving(self) -> None:
        self.snapshots.stop("the stream has another leader")
        self.restores.stop()
        self.move.stop()
        if self.appending.judge is not None and not self._hears_majority():
            self.consumers.advisories.quorum_lost(self._replicas())
        self.appending.end()
        self.carrying.give_up()
        self.trimming.give_up()
        self.state.on_removed = None
        self.consumers.give_back(self.applied_index)
        self.intake.clear()
        self.sourcing.close()
        self.origin_reads.clear()
        self.appending.give_acks_back()

    def _replicas(self) -> list[dict[str, Any]]:
        return [replica.to_json() for replica in stream_call.cluster_info(self).replicas]

    def _hears_majority(self) -> bool:
        """Is a majority of the voters in contact?"""
        voters, contact = self.raft.membership.voters, self.host.brokers_in_contact()
        return 2 * sum(node_of(voter) in contact for voter in voters) > len(voters)

    def fail(self, error: ReplicaError) -> None:
        super().fail(error)
        self.consumers.in_doubt.give_up(self.host.clock.now_ns())

    def stop(self, *, is_deleted: bool = False) -> None:
        if is_deleted:
            if self.serves:
                self.consumers.advisories.stream_action("delete")
            self.consumers.close("Consumer Deleted")
        super().stop(is_deleted=is_deleted)
        self.consumers.in_doubt.give_up(self.host.clock.now_ns())

    def _removed(self, seq: int, subject: bytes, *, is_first: bool) -> None:
        if is_first:
            self.source.note_gone(seq, subject)
        self.consumers.removed(seq, subject, is_first=is_first)

    def _count_pending(self) -> None:
        """What is left for consumers is counted in slices, where that takes long."""
        if self.consumers.has_uncounted and not self.consumers.is_counting:
            self.host.in_slices(self, self.consumers.count(self.source))

    # ---- what comes in --------------------------------------------------------------------------------------------

    def command(self, kind: int, body: list[bytes | memoryview], done: Done) -> None:
        """A change that an API request asks for."""
        self._waiting.command(kind, body, done)

    def _command_soon(self, kind: int, body: list[bytes | memoryview], done: Done) -> None:
        """A change that this leader makes by itself, behind what the turn has proposed."""
        self._waiting.command(kind, body, done)
        self.host.touch_next(self.id)

    def new_consumer_name(self) -> str:
        """For an ephemeral consumer that its client left unnamed."""
        return self.host.new_token()

    def request(
        self,
        request: Request,
        respond: Callable[[bytes | None], None],
        retry: Callable[[], None],
        give_back: GiveBack | None = None,
    ) -> None:
        """An API request about this stream. `retry` tells the asker to ask the next leader; `give_back` is for a pull
        that was taken: what is still open of it is for the next leader."""

        def handle() -> None:
            try:
                if request.subject.startswith(RESTORE_PREFIX):
                    self.restores.chunk(request, respond)
                else:
                    stream_api.handle(self, request, respond, retry, give_back)
            except DiskError:
                raise
            except Exception as error:
                # Answered before anybody is told to ask the next leader, which would come to the same end (SF-25).
                respond(api_answers.fault_answer(api.answer_kind(request.subject), self.host.node, error))
                self.halt(error)

        if request.subject.startswith(RESTORE_PREFIX):
            handle()
            return
        version = int(request.header) if request.header.isdigit() else 0
        if is_bare(self.state.config) and self.assignment.restoring is None:
            version = max(
                version, self.assignment.version
            )  # It is whole, and its own configuration is on its way.
        if version > self.state.config_version:
            self._waiting.for_version(version, handle, retry)
        else:
            handle()

    def when_configured(self, version: int, run: Callable[[], None]) -> None:
        """Call it when that configuration is in force; not at all, if this replica ceases to lead before."""
        self._waiting.for_version(version, run, lambda: None)
        self.host.touch_next(self.id)

    def created_answer(self) -> bytes:
        return api_answers.stream_create_answer(stream_call.info(self), did_create=False)

    # ---- proposing ------------------------------------------------------------------------------------------------

    def propose_turn(self, now_ms: int) -> None:
        judge = self.appending.judge
        if judge is None:
            return
        proposal = Proposal()
        waits = self.assignment.version > self.appending.config_sent
        if waits and self.trimming.put(judge.end, self.assignment.config, proposal):
            self.appending.config_sent = self.assignment.version
            config = json.dumps(self.assignment.config.to_json()).encode()
            proposal.add(
                Section.CONFIG_PUT, [u64(self.assignment.version) + u64(self.assignment.created_ns), config]
            )
            proposal.commands.append(lambda result: None)
            if self.state.config_version:
                put_interest(self.state.config, self.assignment.config, proposal)
            judge.end.configured(self.assignment.config)
        if self.state.config_version or self.appending.config_sent:
            self.intake.put_sessions(judge, self.state, proposal)
            append, now_ns = self.appending.append, self.leader_time_ns()
            proposal = self.intake.put_messages(judge, self.state, proposal, self.log, now_ns, append)
            judge = self.appending.judge or judge  # Another one, when an entry was not taken.
        self.sourcing.follow(self.state.config)
        proposal = self.sourcing.put(judge, proposal, self.appending.append, self.leader_time_ns(), now_ms)
        judge = self.appending.judge or judge
        proposal = self._waiting.put_commands(proposal, self.appending.append)
        judge = self.appending.judge or judge
        if not waits:
            self.trimming.put(judge.end, None, proposal)
        if not self.is_hidden:
            self.carrying.put(proposal, now_ms)
        judge.batches.sweep(self.leader_time_ns())
        self._tell_abandoned(judge)
        if self.is_hidden:
            self.restores.put(judge, self.appending.append, now_ms)
        elif self.expiry.is_due(self.state, now_ms):
            self.expiry.put(judge.end, self.leader_time_ns(), now_ms, proposal)
        if not (self.is_hidden or proposal.is_full) and self.scheduling.is_due(
            self.state, self.leader_time_ns(), now_ms
        ):
            self.scheduling.put(judge.end, self.leader_time_ns(), now_ms, proposal)
        self.appending.put_acks(proposal)
        proposal = self.consumers.put_ops(proposal, self.appending.append)
        self.appending.propose(proposal)
        if self.appending.judge is not None:
            self.sourcing.advance(self.appending.judge, now_ms)
        self.move.advance(now_ms)
        self.newcomers.advance(now_ms)

    def frees_room(self, entry: Entry) -> bool:
        """Raft's own are among them: without a leader nothing is purged."""
        if entry.kind != EntryKind.BATCH:
            return True
        return any(kind in _FREEING for kind, _ in sections(entry.payload))

    # ---- what was applied -----------------------------------------------------------------------------------------

    def _applied_as_leader(self, done: Applied) -> None:
        if self.appending.judge is not None:
            end = self.appending.judge.end
            was_removing = end.is_removing
            end.applied(done.index)
            if was_removing and not end.is_removing and self.intake.has_waiting:
                self.host.touch_next(self.id)
        self._tell_config()
        self.intake.applied(done)
        if self.sourcing.is_behind(self.state.config):
            self.host.touch(self.id)  # Nothing else may ever happen here, and there may be origins now.
        if done.consumers:
            self.consumers.follow(self.state, done.consumers, self.host.clock.now_ns())
        self._waiting.applied(done.index, done.results)
        self.trimming.applied()
        if not self.consumers.committed(done.index):
            self._confirm_leadership()
        if self.is_hidden:
            self.restores.applied()

    def _confirm_leadership(self) -> None:
        """This process stood still: what consumers are handed out waits until it is known that nobody else leads."""
        self._confirmation += 1
        self.raft.read_index(self._confirmation)
        self.host.touch_next(self.id)

    def reads_ready(self, reads: list[ReadState], failed: list[int]) -> None:
        if any(read.context == self._confirmation for read in reads):
            self.consumers.leads_surely(self.applied_index)
        if self._confirmation in failed and self.raft.role is Role.LEADER and self.serves:
            self._confirm_leadership()

    def _tell_abandoned(self, judge: Admission) -> None:
        if judge.batches.abandoned:
            for batch, reason in judge.batches.take_abandoned():
                self.consumers.advisories.batch_abandoned(batch, reason)

    def _tell_config(self) -> None:
        """The stream is new, or its configuration is another."""
        if self.state.config_version != self._config_told and not self.is_hidden:
            self.consumers.advisories.stream_action("modify" if self._config_told else "create")
            self._config_told = self.state.config_version

    def _reply(self, subject: bytes) -> None:
        self.host.network.publish(self.assignment.account, subject, b"", b"", b"")

    def _note_subjects(self, entry: Entry) -> None:
        """Consumers that wait for what was stored are found by its subjects."""
        stored = self.state.reader.entry_of(entry.first_seq)
        if stored is not None and len(self._grown_subjects) < GROWN_SUBJECTS_MAX:
            self._grown_subjects.update(stored.parts[::3])
        else:
            self._all_subjects = True

    def after_turn(self, now_ms: int) -> None:
        if not self.serves:
            return
        grown = self.intake.send_verdicts() or self._has_grown
        if self._has_grown:
            is_known = self._grown_subjects and not self._all_subjects
            self.consumers.stored(self._grown_subjects if is_known else None)
            self._grown_subjects, self._all_subjects = set(), False
        self._has_grown = False
        if (self.origin_reads or self.state.readers) and self.origin_reads.serve(
            self.state, self.source, now_ms, grown=grown
        ):
            self.host.touch_next(self.id)
        self._waiting.version_applied(self.state.config_version)
        self.snapshots.serve(now_ms)
        if (
            not self.raft.is_handing_over and not self.is_hidden
        ):  # What would be handed out could not be noted.
            self._pump_consumers()

    def _pump_consumers(self) -> None:
        """Serve those that wait; what that changes is proposed in the same turn, and they get it when it is committed."""
        pumped = self.consumers.pump(self.source, is_scarce=self.log.is_scarce)
        self._count_pending()
        if not pumped:
            return
        proposal = self.consumers.put_ops(Proposal(), self.appending.append)
        self.appending.propose(proposal)
        last = self.log.last_index
        if self.consumers.pumped(last, self.log.term(last) or 0):
            self.host.touch_next(self.id)
        if proposal.payload:
            self.host.touch(self.id)

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> bool:
        """Do what is due; True when a turn is needed."""
        due = super().tick(now_ms)
        if self._head_may_move and now_ms >= self._head_check_ms:
            self._head_seq, self._head_check_ms = self.state.first_seq, now_ms + HEAD_CHECK_MS
            self._head_is_due = due = True
        self.auditor.advance(self.state, self.applied_index, now_ms)
        self.consumers.in_doubt.tick(self.host.clock.machine_ms(), self.host.clock.now_ns())
        if not self.serves:
            return due
        move_ms = self.move.deadline_ms()
        if move_ms is not None and now_ms >= move_ms:
            due = True
        due |= self._preference.advance(now_ms)
        due |= any(at <= now_ms for at in self._origin_deadlines_ms())
        if self.is_hidden:
            return due
        found = self.consumers.tick(now_ms, self.host.clock.now_ns())
        for name in found.inactive:
            self.command(Section.CONSUMER_DELETE, [text(name)], lambda result: None)
        if self.appending.judge is not None:
            self.appending.judge.batches.sweep(self.host.clock.now_ns())
            self._tell_abandoned(self.appending.judge)
        carry_ms = self.carrying.deadline_ms()
        due |= carry_ms is not None and now_ms >= carry_ms
        due |= self.scheduling.is_due(self.state, self.host.clock.now_ns(), now_ms)
        return due or found.any_due or self.expiry.is_due(self.state, now_ms)

    def _origin_deadlines_ms(self) -> list[int]:
        """When there is something to do about origins of this stream, or those who take messages from it."""
        found = (
            self.sourcing.deadline_ms(),
            self.origin_reads.deadline_ms(self.state),
            self.snapshots.deadline_ms(),
            self.restores.deadline_ms() if self.is_hidden else None,
        )
        return [at for at in found if at is not None]

    def _takes_from_here(self, stream: str, key: str) -> bool:
        """By the map: does that stream take messages of this one under that key? Yes, while the map may be old."""
        if not self.host.map_is_fresh:
            return True
        found = self.host.stream_of(*account_and_stream(stream, self.assignment.account))
        origin = found.config.origins.get(key) if found is not None else None
        return origin is not None and origin.name == self.assignment.name

    @property
    def _head_may_move(self) -> bool:
        """Has the stream's beginning moved since the last look, or did a follower lag behind it?"""
        return self.state.first_seq != self._head_seq or self._head_waits or self.waits_for_disk

    def deadline_ms(self) -> int | None:
        found = super().deadline_ms()
        audit_ms = self.auditor.deadline_ms(self.applied_index)
        doubt_ms = self.consumers.in_doubt.deadline_ms()
        if doubt_ms is not None:
            doubt_ms += self.host.clock.monotonic_ms() - self.host.clock.machine_ms()
        deadlines = [at for at in (found, audit_ms, doubt_ms) if at is not None]
        if self._head_may_move:
            deadlines.append(self._head_check_ms)
        if not self.serves or self.raft.is_handing_over:
            return min(deadlines, default=None)
        move_ms = self.move.deadline_ms()
        if move_ms is not None:
            deadlines.append(move_ms)
        deadlines += self._origin_deadlines_ms()
        if self.is_hidden:
            return min(deadlines, default=None)
        carry_ms = self.carrying.deadline_ms()
        if carry_ms is not None:
            deadlines.append(carry_ms)
        preferred_ms = self._preference.deadline_ms()
        if preferred_ms is not None:
            deadlines.append(preferred_ms)
        now_ms, now_ns = self.host.clock.monotonic_ms(), self.host.clock.now_ns()
        deadlines += self.consumers.deadlines_ms(now_ms, now_ns)
        batch_ns = self.appending.judge.batches.next_ns() if self.appending.judge is not None else None
        if batch_ns is not None:
            deadlines.append(now_ms + max(0, -(-(batch_ns - now_ns) // 1_000_000)))
        for pacer in (self.expiry, self.scheduling):
            due_ms = pacer.deadline_ms(self.state, now_ms, now_ns)
            if due_ms is not None:
                deadlines.append(due_ms)
        return min(deadlines, default=None)
