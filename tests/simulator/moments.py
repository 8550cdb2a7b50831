"""What strikes at the worst moment: when the first members are told, a vote or a hand-over leaves, a stream was deleted.

Faults that come by the clock hardly ever meet such a moment, which lasts a few milliseconds. Which moments are struck
in a run, and how, is drawn from the seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from tests.simulator.plan import Plan
from tests.simulator.world import World

from supercluster.broker.jetstream.replica.lineage import META_GROUP
from supercluster.broker.jetstream.replica.replica import Replica


class Striker(Protocol):
    """What of the weather is needed: it knows who may be hurt."""

    calm: bool
    rng: random.Random

    def may_stop(self, name: str, *, power: bool) -> bool: ...

    def stop(self, name: str, *, power: bool = False) -> None: ...

    def start_in(self, name: str, ms: float) -> None: ...


class Moments:
    """See the module."""

    def __init__(self, world: World, plan: Plan, weather: Striker) -> None:
        self._world = world
        self._weather = weather
        self._rng = weather.rng
        oracle = world.ledger.oracle
        hooks: dict[str, Callable[[], None]] = {
            "vote": lambda: setattr(oracle, "on_vote", self._after_vote),
            "birth": lambda: setattr(oracle, "on_begun", self._at_birth),
            "hand_over": lambda: setattr(oracle, "on_hand_over", self._at_hand_over),
            "deletion": lambda: setattr(world.ledger, "on_gone", self._after_deletion),
        }
        for moment in plan.moments:
            hooks[moment]()

    def _strike(self, name: str, delay_ms: float, away_ms: float, *, power: bool) -> None:
        """Stop a broker in a moment; it is back soon."""

        def strike() -> None:
            if (
                not self._weather.calm
                and self._world.nodes[name].up
                and self._weather.may_stop(name, power=power)
            ):
                self._weather.stop(name, power=power)
                self._weather.start_in(name, away_ms)

        self._world.at(delay_ms, strike)

    def _after_vote(self, node: str) -> None:
        """A vote left this broker. Sometimes it dies of it, and comes back before the term is over."""
        if not self._weather.calm and self._rng.random() < 0.05:
            power = self._rng.random() < 0.5
            self._strike(node, 0.1, 5 + self._rng.random() * 50, power=power)

    def _at_birth(self, replica: Replica) -> None:
        """The meta group was begun by one of its voters; another is not reached by the word of it before the rest have
        elected a leader."""
        if replica.id != META_GROUP:
            return
        node = replica.host.node
        others = [name for name in self._world.meta_voters if name != node]
        if not others:
            return
        victim = self._rng.choice(others)
        ms = 500 + self._rng.random() * 2000
        if self._rng.random() < 0.5:
            self._world.note(f"{victim} does not hear {node} for {ms:.0f} ms")
            self._world.silence(node, victim, ms)
        else:
            self._strike(victim, 0.01, ms, power=False)

    def _at_hand_over(self, node: str, to: str) -> None:
        """Leadership is handed over; the word is lost, and the leader stays in office."""
        if not self._weather.calm and self._rng.random() < 0.4:
            ms = 400 + self._rng.random() * 600
            self._world.note(f"{to} does not hear {node} for {ms:.0f} ms: it is handed leadership over")
            self._world.silence(node, to, ms)

    def _after_deletion(self, node: str, group: str) -> None:
        """A copy of a deleted stream was removed; the broker dies before its map of streams on the disk says so."""
        if not self._weather.calm and self._rng.random() < 0.3:
            self._world.note(f"{node} has removed {group}")
            delay_ms = 0.1 + self._rng.random() * 150
            self._strike(node, delay_ms, 5 + self._rng.random() * 500, power=self._rng.random() < 0.3)
