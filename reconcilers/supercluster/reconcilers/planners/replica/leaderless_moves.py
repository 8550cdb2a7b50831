"""Moves of streams without a leader: they copy nothing, so they take no place in the budget that others could
use.

Two facts are required. The brokers report that the stream has no leader, or name none in their list of all
streams. And their map shows the cause: a majority of the old members or of the new ones has been lost for a
minute. The first alone may be an election, or one broker's view; the second alone may be a stage of the move
at which these members do not count.

A move that gets a leader again is counted again, and more may run than the budget has places. That is
bounded: no more leaderless moves go uncounted than the budget has places (`move_views.counted`), so at most
twice as many run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from supercluster.api import StreamMove
from supercluster.reconcilers.planners.move.views import BrokersMove, is_ended, is_in_flight
from supercluster.reconcilers.planners.replica.repair_moves import RepairObserved
from supercluster.reconcilers.planners.replica.repairs import lost_since

# As long as the brokers wait before another one takes the place of a move's target. Restarts take less.
LOST_FOR = timedelta(seconds=60)


def leaderless(
    moves: Iterable[StreamMove], running: Iterable[BrokersMove], observed: RepairObserved | None
) -> frozenset[str]:
    """Moves that nobody leads, by their identity on the brokers, which is the uid of those that have a StreamMove."""
    if observed is None:
        return frozenset()
    own = {move.metadata.uid: move for move in moves}
    led = {living.name for living in observed.streams if living.leader}
    found = {uid for uid, move in own.items() if not is_ended(move) and _is_leaderless(move, led, observed)}
    found |= {
        other.id
        for other in running
        if other.id not in own and other.stream not in led and _is_cut(other.halves, other.stream, observed)
    }
    return frozenset(found)


def _is_leaderless(move: StreamMove, led: Collection[str], observed: RepairObserved) -> bool:
    status, repair = move.status, move.spec.repair
    name = status.stream_name or move.spec.stream or ""
    if is_in_flight(status):
        progress = status.progress
        if progress is None or progress.stage is not None or not progress.trouble:
            return False  # Somebody leads it, or did so a moment ago.
    elif name in led:
        return False  # Of streams without a leader the list tells nothing. One that nobody leads can't begin to move.
    halves: tuple[tuple[str, ...], ...] = ()
    if status.plan is not None:
        halves = (status.plan.origin, tuple(found.name for found in status.plan.targets))
    elif repair is not None:
        # Those who stay are named first (`repairs.Repair`).
        halves = ((*repair.nodes[: len(repair.nodes) - len(repair.replace)], *repair.replace),)
    return _is_cut(halves[:1] if not is_in_flight(status) else halves, name, observed)


def _is_cut(halves: Iterable[tuple[str, ...]], stream: str, observed: RepairObserved) -> bool:
    """Has any of them had no majority for so long that it is no restart?"""
    unusable: Mapping[str, datetime] = observed.unusable.get(stream, {})
    for members in halves:
        since = [lost_since(observed.nodes, unusable, member) for member in members]
        there = sum(at is None or observed.now - at < LOST_FOR for at in since)
        if members and there < len(members) // 2 + 1:
            return True
    return False
