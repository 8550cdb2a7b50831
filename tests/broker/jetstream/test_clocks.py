"""Leader time goes no further ahead than most clocks (SF-28)."""

from __future__ import annotations

import pytest

from supercluster.broker.jetstream.clocks import BOUND_NS, STEP_LASTS_MS, Clocks

pytestmark = pytest.mark.covers("SF-28")
YEAR_NS = 365 * 86_400 * 10**9


class Machine:
    """A monotonic clock, and a wall clock that may be wrong."""

    def __init__(self) -> None:
        self.ms = 5000
        self.wrong_ns = 0

    def right_ns(self) -> int:
        return 1_700_000_000 * 10**9 + self.ms * 1_000_000

    def now_ns(self) -> int:
        return self.right_ns() + self.wrong_ns

    def monotonic_ms(self) -> int:
        return self.ms

    def machine_ms(self) -> int:
        return self.ms


def test_a_clock_a_year_ahead_counts_no_more_than_the_bound_and_is_outvoted() -> None:
    machine = Machine()
    clocks = Clocks(machine)
    for node in ("b", "c"):
        clocks.heard(node, machine.now_ns())
    machine.wrong_ns = YEAR_NS
    machine.ms += 3000
    assert clocks.now_ns() == machine.right_ns() + BOUND_NS
    assert clocks.is_outvoted
    machine.wrong_ns = 0
    assert clocks.now_ns() == machine.right_ns()
    assert not clocks.is_outvoted


def test_one_wrong_clock_of_others_moves_nothing_and_two_that_differ_outvote_nobody() -> None:
    machine = Machine()
    clocks = Clocks(machine)
    clocks.heard("b", machine.now_ns() - YEAR_NS)
    assert clocks.now_ns() == machine.right_ns() - YEAR_NS + BOUND_NS, "of two the lower one"
    assert not clocks.is_outvoted
    clocks.heard("c", machine.now_ns())
    assert clocks.now_ns() == machine.right_ns()
    clocks.heard("b", machine.now_ns() + YEAR_NS)
    assert clocks.now_ns() == machine.right_ns()
    clocks.forget("b")
    clocks.forget("c")
    assert clocks.now_ns() == machine.right_ns()


def test_alone_a_step_ahead_is_believed_once_it_has_lasted_and_one_back_at_once() -> None:
    machine = Machine()
    clocks = Clocks(machine)
    machine.wrong_ns = YEAR_NS
    assert clocks.now_ns() == machine.right_ns()
    machine.ms += 6000
    assert clocks.now_ns() == machine.right_ns()
    machine.wrong_ns = 0
    assert clocks.now_ns() == machine.right_ns()
    machine.wrong_ns = YEAR_NS
    clocks.now_ns()
    machine.ms += STEP_LASTS_MS
    assert clocks.now_ns() == machine.right_ns() + YEAR_NS
    machine.wrong_ns = -YEAR_NS
    assert clocks.now_ns() == machine.right_ns() - YEAR_NS


def test_the_least_delayed_report_counts() -> None:
    machine = Machine()
    clocks = Clocks(machine)
    said_ns = machine.now_ns()
    clocks.heard("b", said_ns)
    machine.ms += 60_000
    clocks.heard("b", said_ns)
    assert clocks.now_ns() == machine.right_ns()
