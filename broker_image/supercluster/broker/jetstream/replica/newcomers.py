"""Members of a group that came back under a new identity because their volume or their copy was lost (SF-4).

The new identity learns first, without a vote, and then replaces the old one in one change of the membership.
Only a serving leader does this.
"""

from __future__ import annotations

from supercluster.broker.jetstream.replica.replicated_state import ReplicatedState
from supercluster.broker.raft.confchange import MembershipChange, node_of

# How often a leader looks whether members changed their identity and learners have caught up.
LOOK_MS = 500
# Of more brokers at a time it takes no notice: they ask again.
WAITING_MAX = 64


class Newcomers:
    """Of one group, at its leader."""

    def __init__(self, replica: ReplicatedState) -> None:
        self._replica = replica
        self.waiting: dict[str, str] = {}
        """Who is about to get a place, by the broker, since its identity changed or it is new."""
        self.look_ms = 0
        """When `look` does something again."""

    def asked(self, member: str) -> None:
        """A broker that should hold a replica has this identity now."""
        if len(self.waiting) < WAITING_MAX:
            self.waiting[node_of(member)] = member

    def advance(self, now_ms: int) -> None:
        """Take the next step of replacing members that came back as somebody else: learn, then swap in one change."""
        if not self.waiting or now_ms < self.look_ms:
            return
        self.look_ms = now_ms + LOOK_MS
        raft = self._replica.raft
        membership = raft.membership
        if membership.is_joint or membership.index > raft.commit_index:
            return
        for node, member in list(self.waiting.items()):
            if membership.is_voter(member):
                del self.waiting[node]
                continue
            old = [voter for voter in membership.voters if node_of(voter) == node]
            stale = [
                learner for learner in membership.learners if node_of(learner) == node and learner != member
            ]
            if not old and (member in membership.learners or not self._replica.takes_learners):
                del self.waiting[node]
                continue
            learners = tuple(learner for learner in membership.learners if learner not in stale)
            if member not in membership.learners:
                change = MembershipChange(membership.index, membership.voters, (*learners, member))
            elif self._caught_up(member):
                voters = tuple(member if voter in old else voter for voter in membership.voters)
                rest = tuple(learner for learner in learners if learner != member)
                change = MembershipChange(membership.index, voters, rest, joint=True)
            else:
                continue
            refusal = raft.propose_membership(change, self._replica.leader_time_ns())
            if refusal is None and not old:
                self._replica.host.event(
                    self._replica.id, "LearnerAdded", f"{member} learns and does not vote"
                )
            elif refusal is None:
                self._replica.host.event(
                    self._replica.id,
                    "MemberReplaced",
                    f"{member} takes the place of {', '.join(old)}, which lost its data",
                )
            return

    def _caught_up(self, member: str) -> bool:
        """Does the learner have all that is committed, durably?"""
        progress = self._replica.raft.progress.get(member)
        return progress is not None and progress.match >= self._replica.raft.commit_index
