"""The verdict of a stream's leader on one message: store it as it is, store it changed, or refuse it with a
reason (SF-12).

The rules apply in NATS's order: a message that breaks several of them gets the same error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from supercluster.broker.bounds import HEADER_BYTES_MAX, MESSAGE_ID_BYTES_MAX, whole_number
from supercluster.broker.jetstream.config.transforms import SubjectMap, TransformConfig
from supercluster.broker.jetstream.encoding.sections import Block, Exceptional, Verdict
from supercluster.broker.jetstream.publish import counters
from supercluster.broker.jetstream.publish.atomic_batches import DUPLICATE_ID, UNSUPPORTED_HEADER, Candidate
from supercluster.broker.jetstream.publish.counters import CounterError
from supercluster.broker.jetstream.publish.log_tail import LogTail
from supercluster.broker.jetstream.publish.schedule_checks import ScheduleError, check_schedule
from supercluster.broker.jetstream.publish.source_rewrite import SOURCE
from supercluster.broker.jetstream.state.log_reader import logical_bytes
from supercluster.broker.jetstream.state.message_ttl import TTL, ttl_seconds
from supercluster.broker.jetstream.state.stream import MSG_ID, ROLLUP
from supercluster.broker.jetstream.subjects.filters import compile_filters
from supercluster.broker.protocol.durations import SECOND_NS
from supercluster.broker.protocol.headers import header_value, with_value
from supercluster.broker.protocol.subjects import has_wildcard, is_valid_filter, matches

# NATS's err_codes of refused publishes.
EXPECTED_STREAM = 10060
EXPECTED_LAST_SEQUENCE = 10071
EXPECTED_LAST_MSG_ID = 10070
EXPECTED_IN_BATCH = 10164
MESSAGE_TOO_LARGE = 10054
HEADER_TOO_LARGE = 10097
MESSAGE_ID_TOO_LARGE = 19060
STREAM_FULL = 10077
NO_RESOURCES = 10023
STREAM_SEALED = 10109
ROLLUP_REFUSED = 10111
TTL_INVALID = 10165
TTL_DISABLED = 10166
EXPECTATION_WITHOUT_SEQUENCE = 10193

# Which limit a STREAM_FULL verdict means, in the verdict's `seq`.
FULL_MESSAGES, FULL_BYTES, FULL_SUBJECT = 0, 1, 2
# What is wrong with a roll-up, in the verdict's `seq`.
ROLLUP_NOT_PERMITTED, ROLLUP_INVALID, ROLLUP_SUB_IN_BATCH, ROLLUP_ALL_IN_BATCH = 0, 1, 2, 3
SOURCE_REFUSED = 4
"""Not about a roll-up: NATS's 10227. Clients' brokers of the version before know no such code, and would not live through it; with
this one they refuse the message in other words."""


@dataclass(slots=True)
class InBatch:
    """What went before in the same atomic batch."""

    count: int = 0
    subjects: set[bytes] = field(default_factory=set)


def refused(code: int, detail: int = 0, text: bytes = b"") -> Exceptional:
    return Exceptional(0, Verdict.REFUSED, code, detail, text)


class MessageAdmission:
    """Judges messages at the end of a leader's log."""

    def __init__(self, end: LogTail) -> None:
        self.end = end
        self._transform: TransformConfig | None = None
        self._subjects = SubjectMap(None)

    def admit(self, message: Candidate) -> Exceptional | None:
        """What needs no look at the stream's messages."""
        config = self.end.config
        if not message.subject:
            return Exceptional(0, Verdict.VOID)
        if not any(matches(message.subject, pattern.encode()) for pattern in config.subjects):
            return Exceptional(0, Verdict.REROUTE)
        if config.sealed:
            return refused(STREAM_SEALED)
        if len(message.header) > HEADER_BYTES_MAX:
            return refused(HEADER_TOO_LARGE)
        if 0 <= config.max_msg_size < len(message.payload) + len(message.header):
            return refused(MESSAGE_TOO_LARGE)
        return None

    def takes_whole(self, block: Block) -> bool:
        """Is each message of the block stored as it stands, if the stream captures its subject? False: they are judged one by one."""
        config = self.end.config
        if config.sealed or config.subject_transform is not None or config.allow_msg_counter:
            return False
        if config.discard == "new" and (
            config.max_msgs > 0 or config.max_bytes > 0 or config.max_msgs_per_subject > 0
        ):
            return False
        if block.has_headers:
            return False
        return config.max_msg_size < 0 or max(block.lengths[2::3]) <= config.max_msg_size

    def captures(self, subjects: Iterable[bytes]) -> bool:
        """Does the stream have all of these?"""
        patterns = self.end.config.subjects
        is_captured = compile_filters(patterns)
        return bool(patterns) and (is_captured is None or all(map(is_captured, subjects)))

    def judge(
        self, message: Candidate, seq: int, now_ns: int, *, room: bool, batch: InBatch | None = None
    ) -> Exceptional | None:
        """None: it is stored at `seq`, as it stands in `message` then."""
        config = self.end.config
        message.subject = self._stored_subject(message.subject, seq)
        if message.header:
            found = self._judge_header(message, seq, now_ns, batch)
            if found is not None:
                return found
        if config.allow_msg_counter:
            found = self._count(message)
            if found is not None:
                return found
        if not room:
            return refused(NO_RESOURCES)
        return self._judge_fullness(message, seq) if config.discard == "new" else None

    def judge_taken(self, message: Candidate, seq: int, now_ns: int) -> Exceptional | None:
        """A message of an origin that the stream takes messages from. A refusal other than those that `_is_held` of
        `puller` names is for good: the message is passed over."""
        config = self.end.config
        message.subject = self._stored_subject(message.subject, seq)
        if config.sealed:
            return refused(STREAM_SEALED)
        if 0 <= config.max_msg_size < len(message.payload) + len(message.header):
            return refused(MESSAGE_TOO_LARGE)
        if message.header and config.mirror is None and config.duplicate_window_ns:
            message_id = header_value(message.header, MSG_ID)
            known = self.end.seq_of_message_id(message_id, now_ns) if message_id else 0
            if known:
                return Exceptional(0, Verdict.DUPLICATE, 0, known)
        if config.allow_msg_counter and config.mirror is None:
            found = self._count_taken(message)
            if found is not None:
                return found
        if config.discard == "new":
            # Whatever sequence a mirror's message has: so many are there before it.
            before = self.end.state.last_seq + 1 + self.end.pending_messages
            return self._judge_fullness(message, before if config.mirror is not None else seq)
        return None

    def _stored_subject(self, subject: bytes, seq: int) -> bytes:
        """By the stream's subject_transform; the header's expectations are about that one, too."""
        transform = self.end.config.subject_transform
        if transform is None:
            return subject
        if transform is not self._transform:
            self._transform, self._subjects = transform, SubjectMap(transform.compiled())
        return self._subjects.find(subject, seq) or subject

    def _judge_header(
        self, message: Candidate, seq: int, now_ns: int, batch: InBatch | None
    ) -> Exceptional | None:
        config, header = self.end.config, message.header
        try:
            if counters.INCREMENT in header:
                counters.check_increment(header, message.payload, allowed=config.allow_msg_counter)
        except CounterError as error:
            return refused(error.code)
        seconds = ttl_seconds(header) if TTL in header else 0
        expects = b"\r\nNats-Expected-" in header
        expected = header_value(header, b"Nats-Expected-Stream") if expects else None
        if expected and expected != config.name.encode():
            return refused(EXPECTED_STREAM)
        if seconds and not config.allow_msg_ttl:
            return refused(TTL_DISABLED)
        if expects:
            found = self._judge_expected_sequences(message.subject, header, seq, batch)
            if found is not None:
                return found
        if b"\r\nNats-Schedule" in header:
            try:
                header = message.header = check_schedule(config, message.subject, header)
            except ScheduleError as error:
                return refused(error.code)
        if SOURCE in header and header_value(header, SOURCE):
            return refused(
                ROLLUP_REFUSED, SOURCE_REFUSED
            )  # Only a stream that takes messages of another one says where they are from.
        found = self._judge_message_id(header, now_ns, batch)
        if found is not None:
            return found
        if seconds is None:
            return refused(TTL_INVALID)
        least = config.subject_delete_marker_ttl_ns // SECOND_NS
        if 0 < seconds < least:
            message.header = with_value(header, TTL, b"%d" % least)
        return self._judge_rollup(message, batch)

    def _judge_expected_sequences(
        self, subject: bytes, header: bytes, seq: int, batch: InBatch | None
    ) -> Exceptional | None:
        """Last sequence of the stream, and of a subject: the message's own, or one that it names."""
        expected = header_value(header, b"Nats-Expected-Last-Sequence")
        if expected:
            if _sequence(expected) != seq - 1:
                return refused(EXPECTED_LAST_SEQUENCE, seq - 1)
            if batch is not None and batch.count:
                return refused(EXPECTED_IN_BATCH)
        about = header_value(header, b"Nats-Expected-Last-Subject-Sequence-Subject")
        expected = header_value(header, b"Nats-Expected-Last-Subject-Sequence")
        if not expected:
            return refused(EXPECTATION_WITHOUT_SEQUENCE) if about else None
        about = about or subject
        if batch is not None and about in batch.subjects:
            return refused(EXPECTED_IN_BATCH)
        actual = self.end.last_of_subject(about) if _may_be_stored(about) else 0
        return refused(EXPECTED_LAST_SEQUENCE, actual) if _sequence(expected) != actual else None

    def _judge_message_id(self, header: bytes, now_ns: int, batch: InBatch | None) -> Exceptional | None:
        message_id = header_value(header, MSG_ID)
        if message_id and len(message_id) > MESSAGE_ID_BYTES_MAX:
            return refused(MESSAGE_ID_TOO_LARGE, len(message_id))
        known = self.end.seq_of_message_id(message_id, now_ns) if message_id else 0
        if known:
            return refused(DUPLICATE_ID) if batch is not None else Exceptional(0, Verdict.DUPLICATE, 0, known)
        expected = header_value(header, b"Nats-Expected-Last-Msg-Id")
        if expected and batch is not None:
            return refused(UNSUPPORTED_HEADER, 0, b"Nats-Expected-Last-Msg-Id")
        if expected and expected != self.end.last_message_id:
            return refused(EXPECTED_LAST_MSG_ID, 0, self.end.last_message_id)
        return None

    def _judge_rollup(self, message: Candidate, batch: InBatch | None) -> Exceptional | None:
        rollup = header_value(message.header, ROLLUP)
        if not rollup:
            return None
        if not self.end.config.allow_rollup_hdrs:
            return refused(ROLLUP_REFUSED, ROLLUP_NOT_PERMITTED)
        how = rollup.lower()
        if how not in (b"all", b"sub"):
            return refused(ROLLUP_REFUSED, ROLLUP_INVALID, how)
        if batch is not None and how == b"sub" and message.subject in batch.subjects:
            return refused(ROLLUP_REFUSED, ROLLUP_SUB_IN_BATCH)
        if batch is not None and how == b"all" and batch.count:
            return refused(ROLLUP_REFUSED, ROLLUP_ALL_IN_BATCH)
        return None

    def _count(self, message: Candidate) -> Exceptional | None:
        try:
            message.header, message.payload, message.said = counters.count(
                self.end, message.subject, message.header
            )
        except CounterError as error:
            return refused(error.code)
        return self._judge_counted_size(message)

    def _count_taken(self, message: Candidate) -> Exceptional | None:
        origin = header_value(message.header, SOURCE) or b""
        try:
            name, _, _, _, subject, _ = origin.decode().split(" ")
            message.header, message.payload = counters.count_taken(
                self.end, message.subject, message.header, message.payload, name, subject
            )
        except CounterError as error:
            return refused(error.code)
        except ValueError:
            return refused(counters.MISSING)  # A subject that is no text.
        return self._judge_counted_size(message)

    def _judge_counted_size(self, message: Candidate) -> Exceptional | None:
        if 0 <= self.end.config.max_msg_size < len(message.payload) + len(message.header):
            return refused(MESSAGE_TOO_LARGE)
        return None

    def _judge_fullness(self, message: Candidate, seq: int) -> Exceptional | None:
        """A message that takes the place of its subject's oldest finds room where that one was."""
        config, end = self.end.config, self.end
        replaces = end.replaces(message.subject)
        if replaces and config.discard_new_per_subject:
            return refused(STREAM_FULL, FULL_SUBJECT)
        if not replaces and 0 < config.max_msgs <= end.messages_before(seq):
            return refused(STREAM_FULL, FULL_MESSAGES)
        if config.max_bytes > 0:
            size = logical_bytes(message.subject, message.header, message.payload)
            if end.logical_bytes + size - end.replaced_bytes(message.subject) > config.max_bytes:
                return refused(STREAM_FULL, FULL_BYTES)
        return None


def _sequence(text: bytes) -> int:
    """-1, which no sequence is, for what is none."""
    found = whole_number(text)
    return found if found is not None else -1


def _may_be_stored(subject: bytes) -> bool:
    """Is this a subject, or a pattern of some?"""
    return not has_wildcard(subject) or (is_valid_filter(subject) and _is_text(subject))


def _is_text(subject: bytes) -> bool:
    try:
        subject.decode()
    except UnicodeDecodeError:
        return False
    return True
