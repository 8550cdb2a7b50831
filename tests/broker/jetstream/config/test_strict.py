"""What pedantic requests are refused that others get filled in; the rows of `tests/compat` ask nats-server the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supercluster.broker.jetstream.api.parser import parse_api
from supercluster.broker.jetstream.api.requests import ConsumerCreateRequest, StreamCreateRequest
from supercluster.broker.jetstream.config import strict
from supercluster.broker.jetstream.config.consumer_checks import read_consumer
from supercluster.broker.jetstream.config.limits import NO_SERVER_LIMITS, ServerLimits
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.errors import ApiError

SECOND = 1_000_000_000


def ask(call: str, body: dict[str, Any]) -> object:
    return parse_api(f"$JS.API.{call}".encode(), json.dumps(body).encode())


@pytest.mark.parametrize(
    ("fields", "err_code"),
    [
        ({"max_msgs": -2}, 10157),
        ({"max_age": 60 * SECOND}, 10157),
        ({"subject_delete_marker_ttl": SECOND}, 10052),
        ({"allow_msg_schedules": True}, 10052),
        ({"republish": {"dest": "r.>"}}, 10157),
        ({"subject_transform": {"src": "S", "dest": "T"}, "republish": {"src": ">", "dest": ">"}}, 10157),
    ],
)
def test_what_would_be_filled_in_for_a_stream_is_refused(fields: dict[str, Any], err_code: int) -> None:
    for call in ("CREATE", "UPDATE"):
        ask(f"STREAM.{call}.S", {"name": "S", "pedantic": False, **fields})
        with pytest.raises(ApiError) as refused:
            ask(f"STREAM.{call}.S", {"name": "S", "pedantic": True, **fields})
        assert refused.value.err_code == err_code


@pytest.mark.parametrize(
    "fields",
    [{"max_deliver": -2}, {"max_waiting": -1}, {"backoff": [SECOND]}, {"priority_timeout": -1}],
)
def test_what_would_be_filled_in_for_a_consumer_is_refused(fields: dict[str, Any]) -> None:
    ask("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": fields})
    with pytest.raises(ApiError) as refused:
        ask("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": fields, "pedantic": True})
    assert refused.value.err_code == 10157


def test_a_pedantic_configuration_that_passes_is_like_any_other() -> None:
    body = {"name": "S", "max_age": 60 * SECOND, "duplicate_window": 60 * SECOND}
    call, relaxed = ask("STREAM.CREATE.S", {**body, "pedantic": True}), ask("STREAM.CREATE.S", body)
    assert isinstance(call, StreamCreateRequest)
    assert isinstance(relaxed, StreamCreateRequest)
    assert (call.pedantic, relaxed.pedantic, call.config == relaxed.config) == (True, False, True)
    consumer = ask("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {}, "pedantic": True})
    assert isinstance(consumer, ConsumerCreateRequest)
    assert consumer.pedantic


def test_limits_of_the_stream_and_direct_gets_of_the_origin_are_not_filled_in() -> None:
    stream = read_stream({"name": "S", "consumer_limits": {"max_ack_pending": 5}})
    strict.check_consumer_limits(read_consumer({"max_ack_pending": 5}), stream, NO_SERVER_LIMITS)
    with pytest.raises(ApiError, match="max_ack_pending must be set"):
        strict.check_consumer_limits(read_consumer({}), stream, NO_SERVER_LIMITS)
    boundless, limits = read_stream({"name": "S"}), ServerLimits(5, duplicate_window_ms=1000)
    with pytest.raises(ApiError, match="max_request_batch must be set"):
        strict.check_consumer_limits(read_consumer({}), boundless, limits)
    strict.check_consumer_limits(read_consumer({"max_batch": 9}), boundless, limits)
    strict.check_consumer_limits(read_consumer({"deliver_subject": "x"}), boundless, limits)
    with pytest.raises(ApiError, match="duplicate window limits are higher"):
        strict.check_window(boundless, limits)
    strict.check_window(read_stream({"name": "S", "duplicate_window": SECOND}), limits)
    origin = read_stream({"name": "O", "allow_direct": True})
    mirror = read_stream({"name": "M", "mirror": {"name": "O"}})
    strict.check_mirror(mirror, lambda _: None)
    with pytest.raises(ApiError, match="direct get"):
        strict.check_mirror(mirror, lambda _: origin)
