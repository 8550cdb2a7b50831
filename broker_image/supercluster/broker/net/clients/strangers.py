"""Bounds for clients and brokers that have not authenticated yet, by the address that they come from.

An address is an IPv4 address, or the /64 of an IPv6 address, since a host usually owns all of it.
`PendingConnections` bounds open connections: a new connection is always accepted, and in exchange the oldest
one of the address with the most connections is closed, so silent strangers keep no other client out.
`Attempts` bounds password comparisons per address. `RationedLog` bounds log lines. Memory is constant. No
I/O: the caller passes in the time.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

ADDRESSES_MAX = 4096
"""Addresses whose attempts are remembered. When there are more, the one that was used longest ago is forgotten."""


def network_of(address: str) -> str:
    """The address, or the /64 of an IPv6 address. Anything that is no IP address is its own network."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))


class PendingConnections(Generic[T]):
    """Open connections by address, each in the order in which they came."""

    def __init__(self, total_max: int, per_address_max: int) -> None:
        self._total_max = total_max
        self._per_address_max = per_address_max
        self._by_network: dict[str, OrderedDict[T, None]] = {}
        self._network_of: dict[T, str] = {}
        """In the order in which they came."""

    def __len__(self) -> int:
        return len(self._network_of)

    def __contains__(self, connection: object) -> bool:
        return connection in self._network_of

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._network_of))

    def add(self, connection: T, address: str) -> T | None:
        """Take a connection in; returns the one that has to be closed for it."""
        network = network_of(address)
        self._network_of[connection] = network
        own = self._by_network.setdefault(network, OrderedDict())
        own[connection] = None
        if len(own) > self._per_address_max:
            return self._pop(network)
        return self.evict() if len(self) > self._total_max else None

    def evict(self) -> T:
        """Take out the oldest of the address with the most."""
        most = max(map(len, self._by_network.values()))
        if most > 1:
            return self._pop(next(name for name, held in self._by_network.items() if len(held) == most))
        return self._pop(next(iter(self._network_of.values())))

    def discard(self, connection: T) -> None:
        """It is finished, or gone."""
        network = self._network_of.pop(connection, None)
        if network is None:
            return
        own = self._by_network[network]
        del own[connection]
        if not own:
            del self._by_network[network]

    def _pop(self, network: str) -> T:
        oldest = next(iter(self._by_network[network]))
        self.discard(oldest)
        return oldest


class Attempts:
    """How many more times an address may have a password compared: a bucket of `burst` that refills by `per_s`."""

    def __init__(self, burst: int, per_s: float) -> None:
        self._burst = burst
        self._per_ms = per_s / 1000
        self._used: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """Network → (attempts that count, when that was so); the one used last is the last."""

    def __len__(self) -> int:
        return len(self._used)

    def take(self, address: str, now_ms: int) -> bool:
        """Count one attempt; False when the address has none left."""
        network = network_of(address)
        used = self._used_now(network, now_ms)
        if used + 1 > self._burst:
            return False
        self._note(network, used + 1, now_ms)
        return True

    def give_back(self, address: str, now_ms: int) -> None:
        """An attempt was right, or was not made: it does not count."""
        network = network_of(address)
        self._note(network, max(0.0, self._used_now(network, now_ms) - 1), now_ms)

    def _used_now(self, network: str, now_ms: int) -> float:
        used, at_ms = self._used.get(network, (0.0, now_ms))
        return max(0.0, used - (now_ms - at_ms) * self._per_ms)

    def _note(self, network: str, used: float, now_ms: int) -> None:
        self._used.pop(network, None)
        if used:
            self._used[network] = (used, now_ms)
        if len(self._used) > ADDRESSES_MAX:
            self._used.popitem(last=False)


class RationedLog:
    """A log that strangers can write to: so many lines at once and so many a second; the others are counted."""

    def __init__(
        self, say: Callable[..., None], now_ms: Callable[[], int], burst: int = 20, per_s: float = 1.0
    ) -> None:
        self._say = say
        self._now_ms = now_ms
        self._lines = Attempts(burst, per_s)
        self.left_out = 0
        """Lines that were not written since the last one that was."""

    def __call__(self, text: str, *args: object) -> None:
        """Write a line in the words of `logging`, or count it."""
        if not self._lines.take("", self._now_ms()):
            self.left_out += 1
            return
        if self.left_out:
            text, args = text + " (%d more like it were not logged)", (*args, self.left_out)
            self.left_out = 0
        self._say(text, *args)
