"""What a broker allows every stream and consumer, and how many batches."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.jetstream.publish.test_fast_batches import APPEND, START, Story

from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.config.consumer_checks import read_consumer
from supercluster.broker.jetstream.config.limits import ServerLimits, consumer_within, stream_within
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.publish.atomic_batches import (
    BATCH_ID,
    BATCH_SEQUENCE,
    BatchError,
    Batches,
    Candidate,
    batch_room,
)
from supercluster.broker.jetstream.publish.fast_batches import FastBatches, fast_batch_room

SECOND = 1_000_000_000
TEN_S = ServerLimits(duplicate_window_ms=10_000)
SMALL = ServerLimits(max_request_batch=5, max_ack_pending=10)


def stream(**more: Any) -> StreamConfig:
    return read_stream({"name": "S", **more})


def consumer(**more: Any) -> ConsumerConfig:
    return read_consumer({"name": "C", "ack_policy": "explicit", **more})


def test_a_stream_that_names_no_duplicate_window_gets_the_longest_that_is_allowed() -> None:
    assert stream_within(stream(), TEN_S).duplicate_window_ns == 10 * SECOND
    assert stream_within(stream(max_age=3 * SECOND), TEN_S).duplicate_window_ns == 3 * SECOND
    assert stream_within(stream(mirror={"name": "O"}), TEN_S).duplicate_window_ns == 0
    assert stream_within(stream(), ServerLimits()) == stream()


def test_a_longer_duplicate_window_is_refused() -> None:
    allowed = stream(duplicate_window=10 * SECOND)
    assert stream_within(allowed, TEN_S) == allowed
    for window_ns in (10 * SECOND + 1, 120 * SECOND):
        with pytest.raises(ApiError) as error:
            stream_within(stream(duplicate_window=window_ns), TEN_S)
        assert error.value.err_code == 10052
        assert error.value.description == "duplicates window can not be larger then server limit of 10s"


def within(asked: ConsumerConfig, limits: ServerLimits) -> ConsumerConfig:
    config = asked.for_stream(read_stream({"name": "S"}), server_ack_pending=limits.max_ack_pending)
    return consumer_within(config, limits)


@pytest.mark.parametrize(
    ("asked", "max_batch", "max_ack_pending"),
    [
        ({}, 5, 10),
        ({"max_batch": 4, "max_ack_pending": 9}, 4, 9),
        ({"max_batch": -1, "max_ack_pending": -1}, 5, -1),
        ({"ack_policy": "none"}, 5, 0),
        ({"deliver_subject": "d"}, 0, 10),
    ],
)
def test_consumers_that_name_nothing_get_the_limits(
    asked: dict[str, Any], max_batch: int, max_ack_pending: int
) -> None:
    found = within(consumer(**asked), SMALL)
    assert (found.max_batch, found.max_ack_pending) == (max_batch, max_ack_pending)
    assert within(consumer(**asked), ServerLimits()) == consumer(**asked)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"max_batch": 6}, 10125),
        ({"max_ack_pending": 11}, 10121),
        ({"max_ack_pending": 11, "ack_policy": "none"}, 10121),
    ],
)
def test_consumers_that_ask_for_more_are_refused(asked: dict[str, Any], code: int) -> None:
    with pytest.raises(ApiError) as error:
        within(consumer(**asked), SMALL)
    assert error.value.err_code == code


def begin(batches: Batches, name: bytes, number: int = 1) -> int:
    """The first message of a batch, or another; err_code, 0: none."""
    header = b"NATS/1.0\r\n%b: %b\r\n%b: %d\r\n\r\n" % (BATCH_ID, name, BATCH_SEQUENCE, number)
    try:
        batches.add(Candidate(b"a", header, b"x"), 0, allowed=True)
    except BatchError as error:
        return error.code
    return 0


def test_batches_are_counted_per_stream_and_over_all_that_a_broker_leads() -> None:
    limits = ServerLimits(batches_per_stream_max=2, batches_max=3, batch_messages_max=2)
    room = batch_room(lambda: limits)
    one, other = Batches(), Batches()
    one.room = other.room = room
    assert [begin(one, name) for name in (b"a", b"b", b"c")] == [0, 0, 10210]
    assert [begin(other, name) for name in (b"d", b"e")] == [0, 10210]
    assert [begin(one, b"a", number) for number in (2, 3)] == [0, 10199]
    assert begin(other, b"e") == 0, "the one that was too large has made room"
    del other
    assert begin(one, b"f") == 0, "batches of a leader that fell are none"


def test_a_batch_may_be_silent_for_as_long_as_the_limit_says() -> None:
    batches = Batches()
    batches.room = batch_room(lambda: ServerLimits(batch_timeout_ms=1000))
    assert begin(batches, b"a") == 0
    assert batches.next_ns() == SECOND
    batches.sweep(SECOND - 1)
    assert batches.take_abandoned() == []
    batches.sweep(SECOND)
    assert batches.take_abandoned() == [(b"a", "timeout")]


def test_fast_batches_are_held_to_the_same() -> None:
    room = fast_batch_room(lambda: ServerLimits(batches_per_stream_max=1, batch_timeout_ms=1000))
    story = Story()
    story.fast = FastBatches("S", story._hear, room)
    story.fast.allowed = True
    story.send(1, START)
    story.settle(1)
    story.told()
    story.fast.judge(story.client, story.reply(1, START, name="c"), now_ms=story.now_ms)
    assert story.told()[0]["error"]["err_code"] == 10211
    story.now_ms += 1000
    story.send(2, APPEND)
    assert story.told()[0]["error"]["err_code"] == 10208, "it was silent for too long"
