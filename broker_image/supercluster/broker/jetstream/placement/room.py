"""A broker's room for messages, by which copies are placed."""

from __future__ import annotations

from dataclasses import dataclass

# A change by one part in so many is worth a report.
CHANGE_SHARE = 64


@dataclass(frozen=True, slots=True)
class Room:
    """What messages may still take on a broker."""

    file_bytes: int
    memory_bytes: int

    def of(self, storage: str) -> int:
        return self.memory_bytes if storage == "memory" else self.file_bytes

    def is_like(self, other: Room) -> bool:
        """Is it about the same?"""
        pairs = ((self.file_bytes, other.file_bytes), (self.memory_bytes, other.memory_bytes))
        return all(abs(one - two) * CHANGE_SHARE <= max(one, two) for one, two in pairs)
