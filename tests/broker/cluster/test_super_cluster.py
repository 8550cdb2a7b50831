"""Clusters of processes joined by gateways: streams, requests and fail-over across them, partitions between them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.local_clusters import Broker, Fleet, until


async def remotes(broker: Broker) -> list[str]:
    """Who the broker is linked with in other clusters."""
    found: dict[str, Any] = await broker.get("/gatewayz") or {}
    rows = [*found["outbound_gateways"].values(), *found["inbound_gateways"].values()]
    return sorted(link["remote_name"] for links in rows for link in links)


@pytest.mark.covers("CL-6", "CL-1")
async def test_every_broker_is_linked_with_every_broker_of_every_cluster(fleet: Fleet) -> None:
    clusters = await fleet.start_clusters({"east": 2, "west": 3})
    for cluster, other in (("east", "west"), ("west", "east")):
        for broker in clusters[cluster]:
            assert await remotes(broker) == [found.name for found in clusters[other]]
            routes = await broker.get("/routez")
            assert routes["num_routes"] == len(clusters[cluster]) - 1
    client = await fleet.client(clusters["east"][0])
    urls = {url.netloc for url in client.servers}
    assert urls == {f"{broker.host}:4222" for broker in clusters["east"]}, "INFO names the own cluster alone"


@pytest.mark.covers("CL-6")
async def test_a_partition_between_clusters_ends_links_and_its_end_brings_them_back(fleet: Fleet) -> None:
    clusters = await fleet.start_clusters({"east": 1, "west": 1})
    (east,), (west,) = clusters.values()
    await fleet.cut([east], [west])

    async def apart() -> bool:
        return not await remotes(east) and not await remotes(west)

    await until(apart, "the loss of both links")
    await fleet.heal()
    await fleet.ready()
    assert "silent for" in east.log()
    assert "silent for" in west.log()
