"""When clients hear of green, and when they are asked to go there (BG-4, BG-5; rules 16 and 19)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from supercluster.broker.jetstream.meta.migration import Green, Migration
from supercluster.broker.jetstream.meta.redirect_orders import (
    GreenLinks,
    RedirectOrder,
    is_watched,
    redirect_orders,
)
from supercluster.broker.jetstream.meta.state import MetaState

pytestmark = pytest.mark.covers("BG-4", "BG-5")

WORLD = "3fa9c21b"
ALL = Migration("m1", Green("green"), WORLD, bridges=True)
ONE = replace(ALL, id="m2", account="A", bridges=False)
URLS = ("green-0:4222", "green-1:4222")
LINKED = GreenLinks({WORLD: URLS}, {WORLD}, {WORLD})
ALONE = replace(LINKED, linked_by_all=())
CUT = GreenLinks({}, (), ())
ASKS = RedirectOrder("m1", WORLD, "", URLS, asks=True, bridges=True)


def state(migration: Migration, **streams: str) -> MetaState:
    """`streams`: by name, pending, learning or open."""
    found = MetaState()
    found.migrations[migration.id] = migration
    for name, stage in streams.items():
        way = None if stage == "pending" else SimpleNamespace(id=migration.id, world=WORLD)
        far = WORLD if stage == "open" else ""
        stream: Any = SimpleNamespace(account=name[0], following=None, migration=way, far_world=far)
        found.streams[name[0], name] = stream
        if way is not None:
            found.migrating.add((name[0], name))
    return found


@pytest.mark.parametrize("streams", [{}, {"A1": "pending"}, {"A1": "open", "A2": "learning"}])
def test_nobody_hears_of_green_before_it_has_all_streams(streams: dict[str, str]) -> None:
    assert redirect_orders(state(ALL, **streams), LINKED, {}) == {}


def test_streams_of_other_accounts_are_not_waited_for() -> None:
    found = redirect_orders(state(ONE, A1="open", B1="pending"), LINKED, {})
    assert found == {"m2": RedirectOrder("m2", WORLD, "A", URLS, asks=True, bridges=False)}


def test_nobody_hears_of_green_before_core_subjects_are_bridged() -> None:
    there = state(ALL, A1="open")
    assert redirect_orders(there, CUT, {}) == {}
    assert redirect_orders(there, replace(LINKED, linked=()), {}) == {}
    assert redirect_orders(there, replace(LINKED, urls={}), {}) == {}


def test_clients_are_asked_when_every_broker_is_linked_with_green() -> None:
    there = state(ALL, A1="open", B1="open")
    assert redirect_orders(there, ALONE, {}) == {"m1": replace(ASKS, asks=False)}
    assert redirect_orders(there, LINKED, {}) == {"m1": ASKS}


def test_who_has_heard_of_green_is_not_told_otherwise() -> None:
    """Neither when a stream is made meanwhile, nor when a broker of green is away, nor when the link is cut."""
    before = {"m1": ASKS}
    waits = {"m1": replace(ASKS, asks=False)}
    assert redirect_orders(state(ALL, A1="open", A2="pending"), LINKED, before) == before | waits
    assert redirect_orders(state(ALL, A1="open"), replace(CUT, urls={}), before) == waits
    assert redirect_orders(state(ALL, A1="open"), LINKED, waits) == before


def test_clients_with_tls_have_addresses_of_their_own() -> None:
    """BG-5: green may take only them; and what they were told of is kept while green is away."""
    there = state(ALL, A1="open")
    secure = replace(LINKED, urls={}, tls_urls={WORLD: URLS})
    told = {"m1": replace(ASKS, urls=(), tls_urls=URLS)}
    assert redirect_orders(there, secure, {}) == told
    assert redirect_orders(there, replace(secure, tls_urls={}), told) == told
    assert redirect_orders(there, LINKED, told) == {"m1": ASKS}


def test_a_migration_that_is_called_off_redirects_nobody() -> None:
    gone = state(replace(ALL, cancelled=True), A1="open")
    assert redirect_orders(gone, LINKED, {"m1": ASKS}) == {}
    assert not is_watched(gone)


def test_clients_that_come_when_the_migration_is_over_are_redirected_too() -> None:
    """Streams that are made on blue afterwards are nobody's affair."""
    over = state(replace(ALL, final=True, ended_ns=1), A1="open", A2="pending")
    assert redirect_orders(over, LINKED, {}) == {"m1": ASKS}
    assert is_watched(over)
