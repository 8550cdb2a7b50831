"""A directory that is gone stays lost until its group was joined under another name."""

from __future__ import annotations

import random

import pytest
from tests.simulator.stores import SimStore


@pytest.mark.covers("SF-4")
def test_a_directory_that_is_gone_is_lost_at_the_next_start_as_well() -> None:
    """The first start makes a new one, and may end before the volume knows the new identity."""
    machine = SimStore(random.Random(1))
    store = machine.start()
    assert not store.open("g", memory=False, fsync="always", create=True).lost
    store.register("g", "a@1")
    machine.crash(power=False)
    machine.lose_copy("g")
    for power in (False, True):
        assert machine.start().open("g", memory=False, fsync="always", create=False).lost
        machine.crash(power=power)
    store = machine.start()
    assert store.open("g", memory=False, fsync="always", create=False).lost
    store.register("g", "a@1.x")
    machine.crash(power=True)
    assert not machine.start().open("g", memory=False, fsync="always", create=False).lost
