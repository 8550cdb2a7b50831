"""The JetStream API's requests: from a subject under `$JS.API.` and a payload to one small object per call.

Reading a request judges only what the request says by itself; whether the stream exists, and who may change it, is
judged where the state is. Answers are built in `api/answers.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from supercluster.broker.bounds import PATTERN_CHARS_MAX
from supercluster.broker.jetstream.api import consumer_requests, direct_get
from supercluster.broker.jetstream.api.requests import (
    AccountInfoRequest,
    AccountPurgeRequest,
    ApiRequest,
    ConsumerCreateRequest,
    ConsumerDeleteRequest,
    ConsumerInfoRequest,
    ConsumerListRequest,
    ConsumerNamesRequest,
    ConsumerNextRequest,
    ConsumerPauseRequest,
    ConsumerRequest,
    ConsumerResetRequest,
    ConsumerStepDownRequest,
    ConsumerUnpinRequest,
    MessageDeleteRequest,
    MessageGetRequest,
    MetaStepDownRequest,
    ServerRemoveRequest,
    StreamCreateRequest,
    StreamDeleteRequest,
    StreamInfoRequest,
    StreamListRequest,
    StreamMoveCancelRequest,
    StreamNamesRequest,
    StreamPeerRemoveRequest,
    StreamPurgeRequest,
    StreamRestoreRequest,
    StreamSnapshotRequest,
    StreamStepDownRequest,
    StreamUpdateRequest,
)
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


Parser = Callable[[list[str], bytes], ApiRequest]


def _account_info(_names: list[str], _payload: bytes) -> ApiRequest:
    return AccountInfoRequest("")


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
    return StreamCreateRequest(name, config, is_pedantic)


def _stream_update(names: list[str], payload: bytes) -> ApiRequest:
    """What a configuration contradicts is told first here, and whose it is then."""
    data, is_pedantic = _stream_data(payload)
    config = _stream_config(data, is_pedantic=is_pedantic)
    if config.name != names[0]:
        raise error(STREAM_MISMATCH)
    return StreamUpdateRequest(names[0], config, is_pedantic)


def _stream_data(payload: bytes) -> tuple[dict[str, Any], bool]:
    """A configuration as it came, and whether nothing of it is to be mended: the flag stands among its fields."""
    data = decode_object(payload)
    is_pedantic = Fields(data, "request").boolean("pedantic")
    data.pop("pedantic", None)
    return data, is_pedantic


def _stream_config(data: dict[str, Any], *, is_pedantic: bool) -> StreamConfig:
    return strict.stream_config(data) if is_pedantic else read_stream(data)


def _stream_delete(names: list[str], payload: bytes) -> ApiRequest:
    consumer_requests.empty(payload)
    return StreamDeleteRequest(names[0])


def _stream_info(names: list[str], payload: bytes) -> ApiRequest:
    fields = Fields(decode_if_object(payload), "request")
    request = StreamInfoRequest(
        names[0],
        subjects_filter=_filter(fields.text("subjects_filter")),
        deleted_details=fields.boolean("deleted_details"),
        offset=consumer_requests.offset(fields),
        details=fields.boolean(DETAILS),
    )
    fields.done()
    return request


def _stream_list(_names: list[str], payload: bytes) -> ApiRequest:
    fields = Fields(decode_if_object(payload), "request")
    request = StreamListRequest(
        "",
        offset=consumer_requests.offset(fields),
        subject=_filter(fields.text("subject")),
        details=fields.boolean(DETAILS),
    )
    fields.done()
    return request


def _stream_names(_names: list[str], payload: bytes) -> ApiRequest:
    fields = Fields(decode_if_object(payload), "request")
    request = StreamNamesRequest(
        "", offset=consumer_requests.offset(fields), subject=_filter(fields.text("subject"))
    )
    fields.done()
    return request


def _stream_snapshot(names: list[str], payload: bytes) -> ApiRequest:
    if is_empty_request(payload):
        raise error(BAD_REQUEST)
    fields = Fields(decode_object(payload), "request")
    request = StreamSnapshotRequest(
        names[0],
        fields.text("deliver_subject"),
        no_consumers=fields.boolean("no_consumers"),
        chunk_size=fields.integer("chunk_size"),
        window_size=fields.integer("window_size"),
    )
    fields.boolean("jsck")  # Whatever is read is checked.
    fields.done()
    if not is_valid_literal(request.deliver_subject.encode()):
        raise error(DELIVER_SUBJECT_INVALID)
    return request


def _stream_restore(names: list[str], payload: bytes) -> ApiRequest:
    if is_empty_request(payload):
        raise error(BAD_REQUEST)
    fields = Fields(decode_object(payload), "request")
    config = dict(fields.nested("config") or {})
    fields.nested("state")  # The archive says it too.
    fields.done()
    config.setdefault("name", names[0])
    if config["name"] != names[0]:
        raise error(STREAM_MISMATCH)
    return StreamRestoreRequest(names[0], read_stream(config))


def _stream_purge(names: list[str], payload: bytes) -> ApiRequest:
    fields = Fields(decode_if_object(payload), "request")
    request = StreamPurgeRequest(
        names[0], _filter(fields.text("filter")), fields.unsigned("seq"), fields.unsigned("keep")
    )
    fields.done()
    if request.seq and request.keep:
        raise error(BAD_REQUEST)
    return request


def _message_get(names: list[str], payload: bytes) -> ApiRequest:
    if not payload.strip():
        raise error(BAD_REQUEST)
    fields = Fields(decode_object(payload), "request")
    request = MessageGetRequest(
        names[0],
        seq=fields.unsigned("seq"),
        last_by_subject=fields.text("last_by_subj"),
        next_by_subject=fields.text("next_by_subj"),
        start_time_ns=fields.time_ns("start_time"),
        no_header=fields.boolean("no_hdr"),
    )
    of_direct_get = fields.integer("batch") or fields.integer("max_bytes") or fields.texts("multi_last")
    fields.unsigned("up_to_seq")
    fields.time_ns("up_to_time")
    fields.done()
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
    if is_empty_request(payload):
        raise error(BAD_REQUEST)
    fields = Fields(decode_object(payload), "request")
    request = MessageDeleteRequest(names[0], fields.unsigned("seq"), fields.boolean("no_erase"))
    fields.done()
    return request


def _step_down(names: list[str], payload: bytes) -> ApiRequest:
    return StreamStepDownRequest(names[0], consumer_requests.successor(payload))


def _meta_step_down(names: list[str], payload: bytes) -> ApiRequest:
    return MetaStepDownRequest("", consumer_requests.successor(payload))


def _move_cancel(names: list[str], payload: bytes) -> ApiRequest:
    consumer_requests.empty(payload)
    account, stream = names
    return StreamMoveCancelRequest(stream, account)


def _peer_remove(names: list[str], payload: bytes) -> ApiRequest:
    fields = Fields(decode_object(payload), "request")
    peer = fields.text("peer")
    fields.done()
    if not peer:
        raise error(BAD_REQUEST)
    return StreamPeerRemoveRequest(names[0], peer)


def _server_remove(_names: list[str], payload: bytes) -> ApiRequest:
    """A broker's name stands for its id, too: they are not given twice."""
    fields = Fields(decode_object(payload), "request")
    name, number = fields.text("peer"), fields.text("peer_id")
    fields.done()
    if not (name or number):
        raise error(BAD_REQUEST)
    return ServerRemoveRequest("", number or name)


def _account_purge(names: list[str], _payload: bytes) -> ApiRequest:
    return AccountPurgeRequest("", names[0])


def _filter(subject: str) -> str:
    """What is no subject just matches nothing."""
    if len(subject) > PATTERN_CHARS_MAX:
        raise error(BAD_REQUEST)
    return subject


# What comes behind the prefix, the fewest and the most names that follow it (the rest of the subject), the reader, and
# the `type` of the answer. Longer beginnings stand before shorter ones.
_CALLS: tuple[tuple[tuple[str, ...], int, int, Parser, str], ...] = (
    (("INFO",), 0, 0, _account_info, "account_info"),
    (("STREAM", "CREATE"), 1, 1, _stream_create, "stream_create"),
    (("STREAM", "UPDATE"), 1, 1, _stream_update, "stream_update"),
    (("STREAM", "DELETE"), 1, 1, _stream_delete, "stream_delete"),
    (("STREAM", "INFO"), 1, 1, _stream_info, "stream_info"),
    (("STREAM", "LIST"), 0, 0, _stream_list, "stream_list"),
    (("STREAM", "NAMES"), 0, 0, _stream_names, "stream_names"),
    (("STREAM", "PURGE"), 1, 1, _stream_purge, "stream_purge"),
    (("STREAM", "SNAPSHOT"), 1, 1, _stream_snapshot, "stream_snapshot"),
    (("STREAM", "RESTORE"), 1, 1, _stream_restore, "stream_restore"),
    (("STREAM", "MSG", "GET"), 1, 1, _message_get, "stream_msg_get"),
    (("STREAM", "MSG", "DELETE"), 1, 1, _message_delete, "stream_msg_delete"),
    (("STREAM", "LEADER", "STEPDOWN"), 1, 1, _step_down, "stream_leader_stepdown"),
    (("STREAM", "PEER", "REMOVE"), 1, 1, _peer_remove, "stream_remove_peer"),
    (("META", "LEADER", "STEPDOWN"), 0, 0, _meta_step_down, "meta_leader_stepdown"),
    (("SERVER", "REMOVE"), 0, 0, _server_remove, "meta_server_remove"),
    (("ACCOUNT", "PURGE"), 1, 1, _account_purge, "account_purge"),
    (("ACCOUNT", "STREAM", "CANCEL_MOVE"), 2, 2, _move_cancel, "stream_update"),
    (("DIRECT", "GET"), 1, 64, _direct_get, "stream_msg_get"),
    (("CONSUMER", "DURABLE", "CREATE"), 2, 2, consumer_requests.durable_create, "consumer_create"),
    (("CONSUMER", "MSG", "NEXT"), 2, 2, consumer_requests.consumer_next, "consumer_getnext"),
    (("CONSUMER", "CREATE"), 1, 64, consumer_requests.consumer_create, "consumer_create"),
    (
        ("CONSUMER", "LEADER", "STEPDOWN"),
        2,
        2,
        consumer_requests.consumer_step_down,
        "consumer_leader_stepdown",
    ),
    (("CONSUMER", "PAUSE"), 2, 2, consumer_requests.consumer_pause, "consumer_pause"),
    (("CONSUMER", "RESET"), 2, 2, consumer_requests.consumer_reset, "consumer_reset"),
    (("CONSUMER", "UNPIN"), 2, 2, consumer_requests.consumer_unpin, "consumer_unpin"),
    (("CONSUMER", "DELETE"), 2, 2, consumer_requests.consumer_delete, "consumer_delete"),
    (("CONSUMER", "INFO"), 2, 2, consumer_requests.consumer_info, "consumer_info"),
    (("CONSUMER", "LIST"), 1, 1, consumer_requests.consumer_list, "consumer_list"),
    (("CONSUMER", "NAMES"), 1, 1, consumer_requests.consumer_names, "consumer_names"),
)


def _find(subject: bytes) -> tuple[Parser, str, list[str]] | None:
    if not subject.startswith(API_PREFIX):
        return None
    try:
        tokens = subject[len(API_PREFIX) :].decode().split(".")
    except UnicodeDecodeError:
        return None
    for words, fewest, most, parser, kind in _CALLS:
        names = tokens[len(words) :]
        if tuple(tokens[: len(words)]) == words and fewest <= len(names) <= most and all(names):
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


__all__ = [
    "API_PREFIX",
    "AccountInfoRequest",
    "AccountPurgeRequest",
    "ApiRequest",
    "ConsumerCreateRequest",
    "ConsumerDeleteRequest",
    "ConsumerInfoRequest",
    "ConsumerListRequest",
    "ConsumerNamesRequest",
    "ConsumerNextRequest",
    "ConsumerPauseRequest",
    "ConsumerRequest",
    "ConsumerResetRequest",
    "ConsumerStepDownRequest",
    "ConsumerUnpinRequest",
    "MessageDeleteRequest",
    "MessageGetRequest",
    "MetaStepDownRequest",
    "ServerRemoveRequest",
    "StreamCreateRequest",
    "StreamDeleteRequest",
    "StreamInfoRequest",
    "StreamListRequest",
    "StreamMoveCancelRequest",
    "StreamNamesRequest",
    "StreamPeerRemoveRequest",
    "StreamPurgeRequest",
    "StreamRestoreRequest",
    "StreamSnapshotRequest",
    "StreamStepDownRequest",
    "StreamUpdateRequest",
    "account_of",
    "answer_kind",
    "is_supported",
    "parse_api",
    "stream_of",
]
