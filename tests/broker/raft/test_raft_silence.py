"""Groups with a member that is away fall silent, and wake when it is back (SF-7, RP-3).

The invariant: in a silent group every member that the leader is linked with has the leader's log and commit index, and the
return of any other member's link wakes the leader."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.broker.raft.harness import World

from supercluster.broker.raft.config import RaftConfig
from supercluster.broker.raft.node import RaftNode

pytestmark = pytest.mark.covers("SF-7", "RP-3")


class Linked(World):
    """Members know who is linked, as brokers do."""

    believes = False
    """Every member takes all others for linked."""

    def begin(self, voters: str, learners: str = "") -> RaftNode:
        self.group(voters, learners)
        return self.elect("a")

    def settings(self, member: str) -> RaftConfig:
        return RaftConfig(member, is_linked=lambda other: self.believes or (member, other) not in self.cut)

    def part(self, one: str, other: str) -> None:
        self.cut |= {(one, other), (other, one)}
        for here, there in ((one, other), (other, one)):
            self._tell(here, there)

    def join(self, one: str, other: str) -> None:
        self.cut -= {(one, other), (other, one)}
        for here, there in ((one, other), (other, one)):
            self._tell(here, there)

    def _tell(self, here: str, there: str) -> None:
        self.nodes[here].wake(self.now_ms, there)
        self.collect(here)

    def is_silent(self, members: str) -> bool:
        return all(self.nodes[member].quiesced for member in members.split())


@pytest.mark.parametrize("away", ["c", "l"])
def test_a_group_is_silent_without_a_member_that_is_not_linked(away: str) -> None:
    world = Linked()
    world.begin("a b c", "l")
    world.part("a", away)
    world.part("b", away)
    world.propose("a", "x")
    world.run(4000)
    others = " ".join(member for member in ("a", "b", "c", "l") if member != away)
    assert world.is_silent(others)
    before = len(world.events)
    world.isolate(away)
    world.run(100_000)
    assert not [event for event in world.events[before:] if not event.startswith(away)], "nobody stirs"


def test_a_learner_that_comes_back_is_brought_up_to_date() -> None:
    """It never stands for election, so that nobody but the leader could begin."""
    world = Linked()
    leader = world.begin("a b c", "l")
    world.part("a", "l")
    for number in range(5):
        world.propose("a", str(number))
    world.run(4000)
    assert leader.quiesced
    assert world.nodes["l"].commit_index < leader.commit_index
    world.join("a", "l")
    world.run(4000)
    assert world.nodes["l"].commit_index == leader.commit_index
    assert world.is_silent("a b c l")


def test_a_linked_member_that_says_nothing_keeps_the_group_awake() -> None:
    world = Linked()
    leader = world.begin("a b c", "l")
    world.believes = True
    world.isolate("l")
    world.propose("a", "x")
    world.run(10_000)
    assert not leader.quiesced


class Patient(Linked):
    """As brokers are under load: silence comes before the patience with members that are away ends."""

    def settings(self, member: str) -> RaftConfig:
        return replace(super().settings(member), quiesce_after_ms=500, patience_ms=lambda _: 1000)


def test_a_leader_without_a_majority_of_links_steps_down_instead_of_falling_silent() -> None:
    """A silent leader has no deadline: it would be asked as the leader for good, and its stream stay Ready."""
    world = Patient()
    leader = world.begin("a b c")
    world.propose("a", "x")
    world.run(4000)
    world.part("a", "b")
    world.part("a", "c")
    world.run(10_000)
    assert not leader.is_leader


def test_a_silent_group_elects_when_its_leader_is_gone() -> None:
    world = Linked()
    world.begin("a b c d e")
    for other in "abcd":
        world.part(other, "e")
    world.propose("a", "x")
    world.run(4000)
    assert world.is_silent("a b c d")
    world.crash("a")
    for member in "bcd":
        world.nodes[member].wake(world.now_ms, "a")
        world.collect(member)
    world.run(2000)
    leader = world.leader()
    assert leader is not None
    assert leader.id in "bcd"


def test_a_member_that_only_another_follower_reaches_disturbs_and_deposes_nobody() -> None:
    world = Linked()
    leader = world.begin("a b c")
    world.part("a", "c")
    world.propose("a", "x")
    term = leader.term
    world.run(20_000)
    assert leader.is_leader
    assert leader.term == term
    world.join("a", "c")
    world.run(3000)
    assert world.nodes["c"].commit_index == leader.commit_index
    assert world.is_silent("a b c")


@pytest.mark.covers("SF-34")
def test_a_member_that_lost_records_wakes_the_silent_leader_for_them() -> None:
    """It stood for no election, and nobody wrote to it."""
    world = Linked()
    leader = world.begin("a b c")
    world.propose("a", "x")
    world.propose("a", "y")
    world.run(5000)
    assert leader.quiesced
    short = world.start("b", end=world.rot("b", 1))
    world.run(3000)
    assert (short.doubtful, short.log.last_index) == (False, leader.log.last_index)
