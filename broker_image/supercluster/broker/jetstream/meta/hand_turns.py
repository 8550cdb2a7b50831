"""The next stream of a migration to be handed over, and when.

Publishers wait from the fence until green has opened the stream, for as long as the brokers of both sides
work on it. Streams that are handed over at the same time would wait for each other's work too, so they go one
after another.
"""

from __future__ import annotations

from supercluster.broker.jetstream.meta.migration import StreamStage
from supercluster.broker.jetstream.meta.migration_steps import MigrationStep
from supercluster.broker.jetstream.meta.state import MetaState

# A stream that is marked, and not open after this, keeps the others no longer.
TURN_MS_MAX = 1000


class HandTurns:
    """The map's leader's; volatile."""

    def __init__(self) -> None:
        self._since_ms: dict[str, int] = {}
        """Groups of the streams that are marked, and since when this leader has seen that."""

    def look(self, state: MetaState, now_ms: int) -> None:
        """Take in the streams that are marked now."""
        marked = [
            found.group
            for found in map(state.streams.__getitem__, state.migrating)
            if found.migration is not None and found.migration.stage is StreamStage.HANDING
        ]
        self._since_ms = {group: self._since_ms.get(group, now_ms) for group in marked}

    def free_ms(self) -> int:
        """From when on a stream may be marked, in the time of `look`; 0: at once."""
        return max((at + TURN_MS_MAX for at in self._since_ms.values()), default=0)

    def clear(self) -> None:
        """This replica does not lead any more."""
        self._since_ms.clear()


def awaits_turn(step: MigrationStep) -> bool:
    """Is it the mark of a stream that its publishers still have? One that is handed over has its mark at once."""
    return step.mark is not None and not step.mark.digest
