"""Elections on disks whose fsyncs take about as long as an election time-out, told as stories of whole brokers."""

from __future__ import annotations

from functools import partial

import pytest
from tests.simulator.seams import SimCore
from tests.simulator.world import World

from supercluster.broker.ports import Ticket


@pytest.mark.covers("RP-3", "SF-4")
@pytest.mark.parametrize("fsync_ms", [300, 550, 800])
def test_a_leader_is_found_however_long_votes_take_within_a_time_out(
    fsync_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_votes(core: SimCore, votes: list[tuple[str, Ticket]]) -> None:
        for group_id, ticket in votes:
            core._world.at(fsync_ms, partial(core._vote_is_through, group_id, ticket))

    monkeypatch.setattr(SimCore, "start_votes", start_votes)
    world = World(1, 3)
    for name in world.names:
        world.start(name)

    def is_led() -> bool:
        metas = (node.core.meta for node in world.nodes.values() if node.core is not None)
        return any(meta is not None and meta.serves for meta in metas)

    assert world.run_until(is_led, 60_000)
