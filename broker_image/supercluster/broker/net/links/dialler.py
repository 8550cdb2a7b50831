"""Dials: both connections of a link, and the short one by which brokers of different clusters get to know each other.

`Dialler` keeps links with the brokers of the own cluster whose names are greater than this one's (those of other clusters
are kept by `Gateways`): it dials, waits for the loss, dials again.

Attempts are spaced by a bounded, jittered back-off; what is wrong is logged when it changes, not at every attempt.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from supercluster.broker.net.links.link import Link, LinkConnection
from supercluster.broker.net.links.resolver import Resolver
from supercluster.broker.net.links.self_description import Door
from supercluster.broker.ports import Channel
from supercluster.broker.protocol.frames import FrameError, Hello
from supercluster.broker.settings.settings import split_address

if TYPE_CHECKING:
    from supercluster.broker.net.clients.certificates import GatewayCertificates
    from supercluster.broker.net.links.mesh import Mesh

log = logging.getLogger(__name__)

BACKOFF_FIRST_S = 0.025
BACKOFF_MAX_S = 1.0


class Dialler:
    """One task per broker of the own cluster that has to be dialled."""

    def __init__(self, mesh: Mesh, resolver: Resolver) -> None:
        self._mesh = mesh
        self._resolver = resolver
        self._peers: dict[str, str] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def set_peers(self, peers: Mapping[str, str]) -> None:
        """Broker → host:port; brokers that are gone are dialled no more, new addresses are used at the next attempt."""
        self._peers = dict(peers)
        for node in list(self._tasks):
            if node not in peers:
                self._tasks.pop(node).cancel()
        for node in peers:
            if node > self._mesh.facts.node and node not in self._tasks:
                self._tasks[node] = self._mesh.loop.create_task(self._keep_linked(node))

    async def stop(self) -> None:
        """Dial no one any more."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _dial(self, node: str) -> Link:
        if self._mesh.faults.cuts(node, self._mesh.facts.cluster):
            raise TimeoutError("a fault that is switched on cuts it off")
        mesh = self._mesh
        return await dial(mesh, self._resolver, Door.CLUSTER, node, self._peers[node], mesh.route_tls)

    async def _keep_linked(self, node: str) -> None:
        wait_s = BACKOFF_FIRST_S
        said = ""
        while True:
            try:
                link = await self._dial(node)
                wait_s = BACKOFF_FIRST_S
                said = ""
                await asyncio.shield(link.down)
            except (OSError, TimeoutError, FrameError) as error:
                text = str(error) or type(error).__name__
                if text != said:
                    log.warning("no link with %s at %s yet: %s", node, self._peers.get(node), text)
                    said = text
            except Exception:
                log.exception("linking with %s failed in an unexpected way; it is tried again", node)
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(2 * wait_s, BACKOFF_MAX_S)


async def dial(
    mesh: Mesh,
    resolver: Resolver,
    door: Door,
    node: str,
    address: str,
    tls: GatewayCertificates | None = None,
) -> Link:
    """Open both connections to a broker and shake hands on them.

    Raises:
        OSError, TimeoutError, FrameError: there is no link; the text says why.
    """
    pair = f"{random.getrandbits(64):016x}"
    opened: list[LinkConnection] = []
    try:
        async with asyncio.timeout(2 * mesh.handshake_s):
            for channel in (Channel.CONTROL, Channel.BULK):
                connection = LinkConnection(mesh, door, channel, pair, node)
                opened.append(connection)
                await _connect(connection, resolver, address, tls)
                await connection.greeted
    except BaseException:
        for connection in opened:
            connection.close("the attempt to link was given up")
        raise
    control, bulk = opened
    if control.closed or bulk.closed:
        raise ConnectionError("connection lost while linking")
    return mesh.up(control, bulk)


async def introduce(
    mesh: Mesh,
    resolver: Resolver,
    address: str,
    tls: GatewayCertificates | None = None,
    node: str = "",
    *,
    door: Door = Door.GATEWAY,
) -> Hello:
    """Let a broker of another cluster (`node`, or whoever is there) know of this one, and be told whom it knows; by the
    door CLUSTER one of this cluster.

    Raises:
        OSError, TimeoutError, FrameError: nobody answered, or refused; the text says why.
    """
    pair = f"{random.getrandbits(64):016x}"
    connection = LinkConnection(mesh, door, Channel.CONTROL, pair, node, introduces=True)
    try:
        async with asyncio.timeout(2 * mesh.handshake_s):
            await _connect(connection, resolver, address, tls)
            hello = await connection.greeted
            await connection.told
            return hello
    finally:
        connection.close("the introduction is over")


async def _connect(
    connection: LinkConnection, resolver: Resolver, address: str, tls: GatewayCertificates | None
) -> None:
    mesh = connection.mesh
    host, port = split_address("address", address)
    resolved = await resolver.resolve(host)
    await mesh.loop.create_connection(
        lambda: connection,
        resolved,
        port,
        ssl=tls.client if tls is not None else None,
        server_hostname=tls.server_name or host if tls is not None else None,
        ssl_handshake_timeout=mesh.handshake_s if tls is not None else None,
    )
