"""Blue's record of green's confirmations that it no longer follows a group. The leader of blue's map keeps
it.

A hidden copy that stays behind keeps its name and its subjects on green. So a cancelled migration does not
end before green has answered for each stream, however long the link is cut. The record is volatile and
belongs to one term: a new leader asks again.
"""

from __future__ import annotations

from collections.abc import Sequence

from supercluster.broker.jetstream.meta.migration import ENDED_MAX, Migration

# For so long green is told again in any case: a PREPARE that is still under way may come behind its answer.
FAREWELL_NS = 60_000_000_000


def named(groups: Sequence[str]) -> str:
    """For people."""
    return f"{', '.join(groups[:3])} ({len(groups)} in all)"


class Farewells:
    """See the module."""

    def __init__(self) -> None:
        self._quiet_since_ns: dict[str, tuple[tuple[tuple[str, int], ...], int]] = {}
        """Migration → what green was to drop when that was last looked at, and since when."""
        self._answered: dict[str, set[tuple[str, int]]] = {}
        """Migration → group and attempt of which green has said that it follows nothing."""

    def on_dropped(self, running: Sequence[Migration], world: str, group: str, attempt: int) -> None:
        """Super-cluster `world` follows nothing of that attempt."""
        for migration in running:
            if migration.world == world and (group, attempt) in migration.dropped:
                self._answered.setdefault(migration.id, set()).add((group, attempt))

    def unheard(self, migration: Migration) -> list[str]:
        """Groups of which green has not answered yet."""
        answered = self._answered.get(migration.id, ())
        return [found[0] for found in migration.dropped if found not in answered]

    def forgotten(self, migration: Migration) -> list[str]:
        """Groups that the map has let go of for others since the last look, of which green has not answered."""
        before, _ = self._quiet_since_ns.get(migration.id, ((), 0))
        known = {*migration.dropped, *self._answered.get(migration.id, ())}
        return [found[0] for found in before if found not in known]

    def ended(self, running: Sequence[Migration], over: Sequence[Migration], now_ns: int) -> list[Migration]:
        """Of the migrations that have nothing else to do (`over`, the oldest first) those that have nothing to say any more. Of the ones
        that green does not answer the last ENDED_MAX go on."""
        before, self._quiet_since_ns = self._quiet_since_ns, {}
        for migration in running:
            dropped = migration.dropped
            known = before.get(migration.id, (dropped, now_ns))
            self._quiet_since_ns[migration.id] = known if known[0] == dropped else (dropped, now_ns)
        self._answered = {m.id: self._answered.get(m.id, set()).intersection(m.dropped) for m in running}
        late = [m for m in over if now_ns - self._quiet_since_ns[m.id][1] >= FAREWELL_NS]
        silent = [m for m in late if self.unheard(m)]
        going_on = silent[max(0, len(silent) - ENDED_MAX) :]
        return [m for m in over if not m.dropped or (m in late and m not in going_on)]

    def clear(self) -> None:
        """This replica does not lead any more."""
        self._quiet_since_ns.clear()
        self._answered.clear()
