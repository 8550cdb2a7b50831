"""The JetStream API's calls about consumers, parsed from their subjects and payloads, and helpers that all
parsers share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from supercluster.broker.jetstream.api import requests
from supercluster.broker.jetstream.api.requests import ApiRequest
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

Parser = Callable[[list[str], bytes], ApiRequest]
"""Takes the names in a call's subject, and its payload."""


def empty(payload: bytes) -> None:
    """Some clients send an empty object where others send nothing; NATS takes either."""
    if not is_empty_request(payload):
        raise error(NOT_EMPTY_REQUEST)


def without_body(request: Callable[..., ApiRequest]) -> Parser:
    """Reads a call that says everything by its subject."""

    def read(names: list[str], payload: bytes) -> ApiRequest:
        empty(payload)
        return request(*names)

    return read


def step_down(request: Callable[..., ApiRequest]) -> Parser:
    """Reads which broker is to lead, by name, cluster or tags; none of them: any."""

    def read(names: list[str], payload: bytes) -> ApiRequest:
        data = decode_object(payload)
        found = ANYWHERE
        if data:
            with Fields(data, "request") as fields:
                found = Placement.from_json(fields.nested("placement") or {})
        return request(*(names or [""]), successor=found)

    return read


def offset(fields: Fields) -> int:
    return max(fields.integer("offset"), 0)


def from_offset(request: Callable[..., ApiRequest]) -> Parser:
    """Reads where a list of a stream's consumers is to begin."""

    def read(names: list[str], payload: bytes) -> ApiRequest:
        with Fields(decode_if_object(payload), "request") as fields:
            return request(names[0], offset(fields))

    return read


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

    def request(self) -> requests.ConsumerCreateRequest:
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
        return requests.ConsumerCreateRequest(self.stream, config.name, config, self.action, self.is_pedantic)


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
    with Fields(decode_object(payload), "request") as fields:
        named, data = fields.text("stream_name"), fields.nested("config") or {}
        action = fields.choice("action", ("create", "update"), "")
        is_pedantic = fields.boolean("pedantic")
    inner = Fields(data, "consumer config")
    in_config = inner.text("name")  # Passed over where the subject has one.
    meant = name or in_config
    durable_name = inner.text("durable_name")
    if named != stream:
        raise error(STREAM_MISMATCH)
    if "/" in meant or "\\" in meant:
        raise error(CONSUMER_NAME_IS_PATH)
    return _Put(stream, name, data, durable_name, action, is_pedantic)


def consumer_next(names: list[str], payload: bytes) -> ApiRequest:
    return requests.ConsumerNextRequest(names[0], names[1], payload)


def consumer_pause(names: list[str], payload: bytes) -> ApiRequest:
    with Fields(decode_if_object(payload), "request") as fields:
        return requests.ConsumerPauseRequest(names[0], names[1], fields.time_ns("pause_until"))


def consumer_reset(names: list[str], payload: bytes) -> ApiRequest:
    if payload and not payload.strip():
        raise invalid_json("unexpected end of JSON input")
    fields = Fields(decode_object(payload), "request")  # Others than this are passed over, as NATS does.
    return requests.ConsumerResetRequest(names[0], names[1], fields.unsigned("seq"))


def consumer_unpin(names: list[str], payload: bytes) -> ApiRequest:
    if not payload.strip():
        raise invalid_json("unexpected end of JSON input")
    group = Fields(decode_object(payload), "request").text("group")
    if not group:
        raise invalid_json("consumer group not specified")
    return requests.ConsumerUnpinRequest(names[0], names[1], group)
