"""Whoever drives a migration: it asks blue's brokers to start, to abort and to finalize, again until it is answered.

Nothing depends on it in between: it may stay away from one call to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulator.cut_oracle import CutOracle
from tests.simulator.cutover_plan import BLUE, GREEN, CutoverPlan
from tests.simulator.cutover_world import IDENTITY, CutoverWorld
from tests.simulator.publishers import ACCOUNT

from supercluster.broker.jetstream.meta_leader.replica import MetaReplica

AGAIN_MS = 300.0


class Operator:
    """See the module."""

    def __init__(self, world: CutoverWorld, plan: CutoverPlan, oracle: CutOracle) -> None:
        self._world = world
        self._plan = plan
        self._cuts = oracle
        self.starts = 0
        self.aborts = 0
        self.is_finalized = False

    @property
    def id(self) -> str:
        """Of the migration that runs, or ran last."""
        return f"m{self.starts}"

    def start(self) -> None:
        self._world.at(self._plan.starts_ms, self._begin)

    # ---- calls --------------------------------------------------------------------------------------------------------

    def _map(self) -> MetaReplica | None:
        """Of blue, where it is led."""
        return next((core.meta for core in self._world.cores(BLUE) if core.meta and core.meta.serves), None)

    def _ask(self, act: str, body: dict[str, Any] | None, then: Callable[[], None]) -> None:
        """Any broker of blue, again until one says yes."""
        world, id_, settled = self._world, self.id, [False]

        def answered(status: int, told: Any) -> None:
            if settled[0]:
                return
            if status < 300:
                settled[0] = True
                world.note(f"{act} of migration {id_}: {status}")
                then()
            else:
                world.note(f"{act} of migration {id_} is refused: {status} {told}")

        def ask() -> None:
            if settled[0]:
                return
            key = world.rng.choice(world.brokers(BLUE))
            core = world.nodes[key].awake
            if core is not None and core.accepts_clients:
                core.calls.migration(act, id_, body, answered)
                world.want_turn(key)
            world.at(AGAIN_MS + world.rng.random() * 300, ask)

        ask()

    def _begin(self) -> None:
        self.starts += 1
        number = self.starts
        addresses = [f"{key}:7422" for key in self._world.brokers(GREEN)]
        green = {"identity": IDENTITY[GREEN], "name": GREEN, "addresses": addresses}
        body = {"id": self.id, "account": ACCOUNT if number % 2 else "", "green": green}
        self._ask("start", body, lambda: self._begun(number))

    def _begun(self, number: int) -> None:
        if number <= len(self._plan.aborts_after_ms):
            self._world.at(self._plan.aborts_after_ms[number - 1], self._abort)

    def _abort(self) -> None:
        self._ask("abort", None, self._aborted)

    def _aborted(self) -> None:
        self.aborts += 1
        self._world.at(AGAIN_MS, self._begin_again)

    def _begin_again(self) -> None:
        """Once the stream is back. Where green was faster there is no way back."""
        found = self._map()
        if self._is_open:
            return
        if found is not None and all(way.id != self.id for way in found.state.ways):
            self._begin()
        else:
            self._world.at(AGAIN_MS, self._begin_again)

    @property
    def _is_open(self) -> bool:
        return any(found.opened for found in self._cuts.streams.values())

    def finalize(self) -> None:
        self._cuts.may_clean = True
        self._ask("finalize", None, lambda: setattr(self, "is_finalized", True))
