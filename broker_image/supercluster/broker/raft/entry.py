"""The log entry: one record that is the same bytes in memory, on the wire between replicas, and in a segment.

A batch is encoded once, by the leader that appends it, and is copied nowhere else: RP-4 (written once) and RP-7 (no
needless copies) follow from that. Stream sequences are in the header and never derived from Raft indexes (SF-12).

Layout, little endian, `HEADER.size` = 48 bytes, then the payload::

    u32 size        bytes of the whole record, header included
    u32 crc         CRC-32 of everything behind this field
    u64 index       Raft index
    u64 term        Raft term
    u64 time_ns     leader time, Unix nanoseconds; never goes back along the log (SF-13)
    u64 first_seq   sequence of the first message the entry adds to the stream
    u32 count       sequences the entry uses: first_seq … first_seq + count - 1
    u8  kind        what the payload is (`EntryKind`)
    3 bytes         zero
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from isal.isal_zlib import crc32

from supercluster.broker.bounds import RECORD_BYTES_MAX

HEADER = struct.Struct("<IIQQQQIB3x")
HEADER_BYTES = HEADER.size
_SIZE_CRC = struct.Struct("<II")


class EntryKind(IntEnum):
    """The content of an entry's payload."""

    NOOP = 0
    """Empty: appended by every new leader (a leader commits older terms' entries only through its own)."""
    CONFIG = 1
    """The group's membership: see `raft.confchange`."""
    BATCH = 2
    """Sections for the state machine: see `jetstream.encoding.sections`."""
    DURABLE = 3
    """Sections too. It counts as persisted only once it is durable, whatever the group's fsync policy, as CONFIG does."""


_WITH_SECTIONS = frozenset((EntryKind.BATCH, EntryKind.DURABLE))
NEVER_FORGOTTEN = frozenset((EntryKind.CONFIG, EntryKind.DURABLE))
"""Kinds that are confirmed only once they are durable, whatever the group's fsync policy."""


class CorruptRecordError(ValueError):
    """A record whose size or checksum is wrong. `offset` is where it starts in the buffer that was read."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"record at offset {offset}: {why}")
        self.offset = offset
        self.why = why


@dataclass(frozen=True, slots=True)
class Entry:
    """One record, decoded as far as Raft and the store need it. `record` is the whole of it, header included."""

    index: int
    term: int
    kind: int
    time_ns: int
    first_seq: int
    count: int
    record: bytes

    @property
    def has_sections(self) -> bool:
        return self.kind in _WITH_SECTIONS

    @property
    def payload(self) -> memoryview:
        """The bytes behind the header, without a copy."""
        return memoryview(self.record)[HEADER_BYTES:]

    @property
    def last_seq(self) -> int:
        """The last sequence the entry uses; `first_seq - 1` when it uses none."""
        return self.first_seq + self.count - 1


def make_entry(
    *,
    index: int,
    term: int,
    kind: int,
    time_ns: int,
    first_seq: int = 0,
    count: int = 0,
    payload: bytes = b"",
) -> Entry:
    """Encode a new record."""
    size = HEADER_BYTES + len(payload)
    if size > RECORD_BYTES_MAX:
        raise ValueError(f"record of {size} bytes is over the limit of {RECORD_BYTES_MAX}")
    head = HEADER.pack(size, 0, index, term, time_ns, first_seq, count, kind)
    crc = crc32(payload, crc32(head[8:]))
    return Entry(
        index, term, kind, time_ns, first_seq, count, b"".join((_SIZE_CRC.pack(size, crc), head[8:], payload))
    )


def decode_entry(buffer: bytes | memoryview, offset: int = 0, *, verify: bool = True) -> Entry:
    """Decode the record at `offset`.

    Raises:
        CorruptRecordError: the buffer ends before the record does, or its size or checksum is wrong.
    """
    available = len(buffer) - offset
    if available < HEADER_BYTES:
        raise CorruptRecordError(offset, f"{available} bytes left, a header takes {HEADER_BYTES}")
    size, crc, index, term, time_ns, first_seq, count, kind = HEADER.unpack_from(buffer, offset)
    if not HEADER_BYTES <= size <= RECORD_BYTES_MAX:
        raise CorruptRecordError(offset, f"size {size} is out of range")
    if size > available:
        raise CorruptRecordError(offset, f"record of {size} bytes, {available} left")
    # Bytes that are one record and no more are taken as they are: a large one is not copied.
    if isinstance(buffer, bytes) and len(buffer) == size:
        record = buffer
    else:
        record = bytes(memoryview(buffer)[offset : offset + size])
    if verify and crc32(memoryview(record)[8:]) != crc:
        raise CorruptRecordError(offset, "checksum differs")
    return Entry(index, term, kind, time_ns, first_seq, count, record)


def decode_entries(buffer: bytes | memoryview, *, verify: bool = True) -> list[Entry]:
    """Decode records that stand one behind the other, as an append frame carries them."""
    entries: list[Entry] = []
    offset, end = 0, len(buffer)
    while offset < end:
        entry = decode_entry(buffer, offset, verify=verify)
        entries.append(entry)
        offset += len(entry.record)
    return entries
