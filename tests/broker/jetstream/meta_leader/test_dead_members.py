"""Since when a broker has been away is kept in the map of streams, and a dead member is exchanged by it (MR-2, MR-7)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.jetstream.meta_leader.meta_story import OPERATOR, Meta, facts_of, meta

from supercluster.broker.jetstream.admin.moves import read_call
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.absences import AWAY_NOTED_MS
from supercluster.broker.jetstream.meta_leader.upkeep import UPKEEP_EVERY_MS
from supercluster.broker.jetstream.placement.dry_run import MovePlan
from supercluster.broker.jetstream.placement.stream_facts import MemberFacts

MINUTE_MS = 60_000


def five() -> Meta:
    """East of five; stream S is on east-0, east-1 and east-2."""
    leader = meta(**{f"east_{i}": "east" for i in range(1, 5)})
    leader.done("create", OPERATOR, num_replicas=3)
    assert nodes(leader.stream().members) == ["east-0", "east-1", "east-2"]
    return leader


def nodes(members: tuple[str, ...]) -> list[str]:
    return [member.partition("@")[0] for member in members]


def pass_time(leader: Meta, total_ms: int) -> None:
    for _ in range(total_ms // UPKEEP_EVERY_MS + 1):
        leader.turn(UPKEEP_EVERY_MS)


def lose(leader: Meta, node: str) -> None:
    del leader.host.contact[node]
    found = leader.stream()
    members = tuple(
        MemberFacts(member, True, member.partition("@")[0] in leader.host.contact, 0)
        for member in found.members
    )
    leader.host.facts["S"] = facts_of(found, members=members)


def away_ms(leader: Meta, node: str) -> int:
    return (leader.replica.leader_time_ns() - leader.replica.state.away[node]) // 1_000_000


def replace(leader: Meta, *lost: str, verb: str = "move", **fields: Any) -> Any:
    return leader.ask(verb, OPERATOR, replace=lost, away_ms=MINUTE_MS, move_id="m1", **fields)


@pytest.mark.covers("MR-2")
def test_the_map_knows_since_when_a_broker_is_away_whoever_leads_it() -> None:
    leader = five()
    lose(leader, "east-2")
    pass_time(leader, AWAY_NOTED_MS - 2000)
    assert leader.replica.state.away == {}, "a link that breaks for a moment is not worth an entry"
    pass_time(leader, 30_000)
    assert 30_000 <= away_ms(leader, "east-2") <= 45_000
    index = leader.replica.log.last_index
    leader.replica.stop_serving()
    leader.replica.start_serving(leader.host.now_ms)
    pass_time(leader, 30_000)
    assert 60_000 <= away_ms(leader, "east-2") <= 80_000, "the next leader goes by what was written"
    assert leader.replica.log.last_index == index, "it is written once"
    assert MetaState.restore(leader.replica.state.snapshot()).away == leader.replica.state.away
    leader.host.contact["east-2"] = ("east", "vol-east_2")
    pass_time(leader, 1000)
    assert leader.replica.state.away == {}


def test_a_broker_that_comes_back_with_another_volume_is_back() -> None:
    leader = five()
    lose(leader, "east-2")
    pass_time(leader, 10_000)
    leader.host.contact["east-2"] = ("east", "vol-new")
    pass_time(leader, 1000)
    assert leader.replica.state.away == {}


def test_saying_that_an_absent_broker_goes_for_good_does_not_begin_its_time_anew() -> None:
    leader = five()
    lose(leader, "east-2")
    pass_time(leader, 40_000)
    leader.replica.brokers.ask("east-2", lambda refused: None, lambda: None, leaves=True)
    pass_time(leader, 1000)
    assert leader.replica.state.leaving == {"east-2": ""}
    assert away_ms(leader, "east-2") >= 40_000


@pytest.mark.covers("MR-7", "SF-8")
def test_a_dead_member_is_exchanged_in_one_change() -> None:
    leader = five()
    lose(leader, "east-2")
    pass_time(leader, MINUTE_MS)
    plan = replace(leader, "east-2", verb="plan_move")
    assert isinstance(plan, MovePlan)
    assert [found.node for found in plan.targets] == ["east-0", "east-1", "east-3"]
    replace(leader, "east-2")
    move = leader.stream().move
    assert move is not None
    assert nodes(move.targets) == ["east-0", "east-1", "east-3"]
    assert move.targets[:2] == move.origin[:2], "who is well stays the member that it is"
    assert leader.stream().config.num_replicas == 3
    index = leader.replica.log.last_index
    replace(leader, "east-2")
    assert leader.replica.log.last_index == index, "a call that is repeated starts nothing new"


@pytest.mark.covers("MR-5")
def test_the_caller_may_name_who_comes_instead_in_the_plan_as_in_the_move() -> None:
    leader = five()
    lose(leader, "east-2")
    pass_time(leader, MINUTE_MS)
    named = ("east-0", "east-1", "east-4")
    plan = replace(leader, "east-2", verb="plan_move", nodes=named)
    assert [found.node for found in plan.targets] == list(named)
    unfit = replace(leader, "east-2", verb="plan_move", nodes=("east-0", "east-1", "east-9"))
    assert unfit.refusal.startswith("the plan cannot be carried out any more")
    replace(leader, "east-2", nodes=named)
    move = leader.stream().move
    assert move is not None
    assert nodes(move.targets) == list(named)


@pytest.mark.covers("MR-6")
def test_a_replica_that_came_back_or_has_not_been_away_for_long_enough_is_left_alone() -> None:
    leader = five()
    lose(leader, "east-2")
    pass_time(leader, 30_000)
    early = replace(leader, "east-2")
    assert isinstance(early, ApiError)
    assert (early.err_code, "60000 are asked for" in early.description) == (19005, True)
    assert "holds no copy" in replace(leader, "east-4").description
    pass_time(leader, 40_000)
    leader.host.contact["east-2"] = ("east", "vol-east_2")
    pass_time(leader, 1000)
    assert replace(leader, "east-2").description == (
        "the replica is not to be replaced: broker east-2 is in contact"
    )
    assert replace(leader, "east-2", verb="plan_move").refusal.endswith("broker east-2 is in contact")
    assert leader.stream().move is None


def test_a_member_that_is_away_too_and_is_not_named_keeps_its_copy() -> None:
    leader = meta(**{f"east_{i}": "east" for i in range(1, 7)})
    leader.done("create", OPERATOR, num_replicas=5)
    lose(leader, "east-3")
    pass_time(leader, MINUTE_MS)
    lose(leader, "east-4")
    pass_time(leader, 10_000)
    replace(leader, "east-3")
    move = leader.stream().move
    assert move is not None
    assert nodes(move.targets) == ["east-0", "east-1", "east-2", "east-4", "east-5"]


def test_without_a_spare_broker_the_plan_says_of_each_why_not() -> None:
    leader = meta(east_1="east", east_2="east")
    leader.done("create", OPERATOR, num_replicas=3)
    lose(leader, "east-2")
    pass_time(leader, MINUTE_MS)
    refusal = replace(leader, "east-2", verb="plan_move").refusal
    assert "2 of 3 nodes can be used" in refusal
    assert "east-2 is to be replaced" in refusal


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"replace": []}, "replace is []"),
        ({"replace": ["a"], "awayMs": -1}, "awayMs is -1"),
        ({"replace": ["a"], "replicas": 3}, ""),
        ({"away": 3}, "placement"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused_with_the_field(body: Any, words: str) -> None:
    with pytest.raises(ApiError) as refused:
        read_call(body)
    assert words in refused.value.description


def test_a_call_names_who_is_to_be_replaced_once_each() -> None:
    found = read_call({"replace": ["b", "a", "b"], "awayMs": 7, "nodes": ["c"], "dryRun": True})
    assert (found.replace, found.away_ms, found.nodes, found.placement) == (("b", "a"), 7, ("c",), None)
