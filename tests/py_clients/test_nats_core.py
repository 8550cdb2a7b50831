"""NATS's clients nats-core, nats-jetstream and nats-key-value on a broker of ours. The second is told to be strict: an answer with a
field that it does not know is an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.local_clusters import Fleet, until


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    made = Fleet(tmp_path)
    try:
        yield made
    finally:
        await made.stop()


@pytest.mark.covers("CL-4")
async def test_its_strict_jetstream_and_key_value_clients_are_answered(fleet: Fleet) -> None:
    # Not installed where mypy runs.
    jetstream: Any = import_module("nats.jetstream")
    key_value: Any = import_module("nats.key_value")
    connect = import_module("nats.client").connect
    [broker] = await fleet.start(1)
    client: Any = await connect(broker.url)
    try:
        assert client.server_info.go_version
        js: Any = jetstream.JetStream(client, strict=True)
        stream = await js.create_stream(name="S", subjects=["s.>"], compression="s2")
        assert (await js.publish("s.a", b"1")).sequence == 1
        assert (await stream.get_info()).state.messages == 1
        assert [info.config.name async for info in js.list_streams()] == ["S"]
        consumer = await stream.create_consumer(name="c", durable_name="c", ack_policy="explicit")
        batch = await consumer.fetch(max_messages=1, max_wait=10.0)
        async for message in batch:
            assert message.data == b"1"
            await message.ack()
        assert (await js.get_consumer_info("S", "c")).config.durable_name == "c"
        assert (await js.account_info()).streams == 1
        bucket = await key_value.create_key_value(js, key_value.KeyValueConfig(bucket="B"))
        assert await bucket.put("k", b"v") == 1
        assert (await bucket.get("k")).value == b"v"
        await bucket.delete("k")
        with pytest.raises(key_value.KeyNotFoundError):
            await bucket.get("k")
    finally:
        await client.close()


async def failure_of(call: Awaitable[object]) -> BaseException | None:
    """What the call raises."""
    found = (await asyncio.gather(call, return_exceptions=True))[0]
    return found if isinstance(found, BaseException) else None


@pytest.mark.covers("MV-10", "CL-4")
async def test_its_ordered_consumer_goes_on_over_a_restart(fleet: Fleet) -> None:
    """Its pull is lost with the process, and it sends another one only when the broker said so before."""
    jetstream: Any = import_module("nats.jetstream")
    connect = import_module("nats.client").connect
    [broker] = await fleet.start(1)
    client: Any = await connect(broker.url, reconnect_max_attempts=0)
    try:
        js: Any = jetstream.JetStream(client)
        stream = await js.create_stream(name="S", subjects=["s"])
        for number in range(5):
            await js.publish("s", b"%d" % number)
        consumer = await stream.ordered_consumer(filter_subjects=["s"])
        # Without a heartbeat: nothing but the status tells it.
        messages = await consumer.messages(max_wait=600.0, heartbeat=300.0)
        seen = [int((await anext(messages)).data) for _ in range(5)]
        broker.terminate()
        assert await broker.exited() == 0
        broker.start()
        await broker.ready()

        async def published() -> bool:
            return not await failure_of(js.publish("s", b"5"))

        await until(published, "the client to be back")
        async with asyncio.timeout(30):
            seen.append(int((await anext(messages)).data))
        assert seen == [0, 1, 2, 3, 4, 5]
        await messages.stop()
    finally:
        await client.close()
