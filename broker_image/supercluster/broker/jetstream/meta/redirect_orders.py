"""The clients to be redirected to another super-cluster, by the map of streams and the links with it. Pure.

Clients learn of green only when it has all streams of the scope, and when this broker's clients and green's
receive each other's core subjects (rule 16). After that they are never sent back, unless the migration is
called off. If a broker of green restarts, or a stream is created meanwhile, redirecting only pauses for as
long as that takes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from supercluster.broker.jetstream.meta.migration import Migration
from supercluster.broker.jetstream.meta.state import MetaState


@dataclass(frozen=True, slots=True)
class RedirectOrder:
    """For the clients of one account, or of all."""

    migration: str
    world: str
    """Green's."""
    account: str
    """Empty: all."""
    urls: tuple[str, ...]
    """host:port of green's brokers for clients without TLS."""
    asks: bool
    """Are connections asked to leave? Otherwise INFO names green, and nobody is asked."""
    bridges: bool
    """Are those that come back served?"""
    tls_urls: tuple[str, ...] = ()
    """host:port of green's brokers for clients with TLS."""


@dataclass(frozen=True, slots=True)
class GreenLinks:
    """What a broker knows of its links with greens, besides the map."""

    urls: Mapping[str, tuple[str, ...]]
    """World → where green's linked brokers take clients without TLS."""
    linked: Collection[str]
    """Worlds all of whose brokers are linked with this one."""
    linked_by_all: Collection[str]
    """Worlds all of whose brokers are linked with every broker of this super-cluster that is in contact."""
    tls_urls: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """World → where green's linked brokers take clients with TLS."""


def redirect_orders(
    state: MetaState, greens: GreenLinks, before: Mapping[str, RedirectOrder]
) -> dict[str, RedirectOrder]:
    """By migration. `before`: what this gave the last time."""
    found: dict[str, RedirectOrder] = {}
    for migration in state.migrations.values():
        if migration.cancelled:
            continue
        known = before.get(migration.id)
        is_open = is_all_open(state, migration)
        urls, tls_urls = greens.urls.get(migration.world, ()), greens.tls_urls.get(migration.world, ())
        is_named = bool(urls or tls_urls)
        if known is None and not (is_open and is_named and migration.world in greens.linked):
            continue
        if known is not None and not is_named:
            urls, tls_urls = known.urls, known.tls_urls
        found[migration.id] = RedirectOrder(
            migration.id,
            migration.world,
            migration.account,
            urls,
            asks=is_open and migration.world in greens.linked_by_all,
            bridges=migration.bridges,
            tls_urls=tls_urls,
        )
    return found


def is_all_open(state: MetaState, migration: Migration) -> bool:
    """Has green all streams of the scope, of which there is one at least?"""
    gone = [
        state.streams[key]
        for key in state.migrating
        if (way := state.streams[key].migration) is not None and way.id == migration.id
    ]
    if not gone or not all(found.far_world for found in gone):
        return False
    if migration.final or not migration.runs:
        return True
    return not any(
        found.migration is None and found.following is None and migration.covers(found.account)
        for found in state.streams.values()
    )


def is_watched(state: MetaState) -> bool:
    """Do brokers tell each other of their clients? Also of those that come when the migration is over."""
    return any(not migration.cancelled for migration in state.migrations.values())
