"""One worker per resource: woken by events and by time, never two rounds of one resource at once.

A failing resource waits longer and longer and holds up no other. A wake-up during a round causes another
round. Workers keep no other state between rounds, so killing the process loses nothing (OP-4).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from supercluster.reconcilers.ports import Clock, Key, KubeError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a round ended."""

    recheck_after_ms: int | None = None
    """Look again after this time; None is the usual interval."""
    gone: bool = False
    """The resource is no more: its worker ends."""
    failed: bool = False
    """Something could not be done and is tried again with back-off."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Times of the workers."""

    resync_ms: int = 5_000
    """How often a resource is looked at when nothing happens: drift on the brokers sends no event."""
    jitter: float = 0.2
    """Share of the interval by which rounds are spread, so that they don't come all at once."""
    backoff_first_ms: int = 200
    backoff_max_ms: int = 30_000
    wake_gap_ms: int = 50
    """Shortest pause after a failed round, however many events come."""
    concurrency_max: int = 16
    """Rounds at the same time."""


@dataclass(slots=True)
class _Worker:
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    failures: int = 0
    task: asyncio.Task[None] | None = None


class Workers:
    """All workers of the process."""

    def __init__(
        self,
        reconcile: Callable[[Key], Awaitable[Outcome]],
        clock: Clock,
        random: Callable[[], float],
        pace: Pace,
    ) -> None:
        self._reconcile = reconcile
        self._clock = clock
        self._random = random
        self._pace = pace
        self._slots = asyncio.Semaphore(pace.concurrency_max)
        self._workers: dict[Key, _Worker] = {}
        self._active = False

    def start(self) -> None:
        """Begin to work: what was woken before starts now."""
        self._active = True
        for key, worker in self._workers.items():
            self._spawn(key, worker)

    async def stop(self) -> None:
        """End all workers; a round that is under way is cut off, as a kill would."""
        self._active = False
        tasks = [worker.task for worker in self._workers.values() if worker.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._workers.clear()

    def wake(self, key: Key) -> None:
        """Something about the resource may have changed."""
        worker = self._workers.get(key)
        if worker is None:
            worker = self._workers[key] = _Worker()
        worker.woken.set()
        if self._active:
            self._spawn(key, worker)

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def failing(self) -> int:
        """Resources whose last round failed."""
        return sum(worker.failures > 0 for worker in self._workers.values())

    def _spawn(self, key: Key, worker: _Worker) -> None:
        if worker.task is None:
            worker.task = asyncio.create_task(self._run(key, worker), name=str(key))

    async def _run(self, key: Key, worker: _Worker) -> None:
        while True:
            worker.woken.clear()
            async with self._slots:
                outcome = await self._round(key)
            if outcome.gone:
                if worker.woken.is_set():
                    continue
                del self._workers[key]
                return
            worker.failures = worker.failures + 1 if outcome.failed else 0
            await self._pause(worker, outcome)

    async def _round(self, key: Key) -> Outcome:
        try:
            return await self._reconcile(key)
        except KubeError as error:
            # The server's own words, as of a status that it refuses, say more than where they arrived.
            log.warning("round failed", extra={"resource": str(key), "error": str(error)})
            return Outcome(failed=True)
        except Exception:
            log.exception("round failed", extra={"resource": str(key)})
            return Outcome(failed=True)

    async def _pause(self, worker: _Worker, outcome: Outcome) -> None:
        if worker.failures:
            await self._clock.sleep_ms(self._pace.wake_gap_ms)
        waking = asyncio.ensure_future(worker.woken.wait())
        sleeping = asyncio.ensure_future(self._clock.sleep_ms(self._delay_ms(worker, outcome)))
        try:
            await asyncio.wait((waking, sleeping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waking.cancel()
            sleeping.cancel()

    def _delay_ms(self, worker: _Worker, outcome: Outcome) -> int:
        pace = self._pace
        if worker.failures:
            delay = min(pace.backoff_first_ms * 2 ** min(worker.failures - 1, 20), pace.backoff_max_ms)
            if outcome.recheck_after_ms is not None:
                delay = min(delay, outcome.recheck_after_ms)  # A part of it failed; the rest has its time.
        elif outcome.recheck_after_ms is not None:
            delay = min(outcome.recheck_after_ms, pace.resync_ms)
        else:
            delay = pace.resync_ms
        return int(delay * (1 + pace.jitter * (2 * self._random() - 1)))
