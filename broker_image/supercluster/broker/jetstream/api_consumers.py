"""The calls of the JetStream API about consumers, from names and payload to one object each; and what all readers share."""

from __future__ import annotations

from supercluster.broker.jetstream.api_requests import (
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
from supercluster.broker.jetstream.consumer_checks import check_consumer_name
from supercluster.broker.jetstream.consumer_config import ConsumerConfig
from supercluster.broker.jetstream.errors import NOT_EMPTY_REQUEST, STREAM_MISMATCH, error
from supercluster.broker.jetstream.json_fields import Fields, decode_object, invalid_json


def empty(payload: bytes) -> None:
    """Some clients send an empty object where others send nothing; NATS takes either."""
    if b"".join(payload.split()) not in (b"", b"{}"):
        raise error(NOT_EMPTY_REQUEST)


def preferred(payload: bytes) -> str:
    """The broker that is to lead; empty: any."""
    data = decode_object(payload)
    preferred = ""
    if data:
        fields = Fields(data, "request")
        placement = Fields(fields.nested("placement") or {}, "placement")
        preferred = placement.text("preferred")
        placement.unsupported({"cluster": (), "tags": ()})
        placement.done()
        fields.done()
    return preferred


def consumer_create(names: list[str], payload: bytes) -> ApiRequest:
    """`CONSUMER.CREATE.<stream>` (ephemeral), `….<stream>.<name>`, `….<stream>.<name>.<filter>`."""
    stream, name, subject_filter = names[0], names[1] if len(names) > 1 else "", ".".join(names[2:])
    config, action = consumer_config(stream, payload)
    if not name and config.durable_name:
        raise error(10020)
    if name and config.durable_name and config.durable_name != name:
        raise error(10017)
    if subject_filter:
        if len(config.filter_subjects) > 1 or not config.single_filter:
            raise error(10137)
        if config.filter_subjects != (subject_filter,):
            raise error(10131)
    return ConsumerCreateRequest(stream, name or config.name, named(config, name), action)


def durable_create(names: list[str], payload: bytes) -> ApiRequest:
    stream, name = names
    config, action = consumer_config(stream, payload)
    if not config.durable_name:
        raise error(10018)
    if config.durable_name != name:
        raise error(10017)
    return ConsumerCreateRequest(stream, name, config, action)


def consumer_config(stream: str, payload: bytes) -> tuple[ConsumerConfig, str]:
    fields = Fields(decode_object(payload), "request")
    if fields.text("stream_name") != stream:
        raise error(STREAM_MISMATCH)
    data = fields.nested("config")
    if data is None:
        raise error(10078)
    action = fields.choice("action", ("create", "update"), "")
    fields.boolean("pedantic")
    fields.done()
    return ConsumerConfig.from_json(data), action


def named(config: ConsumerConfig, name: str) -> ConsumerConfig:
    if not name or config.name == name:
        return config
    check_consumer_name(name)
    return ConsumerConfig.from_json(config.to_json() | {"name": name})


def consumer_delete(names: list[str], payload: bytes) -> ApiRequest:
    empty(payload)
    return ConsumerDeleteRequest(names[0], names[1])


def consumer_info(names: list[str], payload: bytes) -> ApiRequest:
    empty(payload)
    return ConsumerInfoRequest(names[0], names[1])


def consumer_next(names: list[str], payload: bytes) -> ApiRequest:
    return ConsumerNextRequest(names[0], names[1], payload)


def consumer_pause(names: list[str], payload: bytes) -> ApiRequest:
    fields = Fields(decode_object(payload), "request")
    until_ns = fields.time_ns("pause_until")
    fields.done()
    return ConsumerPauseRequest(names[0], names[1], until_ns)


def consumer_reset(names: list[str], payload: bytes) -> ApiRequest:
    fields = Fields(decode_object(payload), "request")
    seq = fields.unsigned("seq")
    fields.done()
    return ConsumerResetRequest(names[0], names[1], seq)


def consumer_unpin(names: list[str], payload: bytes) -> ApiRequest:
    if not payload.strip():
        raise invalid_json("unexpected end of JSON input")
    fields = Fields(decode_object(payload), "request")
    group = fields.text("group")
    fields.done()
    if not group:
        raise invalid_json("consumer group not specified")
    return ConsumerUnpinRequest(names[0], names[1], group)


def consumer_step_down(names: list[str], payload: bytes) -> ApiRequest:
    return ConsumerStepDownRequest(names[0], names[1], preferred(payload))


def consumer_list(names: list[str], payload: bytes) -> ApiRequest:
    return ConsumerListRequest(names[0], only_offset(payload))


def consumer_names(names: list[str], payload: bytes) -> ApiRequest:
    return ConsumerNamesRequest(names[0], only_offset(payload))


def only_offset(payload: bytes) -> int:
    fields = Fields(decode_object(payload), "request")
    found = offset(fields)
    fields.done()
    return found


def offset(fields: Fields) -> int:
    return max(fields.integer("offset"), 0)
