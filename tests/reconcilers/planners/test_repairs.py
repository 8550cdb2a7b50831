"""Repairs as a table and as properties: the three scenarios of the source document, the budget, and what never happens."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reconcilers.builders import NOW
from tests.support.tiers import ALL, examples

from supercluster.api.replica_policy import RepairRules
from supercluster.reconcilers.planners.replica.repairs import (
    RepairPlan,
    RunningRepair,
    StreamState,
    due_at,
    plan_repairs,
)
from supercluster.reconcilers.planners.replica.rules import Rule
from supercluster.reconcilers.planners.strategies import BUILT_IN, Node

LETTERS = "abcdefghij"


def rule(minimum: int = 3, **fields: Any) -> Rule:
    """With a check at every second unless a test wants another."""
    rules = RepairRules.model_validate({"checkInterval": "1s", **fields})
    return Rule(minimum, rules, "ReplicaPolicy p", "it says so", "p")


def nodes(count: int = 5, away_s: dict[str, float] | None = None, **changes: Any) -> dict[str, Node]:
    """Brokers a, b, c … in zones that go round."""
    away = away_s or {}
    return {
        name: Node(
            name,
            "east",
            zone=f"zone-{number % 3}",
            away_since=NOW - timedelta(seconds=away[name]) if name in away else None,
            in_contact=name not in away,
            **changes,
        )
        for number, name in enumerate(LETTERS[:count])
    }


def stream(name: str = "qq", members: str = "abc", **fields: Any) -> StreamState:
    return StreamState(
        **{"name": name, "members": tuple(members), "leader": members[0], "rule": rule(), **fields}
    )


def plan(
    known: dict[str, Node], *streams: StreamState, running: tuple[RunningRepair, ...] = ()
) -> RepairPlan:
    return plan_repairs(known, streams, running, BUILT_IN, NOW)


def after(found: RepairPlan, which: StreamState) -> StreamState:
    """The stream when its repair is done."""
    made = next((repair for repair in found.repairs if repair.stream == which.name), None)
    return replace(which, members=made.nodes) if made else which


@pytest.mark.covers("MR-6", "MR-2")
def test_one_a_node_is_deleted_and_d_is_selected_by_zone() -> None:
    known = nodes(away_s={"c": 62})
    known["d"] = replace(known["d"], zone="zone-2")
    known["e"] = replace(known["e"], zone="zone-1")
    found = plan(known, stream())
    (made,) = found.repairs
    assert (made.replaced, made.nodes) == (("c",), ("a", "b", "d"))
    again = plan(known, after(found, stream()))
    assert again == RepairPlan(), "future checks discover that no action is necessary"


@pytest.mark.covers("MR-6", "MR-3")
def test_two_a_person_adds_one_at_the_same_time_and_both_stay() -> None:
    known = nodes(away_s={"c": 62})
    four = stream(members="abcd", rule=rule(4))
    found = plan(known, four)
    (made,) = found.repairs
    assert sorted(made.nodes) == ["a", "b", "d", "e"]
    assert plan(known, after(found, four)) == RepairPlan()
    assert plan(known, stream(members="abde", rule=rule(3))) == RepairPlan(), (
        "one above the minimum is left alone"
    )


@pytest.mark.covers("MR-6")
def test_three_the_node_is_back_before_the_interval_is_over_and_nothing_is_done() -> None:
    ninety = stream(rule=rule(failureRecoveryInterval="90s"))
    away = plan(nodes(away_s={"c": 60}), ninety)
    assert away.repairs == ()
    assert away.below == ("qq",)
    assert away.waiting[0][1].startswith("c may come back: replaced at 2026-01-02T03:04:3")
    later = plan_repairs(nodes(away_s={"c": 60}), [ninety], (), BUILT_IN, NOW + timedelta(seconds=9))
    assert later == away, "nothing to be written anew while it is waited"
    assert plan(nodes(), ninety) == RepairPlan()


@pytest.mark.covers("MR-2", "MR-4")
def test_the_plan_says_when_the_next_one_becomes_due_unless_it_would_find_no_place() -> None:
    known, one = nodes(away_s={"c": 60}), rule(failureRecoveryInterval="90s", budget={"concurrentMax": 1})
    early, later = stream("first", rule=one), stream("last", rule=one)
    due = sorted(due_at(each.name, one, NOW - timedelta(seconds=60)) for each in (early, later))
    assert due[0] < due[1]
    assert plan(known, early, later).next_at == due[0]
    running = (RunningRepair("other", "p", frozenset("d")),)
    assert plan(known, early, later, running=running).next_at is None, "its end is waited for, not a time"
    begun = plan_repairs(known, [early, later], (), BUILT_IN, due[0])
    assert (len(begun.repairs), begun.next_at) == (1, None)
    assert plan(nodes(), early, later).next_at is None


@pytest.mark.covers("MR-6", "OP-3")
def test_a_broker_that_a_roll_out_restarts_is_lost_only_after_that_may_take() -> None:
    """An image that is pulled for longer than the recovery interval is no reason to copy everything."""
    known = nodes(away_s={"c": 90})
    until = NOW + timedelta(seconds=5)
    known["c"] = replace(known["c"], expected_until=until)
    waiting = plan(known, stream())
    assert waiting.repairs == ()
    assert waiting.waiting == (("qq", f"c may come back: replaced at {until:%Y-%m-%dT%H:%M:%SZ} if not"),)
    known["c"] = replace(known["c"], expected_until=NOW)
    (repair,) = plan(known, stream()).repairs
    assert repair.replaced == ("c",)


@pytest.mark.covers("MR-7", "SF-8")
def test_two_lost_of_five_leave_in_one_change() -> None:
    known = nodes(8, away_s={"d": 70, "e": 90})
    (made,) = plan(known, stream(members="abcde", rule=rule(5))).repairs
    assert set(made.replaced) == {"d", "e"}
    assert len(made.nodes) == 5


@pytest.mark.covers("MR-2")
def test_a_copy_of_no_use_is_lost_since_the_earlier_of_both_times() -> None:
    spoilt = stream(unusable={"c": NOW - timedelta(seconds=70)})
    (made,) = plan(nodes(), spoilt).repairs
    assert (made.replaced, made.nodes) == (("c",), ("a", "b", "d"))
    assert made.since == (("c", NOW - timedelta(seconds=70)),)
    (later,) = plan(nodes(away_s={"c": 5}), spoilt).repairs
    assert later.since == made.since, "its broker went after it: the same repair, under the same name"
    (earlier,) = plan(nodes(away_s={"c": 90}), spoilt).repairs
    assert earlier.since == (("c", NOW - timedelta(seconds=90)),)
    young = stream(unusable={"c": NOW - timedelta(seconds=30)})
    assert plan(nodes(), young).repairs == ()
    half = stream(unusable={"b": NOW - timedelta(seconds=70), "c": NOW - timedelta(seconds=70)}, leader="a")
    assert "no majority (lost: b, c)" in plan(nodes(), half).waiting[0][1]
    other = plan(nodes(), spoilt, stream("well"))
    assert [repair.stream for repair in other.repairs] == ["qq"], "a broker's other copies are well"


@pytest.mark.covers("MR-7")
def test_a_stream_without_a_majority_is_left_alone_and_it_is_said() -> None:
    found = plan(nodes(away_s={"b": 70, "c": 70}), stream(leader=""))
    assert found.repairs == ()
    assert "no majority (lost: b, c)" in found.waiting[0][1]


@pytest.mark.covers("MR-3")
def test_only_the_minimum_is_restored() -> None:
    assert plan(nodes(8, away_s={"d": 70}), stream(members="abcde", rule=rule(3))) == RepairPlan(), (
        "four are left, and three are asked for"
    )
    known = nodes(8, away_s={"d": 70, "e": 90})
    (made,) = plan(known, stream(members="abcde", rule=rule(4))).repairs
    assert made.replaced == ("e",), "the one that has been away the longest"


@pytest.mark.covers("MR-1", "MR-7")
@pytest.mark.parametrize(
    ("members", "minimum", "away", "replaced"),
    [("abcde", 3, "de", "e"), ("abc", 2, "c", "c"), ("abc", 1, "c", "c"), ("abcd", 2, "d", "d")],
)
def test_however_low_the_minimum_is_a_majority_has_one_to_spare(
    members: str, minimum: int, away: str, replaced: str
) -> None:
    """With no more than a majority left the next loss would leave nobody who may repair."""
    known = nodes(8, away_s={name: 70.0 + 20 * (name == "e") for name in away})
    (made,) = plan(known, stream(members=members, rule=rule(minimum))).repairs
    assert made.replaced == tuple(replaced)
    assert len(made.nodes) == len(members)


@pytest.mark.covers("MR-4")
def test_a_stream_whose_repair_failed_a_moment_ago_takes_nobodys_place() -> None:
    one = rule(budget={"concurrentMax": 1})
    known = nodes(8, away_s={"c": 70})
    streams = [stream("first", rule=one), stream("second", rule=one)]
    (made,) = plan_repairs(known, streams, (), BUILT_IN, NOW).repairs
    (other,) = plan_repairs(known, streams, (), BUILT_IN, NOW, paused={made.stream}).repairs
    assert {made.stream, other.stream} == {"first", "second"}


def test_without_a_spare_broker_every_one_is_named_with_the_reason() -> None:
    known = nodes(5, away_s={"c": 70})
    known["d"] = replace(known["d"], leaves=True)
    known["e"] = replace(known["e"], room_bytes=10)
    found = plan(known, stream(bytes=100))
    assert found.repairs == ()
    told = found.waiting[0][1]
    assert told.startswith("no broker can take a replica in the place of c: ")
    assert "d goes for good; e has 10 bytes of room, and 112 are needed" in told


@pytest.mark.covers("MR-4")
def test_the_plan_counts_those_that_only_the_budget_is_in_the_way_of() -> None:
    one = rule(budget={"concurrentMax": 1})
    known = nodes(8, away_s={"c": 70})
    streams = [
        stream("first", rule=one),
        stream("moves", rule=one, is_moving=True),
        stream("second", rule=one),
    ]
    found = plan(known, *streams)
    assert len(found.repairs) == 1
    assert set(found.queued) == {"first", "second"} - {found.repairs[0].stream}
    full = rule(budget={"concurrentMax": 9, "concurrentPerNodeMax": 1})
    busy = tuple(RunningRepair(f"r{name}", "p", frozenset(name)) for name in "defgh")
    assert plan(known, stream(rule=full), running=busy).queued == ("qq",)
    assert plan(nodes(3, away_s={"c": 70}), stream()).queued == (), "no place at all is another matter"
    assert plan(nodes(8, away_s={"c": 2}), stream()).queued == (), "it may come back"


@pytest.mark.covers("MR-4", "MR-5")
def test_what_is_planned_for_one_stream_is_no_room_for_the_next() -> None:
    known = nodes(5, away_s={"c": 70}, room_bytes=1 << 30)
    known["d"] = replace(known["d"], zone="zone-2", room_bytes=1_200)
    large = [stream(name, bytes=1_000) for name in ("first", "second")]
    taken = [(set(made.nodes) - set("ab")).pop() for made in plan(known, *large).repairs]
    assert taken == ["d", "e"]


def test_one_spare_for_two_lost_ones_takes_the_place_of_the_longer_lost() -> None:
    (made,) = plan(nodes(6, away_s={"d": 70, "e": 90}), stream(members="abcde", rule=rule(5))).repairs
    assert (made.replaced, sorted(made.nodes)) == (("e",), ["a", "b", "c", "d", "f"])


@pytest.mark.parametrize("away_s", [{}, {"b": 3}])
def test_a_stream_whose_replicas_are_still_being_made_is_waited_for(away_s: dict[str, float]) -> None:
    young = stream(members="ab" if not away_s else "abc", rule=rule(4))
    found = plan(nodes(away_s=away_s), young)
    assert found.repairs == ()
    assert len(found.waiting) == 1


def test_a_stream_that_moves_waits() -> None:
    found = plan(nodes(away_s={"c": 70}), stream(is_moving=True))
    assert found.repairs == ()
    assert "one at a time" in found.waiting[0][1]


def test_a_broker_that_the_map_has_no_more_is_replaced_at_once() -> None:
    known = nodes(5)
    del known["c"]
    (made,) = plan(known, stream()).repairs
    assert made.replaced == ("c",)


@pytest.mark.covers("MR-5")
@pytest.mark.parametrize(
    ("strategy", "chosen"), [("spread-zones", "d"), ("least-loaded", "e"), ("most-free-disk", "f")]
)
def test_strategies_choose_by_zone_load_and_disk(strategy: str, chosen: str) -> None:
    known = nodes(6, away_s={"c": 70}, copies=5, room_bytes=100)
    known["d"] = replace(known["d"], zone="zone-9")
    known["e"] = replace(known["e"], zone="zone-0", copies=1)
    known["f"] = replace(known["f"], zone="zone-0", room_bytes=1000)
    (made,) = plan(known, stream(rule=rule(placementStrategy=strategy))).repairs
    assert made.nodes[-1] == chosen


@pytest.mark.covers("MR-5")
def test_a_strategy_may_be_added_and_one_that_is_not_there_is_named() -> None:
    known, wanted = nodes(away_s={"c": 70}), stream(rule=rule(placementStrategy="last-letter"))
    assert "known are least-loaded, most-free-disk, spread-zones" in plan(known, wanted).waiting[0][1]
    more = {**BUILT_IN, "last-letter": lambda node, holders: -ord(node.name)}
    (made,) = plan_repairs(known, [wanted], (), more, NOW).repairs
    assert made.nodes[-1] == "e"


def raises(node: Node, holders: object) -> Any:
    raise KeyError(node.zone)


@pytest.mark.covers("MR-5", "MR-7")
@pytest.mark.parametrize(
    ("wrong", "told"), [(raises, "KeyError: 'zone-0'"), (lambda node, holders: object(), "TypeError: ")]
)
def test_a_strategy_that_is_wrong_holds_up_its_own_streams_and_no_others(wrong: Any, told: str) -> None:
    known, mine = nodes(away_s={"c": 70}), stream("mine", rule=rule(placementStrategy="wrong"))
    found = plan_repairs(known, [mine, stream("other")], (), {**BUILT_IN, "wrong": wrong}, NOW)
    assert [repair.stream for repair in found.repairs] == ["other"]
    assert found.waiting[0][1].startswith(f"placementStrategy is wrong, which can't rank the brokers: {told}")


@pytest.mark.covers("MR-4")
def test_many_streams_are_repaired_by_the_budget_those_with_the_least_margin_first() -> None:
    known = nodes(8, away_s={"c": 80, "d": 80})
    budget = rule(failureRecoveryInterval="60s", budget={"concurrentMax": 3, "concurrentPerNodeMax": 3})
    several = [
        stream("even", "abce", rule=replace(budget, minimum=4)),
        stream("wide", "abcef", rule=replace(budget, minimum=5)),
        stream("thin-1", "abc", rule=budget),
        stream("thin-2", "abd", rule=budget),
    ]
    found = plan(known, *several)
    assert [repair.stream for repair in found.repairs] == ["even", "thin-1", "thin-2"]
    assert [name for name, _ in found.waiting] == ["wide"]
    assert found.below == ("even", "thin-1", "thin-2", "wide")
    running = tuple(RunningRepair(made.stream, "p", made.joining) for made in found.repairs)
    assert plan(known, several[1], running=running).repairs == ()


@pytest.mark.covers("MR-4")
def test_a_broker_takes_no_more_new_replicas_at_a_time_than_the_budget_says() -> None:
    known = nodes(4, away_s={"c": 80})
    budget = rule(budget={"concurrentMax": 8, "concurrentPerNodeMax": 2})
    found = plan(known, *(stream(f"s{number}", rule=budget) for number in range(6)))
    assert len(found.repairs) == 2
    assert all("as many new replicas as the budget allows" in why for _, why in found.waiting)


@pytest.mark.covers("MR-4")
def test_checks_are_spread_over_the_interval_and_the_same_at_every_look() -> None:
    spread = rule(checkInterval="100s")
    due = [due_at(f"s{number}", spread, NOW) - NOW for number in range(1000)]
    assert min(due) >= timedelta(seconds=60)
    assert max(due) <= timedelta(seconds=160)
    tenths = Counter(int((each.total_seconds() - 60) // 10) for each in due)
    assert all(50 < tenths[tenth] < 150 for tenth in range(10))


@pytest.mark.covers("MR-4")
def test_many_streams_that_lose_a_node_at_once_are_all_repaired_within_the_budget() -> None:
    """Second by second: a repair takes four seconds, and the brokers' clock goes on."""
    count = 2_000 if ALL else 500
    names = [f"n{number}" for number in range(10)]
    wide = rule(budget={"concurrentMax": 40, "concurrentPerNodeMax": 8}, checkInterval="30s")
    streams = {
        f"s{number}": StreamState(
            f"s{number}",
            ("n0", names[1 + number % 9], names[1 + (number + 4) % 9]),
            names[1 + number % 9],
            wide,
        )
        for number in range(count)
    }
    known = {name: Node(name, "east", zone=f"z{number % 3}") for number, name in enumerate(names)}
    known["n0"] = replace(known["n0"], away_since=NOW, in_contact=False)
    under_way: dict[str, tuple[int, tuple[str, ...]]] = {}
    begun: list[int] = []
    for second in range(600):
        for name in [name for name, (until, _) in under_way.items() if until <= second]:
            streams[name] = replace(streams[name], members=under_way.pop(name)[1], is_moving=False)
        running = tuple(
            RunningRepair(name, "p", frozenset(held) - set(streams[name].members))
            for name, (_, held) in under_way.items()
        )
        found = plan_repairs(known, streams.values(), running, BUILT_IN, NOW + timedelta(seconds=second))
        for made in found.repairs:
            under_way[made.stream] = (second + 4, made.nodes)
            streams[made.stream] = replace(streams[made.stream], is_moving=True)
            begun.append(second)
        joining = Counter(
            node for name, (_, held) in under_way.items() for node in set(held) - set(streams[name].members)
        )
        assert len(under_way) <= 40
        assert all(count <= 8 for count in joining.values())
        if not found.below:
            break
    assert len(begun) == count
    assert 60 <= min(begun) <= 62
    assert max(begun) < 60 + 30 + count * 4 // 40 + 30, "the budget is used to the full"
    assert all("n0" not in each.members and len(set(each.members)) == 3 for each in streams.values())
    load = Counter(node for each in streams.values() for node in each.members)
    assert max(load.values()) < 1.2 * min(load.values()), "nobody is flooded"


members = st.lists(st.sampled_from(LETTERS), min_size=1, max_size=5, unique=True)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, Node], list[StreamState]]:
    known = nodes(10)
    for name in list(known):
        kind = draw(st.sampled_from(["there", "there", "away", "just", "leaves", "gone"]))
        if kind == "gone":
            del known[name]
        elif kind != "there":
            seconds = {"away": 500, "just": 20, "leaves": 0}[kind]
            known[name] = replace(
                known[name],
                away_since=NOW - timedelta(seconds=seconds) if seconds else None,
                leaves=kind == "leaves",
                zone=draw(st.sampled_from(["", "x", "y"])),
                copies=draw(st.integers(0, 9)),
            )
    streams = []
    for number in range(draw(st.integers(0, 8))):
        held = draw(members)
        there = [name for name in held if name in known and known[name].away_since is None]
        has_majority = len(there) > len(held) // 2
        budget = {"concurrentMax": draw(st.integers(1, 4)), "concurrentPerNodeMax": 1}
        streams.append(
            StreamState(
                f"s{number}",
                tuple(held),
                there[0] if has_majority else "",
                rule(draw(st.integers(1, 5)), budget=budget),
                is_moving=draw(st.booleans()),
            )
        )
    return known, streams


@pytest.mark.covers("MR-7", "MR-1", "MR-4")
@settings(max_examples=examples(40, 200), deadline=None)
@given(worlds())
def test_whatever_the_world_repairs_keep_to_the_rules(
    world: tuple[dict[str, Node], list[StreamState]],
) -> None:
    known, streams = world
    found = plan(known, *streams)
    by_name = {each.name: each for each in streams}
    on_node: Counter[str] = Counter()
    for made in found.repairs:
        before = by_name[made.stream]
        there = {name for name in before.members if name in known and known[name].away_since is None}
        joining = set(made.nodes) - set(before.members)
        assert len(made.nodes) == len(set(made.nodes)) == len(before.members), (
            "the count is what people asked for"
        )
        assert there <= set(made.nodes), "nobody who is there leaves"
        assert len(there) > len(before.members) // 2, "both majorities are there for the change"
        assert not before.is_moving
        assert all(known[name].away_since is None and not known[name].leaves for name in joining)
        assert len(there) + len(joining) <= max(before.required, len(there)), "what is required, and no more"
        assert joining
        on_node.update(joining)
    assert all(count <= 1 for count in on_node.values())
    assert len({made.stream for made in found.repairs}) == len(found.repairs)
    assert plan(known, *streams) == found, "the same input gives the same plan"
    rest = plan(known, *(after(found, each) for each in streams))
    assert not {made.stream for made in rest.repairs} & {
        made.stream
        for made in found.repairs
        if not _is_short(by_name[made.stream], after(found, by_name[made.stream]), known)
    }, "what is repaired is not repaired again"


def _is_short(before: StreamState, now: StreamState, known: dict[str, Node]) -> bool:
    there = [name for name in now.members if name in known and known[name].away_since is None]
    return len(there) < before.required


@pytest.mark.covers("MR-4")
def test_ten_thousand_streams_on_thirty_nodes_take_their_budget_and_a_well_world_needs_nothing() -> None:
    names = [f"n{number:02d}" for number in range(30)]
    known = {name: Node(name, "east", zone=f"z{number % 3}") for number, name in enumerate(names)}
    wide = rule(budget={"concurrentMax": 64, "concurrentPerNodeMax": 8})
    streams = [
        StreamState(
            f"s{number}", tuple(names[(number + step) % 30] for step in (0, 7, 14)), names[number % 30], wide
        )
        for number in range(10_000)
    ]
    assert plan(known, *streams) == RepairPlan()
    known["n07"] = replace(known["n07"], away_since=NOW - timedelta(seconds=90), in_contact=False)
    found = plan(known, *streams)
    assert len(found.repairs) == 64
    assert len(found.below) == sum("n07" in each.members for each in streams)
