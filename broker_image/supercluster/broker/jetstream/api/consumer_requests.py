"""The calls of the JetStream API about consumers, from names and payload to one object each; and what all readers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from supercluster.broker.jetstream.api.requests import (
    ApiRequest,
    ConsumerCreateRequest,
    ConsumerDeleteRequest,
    ConsumerInfoRequest,
    ConsumerListRequest,
    ConsumerNamesRequest,
    ConsumerNextRequest,
    ConsumerPauseRequest,
    ConsumerResetRequest,
    ConsumerStepDownRequest,
    ConsumerUnpinRequest,
)
from supercluster.broker.jetstream.config import strict
from supercluster.broker.jetstream.config.consumer_checks import read_consumer
from supercluster.broker.jetstream.config.stream import ANYWHERE, Placement
from supercluster.broker.jetstream.encoding.json_fields import (
    Fields,
    decode_if_object,
    decode_object,
    invalid_json,
    is_empty_request,
)
from supercluster.broker.jetstream.errors import (
    CONSUMER_NAME_IS_PATH,
    NOT_EMPTY_REQUEST,
    STREAM_MISMATCH,
    error,
)


def empty(payload: bytes) -> None:
    """Some clients send an empty object where others send nothing; NATS takes either."""
    if not is_empty_request(payload):
        raise error(NOT_EMPTY_REQUEST)


def successor(payload: bytes) -> Placement:
    """Which broker is to lead, by name, cluster or tags; none of them: any."""
    data = decode_object(payload)
    if not data:
        return ANYWHERE
    fields = Fields(data, "request")
    found = Placement.from_json(fields.nested("placement") or {})
    fields.done()
    return found


@dataclass(frozen=True, slots=True)
class _Put:
    """A request to create or to change a consumer, before its configuration is judged."""

    stream: str
    name: str
    """The subject's; empty where there is none."""
    data: dict[str, Any]
    durable_name: str
    action: str
    is_pedantic: bool

    def request(self) -> ConsumerCreateRequest:
        """`name` counts, whatever the configuration says.

        Raises:
            ApiError: there can be no such consumer.
        """
        if self.is_pedantic:
            strict.check_consumer(self.data)
        config = read_consumer({**self.data, "name": self.name} if self.name else self.data)
        # Judged here alone: consumers that are there already may be so.
        if config.direct and not config.is_push:
            raise error(10090)
        if config.direct and config.durable_name:
            raise error(10091)
        return ConsumerCreateRequest(self.stream, config.name, config, self.action, self.is_pedantic)


def consumer_create(names: list[str], payload: bytes) -> ApiRequest:
    """`CONSUMER.CREATE.<stream>` (ephemeral), `….<stream>.<name>`, `….<stream>.<name>.<filter>`."""
    stream, name, subject_filter = names[0], names[1] if len(names) > 1 else "", ".".join(names[2:])
    asked = _read(stream, payload, name)
    if name and asked.durable_name not in ("", name):
        raise error(10017)
    if not name and asked.durable_name:
        raise error(10020)
    if subject_filter:
        filters = Fields(asked.data, "consumer config")
        if filters.texts("filter_subjects"):
            raise error(10137)
        if filters.text("filter_subject") != subject_filter:
            raise error(10131)
    return asked.request()


def durable_create(names: list[str], payload: bytes) -> ApiRequest:
    stream, name = names
    asked = _read(stream, payload, name)
    if not asked.durable_name:
        raise error(10018)
    if asked.durable_name != name:
        raise error(10017)
    return asked.request()


def _read(stream: str, payload: bytes, name: str) -> _Put:
    fields = Fields(decode_object(payload), "request")
    named, data = fields.text("stream_name"), fields.nested("config") or {}
    action = fields.choice("action", ("create", "update"), "")
    is_pedantic = fields.boolean("pedantic")
    fields.done()
    inner = Fields(data, "consumer config")
    in_config = inner.text("name")  # Passed over where the subject has one.
    meant = name or in_config
    durable_name = inner.text("durable_name")
    if named != stream:
        raise error(STREAM_MISMATCH)
    if "/" in meant or "\\" in meant:
        raise error(CONSUMER_NAME_IS_PATH)
    return _Put(stream, name, data, durable_name, action, is_pedantic)


def consumer_delete(names: list[str], payload: bytes) -> ApiRequest:
    empty(payload)
    return ConsumerDeleteRequest(names[0], names[1])


def consumer_info(names: list[str], payload: bytes) -> ApiRequest:
    empty(payload)
    return ConsumerInfoRequest(names[0], names[1])


def consumer_next(names: list[str], payload: bytes) -> ApiRequest:
    return ConsumerNextRequest(names[0], names[1], payload)


def consumer_pause(names: list[str], payload: bytes) -> ApiRequest:
    fields = Fields(decode_if_object(payload), "request")
    until_ns = fields.time_ns("pause_until")
    fields.done()
    return ConsumerPauseRequest(names[0], names[1], until_ns)


def consumer_reset(names: list[str], payload: bytes) -> ApiRequest:
    if payload and not payload.strip():
        raise invalid_json("unexpected end of JSON input")
    seq = Fields(decode_object(payload), "request").unsigned(
        "seq"
    )  # Other fields are passed over, as NATS does.
    return ConsumerResetRequest(names[0], names[1], seq)


def consumer_unpin(names: list[str], payload: bytes) -> ApiRequest:
    if not payload.strip():
        raise invalid_json("unexpected end of JSON input")
    group = Fields(decode_object(payload), "request").text("group")
    if not group:
        raise invalid_json("consumer group not specified")
    return ConsumerUnpinRequest(names[0], names[1], group)


def consumer_step_down(names: list[str], payload: bytes) -> ApiRequest:
    return ConsumerStepDownRequest(names[0], names[1], successor(payload))


def consumer_list(names: list[str], payload: bytes) -> ApiRequest:
    return ConsumerListRequest(names[0], only_offset(payload))


def consumer_names(names: list[str], payload: bytes) -> ApiRequest:
    return ConsumerNamesRequest(names[0], only_offset(payload))


def only_offset(payload: bytes) -> int:
    fields = Fields(decode_if_object(payload), "request")
    found = offset(fields)
    fields.done()
    return found


def offset(fields: Fields) -> int:
    return max(fields.integer("offset"), 0)
