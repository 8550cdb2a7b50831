"""Links that carry one way only, and cuts that last: for the rest of the weather, and between some brokers alone.

Of a link that carries one way, the end that hears nothing gives up after a second, as `net/links/silence.py` does, and no new one
comes up. In some cases it stays up for seconds. A lasting cut leaves every broker a way to every other one over a third: they have no
common view of who is away.
"""

from __future__ import annotations

import random
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING

from tests.simulator.world import SILENCE_MS

if TYPE_CHECKING:
    from tests.simulator.weather import Weather


class BadLinks:
    """Of one run."""

    def __init__(self, weather: Weather) -> None:
        self._weather = weather
        self._world = weather.world
        self._rng = random.Random(f"bad links {weather.world.seed}")

    def start(self, end_ms: float) -> None:
        """Draw what is wrong up to then."""
        rng, rare = self._rng, self._weather.rare
        if rare.one_way:
            at_ms = 3000.0
            while (at_ms := at_ms + 500 + rng.random() * 7000) < end_ms - 500:
                self._world.at(at_ms, self._one_way)
        if rare.lasting_cut:
            self._world.at(2500 + rng.random() * end_ms * 0.4, partial(self._lasting_cut, end_ms))

    def _pair(self) -> tuple[str, str]:
        """Two brokers, the stream's leader among them half of the time."""
        names = self._world.names
        one = self._weather.leader() if self._rng.random() < 0.5 else None
        one = one or self._rng.choice(names)
        other = self._rng.choice([name for name in names if name != one])
        return (one, other) if self._rng.random() < 0.5 else (other, one)

    def _one_way(self) -> None:
        if self._weather.calm:
            return
        frm, to = self._pair()
        gives_up = self._rng.random() < 0.6
        ms = SILENCE_MS + self._rng.random() * 200 if gives_up else 300 + self._rng.random() * 6000
        self._world.note(f"{to} does not hear {frm} for {ms:.0f} ms, and is heard")
        self._world.silence_way(frm, to, ms)
        self._world.met["one way"] += 1
        if gives_up:
            self._world.at(ms, partial(self._give_up, frm, to))

    def _give_up(self, frm: str, to: str) -> None:
        if self._weather.calm:
            return
        self._world.note(f"{to} gives the link with {frm} up")
        self._world.cut(frm, to)
        self._world.at(300 + self._rng.random() * 5000, self._world.mend)

    def _lasting_cut(self, end_ms: float) -> None:
        """Half of it is over before the end of the weather, so that faults come behind it too."""
        if self._weather.calm:
            return
        names = self._world.names
        pairs = self._rng.sample(list(combinations(names, 2)), self._rng.randint(1, len(names) - 2))
        hubs = [name for name in names if not any(name in pair for pair in pairs)]
        if not hubs:  # Whom everybody hears.
            pairs = pairs[:1]
        for one, other in pairs:
            self._world.note(f"{one} and {other} are cut off from each other for long")
            self._world.cut(one, other, lasts=True)
            self._world.met["lasting cut"] += 1
        if self._rng.random() < 0.5:
            left_ms = end_ms - self._world.now_us / 1000
            self._world.at(left_ms * (0.5 + 0.4 * self._rng.random()), self._world.mend_lasting)
