"""The leader's side: its entries, the answers of followers, the commit index, and silence.

Entries are committed by counting only if they are of the leader's own term; older ones are committed with
them. The leader steps down when it has not received answers from a quorum for an election time-out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from supercluster.broker.ports import RaftLog
from supercluster.broker.raft import quorum
from supercluster.broker.raft.confchange import (
    ChangeRefusal,
    Membership,
    MembershipChange,
    MembershipTrack,
    RefusalReason,
    leave_joint,
    node_of,
    plan_change,
)
from supercluster.broker.raft.config import NEVER_MS, RaftConfig, Role
from supercluster.broker.raft.entry import Entry, EntryKind, make_entry
from supercluster.broker.raft.errors import DiskError, HistoryError
from supercluster.broker.raft.log_search import last_at_or_below
from supercluster.broker.raft.messages import AppendResponse, HeartbeatResponse, ReadRequest, TimeoutNow
from supercluster.broker.raft.progress import Progress, SendState
from supercluster.broker.raft.read_queue import ReadQueue
from supercluster.broker.raft.sender import Sender, is_of_bulk
from supercluster.broker.raft.state import State
from supercluster.broker.raft.tracker import Tracker


@dataclass(slots=True, eq=False)
class Leader:
    """The work of a leader, but for the sending itself."""

    config: RaftConfig
    state: State
    log: RaftLog
    memberships: MembershipTrack
    tracker: Tracker
    reads: ReadQueue
    sender: Sender
    step_down: Callable[[], None]
    """Become a follower without a leader."""
    disk_failed: Callable[[DiskError], None]
    """The log took nothing: this member leads no more."""
    active_ms: int = 0
    """When an entry was last appended or committed, or a read asked for: active_ms <= now_ms."""
    transfer_until_ms: int = NEVER_MS
    """When a hand-over is given up; NEVER_MS exactly while there is none."""
    heartbeat_due_ms: int = 0
    beat_wanted: bool = False
    """The next turn starts a heartbeat round."""

    def start(self) -> None:
        """This member won an election."""
        state = self.state
        state.role, state.leader, state.quiesced = Role.LEADER, state.id, False
        self.active_ms = state.now_ms
        state.term_start = self.log.last_index + 1
        self.tracker.sync()
        self.heartbeat_due_ms = self._next_beat_ms()
        self.append(EntryKind.NOOP, b"", 0)

    def stop(self) -> None:
        """The leadership ended."""
        self.reads.fail_all()
        self.tracker.progress = {}
        self._end_transfer()
        self.sender.read_back = None

    def _next_beat_ms(self) -> int:
        """At multiples of the interval: the heartbeats of all groups that two nodes share leave in one frame (RP-3)."""
        now_ms, interval_ms = self.state.now_ms, self.config.heartbeat_ms
        return now_ms - now_ms % interval_ms + interval_ms

    def append(
        self, kind: int, payload: bytes, time_ns: int, first_seq: int = 0, count: int = 0
    ) -> Entry | None:
        """Append an entry of this leader. None when the disk refused it."""
        state = self.state
        state.last_time_ns = max(state.last_time_ns, time_ns)
        entry = make_entry(
            index=self.log.last_index + 1,
            term=state.term,
            kind=kind,
            time_ns=state.last_time_ns,
            first_seq=first_seq,
            count=count,
            payload=payload,
        )
        try:
            self.log.append((entry,))
        except DiskError as error:
            self.disk_failed(error)
            return None
        self.wake()
        return entry

    def propose_membership(self, change: MembershipChange, time_ns: int) -> ChangeRefusal | None:
        """Append the membership that a change leads to, or say why not."""
        state, current = self.state, self.memberships.current
        refusal: tuple[RefusalReason, str] | None = None
        if state.role is not Role.LEADER:
            why = f"{state.id} is not the leader; {state.leader or 'nobody'} is"
            refusal = RefusalReason.NOT_LEADER, why
        elif state.transfer_to is not None:
            refusal = RefusalReason.TRANSFERRING, f"leadership is being handed to {state.transfer_to}"
        elif not state.ready_to_serve:
            why = f"the leader of term {state.term} has not committed an entry of it yet"
            refusal = RefusalReason.NOT_READY, why
        elif isinstance(planned := plan_change(current, change), ChangeRefusal):
            return planned
        elif current.index > state.commit_index:
            why = f"membership {current.index} is in force but not yet committed"
            refusal = RefusalReason.CHANGE_PENDING, why
        elif (stranger := self.tracker.stranger(planned)) is not None:
            why = f"{stranger} must be a learner that holds membership {current.index} before it can vote"
            refusal = RefusalReason.NOT_CAUGHT_UP, why
        elif not self._append_membership(planned, time_ns):
            refusal = RefusalReason.DISK, f"the log could not be written: {state.ready.disk_error}"
        return ChangeRefusal(*refusal, current.index) if refusal is not None else None

    def _append_membership(self, membership: Membership, time_ns: int) -> bool:
        """Append a CONFIG entry; it is in force at once."""
        index = self.log.last_index + 1
        membership = replace(membership, index=index)
        if self.append(EntryKind.CONFIG, membership.encode(), time_ns) is None:
            return False
        self.memberships.add(membership, index)
        self.tracker.sync()
        return True

    def wake(self) -> None:
        """Something happened: a silent group speaks again (SF-7)."""
        state = self.state
        self.active_ms = state.now_ms
        if state.quiesced:
            state.quiesced = False
            for progress in self.tracker.progress.values():
                progress.heard_ms = state.now_ms
            self.heartbeat_due_ms = self._next_beat_ms()

    def node_lost(self, node: str) -> None:
        """Whatever was in flight to a node is lost."""
        for member, progress in self.tracker.progress.items():
            if node_of(member) == node:
                progress.probe(progress.confirmed + 1)
        self.wake()
        self.beat_wanted = True

    def hand_over(self, to: str) -> bool:
        """Hand leadership to a voter, of either half of a joint membership: an old one leads a change that is taken back."""
        state, progress = self.state, self.tracker.progress.get(to)
        if progress is None or progress.doubtful or state.transfer_to is not None:
            return False
        if not self.memberships.current.is_voter(to):
            return False
        self.wake()
        state.transfer_to = to
        self.transfer_until_ms = state.now_ms + self.config.election_timeout_ms
        self._hand_over_if_equal(progress)
        return True

    def _hand_over_if_equal(self, progress: Progress) -> None:
        """When both logs are equal and committed, the receiver may stand: all that waited for a commit here is answered."""
        state, is_receiver = self.state, progress.member == self.state.transfer_to
        if is_receiver and progress.match == self.log.last_index == state.commit_index:
            state.send(TimeoutNow(*state.head(progress.member)))

    def _end_transfer(self) -> None:
        self.state.transfer_to, self.transfer_until_ms = None, NEVER_MS

    def read(self, context: int, origin: str) -> None:
        """Confirm a read. It starts a heartbeat round of its own, which also wakes a silent group."""
        self.wake()
        self.reads.add(context, origin, self.sender.round + 1)

    def on_append_response(self, message: AppendResponse) -> None:
        progress = self._answered(message)
        if progress is None:
            return
        if not message.ok:
            self._on_refused(progress, message)
            return
        self._check_answer(message.frm, message.index)
        if progress.state is not SendState.SNAPSHOT and progress.acked(message.index):
            self._hand_over_if_equal(progress)

    def on_heartbeat_response(self, message: HeartbeatResponse) -> None:
        progress = self._answered(message)
        if progress is None:
            return
        progress.process = message.process
        self._check_answer(message.frm, message.matched)
        if not is_of_bulk(message.round):
            progress.beat_answered(message.round, self.state.now_ms)
        if message.round > progress.round:
            progress.round = message.round
            self._confirm_reads()
        # An answer shows what became of appends on its own link only: on the other one they may still be in flight.
        later = message.round > progress.append_round and is_of_bulk(message.round) == progress.by_bulk
        if progress.state is SendState.SNAPSHOT:
            self.sender.resume_snapshot(progress, message.round)
        elif progress.state is SendState.PROBE:
            progress.probe_sent = progress.probe_sent and not later
        else:
            if progress.acked(message.durable):
                self._hand_over_if_equal(progress)
            if message.matched < progress.match or (later and message.matched < progress.next - 1):
                # It was restarted, or an append to it was lost.
                progress.probe(progress.match + 1)

    def on_read_request(self, message: ReadRequest) -> None:
        if self.state.role is Role.LEADER:
            self.read(message.context, message.frm)
        else:
            self.reads.fail(message.context, message.frm)

    def _answered(self, message: AppendResponse | HeartbeatResponse) -> Progress | None:
        """The follower's progress, with what every answer of it says. None when it has none, as on all but leaders."""
        progress = self.tracker.progress.get(message.frm)
        if progress is not None:
            progress.heard_ms = self.state.now_ms
            progress.peer_commit = message.commit
            progress.doubtful = message.doubtful
        return progress

    def _check_answer(self, member: str, index: int) -> None:
        """Raises HistoryError: the member confirmed an entry of this term's leader that the leader does not have."""
        if index > self.log.last_index:
            term, leader, last_index = self.state.term, self.state.id, self.log.last_index
            raise HistoryError(
                f"{member} confirmed entry {index} in term {term}, and its leader {leader} ends at {last_index}"
            )

    def _on_refused(self, progress: Progress, message: AppendResponse) -> None:
        """The follower's log does not have the entry before the ones it was sent."""
        if message.last_index < progress.match:
            # It lost a tail that it had confirmed (its disk, not the network): count it no longer.
            progress.match = message.last_index
        elif message.index <= progress.match:
            return
        if progress.state is SendState.SNAPSHOT:
            return
        if message.last_index < min(progress.confirmed, self.state.commit_index) and not message.doubtful:
            # It lost committed entries and does not know. It is asked for them and gets nothing, until a heartbeat told it
            # (SF-27). A refusal of before its confirmation costs one such question.
            progress.probe(progress.confirmed + 1)
            progress.probe_sent = True
            return
        progress.confirmed = progress.match
        if progress.state is SendState.PROBE and message.index != progress.next - 1:
            return
        agreed = last_at_or_below(self.log, message.hint_index, message.hint_term)
        # The refused place itself is out, even if a hint should name it: probing always gets further down.
        progress.probe(max(min(agreed, message.index - 1), progress.match) + 1)

    def _confirm_reads(self) -> None:
        if self.reads:
            self.reads.confirm(self.tracker.answered_round(self.sender.round))

    def work(self) -> None:
        """Once per turn: commit, then at most one append to each follower. A log that cannot be read makes no leader."""
        try:
            self._advance_commit()
            if self.state.role is Role.LEADER:
                self._send()
        except DiskError as error:
            self.disk_failed(error)

    def _send(self) -> None:
        beat = self.beat_wanted or self.reads.wants_round(self.sender.round)
        self.beat_wanted = False
        if beat:
            self.sender.round += 2
            # A leader that is a quorum by itself confirms its reads without answers.
            self._confirm_reads()
        self.sender.send_all(beat=beat)

    def _advance_commit(self) -> None:
        """Commit what a quorum has durably, if it is of this term; then do what waited for it."""
        state = self.state
        if state.commit_index < self.log.last_index:
            index = quorum.quorum_index(self.memberships.current, self.tracker.match_of)
            if index >= state.term_start and state.commit_to(index):
                self.active_ms = state.now_ms
                if state.transfer_to in self.tracker.progress:
                    self._hand_over_if_equal(self.tracker.progress[state.transfer_to])
                self.reads.start_early(self.sender.round + 1)
        membership = self.memberships.current
        if state.commit_index < state.term_start or membership.index > state.commit_index:
            return
        if membership.is_joint:
            if membership.auto_leave and self._append_membership(leave_joint(membership), 0):
                self._advance_commit()
        elif not membership.is_voter(state.id):
            self._abdicate()

    def _abdicate(self) -> None:
        """A committed membership without this leader: let the member with the longest log stand at once."""
        best = self.tracker.best_voter()
        # The followers learn of the commit before the leader falls silent.
        self._send()
        if best is not None:
            self.state.send(TimeoutNow(*self.state.head(best.member)))
        self.step_down()

    def tick(self) -> None:
        now_ms = self.state.now_ms
        if now_ms >= self.transfer_until_ms:
            self._end_transfer()
        if self.state.quiesced or now_ms < self.heartbeat_due_ms:
            return
        late_ms = now_ms - self.heartbeat_due_ms
        self.heartbeat_due_ms = self._next_beat_ms()
        if late_ms > self.config.heartbeat_ms:
            # This group had no turn for so long: the answers may be waiting for one.
            for progress in self.tracker.progress.values():
                progress.heard_ms += late_ms
        self.tracker.let_go()
        if not quorum.has_quorum(self.memberships.current, self.tracker.heard(patiently=True)):
            self.step_down()
        elif self.tracker.progress and self._may_quiesce():
            self.state.quiesced = True
            self.sender.send_quiesce()
        else:
            self.beat_wanted = True

    def _may_quiesce(self) -> bool:
        """Is nothing going on, and does every member that can be reached know it (SF-7)? Without a majority of links the leader stays
        awake until it steps down: a silent one would lead for good."""
        membership = self.memberships.current
        return (
            self.state.now_ms - self.active_ms >= self.config.quiesce_after_ms
            and self.state.commit_index == self.log.last_index == self.log.persisted_index
            and self.state.transfer_to is None
            and not self.reads
            and not membership.is_joint
            and self.tracker.is_level()
            and quorum.has_quorum(membership, self.config.linked(membership.all_voters) | {self.state.id})
        )
