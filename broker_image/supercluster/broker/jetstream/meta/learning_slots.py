"""The next streams of a migration for green to learn, as the leader of blue's map chooses them.

Few streams learn at a time, since their copies share the links and the disks. A stream that green refuses
takes no slot, or a few such streams would hold up a whole migration. The stream's leader knows of the
refusal, and is asked for it while other streams wait. The answers are volatile and belong to one term.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nsmallest

from supercluster.broker.jetstream.config.carried import why_not_carried
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import Migration
from supercluster.broker.jetstream.meta.state import MetaState

# Streams of one migration that are learned or handed at a time.
AT_ONCE_MAX = 8
# The same with those that green refuses: it may come to take all of them at once.
UNDER_WAY_MAX = 64


class LearningSlots:
    """The map's leader's; volatile."""

    def __init__(self) -> None:
        self._refused: set[str] = set()
        """Groups of streams that green refuses, as their leaders have said."""

    def next_streams(self, state: MetaState, migration: Migration) -> list[Assignment]:
        """The streams that green is to learn next, by their names."""
        under_way = _under_way(state, migration)
        taken = sum(found.group not in self._refused for found in under_way)
        free = min(AT_ONCE_MAX - taken, UNDER_WAY_MAX - len(under_way))
        return nsmallest(free, _waiting(state, migration), key=lambda found: (found.account, found.name))

    def to_ask(self, state: MetaState, running: Iterable[Migration]) -> list[Assignment]:
        """The streams that are under way, where others wait for a slot."""
        asked = [m for m in running if any(_waiting(state, m))]
        found = [stream for migration in asked for stream in _under_way(state, migration)]
        self._refused &= {stream.group for stream in found}
        return found

    def told(self, group: str, *, is_refused: bool) -> None:
        """The answer of a stream's leader; of one that does not answer, false."""
        if is_refused:
            self._refused.add(group)
        else:
            self._refused.discard(group)

    def clear(self) -> None:
        """This replica does not lead any more."""
        self._refused.clear()


def _under_way(state: MetaState, migration: Migration) -> list[Assignment]:
    streams = map(state.streams.__getitem__, state.migrating)
    return [s for s in streams if s.migration and s.migration.id == migration.id and not s.far_world]


def _waiting(state: MetaState, migration: Migration) -> Iterator[Assignment]:
    if migration.cancelled or migration.final or not migration.runs:
        return
    for key, found in state.streams.items():
        if migration.covers(key[0]) and found.migration is None and not why_not_ready(found):
            yield found


def why_not_ready(found: Assignment) -> str:
    """Why green cannot learn the stream now; empty: it can. It may be younger than the preflight."""
    if reasons := why_not_carried(found.config):
        return f"stream {found.name} {reasons[0]}, which this version cannot hand over"
    if not found.is_shown:
        return "it is being restored"
    if found.is_unconfirmed:
        return "the map was recovered by force, and the stream's own group has not said who its members are"
    if found.move is not None:
        return f"move {found.move.id} of the stream has not ended"
    if found.is_short:
        return "a forced recovery has left it fewer replicas than it is to have; add the missing ones"
    return ""
