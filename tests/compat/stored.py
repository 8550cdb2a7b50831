"""What a stream has stored, read back as a client reads it."""

from __future__ import annotations

from typing import Any

from tests.compat.bench import StreamOfRow, eventually


async def messages_of(stream: StreamOfRow) -> list[tuple[int, str, bytes]]:
    """(sequence, subject, payload) of all that a stream has."""
    state = await stream.state()
    found: list[tuple[int, str, bytes]] = []
    for seq in range(max(state["first_seq"], 1), state["last_seq"] + 1):
        answer = await stream.bench.api(f"STREAM.MSG.GET.{stream.name}", {"seq": seq})
        if "message" in answer:
            message = await stream.bench.js.get_msg(stream.name, seq)
            found.append((seq, message.subject or "", message.data or b""))
    return found


async def until(stream: StreamOfRow, messages: int, last_seq: int = 0) -> dict[str, Any]:
    """Its state, once it has that many messages (and that last sequence)."""

    async def there() -> dict[str, Any] | None:
        state = await stream.state()
        is_there = state["messages"] == messages and last_seq in (0, state["last_seq"])
        return state if is_there else None

    found: dict[str, Any] = await eventually(there, f"{messages} messages in {stream.name}", 10)
    return found


async def headers_of(stream: StreamOfRow, seq: int) -> dict[str, str]:
    return dict((await stream.bench.js.get_msg(stream.name, seq)).headers or {})
