"""Blocks of rows for a stream's sink over the bulk port (`docs/adr/spark-sink.md`).

The request's body is a run of frames. Each is the payload of a call of SINK.STAGE, as it would come over NATS, with its length before
it, as four bytes. The answer has a line for each call, in their order: what the API answers. Some calls are on their way at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from typing import Protocol

IN_FLIGHT_MAX = 4
"""Calls of one request without an answer; the body is read on when one has come."""
PIECE_BYTES = 256 << 10
PIECE_S = 10.0
"""Who sends less than a piece in this time is cut, and who takes no answer."""
IDLE_S = 60.0
"""So is who has no block to send."""
CALL_S = 30.0
"""Only ends a call that hangs: the API gives up after some seconds."""

_LENGTH = struct.Struct(">I")

Call = Callable[[bytes, Callable[[bytes], None]], None]
"""Makes one call; the other takes its answer, once."""


class WrongFrameError(Exception):
    """The body is no run of frames."""


class Body(Protocol):
    """Of a request."""

    async def readexactly(self, n: int) -> bytes: ...


class Lines(Protocol):
    """The answer."""

    async def write(self, data: bytes) -> None: ...

    async def write_eof(self) -> None: ...


class Stages:
    """One request."""

    def __init__(self, call: Call, payload_bytes_max: int) -> None:
        self._call = call
        self._payload_bytes_max = payload_bytes_max
        self._loop = asyncio.get_running_loop()
        self._answers: asyncio.Queue[asyncio.Future[bytes] | None] = asyncio.Queue(IN_FLIGHT_MAX - 1)

    async def serve(self, body: Body, lines: Lines) -> None:
        """Make the calls that the body has, until it ends.

        Raises:
            ExceptionGroup: WrongFrameError, TimeoutError, ConnectionError, or what a call raised.
        """
        async with asyncio.TaskGroup() as both:
            both.create_task(self._read(body))
            both.create_task(self._write(lines))

    async def _read(self, body: Body) -> None:
        while (payload := await self._payload(body)) is not None:
            answer: asyncio.Future[bytes] = self._loop.create_future()
            await self._answers.put(answer)
            self._call(payload, lambda text, answer=answer: answer.done() or answer.set_result(text))  # type: ignore[misc]
        await self._answers.put(None)

    async def _payload(self, body: Body) -> bytes | None:
        size = await self._size(body)
        if size is None:
            return None
        if size > self._payload_bytes_max:
            raise WrongFrameError(
                f"a block of {size} bytes, and at most {self._payload_bytes_max} are allowed"
            )
        pieces = []
        for at in range(0, size, PIECE_BYTES):
            try:
                async with asyncio.timeout(PIECE_S):
                    pieces.append(await _exactly(body, min(PIECE_BYTES, size - at)))
            except asyncio.IncompleteReadError:
                raise WrongFrameError("the body ends inside a block") from None
        return b"".join(pieces)

    async def _size(self, body: Body) -> int | None:
        try:
            async with asyncio.timeout(IDLE_S):
                (size,) = _LENGTH.unpack(await _exactly(body, _LENGTH.size))
        except asyncio.IncompleteReadError as cut:
            if cut.partial:
                raise WrongFrameError("the body ends inside a block") from None
            return None
        return int(size)

    async def _write(self, lines: Lines) -> None:
        while (answer := await self._answers.get()) is not None:
            async with asyncio.timeout(CALL_S):
                text = await answer
            async with asyncio.timeout(PIECE_S):
                await lines.write(text + b"\n")
        with contextlib.suppress(ConnectionError):  # Who has all answers may be gone.
            async with asyncio.timeout(PIECE_S):
                await lines.write_eof()


async def _exactly(body: Body, size: int) -> bytes:
    try:
        return await body.readexactly(size)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # aiohttp ends a body so when its port is closed; a task group would take it for an end like any other.
        raise ConnectionResetError("the port is closed") from None
