"""Wall clocks that are wrong for seconds, by minutes to a year, forwards and back (SF-28).

One clock is wrong at a time, and the next one steps when every broker has heard that the last one is right again: more than one
wrong clock of three is not outvoted. A broker that hears no other one for `ALONE_MS` after its start has only its own clock. So the clock of a running
broker that has heard none is left alone, and a broker that comes back with a wrong clock has it for less than that.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from tests.simulator.seams import EPOCH_NS

from supercluster.broker.jetstream.core.agreed_clock import ALONE_MS

if TYPE_CHECKING:
    from tests.simulator.weather import Weather

AT_START_PART = 0.3
"""Of the clocks that step: those of leaders that are restarted for it. A stream of one replica has no other leader."""
AT_START_MS = ALONE_MS - 500.0
"""A clock is wrong for so long at most, if it is at the broker's start."""
STEPS_S = (300, 3600, 86_400, 365 * 86_400)
RIGHT_NS = 10**9
"""Sound clocks differ by less."""


class WrongClocks:
    """Of one run."""

    def __init__(self, weather: Weather, rng: random.Random) -> None:
        self._weather = weather
        self._world = weather.world
        self._rng = rng
        # Drawn apart: what else a seed stands for stays.
        self._starts = random.Random(f"clocks at starts {self._world.seed}")

    def start(self, end_ms: float) -> None:
        """Draw all steps up to then."""
        rng = self._rng
        self._world.ledger.most_clocks_are_right = True
        at_ms = 3000.0
        while at_ms < end_ms - 1000:
            lasts_ms = 500 + rng.random() * 6000
            step_s = rng.choice(STEPS_S) * rng.choice((1, 1, -1))
            self._world.at(at_ms, partial(self._step, rng.choice(self._world.names), step_s))
            at_ms += lasts_ms
            self._world.at(at_ms, self.right)
            at_ms += 5000 + rng.random() * 3000

    def _step(self, name: str, step_s: int) -> None:
        is_at_start = self._starts.random() < AT_START_PART
        if is_at_start:
            name = self._weather.leader() or name
        node = self._world.nodes[name]
        is_left_alone = node.core is not None and node.core.clock._most_ns is None
        if self._weather.calm or is_left_alone or not self._all_heard():
            return
        if is_at_start and node.up and self._weather.may_stop(name, power=False):
            self._weather.stop(name)
            self._weather.start_in(name, 5 + self._starts.random() * 200)
        if not node.up:
            self._world.at(AT_START_MS, self.right)
            self._world.met["clock wrong at a start"] += 1
        self._world.note(f"{name}'s clock is wrong by {step_s} s")
        node.clock.step_ns = step_s * 10**9
        self._world.met["clock forwards" if step_s > 0 else "clock back"] += 1

    def _all_heard(self) -> bool:
        """Is every clock right, as far as brokers remember it?"""
        for node in self._world.nodes.values():
            if node.core is None:
                continue
            for ahead_ns in node.core.clock._ahead_ns.values():
                told_ns = ahead_ns + node.clock.machine_ms() * 10**6
                if abs(told_ns - EPOCH_NS - self._world.now_us * 1000) > RIGHT_NS:
                    return False
        return True

    def right(self) -> None:
        """Every clock is right."""
        for node in self._world.nodes.values():
            node.clock.step_ns = 0
