"""The meta group's beginning, told as stories of whole brokers."""

from __future__ import annotations

import pytest
from tests.simulator.world import World

from supercluster.broker.jetstream.replica.lineage import META_GROUP
from supercluster.broker.storage.volume.volume import GROUPS, directory_name


def serving(world: World) -> list[str]:
    found = []
    for name, node in world.nodes.items():
        meta = node.core.meta if node.core is not None else None
        if meta is not None and meta.serves:
            found.append(name)
    return found


def loses_its_copy(world: World, name: str, group: str) -> None:
    """The group's directory is gone; the volume remembers that it was a member."""
    disk = world.nodes[name].store.disk
    disk.rmtree(f"{GROUPS}/{directory_name(group)}")


@pytest.mark.covers("SF-4", "RP-8")
def test_a_first_member_that_heard_nothing_of_the_beginning_votes_when_another_lost_its_copy() -> None:
    world = World(532)
    for name in world.names:
        world.start(name)
    n0, n1, n2 = (world.nodes[name] for name in world.names)
    assert world.run_until(lambda: n0.core is not None and n0.core.meta is not None, 1000)
    assert n2.core is not None
    assert n2.core.meta is None
    world.stop("n2", power=False)
    assert world.run_until(lambda: serving(world) == ["n0"] or serving(world) == ["n1"], 5000)
    world.run(world.now_us / 1000 + 500)
    world.stop("n1", power=False)
    loses_its_copy(world, "n1", META_GROUP)
    world.start("n1")
    world.run(world.now_us / 1000 + 3000)
    assert serving(world) == [], "of three voters one is left"
    world.start("n2")
    assert world.run_until(lambda: serving(world) == ["n0"], 10_000), "n0 has everything, and n2 its vote"
    assert n1.core is not None
    renewed = f"n1@{n1.store.incarnation}."
    assert world.run_until(
        lambda: (
            n0.core is not None
            and n0.core.meta is not None
            and any(voter.startswith(renewed) for voter in n0.core.meta.raft.committed_membership.voters)
        ),
        10_000,
    )
