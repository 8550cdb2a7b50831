"""A whole story of nats-py: on three servers of ours, and on three nats-servers with the same files."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error, MaxPayloadError, NoRespondersError
from nats.js.api import ConsumerConfig, KeyValueConfig, ObjectStoreConfig, StreamConfig
from nats.js.errors import BucketNotFoundError, KeyNotFoundError, KeyWrongLastSequenceError
from tests.broker.dropin.running import again, both
from tests.py_clients.site import MAX_PAYLOAD, WEB_PORT, Site
from tests.support.local_clusters import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

WAIT_S = 30.0
LOGIN = {"user": "a", "password": "b"}


class Heard:
    """What a client was told of its connection."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.reconnected = asyncio.Event()
        self.closed = asyncio.Event()

    async def error(self, error: Exception) -> None:
        self.errors.append(str(error))

    async def came_back(self) -> None:
        self.reconnected.set()

    async def ended(self) -> None:
        self.closed.set()

    async def until_error(self, text: str) -> None:
        async def is_told() -> bool:
            return any(text in error.lower() for error in self.errors)

        await until(is_told, f"an error: {text}")


async def connect(url: str | list[str], heard: Heard, **options: Any) -> Client:
    return await nats.connect(
        url,
        **{**LOGIN, **options},
        error_cb=heard.error,
        reconnected_cb=heard.came_back,
        closed_cb=heard.ended,
        reconnect_time_wait=0.1,
        max_reconnect_attempts=300,
        connect_timeout=10,
    )


@both
@pytest.mark.long
async def test_plain_messages(site: Site, command: tuple[str, ...]) -> None:
    heard = Heard()
    client = await connect(site.urls[0], heard)
    there = await connect(site.urls[1], heard)
    with pytest.raises(NoRespondersError):
        await client.request("nobody", timeout=WAIT_S)

    async def answer(message: Msg) -> None:
        assert message.headers == {"A": "1"}
        await message.respond(message.data.upper())

    members = [await there.subscribe("ask", queue="q", cb=answer) for _ in range(2)]
    await there.flush()
    for number in range(20):
        asked = asking(client, b"x%d" % number)
        assert (await again(asked, "an answer")).data == b"X%d" % number
    assert sum(member._received for member in members) >= 20
    left = await there.subscribe("left")
    await there.flush()
    await again(reaching(client, left), "interest to be known")
    await left.unsubscribe()
    drained = await there.subscribe("drained", cb=answer)
    await drained.drain()  # type: ignore[no-untyped-call]
    with pytest.raises(NoRespondersError):
        await there.request("drained", timeout=WAIT_S)
    for one in (there, client):
        await one.drain()
    assert heard.closed.is_set()
    assert heard.errors == []


def asking(client: Client, data: bytes) -> Callable[[], Any]:
    return lambda: client.request("ask", data, timeout=2, headers={"A": "1"})


def reaching(client: Client, subscription: Any) -> Callable[[], Any]:
    async def reach() -> bool:
        await client.publish("left", b"first")
        await client.flush()
        return bool(await subscription.next_msg(timeout=1))

    return reach


@both
@pytest.mark.long
async def test_streams_buckets_and_objects(site: Site, command: tuple[str, ...]) -> None:
    heard = Heard()
    client = await connect(site.urls, heard)
    js = client.jetstream(timeout=WAIT_S)
    await again(lambda: js.add_stream(StreamConfig("S", subjects=["s.>"], num_replicas=3)), "a stream")
    for number in range(30):
        ack = await js.publish(f"s.{number % 3}", b"%d" % number, headers={"Nats-Msg-Id": str(number)})
        assert (ack.seq, ack.duplicate) == (number + 1, None)
    assert (await js.publish("s.0", b"0", headers={"Nats-Msg-Id": "0"})).duplicate is True
    pull = await js.pull_subscribe("s.>", durable="pull")
    batch = await pull.fetch(30, timeout=WAIT_S)
    assert [message.data for message in batch] == [b"%d" % number for number in range(30)]
    await batch[0].nak()
    for message in batch[1:]:
        await message.ack_sync(timeout=WAIT_S)
    (once_more,) = await pull.fetch(1, timeout=WAIT_S)
    assert once_more.metadata.num_delivered == 2
    await once_more.ack_sync(timeout=WAIT_S)
    push = await js.subscribe("s.1", durable="push", config=ConsumerConfig(filter_subject="s.1"))
    for number in range(1, 30, 3):
        message = await push.next_msg(timeout=WAIT_S)
        assert message.data == b"%d" % number
        await message.ack()
    ordered = await js.subscribe("s.>", ordered_consumer=True)
    assert [(await ordered.next_msg(timeout=WAIT_S)).data for _ in range(30)] == [
        b"%d" % number for number in range(30)
    ]

    with pytest.raises(BucketNotFoundError):
        await js.key_value("NONE")
    bucket = await js.create_key_value(KeyValueConfig("B", history=5, replicas=3))
    watcher = await bucket.watch("a.*")
    revision = await bucket.create("a.x", b"1")
    with pytest.raises(KeyWrongLastSequenceError):
        await bucket.create("a.x", b"2")
    revision = await bucket.update("a.x", b"2", last=revision)
    with pytest.raises(KeyWrongLastSequenceError):
        await bucket.update("a.x", b"3", last=revision - 1)
    await bucket.put("b", b"0")
    assert (await bucket.get("a.x")).value == b"2"
    assert [entry.value for entry in await bucket.history("a.x")] == [b"1", b"2"]
    assert sorted(await bucket.keys()) == ["a.x", "b"]
    await bucket.delete("a.x")
    with pytest.raises(KeyNotFoundError):
        await bucket.get("a.x")
    await bucket.purge("b")
    assert (await bucket.status()).values == 4
    seen: list[tuple[str, bytes, str | None]] = []
    while len(seen) < 3:
        update = await watcher.updates(timeout=WAIT_S)  # type: ignore[no-untyped-call]
        if update is not None:
            seen.append((update.key, update.value, update.operation))
    assert seen == [("a.x", b"1", None), ("a.x", b"2", None), ("a.x", b"", "DEL")]
    await watcher.stop()  # type: ignore[no-untyped-call]

    store = await js.create_object_store("O", config=ObjectStoreConfig(replicas=3))
    data = bytes(range(256)) * 2000
    info = await store.put("big", data)
    assert info.size == len(data)
    assert (await store.get("big")).data == data
    assert [found.name for found in await store.list()] == ["big"]
    await store.delete("big")
    await store.seal()  # type: ignore[no-untyped-call]
    with pytest.raises(Error):
        await store.put("late", b"x")
    await client.close()
    assert heard.errors == []


@both
@pytest.mark.long
async def test_servers_that_end(site: Site, command: tuple[str, ...]) -> None:
    """Killed and started again; another of the cluster; a lame duck."""
    heard = Heard()
    client = await connect(site.urls[0], heard)
    await until(lambda: asyncio.sleep(0, len(client.servers) == 3), "all servers to be known")
    js = client.jetstream(timeout=2)
    await again(lambda: js.add_stream(StreamConfig("S", subjects=["s"], num_replicas=3)), "a stream")
    inbox = await client.subscribe("plain")
    await client.flush()
    stored = 0

    async def is_back() -> None:
        async with asyncio.timeout(WAIT_S):
            await heard.reconnected.wait()
        heard.reconnected.clear()
        await client.publish("plain", b"x")
        assert (await inbox.next_msg(timeout=WAIT_S)).data == b"x"

    for end in (site.kill, site.leave):
        assert client.connected_url is not None
        server = site.at(str(client.connected_url.hostname))
        ack = await again(lambda: js.publish("s", b"x"), "an acknowledgement")
        stored = ack.seq
        await end(server)
        await is_back()
        assert client.connected_url.hostname != server.host
        ack = await again(lambda: js.publish("s", b"x"), "an acknowledgement of the others")
        assert ack.seq > stored
        await site.again(server)

    async def all_there() -> bool:
        info = await again(lambda: js.stream_info("S"), "information")
        return len(info.cluster.replicas) == 2 and all(peer.current for peer in info.cluster.replicas)

    await until(all_there, "three current replicas")
    await client.close()

    alone = await connect(
        f"nats://{site.secure.host}:4222", heard, tls=trusting(site), tls_hostname="localhost"
    )
    heard.reconnected.clear()
    await site.secure.kill()
    await site.again(site.secure)
    async with asyncio.timeout(WAIT_S):
        await heard.reconnected.wait()
    await alone.flush(10)
    await alone.close()


def trusting(site: Site) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(site.authority.file))


@both
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*timeout:DeprecationWarning")  # How nats-py calls aiohttp.
async def test_websocket_and_tls(site: Site, command: tuple[str, ...]) -> None:
    heard = Heard()
    web = await connect(f"ws://{site.secure.host}:{WEB_PORT}", heard)
    plain = await connect(
        f"nats://{site.secure.host}:4222", Heard(), tls=trusting(site), tls_hostname="localhost"
    )
    inbox = await web.subscribe("web.>")
    await web.flush()
    await plain.publish("web.a", b"x" * 100_000, headers={"A": "1"})
    message = await inbox.next_msg(timeout=WAIT_S)
    assert (message.data, message.headers) == (b"x" * 100_000, {"A": "1"})
    await plain.close()
    await site.kill(site.secure)
    await site.again(site.secure)
    async with asyncio.timeout(WAIT_S):
        await heard.reconnected.wait()
    await web.publish("web.b", b"again")
    assert (await inbox.next_msg(timeout=WAIT_S)).data == b"again"
    await web.close()

    async def answer(message: Msg) -> None:
        await message.respond(b"y")

    secure = await connect(
        f"nats://{site.secure.host}:4222", heard, tls=trusting(site), tls_hostname="localhost"
    )
    await secure.subscribe("x", cb=answer)
    assert (await secure.request("x", timeout=WAIT_S)).data == b"y"
    await secure.close()


@both
async def test_limits_and_permissions(site: Site, command: tuple[str, ...]) -> None:
    heard = Heard()
    client = await connect(site.urls[0], heard)
    assert client.max_payload == MAX_PAYLOAD
    with pytest.raises(MaxPayloadError):
        await client.publish("a", b"x" * (MAX_PAYLOAD + 1))
    inbox = await client.subscribe("a")
    await client.publish("a", b"x" * MAX_PAYLOAD)
    assert len((await inbox.next_msg(timeout=WAIT_S)).data) == MAX_PAYLOAD
    await client.close()

    heard = Heard()
    narrow = await connect(site.urls[0], heard, user="narrow")
    await narrow.publish("secret.a", b"x")
    await heard.until_error('permissions violation for publish to "secret.a"')
    await narrow.subscribe("secret.a")
    await heard.until_error('permissions violation for subscription to "secret.a"')
    assert narrow.is_connected
    await narrow.close()

    heard = Heard()
    few = await connect(site.urls[0], heard, user="few")
    for number in range(3):
        await few.subscribe(f"s.{number}")
    async with asyncio.timeout(WAIT_S):
        await heard.closed.wait()  # nats-py's own answer to an error that it does not know.
    assert few.last_error is not None
    assert "maximum subscriptions exceeded" in str(few.last_error)
