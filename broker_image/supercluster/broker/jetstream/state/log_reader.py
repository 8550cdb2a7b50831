"""Reads messages out of the log: from a sequence to the bytes of its message.

The log holds entries; an entry holds blocks of messages with the sequences that the leader gave them. Decoded
entries are cached for a while, since several consumers read the same run of entries. Nothing here changes any
state.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from supercluster.broker.jetstream.encoding.sections import (
    Section,
    decode_block,
    decode_messages,
    decode_mirrored,
    sections,
)
from supercluster.broker.jetstream.state.carried import Carried, decode_carried
from supercluster.broker.ports import StreamLog
from supercluster.broker.raft.entry import Entry, EntryKind

# Decoded entries that are kept: enough for a head, a tail and a few consumers on the way.
DECODED_ENTRIES_MAX = 8

# What a message takes besides its bytes, so that limits in bytes count alike on every replica and storage (SF-13).
MESSAGE_OVERHEAD_BYTES = 30
HEADER_OVERHEAD_BYTES = 4


def logical_bytes(subject: bytes, header: bytes, payload: bytes) -> int:
    """What a message counts for in a stream's byte limits."""
    size = MESSAGE_OVERHEAD_BYTES + len(subject) + len(header) + len(payload)
    return size + HEADER_OVERHEAD_BYTES if header else size


class Message(NamedTuple):
    """One stored message."""

    seq: int
    subject: bytes
    header: bytes
    payload: bytes
    time_ns: int


@dataclass(frozen=True, slots=True)
class DecodedEntry:
    """The stored messages of one entry: message i has sequence `first_seq + i`; `parts` is flat, three per message."""

    index: int
    first_seq: int
    count: int
    time_ns: int
    parts: list[bytes]
    size_bytes: int
    """Bytes of all parts together."""
    subjects: list[bytes]
    times_ns: Sequence[int] = ()
    """Of a mirror's messages, which keep those that they have in its origin; otherwise all have `time_ns`."""

    def message(self, seq: int) -> Message:
        at = 3 * (seq - self.first_seq)
        subject, header, payload = self.parts[at : at + 3]
        return Message(seq, subject, header, payload, self.time_of(seq))

    def time_of(self, seq: int) -> int:
        return self.times_ns[seq - self.first_seq] if self.times_ns else self.time_ns


def decode_stored(entry: Entry) -> DecodedEntry:
    """The messages that an entry added to its stream."""
    parts: list[bytes] = []
    times_ns: Sequence[int] = ()
    if entry.kind == EntryKind.BATCH and entry.count:
        for kind, body in sections(entry.payload):
            if kind == Section.OWN_MESSAGES:
                parts += decode_block(body).parts()
            elif kind == Section.MIRRORED:
                times_ns, mirrored = decode_mirrored(body)
                parts += mirrored.parts()
            if kind != Section.MESSAGES:
                continue
            found = decode_messages(body)
            block = decode_block(found.block).parts()
            if found.run.exceptions:
                left_out = {item.offset for item in found.run.exceptions}
                for offset in range(found.run.count):
                    if offset not in left_out:
                        parts += block[3 * offset : 3 * offset + 3]
            else:
                parts += block
    size = sum(map(len, parts))
    return DecodedEntry(
        entry.index, entry.first_seq, entry.count, entry.time_ns, parts, size, parts[0::3], times_ns
    )


def decode_one(entry: Entry, seq: int) -> Message | None:
    """One message of an entry, without cutting the others out; None when the entry is not so simple (then it is to be decoded
    as a whole), or does not have it."""
    if entry.kind != EntryKind.BATCH or not entry.first_seq <= seq <= entry.last_seq:
        return None
    offset = seq - entry.first_seq
    for kind, body in sections(entry.payload):
        if kind in (Section.OWN_MESSAGES, Section.MIRRORED):
            return None
        if kind != Section.MESSAGES:
            continue
        found = decode_messages(body)
        if found.run.exceptions:
            return None
        if offset < found.run.count:
            return Message(seq, *decode_block(found.block).message(offset), entry.time_ns)
        offset -= found.run.count
    return None


def carried_runs(entry: Entry) -> list[DecodedEntry]:
    """The messages that an entry carried forward, one item for each run of sequences without a hole."""
    runs: list[DecodedEntry] = []
    for kind, body in sections(entry.payload):
        if kind != Section.CARRIED:
            continue
        seqs, times_ns, parts = decode_carried(body)
        start = 0
        for end in range(1, len(seqs) + 1):
            if end < len(seqs) and seqs[end] == seqs[end - 1] + 1:
                continue
            own = parts[3 * start : 3 * end]
            size, times = sum(map(len, own)), times_ns[start:end]
            runs.append(
                DecodedEntry(entry.index, seqs[start], end - start, times[-1], own, size, own[0::3], times)
            )
            start = end
    return runs


class MessageReader:
    """Messages by sequence, through a small cache of decoded entries."""

    def __init__(self, log: StreamLog, carried: Carried) -> None:
        self._log = log
        self._carried = carried
        self._runs: OrderedDict[int, list[DecodedEntry]] = OrderedDict()
        """Of entries with messages that were carried forward."""
        self._decoded: OrderedDict[int, DecodedEntry] = OrderedDict()
        self._last: DecodedEntry | None = None
        self._single: Entry | None = None
        """The entry that a single message was asked of last: who asks for another one goes through it, and it is decoded."""

    def is_carried(self, seq: int) -> bool:
        """Does the message stand in a later entry than the one that added it?"""
        return seq <= self._carried.last_seq

    def entries(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        """Of the log, from one to another, within so many bytes."""
        return self._log.entries(first, last, bytes_max)

    def entry_of(self, seq: int) -> DecodedEntry | None:
        """The decoded entry that holds `seq`, None when the log does not have it."""
        last = self._last
        if last is not None and last.first_seq <= seq < last.first_seq + last.count:
            return last
        if seq <= self._carried.last_seq:
            return self._carried_run(seq)
        index = self._log.index_of_seq(seq)
        if index is None:
            return None
        decoded = self._decoded.get(index)
        if decoded is None:
            entry = self._log.entry(index)
            if entry is None:
                return None
            decoded = decode_stored(entry)
            self._decoded[index] = decoded
            if len(self._decoded) > DECODED_ENTRIES_MAX:
                self._decoded.popitem(last=False)
        else:
            self._decoded.move_to_end(index)
        self._last = decoded
        return decoded

    def _carried_run(self, seq: int) -> DecodedEntry | None:
        index = self._carried.index_of(seq)
        if index is None:
            return None
        runs = self._runs.get(index)
        if runs is None:
            entry = self._log.entry(index)
            if entry is None:
                return None
            runs = self._runs[index] = carried_runs(entry)
            if len(self._runs) > DECODED_ENTRIES_MAX:
                self._runs.popitem(last=False)
        at = bisect_right(runs, seq, key=attrgetter("first_seq")) - 1
        if at < 0 or seq >= runs[at].first_seq + runs[at].count:
            return None
        self._last = runs[at]
        return runs[at]

    def get(self, seq: int) -> Message | None:
        """One message. Of an entry that was not decoded lately, only it: those who ask for the last of a subject, or at random,
        want no other one of the thousands that an entry may have."""
        last = self._last
        is_carried = seq <= self._carried.last_seq
        if not is_carried and (last is None or not last.first_seq <= seq < last.first_seq + last.count):
            index = self._log.index_of_seq(seq)
            if index is None:
                return None
            single = self._single
            if index not in self._decoded and (single is None or single.index != index):
                single = self._single = self._log.entry(index)
                found = decode_one(single, seq) if single is not None else None
                if found is not None:
                    return found
        decoded = self.entry_of(seq)
        if decoded is None or not decoded.first_seq <= seq < decoded.first_seq + decoded.count:
            return None
        return decoded.message(seq)

    def forget(self, after_index: int = -1) -> None:
        """Drop what was decoded above an index (the log was cut there); all of it by default."""
        self._last = self._single = None
        self._runs.clear()
        for index in [index for index in self._decoded if index > after_index]:
            del self._decoded[index]
