"""The part of a stream's configuration that says what publishers may ask for with a message's headers.

NATS's rules: what goes together, what one field brings along, and what may change later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from supercluster.broker.jetstream.durations import SECOND_NS
from supercluster.broker.jetstream.errors import invalid_config

if TYPE_CHECKING:
    from supercluster.broker.jetstream.config import StreamConfig


def check_publishing(config: StreamConfig) -> None:
    """
    Raises:
        ApiError: fields that contradict one another.
    """
    if config.subject_delete_marker_ttl_ns < 0:
        raise invalid_config("subject delete marker TTL must not be negative")
    if 0 < config.subject_delete_marker_ttl_ns < SECOND_NS:
        raise invalid_config("subject delete marker TTL must be at least 1 second")
    if config.allow_msg_counter:
        _check_counters(config)


def _check_counters(config: StreamConfig) -> None:
    """A sum that misses messages is none."""
    if config.discard == "new":
        raise invalid_config("counter stream cannot use discard new")
    if config.retention != "limits":
        raise invalid_config("counter stream can only use limits retention")
    if config.allow_msg_ttl:
        raise invalid_config("counter stream cannot use message TTLs")
    if config.allow_msg_schedules:
        raise invalid_config("counter stream cannot use message schedules")


def with_what_it_needs(config: StreamConfig) -> StreamConfig:
    """Delete markers are roll-ups with a TTL, and schedules roll-ups: a stream that has them allows both, and purging too."""
    if config.subject_delete_marker_ttl_ns > 0:
        config = replace(config, allow_msg_ttl=True, allow_rollup_hdrs=True, deny_purge=False)
    if config.allow_msg_schedules:
        config = replace(config, allow_rollup_hdrs=True, deny_purge=False)
    return config


def check_publishing_update(current: StreamConfig, wanted: StreamConfig) -> None:
    """
    Raises:
        ApiError: what a stream promised its publishers once may not be taken back.
    """
    if current.allow_msg_ttl and not wanted.allow_msg_ttl:
        raise invalid_config("message TTL status can not be disabled")
    if current.allow_msg_schedules and not wanted.allow_msg_schedules:
        raise invalid_config("message schedules can not be disabled")
    if current.allow_msg_counter != wanted.allow_msg_counter:
        raise invalid_config("stream configuration update can not change message counter setting")


def publishing_to_json(config: StreamConfig) -> dict[str, Any]:
    """The fields that NATS shows only where they are set, in its order."""
    known = {
        "subject_delete_marker_ttl": config.subject_delete_marker_ttl_ns,
        "allow_msg_counter": config.allow_msg_counter,
        "allow_atomic": config.allow_atomic,
        "allow_msg_schedules": config.allow_msg_schedules,
    }
    return {name: value for name, value in known.items() if value}
