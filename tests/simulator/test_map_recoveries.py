"""Seeded runs in which the map of streams is recovered by force: what was announced may be lost, and nothing else."""

from __future__ import annotations

import pytest
from tests.simulator.chosen import CHOSEN
from tests.simulator.map_scenario import MapScenario
from tests.support.tiers import ALL

SEEDS = sorted({*CHOSEN["map"], *(range(12) if ALL else ())})


@pytest.mark.timeout(1200)
@pytest.mark.covers("RP-8", "SF-5", "SF-9")
def test_a_forced_recovery_of_the_map_loses_what_was_announced_and_no_streams_message() -> None:
    forced = kept = 0
    lineages: set[int] = set()
    for seed in SEEDS:
        scenario = MapScenario(seed)
        scenario.run()
        forced += scenario.accepted
        cores = [node.core for node in scenario.world.nodes.values() if node.core is not None]
        kept += sum(len(core.orphans.to_json()) for core in cores)
        lineages |= {core.map.meta_id.count("~") for core in cores}
    assert forced > len(SEEDS) // 2
    assert kept, "no run had a copy that the map did not know, so none shows that it is kept"
    assert max(lineages) > 1, "no run recovered a map twice"
