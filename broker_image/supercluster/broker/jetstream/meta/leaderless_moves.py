"""Streams that move and have no leader: since when, which brokers that waits for, and the remedy.

A move's leader normally reports why the move does not proceed. In a joint membership it needs a majority of
both halves (SF-6), and without one of them no leader is left to report. Then the broker that is asked about
the move reports it from the map and from its links.
"""

from __future__ import annotations

from collections.abc import Collection

from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.moves.watch import AWAY_MS
from supercluster.broker.raft.confchange import node_of

REMEMBERED_MAX = 1024


class LeaderlessMoves:
    """Of the moves that this broker was asked about, those whose leader did not answer."""

    def __init__(self) -> None:
        self._since_ms: dict[str, int] = {}
        """Group → when nobody answered for the first time in a row."""

    def heard(self, group: str) -> None:
        """A leader answered, or the move is over."""
        self._since_ms.pop(group, None)

    def silent(self, found: Assignment, contact: Collection[str], now_ms: int) -> str:
        """Nobody answered: what there is to say of it. Empty while it may be but a change of leader."""
        if len(self._since_ms) >= REMEMBERED_MAX and found.group not in self._since_ms:
            del self._since_ms[next(iter(self._since_ms))]
        silent_ms = now_ms - self._since_ms.setdefault(found.group, now_ms)
        return waits_for(found, contact, silent_ms) if silent_ms >= AWAY_MS else ""


def taking_part(found: Assignment) -> list[str]:
    """The brokers of a move, old and new."""
    assert found.move is not None
    return sorted({*map(node_of, found.move.origin), *map(node_of, found.move.targets)})


def waits_for(found: Assignment, contact: Collection[str], silent_ms: int) -> str:
    """Why a stream that moves has no leader, and what to do."""
    assert found.move is not None
    away = [node for node in taking_part(found) if node not in contact]
    advice = (
        f"bring back {', '.join(away)}, which {'is' if len(away) == 1 else 'are'} out of contact; only if that can't be "
        "done, have the stream recovered by force, which may lose messages"
        if away
        else "all of them are in contact, so check /healthz of each for the state of its copy (a disk error, for instance)"
    )
    return (
        f"stream {found.name} has had no leader for {silent_ms // 1000} s: most of "
        f"{', '.join(map(node_of, found.move.origin))} have to be well, and once new members vote, most of "
        f"{', '.join(map(node_of, found.move.targets))} too; {advice}"
    )
