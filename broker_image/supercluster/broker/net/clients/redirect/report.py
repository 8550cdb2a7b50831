"""What people and the operator are told of a broker's redirects: counts, and the worst cases by name (BG-12)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from supercluster.broker.net.clients.redirect.facts import Facts, Likeness, Reach
from supercluster.broker.net.clients.redirect.redirects import Redirects, State
from supercluster.broker.net.clients.redirect.scouting import Stage
from supercluster.broker.protocol.client_reports import NAMES_MAX, AccountClients, added

ROWS_MAX = 100
"""Of each list; what is beyond is counted."""


def report(redirects: Redirects, published: Callable[[int], int]) -> dict[str, Any]:
    """All of one broker; `published`: messages of a connection so far."""
    states: Counter[str] = Counter()
    reaches: Counter[str] = Counter()
    staying: Counter[tuple[Likeness, str, str]] = Counter()
    publishers: Counter[Likeness] = Counter()
    for number, tracked in redirects.tracked.items():
        state, likeness = redirects.shown_state(tracked), tracked.facts.likeness
        states[state.value] += 1
        reaches[redirects.reach(tracked).value] += 1
        if state is State.BRIDGED:
            staying[likeness, tracked.facts.version, redirects.why(tracked)] += 1
        if (messages := published(number) - tracked.published_before) > 0:
            publishers[likeness] += messages
    failing = [(user, found) for user, found in redirects.users.items() if found.stage is Stage.FAILING]
    return {
        "states": {state.value: states[state.value] for state in State},
        "reach": {reach.value: reaches[reach.value] for reach in Reach},
        "counts": dict(redirects.counts),
        "published": redirects.counts["published"] + publishers.total(),
        "failing": _rows(
            {"account": user.account, "user": user.name, "scouts": found.scouts, "returns": found.returns}
            for user, found in failing
        ),
        "bridged": _rows(
            _named(likeness) | {"version": version, "why": why, "connections": count}
            for (likeness, version, why), count in staying.most_common()
        ),
        "publishers": _rows(
            _named(likeness) | {"messages": count} for likeness, count in publishers.most_common()
        ),
    }


def counted(redirects: Redirects, clients: Iterable[tuple[Facts, int]]) -> dict[str, AccountClients]:
    """By account, for the other brokers of this super-cluster. `clients`: all of this broker, and how many messages each published."""
    rows: dict[str, list[AccountClients]] = {}
    for facts, messages in clients:
        if not facts.is_internal:
            rows.setdefault(facts.user.account, []).append(_row(redirects, facts, messages))
    found = {account: added(own) for account, own in rows.items()}
    for user in redirects.failing:
        if (row := found.get(user.account)) is not None:
            found[user.account] = replace(row, failing=(*row.failing, user.name)[:NAMES_MAX])
    return found


def _row(redirects: Redirects, facts: Facts, messages: int) -> AccountClients:
    tracked = redirects.tracked.get(facts.id)
    name = facts.likeness.name or f"a {facts.likeness.language or 'nameless'} client"
    cannot = facts.is_websocket or not facts.takes_info
    stays = cannot if tracked is None else redirects.shown_state(tracked) is State.BRIDGED
    publishes = tracked is not None and messages > tracked.published_before
    return AccountClients(
        1,
        int(cannot),
        int(stays),
        int(publishes),
        (name,) if cannot else (),
        (name,) if stays else (),
        ((facts.user.account, facts.user.name, name),) if publishes else (),
    )


def _named(likeness: Likeness) -> dict[str, Any]:
    told = {"account": likeness.user.account, "user": likeness.user.name, "name": likeness.name}
    return told | {"language": likeness.language, "address": likeness.address}


def _rows(found: Iterable[dict[str, Any]]) -> dict[str, Any]:
    rows = list(found)
    return {"total": len(rows), "first": rows[:ROWS_MAX]}
