"""When a stream on its way to green counts as stalled (BG-9)."""

from __future__ import annotations

import pytest

from supercluster.broker.jetstream.migration.headway import Headway

pytestmark = pytest.mark.covers("BG-9")


def test_another_step_and_copies_that_come_closer_are_headway_and_a_lag_that_grows_is_none() -> None:
    found = Headway(0)
    found.look("catching up", 100, 0)
    assert found.none_ms(5) == 5
    for now_ms, lag, none_ms in ((10, 90, 0), (20, 95, 10), (30, 90, 20), (40, 89, 0)):
        found.look("catching up", lag, now_ms)
        assert found.none_ms(now_ms) == none_ms
    found.look("another step", 500, 50)
    assert found.none_ms(50) == 0
    found.look("another step", 499, 60)
    assert found.none_ms(60) == 0
