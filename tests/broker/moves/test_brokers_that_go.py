"""A broker that goes for good, as the operator takes one away: emptied under load, forgotten, and perhaps back with its old volume."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.broker.moves.world import ACCOUNT, META, STREAM, MoveWorld

from supercluster.broker.jetstream.config.core_settings import CoreSettings
from supercluster.broker.jetstream.meta_leader.broker_requests import GONE_MS
from supercluster.broker.raft.confchange import node_of

# Longer than a broker is away before it is forgotten.
GRACE_MS = GONE_MS + 90_000


class Impatient(MoveWorld):
    """Copies that are nobody's are kept for fewer minutes than by default."""

    def _settings(self, name: str) -> CoreSettings:
        return replace(super()._settings(name), retired_grace_ms=GRACE_MS)


def members(world: MoveWorld) -> list[str]:
    return sorted(map(node_of, world.assignment().members))


def state_of(world: MoveWorld, node: str) -> dict[str, Any] | None:
    """What the map has of a broker; None when it knows none of that name."""
    status, told = world.call(lambda core, then: core.calls.broker("GET", node, then))
    return told if status == 200 else None


def drain(world: MoveWorld, node: str) -> None:
    """Say that it goes, and have its copy exchanged for one on another broker, dead or alive."""
    status, told = world.call(lambda core, then: core.calls.broker("DELETE", node, then))
    assert status == 200, told
    body = {"replace": [node], "awayMs": 0, "id": "drain"}
    status, told = world.call(lambda core, then: core.calls.move("POST", ACCOUNT, STREAM, body, then))
    assert status == 202, told
    assert world.run_until(lambda: world.assignment().move is None, 30_000), world.stage()


def emptied(whom: str) -> tuple[MoveWorld, str]:
    """A world in which `whom` (the stream's leader, or a follower) holds nothing any more; publishers go on."""
    world = Impatient(east=4)
    world.begin()
    world.create("east")
    # Publishers at a broker that stays.
    world.load(META, "ack", gap_ms=10)
    world.run_ms(300)
    leader = world.leader_node()
    node = leader if whom == "leader" else max(set(members(world)) - {leader})
    drain(world, node)
    return world, node


@pytest.mark.covers("OP-3", "SF-8", "MR-2")
@pytest.mark.parametrize("whom", ["leader", "follower"])
def test_its_copy_is_exchanged_under_load_and_it_holds_neither_copy_nor_vote(whom: str) -> None:
    world, node = emptied(whom)
    assert len(members(world)) == 3
    assert node not in members(world)

    def is_empty() -> bool:
        told = state_of(world, node)
        return told is not None and told["leaves"] and not told["votes"] and told["copies"] == 0

    for _ in range(60):
        if is_empty():
            break
        world.run_ms(500)
    assert is_empty()
    world.stop(node, power=False)
    world.run_ms(1000)
    world.finish()


@pytest.mark.covers("OP-3", "SF-4", "SF-5")
def test_one_that_was_forgotten_comes_back_with_its_old_volume_and_begins_with_nothing() -> None:
    world, node = emptied("follower")
    old = world.groups()[node].member
    before = members(world)
    for load in world.loads:
        load.runs = False  # Minutes are to pass.
    world.stop(node, power=False)
    world.run_ms(GONE_MS + 20_000)
    assert state_of(world, node) is None, "the map has forgotten it"
    world.start(node)
    world.run_ms(3_000)
    told = state_of(world, node)
    assert told is not None
    assert (told["leaves"], told["copies"]) == (False, 0)
    assert members(world) == before, "its old copy is nobody's"
    assert is_kept(world, node), "and kept, closed, for the grace time"
    assert node not in world.groups()
    world.run_ms(GRACE_MS)
    assert not is_kept(world, node), "and no longer"
    world.scale(4)
    assert world.run_until(lambda: world.assignment().move is None and len(members(world)) == 4, 30_000)
    assert node in members(world)
    assert world.groups()[node].member != old, "as a member with another name"
    world.finish()


def is_kept(world: MoveWorld, node: str) -> bool:
    """Is there a copy of the stream on its disk?"""
    core = world.nodes[node].core
    assert core is not None
    return world.assignment().group in core.store.registered()


@pytest.mark.covers("OP-3")
def test_one_that_is_to_stay_after_all_is_a_place_for_copies_again() -> None:
    world, node = emptied("follower")
    status, told = world.call(lambda core, then: core.calls.broker("POST", node, then))
    assert status == 200, told
    world.scale(4)
    assert world.run_until(lambda: world.assignment().move is None and len(members(world)) == 4, 30_000)
    assert node in members(world)
    world.finish()
