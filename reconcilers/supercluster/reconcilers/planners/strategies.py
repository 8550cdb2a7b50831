"""Which broker takes a new replica: ranks of brokers that fit, the best first (MR-5).

A strategy is a function of a candidate and the brokers that hold the stream already; the smallest rank wins, and the name
decides between equals. A package adds one by an entry point of the group `supercluster.placement` whose name is what
`placementStrategy` says. It sees brokers that fit: what a stream asks for is judged before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

ENTRY_POINT_GROUP = "supercluster.placement"
# Of a broker whose room is not known just now: neither the best nor the worst place.
_UNKNOWN_ROOM_BYTES = 1


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
    """Free on its disk; None: not known."""
    in_contact: bool = True
    away_since: datetime | None = None
    """Since when the brokers have missed it, from their map; None: it is there."""
    leaves: bool = False
    """It goes for good."""
    cordoned: bool = False
    cordon: str = ""
    """Why, where the brokers' map says so and not its Kubernetes node."""
    """Its Kubernetes node takes no new pods: it is about to be drained, as far as anybody can tell."""
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


BUILT_IN: Mapping[str, Strategy] = {
    "spread-zones": spread_zones,
    "least-loaded": least_loaded,
    "most-free-disk": most_free_disk,
}
