"""The clock that leader time is made of: this machine's, as far as the other brokers' clocks agree (SF-28).

Every linked broker says what its clock shows. Leader time goes no further ahead than the median of all clocks and a bound,
so one clock that is a year ahead expires nothing. The others' clocks are kept as distances from this machine's monotonic
clock: a step of its own wall clock changes none of them. Where no other clock is known, that monotonic clock is the
witness: a step ahead is believed once it has lasted. Going back is always believed: leader time stands still then.
"""

from __future__ import annotations

from collections import deque

from supercluster.broker.ports import Clock

BOUND_NS = 10 * 1_000_000_000
"""Clocks that are kept by NTP differ by milliseconds. At most so much too early something expires."""
STEP_LASTS_MS = 10 * 60_000
"""A step ahead that nobody can confirm is believed after this. It also holds for a virtual machine that was suspended."""
REPORTS = 4
"""Of a broker's last reports the one that was least delayed counts."""


class Clocks:
    """Of one broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reports: dict[str, deque[int]] = {}
        """Broker → how far its clock is ahead of this machine's monotonic one, nanoseconds."""
        self._ahead_max_ns: int | None = None
        """The median of the others and the bound, as such a distance; None: no other clock is known."""
        self._steady_ns = clock.now_ns() - self._machine_ns()
        """How far ahead of it the own clock is believed to be."""
        self._stepped_ms: int | None = None

    def heard(self, node: str, clock_ns: int) -> None:
        """A broker said what its clock shows."""
        self._reports.setdefault(node, deque(maxlen=REPORTS)).append(clock_ns - self._machine_ns())
        self._recount()

    def forget(self, node: str) -> None:
        """A broker is linked no more."""
        if self._reports.pop(node, None) is not None:
            self._recount()

    def _recount(self) -> None:
        others = sorted(map(max, self._reports.values()))
        # With the own clock among them this is the median wherever the own one is beyond it; of two, the lower one.
        self._ahead_max_ns = others[len(others) // 2] + BOUND_NS if others else None

    def now_ns(self) -> int:
        """Unix time, for leader time and for what is compared with it."""
        own_ns, machine_ns = self._clock.now_ns(), self._machine_ns()
        ahead_ns = own_ns - machine_ns
        if self._ahead_max_ns is not None:
            self._stepped_ms = None
            self._steady_ns = min(ahead_ns, self._ahead_max_ns)
            return machine_ns + self._steady_ns
        if ahead_ns <= self._steady_ns + BOUND_NS or self._has_lasted():
            self._stepped_ms = None
            self._steady_ns = ahead_ns
        return machine_ns + self._steady_ns

    def _has_lasted(self) -> bool:
        now_ms = self._clock.machine_ms()
        if self._stepped_ms is None:
            self._stepped_ms = now_ms
        return now_ms - self._stepped_ms >= STEP_LASTS_MS

    @property
    def is_outvoted(self) -> bool:
        """Is this clock ahead of more than half of all that are known, its own included? Of two nobody knows which is wrong."""
        if self._ahead_max_ns is None or len(self._reports) < 2:
            return False
        return self._clock.now_ns() - self._machine_ns() > self._ahead_max_ns

    def _machine_ns(self) -> int:
        return self._clock.machine_ms() * 1_000_000
