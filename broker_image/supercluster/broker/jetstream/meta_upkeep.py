"""What the meta group's leader looks after without being asked: who votes in the group, and targets of moves that are
gone for too long.

Both go by how long a node has been out of contact with this leader. A new leader counts anew: patience is longer than
it has to be then, never shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from supercluster.broker.jetstream import meta_moves
from supercluster.broker.jetstream.meta import Assignment, replace_target
from supercluster.broker.jetstream.meta_requests import NotAppendedError
from supercluster.broker.jetstream.meta_voters import VoterPlan, VoterView, plan_voters
from supercluster.broker.jetstream.move_plan import copy_bytes
from supercluster.broker.jetstream.placement import NodeFacts, choose
from supercluster.broker.jetstream.stream_facts import EARLY_STAGES, StreamFacts
from supercluster.broker.raft.confchange import MembershipChange, node_of

if TYPE_CHECKING:
    from supercluster.broker.jetstream.meta_group import MetaGroup

UPKEEP_EVERY_MS = 1000
# A voter that is out of contact is not replaced for so long: restarts and short cuts of the network change nothing.
VOTER_PATIENCE_MS = 60_000
# A target of a move that is out of contact for so long is replaced by another node, while no new member votes yet.
TARGET_PATIENCE_MS = 60_000
# The voters that are wanted have to stay the same for so long before anything is changed: clusters come up node by node.
SETTLE_MS = 5000
# Copies that were told to be lost and are remembered: each is told again every second.
COPIES_LOST_MAX = 4096


class Upkeep:
    """The leader's; made when it begins to serve, dropped when it stops."""

    def __init__(self, group: MetaGroup, now_ms: int) -> None:
        self._group = group
        self._absent_since_ms: dict[str, int] = {}
        self._due_ms = now_ms
        self._is_needed = False
        self._wanted: VoterPlan | None = None
        self._wanted_since_ms = 0
        self._committed_before = 0
        self._asking: set[str] = set()
        self._copies_lost: set[str] = set()
        self._told: set[tuple[str, str]] = set()
        """(move, target) whose waiting was said."""

    def turn(self, now_ms: int, nodes: Callable[[str], Mapping[str, NodeFacts]]) -> None:
        """Look, and take at most one step of each kind."""
        contact = self._group.host.brokers_in_contact()
        state = self._group.end
        for node in state.brokers:
            if node in contact:
                self._absent_since_ms.pop(node, None)
            else:
                self._absent_since_ms.setdefault(node, now_ms)
        # In a single cluster without moves nothing changes with time.
        self._is_needed = bool(state.moving) or len({r.cluster for r in state.brokers.values()}) > 1
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + UPKEEP_EVERY_MS
        self._keep_voters(now_ms, contact)
        for key in sorted(state.moving):
            self._keep_targets(state.streams[key], now_ms, nodes)

    def copy_lost(self, member: str) -> None:
        """A copy is gone with all that it had: a target of a move can never be that member again (SF-4)."""
        if len(self._copies_lost) < COPIES_LOST_MAX:
            self._copies_lost.add(member)

    def deadline_ms(self) -> int | None:
        return self._due_ms if self._is_needed else None

    def absent_ms(self, node: str, now_ms: int) -> int:
        """For how long this leader has not been in contact with the node."""
        return now_ms - self._absent_since_ms.get(node, now_ms)

    # ---- voters ---------------------------------------------------------------------------------------------------

    def _keep_voters(self, now_ms: int, contact: Mapping[str, object]) -> None:
        group, raft = self._group, self._group.raft
        membership = raft.membership
        # By what was committed a moment ago: whoever follows a busy leader is always a little behind.
        before, self._committed_before = self._committed_before, raft.commit_index
        if membership.is_joint or membership.index > raft.commit_index or group.is_taking_in:
            return
        caught_up = {group.member}
        for member, progress in raft.progress.items():
            if progress.match >= max(before, membership.index) and not progress.doubtful:
                caught_up.add(member)
        brokers = group.end.brokers
        plan = plan_voters(
            VoterView(
                membership,
                group.member,
                {node: record.cluster for node, record in brokers.items()},
                contact.keys(),
                {node for node in brokers if self.absent_ms(node, now_ms) >= VOTER_PATIENCE_MS},
                caught_up,
            )
        )
        if plan is None or self._wanted is None or plan.voters != self._wanted.voters:
            self._wanted, self._wanted_since_ms = plan, now_ms
            return
        if now_ms - self._wanted_since_ms < SETTLE_MS:
            return
        change = MembershipChange(membership.index, plan.voters, plan.learners)
        refusal = raft.propose_membership(change, group.leader_time_ns())
        self._wanted = None
        if refusal is None:
            group.host.event(group.id, "MetaVoters", plan.why)

    # ---- targets of moves -----------------------------------------------------------------------------------------

    def _keep_targets(
        self, found: Assignment, now_ms: int, nodes: Callable[[str], Mapping[str, NodeFacts]]
    ) -> None:
        assert found.move is not None
        if found.move.cancelled:
            return
        lost = [target for target in found.move.joining if self._is_lost(target, now_ms)]
        if not lost or found.group in self._asking or len(self._asking) >= 64:
            return
        self._asking.add(found.group)
        move_id = found.move.id

        def answered(facts: StreamFacts | None) -> None:
            self._asking.discard(found.group)
            if self._group.upkeep is self:
                for target in lost:
                    self._replace(found.group, move_id, target, facts, nodes(found.config.storage))
                self._group.host.touch(self._group.id)

        self._group.host.ask_stream(found, answered)

    def _is_lost(self, target: str, now_ms: int) -> bool:
        """Out of contact for too long; or without its data, so that it can never be this member (SF-4)."""
        if target in self._copies_lost:
            return True
        node, _, incarnation = target.partition("@")
        record = self._group.end.brokers.get(node)
        if record is None:
            return True
        if self.absent_ms(node, now_ms) >= TARGET_PATIENCE_MS:
            return True
        return incarnation.partition(".")[0] != record.incarnation

    def _replace(
        self, group_id: str, move_id: str, old: str, facts: StreamFacts | None, known: Mapping[str, NodeFacts]
    ) -> None:
        """Have another node join in place of the lost target; once new members vote the stream's group alone decides."""
        group = self._group
        state = group.end
        found = state.by_group(group_id)
        if found is None or found.move is None or found.move.id != move_id or old not in found.move.targets:
            return
        if facts is None:
            self._say(found, old, "the stream's leader does not answer")
            return
        if facts.stage not in EARLY_STAGES or any(m.member == old and m.is_voter for m in facts.members):
            self._say(
                found, old, f"the move is at stage {facts.stage or 'unknown'}, too late for another node"
            )
            return
        taken = {
            node_of(m): "takes part in the move already" for m in (*found.move.targets, *found.move.origin)
        }
        lost_node = node_of(old)
        if lost_node in known and known[lost_node].in_contact:
            del taken[lost_node]  # With its other volume the same node will do.
        home = meta_moves.home_cluster([node_of(m) for m in found.move.targets], known)
        wanted = meta_moves.wanted_of(found.config, home, copy_bytes(facts), taken)
        choice = choose(known.values(), meta_moves.one_of(wanted, lost_node))
        if choice.refusal:
            self._say(found, old, choice.refusal)
            return
        node = choice.nodes[0]
        new = f"{node}@{state.brokers[node].incarnation}.{group.host.new_token()}"
        try:
            group.propose(replace_target(found, move_id, old, new))
        except NotAppendedError:
            return
        self._copies_lost.discard(old)
        group.host.event(
            group_id,
            "MoveTargetReplaced",
            f"{new} joins stream {found.name} in place of {old}, which is gone",
        )

    def _say(self, found: Assignment, target: str, why: str) -> None:
        assert found.move is not None
        if (found.move.id, target) in self._told or len(self._told) >= 1024:
            return
        self._told.add((found.move.id, target))
        self._group.host.event(
            found.group,
            "MoveWaits",
            f"the move of stream {found.name} waits for {target}, which is gone: {why}",
        )
