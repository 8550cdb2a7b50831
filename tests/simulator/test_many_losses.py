"""Many streams that lose a broker at once are repaired within the budget, and publishers hardly notice (MR-4)."""

from __future__ import annotations

import pytest
from tests.simulator.many_losses import PER_NODE_MAX, REPAIRS_MAX, ManyLosses, at
from tests.support.tiers import ALL

DISTURBED_MAX = 1.2


@pytest.mark.covers("MR-4", "MR-2", "SF-8")
def test_publishers_wait_hardly_longer_while_many_streams_are_repaired() -> None:
    world = ManyLosses(streams=30, rate=150 if ALL else 50)
    found = world.run(8_000, 120_000)
    assert found.hit > 10
    assert 1 < found.most <= REPAIRS_MAX
    assert found.most_on_node <= PER_NODE_MAX
    for share in (0.5, 0.99):
        assert at(found.during, share) < DISTURBED_MAX * at(found.before, share)
    rate = len(found.during) / (found.ended_ms - found.began_ms)
    assert rate > len(found.before) / found.lost_ms / DISTURBED_MAX
    for each in world.assignments.values():
        assert len(each.members) == 3
