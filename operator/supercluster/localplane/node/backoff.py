"""How long a container waits before its next start: not at all after the first end, then 10 s, 20 s … 5 min."""

from __future__ import annotations

FIRST_S = 10.0
MAX_S = 300.0
FORGIVEN_AFTER_S = 600.0
"""A run of this length wipes the slate clean."""


class Backoff:
    def __init__(self) -> None:
        self._ends = 0

    def after_end(self, ran_s: float) -> float:
        """The wait after a run of `ran_s` seconds."""
        if ran_s >= FORGIVEN_AFTER_S:
            self._ends = 0
        self._ends += 1
        return 0.0 if self._ends == 1 else min(FIRST_S * 2 ** min(self._ends - 2, 10), MAX_S)
