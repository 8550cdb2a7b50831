"""The leader's verdict on each number, against the state at the end of its log (SF-12).

Committed state alone is not enough: two creates of one key in flight would both win. So the judge keeps what the
entries that are appended but not yet applied will add: next sequence, next number of each session, message ids, last
sequence per subject. It is made anew from the log when a leader is elected (after all of it was replayed) and thrown
away when the leader is deposed; committed state is never touched.

The common block, of a broker that knows the stream's newest configuration, without headers, for a stream that does not
refuse when full, is taken as a whole: no work per message.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

from supercluster.broker.jetstream.config import StreamConfig
from supercluster.broker.jetstream.messages import decode_stored, logical_bytes
from supercluster.broker.jetstream.sections import (
    Block,
    Exceptional,
    MessagesSection,
    Section,
    SessionKey,
    Verdict,
    VerdictRun,
    decode_block,
    decode_messages,
    decode_session,
    encode_block,
    sections,
)
from supercluster.broker.jetstream.stream import MSG_ID, ROLLUP, StreamState
from supercluster.broker.jetstream.wire import Reader
from supercluster.broker.protocol.headers import get as header_value
from supercluster.broker.protocol.subjects import has_wildcard, is_valid_filter, matches
from supercluster.broker.raft.entry import Entry, EntryKind

# NATS's err_codes of refused publishes.
EXPECTED_STREAM = 10060
EXPECTED_LAST_SEQUENCE = 10071
EXPECTED_LAST_MSG_ID = 10070
MESSAGE_TOO_LARGE = 10054
STREAM_FULL = 10077
NO_RESOURCES = 10047
STREAM_SEALED = 10109
ROLLUP_REFUSED = 10111
BAD_EXPECTATION = 10003
EXPECTATION_WITHOUT_SEQUENCE = 10193

# Headers that ask for what a stream has to allow in its configuration. No stream here can (the configuration is refused),
# and storing the message as if it had not asked would promise it in silence.
NOT_ALLOWED_HEADERS = (
    (b"Nats-TTL", 10166),
    (b"Nats-Incr", 10168),
    (b"Nats-Batch-Id", 10174),
    (b"Nats-Schedule", 10188),
)

# Sequences have 64 bits; a longer number in a header is none.
SEQUENCE_DIGITS_MAX = 20

# How many stale keys the pending maps may hold before they are swept: a sweep costs as much as it finds.
PENDING_SLACK = 1024

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


@dataclass(slots=True)
class _SessionEnd:
    key: SessionKey
    last_number: int


class Judge:
    """Judges forwards at the end of the log. One per term of leadership."""

    def __init__(self, state: StreamState, uncommitted: Iterable[Entry]) -> None:
        self._state = state
        self.next_seq = state.last_seq + 1
        self.config_version = state.config_version
        self._config = state.config
        self._sessions = {s.key.node: _SessionEnd(s.key, s.last_number) for s in state.sessions.states()}
        self._pending_ids: dict[bytes, int] = {}
        self._pending_subjects: dict[bytes, int] = {}
        # Blocks that were taken as a whole: looked into only when somebody asks for a subject's last sequence.
        self._pending_blocks: deque[tuple[int, Block]] = deque()
        # (sequence, subject, logical bytes) of what is stored and not applied, while a full stream refuses.
        self._pending_sizes: deque[tuple[int, bytes, int]] = deque()
        self._pending_counts: Counter[bytes] = Counter()
        self._pending_logical = 0
        self._pending_bytes: dict[int, int] = {}
        self._pending_bytes_total = 0
        self._last_id = state.last_message_id
        for entry in uncommitted:
            self._replay(entry)

    # ---- the end of the log ---------------------------------------------------------------------------------------

    def _replay(self, entry: Entry) -> None:
        """Take an entry of an earlier leader (or of an earlier turn) into account."""
        if entry.kind == EntryKind.BATCH:
            for kind, body in sections(entry.payload):
                if kind == Section.MESSAGES:
                    found = decode_messages(body)
                    self._sessions[found.session.node] = _SessionEnd(found.session, found.run.last_number)
                elif kind == Section.SESSION_OPEN:
                    self.opened(decode_session(Reader(body)))
                elif kind == Section.SESSION_DROP:
                    self._sessions.pop(Reader(body).text(), None)
                elif kind == Section.CONFIG_PUT:
                    reader = Reader(body)
                    reader.u64(), reader.u64()
                    self.configured(StreamConfig.from_json(json.loads(bytes(reader.rest()))))
        if entry.count:
            decoded = decode_stored(entry)
            for seq in range(entry.first_seq, entry.first_seq + entry.count):
                message = decoded.message(seq)
                self._note(message.subject, message.header, seq)
                self._note_size(message.subject, message.header, message.payload, seq)
            self.next_seq = entry.first_seq + entry.count
        self.appended(entry, len(entry.record))

    def configured(self, config: StreamConfig) -> None:
        """An entry with that configuration is at the end of the log. The first one says where the sequences begin, and
        messages may follow it before it is applied."""
        if self._state.config_version == 0 and self.next_seq == 1:
            self.next_seq = max(config.first_seq, 1)

    def appended(self, entry: Entry, size_bytes: int) -> None:
        """An entry was appended: what it adds is pending until `applied`."""
        self._pending_bytes[entry.index] = size_bytes
        self._pending_bytes_total += size_bytes

    def applied(self, index: int) -> None:
        """The entry at `index` is in the committed state now."""
        self._pending_bytes_total -= self._pending_bytes.pop(index, 0)
        self._config = self._state.config
        self.config_version = self._state.config_version
        committed = self._state.last_seq
        blocks = self._pending_blocks
        while blocks and blocks[0][0] + blocks[0][1].count - 1 <= committed:
            blocks.popleft()
        sizes = self._pending_sizes
        while sizes and sizes[0][0] <= committed:
            _, subject, size = sizes.popleft()
            self._pending_logical -= size
            self._pending_counts[subject] -= 1
            if not self._pending_counts[subject]:
                del self._pending_counts[subject]
        for pending in (self._pending_ids, self._pending_subjects):
            if len(pending) > PENDING_SLACK + 2 * (self.next_seq - committed):
                for key in [key for key, seq in pending.items() if seq <= committed]:
                    del pending[key]

    def _note(self, subject: bytes, header: bytes, seq: int) -> None:
        self._pending_subjects[subject] = seq
        message_id = header_value(header, MSG_ID) if header else None
        self._last_id = message_id or b""
        if message_id:
            self._pending_ids[message_id] = seq

    def _note_size(self, subject: bytes, header: bytes, payload: bytes, seq: int) -> None:
        """What a stream that refuses when full has to count before it is applied."""
        size = logical_bytes(subject, header, payload)
        self._pending_sizes.append((seq, subject, size))
        self._pending_counts[subject] += 1
        self._pending_logical += size

    @property
    def unapplied_bytes(self) -> int:
        """Bytes that are appended and not applied."""
        return self._pending_bytes_total

    # ---- sessions -------------------------------------------------------------------------------------------------

    def may_open(self, key: SessionKey) -> bool:
        end = self._sessions.get(key.node)
        if end is not None and end.key.incarnation == key.incarnation and key.counter < end.key.counter:
            return False
        return not self._state.sessions.shut_out(key)

    def is_open(self, key: SessionKey) -> bool:
        """Is that session open at the end of the log?"""
        end = self._sessions.get(key.node)
        return end is not None and end.key == key

    def opened(self, key: SessionKey) -> None:
        """An entry that opens the session was appended."""
        end = self._sessions.get(key.node)
        if end is None or end.key != key:
            self._sessions[key.node] = _SessionEnd(key, 0)

    # ---- judging --------------------------------------------------------------------------------------------------

    def take(self, forward: Forward, now_ns: int, *, room: bool = True) -> Taken:
        """Judge the next numbers of a session. The caller appends the section in the same turn, in this order.

        Raises:
            WireError: the block is not one.
        """
        end = self._sessions.get(forward.session.node)
        if end is None or end.key != forward.session:
            return Taken(Answer.OPEN_FIRST if self.may_open(forward.session) else Answer.SHUT_OUT)
        next_number = end.last_number + 1
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
            run = VerdictRun(next_number, block.count, self.next_seq)
            self._last_id = b""
            self._pending_blocks.append((self.next_seq, block))
        else:
            run, raw = self._judge_each(forward, block, next_number, now_ns, room=room)
        end.last_number = run.last_number
        self.next_seq += run.stored
        return Taken(
            Answer.TAKEN,
            next_number,
            MessagesSection(forward.session, min(forward.confirmed, end.last_number), run, raw),
        )

    def _plain(self, forward: Forward, block: Block) -> bool:
        """Can the whole block be taken without a look at each message?"""
        config = self._config
        if forward.config_version != self.config_version or config.sealed or block.has_headers:
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
        first_seq = seq = self.next_seq
        for offset in range(block.count):
            at = 3 * offset
            subject, header, payload = parts[at : at + 3]
            found = self._judge_one(subject, header, payload, seq, now_ns, room=room)
            if found is None:
                self._note(subject, header, seq)
                if self._config.discard == "new":
                    self._note_size(subject, header, payload, seq)
                seq += 1
            else:
                exceptions.append(replace(found, offset=offset))
                parts[at : at + 3] = (b"", b"", b"")
        return VerdictRun(first_number, block.count, first_seq, tuple(exceptions)), encode_block(parts)

    def _judge_one(
        self, subject: bytes, header: bytes, payload: bytes, seq: int, now_ns: int, *, room: bool
    ) -> Exceptional | None:
        """None: it is stored at `seq`."""
        config = self._config
        if not subject:
            return Exceptional(0, Verdict.VOID)
        if not any(matches(subject, pattern.encode()) for pattern in config.subjects):
            return Exceptional(0, Verdict.REROUTE)
        if config.sealed:
            return Exceptional(0, Verdict.REFUSED, STREAM_SEALED)
        if config.max_msg_size >= 0 and len(payload) + len(header) > config.max_msg_size:
            return Exceptional(0, Verdict.REFUSED, MESSAGE_TOO_LARGE)
        if header:
            found = self._judge_header(subject, header, seq, now_ns)
            if found is not None:
                return found
        if not room:
            return Exceptional(0, Verdict.REFUSED, NO_RESOURCES)
        if config.discard == "new":
            return self._judge_fullness(subject, header, payload, seq)
        return None

    def _judge_header(self, subject: bytes, header: bytes, seq: int, now_ns: int) -> Exceptional | None:
        message_id = header_value(header, MSG_ID)
        if message_id:
            pending = self._pending_ids.get(message_id, 0)
            known = (
                pending
                if pending > self._state.last_seq
                else self._state.known_message_id(message_id, now_ns)
            )
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
        if rollup and not self._config.allow_rollup_hdrs:
            return Exceptional(0, Verdict.REFUSED, ROLLUP_REFUSED)
        if rollup and rollup not in (b"all", b"sub"):
            return Exceptional(0, Verdict.REFUSED, ROLLUP_REFUSED, 1)
        return None

    def _judge_expectations(self, subject: bytes, header: bytes, seq: int) -> Exceptional | None:
        expected = header_value(header, b"Nats-Expected-Stream")
        if expected and expected != self._config.name.encode():
            return Exceptional(0, Verdict.REFUSED, EXPECTED_STREAM)
        expected = header_value(header, b"Nats-Expected-Last-Msg-Id")
        if expected and expected != self._last_id:
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
            actual = seq - 1 if of_stream else self._last_of_subject(about or subject)
            if int(expected) != actual:
                return Exceptional(0, Verdict.REFUSED, EXPECTED_LAST_SEQUENCE, actual)
        if about and header_value(header, b"Nats-Expected-Last-Subject-Sequence") is None:
            return Exceptional(0, Verdict.REFUSED, EXPECTATION_WITHOUT_SEQUENCE)
        return None

    def _last_of_subject(self, subject: bytes) -> int:
        """The last sequence of a subject, or of those that a pattern matches, at the end of the log."""
        while self._pending_blocks:
            first_seq, block = self._pending_blocks.popleft()
            for seq, found in enumerate(block.subjects(), first_seq):
                if self._pending_subjects.get(found, 0) < seq:
                    self._pending_subjects[found] = seq
        if not has_wildcard(subject):
            pending = self._pending_subjects.get(subject, 0)
            return pending if pending > self._state.last_seq else self._state.subjects.last_seq(subject)
        pending = max(
            (seq for other, seq in self._pending_subjects.items() if matches(other, subject)), default=0
        )
        if pending > self._state.last_seq:
            return pending
        return self._state.subjects.last_for_filters(subject.decode())

    def _judge_fullness(self, subject: bytes, header: bytes, payload: bytes, seq: int) -> Exceptional | None:
        config, state = self._config, self._state
        if config.max_msgs > 0 and state.messages + (seq - 1 - state.last_seq) >= config.max_msgs:
            return Exceptional(0, Verdict.REFUSED, STREAM_FULL, FULL_MESSAGES)
        if config.max_bytes > 0:
            size = logical_bytes(subject, header, payload)
            if state.bytes + self._pending_logical + size > config.max_bytes:
                return Exceptional(0, Verdict.REFUSED, STREAM_FULL, FULL_BYTES)
        if config.max_msgs_per_subject > 0 and config.discard_new_per_subject:
            held = state.subjects.count(subject) + self._pending_counts[subject]
            if held >= config.max_msgs_per_subject:
                return Exceptional(0, Verdict.REFUSED, STREAM_FULL, FULL_SUBJECT)
        return None


def _is_pattern(subject: bytes) -> bool:
    """Can this stand for subjects, as text too?"""
    try:
        subject.decode()
    except UnicodeDecodeError:
        return False
    return is_valid_filter(subject)
