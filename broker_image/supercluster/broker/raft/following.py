"""The follower's side: entries and snapshots from the leader, and honest answers about what is durable.

A follower confirms only what its log says is durable and what it knows to equal the leader's log. What it cannot write
it does not answer.
"""

from __future__ import annotations

from supercluster.broker.raft.confchange import Membership
from supercluster.broker.raft.config import NEVER_MS, ReadState, Role, Snapshot
from supercluster.broker.raft.entry import Entry, EntryKind
from supercluster.broker.raft.errors import DiskError, HistoryError
from supercluster.broker.raft.leading import Leading
from supercluster.broker.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    ReadRequest,
    ReadResponse,
    SnapshotResponse,
)


class _Incoming:
    """A snapshot that is arriving in chunks."""

    __slots__ = ("base_index", "base_term", "data", "membership", "total")

    def __init__(self, message: InstallSnapshot) -> None:
        self.base_index = message.base_index
        self.base_term = message.base_term
        self.total = message.total
        self.membership = Membership.decode(message.membership)
        self.data = bytearray()


class Following(Leading):
    """Everything that only a follower does."""

    _incoming: _Incoming | None = None
    _installing: Snapshot | None = None
    """Handed out, and not yet said to be installed: the log is about to be replaced, so appends are not taken."""

    def _follow(self, message: Append | Heartbeat | InstallSnapshot) -> None:
        """A message of this term's leader."""
        if self.role is not Role.FOLLOWER or self.leader != message.frm:
            self._become_follower(self.term, message.frm)
            self._doubt_target = None
            self._incoming = None
        else:
            self._heard_leader_ms = self._now_ms
            if self._election_due_ms != NEVER_MS:
                self._election_due_ms = self._now_ms + self._timeout_ms()
        if self.doubtful and self._doubt_target is None and not isinstance(message, InstallSnapshot):
            self._doubt_target = message.last_index

    def _durable(self) -> int:
        """What may be confirmed to the leader."""
        return min(self._matched, self.log.persisted_index)

    def _settle_doubt(self) -> None:
        """A doubtful member that durably holds all that the leader had when it was first heard is like any other:
        whatever it may have confirmed and lost, it holds again (SF-4)."""
        if self.doubtful and self._doubt_target is not None and self._durable() >= self._doubt_target:
            self.doubtful = False
            self._doubt_target = None

    # Appends.

    def _on_append(self, message: Append) -> None:
        if self.role is Role.LEADER:
            return
        self._follow(message)
        if self._installing is not None:
            return
        prev_index, prev_term, entries = message.prev_index, message.prev_term, message.entries
        if prev_index <= self.commit_index:
            self._check_history(message)
        if prev_index < self.commit_index:
            # A repeated or late message: what is committed here equals every leader's log.
            entries = tuple(entry for entry in entries if entry.index > self.commit_index)
            prev_index = self.commit_index
        elif self.log.term(prev_index) != prev_term:
            self._refuse(prev_index, prev_term)
            return
        try:
            end = self._take(prev_index, entries)
        except DiskError as error:
            self._matched = max(self._matched, prev_index)
            self._disk_failed(error)
            return
        self._matched = max(self._matched, end)
        self._ack_due = True
        self._commit_to(min(message.commit, self._matched))

    def _check_history(self, message: Append) -> None:
        """Does the leader have what is committed here? Of what a snapshot replaced nothing is known.

        Raises:
            HistoryError: it has another entry in that place.
        """
        places = (
            (message.prev_index, message.prev_term),
            *((each.index, each.term) for each in message.entries),
        )
        for index, term in places:
            if index > self.commit_index:
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
            fresh = self._first_new(entries, last_index)
            if fresh == len(entries):
                return end
            first = entries[fresh].index
            entries = entries[fresh:]
            if first <= last_index:
                self.log.truncate_after(first - 1)
                self._track.truncate_after(first - 1)
                self._reset_election_timer()
                self._matched = min(self._matched, first - 1)
        self.log.append(entries)
        for entry in entries:
            if entry.kind == EntryKind.CONFIG:
                self._track.add(Membership.decode(entry.payload), entry.index)
                # A learner that became a voter may stand from now on.
                self._reset_election_timer()
        self._last_time_ns = entries[-1].time_ns
        return end

    def _first_new(self, entries: tuple[Entry, ...], last_index: int) -> int:
        """Position of the first entry that the log does not hold as it is."""
        for position, entry in enumerate(entries):
            if entry.index > last_index or self.log.term(entry.index) != entry.term:
                return position
        return len(entries)

    def _refuse(self, prev_index: int, prev_term: int) -> None:
        """Say where both logs may agree, so that the leader skips whole terms instead of single entries."""
        hint_index = self._last_at_or_below(prev_index, prev_term)
        self._send(
            AppendResponse(
                self.id,
                self.leader or "",
                self.term,
                self.lineage,
                prev_index,
                hint_index,
                self.log.term(hint_index) or 0,
                self.log.last_index,
                self.commit_index,
                ok=False,
                doubtful=self.doubtful,
            )
        )

    def _follower_ready(self) -> None:
        """Once per turn: confirm what became durable."""
        self._settle_doubt()
        if not self._ack_due or self.leader is None:
            return
        durable = self._durable()
        if durable <= self._acked_durable and durable < self._matched:
            return
        self._acked_durable = durable
        self._ack_due = durable < self._matched
        self._send(
            AppendResponse(
                self.id,
                self.leader,
                self.term,
                self.lineage,
                durable,
                0,
                0,
                self.log.last_index,
                self.commit_index,
                ok=True,
                doubtful=self.doubtful,
            )
        )

    # Heartbeats.

    def _on_heartbeat(self, message: Heartbeat) -> None:
        if self.role is Role.LEADER:
            return
        self._follow(message)
        # Only what is known to equal this leader's log can be committed by its word.
        self._commit_to(min(message.commit, self._matched))
        self._settle_doubt()
        if message.quiesce and self._equals(message):
            self.quiesced = True
        elif message.answer or message.quiesce:
            self._send(
                HeartbeatResponse(
                    self.id,
                    message.frm,
                    self.term,
                    self.lineage,
                    message.round,
                    self._matched,
                    self._durable(),
                    self.log.last_index,
                    self.commit_index,
                    self.doubtful,
                )
            )

    def _equals(self, message: Heartbeat) -> bool:
        """Is there nothing that this member and the leader would still have to tell each other (SF-7)?"""
        return (
            self._durable()
            == self.log.last_index
            == self.commit_index
            == message.commit
            == message.last_index
            and not self.doubtful
            and not self._asked_reads
        )

    # Snapshots.

    def _on_snapshot(self, message: InstallSnapshot) -> None:
        if self.role is Role.LEADER:
            return
        self._follow(message)
        if self._installing is not None:
            return
        if message.base_index <= self.commit_index or self.log.term(message.base_index) == message.base_term:
            self._matched = max(self._matched, min(message.base_index, self.log.last_index))
            self._commit_to(message.base_index)
            self._incoming = None
            self._answer_snapshot(message.frm, message.base_index, message.total, done=True)
            return
        incoming = self._incoming
        same = incoming is not None and (incoming.base_index, incoming.total) == (
            message.base_index,
            message.total,
        )
        if not same and message.membership and message.total <= self.config.snapshot_bytes_max:
            incoming = self._incoming = _Incoming(message)
        elif not same or incoming is None:
            if message.total > self.config.snapshot_bytes_max and message.base_index != self._refused_base:
                self._refused_base, self._snapshot_refused_bytes = message.base_index, message.total
            self._answer_snapshot(message.frm, message.base_index, 0)
            return
        if message.offset == len(incoming.data):
            incoming.data += message.data
        if len(incoming.data) < incoming.total:
            self._answer_snapshot(message.frm, message.base_index, len(incoming.data))
            return
        self._incoming = None
        self._installing = self._snapshot = Snapshot(
            incoming.base_index, incoming.base_term, incoming.membership, bytes(incoming.data)
        )

    def _answer_snapshot(self, to: str, base_index: int, received: int, *, done: bool = False) -> None:
        self._send(SnapshotResponse(self.id, to, self.term, self.lineage, base_index, received, done))

    def snapshot_installed(self, base_index: int, now_ms: int) -> None:
        """The caller installed `Ready.snapshot`. A log that it did not already reset is reset here."""
        self._now_ms = max(self._now_ms, now_ms)
        snapshot, self._installing = self._installing, None
        if snapshot is None or snapshot.base_index != base_index:
            return
        if self.log.base_index != base_index:
            try:
                self.log.reset(base_index, snapshot.base_term)
            except DiskError as error:
                self._disk_failed(error)
                return
        self._track.reset(snapshot.membership)
        self.commit_index = self._handed_out = self._matched = base_index
        self._reset_election_timer()
        if self.leader is not None and self.role is Role.FOLLOWER:
            self._answer_snapshot(self.leader, base_index, len(snapshot.state), done=True)

    def snapshot_failed(self, now_ms: int) -> None:
        """The caller could not install `Ready.snapshot`; the leader sends it again."""
        self._now_ms = max(self._now_ms, now_ms)
        self._installing = None

    # Reads that the leader confirms for this member.

    def _ask_leader(self, context: int) -> None:
        if self.leader is None or len(self._asked_reads) >= self.config.reads_max:
            self._failed_reads.append(context)
            return
        self._asked_reads[context] = self._now_ms + 2 * self.config.election_timeout_ms
        self._send(ReadRequest(self.id, self.leader, self.term, self.lineage, context))

    def _on_read_response(self, message: ReadResponse) -> None:
        if self._asked_reads.pop(message.context, None) is None:
            return
        if message.ok:
            self._ready_reads.append(ReadState(message.context, message.index))
        else:
            self._failed_reads.append(message.context)

    def _expire_reads(self) -> None:
        late = [context for context, due_ms in self._asked_reads.items() if self._now_ms >= due_ms]
        for context in late:
            del self._asked_reads[context]
            self._failed_reads.append(context)

    def _tell_newer_term(self, message: Message) -> None:
        """A leader of an older term is told that it is none any more."""
        self._send(
            AppendResponse(
                self.id,
                message.frm,
                self.term,
                self.lineage,
                0,
                0,
                0,
                self.log.last_index,
                self.commit_index,
                ok=False,
                doubtful=self.doubtful,
            )
        )
