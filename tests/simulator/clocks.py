"""Wall clocks that are wrong for seconds, by minutes to a year, forwards and back (SF-28).

One clock is wrong at a time, and the next one steps when every broker has heard that the last one is right again: more than one
wrong clock of three is not outvoted. A broker that never heard another one has only its own clock, so its clock is left alone.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from tests.simulator.seams import EPOCH_NS

if TYPE_CHECKING:
    from tests.simulator.weather import Weather

STEPS_S = (300, 3600, 86_400, 365 * 86_400)
RIGHT_NS = 10**9
"""Sound clocks differ by less."""


class WrongClocks:
    """Of one run."""

    def __init__(self, weather: Weather, rng: random.Random) -> None:
        self._weather = weather
        self._world = weather.world
        self._rng = rng

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
        node = self._world.nodes[name]
        has_heard = node.core is not None and node.core.clock._most_ns is not None
        if self._weather.calm or not has_heard or not self._all_heard():
            return
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
