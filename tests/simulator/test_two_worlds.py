"""Two super-clusters in one network: each has its own map, and both know each other's brokers while a migration runs, by far names."""

from __future__ import annotations

import pytest
from tests.broker.migration.two_worlds import TwoWorlds
from tests.simulator.cutover_plan import BLUE, GREEN
from tests.simulator.cutover_world import WORLD
from tests.simulator.ledger import MAIN

CONFIG = {"name": MAIN, "subjects": ["orders.>"], "num_replicas": 3}


def begun(seed: int, *, equal_names: bool) -> TwoWorlds:
    """With a stream on blue."""
    world = TwoWorlds(seed, equal_names=equal_names)
    world.begin()
    answer = world.api("blue-1", f"$JS.API.STREAM.CREATE.{MAIN}", CONFIG)
    assert answer is not None
    assert "error" not in answer
    return world


def far_peers(world: TwoWorlds, side: str) -> list[set[str]]:
    return [set(core.peers.far) for core in world.cores(side)]


def names_of(world: TwoWorlds, side: str) -> set[str]:
    """As the other side calls them."""
    return {f"{world.own_name[key]}%{WORLD[side]}" for key in world.brokers(side)}


@pytest.mark.covers("BG-1")
@pytest.mark.parametrize("equal_names", [False, True])
def test_a_migration_links_every_broker_of_both_and_merges_no_map(equal_names: bool) -> None:
    world = begun(3, equal_names=equal_names)
    assert far_peers(world, BLUE) == far_peers(world, GREEN) == [set()] * 3
    world.migrate()
    world.run_ms(300)
    assert far_peers(world, BLUE) == [names_of(world, GREEN)] * 3
    assert far_peers(world, GREEN) == [names_of(world, BLUE)] * 3
    for side in (BLUE, GREEN):
        own = {world.own_name[key] for key in world.brokers(side)}
        leader = world.map_leader(side)
        assert leader is not None
        assert leader.meta is not None
        assert set(leader.meta.state.brokers) == own
        assert {name for core in world.cores(side) for name in core.peers.linked} == own


@pytest.mark.covers("BG-1")
def test_a_broker_that_is_lost_is_lost_to_the_other_side_and_found_again() -> None:
    world = begun(4, equal_names=True)
    world.migrate()
    world.run_ms(300)
    world.stop("green-1", power=True)
    world.run_ms(50)
    gone = f"nats-1%{WORLD[GREEN]}"
    assert all(gone not in found for found in far_peers(world, BLUE))
    assert all("nats-1" in core.peers.linked for core in world.cores(BLUE) if core.node != "nats-1")
    world.start("green-1")
    world.run_ms(300)
    assert all(gone in found for found in far_peers(world, BLUE))
    world.cut_worlds()
    assert far_peers(world, BLUE) == [set()] * 3
    world.mend()
    world.run_ms(300)
    assert far_peers(world, GREEN) == [names_of(world, BLUE)] * 3
