"""Seeded runs of a super-cluster whose stream moves, under faults: every promise holds in each (`make sim` runs more seeds)."""

from __future__ import annotations

import pytest
from tests.simulator.chosen import CHOSEN
from tests.simulator.run import run_seed


@pytest.mark.covers("MV-4", "MV-5", "MV-6", "MV-7", "MV-9", "MV-10", "MV-12")
@pytest.mark.parametrize("seed", CHOSEN["moves"])
def test_every_promise_holds_while_a_stream_moves(seed: int) -> None:
    outcome = run_seed(seed, moves=True)
    assert not outcome.failure, outcome.report
