"""What goes wrong between two super-clusters, and within each: on top of the weather of single brokers, whole sides go down, the
far links are cut or carry one way only, and something strikes in the very moment in which a stream changes hands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.simulator.cut_oracle import CutOracle
from tests.simulator.cutover_plan import BLUE, GREEN, CutoverPlan
from tests.simulator.cutover_world import CutoverWorld
from tests.simulator.weather import Weather

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.migration_frames import CutAsk, Wants
from supercluster.broker.jetstream.replica.replica import Replica


class CutoverWeather(Weather):
    """See the module."""

    world: CutoverWorld
    plan: CutoverPlan

    def __init__(
        self, world: CutoverWorld, plan: CutoverPlan, step_down: Callable[[], None], oracle: CutOracle
    ) -> None:
        super().__init__(world, plan, step_down)
        # Who may lose what is judged by one map of streams, and here are two.
        self.rare = replace(
            self.rare,
            put_back=False,
            lost_founder=False,
            bad_sectors=False,
            lasting_cut=False,
            is_long=False,
            crash_at_start=False,
            no_boot_id=False,
        )
        self._cuts = oracle
        self._late_ones: set[str] = set()
        oracle.on_cut = self._cut_made
        world.on_serving = self._leads
        self._has_refused = not plan.refuses
        self._acts |= {
            "cut_worlds": self._cut_worlds,
            "one_way": self._one_way,
            "map_leader": self._map_leader,
            "side_down": self._side_down,
        }

    def leader(self) -> str | None:
        """Of the stream, on whichever side it is."""
        stream = self._cuts.of(self.main_group) if self.main_group else None
        wanted = stream.group_now if stream is not None else self.main_group
        for name, node in self.world.nodes.items():
            group = node.core.groups.get(wanted) if node.core is not None else None
            if group is not None and group.serves:
                return name
        return None

    def _followers(self, leader: str | None) -> list[str]:
        return [name for name in self.world.names if name != leader and self.world.nodes[name].up]

    def stop(self, name: str, *, power: bool = False) -> None:
        """A write that the power tears leaves a doubtful copy, which waits for all others: not beside a late one."""
        super().stop(name, power=power and not self._late() - {name})

    def _late(self) -> set[str]:
        """Brokers whose copy did not hear HANDED before the others opened the stream: they have nothing of what was confirmed since,
        and the copy may come back under another name, which takes a leader (seed 742104 as a cutover)."""
        cores = [node.core for node in self.world.nodes.values()]
        maps = [core.meta.state for core in cores if core is not None and core.meta is not None]
        opened = {
            found.source_group
            for state in maps
            for found in state.streams.values()
            if found.arrival is not None and not found.far_world
        }
        for name in self.world.brokers(GREEN):
            core = self.world.nodes[name].core
            if core is not None and opened.isdisjoint(core.store.registered()):
                self._late_ones.discard(name)
            elif core is not None:
                self._late_ones.add(name)
        return self._late_ones

    # ---- whole sides --------------------------------------------------------------------------------------------------

    def _cut_worlds(self) -> None:
        self.world.cut_worlds()
        self.world.at(200 + self.rng.random() * 5000, self.world.mend)

    def _one_way(self) -> None:
        side = self.rng.choice((BLUE, GREEN))
        self.world.silence_one_way(side, 200 + self.rng.random() * 4000)

    def _map_leader(self) -> None:
        """Whoever leads the map of a side ends."""
        side = self.rng.choice((BLUE, BLUE, GREEN))
        for key in self.world.brokers(side):
            core = self.world.nodes[key].core
            if core is not None and core.meta is not None and core.meta.serves:
                self.world.note(f"{key} leads the map of {side}")
                self.stop(key, power=self.rng.random() < 0.3)
                self._restart_soon(key)
                return

    def _side_down(self) -> None:
        """All brokers of a side end at once."""
        side = self.rng.choice((BLUE, GREEN))
        for key in self.world.brokers(side):
            self.stop(key, power=self.rng.random() < 0.5)
            self.start_in(key, 100 + self.rng.random() * 2500)

    # ---- moments ------------------------------------------------------------------------------------------------------

    def _cut_made(self, kind: str, node: str, group: str) -> None:
        """A stream's cut went on by an entry that this broker is the first to apply."""
        if self.calm or self.rng.random() >= self.plan.strikes:
            return
        delay_ms = self.rng.choice((0.01, 1.0, 5.0, 50.0, 400.0))
        self.world.at(delay_ms, lambda: self._strike(node, group))

    def _leads(self, key: str, core: BrokerCore, group: str) -> None:
        """Green's first leader is asked to refuse before it could open."""
        stream = self._cuts.of(group)
        if self._has_refused or stream is None or group not in stream.heirs or stream.opened:
            return
        self._has_refused = True
        asked = CutAsk(group, stream.heirs[group], Wants.REFUSE)
        blue = self.world.called(key, self.world.brokers(BLUE)[0])
        core.on_frame(blue, Frame.CUT_ASK, memoryview(b"".join(asked.encode())))

    def _strike(self, node: str, group: str) -> None:
        if self.calm:
            return
        fate = self.rng.random()
        if fate < 0.3:
            self._end(node)
        elif fate < 0.5:
            self._end(self._any_leader(group) or node)
        elif fate < 0.6:
            self._side_down()
        elif fate < 0.75:
            self._cut_worlds()
        elif fate < 0.85:
            self._one_way()
        elif fate < 0.92:
            self._map_leader()
        else:
            self.world.stand_still(node, 200 + self.rng.random() * 3000)

    def _end(self, victim: str) -> None:
        self.stop(victim, power=self.rng.random() < 0.4)
        self._restart_soon(victim)

    def _any_leader(self, group: str) -> str | None:
        def serves(found: Replica | None) -> bool:
            return found is not None and found.serves

        nodes = self.world.nodes.items()
        return next((key for key, n in nodes if n.core and serves(n.core.groups.get(group))), None)
