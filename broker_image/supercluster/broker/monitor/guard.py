"""Bounds on connections of the monitoring port: their number, and the time for receiving a request and
sending its answer.

aiohttp bounds sizes and no times: a request that never ends would hold its connection for ever. A new
connection is always accepted. In exchange the oldest connection without a request in progress is closed, at
the address with the most connections. So probes are answered however many connections others hold open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import cast

from supercluster.broker.net.clients.strangers import PendingConnections

CONNECTIONS_MAX = 512
PER_ADDRESS_MAX = 64
"""Connections that wait for a request or for their answer to be taken; those whose request is being answered are bounded
apart from them."""

HEAD_S = 5.0
"""For a request's head, from its first byte; for the first one, from the connection's start."""
BODY_S = 10.0
SEND_S = 10.0
"""For the client to take its answer."""
IDLE_S = 75.0
"""Between requests: Prometheus and people come again."""


class Guards:
    """All connections of one port."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: PendingConnections[Guard] = PendingConnections(CONNECTIONS_MAX, PER_ADDRESS_MAX)
        self._by_handler: dict[Hashable, Guard] = {}

    def __len__(self) -> int:
        return len(self._by_handler)

    def guard(self, handler: asyncio.Protocol) -> Guard:
        """The connection that `handler` serves."""
        return Guard(self, handler)

    def begins(self, handler: Hashable) -> None:
        """The head of a request is there."""
        if (guard := self._by_handler.get(handler)) is not None:
            self._waiting.discard(guard)
            guard.begins()

    def ended(self, handler: Hashable) -> None:
        """Its answer is on the way."""
        if (guard := self._by_handler.get(handler)) is not None:
            self._wait(guard)
            guard.ended()

    def unsent_bytes(self) -> int:
        """Answers that clients have not taken yet."""
        return sum(guard.unsent_bytes() for guard in self._by_handler.values())

    def opened(self, guard: Guard) -> None:
        self._by_handler[guard.handler] = guard
        self._wait(guard)

    def closed(self, guard: Guard) -> None:
        self._by_handler.pop(guard.handler, None)
        self._waiting.discard(guard)

    def _wait(self, guard: Guard) -> None:
        if (evicted := self._waiting.add(guard, guard.address)) is not None:
            evicted.abort()


class Guard(asyncio.Protocol):
    """Between a socket and aiohttp's handler."""

    def __init__(self, guards: Guards, handler: asyncio.Protocol) -> None:
        self.handler = handler
        self.address = ""
        self._guards = guards
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_idle = False
        """No byte of the next request was read yet."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        self._limit(HEAD_S)
        self.handler.connection_made(transport)
        self._guards.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._is_idle:
            self._is_idle = False
            self._limit(HEAD_S)
        self.handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self.handler.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._transport = None
        self.handler.connection_lost(exc)
        self._guards.closed(self)

    def pause_writing(self) -> None:
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        self.handler.resume_writing()

    # Guards

    def begins(self) -> None:
        self._stop()
        self._is_idle = False

    def ended(self) -> None:
        self._is_idle = True
        self._stop()
        self._timer = self._guards.loop.call_later(SEND_S, self._sent)

    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _sent(self) -> None:
        if self.unsent_bytes():
            self._late()
        elif self._is_idle:
            self._limit(IDLE_S)

    def _limit(self, wait_s: float) -> None:
        self._stop()
        self._timer = self._guards.loop.call_later(wait_s, self._late)

    def _late(self) -> None:
        self._timer = None
        self.abort()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
