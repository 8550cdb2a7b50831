"""Real clients that stay at blue's brokers while their stream goes to green, over real processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, StorageType
from tests.support.local_clusters import Broker, Fleet, fetch, until

pytestmark = [pytest.mark.e2e, pytest.mark.covers("BG-4", "BG-5")]

SECOND = 1_000_000_000
FAR = {"accept": [{"user": "far", "password": "far"}], "send": {"user": "far", "password": "far"}}
NEXT = "$JS.API.CONSUMER.MSG.NEXT.S.c"


class Sides:
    """Blue with a stream, and an empty green: brokers of both have the same names."""

    def __init__(self, folder: Path) -> None:
        for side in ("blue", "green"):
            (folder / side).mkdir()
        self.blue, self.green = Fleet(folder / "blue"), Fleet(folder / "green")

    async def start(self) -> None:
        credentials = {"migration.json": FAR}
        await self.blue.start(3, superCluster="blue", identity="id-blue", credentials=credentials)
        ports = {"migration": 7422}
        await self.green.start(
            3, superCluster="green", identity="id-green", credentials=credentials, ports=ports
        )

    async def stop(self) -> None:
        await self.blue.stop()
        await self.green.stop()

    async def call(self, broker: Broker, path: str, body: Any = None) -> tuple[int, Any]:
        return await asyncio.to_thread(fetch, f"http://{broker.host}:8222{path}", body, "POST")

    async def migrate(self) -> None:
        """The stream goes over: every broker of blue knows that green has it. Another one that cannot be handed over is made meanwhile,
        so that nobody is asked to go to green yet."""
        addresses = [f"{broker.host}:7422" for broker in self.green.running]
        green = {"identity": "id-green", "name": "green", "addresses": addresses, "tlsName": ""}
        body = {"id": "m1", "account": "", "cannotFollow": "bridge", "green": green}

        async def is_started() -> bool:
            status, told = await self.call(self.blue.running[0], "/admin/migrations", body)
            assert status in (200, 202, 409, 503), told
            return status in (200, 202)

        setup = await self.blue.js()
        await until(is_started, "the migration to be started")
        await setup.add_stream(name="STAYS", subjects=["stays"], storage=StorageType.MEMORY)

        async def is_open() -> bool:
            for broker in self.blue.running:
                document = await broker.get("/admin/migrations/m1")
                if not document or document["stages"]["open"] + document["stages"].get("redirected", 0) < 1:
                    return False
            return True

        await until(is_open, "green to have the stream")


@pytest.fixture
async def sides(tmp_path: Path) -> AsyncIterator[Sides]:
    made = Sides(tmp_path)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


async def pull(client: Client, **request: Any) -> Any:
    """Send one pull request; the subscription to its inbox."""
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox)
    await client.publish(NEXT, json.dumps(request).encode(), reply=inbox)
    return answers


def status_of(message: Msg) -> str:
    return (message.headers or {})["Status"]


async def test_clients_that_stay_at_blue_are_served_by_green(sides: Sides) -> None:
    setup = await sides.blue.js()
    await setup.add_stream(name="S", subjects=["s.>"], num_replicas=3, allow_direct=True)
    await setup.add_consumer(
        "S", ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT, ack_wait=30)
    )
    first, second, third = sides.blue.running
    publisher = await sides.blue.js(first)
    subscriber = await sides.blue.client(second)
    waiting = await pull(subscriber, batch=100, expires=120 * SECOND)
    pushed = await (await sides.blue.js(third)).subscribe("s.>", ordered_consumer=True)
    acked: list[int] = []
    runs = True

    async def publish() -> None:
        while runs:
            answer = await publisher.publish("s.x", b"%d" % len(acked), timeout=30)
            acked.append(answer.seq)

    publishing = asyncio.create_task(publish())
    seen = [(await waiting.next_msg(timeout=30)) for _ in range(10)]
    await sides.migrate()
    before = len(acked)

    async def goes_on() -> bool:
        return len(acked) > before + 200

    await until(goes_on, "acknowledgements by green")
    runs = False
    await publishing
    assert acked == list(range(1, len(acked) + 1)), "one after the other, and none twice"
    seen += [await waiting.next_msg(timeout=30) for _ in range(90)]
    assert [message.metadata.sequence.stream for message in seen] == list(range(1, 101))
    received = [await pushed.next_msg(timeout=30) for _ in range(len(acked))]
    assert [message.metadata.sequence.stream for message in received] == acked

    js = await sides.blue.js(third)
    for message in seen[:-1]:
        await message.ack()
    await seen[-1].ack_sync(timeout=30)
    info = await (await sides.blue.js(second)).consumer_info("S", "c")
    assert info.ack_floor is not None
    assert (info.ack_floor.stream_seq, info.num_ack_pending) == (100, 0)
    assert info.cluster is not None
    assert (await js.get_last_msg("S", "s.x", direct=True)).data == b"%d" % (len(acked) - 1)
    assert (await js.stream_info("S")).state.last_seq == len(acked)

    there = await (await sides.green.js()).stream_info("S")
    assert (there.state.messages, there.state.first_seq) == (len(acked), 1)


async def test_pulls_at_blue_are_ended_as_they_are_at_home(sides: Sides) -> None:
    setup = await sides.blue.js()
    await setup.add_stream(name="S", subjects=["s"], num_replicas=3)
    await setup.add_consumer("S", ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT))
    await sides.migrate()
    for broker in sides.blue.running:
        client = await sides.blue.client(broker)
        empty = await pull(client, batch=5, no_wait=True)
        assert status_of(await empty.next_msg(timeout=30)) == "404"
        late = await pull(client, batch=5, expires=SECOND // 10)
        assert status_of(await late.next_msg(timeout=30)) == "408"
        beats = await pull(client, batch=1, expires=20 * SECOND, idle_heartbeat=SECOND // 5)
        assert status_of(await beats.next_msg(timeout=30)) == "100"
        await client.jetstream().publish("s", b"wakes the one that waits", timeout=30)
        while (message := await beats.next_msg(timeout=30)).data == b"":
            assert status_of(message) == "100"
        assert message.data == b"wakes the one that waits"
        await message.ack_sync(timeout=30)


async def test_a_name_at_blue_is_greens_and_a_hidden_stream_answers_nobody(sides: Sides) -> None:
    setup = await sides.blue.js()
    await setup.add_stream(name="S", subjects=["s"], num_replicas=3)
    await setup.publish("s", b"1")
    early = await sides.green.js()
    refused: list[str] = []
    runs = True

    async def knock() -> None:
        while runs:
            try:
                answer = await early.publish("s", b"early", timeout=5)
                refused.append(f"{answer.stream} {answer.seq}")
            except nats.js.errors.NoStreamResponseError:
                refused.append("503")
            await asyncio.sleep(0.005)

    knocking = asyncio.create_task(knock())
    await sides.migrate()
    runs = False
    await knocking
    stored = [said for said in refused if said != "503"]
    assert refused[: len(refused) - len(stored)] == ["503"] * (len(refused) - len(stored)), (
        "then all, or none"
    )
    assert stored == [f"S {seq}" for seq in range(2, 2 + len(stored))]
    client = await sides.blue.client(sides.blue.running[1])
    js = client.jetstream(timeout=10)
    assert (
        await js.update_stream(name="S", subjects=["s"], num_replicas=3, description="new")
    ).config.description == "new"
    assert (await early.stream_info("S")).config.description == "new"
    assert await js.delete_stream("S")
    with pytest.raises(nats.js.errors.NotFoundError):
        await js.stream_info("S")
    with pytest.raises(nats.js.errors.NotFoundError):
        await early.stream_info("S")
