"""Brokers that go for good, by the operator's HTTP calls against broker processes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.js.api import Placement, StreamConfig
from nats.js.errors import APIError
from tests.broker.cluster.test_move_calls import OPERATOR, clusters, http
from tests.support.local_clusters import Broker, Fleet, until


async def call(broker: Broker, method: str, node: str, who: str = OPERATOR) -> tuple[int, Any]:
    url = f"http://{broker.host}:8222/admin/brokers/{node}"
    return await asyncio.to_thread(http, url, method, who, None)


@pytest.mark.covers("MR-5", "OP-3")
async def test_a_client_s_stream_is_refused_with_the_name_of_the_cordoned_broker(fleet: Fleet) -> None:
    found = await clusters(fleet)
    (east,), west = found["east"], found["west"]
    url = f"http://{east.host}:8222/admin/brokers/west-2/cordon"
    assert (await asyncio.to_thread(http, url, "PUT", "app:app-secret", {"reason": "x"}))[0] == 403
    told = await asyncio.to_thread(http, url, "PUT", OPERATOR, {"reason": ""})
    assert (told[0], told[1]["err_code"]) == (400, 10052)

    async def cordoned() -> bool:
        status, _ = await asyncio.to_thread(http, url, "PUT", OPERATOR, {"reason": "its rack is rebuilt"})
        return bool(status == 200)

    await until(cordoned, "that all brokers are there, and the map has the cordon", timeout_s=40)
    client = await fleet.client(west[0], user="app", password="app-secret")
    config = StreamConfig(name="S", subjects=["s"], num_replicas=3, placement=Placement(cluster="west"))
    with pytest.raises(APIError) as refused:
        await client.jetstream(timeout=10).add_stream(config)
    assert refused.value.err_code == 10005
    assert "west-2 is cordoned (its rack is rebuilt)" in str(refused.value.description)
    assert (await call(west[1], "GET", "west-2"))[1]["cordoned"]["reason"] == "its rack is rebuilt"
    assert (await asyncio.to_thread(http, url, "DELETE", OPERATOR, None))[0] == 200
    assert (await client.jetstream(timeout=10).add_stream(config)).config.name == "S"


@pytest.mark.long  # In `make test`: tests/broker/jetstream/node/test_bootstrap.py, a cluster that leaves.
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
