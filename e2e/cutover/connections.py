"""Connections of nats-py, unmodified, and when each was without a broker.

A redirect is for the client a connection that ends and another one that begins, so the stall that it brings is told apart from the
others by the times that are noted here.
"""

from __future__ import annotations

import itertools
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext

from supercluster.spark.client import Credentials

OPEN_SECONDS = 20.0
ANSWER_SECONDS = 15.0
CLOSE_SECONDS = 5.0
WINDOW = 2_000
"""Publishes that are open at most, of one connection."""
ERRORS_MAX = 200
NOT_STORED = re.compile(r'publish to "([^"]+)": message not stored', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Outage:
    """A connection was gone."""

    began: float
    ended: float
    left: str
    """The host of the broker before."""
    host: str
    """The host of the broker since."""


@dataclass(frozen=True, slots=True)
class Stalls:
    """The longest times without an answer to a publisher, in milliseconds."""

    connected: float
    """Over a connection that stayed."""
    redirected: float
    """Over a redirect, from the lost connection to the first answer over the next one."""
    reconnected: float
    """Over a reconnection to the same side. A broker that was killed took answers with it, for which a publisher waits until it
    gives up; and a client may come back before it goes to green."""


@dataclass(slots=True)
class Connection:
    """One client of the application."""

    name: str
    urls: Sequence[str]
    login: Credentials
    outages: list[Outage] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    not_stored: Counter[str] = field(default_factory=Counter)
    """By stream, plain messages that a broker said it did not store. nats-py gives such texts in lower case."""
    client: Client = field(default_factory=Client)
    _down_at: float = 0.0
    _last_host: str = ""

    async def open(self) -> None:
        """Raises an error of nats-py when no broker takes it."""
        options: dict[str, Any] = {
            "name": self.name,
            "max_reconnect_attempts": -1,
            # It begins at the broker that the row means it to; only a reconnection goes elsewhere.
            "dont_randomize": True,
            "error_cb": self._on_error,
            "disconnected_cb": self._on_down,
            "reconnected_cb": self._on_up,
        }
        if self.login.user:
            options |= {"user": self.login.user, "password": self.login.password}
        await self.client.connect(list(self.urls), **options)
        self._last_host = self.host

    def js(self) -> JetStreamContext:
        return self.client.jetstream(timeout=ANSWER_SECONDS, publish_async_max_pending=WINDOW)

    @property
    def host(self) -> str:
        """Where it is connected; empty: nowhere."""
        found = self.client.connected_url if self.client.is_connected else None
        return (urlsplit(found.geturl()).hostname or "") if found is not None else ""

    @property
    def is_closed(self) -> bool:
        """nats-py has given up."""
        return bool(self.client.is_closed)

    async def _on_error(self, error: Exception) -> None:
        found = NOT_STORED.search(str(error))
        if found:
            self.not_stored[found.group(1).upper()] += 1
        if len(self.errors) < ERRORS_MAX:
            self.errors.append(f"{time.monotonic():.3f} {type(error).__name__}: {error}")

    async def _on_down(self) -> None:
        self._down_at = time.monotonic()

    async def _on_up(self) -> None:
        left, self._last_host = self._last_host, self.host
        self.outages.append(Outage(self._down_at, time.monotonic(), left, self._last_host))

    async def close(self) -> None:
        try:
            await self.client.close()
        except (nats.errors.Error, OSError):
            pass


def longest_stalls(
    answers: Sequence[float],
    outages: Sequence[Outage],
    since: float,
    until: float,
    side_of: Callable[[str], str],
) -> Stalls:
    """Of one publisher. `side_of`: the super-cluster of a host. Pure.

    A gap that an outage reaches into counts as the redirect's, and one that another reconnection reaches into as that one's."""
    edges = [since, *(at for at in answers if since <= at <= until), until]
    connected = redirected = reconnected = 0.0
    for before, after in itertools.pairwise(edges):
        within = [outage for outage in outages if outage.began < after and outage.ended > before]
        took_ms = 1000 * (after - before)
        if not within:
            connected = max(connected, took_ms)
        elif all(side_of(outage.left) != side_of(outage.host) for outage in within):
            redirected = max(redirected, took_ms)
        else:
            reconnected = max(reconnected, took_ms)
    return Stalls(connected, redirected, reconnected)
