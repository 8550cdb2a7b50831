"""How learners are fed: by their pace, a large append at a time, and never at the voters' cost."""

from __future__ import annotations

import pytest
from tests.broker.raft.harness import World

from supercluster.broker.moves.pace import Pace
from supercluster.broker.raft.confchange import Membership

KIB = 1024


def world_with_learner(entries: int, size: int) -> World:
    """A leader with a log, and a learner that was cut off and holds next to nothing of it."""
    world = World()
    world.group("a b", "c")
    world.elect("a")
    world.isolate("c")
    for _ in range(entries):
        world.nodes["a"].propose(bytes(size), time_ns=0)
        world.collect("a")
        world.deliver()
    world.run(50)
    return world


def fed(world: World, for_ms: int) -> int:
    """Bytes that the learner is sent in a time, counted at its log."""
    log = world.disks["c"].log
    before = log.last_index
    world.run(for_ms)
    return sum(len(entry.record) for entry in log.entries(before + 1, log.last_index, 1 << 40))


@pytest.mark.covers("MV-13")
def test_learners_get_no_more_than_their_pace_and_voters_are_not_held_back() -> None:
    world = world_with_learner(80, 50 * KIB)
    leader = world.nodes["a"]
    leader.learner_pace = Pace(1_000_000, world.now_ms)
    world.heal()
    taken = fed(world, 2000)
    assert 1_200_000 < taken < 2_500_000
    entry = leader.propose(b"new", time_ns=0)
    assert entry is not None
    world.collect("a")
    world.deliver()
    assert leader.commit_index == entry.index, "the voters have it while the learner is still copied"
    leader.learner_pace = None
    world.run(2000)
    assert world.disks["c"].log.last_index == world.disks["a"].log.last_index
    assert leader.progress["c"].total_bytes >= 80 * 50 * KIB


@pytest.mark.covers("MV-8")
def test_a_large_append_to_a_learner_leaves_once_a_millisecond_at_most() -> None:
    world = world_with_learner(40, 500 * KIB)
    world.heal()
    world.run(200)
    leader = world.nodes["a"]
    sizes: list[int] = []
    while world.disks["c"].log.last_index < world.disks["a"].log.last_index:
        before = leader.progress["c"].total_bytes
        world.run(1)
        sizes.append(leader.progress["c"].total_bytes - before)
        assert len(sizes) < 1000
    assert not sizes or max(sizes) <= 2 * 1024 * KIB


def test_a_learner_is_fed_no_slower_than_a_message_a_millisecond() -> None:
    world = world_with_learner(40, 500 * KIB)
    world.heal()
    start_ms = world.now_ms
    while world.disks["c"].log.last_index < world.disks["a"].log.last_index:
        world.run(1)
        assert world.now_ms - start_ms < 1000
    assert Membership.decode(world.nodes["c"].membership.encode()).learners == ("c",)
