"""How far green's copies are behind, as blue's leader sees them: what is under way is no lag."""

from __future__ import annotations

import pytest
from tests.broker.jetstream.migration.two_worlds import FAR, GREEN_NODE, TwoWorlds, started

from supercluster.broker.jetstream.migration.green_copies import LAG_MS_UNKNOWN, copies_seen, far_learners
from supercluster.broker.migration.plan import LAG_MS_MAX, Copy


def learning() -> TwoWorlds:
    """Green's copy has all that blue has."""
    worlds = started()
    worlds.begin_migration()
    worlds.until(lambda: bool(far_learners(worlds.leader().group)))
    return worlds


def seen(worlds: TwoWorlds) -> Copy:
    group = worlds.leader().group
    return copies_seen(group, (FAR,), group.state.cut, (GREEN_NODE,))[FAR]


@pytest.mark.covers("BG-4")
def test_what_a_copy_lacks_for_no_longer_than_a_round_trip_is_no_lag() -> None:
    worlds = learning()
    worlds.is_linked = False
    worlds.publish(1, b"x")
    worlds.settle(200)
    progress = worlds.leader().group.raft.progress[FAR]
    lag_ms = seen(worlds).lag_ms
    assert lag_ms > LAG_MS_MAX
    progress.round_trips_ms = (150,)
    assert seen(worlds).lag_ms == lag_ms - 150
    assert seen(worlds).round_trip_ms == 150
    progress.round_trips_ms = (500,)
    assert seen(worlds).lag_ms == 0


@pytest.mark.covers("BG-4")
def test_a_copy_that_lacks_an_entry_without_a_time_is_not_near() -> None:
    worlds = learning()
    progress = worlds.leader().group.raft.progress[FAR]
    progress.match = 0
    assert worlds.leader().group.log.entry(1).time_ns == 0  # type: ignore[union-attr]
    assert seen(worlds).lag_ms >= LAG_MS_UNKNOWN
    assert not seen(worlds).is_near
