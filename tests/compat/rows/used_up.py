"""Messages that were delivered max_deliver times: an acknowledgement that comes after that still counts."""

from __future__ import annotations

from typing import Any

from nats.aio.msg import Msg
from tests.compat.bench import Answers, Bench, ConsumerOfRow, StreamOfRow, eventually, status_of
from tests.compat.table import Group

rows = Group("acks.used-up")

SECOND = 1_000_000_000
MS = 1_000_000


async def used_up(
    b: Bench, retention: str, **config: Any
) -> tuple[StreamOfRow, ConsumerOfRow, Answers, list[Msg]]:
    """Three messages that were each delivered once, which is as often as they may be, and are not delivered any more."""
    stream = await b.stream(retention=retention)
    consumer = await stream.consumer("worker", **{"max_deliver": 1, "ack_wait": 200 * MS, **config})
    await stream.fill("a", "b", "c")
    answers = await consumer.ask({"batch": 3, "expires": 5 * SECOND})
    got = [await answers.next() for _ in range(3)]
    if config.get("ack_policy") != "all":
        for message in got:
            await answers.acknowledge(message, b"-NAK")
    waiting = await consumer.ask({"batch": 1, "expires": 600 * MS})
    assert (await waiting.status())[0] == "408"
    return stream, consumer, answers, got


async def messages(stream: StreamOfRow) -> int:
    found: int = (await stream.state())["messages"]
    return found


def _counts(name: str, retention: str, ack: bytes, what: str) -> None:
    @rows(
        f"{name}.{retention}",
        f"in a stream with {retention} retention a message that was given up goes when {what}",
    )
    async def counts(b: Bench) -> None:
        stream, consumer, answers, got = await used_up(b, retention)
        await answers.acknowledge(got[1], ack)
        await eventually(lambda: _holds(stream, 2), "the message has gone")
        for message in (got[0], got[2]):
            await answers.acknowledge(message)
        await eventually(lambda: _holds(stream, 0), "all have gone")
        assert (await consumer.info())["num_ack_pending"] == 0


async def _holds(stream: StreamOfRow, count: int) -> bool:
    return await messages(stream) == count


for _retention in ("workqueue", "interest"):
    _counts("ack", _retention, b"+ACK", "it is acknowledged after all")
    _counts("term", _retention, b"+TERM", "it is terminated after all")


@rows("refused", "a message that was given up is not delivered again to who refuses it or still works on it")
async def refused(b: Bench) -> None:
    stream, consumer, answers, got = await used_up(b, "workqueue")
    await answers.acknowledge(got[0], b"-NAK")
    await answers.acknowledge(got[1], b"+WPI")
    waiting = await consumer.ask({"batch": 1, "expires": 500 * MS})
    assert (await waiting.status())[0] == "408"
    assert await messages(stream) == 3


@rows("kept", "what was given up and not acknowledged stays in a work queue for the next consumer")
async def kept(b: Bench) -> None:
    stream, consumer, answers, got = await used_up(b, "workqueue")
    await answers.acknowledge(got[1])
    await b.ok(f"CONSUMER.DELETE.{stream.name}.{consumer.name}")
    again = await (await stream.consumer("next")).fetch(3)
    assert [message.subject for message in again] == [got[0].subject, got[2].subject]
    await eventually(lambda: _holds(stream, 0), "all have gone")


@rows("room", "what was given up does not count as waiting for its acknowledgement")
async def room(b: Bench) -> None:
    stream, consumer, _, _ = await used_up(b, "workqueue", max_ack_pending=3)
    info = await consumer.info()
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (0, 0)
    await stream.fill("a", "b", "c")
    answers = await consumer.ask({"batch": 3, "expires": 5 * SECOND})
    assert [status_of(await answers.next()) for _ in range(3)] == ["", "", ""]
