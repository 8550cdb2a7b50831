"""Publishers and consumers at once on a thread with a loop of its own, as applications beside the story."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from e2e.cutover import consumers
from e2e.cutover.connections import Connection, Stalls, longest_stalls
from e2e.cutover.consumers import Consumer
from e2e.cutover.kinds import MODES, PLAIN
from e2e.cutover.publishers import KINDS, SETTLE_SECONDS, SHARES, Publisher

from supercluster.spark.client import Credentials

OPEN_SECONDS = 60.0
ERRORS_SHOWN = 3
Found = TypeVar("Found")


class Load:
    """`start`, `flow`, `stop_publishing`, `stop`; `check` raises what went wrong meanwhile."""

    def __init__(self, urls: Callable[[str], Sequence[str]], rate: float, login: Credentials) -> None:
        """`urls`: where a client of that name connects to, the first one first."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="clients")
        self._login, self._urls = login, urls
        self.rate = rate
        """Messages a second that all publishers together try to send."""
        self.connections: list[Connection] = []
        self.publishers: dict[int, Publisher] = {
            mode: KINDS[mode](mode, self._connection(MODES[mode]), rate * share)
            for mode, share in SHARES.items()
        }
        self.consumers: list[Consumer] = consumers.all_of(self._connection)
        self._publishing: list[asyncio.Task[None]] = []
        self._consuming: list[asyncio.Task[None]] = []
        self._no_more, self._end = asyncio.Event(), asyncio.Event()
        self.started = self.ended = 0.0

    def _connection(self, name: str) -> Connection:
        found = Connection(name, self._urls(name), self._login)
        self.connections.append(found)
        return found

    def _call(self, what: Coroutine[Any, Any, Found], seconds: float) -> Found:
        """On the loop's thread.

        Raises:
            TimeoutError: it takes longer.
        """
        future = asyncio.run_coroutine_threadsafe(what, self._loop)
        try:
            return future.result(seconds)
        except TimeoutError:
            future.cancel()
            raise

    def start(self) -> None:
        """Connect all, open the consumers, then publish.

        Raises:
            Exception: what nats-py raises when it cannot.
        """
        self._thread.start()
        self._call(self._start(), OPEN_SECONDS)

    async def _start(self) -> None:
        await asyncio.gather(*(connection.open() for connection in self.connections))
        await asyncio.gather(*(consumer.open() for consumer in self.consumers))
        self._consuming = [asyncio.create_task(consumer.run(self._end)) for consumer in self.consumers]
        self.started = self.ended = time.monotonic()
        self._publishing = [asyncio.create_task(one.run(self._no_more)) for one in self.publishers.values()]

    def check(self) -> None:
        """Raises what ended a publisher or a consumer, and says which client gave up."""
        for task in (*self._publishing, *self._consuming):
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error
        for connection in self.connections:
            if connection.is_closed and not self._end.is_set():
                raise ConnectionError(f"the client '{connection.name}' is closed: {connection.errors[-3:]}")

    @property
    def progress(self) -> dict[int, int]:
        return {mode: found.progress for mode, found in self.publishers.items()}

    @property
    def sent(self) -> int:
        return sum(found.sent for found in self.publishers.values())

    @property
    def rate_reached(self) -> float:
        return self.sent / max(0.001, self.ended - self.started)

    def hosts(self) -> Mapping[str, str]:
        """Where each client is connected."""
        return {connection.name: connection.host for connection in self.connections}

    def stop_publishing(self) -> None:
        """No more messages; returns when the last ones are settled.

        Raises:
            Exception: they are not, or something went wrong before.
        """
        self.ended = time.monotonic()
        self._loop.call_soon_threadsafe(self._no_more.set)
        self._call(_all(self._publishing), 2 * SETTLE_SECONDS)

    def stop(self) -> None:
        """End the consumers and all connections, in any case."""
        if not self._thread.is_alive():
            return
        try:
            self._call(self._stop(), OPEN_SECONDS)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(OPEN_SECONDS)
            self._loop.close()

    async def _stop(self) -> None:
        self._no_more.set()
        self._end.set()
        tasks = [*self._publishing, *self._consuming]
        if tasks:
            _, open_still = await asyncio.wait(tasks, timeout=15)
            for task in open_still:
                task.cancel()
        await asyncio.gather(*(c.close() for c in self.connections), return_exceptions=True)
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def stalls(self, since: float, side_of: Callable[[str], str]) -> Stalls:
        """Of all publishers, from `since` until publishing ended. `side_of`: the super-cluster of a host."""
        found = [
            longest_stalls(found.answer_times, found.connection.outages, since, self.ended, side_of)
            for mode, found in self.publishers.items()
            if mode != PLAIN
        ]
        return Stalls(
            max(one.connected for one in found),
            max(one.redirected for one in found),
            max(one.reconnected for one in found),
        )

    def complaints(self) -> list[str]:
        """What publishers were answered instead of a confirmation, and the first errors of each connection."""
        found = [f"{one.name}: {text}" for one in self.publishers.values() for text in one.complaints]
        return found + [f"{c.name}: {text}" for c in self.connections for text in c.errors[:ERRORS_SHOWN]]


async def _all(tasks: Sequence[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks)
