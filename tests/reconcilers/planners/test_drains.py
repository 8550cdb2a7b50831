"""Copies that are moved off brokers that go: where to, what is in the way, and what never happens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reconcilers.builders import NOW
from tests.reconcilers.planners.test_repairs import LETTERS, nodes, rule, stream
from tests.support.tiers import examples

from supercluster.reconcilers.planners.replica.drains import DrainPlan, plan_drains
from supercluster.reconcilers.planners.replica.repairs import StreamState
from supercluster.reconcilers.planners.strategies import BUILT_IN, Node

ALL = 1_000


def leaving(known: dict[str, Node], *names: str) -> dict[str, Node]:
    return {name: replace(node, leaves=name in names) for name, node in known.items()}


def plan(known: dict[str, Node], *streams: StreamState, gone: str = "d", begun_max: int = ALL) -> DrainPlan:
    return plan_drains(leaving(known, *gone), streams, gone, begun_max)


@pytest.mark.covers("MR-2", "SF-8")
def test_a_copy_on_a_broker_that_goes_is_exchanged_for_one_on_another() -> None:
    (made,) = plan(nodes(4), stream(members="abd")).drains
    assert (made.leaving, made.nodes) == (("d",), ("a", "b", "c"))


def test_all_copies_that_go_leave_in_one_change() -> None:
    (made,) = plan(nodes(6), stream(members="ade"), gone="de").drains
    assert made.leaving == ("d", "e")
    assert made.nodes[0] == "a"
    assert len(set(made.nodes)) == 3
    assert not set(made.nodes) & {"d", "e"}


def test_a_stream_that_has_nothing_there_is_none_of_its_business() -> None:
    assert plan(nodes(4), stream(members="abc")) == DrainPlan()


def test_a_stream_that_would_not_fit_is_named_with_what_to_do() -> None:
    (found,) = plan(nodes(3), stream(members="abc"), gone="c").impossible
    assert found.reason == (
        "3 replicas, and 2 brokers would be left for them: set its replicas to 2 or fewer, or keep more brokers"
    )


def test_the_reason_of_every_broker_that_is_no_use_is_told() -> None:
    known = nodes(5)
    known["c"] = replace(known["c"], room_bytes=10)
    known["e"] = replace(known["e"], cordoned=True)
    (found,) = plan(known, stream(members="abd", bytes=100)).impossible
    assert "c has 10 bytes of room, and 112 are needed" in found.reason
    assert "e runs on a Kubernetes node that is cordoned" in found.reason


def test_room_that_one_stream_will_take_is_not_promised_to_the_next() -> None:
    known = {name: replace(node, room_bytes=150) for name, node in nodes(4).items()}
    found = plan(known, stream("q1", "abd", bytes=100), stream("q2", "abd", bytes=100))
    assert [drain.stream for drain in found.drains] == ["q1"]
    assert [obstacle.stream for obstacle in found.impossible] == ["q2"]


def test_what_does_not_fit_goes_to_another_cluster_as_a_whole_where_its_placement_is_open() -> None:
    known = nodes(3) | {f"w{n}": Node(f"w{n}", "west") for n in range(3)}
    shut, free = stream("shut", "abc"), stream("free", "abc", elsewhere=frozenset({"west"}))
    found = plan(known, shut, free, gone="c")
    assert [(drain.stream, drain.cluster, drain.nodes) for drain in found.drains] == [("free", "west", ())]
    assert [obstacle.stream for obstacle in found.impossible] == ["shut"]


@pytest.mark.parametrize(
    ("changes", "known", "words"),
    [
        ({"unusable": {"a": NOW}}, nodes(5), "a can't be used, and is replaced or comes back first"),
        ({"is_moving": True}, nodes(5), "one at a time"),
        ({"leader": ""}, nodes(5), "no majority"),
        ({}, nodes(5, away_s={"a": 1, "b": 1}), "no majority (lost: a, b)"),
        ({}, nodes(5, away_s={"a": 1}), "a can't be used, and is replaced or comes back first"),
    ],
)
def test_what_has_to_come_first_is_waited_for(
    changes: dict[str, Any], known: dict[str, Node], words: str
) -> None:
    found = plan(known, stream(members="abd", **changes))
    assert found.drains == ()
    assert found.impossible == ()
    assert words in found.obstacles[0].reason


@pytest.mark.covers("MR-2", "MR-7")
def test_one_that_goes_and_is_dead_is_replaced_at_once() -> None:
    (made,) = plan(nodes(4, away_s={"d": 1}), stream(members="abd")).drains
    assert made.nodes == ("a", "b", "c")


def test_a_strategy_that_is_wrong_holds_up_its_own_streams_and_no_others() -> None:
    mine = stream("mine", "abd", rule=rule(placementStrategy="wrong"))
    strategies = {**BUILT_IN, "wrong": lambda node, holders: {}[node.name]}
    found = plan_drains(nodes(5), [mine, stream("other", "abd")], "d", 9, strategies)
    assert [drain.stream for drain in found.drains] == ["other"]
    (obstacle,) = found.impossible
    assert obstacle.reason == "placementStrategy is wrong, which can't rank the brokers: KeyError: 'c'"


def test_a_strategy_that_is_not_there_is_named_and_no_other_takes_its_place() -> None:
    found = plan_drains(
        nodes(5), [stream("mine", "abd", rule=rule(placementStrategy="gone"))], "d", 9, BUILT_IN
    )
    assert found.drains == ()
    (obstacle,) = found.impossible
    assert obstacle.reason == (
        "placementStrategy is gone, and there is no such one; known are least-loaded, most-free-disk, spread-zones"
    )


def test_no_more_are_begun_than_there_is_a_place_for() -> None:
    streams = [stream(f"q{number}", "abd") for number in range(9)]
    found = plan(nodes(5), *streams, begun_max=2)
    assert (len(found.drains), found.streams) == (2, 9)


members = st.lists(st.sampled_from(LETTERS), min_size=1, max_size=5, unique=True)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, Node], list[StreamState], list[str]]:
    count = draw(st.integers(2, 10))
    away = draw(st.dictionaries(st.sampled_from(LETTERS[:count]), st.just(90.0), max_size=2))
    known = nodes(count, away_s=away)
    for name in known:
        if draw(st.booleans()):
            known[name] = replace(known[name], room_bytes=draw(st.integers(0, 300)))
    gone = list(LETTERS[draw(st.integers(1, count)) : count])
    held = st.lists(st.sampled_from(LETTERS[:count]), min_size=1, max_size=min(5, count), unique=True)
    streams = []
    for number in range(draw(st.integers(0, 8))):
        names = tuple(draw(held))
        well = [name for name in names if name not in away]
        streams.append(
            StreamState(
                f"q{number}",
                names,
                well[0] if well else "",
                rule(len(names)),
                bytes=draw(st.integers(0, 120)),
            )
        )
    return known, streams, gone


@pytest.mark.covers("OP-3", "SF-8")
@settings(max_examples=examples(40, 200), deadline=None)
@given(worlds())
def test_whatever_is_there_a_drain_keeps_counts_and_majorities_and_comes_to_an_end(
    world: tuple[dict[str, Node], list[StreamState], list[str]],
) -> None:
    known, streams, gone = world
    known = leaving(known, *gone)
    by_name = {each.name: each for each in streams}
    for _ in range(len(streams) + 1):
        found = plan_drains(known, by_name.values(), gone, 1)
        assert found == plan_drains(known, reversed(by_name.values()), gone, 1), "the same for any order"
        if not found.drains:
            break
        (made,) = found.drains
        before = by_name[made.stream]
        after = set(made.nodes)
        assert len(made.nodes) == len(after) == len(before.members), "never past the target, never below it"
        assert set(before.members) - set(gone) <= after, "who stays keeps its copy"
        assert not after & set(gone)
        joining = after - set(before.members)
        usable = [name for name in before.members if known[name].away_since is None]
        assert len(usable) > len(before.members) // 2
        for name in joining:
            assert known[name].away_since is None
            room = known[name].room_bytes
            assert room is None or room >= before.bytes
        well_after = sum(known[name].away_since is None for name in after)
        assert well_after >= len(usable), "no fewer usable replicas than before"
        by_name[made.stream] = replace(before, members=made.nodes)
    else:
        raise AssertionError("it does not end")
    left = {each.name for each in by_name.values() if set(each.members) & set(gone)}
    assert left == {obstacle.stream for obstacle in found.obstacles}, "whoever is left has a reason"
    assert found.streams == len(left)


@settings(max_examples=examples(40, 100), deadline=None)
@given(worlds())
def test_what_is_said_to_be_possible_before_is_possible_then(
    world: tuple[dict[str, Node], list[StreamState], list[str]],
) -> None:
    known, streams, gone = world
    asked = plan_drains(known, streams, gone, 0)
    if asked.obstacles:
        return
    done = plan_drains(leaving(known, *gone), streams, gone, ALL)
    assert len(done.drains) == asked.streams


def test_ten_thousand_streams_are_planned_at_once() -> None:
    known = {f"n{number}": Node(f"n{number}", "east") for number in range(30)}
    streams = [
        replace(stream(f"q{number}"), members=tuple(f"n{(number + step) % 30}" for step in range(3)))
        for number in range(10_000)
    ]
    found = plan_drains(known, streams, ["n29"], ALL)
    assert (found.streams, len(found.drains)) == (999, 999)
