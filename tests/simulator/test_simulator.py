"""200 seeded runs of a whole cluster under faults, and 50 of a super-cluster whose stream moves: every promise holds in each (`make sim` runs more)."""

from __future__ import annotations

import os

import pytest
from tests.simulator.mutants import MUTANTS
from tests.simulator.mutation import Mutant, MutantError, check, mutant
from tests.simulator.run import run_many, run_seed
from tests.simulator.super_scenario import SuperScenario

SEEDS = int(os.environ.get("SIMULATOR_SEEDS", "200"))
"""Fewer where the same seeds ran on another Python already (`.ci/run`)."""


@pytest.mark.timeout(2400)
@pytest.mark.covers(
    *("SF-1", "SF-2", "SF-3", "SF-4", "SF-7", "SF-10", "SF-11", "SF-12", "SF-13", "SF-14", "SF-15"),
    *(
        "SF-17",
        "SF-18",
        "RP-1",
        "RP-2",
        "RP-6",
        "RP-8",
        "MV-4",
        "MV-5",
        "MV-6",
        "MV-7",
        "MV-9",
        "MV-10",
        "MV-12",
    ),
)
def test_every_promise_holds_under_faults() -> None:
    failed = run_many(0, SEEDS, os.cpu_count() or 1)
    assert not failed, "\n".join(f"seed {outcome.name}: {outcome.failure}" for outcome in failed)


def test_a_seed_replays_to_the_same_run() -> None:
    first, second = run_seed(3, seconds=8), run_seed(3, seconds=8)
    assert (first.steps, first.applied, first.failure) == (second.steps, second.applied, second.failure)
    assert first.applied > 50


def test_a_seed_of_a_super_cluster_replays_to_the_same_run_and_moves_its_stream() -> None:
    first, second = run_seed(7, moves=True, seconds=12), run_seed(7, moves=True, seconds=12)
    assert (first.steps, first.applied, first.failure) == (second.steps, second.applied, second.failure)
    assert first.replay == "make sim SEED=7"

    def moves(seed: int) -> int:
        scenario = SuperScenario(seed, seconds=12)
        scenario.run()
        return scenario.oracle.moves

    assert any(map(moves, (7, 15, 23, 31))), (
        "what a seed does shifts with the code, and most have moves by then"
    )


@pytest.mark.parametrize("found", MUTANTS, ids=lambda found: found.id)
def test_every_mutant_fits_the_code(found: Mutant) -> None:
    check(found)


def test_a_mutant_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(MutantError, match=r"raft/quorum\.py: the text to replace stands there 0 times"):
        check(mutant("x", "SF-1", "", ("raft/quorum.py", "no such text", "")))
