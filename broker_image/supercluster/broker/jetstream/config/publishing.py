"""The part of a stream's configuration that says what publishers may ask for with a message's headers.

NATS's rules: what goes together, what one field brings along, and what may change later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from supercluster.broker.jetstream.encoding.json_fields import Fields
from supercluster.broker.jetstream.errors import error, invalid_config
from supercluster.broker.protocol.durations import SECOND_NS

COMPRESSIONS = ("none", "s2")
PERSIST_MODES = ("default", "async")

if TYPE_CHECKING:
    from supercluster.broker.jetstream.config.stream import StreamConfig


def publishing_fields(fields: Fields) -> dict[str, Any]:
    """What NATS's JSON says of publishing, by the names of `StreamConfig`.

    Raises:
        ApiError: naming the field that is wrong.
    """
    compression = fields.said("compression", "none")
    if compression not in COMPRESSIONS:
        raise error(10025, "unknown compression algorithm")
    return {
        "compression": compression,
        "allow_msg_ttl": fields.boolean("allow_msg_ttl"),
        "subject_delete_marker_ttl_ns": fields.integer("subject_delete_marker_ttl"),
        "allow_msg_counter": fields.boolean("allow_msg_counter"),
        "allow_atomic": fields.boolean("allow_atomic"),
        "allow_msg_schedules": fields.boolean("allow_msg_schedules"),
        # Said and left empty it is the default, unlike other words.
        "persist_mode": "default"
        if fields.raw("persist_mode") == ""
        else fields.choice("persist_mode", PERSIST_MODES, "default"),
        "allow_batched": fields.boolean("allow_batched"),
    }


def check_publishing(config: StreamConfig) -> None:
    """
    Raises:
        ApiError: fields that contradict one another.
    """
    if config.subject_delete_marker_ttl_ns < 0:
        raise invalid_config("subject delete marker TTL must not be negative")
    if 0 < config.subject_delete_marker_ttl_ns < SECOND_NS:
        raise invalid_config("subject delete marker TTL must be at least 1 second")
    if config.subject_delete_marker_ttl_ns and config.mirror is not None:
        raise invalid_config("subject delete markers forbidden on mirrors")
    if config.allow_msg_counter:
        _check_counters(config)
    if config.persist_mode == "async":
        _check_async(config)


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


def _check_async(config: StreamConfig) -> None:
    """NATS acknowledges before it writes then; these brokers write as they always do, and the field is kept."""
    if config.storage != "file":
        raise invalid_config("async persist mode is only supported on file storage")
    if config.num_replicas > 1:
        raise invalid_config("async persist mode is not supported on replicated streams")
    if config.allow_atomic:
        raise invalid_config("async persist mode is not supported with atomic batch publish")


def with_what_it_needs(config: StreamConfig) -> StreamConfig:
    """Delete markers are roll-ups with a TTL, and schedules roll-ups: a stream that has them allows both, and purging too."""
    if config.subject_delete_marker_ttl_ns > 0:
        config = replace(config, allow_msg_ttl=True, allow_rollup_hdrs=True, deny_purge=False)
    if config.allow_msg_schedules:
        config = replace(config, allow_rollup_hdrs=True, deny_purge=False)
    return config


def check_publishing_new(config: StreamConfig) -> None:
    """Judged of streams that become so: those that were before are read as they are.

    Raises:
        ApiError: a schedule takes the place of the one before, which a stream that is full could not do.
    """
    if config.allow_msg_schedules and config.discard == "new" and not config.sealed:
        raise invalid_config("message scheduling cannot use discard new")


def check_publishing_update(current: StreamConfig, wanted: StreamConfig) -> None:
    """
    Raises:
        ApiError: what a stream promised its publishers once may not be taken back.
    """
    if (current.allow_msg_schedules, current.discard) != (wanted.allow_msg_schedules, wanted.discard):
        check_publishing_new(wanted)
    if current.allow_msg_ttl and not wanted.allow_msg_ttl:
        raise invalid_config("message TTL status can not be disabled")
    if current.persist_mode != wanted.persist_mode:
        raise invalid_config("stream configuration update can not change persist mode")
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
        "persist_mode": "" if config.persist_mode == "default" else config.persist_mode,
        "allow_batched": config.allow_batched,
    }
    return {name: value for name, value in known.items() if value}
