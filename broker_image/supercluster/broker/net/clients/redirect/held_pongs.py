"""Green delays a new connection's first PONG until blue has settled the publishes of the connections of its
account that are closing at that moment (rule 10).

A redirected client publishes only after that PONG, so its messages come after those that it sent to blue.
Clients wait two seconds for it: after one second it is sent in any case, and counted. Connections that begin
to close later cannot be the one that the client left, and while many clients are redirected there are always
some.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

HOLD_MS = 1000
Connections = frozenset[tuple[str, str]]
"""Of blue: broker, and number there."""


@dataclass(frozen=True, slots=True)
class _Held:
    account: str
    behind: Connections
    until_ms: int


class HeldPongs:
    """New connections of one broker of green. `closing(account)`: what blue says of it now."""

    def __init__(self, closing: Callable[[str], Connections]) -> None:
        self._closing = closing
        self._held: dict[int, _Held] = {}
        """By connection, in the order in which they came."""
        self.held_total = 0
        self.not_kept_total = 0
        """Order not kept: the time was up while blue still had something unsettled."""

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, connection: int, account: str, now_ms: int) -> bool:
        """Is its first PONG to wait?"""
        behind = self._closing(account)
        if not behind:
            return False
        self._held[connection] = _Held(account, behind, now_ms + HOLD_MS)
        self.held_total += 1
        return True

    def went(self, connection: int) -> None:
        self._held.pop(connection, None)

    def release(self, now_ms: int) -> list[int]:
        """Those whose PONG is due now."""
        closing = {
            account: self._closing(account) for account in {held.account for held in self._held.values()}
        }
        due = []
        for connection, held in list(self._held.items()):
            is_settled = held.behind.isdisjoint(closing[held.account])
            if is_settled or now_ms >= held.until_ms:
                del self._held[connection]
                due.append(connection)
                self.not_kept_total += not is_settled
        return due
