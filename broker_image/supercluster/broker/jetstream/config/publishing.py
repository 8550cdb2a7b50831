"""The fields of a stream's configuration that allow publishers to use certain headers.

The rules are NATS's: allowed combinations, fields that one field implies, and allowed changes.
"""

from __future__ import annotations

from dataclasses import replace

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.errors import invalid_config
from supercluster.broker.protocol.durations import SECOND_NS


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
