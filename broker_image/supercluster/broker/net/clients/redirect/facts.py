"""The known facts about one connection, and whether it can be redirected at all."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from supercluster.broker.net.clients.redirect.orders import Order


class Reach(Enum):
    """Whether a client reconnects is its own option, which CONNECT does not tell."""

    CANNOT = "cannot"
    MAY = "may"
    SEEN = "seen on green"
    """Its user is connected to green."""


class User(NamedTuple):
    """A user of an account; empty: the one of those who say nothing of themselves."""

    account: str
    name: str


class Likeness(NamedTuple):
    """Connections of one likeness may be the same client, before and after it was asked."""

    user: User
    name: str
    language: str
    address: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one connection, after its CONNECT."""

    id: int
    likeness: Likeness
    version: str = ""
    is_websocket: bool = False
    is_tls: bool = False
    takes_info: bool = True
    is_internal: bool = False
    """The operator's, the system's, or that of a health check: never redirected (BG-8)."""

    @property
    def user(self) -> User:
        return self.likeness.user


def obstacle(facts: Facts, order: Order) -> str:
    """Why the connection cannot be redirected; empty: it may be."""
    if facts.is_websocket:
        return "WebSocket clients take no addresses from INFO"
    if not facts.takes_info:
        return "the client takes no INFO after the first one (protocol 0)"
    if not order.urls_for(is_tls=facts.is_tls):
        return (
            "green has no TLS address by name" if facts.is_tls else "green has no address for plain clients"
        )
    return ""
