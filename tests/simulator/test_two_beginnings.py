"""A map of streams begins once (SF-26): a founder that lost its volume begins another one, and the two never become one."""

from __future__ import annotations

import pytest
from tests.simulator.ledger import Ledger
from tests.simulator.world import World


def bootstrap_of(world: World, name: str) -> str:
    core = world.nodes[name].core
    assert core is not None
    return core.map.bootstrap_id


@pytest.mark.covers("SF-26")
@pytest.mark.parametrize("seed", range(4))
def test_two_maps_never_merge(seed: int) -> None:
    world = World(seed, 3, meta_voters=1)
    for name in world.names:
        world.start(name)

    def voters(name: str) -> int:
        core = world.nodes[name].core
        return len(core.meta.raft.committed_membership.voters) if core and core.meta else 0

    assert world.run_until(lambda: all(voters(name) == 3 for name in world.names), 20_000)
    first = bootstrap_of(world, "n0")
    assert first
    assert {bootstrap_of(world, name) for name in world.names} == {first}
    world.stop("n0", power=False)
    world.lose_volume("n0")
    for other in ("n1", "n2"):
        world.cut("n0", other)
    # What the other map does is judged by itself: in one history it would break every invariant.
    world.apart["n0"] = Ledger(world)
    world.start("n0")
    assert world.run_until(lambda: bootstrap_of(world, "n0") not in ("", first), 10_000)
    world.mend()
    world.run(world.now_us / 1000 + 5000)
    assert [bootstrap_of(world, name) == first for name in world.names] == [False, True, True]
    n0, n1 = world.nodes["n0"].core, world.nodes["n1"].core
    assert n0 is not None
    assert n1 is not None
    assert not n0.peers.linked
    assert set(n1.peers.linked) == {"n2"}
    assert any("begun twice" in trouble for trouble in n0.map_lineages.troubles)
    assert any("begun twice" in trouble for trouble in n1.map_lineages.troubles)
    # The way out: the volume of the later beginning goes, and its broker joins.
    world.stop("n0", power=False)
    world.lose_volume("n0")
    del world.apart["n0"]
    world.join_only.add("n0")
    world.start("n0")
    assert world.run_until(lambda: bootstrap_of(world, "n0") == first, 20_000)
    assert world.run_until(lambda: not n1.map_lineages.troubles, 20_000)


@pytest.mark.covers("SF-26")
def test_a_broker_that_is_to_join_begins_no_map() -> None:
    world = World(5, 1)
    world.join_only.add("n0")
    world.start("n0")
    world.run(20_000)
    core = world.nodes["n0"].core
    assert core is not None
    assert core.meta is None
