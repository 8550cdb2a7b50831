"""Short links with another super-cluster before a migration names it: a preflight asks its questions there.
No client message crosses them.

There is one visit at a time to each super-cluster. Further callers share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from supercluster.broker.ports import FarSuperCluster

VISIT_MS = 10_000
VISITS_MAX = 8


class FarVisits:
    """Of one broker."""

    def __init__(self) -> None:
        self._visits: dict[str, tuple[FarSuperCluster, int]] = {}
        """By identity: where to, and until when."""
        self.changed: Callable[[], None] = lambda: None
        """Called when a visit begins or ends."""

    def visit(self, green: FarSuperCluster, now_ms: int) -> bool:
        """Be linked with its brokers for a while. False: too many visits are under way."""
        if green.identity not in self._visits and len(self._visits) >= VISITS_MAX:
            return False
        before = self._visits.get(green.identity)
        self._visits[green.identity] = replace(green, accounts=frozenset()), now_ms + VISIT_MS
        if before is None or before[0] != self._visits[green.identity][0]:
            self.changed()
        return True

    def with_visits(self, wanted: Mapping[str, FarSuperCluster]) -> dict[str, FarSuperCluster]:
        """What the map wants, and who is visited besides."""
        return {**{identity: green for identity, (green, _) in self._visits.items()}, **wanted}

    def tick(self, now_ms: int) -> None:
        over = [identity for identity, (_, until_ms) in self._visits.items() if now_ms >= until_ms]
        for identity in over:
            del self._visits[identity]
        if over:
            self.changed()

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        return min((until_ms for _, until_ms in self._visits.values()), default=None)
