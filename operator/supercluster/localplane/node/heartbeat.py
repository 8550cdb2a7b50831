"""Heartbeats for a cluster's node controller: a Lease per node, renewed as a kubelet does."""

from __future__ import annotations

import asyncio
import logging

import aiohttp

from supercluster.localplane.client import LEASES, Client, RequestError
from supercluster.localplane.node.nodes import SimulatedNode
from supercluster.localplane.times import now_utc

log = logging.getLogger(__name__)

NAMESPACE = "kube-node-lease"
DURATION_S = 40
EVERY_S = 10.0


async def renew(client: Client, name: str) -> None:
    """Renew the Lease of a node, or make it.

    Raises:
        RequestError: it can't be written.
    """
    moment = now_utc().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": name, "leaseDurationSeconds": DURATION_S, "renewTime": moment}
    try:
        await client.patch(LEASES, (NAMESPACE, name), {"spec": spec})
    except RequestError as error:
        if error.status != 404:
            raise
        await client.create(LEASES, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})


async def run(client: Client, nodes: dict[str, SimulatedNode]) -> None:
    """Until cancelled. Nodes that are lost fall silent."""
    while True:
        for node in [node for node in nodes.values() if not node.is_lost]:
            try:
                await renew(client, node.name)
            except (RequestError, aiohttp.ClientError, TimeoutError, OSError) as error:
                log.warning("the Lease of node %s was not renewed: %s", node.name, error)
        await asyncio.sleep(EVERY_S)
