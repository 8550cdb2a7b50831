"""The plan of a restless run comes from its seed alone, and has every kind of act within a few seeds."""

from __future__ import annotations

import itertools

from e2e.restless.acts import ACTS
from e2e.restless.plan import FIRST_S, GAP_S, KINDS, draw

SEEDS = range(1, 11)


def test_the_same_seed_gives_the_same_plan() -> None:
    assert draw(7, 10.0) == draw(7, 10.0)
    assert all(draw(seed, 10.0) != draw(seed + 1, 10.0) for seed in SEEDS)


def test_every_kind_of_act_is_met_within_ten_seeds_and_can_be_carried_out() -> None:
    met = {act.kind for seed in SEEDS for act in draw(seed, 2.0)}
    assert met == KINDS.keys() == ACTS.keys()


def test_acts_are_numbered_and_begin_within_the_time() -> None:
    for seed in SEEDS:
        acts = draw(seed, 2.0)
        assert [act.number for act in acts] == list(range(1, len(acts) + 1))
        gaps = [after.at_s - before.at_s for before, after in itertools.pairwise(acts)]
        assert acts[0].at_s == FIRST_S
        assert acts[-1].at_s < 120.0
        assert min(gaps) > GAP_S[0] - 0.1
        assert max(gaps) < GAP_S[1] + 0.1


def test_an_act_is_shown_with_its_number_time_kind_target_and_detail() -> None:
    act = next(act for act in draw(7, 10.0) if act.kind == "kill-operator")
    assert (
        str(act)
        == f"{act.number:3} at {act.at_s:5.1f} s: kill-operator operator away_s={act.detail['away_s']}"
    )
