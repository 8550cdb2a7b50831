"""One seeded run in which volumes are put back to earlier states, again and again (SF-27), and clocks are wrong (SF-28).

A broker is restarted after a snapshot of its disk. While another one lags behind, the disk goes back to the snapshot and the
leader is away for a while: the two would elect each other, without what the leader has. Or the disk goes back to a state of
the same process, under the eyes of a leader that stays. What was confirmed has to be there in the end, and the identity that
went back must vote no more.
"""

from __future__ import annotations

import random
from functools import partial

from tests.simulator.ledger import MAIN
from tests.simulator.plan import Plan
from tests.simulator.recover_scenario import draw_recovery
from tests.simulator.scenario import SIDE, Scenario
from tests.simulator.world import Faults, World

from supercluster.broker.jetstream.replica.replica import Replica

SECONDS_LEAST = 45.0
ENDS_PART = 0.7
WHOLE_MS = 15_000
"""A broker that came back with nothing is a voter again within this."""


class PutBackScenario(Scenario):
    """See the module."""

    def __init__(self, seed: int, *, seconds: float = SECONDS_LEAST) -> None:
        super().__init__(seed, seconds=max(seconds, SECONDS_LEAST))
        self._gone: set[tuple[str, str]] = set()
        """(group, member) that must vote no more in the end."""
        self.put_back = 0

    def _has_copies(self, seed: int) -> bool:
        return False

    def _changes_fsync(self, seed: int) -> bool:
        return False

    def _draw(self, rng: random.Random) -> Plan:
        plan = draw_recovery(rng)
        plan.nodes = plan.meta_voters = 3
        return plan

    def _new_world(self, seed: int, rng: random.Random) -> World:
        return World(seed, 3, rng=rng)

    # ---- the run --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """All of it; raises `InvariantBrokenError` when a promise does not hold."""
        world, rng = self.world, self.rng
        for name in world.names:
            world.at(rng.random() * 300, partial(world.start, name))
        world.at(700, self._create_main)
        end_ms = self.seconds * 1000 * ENDS_PART
        self.publishers.start(end_ms, MAIN, SIDE)
        self.consumer.start(lambda: False)
        self.weather.clocks.start(end_ms)
        if rng.random() < 0.5:
            world.faults = Faults(loss=0.005, reorder=0.02, delay_max_ms=5.0)
        world.at(1000, self.weather._look_after)
        world.run(3000)
        while world.now_us < end_ms * 1000 and self._wait():
            self._round()
        self.weather.clear()
        world.run(self.seconds * 1000)
        self._settle()
        self._check_end()
        for replica in self._replicas():
            if out := [m for m in replica.raft.membership.voters if (replica.id, m) in self._gone]:
                raise world.ledger.broken(
                    f"SF-27: {out} went back to an earlier state and vote in {replica.id}"
                )

    def _wait(self) -> bool:
        """Until every broker is a sure voter with all that is committed. False: that takes too long."""
        whole = partial(self.weather._is_whole)
        return self.world.run_until(
            lambda: self.world.steps % 64 == 0 and all(map(whole, self.world.names)), WHOLE_MS
        )

    def _replicas(self) -> list[Replica]:
        cores = (node.core for node in self.world.nodes.values())
        return [group for core in cores if core is not None for group in core.groups.values()]

    def _run(self, ms: float) -> None:
        self.world.run(self.world.now_us / 1000 + ms)

    def _round(self) -> None:
        leader = self.weather.leader()
        others = [name for name in self.world.names if name != leader]
        if leader is None or len(others) < 2:
            self._run(200)
            return
        self.rng.shuffle(others)
        if self.rng.random() < 0.6:
            self._beside_one_that_lags(leader, *others)
        else:
            self._under_a_leader(leader, others[0])

    def _beside_one_that_lags(self, leader: str, victim: str, laggard: str) -> None:
        world, rng = self.world, self.rng
        disk = world.nodes[victim].store.disk
        image = disk.image()
        world.stop(victim, power=False)
        self._run(50)
        world.start(victim)
        if not self._wait():
            return
        self._run(1000)  # The map has the start on all disks.
        for name in (leader, victim):
            world.cut(laggard, name)
        world.note(f"{laggard} lags behind")
        self._run(200 + rng.random() * 600)
        self._goes_back(victim, image, all_groups=True)
        if rng.random() < 0.7:
            world.stop(leader, power=False)
        world.mend()
        self._run(5 + rng.random() * 100)
        world.start(victim)
        self._run(1000 + rng.random() * 3000)
        world.start(leader)

    def _under_a_leader(self, leader: str, victim: str) -> None:
        world = self.world
        image, here = world.nodes[victim].store.disk.image(), self._main(victim)
        kept = here.log.last_index
        self._run(200 + self.rng.random() * 1500)
        leads = self._main(leader)
        term, found = leads.raft.term, leads.raft.progress.get(here.member)
        is_less = leads.serves and found is not None and kept < min(found.confirmed, leads.raft.commit_index)
        self._goes_back(victim, image, all_groups=False)
        self._run(5 + self.rng.random() * 100)
        world.start(victim)
        self._run(2000)
        if is_less and leads.serves and leads.raft.term == term:
            self._gone.add((self.group, here.member))

    def _main(self, node: str) -> Replica:
        core = self.world.nodes[node].core
        assert core is not None
        return core.groups[self.group]

    def _goes_back(self, victim: str, image: object, *, all_groups: bool) -> None:
        """The broker is killed, and its disk is as it was."""
        world = self.world
        core = world.nodes[victim].core
        assert core is not None
        if all_groups:
            self._gone |= {(group.id, group.member) for group in core.groups.values()}
        world.stop(victim, power=False)
        world.note(f"{victim}: the disk goes back")
        world.ledger.oracle.put_back(victim)
        world.nodes[victim].store.put_back(image)
        self.put_back += 1
