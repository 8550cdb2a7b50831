"""A stream moves under load between clusters, and nothing is lost, repeated or put in another order."""

from __future__ import annotations

import pytest
from tests.broker.moves.world import MoveWorld

from supercluster.broker.raft.confchange import node_of

WEST = ("west-0", "west-1", "west-2")
# Of the simulator's time: a few rounds between clusters. What MV-8 allows is ten times as much.
STALL_MS_MAX = 50


@pytest.mark.covers("MV-4", "MV-6", "MV-7", "MV-8", "MV-10")
def test_a_stream_moves_under_load_and_loses_nothing() -> None:
    world = MoveWorld(1, east=3, west=3)
    world.begin()
    world.create("east")
    world.load("east-0", "plain", 5)
    acked = world.load("west-1", "acked", 3)
    world.load("east-2", "retry", 7)
    world.run_ms(2000)
    started_us = world.now_us
    world.move(WEST)
    world.until("ended done")
    world.run_ms(1000)
    world.finish()
    assert sorted(map(node_of, world.assignment().members)) == list(WEST)
    assert sorted(world.groups()) == list(WEST), "the old brokers have closed their copies"
    assert acked.longest_gap_ms(started_us) < STALL_MS_MAX
    report = world.assignment().last_move
    assert report is not None
    assert report.audit.sequences == report.audit.last_seq > 500
    assert 500 < report.audit.messages <= report.audit.sequences
    assert {"comparing", "handing over", "leaving"} <= {stage for stage, ms in report.stage_ms.items() if ms}
    assert 0 < sum(report.stage_ms.values()) <= (report.ended_ns - report.started_ns) / 1e6 + 5
    assert set(report.audit.results.values()) == {"equal"}
    assert set(report.audit.results) >= set(world.assignment().members)


@pytest.mark.covers("MV-8")
def test_publishers_at_every_broker_stall_for_less_than_a_hand_overs_time_under_load() -> None:
    """In the simulator's time, in which only the rounds of messages take any, and for each publisher by itself: how long
    they wait on a machine, `make bench-moves` measures beside nats-server."""
    world = MoveWorld(1, east=3, west=3)
    world.begin()
    world.create("east")
    places = [f"{cluster}-{number}" for cluster in ("east", "west") for number in range(3)]
    loads = [world.load(place, "acked", 2) for place in places]
    world.run_ms(500)
    started_us, before = world.now_us, [len(load.acked) for load in loads]
    world.move(WEST)
    world.until("ended done")
    taken = [len(load.acked) - count for load, count in zip(loads, before, strict=True)]
    ended_us = world.now_us
    world.run_ms(200)
    for load, count in zip(loads, taken, strict=True):
        assert load.longest_gap_ms(started_us) < STALL_MS_MAX, load.node
        assert count > 0.8 * (ended_us - started_us) / 1000 / load.gap_ms, load.node
    world.finish()


@pytest.mark.covers("MV-13")
def test_what_is_left_of_a_move_is_what_the_entries_take_whatever_their_sizes() -> None:
    """Large entries first, small ones after them; what the log takes beside its entries does not count."""
    world = MoveWorld(1, east=3, west=3)
    world.begin()
    world.create("east")
    load = world.load("east-0", "plain", 0.02)
    world.run_ms(400)
    load.gap_ms = 6
    world.run_ms(2000)
    load.runs = False
    world.run_ms(300)
    leader = world.leader()
    assert leader is not None
    rate = 30_000
    world.move(WEST, rate)
    world.run_ms(6000)
    mover = leader.move.mover
    assert mover is not None
    found = mover.info()
    log = leader.log
    for target in leader.assignment.move.targets if leader.assignment.move is not None else ():
        match = leader.raft.progress[target].match
        assert 0 < match < log.last_index
        lacking = log.entries(match + 1, log.last_index, 1 << 40)
        while lacking[-1].index < log.last_index:
            lacking += log.entries(lacking[-1].index + 1, log.last_index, 1 << 40)
        held_bytes = sum(len(each.record) for each in lacking)
        assert found["lacking"][target] == pytest.approx(held_bytes, rel=0.01)
    assert found["eta_ns"] is not None
    right_ns = found["bytes_left"] / rate * 1e9
    assert 0.8 * right_ns < found["eta_ns"] < 1.2 * right_ns
