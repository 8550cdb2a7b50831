"""The table says what was measured, and a target that is missed is not called reached."""

from __future__ import annotations

import pytest
from benchmarks.load import MODES, PRELOADED
from benchmarks.moves import Outcome, rows_of
from benchmarks.table import Row, Target, exit_code, markdown, show, spread


def row(
    target: Target | None, ours: list[float], theirs: list[float] | None = None, *, by_worst: bool = False
) -> Row:
    return Row("r", "u", target, ours, theirs or [], by_worst=by_worst)


def test_a_ratio_is_of_medians_and_held_against_its_bound() -> None:
    measured = row(Target(0.3, at_least=True, of_ratio=True), [10, 31, 90], [100, 100, 5])
    assert measured.ratio == pytest.approx(0.31)
    assert measured.is_reached is True
    measured.add("supercluster", 11)
    measured.add("supercluster", 12)
    assert measured.is_reached is False


def test_a_promise_is_judged_by_its_worst_run_and_a_speed_by_its_median() -> None:
    bound = Target(0, at_least=False)
    assert row(bound, [0, 0, 1]).is_reached is True
    assert row(bound, [0, 0, 1], by_worst=True).is_reached is False


def test_on_a_noisy_machine_it_is_enough_to_be_below_the_other_server_where_the_target_says_so() -> None:
    either = Target(20, at_least=False, or_below_theirs=True)
    assert row(either, [10, 15, 19], [5, 5, 5]).is_reached is True
    assert row(either, [24, 25, 90], [30, 31, 32]).is_reached is True
    assert row(either, [24, 31, 90], [30, 31, 32]).is_reached is False
    assert row(either, [25], []).is_reached is False
    assert row(Target(20, at_least=False), [25], [30]).is_reached is False
    assert str(either) == "≤ 20, or below nats-server"


def test_a_step_down_that_stalls_less_than_nats_servers_fails_no_benchmark() -> None:
    outcomes = {
        "supercluster": [Outcome(lost=dict.fromkeys((*range(len(MODES)), PRELOADED), 0), event_gap_ms=25.0)],
        "nats-server": [Outcome(lost=dict.fromkeys((*range(len(MODES)), PRELOADED), 0), event_gap_ms=31.0)],
    }
    assert {found.is_reached for found in rows_of("step-down", outcomes)} == {True, None}


def test_without_figures_nothing_is_reached() -> None:
    assert row(Target(1, at_least=False), []).is_reached is None
    assert row(Target(1, at_least=True, of_ratio=True), [5]).is_reached is None
    assert row(None, [5]).is_reached is None


def test_figures_are_shown_with_three_digits_and_their_spread() -> None:
    assert [show(value) for value in (123456.7, 12.345, 0.012345, 0)] == ["123,457", "12.3", "0.0123", "0"]
    assert spread([3, 1, 2]) == "2 (1 to 3)"
    assert spread([]) == "–"


def test_the_report_names_machine_runs_targets_and_misses() -> None:
    text = markdown([row(Target(0.3, at_least=True, of_ratio=True), [1], [100])], ["2 cores"], 1)
    assert "- 2 cores" in text
    assert "median of 1 run;" in text
    assert "| r | u | 1 | 100 | 0.01 | ≥ 0.3 of nats-server | **no** |" in text


def test_what_could_not_be_run_is_said_and_is_no_success() -> None:
    reached, missed = row(Target(1, at_least=True), [2]), row(Target(3, at_least=True), [2])
    text = markdown([reached], ["2 cores"], 1, ["idle: OSError: no room", "pull: BenchError: late"])
    assert text.endswith("|\n\nCould not be run:\n\n- idle: OSError: no room\n- pull: BenchError: late\n")
    assert exit_code([reached], []) == 0
    assert exit_code([reached, missed], []) == 1
    assert exit_code([reached, missed], ["idle"]) == 2
