"""A doubtful member that hears no leader says for whom it waits, by the answers to its last candidature (SF-4)."""

from __future__ import annotations

import pytest
from tests.broker.raft.harness import World

from supercluster.broker.jetstream.replica.doubt import why_without_leader

pytestmark = pytest.mark.covers("SF-4")

RECOVER = "supercluster recover stream S"


def three(*lost: str) -> World:
    """Three members, of which these are without power."""
    world = World()
    world.group("a b c")
    world.elect("a")
    assert world.propose("a", "x") is not None
    world.run(300)
    for member in lost:
        world.crash(member)
    return world


def test_it_names_those_that_do_not_answer_and_those_that_are_in_doubt_too() -> None:
    world = three("a", "b", "c")
    node = world.start("a", doubtful=True)
    assert why_without_leader(node, RECOVER) == "", "it has not asked"
    world.run(3000)
    alone = why_without_leader(node, RECOVER)
    assert "is elected or votes only when every voter answers; no answer from b, c; bring these" in alone
    world.start("b")
    world.run(3000)
    with_sound = why_without_leader(node, RECOVER)
    assert (
        "no answer from c; bring these brokers and their copies back; if they are gone for good, "
        in with_sound
    )
    world.crash("b")
    world.start("b", doubtful=True)
    world.run(3000)
    assert "no answer from c; b may lack entries too; bring these" in why_without_leader(node, RECOVER)
    assert world.leader() is None
    world.start("c")
    world.run(3000)
    assert world.leader() is not None


def test_one_that_lost_records_which_nobody_has_any_more_says_so_though_all_answer() -> None:
    world = three()
    ends = {member: world.rot(member, 1) for member in "abc"}
    node, *_ = [world.start(member, end=end) for member, end in ends.items()]
    world.run(5000)
    assert world.leader() is None
    told = why_without_leader(node, RECOVER)
    assert "lacks entries of its log that were damaged, and does not lead without them; `" in told
    assert told.endswith(f"`{RECOVER}` shows the copies and what going on from one of them may lose")
