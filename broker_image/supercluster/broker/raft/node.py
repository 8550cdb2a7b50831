"""A member of a Raft group.

Contract for the caller, who runs one of these per group and turn of its loop:

1. Hand in whatever happened: `step` (a message), `tick` (when `next_deadline_ms` has come), `propose`, `persisted`.
2. Call `ready` once, and do what it says in the order that `config.Ready` describes: above all, make the hard state
   durable before any message leaves.
3. Call `tick` no later than at `next_deadline_ms`.

Guarantees: at most one leader per term; a committed entry is in the log of every later leader; nothing is confirmed that
the log does not call durable; no member that is not sure of its log helps to elect (RP-8, SF-4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from supercluster.broker.ports import RaftLog
from supercluster.broker.raft import messages as msg
from supercluster.broker.raft import quorum
from supercluster.broker.raft.confchange import (
    ChangeRefusal,
    Membership,
    MembershipChange,
    RefusalReason,
    node_of,
    plan_change,
)
from supercluster.broker.raft.config import NEVER_MS, RaftConfig, Ready, Rng, Role
from supercluster.broker.raft.election import EAGER_TRIES, Election
from supercluster.broker.raft.entry import Entry, EntryKind
from supercluster.broker.raft.messages import Message

_FROM_LEADER = (msg.Append, msg.Heartbeat, msg.InstallSnapshot)


class Raft(Election):
    """One member of one group; see the module for how to drive it."""

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
        lineage: int = 0,
    ) -> None:
        """`membership` is the one in force at `commit_index`; those behind it are read from the log."""
        super().__init__(
            config,
            log,
            term=term,
            vote=vote,
            membership=membership,
            commit_index=commit_index,
            rng=rng,
            now_ms=now_ms,
            doubtful=doubtful,
            lineage=lineage,
        )
        self._handlers: dict[type[Message], Callable[[Any], None]] = {
            msg.Append: self._on_append,
            msg.AppendResponse: self._if_leader(self._on_append_response),
            msg.Heartbeat: self._on_heartbeat,
            msg.HeartbeatResponse: self._if_leader(self._on_heartbeat_response),
            msg.VoteRequest: self._on_vote_request,
            msg.VoteResponse: self._on_vote_response,
            msg.TimeoutNow: self._on_timeout_now,
            msg.InstallSnapshot: self._on_snapshot,
            msg.SnapshotResponse: self._if_leader(self._on_snapshot_response),
            msg.ReadRequest: self._on_read_request,
            msg.ReadResponse: self._on_read_response,
        }
        self._reset_election_timer()
        if self.membership.all_voters == (self.id,):
            # Nobody else could be the leader, so there is nothing to wait for.
            self._stand()

    def _if_leader(self, handler: Callable[[Any], None]) -> Callable[[Any], None]:
        def handle(message: Message) -> None:
            if self.role is Role.LEADER:
                handler(message)

        return handle

    # What happens to a member.

    def step(self, message: Message, now_ms: int) -> None:
        """Take one message."""
        self._now_ms = max(self._now_ms, now_ms)
        if message.to != self.id:
            return
        if message.lineage != self.lineage:
            if message.lineage > self.lineage:
                self._newer_lineage = max(self._newer_lineage, message.lineage)
            return
        if self.quiesced and not (isinstance(message, msg.Heartbeat) and message.quiesce):
            self._unquiesce()
        kind = type(message)
        if kind is not msg.VoteRequest and not self._enter_term(message, kind):
            return
        self._handlers[kind](message)

    def _enter_term(self, message: Message, kind: type[Message]) -> bool:
        """Follow a newer term; False when the message is of an older one."""
        if isinstance(message, msg.VoteResponse) and message.pre:
            # A granted pre-vote names a term that nobody has entered; a refused one may come from behind.
            if not message.granted and message.term > self.term:
                self._become_follower(message.term, None)
            return True
        if message.term > self.term:
            self._become_follower(message.term, message.frm if kind in _FROM_LEADER else None)
            if kind in _FROM_LEADER:
                self._doubt_target = None
                self._incoming = None
        elif message.term < self.term:
            if kind in _FROM_LEADER:
                self._tell_newer_term(message)
            return False
        return True

    def tick(self, now_ms: int) -> None:
        """Do what is due."""
        self._now_ms = max(self._now_ms, now_ms)
        if self._asked_reads:
            self._expire_reads()
        if self.role is Role.LEADER:
            self._tick_leader()
        elif not self.quiesced and self._now_ms >= self._election_due_ms:
            self._stand()

    def next_deadline_ms(self) -> int:
        """When `tick` is due. A value in the past means: call `ready` again, there is more to send."""
        due_ms = min(self._asked_reads.values(), default=NEVER_MS)
        if self.role is Role.LEADER:
            if self._unsent:
                return self._now_ms
            if not self.quiesced and self.progress:
                due_ms = min(due_ms, self._heartbeat_due_ms)
            if self._transfer is not None:
                due_ms = min(due_ms, self._transfer[1])
            if self._learners_due_ms is not None:
                due_ms = min(due_ms, self._learners_due_ms)
        elif not self.quiesced:
            due_ms = min(due_ms, self._election_due_ms)
        return due_ms

    def persisted(self, now_ms: int) -> None:
        """`log.persisted_index` moved: the next `ready` commits or confirms what became durable."""
        self._now_ms = max(self._now_ms, now_ms)

    def vote_durable(self, now_ms: int) -> None:
        """The term and the vote of the last `ready` are durable. A candidate asks the others only now: its time-out is for
        their answers, each of which waits for an fsync as well, so none of it may go into the candidate's own."""
        self._now_ms = max(self._now_ms, now_ms)
        if self.role is Role.CANDIDATE:
            self._reset_election_timer()

    def wake(self, now_ms: int, lost_node: str | None = None, spread_ms: int | None = None) -> None:
        """A node that shares this group was lost, or runs as a new process (SF-7); None wakes without a reason.

        `spread_ms`: over what time the elections of all groups that it led are to be spread, at most (and unless told) a
        quarter of the time-out. Few groups need no wait at all.
        """
        self._now_ms = max(self._now_ms, now_ms)
        was_silent = self.quiesced
        if was_silent:
            self._unquiesce()
        if lost_node is None:
            return
        if self.role is Role.LEADER:
            for member, progress in self.progress.items():
                if node_of(member) == lost_node:
                    progress.probe(progress.match + 1)
            self._wake()
            self._beat_wanted = True
        elif self.leader is not None and node_of(self.leader) == lost_node:
            self._become_follower(self.term, None)
            if self._election_due_ms != NEVER_MS:
                # Sooner than by time-out; the pre-vote keeps it harmless if others still hear the leader.
                soon_ms = self._place_in_line(lost_node, spread_ms)
                self._eager_tries = EAGER_TRIES
                if was_silent:
                    # Groups that are in use go first.
                    soon_ms += self.config.election_timeout_ms // 4
                self._election_due_ms = min(self._election_due_ms, self._now_ms + soon_ms)

    def _place_in_line(self, lost_node: str, spread_ms: int | None) -> int:
        """All who stay learn of a leader's loss at once. One after the other stands, so that nobody's vote is divided: of
        hundreds of groups, whose requests wait for each other, else most would have to elect again and again."""
        timeout_ms = self.config.election_timeout_ms
        others = [voter for voter in self.membership.all_voters if node_of(voter) != lost_node]
        before = sum(self._lot_of(voter) > self._lot_of(self.id) for voter in others)
        most_ms = timeout_ms // 4
        if spread_ms is not None:
            most_ms = min(most_ms, spread_ms)
        return 1 + before * (timeout_ms // 2) + self.rng.randrange(most_ms or 1)

    def is_due_to_stand(self, now_ms: int) -> bool:
        """Would a tick at this time make it stand for election?"""
        return self.role is not Role.LEADER and not self.quiesced and now_ms >= self._election_due_ms

    def could_win(self) -> bool:
        """Are enough voters linked?"""
        linked = {voter for voter in self.membership.all_voters if self.config.is_linked(node_of(voter))}
        return quorum.has_quorum(self.membership, linked | {self.id})

    def stand_within(self, wait_ms: int, now_ms: int) -> None:
        """In a group that was just begun there is no leader to wait for: stand after this, not after a time-out. The
        pre-vote keeps it harmless where the others have none of the group yet."""
        self._now_ms = max(self._now_ms, now_ms)
        if self.role is Role.FOLLOWER and self.leader is None:
            self._election_due_ms = min(self._election_due_ms, self._now_ms + wait_ms)

    def _unquiesce(self) -> None:
        if self.role is Role.LEADER:
            self._wake()
            self._beat_wanted = True
            return
        self.quiesced = False
        self._heard_leader_ms = self._now_ms
        self._reset_election_timer()

    # What a leader is asked to do.

    def propose(
        self, payload: bytes, *, time_ns: int, first_seq: int = 0, count: int = 0, kind: int = EntryKind.BATCH
    ) -> Entry | None:
        """Append an entry. None when this member is not the leader, hands over, or cannot write."""
        if self.role is not Role.LEADER or self._transfer is not None:
            return None
        return self._append_own(kind, payload, time_ns, first_seq, count)

    def propose_membership(self, change: MembershipChange, time_ns: int) -> ChangeRefusal | None:
        """Start a change of membership, or say why not."""
        current = self.membership
        refusal: tuple[RefusalReason, str] | None = None
        if self.role is not Role.LEADER:
            refusal = RefusalReason.NOT_LEADER, f"{self.id} is not the leader; {self.leader or 'nobody'} is"
        elif self._transfer is not None:
            refusal = RefusalReason.TRANSFERRING, f"leadership is being handed to {self._transfer[0]}"
        elif self.commit_index < self._term_start:
            refusal = (
                RefusalReason.NOT_READY,
                f"the leader of term {self.term} has not committed an entry of it yet",
            )
        if refusal is not None:
            return ChangeRefusal(*refusal, current.index)
        planned = plan_change(current, change)
        if isinstance(planned, ChangeRefusal):
            return planned
        if current.index > self.commit_index:
            why = f"membership {current.index} is in force but not yet committed"
            return ChangeRefusal(RefusalReason.CHANGE_PENDING, why, current.index)
        if (stranger := self._stranger(planned)) is not None:
            why = f"{stranger} must be a learner that holds membership {current.index} before it can vote"
            return ChangeRefusal(RefusalReason.NOT_CAUGHT_UP, why, current.index)
        if not self._append_membership(planned, time_ns):
            return ChangeRefusal(
                RefusalReason.DISK, f"the log could not be written: {self._disk_error}", current.index
            )
        return None

    def _stranger(self, planned: Membership) -> str | None:
        """A new voter that does not know the group yet. An empty member neither votes nor stands (SF-4), so with it the
        group might be unable to elect; as a learner it would, and it would delay every commit until it caught up."""
        for member in planned.voters:
            if member != self.id and not self.membership.is_voter(member):
                progress = self.progress.get(member)
                if progress is None or progress.match < self.membership.index or progress.doubtful:
                    return member
        return None

    def transfer_leadership(self, to: str, now_ms: int) -> bool:
        """Hand leadership to a voter, within an election time-out; meanwhile nothing is proposed. In a joint membership
        to a voter of either half: a change that is taken back is led by an old one."""
        self._now_ms = max(self._now_ms, now_ms)
        progress = self.progress.get(to)
        if self.role is not Role.LEADER or self._transfer is not None or progress is None:
            return False
        if not self.membership.is_voter(to) or progress.doubtful:
            return False
        self._wake()
        self._transfer = (to, self._now_ms + self.config.election_timeout_ms)
        self._hand_over_if_equal(progress)
        return True

    @property
    def is_handing_over(self) -> bool:
        """Is leadership on its way to another member? Until that has become of it what may, nothing is proposed."""
        return self._transfer is not None

    def read_index(self, context: int) -> None:
        """Ask for an index that reads may be served at; it comes out of `Ready.reads` or `Ready.failed_reads`."""
        if self.role is Role.LEADER:
            if not self._add_read(context, ""):
                self._failed_reads.append(context)
            return
        if self.quiesced:
            self._unquiesce()
        self._ask_leader(context)

    # What comes out.

    def ready(self) -> Ready:
        """Everything that is to be done now; each thing is handed out once."""
        if self.role is Role.LEADER:
            self._leader_ready()
        else:
            self._follower_ready()
        committed = None
        if self.commit_index > self._handed_out:
            committed = (self._handed_out + 1, self.commit_index)
            self._handed_out = self.commit_index
        memberships = (self._track.current, self._track.committed(self.commit_index))
        ready = Ready(
            (self.term, self.vote) if self._hard_state_due else None,
            self._outbox,
            committed,
            self._ready_reads,
            self._failed_reads,
            self._snapshot,
            self._snapshots_wanted() if self.progress else [],
            self._role_changed,
            memberships != self._membership_seen,
            self._doubtful_election,
            self._disk_error,
            self._snapshot_refused_bytes,
            self._newer_lineage,
        )
        self._hard_state_due = self._role_changed = self._doubtful_election = False
        self._outbox, self._ready_reads, self._failed_reads = [], [], []
        self._membership_seen = memberships
        self._snapshot = self._disk_error = None
        self._newer_lineage = self._snapshot_refused_bytes = 0
        return ready
