"""What is told of streams and of the API under `$JS.EVENT.ADVISORY` (of consumers: `consumer_events.py`)."""

from __future__ import annotations

import json
from typing import Any

from nats.aio.subscription import Subscription
from tests.compat.bench import WAIT_S, Answers, Bench, eventually
from tests.compat.table import CLUSTERS, Group

rows = Group("advisories")


async def listen(b: Bench, subject: str) -> Subscription:
    return await b.subscribe(f"$JS.EVENT.ADVISORY.{subject}")


async def told(subscription: Subscription, kind: str) -> dict[str, Any]:
    """The next event, without what differs each time."""
    found: dict[str, Any] = json.loads((await Answers(subscription).next()).data)
    assert found.pop("type") == f"io.nats.jetstream.advisory.v1.{kind}"
    assert found.pop("id")
    assert found.pop("timestamp") > "2026"
    return found


@rows("stream.action", "that streams are created, changed and deleted is told")
async def stream_action(b: Bench) -> None:
    name = b.name()
    inbox = await listen(b, f"STREAM.*.{name}")
    await b.stream(name=name)

    async def next_action() -> tuple[str, dict[str, Any]]:
        while True:
            message = await Answers(inbox).next()
            if "LEADER_ELECTED" not in message.subject:
                found = json.loads(message.data)
                assert found["type"] == "io.nats.jetstream.advisory.v1.stream_action"
                return message.subject.split(".")[4], {key: found[key] for key in ("stream", "action")}

    assert await next_action() == ("CREATED", {"stream": name, "action": "create"})
    config = (await b.ok(f"STREAM.INFO.{name}"))["config"]
    await b.ok(f"STREAM.UPDATE.{name}", {**config, "max_msgs": 10})
    assert await next_action() == ("UPDATED", {"stream": name, "action": "modify"})
    await b.ok(f"STREAM.DELETE.{name}")
    assert await next_action() == ("DELETED", {"stream": name, "action": "delete"})


@rows("stream.captured", "a stream may capture what is told of others")
async def stream_captured(b: Bench) -> None:
    name = b.name()
    letters = await b.stream(subjects=[f"$JS.EVENT.ADVISORY.STREAM.CREATED.{name}"])
    await b.stream(name=name)

    async def is_there() -> bool:
        return bool((await letters.state())["messages"] == 1)

    await eventually(is_there, "the event to be stored")


@rows("api", "calls of the API are told, with what was asked and answered")
async def api(b: Bench) -> None:
    inbox = await listen(b, "API")
    name = b.name()
    config = {"name": name, "subjects": [f"{name}.>"], "num_replicas": b.replicas}
    b.will_delete(name)
    await b.ok(f"STREAM.CREATE.{name}", config)
    await b.api(f"STREAM.INFO.{b.name('NOPE')}")

    async def next_about(call: str) -> dict[str, Any]:
        while True:
            found = await told(inbox, "api_audit")
            if found["subject"].startswith(f"$JS.API.{call}"):
                return found

    found = await next_about(f"STREAM.CREATE.{name}")
    assert json.loads(found["request"]) == config
    assert json.loads(found["response"])["config"]["name"] == name
    assert found["server"].startswith(("east-", "west-"))
    assert found["client"]["acc"] == "$G"
    found = await next_about("STREAM.INFO.NOPE")
    assert "request" not in found
    assert json.loads(found["response"])["error"]["err_code"] == 10059


@rows("api.traffic", "pulls and getting messages are not told")
async def api_traffic(b: Bench) -> None:
    stream = await b.stream(allow_direct=True)
    await stream.fill("a")
    consumer = await stream.consumer()
    inbox = await listen(b, "API")
    await b.ok(f"STREAM.MSG.GET.{stream.name}", {"seq": 1})
    await b.nc.request(f"$JS.API.DIRECT.GET.{stream.name}", b'{"seq":1}', timeout=WAIT_S)
    await consumer.fetch(1)
    await b.ok(f"STREAM.PURGE.{stream.name}")
    about: list[str] = []
    while f"$JS.API.STREAM.PURGE.{stream.name}" not in about:
        about.append((await told(inbox, "api_audit"))["subject"])
    assert not [subject for subject in about if "GET" in subject or "NEXT" in subject]


async def _batch(b: Bench, name: str, batch: str, number: int, *, answered: bool = False) -> None:
    headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
    if answered:
        await b.nc.request(f"{name}.a", b"x", timeout=WAIT_S, headers=headers)
    else:
        await b.nc.publish(f"{name}.a", b"x", headers=headers)


@rows("batch.incomplete", "a batch that lacks a message is told to be abandoned")
async def batch_incomplete(b: Bench) -> None:
    stream = await b.stream(allow_atomic=True)
    inbox = await listen(b, f"STREAM.BATCH_ABANDONED.{stream.name}")
    await _batch(b, stream.name, "b1", 1, answered=True)
    await _batch(b, stream.name, "b1", 3, answered=True)
    assert await told(inbox, "stream_batch_abandoned") == {
        "stream": stream.name,
        "batch": "b1",
        "reason": "incomplete",
    }


@rows("batch.large", "a batch of too many messages is told to be abandoned")
async def batch_large(b: Bench) -> None:
    stream = await b.stream(allow_atomic=True)
    inbox = await listen(b, f"STREAM.BATCH_ABANDONED.{stream.name}")
    await _batch(b, stream.name, "b1", 1, answered=True)
    for number in range(2, 1001):
        await _batch(b, stream.name, "b1", number)
    await _batch(b, stream.name, "b1", 1001, answered=True)
    assert (await told(inbox, "stream_batch_abandoned"))["reason"] == "large"


@rows("batch.timeout", "a batch whose client says nothing more is told to be abandoned")
async def batch_timeout(b: Bench) -> None:
    stream = await b.stream(allow_atomic=True)
    inbox = await listen(b, f"STREAM.BATCH_ABANDONED.{stream.name}")
    await _batch(b, stream.name, "b1", 1, answered=True)
    found = json.loads((await Answers(inbox).next(15)).data)
    assert (found["batch"], found["reason"]) == ("b1", "timeout")


@rows("leader", "a stream's and its consumers' new leader is told", on=CLUSTERS)
async def leader(b: Bench) -> None:
    stream = await b.stream()
    await stream.consumer("c")
    streams = await listen(b, f"STREAM.LEADER_ELECTED.{stream.name}")
    before = (await stream.info())["cluster"]["leader"]
    await b.ok(f"STREAM.LEADER.STEPDOWN.{stream.name}")
    while True:
        found = await told(streams, "stream_leader_elected")
        if found["leader"] != before:
            break
    assert found["stream"] == stream.name
    names = {replica["name"] for replica in found["replicas"]} | {found["leader"]}
    assert len(names) >= b.replicas
    assert names <= {f"{cluster}-{number}" for cluster in ("east", "west") for number in range(b.target.size)}
