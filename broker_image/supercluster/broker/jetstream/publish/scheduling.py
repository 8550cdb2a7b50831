"""Message schedules (allow_msg_schedules): a message that its stream sends on, once or again and again, when it is due.

What is due when is part of the replicated state (`state/schedules.py`). What is sent on is a message of the leader's own, which
says by its headers what it does to the schedule: its next time, or its end. So every replica knows the same, and a new
leader sends nothing twice (SF-13).
"""

from __future__ import annotations

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.cron import PatternError, ZoneError, check_zone
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.encoding.timestamps import format_time
from supercluster.broker.jetstream.publish.log_tail import LogTail
from supercluster.broker.jetstream.publish.proposal import ENTRY_BYTES_MAX, Proposal
from supercluster.broker.jetstream.state.log_reader import Message
from supercluster.broker.jetstream.state.message_ttl import TTL, read_ttl
from supercluster.broker.jetstream.state.schedules import (
    NEXT,
    PURGE,
    SCHEDULE,
    SCHEDULER,
    ZONE,
    encode_due,
    schedule_of,
)
from supercluster.broker.jetstream.state.stream import ROLLUP, StreamState
from supercluster.broker.protocol.durations import SECOND_NS
from supercluster.broker.protocol.headers import build, parse, with_value
from supercluster.broker.protocol.headers import get as header_value
from supercluster.broker.protocol.subjects import is_valid_literal, matches

TARGET, SOURCE = b"Nats-Schedule-Target", b"Nats-Schedule-Source"
SCHEDULE_TTL, SCHEDULE_ROLLUP = b"Nats-Schedule-TTL", b"Nats-Schedule-Rollup"
TTL_DISABLED = 10166
DISABLED, INVALID_PATTERN, INVALID_TARGET, INVALID_TTL = 10188, 10189, 10190, 10191
INVALID_ROLLUP, INVALID_SOURCE, INVALID_SCHEDULER, INVALID_ZONE = 10192, 10203, 10212, 10223

# What a message that is sent on does not take over from the schedule, or from the source: what was said to the stream.
_LEFT_BEHIND = (b"Nats-Schedule", b"Nats-Expected-", b"Nats-Batch-")
_LEFT_BEHIND_TOO = frozenset((SCHEDULER, TTL, ROLLUP, b"Nats-Msg-Id", b"Nats-Incr", b"Nats-Counter-Sources"))
# As many are sent on with one entry; the next look is a moment later then.
DUE_MAX = 500
MORE_MS = 20
# A stream or a disk that is full is not asked again at once.
BACK_OFF_MS = 1000


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


class Scheduling:
    """Sends on what is due. One per term of leadership."""

    def __init__(self) -> None:
        self._is_under_way = False
        self._check_ms = 0
        self._now_ms = 0

    def is_due(self, state: StreamState, now_ns: int, now_ms: int) -> bool:
        """Is there something to send on?"""
        if not state.schedules or self._is_under_way or now_ms < self._check_ms:
            return False
        next_ns = state.schedules.next_ns()
        return next_ns is not None and next_ns <= now_ns

    def put(self, end: LogTail, now_ns: int, now_ms: int, proposal: Proposal) -> None:
        """What is due becomes a part of this turn's entry; the next one waits until it is applied."""
        self._now_ms, self._check_ms = now_ms, now_ms + MORE_MS
        due = end.state.schedules.due(now_ns, DUE_MAX)
        if _is_full(end):
            self._check_ms = now_ms + BACK_OFF_MS
            return
        own: list[bytes] = []
        found_out: list[bytes] = []
        size = 0
        for due_ns, subject in due:
            if size > ENTRY_BYTES_MAX:
                break  # Each may be as large as a message can be; those left are due when this entry is applied.
            found = end.state.schedules.get(subject)
            message = end.state.message(found[0]) if found is not None else None
            if message is None or end.last_of_subject(subject) > message.seq:
                continue  # Another message of the subject is on its way: it is the schedule then, or its end.
            try:
                if due_ns == 0:
                    found_out.append(_due_by_zone(message))
                    continue
                sent = _sent_on(end.state, message, due_ns, now_ns)
                own += sent
                size += sum(map(len, sent))
            except ZoneError:
                # Judged by a leader with more time zones: it waits for another one that has them.
                self._check_ms = now_ms + BACK_OFF_MS
        if own or found_out:
            self._is_under_way = True
            proposal.add(Section.SCHEDULES_DUE, list(found_out))
            proposal.commands.append(self._done)
            proposal.add_own(end, own)

    def _done(self, result: int | None) -> None:
        self._is_under_way = False
        if result is None:
            self._check_ms = self._now_ms + BACK_OFF_MS  # The disk is full, or another one leads.

    def deadline_ms(self, state: StreamState, now_ms: int, now_ns: int) -> int | None:
        """When the next one is due, by this broker's clocks."""
        next_ns = state.schedules.next_ns() if state.schedules and not self._is_under_way else None
        if next_ns is None:
            return None
        return max(self._check_ms, now_ms + max(0, -(-(next_ns - now_ns) // 1_000_000)))


def _is_full(end: LogTail) -> bool:
    """Of a stream that refuses when full: old messages are not to go for what is sent on."""
    config = end.state.config
    if config.discard != "new":
        return False
    if 0 < config.max_msgs <= end.messages_before(end.next_seq):
        return True
    return 0 < config.max_bytes <= end.logical_bytes


def _sent_on(state: StreamState, message: Message, due_ns: int, now_ns: int) -> list[bytes]:
    """Subject, header and payload of what a due schedule sends: its own, or the last message of its source."""
    schedule = schedule_of(message.header)
    target = header_value(message.header, TARGET)
    if schedule is None or not target:
        return []
    source = header_value(message.header, SOURCE)
    content = state.message(state.subjects.last_seq(source)) if source else None
    content = content or message
    told = PURGE
    if schedule.repeats:
        next_ns = schedule.after(due_ns)
        if next_ns < now_ns:
            next_ns = schedule.after(now_ns)  # What a stream without a leader missed is not made up for.
        if next_ns:
            told = format_time(next_ns // SECOND_NS * SECOND_NS).encode()
    lines = [pair for pair in parse(content.header) or () if not _is_left_behind(pair[0])]
    lines += [(SCHEDULER, message.subject), (NEXT, told)]
    ttl = header_value(message.header, SCHEDULE_TTL)
    if ttl:
        lines.append((TTL, ttl))
    if header_value(message.header, SCHEDULE_ROLLUP):
        lines.append((ROLLUP, b"sub"))
    return [target, build(lines), content.payload]


def _due_by_zone(message: Message) -> bytes:
    """When it is due by the time zones that this broker knows; the log says it to the others."""
    schedule = schedule_of(message.header)
    due_ns = schedule.after(message.time_ns) if schedule is not None else 0
    return encode_due(message.subject, message.seq, max(due_ns, 1))


def _is_left_behind(name: bytes) -> bool:
    return name in _LEFT_BEHIND_TOO or name.startswith(_LEFT_BEHIND)
