"""Closes connections in lame duck mode: a grace period, then one FIN after the other, spread out as
nats-server does.

INFO with `ldm` comes first (`ClientServer.begin_lame_duck`). A client that leaves by itself within the grace
period loses nothing. The others are sent FIN, without -ERR, and are read until their own FIN
(`Client.finish`, SF-16).
"""

from __future__ import annotations

import asyncio

from supercluster.broker.net.clients.client_server import ClientServer

STEP_MAX_MS = 1000
"""No more lies between two clients, however few there are."""

LOOK_S = 0.02


def due(clients: int, elapsed_ms: int, spread_ms: int) -> int:
    """How many of them have been sent FIN so long after the first one."""
    if not clients:
        return 0
    step_ms = min(spread_ms / clients, STEP_MAX_MS)
    return clients if step_ms <= 0 else min(clients, 1 + int(elapsed_ms / step_ms))


async def say_farewell(server: ClientServer, grace_ms: int, duration_ms: int) -> None:
    """Send FIN to all clients; `duration_ms` counts from the INFO, and contains the grace period."""
    started_ms = server.clock.machine_ms()
    while server.clients and server.clock.machine_ms() - started_ms < grace_ms:
        await asyncio.sleep(LOOK_S)
    leaving, finished = list(server.clients.values()), 0
    first_ms = server.clock.machine_ms()
    while server.clients and finished < len(leaving):
        elapsed_ms = server.clock.machine_ms() - first_ms
        upto = due(len(leaving), elapsed_ms, duration_ms - grace_ms)
        for client in leaving[finished:upto]:
            client.finish()
        finished = upto
        await asyncio.sleep(LOOK_S)
    for client in list(server.clients.values()):
        client.finish()  # It was accepted just before the ports were closed.
