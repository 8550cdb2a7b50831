"""Unmodified nats-py follows its streams from blue to green, over real processes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.errors import ConnectionClosedError, ConnectionReconnectingError, NoRespondersError
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import APIError, NoStreamResponseError
from tests.support.blue_green import CREDENTIALS, BlueGreen
from tests.support.local_clusters import until

pytestmark = [pytest.mark.e2e, pytest.mark.covers("BG-2", "BG-4", "BG-5", "BG-8", "BG-12")]

AGAIN = (NatsTimeout, NoStreamResponseError, NoRespondersError, ConnectionReconnectingError, APIError)
"""What a client hears between two servers; it asks again, with the same message id."""
STREAMS = ("A", "B")


@pytest.fixture
async def sides(tmp_path: Path) -> AsyncIterator[BlueGreen]:
    made = BlueGreen(tmp_path)
    try:
        yield made
    finally:
        await made.stop()


class Load:
    """Of each stream a publisher at a rate and a pull consumer, each with a connection of its own."""

    def __init__(self, sides: BlueGreen) -> None:
        self.sides = sides
        self.clients: dict[str, Client] = {}
        self.acked: dict[str, list[int]] = {stream: [] for stream in STREAMS}
        self.seen: dict[str, Counter[int]] = {stream: Counter() for stream in STREAMS}
        self._ends = asyncio.Event()
        self._all_sent = asyncio.Event()
        self._publishing: list[asyncio.Task[None]] = []
        self._pulling: list[asyncio.Task[None]] = []

    async def start(self, replicas: int) -> None:
        setup = await self.sides.blue.js()
        for stream in STREAMS:
            await setup.add_stream(name=stream, subjects=[f"{stream}.>"], num_replicas=replicas)
            config = ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT, ack_wait=10)
            await setup.add_consumer(stream, config)
            for what in ("publisher", "consumer"):
                self.clients[f"{stream} {what}"] = await self._client(f"{stream} {what}")
            self._publishing.append(asyncio.create_task(self._publish(stream)))
            self._pulling.append(asyncio.create_task(self._pull(stream)))

    async def _client(self, name: str) -> Client:
        async def error(_: Exception) -> None:
            pass  # Refused connections, while it looks for a server.

        urls = [broker.url for broker in self.sides.blue.running]
        found = await nats.connect(urls, name=name, error_cb=error, max_reconnect_attempts=-1)
        self.sides.blue.clients.append(found)
        return found

    async def _publish(self, stream: str) -> None:
        js = self.clients[f"{stream} publisher"].jetstream(timeout=2)
        number = 0
        while not self._ends.is_set():
            headers = {"Nats-Msg-Id": f"{stream} {number}"}
            try:
                answer = await js.publish(f"{stream}.x", b"%d" % number, headers=headers)
            except AGAIN:
                continue
            self.acked[stream].append(answer.seq)
            number += 1
            await asyncio.sleep(0.01)

    async def _pull(self, stream: str) -> None:
        pull = await self.clients[f"{stream} consumer"].jetstream().pull_subscribe_bind("c", stream)
        while not (self._all_sent.is_set() and len(self.seen[stream]) >= len(self.acked[stream])):
            try:
                for message in await pull.fetch(10, timeout=1):
                    self.seen[stream][int(message.data)] += 1
                    await message.ack()
            except (*AGAIN, ConnectionClosedError):
                continue

    async def grows(self, by: int) -> None:
        """Until that many more are acknowledged in each stream."""
        before = {stream: len(acked) for stream, acked in self.acked.items()}

        async def has_grown() -> bool:
            return all(len(self.acked[stream]) >= before[stream] + by for stream in STREAMS)

        await until(has_grown, f"{by} more acknowledgements in each stream")

    async def end(self) -> None:
        self._ends.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*self._publishing)
            self._all_sent.set()
            await asyncio.gather(*self._pulling)


async def on(side: Any) -> list[str]:
    """Names of the clients that are connected there."""
    documents = [await broker.get("/connz") for broker in side.running]
    return sorted(found.get("name", "") for document in documents for found in document["connections"])


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.long), 3])
async def test_clients_follow_their_streams_and_nothing_is_lost_or_stored_twice(
    sides: BlueGreen, count: int
) -> None:
    """They end connected to green. Finalizing cleans blue, and a late client there gets green's stream by its name."""
    await sides.start(count)
    load = Load(sides)
    await load.start(count)
    await load.grows(50)
    await sides.migrate()

    async def have_arrived() -> bool:
        return [name for name in await on(sides.green) if name in load.clients] == sorted(load.clients)

    await until(have_arrived, "all clients on green")
    await load.grows(50)
    for client in sides.blue.clients:
        if client not in load.clients.values():
            await client.close()
    told = await sides.reached(("redirected",))
    assert told["clients"]["stillOnBlue"] == told["clients"]["publishersStillOnBlue"] == 0
    await load.end()
    figures = [await broker.get("/varz") for broker in sides.green.running]
    assert sum(found["order_not_kept"] for found in figures) == 0
    green = await sides.green.js()
    for stream in STREAMS:
        total = len(load.acked[stream])
        assert load.acked[stream] == list(range(1, total + 1)), "in order, none lost, none twice"
        assert set(load.seen[stream]) == set(range(total))
        assert (await green.stream_info(stream)).state.messages == total

    async def is_final() -> bool:
        return (await sides.call("/m1/finalize"))[0] in (200, 202)

    await until(is_final, "the migration to be final")
    assert (await sides.blue.running[0].get("/admin/identity"))["greens"] == ["id-green"]
    await sides.reached(("cleaned",))
    for broker in sides.blue.running:
        assert [found for found in (await broker.get("/jsz"))["streams"] if found["name"] in STREAMS] == []

    async def is_taken() -> Client | None:
        try:
            return await nats.connect(sides.blue.running[-1].url, name="late", allow_reconnect=False)
        except ConnectionResetError:
            # Rule 20: blue takes it for a client of this address that it has just sent away.
            return None

    late = await until(is_taken, "blue to take a client")
    info = await late.jetstream(timeout=10).add_stream(name="A", subjects=["A.>"], num_replicas=count)
    assert info.state.messages == len(load.acked["A"]), "the stream of that name is green's"
    await late.close()


USERS = {
    "users": [
        {"user": user, "password": "pw", "account": account} for user, account in (("ann", "A"), ("bob", "B"))
    ]
}

STAYS = b'CONNECT {"user":"ann","pass":"pw","name":"old","lang":"c","protocol":0,"verbose":false}\r\n'
"""It takes no INFO behind the first one, so it cannot be redirected."""


async def test_one_account_goes_and_the_others_stay(sides: BlueGreen) -> None:
    """Its clients hear of green behind CONNECT alone; the operator's connection goes nowhere (BG-2, BG-8)."""
    operator = {"user": "operator", "password": "pw", "account": "A", "role": "operator"}
    users = {"users": [*USERS["users"], operator]}
    both = {"credentials": {**CREDENTIALS, "users.json": users}}
    sides.who = "operator:pw"
    await sides.start(1, blue=both, green=both)
    (blue,), (green,) = sides.blue.running, sides.green.running
    clients: dict[str, Client] = {}
    for user in ("ann", "bob", "operator"):
        clients[user] = await nats.connect(blue.url, user=user, password="pw", name=user)
        sides.blue.clients.append(clients[user])
    await clients["ann"].jetstream().add_stream(name="S", subjects=["s"])
    await clients["bob"].jetstream().add_stream(name="S", subjects=["s"])
    stays = await asyncio.open_connection(blue.host, 4222)
    stays[1].write(STAYS + b"PUB s 1\r\nx\r\n")
    await sides.migrate(account="A")
    stays[1].write(b"PUB s 1\r\nx\r\nPUB s 1\r\nx\r\n")

    async def has_gone() -> bool:
        return await on(sides.green) == ["ann"]

    await until(has_gone, "the client of the account on green")
    told = await sides.reached(("redirected",))

    async def are_counted() -> bool:
        (row,) = (await sides.status())["clients"]["publishers"] or [{}]
        return bool(row.get("messages") == 2)

    await until(are_counted, "the messages behind the cut, and no others")
    (row,) = (await sides.status())["clients"]["publishers"]
    named = {"account": "A", "user": "ann", "name": "old", "language": "c", "address": "127.0.0.1"}
    assert row == {**named, "messages": 2, "streams": ["S"]}
    assert told["clients"]["stillOnBlue"] == 1
    assert await on(sides.blue) == ["bob", "old", "operator"]
    assert (await clients["ann"].jetstream().publish("s", b"")).seq == 4
    assert (await clients["bob"].jetstream().publish("s", b"")).seq == 1
    others = [server.netloc for server in clients["bob"].servers]
    assert f"{green.host}:4222" not in others
    infos = [(await clients[user].jetstream().stream_info("S")).state.messages for user in ("ann", "bob")]
    assert infos == [4, 1]
    stays[1].close()
