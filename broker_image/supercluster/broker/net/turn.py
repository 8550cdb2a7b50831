"""The turn of the loop: everything that was readable is parsed, then the core works once, then everything is written.

asyncio (and uvloop) run callbacks that were asked for while sockets were polled only after all readable sockets
were served, which is what makes a turn a batch. All writes go through `dirty`: one write per connection and turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from supercluster.broker.net.hooks import CoreHooks
from supercluster.broker.ports import Clock

log = logging.getLogger(__name__)

IDLE_DEADLINE_MS = 1000
"""A core that names a far deadline is still asked this often: a clock that jumped can't make it sleep for ever."""


FLUSH_ROUNDS = 3
"""A flush may make more output (an ended client's interest, say); what comes later than this waits a turn."""


class Flushable(Protocol):
    """A connection with collected output."""

    def flush(self) -> None:
        """Write all that was collected, in one go."""
        ...


class Turn:
    """Runs the core and the writes of a loop turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._core: CoreHooks | None = None
        self._failed: Callable[[BaseException], None] = lambda error: None
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self.dirty: list[Flushable] = []
        """Connections that have output; they put themselves here when their output was empty before."""
        self.count = 0

    def start(self, core: CoreHooks | None, failed: Callable[[BaseException], None]) -> None:
        """Begin to call the core; `failed` is told of what it raises (nothing is safe to go on with then)."""
        self._core = core
        self._failed = failed
        self._arm()

    def stop(self) -> None:
        """Call the core no more; what is collected is still written."""
        self._core = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def fail(self, error: BaseException) -> None:
        """The core raised: its state can't be trusted any more, so it is not called again and the process ends."""
        log.critical("the core failed", exc_info=error)
        self.stop()
        self._failed(error)

    def want(self) -> None:
        """Ask for a turn after the sockets that are readable now were served."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        self.count += 1
        core = self._core
        if core is not None:
            try:
                core.turn()
            except Exception as error:
                self.fail(error)
            if core.has_work:
                self.want()
        self._flush()
        self._arm()

    def _flush(self) -> None:
        for _ in range(FLUSH_ROUNDS):
            if not self.dirty:
                return
            dirty = self.dirty
            self.dirty = []
            for connection in dirty:
                connection.flush()
        if self.dirty:
            self.want()

    def _tick(self) -> None:
        self._timer = None
        core = self._core
        if core is None:
            return
        try:
            core.tick()
        except Exception as error:
            self.fail(error)
        self._run()

    def _arm(self) -> None:
        """Keep one timer, set anew only when an earlier one is wanted: most turns leave it alone."""
        core = self._core
        if core is None:
            return
        now = self._clock.monotonic_ms()
        at = min(core.next_deadline_ms(), now + IDLE_DEADLINE_MS)
        if self._timer is not None:
            if self._timer_at_ms <= at:
                return
            self._timer.cancel()
        self._timer_at_ms = at
        self._timer = self._loop.call_later(max(1, at - now) / 1000, self._tick)
