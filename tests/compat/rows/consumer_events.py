"""What the server tells of consumers: advisories and metrics."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Any

import nats.errors
from nats.aio.subscription import Subscription
from tests.compat.bench import Answers, Bench, eventually
from tests.compat.consumer_asking import SECOND, call, filled, pull, soon
from tests.compat.rows.priority_groups import PINNED
from tests.compat.table import CLUSTERS, Group

events = Group("consumers.events")


async def listen(b: Bench, subject: str) -> Subscription:
    return await b.subscribe(f"$JS.EVENT.{subject}")


async def told(subscription: Subscription, kind: str, subject: str) -> dict[str, Any]:
    """The next event, without what differs each time."""
    message = await Answers(subscription).next()
    assert message.subject == f"$JS.EVENT.{subject}"
    found: dict[str, Any] = json.loads(message.data)
    assert found.pop("type") == f"io.nats.jetstream.{kind}"
    assert found.pop("id")
    assert found.pop("timestamp") > "2026"
    found.pop("domain", None)
    return found


@events("action", "that consumers are created and deleted is told")
async def action(b: Bench) -> None:
    stream = await b.stream()
    inbox = await listen(b, f"ADVISORY.CONSUMER.*.{stream.name}.c")
    await stream.consumer("c")
    for what in ("create", "delete"):
        if what == "delete":
            await b.ok(f"CONSUMER.DELETE.{stream.name}.c")
        subject = f"ADVISORY.CONSUMER.{what.upper()}D.{stream.name}.c"
        while True:
            message = await Answers(inbox).next()
            if "LEADER_ELECTED" not in message.subject:
                break
        found = json.loads(message.data)
        assert message.subject == f"$JS.EVENT.{subject}"
        assert found["type"] == "io.nats.jetstream.advisory.v1.consumer_action"
        assert (found["stream"], found["consumer"], found["action"]) == (stream.name, "c", what)


@events("stream-deleted", "the consumers of a stream that is deleted are told of as well")
async def stream_deleted(b: Bench) -> None:
    stream = await b.stream()
    inbox = await listen(b, f"ADVISORY.CONSUMER.DELETED.{stream.name}.*")
    await stream.consumer("c")
    await b.ok(f"STREAM.DELETE.{stream.name}")
    found = await told(inbox, "advisory.v1.consumer_action", f"ADVISORY.CONSUMER.DELETED.{stream.name}.c")
    assert found == {"stream": stream.name, "consumer": "c", "action": "delete"}


@events("nak", "a refused message is told of")
async def event_nak(b: Bench) -> None:
    stream = await filled(b, "a", "b")
    consumer = await stream.consumer()
    subject = f"ADVISORY.CONSUMER.MSG_NAKED.{stream.name}.{consumer.name}"
    inbox = await listen(b, subject)
    await consumer.fetch(1)
    await consumer.fetch(1, ack=b"-NAK")
    assert await told(inbox, "advisory.v1.nak", subject) == {
        "stream": stream.name,
        "consumer": consumer.name,
        "consumer_seq": 2,
        "stream_seq": 2,
        "deliveries": 1,
    }


@events("terminated", "a terminated message is told of, with the reason")
async def event_terminated(b: Bench) -> None:
    stream = await filled(b, "a", "b")
    consumer = await stream.consumer()
    subject = f"ADVISORY.CONSUMER.MSG_TERMINATED.{stream.name}.{consumer.name}"
    inbox = await listen(b, subject)
    await consumer.fetch(1, ack=b"+TERM no good")
    wanted = {"stream": stream.name, "consumer": consumer.name, "consumer_seq": 1, "stream_seq": 1}
    assert await told(inbox, "advisory.v1.terminated", subject) == {
        **wanted,
        "deliveries": 1,
        "reason": "no good",
    }
    await consumer.fetch(1, ack=b"+TERM")
    wanted |= {"consumer_seq": 2, "stream_seq": 2, "deliveries": 1}
    assert await told(inbox, "advisory.v1.terminated", subject) == wanted


@events("max-deliver", "a message that is given up is told of")
async def event_max_deliver(b: Bench) -> None:
    stream = await filled(b, "a")
    consumer = await stream.consumer(max_deliver=1, ack_wait=SECOND // 5)
    subject = f"ADVISORY.CONSUMER.MAX_DELIVERIES.{stream.name}.{consumer.name}"
    inbox = await listen(b, subject)
    answers = await consumer.ask({"batch": 2, "expires": 5 * SECOND})
    assert (await answers.next()).data == b"a"
    assert await told(inbox, "advisory.v1.max_deliver", subject) == {
        "stream": stream.name,
        "consumer": consumer.name,
        "stream_seq": 1,
        "deliveries": 1,
    }


@events("sampled", "sample_freq tells how long acknowledgements take")
async def event_sampled(b: Bench) -> None:
    stream = await filled(b, "a")
    consumer = await stream.consumer(sample_freq="100%")
    subject = f"METRIC.CONSUMER.ACK.{stream.name}.{consumer.name}"
    inbox = await listen(b, subject)
    message = await consumer.next()
    await asyncio.sleep(0.2)
    await b.nc.request(message.reply, b"+ACK", timeout=5)
    found = await told(inbox, "metric.v1.consumer_ack", subject)
    assert 0.15 * SECOND < found.pop("ack_time") < 300 * SECOND, "nanoseconds since it was delivered"
    assert found == {
        "stream": stream.name,
        "consumer": consumer.name,
        "consumer_seq": 1,
        "stream_seq": 1,
        "deliveries": 1,
    }


@events("sampled.config", "sample_freq is shown as it was asked for")
async def sampled_config(b: Bench) -> None:
    stream = await b.stream()
    for freq in ("30", "30%", "101"):
        assert (await stream.consumer(sample_freq=freq)).created["config"]["sample_freq"] == freq


@events("sampled.bad", "a sample_freq that is no number is refused")
async def sampled_bad(b: Bench) -> None:
    await (await b.stream()).consumer_refused(
        code=400,
        err_code=10095,
        text='failed to parse consumer sampling configuration: strconv.Atoi: parsing "often": invalid syntax',
        sample_freq="often",
    )


@events("pause", "a pause is told of, and its end")
async def event_pause(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer()
    subject = f"ADVISORY.CONSUMER.PAUSE.{stream.name}.{consumer.name}"
    inbox = await listen(b, subject)
    until = soon(0.5)
    await b.ok(call("PAUSE", consumer), {"pause_until": until})
    for is_paused in (True, False):
        found = await told(inbox, "advisory.v1.consumer_pause", subject)
        assert (found["paused"], found["stream"], found["consumer"]) == (
            is_paused,
            stream.name,
            consumer.name,
        )
        assert datetime.fromisoformat(found["pause_until"]) == datetime.fromisoformat(until)


@events("pinned", "pins and their ends are told of")
async def event_pinned(b: Bench) -> None:
    stream = await filled(b, "a")
    consumer = await stream.consumer(**PINNED)
    subject = f"ADVISORY.CONSUMER.PINNED.{stream.name}.{consumer.name}"
    inbox, ends = await listen(b, subject), await listen(b, subject.replace("PINNED", "UNPINNED"))
    pin = ((await pull(consumer, group="A")).headers or {})["Nats-Pin-Id"]
    who = {"account": "$G", "stream": stream.name, "consumer": consumer.name, "group": "A"}
    assert await told(inbox, "advisory.v1.consumer_group_pinned", subject) == {**who, "pinned_id": pin}
    await b.ok(call("UNPIN", consumer), {"group": "A"})
    found = await told(ends, "advisory.v1.consumer_group_unpinned", subject.replace("PINNED", "UNPINNED"))
    assert found == {**who, "reason": "admin"}


@events("captured", "a stream may capture what is told, for messages that were given up")
async def captured(b: Bench) -> None:
    stream = await filled(b, "a")
    consumer = await stream.consumer(max_deliver=1, ack_wait=SECOND // 5)
    letters = await b.stream(subjects=[f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{stream.name}.*"])
    answers = await consumer.ask({"batch": 2, "expires": 5 * SECOND})
    assert (await answers.next()).data == b"a"

    async def is_stored() -> bool:
        return bool((await letters.state())["messages"] == 1)

    await eventually(is_stored, "the advisory is stored")


@events("leader", "a new leader of a stream is told of", on=CLUSTERS)
async def event_leader(b: Bench) -> None:
    stream = await b.stream()
    subject = f"ADVISORY.STREAM.LEADER_ELECTED.{stream.name}"
    inbox = await listen(b, subject)
    await b.ok(f"STREAM.LEADER.STEPDOWN.{stream.name}")
    found = await told(inbox, "advisory.v1.stream_leader_elected", subject)

    async def leads() -> bool:
        try:
            return bool((await stream.info())["cluster"].get("leader") == found["leader"])
        except (nats.errors.Error, AssertionError):
            return False

    await eventually(leads, "it leads")
    assert found["stream"] == stream.name
    assert len(found["replicas"]) == 3 or len(found["replicas"]) == 2
