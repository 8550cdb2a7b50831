"""Nothing leaves the bulk port but a stream's messages, whatever else lies in its log."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from functools import partial
from zlib import crc32

import pytest
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig
from nats.js.errors import APIError
from tests.broker.bulk.reading import COLUMNS, Answer, read
from tests.broker.cluster.test_sink_calls import block
from tests.support.local_clusters import Broker, Fleet, until

PORT = 4333
PAYLOAD = bytes(range(200)) * 15
IDS = itertools.count()
USERS = {
    "users": [
        {"user": "app", "password": "app-secret", "account": "$G", "role": "client"},
        {
            "user": "reader",
            "password": "secret",
            "account": "$G",
            "role": "client",
            "permissions": {"publish": {"allow": ["$JS.API.STREAM.MSG.GET.orders"]}},
        },
    ]
}


async def plant(fleet: Fleet) -> list[int]:
    """Around the stream's messages, in its log: secrets that are no message of it (any more). Returns the removed ones' sequences."""
    login = {"user": "app", "password": "app-secret"}
    js = await fleet.js(**login)
    await js.add_stream(
        StreamConfig(name="orders", subjects=["orders.>"], num_replicas=3, description="SECRET-config")
    )
    await js.add_stream(StreamConfig(name="other", subjects=["other.>"], num_replicas=3))
    await js.publish("other.x", b"SECRET-other" * 40)
    client = await fleet.client((await fleet.followers("orders"))[0], **login)
    js = client.jetstream(timeout=10)
    consumer = ConsumerConfig(durable_name="SECRET-consumer", ack_policy=AckPolicy.EXPLICIT)
    await js.add_consumer("orders", consumer)
    pulled = await js.pull_subscribe_bind("SECRET-consumer", "orders")
    gone: list[int] = []
    for number in range(1, 4):
        await publish(js, 20)
        for message in await pulled.fetch(1):
            await message.ack_sync()
        gone.append((await js.publish("orders.SECRET-subject", b"SECRET-deleted" * 30)).seq)
        assert await js.delete_msg("orders", gone[-1])
        refused = {"Nats-Expected-Last-Sequence": "1", "Nats-Msg-Id": "SECRET-refused-id"}
        stored, wrong = await asyncio.gather(
            js.publish("orders.3", PAYLOAD),
            js.publish("orders.3", b"SECRET-refused" * 30, headers=refused),
            return_exceptions=True,
        )
        assert not isinstance(stored, BaseException)
        assert isinstance(wrong, APIError)
        raw = block("orders.SECRET-staged", [b"SECRET-staged" * 30] * 3)
        told = {"writer": "SECRET-writer", "batch": 0, "token": f"SECRET-token-{number}", "block": 1}
        head = json.dumps({**told, "crc": crc32(raw)}).encode()
        answer = await client.request("$JS.API.SINK.STAGE.orders", head + b"\n" + raw, timeout=10)
        assert "error" not in json.loads(answer.data)
        gone.append((await js.publish("orders.purged", b"SECRET-purged" * 30)).seq)
        await js.purge_stream("orders", subject="orders.purged")
    await publish(js, 60)
    return gone


async def publish(js: JetStreamContext, count: int) -> None:
    """Messages with numbers of a session, and ids."""
    await asyncio.gather(
        *(
            js.publish(f"orders.{number % 7}", PAYLOAD, headers={"Nats-Msg-Id": f"id-{next(IDS)}"})
            for number in range(count)
        )
    )


async def all_of(broker: Broker, columns: list[str], last: int) -> Answer | None:
    """Once the broker has applied as much."""
    answer = await read(PORT, "orders", columns, "reader:secret", host=broker.host)
    return answer if answer.end is not None and answer.end["last"] > last else None


@pytest.mark.covers("SP-1")
async def test_nothing_but_messages_leaves_the_port(fleet: Fleet) -> None:
    brokers = await fleet.start(
        3, bulk={"port": PORT}, storage={"segmentBytes": 65_536}, credentials={"users.json": USERS}
    )
    gone = await plant(fleet)
    in_logs: set[bytes] = set()
    for broker in brokers:
        found = await until(partial(all_of, broker, COLUMNS, gone[-1]), "all to be applied")
        assert found.is_complete()
        assert {row["sequence"] for row in found.rows}.isdisjoint(gone)
        assert b"id-50" in found.body
        assert PAYLOAD in found.body
        for columns in (COLUMNS, *([name] for name in COLUMNS)):
            body = (await read(PORT, "orders", columns, "reader:secret", host=broker.host)).body
            assert body
            assert b"SECRET" not in body
        kept = [path.read_bytes() for path in (broker.data_dir / "bulk").iterdir()]
        assert kept
        assert not any(b"SECRET" in content for content in kept)
        for file in broker.data_dir.rglob("*.seg"):
            in_logs.update(re.findall(rb"SECRET-[a-z]+", file.read_bytes()))
        other = await read(PORT, "other", login="reader:secret", host=broker.host)
        assert (other.status, other.body) == (403, b"")
    for word in (b"consumer", b"deleted", b"staged", b"writer", b"token", b"other", b"subject"):
        assert any(found.startswith(b"SECRET-" + word) for found in in_logs), f"{word!r} lies in no log"
