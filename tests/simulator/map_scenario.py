"""One seeded run in which the map of streams loses its majority and a person forces its recovery (RP-8, SF-9).

Most voters of the meta group are killed, destroyed, or cut off with clients of their own, after the one that is left was behind
for a while in some runs. All the time somebody creates streams, deletes them, changes a configuration and has copies moved. A
person forces the one that is left: with a floor that is too high, at two brokers at once, while brokers die in the middle; in
some runs on both sides of a partition. Then the others return. `map_recoveries` says what may be lost.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from tests.simulator.ledger import MAIN
from tests.simulator.plan import Plan
from tests.simulator.publishers import ACCOUNT
from tests.simulator.recover_scenario import RecoverScenario, draw_recovery
from tests.simulator.scenario import _view
from tests.simulator.world import World

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.raft.confchange import node_of

# Until the last fault somebody changes the map at about this pace.
CHANGE_MS = 900.0


class MapScenario(RecoverScenario):
    """See the module."""

    def __init__(self, seed: int, *, seconds: float = 30.0) -> None:
        super().__init__(seed, seconds=seconds)
        # So short that what an old map says of copies would have its effect within the run.
        self.world.retired_grace_ms = 4000
        self._voters = self.world.meta_voters
        self._both_sides = len(self._voters) == 5 and self.rng.random() < 0.4
        self._second = False
        """Was the first chosen broker lost?"""
        self._extra = 0
        self._calls = 0
        self.removed: set[str] = set()
        """Streams that somebody asked to delete."""
        self.world.ledger.maps.removed = self.removed

    def _draw(self, rng: random.Random) -> Plan:
        return draw_recovery(rng)

    def _new_world(self, seed: int, rng: random.Random) -> World:
        return World(seed, 5, rng=rng, meta_voters=rng.choice((3, 3, 5)))

    # ---- the map changes ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        self.world.at(2500, self._change_something)
        super().run()

    def _change_something(self) -> None:
        if self.world.now_us > self.seconds * 800_000:
            return
        self.world.at(CHANGE_MS * (0.5 + self.rng.random()), self._change_something)
        kind, nobody = self.rng.random(), lambda answer: None
        if kind < 0.35:
            self._extra += 1
            name = f"EXTRA{self._extra}"
            config = {**self.plan.config(name, f"{name.lower()}.>"), "num_replicas": self.rng.choice((1, 3))}
            self._anywhere(f"CREATE.{name}", config, nobody)
        elif kind < 0.5 and self._extra:
            name = f"EXTRA{self.rng.randrange(self._extra) + 1}"
            self.removed.add(name)
            self._anywhere(f"DELETE.{name}", None, nobody)
        elif kind < 0.75:
            config = self.plan.config(MAIN, "orders.>")
            self._anywhere(f"UPDATE.{MAIN}", {**config, "description": f"at {self.world.now_us}"}, nobody)
        else:
            found = self._assignment()
            if found is not None:
                peer = node_of(self.rng.choice(found.members))
                self._anywhere(f"PEER.REMOVE.{MAIN}", {"peer": peer}, nobody)

    # ---- the loss -----------------------------------------------------------------------------------------------------

    def _lag(self) -> None:
        """The one that will be left is behind, in some runs."""
        found = self._assignment()
        if found is None or len(found.members) != 3:
            self.world.at(300, self._lag)
            return
        voters = list(self._voters)
        holders = {node_of(member) for member in found.members}
        self.rng.shuffle(voters)
        if self._how == "destroyed":
            voters.sort(key=holders.__contains__)
        gone = len(voters) // 2 + 1
        self._chosen, self._others = voters[-1], voters[:gone]
        if self.rng.random() < 0.6:
            for name in self.world.names:
                if name != self._chosen:
                    self.world.cut(self._chosen, name)
            self.world.at(200 + self.rng.random() * 3000, self._strike)
        else:
            self._strike()

    def _strike(self) -> None:
        found = self._assignment()
        holders = {node_of(member) for member in found.members} if found is not None else set()
        if found is None or found.move is not None or len(holders & set(self._others)) > 1:
            # Without a majority of its copies the stream itself would need a person: that is `recover_scenario`'s.
            self._how = "killed" if self._how == "destroyed" else self._how
        super()._strike()
        if self._both_sides:
            self.world.cut(self._chosen, self._rival)

    @property
    def _rival(self) -> str:
        """Another voter that is left, where there is one."""
        left = [name for name in self._voters if name not in (self._chosen, *self._others)]
        return left[0] if left else self._chosen

    # ---- the person -----------------------------------------------------------------------------------------------------

    def _map_call(self, node: str, done: Any, method: str = "POST", **body: Any) -> None:
        core = self.world.nodes[node].core
        if core is None:
            return
        core.calls.map_recovery(method, {"node": node, **body}, done)
        self.world.want_turn(node)

    def _force_too_early(self) -> None:
        """RP-8: with a majority in contact it is refused."""
        if not any(core.meta is not None and core.meta.serves for core in self._cores()):
            return

        def answered(status: int, told: Any) -> None:
            if status in (200, 202):
                raise self.world.ledger.broken(f"RP-8: the map was forced while somebody led: {told}")

        self._map_call(self.rng.choice(self.world.names), answered, acceptLastIndex=0, id="early")

    def _person(self) -> None:
        """Looks, then forces by what was shown, until it is done; on both sides of a partition in some runs."""
        if self._returned:
            return
        self.world.at(700, self._person)
        if self.accepted and not self._second and self.rng.random() < 0.15:
            self._lose_the_chosen()
        for node in (self._chosen, self._rival) if self._both_sides else (self._chosen,):
            self._map_call(node, partial(self._looked, node), "GET")

    def _lose_the_chosen(self) -> None:
        """It is gone as well, till all return: another one goes on, perhaps from its copy of before."""
        left = [name for name in self.world.names if name not in (self._chosen, *self._others)]
        self._second = True
        self.world.note(f"{self._chosen} is lost as well")
        self.world.stop(self._chosen, power=False)
        self._others.append(self._chosen)
        self._chosen = self.rng.choice(left)

    def _looked(self, node: str, status: int, told: Any) -> None:
        if status != 200 or told["alive"] or told["refusal"] or self._returned:
            return
        if told["recovery"] is not None and told["recovery"]["node"] == node:
            return
        mine = [copy for copy in told["copies"] if copy["node"] == node and not copy["lost"]]
        if mine:
            self._force_map(node, max(copy["lastIndex"] for copy in mine))

    def _force_map(self, node: str, last_index: int) -> None:
        world, rng = self.world, self.rng
        self._calls += 1

        def done(status: int, told: Any) -> None:
            world.note(f"forced at {node}: {status} {told}")
            self.accepted |= status in (200, 202)

        def too_high(status: int, told: Any) -> None:
            if status in (200, 202):
                raise world.ledger.broken(
                    f"RP-8: {last_index + 1000} was asked for, and is not there: {told}"
                )

        if rng.random() < 0.2:
            self._map_call(node, too_high, acceptLastIndex=last_index + 1000, id=f"high-{self._calls}")
            return
        act = f"forced-{self._calls}"
        self._map_call(node, done, id=act, acceptLastIndex=last_index, acceptDoubtful=True)
        if rng.random() < 0.3:
            other = rng.choice(world.names)
            self._map_call(other, done, id=f"rival-{self._calls}", acceptLastIndex=0, acceptDoubtful=True)
        if rng.random() < 0.4:
            # Somewhere between the snapshot and the journal's line, or soon after.
            world.at(rng.random() * 30, partial(self._crash_in_write, node, 30))
            world.at(600 + rng.random() * 400, partial(world.start, node))
        elif rng.random() < 0.4:
            world.at(rng.random() * 60, partial(world.stop, node, power=False))
            world.at(400 + rng.random() * 400, partial(world.start, node))
        for name in world.names:
            if name not in (node, *self._others) and rng.random() < 0.15:
                world.at(rng.random() * 60, partial(self._crash_in_write, name, 40))
                world.at(600 + rng.random() * 400, partial(world.start, name))

    def _return(self) -> None:
        super()._return()
        self.world.at(2000, self._resolve)

    def _resolve(self) -> None:
        """Two lineages that do not follow from each other: a person has one side follow the other."""
        self.world.at(1000, self._resolve)
        lineages = {core.map.meta_id for core in self._cores()}
        # The one that is longer, for nobody has that one follow another by itself; of equals, any.
        winner = max(lineages, key=lambda name: (name.count("~"), name), default="")
        for core in self._cores():
            if winner in core.map_lineages.rivals.values():
                self.world.ledger.maps.consented.add((core.node, winner))
                self._map_call(core.node, lambda status, told: None, follow=winner)

    # ---- the end ----------------------------------------------------------------------------------------------------------

    def _leader(self) -> BrokerCore | None:
        return next((core for core in self._cores() if core.meta is not None and core.meta.serves), None)

    def _unsettled(self) -> str:
        unfinished = self.publishers.unfinished()
        if unfinished:
            return unfinished
        leader = self._leader()
        if leader is None or leader.meta is None:
            return "nobody leads the map"
        for name, node in self.world.nodes.items():
            core = node.core
            if core is None:
                return f"{name} is down"
            if core.map.meta_id != leader.map.meta_id:
                return f"{name} has lineage {core.map.meta_id}, {leader.node} has {leader.map.meta_id}"
            if not core.map.is_fresh or core.map.index != leader.map.index:
                return f"{name} has the map up to {core.map.index}, {leader.node} up to {leader.map.index}"
            held = sum(window.unconfirmed for window in core.ingest.windows.values())
            if held:
                return f"{name} holds {held} unconfirmed messages"
        state = leader.meta.replica
        voters = leader.meta.raft.membership.voters
        wanted = state.recovery.voters if state.recovery is not None else len(self._voters)
        if len(voters) < wanted:
            return f"{voters} vote about the map, and {wanted} did before"
        found = state.streams.get((ACCOUNT, MAIN))
        if found is None:
            return f"{MAIN} is gone"
        if found.move is not None or len(found.members) != 3 or found.is_unconfirmed:
            return f"{found.group} has {found.members}, its move is {found.move}, {found.standing!r}"
        history = self.world.ledger.groups.get(found.group)
        replicas = [group for group in self._copies() if group.id == found.group]
        last = history.last_index if history is not None else -1
        behind = [group.member for group in replicas if group.applied_index != last]
        # The map does not hear when a member came back under a new identity (SF-4): brokers are what is compared.
        wanted_nodes = set(map(node_of, found.members))
        behind = [member for member in behind if node_of(member) in wanted_nodes]
        holders = sorted(group.member for group in replicas)
        # One that left behind the point where the map goes on is kept for the grace time.
        if not wanted_nodes <= set(map(node_of, holders)) or behind:
            return (
                f"{found.group} has replicas {holders}, {behind} behind {last}; the map has {found.members}"
            )
        return ""

    def _check_end(self) -> None:
        ledger = self.world.ledger
        self.publishers.check(MAIN)
        if ledger.recoveries.lost:
            raise ledger.broken(f"SF-9: messages were lost: {sorted(ledger.recoveries.lost)[:3]}")
        leader = self._leader()
        assert leader is not None
        assert leader.meta is not None
        if self.accepted and leader.map.lineage == "":
            raise ledger.broken("SF-9: a recovery was accepted, and no lineage begun")
        found = leader.meta.replica.streams[ACCOUNT, MAIN]
        nodes = set(map(node_of, found.members))
        replicas = [g for g in self._copies() if g.id == found.group and node_of(g.member) in nodes]
        views = [_view(group.state) for group in replicas]
        for view in views[1:]:
            differing = [key for key, value in views[0].items() if view[key] != value]
            if differing:
                raise ledger.broken(f"replicas differ at the end in {differing}")
        if replicas[0].state.config != found.config:
            raise ledger.broken(
                f"SF-5: {MAIN} is configured as {replicas[0].state.config}, the map has {found.config}"
            )
        ledger.maps.check_end(destroyed=self._others if self._how == "destroyed" else ())
