"""The clock of a broker's core: this machine's, as far as the other brokers' clocks agree with it (SF-28).

Linked brokers say every second what their clocks show. The wall time of the core goes no further ahead than
the median of all these clocks, this one's included, and a bound. Without it, a leader whose clock is a year
ahead for seconds expires all messages, and leader time stands still for a year. Going back is believed at
once: leader time never falls.

Each report is kept as its distance from this machine's monotonic clock, which no step of the wall clock
changes. If all links are lost, the last median stands. A broker that never heard another one has only its own
clock, and where the map has other brokers it leads nothing for a while after its start (`counts`).
"""

from __future__ import annotations

from supercluster.broker.ports import Clock

BOUND_NS = 10 * 1_000_000_000
"""Clocks that NTP keeps differ by milliseconds, and a report may be late by a stall. At most so much too early something expires."""
ALONE_MS = 5000
"""A broker that hears no other clock for so long after its start goes by its own: so long clients wait for the map, too."""
VOTES_MIN = 3
"""Of two clocks that differ nobody knows which one is wrong."""


class AgreedClock:
    """Implements `ports.Clock`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.monotonic_ms, self.machine_ms = clock.monotonic_ms, clock.machine_ms
        self._ahead_ns: dict[str, int] = {}
        """Broker → how far its clock is ahead of this machine's monotonic one, by its last report."""
        self._most_ns: int | None = None
        """The median of them and the bound; None: no other clock was ever known."""
        self._alone_ms = clock.monotonic_ms() + ALONE_MS
        """Until then another clock is waited for."""

    def now_ns(self) -> int:
        """Unix time, for leader time and for what is compared with it."""
        own_ns = self._clock.now_ns()
        return own_ns if self._most_ns is None else min(own_ns, self._machine_ns() + self._most_ns)

    @property
    def counts(self) -> bool:
        """Was another clock heard, or waited for long enough?"""
        return self._most_ns is not None or self._clock.monotonic_ms() >= self._alone_ms

    def heard(self, node: str, clock_ns: int) -> bool:
        """A linked broker said what its clock shows. True: most clocks contradict this machine's, which is ahead."""
        self._ahead_ns[node] = clock_ns - self._machine_ns()
        own_ns = self._clock.now_ns() - self._machine_ns()
        clocks = sorted((own_ns, *self._ahead_ns.values()))
        # Of two the lower one: to expire late is made up for, to expire early is not.
        self._most_ns = clocks[(len(clocks) - 1) // 2] + BOUND_NS
        return len(clocks) >= VOTES_MIN and own_ns > self._most_ns

    def forget(self, node: str) -> None:
        """The broker is not linked any more: its clock may be set meanwhile."""
        self._ahead_ns.pop(node, None)

    def _machine_ns(self) -> int:
        return self._clock.machine_ms() * 1_000_000
