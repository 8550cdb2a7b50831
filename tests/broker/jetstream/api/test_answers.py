"""The JetStream API: requests from subjects and payloads, and answers as nats-server 2.15.1 writes them."""

from __future__ import annotations

import contextlib
import json
from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.jetstream.api import answers
from supercluster.broker.jetstream.api.direct_get import DirectGetRequest
from supercluster.broker.jetstream.api.parser import answer_kind, parse_api, stream_of
from supercluster.broker.jetstream.api.requests import (
    AccountInfoRequest,
    ApiRequest,
    ConsumerCreateRequest,
    ConsumerDeleteRequest,
    ConsumerInfoRequest,
    ConsumerListRequest,
    ConsumerNamesRequest,
    ConsumerNextRequest,
    MessageDeleteRequest,
    MessageGetRequest,
    StreamCreateRequest,
    StreamDeleteRequest,
    StreamInfoRequest,
    StreamListRequest,
    StreamMoveCancelRequest,
    StreamNamesRequest,
    StreamPeerRemoveRequest,
    StreamPurgeRequest,
    StreamStepDownRequest,
    StreamUpdateRequest,
)
from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.config.consumer_checks import read_consumer
from supercluster.broker.jetstream.config.stream import Placement
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.encoding.ack_subjects import (
    AckKind,
    parse_ack_payload,
    parse_ack_subject,
    parse_nak_delay,
)
from supercluster.broker.jetstream.errors import (
    STORE_FAILED,
    STREAM_NOT_FOUND,
    TABLE,
    ApiError,
    declared_stream,
    error,
)
from supercluster.broker.jetstream.meta.accounts import NO_LIMITS, AccountLimits
from supercluster.broker.jetstream.state.consumer import ConsumerState
from supercluster.broker.jetstream.state.consumer_ops import Op, OpKind

A = read_stream({"name": "A", "subjects": ["a.*"]})
SECOND = 1_000_000_000


def ask(call: str, body: Any = None) -> ApiRequest:
    payload = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return parse_api(b"$JS.API." + call.encode(), payload)


def consumer(**fields: Any) -> ConsumerConfig:
    return read_consumer(fields)


@pytest.mark.parametrize(
    ("call", "body", "expected", "kind"),
    [
        ("INFO", None, AccountInfoRequest(""), "account_info"),
        ("STREAM.CREATE.A", A.to_json(), StreamCreateRequest("A", A), "stream_create"),
        ("STREAM.UPDATE.A", A.to_json(), StreamUpdateRequest("A", A), "stream_update"),
        ("STREAM.DELETE.A", None, StreamDeleteRequest("A"), "stream_delete"),
        ("STREAM.DELETE.A", b" { } ", StreamDeleteRequest("A"), "stream_delete"),
        ("STREAM.INFO.A", None, StreamInfoRequest("A"), "stream_info"),
        (
            "STREAM.INFO.A",
            {"subjects_filter": ">", "deleted_details": True, "offset": 5},
            StreamInfoRequest("A", ">", True, 5),
            "stream_info",
        ),
        ("STREAM.LIST", {"offset": 2}, StreamListRequest("", 2), "stream_list"),
        ("STREAM.NAMES", {"subject": "a.x"}, StreamNamesRequest("", 0, "a.x"), "stream_names"),
        ("STREAM.NAMES", None, StreamNamesRequest(""), "stream_names"),
        ("STREAM.PURGE.A", None, StreamPurgeRequest("A"), "stream_purge"),
        (
            "STREAM.PURGE.A",
            {"filter": "a.1", "keep": 3},
            StreamPurgeRequest("A", "a.1", 0, 3),
            "stream_purge",
        ),
        ("STREAM.MSG.GET.A", {"seq": 4}, MessageGetRequest("A", 4), "stream_msg_get"),
        ("STREAM.MSG.GET.A", {"last_by_subj": "a.1"}, MessageGetRequest("A", 0, "a.1"), "stream_msg_get"),
        (
            "STREAM.MSG.GET.A",
            {"next_by_subj": "a.*", "seq": 2},
            MessageGetRequest("A", 2, "", "a.*"),
            "stream_msg_get",
        ),
        ("DIRECT.GET.A", {"seq": 4}, DirectGetRequest("A", 4), "stream_msg_get"),
        ("DIRECT.GET.A.a.1", None, DirectGetRequest("A", 0, "a.1"), "stream_msg_get"),
        (
            "STREAM.MSG.DELETE.A",
            {"seq": 4, "no_erase": True},
            MessageDeleteRequest("A", 4, True),
            "stream_msg_delete",
        ),
        ("STREAM.LEADER.STEPDOWN.A", None, StreamStepDownRequest("A"), "stream_leader_stepdown"),
        (
            "STREAM.LEADER.STEPDOWN.A",
            {"placement": {"preferred": "b-1"}},
            StreamStepDownRequest("A", Placement(preferred="b-1")),
            "stream_leader_stepdown",
        ),
        (
            "STREAM.LEADER.STEPDOWN.A",
            {"placement": {"cluster": "west", "tags": ["ssd"]}},
            StreamStepDownRequest("A", Placement("west", ("ssd",))),
            "stream_leader_stepdown",
        ),
        ("STREAM.PEER.REMOVE.A", {"peer": "b-1"}, StreamPeerRemoveRequest("A", "b-1"), "stream_remove_peer"),
        ("ACCOUNT.STREAM.CANCEL_MOVE.$G.A", None, StreamMoveCancelRequest("A", "$G"), "stream_update"),
        (
            "CONSUMER.CREATE.A",
            {"stream_name": "A", "config": {"ack_policy": "explicit"}},
            ConsumerCreateRequest("A", "", consumer(ack_policy="explicit")),
            "consumer_create",
        ),
        (
            "CONSUMER.CREATE.A.c",
            {"stream_name": "A", "action": "create", "config": {"durable_name": "c"}},
            ConsumerCreateRequest("A", "c", consumer(durable_name="c", name="c"), "create"),
            "consumer_create",
        ),
        (
            "CONSUMER.CREATE.A.c.a.1",
            {"stream_name": "A", "config": {"name": "c", "filter_subject": "a.1"}},
            ConsumerCreateRequest("A", "c", consumer(name="c", filter_subject="a.1")),
            "consumer_create",
        ),
        (
            "CONSUMER.DURABLE.CREATE.A.c",
            {"stream_name": "A", "config": {"durable_name": "c"}},
            ConsumerCreateRequest("A", "c", consumer(durable_name="c")),
            "consumer_create",
        ),
        ("CONSUMER.DELETE.A.c", None, ConsumerDeleteRequest("A", "c"), "consumer_delete"),
        ("CONSUMER.INFO.A.c", None, ConsumerInfoRequest("A", "c"), "consumer_info"),
        ("CONSUMER.LIST.A", {"offset": 1}, ConsumerListRequest("A", 1), "consumer_list"),
        ("CONSUMER.NAMES.A", None, ConsumerNamesRequest("A"), "consumer_names"),
        ("CONSUMER.MSG.NEXT.A.c", b"5", ConsumerNextRequest("A", "c", b"5"), "consumer_getnext"),
    ],
)
def test_calls_are_read(call: str, body: Any, expected: ApiRequest, kind: str) -> None:
    assert ask(call, body) == expected
    subject = b"$JS.API." + call.encode()
    assert answer_kind(subject) == kind
    assert stream_of(subject) == expected.stream


@pytest.mark.parametrize(
    ("call", "body", "err_code"),
    [
        ("STREAM.CREATE.A", b"{bad", 10025),
        ("STREAM.CREATE.A", b"[]", 10025),
        ("STREAM.CREATE.A", b"\xff", 10025),
        ("STREAM.CREATE.A", b'{"name":"A","description":"\\ud800"}', 10025),
        ("STREAM.CREATE.A", b"", 10056),
        ("STREAM.CREATE.A", {"name": "B"}, 10056),
        ("STREAM.CREATE.A", {"name": "A", "zzz": 1}, 10025),
        ("STREAM.CREATE.A", {"name": "B", "max_age": -1}, 10056),
        ("STREAM.UPDATE.A", {"name": "B", "max_age": -1}, 10052),
        ("STREAM.UPDATE.A", {"name": "B"}, 10056),
        ("STREAM.DELETE.A", b"xyz", 10038),
        ("STREAM.PURGE.A", {"keep": 1, "seq": 3}, 10003),
        ("STREAM.PURGE.A", {"filter": "a" * 1025}, 10003),
        ("STREAM.PURGE.A", {"until": 3}, 10025),
        ("STREAM.MSG.GET.A", b"", 10003),
        ("STREAM.MSG.GET.A", {}, 10003),
        ("STREAM.MSG.GET.A", b"{x", 10025),
        ("STREAM.MSG.GET.A", b"null", 10003),
        ("STREAM.MSG.GET.A", {"seq": 1, "last_by_subj": "a.1"}, 10003),
        ("STREAM.MSG.GET.A", {"seq": 1, "batch": 5}, 10003),
        ("STREAM.MSG.DELETE.A", b"", 10003),
        ("STREAM.LEADER.STEPDOWN.A", {"placement": {"x": 1}}, 10025),
        ("STREAM.PEER.REMOVE.A", None, 10003),
        ("STREAM.PEER.REMOVE.A", {"peer": "b-1", "x": 1}, 10025),
        ("ACCOUNT.STREAM.CANCEL_MOVE.$G.A", {"x": 1}, 10038),
        ("ACCOUNT.STREAM.CANCEL_MOVE.A", None, 19002),
        ("CONSUMER.CREATE.A", {"stream_name": "B", "config": {}}, 10056),
        ("CONSUMER.CREATE.A", b"null", 10056),
        ("CONSUMER.CREATE.A", {"stream_name": "B", "foo": 1}, 10025),
        ("CONSUMER.CREATE.A", {"stream_name": "A", "config": {"durable_name": "d"}}, 10020),
        ("CONSUMER.CREATE.A.c", {"stream_name": "A", "config": {"durable_name": "d"}}, 10017),
        ("CONSUMER.CREATE.A.c.a.1", {"stream_name": "A", "config": {"filter_subject": "a.2"}}, 10131),
        (
            "CONSUMER.CREATE.A.c.a.1",
            {"stream_name": "A", "config": {"filter_subjects": ["a.1", "a.2"]}},
            10137,
        ),
        ("CONSUMER.CREATE.A.c", {"stream_name": "A", "action": "upsert", "config": {}}, 10025),
        ("CONSUMER.DURABLE.CREATE.A.c", {"stream_name": "A", "config": {}}, 10018),
        ("CONSUMER.DURABLE.CREATE.A.c", {"stream_name": "A", "config": {"durable_name": "d"}}, 10017),
        ("CONSUMER.INFO.A.c", b'{"a": 1}', 10038),
        ("CONSUMER.INFO.A.c", b"[]", 10038),
        ("STREAM.SNAPSHOT.A", {}, 10003),
        ("STREAM.SNAPSHOT.A", {"deliver_subject": "a.*"}, 10015),
        ("STREAM.RESTORE.A", {}, 10003),
        ("STREAM.RESTORE.A", {"config": {"name": "B"}}, 10056),
        ("STREAM.INFO.A.B", None, 19002),
        ("STREAM.INFO", None, 19002),
        ("STREAM.INFO.", None, 19002),
    ],
)
def test_calls_that_say_something_wrong_are_refused(call: str, body: Any, err_code: int) -> None:
    with pytest.raises(ApiError) as refused:
        ask(call, body)
    assert refused.value.err_code == err_code


@given(
    st.sampled_from(["STREAM.CREATE.A", "STREAM.PURGE.A", "CONSUMER.CREATE.A.c", "STREAM.MSG.GET.A"]),
    st.binary(),
)
def test_garbage_is_refused_and_disturbs_nothing(call: str, payload: bytes) -> None:
    with contextlib.suppress(ApiError):
        assert isinstance(ask(call, payload), ApiRequest)


@given(
    st.dictionaries(
        st.sampled_from(
            ["name", "subjects", "max_msgs", "retention", "placement", "metadata", "first_seq", "sources"]
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
            max_leaves=5,
        ),
    )
)
def test_any_json_is_a_configuration_or_a_refusal(fields: dict[str, Any]) -> None:
    with contextlib.suppress(ApiError):
        config = read_stream({"name": "A", **fields})
        assert read_stream(config.to_json()) == config


def test_an_error_answer_names_code_and_text() -> None:
    assert json.loads(answers.error_answer("stream_info", error(STREAM_NOT_FOUND))) == {
        "type": "io.nats.jetstream.api.v1.stream_info_response",
        "error": {"code": 404, "err_code": 10059, "description": "stream not found"},
        "total": 0,
        "offset": 0,
        "limit": 0,
    }
    purge = json.loads(answers.error_answer("stream_purge", error(STREAM_NOT_FOUND)))
    assert purge["purged"] == 0
    assert json.loads(answers.error_answer("consumer_names", error(10014)))["total"] == 0


def test_texts_with_a_blank_are_filled() -> None:
    assert error(10071, 5).description == "wrong last sequence: 5"
    assert error(STORE_FAILED, "maximum messages exceeded").to_json() == {
        "code": 503,
        "err_code": 10077,
        "description": "maximum messages exceeded",
    }
    assert all("{}" not in error(code, "x").description for code in TABLE)


@pytest.mark.covers("SF-23")
def test_a_refused_change_of_a_declared_stream_names_the_resource() -> None:
    refused = declared_stream("FLIGHTS", "demo/flights", "maxAge")
    assert "demo/flights" in refused.description
    assert "maxAge" in refused.description
    assert refused.err_code not in range(10000, 11000)


def test_a_streams_information() -> None:
    cluster = answers.ClusterInfo(
        "east",
        "east-0",
        [answers.ReplicaInfo("east-1", True, 5), answers.ReplicaInfo("east-2", False, 9, 30, True)],
    )
    state = answers.StreamStateInfo(
        messages=2,
        bytes=80,
        first_seq=3,
        last_seq=5,
        first_time_ns=SECOND,
        last_time_ns=2 * SECOND,
        consumer_count=1,
        num_subjects=2,
        num_deleted=1,
        deleted=[4],
        subjects={"a.1": 1, "a.2": 1},
    )
    info = answers.stream_info(A, SECOND, state, cluster, 3 * SECOND)
    found = json.loads(answers.stream_info_answer(info, total=2, limit=100_000))
    assert found == {
        "type": "io.nats.jetstream.api.v1.stream_info_response",
        "total": 2,
        "offset": 0,
        "limit": 100_000,
        "config": {
            **A.to_json(),
            "metadata": {"_nats.level": "5", "_nats.req.level": "0", "_nats.ver": "2.15.1"},
        },
        "created": "1970-01-01T00:00:01Z",
        "state": {
            "messages": 2,
            "bytes": 80,
            "first_seq": 3,
            "first_ts": "1970-01-01T00:00:01Z",
            "last_seq": 5,
            "last_ts": "1970-01-01T00:00:02Z",
            "num_subjects": 2,
            "subjects": {"a.1": 1, "a.2": 1},
            "num_deleted": 1,
            "deleted": [4],
            "consumer_count": 1,
        },
        "cluster": {
            "name": "east",
            "leader": "east-0",
            "replicas": [
                {"name": "east-1", "current": True, "active": 5, "peer": "east-1"},
                {
                    "name": "east-2",
                    "current": False,
                    "offline": True,
                    "active": 9,
                    "lag": 30,
                    "peer": "east-2",
                },
            ],
        },
        "ts": "1970-01-01T00:00:03Z",
    }
    assert json.loads(answers.stream_create_answer(info, did_create=True))["did_create"] is True
    assert "did_create" not in json.loads(answers.stream_create_answer(info, did_create=False))


def test_an_empty_stream_has_natss_zero_times() -> None:
    state = answers.StreamStateInfo(messages=0, bytes=0, first_seq=0, last_seq=0).to_json()
    assert state["first_ts"] == state["last_ts"] == "0001-01-01T00:00:00Z"


def test_a_consumers_information() -> None:
    state = ConsumerState(
        name="c", config=consumer(name="c", ack_policy="explicit"), created_ns=SECOND, start_seq=1
    )
    state.apply_op(Op(OpKind.DELIVERED, [1, 2], SECOND), last_seq=9)
    state.apply_op(Op(OpKind.REDELIVERED, [2], SECOND), last_seq=9)
    state.apply_op(Op(OpKind.ACK, [1], 2 * SECOND), last_seq=9)
    info = answers.consumer_info("A", state, num_waiting=3, num_pending=7, cluster=None, now_ns=3 * SECOND)
    found = json.loads(answers.info_answer("consumer_info", info))
    assert found["type"] == "io.nats.jetstream.api.v1.consumer_info_response"
    assert found["delivered"] == {"consumer_seq": 3, "stream_seq": 2, "last_active": "1970-01-01T00:00:01Z"}
    assert found["ack_floor"] == {"consumer_seq": 1, "stream_seq": 1, "last_active": "1970-01-01T00:00:02Z"}
    assert (found["num_ack_pending"], found["num_redelivered"]) == (1, 1)
    assert (found["num_waiting"], found["num_pending"], found["name"]) == (3, 7, "c")


def test_lists_are_cut_into_pages() -> None:
    names = [f"s{n:04}" for n in range(1500)]
    first = json.loads(answers.names_answer("stream_names", names, 0))
    assert (first["total"], first["offset"], first["limit"], len(first["streams"])) == (1500, 0, 1024, 1024)
    second = json.loads(answers.names_answer("stream_names", names, 1024))
    assert second["streams"] == names[1024:]
    assert json.loads(answers.names_answer("stream_names", names, 9999))["streams"] is None
    assert json.loads(answers.names_answer("consumer_names", [], 50)) == {
        "type": "io.nats.jetstream.api.v1.consumer_names_response",
        "total": 0,
        "offset": 0,
        "limit": 1024,
        "consumers": [],
    }


def test_a_message_is_answered_in_base64() -> None:
    header = b"NATS/1.0\r\nk: v\r\n\r\n"
    found = json.loads(answers.message_answer(5, b"a.1", header, b"\x00\xff", SECOND))["message"]
    assert (found["subject"], found["seq"], found["time"]) == ("a.1", 5, "1970-01-01T00:00:01Z")
    assert b64decode(found["hdrs"]) == header
    assert b64decode(found["data"]) == b"\x00\xff"
    assert set(json.loads(answers.message_answer(5, b"a", b"", b"", 1))["message"]) == {
        "subject",
        "seq",
        "time",
    }


def test_a_refused_direct_get_is_a_status() -> None:
    def refusal(refused: ApiError) -> bytes:
        return answers.direct_refusal(
            b"$JS.API.DIRECT.GET.A", answers.error_answer("stream_msg_get", refused)
        )

    assert refusal(error(STREAM_NOT_FOUND)) == b"NATS/1.0 503\r\nNats-Subject: $JS.API.DIRECT.GET.A\r\n\r\n"
    assert refusal(error(10003)) == b"NATS/1.0 408 bad request\r\n\r\n"
    assert refusal(error(10025, "a\r\nb: c")) == b"NATS/1.0 408 invalid JSON: a b: c\r\n\r\n"
    assert refusal(error(10008)).startswith(b"NATS/1.0 503 ")


def test_publish_acknowledgements() -> None:
    assert json.loads(answers.pub_refused("A", error(10071, 5))) == {
        "error": {"code": 400, "err_code": 10071, "description": "wrong last sequence: 5"},
        "stream": "A",
        "seq": 0,
    }


def test_account_information() -> None:
    totals = answers.AccountTotals(
        *(1, 2, 3, 4), streams=5, consumers=6, streams_unknown=0, api_total=7, api_errors=8
    )
    found = json.loads(answers.account_info_answer(totals, AccountLimits(storage_bytes_max=9)))
    assert (found["memory"], found["storage"], found["streams"], found["consumers"]) == (1, 2, 5, 6)
    assert (found["reserved_memory"], found["reserved_storage"]) == (3, 4)
    assert (found["limits"]["max_storage"], found["limits"]["max_memory"]) == (9, -1)
    assert found["limits"]["max_bytes_required"] is True
    assert (found["api"]["total"], found["api"]["errors"]) == (7, 8)
    assert "streams_unknown" not in found
    found = json.loads(
        answers.account_info_answer(answers.AccountTotals(streams_unknown=2), AccountLimits(1, 2, 0, 3, 4))
    )
    assert found["streams_unknown"] == 2
    limits = found["limits"]
    assert (limits["max_streams"], limits["max_consumers"], limits["max_memory"]) == (1, 2, 3)
    assert (limits["storage_max_stream_bytes"], limits["memory_max_stream_bytes"]) == (4, 4)
    assert limits["max_storage"] == -1


def test_an_answer_is_known_for_a_refusal_without_reading_it() -> None:
    for kind in ("account_info", "stream_list", "stream_purge"):
        assert answers.is_error(answers.error_answer(kind, error(10059)))
    assert not answers.is_error(answers.success_answer("stream_delete"))
    assert not answers.is_error(answers.account_info_answer(answers.AccountTotals(), NO_LIMITS))


@pytest.mark.parametrize(
    ("payload", "kind", "argument"),
    [
        (b"", AckKind.ACK, b""),
        (b"+ACK", AckKind.ACK, b""),
        (b"+OK", AckKind.ACK, b""),
        (b"-NAK", AckKind.NAK, b""),
        (b'-NAK {"delay": 5}', AckKind.NAK, b'{"delay": 5}'),
        (b"+WPI", AckKind.PROGRESS, b""),
        (b"+TERM", AckKind.TERM, b""),
        (b"+TERM for a reason", AckKind.TERM, b"for a reason"),
        (b'+NXT {"batch":2}', AckKind.NEXT, b'{"batch":2}'),
    ],
)
def test_acknowledgements_are_read(payload: bytes, kind: AckKind, argument: bytes) -> None:
    assert parse_ack_payload(payload) == (kind, argument)


@pytest.mark.parametrize("payload", [b"garbage", b"+ACKS", b"+ACK me", b"-nak", b"\xff"])
def test_what_is_no_acknowledgement(payload: bytes) -> None:
    assert parse_ack_payload(payload) is None


@pytest.mark.parametrize(
    ("argument", "delay_ns"),
    [
        (b"", 0),
        (b'{"delay": 5000000}', 5_000_000),
        (b'{"delay": -5}', 0),
        (b'{"delay": "x"}', 0),
        (b"{", 0),
        (b"10s", 10 * SECOND),
        (b"250ms", SECOND // 4),
        (b"2m", 120 * SECOND),
        (b"99999999h", 365 * 24 * 3600 * SECOND),
        (b"soon", 0),
        (b"10", 0),
        (b"s", 0),
    ],
)
def test_the_delay_of_a_nak(argument: bytes, delay_ns: int) -> None:
    assert parse_nak_delay(argument) == delay_ns


@given(st.binary(max_size=80))
def test_any_subject_is_an_acknowledgement_or_none(subject: bytes) -> None:
    found = parse_ack_subject(b"$JS.ACK." + subject)
    assert found is None or found.stream_seq >= 0
