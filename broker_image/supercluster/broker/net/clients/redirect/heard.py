"""The last reports of blue's brokers about closing connections with unsettled publishes, kept by a broker of
green.
"""

from __future__ import annotations

from collections.abc import Collection

from supercluster.broker.protocol.redirect_words import UNSETTLED_MS, Closing


class Heard:
    """By far broker. The word of one that says nothing more ends by itself."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[frozenset[Closing], int]] = {}
        """Far broker → connections, and until when that counts."""

    def told(self, node: str, connections: Collection[Closing], now_ms: int) -> None:
        """A broker of blue said so, in place of what it said before."""
        if connections:
            self._told[node] = (frozenset(connections), now_ms + UNSETTLED_MS)
        else:
            self._told.pop(node, None)

    def closing(self, account: str, now_ms: int) -> frozenset[tuple[str, str]]:
        """The account's: far broker, and the connection's number there."""
        return frozenset(
            (node, found.number)
            for node, (connections, until_ms) in self._told.items()
            if now_ms < until_ms
            for found in connections
            if found.account == account
        )
