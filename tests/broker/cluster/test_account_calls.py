"""Accounts and their limits, by the operator's HTTP calls and by what NATS's client is told, against broker processes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.js.api import ConsumerConfig, StorageType, StreamConfig
from nats.js.errors import APIError
from tests.broker.cluster.test_move_calls import GATEWAY, OPERATOR, USERS, http
from tests.support.local_clusters import Broker, Fleet, until

from supercluster.app.admin import BrokerAdmin
from supercluster.reconcilers.observe.views import account_view
from supercluster.reconcilers.ports import BrokerTarget

KIB = 1024


async def call(
    broker: Broker, method: str, account: str = "", body: Any = None, who: str = OPERATOR
) -> tuple[int, Any]:
    path = f"accounts/{account}" if account else "accounts"
    return await asyncio.to_thread(http, f"http://{broker.host}:8222/admin/{path}", method, who, body)


@pytest.mark.covers("SF-12", "SF-14")
async def test_limits_are_declared_judged_alike_and_told_to_clients(fleet: Fleet) -> None:
    found = await fleet.start_clusters(
        {"east": 1, "west": 1}, credentials={"users.json": USERS, "gateway.json": GATEWAY}, linkFaults=False
    )
    (east,), (west,) = found["east"], found["west"]
    client = await fleet.client(east, user="app", password="app-secret")
    js = client.jetstream(timeout=10)
    await js.add_stream(StreamConfig(name="A", subjects=["a"], max_bytes=KIB))
    limits = {"streamsMax": 2, "consumersPerStreamMax": 1, "storageBytesMax": 3 * KIB}
    assert (await call(west, "PUT", "$G", limits, "app:app-secret"))[0] == 403
    for broker in (west, east):
        status, told = await call(broker, "PUT", "$G", limits)
        assert status == 200, told
        assert told["use"] == {
            "streams": 1,
            "storageBytes": KIB,
            "memoryBytes": 0,
            "streamsWithoutMaxBytes": 0,
        }
        assert (told["declared"], told["limits"]["storageBytesMax"]) == (True, 3 * KIB)
    status, wrong = await call(west, "PUT", "$G", {"streamMax": 1})
    assert (status, wrong["err_code"]) == (400, 10052)
    assert "streamMax is no known field" in wrong["error"]

    async def refused(config: StreamConfig) -> tuple[int | None, str]:
        with pytest.raises(APIError) as error:
            await js.add_stream(config)
        return error.value.err_code, error.value.description or ""

    code, words = await refused(StreamConfig(name="B", subjects=["b"]))
    assert (code, words) == (10113, "account requires a stream config to have max bytes set")
    assert (await refused(StreamConfig(name="B", subjects=["b"], max_bytes=3 * KIB)))[0] == 10047
    await js.add_stream(StreamConfig(name="B", subjects=["b"], storage=StorageType.MEMORY))
    assert (await refused(StreamConfig(name="C", subjects=["c"], max_bytes=1)))[0] == 10027
    await js.add_consumer("A", ConsumerConfig(durable_name="one"))
    with pytest.raises(APIError) as error:
        await js.add_consumer("A", ConsumerConfig(durable_name="two"))
    assert error.value.err_code == 10026

    for _ in range(3):
        await js.publish("a", b"x" * 100)
    # A broker that has no copy of the stream asks its leader.
    other = (await fleet.client(west, user="app", password="app-secret")).jetstream(timeout=10)

    async def whole() -> Any:
        infos = [await each.account_info() for each in (js, other)]
        return infos if all(info.storage > 300 for info in infos) else None

    for info in await until(whole, "what the stream holds, at both brokers"):
        assert (info.streams, info.consumers, info.memory) == (2, 1, 0)
        assert (info.limits.max_streams, info.limits.max_consumers) == (2, 1)
        assert (info.limits.max_storage, info.limits.max_memory) == (3 * KIB, -1)
    assert (await js.account_info()).api.errors == 4, "of what this broker answered the account's clients"
    assert (await js.account_info()).api.total > 6

    status, told = await call(east, "DELETE", "$G")
    assert (status, told["declared"], told["limits"]["streamsMax"]) == (200, False, 0)
    await js.add_stream(StreamConfig(name="C", subjects=["c"]))
    assert (await call(west, "GET", "nobody"))[0] == 404
    assert (await call(west, "DELETE", "nobody"))[0] == 200
    admin = BrokerAdmin()
    try:
        user, password = OPERATOR.split(":")
        target = BrokerTarget("ns", "demo", (), user, password, (f"http://{west.host}:8222",))
        await admin.set_account(target, "shop", {**limits, "declaredBy": "ns/demo"})
        shop = next(view for view in map(account_view, await admin.accounts(target)) if view.name == "shop")
        assert (shop.is_declared, shop.declared_by, shop.limits["streamsMax"]) == (True, "ns/demo", 2)
        await admin.set_account(target, "shop", None)
    finally:
        await admin.close()
    status, told = await call(west, "GET")
    assert [(entry["account"], entry["use"]["streams"]) for entry in told["accounts"]] == [("$G", 3)]
