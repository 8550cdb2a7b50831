"""Brokers that go for good, by the operator's HTTP calls against broker processes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.js.api import Placement, StreamConfig
from tests.broker.cluster.test_move_calls import OPERATOR, clusters, http
from tests.support.local_clusters import Broker, Fleet, until


async def call(broker: Broker, method: str, node: str, who: str = OPERATOR) -> tuple[int, Any]:
    url = f"http://{broker.host}:8222/admin/brokers/{node}"
    return await asyncio.to_thread(http, url, method, who, None)


@pytest.mark.covers("OP-3", "SF-8")
async def test_a_cluster_leaves_and_the_other_goes_on_alone(fleet: Fleet) -> None:
    found = await clusters(fleet)
    (east,), west = found["east"], found["west"]

    async def votes(node: str) -> bool:
        status, told = await call(west[0], "GET", node)
        return status == 200 and bool(told["votes"])

    await until(lambda: votes("west-0"), "a vote of west's", timeout_s=40)
    assert (await call(west[0], "DELETE", "east-0", "app:app-secret"))[0] == 403
    for broker in (west[1], east):
        assert (await call(broker, "DELETE", "east-0"))[0] == 200
    assert (await call(west[0], "POST", "nobody"))[0] == 404

    async def gone() -> Any:
        return not await votes("east-0")

    await until(gone, "that east's vote is with the others", timeout_s=40)
    east.kill()
    client = await fleet.client(west[0], user="app", password="app-secret")
    config = StreamConfig(name="S", subjects=["s"], num_replicas=3, placement=Placement(cluster="west"))
    info = await client.jetstream(timeout=10).add_stream(config)
    assert info.config.name == "S"
