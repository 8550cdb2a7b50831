"""Room for new copies: the operator's judgement is the brokers'."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.jetstream.placement import choice
from supercluster.broker.jetstream.placement.choice import NodeFacts, Wanted
from supercluster.reconcilers.observe.views import living_stream
from supercluster.reconcilers.planners.room import room_needed, why_no_room, with_copy
from supercluster.reconcilers.planners.strategies import Node

SIZES = st.integers(0, 1 << 44)


@pytest.mark.covers("MR-5", "MV-2")
@given(SIZES, st.none() | SIZES, st.booleans())
def test_a_broker_that_the_brokers_would_refuse_is_not_planned_and_no_other_is_passed_over(
    copy_bytes: int, room_bytes: int | None, in_memory: bool
) -> None:
    assert room_needed(copy_bytes) == choice.room_needed(copy_bytes)
    wanted = Wanted(1, bytes_needed=choice.room_needed(copy_bytes))
    theirs = choice.choose([NodeFacts("a", "east", room_bytes=room_bytes)], wanted)
    told: dict[str, Any] = {"memory_room_bytes" if in_memory else "room_bytes": room_bytes}
    ours = Node("a", "east", is_room_awaited=room_bytes is None, **told)
    assert bool(why_no_room(ours, copy_bytes, in_memory=in_memory)) == bool(theirs.refusal), theirs


def test_what_nobody_asked_for_is_no_reason() -> None:
    assert why_no_room(Node("a", "east"), 1 << 40, in_memory=False) == ""
    full = Node("a", "east", room_bytes=0, memory_room_bytes=1 << 30)
    assert why_no_room(full, 0, in_memory=False) == "has 0 bytes of room, and 1 are needed"
    assert why_no_room(full, 1 << 20, in_memory=True) == ""
    left = with_copy(full, 1 << 29, in_memory=True)
    assert (left.room_bytes, left.memory_room_bytes, left.copies) == (0, (1 << 29) - (1 << 26), 1)


def test_a_stream_is_as_large_as_its_log_and_is_kept_where_its_configuration_says() -> None:
    told = {"config": {"name": "S", "storage": "memory"}, "state": {"bytes": 10}, "copy_bytes": 7000}
    assert (living_stream(told).bytes, living_stream(told).in_memory) == (7000, True)
    del told["copy_bytes"]
    told["config"] = {"name": "S", "storage": "file"}
    assert (living_stream(told).bytes, living_stream(told).in_memory) == (10, False), "older brokers"
