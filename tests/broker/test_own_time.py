"""How a process counts the time in which it could hear others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.own_time import PATIENCE_MS_MAX, REMEMBERED_MS, STEP_MS, OwnTime, patience_ms


class Machine:
    def __init__(self) -> None:
        self.ms = 5_000

    def __call__(self) -> int:
        return self.ms


def begun() -> tuple[Machine, OwnTime]:
    machine = Machine()
    return machine, OwnTime(machine)


@pytest.mark.covers("SF-29")
def test_time_in_which_a_process_stood_still_does_not_count() -> None:
    machine, own = begun()
    machine.ms += 15_000
    assert own.monotonic_ms() == 5_000 + STEP_MS, "before the loop has gone round"
    own.goes_round()
    assert own.monotonic_ms() == 5_000 + STEP_MS
    machine.ms += 100
    assert own.monotonic_ms() == 5_100 + STEP_MS
    assert own.machine_ms() == 20_100


@given(st.lists(st.tuples(st.integers(0, 20_000), st.booleans()), max_size=40))
def test_own_time_never_goes_back_nor_ahead_of_the_machine(steps: list[tuple[int, bool]]) -> None:
    machine, own = begun()
    before, rounds = own.monotonic_ms(), 1
    for passed_ms, goes_round in steps:
        machine.ms += passed_ms
        if goes_round:
            own.goes_round()
            rounds += 1
        assert before <= own.monotonic_ms() <= machine.ms
        before = own.monotonic_ms()
    assert before <= 5_000 + rounds * STEP_MS


def test_while_the_loop_goes_round_all_time_counts() -> None:
    machine, own = begun()
    for _ in range(1000):
        machine.ms += STEP_MS
        own.goes_round()
    assert own.monotonic_ms() == machine.ms
    assert own.stall_ms == 0


@pytest.mark.covers("SF-29")
def test_the_longest_stall_is_remembered_for_a_while() -> None:
    machine, own = begun()
    machine.ms += 900
    own.goes_round()
    machine.ms += 400
    own.goes_round()
    assert own.stall_ms == 900
    for _ in range(2 * REMEMBERED_MS // STEP_MS + 1):
        machine.ms += STEP_MS
        own.goes_round()
    assert own.stall_ms == 0


def test_patience_is_bounded() -> None:
    assert [patience_ms(stall) for stall in (0, 300, 60_000)] == [0, 600, PATIENCE_MS_MAX]
