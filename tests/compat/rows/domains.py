"""JetStream's domain: the API under its prefix, and who says its name."""

from __future__ import annotations

import json
from typing import Any

from tests.compat.bench import WAIT_S, Bench
from tests.compat.table import Group, Settings

DOMAIN = Settings("domain", ours={"domain": "hub"}, nats={"jetstream": {"domain": "hub"}})

rows = Group("domains", settings=DOMAIN)


async def _hub(b: Bench, call: str, body: Any = None) -> dict[str, Any]:
    payload = b"" if body is None else json.dumps(body).encode()
    found: dict[str, Any] = json.loads(
        (await b.nc.request(f"$JS.hub.API.{call}", payload, timeout=WAIT_S)).data
    )
    return found


@rows("info", "INFO names the domain")
async def info(b: Bench) -> None:
    assert (await b.raw()).info["domain"] == "hub"


@rows("account-info", "$JS.API.INFO names the domain, by either prefix")
async def account_info(b: Bench) -> None:
    assert (await b.ok("INFO"))["domain"] == "hub"
    assert (await _hub(b, "INFO"))["domain"] == "hub"


@rows("both-prefixes", "a stream that was made by the domain's prefix is there by both")
async def both_prefixes(b: Bench) -> None:
    name = b.name()
    b.will_delete(name)
    made = await _hub(
        b, f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "num_replicas": b.replicas}
    )
    assert made["config"]["name"] == name
    assert made["type"] == "io.nats.jetstream.api.v1.stream_create_response"
    by_own, by_domain = await b.ok(f"STREAM.INFO.{name}"), await _hub(b, f"STREAM.INFO.{name}")
    assert by_own["config"] == by_domain["config"]
    assert name in (await _hub(b, "STREAM.NAMES"))["streams"]


@rows("stream-info", "STREAM.INFO names the domain")
async def stream_info(b: Bench) -> None:
    stream = await b.stream()
    assert (await stream.info())["domain"] == "hub"


@rows("pub-ack", "an acknowledgement of a publish names the domain")
async def pub_ack(b: Bench) -> None:
    stream = await b.stream()
    assert await stream.publish() == {"stream": stream.name, "domain": "hub", "seq": 1}
    again = (
        await stream.publish(headers={"Nats-Msg-Id": "1"}),
        await stream.publish(headers={"Nats-Msg-Id": "1"}),
    )
    assert again[1] == {"stream": stream.name, "domain": "hub", "seq": 2, "duplicate": True}


@rows("other", "another domain is not here: nobody answers")
async def other(b: Bench) -> None:
    raw = await b.raw(no_responders=True)
    raw.send("SUB in.box 1\r\nPUB $JS.spoke.API.INFO in.box 0\r\n\r\n")
    assert (await raw.message()).header.startswith(b"NATS/1.0 503")


@rows("unknown", "errors by the domain's prefix are those of the API")
async def unknown(b: Bench) -> None:
    assert (await _hub(b, "STREAM.INFO.NO"))["error"] == {
        "code": 404,
        "err_code": 10059,
        "description": "stream not found",
    }


@rows("pull", "messages are pulled by the domain's prefix")
async def pull(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("1", "2")
    consumer = await stream.consumer()
    inbox = await b.subscribe()
    await inbox._conn.publish(
        f"$JS.hub.API.CONSUMER.MSG.NEXT.{stream.name}.{consumer.name}",
        b'{"batch":2,"no_wait":true}',
        reply=inbox.subject,
    )
    for number in (b"1", b"2"):
        message = await inbox.next_msg(timeout=WAIT_S)
        assert message.data == number
        await b.nc.request(message.reply, b"+ACK", timeout=WAIT_S)
    assert (await consumer.info())["num_ack_pending"] == 0


@rows("direct-get", "direct gets are answered by the domain's prefix")
async def direct_get(b: Bench) -> None:
    stream = await b.stream(allow_direct=True)
    await stream.fill("1")
    message = await b.nc.request(f"$JS.hub.API.DIRECT.GET.{stream.name}", b'{"seq":1}', timeout=WAIT_S)
    assert message.data == b"1"


@rows("context", "nats-py's jetstream(domain=…) makes streams and consumers, publishes, pulls and subscribes")
async def context(b: Bench) -> None:
    client = await b.connect()
    js = client.jetstream(domain="hub", timeout=WAIT_S)
    name = b.name()
    b.will_delete(name)
    await js.add_stream(name=name, subjects=[f"{name}.>"], num_replicas=b.replicas)
    for number in range(10):
        ack = await js.publish(f"{name}.{number}", b"%d" % number)
        assert (ack.stream, ack.domain, ack.seq) == (name, "hub", number + 1)
    pulled = await js.pull_subscribe(f"{name}.>", durable="D")
    for message in await pulled.fetch(10, timeout=WAIT_S):
        await message.ack_sync(timeout=WAIT_S)
    assert (await js.consumer_info(name, "D")).num_pending == 0
    pushed = await js.subscribe(f"{name}.>", ordered_consumer=True)
    assert [(await pushed.next_msg(timeout=WAIT_S)).data for _ in range(10)] == [b"%d" % n for n in range(10)]


@rows("key-value", "a bucket of the domain is watched and changed")
async def key_value(b: Bench) -> None:
    client = await b.connect()
    js = client.jetstream(domain="hub", timeout=WAIT_S)
    name = b.name("KVB")
    b.will_delete(f"KV_{name}")
    bucket = await js.create_key_value(bucket=name, replicas=b.replicas)
    assert await bucket.put("a", b"1") == 1
    assert await bucket.update("a", b"2", last=1) == 2
    assert (await bucket.get("a")).value == b"2"
