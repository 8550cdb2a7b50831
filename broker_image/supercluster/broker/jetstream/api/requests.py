"""The calls of the JetStream API, one small object each. `api/parser.py` reads them from subjects and payloads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.config.stream import ANYWHERE, Placement, StreamConfig
from supercluster.broker.jetstream.encoding.json_fields import Fields


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One call. `stream` is empty where the call is about none or about all."""

    stream: str


@dataclass(frozen=True, slots=True)
class AccountInfoRequest(ApiRequest):
    pass


@dataclass(frozen=True, slots=True)
class StreamCreateRequest(ApiRequest):
    config: StreamConfig
    pedantic: bool = False
    """What would be filled in against another value is refused (`config/strict.py`)."""


@dataclass(frozen=True, slots=True)
class StreamUpdateRequest(ApiRequest):
    config: StreamConfig
    pedantic: bool = False


@dataclass(frozen=True, slots=True)
class StreamDeleteRequest(ApiRequest):
    pass


@dataclass(frozen=True, slots=True)
class StreamSnapshotRequest(ApiRequest):
    """Sizes are 0 where the broker chooses."""

    deliver_subject: str
    no_consumers: bool = False
    chunk_size: int = 0
    window_size: int = 0


@dataclass(frozen=True, slots=True)
class StreamRestoreRequest(ApiRequest):
    config: StreamConfig


@dataclass(frozen=True, slots=True)
class StreamInfoRequest(ApiRequest):
    subjects_filter: str = ""
    deleted_details: bool = False
    offset: int = 0
    details: bool = False
    """Fields that NATS does not have are asked for."""


@dataclass(frozen=True, slots=True)
class StreamListRequest(ApiRequest):
    offset: int = 0
    subject: str = ""
    details: bool = False
    """As for `StreamInfoRequest`."""


@dataclass(frozen=True, slots=True)
class StreamNamesRequest(ApiRequest):
    offset: int = 0
    subject: str = ""


@dataclass(frozen=True, slots=True)
class StreamPurgeRequest(ApiRequest):
    """`seq`: purge up to, without it; `keep`: leave so many of the newest. Not both."""

    filter: str = ""
    seq: int = 0
    keep: int = 0


@dataclass(frozen=True, slots=True)
class MessageGetRequest(ApiRequest):
    """Exactly one of: `seq`; `last_by_subject`; `next_by_subject` from `seq` or a time on; the first from a time on."""

    seq: int = 0
    last_by_subject: str = ""
    next_by_subject: str = ""
    start_time_ns: int = 0
    no_header: bool = False

    @staticmethod
    def place(fields: Fields, subject: str = "") -> dict[str, Any]:
        """These of a request's fields; `subject`: the one whose last message is asked for already."""
        return {
            "seq": fields.unsigned("seq"),
            "last_by_subject": subject or fields.text("last_by_subj"),
            "next_by_subject": fields.text("next_by_subj"),
            "start_time_ns": fields.time_ns("start_time"),
            "no_header": fields.boolean("no_hdr"),
        }


@dataclass(frozen=True, slots=True)
class MessageDeleteRequest(ApiRequest):
    seq: int = 0
    no_erase: bool = False


@dataclass(frozen=True, slots=True)
class StreamStepDownRequest(ApiRequest):
    successor: Placement = ANYWHERE


@dataclass(frozen=True, slots=True)
class MetaStepDownRequest(ApiRequest):
    """Of the map of streams; it names no stream."""

    successor: Placement = ANYWHERE


@dataclass(frozen=True, slots=True)
class StreamMoveCancelRequest(ApiRequest):
    account: str


@dataclass(frozen=True, slots=True)
class StreamPeerRemoveRequest(ApiRequest):
    peer: str


@dataclass(frozen=True, slots=True)
class ServerRemoveRequest(ApiRequest):
    peer: str


@dataclass(frozen=True, slots=True)
class AccountPurgeRequest(ApiRequest):
    account: str


@dataclass(frozen=True, slots=True)
class ConsumerRequest(ApiRequest):
    name: str


@dataclass(frozen=True, slots=True)
class ConsumerCreateRequest(ConsumerRequest):
    """`name` is empty for an ephemeral consumer that the broker names. `action`: create, update or empty for both."""

    config: ConsumerConfig
    action: str = ""
    pedantic: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerPauseRequest(ConsumerRequest):
    until_ns: int
    """0, or a time that is over: the consumer goes on."""


@dataclass(frozen=True, slots=True)
class ConsumerResetRequest(ConsumerRequest):
    seq: int
    """The next sequence to deliver; 0: the first that is not acknowledged."""


@dataclass(frozen=True, slots=True)
class ConsumerUnpinRequest(ConsumerRequest):
    group: str


@dataclass(frozen=True, slots=True)
class ConsumerStepDownRequest(ConsumerRequest):
    successor: Placement = ANYWHERE


@dataclass(frozen=True, slots=True)
class ConsumerDeleteRequest(ConsumerRequest):
    pass


@dataclass(frozen=True, slots=True)
class ConsumerInfoRequest(ConsumerRequest):
    pass


@dataclass(frozen=True, slots=True)
class ConsumerNextRequest(ConsumerRequest):
    payload: bytes


@dataclass(frozen=True, slots=True)
class ConsumerListRequest(ApiRequest):
    offset: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerNamesRequest(ApiRequest):
    offset: int = 0
