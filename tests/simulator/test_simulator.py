"""Seeds replay, the chosen ones meet every feature of a plan and every mutant, and mutants fit the code."""

from __future__ import annotations

from functools import partial

import pytest
from tests.simulator.chosen import (
    CAUGHT_BY,
    CAUGHT_BY_TEST,
    CHOSEN,
    CHOSEN_MAX,
    MET_BY,
    features,
    scenario_of,
)
from tests.simulator.ledger import InvariantBrokenError
from tests.simulator.mutants import MUTANTS, ROOT
from tests.simulator.mutation import Mutant, MutantError, check, mutant
from tests.simulator.rare import MET
from tests.simulator.run import has_moves, run_seed
from tests.simulator.super_scenario import SuperScenario
from tests.simulator.world import World

PLANS = 2000
"""As many as `make test-all` runs."""


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


def test_what_goes_in_a_circle_is_found_and_what_lasts_long_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.simulator.world.STEPS_A_MINUTE_MAX", 1000)
    world = World(1)

    def again(gap_ms: float) -> None:
        world.at(gap_ms, partial(again, gap_ms))

    again(100)
    world.run(600_000)
    assert world.steps == 6000
    again(0)
    with pytest.raises(InvariantBrokenError, match="no rest"):
        world.run(660_000)


@pytest.mark.parametrize("scenario", CHOSEN)
def test_chosen_seeds_meet_every_feature_of_a_plan(scenario: str) -> None:
    met = {feature for seed in CHOSEN[scenario] for feature in features(scenario, seed)}
    known = {feature for seed in range(PLANS) for feature in features(scenario, seed)}
    assert not known - met


def test_a_chosen_run_meets_each_rare_fault() -> None:
    assert MET_BY.keys() == set(MET)
    assert set(MET_BY.values()) <= set(CHOSEN["cluster"])


def test_a_chosen_run_or_a_test_catches_each_mutant() -> None:
    scenarios = {found.id: scenario_of(found) for found in MUTANTS}
    assert not CAUGHT_BY.keys() & CAUGHT_BY_TEST.keys()
    assert CAUGHT_BY.keys() | CAUGHT_BY_TEST.keys() == scenarios.keys()
    not_chosen = {id_ for id_, seed in CAUGHT_BY.items() if seed not in CHOSEN[scenarios[id_]]}
    assert not not_chosen
    for test in CAUGHT_BY_TEST.values():
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(), test


def test_chosen_seeds_are_few_and_are_replayed_by_their_number() -> None:
    assert len(CHOSEN["cluster"]) + len(CHOSEN["moves"]) <= CHOSEN_MAX
    for seeds in CHOSEN.values():
        assert sorted(set(seeds)) == list(seeds)
    assert not [seed for seed in CHOSEN["cluster"] if has_moves(seed)], (
        "make sim SEED= replays a super-cluster"
    )


@pytest.mark.parametrize("found", MUTANTS, ids=lambda found: found.id)
def test_every_mutant_fits_the_code(found: Mutant) -> None:
    check(found)


def test_a_mutant_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(MutantError, match=r"raft/quorum\.py: the text to replace stands there 0 times"):
        check(mutant("x", "SF-1", "", ("raft/quorum.py", "no such text", "")))
