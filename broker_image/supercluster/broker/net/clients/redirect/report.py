"""The report on a broker's redirects for administrators and the operator: counts, and the worst cases by name
(BG-12).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Protocol

from supercluster.broker.net.clients.redirect.crossings import Crossing
from supercluster.broker.net.clients.redirect.facts import Likeness, Reach
from supercluster.broker.net.clients.redirect.redirects import Redirects, State
from supercluster.broker.net.clients.redirect.scouting import Stage
from supercluster.broker.ports import ClientInfo
from supercluster.broker.protocol.client_reports import NAMES_MAX, AccountClients, Publishing, busiest

ROWS_MAX = 100
"""Of each list; what is beyond is counted."""


def report(redirects: Redirects, published: int, publishers: Iterable[Publishing]) -> dict[str, Any]:
    """All of one broker; `published`: messages to streams that were handed over, since the start."""
    states: Counter[str] = Counter()
    reaches: Counter[str] = Counter()
    staying: Counter[tuple[Likeness, str, str]] = Counter()
    for tracked in redirects.tracked.values():
        state, likeness = redirects.shown_state(tracked), tracked.facts.likeness
        states[state.value] += 1
        reaches[redirects.reach(tracked).value] += 1
        if state is State.BRIDGED:
            staying[likeness, tracked.facts.version, redirects.why(tracked)] += 1
    failing = [(user, found) for user, found in redirects.users.items() if found.stage is Stage.FAILING]
    return {
        "states": {state.value: states[state.value] for state in State},
        "reach": {reach.value: reaches[reach.value] for reach in Reach},
        "counts": dict(redirects.counts),
        "published": published,
        "failing": _rows(
            {"account": user.account, "user": user.name, "scouts": found.scouts, "returns": found.returns}
            for user, found in failing
        ),
        "bridged": _rows(
            _named(likeness) | {"version": version, "why": why, "connections": count}
            for (likeness, version, why), count in staying.most_common()
        ),
        "publishers": _rows(
            asdict(each) for each in sorted(publishers, key=lambda each: each.messages, reverse=True)
        ),
    }


class Connected(Protocol):
    """A connection, as it is counted."""

    @property
    def id(self) -> int: ...

    @property
    def name(self) -> str: ...

    is_websocket: bool
    wants_info: bool
    language: str
    peer: tuple[Any, ...]
    info: ClientInfo

    @property
    def uses_tls(self) -> bool: ...


def publishing(
    account: str, client: Connected, crossings: Mapping[str, Crossing]
) -> Iterator[tuple[str, Publishing]]:
    """What a client of `account` published through this super-cluster, with the account of the streams."""
    user, address = client.info.user, str(client.peer[0])
    for into, found in crossings.items():
        yield (
            into,
            Publishing(
                account, user, client.name, client.language, address, found.messages, tuple(found.streams)
            ),
        )


class _Count:
    """Of one account's connections. There may be many thousands, which are counted in one go every second."""

    __slots__ = (
        "cannot",
        "cannot_names",
        "connections",
        "publishers",
        "staying",
        "staying_names",
        "tls",
    )

    def __init__(self) -> None:
        self.connections = self.cannot = self.staying = self.tls = 0
        self.cannot_names: list[str] = []
        self.staying_names: list[str] = []
        self.publishers: list[Publishing] = []

    def shown(self, failing: Iterable[str]) -> AccountClients:
        return AccountClients(
            self.connections,
            self.cannot,
            self.staying,
            len(self.publishers),
            tuple(self.cannot_names),
            tuple(self.staying_names),
            busiest(self.publishers),
            tuple(failing)[:NAMES_MAX],
            self.tls,
        )


def counted(
    redirects: Redirects,
    connections: Iterable[tuple[str, Connected]],
    crossings: Mapping[int, Mapping[str, Crossing]],
) -> dict[str, AccountClients]:
    """By account, for the other brokers of this super-cluster. `connections`: account and connection, without those that are nobody's
    who could go. `crossings`: by connection and account."""
    tracked, failing = redirects.tracked, set(redirects.failing)
    counts: defaultdict[str, _Count] = defaultdict(_Count)
    for account, client in connections:
        count = counts[account]
        count.connections += 1
        found = tracked.get(client.id)
        stays = cannot = client.is_websocket or not client.wants_info
        if found is not None:
            is_kept = found.state is not State.ASKED and found.facts.user in failing
            stays = is_kept or found.state is State.BRIDGED
        if (crossed := crossings.get(client.id)) is not None:
            for into, row in publishing(account, client, crossed):
                counts[into].publishers.append(row)
        count.tls += client.uses_tls and not cannot
        if cannot:
            count.cannot += 1
            if count.cannot <= NAMES_MAX:
                count.cannot_names.append(_called(client))
        if stays:
            count.staying += 1
            if count.staying <= NAMES_MAX:
                count.staying_names.append(_called(client))
    users: dict[str, list[str]] = {}
    for user in sorted(failing):
        users.setdefault(user.account, []).append(user.name)
    return {account: count.shown(users.get(account, ())) for account, count in counts.items()}


def _called(client: Connected) -> str:
    return client.name or f"a {client.language or 'nameless'} client"


def _named(likeness: Likeness) -> dict[str, Any]:
    told = {"account": likeness.user.account, "user": likeness.user.name, "name": likeness.name}
    return told | {"language": likeness.language, "address": likeness.address}


def _rows(found: Iterable[dict[str, Any]]) -> dict[str, Any]:
    rows = list(found)
    return {"total": len(rows), "first": rows[:ROWS_MAX]}
