"""Green holds a new connection's first PONG until blue has settled what closing connections of its account published (rule 10).

A publisher that was redirected publishes only after that PONG, so its messages come behind those that it sent to blue. Clients wait two
seconds for it: after one it is sent in any case, and counted.
"""

from __future__ import annotations

from collections.abc import Callable

HOLD_MS = 1000


class HeldPongs:
    """New connections of one broker of green. `unsettled(account)`: does blue say so?"""

    def __init__(self, unsettled: Callable[[str], bool]) -> None:
        self.unsettled = unsettled
        self._held: dict[int, tuple[str, int]] = {}
        """Connection → its account, and until when; in the order in which they came."""
        self.held_total = 0
        self.not_kept_total = 0
        """Order not kept: the time was up while blue still had something unsettled."""

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, connection: int, account: str, now_ms: int) -> bool:
        """Is its first PONG to wait?"""
        if not self.unsettled(account):
            return False
        self._held[connection] = (account, now_ms + HOLD_MS)
        self.held_total += 1
        return True

    def went(self, connection: int) -> None:
        self._held.pop(connection, None)

    def release(self, now_ms: int) -> list[int]:
        """Those whose PONG is due now."""
        settled = {account: not self.unsettled(account) for account, _ in self._held.values()}
        due = [
            connection
            for connection, (account, until_ms) in self._held.items()
            if settled[account] or now_ms >= until_ms
        ]
        for connection in due:
            account, _ = self._held.pop(connection)
            self.not_kept_total += not settled[account]
        return due
