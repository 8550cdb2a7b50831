"""What brokers of blue last said of accounts with unsettled publishes of closing connections; a broker of green asks it."""

from __future__ import annotations

from collections.abc import Collection

from supercluster.broker.protocol.redirect_words import UNSETTLED_MS


class Heard:
    """By far broker. The word of one that says nothing more ends by itself."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[frozenset[str], int]] = {}
        """Far broker → accounts, and until when that counts."""

    def told(self, node: str, accounts: Collection[str], now_ms: int) -> None:
        """A broker of blue said so, in place of what it said before."""
        if accounts:
            self._told[node] = (frozenset(accounts), now_ms + UNSETTLED_MS)
        else:
            self._told.pop(node, None)

    def is_unsettled(self, account: str, now_ms: int) -> bool:
        return any(account in accounts and now_ms < until_ms for accounts, until_ms in self._told.values())
