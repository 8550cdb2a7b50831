"""What a leader read from its log for one learner, kept for the others: copies that begin together get the same stretches,
and each is read and checked once.

A leader's log is only appended to, so what is kept stays true for as long as it leads; with its office it is thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable

from supercluster.broker.raft.entry import Entry

# Learners that are further apart than this read for themselves.
READ_BACK_BYTES_MAX = 16 * 1024 * 1024


def size_of(entries: Iterable[Entry]) -> int:
    """Bytes of the records."""
    size_bytes = 0
    for entry in entries:
        size_bytes += len(entry.record)
    return size_bytes


class ReadBack:
    """Stretches of entries, by the index of the first one and the bytes that were allowed."""

    __slots__ = ("_bytes", "_held")

    def __init__(self) -> None:
        self._held: dict[tuple[int, int], tuple[Entry, ...]] = {}
        self._bytes = 0

    def get(self, first: int, bytes_max: int) -> tuple[Entry, ...] | None:
        return self._held.get((first, bytes_max))

    def keep(self, first: int, bytes_max: int, entries: tuple[Entry, ...]) -> None:
        """Keep a stretch that was not there; the oldest go for it."""
        self._held[first, bytes_max] = entries
        self._bytes += size_of(entries)
        while self._bytes > READ_BACK_BYTES_MAX:
            self._bytes -= size_of(self._held.pop(next(iter(self._held))))
