"""Pull consumers: from configuration to acknowledgement."""

from __future__ import annotations

from tests.compat.bench import Bench
from tests.compat.table import Group

rows = Group("consumers")


@rows("fetch", "messages are delivered in order and acknowledged")
async def fetch(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b", "c")
    consumer = await stream.consumer()
    assert [message.data for message in await consumer.fetch(3)] == [b"a", b"b", b"c"]
    info = await consumer.info()
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (0, 3)


@rows("no-wait.empty", "a pull request that does not wait is told 404 when there is nothing")
async def no_wait(b: Bench) -> None:
    consumer = await (await b.stream()).consumer()
    answers = await consumer.ask({"batch": 1, "no_wait": True})
    assert await answers.status() == ("404", "No Messages")
