"""Chooses the broker for a new replica: ranks of brokers that fit, the best first (MR-5).

A strategy is a function of a candidate and the brokers that already hold the stream. The smallest rank wins,
and ties are decided by name. A package adds one by an entry point of the group `supercluster.placement` whose
name is the value of `placementStrategy`. It gets only brokers that fit: the stream's requirements are checked
before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

ENTRY_POINT_GROUP = "supercluster.placement"
# Of a broker whose room is not known just now: neither the best nor the worst place.
_UNKNOWN_ROOM_BYTES = 1
# Of what a strategy raises so much is told.
_ERROR_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class Node:
    """One broker as a place for replicas."""

    name: str
    cluster: str
    zone: str = ""
    """Of the Kubernetes node that it runs on; empty: not known."""
    tags: frozenset[str] = frozenset()
    copies: int = 0
    """Replicas of streams that it holds, or is to hold."""
    room_bytes: int | None = None
    """Room on its disk, less what copies on their way will take; None: not known."""
    memory_room_bytes: int | None = None
    """The same for streams that are kept in memory."""
    is_room_awaited: bool = False
    """The leader of the brokers' map was asked, and the broker has yet to tell it how much room it has."""
    in_contact: bool = True
    away_since: datetime | None = None
    """Since when the brokers have missed it, from their map; None: it is there."""
    leaves: bool = False
    """It goes for good."""
    cordoned: bool = False
    """Its Kubernetes node takes no new pods: it is about to be drained, as far as anybody can tell."""
    cordon: str = ""
    """Why, where the brokers' map says so and not its Kubernetes node."""
    expected_until: datetime | None = None
    """A roll-out restarts it, and it counts as lost only after that."""


Rank = Any
Strategy = Callable[[Node, Sequence[Node]], Rank]


def spread_zones(node: Node, holders: Sequence[Node]) -> Rank:
    """The zone with the fewest replicas of the stream, then the least loaded broker. A zone that is not known counts as one
    of its own."""
    return (sum(node.zone == other.zone and bool(node.zone) for other in holders), node.copies)


def least_loaded(node: Node, holders: Sequence[Node]) -> Rank:
    """The fewest replicas of all streams."""
    return node.copies


def most_free_disk(node: Node, holders: Sequence[Node]) -> Rank:
    """The most room, then the fewest replicas."""
    return (-(node.room_bytes if node.room_bytes is not None else _UNKNOWN_ROOM_BYTES), node.copies)


class StrategyError(Exception):
    """There is no such strategy, a package's raised something, or its ranks can't be compared."""


def strategy_of(strategies: Mapping[str, Strategy], name: str) -> Strategy:
    """
    Raises:
        StrategyError: no strategy has this name; with those that there are.
    """
    strategy = strategies.get(name)
    if strategy is None:
        known = ", ".join(sorted(strategies))
        raise StrategyError(f"placementStrategy is {name}, and there is no such one; known are {known}")
    return strategy


@contextmanager
def judging(name: str) -> Iterator[None]:
    """Around the choice by a strategy: one that is wrong holds up the streams that ask for it, and no others.

    Raises:
        StrategyError: with the strategy's name and what it raised.
    """
    try:
        yield
    except Exception as error:
        told = f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS_MAX]
        raise StrategyError(f"placementStrategy is {name}, which can't rank the brokers: {told}") from error


BUILT_IN: Mapping[str, Strategy] = {
    "spread-zones": spread_zones,
    "least-loaded": least_loaded,
    "most-free-disk": most_free_disk,
}
