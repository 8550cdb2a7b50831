"""A stream's state as it will be when every entry in its leader's log is applied (SF-12).

Committed state alone is not enough to judge by: two creates of one key in flight would both succeed. So the
leader keeps the effects of the entries that are appended and not yet applied: next sequence, next number of
each session, message ids, last sequence per subject, sizes. A newly elected leader rebuilds this from the log
after replaying all of it, and a deposed one discards it; committed state is never touched.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.encoding.sections import (
    Block,
    Section,
    SessionKey,
    decode_messages,
    decode_session,
    sections,
)
from supercluster.broker.jetstream.state.cut import CUT_SECTIONS
from supercluster.broker.jetstream.state.log_reader import decode_stored, logical_bytes
from supercluster.broker.jetstream.state.lookup import newest_behind
from supercluster.broker.jetstream.state.source_positions import OriginPosition, decode_taken
from supercluster.broker.jetstream.state.stream import MSG_ID, StreamState
from supercluster.broker.protocol.headers import header_value
from supercluster.broker.protocol.subjects import has_wildcard, matches
from supercluster.broker.raft.entry import Entry, EntryKind

# What takes single messages away.
_REMOVING = (Section.PURGE, Section.DELETE_MESSAGE, Section.EXPIRE, Section.EXPIRE_MESSAGES)
# How many stale keys the pending maps may hold before they are swept: a sweep costs as much as it finds.
PENDING_SLACK = 1024
# Patterns whose last message is remembered, and how many messages later that is of use.
PATTERNS_MAX = 256
PATTERN_MESSAGES_MAX = 4096
# What `note_stored` changes.
_NOTED = (
    *("next_seq", "last_message_id", "_pending_ids", "_pending_subjects", "_pending_counters"),
    *("_pending_sizes", "_pending_replacing", "_pending_counts", "_pending_logical"),
)


def _removes(entry: Entry) -> bool:
    is_batch = entry.kind == EntryKind.BATCH
    return is_batch and any(kind in _REMOVING for kind, _ in sections(entry.payload))


@dataclass(slots=True)
class SessionEnd:
    """A session, and the last of its numbers that is in the log."""

    key: SessionKey
    last_number: int
    retired: frozenset[str] = frozenset()
    """Incarnations of the broker before this one's, of which the state may not know yet."""


class LogTail:
    """See the module. One per term of leadership."""

    def __init__(self, state: StreamState, uncommitted: Iterable[Entry]) -> None:
        self.state = state
        self.config = state.config
        self.config_version = state.config_version
        self.next_seq = state.last_seq + 1
        self.last_message_id = state.last_message_id
        """Of the newest message, empty when it has none."""
        self.positions = dict(state.origins)
        """Of the origins that messages are taken from, by their keys."""
        self._sessions = {s.key.node: SessionEnd(s.key, s.last_number) for s in state.sessions.states()}
        self._pending_ids: dict[bytes, int] = {}
        self._pending_subjects: dict[bytes, int] = {}
        # Blocks that were taken as a whole: looked into only when somebody asks for a subject's last sequence.
        self._pending_blocks: deque[tuple[int, Block]] = deque()
        # (sequence, subject, logical bytes) of what is stored and not applied, while a full stream refuses.
        # Sequence, subject, bytes more than before, and whether an older message of the subject goes for it.
        self._pending_sizes: deque[tuple[int, bytes, int, bool]] = deque()
        self._pending_replacing = 0
        self._pending_counts: Counter[bytes] = Counter()
        self._pending_logical = 0
        # subject → (sequence, header, payload): what counters stand at that are not applied.
        self._pending_counters: dict[bytes, tuple[int, bytes, bytes]] = {}
        self._removal_index = 0
        self._cut_index = 0
        """The newest entry that moves the stream's cut, until it is applied."""
        self._pattern_lasts: dict[str, tuple[int, int]] = {}
        """What is applied: the stream's last sequence when a pattern was asked about, and the last that matched then."""
        self._pending_bytes: dict[int, int] = {}
        self.unapplied_bytes = 0
        """Bytes that are appended and not applied."""
        for entry in uncommitted:
            self._replay(entry)

    # ---- entries --------------------------------------------------------------------------------------------------

    def _replay(self, entry: Entry) -> None:
        """Take an entry of an earlier leader (or of an earlier turn) into account."""
        if entry.has_sections:
            for kind, body in sections(entry.payload):
                if kind == Section.MESSAGES:
                    found = decode_messages(body)
                    self.opened(found.session)
                    self._sessions[found.session.node].last_number = found.run.last_number
                elif kind == Section.SESSION_OPEN:
                    self.opened(decode_session(Reader(body)))
                elif kind == Section.ORIGIN_TAKEN:
                    self.taken(*decode_taken(Reader(body)))
                elif kind == Section.RESTORED:
                    self.next_seq = max(self.next_seq, Reader(body).u64() + 1)
                elif kind in CUT_SECTIONS:
                    self.cut_moves(entry.index)
                elif kind == Section.CONFIG_PUT:
                    reader = Reader(body)
                    reader.u64(), reader.u64()
                    self.configured(StreamConfig.from_json(json.loads(bytes(reader.rest()))))
        if entry.count:
            decoded = decode_stored(entry)
            for seq in range(entry.first_seq, entry.first_seq + entry.count):
                message = decoded.message(seq)
                if not message.subject:
                    continue  # A mirror's origin has nothing there.
                self.note(message.subject, message.header, seq)
                self.note_size(message.subject, message.header, message.payload, seq)
                self.note_counter(message.subject, message.header, message.payload, seq)
            self.next_seq = max(self.next_seq, entry.first_seq + entry.count)
        self.appended(entry, len(entry.record))

    def configured(self, config: StreamConfig) -> None:
        """An entry with that configuration is at the end of the log. The first one says where the sequences begin, and
        messages may follow it before it is applied."""
        if self.state.config_version == 0 and self.next_seq == 1:
            self.next_seq = max(config.first_seq, 1)

    def appended(self, entry: Entry, size_bytes: int) -> None:
        """An entry was appended: what it adds is pending until `applied`."""
        self._pending_bytes[entry.index] = size_bytes
        self.unapplied_bytes += size_bytes
        if self.config.allow_msg_counter and _removes(entry):
            self._removal_index = entry.index

    def cut_moves(self, index: int) -> None:
        """The entry fences the stream, or takes it further (`state/cut.py`)."""
        self._cut_index = index

    @property
    def is_cut_pending(self) -> bool:
        """Is there such an entry that is not applied?"""
        return self._cut_index > 0

    @property
    def is_closed(self) -> bool:
        """Is the stream closed, or about to be closed or opened by an entry that is not applied? Nothing is judged before it is."""
        return self.is_cut_pending or self.state.cut.is_closed

    @property
    def is_removing(self) -> bool:
        """May what the counters stand at be removed by an entry that is not applied? What comes behind it is judged when it is:
        a sum must not outlive the purge in front of it."""
        return self._removal_index > 0

    def applied(self, index: int) -> None:
        """The entry at `index` is in the committed state now."""
        self.unapplied_bytes -= self._pending_bytes.pop(index, 0)
        if index >= self._removal_index:
            self._removal_index = 0
        if index >= self._cut_index:
            self._cut_index = 0
        self.config = self.state.config
        self.config_version = self.state.config_version
        committed = self.state.last_seq
        blocks = self._pending_blocks
        while blocks and blocks[0][0] + blocks[0][1].count - 1 <= committed:
            blocks.popleft()
        sizes = self._pending_sizes
        while sizes and sizes[0][0] <= committed:
            _, subject, size, replaces = sizes.popleft()
            self._pending_logical -= size
            self._pending_replacing -= replaces
            self._pending_counts[subject] -= 1
            if not self._pending_counts[subject]:
                del self._pending_counts[subject]
        counters = self._pending_counters
        if len(counters) > PENDING_SLACK + 2 * (self.next_seq - committed):
            for subject in [subject for subject, found in counters.items() if found[0] <= committed]:
                del counters[subject]
        for pending in (self._pending_ids, self._pending_subjects):
            if len(pending) > PENDING_SLACK + 2 * (self.next_seq - committed):
                for key in [key for key, seq in pending.items() if seq <= committed]:
                    del pending[key]

    def taken(self, key: str, position: OriginPosition) -> None:
        """An entry at the end of the log says up to where an origin's messages are taken. A mirror's sequences are its
        origin's: none of those that are behind it is given to another message, should it end to be a mirror."""
        self.positions[key] = position
        if self.config.mirror is not None and not self.config.mirror.filters:
            self.next_seq = max(self.next_seq, position.up_to + 1)

    @property
    def pending_messages(self) -> int:
        """How many are stored and not applied, while the stream refuses when full."""
        return len(self._pending_sizes)

    # ---- sessions -------------------------------------------------------------------------------------------------

    def session(self, key: SessionKey) -> SessionEnd | None:
        """The end of that session, if it is open at the end of the log."""
        end = self._sessions.get(key.node)
        return end if end is not None and end.key == key else None

    def may_open(self, key: SessionKey) -> bool:
        """Is no newer session of that broker known?"""
        end = self._sessions.get(key.node)
        if end is not None and end.key.incarnation == key.incarnation and key.counter < end.key.counter:
            return False
        if end is not None and key.incarnation in end.retired:
            return False
        return not self.state.sessions.shut_out(key)

    def opened(self, key: SessionKey) -> None:
        """An entry that opens the session was appended."""
        if self.session(key) is not None:
            return
        before, retired = self._sessions.get(key.node), frozenset[str]()
        if before is not None:
            retired = before.retired
            if before.key.incarnation != key.incarnation:
                retired |= {before.key.incarnation}
        self._sessions[key.node] = SessionEnd(key, 0, retired)

    # ---- messages -------------------------------------------------------------------------------------------------

    def note_block(self, block: Block) -> None:
        """Messages without headers, stored from `next_seq` on, were taken as a whole."""
        self.last_message_id = b""
        self._pending_blocks.append((self.next_seq, block))

    def note_own(self, parts: Sequence[bytes]) -> None:
        """Messages of the leader's own are stored from `next_seq` on."""
        for at in range(0, len(parts), 3):
            subject, header, payload = parts[at : at + 3]
            self.note_stored(subject, header, payload, self.next_seq)
            self.next_seq += 1

    def note_stored(self, subject: bytes, header: bytes, payload: bytes, seq: int) -> None:
        """A message is stored at `seq`, and what of it counts for later ones is to be known."""
        self.note(subject, header, seq)
        if self.config.discard == "new":
            self.note_size(subject, header, payload, seq)
        if self.config.allow_msg_counter:
            self.note_counter(subject, header, payload, seq)

    def note(self, subject: bytes, header: bytes, seq: int) -> None:
        """A message is stored at `seq`."""
        self._pending_subjects[subject] = seq
        message_id = header_value(header, MSG_ID) if header else None
        self.last_message_id = message_id or b""
        if message_id:
            self._pending_ids[message_id] = seq

    def note_size(self, subject: bytes, header: bytes, payload: bytes, seq: int) -> None:
        """What a stream that refuses when full has to count before it is applied."""
        size = logical_bytes(subject, header, payload) - self.replaced_bytes(subject)
        replaces = self.replaces(subject)
        self._pending_sizes.append((seq, subject, size, replaces))
        self._pending_replacing += replaces
        self._pending_counts[subject] += 1
        self._pending_logical += size

    def note_counter(self, subject: bytes, header: bytes, payload: bytes, seq: int) -> None:
        """What the subject's counter stands at from now on."""
        if self.config.allow_msg_counter:
            self._pending_counters[subject] = (seq, header, payload)

    def counter(self, subject: bytes) -> tuple[bytes, bytes] | None:
        """Header and payload of the last message of a counter's subject; None when there is none."""
        pending = self._pending_counters.get(subject)
        if pending is not None and pending[0] > self.state.last_seq:
            return pending[1], pending[2]
        message = self.state.message(self.state.subjects.last_seq(subject))
        return (message.header, message.payload) if message is not None else None

    @contextmanager
    def all_or_nothing(self) -> Iterator[Callable[[], None]]:
        """What is noted inside counts only if the yielded function is called before the end: a batch is taken as a whole."""
        self._look_into_blocks()
        before = {name: copy(getattr(self, name)) for name in _NOTED}
        kept: list[bool] = []
        yield lambda: kept.append(True)
        if not kept:
            vars(self).update(before)

    def seq_of_message_id(self, message_id: bytes, now_ns: int) -> int:
        """Where the message with that id is, within the duplicates window; 0: nowhere."""
        pending = self._pending_ids.get(message_id, 0)
        if pending > self.state.last_seq:
            return pending
        return self.state.known_message_id(message_id, now_ns) or 0

    def last_of_subject(self, subject: bytes) -> int:
        """The last sequence of a subject, or of those that a pattern matches."""
        self._look_into_blocks()
        if not has_wildcard(subject):
            pending = self._pending_subjects.get(subject, 0)
            return pending if pending > self.state.last_seq else self.state.subjects.last_seq(subject)
        pending = max(
            (seq for other, seq in self._pending_subjects.items() if matches(other, subject)), default=0
        )
        if pending > self.state.last_seq:
            return pending
        return self._last_applied(subject.decode())

    def _last_applied(self, pattern: str) -> int:
        """All subjects are asked at the first time, and when what was the last is gone; else the messages since are looked at."""
        state, known = self.state, self._pattern_lasts.pop(pattern, None)
        last = None
        if known is not None and state.last_seq - known[0] <= PATTERN_MESSAGES_MAX:
            last = newest_behind(state, pattern, known[0])
            if not last:
                last = known[1] if not known[1] or state.has(known[1]) else None
        if last is None:
            last = state.subjects.last_for_filters(pattern)
        self._pattern_lasts[pattern] = state.last_seq, last
        if len(self._pattern_lasts) > PATTERNS_MAX:
            del self._pattern_lasts[next(iter(self._pattern_lasts))]
        return last

    def _look_into_blocks(self) -> None:
        while self._pending_blocks:
            first_seq, block = self._pending_blocks.popleft()
            for seq, found in enumerate(block.subjects(), first_seq):
                if self._pending_subjects.get(found, 0) < seq:
                    self._pending_subjects[found] = seq

    def messages_before(self, seq: int) -> int:
        """How many messages there are when those below `seq` are applied."""
        return self.state.messages + (seq - 1 - self.state.last_seq) - self._pending_replacing

    @property
    def logical_bytes(self) -> int:
        """Their size, while the stream refuses when full."""
        return self.state.bytes + self._pending_logical

    def replaces(self, subject: bytes) -> bool:
        """Does the subject's oldest message go when it gets another one?"""
        count = self.state.subjects.count(subject) + self._pending_counts[subject]
        return 0 < self.config.max_msgs_per_subject <= count

    def replaced_bytes(self, subject: bytes) -> int:
        """The size of what goes then; 0 where it is not known, because it is not applied itself."""
        if not self.replaces(subject) or self._pending_counts[subject] or self.config.max_bytes <= 0:
            return 0
        return self.state.bytes_of_oldest(subject)
