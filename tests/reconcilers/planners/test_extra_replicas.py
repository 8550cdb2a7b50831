"""Replicas beyond a stream's count: left alone, or taken away as autoRemove says, and never one too many (MR-1, MR-3)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reconcilers.builders import NOW
from tests.reconcilers.planners.test_repairs import LETTERS, nodes, plan, rule, stream
from tests.support.tiers import examples

from supercluster.reconcilers.planners.replica.extra_replicas import Trim, plan_trims
from supercluster.reconcilers.planners.replica.repairs import Budget, RunningRepair, StreamState, is_usable
from supercluster.reconcilers.planners.strategies import BUILT_IN, Node

TRIM = {"autoRemove": "BeyondTarget"}


def trims(
    known: dict[str, Node], *streams: StreamState, running: tuple[RunningRepair, ...] = (), busy: str = ""
) -> tuple[Trim, ...]:
    return plan_trims(known, streams, {busy}, BUILT_IN, Budget(running), NOW)


def beyond(members: str = "abcd", count: int = 3, **fields: Any) -> StreamState:
    return stream(members=members, **{"count": count, "rule": rule(count, **TRIM), **fields})


@pytest.mark.covers("MR-3", "MR-6")
def test_by_default_they_are_left_alone_and_the_size_that_people_gave_is_kept() -> None:
    four = stream(members="abcd", count=3)
    assert trims(nodes(), four) == ()
    assert plan(nodes(), four).repairs == ()
    lost = plan(nodes(away_s={"c": 70}), four)
    (made,) = lost.repairs
    assert (made.replaced, sorted(made.nodes)) == (("c",), ["a", "b", "d", "e"]), (
        "whoever was first, the person or the repair: A, B, D and E"
    )
    assert lost.below == (), "three are usable, and three are the minimum"
    assert "3 of at least 4 replicas usable" in made.why


@pytest.mark.covers("MR-3", "SF-8")
def test_where_they_go_a_lost_one_is_not_replaced_but_leaves() -> None:
    known = nodes(away_s={"c": 70})
    assert plan(known, beyond()).repairs == ()
    (made,) = trims(known, beyond())
    assert made.removed == ("c",)
    assert "4 replicas, and the count is 3 (autoRemove BeyondTarget): c is lost since" in made.why


@pytest.mark.covers("MR-3")
def test_the_worst_placed_goes_and_never_the_leader() -> None:
    known = nodes()  # Zones 0 1 2 0 1: a and d share one.
    assert trims(known, beyond())[0].removed == ("d",)
    led_by_d = beyond(leader="d")
    assert trims(known, led_by_d)[0].removed == ("a",)
    known["b"] = replace(known["b"], leaves=True)
    assert trims(known, beyond())[0].removed == ("b",)
    ssd = frozenset({"ssd"})
    tagged = {name: replace(node, tags=ssd if name != "c" else frozenset()) for name, node in nodes().items()}
    assert trims(tagged, beyond(tags=ssd))[0].removed == ("c",)


@pytest.mark.covers("MR-3", "MR-5")
def test_by_a_strategy_that_is_wrong_nobody_goes_and_other_streams_are_as_ever() -> None:
    mine = replace(beyond(), name="mine", rule=rule(3, **TRIM, placementStrategy="wrong"))
    strategies = {**BUILT_IN, "wrong": lambda node, holders: {}[node.name]}
    found = plan_trims(nodes(), [mine, beyond()], set(), strategies, Budget(()), NOW)
    assert [trim.stream for trim in found] == ["qq"]


@pytest.mark.covers("MR-3")
def test_from_five_to_three_it_is_one_change_without_an_even_size_on_the_way() -> None:
    (made,) = trims(nodes(), beyond("abcde"))
    assert len(made.removed) == 2
    assert "a" not in made.removed
    assert trims(nodes(), beyond("abc")) == ()


@pytest.mark.parametrize(
    ("away_s", "fields"),
    [
        ({"b": 10}, {}),
        ({}, {"unusable": {"b": NOW - timedelta(seconds=10)}}),
        ({}, {"is_moving": True}),
        ({}, {"leader": ""}),
        ({"b": 500, "c": 500}, {"leader": ""}),
    ],
)
def test_nobody_who_is_well_goes_while_another_may_be_lost(
    away_s: dict[str, float], fields: dict[str, Any]
) -> None:
    assert trims(nodes(away_s=away_s), beyond(**fields)) == ()


def test_more_lost_ones_than_are_beyond_are_for_repair_to_replace() -> None:
    known = nodes(8, away_s={"c": 70, "d": 80})
    five = beyond("abcde", count=4)
    (made,) = trims(known, five)
    assert made.removed == ("c",)
    assert [repair.replaced for repair in plan(known, five).repairs] == [("d",)]
    assert trims(known, five, busy="qq") == (), "one change at a time"


@pytest.mark.covers("MR-4")
def test_they_take_from_the_budget_of_repairs() -> None:
    budget = {"budget": {"concurrentMax": 2, "concurrentPerNodeMax": 1}}
    several = [replace(beyond(rule=rule(3, **TRIM, **budget)), name=f"s{number}") for number in range(4)]
    assert [trim.stream for trim in trims(nodes(), *several)] == ["s0", "s1"]
    running = (RunningRepair("other", "p", frozenset({"e"})),)
    assert [trim.stream for trim in trims(nodes(), *several, running=running)] == ["s0"]


def test_a_strategy_that_is_not_there_takes_nothing_away() -> None:
    assert trims(nodes(), beyond(rule=rule(3, **TRIM, placementStrategy="no-such"))) == ()


@pytest.mark.covers("MR-1", "MR-3", "MR-7")
@settings(max_examples=examples(40, 200), deadline=None)
@given(
    held=st.lists(st.sampled_from(LETTERS), min_size=1, max_size=5, unique=True),
    count=st.integers(1, 5),
    away=st.dictionaries(st.sampled_from(LETTERS), st.sampled_from([10.0, 500.0]), max_size=4),
    leads=st.integers(0, 4),
)
def test_whatever_the_world_the_count_and_the_majority_are_left(
    held: list[str], count: int, away: dict[str, float], leads: int
) -> None:
    known = nodes(10, away_s=away)
    there = [name for name in held if is_usable(known, {}, name)]
    leader = there[leads % len(there)] if len(there) > len(held) // 2 else ""
    found = StreamState("s", tuple(held), leader, rule(min(count, len(held)), **TRIM), count=count)
    made = trims(known, found)
    if not made:
        return
    (trim,) = made
    rest = [name for name in held if name not in trim.removed]
    assert len(rest) >= count
    assert set(trim.removed) < set(held)
    assert leader in rest
    usable = [name for name in rest if name in there]
    assert len(usable) > len(rest) // 2, "the new half can decide"
    if set(trim.removed) & set(there):
        assert usable == rest, "nobody who is well goes while another is lost"
    after = replace(found, members=tuple(rest))
    if usable == rest:
        assert trims(known, after) == (), "the count is reached in one change"
