"""A whole story of nats-core, nats-jetstream and nats-key-value (Python 3.13): on three servers of ours, and on three nats-servers with
the same files. They have neither an object store nor WebSockets."""

from __future__ import annotations

import asyncio
import ssl
from importlib import import_module
from typing import Any

import pytest
from tests.broker.dropin.running import both
from tests.py_clients.site import MAX_PAYLOAD, Site
from tests.support.local_clusters import until

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(300)]

WAIT_S = 30.0


async def connect(url: str, **options: Any) -> Any:
    # Not installed where mypy runs.
    found = import_module("nats.client").connect
    given = {
        "user": "a",
        "password": "b",
        "reconnect_time_wait": 0.1,
        "reconnect_max_attempts": 300,
        **options,
    }
    return await found(url, **given)


async def next_of(subscription: Any) -> Any:
    async with asyncio.timeout(WAIT_S):
        return await subscription.next()


async def answered(act: Any) -> Any:
    """Until it succeeds: while a cluster elects a leader nobody answers."""

    async def succeeded() -> Any:
        try:
            return await act()
        except Exception:
            return None

    return await until(succeeded, "an answer")


@both
async def test_plain_messages(site: Site, command: tuple[str, ...]) -> None:
    errors = import_module("nats.client.errors")
    client, there = await connect(site.urls[0]), await connect(site.urls[1])
    assert client.server_info.go_version
    with pytest.raises(errors.NoRespondersError):
        await client.request("nobody", b"", timeout=WAIT_S)
    members = [await there.subscribe("ask", queue="q") for _ in range(2)]

    async def answer(member: Any) -> None:
        async for message in member:
            assert message.headers.get("A") == "1"
            await there.publish(message.reply, message.data.upper())

    answering = [asyncio.create_task(answer(member)) for member in members]
    await there.flush()
    for number in range(20):
        told = await answered(
            lambda number=number: client.request("ask", b"x%d" % number, headers={"A": "1"})
        )
        assert told.data == b"X%d" % number
    drained = await client.subscribe("drained")
    await client.publish("drained", b"last")
    await client.flush()
    await drained.drain()
    assert (await next_of(drained)).data == b"last"
    for task in answering:
        task.cancel()
    await there.close()
    await client.drain()


@both
async def test_streams_and_buckets(site: Site, command: tuple[str, ...]) -> None:
    """The JetStream client is strict: an answer with a field that it does not know is an error."""
    jetstream: Any = import_module("nats.jetstream")
    key_value: Any = import_module("nats.key_value")
    client = await connect(site.urls[0])
    js = jetstream.JetStream(client, strict=True)
    stream = await answered(lambda: js.create_stream(name="S", subjects=["s.>"]))
    for number in range(30):
        ack = await js.publish(f"s.{number % 3}", b"%d" % number, headers={"Nats-Msg-Id": str(number)})
        assert ack.sequence == number + 1
    assert (await js.publish("s.0", b"0", headers={"Nats-Msg-Id": "0"})).duplicate is True
    consumer = await stream.create_consumer(name="c", durable_name="c", ack_policy="explicit")
    got: list[bytes] = []
    async for message in await consumer.fetch(max_messages=30, max_wait=WAIT_S):
        got.append(message.data)
        await message.ack()
    assert got == [b"%d" % number for number in range(30)]
    ordered = await stream.ordered_consumer()
    batch = await ordered.fetch(max_messages=30, max_wait=WAIT_S)
    assert [message.data async for message in batch] == got
    assert (await js.get_consumer_info("S", "c")).config.durable_name == "c"
    assert [info.config.name async for info in js.list_streams()] == ["S"]
    assert (await js.account_info()).streams == 1
    await stream.purge()
    assert (await stream.get_info()).state.messages == 0
    assert await js.delete_stream("S") is True

    bucket = await key_value.create_key_value(js, key_value.KeyValueConfig(bucket="B", history=5))
    revision = await bucket.create("a.x", b"1")
    with pytest.raises(key_value.KeyExistsError):
        await bucket.create("a.x", b"2")
    revision = await bucket.update("a.x", b"2", revision)
    with pytest.raises(key_value.KeyValueError):
        await bucket.update("a.x", b"3", revision - 1)
    await bucket.put("b", b"0")
    assert (await bucket.get("a.x")).value == b"2"
    assert [entry.value async for entry in await bucket.history("a.x")] == [b"1", b"2"]
    assert sorted([key async for key in await bucket.keys()]) == ["a.x", "b"]
    await bucket.delete("a.x")
    with pytest.raises(key_value.KeyNotFoundError):
        await bucket.get("a.x")
    await bucket.purge("b")
    assert (await bucket.status()).values == 4
    await client.close()


@both
async def test_servers_that_end(site: Site, command: tuple[str, ...]) -> None:
    client = await connect(site.urls[0])
    back = asyncio.Event()
    client.add_reconnected_callback(back.set)
    inbox = await client.subscribe("plain")
    await client.flush()
    at = site.servers[0]
    for end in (site.kill, site.leave):
        await end(at)
        async with asyncio.timeout(90):
            await back.wait()
        back.clear()
        await client.publish("plain", b"x")
        assert (await next_of(inbox)).data == b"x"
        await site.again(at)
        at = next(server for server in site.servers if server.host == client.server_info.host)
    await client.close()


@both
async def test_tls(site: Site, command: tuple[str, ...]) -> None:
    trusting = ssl.create_default_context(cafile=str(site.authority.file))
    client = await connect(f"tls://{site.secure.host}:4222", tls=trusting, tls_hostname="localhost")
    inbox = await client.subscribe("a")
    await client.publish("a", b"x")
    assert (await next_of(inbox)).data == b"x"
    await client.close()


@both
async def test_limits_and_permissions(site: Site, command: tuple[str, ...]) -> None:
    client = await connect(site.urls[0])
    assert client.server_info.max_payload == MAX_PAYLOAD
    inbox = await client.subscribe("a")
    await client.publish("a", b"x" * MAX_PAYLOAD)
    assert len((await next_of(inbox)).data) == MAX_PAYLOAD
    await client.close()
    for user, act, text in (
        ("a", lambda one: one.publish("a", b"x" * (MAX_PAYLOAD + 1)), "maximum payload violation"),
        (
            "narrow",
            lambda one: one.publish("secret.a", b"x"),
            'permissions violation for publish to "secret.a"',
        ),
        ("few", lambda one: _subscribe(one, 3), "maximum subscriptions exceeded"),
    ):
        told: asyncio.Queue[str] = asyncio.Queue()
        one = await connect(site.urls[0], user=user)
        one.add_error_callback(lambda error, told=told: told.put_nowait(str(error).lower()))
        await act(one)
        async with asyncio.timeout(WAIT_S):
            assert text in await told.get()
        await answered(lambda one=one: one.rtt())
        await one.close()


async def _subscribe(client: Any, count: int) -> None:
    for number in range(count):
        await client.subscribe(f"s.{number}")
