"""Files of a group's directory besides segments, and the values kept in them."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from isal.isal_zlib import crc32

from supercluster.broker.storage.log.options import Integrity

NO_END = (0, 0)
HARD_STATE = "hard"
"""Term, vote, integrity and what is owed: two slots, always fsynced."""
NOTES = "notes"
"""Commit index and durable index: two slots, written now and then."""
BASE = "base"
"""Epoch, base index and base term: replaced as a whole."""

_HARD = struct.Struct("<QB")
_HAS_END = 0x80
_OWES_NOTHING = 0x40
_END = struct.Struct("<QQQ")
_NOTES = struct.Struct("<QQQQ")
_BASE = struct.Struct("<IQQQ")


@dataclass(frozen=True, slots=True)
class HardState:
    term: int = 0
    vote: str = ""
    integrity: Integrity = Integrity.SOUND
    end: tuple[int, int] = NO_END
    """Term and index of the last entry that the log had when a record in its middle was lost. A version that knows of none does not
    read this."""
    suspect: int = 0
    """With an end: the first entry of the segment in which a damaged record was read, until an opening has judged it."""
    owes: bool = False
    """May an entry that the log has confirmed be missing on its disk? While the disk says no, none is (SF-4). One of layout 2
    says nothing of it, and owes."""

    def encode(self) -> bytes:
        flags = self.integrity | (0 if self.owes else _OWES_NOTHING)
        if self.end == NO_END:
            return _HARD.pack(self.term, flags) + self.vote.encode()
        end = _END.pack(*self.end, self.suspect)
        return _HARD.pack(self.term, flags | _HAS_END) + end + self.vote.encode()

    @classmethod
    def decode(cls, data: bytes) -> HardState:
        term, flags = _HARD.unpack_from(data)
        integrity, owes = Integrity(flags & ~(_HAS_END | _OWES_NOTHING)), not flags & _OWES_NOTHING
        if not flags & _HAS_END:
            return cls(term, data[_HARD.size :].decode(), integrity, owes=owes)
        vote = data[_HARD.size + _END.size :].decode()
        end_term, end_index, suspect = _END.unpack_from(data, _HARD.size)
        return cls(term, vote, integrity, (end_term, end_index), suspect, owes)


@dataclass(frozen=True, slots=True)
class Notes:
    """What was known at some moment: the truth is never below it."""

    epoch: int = 0
    commit_index: int = 0
    durable_index: int = 0
    power_failures: int = 0
    """The volume's count when this log was opened last: where it is another one now, power may have failed since."""

    def encode(self) -> bytes:
        return _NOTES.pack(self.epoch, self.commit_index, self.durable_index, self.power_failures)

    @classmethod
    def decode(cls, data: bytes) -> Notes:
        # Older ones lack what was added at the end.
        return cls(*_NOTES.unpack(data.ljust(_NOTES.size, b"\0")))


@dataclass(frozen=True, slots=True)
class Base:
    """Where the log begins: behind the entry `index`."""

    epoch: int = 0
    index: int = 0
    term: int = 0

    def encode(self) -> bytes:
        packed = _BASE.pack(0, self.epoch, self.index, self.term)
        return struct.pack("<I", crc32(packed[4:])) + packed[4:]

    @classmethod
    def decode(cls, data: bytes) -> Base | None:
        if len(data) != _BASE.size:
            return None
        crc, epoch, index, term = _BASE.unpack(data)
        return cls(epoch, index, term) if crc32(data[4:]) == crc else None
