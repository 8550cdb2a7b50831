"""A port that serves HTTP by aiohttp: bounds on its connections (`guard.py`), and TLS that may come and go while it
is open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from aiohttp import web

from supercluster.broker.monitor import guard
from supercluster.broker.net.clients.certificates import ClientCertificates
from supercluster.broker.net.clients.secure_protocol import SecureProtocol
from supercluster.broker.net.clients.strangers import RationedLog
from supercluster.broker.net.listen_address import where

log = logging.getLogger(__name__)


class HttpPort:
    """See the module. To be made on the loop that serves it."""

    def __init__(self, name: str, monotonic_ms: Callable[[], int], *, judges_plain: bool = False) -> None:
        """`name` is for the log. `judges_plain`: connections without TLS are let in whatever is wanted, for requests are judged."""
        self._name = name
        self._judges_plain = judges_plain
        self._loop = asyncio.get_running_loop()
        self.tls: ClientCertificates | None = None
        """Of connections that come from now on; None: they are plain."""
        self.guards = guard.Guards(self._loop)
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._log_handshake = RationedLog(log.info, monotonic_ms)

    async def start(self, app: web.Application, address: str, port: int) -> int:
        """Bind and serve; returns the port.

        Raises:
            OSError: the address is in use or not ours.
        """
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        self._listener = await self._loop.create_server(self._connection, **where(address, port), backlog=128)
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Close it, and end what is served."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _connection(self) -> asyncio.Protocol:
        """For one that comes now."""
        if self.tls is None:
            return self._served()
        return SecureProtocol(
            self._loop,
            self.tls,
            self._served,
            failed=self._handshake_failed,
            greets=False,
            takes_plain=self._judges_plain or self.tls.settings.allow_plain,
        )

    def _served(self) -> guard.Guard:
        serve = self._runner.server if self._runner is not None else None
        assert serve is not None
        return self.guards.guard(serve())

    def _handshake_failed(self, reason: str) -> None:
        self._log_handshake("a connection to the %s port was not let in: %s", self._name, reason)
