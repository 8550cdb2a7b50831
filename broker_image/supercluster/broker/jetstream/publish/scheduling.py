"""Message schedules (allow_msg_schedules): a stream sends a message on when it is due, once or repeatedly.

The due times are part of the replicated state (`state/schedules.py`). The message that is sent on is the
leader's own, and its headers carry the schedule's next time or its end. So all replicas agree, and a new
leader sends nothing twice (SF-13).
"""

from __future__ import annotations

from supercluster.broker.jetstream.encoding.cron import ZoneError
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.encoding.timestamps import format_time
from supercluster.broker.jetstream.publish.leader_turn import LeaderTurn
from supercluster.broker.jetstream.publish.log_tail import LogTail
from supercluster.broker.jetstream.publish.proposal import ENTRY_BYTES_MAX
from supercluster.broker.jetstream.publish.schedule_checks import (
    SCHEDULE_ROLLUP,
    SCHEDULE_TTL,
    SOURCE,
    TARGET,
)
from supercluster.broker.jetstream.state.log_reader import Message
from supercluster.broker.jetstream.state.message_ttl import TTL
from supercluster.broker.jetstream.state.schedules import (
    NEXT,
    PURGE,
    SCHEDULER,
    encode_due,
    schedule_of,
)
from supercluster.broker.jetstream.state.stream import ROLLUP, StreamState
from supercluster.broker.protocol.durations import SECOND_NS
from supercluster.broker.protocol.headers import build, header_value, parse_header

# What a message that is sent on does not take over from the schedule, or from the source: what was said to the stream.
_LEFT_BEHIND = (b"Nats-Schedule", b"Nats-Expected-", b"Nats-Batch-")
_LEFT_BEHIND_TOO = frozenset((SCHEDULER, TTL, ROLLUP, b"Nats-Msg-Id", b"Nats-Incr", b"Nats-Counter-Sources"))
# As many are sent on with one entry; the next look is a moment later then.
DUE_MAX = 500
MORE_MS = 20
# A stream or a disk that is full is not asked again at once.
BACK_OFF_MS = 1000


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

    def put(self, turn: LeaderTurn) -> None:
        """What is due becomes a part of this turn's entry; the next one waits until it is applied."""
        is_held = turn.is_hidden or turn.proposal.is_full
        if not is_held and self.is_due(turn.stream.state, turn.time_ns, turn.now_ms):
            self._put(turn)

    def _put(self, turn: LeaderTurn) -> None:
        end, proposal, now_ns, now_ms = turn.admission.end, turn.proposal, turn.time_ns, turn.now_ms
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
    lines = [pair for pair in parse_header(content.header) or () if not _is_left_behind(pair[0])]
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
