"""Clients that publish through blue to streams that green has are counted and named (BG-12)."""

from __future__ import annotations

import pytest

from supercluster.broker.net.clients.redirect.crossings import Crossings
from supercluster.broker.protocol.client_reports import STREAMS_MAX

pytestmark = pytest.mark.covers("BG-12")


def test_messages_are_counted_per_connection_until_it_closes_and_few_streams_are_named() -> None:
    found = Crossings()
    for number in range(STREAMS_MAX + 4):
        found.add("A", f"S{number}", [1, 1, 2])
    found.add("A", "S0", [2])
    one, two = (found.with_waiting([])[connection]["A"] for connection in (1, 2))
    assert (one.messages, list(one.streams)) == (24, [f"S{number}" for number in range(STREAMS_MAX)])
    assert two.messages == found.messages_of(2) == 13
    found.went(1)
    assert list(found.with_waiting([])) == [2]
    assert (found.messages_of(1), found.total) == (0, 37), "the sum is of all that there ever were"


def test_what_waits_for_green_is_told_and_not_counted_before_green_has_the_stream() -> None:
    """A stream that goes back to blue takes it itself."""
    found = Crossings()
    found.add("A", "S", [1])
    told = found.with_waiting([("A", "S", iter([1, 1])), ("A", "T", iter([2]))])
    assert {number: each["A"].messages for number, each in told.items()} == {1: 3, 2: 1}
    assert (found.messages_of(1), found.messages_of(2), found.total) == (1, 0, 1)
