"""One replica of one Raft group: Raft, its log, and a state machine that applies what is committed.

The order within a turn upholds the guarantees. Term and vote are durable before any message leaves. Entries
are applied only when committed. A checkpoint is taken only of applied state (SF-17). A disk error takes the
replica out of its group's majority: it stays silent until it is opened again, and it never acknowledged an
entry that it could not write.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b

from supercluster.broker.jetstream.encoding.codec import WireError
from supercluster.broker.jetstream.replica.checkpoints import Checkpoints
from supercluster.broker.jetstream.replica.doubt import DOUBT_TOLD_MS, why_without_leader
from supercluster.broker.jetstream.replica.host import GroupHost
from supercluster.broker.jetstream.replica.newcomers import Newcomers
from supercluster.broker.jetstream.replica.replicated_state import ReplicatedState
from supercluster.broker.jetstream.replica.state_transfer import StateTransfer
from supercluster.broker.jetstream.turn.slices import Job, at_once
from supercluster.broker.ports import StreamLog, Ticket
from supercluster.broker.raft.confchange import Membership
from supercluster.broker.raft.config import NEVER_MS, ReadState, Ready, Role
from supercluster.broker.raft.entry import Entry, EntryKind
from supercluster.broker.raft.errors import DiskError, FaultError, ForgottenError, MessageError, ReplicaError
from supercluster.broker.raft.node import RaftNode

# Entries are applied in stretches of this size, so that catching up does not load a log into memory.
APPLY_BYTES_MAX = 4 * 1024 * 1024
# A replica that follows applies so much of what is committed in one turn, some milliseconds' worth: one that catches up
# holds up nobody, neither the clients of its broker nor, on a busy machine, other brokers.
APPLY_TURN_ENTRIES = 64
APPLY_TURN_MESSAGES = 1024
# A leader applies more in one turn: who publishes waits for it.
APPLY_LEADER_ENTRIES = 256
APPLY_LEADER_MESSAGES = 8192
# To take away a message of an entry that takes away many costs as much as to apply so many.
REMOVED_MESSAGES = 4
# A turn ends after so many rounds of Raft output; the rest is for the next turn.
ROUNDS_MAX = 16
# The log keeps what a follower lacks for this long after it was last heard.
HEAD_PATIENCE_MS = 5000


class Replica(ReplicatedState):
    """Base of stream groups and of the meta group."""

    recovers_at_once = False
    """Can the broker do nothing before it has the group's state?"""

    def __init__(self, group: str, member: str, log: StreamLog, raft: RaftNode, host: GroupHost) -> None:
        super().__init__(group, member, log, raft, host)
        self._to_apply = 0
        self._is_recovered = False
        """Was the state on the disk read? Before, nothing is applied."""
        self._ahead: list[Entry] = []
        """Committed entries that were read and wait to be applied, the next one last."""
        self.removed_by_entry = 0
        """Messages that the entry applied last took away and did not yield: they take as long as those that it brought."""
        self._entry: tuple[Entry, Job] | None = None
        """The committed entry behind `applied_index` that is applied in part."""
        self._applying: Entry | None = None
        """The entry that is being applied in this turn."""
        self._office_term = 0
        """The term in which this replica serves, or is being made ready to; 0: in none."""
        self._preparing: Job | None = None
        self._doubtful = raft.doubtful
        self._doubt = ""
        """Of a doubtful replica: why its last candidature came to nothing."""
        self._is_doubt_told = False
        self._vote: Ticket | None = None
        self._held: Ready | None = None
        """What Raft said with a term or a vote that is not durable yet: nothing of it is done, and Raft is not asked on."""
        self._head_waits = False
        self.checkpoints = Checkpoints(self)
        self.transfer = StateTransfer(self, self.checkpoints)
        self.newcomers = Newcomers(self)

    # ---- what a state machine adds --------------------------------------------------------------------------------

    def discarding(self) -> Job:
        """A job that frees the state: the broker holds the group no more."""
        self.checkpoints.give_up()
        yield from ()

    def preparing(self) -> Job:
        """A job that makes ready what serving takes. This replica leads, everything is applied, and nothing is proposed before
        the job is done: what it reads does not change. `stop_preparing` undoes it."""
        yield from ()

    def stop_preparing(self) -> None:
        """This replica leads no more, and did not serve yet."""

    @abstractmethod
    def start_serving(self, now_ms: int) -> None:
        """This replica leads, its own term's entry is committed, and everything before it is applied."""

    @abstractmethod
    def stop_serving(self) -> None:
        """This replica does not lead any more: back to committed state."""

    @abstractmethod
    def propose_turn(self, now_ms: int) -> None:
        """As a serving leader: append what this turn brought, as few entries as possible."""

    @abstractmethod
    def after_turn(self, now_ms: int) -> None:
        """Commits of this turn are applied: hand out answers and deliveries."""

    @property
    @abstractmethod
    def recover_command(self) -> str:
        """The command with which a person has the group go on from one copy."""

    @property
    def is_mid_entry(self) -> bool:
        """Is an entry applied in part? The state is that of no entry then, and nobody may count on it."""
        return self._entry is not None

    @property
    def may_checkpoint(self) -> bool:
        return not self.is_mid_entry

    # ---- the turn -------------------------------------------------------------------------------------------------

    def recover(self, commit_index: int) -> None:
        """After opening: the state on the disk, then the entries behind it that are known to be committed."""
        job = self.transfer.recover(commit_index)
        if self.recovers_at_once:
            at_once(job)
            self._apply(commit_index)
        else:
            self.host.in_slices(self, job)

    def recovered(self, commit_index: int) -> None:
        self._is_recovered = True
        self._ahead, self._entry = [], None
        self._to_apply = max(self._to_apply, commit_index)
        self.host.touch(self.id)

    @property
    def is_recovered(self) -> bool:
        """Is what the disk had applied?"""
        return self._is_recovered

    def turn(self, now_ms: int) -> None:
        """Do everything that the inputs since the last turn ask for."""
        if self.failed is not None:
            return
        try:
            self._follow_term()
            if self._vote is not None:
                return
            held, self._held = self._held, None
            if held is not None:
                self._carry_out(held, now_ms)
            if self.is_mid_entry:
                self.host.touch_next(self.id)  # What came meanwhile has its turn when the entry is applied.
            elif self.serves and not self.raft.is_handing_over:
                # A hand-over may fail, and this leader go on: nothing is judged meanwhile that could not be appended.
                self.propose_turn(now_ms)
            for _ in range(ROUNDS_MAX):
                ready = self.raft.ready()
                if not self._handle(ready, now_ms):
                    break
            if self._vote is not None:
                return
            self._apply_on(now_ms)
            if self.is_mid_entry:
                return
            self.after_turn(now_ms)
            if self._head_is_due and self._is_recovered:
                self.drop_head()
        except DiskError as error:
            self.fail(error)
        except Exception as error:
            self.halt(error)

    def fail(self, error: ReplicaError) -> None:
        self.failed = error
        try:
            self.leave_office()
        except Exception as again:
            # Who waits for an answer of this replica asks again when his time is over.
            self.host.event(self.id, "CopyHalted", f"{self.member} could not stop serving: {again!r}")
        reason = "DiskFailed" if isinstance(error, DiskError) else "CopyHalted"
        self.host.event(self.id, reason, f"replica {self.member} left its majority: {error}")
        self.host.group_failed(self.id)

    def halt(self, cause: Exception) -> None:
        if self.failed is not None:
            return
        if isinstance(cause, ForgottenError):
            self.log.lose(str(cause))
        if isinstance(cause, ReplicaError):
            self.fail(cause)
            return
        fault = self.fault(cause)
        self.host.event(self.id, "GroupFailed", f"{self.member}: {fault.report}{fault.advice(self.id)}")
        try:
            self.fail(fault)
        except Exception as again:
            self.host.event(self.id, "CopyHalted", f"{self.member} could not stop: {again!r}")
            self.host.group_failed(self.id)

    def fault(self, cause: Exception) -> FaultError:
        """The error, with the entry that was being applied."""
        entry = self._applying
        if entry is None:
            return FaultError(cause)
        return FaultError(cause, entry.index, blake2b(entry.payload, digest_size=8).hexdigest())

    def guarded(self, act: Callable[[], object]) -> bool:
        """Do what somebody else asks of this group. False: it failed, and the copy with it.

        Raises:
            WireError, MessageError: it was no question.
        """
        try:
            act()
        except (WireError, MessageError):
            raise
        except DiskError as error:
            self.fail(error)
        except Exception as error:
            self.halt(error)
        return self.failed is None

    def vote_saved(self, ticket: Ticket) -> None:
        """The ticket was run: what waits for it is done in the next turn."""
        if ticket is not self._vote:
            return
        self._vote = None
        try:
            # Where the group failed meanwhile, too: the log is opened anew when nothing of it is under way any more.
            self.log.finish_vote(ticket)
        except DiskError as error:
            if self.failed is None:
                self.fail(error)
            return
        if self.failed is None:
            self.guarded(lambda: self.raft.vote_durable(self.host.clock.monotonic_ms()))

    def checkpoint_saved(self, ticket: Ticket) -> None:
        """A ticket of a checkpoint, or of a snapshot that arrived, was run."""

        def take() -> None:
            self.checkpoints.saved(ticket)
            self.transfer.saved(ticket)

        if self.failed is None:
            self.guarded(take)

    def _handle(self, ready: Ready, now_ms: int) -> bool:
        """One round of Raft's output. True: Raft was given something for it, and may have more to say."""
        if ready.hard_state is not None:
            ticket = self.log.begin_vote(*ready.hard_state)
            if ticket is not None:
                # Durable before anything is said or done that follows from it (SF-4); the loop does not wait for it.
                self._vote, self._held = ticket, ready
                self.host.save_vote(self.id, ticket)
                return False
        return self._carry_out(ready, now_ms)

    def _carry_out(self, ready: Ready, now_ms: int) -> bool:
        """What Raft said, with a term and a vote that are durable."""
        more = False
        if ready.snapshot is not None:
            self.transfer.arrived(ready.snapshot)
        for message in ready.messages:
            self.host.send_raft(self.id, message)
        if ready.committed is not None:
            self._to_apply = ready.committed[1]
            if self.raft.role is Role.LEADER and self._is_recovered:
                last = min(self._to_apply, self.applied_index + APPLY_LEADER_ENTRIES)
                self._apply(last, messages_max=APPLY_LEADER_MESSAGES)
        if ready.snapshot_wanted:
            more |= self.transfer.provide(ready.snapshot_wanted)
        if ready.disk_error is not None:
            self.host.event(self.id, "DiskError", f"{self.member} could not write: {ready.disk_error}")
            if self.log.failed is not None:
                # Nothing can be written before the log is opened anew: say so once, and stand in nobody's way.
                raise self.log.failed
        if ready.snapshot_refused_bytes:
            self.host.event(
                self.id,
                "SnapshotRefused",
                f"{self.member} cannot catch up: the state that its leader sends has {ready.snapshot_refused_bytes:,} bytes, and "
                f"at most {self.raft.config.snapshot_bytes_max:,} are taken",
            )
        if ready.doubtful_election:
            self.host.event(
                self.id,
                "DoubtfulElection",
                f"{self.member} was elected by replicas that lost power: entries confirmed in the last moments before "
                "it may be gone",
            )
        if ready.reads or ready.failed_reads:
            self.reads_ready(ready.reads, ready.failed_reads)
        if self._doubtful and not self.raft.doubtful:
            self._doubtful = False
            self.log.settle()
        self._follow_role(now_ms)
        return more

    def reads_ready(self, reads: list[ReadState], failed: list[int]) -> None:
        """Answers to `raft.read_index`, for groups that ask."""
        raise AssertionError(
            f"{self.id}: {len(reads)} reads were answered and {len(failed)} failed, none was asked"
        )

    def _follow_term(self) -> None:
        """Deposed since the last turn: what waits for this leader's own entries must not be answered by another one's,
        which stand in the same places of the log."""
        if self._office_term and (self.raft.role is not Role.LEADER or self.raft.term != self._office_term):
            self.leave_office()

    def leave_office(self) -> None:
        """Serve nobody any more."""
        job, self._preparing = self._preparing, None
        term, self._office_term = self._office_term, 0
        if job is not None:
            job.close()
        if self.serves:
            self.serves = False
            self.stop_serving()
        elif term:
            self.stop_preparing()

    def _is_prepared(self) -> bool:
        """Is all ready to serve? What takes long is made ready in slices: the first one now."""
        if not self._office_term:
            self._office_term, job = self.raft.term, self._prepare()
            if next(job, None) is not None:
                self._preparing = job
                self.host.in_slices(self, job)
        return self._preparing is None

    def _prepare(self) -> Job:
        yield from self.preparing()
        self._preparing = None
        self.host.touch(self.id)

    def _follow_role(self, now_ms: int) -> None:
        self._follow_term()
        leads = self.raft.role is Role.LEADER and self.raft.ready_to_serve
        is_up_to_date = self._is_recovered and self.applied_index >= self.raft.commit_index
        if leads and not self.serves and is_up_to_date and self._is_prepared():
            self.serves = True
            self.start_serving(now_ms)
            self.host.serving(self.id)

    def _apply_on(self, now_ms: int) -> None:
        """The next stretch of what is committed; the rest is for the next turn."""
        if self._is_recovered and self._may_apply:
            last = min(self._to_apply, self.applied_index + APPLY_TURN_ENTRIES)
            goes_on = self.is_mid_entry and self.raft.role is Role.LEADER
            self._apply(last, messages_max=APPLY_LEADER_MESSAGES if goes_on else APPLY_TURN_MESSAGES)
            self._follow_role(now_ms)
            if self._may_apply:
                self.host.touch_next(self.id)

    @property
    def _may_apply(self) -> bool:
        return self.is_mid_entry or (self.applied_index < self._to_apply and not self.is_at_its_end)

    def _apply(self, last: int, messages_max: int | None = None) -> None:
        """Apply entries up to `last`, or until so many messages are applied, or removed: that may be in the midst of an entry."""
        messages = 0
        while messages_max is None or messages < messages_max:
            if self._entry is None:
                if self.applied_index >= last or self.is_at_its_end:
                    break
                self._begin_entry(self._next_committed(last))
            assert self._entry is not None
            entry, job = self._entry
            self._applying = entry
            removed = next(job, None)
            self._applying = None
            if removed is not None:
                messages += REMOVED_MESSAGES * removed
                continue
            self._entry = None
            self.applied_index = entry.index
            messages += entry.count + self.removed_by_entry
            self.checkpoints.applied(entry.index)
        self.log.note_commit(self.applied_index)

    def _begin_entry(self, entry: Entry) -> None:
        if entry.kind == EntryKind.CONFIG:
            self.membership_applied = replace(Membership.decode(entry.payload), index=entry.index)
        self._entry = entry, self.apply_entry(entry)

    def _next_committed(self, last: int) -> Entry:
        """The entry behind the applied ones. What was read with it is kept for the next: a stretch is read once, in however
        many turns it is applied. It is committed, so it never changes."""
        index = self.applied_index + 1
        if not self._ahead or self._ahead[-1].index != index:
            self._ahead = list(reversed(self.log.entries(index, last, APPLY_BYTES_MAX)))
            if not self._ahead:
                raise AssertionError(f"{self.id}: entry {index} is committed and not in the log")
        return self._ahead.pop()

    def drop_head(self) -> None:
        """Give back the disk space of segments that nobody reads any more. A follower that is further behind gets the
        emptied state at the new base instead."""
        self._head_is_due = False
        if self.raft.role is Role.LEADER:
            # A follower that is catching up from there would have to start anew; one that is away may, for it might
            # stay away until the disk is full.
            since_ms = self.host.clock.monotonic_ms() - HEAD_PATIENCE_MS
            waited_for = [p.match for p in self.raft.progress.values() if p.match and p.heard_ms > since_ms]
            slowest = min(waited_for, default=self.applied_index)
        else:
            slowest = self.applied_index
        free = min(self.keep_from_index(), self.applied_index + 1)
        keep = min(free, slowest + 1)
        self._head_waits = keep < free
        # What the durable checkpoint needs stays: recovery starts from it.
        safe = min(keep, self.checkpoints.needs_from, self.kept_durably())
        if self.log.can_drop_head(safe):
            self.checkpoints.drop_head(safe)
        elif self.log.can_drop_head(keep) and not self.waits_for_disk:
            self.checkpoints.begin()

    def checkpoint(self) -> None:
        """Before a clean stop: the next start replays nothing."""
        if self.failed is None and self._is_recovered and self.applied_index > self.log.base_index:
            self.checkpoints.at_once()

    def stop(self, *, is_deleted: bool = False) -> None:
        """The copy goes, or the group with it: answer nobody any more."""
        self.leave_office()

    # ---- time -----------------------------------------------------------------------------------------------------

    def _note_doubt(self) -> None:
        """The answers to the last candidature are in, if there are any: the next one is due."""
        self._doubt = why_without_leader(self.raft, self.recover_command)
        if self.doubt and not self._is_doubt_told:
            self._is_doubt_told = True
            self.host.event(self.id, "DoubtfulWithoutLeader", self.doubt)

    @property
    def doubt(self) -> str:
        """Why this replica, being doubtful, has heard no leader for a while, and what a person can do; empty: it is sure of its log,
        or hears one."""
        raft = self.raft
        if not (self._doubt and raft.doubtful and raft.leader is None):
            return ""
        silence_ms = self.host.clock.monotonic_ms() - raft.heard_leader_ms
        return self._doubt if silence_ms >= DOUBT_TOLD_MS else ""

    def tick(self, now_ms: int) -> bool:
        """Do what is due; True when a turn is needed. Called when `deadline_ms` has come, and at no other time: an
        idle group costs nothing (RP-3)."""
        before = self.log.persisted_index
        try:
            due = self.log.tick(now_ms) != before
        except DiskError as error:
            self.fail(error)
            return False
        if due:
            self.raft.persisted(now_ms)
        if self._vote is None and now_ms >= self.raft.next_deadline_ms():
            if self._doubtful:
                self._note_doubt()
            self.raft.tick(now_ms)
            due = True
        if self.newcomers.waiting and self.serves and now_ms >= self.newcomers.look_ms:
            due = True
        self.checkpoints.tick(now_ms)
        return due

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do, as of the last turn or tick; None: not before something else happens."""
        raft_ms, log_ms = self.raft.next_deadline_ms(), self.log.deadline_ms()
        if self._vote is not None:
            return log_ms  # The turn behind the vote's fsync asks anew.
        due = [at_ms for at_ms in (raft_ms, log_ms) if at_ms is not None and at_ms != NEVER_MS]
        if self.newcomers.waiting and self.serves and not self.raft.is_handing_over:
            due.append(self.newcomers.look_ms)
        checkpoint_ms = self.checkpoints.deadline_ms()
        if checkpoint_ms is not None:
            due.append(checkpoint_ms)
        return min(due, default=None)

    # ---- membership -----------------------------------------------------------------------------------------------

    def join_requested(self, member: str) -> None:
        """A broker that should hold a replica has another identity than the membership says."""
        if self.serves:
            self.newcomers.asked(member)
