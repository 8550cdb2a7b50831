"""A group elects a leader, replicates, commits, and survives what a group has to survive."""

from __future__ import annotations

import pytest
from tests.broker.raft.harness import World

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
