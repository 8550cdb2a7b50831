"""Seeded runs of a whole cluster under faults: every promise holds in each (`make sim` runs more seeds)."""

from __future__ import annotations

import pytest
from tests.simulator.chosen import CHOSEN, MET_BY
from tests.simulator.run import run_seed


@pytest.mark.covers("SF-1", "SF-2", "SF-3", "SF-4", "SF-7", "SF-10", "SF-11", "SF-12", "SF-13")
@pytest.mark.covers("SF-14", "SF-15", "SF-17", "SF-18", "RP-1", "RP-2", "RP-6", "RP-8")
@pytest.mark.parametrize("seed", CHOSEN["cluster"])
def test_every_promise_holds_under_faults(seed: int) -> None:
    outcome = run_seed(seed)
    assert not outcome.failure, outcome.report
    assert {fault for fault, chosen in MET_BY.items() if chosen == seed} <= outcome.met
