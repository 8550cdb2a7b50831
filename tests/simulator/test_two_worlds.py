"""Two super-clusters in one network: each has its own map, and both know each other's brokers while a migration runs, by far names."""

from __future__ import annotations

import pytest
from tests.broker.migration.two_worlds import TwoWorlds
from tests.simulator.cutover_plan import BLUE, GREEN
from tests.simulator.cutover_world import WORLD
from tests.simulator.ledger import MAIN

from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.ports import Channel

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


@pytest.mark.covers("SF-21")
def test_behind_handed_blue_takes_nothing_back_however_long_green_is_silent() -> None:
    world = begun(5, equal_names=False)
    load = world.load("blue-0", "acked")
    world.migrate()
    assert world.run_until(lambda: bool(world.cuts.streams) and world.stream().is_handed, 10_000)
    world.cut_worlds()
    world.run_ms(5000)
    stream = world.stream()
    assert stream.is_handed
    assert not stream.opened
    acked = len(load.acked)
    world.mend()
    assert world.run_until(lambda: bool(stream.opened), 10_000)
    world.run_ms(1000)
    assert len(load.acked) > acked
    world.finish()


@pytest.mark.covers("SF-20", "BG-4")
def test_what_blue_has_stored_under_a_message_id_is_stored_by_green_no_second_time() -> None:
    world = begun(6, equal_names=True)
    load = world.load("blue-1", "retry", 5)
    assert world.run_until(lambda: len(load.acked) > 10, 5000)
    load.runs = False
    world.migrate()
    assert world.run_until(lambda: bool(world.cuts.stalls_ms), 10_000)
    world.run_ms(1000)
    for number, key in enumerate(("blue-0", "green-1", "blue-1")):
        core = world.nodes[key].core
        assert core is not None
        load._offer(core, number)
    assert world.run_until(lambda: not load.waiting, 5000)
    world.finish()
    assert len(world.ledger.stored) == load.sent


@pytest.mark.covers("SF-19", "BG-4")
def test_a_number_whose_verdict_was_not_heard_before_the_cut_keeps_it_behind_the_cut() -> None:
    world = begun(7, equal_names=True)
    load = world.load("blue-0", "plain", 5)
    world.run_ms(200)
    send = world.send

    def deaf(frm: str, to: str, frame_type: int, body: bytes, channel: Channel = Channel.CONTROL) -> bool:
        if frame_type == Frame.VERDICTS and world.key_of(frm, to) == "blue-0" and not world.cuts.stalls_ms:
            return True
        return send(frm, to, frame_type, body, channel)

    world.send = deaf  # type: ignore[method-assign]
    leader = world.leader_key()
    if leader == "blue-0":
        world.api("blue-1", f"$JS.API.STREAM.LEADER.STEPDOWN.{MAIN}", None)
        assert world.run_until(lambda: world.leader_key() not in ("", "blue-0"), 5000)
    stored = len(world.ledger.stored)
    assert world.run_until(lambda: len(world.ledger.stored) > stored + 10, 5000)
    load.runs = False
    world.migrate()
    assert world.run_until(lambda: bool(world.cuts.stalls_ms), 15_000)
    load.runs = True
    load.publish()
    world.run_ms(1000)
    world.finish()
    assert len(world.ledger.stored) == load.sent
