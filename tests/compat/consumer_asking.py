"""What rows about calls of consumers ask with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from nats.aio.msg import Msg
from tests.compat.bench import Bench, ConsumerOfRow, StreamOfRow

SECOND = 1_000_000_000
ZERO_TIME = "0001-01-01T00:00:00Z"
RESPONSE = "io.nats.jetstream.api.v1."


def soon(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


async def filled(b: Bench, *suffixes: str) -> StreamOfRow:
    stream = await b.stream()
    await stream.fill(*suffixes)
    return stream


def call(name: str, consumer: ConsumerOfRow) -> str:
    return f"CONSUMER.{name}.{consumer.stream.name}.{consumer.name}"


async def pull(consumer: ConsumerOfRow, **request: Any) -> Msg:
    """The first thing that a pull request is answered."""
    return await (await consumer.ask({"batch": 1, "expires": SECOND, **request})).next()


def said(message: Msg) -> tuple[str, str]:
    headers = message.headers or {}
    return headers.get("Status", ""), headers.get("Description", "")
