"""Detects dead clients: a client has a time limit for CONNECT, and then for its answers to PINGs.

A PING goes out in every interval, and a bounded number may be unanswered. Any input counts as an answer. A
client whose socket is not read cannot answer, and is not closed as stale (SF-15).
"""

from __future__ import annotations

import asyncio

from supercluster.broker.net.clients.client import Client


class KeepAlive:
    """Of one client."""

    def __init__(self, client: Client) -> None:
        self._host = client.host
        self._client = client
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """It is the client's turn: it has so long for CONNECT, or until the first PING."""
        client = self._client
        limits = self._host.limits
        wait_ms = limits.ping_interval_ms if client.authenticated else limits.auth_timeout_ms
        if self._timer is None and not client.closed:
            self._wait(wait_ms)

    def restart(self) -> None:
        """The next PING is due in an interval."""
        self.stop()
        self._wait(self._host.limits.ping_interval_ms)

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
        self._timer = self._host.loop.call_later(wait_ms / 1000, self._time_is_up)

    def _time_is_up(self) -> None:
        """No CONNECT in time, or the next PING is due."""
        self._timer = None
        client = self._client
        if client.closed:
            return
        limits = self._host.limits
        if not client.authenticated:
            client.close("Authentication Timeout")
            return
        if not client.is_stalled:
            if client.pings_out >= limits.pings_out_max:
                client.counts.stale_connections += 1
                client.close("Stale Connection")
                return
            client.pings_out += 1
        client.push(b"PING\r\n")
        self._wait(limits.ping_interval_ms)
