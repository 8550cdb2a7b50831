"""Carries out the voter changes of the meta group that `meta_leader/voters.py` plans.

It makes one change at a time, once the plan has been the same for long enough. It forgets brokers that are
gone for good.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from supercluster.broker.jetstream.meta_leader.absences import Absences
from supercluster.broker.jetstream.meta_leader.broker_requests import forget, forgettable, leaving
from supercluster.broker.jetstream.meta_leader.map_tail import MapTail
from supercluster.broker.jetstream.meta_leader.stream_request import NotAppendedError
from supercluster.broker.jetstream.meta_leader.voters import VoterPlan, VoterView, of_one_cluster, plan_voters
from supercluster.broker.jetstream.replica.newcomers import Newcomers
from supercluster.broker.raft.confchange import MembershipChange

# A voter that is out of contact is not replaced for so long: restarts and short cuts of the network change nothing.
VOTER_PATIENCE_MS = 60_000
# The voters that are wanted have to stay the same for so long before anything is changed: clusters come up node by node.
SETTLE_MS = 5000


class VoterUpkeep:
    def __init__(self, tail: MapTail, newcomers: Newcomers, absences: Absences) -> None:
        self._tail = tail
        self._newcomers = newcomers
        self._absences = absences
        self._wanted: VoterPlan | None = None
        self._wanted_since_ms = 0
        self._committed_before = 0

    def is_needed(self, *, is_one: bool) -> bool:
        """Does a recovered map have fewer voters than there were (SF-9)? In one cluster, do fewer vote than are to, or more?"""
        state, now = self._tail.state, len(self._tail.raft.membership.voters)
        is_short = state.recovery is not None and now < state.recovery.voters
        return is_short or (is_one and now != of_one_cluster(len(state.brokers), now))

    def look(self, now_ms: int, contact: Mapping[str, object]) -> None:
        """Take at most one step."""
        raft, state = self._tail.raft, self._tail.state
        membership = raft.membership
        # By what was committed a moment ago: whoever follows a busy leader is always a little behind.
        before, self._committed_before = self._committed_before, raft.commit_index
        if membership.is_joint or membership.index > raft.commit_index or self._newcomers.waiting:
            return
        caught_up = {raft.id}
        for member, progress in raft.progress.items():
            if progress.match >= max(before, membership.index) and not progress.doubtful:
                caught_up.add(member)
        brokers = state.brokers
        absent = {node: self._absences.ms(node, now_ms) for node in brokers}
        going = leaving(state, absent)
        plan = plan_voters(
            VoterView(
                membership,
                raft.id,
                {node: record.cluster for node, record in brokers.items()},
                contact.keys(),
                {node for node in brokers if absent[node] >= VOTER_PATIENCE_MS},
                caught_up,
                going,
                state.recovery.voters if state.recovery is not None else 0,
            )
        )
        if plan is None and going:
            self._forget(forgettable(state, going, absent))
        if plan is None or self._wanted is None or plan.voters != self._wanted.voters:
            self._wanted, self._wanted_since_ms = plan, now_ms
            return
        if now_ms - self._wanted_since_ms < SETTLE_MS:
            return
        change = MembershipChange(membership.index, plan.voters, plan.learners)
        refusal = raft.propose_membership(change, self._tail.time_ns())
        self._wanted = None
        if refusal is None:
            self._tail.event("MetaVoters", plan.why)

    def _forget(self, nodes: Collection[str]) -> None:
        try:
            forget(self._tail, nodes)
        except NotAppendedError:
            pass  # The next look tries again.
