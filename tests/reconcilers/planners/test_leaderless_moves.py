"""Moves whose stream nobody leads: who counts as one, and that the budgets hold for all others whatever becomes of them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.reconcilers.builders import NOW, stream_move
from tests.reconcilers.planners.test_repairs import nodes, rule, stream

from supercluster.api import StreamMove
from supercluster.api.moves import MoveBudget
from supercluster.api.super_cluster import MoveGrant
from supercluster.reconcilers.planners.move.views import BrokersMove, counted, grants
from supercluster.reconcilers.planners.replica.leaderless_moves import leaderless
from supercluster.reconcilers.planners.replica.repair_moves import LivingStream, RepairObserved
from supercluster.reconcilers.planners.replica.repairs import RunningRepair, plan_repairs
from supercluster.reconcilers.planners.strategies import BUILT_IN

TROUBLE = "stream m has had no leader for 10 s"


def move(
    name: str = "m", *, phase: str = "Running", stage: str | None = None, trouble: str = TROUBLE
) -> StreamMove:
    """From a, b and c to a, b and d."""
    plan = {"origin": ["a", "b", "c"], "targets": [{"name": node, "reason": "x"} for node in "abd"]}
    progress = {"stage": stage, "trouble": trouble}
    return stream_move(name, status={"phase": phase, "streamName": name, "plan": plan, "progress": progress})


def seen(away_s: dict[str, float], **changes: Any) -> RepairObserved:
    return RepairObserved(nodes(away_s=away_s), NOW, **changes)


@pytest.mark.parametrize(
    ("away_s", "which", "is_one"),
    [
        ({"a": 61, "c": 500}, {}, True),
        ({"a": 61, "d": 61}, {}, True),
        ({"a": 61, "d": 61}, {"phase": "Cancelling"}, True),
        ({"a": 59, "c": 500}, {}, False),
        ({"c": 500, "d": 500}, {}, False),
        ({"a": 61, "c": 500}, {"stage": "joint"}, False),
        ({"a": 61, "c": 500}, {"trouble": ""}, False),
        ({}, {}, False),
    ],
)
@pytest.mark.covers("MR-4")
def test_both_have_to_be_so_nobody_answers_as_leader_and_the_map_says_why(
    away_s: dict[str, float], which: dict[str, str], is_one: bool
) -> None:
    assert leaderless([move(**which)], (), seen(away_s)) == ({"uid-m"} if is_one else set())


@pytest.mark.covers("MR-4")
def test_a_copy_of_no_use_is_as_good_as_none_and_who_knows_nothing_counts_all() -> None:
    spoilt = {"m": {"a": NOW - timedelta(seconds=70)}}
    assert leaderless([move()], (), seen({"c": 500}, unusable=spoilt)) == {"uid-m"}
    assert leaderless([move()], (), seen({"c": 500}, unusable={"other": spoilt["m"]})) == frozenset()
    assert leaderless([move()], (), None) == frozenset()
    unknown = seen({"a": 61, "c": 500})
    known = {name: node for name, node in unknown.nodes.items() if name != "c"}
    assert leaderless([move()], (), replace(unknown, nodes=known)) == frozenset(), "of c nothing is known"


@pytest.mark.covers("MR-4", "MV-13")
def test_moves_that_no_stream_move_asked_for_go_by_the_list_of_streams_which_leaves_out_who_has_no_leader() -> (
    None
):
    theirs = BrokersMove("id-x", "x", frozenset("abcd"), NOW, (tuple("abc"), tuple("abd")))
    unknown = replace(theirs, stream="x of account other", halves=())
    living = LivingStream("x", ("a", "b", "c"), "b", 3)
    lost = {"a": 61.0, "c": 500.0}
    assert leaderless([], [theirs, unknown], seen(lost)) == {"id-x"}
    assert leaderless([], [theirs], seen(lost, streams=(living,))) == frozenset()
    assert leaderless([], [theirs], seen({"a": 61})) == frozenset()


@pytest.mark.covers("MR-4", "MV-13")
def test_one_that_has_not_begun_goes_by_the_list_too_and_gets_no_place() -> None:
    lost = {"a": 61.0, "c": 500.0}
    led = LivingStream("m", ("a", "b", "c"), "b", 3)
    waits = move(phase="Queued")
    assert leaderless([waits], (), seen(lost, streams=(led,))) == frozenset()
    assert leaderless([waits], (), seen({"a": 61, "d": 61})) == frozenset(), "the new members have no say yet"
    assert leaderless([waits], (), seen(lost)) == {"uid-m"}
    assert grants((), (waits,), MoveBudget(), hold=False, leaderless={"uid-m"}) == ()
    assert leaderless([move(phase="Failed")], (), seen(lost)) == frozenset()


@pytest.mark.covers("MR-4")
def test_a_repair_that_was_not_even_planned_says_who_the_members_are() -> None:
    repair = {"replace": ["c"], "nodes": ["a", "b", "d"], "away": "60s"}
    unplanned = stream_move("m", stream="m", repair=repair, destination=None, status={"phase": "Pending"})
    assert leaderless([unplanned], (), seen({"a": 61, "c": 500})) == {"uid-m"}
    assert leaderless([unplanned], (), seen({"c": 500, "d": 500})) == frozenset()


@pytest.mark.covers("MV-13")
def test_whatever_happens_no_more_are_led_than_the_budget_lets_begin_and_never_twice_as_many_run() -> None:
    """Moves begin, end, lose their leader and are led again in any order."""
    for seed in range(200):
        dice = random.Random(seed)
        names = [f"m{number:02}" for number in range(16)]
        phases = dict.fromkeys(names, "Queued")
        parts = {name: dice.sample("abcdef", 3) for name in names}
        most = dice.randint(1, 4)
        per_node = dice.randint(1, most)
        budget = MoveBudget.model_validate({"concurrentMax": most, "concurrentPerNodeMax": per_node})
        given: tuple[MoveGrant, ...] = ()
        unled: set[str] = set()
        for _ in range(60):
            moves = [_part(name, phases[name], parts[name]) for name in names]
            uids = {f"uid-{name}" for name in unled}
            given = grants(given, tuple(moves), budget, hold=False, leaderless=uids)
            begins = [grant.name for grant in given if phases[grant.name] == "Queued"]
            phases |= dict.fromkeys(begins, "Running")
            runs = [name for name in names if phases[name] == "Running"]
            led = [name for name in runs if name not in unled]
            assert not begins or len(led) <= most, f"seed {seed}"
            assert len(runs) <= 2 * most, f"seed {seed}"
            for node in "abcdef":
                on_node = [name for name in runs if node in parts[name]]
                has_begun = any(node in parts[name] for name in begins)
                assert not has_begun or sum(name in led for name in on_node) <= per_node, f"seed {seed}"
                assert len(on_node) <= 2 * per_node, f"seed {seed}"
            for name in dice.sample(runs, min(2, len(runs))):
                if name in unled:
                    unled.discard(name)
                elif dice.random() < 0.5:
                    unled.add(name)
                else:
                    phases[name] = "Succeeded"


def _part(name: str, phase: str, brokers: list[str]) -> StreamMove:
    return stream_move(name, status={"phase": phase, "ticket": 1, "plan": {"origin": brokers, "targets": []}})


@pytest.mark.covers("MR-4")
def test_the_budget_of_repairs_holds_for_those_that_are_led_and_twice_for_all() -> None:
    """Of forty streams each second some repair ends, loses its leader, or is led again."""
    for seed in range(60):
        dice = random.Random(seed)
        most, per_node = dice.randint(1, 4), dice.randint(1, 2)
        small = rule(budget={"concurrentMax": most, "concurrentPerNodeMax": per_node})
        known = nodes(8, away_s={"a": 500})
        cases = {
            f"s{number}": stream(
                f"s{number}", "".join(["a", *dice.sample("bcdefgh", 2)]), leader="b", rule=small
            )
            for number in range(40)
        }
        running: dict[str, RunningRepair] = {}
        for _ in range(40):
            waiting = [replace(each, is_moving=each.name in running) for each in cases.values()]
            found = plan_repairs(known, waiting, tuple(running.values()), BUILT_IN, NOW)
            for made in found.repairs:
                joining = made.joining - set(cases[made.stream].members)
                running[made.stream] = RunningRepair(made.stream, "p", joining)
            led = [repair for repair in running.values() if repair.is_led]
            assert not found.repairs or len(led) <= most, f"seed {seed}"
            assert len(running) <= 2 * most, f"seed {seed}"
            on_node = Counter(node for repair in running.values() for node in repair.joining)
            assert max(on_node.values(), default=0) <= 2 * per_node, f"seed {seed}"
            for name in dice.sample(sorted(running), min(2, len(running))):
                if not running[name].is_led or dice.random() < 0.5:
                    running[name] = replace(running[name], is_led=not running[name].is_led)
                else:
                    del running[name], cases[name]
        assert len(cases) < 40


def test_those_beyond_as_many_as_there_are_places_are_counted() -> None:
    assert [counted(1, leaderless, 2) for leaderless in range(5)] == [1, 1, 1, 2, 3]
