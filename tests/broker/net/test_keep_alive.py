"""Who says nothing is asked, and given up when it has not answered often enough; who is not read is not given up."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from supercluster.broker.net.clients.keep_alive import KeepAlive

AUTH_MS = 300
INTERVAL_MS = 1000


class Timer:
    def __init__(self, after_s: float, act: Callable[[], None]) -> None:
        self.after_s = after_s
        self.act = act
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Client:
    """What was pushed to it, why it was closed, and the timers of its loop."""

    def __init__(self, *, authenticated: bool) -> None:
        self.authenticated = authenticated
        self.closed = self.is_stalled = False
        self.reasons: list[str] = []
        self.pushed: list[bytes] = []
        self.push = self.pushed.append
        self.timers: list[Timer] = []
        self.limits: Any = SimpleNamespace(
            ping_interval_ms=INTERVAL_MS, auth_timeout_ms=AUTH_MS, pings_out_max=2
        )
        self.counts = SimpleNamespace(stale_connections=0)
        self.host = self
        self.loop = self
        self.pings_out = 0
        found: Any = self
        self.keep_alive = KeepAlive(found)

    def call_later(self, after_s: float, act: Callable[[], None]) -> Timer:
        self.timers.append(Timer(after_s, act))
        return self.timers[-1]

    def close(self, reason: str) -> None:
        self.closed = True
        self.reasons.append(reason)

    def time_is_up(self) -> float:
        """The only timer comes; returns what it was set to."""
        (due,) = (timer for timer in self.timers if not timer.is_cancelled)
        self.timers.clear()
        due.act()
        return due.after_s


def test_a_client_has_so_long_for_connect() -> None:
    client = Client(authenticated=False)
    client.keep_alive.begin()
    assert client.time_is_up() == AUTH_MS / 1000
    assert client.reasons == ["Authentication Timeout"]
    assert not client.pushed


def test_pings_go_out_until_too_many_are_unanswered() -> None:
    client = Client(authenticated=True)
    client.keep_alive.begin()
    assert [client.time_is_up() for _ in range(3)] == [INTERVAL_MS / 1000] * 3
    assert client.pushed == [b"PING\r\n"] * 2
    assert client.reasons == ["Stale Connection"]
    assert client.counts.stale_connections == 1


@pytest.mark.covers("SF-15")
def test_who_is_heard_or_not_read_is_not_called_stale() -> None:
    client = Client(authenticated=True)
    client.keep_alive.begin()
    for _ in range(3):
        client.time_is_up()
        client.pings_out = 0
    client.is_stalled = True
    for _ in range(3):
        client.time_is_up()
    assert client.pushed == [b"PING\r\n"] * 6, "the connection shows that it is there"
    assert not client.reasons


def test_another_interval_counts_from_when_it_is_said() -> None:
    client = Client(authenticated=True)
    client.keep_alive.begin()
    client.limits.ping_interval_ms = 50
    client.keep_alive.limits_changed()
    assert client.time_is_up() == 0.05
    client.keep_alive.stop()
    client.keep_alive.limits_changed()
    assert all(timer.is_cancelled for timer in client.timers), "nobody is asked any more"
