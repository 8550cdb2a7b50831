"""Chooses the brokers that start the map of streams if no founder was configured: pure decisions of brokers
that found one another by addresses.

All clusters that may ever be linked name the same ones (`docs/adr/drop-in-clusters.md`), so they agree on the
first cluster. Within it the first broker by name starts the map, which `jetstream/node/bootstrap.py` does.
"""

from __future__ import annotations

from collections.abc import Iterable

FOUNDERS_MAX = 5
"""Voters of the beginning; more than five would make every decision slower."""


def first(clusters: Iterable[str]) -> str:
    """The cluster that begins."""
    return min(clusters)


def voters(names: tuple[str, ...], cluster: str, others: Iterable[str]) -> tuple[str, ...]:
    """Who votes in the beginning, of a cluster with brokers of these names, in order: an odd number of them. None while the names
    are not known, and in every cluster but the first."""
    if not names or first((cluster, *others)) != cluster:
        return ()
    return names[: min(len(names) - 1 + len(names) % 2, FOUNDERS_MAX)]
