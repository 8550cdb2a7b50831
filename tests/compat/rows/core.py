"""The client protocol itself: what goes over one connection, and between connections."""

from __future__ import annotations

from tests.compat.bench import Bench
from tests.compat.table import Group

rows = Group("core")


@rows("ping", "a PING is answered with PONG")
async def ping(b: Bench) -> None:
    client = await b.raw()
    client.send("PING\r\n")
    await client.expect("PONG")


@rows("publish", "a message reaches a subscriber with subject, reply and payload")
async def publish(b: Bench) -> None:
    client, subject = await b.raw(), b.subject()
    client.send(f"SUB {subject} 7\r\nPUB {subject} answers.here 5\r\nhello\r\n")
    message = await client.message()
    assert (message.subject, message.sid, message.reply) == (subject, "7", "answers.here")
    assert (message.header, message.payload) == (b"", b"hello")
