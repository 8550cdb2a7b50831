"""The process's clocks (`ports.Clock`)."""

from __future__ import annotations

import time


class SystemClock:
    """The machine's clocks."""

    def now_ns(self) -> int:
        """Unix time."""
        return time.time_ns()

    def monotonic_ms(self) -> int:
        """Milliseconds since some start."""
        return time.monotonic_ns() // 1_000_000
