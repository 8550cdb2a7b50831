"""The JetStream API's requests, parsed from a subject under `$JS.API.` and a payload to one small object per
call.

Parsing checks the request alone. The group that holds the state checks whether the stream exists and whether
the caller may change it. Answers are built in `api/answers.py`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from supercluster.broker.bounds import PATTERN_CHARS_MAX
from supercluster.broker.jetstream.api import consumer_requests, direct_get, requests, sink_requests
from supercluster.broker.jetstream.api.consumer_requests import (
    Parser,
    empty,
    from_offset,
    offset,
    step_down,
    without_body,
)
from supercluster.broker.jetstream.api.requests import ApiRequest
from supercluster.broker.jetstream.config import strict
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.encoding.json_fields import (
    Fields,
    decode_if_object,
    decode_object,
    is_empty_request,
)
from supercluster.broker.jetstream.errors import (
    BAD_REQUEST,
    DELIVER_SUBJECT_INVALID,
    INVALID_JSON,
    STREAM_MISMATCH,
    STREAM_NAME_IS_PATH,
    ApiError,
    error,
    not_supported,
)
from supercluster.broker.protocol.subjects import is_valid_literal

API_PREFIX = b"$JS.API."
DETAILS = "supercluster_details"
"""A request's flag: answer with fields that NATS does not have. The operator sets it."""
_FOUND_KEPT = 1024
"""Calls whose subjects were read last; most clients make the same ones again and again, and each is read three times."""


def _stream_create(names: list[str], payload: bytes) -> ApiRequest:
    """Of several mistakes NATS tells first what can't be read, then whose configuration it is, then what it contradicts."""
    name, (data, is_pedantic) = names[0], _stream_data(payload)
    refused: ApiError | None = None
    try:
        config = _stream_config(data, is_pedantic=is_pedantic)
    except ApiError as problem:
        if problem.err_code == INVALID_JSON:
            raise
        refused = problem
    if data.get("name") != name:
        raise error(STREAM_MISMATCH)
    if "/" in name or "\\" in name:
        raise error(STREAM_NAME_IS_PATH)
    if refused is not None:
        raise refused
    return requests.StreamCreateRequest(name, config, is_pedantic)


def _stream_update(names: list[str], payload: bytes) -> ApiRequest:
    """What a configuration contradicts is told first here, and whose it is then."""
    data, is_pedantic = _stream_data(payload)
    config = _stream_config(data, is_pedantic=is_pedantic)
    if config.name != names[0]:
        raise error(STREAM_MISMATCH)
    return requests.StreamUpdateRequest(names[0], config, is_pedantic)


def _stream_data(payload: bytes) -> tuple[dict[str, Any], bool]:
    """A configuration as it came, and whether nothing of it is to be mended: the flag stands among its fields."""
    data = decode_object(payload)
    is_pedantic = Fields(data, "request").boolean("pedantic")
    data.pop("pedantic", None)
    return data, is_pedantic


def _stream_config(data: dict[str, Any], *, is_pedantic: bool) -> StreamConfig:
    return strict.stream_config(data) if is_pedantic else read_stream(data)


def _stream_info(names: list[str], payload: bytes) -> ApiRequest:
    with Fields(decode_if_object(payload), "request") as fields:
        return requests.StreamInfoRequest(
            names[0],
            subjects_filter=_filter(fields.text("subjects_filter")),
            deleted_details=fields.boolean("deleted_details"),
            offset=offset(fields),
            details=fields.boolean(DETAILS),
        )


def _stream_list(_names: list[str], payload: bytes) -> ApiRequest:
    with Fields(decode_if_object(payload), "request") as fields:
        start, subject = offset(fields), _filter(fields.text("subject"))
        return requests.StreamListRequest("", start, subject, fields.boolean(DETAILS))


def _stream_names(_names: list[str], payload: bytes) -> ApiRequest:
    with Fields(decode_if_object(payload), "request") as fields:
        return requests.StreamNamesRequest("", offset(fields), _filter(fields.text("subject")))


def _fields_of_body(payload: bytes) -> Fields:
    """Of a call that says nothing without a body."""
    if is_empty_request(payload):
        raise error(BAD_REQUEST)
    return Fields(decode_object(payload), "request")


def _stream_snapshot(names: list[str], payload: bytes) -> ApiRequest:
    with _fields_of_body(payload) as fields:
        request = requests.StreamSnapshotRequest(
            names[0],
            fields.text("deliver_subject"),
            no_consumers=fields.boolean("no_consumers"),
            chunk_size=fields.integer("chunk_size"),
            window_size=fields.integer("window_size"),
        )
        fields.boolean("jsck")  # Whatever is read is checked.
    if not is_valid_literal(request.deliver_subject.encode()):
        raise error(DELIVER_SUBJECT_INVALID)
    return request


def _stream_restore(names: list[str], payload: bytes) -> ApiRequest:
    with _fields_of_body(payload) as fields:
        config = {"name": names[0], **(fields.nested("config") or {})}
        fields.nested("state")  # The archive says it too.
    if config["name"] != names[0]:
        raise error(STREAM_MISMATCH)
    return requests.StreamRestoreRequest(names[0], read_stream(config))


def _stream_purge(names: list[str], payload: bytes) -> ApiRequest:
    with Fields(decode_if_object(payload), "request") as fields:
        subject, seq, keep = _filter(fields.text("filter")), fields.unsigned("seq"), fields.unsigned("keep")
    if seq and keep:
        raise error(BAD_REQUEST)
    return requests.StreamPurgeRequest(names[0], subject, seq, keep)


def _message_get(names: list[str], payload: bytes) -> ApiRequest:
    if not payload.strip():
        raise error(BAD_REQUEST)
    with Fields(decode_object(payload), "request") as fields:
        request = requests.MessageGetRequest(names[0], **requests.MessageGetRequest.place(fields))
        of_direct_get = fields.integer("batch") or fields.integer("max_bytes") or fields.texts("multi_last")
        fields.unsigned("up_to_seq")
        fields.time_ns("up_to_time")
    by_place = (request.seq, request.next_by_subject, request.start_time_ns)
    if of_direct_get or not (any(by_place) or request.last_by_subject):
        raise error(BAD_REQUEST)
    if (request.seq and request.start_time_ns) or (request.last_by_subject and any(by_place)):
        raise error(BAD_REQUEST)
    return request


def _direct_get(names: list[str], payload: bytes) -> ApiRequest:
    """`DIRECT.GET.<stream>` with a payload, or `DIRECT.GET.<stream>.<subject>` for the subject's last message."""
    return direct_get.read(names[0], payload, ".".join(names[1:]))


def _message_delete(names: list[str], payload: bytes) -> ApiRequest:
    with _fields_of_body(payload) as fields:
        return requests.MessageDeleteRequest(names[0], fields.unsigned("seq"), fields.boolean("no_erase"))


def _move_cancel(names: list[str], payload: bytes) -> ApiRequest:
    empty(payload)
    account, stream = names
    return requests.StreamMoveCancelRequest(stream, account)


def _peer_remove(names: list[str], payload: bytes) -> ApiRequest:
    with Fields(decode_object(payload), "request") as fields:
        peer = fields.text("peer")
    if not peer:
        raise error(BAD_REQUEST)
    return requests.StreamPeerRemoveRequest(names[0], peer)


def _server_remove(_names: list[str], payload: bytes) -> ApiRequest:
    """A broker's name stands for its id, too: they are not given twice."""
    with Fields(decode_object(payload), "request") as fields:
        name, number = fields.text("peer"), fields.text("peer_id")
    if not (name or number):
        raise error(BAD_REQUEST)
    return requests.ServerRemoveRequest("", number or name)


def _filter(subject: str) -> str:
    """What is no subject just matches nothing."""
    if len(subject) > PATTERN_CHARS_MAX:
        raise error(BAD_REQUEST)
    return subject


# What comes behind the prefix, the fewest and the most names that follow it (the rest of the subject), the `type` of the
# answer, and the reader. Longer beginnings stand before shorter ones.
_CALLS: tuple[tuple[str, int, int, str, Parser], ...] = (
    ("INFO", 0, 0, "account_info", lambda _, payload: requests.AccountInfoRequest("")),
    ("STREAM.CREATE", 1, 1, "stream_create", _stream_create),
    ("STREAM.UPDATE", 1, 1, "stream_update", _stream_update),
    ("STREAM.DELETE", 1, 1, "stream_delete", without_body(requests.StreamDeleteRequest)),
    ("STREAM.INFO", 1, 1, "stream_info", _stream_info),
    ("STREAM.LIST", 0, 0, "stream_list", _stream_list),
    ("STREAM.NAMES", 0, 0, "stream_names", _stream_names),
    ("STREAM.PURGE", 1, 1, "stream_purge", _stream_purge),
    ("STREAM.SNAPSHOT", 1, 1, "stream_snapshot", _stream_snapshot),
    ("STREAM.RESTORE", 1, 1, "stream_restore", _stream_restore),
    ("STREAM.MSG.GET", 1, 1, "stream_msg_get", _message_get),
    ("STREAM.MSG.DELETE", 1, 1, "stream_msg_delete", _message_delete),
    ("STREAM.LEADER.STEPDOWN", 1, 1, "stream_leader_stepdown", step_down(requests.StreamStepDownRequest)),
    ("STREAM.PEER.REMOVE", 1, 1, "stream_remove_peer", _peer_remove),
    ("META.LEADER.STEPDOWN", 0, 0, "meta_leader_stepdown", step_down(requests.MetaStepDownRequest)),
    ("SERVER.REMOVE", 0, 0, "meta_server_remove", _server_remove),
    ("ACCOUNT.PURGE", 1, 1, "account_purge", lambda names, _: requests.AccountPurgeRequest("", names[0])),
    ("ACCOUNT.STREAM.CANCEL_MOVE", 2, 2, "stream_update", _move_cancel),
    ("SINK.STAGE", 1, 1, "sink_stage", sink_requests.stage),
    ("SINK.COMMIT", 1, 1, "sink_commit", sink_requests.commit),
    ("SINK.ABORT", 1, 1, "sink_abort", sink_requests.abort),
    ("SINK.FORGET", 1, 1, "sink_forget", sink_requests.forget),
    ("SINK.STATUS", 1, 1, "sink_status", sink_requests.status),
    ("DIRECT.GET", 1, 64, "stream_msg_get", _direct_get),
    ("CONSUMER.DURABLE.CREATE", 2, 2, "consumer_create", consumer_requests.durable_create),
    ("CONSUMER.MSG.NEXT", 2, 2, "consumer_getnext", consumer_requests.consumer_next),
    ("CONSUMER.CREATE", 1, 64, "consumer_create", consumer_requests.consumer_create),
    (
        "CONSUMER.LEADER.STEPDOWN",
        2,
        2,
        "consumer_leader_stepdown",
        step_down(requests.ConsumerStepDownRequest),
    ),
    ("CONSUMER.PAUSE", 2, 2, "consumer_pause", consumer_requests.consumer_pause),
    ("CONSUMER.RESET", 2, 2, "consumer_reset", consumer_requests.consumer_reset),
    ("CONSUMER.UNPIN", 2, 2, "consumer_unpin", consumer_requests.consumer_unpin),
    ("CONSUMER.DELETE", 2, 2, "consumer_delete", without_body(requests.ConsumerDeleteRequest)),
    ("CONSUMER.INFO", 2, 2, "consumer_info", without_body(requests.ConsumerInfoRequest)),
    ("CONSUMER.LIST", 1, 1, "consumer_list", from_offset(requests.ConsumerListRequest)),
    ("CONSUMER.NAMES", 1, 1, "consumer_names", from_offset(requests.ConsumerNamesRequest)),
)


@lru_cache(maxsize=_FOUND_KEPT)
def _find(subject: bytes) -> tuple[Parser, str, list[str]] | None:
    if not subject.startswith(API_PREFIX):
        return None
    try:
        call = subject[len(API_PREFIX) :].decode()
    except UnicodeDecodeError:
        return None
    for words, fewest, most, kind, parser in _CALLS:
        if call.startswith(words):
            more, *names = call[len(words) :].split(".")
            if not more and fewest <= len(names) <= most and all(names):
                return parser, kind, names
    return None


def answer_kind(subject: bytes) -> str:
    """What stands in the answer's `type`, as `stream_info`; `""` for no call of the API."""
    found = _find(subject)
    return found[1] if found is not None else ""


def is_supported(subject: bytes) -> bool:
    """Is it a call of the API?"""
    return answer_kind(subject) != ""


def stream_of(subject: bytes) -> str:
    """The stream that a call names; `""` for none. For routing a call to its stream before it is read."""
    found = _find(subject)
    if found is None or not found[2]:
        return ""
    return found[2][1] if found[0] is _move_cancel else found[2][0]


def account_of(subject: bytes, caller: str) -> str:
    """The account whose stream a call is about: the caller's, where the subject names none."""
    found = _find(subject)
    return found[2][0] if found is not None and found[0] is _move_cancel else caller


def parse_api(subject: bytes, payload: bytes | memoryview) -> ApiRequest:
    """Read one call.

    Raises:
        ApiError: what the request says is wrong; an unknown call gives our "not supported" error.
    """
    found = _find(subject)
    if found is None:
        raise not_supported(f"API call {subject.decode('utf-8', 'replace')!r} is")
    parser, _, names = found
    return parser(names, bytes(payload))
