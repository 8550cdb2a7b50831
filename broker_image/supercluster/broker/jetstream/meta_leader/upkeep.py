"""What the meta group's leader looks after without being asked: who votes in the group, and targets of moves that are
gone for too long.

Both go by how long a node has been out of contact with this leader. A new leader counts anew: patience is longer than
it has to be then, never shorter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from supercluster.broker.jetstream.meta.leaderless_moves import waits_for
from supercluster.broker.jetstream.meta.move_record import Move
from supercluster.broker.jetstream.meta.operations import cancel_move, note_away, replace_target
from supercluster.broker.jetstream.meta.state import Assignment
from supercluster.broker.jetstream.meta_leader import brokers as meta_brokers
from supercluster.broker.jetstream.meta_leader import moves as meta_moves
from supercluster.broker.jetstream.meta_leader.confirmation import Confirming
from supercluster.broker.jetstream.meta_leader.failed_copies import CopyReports
from supercluster.broker.jetstream.meta_leader.regrow import Regrow
from supercluster.broker.jetstream.meta_leader.requests import NotAppendedError
from supercluster.broker.jetstream.meta_leader.voters import VoterPlan, VoterView, of_one_cluster, plan_voters
from supercluster.broker.jetstream.placement.choice import Choice, NodeFacts, choose
from supercluster.broker.jetstream.placement.dry_run import copy_bytes
from supercluster.broker.jetstream.placement.stream_facts import EARLY_STAGES, StreamFacts
from supercluster.broker.raft.confchange import MembershipChange, node_of

if TYPE_CHECKING:
    from supercluster.broker.jetstream.meta_leader.replica import MetaReplica

UPKEEP_EVERY_MS = 1000
# A voter that is out of contact is not replaced for so long: restarts and short cuts of the network change nothing.
VOTER_PATIENCE_MS = 60_000
# A target of a move that is out of contact for so long is replaced by another node, while no new member votes yet.
TARGET_PATIENCE_MS = 60_000
# So often the leader of a stream that moves is asked how its targets come on.
MOVE_LOOK_MS = 10_000
# Streams that are asked at a time; the others have their turn with the next look.
ASKED_MAX = 64
# A move that waits for so long for a target in whose place nobody fits is called off, while no new member votes.
GIVE_UP_MS = 600_000
# A broker is given another copy in place of one that made no headway, where nobody else fits; so often in one move.
SAME_NODE_MAX = 2
# A broker that is out of contact for so long is noted in the map with the time since when; a link that breaks and is made
# again at once is not worth two entries.
AWAY_NOTED_MS = 5000
# Why a target is replaced whose broker said that it goes.
LEAVES = "its broker leaves the super-cluster"
# The voters that are wanted have to stay the same for so long before anything is changed: clusters come up node by node.
SETTLE_MS = 5000
# Sentences that are remembered as said, of all moves that run.
TOLD_MAX = 1024


class Upkeep:
    """The leader's; made when it begins to serve, dropped when it stops."""

    def __init__(self, group: MetaReplica, now_ms: int) -> None:
        self._group = group
        self._absent_since_ms: dict[str, int] = {}
        self._due_ms = now_ms
        self._is_needed = False
        self._wanted: VoterPlan | None = None
        self._wanted_since_ms = 0
        self._committed_before = 0
        self._asking: set[str] = set()
        self._copies_lost: set[str] = set()
        """Targets of moves that run whose copies are gone: each is told again every second."""
        self._regrow = Regrow(group)
        self._confirming = Confirming(group)
        self._told: set[tuple[str, str]] = set()
        """(move, target) whose waiting was said."""
        self._asked_ms: dict[str, int] = {}
        self._in_vain_ms: dict[tuple[str, str], int] = {}
        """(move, target) → since when nobody fits in its place."""
        self._silent_ms: dict[str, int] = {}
        """Move → since when its stream's leader does not answer."""
        self._lacking: dict[str, dict[str, int]] = {}
        """Move → bytes that each of its new copies lacked when the stream's leader was asked."""
        self.copies = CopyReports(group, now_ms)

    def turn(self, now_ms: int) -> None:
        """Look, and take at most one step of each kind."""
        contact = self._group.host.brokers_in_contact()
        state = self._group.end
        for node in state.brokers:
            if node in contact:
                was_away_ms = now_ms - self._absent_since_ms.pop(node, now_ms)
                if node in state.leaving and was_away_ms >= meta_brokers.BACK_MS:
                    self._group.people.came_back(node)
            else:
                self._absent_since_ms.setdefault(node, now_ms)
        for node in self._absent_since_ms.keys() - state.brokers.keys():
            del self._absent_since_ms[node]
        # In a single cluster without moves nothing changes with time, while all are there who belong to it.
        is_one = len({record.cluster for record in state.brokers.values()}) < 2
        watched = state.moving or state.short or state.leaving or state.away or self._absent_since_ms
        recovered = bool(state.unconfirmed) or self._is_short() or self._has_other_voters(is_one=is_one)
        self._is_needed = bool(watched) or self.copies.is_needed or not is_one or recovered
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + UPKEEP_EVERY_MS
        self._note_away(now_ms, contact)
        self.copies.advance(now_ms, contact)
        self._keep_voters(now_ms, contact)
        moving = [state.streams[key] for key in sorted(state.moving)]
        ids = {found.move.id for found in moving if found.move is not None}
        groups = {found.group for found in moving}
        self._asked_ms = {group: at for group, at in self._asked_ms.items() if group in groups}
        self._in_vain_ms = {key: at for key, at in self._in_vain_ms.items() if key[0] in ids}
        self._silent_ms = {move_id: at for move_id, at in self._silent_ms.items() if move_id in ids}
        self._lacking = {move_id: left for move_id, left in self._lacking.items() if move_id in ids}
        self._told = {key for key in self._told if key[0] in ids}
        joining = {member for found in moving if found.move is not None for member in found.move.joining}
        self._copies_lost &= joining
        for found in moving:
            self._keep_targets(found, now_ms)
        for key in sorted(state.short):
            self._regrow.look(state.streams[key])
        for key in sorted(state.unconfirmed):
            self._confirming.look(state.streams[key])

    def _is_short(self) -> bool:
        """Does a recovered map have fewer voters than there were (SF-9)?"""
        recovery = self._group.end.recovery
        return recovery is not None and len(self._group.raft.membership.voters) < recovery.voters

    def _has_other_voters(self, *, is_one: bool) -> bool:
        """In one cluster, do fewer vote than are to, or more?"""
        now = len(self._group.raft.membership.voters)
        return is_one and now != of_one_cluster(len(self._group.end.brokers), now)

    def still_to_come(self, move: Move, target: str) -> int:
        """Bytes that a new copy will still take, as far as anybody said."""
        return self._lacking.get(move.id, {}).get(target, move.copy_bytes)

    def copy_lost(self, group_id: str, member: str) -> None:
        """A copy is gone with all that it had: a target of a move can never be that member again (SF-4). Of others nothing
        is remembered: every restart of a broker with copies in memory makes new ones."""
        found = self._group.end.by_group(group_id)
        if found is not None and found.move is not None and member in found.move.joining:
            self._copies_lost.add(member)

    def deadline_ms(self) -> int | None:
        return self._due_ms if self._is_needed else None

    def absent_ms(self, node: str, now_ms: int) -> int:
        """For how long this leader has not been in contact with the node."""
        return now_ms - self._absent_since_ms.get(node, now_ms)

    def _note_away(self, now_ms: int, contact: Mapping[str, object]) -> None:
        """Write down who is out of contact since when, and who is back. What an earlier leader wrote stands: this one has
        missed the broker for less long than it has been away."""
        group = self._group
        for node, record in list(group.end.brokers.items()):
            absent_ms = self.absent_ms(node, now_ms)
            try:
                if node in contact and node in group.end.away:
                    group.propose(note_away(record, 0))
                elif absent_ms >= AWAY_NOTED_MS and node not in group.end.away:
                    since_ns = group.leader_time_ns() - absent_ms * 1_000_000
                    group.propose(note_away(record, max(1, since_ns)))
            except NotAppendedError:
                return  # The next look tries again.

    # ---- voters ---------------------------------------------------------------------------------------------------

    def _keep_voters(self, now_ms: int, contact: Mapping[str, object]) -> None:
        group, raft = self._group, self._group.raft
        membership = raft.membership
        # By what was committed a moment ago: whoever follows a busy leader is always a little behind.
        before, self._committed_before = self._committed_before, raft.commit_index
        if membership.is_joint or membership.index > raft.commit_index or group.newcomers.waiting:
            return
        caught_up = {group.member}
        for member, progress in raft.progress.items():
            if progress.match >= max(before, membership.index) and not progress.doubtful:
                caught_up.add(member)
        brokers = group.end.brokers
        absent = {node: self.absent_ms(node, now_ms) for node in brokers}
        going = meta_brokers.leaving(group.end, absent)
        plan = plan_voters(
            VoterView(
                membership,
                group.member,
                {node: record.cluster for node, record in brokers.items()},
                contact.keys(),
                {node for node in brokers if absent[node] >= VOTER_PATIENCE_MS},
                caught_up,
                going,
                group.end.recovery.voters if group.end.recovery is not None else 0,
            )
        )
        if plan is None and going:
            self._forget(meta_brokers.forgettable(group.end, going, absent))
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

    def _forget(self, nodes: Collection[str]) -> None:
        try:
            meta_brokers.forget(self._group, self._group.raft.membership, nodes)
        except NotAppendedError:
            pass  # The next look tries again.

    # ---- targets of moves -----------------------------------------------------------------------------------------

    def _keep_targets(self, found: Assignment, now_ms: int) -> None:
        """Ask the stream's leader when somebody is lost, and now and then whether somebody is stuck: what is wrong with a
        replica whose broker is linked, only its leader sees."""
        assert found.move is not None
        if found.move.cancelled:
            return
        is_lost = any(self._why_lost(target, now_ms) for target in found.move.joining)
        is_due = is_lost or now_ms - self._asked_ms.setdefault(found.group, now_ms) >= MOVE_LOOK_MS
        if not is_due or found.group in self._asking or len(self._asking) >= ASKED_MAX:
            return
        self._asking.add(found.group)
        self._asked_ms[found.group] = now_ms
        move_id = found.move.id

        def answered(facts: StreamFacts | None) -> None:
            self._asking.discard(found.group)
            if self._group.upkeep is self:
                self._answered(found.group, move_id, facts)
                self._group.host.touch(self._group.id)

        self._group.host.ask_stream(found, answered)

    def _answered(
        self,
        group_id: str,
        move_id: str,
        facts: StreamFacts | None,
    ) -> None:
        """What the stream's leader said of its move."""
        found, now_ms = self._group.end.by_group(group_id), self._group.host.clock.monotonic_ms()
        if found is None or found.move is None or found.move.id != move_id or found.move.cancelled:
            return
        if facts is not None:
            self._lacking[move_id] = facts.lacking
            self._silent_ms.pop(move_id, None)
        elif now_ms - self._silent_ms.setdefault(move_id, now_ms) >= TARGET_PATIENCE_MS:
            self._say_silent(found, move_id)
        stuck = facts.stuck if facts is not None else {}
        for target in found.move.joining:
            # What is kept for this very move is for whomever comes instead.
            known = self._group.nodes(found.config.storage, without=group_id)
            if why := self._why_lost(target, now_ms):
                self._replace(group_id, move_id, target, facts, known, why=why)
            elif target in stuck:
                self._replace(group_id, move_id, target, facts, known, why=stuck[target], is_stuck=True)
            else:
                self._in_vain_ms.pop((move_id, target), None)

    def _why_lost(self, target: str, now_ms: int) -> str:
        """Empty: it is not. Out of contact for too long; or without its data, so that it can never be this member (SF-4);
        or on a broker that goes for good, however well it is."""
        node, _, incarnation = target.partition("@")
        if node in self._group.end.leaving:
            return LEAVES
        record = self._group.end.brokers.get(node)
        is_lost = (
            target in self._copies_lost
            or record is None
            or self.absent_ms(node, now_ms) >= TARGET_PATIENCE_MS
            or incarnation.partition(".")[0] != record.incarnation
        )
        return "it is gone" if is_lost else ""

    def _replace(
        self,
        group_id: str,
        move_id: str,
        old: str,
        facts: StreamFacts | None,
        known: Mapping[str, NodeFacts],
        *,
        why: str,
        is_stuck: bool = False,
    ) -> None:
        """Have another node join in place of a target that is lost or stuck, and why; once new members vote the stream's group
        alone decides."""
        group = self._group
        state = group.end
        found = state.by_group(group_id)
        if found is None or found.move is None or found.move.id != move_id or old not in found.move.targets:
            return
        if facts is None:
            self._say(found, old, why, "the stream's leader does not answer")
            return
        if facts.stage not in EARLY_STAGES or any(m.member == old and m.is_voter for m in facts.members):
            late = f"the move is at stage {facts.stage or 'unknown'}, too late for another node"
            self._say(found, old, why, late)
            return
        choice = self._choose(found, old, facts, known, is_stuck=is_stuck)
        if choice.refusal:
            # A broker that leaves is well: while others are waited for, the move would end on it.
            patience_ms = 0 if why == LEAVES else GIVE_UP_MS
            if patience_ms:
                self._say(found, old, why, choice.refusal)
            reason = f"{old} could not join: {why}, and nobody else can: {choice.refusal}"
            self._give_up(found, old, reason, patience_ms)
            return
        node = choice.nodes[0]
        new = f"{node}@{state.brokers[node].incarnation}.{group.host.new_token()}"
        try:
            group.propose(replace_target(found, move_id, old, new))
        except NotAppendedError:
            return
        self._copies_lost.discard(old)
        group.host.event(
            group_id, "MoveTargetReplaced", f"{new} joins stream {found.name} in place of {old}: {why}"
        )

    def _choose(
        self,
        found: Assignment,
        old: str,
        facts: StreamFacts,
        known: Mapping[str, NodeFacts],
        *,
        is_stuck: bool,
    ) -> Choice:
        """A node in place of a target's. With another volume, or another copy, the same node will do for one that is
        lost; for one that is stuck only where nobody else fits, and not for ever."""
        move = found.move
        assert move is not None
        taken = {node_of(m): "takes part in the move already" for m in (*move.targets, *move.origin)}
        lost_node = node_of(old)
        home = meta_moves.home_cluster([node_of(m) for m in move.targets], known)
        is_there = lost_node in known and known[lost_node].in_contact
        if is_stuck:
            taken[lost_node] = "was tried in vain"
        elif is_there:
            del taken[lost_node]
        wanted = meta_moves.wanted_of(found.config, home, copy_bytes(facts), taken)
        choice = choose(known.values(), meta_moves.one_of(wanted, lost_node))
        tried = sum(1 for member in move.replaced if node_of(member) == lost_node)
        if choice.refusal and is_stuck and is_there and tried < SAME_NODE_MAX:
            del taken[lost_node]
            again = meta_moves.wanted_of(found.config, home, copy_bytes(facts), taken)
            choice = choose(known.values(), meta_moves.one_of(again, lost_node))
        return choice

    def _give_up(self, found: Assignment, target: str, why: str, patience_ms: int) -> None:
        """Call the move off when it waited long enough for somebody to fit: nothing is lost by it, the origin serves."""
        assert found.move is not None
        now_ms = self._group.host.clock.monotonic_ms()
        since_ms = self._in_vain_ms.setdefault((found.move.id, target), now_ms)
        if now_ms - since_ms < patience_ms:
            return
        reason = f"waited {patience_ms // 1000} s: {why}" if patience_ms else why
        try:
            self._group.propose(cancel_move(found, found.move.id, reason))
        except NotAppendedError:
            return
        self._group.host.event(
            found.group, "MoveGivenUp", f"the move of stream {found.name} is called off: {reason}"
        )

    def _say_silent(self, found: Assignment, move_id: str) -> None:
        """Nobody leads the stream: in the joint membership it needs a majority of the old members and one of the new ones,
        and no one else can decide for them (SF-6)."""
        if (move_id, "") in self._told or len(self._told) >= TOLD_MAX:
            return
        self._told.add((move_id, ""))
        assert found.move is not None
        self._group.host.event(
            found.group,
            "MoveWaits",
            waits_for(found, self._group.host.brokers_in_contact(), TARGET_PATIENCE_MS),
        )

    def _say(self, found: Assignment, target: str, what: str, why: str) -> None:
        assert found.move is not None
        if (found.move.id, target) in self._told or len(self._told) >= TOLD_MAX:
            return
        self._told.add((found.move.id, target))
        self._group.host.event(
            found.group,
            "MoveWaits",
            f"the move of stream {found.name} waits for {target} ({what}), and nobody comes instead: {why}",
        )
