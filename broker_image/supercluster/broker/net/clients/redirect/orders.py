"""The map's orders about the clients of an account whose streams are handed to another super-cluster (green)."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Phase(Enum):
    """How far clients may be asked. The streams of the account are open on green from `ANNOUNCE` on."""

    ANNOUNCE = "announce"
    """INFO names green; nobody is asked."""
    REDIRECT = "redirect"
    """Connections are asked to leave, user by user."""
    CLOSED = "closed"
    """Nobody is served any more."""


class Policy(Enum):
    """What happens to clients that come back, or that cannot be redirected."""

    BRIDGE = "bridge"
    """They are served over the bridge."""
    REFUSE = "refuse"
    """They are closed before their first PONG, once green is known to let their user in."""


@dataclass(frozen=True, slots=True)
class Order:
    """For one account, or for all."""

    migration: str
    phase: Phase
    urls: tuple[str, ...]
    """host:port of green's brokers for plain clients."""
    tls_urls: tuple[str, ...] = ()
    """For clients that use TLS: names, since an address is verified against the name of the server before."""
    policy: Policy = Policy.BRIDGE
    world: str = ""
    """Green's."""

    def urls_for(self, *, is_tls: bool) -> list[str]:
        """What INFO names; empty: there is nothing for such a client."""
        if not is_tls:
            return list(self.urls)
        return [url for url in self.tls_urls if not is_address(url)]


class RedirectOrders(Protocol):
    """The map's side. Whoever changes an order calls `Redirection.orders_changed`."""

    def order_of(self, account: str) -> Order | None:
        """The order for an account; None: its clients stay. The system account has none."""

    def order_for_all(self) -> Order | None:
        """The order when all accounts are in scope, so that INFO may name green before CONNECT."""


class NoOrders:
    """Nothing is migrated."""

    def order_of(self, account: str) -> Order | None:
        return None

    def order_for_all(self) -> Order | None:
        return None


def is_address(url: str) -> bool:
    """Is the host of host:port an IP address?"""
    host = url.rpartition(":")[0].strip("[]")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
