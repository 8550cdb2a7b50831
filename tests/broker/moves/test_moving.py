"""A stream moves under load between clusters, and nothing is lost, repeated or put in another order."""

from __future__ import annotations

import pytest
from tests.broker.moves.world import MoveWorld

from supercluster.broker.raft.confchange import node_of

WEST = ("west-0", "west-1", "west-2")


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
    assert acked.longest_gap_ms(started_us) < 50
    report = world.assignment().last_move
    assert report is not None
    assert report.audit.messages == report.audit.last_seq > 500
    assert set(report.audit.results.values()) == {"equal"}
    assert set(report.audit.results) >= set(world.assignment().members)
