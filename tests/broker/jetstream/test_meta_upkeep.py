"""What the meta group's leader does unasked about moves: targets that are gone."""

from __future__ import annotations

import pytest
from tests.broker.jetstream.meta_story import OPERATOR, Meta, facts_of, meta

from supercluster.broker.jetstream.meta_upkeep import TARGET_PATIENCE_MS, UPKEEP_EVERY_MS
from supercluster.broker.jetstream.move_record import Move
from supercluster.broker.jetstream.stream_facts import MemberFacts

WEST = {"cluster": "west"}


def moving(west: int = 4) -> Meta:
    """Stream S on its way from east to west-0, west-1 and west-2."""
    names = {f"east_{i}": "east" for i in range(1, 3)} | {f"west_{i}": "west" for i in range(west)}
    leader = meta(**names)
    leader.done("create", num_replicas=3, placement={"cluster": "east"})
    leader.done("update", num_replicas=3, placement=WEST)
    stage(leader, "learning")
    return leader


def stage(leader: Meta, name: str, *voting: str) -> None:
    """What the stream's leader says from now on."""
    found = leader.stream()
    members = [
        *(MemberFacts(m, True, True, 0) for m in found.members),
        *(MemberFacts(m, True, True, 0) for m in voting),
    ]
    leader.host.facts["S"] = facts_of(found, members=tuple(members), move={"stage": name})


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
    index = leader.group.log.last_index
    leader.host.contact["west-1"] = ("west", "vol-west_1")
    pass_time(leader, 5000)
    assert leader.group.log.last_index == index, "who comes back too late is not taken in again"


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
    leader.group.copy_lost("west-1", leader.stream().group, old[1], leader.host.now_ms)
    pass_time(leader, 2000)
    targets = move_of(leader).targets
    assert (targets[0], targets[2]) == (old[0], old[2])
    assert targets[1].startswith("west-1@vol-west_1.")
    assert targets[1] != old[1]


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
    assert leader.group.state.streams == {}
