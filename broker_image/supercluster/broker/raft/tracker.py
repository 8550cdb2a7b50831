"""The other members of the group as the leader sees them, and the index that a quorum of them has reached."""

from __future__ import annotations

from dataclasses import dataclass, field

from supercluster.broker.ports import RaftLog
from supercluster.broker.raft import quorum
from supercluster.broker.raft.confchange import Membership, MembershipTrack
from supercluster.broker.raft.config import RaftConfig
from supercluster.broker.raft.progress import Progress
from supercluster.broker.raft.state import State

_PATIENCE = 10
"""Election time-outs for which a removed member is still fed, and a snapshot kept for a member that is not heard."""


@dataclass(slots=True, eq=False)
class Tracker:
    """The progress of each member but this one. A quorum counts this member's own log by what is durable of it."""

    config: RaftConfig
    state: State
    log: RaftLog
    memberships: MembershipTrack
    progress: dict[str, Progress] = field(default_factory=dict)
    """Holds every other member in force, and for a while those that were removed. Empty unless this member leads."""

    def sync(self) -> None:
        """Feed the members in force, and for a while those that were just removed, so that they learn of it (SF-5)."""
        membership, now_ms = self.memberships.current, self.state.now_ms
        members = membership.members
        for member in members:
            if member != self.state.id:
                fresh = Progress(member, self.log.last_index + 1, now_ms)
                progress = self.progress.setdefault(member, fresh)
                progress.leaving_until_ms = None
                progress.learns = not membership.is_voter(member)
        for member, progress in self.progress.items():
            if member not in members and progress.leaving_until_ms is None:
                progress.leaving_until_ms = now_ms + _PATIENCE * self.config.election_timeout_ms

    def let_go(self) -> None:
        """Forget removed members that know of it or take too long, and snapshots of members that are not heard."""
        now_ms, removed_at = self.state.now_ms, self.memberships.current.index
        patience_ms = _PATIENCE * self.config.election_timeout_ms
        for member, progress in list(self.progress.items()):
            until_ms = progress.leaving_until_ms
            if until_ms is not None and (now_ms >= until_ms or progress.peer_commit >= removed_at):
                del self.progress[member]
            elif now_ms - progress.heard_ms > patience_ms:
                progress.snapshot = None

    def match_of(self, member: str) -> int:
        """The durable part of its log that equals this one's."""
        if member == self.state.id:
            return min(self.log.persisted_index, self.log.last_index)
        progress = self.progress.get(member)
        return progress.match if progress is not None else 0

    def answered_round(self, own_round: int) -> int:
        """The last heartbeat round that a quorum answered."""
        rounds = {member: progress.round for member, progress in self.progress.items()}
        rounds[self.state.id] = own_round
        return quorum.quorum_index(self.memberships.current, lambda member: rounds.get(member, 0))

    def best_voter(self) -> Progress | None:
        """The voter whose log matches furthest."""
        voters = self.memberships.current.voters
        candidates = (progress for member, progress in self.progress.items() if member in voters)
        return max(candidates, key=lambda progress: progress.match, default=None)

    def stranger(self, planned: Membership) -> str | None:
        """A new voter that does not know the group yet. An empty member neither votes nor stands (SF-4), so with it the
        group might be unable to elect; as a learner it would, and it would delay every commit until it caught up."""
        current = self.memberships.current
        for member in planned.voters:
            if member != self.state.id and not current.is_voter(member):
                progress = self.progress.get(member)
                if progress is None or progress.match < current.index or progress.doubtful:
                    return member
        return None

    def heard(self, *, patiently: bool = False) -> set[str]:
        """This member and those that were heard within an election time-out, or within that and the patience they need."""
        since_ms, patience_of = self.state.now_ms - self.config.election_timeout_ms, self.config.patience_of
        members = {self.state.id}
        for member, progress in self.progress.items():
            if progress.heard_ms > since_ms - (patience_of(member) if patiently else 0):
                members.add(member)
        return members

    def is_level(self) -> bool:
        """Did all members that can be reached, learners too, say that they have this log and this commit index? A member
        that is not linked keeps nobody awake: the leader is woken by its link, and brings it up to date then (SF-7)."""
        last, heard = self.log.last_index, self.heard()
        for member, progress in self.progress.items():
            is_level = progress.match == progress.peer_commit == last and progress.next == last + 1
            is_sure = member in heard and is_level and not progress.doubtful
            if progress.leaving_until_ms is not None or (self.config.is_linked_to(member) and not is_sure):
                return False
        return True
