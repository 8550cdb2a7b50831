"""Is a client still there? It has so long for CONNECT; then a PING goes out in every interval, and so many may be unanswered.

What it says at all counts as an answer. One whose socket is not read cannot answer, and is not called stale (SF-15).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from supercluster.broker.net.clients.client import Client
from supercluster.broker.settings.settings import Limits


class KeepAlive:
    """Of one client."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Callable[[], Limits], client: Client) -> None:
        self._loop = loop
        self._limits = limits
        self._client = client
        self._timer: asyncio.TimerHandle | None = None
        self.pings_out = 0
        """PINGs since it was last heard; whoever hears it sets this to 0."""

    def begin(self) -> None:
        """It is the client's turn: it has so long for CONNECT, or until the first PING."""
        client = self._client
        limits = self._limits()
        wait_ms = limits.ping_interval_ms if client.authenticated else limits.auth_timeout_ms
        if self._timer is None and not client.closed:
            self._wait(wait_ms)

    def restart(self) -> None:
        """The next PING is due in an interval."""
        self.stop()
        self._wait(self._limits().ping_interval_ms)

    def limits_changed(self) -> None:
        """Another interval counts from now on."""
        if self._timer is not None and self._client.authenticated and not self._client.closed:
            self.restart()

    def stop(self) -> None:
        """It is not asked any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, wait_ms: int) -> None:
        self._timer = self._loop.call_later(wait_ms / 1000, self._time_is_up)

    def _time_is_up(self) -> None:
        """No CONNECT in time, or the next PING is due."""
        self._timer = None
        client = self._client
        if client.closed:
            return
        limits = self._limits()
        if not client.authenticated:
            client.close("Authentication Timeout")
            return
        if not client.is_stalled:
            if self.pings_out >= limits.pings_out_max:
                client.counts.stale_connections += 1
                client.close("Stale Connection")
                return
            self.pings_out += 1
        client.push(b"PING\r\n")
        self._wait(limits.ping_interval_ms)
