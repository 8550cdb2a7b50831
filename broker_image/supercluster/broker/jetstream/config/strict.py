"""The additional checks of a pedantic request.

A client that sets `pedantic` wants exactly the given values or an error. If the broker would have to derive a
value from another one or correct it silently, the request fails with NATS's error text. Omitted values still
get their defaults. The flag is not stored: an accepted configuration is the same as without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supercluster.broker.jetstream.config.consumer import ACK_WAIT_DEFAULT_NS, ConsumerConfig
from supercluster.broker.jetstream.config.limits import MS_NS, ServerLimits
from supercluster.broker.jetstream.config.source_checks import Find
from supercluster.broker.jetstream.config.stream import DUPLICATE_WINDOW_DEFAULT_NS, StreamConfig
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.encoding.json_fields import Fields
from supercluster.broker.jetstream.errors import PEDANTIC, ApiError, error, invalid_config

_STREAM_LIMITS = ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers")
_CONSUMER_UNLIMITED = ("max_deliver", "max_ack_pending")
_CONSUMER_COUNTS = (
    "max_waiting",
    "max_batch",
    "max_expires",
    "max_bytes",
    "idle_heartbeat",
    "inactive_threshold",
    "priority_timeout",
)


def _refused(why: str) -> ApiError:
    return error(PEDANTIC, why)


def stream_config(data: Mapping[str, Any]) -> StreamConfig:
    """A stream's configuration, of NATS's JSON.

    Raises:
        ApiError: it contradicts itself, or says less than is needed.
    """
    fields = Fields(data, "stream config")
    for name in _STREAM_LIMITS:
        if fields.integer(name) < -1:
            raise _refused(f"{name} must be set to -1")
    config = read_stream(data)
    looks_for_duplicates = config.mirror is None and not config.sources
    window_is_open = looks_for_duplicates and not fields.integer("duplicate_window")
    if window_is_open and 0 < config.max_age_ns < DUPLICATE_WINDOW_DEFAULT_NS:
        raise _refused("duplicate window cannot be bigger than max age")
    _check_what_it_needs(fields, config)
    _check_republish(fields, config)
    return config


def _check_what_it_needs(fields: Fields, config: StreamConfig) -> None:
    has_markers = config.subject_delete_marker_ttl_ns > 0
    if has_markers and not fields.boolean("allow_msg_ttl"):
        raise invalid_config("subject delete marker cannot be set if message TTLs are disabled")
    if has_markers and not fields.boolean("allow_rollup_hdrs"):
        raise invalid_config("subject delete marker cannot be set if roll-ups are disabled")
    if config.allow_msg_schedules and not fields.boolean("allow_rollup_hdrs"):
        raise invalid_config("message scheduling cannot be set if roll-ups are disabled")


def _check_republish(fields: Fields, config: StreamConfig) -> None:
    asked = fields.nested("republish")
    if asked is None or config.republish is None:
        return
    if not asked.get("src"):
        raise _refused("republish source can not be empty")
    if asked["src"] != config.republish.src:
        raise _refused("implicit republish based on subject transform")


def check_window(config: StreamConfig, limits: ServerLimits) -> None:
    """A duplicate window that is not said is not shortened to the server's limit either.

    Raises:
        ApiError: 10157.
    """
    most_ns = limits.duplicate_window_ms * MS_NS
    fills_in = config.duplicate_window_ns > 0 and not config.has_own_window
    if fills_in and 0 < most_ns < DUPLICATE_WINDOW_DEFAULT_NS:
        raise _refused("duplicate window limits are higher than current limits")


def check_mirror(config: StreamConfig, find: Find) -> None:
    """A mirror answers direct gets where its origin does; `find` knows the account's other streams.

    Raises:
        ApiError: 10157, it says something else.
    """
    mirror = config.mirror
    origin = find(mirror.name) if mirror is not None and mirror.external is None else None
    if origin is not None and config.mirror_direct != origin.allow_direct:
        raise _refused("origin stream has direct get set, mirror has it disabled")


def check_consumer(data: Mapping[str, Any]) -> None:
    """What a consumer's configuration says by itself, in NATS's JSON.

    Raises:
        ApiError: 10157.
    """
    fields = Fields(data, "consumer config")
    for name in _CONSUMER_UNLIMITED:
        if fields.integer(name) < -1:
            raise _refused(f"{name} must be set to -1")
    for name in _CONSUMER_COUNTS:
        if fields.integer(name) < 0:
            raise _refused(f"{name} must not be negative")
    backoff_ns, needs_ack = fields.integers("backoff"), fields.text("ack_policy") in ("all", "explicit")
    ack_wait_ns = fields.integer("ack_wait") or (ACK_WAIT_DEFAULT_NS if needs_ack else 0)
    if backoff_ns and backoff_ns[0] != ack_wait_ns:
        raise _refused("first backoff value has to equal batch AckWait")


def check_consumer_limits(config: ConsumerConfig, stream: StreamConfig, server: ServerLimits) -> None:
    """What the limits of the stream and the server would fill in.

    Raises:
        ApiError: 10157.
    """
    limits = stream.consumer_limits
    for name, limit in (
        ("max_ack_pending", limits.max_ack_pending),
        ("inactive_threshold", limits.inactive_threshold_ns),
    ):
        if limit > 0 and name in config.unset:
            raise _refused(f"{name} must be set if it's configured in stream limits")
    if server.max_request_batch and not config.is_push and not config.max_batch:
        raise _refused("max_request_batch must be set if it's JetStream limits are set")
