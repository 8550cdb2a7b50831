"""The process's clocks (`ports.Clock`)."""

from __future__ import annotations

import time

from supercluster.broker.own_time import OwnTime


class SystemClock(OwnTime):
    """The machine's clocks, and of its monotonic one what counts."""

    def __init__(self) -> None:
        super().__init__(lambda: time.monotonic_ns() // 1_000_000)

    def now_ns(self) -> int:
        """Unix time."""
        return time.time_ns()
