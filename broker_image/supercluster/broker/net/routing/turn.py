"""The turn of the loop: every readable socket is parsed, then the core works once, then all output is
written.

asyncio (and uvloop) run callbacks that were scheduled while sockets were polled only after all readable
sockets were served. So a turn is a batch. All writes go through `dirty`: one write per connection and turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from supercluster.broker.net.hooks import CoreHooks
from supercluster.broker.own_time import OwnTime

log = logging.getLogger(__name__)

IDLE_DEADLINE_MS = 1000
"""A core that names a far deadline is still asked this often: a clock that jumped can't make it sleep for ever."""


ROOM_BYTES = 16 << 20
"""What may be routed and delivered in a turn: 32,768 small messages, some 30 ms. The rest waits for the next one."""
DELIVERY_BYTES = 512
"""A message or a delivery counts as so much beside its bytes: it takes as long."""
VISIT_BYTES = 512
"""A place in the tree of subscriptions that a look-up visits: it takes as long."""
API_CALL_BYTES = 65536
"""A call of JetStream's API, which is parsed and sent to a leader."""
FLUSH_BYTES = 8192
"""The same of a connection that has output now: a call of the kernel."""
SHARE_BYTES = ROOM_BYTES // 8
"""For each that waits for room, one after the other."""
VISITS_MAX = 1024
"""Of those that wait, in one turn."""
FLUSHES_MAX = 4096
"""Connections that are written to in a turn; those of links do not count."""

PULSE_S = 0.1
"""The loop goes round at least so often, so that time counts while nothing comes (`own_time.py`)."""

FLUSH_ROUNDS = 3
"""A flush may make more output (an ended client's interest, say); what comes later than this waits a turn."""


class Flushable(Protocol):
    """A connection with collected output."""

    def flush(self) -> None:
        """Write all that was collected, in one go."""


class Waiting(Protocol):
    """Has work that a turn had no room for."""

    def go_on(self, turn: Turn) -> bool:
        """Work while `turn.room_bytes` is above 0; True: some is left."""


class Turn:
    """Runs the core and the writes of a loop turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: OwnTime) -> None:
        self._loop = loop
        self._clock = clock
        self._core: CoreHooks | None = None
        self._failed: Callable[[BaseException], None] = lambda error: None
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._pulse_timer: asyncio.TimerHandle | None = None
        self.dirty: list[Flushable] = []
        """Connections that have output; they put themselves here when their output was empty before."""
        self.urgent: list[Flushable] = []
        """The same of links, which wait for no client."""
        self.room_bytes = ROOM_BYTES
        """What may still be routed and delivered in this turn; below 0 it was a bit more."""
        self._waiting: deque[Waiting] = deque()
        self.count = 0

    def start(self, core: CoreHooks | None, failed: Callable[[BaseException], None]) -> None:
        """Begin to call the core; `failed` is told of what it raises (nothing is safe to go on with then)."""
        self._core = core
        self._failed = failed
        self._arm()
        self._pulse()

    def stop(self) -> None:
        """Call the core no more; what is collected is still written."""
        self._core = None
        for timer in (self._timer, self._pulse_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._pulse_timer = None

    def _pulse(self) -> None:
        self._clock.goes_round()
        self._pulse_timer = self._loop.call_later(PULSE_S, self._pulse)

    def fail(self, error: BaseException) -> None:
        """The core raised: its state can't be trusted any more, so it is not called again and the process ends."""
        log.critical("the core failed", exc_info=error)
        self.stop()
        self._failed(error)

    def wait(self, waiting: Waiting) -> None:
        """Go on with that in the next turns, until it says that nothing is left."""
        self._waiting.append(waiting)
        self.want()

    def want(self) -> None:
        """Ask for a turn after the sockets that are readable now were served."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        self._work()

    def _work(self) -> None:
        self.count += 1
        self._clock.goes_round()
        core = self._core
        if core is not None:
            try:
                core.turn()
            except Exception as error:
                self.fail(error)
            if core.has_work:
                self.want()
        self._flush()
        self._go_on()
        self._arm()

    def _go_on(self) -> None:
        """Begin the room of the next turn with those that wait for it: a share for each, one after the other."""
        left = ROOM_BYTES if not self.dirty else 0
        waiting = self._waiting
        for _ in range(VISITS_MAX):
            if left <= 0 or not waiting:
                break
            first = waiting.popleft()
            share = self.room_bytes = min(left, SHARE_BYTES)
            try:
                if first.go_on(self):
                    waiting.append(first)
            except Exception:  # Of one client or link: the others go on.
                log.exception("deliveries that waited for room are dropped")
            left -= share - self.room_bytes
        self.room_bytes = left
        if waiting or self.dirty:
            self.want()

    def _flush(self) -> None:
        written = 0
        for _ in range(FLUSH_ROUNDS):
            urgent, self.urgent = self.urgent, []
            for connection in urgent:
                connection.flush()
            dirty = self.dirty
            if not dirty and not self.urgent:
                return
            self.dirty = []
            room = max(0, FLUSHES_MAX - written)
            written += len(dirty)
            if len(dirty) > room:
                self.dirty = dirty[room:]
                del dirty[room:]
            for connection in dirty:
                connection.flush()
        if self.dirty or self.urgent:
            self.want()

    def _tick(self) -> None:
        self._timer = None
        core = self._core
        if core is None:
            return
        self._clock.goes_round()
        try:
            core.tick()
        except Exception as error:
            self.fail(error)
        self._work()  # A turn that is asked for stays so: a second one beside it would go on for as long as there is work.

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
