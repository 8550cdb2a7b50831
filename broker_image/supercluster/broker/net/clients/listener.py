"""The ports for clients: plain or behind TLS, and by WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from supercluster.broker.net.clients.certificates import ClientCertificates
from supercluster.broker.net.clients.client_server import ClientServer
from supercluster.broker.net.clients.connection import ClientConnection
from supercluster.broker.net.clients.secure_protocol import SecureProtocol
from supercluster.broker.net.clients.websocket_protocol import WebSocketProtocol
from supercluster.broker.net.listen_address import where

BACKLOG = 1024


async def listen(server: ClientServer, host: str, port: int, tls: ClientCertificates | None = None) -> int:
    """Bind without accepting anyone yet; returns the port.

    Raises:
        OSError: the address is in use or not ours.
    """
    server.tls = tls
    make = partial(ClientConnection, server)
    return await _bind(server, host, port, make, lambda: server.tls, greets=True)


async def listen_websocket(
    server: ClientServer, host: str, port: int, tls: ClientCertificates | None = None
) -> int:
    """The same for clients that come by WebSocket.

    Raises:
        OSError: the address is in use or not ours.
    """
    server.websocket_tls = tls
    make = partial(WebSocketProtocol, server)
    return await _bind(server, host, port, make, lambda: server.websocket_tls, greets=False)


async def _bind(
    server: ClientServer,
    host: str,
    port: int,
    make: Callable[[], asyncio.Protocol],
    tls_now: Callable[[], ClientCertificates | None],
    *,
    greets: bool,
) -> int:
    def make_outer() -> asyncio.Protocol:
        tls = tls_now()
        if tls is None:
            return make()
        return SecureProtocol(server.loop, tls, make, failed=server.handshake_failed, greets=greets)

    listener = await server.loop.create_server(
        make_outer, **where(host, port), backlog=BACKLOG, start_serving=False
    )
    server.listeners.append(listener)
    bound: int = listener.sockets[0].getsockname()[1]
    return bound
