"""The leader is lost, and all who stay know it at once: one election is enough, however late its messages are.

A broker that led hundreds of groups leaves hundreds of elections behind, whose requests wait for each other. Votes that are
divided would make it thousands."""

from __future__ import annotations

from zlib import crc32

import pytest
from tests.broker.raft.harness import World

from supercluster.broker.raft.config import Role
from supercluster.broker.raft.election import EAGER_TRIES

pytestmark = pytest.mark.covers("RP-1", "RP-3", "MV-5")

LOTS = range(40)


def leader_lost(
    lot: int, voters: str = "a b c", *, told: str | None = None, spread_ms: int | None = None
) -> World:
    """The first voter led, and is gone; the others, or those in `told`, were told."""
    world = World(seed=lot, config={"lot": lot})
    world.group(voters)
    first, *others = voters.split()
    world.elect(first)
    world.run(1000)
    world.crash(first)
    for member in others if told is None else told.split():
        world.nodes[member].wake(world.now_ms, first, spread_ms)
        world.collect(member)
    return world


@pytest.mark.parametrize("lot", LOTS)
def test_two_who_ask_each_other_do_not_divide_the_votes(lot: int) -> None:
    world = leader_lost(lot)
    term = world.nodes["b"].term
    # Both stand before either has heard of the other.
    world.now_ms += 800
    for member in ("b", "c"):
        world.nodes[member].tick(world.now_ms)
        world.collect(member)
        assert world.nodes[member].role is Role.PRECANDIDATE
    if lot % 2:
        world.queue.reverse()
    world.deliver()
    leader = world.leader()
    assert leader is not None
    assert leader.term == term + 1
    assert leader.ready_to_serve


@pytest.mark.parametrize("lot", LOTS)
def test_those_who_stay_stand_one_after_the_other(lot: int) -> None:
    world = leader_lost(lot, "a b c d e")
    config = world.nodes["b"].config
    waits_ms = sorted(world.nodes[member].next_deadline_ms() - world.now_ms for member in "bcde")
    # A quarter of the time-out lies between the first two at least; as soon as by the time-out all have stood.
    assert waits_ms[1] - waits_ms[0] >= config.election_timeout_ms // 4
    assert 0 < waits_ms[0] <= config.election_timeout_ms // 4 + 1
    assert waits_ms[-1] < 2 * config.election_timeout_ms


def test_it_is_not_always_the_same_who_stands_first() -> None:
    firsts = set()
    for lot in LOTS:
        nodes = leader_lost(lot).nodes
        firsts.add(min(nodes, key=lambda member: nodes[member].next_deadline_ms()))
    assert firsts == {"b", "c"}


def test_who_would_vote_for_another_waits_before_it_stands_itself() -> None:
    world = leader_lost(1)
    first = min(world.nodes, key=lambda member: world.nodes[member].next_deadline_ms())
    second = "c" if first == "b" else "b"
    # The second is due, and has not come to it yet: the request of the first is there before.
    world.now_ms += 490
    world.nodes[first].tick(world.now_ms)
    world.collect(first)
    while world.queue[0].to != second:
        world.queue.pop(0)
    world.send(world.queue.pop(0))
    node = world.nodes[second]
    assert node.next_deadline_ms() >= world.now_ms + node.config.election_timeout_ms // 2


def test_a_candidate_that_cannot_win_keeps_nobody_from_standing() -> None:
    """b reaches c alone, and asks it again and again; c reaches all the others."""
    world = leader_lost(3, "a b c d e")
    for member in ("d", "e"):
        world.cut |= {("b", member), (member, "b")}
    world.run(4000)
    leader = world.leader()
    assert leader is not None
    assert leader.id != "b"


@pytest.mark.parametrize("lot", LOTS)
def test_who_stands_first_for_a_group_that_is_alone_does_not_wait(lot: int) -> None:
    world = leader_lost(lot, spread_ms=1)
    first_ms, second_ms = sorted(node.next_deadline_ms() - world.now_ms for node in world.nodes.values())
    assert first_ms == 1
    assert second_ms >= world.nodes["b"].config.election_timeout_ms // 2
    world.run(10)
    assert world.leader() is not None


@pytest.mark.parametrize("later_ms", [1, 30, 60])
def test_who_hears_of_the_loss_later_delays_the_election_by_little(later_ms: int) -> None:
    """The first in line asks when the other still believes in the leader, and is refused."""
    world = leader_lost(1, told="", spread_ms=1)
    first, second = sorted("bc", key=lambda member: (crc32(member.encode(), 1), member), reverse=True)
    world.nodes[first].wake(world.now_ms, "a", 1)
    world.collect(first)
    world.run(later_ms)
    assert world.leader() is None
    world.nodes[second].wake(world.now_ms, "a", 1)
    world.collect(second)
    world.run(world.nodes[first].config.election_timeout_ms // 20 + 1)
    leader = world.leader()
    assert leader is not None
    assert leader.id == first


def test_who_is_refused_asks_soon_a_few_times_only() -> None:
    """A member that alone lost its leader's link does not go on asking those who hear the leader."""
    world = World(seed=1, config={"lot": 1})
    world.group("a b c")
    world.elect("a")
    world.run(1000)
    world.cut |= {("a", "b"), ("b", "a")}
    world.trace = True
    world.nodes["b"].wake(world.now_ms, "a", 1)
    world.run(world.nodes["b"].config.election_timeout_ms - 100)
    asked = [event for event in world.events if "b -> c" in event and "pre" in event.lower()]
    assert 1 <= len(asked) <= 1 + EAGER_TRIES
    leader = world.leader()
    assert leader is not None
    assert leader.id == "a"


@pytest.mark.parametrize("lot", LOTS)
def test_the_longer_log_does_not_wait_behind_the_shorter_one(lot: int) -> None:
    """Under load the first in line often lacks what the second already has."""
    world = World(seed=lot, config={"lot": lot})
    world.group("a b c")
    world.elect("a")
    world.run(1000)
    first, second = sorted("bc", key=lambda member: (crc32(member.encode(), lot), member), reverse=True)
    world.cut |= {("a", first), (first, "a")}
    world.propose("a", "x")
    world.deliver()
    world.crash("a")
    for member in "bc":
        world.nodes[member].wake(world.now_ms, "a", 1)
        world.collect(member)
    world.run(20)
    leader = world.leader()
    assert leader is not None
    assert leader.id == second
