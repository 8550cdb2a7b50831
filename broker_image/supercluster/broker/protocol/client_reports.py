"""A broker's report on clients to be redirected, for the others of its super-cluster, as the body of CLIENTS.
Pure.

Every broker receives all reports. So any broker can list the remaining clients, and each knows when all
others are linked with the other super-cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from heapq import nlargest
from typing import Any

from supercluster.broker.bounds import read_json

NAMES_MAX = 10
"""Of each list of one account; what is beyond is counted."""

ACCOUNTS_MAX = 4096

STREAMS_MAX = 8
"""Named of one client."""


@dataclass(frozen=True, slots=True)
class Publishing:
    """A connection that has published through this super-cluster to streams that were handed to another one (BG-12)."""

    account: str
    """The client's; streams of another account reach it by imports."""
    user: str
    name: str
    language: str
    address: str
    messages: int
    """1 <= messages, of which some may wait for the other super-cluster's answer."""
    streams: tuple[str, ...]
    """At most `STREAMS_MAX` of those that it published to."""


@dataclass(frozen=True, slots=True)
class AccountClients:
    """Connections of one account's users, those of the system and of operators left out."""

    connections: int = 0
    cannot: int = 0
    """0 <= cannot <= connections: they cannot be redirected, whatever green is."""
    staying: int = 0
    """0 <= staying <= connections: nobody asks them any more, or ever will."""
    publishing: int = 0
    """Those that published to streams of the account that were handed over; also of other accounts, by imports."""
    cannot_names: tuple[str, ...] = ()
    staying_names: tuple[str, ...] = ()
    publishers: tuple[Publishing, ...] = ()
    """Those with the most messages first."""
    failing: tuple[str, ...] = ()
    """Users that were sent to green and were not seen there."""
    tls: int = 0
    """0 <= tls <= connections - cannot: of those that can be redirected, they use TLS."""

    @property
    def waiting(self) -> int:
        """Those that are to go."""
        return max(0, self.connections - self.staying)


@dataclass(frozen=True, slots=True)
class ClientReport:
    """Of one broker."""

    linked: frozenset[str] = frozenset()
    """The worlds of super-clusters all of whose brokers, as far as they are known, are linked with this one."""
    accounts: Mapping[str, AccountClients] = field(default_factory=dict)


def encode_report(report: ClientReport, *, asks: bool) -> bytes:
    """`asks`: the receiver is to say the same of itself."""
    accounts = {name: asdict(report.accounts[name]) for name in sorted(report.accounts)[:ACCOUNTS_MAX]}
    told = {"asks": asks, "linked": sorted(report.linked), "accounts": accounts}
    return json.dumps(told).encode()


def decode_report(body: bytes | memoryview) -> tuple[ClientReport, bool]:
    """
    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is none.
    """
    told = read_json(body)
    accounts = {str(name): _account(found) for name, found in told["accounts"].items()}
    return ClientReport(frozenset(map(str, told["linked"])), accounts), bool(told["asks"])


def _account(told: Mapping[str, Any]) -> AccountClients:
    return AccountClients(
        int(told["connections"]),
        int(told["cannot"]),
        int(told["staying"]),
        int(told["publishing"]),
        cannot_names=_names(told["cannot_names"]),
        staying_names=_names(told["staying_names"]),
        publishers=tuple(_publishing(**found) for found in told["publishers"][:NAMES_MAX]),
        failing=_names(told["failing"]),
        tls=int(told["tls"]),
    )


def _publishing(*, messages: Any, streams: Iterable[Any], **texts: Any) -> Publishing:
    named = {key: str(text) for key, text in texts.items()}
    return Publishing(**named, messages=int(messages), streams=tuple(map(str, streams))[:STREAMS_MAX])


def busiest(found: Iterable[Publishing]) -> tuple[Publishing, ...]:
    """So many as are named, those with the most messages first."""
    return tuple(nlargest(NAMES_MAX, found, key=lambda each: each.messages))


def _names(told: Iterable[Any]) -> tuple[str, ...]:
    return tuple(map(str, told))[:NAMES_MAX]


def added(rows: Iterable[AccountClients]) -> AccountClients:
    """Those of several brokers, or accounts."""
    total = AccountClients()
    for row in rows:
        total = AccountClients(
            total.connections + row.connections,
            total.cannot + row.cannot,
            total.staying + row.staying,
            total.publishing + row.publishing,
            (total.cannot_names + row.cannot_names)[:NAMES_MAX],
            (total.staying_names + row.staying_names)[:NAMES_MAX],
            busiest(total.publishers + row.publishers),
            tuple(dict.fromkeys(total.failing + row.failing))[:NAMES_MAX],
            total.tls + row.tls,
        )
    return total
