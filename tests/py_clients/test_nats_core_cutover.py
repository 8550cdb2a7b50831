"""Unmodified nats-core and nats-jetstream follow their stream from blue to green, over real processes (BG-5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.support.blue_green import BlueGreen
from tests.support.local_clusters import until

pytestmark = [pytest.mark.e2e, pytest.mark.covers("BG-4", "BG-5")]

NAMES = ("publisher", "consumer", "subscriber")


@pytest.fixture
async def sides(tmp_path: Path) -> AsyncIterator[BlueGreen]:
    made = BlueGreen(tmp_path)
    try:
        yield made
    finally:
        await made.stop()


class Clients:
    """A publisher that waits for each acknowledgement, a pull consumer and a core subscription, each with a connection of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.by_name: dict[str, Any] = {}
        self.acked: list[int] = []
        self.consumed: list[int] = []
        self.heard: list[int] = []
        self.ends = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        # Not installed where mypy runs.
        connect, jetstream = import_module("nats.client").connect, import_module("nats.jetstream")
        for name in NAMES:
            self.by_name[name] = await connect(self.url, reconnect_max_attempts=0, reconnect_time_wait=0.1)
        js = jetstream.JetStream(self.by_name["publisher"])
        await js.create_stream(name="S", subjects=["s"])
        stream = await jetstream.JetStream(self.by_name["consumer"]).get_stream("S")
        consumer = await stream.create_consumer(name="c", durable_name="c", ack_policy="explicit")
        heard = await self.by_name["subscriber"].subscribe("core")
        for work in (self._publish(js), self._consume(consumer), self._hear(heard)):
            self._tasks.append(asyncio.create_task(work))

    async def _publish(self, js: Any) -> None:
        while not self.ends.is_set():
            number = len(self.acked)
            try:
                answer = await js.publish(
                    "s", b"%d" % number, headers={"Nats-Msg-Id": str(number)}, timeout=2.0
                )
            except Exception:
                # Between two servers; it is published again under its id.
                await asyncio.sleep(0.05)
                continue
            self.acked.append(answer.sequence)
            await asyncio.sleep(0.01)

    async def _consume(self, consumer: Any) -> None:
        while not (self.ends.is_set() and len(set(self.consumed)) >= len(self.acked)):
            try:
                async for message in await consumer.fetch(max_messages=10, max_wait=1.0):
                    self.consumed.append(int(message.data))
                    await message.ack()
            except Exception:
                await asyncio.sleep(0.05)

    async def _hear(self, subscription: Any) -> None:
        async for message in subscription:
            self.heard.append(int(message.data))

    async def grow(self, by: int) -> None:
        """Until that many more are acknowledged and consumed."""
        acked, consumed = len(self.acked) + by, len(self.consumed) + by

        async def has_grown() -> bool:
            return len(self.acked) >= acked and len(self.consumed) >= consumed

        await until(has_grown, f"{by} more messages, at {acked} and {consumed}")

    async def end(self) -> None:
        self.ends.set()
        async with asyncio.timeout(30):
            await asyncio.gather(*self._tasks[:2])

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self.by_name.values():
            await client.close()


async def test_publisher_consumer_and_subscription_follow(sides: BlueGreen) -> None:
    await sides.start(1)
    (blue,), (green,) = sides.blue.running, sides.green.running
    clients = Clients(blue.url)
    await clients.start()
    try:
        await clients.grow(30)
        await sides.migrate()

        async def have_arrived() -> bool:
            there, here = await green.get("/connz"), await blue.get("/connz")
            return (len(there["connections"]), here["connections"]) == (len(NAMES), [])

        await until(have_arrived, "all clients on green")
        await clients.grow(30)
        teller = await sides.green.client()
        await teller.publish("core", b"7")
        await teller.flush()

        async def is_heard() -> bool:
            return clients.heard == [7]

        await until(is_heard, "the subscription on green")
        await clients.end()
        total = len(clients.acked)
        assert clients.acked == list(range(1, total + 1)), "in order, none lost, none twice"
        assert set(clients.consumed) == set(range(total))
        assert (await teller.jetstream().stream_info("S")).state.messages == total
        assert (await green.get("/varz"))["order_not_kept"] == 0
        await sides.reached(("redirected",))
    finally:
        await clients.close()
