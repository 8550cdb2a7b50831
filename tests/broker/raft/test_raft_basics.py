"""A group elects a leader, replicates, commits, and survives what a group has to survive."""

from __future__ import annotations

import pytest
from tests.broker.raft.harness import World

from supercluster.broker.raft.confchange import membership_of
from supercluster.broker.raft.config import Role


@pytest.mark.covers("RP-1")
def test_three_members_elect_one_leader_and_commit() -> None:
    world = World()
    world.group("a b c")
    world.run(3000)
    leader = world.leader()
    assert leader is not None
    assert world.propose(leader.id, "x") is not None
    world.run(500)
    assert {node.commit_index for node in world.nodes.values()} == {2}
    assert [node.role for node in world.nodes.values()].count(Role.LEADER) == 1


@pytest.mark.covers("RP-1")
def test_a_single_voter_leads_at_once_and_commits_when_durable() -> None:
    world = World(sync_at_once=False)
    world.group("a")
    node = world.nodes["a"]
    assert node.is_leader
    assert not node.ready_to_serve
    world.disks["a"].log.sync()
    node.persisted(0)
    world.collect("a")
    assert node.ready_to_serve
    assert node.commit_index == 1


@pytest.mark.covers("BG-4")
def test_the_first_pre_vote_is_repeated_until_the_others_have_begun_the_group() -> None:
    world = World()
    world.add("a", membership_of(["a", "b", "c"]))
    world.nodes["a"].stand_within(50, world.now_ms, 10)
    world.run(220)  # The others have not begun it: nobody hears the pre-vote.
    assert world.leader() is None
    for member in ("b", "c"):
        world.add(member, membership_of(["a", "b", "c"]))
    world.run(60)
    leader = world.leader()
    assert leader is not None
    assert leader.id == "a"
    assert leader.term == 1, "pre-votes alone enter no term"


def test_pre_votes_that_nobody_hears_are_repeated_so_often_and_no_more() -> None:
    world = World(trace=True)
    world.add("a", membership_of(["a", "b", "c"]))
    world.nodes["a"].stand_within(50, world.now_ms, 3)
    world.run(500)
    asked = sum("a is precandidate" in event for event in world.events)
    assert asked == 3, world.events
    assert world.nodes["a"].term == 0


def test_a_group_that_had_a_leader_repeats_no_first_pre_votes() -> None:
    """The others led and voted before this one had begun it: behind a loss, election time-outs count as always."""
    world = World(trace=True)
    members = membership_of(["a", "b", "c"])
    for member in ("b", "c"):
        world.add(member, members)
    world.nodes["b"].stand_within(10, world.now_ms)
    world.run(300)
    leader = world.leader()
    assert leader is not None
    assert leader.id == "b"
    world.add("a", members)
    world.nodes["a"].stand_within(200, world.now_ms, 10)
    world.run(150)
    assert world.nodes["a"].leader == "b"
    world.isolate("a")
    world.events.clear()
    world.run(3000)
    asked = sum("a is precandidate" in event for event in world.events)
    assert 0 < asked <= 6, world.events
