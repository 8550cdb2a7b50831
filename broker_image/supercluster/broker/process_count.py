"""The number of a broker's process on its volume: the count of starts there, and 16 random bits.

The count is stored on the volume and rises at every start. A volume that is restored from a snapshot
continues from the snapshot's count, so counts repeat. The random bits keep numbers that contain it (sessions,
API requests) from repeating (SF-10, SF-27). Earlier versions counted starts alone: their next start is one
more than any number that they find.
"""

from __future__ import annotations

TOKEN_BITS = 16
"""Versions before this one shift the number by 32 bits into 64: these bits leave them 65,535 starts."""
_TOKEN_MASK = (1 << TOKEN_BITS) - 1


def starts_of(count: int) -> int:
    """How many processes have started on the volume, this one included."""
    return count >> TOKEN_BITS


def next_count(found: int, token: int) -> int:
    """The number of the process that starts on a volume where `found` was the last one; of `token` the lowest bits count."""
    starts = starts_of(found) or found
    return (starts + 1) << TOKEN_BITS | token & _TOKEN_MASK


def numbers_from(count: int) -> int:
    """Numbers in 64 bits that no other process of the volume uses begin here: 2³² of them."""
    return (count & 0xFFFF_FFFF) << 32
