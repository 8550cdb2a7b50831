"""Streams' and consumers' configuration: NATS's JSON in and out, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.jetstream.api.consumer_requests import consumer_create
from supercluster.broker.jetstream.api.requests import ConsumerCreateRequest
from supercluster.broker.jetstream.config.consumer import (
    ConsumerConfig,
)
from supercluster.broker.jetstream.config.consumer_checks import (
    check_consumer_update,
    check_workqueue_filters,
    read_consumer,
)
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.config.stream_checks import check_not_sealed, check_update, read_stream
from supercluster.broker.jetstream.encoding.timestamps import format_duration, format_time, parse_time
from supercluster.broker.jetstream.errors import ApiError

SECOND = 1_000_000_000


def stream(**fields: Any) -> StreamConfig:
    return read_stream({"name": "T", "subjects": ["t.>"], **fields})


def consumer(**fields: Any) -> ConsumerConfig:
    return read_consumer({"name": "c", "durable_name": "c", **fields})


def test_a_stream_that_says_only_its_name_gets_natss_defaults() -> None:
    assert read_stream({"name": "A"}).to_json() == {
        "name": "A",
        "subjects": ["A"],
        "retention": "limits",
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "discard": "old",
        "storage": "file",
        "num_replicas": 1,
        "duplicate_window": 120 * SECOND,
        "compression": "none",
        "allow_direct": False,
        "mirror_direct": False,
        "sealed": False,
        "deny_delete": False,
        "deny_purge": False,
        "allow_rollup_hdrs": False,
        "consumer_limits": {},
        "allow_msg_ttl": False,
    }


def test_everything_a_stream_can_say_survives_the_way_to_json_and_back() -> None:
    config = stream(
        description="flights",
        retention="workqueue",
        storage="memory",
        discard="new",
        discard_new_per_subject=True,
        max_msgs_per_subject=5,
        max_msgs=100,
        max_bytes=1 << 30,
        max_age=3600 * SECOND,
        max_msg_size=1024,
        max_consumers=3,
        num_replicas=3,
        no_ack=True,
        placement={"cluster": "east", "tags": ["ssd"]},
        consumer_limits={"max_ack_pending": 5, "inactive_threshold": SECOND},
        first_seq=10,
        deny_delete=True,
        allow_rollup_hdrs=True,
        allow_direct=True,
        metadata={"supercluster.dev/resource": "ns/name", "_nats.ver": "2.15.1"},
    )
    assert read_stream(json.loads(json.dumps(config.to_json()))) == config
    assert config.metadata == {"supercluster.dev/resource": "ns/name"}
    assert config.to_json()["first_seq"] == 10


def test_the_duplicate_window_is_capped_by_the_age_when_it_is_not_set() -> None:
    assert stream(max_age=SECOND).duplicate_window_ns == SECOND
    assert stream(max_age=3600 * SECOND).duplicate_window_ns == 120 * SECOND


@pytest.mark.parametrize(
    ("fields", "err_code", "text"),
    [
        ({"zzz": 1}, 10025, 'unknown field "zzz"'),
        ({"retention": "foo"}, 10025, "limits, interest, workqueue"),
        ({"storage": "tape"}, 10025, "file, memory"),
        ({"max_msgs": "many"}, 10025, "'max_msgs' is \"many\""),
        ({"max_msgs": True}, 10025, "whole number"),
        ({"first_seq": -1}, 10025, "at least 0"),
        ({"first_seq": 2**63}, 10052, "first_seq 9223372036854775808 is over the limit"),
        ({"max_age": 5}, 10052, "max age needs to be >= 100ms"),
        ({"max_age": -5}, 10052, "max age can not be negative"),
        ({"duplicate_window": -1}, 10052, "duplicates window can not be negative"),
        ({"duplicate_window": 5}, 10052, "duplicates window needs to be >= 100ms"),
        ({"max_age": SECOND, "duplicate_window": 2 * SECOND}, 10052, "can not be larger then max age"),
        ({"num_replicas": 7}, 10052, "maximum replicas is 5"),
        ({"num_replicas": -1}, 10133, "negative"),
        ({"subjects": ["a..b"]}, 10052, "invalid subject"),
        ({"subjects": [""]}, 10052, "invalid subject"),
        ({"subjects": ["a.>.b"]}, 10052, "invalid subject"),
        ({"subjects": ["$JS.API.x"]}, 10052, "jetstream api"),
        ({"subjects": ["*.API.x"]}, 10052, "jetstream api"),
        ({"subjects": ["$SYS.x"]}, 10052, "system api"),
        ({"subjects": [">"]}, 10052, "capturing all subjects"),
        ({"subjects": ["b.>", "b.x"]}, 10052, 'subject "b.>" overlaps with "b.x"'),
        ({"discard_new_per_subject": True}, 10052, "discard new policy"),
        ({"discard_new_per_subject": True, "discard": "new"}, 10052, "max msgs per subject > 0"),
        ({"deny_purge": True, "allow_rollup_hdrs": True}, 10052, "roll-ups"),
        ({"description": "x" * 5000}, 10052, "description is too long"),
        ({"mirror": {"name": "S"}}, 10034, "can not contain subjects"),
        ({"compression": "zstd"}, 10025, "unknown compression algorithm"),
        ({"persist_mode": "bogus"}, 10025, "default, async"),
        ({"persist_mode": "async", "storage": "memory"}, 10052, "only supported on file storage"),
        ({"persist_mode": "async", "num_replicas": 3}, 10052, "not supported on replicated streams"),
        ({"persist_mode": "async", "allow_atomic": True}, 10052, "not supported with atomic batch publish"),
        ({"subject_delete_marker_ttl": -1}, 10052, "subject delete marker TTL must not be negative"),
        ({"subject_delete_marker_ttl": SECOND // 2}, 10052, "delete marker TTL must be at least 1 second"),
        ({"allow_msg_counter": True, "discard": "new"}, 10052, "counter stream cannot use discard new"),
        ({"allow_msg_counter": True, "retention": "interest"}, 10052, "can only use limits retention"),
        ({"allow_msg_counter": True, "allow_msg_ttl": True}, 10052, "cannot use message TTLs"),
        ({"allow_msg_counter": True, "allow_msg_schedules": True}, 10052, "cannot use message schedules"),
        ({"placement": {"zone": "x"}}, 10025, 'unknown field "zone"'),
        ({"name": "a.b"}, 10052, "is required and can not contain"),
        ({"name": "a/b"}, 10052, "is required and can not contain"),
        ({"name": ""}, 10052, "required"),
    ],
)
def test_what_a_stream_may_not_say_is_refused_by_name(
    fields: dict[str, Any], err_code: int, text: str
) -> None:
    with pytest.raises(ApiError) as refused:
        stream(**fields)
    assert refused.value.err_code == err_code
    assert text in refused.value.description


def test_delete_markers_bring_along_what_they_need() -> None:
    config = stream(subject_delete_marker_ttl=2 * SECOND, deny_purge=True)
    assert (config.allow_msg_ttl, config.allow_rollup_hdrs, config.deny_purge) == (True, True, False)
    assert config.to_json()["subject_delete_marker_ttl"] == 2 * SECOND
    assert read_stream(config.to_json()) == config


def test_fields_without_a_mechanism_may_say_what_is_so_anyway() -> None:
    config = stream(mirror=None, sources=[], compression="none", allow_msg_ttl=False, persist_mode="default")
    assert config == stream()


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ({}, {"storage": "memory"}, "can not change storage type"),
        ({}, {"retention": "workqueue"}, "to/from workqueue"),
        ({"deny_purge": True}, {}, "cancel deny purge"),
        ({"allow_msg_counter": True}, {}, "can not change message counter setting"),
        ({}, {"allow_msg_counter": True}, "can not change message counter setting"),
        ({"num_replicas": 1}, {"num_replicas": 1, "persist_mode": "async"}, "can not change persist mode"),
        ({"allow_msg_schedules": True}, {}, "message schedules can not be disabled"),
        ({"allow_msg_ttl": True}, {}, "message TTL status can not be disabled"),
        ({"deny_delete": True}, {}, "cancel deny message deletes"),
        ({"sealed": True}, {}, "unseal"),
        ({"first_seq": 5}, {"first_seq": 9}, "first_seq"),
        ({}, {"num_replicas": 3, "placement": {"cluster": "west"}}, "move and scale"),
    ],
)
def test_a_stream_update_may_not_change(before: dict[str, Any], after: dict[str, Any], text: str) -> None:
    with pytest.raises(ApiError, match=text):
        check_update(stream(**before), stream(**after))


def test_a_stream_update_may_change_limits_and_subjects() -> None:
    check_update(
        stream(), stream(subjects=["u.>"], max_msgs=5, retention="interest", description="x", sealed=True)
    )


@pytest.mark.covers("MV-3")
def test_a_move_and_a_change_of_replicas_are_never_one_step() -> None:
    for placement in ({"cluster": "west"}, {"tags": ["ssd"]}):
        with pytest.raises(ApiError) as refused:
            check_update(stream(), stream(num_replicas=3, placement=placement))
        assert refused.value.err_code == 10123
        assert refused.value.description == "can not move and scale a stream in a single update"
    check_update(stream(), stream(num_replicas=3, placement={"preferred": "east-1"}))


def test_a_new_stream_can_not_be_sealed() -> None:
    with pytest.raises(ApiError, match="sealed"):
        check_not_sealed(stream(sealed=True))


def test_a_durable_consumer_gets_natss_defaults() -> None:
    assert consumer(ack_policy="explicit").to_json() == {
        "durable_name": "c",
        "name": "c",
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": 30 * SECOND,
        "max_deliver": -1,
        "replay_policy": "instant",
        "max_waiting": 512,
        "max_ack_pending": 1000,
        "num_replicas": 0,
    }


def test_an_ephemeral_consumer_without_acknowledgements_gets_natss_defaults() -> None:
    assert read_consumer({}).to_json() == {
        "deliver_policy": "all",
        "ack_policy": "none",
        "max_deliver": -1,
        "replay_policy": "instant",
        "max_waiting": 512,
        "inactive_threshold": 5 * SECOND,
        "num_replicas": 0,
    }


def test_everything_a_consumer_can_say_survives_the_way_to_json_and_back() -> None:
    config = consumer(
        description="d",
        deliver_policy="by_start_time",
        opt_start_time="2026-11-21T07:24:12.15Z",
        ack_policy="explicit",
        max_deliver=5,
        backoff=[SECOND, 2 * SECOND],
        filter_subjects=["t.a", "t.b"],
        max_ack_pending=-1,
        max_waiting=7,
        max_batch=5,
        max_expires=SECOND,
        max_bytes=100,
        inactive_threshold=SECOND,
        headers_only=True,
        num_replicas=1,
        mem_storage=True,
        metadata={"a": "b"},
    )
    assert config.ack_wait_ns == SECOND
    assert [config.wait_ns(n) for n in (1, 2, 3, 9)] == [SECOND, 2 * SECOND, 2 * SECOND, 2 * SECOND]
    assert read_consumer(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize(
    ("fields", "err_code", "text"),
    [
        ({"foo": 1}, 10025, 'unknown field "foo"'),
        ({"idle_heartbeat": 5}, 10088, "requires a push based consumer"),
        ({"priority_groups": ["A"]}, 10196, "when policy is none"),
        ({"pause_until": "tomorrow"}, 10025, "RFC 3339"),
        ({"name": "d"}, 10132, "have to be equal"),
        ({"name": "a.b", "durable_name": ""}, 10052, "can not contain"),
        ({"name": "n" * 256, "durable_name": ""}, 10012, "error creating store"),
        ({"name": "n" * 256, "durable_name": "n" * 256}, 10102, "maximum allowed is 255"),
        ({"ack_policy": None}, 10025, "has to be one of none, all, explicit"),
        ({"opt_start_time": ""}, 10025, "RFC 3339"),
        ({"name": "a/b", "durable_name": ""}, 10127, "path separators"),
        ({"ack_wait": -1, "ack_policy": "explicit"}, 10183, "positive"),
        ({"backoff": [-1]}, 10184, "positive"),
        ({"backoff": [1, 2, 3], "max_deliver": 2}, 10116, "length of backoff"),
        ({"max_expires": 5}, 10115, ">= 1ms"),
        ({"filter_subject": "a", "filter_subjects": ["b"]}, 10136, "both"),
        ({"filter_subjects": ["a", ""]}, 10139, "cannot be empty"),
        ({"filter_subjects": ["s.1", "s.*"]}, 10138, "overlap"),
        ({"filter_subject": "a..b"}, 10052, "invalid subject"),
        ({"deliver_policy": "by_start_sequence"}, 10094, "optional start sequence is not set"),
        ({"deliver_policy": "by_start_time"}, 10094, "optional start time is not set"),
        ({"deliver_policy": "last_per_subject"}, 10094, "optional filter subject is not set"),
        ({"opt_start_seq": 4}, 10094, "deliver all, but optional start sequence is also set"),
        ({"opt_start_time": "yesterday"}, 10025, "RFC 3339"),
        ({"num_replicas": -1}, 10133, "negative"),
    ],
)
def test_what_a_consumer_may_not_say_is_refused_by_name(
    fields: dict[str, Any], err_code: int, text: str
) -> None:
    with pytest.raises(ApiError) as refused:
        consumer(**fields)
    assert refused.value.err_code == err_code
    assert text in refused.value.description


@pytest.mark.parametrize(
    ("fields", "stream_fields", "err_code"),
    [
        ({"ack_policy": "none"}, {"retention": "workqueue"}, 10084),
        ({"ack_policy": "all"}, {"retention": "workqueue"}, 10098),
        ({"ack_policy": "none", "deliver_subject": "d"}, {"retention": "workqueue"}, 10098),
        ({"ack_policy": "explicit", "deliver_policy": "new"}, {"retention": "workqueue"}, 10101),
        ({"num_replicas": 3}, {}, 10126),
        ({"num_replicas": 1}, {"retention": "interest", "num_replicas": 3}, 10134),
        (
            {"ack_policy": "explicit", "max_ack_pending": 50},
            {"consumer_limits": {"max_ack_pending": 5}},
            10121,
        ),
        (
            {"ack_policy": "explicit", "max_ack_pending": 1000},
            {"consumer_limits": {"max_ack_pending": 5}},
            10121,
        ),
        (
            {"ack_policy": "none", "max_ack_pending": 6},
            {"consumer_limits": {"max_ack_pending": 5}},
            10121,
        ),
        ({"deliver_subject": "d"}, {"consumer_limits": {"max_ack_pending": 5}}, 10082),
        ({"inactive_threshold": 2 * SECOND}, {"consumer_limits": {"inactive_threshold": SECOND}}, 10153),
    ],
)
def test_a_stream_refuses_consumers(
    fields: dict[str, Any], stream_fields: dict[str, Any], err_code: int
) -> None:
    with pytest.raises(ApiError) as refused:
        consumer(**fields).for_stream(stream(**stream_fields))
    assert refused.value.err_code == err_code


def test_a_streams_consumer_limits_are_a_new_consumers_defaults() -> None:
    limits = {"max_ack_pending": 5, "inactive_threshold": SECOND}
    found = consumer(ack_policy="explicit").for_stream(stream(consumer_limits=limits))
    assert (found.max_ack_pending, found.inactive_threshold_ns) == (5, SECOND)
    ephemeral = read_consumer({"name": "c", "ack_policy": "explicit", "max_ack_pending": -1})
    found = ephemeral.for_stream(stream(consumer_limits=limits))
    assert (found.max_ack_pending, found.inactive_threshold_ns) == (-1, SECOND)


def test_of_several_limits_of_max_ack_pending_the_servers_is_told_then_the_accounts_then_the_streams() -> (
    None
):
    limited = stream(consumer_limits={"max_ack_pending": 100})

    def told(asked: int, account: int, server: int) -> str:
        with pytest.raises(ApiError) as refused:
            consumer(ack_policy="explicit", max_ack_pending=asked).for_stream(
                limited, account_ack_pending=account, server_ack_pending=server
            )
        assert refused.value.err_code == 10121
        return refused.value.description.rsplit(" ", 1)[1]

    assert (told(101, 7, 5), told(101, 5, 7), told(101, 5, 0), told(101, 0, 0)) == ("5", "7", "5", "100")
    assert (told(6, 5, 0), told(0, 0, 5)) == ("5", "5")
    found = consumer(ack_policy="explicit").for_stream(stream(), account_ack_pending=7, server_ack_pending=9)
    assert found.max_ack_pending == 7


@pytest.mark.parametrize("below", [-1, -2])
def test_limits_below_zero_are_none(below: int) -> None:
    limits = {"max_ack_pending": below, "inactive_threshold": below}
    found = consumer(ack_policy="explicit").for_stream(stream(consumer_limits=limits))
    assert (found.max_ack_pending, found.inactive_threshold_ns) == (-1, 0)


def test_what_a_consumer_was_not_asked_for_stays_open_when_it_is_named() -> None:
    body = json.dumps({"stream_name": "T", "config": {"ack_policy": "explicit"}}).encode()
    call = consumer_create(["T", "c"], body)
    assert isinstance(call, ConsumerCreateRequest)
    config = call.config
    limits = {"max_ack_pending": 5, "inactive_threshold": SECOND}
    found = config.for_stream(stream(consumer_limits=limits))
    assert (found.name, found.max_ack_pending, found.inactive_threshold_ns) == ("c", 5, SECOND)


def test_a_consumer_that_stands_in_a_log_is_read_as_it_is() -> None:
    for fields in ({"filter_subjects": ["a.b", "a.*"]}, {"backoff": [1] * 2000}, {"max_expires": 5}):
        with pytest.raises(ApiError):
            consumer(**fields)
        told = ConsumerConfig.from_json({"durable_name": "d", **fields})
        assert {field: told.to_json()[field] for field in fields} == fields


def test_threshold_and_expiry_below_zero_are_not_set() -> None:
    fields = {"inactive_threshold": -1, "max_expires": -1}
    durable, ephemeral = consumer(**fields), read_consumer(fields)
    assert (durable.inactive_threshold_ns, ephemeral.inactive_threshold_ns) == (0, 5 * SECOND)
    assert durable.max_expires_ns == ephemeral.max_expires_ns == 0


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"ack_policy": "all"}, "ack policy can not be updated"),
        ({"deliver_policy": "new"}, "deliver policy can not be updated"),
        ({"max_waiting": 5}, "max waiting can not be updated"),
    ],
)
def test_a_consumer_update_may_not_change(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ApiError, match=text) as refused:
        check_consumer_update(
            consumer(ack_policy="explicit"), consumer(**{"ack_policy": "explicit", **fields})
        )
    assert refused.value.err_code == 10012


def test_a_consumer_update_may_change_filters_and_waits() -> None:
    wanted = consumer(ack_policy="explicit", filter_subject="t.1", ack_wait=SECOND, max_deliver=3)
    check_consumer_update(consumer(ack_policy="explicit"), wanted)


def test_consumers_of_a_work_queue_may_not_share_subjects() -> None:
    one = consumer(ack_policy="explicit", filter_subject="w.1")
    other = read_consumer({"name": "o", "ack_policy": "explicit", "filter_subject": "w.*"})
    with pytest.raises(ApiError, match="not unique"):
        check_workqueue_filters(other, {"c": one})
    with pytest.raises(ApiError, match="non-filtered"):
        check_workqueue_filters(read_consumer({"name": "o"}), {"c": one})
    check_workqueue_filters(one, {"c": one})


@given(st.integers(min_value=1, max_value=4_000_000_000_000_000_000))
def test_times_survive_the_way_to_text_and_back(time_ns: int) -> None:
    assert parse_time(format_time(time_ns)) == time_ns


def test_times_with_offsets_and_without_fractions() -> None:
    assert format_time(parse_time("2026-11-21T08:24:12.150+01:00")) == "2026-11-21T07:24:12.15Z"
    assert format_time(0) == "0001-01-01T00:00:00Z"
    with pytest.raises(ValueError, match="RFC 3339"):
        parse_time("2026-11-21 08:24")


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [(0, "0s"), (SECOND, "1s"), (90 * SECOND, "1m30s"), (250_000_000, "250ms"), (3_600 * SECOND, "1h0m0s")],
)
def test_durations_read_as_go_writes_them(duration_ns: int, text: str) -> None:
    assert format_duration(duration_ns) == text
