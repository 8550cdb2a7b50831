"""`make sim-mutants` ends well only if each mutant is caught by the run that is recorded for it."""

from __future__ import annotations

import sys

import pytest
from tests.simulator.chosen import CAUGHT_BY, CAUGHT_BY_TEST
from tests.simulator.mutants import DOES_NOT_END, MUTANTS, Caught, conclude, run_bounded

BY_SEED = next(found for found in MUTANTS if found.id in CAUGHT_BY)
BY_TEST = next(found for found in MUTANTS if found.id in CAUGHT_BY_TEST)
AS_RECORDED = [
    Caught(BY_SEED, CAUGHT_BY[BY_SEED.id], "a promise did not hold", 1.0),
    Caught(BY_TEST, None, "", 0.0, CAUGHT_BY_TEST[BY_TEST.id]),
]


def test_mutants_that_their_records_catch_are_no_error() -> None:
    assert conclude(AS_RECORDED, is_by_record=True) == 0


@pytest.mark.parametrize(
    "other",
    [
        Caught(BY_SEED, CAUGHT_BY[BY_SEED.id] + 1, "a promise did not hold", 1.0),
        Caught(BY_TEST, 7, "a promise did not hold", 1.0),
    ],
    ids=["another seed", "a seed for a test"],
)
def test_a_record_that_no_longer_catches_its_mutant_is_an_error(
    other: Caught, capsys: pytest.CaptureFixture[str]
) -> None:
    assert conclude([*AS_RECORDED, other], is_by_record=True) == 1
    assert f"records: {other.mutant.id} (now: seed {other.seed})" in capsys.readouterr().out
    assert conclude([*AS_RECORDED, other], is_by_record=False) == 0, "where nobody asked for the record"


def test_a_mutant_that_nothing_catches_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert conclude([Caught(BY_SEED, None, "400 seeds saw nothing", 400.0)], is_by_record=True) == 1
    out = capsys.readouterr().out
    assert f"survived: {BY_SEED.id}" in out
    assert "records" not in out


def test_a_run_that_waits_for_a_processor_is_no_run_that_does_not_end() -> None:
    """Beside other work a run of eight seconds took five minutes, and its mutant passed for one that was caught."""
    waits, works = "import time; time.sleep(1.5)", "while True: pass"
    ends = [run_bounded([sys.executable, "-c", code], {}, 1).returncode for code in (waits, works)]
    assert ends == [0, DOES_NOT_END]
