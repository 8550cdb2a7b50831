"""The JetStream API's answers: NATS's JSON with its `type` fields, as bytes.

Answers to lists are paged as NATS pages them. The acknowledgement of a publish is on the hot path and made of a prefix
per stream, the sequence, and a constant end.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from supercluster.broker.jetstream.config import api_level
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.json_fields import nonempty
from supercluster.broker.jetstream.encoding.timestamps import ZERO_TIME, format_time
from supercluster.broker.jetstream.errors import (
    API_LEVEL_REQUIRED,
    STREAM_GENERAL,
    STREAM_NOT_FOUND,
    ApiError,
    error,
)
from supercluster.broker.jetstream.meta.accounts import AccountLimits
from supercluster.broker.jetstream.state.consumer import ConsumerState
from supercluster.broker.protocol.headers import no_responders
from supercluster.broker.raft.errors import FaultError

LIST_PAGE = 256
NAMES_PAGE = 1024
# STREAM.INFO with a subjects filter gives at most this many subjects, as NATS pages them.
SUBJECTS_PAGE = 100_000


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """A member of a stream's group besides the leader, as the leader sees it."""

    name: str
    current: bool
    active_ns: int
    """How long ago it was last heard of."""
    lag: int = 0
    """Entries it is behind."""
    offline: bool = False
    observer: bool = False
    """A learner: not a voter (yet)."""
    unusable: bool = False
    """Its broker is in contact and reports that this copy failed. A detail: NATS has no field for it."""

    def to_json(self, *, with_details: bool = False) -> dict[str, Any]:
        unusable = self.unusable and with_details
        return {
            "name": self.name,
            "current": self.current,
            **nonempty(offline=self.offline, observer=self.observer, unusable=unusable),
            "active": self.active_ns,
            **nonempty(lag=self.lag),
            "peer": self.name,
        }


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Where a stream lives: only what is in force (MV-7)."""

    name: str
    leader: str
    replicas: Sequence[ReplicaInfo] = ()
    raft_group: str = ""

    def to_json(self, *, with_details: bool = False) -> dict[str, Any]:
        replicas = [replica.to_json(with_details=with_details) for replica in self.replicas]
        told = nonempty(raft_group=self.raft_group, leader=self.leader, replicas=replicas)
        return {"name": self.name, **told}


@dataclass(frozen=True, slots=True)
class StreamStateInfo:
    """A stream's state as the API shows it."""

    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    first_time_ns: int = 0
    last_time_ns: int = 0
    consumer_count: int = 0
    num_subjects: int = 0
    num_deleted: int = 0
    deleted: Sequence[int] = ()
    subjects: Mapping[str, int] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            # A stream that never had a message begins nowhere, as NATS's servers say it.
            "first_seq": self.first_seq if self.last_seq else 0,
            "first_ts": format_time(self.first_time_ns) if self.messages else ZERO_TIME,
            "last_seq": self.last_seq,
            "last_ts": format_time(self.last_time_ns),
            **nonempty(
                num_subjects=self.num_subjects,
                subjects=dict(self.subjects or {}),
                num_deleted=self.num_deleted,
                deleted=list(self.deleted),
            ),
            "consumer_count": self.consumer_count,
        }


def answer(kind: str, data: Mapping[str, Any]) -> bytes:
    """An answer of a few fields; others are below."""
    body = {"type": f"io.nats.jetstream.api.v1.{kind}_response", **data}
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


_NO_ROWS = {"total": 0, "offset": 0, "limit": 0}
_REFUSED: dict[str, dict[str, Any]] = {
    "stream_info": _NO_ROWS,
    "stream_list": {**_NO_ROWS, "streams": []},
    "stream_names": {**_NO_ROWS, "streams": None},
    "consumer_list": {**_NO_ROWS, "consumers": []},
    "consumer_names": {**_NO_ROWS, "consumers": []},
    "stream_purge": {"purged": 0},
    "stream_restore": {"deliver_subject": ""},
    "consumer_pause": {"paused": False, "pause_until": ZERO_TIME},
    "consumer_reset": {"reset_seq": 0},
}
"""What a refusal has besides the error. NATS says null for an empty list of streams' names, and clients have learnt to read it
so."""


def error_answer(kind: str, refused: ApiError) -> bytes:
    """The answer to a call that is refused; `kind` is `api.answer_kind` of its subject."""
    return answer(kind, {"error": refused.to_json(), **_REFUSED.get(kind, {})})


def fault_answer(kind: str, node: str, cause: Exception) -> bytes:
    """The answer to a request on which the broker's own code raised (SF-25)."""
    refused = error(STREAM_GENERAL, f"{node}: {FaultError(cause)}")
    return error_answer(kind, refused)


def stream_info(
    config: StreamConfig,
    created_ns: int,
    state: StreamStateInfo,
    cluster: ClusterInfo | None,
    now_ns: int,
    *,
    with_details: bool = False,
) -> dict[str, Any]:
    """A stream as one object: the body of several answers. Details are fields that NATS does not have."""
    told = config.to_json()
    return {
        "config": api_level.listed(told, api_level.of_stream(told)),
        "created": format_time(created_ns),
        "state": state.to_json(),
        **nonempty(cluster=cluster.to_json(with_details=with_details) if cluster is not None else None),
        "ts": format_time(now_ns),
    }


def stream_create_answer(info: Mapping[str, Any], *, did_create: bool) -> bytes:
    told = {name: value for name, value in api_level.told(info).items() if name != "domain"}
    return answer("stream_create", {**told, **nonempty(did_create=did_create)})


def info_answer(kind: str, info: Mapping[str, Any], **more: Any) -> bytes:
    """About one stream or consumer, whole, with what that very call gives besides."""
    return answer(kind, {**api_level.told(info), **more})


NO_SUBJECTS = b'"subjects":{}'
"""What stands in an answer in the place of subjects that are put in later: nothing else of an answer is written so."""


def stream_info_answer(info: Mapping[str, Any], *, total: int = 0, offset: int = 0, limit: int = 0) -> bytes:
    """`total`, `offset` and `limit` page the subjects, where they were asked for."""
    return answer("stream_info", {"total": total, "offset": offset, "limit": limit, **api_level.told(info)})


def list_page(kind: str, infos: Sequence[Mapping[str, Any]], *, total: int, offset: int) -> bytes:
    """A page of streams or consumers that the caller has cut."""
    rows = {kind.replace("_list", "s"): list(infos)}
    return answer(kind, {"total": total, "offset": min(offset, total), "limit": LIST_PAGE, **rows})


def names_answer(kind: str, names: Sequence[str], offset: int) -> bytes:
    """The page from `offset` on, of all names."""
    offset = min(offset, len(names))
    shown: list[str] | None = list(names[offset : offset + NAMES_PAGE])
    if kind == "stream_names" and not shown:
        shown = None  # As where it is refused.
    rows = {kind.replace("_names", "s"): shown}
    return answer(kind, {"total": len(names), "offset": offset, "limit": NAMES_PAGE, **rows})


_INFO_FIELDS = (
    "config",
    "created",
    "state",
    "domain",
    "cluster",
    "mirror",
    "sources",
    "move",
    "copy_bytes",
    "ts",
)


def info_of_answer(answer: bytes) -> dict[str, Any] | None:
    """The stream in a leader's STREAM.INFO answer, None when it is an error."""
    data = json.loads(answer)
    if not isinstance(data, dict) or "config" not in data:
        return None
    found = {name: data[name] for name in _INFO_FIELDS if name in data}
    return {**found, "config": api_level.untold(data["config"])}


def err_code_of_answer(answer: bytes) -> int:
    """The err_code of an answer that is an error, 0 of any other."""
    data = json.loads(answer) if answer else None
    refusal = data.get("error") if isinstance(data, dict) else None
    return int(refusal.get("err_code", 0)) if isinstance(refusal, dict) else 0


def success_answer(kind: str) -> bytes:
    """stream_delete, stream_msg_delete, stream_leader_stepdown, consumer_delete."""
    return answer(kind, {"success": True})


def message_answer(
    seq: int, subject: bytes, header: bytes, payload: bytes | memoryview, time_ns: int
) -> bytes:
    """STREAM.MSG.GET."""
    message = {
        "subject": subject.decode("utf-8", "replace"),
        "seq": seq,
        **nonempty(hdrs=b64encode(header).decode(), data=b64encode(payload).decode()),
        "time": format_time(time_ns),
    }
    return answer("stream_msg_get", {"message": message})


def pull_refusal(subject: bytes, answer: bytes) -> bytes:
    """CONSUMER.MSG.NEXT: nobody responds, unless it is the request that can't be understood."""
    if err_code_of_answer(answer) == API_LEVEL_REQUIRED:
        return b"NATS/1.0 412 Required Api Level\r\n\r\n"
    return no_responders(subject)


def direct_refusal(subject: bytes, answer: bytes) -> bytes:
    """DIRECT.GET: a refusal as a status. Its clients take what has none for the message. A stream that is not there, or not
    to be read so, is nobody who responds."""
    refused = json.loads(answer)["error"]
    if refused["err_code"] == STREAM_NOT_FOUND:
        return no_responders(subject)
    status = refused["code"] if refused["code"] in (408, 413, 503) else 408
    return f"NATS/1.0 {status} {' '.join(refused['description'].split())}\r\n\r\n".encode()


def consumer_info(
    stream: str,
    state: ConsumerState,
    *,
    num_waiting: int,
    num_pending: int,
    is_bound: bool = False,
    pins: Sequence[tuple[str, str, int]] = (),
    cluster: ClusterInfo | None,
    now_ns: int,
) -> dict[str, Any]:
    """A consumer as one object: the body of several answers. `pins`: priority group, pinned client, since when."""

    def place(consumer_seq: int, stream_seq: int, last_ns: int) -> dict[str, Any]:
        last_active = format_time(last_ns) if last_ns else ""
        return {"consumer_seq": consumer_seq, "stream_seq": stream_seq, **nonempty(last_active=last_active)}

    told = state.config.to_json()
    data: dict[str, Any] = {
        "stream_name": stream,
        "name": state.name,
        "created": format_time(state.created_ns),
        "config": api_level.listed(told, api_level.of_consumer(told)),
        "delivered": place(state.delivered_cseq, state.delivered_sseq, state.last_delivered_ns),
        "ack_floor": place(state.ack_floor_cseq, state.ack_floor_sseq, state.last_ack_ns),
        "num_ack_pending": state.num_ack_pending,
        "num_redelivered": state.num_redelivered,
        "num_waiting": num_waiting,
        "num_pending": num_pending,
    }
    if cluster is not None:
        data["cluster"] = cluster.to_json()
    if is_bound:
        data["push_bound"] = True
    left_ns = state.config.pause_until_ns - now_ns
    if left_ns > 0:
        data |= {"paused": True, "pause_remaining": left_ns}
    if pins:
        data["priority_groups"] = [
            {
                "group": group,
                **nonempty(pinned_client_id=pin_id),
                "pinned_ts": format_time(since_ns if pin_id else 0),
            }
            for group, pin_id, since_ns in pins
        ]
    data["ts"] = format_time(now_ns)
    return data


def pause_answer(until_ns: int, now_ns: int) -> bytes:
    left_ns = until_ns - now_ns
    data: dict[str, Any] = {"paused": left_ns > 0, "pause_until": format_time(until_ns)}
    if left_ns > 0:
        data["pause_remaining"] = left_ns
    return answer("consumer_pause", data)


@dataclass(frozen=True, slots=True)
class AccountTotals:
    """What an account takes, and what its clients asked of the API."""

    memory: int = 0
    """Bytes of all replicas of its streams in memory."""
    storage: int = 0
    """The same, of those in files."""
    reserved_memory: int = 0
    reserved_storage: int = 0
    streams: int = 0
    consumers: int = 0
    streams_unknown: int = 0
    """Streams of which nobody said in time what they hold: they are counted, their bytes and consumers are not."""
    api_total: int = 0
    api_errors: int = 0


def account_info_answer(totals: AccountTotals, limits: AccountLimits, domain: str = "") -> bytes:
    """What has no limit is told as -1."""

    def limit(value: int) -> int:
        return value or -1

    data: dict[str, Any] = {
        "memory": totals.memory,
        "storage": totals.storage,
        "reserved_memory": totals.reserved_memory,
        "reserved_storage": totals.reserved_storage,
        "streams": totals.streams,
        "consumers": totals.consumers,
        "limits": {
            "max_memory": limit(limits.memory_bytes_max),
            "max_storage": limit(limits.storage_bytes_max),
            "max_streams": limit(limits.streams_max),
            "max_consumers": limit(limits.consumers_per_stream_max),
            "max_ack_pending": limit(limits.ack_pending_max),
            "memory_max_stream_bytes": limit(limits.bytes_max_of_stream("memory")),
            "storage_max_stream_bytes": limit(limits.bytes_max_of_stream("file")),
            # NATS has one word for both storages.
            "max_bytes_required": limits.wants_max_bytes("file") or limits.wants_max_bytes("memory"),
        },
        **nonempty(domain=domain),
        "api": {"level": api_level.LEVEL, "total": totals.api_total, "errors": totals.api_errors},
        # Beyond what NATS has, and there only when it says something.
        **nonempty(streams_unknown=totals.streams_unknown),
    }
    return answer("account_info", data)


def is_error(answer: bytes) -> bool:
    """Without reading all of an answer: `error_answer` has the error behind the type."""
    return b',"error":{"code":' in answer[:160]


def pub_refused(stream: str, refused: ApiError) -> bytes:
    """The acknowledgement of a publish that was refused."""
    data = {"error": refused.to_json(), "stream": stream, "seq": 0}
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()
