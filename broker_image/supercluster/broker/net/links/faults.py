"""Fault injection for tests: links to chosen brokers or whole clusters lose all data, as if the network were
cut.

Only a broker whose settings set `linkFaults` has this, behind the operator's credentials (`/admin/faults`).
Nothing is read from or written to a cut connection. A connection that is given up meanwhile keeps its socket
open until the fault ends: the other side must detect the fault by silence, as in a partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

PARKED_MAX = 1024


class LinkFaults:
    """Which brokers can't be reached now, though they could."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed`: other brokers can't be reached now."""
        self._changed = changed
        self.nodes: frozenset[str] = frozenset()
        self.clusters: frozenset[str] = frozenset()
        self._parked: list[asyncio.Transport] = []

    def cuts(self, node: str, cluster: str) -> bool:
        """Is the broker unreachable?"""
        return node in self.nodes or cluster in self.clusters

    def set(self, nodes: frozenset[str], clusters: frozenset[str]) -> None:
        """From now on these can't be reached, and all others can."""
        self.nodes, self.clusters = nodes, clusters
        self._changed()
        if not nodes and not clusters:
            self.release()

    def park(self, transport: asyncio.Transport) -> None:
        """Keep the socket of a connection that was given up: its end does not reach the other side either."""
        self._parked.append(transport)
        if len(self._parked) > PARKED_MAX:
            self._parked.pop(0).abort()

    def release(self) -> None:
        """Close what was kept."""
        parked, self._parked = self._parked, []
        for transport in parked:
            transport.abort()

    async def admin(self, query: dict[str, str], body: Any) -> tuple[int, Any]:
        """PUT /admin/faults with {"brokers": [...], "clusters": [...]}; GET shows what is in force."""
        if body is not None:
            if not isinstance(body, dict) or set(body) - {"brokers", "clusters"}:
                return 400, {"error": 'the body has to be {"brokers": [...], "clusters": [...]}'}
            lists = [body.get(name, []) for name in ("brokers", "clusters")]
            for found in lists:
                if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
                    return 400, {"error": "brokers and clusters have to be lists of names"}
            self.set(frozenset(lists[0]), frozenset(lists[1]))
        return 200, {"brokers": sorted(self.nodes), "clusters": sorted(self.clusters)}
