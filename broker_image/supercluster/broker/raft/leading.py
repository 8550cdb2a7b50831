"""The leader's side: entries to followers, answers from them, the commit index, reads, and falling silent.

Entries are committed by counting only if they are of the leader's own term; older ones are committed with them. The
leader steps down when it has not heard a quorum for an election time-out.
"""

from __future__ import annotations

from dataclasses import replace

from supercluster.broker.raft import quorum
from supercluster.broker.raft.confchange import Membership, leave_joint, node_of
from supercluster.broker.raft.config import ReadState, Role
from supercluster.broker.raft.entry import Entry, EntryKind, make_entry
from supercluster.broker.raft.errors import DiskError, HistoryError
from supercluster.broker.raft.messages import (
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
)
from supercluster.broker.raft.progress import Progress, SendState
from supercluster.broker.raft.sending import Sending, is_of_bulk

_PATIENCE = 10
"""Election time-outs for which a removed member is still fed, and a snapshot kept for a member that is not heard."""


class Leading(Sending):
    """Everything that only a leader does, but for the sending itself."""

    def _become_leader(self) -> None:
        self.role = Role.LEADER
        self.leader = self.id
        self.quiesced = False
        self._role_changed = True
        self._transfer = None
        self._active_ms = self._now_ms
        self._term_start = self.log.last_index + 1
        self.progress = {}
        self._sync_progress()
        self._heartbeat_due_ms = self._next_beat_ms()
        self._append_own(EntryKind.NOOP, b"", 0)

    def _next_beat_ms(self) -> int:
        """At multiples of the interval: the heartbeats of all groups that a pair of nodes shares leave in one turn, and
        so in one frame (RP-3)."""
        interval_ms = self.config.heartbeat_ms
        return self._now_ms - self._now_ms % interval_ms + interval_ms

    def _sync_progress(self) -> None:
        """Feed the members in force, and for a while those that were just removed, so that they learn of it (SF-5)."""
        members = self.membership.members
        for member in members:
            if member == self.id:
                continue
            if member not in self.progress:
                self.progress[member] = Progress(member, self.log.last_index + 1, self._now_ms)
            self.progress[member].leaving_until_ms = None
            self.progress[member].learns = not self.membership.is_voter(member)
        for member, progress in self.progress.items():
            if member not in members and progress.leaving_until_ms is None:
                progress.leaving_until_ms = self._now_ms + _PATIENCE * self.config.election_timeout_ms

    def _let_go(self) -> None:
        """Forget removed members that know of it, or that are too slow to; and what waits for the dead."""
        patience_ms = _PATIENCE * self.config.election_timeout_ms
        for member, progress in list(self.progress.items()):
            until_ms = progress.leaving_until_ms
            if until_ms is not None and (
                self._now_ms >= until_ms or progress.peer_commit >= self.membership.index
            ):
                del self.progress[member]
            elif progress.snapshot is not None and self._now_ms - progress.heard_ms > patience_ms:
                progress.snapshot = None

    def _append_own(
        self, kind: int, payload: bytes, time_ns: int, first_seq: int = 0, count: int = 0
    ) -> Entry | None:
        """Append an entry of this leader. None when the disk refused it: then it is leader no more."""
        self._last_time_ns = max(self._last_time_ns, time_ns)
        entry = make_entry(
            index=self.log.last_index + 1,
            term=self.term,
            kind=kind,
            time_ns=self._last_time_ns,
            first_seq=first_seq,
            count=count,
            payload=payload,
        )
        try:
            self.log.append((entry,))
        except DiskError as error:
            self._disk_failed(error)
            return None
        self._wake()
        return entry

    def _append_membership(self, membership: Membership, time_ns: int) -> bool:
        """Append a CONFIG entry; it is in force at once."""
        index = self.log.last_index + 1
        membership = replace(membership, index=index)
        if self._append_own(EntryKind.CONFIG, membership.encode(), time_ns) is None:
            return False
        self._track.add(membership, index)
        self._sync_progress()
        return True

    def _wake(self) -> None:
        """Something happened: a silent group speaks again (SF-7)."""
        self._active_ms = self._now_ms
        if self.quiesced:
            self.quiesced = False
            for progress in self.progress.values():
                progress.heard_ms = self._now_ms
            self._heartbeat_due_ms = self._next_beat_ms()

    # Answers.

    def _heard_from(self, message: AppendResponse | HeartbeatResponse) -> Progress | None:
        """The follower's progress, with what every answer of it says; None for who is none."""
        progress = self.progress.get(message.frm)
        if progress is not None:
            progress.heard_ms = self._now_ms
            progress.peer_commit = message.commit
            progress.doubtful = message.doubtful
        return progress

    def _check_answer(self, member: str, index: int) -> None:
        """Raises HistoryError: the member confirmed an entry of this term's leader that the leader does not have."""
        if index > self.log.last_index:
            raise HistoryError(
                f"{member} confirmed entry {index} in term {self.term}, and its leader {self.id} ends at {self.log.last_index}"
            )

    def _on_append_response(self, message: AppendResponse) -> None:
        progress = self._heard_from(message)
        if progress is None:
            return
        if message.ok:
            self._check_answer(message.frm, message.index)
            if progress.state is not SendState.SNAPSHOT and progress.acked(message.index):
                self._hand_over_if_equal(progress)
            return
        self._on_refused(progress, message)

    def _on_refused(self, progress: Progress, message: AppendResponse) -> None:
        """The follower's log does not have the entry before the ones it was sent."""
        if message.last_index < progress.match:
            # It lost a tail that it had confirmed (its disk, not the network): count it no longer.
            progress.match = message.last_index
        elif message.index <= progress.match:
            return
        if progress.state is SendState.SNAPSHOT:
            return
        if progress.state is SendState.PROBE and message.index != progress.next - 1:
            return
        agreed = self._last_at_or_below(message.hint_index, message.hint_term)
        progress.match = min(progress.match, message.last_index)
        # The refused place itself is out, even if a hint should name it: probing always gets further down.
        progress.probe(max(min(agreed, message.index - 1), progress.match) + 1)

    def _on_heartbeat_response(self, message: HeartbeatResponse) -> None:
        progress = self._heard_from(message)
        if progress is None:
            return
        self._check_answer(message.frm, message.matched)
        if message.round > progress.round:
            progress.round = message.round
            self._confirm_reads()
        # An answer shows what became of appends on its own link only: on the other one they may still be on their way.
        later = message.round > progress.append_round and is_of_bulk(message.round) == progress.by_bulk
        if progress.state is SendState.SNAPSHOT:
            self._resume_snapshot(progress, message.round)
        elif progress.state is SendState.PROBE:
            progress.probe_sent = progress.probe_sent and not later
        else:
            if progress.acked(message.durable):
                self._hand_over_if_equal(progress)
            if message.matched < progress.match or (later and message.matched < progress.next - 1):
                # It was restarted, or an append to it was lost.
                progress.probe(progress.match + 1)

    # Commit.

    def _match_of(self, member: str) -> int:
        if member == self.id:
            return min(self.log.persisted_index, self.log.last_index)
        progress = self.progress.get(member)
        return progress.match if progress is not None else 0

    def _advance_commit(self) -> None:
        """Commit what a quorum has durably, if it is of this term; then do what waited for it."""
        if self.commit_index < self.log.last_index:
            index = quorum.quorum_index(self.membership, self._match_of)
            if index >= self._term_start and self._commit_to(index):
                self._active_ms = self._now_ms
                if self._transfer is not None and self._transfer[0] in self.progress:
                    self._hand_over_if_equal(self.progress[self._transfer[0]])
                self._reads.start_early(self.commit_index, self._round + 1)
        if self.commit_index < self._term_start or self.membership.index > self.commit_index:
            return
        if self.membership.is_joint:
            if self.membership.auto_leave and self._append_membership(leave_joint(self.membership), 0):
                self._advance_commit()
        elif not self.membership.is_voter(self.id):
            self._abdicate()

    def _abdicate(self) -> None:
        """A committed membership without this leader: let the member with the longest log stand at once."""
        best = max(
            (progress for member, progress in self.progress.items() if member in self.membership.voters),
            key=lambda progress: progress.match,
            default=None,
        )
        # The followers learn of the commit before the leader falls silent.
        self._send_all()
        if best is not None:
            self._send(TimeoutNow(self.id, best.member, self.term, self.lineage))
        self._become_follower(self.term, None)

    # Reads.

    def _add_read(self, context: int, origin: str) -> bool:
        """Queue a read; it starts a heartbeat round of its own, which also wakes a silent group."""
        self._wake()
        index = self.commit_index if self.commit_index >= self._term_start else None
        return self._reads.add(context, origin, index, self._round + 1)

    def _on_read_request(self, message: ReadRequest) -> None:
        if self.role is not Role.LEADER or not self._add_read(message.context, message.frm):
            self._send(ReadResponse(self.id, message.frm, self.term, self.lineage, message.context, 0, False))

    def _confirm_reads(self) -> None:
        if not self._reads:
            return
        round_ = quorum.quorum_index(self.membership, self._round_of)
        for read in self._reads.confirmed(round_):
            if read.origin:
                self._send(
                    ReadResponse(
                        self.id, read.origin, self.term, self.lineage, read.context, read.index, True
                    )
                )
            else:
                self._ready_reads.append(ReadState(read.context, read.index))

    def _round_of(self, member: str) -> int:
        if member == self.id:
            return self._round
        progress = self.progress.get(member)
        return progress.round if progress is not None else 0

    # Hand-over of leadership.

    def _hand_over_if_equal(self, progress: Progress) -> None:
        """The log is equal on both sides, and committed: the receiver may stand for election. This leader then has
        answered whoever waited for a commit."""
        if self._transfer is None or self._transfer[0] != progress.member:
            return
        if progress.match == self.log.last_index == self.commit_index:
            self._send(TimeoutNow(self.id, progress.member, self.term, self.lineage))

    # Time.

    def _tick_leader(self) -> None:
        if self._transfer is not None and self._now_ms >= self._transfer[1]:
            self._transfer = None
        if self.quiesced or self._now_ms < self._heartbeat_due_ms:
            return
        late_ms = self._now_ms - self._heartbeat_due_ms
        self._heartbeat_due_ms = self._next_beat_ms()
        if late_ms > self.config.heartbeat_ms:
            # This group had no turn for so long: the answers may be waiting for one.
            for progress in self.progress.values():
                progress.heard_ms += late_ms
        self._let_go()
        since_ms = self._now_ms - self.config.election_timeout_ms
        heard = {member for member, progress in self.progress.items() if progress.heard_ms > since_ms}
        heard.add(self.id)
        standing = {
            member
            for member, progress in self.progress.items()
            if progress.heard_ms > since_ms - self._patience_ms(member)
        }
        if not quorum.has_quorum(self.membership, heard | standing):
            self._become_follower(self.term, None)
        elif self.progress and self._may_quiesce(heard):
            self._quiesce()
        else:
            self._beat_wanted = True

    def _may_quiesce(self, heard: set[str]) -> bool:
        """All members that can be reached, learners too, said that they have this log and this commit index (SF-7). Who is
        not linked keeps nobody awake: the leader is woken by its link (`wake`), and brings it up to date then."""
        last = self.log.last_index
        return (
            self._now_ms - self._active_ms >= self.config.quiesce_after_ms
            and self.commit_index == last == self.log.persisted_index
            and self._transfer is None
            and not self._reads
            and not self.membership.is_joint
            and all(progress.leaving_until_ms is None for progress in self.progress.values())
            and all(
                member in heard
                and progress.match == last
                and progress.peer_commit == last
                and progress.next == last + 1
                and not progress.doubtful
                for member, progress in self.progress.items()
                if self._is_linked(member)
            )
        )

    def _is_linked(self, member: str) -> bool:
        return self.config.is_linked(node_of(member))

    def _quiesce(self) -> None:
        self.quiesced = True
        for member in filter(self._is_linked, self.progress):
            self._send(
                Heartbeat(
                    self.id,
                    member,
                    self.term,
                    self.lineage,
                    self._round,
                    self.commit_index,
                    self.log.last_index,
                    answer=False,
                    quiesce=True,
                )
            )

    def _last_at_or_below(self, index: int, term: int) -> int:
        """The last index up to `index` whose term is not above `term`: by bisection, terms only grow along a log."""
        low, high = self.log.base_index, min(index, self.log.last_index)
        if high <= low:
            return high
        while low < high:
            middle = (low + high + 1) // 2
            held = self.log.term(middle)
            if held is None or held > term:
                high = middle - 1
            else:
                low = middle
        return low

    def _leader_ready(self) -> None:
        """Once per turn: commit, then at most one append to each follower. A log that cannot be read makes no leader."""
        try:
            self._advance_commit()
            if self.role is Role.LEADER:
                self._send_all()
        except DiskError as error:
            self._disk_failed(error)
