"""Targets of moves that are gone for too long, or make no progress.

The meta group's leader replaces them by other nodes, or calls the move off if no node fits.
"""

from __future__ import annotations

from collections.abc import Mapping

from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.leaderless_moves import waits_for
from supercluster.broker.jetstream.meta.operations import cancel_move, replace_target
from supercluster.broker.jetstream.meta_leader.absences import Absences
from supercluster.broker.jetstream.meta_leader.candidates import Candidates
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.map_tail import MapTail
from supercluster.broker.jetstream.meta_leader.moves import home_cluster, one_of, wanted_of
from supercluster.broker.jetstream.meta_leader.stream_request import NotAppendedError
from supercluster.broker.jetstream.placement.choice import Choice, NodeFacts, choose
from supercluster.broker.jetstream.placement.dry_run import copy_bytes
from supercluster.broker.jetstream.placement.stream_facts import EARLY_STAGES, StreamFacts
from supercluster.broker.raft.confchange import node_of

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
# Why a target is replaced whose broker said that it goes.
LEAVES = "its broker leaves the super-cluster"
# Sentences that are remembered as said, of all moves that run.
TOLD_MAX = 1024


class MoveTargets:
    def __init__(self, tail: MapTail, host: MetaHost, candidates: Candidates, absences: Absences) -> None:
        self._tail = tail
        self._host = host
        self._candidates = candidates
        self._absences = absences
        self._asking: set[str] = set()
        self._copies_lost: set[str] = set()
        """Targets of moves that run whose copies are gone: each is told again every second."""
        self._told: set[tuple[str, str]] = set()
        """(move, target) whose waiting was said."""
        self._asked_ms: dict[str, int] = {}
        self._in_vain_ms: dict[tuple[str, str], int] = {}
        """(move, target) → since when nobody fits in its place."""
        self._silent_ms: dict[str, int] = {}
        """Move → since when its stream's leader does not answer."""

    def close(self) -> None:
        """This replica does not lead any more: answers come too late."""
        self._asking.clear()

    def copy_lost(self, group_id: str, member: str) -> None:
        """A copy is gone with all that it had: a target of a move can never be that member again (SF-4). Of others nothing
        is remembered: every restart of a broker with copies in memory makes new ones."""
        found = self._tail.state.by_group(group_id)
        if found is not None and found.move is not None and member in found.move.joining:
            self._copies_lost.add(member)

    def look(self, now_ms: int) -> None:
        """Look at every move that runs."""
        state = self._tail.state
        moving = [state.streams[key] for key in sorted(state.moving)]
        ids = {found.move.id for found in moving if found.move is not None}
        groups = {found.group for found in moving}
        self._asked_ms = {group: at for group, at in self._asked_ms.items() if group in groups}
        self._in_vain_ms = {key: at for key, at in self._in_vain_ms.items() if key[0] in ids}
        self._silent_ms = {move_id: at for move_id, at in self._silent_ms.items() if move_id in ids}
        self._candidates.forget_moves(ids)
        self._told = {key for key in self._told if key[0] in ids}
        self._copies_lost &= {m for found in moving if found.move is not None for m in found.move.joining}
        for found in moving:
            self._look_at(found, now_ms)

    def _look_at(self, found: Assignment, now_ms: int) -> None:
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
            if found.group in self._asking:
                self._asking.discard(found.group)
                self._answered(found.group, move_id, facts)
                self._tail.touch()

        self._host.ask_stream(found, answered)

    def _answered(
        self,
        group_id: str,
        move_id: str,
        facts: StreamFacts | None,
    ) -> None:
        """What the stream's leader said of its move."""
        found, now_ms = self._tail.state.by_group(group_id), self._host.clock.monotonic_ms()
        if found is None or found.move is None or found.move.id != move_id or found.move.cancelled:
            return
        if facts is not None:
            self._candidates.lacking[move_id] = facts.lacking
            self._silent_ms.pop(move_id, None)
        elif now_ms - self._silent_ms.setdefault(move_id, now_ms) >= TARGET_PATIENCE_MS:
            self._say_silent(found, move_id)
        stuck = facts.stuck if facts is not None else {}
        for target in found.move.joining:
            # What is kept for this very move is for whomever comes instead.
            known = self._candidates.facts(found.config.storage, without=group_id)
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
        if node in self._tail.state.leaving:
            return LEAVES
        record = self._tail.state.brokers.get(node)
        is_lost = (
            target in self._copies_lost
            or record is None
            or self._absences.ms(node, now_ms) >= TARGET_PATIENCE_MS
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
        state = self._tail.state
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
            reason = f"{old} could not join: {why}, and no other broker can: {choice.refusal}"
            self._give_up(found, old, reason, patience_ms)
            return
        node = choice.nodes[0]
        new = f"{node}@{state.brokers[node].incarnation}.{self._host.new_token()}"
        try:
            self._tail.propose(replace_target(found, move_id, old, new))
        except NotAppendedError:
            return
        self._copies_lost.discard(old)
        self._host.event(
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
        home = home_cluster([node_of(m) for m in move.targets], known)
        is_there = lost_node in known and known[lost_node].in_contact
        if is_stuck:
            taken[lost_node] = "was tried without success"
        elif is_there:
            del taken[lost_node]
        wanted = wanted_of(found.config, home, copy_bytes(facts), taken)
        choice = choose(known.values(), one_of(wanted, lost_node))
        tried = sum(1 for member in move.replaced if node_of(member) == lost_node)
        if choice.refusal and is_stuck and is_there and tried < SAME_NODE_MAX:
            del taken[lost_node]
            again = wanted_of(found.config, home, copy_bytes(facts), taken)
            choice = choose(known.values(), one_of(again, lost_node))
        return choice

    def _give_up(self, found: Assignment, target: str, why: str, patience_ms: int) -> None:
        """Call the move off when it waited long enough for somebody to fit: nothing is lost by it, the origin serves."""
        assert found.move is not None
        now_ms = self._host.clock.monotonic_ms()
        since_ms = self._in_vain_ms.setdefault((found.move.id, target), now_ms)
        if now_ms - since_ms < patience_ms:
            return
        reason = f"waited {patience_ms // 1000} s: {why}" if patience_ms else why
        try:
            self._tail.propose(cancel_move(found, found.move.id, reason))
        except NotAppendedError:
            return
        self._host.event(
            found.group, "MoveGivenUp", f"the move of stream {found.name} is called off: {reason}"
        )

    def _say_silent(self, found: Assignment, move_id: str) -> None:
        """Nobody leads the stream: in the joint membership it needs a majority of the old members and one of the new ones,
        and no one else can decide for them (SF-6)."""
        if (move_id, "") in self._told or len(self._told) >= TOLD_MAX:
            return
        self._told.add((move_id, ""))
        assert found.move is not None
        self._host.event(
            found.group,
            "MoveWaits",
            waits_for(found, self._host.brokers_in_contact(), TARGET_PATIENCE_MS),
        )

    def _say(self, found: Assignment, target: str, what: str, why: str) -> None:
        assert found.move is not None
        if (found.move.id, target) in self._told or len(self._told) >= TOLD_MAX:
            return
        self._told.add((found.move.id, target))
        self._host.event(
            found.group,
            "MoveWaits",
            f"the move of stream {found.name} waits for {target} ({what}), and no other broker can take its place: {why}",
        )
