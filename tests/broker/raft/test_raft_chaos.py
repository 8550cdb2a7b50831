"""Random faults from seeds: the safety properties hold at every step, and what is healed converges.

A seed that fails is run again with `run_seed(seed, doubt=…)`.
"""

from __future__ import annotations

import pytest
from tests.broker.raft.chaos import run_seed
from tests.support.tiers import case

FIRST = [case(first, id=str(first), is_short=first == 0) for first in range(0, 100, 25)]


@pytest.mark.covers("RP-1", "RP-2", "RP-8", "SF-5", "SF-6", "SF-7")
@pytest.mark.parametrize("first", FIRST)
def test_a_group_under_random_faults_is_safe_and_converges(first: int) -> None:
    worlds = [run_seed(seed) for seed in range(first, first + 25)]
    assert sum(len(world.committed) for world in worlds) > 500
    assert sum(len(world.leaders) for world in worlds) > 50


@pytest.mark.covers("SF-4", "RP-8")
@pytest.mark.parametrize("first", FIRST)
def test_one_member_at_a_time_may_lose_a_confirmed_tail(first: int) -> None:
    worlds = [run_seed(seed, doubt=True) for seed in range(first, first + 25)]
    assert sum(len(world.committed) for world in worlds) > 500


@pytest.mark.covers("SF-4", "SF-34")
@pytest.mark.parametrize("first", FIRST)
def test_one_member_at_a_time_may_lose_records_of_its_middle_and_votes_on(first: int) -> None:
    worlds = [run_seed(seed, rots=True) for seed in range(first, first + 25)]
    assert sum(len(world.committed) for world in worlds) > 500
    assert not any(world.doubtful_elections for world in worlds)
