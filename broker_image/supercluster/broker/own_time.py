"""The process's own time: the time in which it could receive messages. All time-outs are measured by it
(SF-29).

A process may be stopped (SIGSTOP, a paused machine, no processor time for seconds). Messages of other brokers
meanwhile wait in its sockets, so that time must not count against them. Between two rounds of the loop, each
of which reads all sockets, at most `STEP_MS` count. A process with little processor time therefore measures
time by its own rounds, and waits longer.

No rule whose safety depends on time may use it: it never runs ahead of the machine's clock, but may stay
behind for good.
"""

from __future__ import annotations

from collections.abc import Callable

STEP_MS = 200
"""A quarter of the shortest election time-out: nobody is given up before the loop has gone round a few times. The loop goes round
at least twice within it (`PULSE_S` in `net/routing/turn.py`), so while nothing stands still all time counts."""

REMEMBERED_MS = 10_000
"""For so long, and at most twice that, the longest stall is remembered."""

PATIENCE_MS_MAX = 4000
"""A broker whose machine is gone, and which stood still before, is noticed so much later than others."""


def patience_ms(stall_ms: int) -> int:
    """By how much longer a broker may be silent that says that it stood still for so long: it may do so again, and has to
    catch up then."""
    return min(2 * stall_ms, PATIENCE_MS_MAX)


class OwnTime:
    """See the module. `machine_ms` is the machine's monotonic clock."""

    def __init__(self, machine_ms: Callable[[], int]) -> None:
        self.machine_ms = machine_ms
        self._round_ms = machine_ms()
        """When the loop last went round, by the machine's clock."""
        self._counted_ms = self._round_ms
        self._stall_ms = self._stall_before_ms = 0
        self._remembered_from_ms = self._round_ms

    def now_ns(self) -> int:
        """Unix time of this machine; may jump."""
        raise NotImplementedError

    def monotonic_ms(self) -> int:
        """What counts until now."""
        return self._counted_ms + min(self.machine_ms() - self._round_ms, STEP_MS)

    def goes_round(self) -> None:
        """The loop begins a round: what was readable before it was read, or is read before any time-out is looked at."""
        now_ms = self.machine_ms()
        gap_ms = now_ms - self._round_ms
        self._counted_ms += min(gap_ms, STEP_MS)
        self._round_ms = now_ms
        if now_ms - self._remembered_from_ms >= REMEMBERED_MS:
            self._stall_before_ms, self._stall_ms = self._stall_ms, 0
            self._remembered_from_ms = now_ms
        if gap_ms > STEP_MS:
            self._stall_ms = max(self._stall_ms, gap_ms)

    @property
    def stall_ms(self) -> int:
        """The longest that this process stood still lately; 0: it did not."""
        return max(self._stall_ms, self._stall_before_ms)
