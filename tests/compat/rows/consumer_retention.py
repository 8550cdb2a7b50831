"""What a stream's retention and limits make of its consumers."""

from __future__ import annotations

from typing import Any

from tests.compat.bench import Bench, StreamOfRow, eventually
from tests.compat.six import six
from tests.compat.table import Group

rows = Group("consumers")

SECOND = 1_000_000_000


@rows("workqueue.filters", "consumers of a work queue may not share messages")
async def workqueue_filters(b: Bench) -> None:
    stream = await b.stream(retention="workqueue")
    await stream.consumer(filter_subject=f"{stream.name}.a")
    await stream.consumer(filter_subject=f"{stream.name}.b")
    text = "filtered consumer not unique on workqueue stream"
    await stream.consumer_refused(filter_subject=f"{stream.name}.*", code=400, err_code=10100, text=text)
    text = "multiple non-filtered consumers not allowed on workqueue stream"
    await stream.consumer_refused(code=400, err_code=10099, text=text)


@rows("workqueue.deliver", "a work queue delivers all")
async def workqueue_deliver(b: Bench) -> None:
    stream = await b.stream(retention="workqueue")
    text = "consumer must be deliver all on workqueue stream"
    await stream.consumer_refused(deliver_policy="last", code=400, err_code=10101, text=text)


@rows("workqueue.removes", "a work queue's message goes when it is acknowledged, not before")
async def workqueue_removes(b: Bench) -> None:
    stream = await six(b, retention="workqueue")
    consumer = await stream.consumer()
    await consumer.fetch(2, ack=None)
    assert (await stream.state())["messages"] == 6
    await consumer.fetch(2)

    async def gone() -> bool:
        return bool((await stream.state())["messages"] == 4)

    await eventually(gone, "two messages to go")


@rows("interest.removes", "with interest retention a message goes when every consumer acknowledged it")
async def interest_removes(b: Bench) -> None:
    stream = await b.stream(retention="interest")
    one, other = await stream.consumer(), await stream.consumer()
    await stream.fill("a", "b")
    await one.fetch(2)
    assert (await stream.state())["messages"] == 2
    await other.fetch(1)

    async def gone() -> bool:
        return bool((await stream.state())["messages"] == 1)

    await eventually(gone, "one message to go")


@rows("interest.none", "with interest retention nobody's message is not kept")
async def interest_none(b: Bench) -> None:
    stream = await b.stream(retention="interest")
    assert (await stream.publish("a"))["seq"] == 1
    assert (await stream.state())["messages"] == 0


@rows("limits.pending", "a stream bounds its consumers' max_ack_pending")
async def limits_pending(b: Bench) -> None:
    stream = await b.stream(consumer_limits={"max_ack_pending": 5})
    assert (await stream.consumer()).created["config"]["max_ack_pending"] == 5
    text = "consumer max ack pending exceeds system limit of 5"
    await stream.consumer_refused(max_ack_pending=6, code=400, err_code=10121, text=text)


@rows("limits.inactive", "a stream gives its consumers an inactive threshold")
async def limits_inactive(b: Bench) -> None:
    stream = await b.stream(consumer_limits={"inactive_threshold": 100 * SECOND})
    assert (await stream.consumer()).created["config"]["inactive_threshold"] == 100 * SECOND


async def _ephemeral(b: Bench, stream: StreamOfRow, **config: Any) -> dict[str, Any]:
    """The configuration that a consumer without a name gets."""
    asked = {"ack_policy": "explicit", **config}
    answer = await b.ok(f"CONSUMER.CREATE.{stream.name}", {"stream_name": stream.name, "config": asked})
    found: dict[str, Any] = answer["config"]
    return found


@rows("limits.ephemeral", "what a stream bounds is the default of consumers without a name, too")
async def limits_ephemeral(b: Bench) -> None:
    stream = await b.stream(consumer_limits={"inactive_threshold": 2 * SECOND, "max_ack_pending": 5000})
    config = await _ephemeral(b, stream)
    assert (config["inactive_threshold"], config["max_ack_pending"]) == (2 * SECOND, 5000)
    config = await _ephemeral(b, stream, ack_policy="none", inactive_threshold=SECOND, max_ack_pending=-1)
    assert (config["inactive_threshold"], config["max_ack_pending"]) == (SECOND, -1)
    text = "consumer inactive threshold exceeds system limit of 2s"
    await stream.consumer_refused(inactive_threshold=3 * SECOND, code=400, err_code=10153, text=text)


@rows("limits.default-asked-for", "a stream's limit holds for who asks for NATS's default, and without acks")
async def limits_default_asked_for(b: Bench) -> None:
    stream = await b.stream(consumer_limits={"max_ack_pending": 5})
    text = "consumer max ack pending exceeds system limit of 5"
    await stream.consumer_refused(max_ack_pending=1000, code=400, err_code=10121, text=text)
    await stream.consumer_refused(ack_policy="none", max_ack_pending=6, code=400, err_code=10121, text=text)
    await stream.consumer_refused(
        ack_policy="none",
        deliver_subject=b.subject(),
        code=400,
        err_code=10082,
        text="consumer requires ack policy for max ack pending",
    )


@rows("limits.below-zero", "limits below zero bound nothing; consumers have no limit unless they say one")
async def limits_below_zero(b: Bench) -> None:
    stream = await b.stream(consumer_limits={"inactive_threshold": -1, "max_ack_pending": -1})
    assert stream.config["consumer_limits"]["max_ack_pending"] == -1
    config = await _ephemeral(b, stream)
    assert (config["inactive_threshold"], config["max_ack_pending"]) == (5 * SECOND, -1)
    config = await _ephemeral(b, stream, inactive_threshold=9 * SECOND, max_ack_pending=2000)
    assert (config["inactive_threshold"], config["max_ack_pending"]) == (9 * SECOND, 2000)


@rows("create.below-zero", "a threshold or an expiry below zero counts as not set")
async def create_below_zero(b: Bench) -> None:
    stream = await b.stream()
    config = (await stream.consumer(inactive_threshold=-1, max_expires=-1)).created["config"]
    assert "inactive_threshold" not in config
    assert "max_expires" not in config
    assert (await _ephemeral(b, stream, inactive_threshold=-1))["inactive_threshold"] == 5 * SECOND


@rows("workqueue.acks", "who is told what when a work queue's consumer would not acknowledge each message")
async def workqueue_acks(b: Bench) -> None:
    stream = await b.stream(retention="workqueue")
    pull = "consumer in pull mode requires explicit ack policy on workqueue stream"
    await stream.consumer_refused(ack_policy="none", code=400, err_code=10084, text=pull)
    text = "workqueue stream requires explicit ack"
    await stream.consumer_refused(ack_policy="all", code=400, err_code=10098, text=text)
    for policy in ("none", "all"):
        await stream.consumer_refused(
            ack_policy=policy, deliver_subject=b.subject(), code=400, err_code=10098, text=text
        )
