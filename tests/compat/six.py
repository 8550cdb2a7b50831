"""A stream of six messages, and configurations that name its subjects."""

from __future__ import annotations

from typing import Any

from tests.compat.bench import Bench, StreamOfRow


async def six(b: Bench, **config: Any) -> StreamOfRow:
    """A stream of six messages, to a, b, c, a, b, c; the payload is the number of the message from 0 on."""
    stream = await b.stream(**config)
    for number in range(6):
        await stream.publish("abc"[number % 3], str(number).encode())
    return stream


def of(stream: StreamOfRow, value: Any) -> Any:
    """The value with "$" replaced by the stream's name and a dot."""
    if isinstance(value, str):
        return value.replace("$", f"{stream.name}.")
    if isinstance(value, list):
        return [of(stream, item) for item in value]
    if isinstance(value, dict):
        return {name: of(stream, item) for name, item in value.items()}
    return value
