"""Clients of a crowded broker go over to the others of its cluster, on processes, by the command line's own course (CL-7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from nats.js.errors import APIError
from tests.broker.cluster.test_move_calls import USERS
from tests.broker.cluster.test_super_cluster import contents
from tests.support.local_clusters import Broker, Fleet, until

from supercluster.app.admin import BrokerAdmin
from supercluster.app.commands.rebalance import Wish, rebalance
from supercluster.reconcilers.planners.rebalance import TOLERANCE_MIN
from supercluster.reconcilers.ports import BrokerTarget

APP = {"user": "app", "password": "app-secret", "dont_randomize": False}
PUBLISHERS, IDLE = 4, 12


async def plain(client: Client, name: str, running: Callable[[], bool]) -> int:
    """Publish without waiting until told to end; how many."""
    number = 0
    while running():
        await client.publish(f"orders.{name}", b"%s:%d" % (name.encode(), number))
        number += 1
        await asyncio.sleep(0.002)
    await client.flush()
    return number


async def repeated(js: JetStreamContext, name: str, running: Callable[[], bool]) -> int:
    """Publish each with a message id, again until it is acknowledged."""
    number = 0
    while running():
        body, headers = b"%s:%d" % (name.encode(), number), {"Nats-Msg-Id": f"{name}-{number}"}
        while True:
            try:
                await js.publish(f"orders.{name}", body, headers=headers, timeout=1)
                break
            except (NatsError, APIError, TimeoutError):
                continue
        number += 1
    return number


def targets(brokers: list[Broker]) -> dict[str, BrokerTarget]:
    return {
        broker.name: BrokerTarget("ns", "demo", (), "operator", "op-secret", (f"http://{broker.host}:8222",))
        for broker in brokers
    }


async def clients_of(broker: Broker) -> int:
    return int((await broker.get("/varz"))["connections"])


@pytest.mark.covers("CL-7", "SF-16", "MV-4")
async def test_clients_go_over_until_brokers_have_as_many_each_and_no_message_is_lost(fleet: Fleet) -> None:
    brokers = await fleet.start(3, credentials={"users.json": USERS})
    crowded = brokers[0]
    js = await fleet.js(crowded, **APP)
    await js.add_stream(StreamConfig(name="ORDERS", subjects=["orders.>"], num_replicas=3))
    reader = await js.pull_subscribe("orders.>", durable="reader", stream="ORDERS")
    for _ in range(IDLE):
        await fleet.client(crowded, **APP)
    going = True
    tasks: dict[str, asyncio.Task[int]] = {}
    for number in range(PUBLISHERS):
        one, other = await fleet.client(crowded, **APP), await fleet.js(crowded, **APP)
        tasks[f"p{number}"] = asyncio.create_task(plain(one, f"p{number}", lambda: going))
        tasks[f"r{number}"] = asyncio.create_task(repeated(other, f"r{number}", lambda: going))
    total = await clients_of(crowded)
    assert total == 1 + IDLE + 2 * PUBLISHERS
    said: list[str] = []
    admin = BrokerAdmin()
    try:
        assert await rebalance(admin, targets(brokers), Wish("east", 1000, dry_run=True), said.append)
        assert said[0].splitlines()[1].split() == ["east-0", "21", "14", "7"]
        assert [await clients_of(broker) for broker in brokers] == [total, 0, 0], "a dry run asks nobody"
        assert await rebalance(admin, targets(brokers), Wish("east", 1000), said.append)
    finally:
        await admin.close()
        going = False
    counts = {name: await task for name, task in tasks.items()}
    found = [await clients_of(broker) for broker in brokers]
    assert sum(found) == total
    assert max(found) <= total // 3 + TOLERANCE_MIN, said
    written = [f"{name}:{number}".encode() for name, count in counts.items() for number in range(count)]

    async def all_there() -> Any:
        return (await js.stream_info("ORDERS")).state.messages >= len(written)

    await until(all_there, "every message")
    stored = await contents(js, "ORDERS", "orders.>")
    assert sorted(stored) == sorted(written), "each once"
    for name in counts:
        own = [int(body.split(b":")[1]) for body in stored if body.startswith(name.encode() + b":")]
        assert own == sorted(own), f"{name}'s messages in its order"
    got: list[bytes] = []
    while len(got) < len(written):
        for message in await reader.fetch(500, timeout=10):
            await message.ack()
            got.append(message.data)
    assert got == stored, "a consumer's client that went over goes on"
