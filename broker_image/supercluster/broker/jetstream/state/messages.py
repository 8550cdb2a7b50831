"""The messages of a stream: bounds, counts and subjects of those in the log that were not removed from the
stream.

Messages stay in the log (RP-4); a removal raises the stream's first sequence or records a hole after it.
Everything here is part of the replicated state: all replicas have the same result after the same committed
entries (SF-13).

An entry may take away more messages than one turn has time for. Such a removal is a generator. It yields how
much it did, at points where the state is consistent, and its result does not depend on where it pauses
(`docs/adr/checkpoints.md`, "Long entries").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from typing import Any

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.state.carried import Carried
from supercluster.broker.jetstream.state.gaps import Gaps
from supercluster.broker.jetstream.state.interior_deletes import InteriorDeletes
from supercluster.broker.jetstream.state.log_reader import Message, MessageReader, logical_bytes
from supercluster.broker.jetstream.state.message_ttl import MessageTtls
from supercluster.broker.jetstream.state.schedules import Schedules
from supercluster.broker.jetstream.state.subject_index import SubjectIndex
from supercluster.broker.jetstream.turn.slices import Job, at_once
from supercluster.broker.ports import StreamLog
from supercluster.broker.protocol.subjects import matches

# An entry takes away, or looks at, at most so many messages before it lets others have their turn.
SLICE_MESSAGES = 512
# To look at a message that stays costs so much less than to take one away.
LOOKED_AT_PER_REMOVED = 8


class StoredMessages(ABC):
    """The messages of one stream. `log` is read, never written."""

    def __init__(self, config: StreamConfig, log: StreamLog) -> None:
        self.config = config
        self.carried = Carried()
        """Which messages stand in later entries than those that added them."""
        self.reader = MessageReader(log, self.carried)
        self.slice_messages = SLICE_MESSAGES
        self.first_seq = max(config.first_seq, 1)
        self.last_seq = self.first_seq - 1
        self.messages = 0
        self.bytes = 0
        self.first_time_ns = 0
        self.last_time_ns = 0
        self.deleted = InteriorDeletes()
        self.gaps = Gaps()
        """Long stretches that never had a message; short ones are among the deleted."""
        self.subjects = SubjectIndex()
        self.discarded: list[SubjectIndex] = []
        """Of messages that were removed all at once: to be freed in slices."""
        self.ttls = MessageTtls()
        self.schedules = Schedules()
        self.emptied = 0
        """How often all messages were removed at once. For the leader's volatile side, as `on_removed`, which does not hear of it."""

    @abstractmethod
    def _removed(self, message: Message) -> None:
        """A message is gone that others may still count on."""

    def _add_stored(self, seq: int, count: int, time_ns: int) -> None:
        """`count` messages are there from `seq` on."""
        if self.messages == 0:
            self.first_seq = seq
            self.first_time_ns = time_ns
        elif seq > self.last_seq + 1:
            self.gaps.add(self.last_seq + 1, seq - 1)
        self.messages += count
        self.last_seq = seq + count - 1
        self.last_time_ns = time_ns

    def _add_removed(self, seq: int) -> None:
        """There is no message at `seq`, the next sequence."""
        self.last_seq = seq
        if self.messages:
            self.deleted.add(seq)
        else:
            self.first_seq = seq + 1

    def _enforce_limits(self) -> None:
        config = self.config
        if config.max_msgs_per_subject > 0:
            self._enforce_per_subject(config.max_msgs_per_subject)
        if config.max_msgs > 0 and self.messages > config.max_msgs:
            self._remove_first_ones(self.last_seq, count_max=self.messages - config.max_msgs)
        if config.max_bytes > 0 and self.bytes > config.max_bytes:
            self._remove_first_ones(self.last_seq, bytes_max=config.max_bytes)

    def _enforce_per_subject(self, limit: int) -> None:
        for subject in self.subjects.over(limit):
            while self.subjects.count(subject) > limit:
                oldest = self._first_seq_of(subject)
                if oldest is None:
                    raise AssertionError(f"{self.config.name}: subject {subject!r} is counted but not found")
                # So that the next search begins there, and each message is looked at once.
                self.subjects.fix_first(subject, oldest)
                self.remove(oldest)

    # ---- removing -------------------------------------------------------------------------------------------------

    def remove(self, seq: int) -> bool:
        """Remove one message. False when the stream does not have it."""
        message = self.message(seq)
        if message is not None:
            self._remove(message)
        return message is not None

    def _remove(self, message: Message) -> None:
        """Remove a message that is there."""
        self._uncount(message)
        if message.seq == self.first_seq:
            self._advance_first()
        else:
            self.deleted.add(message.seq)

    def _uncount(self, message: Message) -> None:
        self.messages -= 1
        self.bytes -= logical_bytes(message.subject, message.header, message.payload)
        self.subjects.remove(message.subject, message.seq)
        if self.ttls:
            self.ttls.discard(message.seq)
        if self.schedules:
            self.schedules.discard(message.subject, message.seq)
        if not self.subjects.last_is_exact(message.subject):
            self.subjects.fix_last(message.subject, self._last_seq_of(message.subject, message.seq - 1))
        self._removed(message)

    def _remove_first_ones(self, last: int, *, count_max: int = 1 << 62, bytes_max: int = -1) -> int:
        """Remove the oldest messages up to sequence `last`, at most so many, until the rest have no more bytes than that.
        Returns how many there were. Whole entries are read: what goes from the beginning is never looked up one by one."""
        removed, seq = 0, self.first_seq
        while self.messages and (seq := self._past_removed(seq)) <= last:
            decoded = self.reader.entry_of(seq)
            if decoded is None:
                seq += 1
                continue
            end = min(decoded.first_seq + decoded.count, last + 1)
            at = 3 * (seq - decoded.first_seq)
            parts = iter(decoded.parts[at:])
            for place, subject, header, payload in zip(range(seq, end), parts, parts, parts, strict=False):
                seq = place
                if place in self.deleted:
                    self.deleted.discard(place)
                    continue
                if removed == count_max or self.bytes <= bytes_max:
                    self._begin_at(place)
                    return removed
                self.first_seq = place
                self._uncount(Message(place, subject, header, payload, 0))
                removed += 1
            seq = end
        self._begin_at(seq)
        return removed

    def _past_removed(self, seq: int) -> int:
        """The first sequence from `seq` on that has a message; those before it are forgotten."""
        while (found := self.gaps.past(self.deleted.take_run(seq))) != seq:
            seq = found
        return seq

    def _begin_at(self, seq: int) -> None:
        """There is no message before `seq`."""
        self.first_seq = seq - 1
        self._advance_first()

    def _advance_first(self) -> None:
        self.first_seq += 1
        self._skip_removed()
        if self.messages == 0:
            self.first_seq = max(self.first_seq, self.last_seq + 1)
            self.deleted.clear()
            self.gaps.clear()
            self.carried.clear()
            self.first_time_ns = 0
        else:
            decoded = self.reader.entry_of(self.first_seq)
            if decoded is not None:
                self.first_time_ns = decoded.time_of(self.first_seq)

    def _skip_removed(self) -> None:
        """The stream begins with a message."""
        while True:
            if self.first_seq in self.deleted:
                self.first_seq = self.deleted.take_run(self.first_seq)
            elif self.gaps and self.first_seq in self.gaps:
                self.first_seq = self.gaps.past(self.first_seq)
                self.gaps.drop_below(self.first_seq)
            else:
                return

    def _remove_up_to(self, last: int) -> int:
        """Remove every message up to `last`. Returns how many there were."""
        if last >= self.last_seq:
            before = self.messages
            self._remove_all()
            return before
        return self._remove_first_ones(last)

    def _removing_up_to(self, last: int) -> Job:
        """The same, a slice at a time."""
        if last >= self.last_seq:
            self._remove_all()
            return
        while removed := self._remove_first_ones(last, count_max=self.slice_messages):
            yield removed

    def _remove_all(self) -> None:
        self.emptied += 1
        self.messages = 0
        self.bytes = 0
        self.first_seq = self.last_seq + 1
        self.first_time_ns = 0
        self.deleted.clear()
        self.gaps.clear()
        self.discarded = [self.subjects]
        self.carried.clear()
        self.subjects = SubjectIndex()
        self.ttls = MessageTtls()
        self.schedules = Schedules()

    def _expire(self, first: int, last: int, due: Iterable[int]) -> int:
        """Remove what is too old, from `first` to `last`, but for messages that never expire, and those that are due by
        themselves. Returns how many there were."""
        never = self.ttls.never
        if first <= self.first_seq and not never:
            removed = self._remove_up_to(last)
        else:
            stretch = range(max(first, self.first_seq), min(last, self.last_seq) + 1)
            removed = sum(self.remove(seq) for seq in stretch if seq not in never)
        return removed + sum(self.remove(seq) for seq in due)

    def _purge(self, request: dict[str, Any]) -> int:
        """`filter`, `seq` (up to, exclusive) and `keep` as NATS has them. Returns the number of messages removed."""
        subject, seq, keep = (
            request.get("filter") or "",
            int(request.get("seq") or 0),
            int(request.get("keep") or 0),
        )
        if subject and subject != ">":
            return self._remove_matching(subject, seq - 1 if seq else self.last_seq, keep)
        before = self.messages
        if keep:
            return self._remove_first_ones(self.last_seq, count_max=max(0, before - keep))
        if seq and seq <= self.last_seq:
            return self._remove_up_to(seq - 1)
        self._remove_all()
        return before

    def _remove_matching(self, pattern: str, last: int, keep: int) -> int:
        """Remove messages whose subject matches, up to sequence `last`, but leave the newest `keep` of them."""
        raw = pattern.encode()
        start = self.subjects.next_matching((pattern,), self.first_seq)
        if start is None:
            return 0
        wanted = self.subjects.total(pattern) - keep
        return at_once(self._removing_where(lambda subject: matches(subject, raw), wanted, start, last))

    def _removing_where(
        self, fits: Callable[[bytes], bool], wanted: int, start: int, last: int
    ) -> Generator[int, None, int]:
        """Remove the oldest `wanted` messages whose subject fits, up to sequence `last`; there are none before `start`.
        Returns how many there were."""
        removed = 0
        seq = max(start, self.first_seq)
        while removed < wanted and (seq := self.past(seq)) <= min(last, self.last_seq):
            decoded = self.reader.entry_of(seq)
            if decoded is None:
                seq += 1
                continue
            before, end = removed, min(decoded.first_seq + decoded.count, last + 1, seq + self.slice_messages)
            subjects = decoded.subjects[seq - decoded.first_seq : end - decoded.first_seq]
            fitting = set(filter(fits, set(subjects)))
            if fitting:
                for at, subject in zip(range(seq, end), subjects, strict=True):
                    if removed >= wanted:
                        break
                    if subject in fitting and self.has(at):
                        self._remove(decoded.message(at))
                        removed += 1
            yield removed - before + (end - seq) // LOOKED_AT_PER_REMOVED
            seq = end
        return removed

    # ---- reading --------------------------------------------------------------------------------------------------

    def has(self, seq: int) -> bool:
        """Is there a message at `seq`?"""
        return (
            self.first_seq <= seq <= self.last_seq
            and seq not in self.deleted
            and not (self.gaps and seq in self.gaps)
        )

    def past(self, seq: int) -> int:
        """The first sequence from `seq` on that is neither deleted nor in a gap; the stream may end before it."""
        while True:
            found = self.gaps.past(self.deleted.past(seq))
            if found == seq:
                return seq
            seq = found

    def before(self, seq: int) -> int:
        """The last sequence up to `seq` that is neither deleted nor in a gap; the stream may begin behind it."""
        while True:
            found = self.gaps.before(self.deleted.before(seq))
            if found == seq:
                return seq
            seq = found

    @property
    def num_deleted(self) -> int:
        """Sequences between the first and the last message that have none."""
        return len(self.deleted) + self.gaps.count

    def message(self, seq: int) -> Message | None:
        """The message at `seq`, None when it was removed or never stored."""
        return self.reader.get(seq) if self.has(seq) else None

    def bytes_of_oldest(self, subject: bytes) -> int:
        """What the oldest message of a subject counts for; 0 when there is none."""
        seq = self._first_seq_of(subject)
        message = self.message(seq) if seq is not None else None
        return logical_bytes(message.subject, message.header, message.payload) if message is not None else 0

    def _first_seq_of(self, subject: bytes) -> int | None:
        """The oldest message of a subject, found from a sequence that is never behind it."""
        seq = max(self.subjects.first_seq_hint(subject), self.first_seq)
        while (seq := self.past(seq)) <= self.last_seq:
            decoded = self.reader.entry_of(seq)
            if decoded is None:
                seq += 1
                continue
            first = decoded.first_seq
            at = max(seq, first) - first
            while (at := _index(decoded.subjects, subject, at)) >= 0:
                if self.has(first + at):
                    return first + at
                at += 1
            seq = first + decoded.count
        return None

    def _last_seq_of(self, subject: bytes, seq: int) -> int:
        """The newest message of a subject at or below `seq`, which the index says is there."""
        while (seq := self.before(seq)) >= self.first_seq:
            decoded = self.reader.entry_of(seq)
            if decoded is None:
                seq -= 1
                continue
            for at in range(seq, decoded.first_seq - 1, -1):
                if self.has(at) and decoded.message(at).subject == subject:
                    return at
            seq = decoded.first_seq - 1
        raise AssertionError(f"{self.config.name}: subject {subject!r} is counted but not found")


def _index(subjects: list[bytes], subject: bytes, start: int) -> int:
    """Where the subject stands first, from `start` on; -1: nowhere."""
    try:
        return subjects.index(subject, start)
    except ValueError:
        return -1
