"""The consumers of a cutover, by nats-py's calls for applications: pull, push, ordered, ephemeral, and a watch of the bucket.

Each notes what it saw, and which of its acknowledgements were confirmed (SF-2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import nats.errors
import nats.js.errors
from e2e.cutover.connections import Connection
from e2e.cutover.kinds import BUCKET, KV
from e2e.cutover.ledger import Deliveries
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig

BATCH = 200
FETCH_SECONDS = 2.0
ACK_SECONDS = 5.0
ACK_WAIT_SECONDS = 10.0
"""Longer than an acknowledgement takes whatever happens, so that a delivery that comes again is one that was not confirmed."""
ACKS_OPEN_MAX = 400
HEARTBEAT_SECONDS = 1.0
PAUSE_SECONDS = 0.1
ERRORS = (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError)


class Consumer:
    """One consumer at work until it is told to stop."""

    def __init__(self, name: str, stream: str, connection: Connection, *, is_ordered: bool = False) -> None:
        self.connection = connection
        self.found = Deliveries(name, stream, is_ordered)
        self._acks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(ACKS_OPEN_MAX)

    async def open(self) -> None:
        """Subscribe."""

    async def run(self, stopping: asyncio.Event) -> None:
        await stopping.wait()
        await self._settle()

    def _config(self, **more: Any) -> ConsumerConfig:
        return ConsumerConfig(
            ack_policy=AckPolicy.EXPLICIT, ack_wait=ACK_WAIT_SECONDS, max_ack_pending=5 * BATCH, **more
        )

    async def take(self, message: Msg) -> None:
        """Note a delivery when it comes, and acknowledge it beside what comes next. Were it to wait for acknowledgements here, its
        second delivery could wait behind it for so long that the first one was confirmed meanwhile."""
        sequence = message.metadata.sequence.stream
        self.found.note(sequence, message.data)
        task = asyncio.create_task(self._acknowledge(message, sequence))
        self._acks.add(task)
        task.add_done_callback(self._acks.discard)

    async def _acknowledge(self, message: Msg, sequence: int) -> None:
        async with self._room:
            try:
                await message.ack_sync(timeout=ACK_SECONDS)
                self.found.confirmed.add(sequence)
            except ERRORS:
                pass  # It comes again.

    async def _settle(self) -> None:
        if self._acks:
            await asyncio.wait(self._acks)


class Puller(Consumer):
    """A durable pull consumer."""

    async def open(self) -> None:
        name = self.found.name
        self._subscription = await self.connection.js().pull_subscribe(
            "", durable=name, stream=self.found.stream, config=self._config()
        )

    async def run(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            try:
                messages = await self._subscription.fetch(BATCH, timeout=FETCH_SECONDS)
            except TimeoutError:
                continue
            except ERRORS:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            for message in messages:
                await self.take(message)
        await self._settle()


class Pusher(Consumer):
    """A push consumer that acknowledges: durable, or ephemeral."""

    def __init__(
        self, name: str, stream: str, subject: str, connection: Connection, *, durable: bool
    ) -> None:
        super().__init__(name, stream, connection)
        self._subject, self._is_durable = subject, durable

    async def open(self) -> None:
        config = self._config(inactive_threshold=None if self._is_durable else 300)
        await self.connection.js().subscribe(
            self._subject,
            stream=self.found.stream,
            durable=self.found.name if self._is_durable else None,
            cb=self.take,
            manual_ack=True,
            config=config,
        )


class Ordered(Consumer):
    """An ordered consumer: nats-py makes it anew where deliveries are missing."""

    def __init__(self, name: str, stream: str, subject: str, connection: Connection) -> None:
        super().__init__(name, stream, connection, is_ordered=True)
        self._subject = subject

    async def open(self) -> None:
        note: Callable[[Msg], Awaitable[None]] = self.take
        await self.connection.js().subscribe(
            self._subject,
            stream=self.found.stream,
            cb=note,
            ordered_consumer=True,
            idle_heartbeat=HEARTBEAT_SECONDS,
        )

    async def take(self, message: Msg) -> None:
        self.found.note(message.metadata.sequence.stream, message.data)


class Watcher(Consumer):
    """A watch of all keys of the bucket."""

    def __init__(self, name: str, connection: Connection) -> None:
        super().__init__(name, KV, connection, is_ordered=True)

    async def open(self) -> None:
        bucket = await self.connection.js().key_value(BUCKET)
        self._watcher: Any = await bucket.watch(">", include_history=True)

    async def run(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            try:
                entry = await self._watcher.updates(timeout=FETCH_SECONDS)
            except TimeoutError:
                continue
            if entry is not None and entry.revision is not None:
                self.found.note(entry.revision, entry.value or b"")


def all_of(connections: Callable[[str], Connection]) -> list[Consumer]:
    """The consumers of a row, each with a connection of its own."""
    return [
        Puller("orders-pull", "ORDERS", connections("orders-pull")),
        Puller("jobs-pull", "JOBS", connections("jobs-pull")),
        Pusher("payments-push", "PAYMENTS", "payments.>", connections("payments-push"), durable=True),
        Pusher("audit-ephemeral", "AUDIT", "audit.>", connections("audit-ephemeral"), durable=False),
        Ordered("events-ordered", "EVENTS", "events.>", connections("events-ordered")),
        Watcher("settings-watch", connections("settings-watch")),
    ]


__all__ = ["Consumer", "Deliveries", "all_of"]
