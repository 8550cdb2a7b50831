"""Moves as clients and the operator ask for them: what starts one, what is refused and in which words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.broker.jetstream.meta_leader.meta_story import APP, OPERATOR, Meta, facts_of, meta

from supercluster.broker.jetstream.config.metadata_keys import RESOURCE_KEY
from supercluster.broker.jetstream.config.stream import Placement
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.move_record import MoveEnd, MoveReport, Outcome
from supercluster.broker.jetstream.meta_leader.stream_request import Decided, Fallen
from supercluster.broker.jetstream.placement.dry_run import MovePlan
from supercluster.broker.jetstream.placement.room import Room
from supercluster.broker.jetstream.placement.stream_facts import MemberFacts

EAST, WEST = {"cluster": "east"}, {"cluster": "west"}
OLD = ("east-0@vol-0", "east-1@vol-east_1", "east-2@vol-east_2")


def two_clusters(**fields: Any) -> Meta:
    """East and west of three each, and stream S with three replicas in east."""
    names = {f"{cluster}_{i}": cluster for cluster in ("east", "west") for i in range(3)}
    leader = meta(**{name: cluster for name, cluster in names.items() if name != "east_0"})
    leader.done("create", OPERATOR, num_replicas=3, placement=EAST, **fields)
    return leader


def end(leader: Meta, outcome: Outcome, members: tuple[str, ...]) -> None:
    found = leader.stream()
    assert found.move is not None
    leader.replica.move_ended(MoveEnd(found.group, members, MoveReport(found.move.id, outcome)))
    leader.turn()


@pytest.mark.covers("MV-1", "MV-6")
def test_a_changed_placement_starts_a_move() -> None:
    leader = two_clusters()
    assert leader.stream().members == OLD
    decided = leader.done("update", num_replicas=3, placement=WEST)
    found = leader.stream()
    assert decided.version == found.version
    assert found.config.placement == Placement("west")
    assert found.members == OLD
    move = found.move
    assert move is not None
    assert [member.partition(".")[0] for member in move.targets] == [
        f"west-{i}@vol-west_{i}" for i in range(3)
    ]
    assert all("." in member for member in move.targets), "a copy of a move has an identity of its own"
    assert (move.origin, move.origin_placement) == (OLD, Placement("east"))
    assert "MoveStarted" in leader.host.events
    end(leader, Outcome.DONE, move.targets)
    assert (leader.stream().members, leader.stream().move) == (move.targets, None)


def test_an_update_may_change_other_fields_along_with_the_placement() -> None:
    leader = two_clusters()
    leader.done("update", num_replicas=3, placement=WEST, max_msgs=5)
    assert leader.stream().move is not None
    assert leader.stream().config.max_msgs == 5


def test_a_placement_that_the_members_satisfy_moves_nothing() -> None:
    leader = two_clusters()
    for placement in ({}, EAST, {"cluster": "east", "preferred": "east-2"}, {"preferred": "west-0"}):
        leader.done("update", num_replicas=3, placement=placement)
        assert leader.stream().move is None
        assert leader.stream().config.placement == Placement.from_json(placement)


def test_only_members_that_do_not_fit_are_replaced() -> None:
    leader = two_clusters()
    leader.host.tags = dict.fromkeys(("east-0", "east-2", "west-0", "west-1"), ("ssd",))
    leader.turn()
    leader.done("update", num_replicas=3, placement={"tags": ["ssd"]})
    move = leader.stream().move
    assert move is not None
    assert move.targets[:2] == (OLD[0], OLD[2])
    assert move.targets[2].startswith("west-0@vol-west_0."), "no third node in its own cluster has the tag"


def test_tags_alone_keep_a_stream_in_its_cluster_if_that_will_do() -> None:
    names = {f"east_{i}": "east" for i in range(1, 4)} | {"west_0": "west"}
    leader = meta(**names)
    leader.done("create", num_replicas=3)
    leader.host.tags = dict.fromkeys(("east-0", "east-1", "east-3", "west-0"), ("ssd",))
    leader.turn()
    leader.done("update", num_replicas=3, placement={"tags": ["ssd"]})
    move = leader.stream().move
    assert move is not None
    assert [member.partition("@")[0] for member in move.targets] == ["east-0", "east-1", "east-3"]


@pytest.mark.covers("MV-2")
def test_a_refused_move_leaves_the_configuration_and_names_every_node() -> None:
    leader = two_clusters()
    before = leader.stream()
    del leader.host.contact["west-1"]
    leader.host.rooms["west-2"] = Room(1000, 1 << 30)
    wrong = leader.refused("update", num_replicas=3, placement=WEST)
    assert (wrong.code, wrong.err_code) == (400, 10005)
    assert wrong.description == (
        "no suitable peers for placement: 3 replicas wanted in cluster west, 1 of 6 nodes can be used: west-0; "
        "east-0 is in cluster east, not west; east-1 is in cluster east, not west; east-2 is in cluster east, not west; "
        "west-1 is not in contact; west-2 has not enough room: 1000 bytes, 135000 are needed"
    )
    assert leader.stream() == before
    leader.host.rooms["west-2"] = None
    wrong = leader.refused("update", num_replicas=3, placement=WEST)
    assert "west-2 has not said yet how much room it has" in wrong.description
    wrong = leader.refused("update", num_replicas=3, placement={"cluster": "nowhere"})
    assert "wanted in cluster nowhere, 0 of 6" in wrong.description


def test_a_move_of_a_stream_in_memory_needs_memory() -> None:
    leader = two_clusters()
    leader.done("create", name="M", num_replicas=3, storage="memory", placement=EAST)
    leader.host.rooms["west-1"] = Room(1 << 40, 10)
    wrong = leader.refused("update", name="M", num_replicas=3, storage="memory", placement=WEST)
    assert "west-1 has not enough room: 10 bytes" in wrong.description


@pytest.mark.covers("MV-3")
def test_a_second_move_is_refused_with_peers_and_lag() -> None:
    leader = two_clusters()
    leader.done("update", num_replicas=3, placement=WEST)
    move = leader.stream().move
    assert move is not None
    members = [MemberFacts(OLD[0], True, True, 0), *(MemberFacts(m, True, True, 3) for m in OLD[1:])]
    members += [MemberFacts(m, False, False, 500) for m in move.targets[:2]]
    leader.host.facts["S"] = facts_of(leader.stream(), members=tuple(members))
    wrong = leader.refused("update", num_replicas=3, placement=EAST)
    assert (wrong.code, wrong.err_code) == (400, 10124)
    assert wrong.description == (
        "stream move already in progress: total peers: 5, current peers: 3, combined lag: 1006"
    )
    leader.host.facts["S"] = None
    wrong = leader.refused("update", num_replicas=3, placement=EAST)
    assert wrong.description == (
        "stream move already in progress: total peers: 6, current peers and combined lag are unknown: "
        "the stream's leader does not answer"
    )
    assert leader.stream().move == move
    assert leader.refused("update", num_replicas=1, placement=EAST).err_code == 10123
    leader.done("update", num_replicas=3, placement=WEST)  # A repeated request, whose answer was lost.


def test_other_fields_may_change_while_a_stream_moves_and_it_may_be_deleted() -> None:
    leader = two_clusters()
    leader.done("update", num_replicas=3, placement=WEST)
    move = leader.stream().move
    leader.done("update", num_replicas=3, placement=WEST, max_msgs=9)
    assert (leader.stream().move, leader.stream().config.max_msgs) == (move, 9)
    assert leader.refused("update", num_replicas=5, placement=WEST).err_code == 10124
    leader.done("delete")
    assert leader.replica.state.streams == {}
    assert leader.replica.tail.state.moving == set()


def test_a_stream_without_a_leader_does_not_move() -> None:
    leader = two_clusters()
    leader.host.facts["S"] = None
    assert leader.refused("update", num_replicas=3, placement=WEST).err_code == 10118
    assert leader.stream().move is None


def test_a_move_waits_for_a_member_that_is_being_replaced() -> None:
    leader = two_clusters()
    members = tuple(MemberFacts(m, True, True, 0) for m in (*OLD, "east-2@new"))
    leader.host.facts["S"] = facts_of(leader.stream(), members=members)
    wrong = leader.refused("update", num_replicas=3, placement=WEST)
    assert (wrong.code, wrong.err_code) == (503, 10008)
    assert "stream S is being replaced" in wrong.description


@pytest.mark.covers("SF-5")
def test_the_members_in_force_are_the_ones_that_the_stream_itself_tells() -> None:
    leader = two_clusters()
    now = (OLD[0], OLD[1], "east-2@vol-east_2.again")
    leader.host.facts["S"] = facts_of(
        leader.stream(), members=tuple(MemberFacts(member, True, True, 0) for member in now)
    )
    leader.host.tags = dict.fromkeys(("east-2", "west-0", "west-1"), ("ssd",))
    leader.turn()
    leader.done("update", num_replicas=3, placement={"tags": ["ssd"]})
    move = leader.stream().move
    assert move is not None
    assert move.origin == now
    assert move.targets[0] == now[2]


def test_a_node_that_lost_its_volume_is_no_present_member() -> None:
    leader = two_clusters()
    leader.host.contact["east-2"] = ("east", "vol-new")
    leader.host.tags = dict.fromkeys(("east-0", "east-2", "west-0", "west-1"), ("ssd",))
    leader.turn()
    leader.done("update", num_replicas=3, placement={"tags": ["ssd"]})
    move = leader.stream().move
    assert move is not None
    assert [member.partition("@")[0] for member in move.targets] == ["east-0", "west-0", "west-1"]


def test_what_was_asked_before_is_not_used_for_another_stream_of_that_name() -> None:
    leader = two_clusters()
    leader.host.held_answers = []
    answers = leader.call(
        "update", config=replace(leader.stream().config, placement=Placement("west")), asked_at="east-0"
    )
    assert answers == []
    leader.done("delete")
    leader.done("create", num_replicas=3, placement=EAST)
    leader.host.held_answers.pop()()
    leader.turn()
    assert answers == []
    leader.host.held_answers.pop()()
    leader.turn()
    assert isinstance(answers[0], Decided)
    assert leader.stream().move is not None


def test_a_leader_that_falls_sends_those_on_who_wait_for_a_stream() -> None:
    leader = two_clusters()
    leader.host.held_answers = []
    answers = leader.call("update", config=replace(leader.stream().config, placement=Placement("west")))
    assert answers == []
    leader.replica.stop_serving()
    assert answers == [Fallen.NOT_BEGUN]
    leader.host.held_answers.pop()()
    assert answers == [Fallen.NOT_BEGUN], "the stream's late answer is of no use any more"


# ---- cancel and peers ------------------------------------------------------------------------------------------------


@pytest.mark.covers("MV-9")
def test_a_move_is_cancelled_and_the_placement_comes_back_with_its_end() -> None:
    leader = two_clusters()
    assert leader.refused("cancel_move").err_code == 10129
    leader.done("update", num_replicas=3, placement=WEST)
    running = leader.stream().move
    assert running is not None
    other = leader.refused("cancel_move", move_id="of-before")
    assert other.err_code == 10129
    assert f"of-before does not run, {running.id} does" in other.description
    assert leader.stream().move == running, "only the move that is meant is called off"
    leader.done("cancel_move", move_id=running.id)
    leader.done("cancel_move")  # Again: the answer may have been lost.
    move = leader.stream().move
    assert move is not None
    assert move.cancelled
    end(leader, Outcome.CANCELLED, OLD)
    found = leader.stream()
    assert (found.members, found.config.placement) == (OLD, Placement("east"))
    assert found.last_move is not None
    assert found.last_move.outcome is Outcome.CANCELLED
    assert leader.refused("cancel_move").err_code == 10129
    assert leader.refused("cancel_move", name="T").err_code == 10059


@pytest.mark.covers("SF-23")
def test_who_may_move_and_cancel() -> None:
    leader = two_clusters(metadata={RESOURCE_KEY: "shop/orders"})
    declared: dict[str, Any] = {"metadata": {RESOURCE_KEY: "shop/orders"}}
    wrong = leader.refused("update", num_replicas=3, placement=WEST, **declared)
    assert wrong.err_code == 19001
    assert "shop/orders" in wrong.description
    assert "placement" in wrong.description
    leader.done("update", OPERATOR, num_replicas=3, placement=WEST, **declared)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("cancel_move", {}),
        ("remove_peer", {"peer": "east-1"}),
        ("move", {"placement": WEST}),
    ]
    for verb, fields in calls:
        wrong = leader.refused(verb, **fields)
        assert wrong.err_code == 19001
        assert "change the placement there" in wrong.description
    leader.done("cancel_move", OPERATOR)
    other = replace(APP, account="other")
    for verb in ("cancel_move", "plan_move"):
        wrong = leader.refused(verb, other, account="$G", placement=WEST)
        assert (wrong.code, wrong.err_code) == (403, 19003)
    leader.done("cancel_move", replace(OPERATOR, account="other"), account="$G")


@pytest.mark.covers("SF-8")
def test_a_peer_is_removed_by_having_another_one_in_its_place() -> None:
    leader = meta(**{f"east_{i}": "east" for i in range(1, 5)}, west_0="west")
    leader.done("create", num_replicas=3)
    assert leader.refused("remove_peer", peer="east-4").err_code == 10040
    leader.done("remove_peer", peer="east-1")
    found = leader.stream()
    assert found.move is not None
    assert found.move.targets[:2] == (OLD[0], OLD[2])
    assert found.move.targets[2].startswith("east-3@vol-east_3.")
    assert found.move.origin == OLD
    assert leader.refused("remove_peer", peer="east-2").err_code == 10124
    end(leader, Outcome.DONE, found.move.targets)
    assert leader.stream().config == found.config
    for node in ("east-1", "east-4"):
        del leader.host.contact[node]
    leader.host.facts.pop("S", None)
    wrong = leader.refused("remove_peer", peer="east-2")
    assert (wrong.code, wrong.err_code) == (503, 10075)
    assert (
        wrong.description.startswith("peer remap failed: 3 replicas wanted, 3 of 6 nodes can be used")
        is False
    )
    assert "east-2 is to be removed" in wrong.description
    assert "east-1 is not in contact" in wrong.description


# ---- another count of replicas ---------------------------------------------------------------------------------------


def five_in_east() -> Meta:
    leader = meta(**{f"east_{i}": "east" for i in range(1, 5)}, west_0="west")
    leader.done("create", num_replicas=3)
    return leader


@pytest.mark.covers("MV-3", "MV-6")
def test_another_count_of_replicas_is_made_as_a_move_is() -> None:
    leader = five_in_east()
    leader.done("update", num_replicas=5)
    found = leader.stream()
    assert found.move is not None
    assert found.move.targets[:3] == OLD
    assert [member.partition("@")[0] for member in found.move.targets[3:]] == ["east-3", "east-4"]
    assert (found.members, found.config.num_replicas, found.move.origin_replicas) == (OLD, 5, 3)
    leader.done("update", num_replicas=5)  # Again: the answer may have been lost.
    assert leader.refused("update", num_replicas=3).err_code == 10124
    assert leader.refused("update", num_replicas=5, placement={"cluster": "west"}).err_code == 10124
    end(leader, Outcome.DONE, found.move.targets)
    assert leader.stream().members == found.move.targets
    leader.host.facts["S"] = replace(facts_of(leader.stream()), leader="east-3")
    leader.done("update", num_replicas=1)
    move = leader.stream().move
    assert move is not None
    assert move.targets == (found.move.targets[3],), "the leader's copy stays"
    end(leader, Outcome.DONE, move.targets)
    assert leader.stream().config.num_replicas == 1


@pytest.mark.covers("MV-9")
def test_a_change_of_the_count_that_is_taken_back_restores_the_count() -> None:
    leader = five_in_east()
    before = leader.stream().config
    leader.done("update", num_replicas=5)
    leader.done("cancel_move")
    assert leader.stream().config.num_replicas == 5, "until the stream's own group has said how it ended"
    end(leader, Outcome.CANCELLED, OLD)
    assert (leader.stream().config, leader.stream().members) == (before, OLD)


@pytest.mark.covers("MV-2", "MV-3")
def test_a_count_that_cannot_be_had_is_refused_and_nothing_is_changed() -> None:
    leader = two_clusters()
    before = leader.stream()
    wrong = leader.refused("update", num_replicas=5, placement=EAST)
    assert (wrong.code, wrong.err_code) == (400, 10005)
    assert "5 replicas wanted in cluster east, 3 of 6 nodes can be used" in wrong.description
    assert "west-2 is in cluster west, not east" in wrong.description
    assert leader.refused("update", num_replicas=1, placement=WEST).err_code == 10123
    leader.host.facts["S"] = None
    assert leader.refused("update", num_replicas=1, placement=EAST).err_code == 10118
    assert leader.stream() == before


@pytest.mark.covers("MV-13", "OP-4")
def test_the_operator_plans_and_names_a_change_of_the_count() -> None:
    leader = five_in_east()
    plan = leader.ask("plan_move", OPERATOR, replicas=4)
    assert isinstance(plan, MovePlan)
    assert [found.node for found in plan.targets] == ["east-0", "east-1", "east-2", "east-3"]
    assert (plan.send_bytes, plan.before.voters, plan.after.voters) == (120_000, 3, 4)
    for _ in range(2):
        leader.done("move", OPERATOR, replicas=4, move_id="mine")
    first = leader.stream().move
    assert first is not None
    assert first.id == "mine"
    end(leader, Outcome.DONE, first.targets)
    leader.done("move", OPERATOR, replicas=4, move_id="mine")
    assert leader.stream().move is None
    both = leader.ask("move", OPERATOR, replicas=3, placement={"cluster": "west"})
    assert isinstance(both, ApiError)
    assert both.err_code == 10123


# ---- the operator's calls --------------------------------------------------------------------------------------------


@pytest.mark.covers("MV-13")
def test_a_plan_says_what_a_move_would_do_and_changes_nothing() -> None:
    leader = two_clusters()
    before = leader.replica.log.last_index
    plan = leader.ask("plan_move", OPERATOR, placement=WEST, bytes_per_s=1000)
    assert isinstance(plan, MovePlan)
    assert leader.replica.log.last_index == before
    assert plan.to_json() == {
        "targets": [
            {"node": f"west-{i}", "why": "in cluster west, holds 0 copies of streams"} for i in range(3)
        ],
        "rejected": [{"node": f"east-{i}", "why": "is in cluster east, not west"} for i in range(3)],
        "bytes": 120_000,
        "bytesToSend": 360_000,
        "messages": 1000,
        "estimatedS": 360,
        "quorumBefore": {"voters": 3, "majority": 2, "well": 3},
        "quorumAfter": {"voters": 3, "majority": 2, "well": 3},
        "headRoom": [
            {"node": f"west-{i}", "roomBytes": 1 << 30, "afterBytes": (1 << 30) - 120_000} for i in range(3)
        ],
        "movesNothing": False,
        "refusal": "",
    }


@pytest.mark.covers("MV-13")
def test_a_move_goes_to_the_brokers_of_its_plan_or_nowhere() -> None:
    names = {f"{cluster}_{i}": cluster for cluster in ("east", "west") for i in range(5)}
    leader = meta(**{name: cluster for name, cluster in names.items() if name != "east_0"})
    leader.done("create", OPERATOR, num_replicas=3, placement=EAST)
    planned = ("west-0", "west-1", "west-2")
    leader.done("create", OPERATOR, name="busy", num_replicas=1, placement={"cluster": "west"})
    before = leader.stream()
    contact = leader.host.contact.pop("west-1")
    wrong = leader.ask("move", OPERATOR, placement=WEST, nodes=planned)
    assert isinstance(wrong, ApiError)
    assert (wrong.code, wrong.err_code) == (409, 19004)
    assert wrong.description == (
        "the plan cannot be carried out any more: it was to go to west-0, west-1, west-2; west-1 is not in contact"
    )
    more = leader.ask("move", OPERATOR, replicas=4, nodes=("east-0", "east-1", "east-2", "gone-0"))
    assert isinstance(more, ApiError)
    assert more.err_code == 19004
    fewer = leader.ask("move", OPERATOR, replicas=1, nodes=("west-0",))
    assert isinstance(fewer, ApiError)
    assert fewer.err_code == 19004
    assert leader.stream() == before
    leader.host.contact["west-1"] = contact
    leader.done("move", OPERATOR, placement=WEST, nodes=planned, move_id="mine")
    move = leader.stream().move
    assert move is not None
    assert {target.partition("@")[0] for target in move.targets} == set(planned), "though others hold less"


@pytest.mark.covers("MV-3", "MV-13")
def test_another_count_of_replicas_is_made_on_the_brokers_of_its_plan() -> None:
    leader = five_in_east()
    leader.done("move", OPERATOR, replicas=4, nodes=("east-0", "east-1", "east-2", "east-4"))
    move = leader.stream().move
    assert move is not None
    assert [target.partition("@")[0] for target in move.targets] == ["east-0", "east-1", "east-2", "east-4"]
    end(leader, Outcome.DONE, move.targets)
    leader.done("move", OPERATOR, replicas=1, nodes=("east-4",))
    last = leader.stream().move
    assert last is not None
    assert [target.partition("@")[0] for target in last.targets] == ["east-4"], "though another one leads"


def test_a_plan_of_what_is_impossible_is_a_plan_with_a_refusal() -> None:
    leader = two_clusters()
    plan = leader.ask("plan_move", OPERATOR, placement={"cluster": "west", "tags": ["ssd"]})
    assert isinstance(plan, MovePlan)
    assert plan.refusal.startswith("3 replicas wanted in cluster west with ssd, 0 of 6 nodes can be used")
    assert [found.node for found in plan.rejected] == [f"{c}-{i}" for c in ("east", "west") for i in range(3)]
    nothing = leader.ask("plan_move", OPERATOR, placement=EAST)
    assert isinstance(nothing, MovePlan)
    assert nothing.moves_nothing
    assert nothing.to_json()["movesNothing"] is True


def test_the_operator_moves_with_a_limit_and_a_repeated_call_is_none() -> None:
    leader = two_clusters(metadata={RESOURCE_KEY: "shop/orders"})
    leader.done("move", OPERATOR, placement=WEST, bytes_per_s=7_000_000)
    move = leader.stream().move
    assert move is not None
    assert move.bytes_per_s == 7_000_000
    leader.done("move", OPERATOR, placement=WEST, bytes_per_s=7_000_000)
    assert leader.stream().move == move
    wrong = leader.ask("move", OPERATOR, placement=EAST)
    assert isinstance(wrong, ApiError)
    assert wrong.err_code == 10124
    wrong = leader.ask("plan_move", OPERATOR, placement=EAST)
    assert isinstance(wrong, ApiError)
    assert wrong.err_code == 10124


# ---- the end ---------------------------------------------------------------------------------------------------------


def test_the_end_of_a_move_is_appended_once_and_only_for_the_move_that_runs() -> None:
    leader = two_clusters()
    leader.done("update", num_replicas=3, placement=WEST)
    found = leader.stream()
    assert found.move is not None
    leader.replica.move_ended(MoveEnd(found.group, OLD, MoveReport("another", Outcome.DONE)))
    leader.turn()
    assert leader.stream().move is not None
    told = MoveEnd(found.group, found.move.targets, MoveReport(found.move.id, Outcome.DONE))
    leader.replica.move_ended(told)
    leader.turn()
    index = leader.replica.log.last_index
    for _ in range(3):
        leader.replica.move_ended(told)
        leader.turn()
    assert leader.replica.log.last_index == index


@pytest.mark.covers("OP-4")
@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.CANCELLED])
def test_a_move_that_its_caller_names_is_started_once_however_often_it_is_asked_for(outcome: Outcome) -> None:
    """An operator that was killed after its call repeats it: while the move runs, and when it has ended meanwhile."""
    leader = two_clusters()
    asked: dict[str, Any] = {"placement": WEST, "move_id": "mine"}
    leader.done("move", OPERATOR, **asked)
    first = leader.stream().move
    assert first is not None
    assert first.id == "mine"
    leader.done("move", OPERATOR, **asked)
    assert leader.stream().move == first
    other = leader.refused("move", OPERATOR, placement=WEST, move_id="another")
    assert other.err_code == 10124
    end(leader, outcome, first.targets if outcome is Outcome.DONE else OLD)
    leader.done("move", OPERATOR, **asked)
    assert leader.stream().move is None, "it has ended, and asking again does not begin it anew"
    home = WEST if outcome is Outcome.CANCELLED else EAST
    leader.done("move", OPERATOR, placement=home, move_id="another")
    assert leader.stream().move is not None


@pytest.mark.covers("MV-13")
def test_the_same_call_with_another_limit_changes_that_of_the_move_that_runs_and_nothing_else() -> None:
    leader = two_clusters()
    asked: dict[str, Any] = {"placement": WEST, "move_id": "mine"}
    leader.done("move", OPERATOR, **asked, bytes_per_s=1000)
    before = leader.stream()
    assert before.move is not None
    leader.done("move", OPERATOR, **asked, bytes_per_s=5000)
    after = leader.stream()
    assert after.move == replace(before.move, bytes_per_s=5000)
    assert (after.version, after.config) == (before.version, before.config)
    index = leader.replica.log.last_index
    leader.done("move", OPERATOR, **asked, bytes_per_s=5000)
    assert leader.replica.log.last_index == index


@pytest.mark.covers("OP-4", "MV-3")
def test_a_call_that_comes_after_later_moves_starts_nothing_and_is_answered_by_how_its_own_ended() -> None:
    leader = two_clusters()
    asked: dict[str, Any] = {"placement": WEST, "move_id": "first"}
    leader.done("move", OPERATOR, **asked)
    end(leader, Outcome.DONE, move_targets(leader))
    leader.done("move", OPERATOR, placement=EAST, move_id="second")
    end(leader, Outcome.DONE, move_targets(leader))
    index = leader.replica.log.last_index
    late = leader.done("move", OPERATOR, **asked)
    assert leader.replica.log.last_index == index
    assert leader.stream().move is None
    last = late.assignment.last_move
    assert last is not None
    assert [(found.id, found.outcome) for found in last.known] == [
        ("second", Outcome.DONE),
        ("first", Outcome.DONE),
    ]


def move_targets(leader: Meta) -> tuple[str, ...]:
    move = leader.stream().move
    assert move is not None
    return move.targets
