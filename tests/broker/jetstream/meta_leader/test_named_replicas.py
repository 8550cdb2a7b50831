"""Copies beyond a stream's count, that people add and take away by name (MR-3), at the leader of the map."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.jetstream.meta_leader.meta_story import APP, OPERATOR, Meta, facts_of
from tests.broker.jetstream.meta_leader.test_dead_members import five, lose, nodes, pass_time
from tests.broker.jetstream.node.test_failed_copies import report

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.admin import broker_calls
from supercluster.broker.jetstream.admin.moves import read_call
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.move_record import MoveEnd, MoveReport, Outcome
from supercluster.broker.jetstream.meta_leader.broker_requests import holders
from supercluster.broker.jetstream.meta_leader.copy_reports import HALTED
from supercluster.broker.jetstream.placement.dry_run import MovePlan
from supercluster.broker.jetstream.placement.stream_facts import MemberFacts


def finish(leader: Meta, outcome: Outcome = Outcome.DONE, name: str = "S") -> None:
    """The stream's leader says that the move has ended."""
    found = leader.stream(name)
    assert found.move is not None
    members = found.move.targets if outcome is Outcome.DONE else found.move.origin
    leader.replica.move_ended(MoveEnd(found.group, members, MoveReport(found.move.id, outcome)))
    leader.turn()
    assert leader.stream(name).move is None


def with_extra() -> Meta:
    """Stream S of three has a fourth copy on east-3."""
    leader = five()
    leader.done("move", OPERATOR, add=("east-3",), move_id="add-1")
    finish(leader)
    return leader


def held(leader: Meta) -> list[str]:
    return sorted(nodes(leader.stream().members))


def refused(leader: Meta, **fields: Any) -> ApiError:
    answer = leader.ask("move", OPERATOR, **fields)
    assert isinstance(answer, ApiError), answer
    plan = leader.ask("plan_move", OPERATOR, **fields)
    assert isinstance(plan, MovePlan)
    assert answer.description in plan.refusal
    return answer


@pytest.mark.covers("MR-3", "MR-1")
def test_a_copy_that_is_added_by_name_is_beyond_the_count_which_stays() -> None:
    leader = five()
    plan = leader.ask("plan_move", OPERATOR, add=("east-3",))
    assert isinstance(plan, MovePlan)
    assert sorted(found.node for found in plan.targets) == ["east-0", "east-1", "east-2", "east-3"]
    leader.done("move", OPERATOR, add=("east-3",), move_id="add-1")
    move = leader.stream().move
    assert move is not None
    assert sorted(nodes(move.targets)) == ["east-0", "east-1", "east-2", "east-3"]
    assert set(move.origin) <= set(move.targets), "who holds a copy keeps it"
    finish(leader)
    assert (len(leader.stream().members), leader.stream().config.num_replicas) == (4, 3)
    index = leader.replica.log.last_index
    leader.done("move", OPERATOR, add=("east-3",), move_id="add-2")
    assert leader.replica.log.last_index == index, "it is there already"
    assert broker_calls._beyond_target(leader.replica.state) == [{"account": "$G", "name": "S"}]


@pytest.mark.covers("MR-3")
def test_one_that_is_beyond_the_count_goes_by_name_and_no_other_does() -> None:
    leader = with_extra()
    leader.done("move", OPERATOR, remove=("east-1",), min_usable=3)
    move = leader.stream().move
    assert move is not None
    assert sorted(nodes(move.targets)) == ["east-0", "east-2", "east-3"]
    finish(leader)
    assert broker_calls._beyond_target(leader.replica.state) == []
    told = refused(leader, remove=("east-0",))
    assert told.err_code == 19007
    assert "2 would be left, and the stream's count of replicas is 3: to have fewer, change the count" in (
        told.description
    )
    assert leader.stream().move is None


@pytest.mark.covers("MR-3", "MR-7", "SF-34")
@pytest.mark.parametrize("halted", ["", HALTED])
def test_a_usable_copy_does_not_go_while_too_few_others_are_usable(halted: str) -> None:
    leader = with_extra()
    report(leader, 10_000, "east-2", f"{halted}{leader.stream().group}")
    told = refused(leader, remove=("east-3",), min_usable=3)
    assert "2 usable ones would be left, and at least 3 are to be kept" in told.description
    leader.done("move", OPERATOR, remove=("east-2",), min_usable=3)
    assert leader.stream().move is not None, "the one of no use may"


@pytest.mark.covers("MV-6", "SF-34")
@pytest.mark.parametrize("halted", ["", HALTED])
@pytest.mark.parametrize("node", ["east-0", "east-1"])
def test_of_fewer_replicas_an_unusable_one_goes_first_and_a_halted_one_still_counts(
    node: str, halted: str
) -> None:
    """Its log seems to be current while nothing is published."""
    leader = five()
    report(leader, 10_000, node, f"{halted}{leader.stream().group}")
    leader.done("update", OPERATOR, num_replicas=2)
    move = leader.stream().move
    assert move is not None
    assert sorted(nodes(move.targets)) == sorted({"east-0", "east-1", "east-2"} - {node})
    finish(leader)
    report(leader, 2000, node, *([f"{halted}{leader.stream().group}"] if halted else []))
    assert (node in holders(leader.replica.state)) == bool(halted), "its files stay until a person decides"


@pytest.mark.covers("MV-6", "SF-34")
def test_more_replicas_leave_a_halted_one_where_it_is() -> None:
    leader = five()
    report(leader, 10_000, "east-1", f"{HALTED}{leader.stream().group}")
    leader.done("update", OPERATOR, num_replicas=4)
    move = leader.stream().move
    assert move is not None
    assert {"east-0", "east-1", "east-2"} < set(nodes(move.targets)), "nobody repairs around it"


def test_what_can_not_be_added_is_refused_with_the_reason() -> None:
    leader = five()
    assert "there is no broker east-9" in refused(leader, add=("east-9",)).description
    leader.host.contact["west-0"] = ("west", "vol-west_0")
    leader.turn()
    told = leader.ask("move", OPERATOR, add=("west-0",))
    assert isinstance(told, ApiError)
    assert "west-0 is in cluster west, not east, where the stream is" in told.description
    leader.done("move", OPERATOR, add=("east-3", "east-4"))
    finish(leader)
    leader.host.contact["east-5"] = ("east", "vol-east_5")
    leader.turn()
    assert "5 are the most that can be" in refused(leader, add=("east-5",)).description


@pytest.mark.covers("MR-7", "SF-8")
def test_lost_and_removed_peers_are_exchanged_without_cutting_back_to_the_count() -> None:
    leader = with_extra()
    lose(leader, "east-1")
    pass_time(leader, 60_000)
    leader.done("move", OPERATOR, replace=("east-1",), away_ms=60_000)
    move = leader.stream().move
    assert move is not None
    assert sorted(nodes(move.targets)) == ["east-0", "east-2", "east-3", "east-4"]
    finish(leader, Outcome.CANCELLED)
    found = leader.stream()
    leader.host.facts["S"] = facts_of(found)
    leader.host.contact["east-1"] = ("east", "vol-east_1")
    leader.turn()
    leader.done("remove_peer", OPERATOR, peer="east-2")
    move = leader.stream().move
    assert move is not None
    assert sorted(nodes(move.targets)) == ["east-0", "east-1", "east-3", "east-4"]


def test_another_count_is_the_count_of_all_copies_and_a_cancelled_addition_leaves_none() -> None:
    leader = with_extra()
    leader.done("move", OPERATOR, replicas=4, move_id="c")
    move = leader.stream().move
    assert move is not None
    assert set(move.targets) == set(move.origin), "they are there: only the count is another"
    finish(leader)
    assert leader.stream().config.num_replicas == 4
    leader.done("move", OPERATOR, add=("east-4",), move_id="a")
    finish(leader, Outcome.CANCELLED)
    assert (len(leader.stream().members), leader.stream().config.num_replicas) == (4, 4)
    leader.done("move", OPERATOR, replicas=2, move_id="d")
    finish(leader)
    assert len(leader.stream().members) == 2


def test_of_copies_beyond_the_count_the_map_has_to_know_too() -> None:
    leader = five()
    found = leader.stream()
    stale = (*found.members, "east-3@vol-east_3")
    members = tuple(MemberFacts(member, True, True, 0) for member in stale)
    leader.host.facts["S"] = facts_of(found, members=members)
    answer = leader.ask("move", OPERATOR, placement={"cluster": "east", "tags": ["ssd"]})
    assert answer == errors.members_are_changing("S")


def test_only_the_operator_changes_members_of_a_declared_stream_by_name() -> None:
    leader = five()
    leader.done("update", OPERATOR, num_replicas=3, metadata={"supercluster.dev/resource": "ns/flights"})
    answer = leader.ask("move", APP, add=("east-3",))
    assert isinstance(answer, ApiError)
    assert answer.err_code == 19001
    assert "the count of replicas" in answer.description


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"add": []}, "add is []"),
        ({"remove": "east-1"}, "remove is 'east-1'"),
        ({"remove": ["a"], "minUsable": 9}, "minUsable is 9"),
        ({"add": ["a"], "remove": ["b"]}, "can not move and scale"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused_with_the_field(body: Any, words: str) -> None:
    with pytest.raises(ApiError) as told:
        read_call(body)
    assert words in told.value.description


def test_a_call_names_each_broker_once() -> None:
    found = read_call({"remove": ["b", "a", "b"], "minUsable": 2})
    assert (found.remove, found.add, found.min_usable) == (("b", "a"), (), 2)
