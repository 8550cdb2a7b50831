"""Whether the copies of a move catch up, and when they will have done so.

It measures the lag of a copy and not the bytes sent to it: a copy that is fed as fast as the stream grows
never catches up. Samples cover a minute, in two halves. The least lag in each half is compared, because a
slow pace feeds in steps, and between two steps every copy falls behind.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

SAMPLE_MS = 1000
WINDOW_MS = 60_000
# Before so much was seen nothing is said of the time that is left.
WARM_UP_MS = 4000
# Copies that are sent so much of their limit, or more, are held back by it.
HELD_BACK_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Sample:
    """What there is at one moment."""

    at_ms: int
    left_bytes: int
    """What the copies lack, all together."""
    sent_bytes: int
    """What they were sent, ever."""
    grown_bytes: int
    """What was appended to the stream, ever."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per second."""

    sent: int
    """To all copies together."""
    grown: int
    """By the stream itself."""


class CatchUp:
    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()
        self._whom: frozenset[str] = frozenset()

    def look(self, whom: frozenset[str], now: Sample) -> None:
        """The copies that are fed, and what there is now. With other copies all begins anew."""
        if whom != self._whom:
            self._whom = whom
            self._samples.clear()
        if whom and (not self._samples or now.at_ms - self._samples[-1].at_ms >= SAMPLE_MS):
            self._samples.append(now)
            while now.at_ms - self._samples[0].at_ms > WINDOW_MS:
                self._samples.popleft()

    @property
    def _span_ms(self) -> int:
        return self._samples[-1].at_ms - self._samples[0].at_ms if self._samples else 0

    def _closing_bytes_per_s(self) -> float:
        """By how much what is lacking becomes less."""
        half = len(self._samples) // 2
        found = list(self._samples)
        before = min(found[:half], key=lambda sample: sample.left_bytes)
        after = min(found[half:], key=lambda sample: sample.left_bytes)
        return (before.left_bytes - after.left_bytes) * 1000 / (after.at_ms - before.at_ms)

    def left_ns(self, limit_bytes_per_s: int = 0) -> int | None:
        """The time that is left; None while it can't be told, or at this rate there is no end. Where a limit is what holds
        the copies back (0: there is none), it says more than the steps in which it feeds them."""
        if self._span_ms < WARM_UP_MS:
            return None
        closing, rates = self._closing_bytes_per_s(), self._rates()
        if limit_bytes_per_s and rates.sent >= limit_bytes_per_s * HELD_BACK_SHARE:
            closing = limit_bytes_per_s - rates.grown * len(self._whom)
        return int(self._samples[-1].left_bytes / closing * 1_000_000_000) if closing > 0 else None

    def falls_behind(self) -> Rates | None:
        """For as long as the window is, the copies came no nearer: how fast they are fed, and how fast the stream grows."""
        if self._span_ms < WINDOW_MS - SAMPLE_MS or self._closing_bytes_per_s() > 0:
            return None
        return self._rates()

    def _rates(self) -> Rates:
        first, last = self._samples[0], self._samples[-1]
        return Rates(
            (last.sent_bytes - first.sent_bytes) * 1000 // self._span_ms,
            (last.grown_bytes - first.grown_bytes) * 1000 // self._span_ms,
        )
