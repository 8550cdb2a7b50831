"""Seeded runs in which copies are of no use and exchanged, under faults: no promise breaks, and only what is of no use goes."""

from __future__ import annotations

import pytest
from tests.simulator.chosen import CHOSEN
from tests.simulator.exchange_scenario import ExchangeScenario
from tests.support.tiers import ALL

SEEDS = sorted({*CHOSEN["copies"], *(range(6) if ALL else ())})


@pytest.mark.timeout(1200)
@pytest.mark.covers("MR-2", "MR-7", "SF-8")
def test_copies_of_no_use_are_exchanged_and_no_others() -> None:
    exchanged = 0
    for seed in SEEDS:
        scenario = ExchangeScenario(seed)
        scenario.run()
        exchanged += scenario.exchanged
    assert exchanged, "no run had a copy that was exchanged"
