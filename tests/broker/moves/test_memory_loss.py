"""Streams in memory lose their copies by restarts alone: when they begin anew, and when they must not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.broker.moves.world import MoveWorld
from tests.support.tiers import case

from supercluster.broker.jetstream.config.stream import Placement, StreamConfig
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.move_record import Move
from supercluster.broker.jetstream.meta.stream_recovery import CopyFacts
from supercluster.broker.jetstream.meta_leader.memory_loss import held_by_targets, nobody_votes

EAST, WEST = ("east-0", "east-1", "east-2"), ("west-0", "west-1", "west-2")
MESSAGES = 200


def seeds(count: int) -> list[Any]:
    """The first in `make test`."""
    return [case(seed, id=str(seed), is_short=seed == 1) for seed in range(1, count + 1)]


def moving(seed: int, stage: str) -> MoveWorld:
    """A stream in memory with all of its messages, on the way to the west."""
    world = MoveWorld(seed, founders=EAST, east=3, west=3)
    world.begin()
    world.create("east", 3, storage="memory")
    world.run_ms(12_000)
    load = world.load("west-1", "acked", 0.2)
    assert world.run_until(lambda: load.sent >= MESSAGES, 60_000)
    load.runs = False
    assert world.run_until(lambda: not load.waiting, 5000)
    world.move(WEST)
    world.until(stage)
    return world


def restart(world: MoveWorld, *nodes: str) -> None:
    """All at once, so that nothing in their memory is left."""
    for node in nodes:
        world.stop(node, power=False)
    world.run_ms(170)
    for node in nodes:
        world.start(node)
    world.run_ms(8000)


def votes(world: MoveWorld, node: str) -> bool:
    group = world.groups().get(node)
    return group is not None and group.member in group.raft.committed_membership.voters


def said(world: MoveWorld, reason: str) -> list[str]:
    return [text for _, found, text in world.events if found == reason]


@pytest.mark.covers("SF-1", "SF-5", "MV-4", "RP-8")
@pytest.mark.parametrize("seed", seeds(4))
def test_a_moved_stream_outlives_its_old_members_before_the_map_knows_of_its_move(seed: int) -> None:
    world = moving(seed, "done")
    restart(world, *EAST)
    leader = world.leader()
    assert leader is not None
    assert leader.state.messages >= MESSAGES
    assert not said(world, "MemoryLost")
    world.finish()


@pytest.mark.covers("RP-8")
def test_new_copies_without_a_vote_are_given_up_by_a_person_alone() -> None:
    world = moving(1, "joint")
    group = world.assignment().group
    restart(world, *EAST)
    assert world.leader() is None
    assert world.assignment().group == group
    assert not said(world, "MemoryLost")
    (told,) = said(world, "VotersLost")
    assert "holds messages up to" in told
    assert "call the move off" in told
    world.cancel()
    assert world.run_until(lambda: world.leader() is not None, 30_000)
    assert world.assignment().group != group
    (told,) = said(world, "MemoryLost")
    assert "begins anew" in told


@pytest.mark.covers("RP-8", "SF-6")
@pytest.mark.parametrize("stage", ["handing over", "leaving"])
def test_new_copies_with_a_vote_are_not_given_up(stage: str) -> None:
    world = moving(2, stage)
    group = world.assignment().group
    restart(world, *EAST)
    assert world.assignment().group == group
    assert not said(world, "MemoryLost")


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("seed", seeds(3))
def test_members_that_are_restarted_one_after_the_other_keep_what_they_had(seed: int) -> None:
    world = MoveWorld(seed, founders=WEST, east=3, west=3)
    world.begin()
    world.create("east", 3, storage="memory")
    load = world.load("west-1", "acked", 5)
    assert world.run_until(lambda: load.sent >= MESSAGES, 60_000)
    group = world.assignment().group
    for node in EAST:
        world.stop(node, power=False)
        world.run_ms(50)
        world.start(node)
        # As soon as it votes again: all three say within seconds that they lost their copy.
        assert world.run_until(partial(votes, world, node), 10_000)
    load.runs = False
    world.run_ms(5000)
    assert world.assignment().group == group
    assert not said(world, "MemoryLost")
    world.finish()


# ---- the judgement ---------------------------------------------------------------------------------------------------

MEMBERS = tuple(f"{node}@1" for node in EAST)
TARGETS = tuple(f"{node}@1" for node in WEST)
FOUND = Assignment("$G", "S", "S.$G.S.1", StreamConfig("S", ("s",), storage="memory"), 1, MEMBERS, 0)
MOVING = replace(FOUND, move=Move("m", TARGETS, MEMBERS, Placement(), 0))


def left(node: str, **fields: object) -> CopyFacts:
    return CopyFacts(node, FOUND.group, f"{node}@1.new", is_open=True, **fields)  # type: ignore[arg-type]


BLANK = [left(node) for node in EAST]


@pytest.mark.covers("SF-4", "RP-8")
@pytest.mark.parametrize(
    ("found", "copies", "silent", "away"),
    [
        (FOUND, [*BLANK[:2], left("east-2", leader="east-2@1.new")], (), ()),
        (FOUND, [*BLANK[:2], left("east-2", voters=("east-2@1.new",))], (), ()),
        (FOUND, [*BLANK[:2], left("east-2", voters_outgoing=("east-2@1.new",))], (), ()),
        (FOUND, BLANK, ("east-1",), ()),
        (FOUND, BLANK, (), ("east-1",)),
        (MOVING, BLANK, (), ("west-1",)),
        (MOVING, BLANK, ("west-1",), ()),
        (MOVING, [*BLANK, left("west-0", voters=("west-0@1.new",))], (), ()),
    ],
)
def test_a_stream_in_memory_is_not_gone(
    found: Assignment, copies: list[CopyFacts], silent: tuple[str, ...], away: tuple[str, ...]
) -> None:
    contact = {*EAST, *WEST} - {*away}
    assert nobody_votes(found, copies, silent, contact) is None


@pytest.mark.covers("SF-4")
def test_a_stream_in_memory_is_gone() -> None:
    others = [left("west-0"), replace(left("east-0", leader="x"), group="another")]
    identities = frozenset((node, f"{node}@1.new") for node in EAST)
    assert nobody_votes(FOUND, BLANK, ("west-1",), EAST) == identities
    assert nobody_votes(MOVING, [*BLANK, *others], (), {*EAST, *WEST}) == identities | {
        ("west-0", "west-0@1.new")
    }


def test_what_new_copies_hold_is_named() -> None:
    copies = [*BLANK, replace(left("west-0", last_seq=7), member="west-0@1"), left("west-1")]
    assert held_by_targets(MOVING, copies) == "west-0 holds messages up to 7"
    assert MOVING.move is not None
    assert not held_by_targets(replace(MOVING, move=replace(MOVING.move, cancelled=True)), copies)
