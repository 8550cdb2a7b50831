"""One seeded run of a super-cluster whose stream moves: the weather of single brokers, and that of whole clusters.

Beyond what holds in a single cluster: a move ends or is cancelled once the weather has cleared, the members that are told
are those in force, and when the grace time is over nobody else holds a copy (`move_oracle`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.simulator.ledger import MAIN
from tests.simulator.move_oracle import MoveOracle
from tests.simulator.moves import Movers
from tests.simulator.plan import Plan
from tests.simulator.scenario import WEATHER_PART, Scenario
from tests.simulator.super_plan import SuperPlan, draw_super
from tests.simulator.super_world import SuperWorld
from tests.simulator.weather import Weather
from tests.simulator.world import World

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.raft.confchange import Membership, node_of

BAD_COPY_PART = 0.4


class SuperWeather(Weather):
    """Faults of whole clusters, and of the brokers that a stream moves to."""

    def __init__(
        self, world: SuperWorld, plan: SuperPlan, step_down: Callable[[], None], oracle: MoveOracle
    ) -> None:
        super().__init__(world, plan, step_down)
        # Whom a move strikes is killed whatever others lack.
        self.rare = replace(self.rare, no_boot_id=False)
        self._clusters = plan.clusters
        self._oracle = oracle
        self._acts |= {"cut_cluster": self._cut_cluster, "target": self._strike_target}

    def _cut_cluster(self) -> None:
        """A cluster is cut off from the others, or from one of them."""
        world = self.world
        one = self.rng.choice(self._clusters)
        others = [name for name in self._clusters if name != one]
        away = others if self.rng.random() < 0.6 else [self.rng.choice(others)]
        for here in world.names:
            for there in world.names:
                if world.cluster_of[here] == one and world.cluster_of[there] in away:
                    world.cut(here, there)
        world.note(f"cluster {one} is cut off from {', '.join(away)}")
        world.at(200 + self.rng.random() * 4000, world.mend)

    def _strike_target(self) -> None:
        """A broker that a copy is on its way to: killed, or slow for a while."""
        move = self._oracle.assignment.move if self._oracle.assignment is not None else None
        up = [
            node
            for m in (move.joining if move is not None else ())
            if self.world.nodes[node := node_of(m)].up
        ]
        if not up:
            return
        node = self.rng.choice(up)
        if self.rng.random() < 0.6 and self.may_lose_data(node):
            if self.rng.random() < 0.4:
                self._without_volume(node)
            else:
                self.world.stop(node, power=False)
            self._restart_soon(node)
        else:
            self.world.nodes[node].slow_until_us = self.world.now_us + int(self.rng.random() * 3_000_000)

    def _is_whole(self, name: str) -> bool:
        """As in a single cluster; by the memberships in force, which moves and the meta group's upkeep change."""
        node = self.world.nodes[name]
        core = node.core
        if node.crash_with_power and node.store.disk.will_crash:
            return False
        if core is None or core.meta is None or not core.map.is_fresh:
            return False
        ids = {group for known in self._cores() for group in known.groups}
        return all(self._has_all(name, core.groups.get(group_id), group_id) for group_id in ids)

    def _cores(self) -> list[BrokerCore]:
        return [node.core for node in self.world.nodes.values() if node.core is not None]

    def _has_all(self, name: str, replica: Replica | None, group_id: str) -> bool:
        """Is a broker the sure member that anybody who may lead a group knows it as?"""
        history = self.world.ledger.groups.get(group_id)
        known: list[Membership] = []
        for core in self._cores():
            found = core.groups.get(group_id)
            if found is not None:
                known += [found.raft.membership, found.raft.committed_membership]
        named = {member for found in known for member in found.members if node_of(member) == name}
        if not named and replica is None:
            return True
        if replica is None or replica.failed is not None or replica.raft.doubtful:
            return False
        if history is not None and replica.applied_index < history.last_index:
            return False
        return named == {replica.member}


class SuperScenario(Scenario):
    """See the module."""

    plan: SuperPlan
    world: SuperWorld

    def _draw(self, rng: random.Random) -> Plan:
        return draw_super(rng)

    def _changes_fsync(self, seed: int) -> bool:
        return False  # Its updates of the stream move it.

    def _new_world(self, seed: int, rng: random.Random) -> World:
        world = SuperWorld(seed, self.plan, rng)
        self.oracle = MoveOracle(world, MAIN)
        return world

    def _new_weather(self) -> Weather:
        self.movers = Movers(self.world, self.oracle, MAIN, self._ask)
        return SuperWeather(self.world, self.plan, self._step_down, self.oracle)

    def _ask(self, subject: str, body: Any, done: Callable[[dict[str, Any]], None]) -> None:
        self.request(self.rng.choice(self.world.names), subject, body, done)

    def run(self) -> None:
        """All of it; raises `InvariantBrokenError` when a promise does not hold."""
        self.movers.start(self.seconds * 1000 * WEATHER_PART)
        if self.plan.bad_copies:
            self._spoil_copies()
        super().run()

    def _spoil_copies(self) -> None:
        """Some copies that join read wrong from the start: the same ones after every restart."""
        ledger, watch = self.world.ledger, self.world.ledger.oracle.watch_group
        drawn: set[str] = set()

        def watched(replica: Replica) -> None:
            watch(replica)
            if not isinstance(replica, StreamReplica) or replica.assignment.name != MAIN:
                return
            history = ledger.groups.get(replica.id)
            move = replica.assignment.move
            if replica.member not in drawn and move is not None and replica.member in move.joining:
                drawn.add(replica.member)
                if history is not None and history.last_seq and self.rng.random() < BAD_COPY_PART:
                    self.oracle.damaged.add(replica.member)
            if replica.member in self.oracle.damaged:
                self.world.damage(replica)

        ledger.oracle.watch_group = watched  # type: ignore[method-assign]

    def _replicas_wanted(self) -> int:
        found = self.oracle.assignment
        return found.config.num_replicas if found is not None else self.plan.replicas

    def _unsettled(self) -> str:
        return super()._unsettled() or self.oracle.unsettled()
