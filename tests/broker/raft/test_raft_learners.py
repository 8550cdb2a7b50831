"""How learners are fed: by their pace, a large append at a time, and never at the voters' cost."""

from __future__ import annotations

import pytest
from tests.broker.raft.harness import World

from supercluster.broker.moves.pace import Pace
from supercluster.broker.raft.confchange import Membership, MembershipChange
from supercluster.broker.raft.entry import Entry
from supercluster.broker.raft.messages import Heartbeat

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


@pytest.mark.covers("RP-7")
def test_learners_that_are_near_each_other_are_fed_from_one_reading_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.group("a b", "c d e")
    world.elect("a")
    for learner in "cde":
        world.isolate(learner)
    for _ in range(60):
        world.nodes["a"].propose(bytes(500 * KIB), time_ns=0)
        world.collect("a")
        world.deliver()
    world.run(50)
    log = world.disks["a"].log
    read: list[int] = []
    entries = log.entries

    def noted(first: int, last: int, bytes_max: int) -> list[Entry]:
        found = entries(first, last, bytes_max)
        read.extend(entry.index for entry in found if len(entry.record) > KIB)
        return found

    monkeypatch.setattr(log, "entries", noted)
    # Under a pace they take turns, so that no two are sent the same in one turn.
    world.nodes["a"].learner_pace = Pace(30_000_000, world.now_ms)
    world.heal()
    world.run(5000)
    learners = [world.disks[name].log for name in "cde"]
    assert all(held.last_index == log.last_index for held in learners)
    assert all(
        held.entries(1, held.last_index, 1 << 40) == entries(1, log.last_index, 1 << 40) for held in learners
    )
    assert len(read) < 60 * 1.5, "three copies, one reading"


def drop_learner(world: World) -> None:
    leader = world.nodes["a"]
    change = MembershipChange(leader.membership.index, leader.membership.voters, ())
    assert leader.propose_membership(change, 0) is None


@pytest.mark.covers("MV-13", "MV-9")
def test_a_removed_learner_that_lacks_much_gets_no_more_of_it() -> None:
    world = world_with_learner(80, 50 * KIB)
    leader = world.nodes["a"]
    leader.learner_pace = Pace(100_000, world.now_ms)
    world.heal()
    world.run(1000)
    drop_learner(world)
    leader.learner_pace = None
    assert fed(world, 15_000) <= 64 * KIB
    assert "c" not in leader.progress, "nobody waits for what it will never have"


@pytest.mark.covers("SF-5")
def test_a_removed_learner_that_lacks_next_to_nothing_hears_of_its_removal_and_nothing_after_it() -> None:
    world = world_with_learner(1, 100)
    world.heal()
    world.run(1000)
    drop_learner(world)
    leader = world.nodes["a"]
    for _ in range(5):
        leader.propose(bytes(100), time_ns=0)
    world.run(500)
    assert world.nodes["c"].membership.learners == ()
    assert world.disks["c"].log.last_index == leader.membership.index < leader.log.last_index
    assert "c" not in leader.progress


def answered_after(world: World, ms: int) -> None:
    """The next heartbeat to the learner is answered so much later; what else is on its way is lost."""
    world.deliver()
    leader = world.nodes["a"]
    world.now_ms = leader.next_deadline_ms()
    leader.tick(world.now_ms)
    world.collect("a")
    sent = [found for found in world.queue if isinstance(found, Heartbeat) and found.to == "c"]
    assert sent
    world.now_ms += ms
    world.deliver()


@pytest.mark.covers("BG-4")
def test_a_learners_round_trip_is_the_shortest_of_the_last_ones() -> None:
    world = World()
    world.group("a b", "c")
    leader = world.elect("a")
    assert leader.progress["c"].round_trip_ms == 0
    for ms in (40, 30, 35):
        answered_after(world, ms)
    assert (leader.progress["c"].round_trip_ms, leader.progress["b"].round_trip_ms) == (30, 0)
    for _ in range(8):
        answered_after(world, 45)
    assert leader.progress["c"].round_trip_ms == 45


@pytest.mark.covers("BG-4")
def test_a_heartbeat_that_is_lost_is_no_round_trip() -> None:
    world = World()
    world.group("a b", "c")
    leader = world.elect("a")
    answered_after(world, 20)
    world.isolate("c")
    answered_after(world, 20)
    world.run(300)
    world.heal()
    world.run(300)
    answered_after(world, 20)
    assert leader.progress["c"].round_trip_ms == 0, "here messages arrive at once"
    assert max(leader.progress["c"].round_trips_ms) == 20
