"""Addresses of brokers of other clusters: their sources, their success, and when they are forgotten.

No I/O: the caller passes in the time. An address has *tellers*. These are the linked brokers that are linked
with its broker right now, and the broker itself when it introduced itself or was linked. A teller's list
replaces its previous one, and is dropped with the link to it. An address that fails for `FORGET_MS` and has
no teller is forgotten, and a broker is forgotten with its last address; seeds and gossip bring it back.
Everything is bounded, for the tellers are only as good as their brokers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from supercluster.broker.protocol.frames import GatewayAddress
from supercluster.broker.settings.settings import SettingsError, check_name, split_address

BROKERS_MAX = 1024
ADDRESSES_MAX = 4
"""Of one broker: the newest are kept."""

FORGET_MS = 300_000
"""Long enough for a broker to be restarted or moved to another node; seeds are asked for longer absences."""


@dataclass(slots=True)
class _Address:
    learnt: int
    """Number of the telling: the newest is tried first."""
    tellers: set[str] = field(default_factory=set)
    failures: int = 0
    failing_since_ms: int | None = None
    error: str = ""


@dataclass(slots=True)
class _Known:
    cluster: str
    addresses: dict[str, _Address] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shown:
    """A broker for /gatewayz."""

    node: str
    cluster: str
    addresses: tuple[str, ...]
    error: str


class AddressBook:
    """Gateway addresses of brokers of other clusters."""

    def __init__(self, node: str, cluster: str) -> None:
        self._node = node
        self._cluster = cluster
        self._known: dict[str, _Known] = {}
        self._told = 0
        self._conflicts: dict[tuple[str, str], str] = {}
        """(broker, teller) → what two clusters claim about its name."""

    @property
    def nodes(self) -> list[str]:
        """All brokers that an address is known of."""
        return list(self._known)

    @property
    def conflicts(self) -> dict[str, str]:
        """Broker → what two clusters claim about its name."""
        return {node: text for (node, _), text in sorted(self._conflicts.items())}

    def cluster_of(self, node: str) -> str | None:
        """The cluster of a known broker."""
        known = self._known.get(node)
        return known.cluster if known is not None else None

    def said_itself(self, node: str, cluster: str, url: str) -> None:
        """A broker told its own address in a handshake: the best word there is."""
        known = self._known.get(node)
        if known is not None and known.cluster != cluster:
            self._forget(node)
        address = self._add(GatewayAddress(node, cluster, url)) if url else None
        if address is not None:
            address.failures, address.failing_since_ms, address.error = 0, None, ""

    def on_addresses(self, teller: str, entries: Iterable[GatewayAddress]) -> None:
        """What a linked broker knows replaces what it knew before."""
        self.teller_lost(teller)
        for entry in entries:
            if entry.node == self._node or entry.cluster == self._cluster:
                continue
            known = self._known.get(entry.node)
            if known is not None and known.cluster != entry.cluster:
                if len(self._conflicts) < BROKERS_MAX:
                    self._conflicts[entry.node, teller] = (
                        f"{teller} says that {entry.node} is of cluster {entry.cluster}, "
                        f"and a broker of that name is known in {known.cluster}"
                    )
                continue
            address = self._add(entry)
            if address is not None:
                address.tellers.add(teller)

    def teller_lost(self, teller: str) -> None:
        """The link with a teller is gone, or it will say all anew: it vouches for nothing."""
        for known in self._known.values():
            for address in known.addresses.values():
                address.tellers.discard(teller)
        self._conflicts = {key: text for key, text in self._conflicts.items() if key[1] != teller}

    def next_address(self, node: str) -> str | None:
        """The address to try now: the one that failed least, the newest of those."""
        known = self._known.get(node)
        if known is None:
            return None
        return min(
            known.addresses, key=lambda url: (known.addresses[url].failures, -known.addresses[url].learnt)
        )

    def worked(self, node: str, url: str) -> None:
        """A handshake with the broker succeeded there."""
        address = self._address(node, url)
        if address is not None:
            address.failures, address.failing_since_ms, address.error = 0, None, ""

    def failed(self, node: str, url: str, error: str, now_ms: int) -> None:
        """It did not; forget the address when that has been so for too long."""
        address = self._address(node, url)
        if address is None:
            return
        address.failures += 1
        address.error = error
        if address.failing_since_ms is None:
            address.failing_since_ms = now_ms
        elif now_ms - address.failing_since_ms >= FORGET_MS and not address.tellers:
            known = self._known[node]
            del known.addresses[url]
            if not known.addresses:
                self._forget(node)

    def shown(self) -> list[Shown]:
        """For /gatewayz."""
        return [
            Shown(
                node,
                known.cluster,
                tuple(known.addresses),
                next((address.error for address in known.addresses.values() if address.error), ""),
            )
            for node, known in sorted(self._known.items())
        ]

    def _forget(self, node: str) -> None:
        del self._known[node]
        self._conflicts = {key: text for key, text in self._conflicts.items() if key[0] != node}

    def _address(self, node: str, url: str) -> _Address | None:
        known = self._known.get(node)
        return known.addresses.get(url) if known is not None else None

    def _add(self, entry: GatewayAddress) -> _Address | None:
        try:
            check_name("broker", entry.node)
            check_name("cluster", entry.cluster)
            split_address("gateway", entry.url)
        except SettingsError:
            return None
        known = self._known.get(entry.node)
        if known is None:
            if len(self._known) >= BROKERS_MAX:
                return None
            known = self._known[entry.node] = _Known(entry.cluster)
        self._told += 1
        address = known.addresses.get(entry.url)
        if address is not None:
            return address
        if len(known.addresses) >= ADDRESSES_MAX:
            oldest = min(
                known.addresses,
                key=lambda url: (bool(known.addresses[url].tellers), known.addresses[url].learnt),
            )
            del known.addresses[oldest]
        address = known.addresses[entry.url] = _Address(self._told)
        return address
