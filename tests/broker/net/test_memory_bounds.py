"""What one connection can make the broker keep."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import Any

from supercluster.broker.net.clients.connection import STRANGER_BYTES_MAX
from supercluster.broker.net.clients.websocket_protocol import WebSocketProtocol
from supercluster.broker.protocol import websocket

USERS = {"users": [{"user": "app", "password": "x"}]}
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


async def test_who_has_not_said_connect_makes_the_broker_keep_no_payload(brokers: Any) -> None:
    (broker,) = await brokers.start(credentials={"users.json": USERS}, limits={"authTimeoutMs": 60_000})
    raw = await brokers.raw(broker)
    raw.send(b"PUB a 1000000\r\n" + bytes(STRANGER_BYTES_MAX))
    assert b"Authorization Violation" in await raw.to_end()
    await raw.close()
    known = await brokers.raw(broker)
    known.send(b'CONNECT {"user":"app","pass":"x"}\r\nPUB a 1000000\r\n' + bytes(200_000))
    known.send(bytes(800_000) + b"\r\nPING\r\n")
    assert await known.line() == b"PONG"
    await known.close()


async def test_pings_of_websocket_without_anybody_who_reads_end_the_connection(brokers: Any) -> None:
    """S8: their answers had no bound."""
    (broker,) = await brokers.start(limits={"maxPendingBytes": 1 << 20})
    listener = await broker.loop.create_server(
        partial(WebSocketProtocol, broker.server), broker.place.host, 0
    )
    port = listener.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection(broker.place.host, port, limit=1024)
    writer.write(UPGRADE)
    assert b"101" in await reader.readline()
    mask = os.urandom(4)
    ping = bytes((0x80 | websocket.PING, 0x80 | 125)) + mask + bytes(125)
    try:
        while broker.server.counts.slow_consumers == 0:
            writer.write(ping * 4000)
            await writer.drain()
            await asyncio.sleep(0)
    except ConnectionError:
        pass
    await brokers.until(lambda: broker.server.counts.slow_consumers == 1, "the connection to end")
    writer.close()
    listener.close()
