"""The follower's side: entries and snapshots from the leader, and answers that confirm only durable entries.

A follower confirms only entries that its log calls durable and that it knows to equal the leader's. It does
not answer for entries that it could not write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from supercluster.broker.ports import RaftLog
from supercluster.broker.raft import messages as msg
from supercluster.broker.raft.confchange import Membership, MembershipTrack
from supercluster.broker.raft.config import RaftConfig, ReadState, Role, Snapshot
from supercluster.broker.raft.election import ElectionTimer
from supercluster.broker.raft.entry import Entry, EntryKind
from supercluster.broker.raft.errors import DiskError, ForgottenError, HistoryError
from supercluster.broker.raft.log_search import last_at_or_below
from supercluster.broker.raft.state import State


@dataclass(slots=True, eq=False)
class _IncomingSnapshot:
    """A snapshot that arrives in chunks."""

    base_index: int
    total: int
    membership: Membership
    data: bytearray = field(default_factory=bytearray)
    """The bytes received without a gap: len(data) <= total."""


@dataclass(slots=True, eq=False)
class Follower:
    """The work of a member that follows a leader."""

    config: RaftConfig
    state: State
    log: RaftLog
    memberships: MembershipTrack
    timer: ElectionTimer
    follow: Callable[[str], None]
    """Become a follower of a leader in the term of this member."""
    disk_failed: Callable[[DiskError], None]
    matched: int
    """The log equals the leader's up to here: commit_index <= matched, unless this member leads."""
    acked_durable: int = -1
    """The last index confirmed to this leader: acked_durable <= matched."""
    ack_due: bool = False
    """The leader waits for a confirmation."""
    doubt_target: int | None = None
    """Where a doubtful member is sure of its log again. None until the leader named the end of its own to this process."""
    asked_reads: dict[int, int] = field(default_factory=dict)
    """Context and deadline of each read that the leader was asked to confirm."""
    incoming: _IncomingSnapshot | None = None
    installing: Snapshot | None = None
    """Handed out, and not yet said to be installed: the log is about to be replaced, so appends are not taken."""
    refused_base: int = 0
    """The base of the snapshot that was last refused for its size."""

    def leader_changed(self) -> None:
        """Nothing is known of this leader's log beyond the committed part. That holds for the same member in a newer term
        too: it may have lost entries that were not durable."""
        self.matched = self.state.commit_index
        self.acked_durable = -1
        self.ack_due = False
        if self.state.leader is not None:
            self.doubt_target = None
            self.incoming = None

    def _hear(self, message: msg.Append | msg.Heartbeat | msg.InstallSnapshot) -> None:
        """A message of this term's leader came."""
        state = self.state
        if state.role is not Role.FOLLOWER or state.leader != message.frm:
            self.follow(message.frm)
        else:
            self.timer.heard_leader()

    def _durable(self) -> int:
        """The last index that may be confirmed to the leader."""
        return min(self.matched, self.log.persisted_index)

    def _settle_doubt(self) -> None:
        """Whatever a doubtful member lost, it holds again with all that the leader had when it first heard this process (SF-4)."""
        if self.state.doubtful and self.doubt_target is not None and self._durable() >= self.doubt_target:
            self.state.is_sure_again()
            self.doubt_target = None

    def on_append(self, message: msg.Append) -> None:
        state = self.state
        if state.role is Role.LEADER:
            return
        self._hear(message)
        if self.installing is not None:
            return
        prev_index, prev_term, entries = message.prev_index, message.prev_term, message.entries
        if prev_index <= state.commit_index:
            self._check_history(message)
        if prev_index < state.commit_index:
            # A repeated or late message: the committed entries equal those of every leader.
            entries = tuple(entry for entry in entries if entry.index > state.commit_index)
            prev_index = state.commit_index
        elif self.log.term(prev_index) != prev_term:
            # Say where both logs may agree, so that the leader skips whole terms instead of single entries.
            hint_index = last_at_or_below(self.log, prev_index, prev_term)
            self._answer(message.frm, prev_index, hint_index, self.log.term(hint_index) or 0, ok=False)
            return
        try:
            end = self._take(prev_index, entries)
        except DiskError as error:
            self.matched = max(self.matched, prev_index)
            self.disk_failed(error)
            return
        if end > self.matched:
            self.matched = end
        self.ack_due = True
        state.commit_to(min(message.commit, self.matched))

    def _check_history(self, message: msg.Append) -> None:
        """Does the leader have what is committed here? Of what a snapshot replaced nothing is known.

        Raises:
            HistoryError: it has another entry in that place.
        """
        places = [(message.prev_index, message.prev_term)]
        places += ((each.index, each.term) for each in message.entries)
        for index, term in places:
            if index > self.state.commit_index:
                return
            held = self.log.term(index)
            if held is not None and held != term:
                raise HistoryError(
                    f"entry {index}, committed here in term {held}, is of term {term} at the leader {message.frm}"
                )

    def _take(self, prev_index: int, entries: tuple[Entry, ...]) -> int:
        """Put the entries behind `prev_index` into the log, dropping what contradicts them. Returns where they end."""
        if not entries:
            return prev_index
        end = entries[-1].index
        last_index = self.log.last_index
        if entries[0].index <= last_index:
            new = (e.index for e in entries if e.index > last_index or self.log.term(e.index) != e.term)
            first = next(new, None)
            if first is None:
                return end
            entries = entries[first - entries[0].index :]
            if first <= last_index:
                self.log.truncate_after(first - 1)
                self.memberships.truncate_after(first - 1)
                self.timer.reset()
                self.matched = min(self.matched, first - 1)
        self.log.append(entries)
        for entry in entries:
            if entry.kind == EntryKind.CONFIG:
                self.memberships.add(Membership.decode(entry.payload), entry.index)
                # A learner that became a voter may stand from now on.
                self.timer.reset()
        self.state.last_time_ns = entries[-1].time_ns
        return end

    def work(self) -> None:
        """Once per turn: confirm what became durable."""
        leader = self.state.leader
        self._settle_doubt()
        if not self.ack_due or leader is None:
            return
        durable = self._durable()
        if durable <= self.acked_durable and durable < self.matched:
            return
        self.acked_durable = durable
        self.ack_due = durable < self.matched
        self._answer(leader, durable, ok=True)

    def tell_newer_term(self, to: str) -> None:
        """A leader of an older term is told that it is none any more."""
        self._answer(to, 0, ok=False)

    def _answer(self, to: str, index: int, hint_index: int = 0, hint_term: int = 0, *, ok: bool) -> None:
        state, last_index = self.state, self.log.last_index
        indexes = (index, hint_index, hint_term, last_index, state.commit_index)
        state.send(msg.AppendResponse(*state.head(to), *indexes, ok, state.doubtful))

    def on_heartbeat(self, message: msg.Heartbeat) -> None:
        state = self.state
        if state.role is Role.LEADER:
            return
        self._hear(message)
        self._check_confirmed(message)
        if state.doubtful and self.doubt_target is None and message.process == self.config.process:
            # The leader sent it after it had heard this process: its log has all that former ones confirmed to it.
            self.doubt_target = message.last_index
        # Only what is known to equal this leader's log can be committed by its word.
        state.commit_to(min(message.commit, self.matched))
        self._settle_doubt()
        if message.quiesce and self._is_level(message):
            state.quiesced = True
        elif message.answer or message.quiesce:
            indexes = (
                self.matched,
                self._durable(),
                self.log.last_index,
                state.commit_index,
                self.config.process,
            )
            head = state.head(message.frm)
            state.send(msg.HeartbeatResponse(*head, message.round, *indexes, state.doubtful))

    def _check_confirmed(self, message: msg.Heartbeat) -> None:
        """Does the log have what this member confirmed to this leader? A doubtful one knows that it may not.

        Raises:
            ForgottenError: committed entries of that are gone.
        """
        if message.commit > self.log.last_index and not self.state.doubtful:
            raise ForgottenError(
                f"{self.state.id} confirmed entry {message.commit} to {message.frm}, and its log ends at {self.log.last_index}: the "
                "disk has an earlier state"
            )

    def _is_level(self, message: msg.Heartbeat) -> bool:
        """Is there nothing that this member and the leader would still have to tell each other (SF-7)?"""
        log_ends = {self._durable(), self.log.last_index, message.last_index}
        commits = {self.state.commit_index, message.commit}
        return len(log_ends | commits) == 1 and not self.state.doubtful and not self.asked_reads

    # Snapshots.

    def on_snapshot(self, message: msg.InstallSnapshot) -> None:
        state = self.state
        if state.role is Role.LEADER:
            return
        self._hear(message)
        if self.installing is not None:
            return
        base_index, total = message.base_index, message.total
        if base_index <= state.commit_index or self.log.term(base_index) == message.base_term:
            self.matched = max(self.matched, min(base_index, self.log.last_index))
            state.commit_to(base_index)
            self.incoming = None
            self._answer_snapshot(message.frm, base_index, total, done=True)
            return
        incoming = self.incoming
        if incoming is None or (incoming.base_index, incoming.total) != (base_index, total):
            if not message.membership or total > self.config.snapshot_bytes_max:
                if total > self.config.snapshot_bytes_max and base_index != self.refused_base:
                    self.refused_base, state.ready.snapshot_refused_bytes = base_index, total
                self._answer_snapshot(message.frm, base_index, 0)
                return
            incoming = _IncomingSnapshot(base_index, total, Membership.decode(message.membership))
            self.incoming = incoming
        if message.offset == len(incoming.data):
            incoming.data += message.data
        if len(incoming.data) < total:
            self._answer_snapshot(message.frm, base_index, len(incoming.data))
            return
        self.incoming = None
        self.installing = state.ready.snapshot = Snapshot(
            base_index, message.base_term, incoming.membership, bytes(incoming.data)
        )

    def _answer_snapshot(self, to: str, base_index: int, received: int, *, done: bool = False) -> None:
        self.state.send(msg.SnapshotResponse(*self.state.head(to), base_index, received, done))

    def snapshot_installed(self, base_index: int) -> None:
        """The caller installed `Ready.snapshot`. A log that it did not already reset is reset here."""
        state = self.state
        snapshot, self.installing = self.installing, None
        if snapshot is None or snapshot.base_index != base_index:
            return
        if self.log.base_index != base_index:
            try:
                self.log.reset(base_index, snapshot.base_term)
            except DiskError as error:
                self.disk_failed(error)
                return
        self.memberships.reset(snapshot.membership)
        state.commit_index = state.handed_out = self.matched = base_index
        self.timer.reset()
        if state.leader is not None and state.role is Role.FOLLOWER:
            self._answer_snapshot(state.leader, base_index, len(snapshot.state), done=True)

    # Reads that the leader confirms for this member.

    def read(self, context: int) -> None:
        state = self.state
        if state.leader is None or len(self.asked_reads) >= self.config.reads_max:
            state.ready.failed_reads.append(context)
            return
        self.asked_reads[context] = state.now_ms + 2 * self.config.election_timeout_ms
        state.send(msg.ReadRequest(*state.head(state.leader), context))

    def on_read_response(self, message: msg.ReadResponse) -> None:
        if self.asked_reads.pop(message.context, None) is None:
            return
        if message.ok:
            self.state.ready.reads.append(ReadState(message.context, message.index))
        else:
            self.state.ready.failed_reads.append(message.context)

    def expire_reads(self) -> None:
        late = [context for context, due_ms in self.asked_reads.items() if self.state.now_ms >= due_ms]
        for context in late:
            del self.asked_reads[context]
            self.state.ready.failed_reads.append(context)
