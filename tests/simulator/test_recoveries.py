"""Seeded runs in which a stream is recovered by force: what was announced may be lost, and nothing else."""

from __future__ import annotations

import pytest
from tests.simulator.chosen import CHOSEN
from tests.simulator.recover_scenario import RecoverScenario
from tests.support.tiers import ALL

# 12 and 24 found what a crash between two lines of the volume's journal could do: two groups with the same files.
SEEDS = sorted({*CHOSEN["stream"], *((*range(13), 24) if ALL else ())})


@pytest.mark.timeout(1200)
@pytest.mark.covers("RP-8", "SF-9")
def test_a_forced_recovery_loses_what_was_announced_and_no_more() -> None:
    forced = lost = 0
    for seed in SEEDS:
        scenario = RecoverScenario(seed)
        scenario.run()
        forced += scenario.accepted
        lost += bool(scenario.world.ledger.recoveries.lost)
    assert forced > len(SEEDS) // 2
    assert lost, "no run lost anything, so none shows that no more is lost"
