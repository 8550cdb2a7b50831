"""The leader is lost, and all who stay know it at once: one election is enough, however late its messages are.

A broker that led hundreds of groups leaves hundreds of elections behind, whose requests wait for each other. Votes that are
divided would make it thousands."""

from __future__ import annotations

import pytest
from tests.broker.raft.harness import World

from supercluster.broker.raft.config import Role

pytestmark = pytest.mark.covers("RP-1", "RP-3", "MV-5")

LOTS = range(40)


def leader_lost(lot: int, voters: str = "a b c") -> World:
    """The first voter led, and is gone; the others were told."""
    world = World(seed=lot, config={"lot": lot})
    world.group(voters)
    first, *others = voters.split()
    world.elect(first)
    world.run(1000)
    world.crash(first)
    for member in others:
        world.nodes[member].wake(world.now_ms, first)
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
