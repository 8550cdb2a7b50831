"""Interest retention: what is gone, what stays, and what a stream has that becomes one."""

from __future__ import annotations

from tests.compat.bench import Bench, StreamOfRow, eventually
from tests.compat.table import Group

rows = Group("interest")

SECOND = 1_000_000_000


async def _becomes_empty(stream: StreamOfRow) -> None:
    async def is_empty() -> bool:
        return bool((await stream.state())["messages"] == 0)

    await eventually(is_empty, "the stream is empty")


@rows("ack-all.term", "with ack all a termination goes for what was delivered before it, too")
async def term_goes_for_all(b: Bench) -> None:
    stream = await b.stream(retention="interest")
    consumer = await stream.consumer("worker", ack_policy="all")
    await stream.fill("a", "b", "c", "d", "e", "f")
    answers = await consumer.ask({"batch": 6, "expires": 5 * SECOND})
    got = [await answers.next() for _ in range(6)]
    await answers.acknowledge(got[3])
    await answers.acknowledge(got[4], b"-NAK")
    await answers.acknowledge(got[5], b"+TERM")
    await _becomes_empty(stream)
    info = await consumer.info()
    assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"]) == (6, 0)


@rows(
    "update.acknowledged",
    "when a stream's retention becomes interest, what was acknowledged before goes as well",
)
async def acknowledged_before(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer("worker")
    await stream.fill("a", "b", "c")
    answers = await consumer.ask({"batch": 3, "expires": 5 * SECOND})
    got = [await answers.next() for _ in range(3)]
    await answers.acknowledge(got[0])
    await answers.acknowledge(got[1])
    assert "error" not in (answer := await stream.update(retention="interest")), answer
    await answers.acknowledge(got[2])
    await _becomes_empty(stream)
    names = (await b.ok(f"CONSUMER.NAMES.{stream.name}"))["consumers"]
    assert names == ["worker"]


@rows(
    "update.not-delivered", "when a stream's retention becomes interest, what a consumer has to get yet stays"
)
async def not_delivered(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer("worker")
    await stream.fill("a", "b", "c")
    await consumer.fetch(1)
    assert "error" not in (answer := await stream.update(retention="interest")), answer
    assert [message.data for message in await consumer.fetch(3)] == [b"b", b"c"]
    await _becomes_empty(stream)


@rows("update.nobody", "when the retention of a stream without consumers becomes interest, it is empty")
async def nobody(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b", "c")
    assert "error" not in (answer := await stream.update(retention="interest")), answer
    await _becomes_empty(stream)
