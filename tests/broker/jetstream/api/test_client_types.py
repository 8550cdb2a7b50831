"""What nats-py writes is read, and what we answer is read by nats-py: the client library's own types on both sides."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from nats.js import api as client

from supercluster.broker.jetstream.api import answers
from supercluster.broker.jetstream.api.parser import parse_api
from supercluster.broker.jetstream.api.requests import ConsumerCreateRequest, StreamCreateRequest
from supercluster.broker.jetstream.config.consumer_checks import read_consumer
from supercluster.broker.jetstream.meta.accounts import NO_LIMITS
from supercluster.broker.jetstream.state.consumer import ConsumerState

SECOND = 1_000_000_000


def create_stream(**fields: Any) -> StreamCreateRequest:
    config = client.StreamConfig(**fields)
    found = parse_api(f"$JS.API.STREAM.CREATE.{config.name}".encode(), json.dumps(config.as_dict()).encode())
    assert isinstance(found, StreamCreateRequest)
    return found


def create_consumer(**fields: Any) -> ConsumerCreateRequest:
    config = client.ConsumerConfig(**fields)
    body = {"stream_name": "S", "config": config.as_dict()}
    kind = "DURABLE.CREATE" if config.durable_name else "CREATE"
    subject = f"$JS.API.CONSUMER.{kind}.S" + (f".{config.durable_name}" if config.durable_name else "")
    found = parse_api(subject.encode(), json.dumps(body).encode())
    assert isinstance(found, ConsumerCreateRequest)
    return found


def test_a_plain_stream_of_the_client_is_natss_default() -> None:
    found = create_stream(name="S", subjects=["s.*"]).config
    assert (found.name, found.subjects, found.storage, found.num_replicas) == ("S", ("s.*",), "file", 1)
    assert (found.max_msgs, found.max_msg_size, found.duplicate_window_ns) == (-1, -1, 120 * SECOND)


def test_a_key_value_bucket_of_the_client_is_a_stream() -> None:
    found = create_stream(
        name="KV_b",
        subjects=["$KV.b.>"],
        allow_direct=True,
        allow_rollup_hdrs=True,
        deny_delete=True,
        discard=client.DiscardPolicy.NEW,
        duplicate_window=120,
        max_age=3600,
        max_msgs_per_subject=5,
        num_replicas=3,
        storage=client.StorageType.MEMORY,
        placement=client.Placement(cluster="east", tags=["ssd"]),
        metadata={"a": "b"},
    ).config
    assert (found.discard, found.storage, found.max_age_ns) == ("new", "memory", 3600 * SECOND)
    assert (found.placement.cluster, found.placement.tags) == ("east", ("ssd",))
    assert found.allow_direct
    assert found.deny_delete


def test_the_clients_consumers_are_read() -> None:
    found = create_consumer(durable_name="d", filter_subject="s.1", max_deliver=3, ack_wait=1.5, backoff=None)
    assert (found.name, found.config.ack_policy, found.config.ack_wait_ns) == (
        "d",
        "explicit",
        SECOND * 3 // 2,
    )
    assert found.config.filter_subjects == ("s.1",)
    start = dt.datetime(2026, 1, 31, 12, 0, 0, 250_000, tzinfo=dt.UTC)
    timed = create_consumer(
        deliver_policy=client.DeliverPolicy.BY_START_TIME,
        opt_start_time=start,
        backoff=[1, 2],
        inactive_threshold=30,
        filter_subjects=["a", "b"],
    ).config
    assert timed.opt_start_time_ns == int(start.timestamp() * 1000) * 1_000_000
    assert timed.backoff_ns == (SECOND, 2 * SECOND)
    assert timed.inactive_threshold_ns == 30 * SECOND


def body(answer: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer)
    return found


def test_the_client_reads_what_we_say_of_a_stream() -> None:
    config = create_stream(
        name="S", subjects=["s.*"], max_age=60, placement=client.Placement(cluster="east")
    ).config
    cluster = answers.ClusterInfo(
        "east", "east-0", [answers.ReplicaInfo("east-1", current=True, active_ns=5, lag=2)]
    )
    state = answers.StreamStateInfo(
        messages=2,
        bytes=9,
        first_seq=1,
        last_seq=2,
        first_time_ns=SECOND,
        last_time_ns=SECOND,
        consumer_count=1,
    )
    info = answers.stream_info(config, SECOND, state, cluster, 2 * SECOND)
    found = client.StreamInfo.from_response(body(answers.stream_create_answer(info, did_create=True)))
    assert found.did_create
    assert found.config.max_age == 60
    assert found.config.placement.cluster == "east"
    assert (found.state.messages, found.state.last_seq, found.state.consumer_count) == (2, 2, 1)
    assert (found.cluster.leader, found.cluster.replicas[0].name, found.cluster.replicas[0].lag) == (
        "east-0",
        "east-1",
        2,
    )
    assert found.created.timestamp() == 1


def test_the_client_reads_what_we_say_of_a_consumer() -> None:
    config = read_consumer({"durable_name": "d", "ack_policy": "explicit", "backoff": [SECOND]})
    state = ConsumerState(name="d", config=config, created_ns=SECOND, start_seq=1)
    info = answers.consumer_info("S", state, num_waiting=1, num_pending=2, cluster=None, now_ns=SECOND)
    found = client.ConsumerInfo.from_response(body(answers.info_answer("consumer_create", info)))
    assert (found.stream_name, found.name, found.num_pending, found.num_waiting) == ("S", "d", 2, 1)
    assert (found.config.durable_name, found.config.ack_wait, found.config.max_ack_pending) == ("d", 1, 1000)
    assert found.delivered.stream_seq == 0


def test_the_client_reads_a_message_and_an_account() -> None:
    raw = body(answers.message_answer(5, b"s.1", b"", b"x", SECOND))["message"]
    message = client.RawStreamMsg.from_response(raw)
    assert (message.seq, message.subject, message.time.timestamp()) == (5, "s.1", 1)
    account = client.AccountInfo.from_response(
        body(answers.account_info_answer(answers.AccountTotals(streams=3), NO_LIMITS))
    )
    assert (account.streams, account.limits.max_streams, account.api.errors) == (3, -1, 0)
