"""Leader time goes no further ahead than most clocks (SF-28)."""

from __future__ import annotations

import pytest

from supercluster.broker.jetstream.core.agreed_clock import ALONE_MS, BOUND_NS, AgreedClock

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
    clock = AgreedClock(machine)
    for node in ("b", "c"):
        clock.heard(node, machine.right_ns())
    machine.wrong_ns = YEAR_NS
    machine.ms += 3000
    assert clock.now_ns() == machine.right_ns() + BOUND_NS, "before anybody says anything again"
    assert clock.heard("b", machine.right_ns())
    assert clock.now_ns() == machine.right_ns() + BOUND_NS
    machine.wrong_ns = 0
    assert not clock.heard("c", machine.right_ns())
    assert clock.now_ns() == machine.right_ns()


def test_one_wrong_clock_among_the_others_moves_nothing() -> None:
    machine = Machine()
    clock = AgreedClock(machine)
    for wrong_ns in (YEAR_NS, -YEAR_NS):
        clock.heard("b", machine.right_ns() + wrong_ns)
        assert not clock.heard("c", machine.right_ns())
        assert clock.now_ns() == machine.right_ns()


def test_a_wrong_clock_that_was_set_right_counts_no_longer_when_the_next_one_goes_wrong() -> None:
    """Where the largest of the last reports counted, it stood by the next wrong clock, and both were the majority."""
    machine = Machine()
    clock = AgreedClock(machine)
    clock.heard("b", machine.right_ns() + YEAR_NS)
    clock.heard("c", machine.right_ns())
    machine.ms += 1000
    clock.heard("b", machine.right_ns())
    machine.wrong_ns = YEAR_NS
    clock.heard("c", machine.right_ns())
    assert clock.now_ns() == machine.right_ns() + BOUND_NS


def test_of_two_clocks_the_lower_one_counts_and_neither_is_outvoted() -> None:
    machine = Machine()
    clock = AgreedClock(machine)
    machine.wrong_ns = YEAR_NS
    assert not clock.heard("b", machine.right_ns())
    assert clock.now_ns() == machine.right_ns() + BOUND_NS
    clock.forget("b")
    assert clock.now_ns() == machine.right_ns() + BOUND_NS, "what was known stands when the links are gone"


def test_alone_a_broker_has_its_own_clock_and_no_other() -> None:
    machine = Machine()
    clock = AgreedClock(machine)
    machine.wrong_ns = YEAR_NS
    assert clock.now_ns() == machine.right_ns() + YEAR_NS


def test_a_clock_counts_when_another_one_was_heard_or_waited_for() -> None:
    machine = Machine()
    alone, clock = AgreedClock(machine), AgreedClock(machine)
    assert not clock.counts
    clock.heard("b", machine.right_ns())
    assert clock.counts
    clock.forget("b")
    assert clock.counts, "what was known stands"
    machine.ms += ALONE_MS - 1
    assert not alone.counts
    machine.ms += 1
    assert alone.counts
