"""Schedules Python's cyclic garbage collector, so that it delays no message.

A collection of the oldest generation visits every object: with a few streams open it stopped the loop for 40
to 100 ms, in the middle of a load, and every acknowledgement with it. Nearly all long-lived objects live as
long as the broker does, and reference counts free the rest. So surviving objects are excluded (`gc.freeze`),
the young generations are collected as usual, and the full collection waits for an idle second.
"""

from __future__ import annotations

import gc
import logging
import time
from typing import Protocol

log = logging.getLogger(__name__)

YOUNG_OBJECTS = 2_000
"""More containers than that, made and not freed again, are looked through: well under a millisecond."""
YOUNG_ROUNDS = 10
"""After so many of those rounds all that they left is looked through again: a few milliseconds."""
NEVER_ROUNDS = 1 << 30
"""The oldest generation is never collected by the interpreter itself."""

IDLE_TURNS = 100
"""A second with fewer turns of the loop than that has room for a full collection."""
WORTH_ROUNDS = 5
"""So many rounds of the middle generation (100,000 containers) are worth one."""
BUSY_MAX_MS = 600_000
"""A broker that is never idle is not let grow for longer than this."""
SLOW_MS = 500


class Tracer(Protocol):
    """The part of module `gc` that is used."""

    def collect(self) -> int: ...

    def freeze(self) -> None: ...

    def unfreeze(self) -> None: ...

    def get_count(self) -> tuple[int, int, int]: ...

    def set_threshold(self, threshold0: int, threshold1: int, threshold2: int, /) -> None: ...


class Collector:
    """Asked once a second what it wants to do."""

    def __init__(self, tracer: Tracer = gc) -> None:
        self._tracer = tracer
        self._turns_seen = 0
        self._collected_ms = 0

    def begin(self, now_ms: int) -> None:
        """The process starts: what was imported stays, so it is not even looked through."""
        self._tracer.set_threshold(YOUNG_OBJECTS, YOUNG_ROUNDS, NEVER_ROUNDS)
        self._tracer.freeze()
        self._collected_ms = now_ms

    def look(self, turns: int, now_ms: int) -> bool:
        """`turns`: how many the loop has made so far. True when everything was looked through."""
        busy = turns - self._turns_seen >= IDLE_TURNS
        self._turns_seen = turns
        if self._tracer.get_count()[2] < WORTH_ROUNDS:
            return False
        if busy and now_ms - self._collected_ms < BUSY_MAX_MS:
            return False
        started = time.perf_counter()
        # What was frozen may have become garbage since: connections that were closed, groups that were dropped.
        self._tracer.unfreeze()
        freed = self._tracer.collect()
        self._tracer.freeze()
        took_ms = 1000 * (time.perf_counter() - started)
        self._collected_ms = now_ms
        if took_ms > SLOW_MS:
            log.warning("a garbage collection took %d ms, and found %d objects", took_ms, freed)
        return True
