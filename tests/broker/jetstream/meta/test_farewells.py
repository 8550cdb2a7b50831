"""When a migration has nothing to say to green any more (BG-9)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supercluster.broker.jetstream.meta.farewells import FAREWELL_NS, Farewells
from supercluster.broker.jetstream.meta.migration import Green, Migration

WORLD = "94ee94ee"
ABORTED = Migration("m", Green("green"), WORLD, cancelled=True, dropped=(("A", 1), ("B", 1)))


@pytest.mark.covers("BG-9")
def test_green_is_told_for_as_long_of_a_stream_that_takes_the_place_of_another() -> None:
    found, later = Farewells(), replace(ABORTED, dropped=(("B", 1), ("C", 1)))
    assert found.ended([ABORTED], [ABORTED], 0) == []
    for group in "BC":
        found.on_dropped([later], WORLD, group, 1)
    assert found.ended([later], [later], FAREWELL_NS) == [], "a PREPARE of C may be under way"
    assert found.ended([later], [later], 2 * FAREWELL_NS) == [later]
