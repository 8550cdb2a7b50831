"""Volumes that are put back to an earlier state (SF-27), and a founder's volume that is lost for good, in any other weather.

A volume goes back to a state of a process before the last one, and every other broker's map knows the last one. Other cases are not
noticed by design (`docs/adr/members-and-their-memory.md`): a state of the last process, and a later start that only a broker knew
which is away.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from supercluster.broker.process_count import starts_of

if TYPE_CHECKING:
    from tests.simulator.weather import Weather

LOOK_MS = 300.0


class BadVolumes:
    """Of one run."""

    def __init__(self, weather: Weather) -> None:
        self._weather = weather
        self._world = weather.world
        self._rng = random.Random(f"bad volumes {weather.world.seed}")

    def start(self, end_ms: float) -> None:
        """Draw what happens up to then."""
        if self._weather.rare.put_back:
            self._world.at(2500 + self._rng.random() * 0.4 * end_ms, self._remember)
        if self._weather.rare.lost_founder:
            self._world.at(1500 + self._rng.random() * 0.5 * end_ms, partial(self._lose_founder, end_ms))

    def _lose_founder(self, end_ms: float) -> None:
        """It is away for all of the weather, or for most of it, and comes back with an empty volume."""
        if self._weather.calm:
            return
        name = self._rng.choice([name for name in self._world.names if self._is_founder(name)])
        node = self._world.nodes[name]
        if node.core is None or node.core.meta is None or not self._weather.may_lose_data(name):
            self._world.at(LOOK_MS, partial(self._lose_founder, end_ms))
            return
        self._weather.stop(name)
        self._weather.is_unsure(name)
        self._world.lose_volume(name)
        self._world.note(f"{name}, a founder, is away for good")
        self._world.away.add(name)
        self._world.met["lost founder"] += 1
        if self._rng.random() < 0.3:
            left_ms = end_ms - self._world.now_us / 1000
            self._world.at(left_ms * (0.5 + 0.4 * self._rng.random()), partial(self._come_back, name))

    def _is_founder(self, name: str) -> bool:
        return self._world.called(name, name) in self._world._settings(name).meta_voters

    def _come_back(self, name: str) -> None:
        self._world.away.discard(name)
        self._world.start(name)

    def _remember(self) -> None:
        """Keep a copy of a disk, and start the broker again."""
        name = self._rng.choice(self._world.names)
        node = self._world.nodes[name]
        if self._weather.calm:
            return
        if node.core is None or not self._weather.may_stop(name, power=False):
            self._world.at(LOOK_MS, self._remember)
            return
        image, incarnation, started = (
            node.store.disk.image(),
            node.store.incarnation,
            node.core.store.process_count,
        )
        self._world.note(f"{name}: a copy of the disk is kept")
        self._weather.stop(name)
        self._weather.start_in(name, 20 + self._rng.random() * 500)
        self._world.at(
            1000 + self._rng.random() * 4000, partial(self._go_back, name, image, incarnation, started)
        )

    def _go_back(self, name: str, image: object, incarnation: str, started: int) -> None:
        if self._weather.calm:
            return
        node = self._world.nodes[name]
        if node.store.incarnation != incarnation:
            self._remember()  # The volume was lost meanwhile: its copy is another one's.
            return
        if not self._is_known(name, started) or not self._weather.may_lose_data(name):
            self._world.at(LOOK_MS, partial(self._go_back, name, image, incarnation, started))
            return
        self._weather.stop(name)
        self._weather.is_unsure(name)
        self._world.note(f"{name}: the disk goes back")
        self._world.ledger_of(name).oracle.put_back(name)
        node.store.put_back(image)
        self._world.met["put back"] += 1
        self._weather.start_in(name, 5 + self._rng.random() * 500)

    def _is_known(self, name: str, started: int) -> bool:
        """Has every other broker read of a later start in the map?"""
        incarnation = self._world.nodes[name].store.incarnation
        for other in self._world.beside(name):
            core = self._world.nodes[other].core
            if other == name:
                continue
            if core is None or not core.map.is_fresh:
                return False
            known = core.map.process_count_of(self._world.called(other, name), incarnation)
            if starts_of(known) <= starts_of(started):
                return False
        return True
