"""The number of connections from an address that are refused before INFO, because a redirected client comes
back from there.

The client is not identified yet at that moment. So each client that has left allows for few refusals, and for
a short time. Another client from the same address (a proxy's) is turned away at most that often, and retries.
"""

from __future__ import annotations

from collections import OrderedDict, deque

ADDRESSES_MAX = 65_536


class Refusals:
    """By address; the one that was added to longest ago is forgotten first."""

    def __init__(self) -> None:
        self._allowed: OrderedDict[str, deque[tuple[int, int]]] = OrderedDict()
        """(until when, how many) of each client that is gone."""

    def __len__(self) -> int:
        return len(self._allowed)

    def allow(self, address: str, times: int, until_ms: int) -> None:
        """A client is gone from there."""
        self._allowed.setdefault(address, deque()).append((until_ms, times))
        self._allowed.move_to_end(address)
        if len(self._allowed) > ADDRESSES_MAX:
            self._allowed.popitem(last=False)

    def take(self, address: str, now_ms: int) -> bool:
        """Is this connection one to refuse? It counts then."""
        own = self._allowed.get(address)
        while own:
            until_ms, times = own.popleft()
            if now_ms < until_ms:
                if times > 1:
                    own.appendleft((until_ms, times - 1))
                return True
        self._allowed.pop(address, None)
        return False
