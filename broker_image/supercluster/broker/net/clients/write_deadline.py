"""The time limit for a client to accept its output (nats-server's `write_deadline`).

Bytes in the transport's buffer are counted as they enter, so the buffer's size tells how many have left. A
client is late if it has not accepted by the deadline the bytes that waited when the period began, however
much came after them. A broker that was stopped at the deadline did not write either: its clients get the full
time again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

STALL_S = 0.5
"""A timer that is called so much too late was held up by the broker's own work, or by a machine that gave it no time."""


class Buffer(Protocol):
    """The transport."""

    def get_write_buffer_size(self) -> int: ...


class WriteDeadline:
    """Of one connection; without a limit it is never told anything."""

    def __init__(self, loop: asyncio.AbstractEventLoop, late: Callable[[], None]) -> None:
        self._loop = loop
        self._late = late
        self._entered = 0
        """Bytes that have come into the transport's buffer so far."""
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def wrote(self, buffer: Buffer, waiting_before: int, deadline_ms: int) -> None:
        """Something was written, behind so many bytes."""
        waiting = buffer.get_write_buffer_size()
        self._entered += max(0, waiting - waiting_before)
        if waiting and self._timer is None:
            self._begin(buffer, deadline_ms)

    def stop(self) -> None:
        """Nothing is written any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self, buffer: Buffer, deadline_ms: int) -> None:
        self._due_s = self._loop.time() + deadline_ms / 1000
        self._timer = self._loop.call_at(self._due_s, self._look, buffer, deadline_ms, self._entered)

    def _look(self, buffer: Buffer, deadline_ms: int, entered: int) -> None:
        self._timer = None
        waiting = buffer.get_write_buffer_size()
        if self._entered - waiting < entered and self._loop.time() - self._due_s < STALL_S:
            self._late()
        elif waiting:
            self._begin(buffer, deadline_ms)
