"""The number of a broker's process on its volume: how often one has started there, and 16 random bits.

The number is kept in the volume and rises at every start. A volume that is put back from a snapshot counts again from what the snapshot
has, so the starts repeat; the random bits keep what is numbered by processes (sessions, API requests) from repeating with them (SF-10,
SF-27). Versions before this one counted starts alone: their next start is one more than any number that is found.
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
