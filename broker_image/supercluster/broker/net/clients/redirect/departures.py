"""Connections that were asked to leave and are gone: a new one with the same identifying features is taken
for the same client.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

from supercluster.broker.net.clients.redirect.facts import Likeness

FORGET_MS = 60_000
"""A client that comes later than this is a new one."""

DEPARTURES_MAX = 65_536


@dataclass(slots=True)
class Departure:
    """One client that was asked."""

    asks: int
    """How often, all connections of it together."""
    at_ms: int


class Departures:
    """The first to go is the first to come back."""

    def __init__(self) -> None:
        self._by_likeness: OrderedDict[Likeness, deque[Departure]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, likeness: Likeness, departure: Departure) -> None:
        """A client is gone; beyond the bound, that of the likeness that was added to longest ago is forgotten."""
        self._by_likeness.setdefault(likeness, deque()).append(departure)
        self._by_likeness.move_to_end(likeness)
        self._count += 1
        if self._count > DEPARTURES_MAX:
            self._pop(next(iter(self._by_likeness)))

    def take(self, likeness: Likeness, now_ms: int) -> Departure | None:
        """The client is back."""
        while likeness in self._by_likeness:
            found = self._pop(likeness)
            if now_ms - found.at_ms < FORGET_MS:
                return found
        return None

    def _pop(self, likeness: Likeness) -> Departure:
        own = self._by_likeness[likeness]
        found = own.popleft()
        self._count -= 1
        if not own:
            del self._by_likeness[likeness]
        return found
