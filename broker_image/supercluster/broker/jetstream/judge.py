"""The leader's verdict on each number, against the state at the end of its log (SF-12; `log_end.py`).

The common block, of a broker that knows the stream's newest configuration, without headers, for a stream that does not
refuse when full, is taken as a whole: no work per message.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

from supercluster.broker.jetstream.durations import SECOND_NS
from supercluster.broker.jetstream.log_end import LogEnd
from supercluster.broker.jetstream.message_ttl import TTL, ttl_seconds
from supercluster.broker.jetstream.messages import logical_bytes
from supercluster.broker.jetstream.sections import (
    Block,
    Exceptional,
    MessagesSection,
    SessionKey,
    Verdict,
    VerdictRun,
    decode_block,
    encode_block,
)
from supercluster.broker.jetstream.stream import MSG_ID, ROLLUP, StreamState
from supercluster.broker.jetstream.transform_config import SubjectMap, TransformConfig
from supercluster.broker.protocol.headers import get as header_value
from supercluster.broker.protocol.headers import with_value
from supercluster.broker.protocol.subjects import is_valid_filter, matches
from supercluster.broker.raft.entry import Entry

# NATS's err_codes of refused publishes.
EXPECTED_STREAM = 10060
EXPECTED_LAST_SEQUENCE = 10071
EXPECTED_LAST_MSG_ID = 10070
MESSAGE_TOO_LARGE = 10054
STREAM_FULL = 10077
NO_RESOURCES = 10047
STREAM_SEALED = 10109
ROLLUP_REFUSED = 10111
TTL_INVALID = 10165
TTL_DISABLED = 10166
BAD_EXPECTATION = 10003
EXPECTATION_WITHOUT_SEQUENCE = 10193

# Headers that ask for what a stream has to allow in its configuration. No stream here can (the configuration is refused),
# and storing the message as if it had not asked would promise it in silence.
NOT_ALLOWED_HEADERS = (
    (b"Nats-Incr", 10168),
    (b"Nats-Batch-Id", 10174),
    (b"Nats-Schedule", 10188),
)

# Sequences have 64 bits; a longer number in a header is none.
SEQUENCE_DIGITS_MAX = 20

# Which limit a STREAM_FULL verdict means, in the verdict's `seq`.
FULL_MESSAGES, FULL_BYTES, FULL_SUBJECT = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Forward:
    """A block that a broker wants stored: numbers first_number … of its session."""

    session: SessionKey
    first_number: int
    confirmed: int
    config_version: int
    block: bytes | memoryview


@dataclass(slots=True)
class Candidate:
    """A message that is judged. What is stored of it may differ from what was sent."""

    subject: bytes
    header: bytes
    payload: bytes
    is_ours: bool = False
    """Was it published to a subject of the stream?"""


class Answer(Enum):
    """What the leader says to a forward besides taking it."""

    TAKEN = auto()
    KNOWN = auto()
    """All its numbers are in the log: verdicts follow when they are applied, or are there already."""
    AGAIN_FROM = auto()
    """Numbers are missing in front of it: again from `next_number`."""
    OPEN_FIRST = auto()
    """No such session is open."""
    SHUT_OUT = auto()
    """A newer session of that broker is open."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The judge's answer; with `TAKEN` the section to append."""

    answer: Answer
    next_number: int = 0
    section: MessagesSection | None = None


class Judge:
    """Judges forwards at the end of the log. One per term of leadership."""

    def __init__(self, state: StreamState, uncommitted: Iterable[Entry]) -> None:
        self.end = LogEnd(state, uncommitted)
        self._transform: TransformConfig | None = None
        self._subjects = SubjectMap(None)

    def take(self, forward: Forward, now_ns: int, *, room: bool = True) -> Taken:
        """Judge the next numbers of a session. The caller appends the section in the same turn, in this order.

        Raises:
            WireError: the block is not one.
        """
        session = self.end.session(forward.session)
        if session is None:
            return Taken(Answer.OPEN_FIRST if self.end.may_open(forward.session) else Answer.SHUT_OUT)
        next_number = session.last_number + 1
        if forward.first_number > next_number:
            return Taken(Answer.AGAIN_FROM, next_number)
        block = decode_block(forward.block)
        if forward.first_number + block.count <= next_number:
            return Taken(Answer.KNOWN, next_number)
        raw = forward.block
        if forward.first_number < next_number:
            raw = encode_block(block.parts()[3 * (next_number - forward.first_number) :])
            block = decode_block(raw)
        if room and self._plain(forward, block):
            run = VerdictRun(next_number, block.count, self.end.next_seq)
            self.end.note_block(block)
        else:
            run, raw = self._judge_each(forward, block, next_number, now_ns, room=room)
        session.last_number = run.last_number
        self.end.next_seq += run.stored
        return Taken(
            Answer.TAKEN,
            next_number,
            MessagesSection(forward.session, min(forward.confirmed, session.last_number), run, raw),
        )

    def _plain(self, forward: Forward, block: Block) -> bool:
        """Can the whole block be taken without a look at each message?"""
        config = self.end.config
        if forward.config_version != self.end.config_version or config.sealed or block.has_headers:
            return False
        if config.subject_transform is not None:
            return False
        if config.discard == "new" and (
            config.max_msgs > 0 or config.max_bytes > 0 or config.max_msgs_per_subject > 0
        ):
            return False
        lengths = block.lengths
        # An empty subject marks a number that its taker gave up (SF-15).
        if not all(lengths[0::3]):
            return False
        return config.max_msg_size < 0 or max(lengths[2::3]) <= config.max_msg_size

    def _judge_each(
        self, forward: Forward, block: Block, first_number: int, now_ns: int, *, room: bool
    ) -> tuple[VerdictRun, bytes]:
        parts = block.parts()
        exceptions: list[Exceptional] = []
        first_seq = seq = self.end.next_seq
        for offset in range(block.count):
            at = 3 * offset
            subject, header, payload = parts[at : at + 3]
            message = Candidate(subject, header, payload)
            message.is_ours = message.subject != b"" and any(
                matches(message.subject, pattern.encode()) for pattern in self.end.config.subjects
            )
            if message.is_ours:
                message.subject = self._stored_subject(message.subject, seq)
            found = self._judge_one(message, seq, now_ns, room=room)
            if found is None:
                stored = parts[at : at + 3] = (message.subject, message.header, message.payload)
                self.end.note(message.subject, message.header, seq)
                if self.end.config.discard == "new":
                    self.end.note_size(*stored, seq)
                seq += 1
            else:
                exceptions.append(replace(found, offset=offset))
                parts[at : at + 3] = (b"", b"", b"")
        return VerdictRun(first_number, block.count, first_seq, tuple(exceptions)), encode_block(parts)

    def _stored_subject(self, subject: bytes, seq: int) -> bytes:
        """By the stream's subject_transform; the header's expectations are about that one, too."""
        transform = self.end.config.subject_transform
        if transform is None:
            return subject
        if transform is not self._transform:
            self._transform, self._subjects = transform, SubjectMap(transform.compiled())
        return self._subjects.find(subject, seq) or subject

    def _judge_one(self, message: Candidate, seq: int, now_ns: int, *, room: bool) -> Exceptional | None:
        """None: it is stored at `seq`."""
        config = self.end.config
        if not message.subject:
            return Exceptional(0, Verdict.VOID)
        if not message.is_ours:
            return Exceptional(0, Verdict.REROUTE)
        if config.sealed:
            return Exceptional(0, Verdict.REFUSED, STREAM_SEALED)
        if config.max_msg_size >= 0 and len(message.payload) + len(message.header) > config.max_msg_size:
            return Exceptional(0, Verdict.REFUSED, MESSAGE_TOO_LARGE)
        if message.header:
            found = self._judge_header(message, seq, now_ns)
            if found is not None:
                return found
        if not room:
            return Exceptional(0, Verdict.REFUSED, NO_RESOURCES)
        if config.discard == "new":
            return self._judge_fullness(message, seq)
        return None

    def _judge_header(self, message: Candidate, seq: int, now_ns: int) -> Exceptional | None:
        subject, header = message.subject, message.header
        if TTL in header:
            refused = self._judge_ttl(message)
            if refused is not None:
                return refused
        message_id = header_value(header, MSG_ID)
        if message_id:
            known = self.end.seq_of_message_id(message_id, now_ns)
            if known:
                return Exceptional(0, Verdict.DUPLICATE, 0, known)
        if b"\r\nNats-Expected-" in header:
            refused = self._judge_expectations(subject, header, seq)
            if refused is not None:
                return refused
        for name, code in NOT_ALLOWED_HEADERS:
            if name in header and header_value(header, name) is not None:
                return Exceptional(0, Verdict.REFUSED, code)
        rollup = header_value(header, ROLLUP)
        if rollup and not self.end.config.allow_rollup_hdrs:
            return Exceptional(0, Verdict.REFUSED, ROLLUP_REFUSED)
        if rollup and rollup not in (b"all", b"sub"):
            return Exceptional(0, Verdict.REFUSED, ROLLUP_REFUSED, 1)
        return None

    def _judge_ttl(self, message: Candidate) -> Exceptional | None:
        """A TTL shorter than that of the stream's delete markers is raised to it, as NATS does."""
        seconds = ttl_seconds(message.header)
        if seconds is None:
            return Exceptional(0, Verdict.REFUSED, TTL_INVALID)
        if seconds and not self.end.config.allow_msg_ttl:
            return Exceptional(0, Verdict.REFUSED, TTL_DISABLED)
        least = self.end.config.subject_delete_marker_ttl_ns // SECOND_NS
        if 0 < seconds < least:
            message.header = with_value(message.header, TTL, b"%d" % least)
        return None

    def _judge_expectations(self, subject: bytes, header: bytes, seq: int) -> Exceptional | None:
        expected = header_value(header, b"Nats-Expected-Stream")
        if expected and expected != self.end.config.name.encode():
            return Exceptional(0, Verdict.REFUSED, EXPECTED_STREAM)
        expected = header_value(header, b"Nats-Expected-Last-Msg-Id")
        if expected and expected != self.end.last_message_id:
            return Exceptional(0, Verdict.REFUSED, EXPECTED_LAST_MSG_ID)
        return self._judge_expected_sequences(subject, header, seq)

    def _judge_expected_sequences(self, subject: bytes, header: bytes, seq: int) -> Exceptional | None:
        """Last sequence of the stream, and of a subject: the message's own, or one that it names."""
        about = header_value(header, b"Nats-Expected-Last-Subject-Sequence-Subject")
        if about and not _is_pattern(about):
            return Exceptional(0, Verdict.REFUSED, BAD_EXPECTATION)
        for name, of_stream in (
            (b"Nats-Expected-Last-Sequence", True),
            (b"Nats-Expected-Last-Subject-Sequence", False),
        ):
            expected = header_value(header, name)
            if expected is None:
                continue
            if not expected.isdigit() or len(expected) > SEQUENCE_DIGITS_MAX:
                return Exceptional(0, Verdict.REFUSED, BAD_EXPECTATION)
            actual = seq - 1 if of_stream else self.end.last_of_subject(about or subject)
            if int(expected) != actual:
                return Exceptional(0, Verdict.REFUSED, EXPECTED_LAST_SEQUENCE, actual)
        if about and header_value(header, b"Nats-Expected-Last-Subject-Sequence") is None:
            return Exceptional(0, Verdict.REFUSED, EXPECTATION_WITHOUT_SEQUENCE)
        return None

    def _judge_fullness(self, message: Candidate, seq: int) -> Exceptional | None:
        config, end = self.end.config, self.end
        if config.max_msgs > 0 and end.messages_before(seq) >= config.max_msgs:
            return Exceptional(0, Verdict.REFUSED, STREAM_FULL, FULL_MESSAGES)
        if config.max_bytes > 0:
            size = logical_bytes(message.subject, message.header, message.payload)
            if end.logical_bytes + size > config.max_bytes:
                return Exceptional(0, Verdict.REFUSED, STREAM_FULL, FULL_BYTES)
        most_of_subject = config.max_msgs_per_subject if config.discard_new_per_subject else 0
        if 0 < most_of_subject <= end.count_of(message.subject):
            return Exceptional(0, Verdict.REFUSED, STREAM_FULL, FULL_SUBJECT)
        return None


def _is_pattern(subject: bytes) -> bool:
    """Can this stand for subjects, as text too?"""
    try:
        subject.decode()
    except UnicodeDecodeError:
        return False
    return is_valid_filter(subject)
