"""One seeded run in which a stream loses its majority and a person forces its recovery (RP-8, SF-9).

Two of three members are killed, destroyed or cut off with clients of their own, after the third was behind for a while in some
runs. A person reads what there is and forces the third: more than once, with a floor that is too high, under another name at
the same time, while brokers die in the middle. Then the old members return. `recoveries` says what may be lost.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from tests.simulator.ledger import MAIN
from tests.simulator.plan import Plan
from tests.simulator.publishers import ACCOUNT, Publishers
from tests.simulator.scenario import SIDE, Scenario, _view
from tests.simulator.world import Faults, World

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.raft.confchange import node_of

FORCED = "forced"


def draw_recovery(rng: random.Random) -> Plan:
    """Five brokers that all vote about the map, a stream with three replicas, and no faults but this scenario's."""
    return Plan(
        nodes=5,
        meta_voters=5,
        replicas=3,
        fsync=rng.choice(("always", "interval")),
        storage="file",
        max_msgs=-1,
        max_bytes=-1,
        refuses_when_full=False,
        max_age_ms=0,
        per_subject=0,
        side_stream=False,
        creators=False,
        removes=False,
        fills=False,
        moments=(),
        faults={},
    )


class RecoverScenario(Scenario):
    """See the module."""

    def _has_copies(self, seed: int) -> bool:
        return False  # What a forced recovery gives up, a copy may have taken.

    def _changes_fsync(self, seed: int) -> bool:
        return False  # Whether the power may fail for all follows from the plan.

    def __init__(self, seed: int, *, seconds: float = 30.0) -> None:
        super().__init__(seed, seconds=seconds)
        self.publishers = Publishers(self.world, self.plan, lambda: False)
        self._chosen = ""
        self._others: list[str] = []
        self._how = self.rng.choice(("killed", "killed", "destroyed", "cut", "cut"))
        self._returned = False
        self.accepted = False

    def _draw(self, rng: random.Random) -> Plan:
        return draw_recovery(rng)

    def _new_world(self, seed: int, rng: random.Random) -> World:
        return World(seed, 5, rng=rng, meta_voters=5)

    # ---- the run --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """All of it; raises `InvariantBrokenError` when a promise does not hold."""
        world, rng = self.world, self.rng
        for name in world.names:
            world.at(rng.random() * 300, partial(world.start, name))
        world.at(700, self._create_main)
        self.publishers.start(self.seconds * 700, MAIN, SIDE)
        if rng.random() < 0.5:
            world.faults = Faults(loss=0.01, repeat=0.01, reorder=0.02, delay_max_ms=8.0)
        world.at(3000 + rng.random() * 800, self._force_too_early)
        world.at(4000 + rng.random() * 3000, self._lag)
        world.run(self.seconds * 700)
        self._return()
        world.run(self.seconds * 800)
        for name, node in world.nodes.items():
            node.store.disk.crash_after(None)
            world.start(name)
        world.faults = Faults()
        world.run(self.seconds * 1000)
        self._settle()
        self._check_end()

    def _cores(self) -> list[BrokerCore]:
        return [node.core for node in self.world.nodes.values() if node.core is not None]

    def _assignment(self) -> Assignment | None:
        states = [core.meta.state for core in self._cores() if core.meta is not None]
        newest = max(states, key=lambda state: state.applied_index, default=None)
        return newest.streams.get((ACCOUNT, MAIN)) if newest is not None else None

    def _force_too_early(self) -> None:
        """RP-8: with a majority in contact it is refused. Whoever just lost its leader may not say so: then nothing is
        asked."""
        led = [group for group in self._copies() if group.serves]
        found = self._assignment()
        if len(led) != 1 or found is None:
            return

        def answered(status: int, told: Any) -> None:
            if status in (200, 202):
                raise self.world.ledger.broken(f"RP-8: forced while {led[0].member} led: {told}")

        self._call(node_of(found.members[0]), 0, "early", answered)

    def _copies(self) -> list[StreamReplica]:
        return [
            group
            for core in self._cores()
            for group in core.groups.values()
            if isinstance(group, StreamReplica)
        ]

    def _lag(self) -> None:
        """The one that will be left is behind, in some runs."""
        found = self._assignment()
        if found is None or len(found.members) != 3:
            self.world.at(300, self._lag)
            return
        members = [node_of(member) for member in found.members]
        self.rng.shuffle(members)
        self._chosen, *self._others = members
        if self.rng.random() < 0.6:
            for name in self.world.names:
                if name != self._chosen:
                    self.world.cut(self._chosen, name)
            self.world.at(200 + self.rng.random() * 1500, self._strike)
        else:
            self._strike()

    def _strike(self) -> None:
        """Two of three are gone, or out of contact with everybody but each other."""
        world = self.world
        world.note(f"{self._others} are {self._how}; {self._chosen} is left")
        world.mend()
        for name in self._others:
            if self._how == "cut":
                for other in world.names:
                    if other not in self._others:
                        world.cut(name, other)
                continue
            world.stop(name, power=False)
            if self._how == "destroyed":
                world.lose_volume(name)
        world.at(1500 + self.rng.random() * 1500, self._person)
        world.at(5000 + self.rng.random() * 4000, self._return)

    def _return(self) -> None:
        self._returned = True
        self.world.mend()
        for name in self.world.names:
            self.world.start(name)
        if self.rng.random() < 0.3 and self._others:
            # In the middle of putting its copy aside, or of what comes next.
            self._crash_in_write(self.rng.choice(self._others), 80)

    def _crash_in_write(self, name: str, operations_max: int) -> None:
        """The process, or the machine where nothing that was confirmed can go with it, ends within a change of its disk."""
        node = self.world.nodes[name]
        if node.core is not None:
            node.crash_with_power = self.plan.fsync == "always" and self.rng.random() < 0.5
            node.store.disk.crash_after(self.rng.randrange(operations_max))

    # ---- the person -----------------------------------------------------------------------------------------------

    def _call(self, node: str, floor: int, name: str, done: Any, method: str = "POST") -> None:
        """At any broker that is not cut off."""
        there = [core for core in self._cores() if core.node not in self._others or self._returned]
        if not there:
            return
        core = self.rng.choice(there)
        body = {"node": node, "acceptLastSeq": floor, "id": name}
        core.calls.stream_recovery(method, ACCOUNT, MAIN, body, done)
        self.world.want_turn(core.node)

    def _person(self) -> None:
        """Looks, then forces by what was shown, again and again until it is done."""
        if self.accepted or self._returned:
            return
        self.world.at(700, self._person)

        def looked(status: int, told: Any) -> None:
            if status != 200 or told["alive"] or self.accepted or self._returned:
                return
            mine = [copy for copy in told["copies"] if copy["node"] == self._chosen and not copy["lost"]]
            if mine:
                self._force(max(copy["lastSeq"] for copy in mine))

        self._call("", 0, "", looked, "GET")

    def _force(self, last_seq: int) -> None:
        world, rng = self.world, self.rng

        def done(status: int, told: Any) -> None:
            world.note(f"forced: {status} {told}")
            self.accepted |= status in (200, 202)

        def too_high(status: int, told: Any) -> None:
            if status in (200, 202):
                raise world.ledger.broken(f"RP-8: {last_seq + 1000} was asked for, and is not there: {told}")

        self._call(self._chosen, last_seq + 1000, "too-high", too_high)
        self._call(self._chosen, last_seq, FORCED, done)
        if rng.random() < 0.3:
            self._call(self._chosen, last_seq, FORCED, done)
        if rng.random() < 0.3:
            self._call(rng.choice([self._chosen, *self._others]), 0, "rival", done)
        if rng.random() < 0.4:
            # Somewhere between the record in the map and the first entry of the new lineage, or soon after.
            world.at(rng.random() * 30, partial(self._crash_in_write, self._chosen, 24))
        elif rng.random() < 0.5:
            victim = self._chosen if rng.random() < 0.6 else self._meta_leader()
            if victim:
                world.at(rng.random() * 60, partial(world.stop, victim, power=False))
                world.at(400 + rng.random() * 400, partial(world.start, victim))

    def _meta_leader(self) -> str:
        return next((c.node for c in self._cores() if c.meta is not None and c.meta.serves), "")

    # ---- the end --------------------------------------------------------------------------------------------------

    def _unsettled(self) -> str:
        found = self._assignment()
        unfinished = self.publishers.unfinished()
        if found is None or unfinished:
            return unfinished or "the stream is gone"
        for name, node in self.world.nodes.items():
            if node.core is None:
                return f"{name} is down"
            held = sum(window.unconfirmed for window in node.core.ingest.windows.values())
            if held:
                return f"{name} holds {held} unconfirmed messages"
        if found.move is not None or len(found.members) != 3:
            return f"{found.group} has {found.members}, its move is {found.move}"
        history = self.world.ledger.groups.get(found.group)
        replicas = [group for group in self._copies() if group.id == found.group]
        last = history.last_index if history is not None else -1
        behind = [group.member for group in replicas if group.applied_index != last]
        if len(replicas) != 3 or behind:
            return f"{found.group} has {len(replicas)} replicas, {behind} behind {last}"
        return self._disagreeing()

    def _check_end(self) -> None:
        ledger = self.world.ledger
        self.publishers.check(MAIN)
        found = self._assignment()
        assert found is not None
        if self.accepted and not ledger.recoveries.begun:
            raise ledger.broken("SF-9: a recovery was accepted, and no lineage begun")
        lacking = ledger.recoveries.lost - ledger.recoveries.in_files() - ledger.stored.keys()
        if lacking and self._how != "destroyed":
            raise ledger.broken(f"SF-9: {len(lacking)} lost messages are in no file: {sorted(lacking)[:3]}")
        views = [_view(group.state) for group in self._copies() if group.id == found.group]
        for view in views[1:]:
            differing = [key for key, value in views[0].items() if view[key] != value]
            if differing:
                raise ledger.broken(f"replicas differ at the end in {differing}")
