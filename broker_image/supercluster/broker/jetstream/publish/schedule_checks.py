"""Checks of a message that is a schedule: its headers, and whether the stream allows it
(allow_msg_schedules).
"""

from __future__ import annotations

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.cron import PatternError, ZoneError, check_zone
from supercluster.broker.jetstream.state.message_ttl import read_ttl
from supercluster.broker.jetstream.state.schedules import (
    NEXT,
    PURGE,
    SCHEDULE,
    SCHEDULER,
    ZONE,
    schedule_of,
)
from supercluster.broker.jetstream.state.stream import ROLLUP
from supercluster.broker.protocol.headers import header_value, with_value
from supercluster.broker.protocol.subjects import is_valid_literal, matches

TARGET, SOURCE = b"Nats-Schedule-Target", b"Nats-Schedule-Source"
SCHEDULE_TTL, SCHEDULE_ROLLUP = b"Nats-Schedule-TTL", b"Nats-Schedule-Rollup"
TTL_DISABLED = 10166
DISABLED, INVALID_PATTERN, INVALID_TARGET, INVALID_TTL = 10188, 10189, 10190, 10191
INVALID_ROLLUP, INVALID_SOURCE, INVALID_SCHEDULER, INVALID_ZONE = 10192, 10203, 10212, 10223


class ScheduleError(Exception):
    """What is wrong, as NATS's err_code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"schedule: err_code {code}")
        self.code = code


def check_schedule(config: StreamConfig, subject: bytes, header: bytes) -> bytes:
    """The header that is stored of a message that is, or sends on, a schedule; of others their own.

    Raises:
        ScheduleError: it can't be.
    """
    _check_scheduler(config, header)
    pattern, zone = header_value(header, SCHEDULE), header_value(header, ZONE)
    if not pattern and zone is None:
        return header
    if not config.allow_msg_schedules:
        raise ScheduleError(DISABLED)
    try:
        if zone is not None:
            check_zone(zone.decode("utf-8", "replace"))  # Also of a message that is no schedule.
        schedule_of(header)
    except PatternError:
        raise ScheduleError(INVALID_PATTERN) from None
    except ZoneError:
        raise ScheduleError(INVALID_ZONE) from None
    if not pattern:
        return header
    ttl = header_value(header, SCHEDULE_TTL)
    if ttl and read_ttl(ttl) is None:
        raise ScheduleError(INVALID_TTL)
    if ttl and not config.allow_msg_ttl:
        raise ScheduleError(TTL_DISABLED)
    target, source = header_value(header, TARGET), header_value(header, SOURCE)
    if not target or not _may_be(config, target, subject):
        raise ScheduleError(INVALID_TARGET)
    if header_value(header, SCHEDULE_ROLLUP) not in (None, b"", b"sub"):
        raise ScheduleError(INVALID_ROLLUP)
    if source and (source == target or not _may_be(config, source, subject)):
        raise ScheduleError(INVALID_SOURCE)
    rollup = header_value(header, ROLLUP)
    if rollup and rollup.lower() != b"sub":
        raise ScheduleError(INVALID_ROLLUP)
    return header if rollup else with_value(header, ROLLUP, b"sub")


def _check_scheduler(config: StreamConfig, header: bytes) -> None:
    """All that a client may say of a schedule that is there is that it ends; times are the leader's to say."""
    scheduler, told = header_value(header, SCHEDULER), header_value(header, NEXT)
    if not scheduler and not told:
        return
    if not scheduler or told != PURGE or not is_valid_literal(scheduler):
        raise ScheduleError(INVALID_SCHEDULER)
    if not config.allow_msg_schedules:
        raise ScheduleError(DISABLED)


def _may_be(config: StreamConfig, subject: bytes, schedule_subject: bytes) -> bool:
    """Another subject than the schedule's own, that the stream has?"""
    return (
        is_valid_literal(subject)
        and subject != schedule_subject
        and any(matches(subject, pattern.encode()) for pattern in config.subjects)
    )
