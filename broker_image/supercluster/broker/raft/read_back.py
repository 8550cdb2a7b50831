"""Entries that a leader read from its log for one learner, cached for the others: copies that start together
get the same runs of entries, and each is read and checked once.

A leader only appends to its log, so a cached run stays valid for as long as it leads. The cache is dropped
when it stops leading.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from supercluster.broker.ports import RaftLog
from supercluster.broker.raft.entry import Entry
from supercluster.broker.raft.throttle import LARGE_BYTES

# Learners that are further apart than this read for themselves.
READ_BACK_BYTES_MAX = 16 * 1024 * 1024
# Small entries cost by their number, at both ends: a learner gets so many at once.
_ENTRIES_MAX = 256


def size_of(entries: Iterable[Entry]) -> int:
    """Bytes of the records."""
    size_bytes = 0
    for entry in entries:
        size_bytes += len(entry.record)
    return size_bytes


@dataclass(slots=True, eq=False)
class ReadBack:
    """Stretches of entries, by the index of the first one and the bytes that were allowed."""

    log: RaftLog
    _held: dict[tuple[int, int], tuple[Entry, ...]] = field(default_factory=dict)
    _bytes: int = 0
    """The size of what is held: 0 <= _bytes <= READ_BACK_BYTES_MAX."""

    def read(self, first: int, last: int, bytes_max: int) -> tuple[Entry, ...]:
        """Entries from `first` on, as many as one append to a learner may carry."""
        found = self._held.get((first, bytes_max))
        if found is None:
            found = tuple(self.log.entries(first, min(last, first + _ENTRIES_MAX - 1), bytes_max))
            size_bytes = size_of(found)
            if size_bytes >= LARGE_BYTES:
                self._held[first, bytes_max] = found
                self._bytes += size_bytes
            while self._bytes > READ_BACK_BYTES_MAX:  # The oldest go.
                self._bytes -= size_of(self._held.pop(next(iter(self._held))))
        return found
