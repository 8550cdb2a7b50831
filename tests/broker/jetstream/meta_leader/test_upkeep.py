"""What the meta group's leader does unasked about moves: targets that are gone."""

from __future__ import annotations

import pytest
from tests.broker.jetstream.meta_leader.meta_story import OPERATOR, Meta, facts_of, meta

from supercluster.broker.jetstream.meta.move_record import Move
from supercluster.broker.jetstream.meta_leader.move_targets import (
    GIVE_UP_MS,
    MOVE_LOOK_MS,
    SAME_NODE_MAX,
    TARGET_PATIENCE_MS,
    TOLD_MAX,
)
from supercluster.broker.jetstream.meta_leader.upkeep import UPKEEP_EVERY_MS
from supercluster.broker.jetstream.placement.room import Room
from supercluster.broker.jetstream.placement.stream_facts import MemberFacts

WEST = {"cluster": "west"}


def moving(west: int = 4) -> Meta:
    """Stream S on its way from east to west-0, west-1 and west-2."""
    names = {f"east_{i}": "east" for i in range(1, 3)} | {f"west_{i}": "west" for i in range(west)}
    leader = meta(**names)
    leader.done("create", num_replicas=3, placement={"cluster": "east"})
    leader.done("update", num_replicas=3, placement=WEST)
    stage(leader, "learning")
    return leader


def stage(leader: Meta, name: str, *voting: str, stuck: dict[str, str] | None = None) -> None:
    """What the stream's leader says from now on."""
    found = leader.stream()
    members = [
        *(MemberFacts(m, True, True, 0) for m in found.members),
        *(MemberFacts(m, True, True, 0) for m in voting),
    ]
    leader.host.facts["S"] = facts_of(
        found, members=tuple(members), move={"stage": name, "stuck": stuck or {}}
    )


def move_of(leader: Meta) -> Move:
    found = leader.stream().move
    assert found is not None
    return found


def nodes(leader: Meta) -> list[str]:
    return [member.partition("@")[0] for member in move_of(leader).targets]


def pass_time(leader: Meta, total_ms: int) -> None:
    for _ in range(total_ms // UPKEEP_EVERY_MS + 1):
        leader.turn(UPKEEP_EVERY_MS)


@pytest.mark.covers("MV-9")
def test_a_target_that_is_gone_for_too_long_is_replaced() -> None:
    leader = moving()
    gone = move_of(leader).targets[1]
    del leader.host.contact["west-1"]
    pass_time(leader, TARGET_PATIENCE_MS - 5000)
    assert nodes(leader) == ["west-0", "west-1", "west-2"]
    pass_time(leader, 6000)
    assert nodes(leader) == ["west-0", "west-3", "west-2"]
    assert "MoveTargetReplaced" in leader.host.events
    assert gone in leader.host.texts[leader.host.events.index("MoveTargetReplaced")]
    targets = move_of(leader).targets
    leader.host.contact["west-1"] = ("west", "vol-west_1")
    pass_time(leader, 5000)
    assert move_of(leader).targets == targets, "who comes back too late is not taken in again"


def test_a_target_that_comes_back_in_time_stays() -> None:
    leader = moving()
    for _ in range(3):
        del leader.host.contact["west-1"]
        pass_time(leader, TARGET_PATIENCE_MS // 2)
        leader.host.contact["west-1"] = ("west", "vol-west_1")
        pass_time(leader, 2000)
    assert nodes(leader) == ["west-0", "west-1", "west-2"]


@pytest.mark.covers("SF-4")
def test_a_target_with_another_volume_is_replaced_by_itself_at_once() -> None:
    leader = moving()
    old = move_of(leader).targets
    leader.host.contact["west-1"] = ("west", "vol-new")
    pass_time(leader, 2000)
    targets = move_of(leader).targets
    assert targets[0] == old[0]
    assert targets[1].startswith("west-1@vol-new.")
    assert targets[2] == old[2]


@pytest.mark.covers("SF-4")
def test_a_target_whose_copy_is_lost_is_given_another_one() -> None:
    leader = moving()
    old = move_of(leader).targets
    leader.replica.copy_lost("west-1", leader.stream().group, old[1], leader.host.now_ms)
    pass_time(leader, 2000)
    targets = move_of(leader).targets
    assert (targets[0], targets[2]) == (old[0], old[2])
    assert targets[1].startswith("west-1@vol-west_1.")
    assert targets[1] != old[1]


@pytest.mark.covers("SF-4")
def test_a_lost_target_is_known_as_lost_however_many_other_copies_were_lost_before() -> None:
    """Each restart of a broker with streams in memory tells identities of copies that were never heard of."""
    leader = moving()
    group, old = leader.stream().group, move_of(leader).targets
    for number in range(5000):
        for where in (group, "S.$G.other.t1"):
            leader.replica.copy_lost("east-1", where, f"east-1@vol-east_1.{number}", leader.host.now_ms)
    leader.replica.copy_lost("west-1", group, old[1], leader.host.now_ms)
    pass_time(leader, 2000)
    assert move_of(leader).targets[1] not in old


def test_what_was_said_of_moves_that_ended_does_not_keep_later_ones_from_being_told_of() -> None:
    leader = moving(west=3)
    upkeep = leader.replica.upkeep
    assert upkeep is not None
    upkeep.targets._told.update((f"ended-{number}", "west-1") for number in range(TOLD_MAX))
    del leader.host.contact["west-1"]
    pass_time(leader, TARGET_PATIENCE_MS + 10_000)
    assert leader.host.events.count("MoveWaits") == 1


def test_a_move_without_another_node_waits_and_says_so_once() -> None:
    leader = moving(west=3)
    del leader.host.contact["west-1"]
    pass_time(leader, TARGET_PATIENCE_MS + 10_000)
    assert nodes(leader) == ["west-0", "west-1", "west-2"]
    assert leader.host.events.count("MoveWaits") == 1
    text = leader.host.texts[leader.host.events.index("MoveWaits")]
    assert "west-0 takes part in the move already" in text
    assert "east-0 " in text


def test_a_target_that_can_be_replaced_does_not_wait_for_one_that_cannot() -> None:
    leader = moving(west=3)
    del leader.host.contact["west-0"]
    pass_time(leader, TARGET_PATIENCE_MS + 5000)
    assert leader.host.events.count("MoveWaits") == 1
    leader.host.contact["west-2"] = ("west", "vol-new")
    pass_time(leader, 2000)
    targets = move_of(leader).targets
    assert targets[0].startswith("west-0@vol-west_0."), "nobody is left for it"
    assert targets[2].startswith("west-2@vol-new.")
    assert leader.host.events.count("MoveWaits") == 1


@pytest.mark.parametrize("late", ["joint", "handing over", "leaving", ""])
def test_once_new_members_vote_targets_stay(late: str) -> None:
    leader = moving()
    stage(leader, late)
    del leader.host.contact["west-1"]
    pass_time(leader, TARGET_PATIENCE_MS + 10_000)
    assert nodes(leader) == ["west-0", "west-1", "west-2"]
    assert leader.host.events.count("MoveWaits") == 1


def test_a_target_that_votes_stays_whatever_the_stage_is_called() -> None:
    leader = moving()
    stage(leader, "comparing", move_of(leader).targets[1])
    del leader.host.contact["west-1"]
    pass_time(leader, TARGET_PATIENCE_MS + 10_000)
    assert nodes(leader) == ["west-0", "west-1", "west-2"]


def test_while_the_streams_leader_is_silent_targets_stay() -> None:
    leader = moving()
    leader.host.facts["S"] = None
    del leader.host.contact["west-1"]
    pass_time(leader, TARGET_PATIENCE_MS + 10_000)
    assert nodes(leader) == ["west-0", "west-1", "west-2"]
    assert "does not answer" in leader.host.texts[leader.host.events.index("MoveWaits")]


def test_a_cancelled_move_gets_no_new_targets_and_a_late_answer_is_void() -> None:
    leader = moving()
    leader.host.held_answers = []
    del leader.host.contact["west-1"]
    pass_time(leader, TARGET_PATIENCE_MS + 5000)
    assert len(leader.host.held_answers) == 1, "one question at a time"
    leader.done("cancel_move", OPERATOR)
    leader.host.held_answers.pop()()
    pass_time(leader, 5000)
    assert nodes(leader) == ["west-0", "west-1", "west-2"]
    assert leader.host.held_answers == []


def test_an_answer_after_the_stream_is_gone_is_void() -> None:
    leader = moving()
    leader.host.held_answers = []
    del leader.host.contact["west-1"]
    pass_time(leader, TARGET_PATIENCE_MS + 5000)
    leader.done("delete")
    leader.host.held_answers.pop()()
    pass_time(leader, 2000)
    assert leader.replica.state.streams == {}


@pytest.mark.covers("MV-9")
def test_another_node_joins_for_a_target_that_is_stuck_though_its_broker_is_linked() -> None:
    leader = moving()
    stage(leader, "comparing", stuck={move_of(leader).targets[1]: "its replica has not answered for 60 s"})
    pass_time(leader, MOVE_LOOK_MS - 2000)
    assert nodes(leader) == ["west-0", "west-1", "west-2"]
    pass_time(leader, 4000)
    assert nodes(leader) == ["west-0", "west-3", "west-2"]
    assert "has not answered" in leader.host.texts[leader.host.events.index("MoveTargetReplaced")]


def test_where_nobody_else_fits_the_same_node_is_tried_again_but_not_for_ever() -> None:
    leader = moving(west=3)
    seen = [move_of(leader).targets[1]]
    for _ in range(SAME_NODE_MAX + 2):
        stage(leader, "comparing", stuck={seen[-1]: "it has confirmed nothing for 60 s"})
        pass_time(leader, MOVE_LOOK_MS + 2000)
        if move_of(leader).targets[1] != seen[-1]:
            seen.append(move_of(leader).targets[1])
    assert len(seen) == 1 + SAME_NODE_MAX
    assert nodes(leader) == ["west-0", "west-1", "west-2"]
    assert leader.host.events.count("MoveWaits") == 1


@pytest.mark.covers("MV-9")
def test_a_move_that_waits_too_long_for_somebody_to_fit_is_called_off_with_a_reason() -> None:
    leader = moving(west=3)
    del leader.host.contact["west-1"]
    pass_time(leader, TARGET_PATIENCE_MS + GIVE_UP_MS - 10_000)
    assert not move_of(leader).cancelled
    pass_time(leader, 12_000)
    move = move_of(leader)
    assert move.cancelled
    assert "west-1" in move.cancel_reason
    assert "no other broker can" in move.cancel_reason
    assert leader.host.events.count("MoveGivenUp") == 1


@pytest.mark.parametrize(("late", "leads"), [("joint", True), ("learning", False)])
def test_a_move_is_not_called_off_where_its_group_decides_or_nobody_can_say(late: str, leads: bool) -> None:
    leader = moving(west=3)
    stage(leader, late)
    if not leads:
        leader.host.facts["S"] = None
    del leader.host.contact["west-1"]
    pass_time(leader, TARGET_PATIENCE_MS + 2 * GIVE_UP_MS)
    assert not move_of(leader).cancelled


def test_a_target_that_comes_back_late_has_the_whole_time_again() -> None:
    leader = moving(west=3)
    del leader.host.contact["west-1"]
    pass_time(leader, TARGET_PATIENCE_MS + GIVE_UP_MS - 20_000)
    leader.host.contact["west-1"] = ("west", "vol-west_1")
    pass_time(leader, MOVE_LOOK_MS + 2000)
    del leader.host.contact["west-1"]
    pass_time(leader, GIVE_UP_MS)
    assert not move_of(leader).cancelled


def two_streams_and_room_for_one(room_bytes: int = 200_000) -> Meta:
    """S is on its way to west, where every broker has so much room; T, as large, is in east. A copy takes 120,000 bytes."""
    leader = meta(**{f"east_{i}": "east" for i in range(1, 3)} | {f"west_{i}": "west" for i in range(3)})
    for name in ("S", "T"):
        leader.done("create", name=name, num_replicas=3, placement={"cluster": "east"})
    leader.host.rooms = {f"west-{i}": Room(room_bytes, room_bytes) for i in range(3)}
    leader.done("update", num_replicas=3, placement=WEST)
    stage(leader, "learning")
    return leader


@pytest.mark.covers("MV-2")
def test_room_that_copies_under_way_will_take_is_no_room_for_another_move() -> None:
    leader = two_streams_and_room_for_one()
    refused = leader.refused("move", OPERATOR, name="T", placement=WEST)
    assert refused.err_code == 10005
    assert "65000 bytes beside 135000 for copies under way, 135000 are needed" in refused.description
    assert leader.stream("T").move is None


def test_what_a_copy_under_way_has_taken_already_is_not_kept_for_it_a_second_time() -> None:
    leader = two_streams_and_room_for_one()
    targets = move_of(leader).targets
    leader.host.facts["S"] = facts_of(
        leader.stream(), move={"stage": "learning", "lacking": dict.fromkeys(targets, 8000)}
    )
    pass_time(leader, MOVE_LOOK_MS + 2000)
    leader.done("move", OPERATOR, name="T", placement=WEST)
    assert leader.stream("T").move is not None


@pytest.mark.parametrize("how", ["called off", "in memory"])
def test_room_is_not_kept_for_copies_that_will_not_take_it(how: str) -> None:
    leader = two_streams_and_room_for_one()
    if how == "called off":
        leader.done("cancel_move", OPERATOR)
        leader.done("move", OPERATOR, name="T", placement=WEST)
    else:
        leader.done("create", name="M", num_replicas=3, storage="memory", placement={"cluster": "east"})
        leader.done("move", OPERATOR, name="M", placement=WEST)


def test_what_is_kept_for_a_move_is_there_for_whoever_joins_instead() -> None:
    leader = two_streams_and_room_for_one()
    leader.host.contact["west-1"] = ("west", "vol-new")
    pass_time(leader, 2000)
    assert move_of(leader).targets[1].startswith("west-1@vol-new.")


@pytest.mark.covers("SF-6", "MV-9")
def test_a_moving_stream_that_nobody_leads_is_told_of_once_though_all_brokers_are_linked() -> None:
    leader = moving(west=3)
    leader.host.facts["S"] = None
    pass_time(leader, TARGET_PATIENCE_MS - 5000)
    assert "MoveWaits" not in leader.host.events
    pass_time(leader, 3 * TARGET_PATIENCE_MS)
    assert leader.host.events.count("MoveWaits") == 1
    text = leader.host.texts[leader.host.events.index("MoveWaits")]
    assert "most of west-0, west-1, west-2 too" in text
    assert text.endswith(
        "all of them are in contact, so check /healthz of each for the state of its copy (a disk error, for instance)"
    )
    stage(leader, "learning")
    pass_time(leader, MOVE_LOOK_MS + 2000)
    assert not move_of(leader).cancelled


def leave(leader: Meta, node: str) -> None:
    """DELETE /admin/brokers/<node>."""
    asked: list[object] = []
    leader.replica.brokers.ask(node, asked.append, lambda: asked.append("undecided"), leaves=True)
    leader.turn()
    assert asked == [None]


@pytest.mark.covers("MV-2", "MV-9")
def test_a_target_whose_broker_leaves_gives_its_place_to_another_one_though_it_is_well() -> None:
    leader = moving()
    stage(leader, "comparing")
    leave(leader, "west-1")
    pass_time(leader, 3000)
    assert nodes(leader) == ["west-0", "west-3", "west-2"]
    assert "leaves" in leader.host.texts[leader.host.events.index("MoveTargetReplaced")]


@pytest.mark.covers("MV-9")
def test_where_nobody_fits_in_place_of_a_broker_that_leaves_the_move_is_called_off_with_the_reason() -> None:
    leader = moving(west=3)
    leave(leader, "west-1")
    pass_time(leader, 3000)
    move = move_of(leader)
    assert move.cancelled
    assert "west-1" in move.cancel_reason
    assert "its broker leaves the super-cluster, and no other broker can" in move.cancel_reason
    assert "waited" not in move.cancel_reason


def test_a_target_on_a_broker_that_leaves_stays_once_it_votes() -> None:
    leader = moving()
    stage(leader, "joint")
    leave(leader, "west-1")
    pass_time(leader, GIVE_UP_MS + 5000)
    assert nodes(leader) == ["west-0", "west-1", "west-2"]
    assert not move_of(leader).cancelled
    assert "too late" in leader.host.texts[leader.host.events.index("MoveWaits")]
