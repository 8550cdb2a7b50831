"""A member of a Raft group. The package docstring is the contract for its caller."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from supercluster.broker.ports import RaftLog
from supercluster.broker.raft import messages as msg
from supercluster.broker.raft import quorum
from supercluster.broker.raft.confchange import ChangeRefusal, Membership, MembershipChange, MembershipTrack
from supercluster.broker.raft.config import NEVER_MS, RaftConfig, Ready, Rng, Role, SendPace
from supercluster.broker.raft.election import Election, ElectionTimer, Poll
from supercluster.broker.raft.entry import Entry, EntryKind
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.raft.follower import Follower
from supercluster.broker.raft.leader import Leader
from supercluster.broker.raft.progress import Progress
from supercluster.broker.raft.read_queue import ReadQueue
from supercluster.broker.raft.sender import Sender
from supercluster.broker.raft.state import State
from supercluster.broker.raft.throttle import Throttle
from supercluster.broker.raft.tracker import Tracker

_FROM_LEADER = (msg.Append, msg.Heartbeat, msg.InstallSnapshot)


def _view(path: str) -> Any:
    """A field of a part, to be read only."""
    return property(attrgetter(path))


class RaftNode:
    """Owns the state and the parts of a member, hands them what happens, and collects the work of a turn."""

    term: int = _view("_state.term")
    role: Role = _view("_state.role")
    leader: str | None = _view("_state.leader")
    """The member that leads, as far as this one knows."""
    commit_index: int = _view("_state.commit_index")
    ready_to_serve: bool = _view("_state.ready_to_serve")
    """Leader, and an entry of its own term is committed: its state is no older than what any leader confirmed."""
    doubtful: bool = _view("_state.doubtful")
    """May this member have lost entries that it had confirmed (SF-4)?"""
    is_unsure: bool = _view("_state.is_unsure")
    """Is it not known what this member had confirmed?"""
    poll: Poll | None = _view("_election.poll")
    """The answers to its last candidature."""
    quiesced: bool = _view("_state.quiesced")
    """Is the group silent (SF-7)?"""
    heard_leader_ms: int = _view("_timer.heard_leader_ms")
    """When the leader was last heard, by the clock of `tick`."""
    membership: Membership = _view("_memberships.current")
    """The membership in force."""
    progress: dict[str, Progress] = _view("_tracker.progress")
    """The other members, as the leader sees them; empty elsewhere."""

    def __init__(
        self,
        config: RaftConfig,
        log: RaftLog,
        *,
        term: int,
        vote: str,
        membership: Membership,
        commit_index: int,
        rng: Rng,
        now_ms: int,
        doubtful: bool = False,
        end: tuple[int, int] = (0, 0),
        lineage: int = 0,
    ) -> None:
        """`membership` is the one in force at `commit_index`; those behind it are read from the log. A doubtful member may know
        with which term and index its log had its `end`; (0, 0): it does not."""
        self.config = config
        self.log = log
        self.id = config.member
        self.lineage = lineage
        commit_index, last = max(commit_index, log.base_index), log.last_index
        last_entries = log.entries(last, last, 1) if last > log.base_index else []
        last_time_ns = last_entries[-1].time_ns if last_entries else 0
        self._state = state = State(
            self.id, lineage, term, vote, commit_index, commit_index, now_ms, last_time_ns, doubtful, end
        )
        if term < log.last_term:
            # Entries of a term may be in the log before that term's vote was saved. Their writer had won, so no vote of
            # this member in that term can make another leader.
            state.set_term(log.last_term, "")
        self._memberships = memberships = MembershipTrack(membership)
        memberships.read(log, commit_index)

        long_ago_ms = now_ms - config.election_timeout_ms
        self._timer = timer = ElectionTimer(config, state, memberships, rng, long_ago_ms)
        self._tracker = tracker = Tracker(config, state, log, memberships)
        self._throttle = Throttle(config, state)
        self._sender = sender = Sender(config, state, log, memberships, tracker, self._throttle)
        self._leader = leader = Leader(
            *(config, state, log, memberships, tracker, ReadQueue(config.reads_max, state), sender),
            step_down=lambda: self._become_follower(state.term, None),
            disk_failed=self._disk_failed,
        )
        self._follower = follower = Follower(
            *(config, state, log, memberships, timer),
            follow=lambda to: self._become_follower(state.term, to),
            disk_failed=self._disk_failed,
            matched=commit_index,
        )
        self._election = election = Election(
            config, state, log, memberships, timer, self._become_follower, leader.start
        )
        self._handlers: dict[type[msg.Message], Callable[[Any], None]] = {
            msg.Append: follower.on_append,
            msg.AppendResponse: leader.on_append_response,
            msg.Heartbeat: follower.on_heartbeat,
            msg.HeartbeatResponse: leader.on_heartbeat_response,
            msg.VoteRequest: election.on_vote_request,
            msg.VoteResponse: election.on_vote_response,
            msg.TimeoutNow: election.on_timeout_now,
            msg.InstallSnapshot: follower.on_snapshot,
            msg.SnapshotResponse: sender.on_snapshot_response,
            msg.ReadRequest: leader.on_read_request,
            msg.ReadResponse: follower.on_read_response,
        }
        timer.reset()
        if memberships.current.all_voters == (self.id,):
            # Nobody else could be the leader, so there is nothing to wait for.
            election.stand()
            timer.bring_forward(0)  # Where it may not lead yet, the first tick asks again.

    @property
    def is_leader(self) -> bool:
        return self._state.role is Role.LEADER

    @property
    def is_handing_over(self) -> bool:
        """Is leadership on its way to another member? Nothing is proposed until that is over."""
        return self._state.transfer_to is not None

    @property
    def committed_membership(self) -> Membership:
        """The newest membership that is committed: only this one may be acted upon for good (SF-5)."""
        return self._memberships.committed(self._state.commit_index)

    @property
    def learner_pace(self) -> SendPace | None:
        """Bounds what learners are sent, all together."""
        return self._throttle.pace

    @learner_pace.setter
    def learner_pace(self, pace: SendPace | None) -> None:
        self._throttle.pace = pace

    # Changes of role.

    def _become_follower(self, term: int, leader: str | None) -> None:
        """Enter `term` (if it is newer) as a follower of `leader`."""
        state = self._state
        if state.role is Role.LEADER:
            self._leader.stop()
        newer = term > state.term
        if newer:
            state.set_term(term, "")
        changed = newer or state.role is not Role.FOLLOWER or state.leader != leader
        state.role, state.leader, state.quiesced = Role.FOLLOWER, leader, False
        if changed:
            self._follower.leader_changed()
        if leader is not None:
            self._timer.heard_leader_ms = state.now_ms
        self._timer.reset()

    def _disk_failed(self, error: DiskError) -> None:
        """The log took nothing. A leader that cannot write its log is none; a follower just does not answer."""
        state, timer = self._state, self._timer
        state.ready.disk_error = error
        if state.role is Role.LEADER:
            self._become_follower(state.term, None)
        if timer.due_ms != NEVER_MS:
            # Others, whose disks work, shall stand first.
            timer.due_ms = state.now_ms + 4 * self.config.election_timeout_ms

    def _unquiesce(self) -> None:
        state = self._state
        if state.role is Role.LEADER:
            self._leader.wake()
            self._leader.beat_wanted = True
            return
        state.quiesced = False
        self._timer.heard_leader_ms = state.now_ms
        self._timer.reset()

    def step(self, message: msg.Message, now_ms: int) -> None:
        """Take one message."""
        state = self._state
        state.advance_clock(now_ms)
        if message.to != self.id or message.lineage != self.lineage:
            return
        if state.quiesced and not (isinstance(message, msg.Heartbeat) and message.quiesce):
            self._unquiesce()
        kind = type(message)
        if message.term == state.term or kind is msg.VoteRequest or self._enter_term(message, kind):
            self._handlers[kind](message)

    def _enter_term(self, message: msg.Message, kind: type[msg.Message]) -> bool:
        """Follow a newer term; False when the message is of an older one."""
        state = self._state
        if isinstance(message, msg.VoteResponse) and message.pre:
            # A granted pre-vote names a term that nobody has entered; a refused one may come from behind.
            if not message.granted and message.term > state.term:
                self._become_follower(message.term, None)
            return True
        if message.term > state.term:
            self._become_follower(message.term, message.frm if kind in _FROM_LEADER else None)
            return True
        if kind in _FROM_LEADER:
            self._follower.tell_newer_term(message.frm)
        return False

    def tick(self, now_ms: int) -> None:
        """Do what is due."""
        self._state.advance_clock(now_ms)
        if self._follower.asked_reads:
            self._follower.expire_reads()
        if self._state.role is Role.LEADER:
            self._leader.tick()
        elif self.is_due_to_stand(self._state.now_ms):
            self._election.stand()

    def next_deadline_ms(self) -> int:
        """When `tick` is due. A value in the past means: call `ready` again, there is more to send."""
        state = self._state
        due_ms = min(self._follower.asked_reads.values(), default=NEVER_MS)
        if state.role is Role.LEADER:
            if self._sender.unsent:
                return state.now_ms
            due_ms = min(due_ms, self._leader.transfer_until_ms)
            if not state.quiesced and self._tracker.progress:
                due_ms = min(due_ms, self._leader.heartbeat_due_ms)
            if self._throttle.due_ms is not None:
                due_ms = min(due_ms, self._throttle.due_ms)
        elif not state.quiesced:
            due_ms = min(due_ms, self._timer.due_ms)
        return due_ms

    def persisted(self, now_ms: int) -> None:
        """`log.persisted_index` moved: the next `ready` commits or confirms what became durable."""
        self._state.advance_clock(now_ms)

    def vote_durable(self, now_ms: int) -> None:
        """The term and the vote of the last `ready` are durable. A candidate asks the others only now: its time-out is for
        their answers, each of which waits for an fsync as well, so none of it may go into the candidate's own."""
        self._state.advance_clock(now_ms)
        if self._state.role is Role.CANDIDATE:
            self._timer.reset()

    def wake(self, now_ms: int, lost_node: str | None = None, spread_ms: int | None = None) -> None:
        """A node that shares this group was lost, or runs as a new process (SF-7); None wakes without a reason.

        `spread_ms`: over what time the elections of all groups that it led are to be spread, at most (and unless told) a
        quarter of the time-out. Few groups need no wait at all.
        """
        state = self._state
        state.advance_clock(now_ms)
        was_silent = state.quiesced
        if was_silent:
            self._unquiesce()
        if lost_node is None:
            return
        if state.role is Role.LEADER:
            self._leader.node_lost(lost_node)
        else:
            self._election.node_lost(lost_node, spread_ms, was_silent=was_silent)

    def is_due_to_stand(self, now_ms: int) -> bool:
        """Would a tick at this time make it stand for election?"""
        state = self._state
        return state.role is not Role.LEADER and not state.quiesced and now_ms >= self._timer.due_ms

    def could_win(self) -> bool:
        """Are enough voters linked?"""
        linked = self.config.linked(self.membership.all_voters)
        return quorum.has_quorum(self.membership, linked | {self.id})

    def stand_within(self, wait_ms: int, now_ms: int, tries: int = 1) -> None:
        """In a group that was just begun there is no leader to wait for: stand after this, not after a time-out. The
        pre-vote keeps it harmless where the others have none of the group yet: then it is repeated at this pace."""
        self._state.advance_clock(now_ms)
        if self._state.role is Role.FOLLOWER and self._state.leader is None:
            self._election.stand_first(wait_ms, tries)

    def propose(
        self, payload: bytes, *, time_ns: int, first_seq: int = 0, count: int = 0, kind: int = EntryKind.BATCH
    ) -> Entry | None:
        """Append an entry. None when this member is not the leader, hands over, or cannot write."""
        if self._state.role is not Role.LEADER or self._state.transfer_to is not None:
            return None
        return self._leader.append(kind, payload, time_ns, first_seq, count)

    def propose_membership(self, change: MembershipChange, time_ns: int) -> ChangeRefusal | None:
        """Start a change of membership, or say why not."""
        return self._leader.propose_membership(change, time_ns)

    def transfer_leadership(self, to: str, now_ms: int) -> bool:
        """Hand leadership to a voter, within an election time-out; meanwhile nothing is proposed."""
        self._state.advance_clock(now_ms)
        return self._leader.hand_over(to)

    def read_index(self, context: int) -> None:
        """Ask for an index that reads may be served at; it comes out of `Ready.reads` or `Ready.failed_reads`."""
        if self._state.role is Role.LEADER:
            self._leader.read(context, "")
            return
        if self._state.quiesced:
            self._unquiesce()
        self._follower.read(context)

    def provide_snapshot(self, to: str, state: bytes) -> None:
        """The state at the log's base, for a member that `Ready.snapshot_wanted` named."""
        self._sender.provide_snapshot(to, state)

    def snapshot_installed(self, base_index: int, now_ms: int) -> None:
        """The caller installed `Ready.snapshot`. A log that it did not already reset is reset here."""
        self._state.advance_clock(now_ms)
        self._follower.snapshot_installed(base_index)

    def snapshot_failed(self, now_ms: int) -> None:
        """The caller could not install `Ready.snapshot`; the leader sends it again."""
        self._state.advance_clock(now_ms)
        self._follower.installing = None

    def ready(self) -> Ready:
        """Everything that is to be done now; each thing is handed out once."""
        state = self._state
        if state.role is Role.LEADER:
            self._leader.work()
        else:
            self._follower.work()
        ready, state.ready = state.ready, Ready()
        if state.commit_index > state.handed_out:
            ready.committed = (state.handed_out + 1, state.commit_index)
            state.handed_out = state.commit_index
        if self._tracker.progress:
            ready.snapshot_wanted = self._sender.snapshots_wanted()
        return ready
