"""No turn of the loop grows with what a stream has: counted in calls of functions, at two sizes, with short slices.

A scan that is put back into a turn makes it fail.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from benchmarks.one_broker import SEGMENT_BYTES, BenchClock, CallMeter, OneBroker
from benchmarks.turns import SCENARIOS, Sizes, Turns

from benchmarks import one_broker, turns_of_sinks
from supercluster.broker.jetstream.api import direct_get, subjects_page
from supercluster.broker.jetstream.consumer import cursor, leader, leaders, pending_counts, working_state
from supercluster.broker.jetstream.node import pending_requests
from supercluster.broker.jetstream.publish import expiry, trimming
from supercluster.broker.jetstream.replica import replica
from supercluster.broker.jetstream.state import (
    consumer_start,
    consumer_states,
    lookup,
    message_ids,
    messages,
    stream_reader,
    subject_index,
)
from supercluster.broker.jetstream.stream import sink_release
from supercluster.broker.jetstream.turn import share as turn_share
from supercluster.broker.jetstream.turn import slices

# A slice is so much shorter here than in a broker, so that small streams take many.
SHORTER = 64
SHORTENED = (
    (leader, "PUMP_MESSAGES_MAX"),
    (leaders, "SLICE_UNITS"),
    (consumer_states, "PART_CONSUMERS"),
    (consumer_states, "PART_ROWS"),
    (working_state, "PUMP_MESSAGES_MAX"),
    (direct_get, "_SLICE_ANSWERS"),
    (expiry, "EXPIRY_MESSAGES_MAX"),
    (expiry, "EXPIRY_CHOSEN_MAX"),
    (cursor, "SCAN_MAX"),
    (replica, "APPLY_LEADER_ENTRIES"),
    (replica, "APPLY_LEADER_MESSAGES"),
    (replica, "APPLY_TURN_ENTRIES"),
    (replica, "APPLY_TURN_MESSAGES"),
    (lookup, "LOOKED_AT_MAX"),
    (message_ids, "CHUNK_SEQS"),
    (messages, "SLICE_MESSAGES"),
    (one_broker, "ACKS_OF_A_TURN"),
    (one_broker, "BLOCK_MESSAGES"),
    (one_broker, "PULLS_OF_A_TURN"),
    (pending_counts, "LOOKED_AT_MAX"),
    (pending_requests, "RESENT_MAX"),
    (pending_counts, "SLICE_UNITS"),
    (stream_reader, "COUNTED_MAX"),
    (stream_reader, "INDEX_ASKED_MAX"),
    (consumer_start, "SLICE_SEQS"),
    (subject_index, "PART_ROWS"),
    (subject_index, "SLICE_SUBJECTS"),
    (subjects_page, "SLICE_SUBJECTS"),
    (trimming, "CHOSEN_MAX"),
    (trimming, "FIRST_MAX"),
    (trimming, "LOOKED_AT_MAX"),
    (turn_share, "MESSAGES_MAX"),
    (turns_of_sinks, "BLOCK_ROWS"),
    (sink_release, "PART_ROWS_MAX"),
    (sink_release, "WHOLE_ROWS_MAX"),
)
FEW, MANY = (
    Sizes(messages=count, subjects=count, ids=count, consumers=count // 20, pulls=count // 125, pulled=500)
    for count in (500, 1_500)
)
# A start reads the last segment of each log: these are so short that the smaller streams have several.
START_SEGMENT_BYTES = 32 << 10
STARTING = ("start", "one_by_one", "whole_state")
SLACK_CALLS = 400
"""What differs by chance: longer numbers, another block read."""


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module, name in SHORTENED:
        monkeypatch.setattr(module, name, max(1, getattr(module, name) // SHORTER))
    monkeypatch.setattr(slices, "UNITS_PER_TURN", 1)
    yield
    gc.unfreeze()


@pytest.mark.covers("SF-29")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_no_turn_is_longer_where_there_is_three_times_as_much(
    scenario: Callable[[Turns], None], tmp_path: Path
) -> None:
    longest: list[dict[str, float]] = []
    segment_bytes = START_SEGMENT_BYTES if scenario.__name__ in STARTING else SEGMENT_BYTES
    for sizes in (FEW, MANY):
        directory, clock = tmp_path / str(sizes.messages), BenchClock(stands_still=True)
        broker = OneBroker(directory, CallMeter(), clock, segment_bytes=segment_bytes)
        broker.core.copies.slices.units_per_turn = 1
        turns = Turns(broker, sizes)
        scenario(turns)
        broker.core.close(clean=False)
        longest.append({figure.what: figure.longest for figure in turns.figures})
    few, many = longest
    assert few.keys() == many.keys()
    grown = {
        what: (few[what], calls) for what, calls in many.items() if calls > 1.8 * few[what] + SLACK_CALLS
    }
    assert not grown, f"calls of the longest turn, at both sizes: {grown}"
