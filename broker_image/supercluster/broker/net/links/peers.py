"""Links with the brokers of the own cluster whose names are greater than this one's: dials, waits for the
loss, dials again.

`Gateways` keeps the links with other clusters. Attempts are spaced by a bounded, jittered back-off; an error
is logged when it changes, not at every attempt.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping

from supercluster.broker.net.links.dialler import UNEXPECTED, Dialler
from supercluster.broker.net.links.door import Door, Expected
from supercluster.broker.net.links.link import LinkEnvironment

log = logging.getLogger(__name__)

BACKOFF_FIRST_S = 0.025
BACKOFF_MAX_S = 1.0


class ClusterPeers:
    """One task per broker of the own cluster that has to be dialled."""

    def __init__(
        self, environment: LinkEnvironment, dialler: Dialler, door: Door, node: str, cluster: str
    ) -> None:
        self._environment = environment
        self._dialler = dialler
        self._door = door
        self._node = node
        self._cluster = cluster
        self._peers: dict[str, str] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def set_peers(self, peers: Mapping[str, str]) -> None:
        """Broker → host:port; brokers that are gone are dialled no more, new addresses are used at the next attempt."""
        self._peers = dict(peers)
        for node in list(self._tasks):
            if node not in peers:
                self._tasks.pop(node).cancel()
        for node in peers:
            if node > self._node and node not in self._tasks:
                self._tasks[node] = self._environment.loop.create_task(self._keep_linked(node))

    async def stop(self) -> None:
        """Dial no one any more."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_linked(self, node: str) -> None:
        wait_s = BACKOFF_FIRST_S
        said = ""
        while True:
            dial = self._dialler.dial(self._door, Expected(node), self._peers[node], node, self._cluster)
            link, error = await self._dialler.attempt(f"linking with {node}", dial)
            if link is not None:
                wait_s, said = BACKOFF_FIRST_S, ""
                await asyncio.shield(link.down)
            elif error not in (UNEXPECTED, said):
                log.warning("no link with %s at %s yet: %s", node, self._peers.get(node), error)
                said = error
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(2 * wait_s, BACKOFF_MAX_S)
