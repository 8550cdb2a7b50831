"""A stream's committed messages as its consumers read them: batches of parallel lists, without removed
messages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Sequence
from struct import Struct

from supercluster.broker.jetstream.encoding.sections import RUN, SECTION, Section, places_in_messages
from supercluster.broker.jetstream.state.log_reader import DecodedEntry
from supercluster.broker.jetstream.state.message_source import MessageBatch
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.subjects.filters import literals
from supercluster.broker.protocol.subjects import matches
from supercluster.broker.raft.entry import HEADER_BYTES, EntryKind

# Of more subjects the index is not asked which of them a pattern matches.
INDEX_ASKED_MAX = 8192
# Messages that are counted in one go, or subjects that are.
COUNTED_MAX = 4096
# As many messages that went from the stream's beginning are remembered, for consumers that had not come to them.
GONE_MAX = 8192
# Entries with one message each: so many are read at once, more each time, within so many bytes.
STRETCH_ENTRIES_MIN = 16
STRETCH_ENTRIES_MAX = 256
STRETCH_BYTES_MAX = 64 << 10
STRETCHES_MAX = 2
_ONE_MESSAGE = Struct("<IIII")
"""A block of one message up to its bytes: the count, and three lengths."""


def only_message(record: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Subject, header and payload of an entry that adds one message and nothing else; None of any other."""
    kind, size = SECTION.unpack_from(record, HEADER_BYTES)
    at = HEADER_BYTES + SECTION.size
    if at + size != len(record):
        return None
    if kind == Section.MESSAGES:
        _, run = places_in_messages(record, at)
        _, count, _, exceptions = RUN.unpack_from(record, run)
        if count != 1 or exceptions:
            return None
        at = run + RUN.size
    elif kind != Section.OWN_MESSAGES:
        return None
    count, subject, header, payload = _ONE_MESSAGE.unpack_from(record, at)
    subject += at + _ONE_MESSAGE.size
    header += subject
    if count != 1 or header + payload != len(record):
        return None
    return record[at + _ONE_MESSAGE.size : subject], record[subject:header], record[header:]


class Stretches:
    """Entries of one stream that have one message each, as a publisher that waits for each acknowledgement leaves them: who reads on
    gets many of them as if they were one. To look up, read and hand over each by itself costs several times what a message does.
    """

    def __init__(self, state: StreamState) -> None:
        self._state = state
        self._kept: deque[DecodedEntry] = deque(maxlen=STRETCHES_MAX)
        self._passed = 0
        """The sequence that was come to last of entries with one message: who asks for the next one reads on."""
        self._reach = STRETCH_ENTRIES_MIN
        self._failed = -STRETCH_ENTRIES_MAX
        """A sequence behind which nothing could be joined: from there on the next ones are not tried either."""

    def entry_of(self, seq: int, count_max: int) -> DecodedEntry | None:
        """As `MessageReader.entry_of`, or a stretch, for somebody who wants so many messages. None of it is behind the stream's last
        one: what is applied, the log keeps. Damage in what is read on is noticed now, and not when somebody comes to it."""
        for stretch in self._kept:
            if stretch.first_seq <= seq < stretch.first_seq + stretch.count:
                return stretch
        reader = self._state.reader
        found = reader.entry_of(seq)
        if found is None or found.count > 1 or found.times_ns or reader.is_carried(seq):
            return found
        reads_on, self._passed = seq == self._passed + 1, seq
        if not reads_on or self._failed <= seq < self._failed + STRETCH_ENTRIES_MAX:
            return found
        return self._join(found, min(self._reach, max(count_max, STRETCH_ENTRIES_MIN)))

    def _join(self, first: DecodedEntry, reach: int) -> DecodedEntry:
        """With those behind it, as far as they are as simple."""
        parts, times, is_whole = list(first.parts), [first.time_ns], True
        last_seq = self._state.last_seq
        entries = self._state.reader.entries(first.index + 1, first.index + reach, STRETCH_BYTES_MAX)
        for entry in entries:
            if not entry.count:
                continue
            is_next = entry.count == 1 and entry.first_seq == self._passed + 1 <= last_seq
            message = only_message(entry.record) if is_next and entry.kind == EntryKind.BATCH else None
            if message is None:
                is_whole = entry.first_seq > last_seq
                break
            parts += message
            times.append(entry.time_ns)
            self._passed += 1
        if len(times) == 1:
            if not is_whole or len(entries) == reach:
                self._failed = first.first_seq
            return first
        self._reach = min(2 * (reach if is_whole else len(times)), STRETCH_ENTRIES_MAX)
        self._reach = max(self._reach, STRETCH_ENTRIES_MIN)
        size, subjects = sum(map(len, parts)), parts[0::3]
        found = DecodedEntry(
            first.index, first.first_seq, len(times), times[-1], parts, size, subjects, times
        )
        self._kept.append(found)
        return found


class StreamReader:
    """Implements `consumer.MessageSource` over a stream's applied state."""

    def __init__(self, state: StreamState) -> None:
        self._state = state
        self._stretches = Stretches(state)
        self.looked_at = 0
        """Messages and subjects that were looked at to count some."""
        self._gone_seqs: list[int] = []
        self._gone_subjects: list[bytes] = []
        self._gone_from = state.first_seq
        """Messages from here on that went from the stream's beginning are noted."""
        self._emptied = state.emptied

    @property
    def state(self) -> StreamState:
        return self._state

    @property
    def first_seq(self) -> int:
        return self._state.first_seq

    @property
    def last_seq(self) -> int:
        return self._state.last_seq

    @property
    def keeps_until_acknowledged(self) -> bool:
        return self._state.config.retention != "limits"

    def read(self, from_seq: int, count_max: int, bytes_max: int) -> MessageBatch:
        """Messages of as many entries as it takes, within both bounds, but at least one message."""
        state = self._state
        seqs: list[int] = []
        subjects: list[bytes] = []
        headers: list[bytes] = []
        payloads: list[bytes | memoryview] = []
        times: list[int] = []
        seq, size = max(from_seq, state.first_seq), 0
        while seq <= state.last_seq and len(seqs) < count_max and size < bytes_max:
            seq = state.past(seq)
            decoded = self._stretches.entry_of(seq, count_max - len(seqs))
            if decoded is None:
                seq += 1
                continue
            places = self._places(decoded, seq)
            found = places[: count_max - len(seqs)]
            if decoded.size_bytes > bytes_max - size:
                found = self._within(decoded, found, bytes_max - size, at_least_one=not seqs)
            if found:
                start, end = found[0], found[-1] + 1
                if len(found) == end - start:
                    seqs += range(decoded.first_seq + start, decoded.first_seq + end)
                    subjects += decoded.parts[3 * start : 3 * end : 3]
                    headers += decoded.parts[3 * start + 1 : 3 * end : 3]
                    payloads += decoded.parts[3 * start + 2 : 3 * end : 3]
                else:
                    seqs += [decoded.first_seq + at for at in found]
                    subjects += [decoded.parts[3 * at] for at in found]
                    headers += [decoded.parts[3 * at + 1] for at in found]
                    payloads += [decoded.parts[3 * at + 2] for at in found]
                times += (
                    [decoded.times_ns[at] for at in found]
                    if decoded.times_ns
                    else [decoded.time_ns] * len(found)
                )
                size += _bytes_of(decoded, found)
            if len(found) < len(places):
                break
            seq = decoded.first_seq + decoded.count
        return MessageBatch(seqs, subjects, headers, payloads, times)

    def _places(self, decoded: DecodedEntry, seq: int) -> Sequence[int]:
        """Where in an entry messages are, from `seq` on, that are still stored."""
        end = min(decoded.count, self._state.last_seq - decoded.first_seq + 1)
        places = range(seq - decoded.first_seq, end)
        deleted = self._state.deleted
        if not deleted or not places:
            return places
        base = decoded.first_seq
        found = deleted.absent(base + places[0], base + places[-1] + 1)
        return places if len(found) == len(places) else [at - base for at in found]

    @staticmethod
    def _within(
        decoded: DecodedEntry, places: Sequence[int], bytes_max: int, *, at_least_one: bool
    ) -> Sequence[int]:
        """As many of an entry's messages as fit into `bytes_max`."""
        size = 0
        for count, at in enumerate(places):
            size += sum(map(len, decoded.parts[3 * at : 3 * at + 3]))
            if size > bytes_max and (count > 0 or not at_least_one):
                return places[:count]
        return places

    def skip(self, fits: Callable[[bytes], bool], from_seq: int, count_max: int) -> tuple[int, int]:
        state = self._state
        seq, skipped = max(from_seq, state.first_seq), 0
        while skipped < count_max and (seq := state.past(seq)) <= state.last_seq:
            decoded = state.reader.entry_of(seq)
            if decoded is None:
                seq += 1
                continue
            start = seq - decoded.first_seq
            for subject in decoded.subjects[start : start + count_max - skipped]:
                if fits(subject) and state.has(seq):
                    return seq, skipped
                seq += 1
                skipped += 1
        return seq, skipped

    def next_matching(self, filters: Sequence[str], from_seq: int) -> int | None:
        subjects = self._state.subjects
        if len(subjects) > INDEX_ASKED_MAX and literals(filters) is None:
            # To ask about each of so many is more than to look at the next messages.
            return from_seq if from_seq <= self._state.last_seq else None
        return subjects.next_matching(filters, from_seq)

    def pending_count(self, filters: Sequence[str], after_seq: int) -> int:
        """Exact: subjects that lie on both sides of `after_seq` are counted from the messages themselves."""
        state = self._state
        after = max(after_seq, state.first_seq - 1)
        if after >= state.last_seq:
            return 0
        if not filters:
            behind = state.last_seq - after
            behind -= state.deleted.count_behind(after) if state.deleted else 0
            return behind - state.gaps.count_behind(after)
        total, exact = state.subjects.pending_bounds(filters, after)
        if exact:
            return total
        raw = [pattern.encode() for pattern in filters]
        if after - state.first_seq < state.last_seq - after:
            return state.subjects.total(*filters) - self._count(raw, state.first_seq, after)
        return self._count(raw, after + 1, state.last_seq)

    def note_gone(self, seq: int, subject: bytes) -> None:
        """The stream's first message was removed."""
        if self._emptied != self._state.emptied:
            self._forget_gone(seq)
        self._gone_seqs.append(seq)
        self._gone_subjects.append(subject)
        if len(self._gone_seqs) > 2 * GONE_MAX:
            self._gone_from = self._gone_seqs[GONE_MAX]
            del self._gone_seqs[:GONE_MAX], self._gone_subjects[:GONE_MAX]

    def _forget_gone(self, from_seq: int) -> None:
        self._emptied, self._gone_from = self._state.emptied, from_seq
        self._gone_seqs.clear()
        self._gone_subjects.clear()

    def gone_from(self, seq: int) -> Sequence[tuple[int, bytes]] | None:
        if self._emptied != self._state.emptied:
            self._forget_gone(self._state.first_seq)
        if seq < self._gone_from:
            return None
        at = bisect_left(self._gone_seqs, seq)
        self.looked_at += len(self._gone_seqs) - at
        return list(zip(self._gone_seqs[at:], self._gone_subjects[at:], strict=True))

    def count_at_once(self, filters: Sequence[str], after_seq: int) -> int | None:
        """`pending_count`; None where more than some thousand subjects or messages are to be looked at for it."""
        state = self._state
        after = max(after_seq, state.first_seq - 1)
        if not filters or after >= state.last_seq:
            return self.pending_count(filters, after)
        behind, raw = state.last_seq - after, [pattern.encode() for pattern in filters]
        is_literal = literals(filters) is not None
        if is_literal or len(state.subjects) <= COUNTED_MAX:
            self.looked_at += len(filters) if is_literal else len(state.subjects)
            total, exact = state.subjects.pending_bounds(filters, after)
            if exact:
                return total
            before = after - state.first_seq + 1
            if before < behind and before <= COUNTED_MAX:
                self.looked_at += before
                return state.subjects.total(*filters) - self._count(raw, state.first_seq, after)
        if behind > COUNTED_MAX:
            return None
        self.looked_at += behind
        return self._count(raw, after + 1, state.last_seq)

    def counted(self, filters: Sequence[str], after_seq: int) -> Generator[int, None, int]:
        """The same in slices (`turn/slices.py`), about: what is removed meanwhile may be counted."""
        state = self._state
        found = self.count_at_once(filters, after_seq)
        if found is not None:
            return found
        total, raw = 0, [pattern.encode() for pattern in filters]
        seq = max(after_seq + 1, state.first_seq)
        while seq <= state.last_seq:
            last = min(state.last_seq, seq + COUNTED_MAX - 1)
            total += self._count(raw, seq, last)
            seq = max(last + 1, state.first_seq)
            yield COUNTED_MAX // 2
        return total

    def _count(self, patterns: list[bytes], first: int, last: int) -> int:
        state, found, seq = self._state, 0, first
        known: dict[bytes, bool] = {}
        while (seq := state.past(seq)) <= last:
            decoded = state.reader.entry_of(seq)
            if decoded is None:
                seq += 1
                continue
            for at in range(seq, min(last, decoded.first_seq + decoded.count - 1) + 1):
                subject = decoded.parts[3 * (at - decoded.first_seq)]
                fits = known.get(subject)
                if fits is None:
                    fits = known[subject] = any(matches(subject, pattern) for pattern in patterns)
                found += fits and at not in state.deleted
            seq = decoded.first_seq + decoded.count
        return found


def _bytes_of(decoded: DecodedEntry, places: Sequence[int]) -> int:
    if len(places) == decoded.count:
        return decoded.size_bytes
    return sum(len(part) for at in places for part in decoded.parts[3 * at : 3 * at + 3])
