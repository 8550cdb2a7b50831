"""What moves must never do, seen from above: checked with every committed entry, every copy dropped, every answer.

The memberships of the stream's group and the map of streams are both histories of committed entries; this follows them
in the order in which anybody applied them first, and knows nothing of how the product decides.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from tests.simulator.ledger import History
from tests.simulator.publishers import ACCOUNT
from tests.simulator.super_world import SuperWorld

from supercluster.broker.jetstream.core.agreed_clock import BOUND_NS
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.move_record import Move, MoveReport, Outcome
from supercluster.broker.jetstream.meta_leader.replica import MetaReplica
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.raft.confchange import Membership, membership_of, node_of
from supercluster.broker.raft.entry import Entry, EntryKind

# Brokers' clocks differ by so much, and the end of a grace time is read from them; where clocks step, a broker believes its own one to
# be ahead of most by no more than the bound (SF-28).
CLOCKS_MS = 1000
STEPPED_CLOCKS_MS = CLOCKS_MS + BOUND_NS // 1_000_000


class MoveOracle:
    """See the module. It follows one stream."""

    def __init__(self, world: SuperWorld, stream: str) -> None:
        self._world = world
        self._plan = world.plan
        self._key = (ACCOUNT, stream)
        self._broken = world.ledger.broken
        self.assignment: Assignment | None = None
        self.membership = Membership()
        """The newest committed one."""
        self._committed: dict[int, Membership] = {}
        self._since_us: list[tuple[int, Membership]] = []
        """When each membership was first known to be committed."""
        self._counts: set[int] = {world.plan.replicas}
        """How many voters a half of the membership may have: before the move that runs, and after it."""
        self._named: set[str] = set()
        """Every member that a move has ever named."""
        self._left_us: dict[str, int] = {}
        self._called_off: set[str] = set()
        """Copies of moves that were cancelled: what went back to the origin is all there."""
        """Former members → when the move that they left by was over."""
        self._joint_seq: int | None = None
        """The stream's last message when the joint membership of the move that runs was entered."""
        self._joined: set[str] = set()
        self.damaged: set[str] = set()
        self.moves = self.scaled = self.done = self.cancelled = 0
        self.on_turn: Callable[[], None] = lambda: None
        """The joint membership of a move was committed, or the one behind it."""
        watch_group = world.ledger.oracle.watch_group

        def watched(replica: Replica) -> None:
            watch_group(replica)
            self._copy_begun(replica)

        world.ledger.oracle.watch_group = watched  # type: ignore[method-assign]
        world.ledger.on_new = self._applied
        world.on_event = self._event
        world.on_forget = self._dropping

    @property
    def group(self) -> str:
        return self.assignment.group if self.assignment is not None else ""

    def _history(self) -> History | None:
        return self._world.ledger.groups.get(self.group)

    # ---- committed entries ----------------------------------------------------------------------------------------

    def _applied(self, node: str, replica: Replica, entry: Entry) -> None:
        if isinstance(replica, MetaReplica):
            self._map(replica.state.streams.get(self._key))
        elif replica.id == self.group and entry.kind == EntryKind.CONFIG:
            # Carried in the entry is the index of the membership before it: its own is where it stands.
            found = Membership.decode(entry.payload)
            found = Membership(
                entry.index, found.voters, found.voters_outgoing, found.learners, found.learners_next
            )
            self._change(found)

    def _map(self, found: Assignment | None) -> None:
        before, self.assignment = self.assignment, found
        if found is None or found is before:
            return
        if before is None or before.group != found.group:
            self._counts = {len(found.members)}
            self.membership = membership_of(found.members)
            self._committed = {0: self.membership}
            self._since_us = [(self._world.now_us, self.membership)]
            return
        if found.move is not None:
            self._named.update(found.move.targets)
            if before.move is None:
                self._begun(found.move, found.config.num_replicas)
            elif before.move.id != found.move.id:
                raise self._broken(
                    f"MV-3: move {found.move.id} of {found.name} began while {before.move.id} ran"
                )
        elif before.move is not None and found.last_move is not None:
            if found.last_move.outcome is Outcome.CANCELLED:
                self._called_off.update(found.last_move.joining)
            self._ended(before, found, found.last_move)

    def _begun(self, move: Move, replicas: int) -> None:
        self.moves += 1
        self.scaled += len(move.targets) != len(move.origin)
        self._counts = {len(move.origin), replicas}
        self._joint_seq, self._joined = None, set()
        nodes = {node_of(target) for target in move.targets}
        if len(nodes) != replicas or len(move.targets) != replicas:
            raise self._broken(f"MV-2: move {move.id} names {move.targets}: {replicas} members are to be had")
        if len(move.origin) != replicas and not (
            nodes <= (old := set(map(node_of, move.origin))) or nodes > old
        ):
            raise self._broken(
                f"MV-3: move {move.id} from {move.origin} to {move.targets} exchanges and scales"
            )

    def _change(self, after: Membership) -> None:
        """One membership became another."""
        before, self.membership = self.membership, after
        self._committed[after.index] = after
        self._since_us.append((self._world.now_us, after))
        text = f"membership {after.index} of {self.group}, {after}, after {before}"
        for half in (after.voters, after.voters_outgoing):
            if len(half) not in (self._counts if half is after.voters else {0, *self._counts}):
                raise self._broken(f"SF-8: {len(half)} voters instead of {sorted(self._counts)} in {text}")
        if before.is_joint:
            allowed = not after.is_joint and after.voters in (before.voters, before.voters_outgoing)
        else:
            allowed = (
                after.voters_outgoing == before.voters if after.is_joint else after.voters == before.voters
            )
        if not allowed:
            raise self._broken(f"SF-6: voters are exchanged without the word of both halves: {text}")
        places = {node_of(voter) for voter in before.all_voters}
        for member in {*after.voters, *after.learners} - {*before.all_voters, *before.learners}:
            if member not in self._named and node_of(member) not in places:
                raise self._broken(f"MV-2: {member} is taken in and no move names it: {text}")
        wrong = self.damaged & set(after.voters)
        if wrong:
            raise self._broken(
                f"MV-6: {sorted(wrong)} read other bytes than they were sent, and vote: {text}"
            )
        if after.is_joint or before.is_joint:
            self.on_turn()
        move = self.assignment.move if self.assignment is not None else None
        if (
            after.is_joint
            and move is not None
            and set(after.voters) - set(after.voters_outgoing) & self._named
        ):
            history = self._history()
            self._joint_seq = history.last_seq if history is not None else None
            self._joined = (set(after.voters) - set(after.voters_outgoing)) & self._named

    # ---- ends -----------------------------------------------------------------------------------------------------

    def _ended(self, before: Assignment, after: Assignment, report: MoveReport) -> None:
        move = before.move
        assert move is not None
        in_force = self._committed.get(report.config_index)
        text = f"move {report.id} ended {report.outcome} with {after.members} by membership {report.config_index}"
        if in_force is None or in_force.is_joint or in_force.voters != tuple(sorted(after.members)):
            raise self._broken(f"MV-7: {text}, and committed is {in_force}")
        # A new identity of a member may have come since (SF-4); another place may not.
        if {node_of(m) for m in self.membership.voters} != {node_of(m) for m in in_force.voters}:
            raise self._broken(f"MV-7: {text}, in force is {self.membership}")
        # The map may hear of it much later than the group left its old members, and counts from then on too.
        for (_, known), (left_us, _) in pairwise([*self._since_us, (self._world.now_us, in_force)]):
            for member in known.all_voters:
                if member not in after.members:
                    self._left_us[member] = max(left_us, self._left_us.get(member, 0))
        nodes = {node_of(member) for member in after.members}
        wanted = move.targets if report.outcome is Outcome.DONE else move.origin
        if nodes != {node_of(member) for member in wanted}:
            raise self._broken(f"MV-12: {text}, it was from {move.origin} to {move.targets}")
        if after.config.num_replicas != len(after.members):
            raise self._broken(f"MV-9: {text}, and {after.config.num_replicas} replicas are configured")
        self._counts = {len(after.members)}
        if report.outcome is Outcome.DONE:
            self.done += 1
            self._audited(report, text)
        else:
            self.cancelled += 1

    def _audited(self, report: MoveReport, text: str) -> None:
        """Nothing is left before all that was there at the joint membership was compared, on everyone who joined."""
        audit, equal = report.audit, {m for m, result in report.audit.results.items() if result == "equal"}
        if self._joined - equal:
            raise self._broken(
                f"MV-6: {text}, {sorted(self._joined - equal)} joined and nobody compared them"
            )
        if self._joint_seq and self._world.ledger.keeps_all and audit.last_seq < self._joint_seq:
            raise self._broken(
                f"MV-6: {text}, compared up to {audit.last_seq}; {self._joint_seq} was stored before both halves voted"
            )

    # ---- copies ---------------------------------------------------------------------------------------------------

    def _copy_begun(self, replica: Replica) -> None:
        """SF-4: a copy is named after the volume that it is on."""
        node, _, incarnation = replica.member.partition("@")
        store = self._world.nodes[node].store
        if incarnation.partition(".")[0] not in {store.incarnation, *store.unread}:
            raise self._broken(
                f"SF-4: {replica.member} of {replica.id} is begun on volume {store.incarnation}"
            )

    def _dropping(self, node: str, group: str, member: str) -> None:
        """SF-5: nobody drops a copy that is in force, nor, within the grace time, one that was."""
        found = self.assignment
        if found is None or found.group != group or self._plan.storage == "memory":
            return
        if self.membership.is_voter(member):
            raise self._broken(f"SF-5: {node} drops {member}, which votes in {group}: {self.membership}")
        renamed = any(node_of(target) == node for target in (found.move.targets if found.move else ()))
        left_us = self._left_us.get(member)
        if left_us is None or renamed or member in self._called_off:
            return  # It never voted, or gives way to a copy that a move wants here, or is of one that was called off.
        left_ms = self._plan.grace_ms - (self._world.now_us - left_us) / 1000
        if left_ms > (STEPPED_CLOCKS_MS if self._world.met["clock forwards"] else CLOCKS_MS):
            raise self._broken(f"SF-5: {node} drops {member} {left_ms:.0f} ms before its grace time is over")

    def _event(self, node: str, group: str, reason: str, text: str) -> None:
        if reason == "CopiesDiffer" and not self.damaged:
            raise self._broken(f"MV-6: nothing is wrong with any copy, and {node} says: {text}")

    # ---- what is told ---------------------------------------------------------------------------------------------

    def told(self, answer: dict[str, Any], asked_us: int) -> None:
        """MV-7: STREAM.INFO tells a membership that was in force since it was asked for, or is at a leader."""
        cluster = answer.get("cluster")
        if not cluster or not cluster.get("leader"):
            return
        names = sorted([cluster["leader"], *(replica["name"] for replica in cluster.get("replicas") or ())])
        known = [found for at_us, found in self._since_us if at_us >= asked_us]
        known += [found for at_us, found in self._since_us if at_us < asked_us][-1:]
        for node in self._world.nodes.values():
            group = node.core.groups.get(self.group) if node.core is not None else None
            if isinstance(group, StreamReplica) and group.serves:
                known.append(group.raft.membership)
        if not any(sorted(map(node_of, found.members)) == names for found in known):
            raise self._broken(
                f"MV-7: {names} are told as the members of {self.group}; in force were {known}"
            )

    # ---- the end --------------------------------------------------------------------------------------------------

    def unsettled(self) -> str:
        """What of the stream's moves is still to do; "" when nothing is."""
        found = self.assignment
        if found is None:
            return "the stream is in no map"
        if found.move is not None:
            return f"move {found.move.id} to {found.move.targets} runs, {self.membership} is in force"
        if self.membership.is_joint or self.membership.learners:
            return f"no move runs, and {self.membership} is in force"
        members = {node_of(voter) for voter in self.membership.voters}
        for name, node in self._world.nodes.items():
            core = node.core
            if core is not None and name not in members and self.group in core.store.registered():
                return f"{name} holds a copy, the members are {sorted(members)}"
        return ""
