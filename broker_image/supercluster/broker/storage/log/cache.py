"""The newest entries of a log in memory, up to a number of bytes, for replication and for consumers at the
tail.

A budget bounds what all logs of a broker keep together: the log that was appended to longest ago loses its
cache first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from supercluster.broker.raft.entry import Entry


class CacheBudget:
    """Bytes that the caches of many logs may hold together."""

    __slots__ = ("_bytes_max", "_caches", "bytes_held")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._caches: OrderedDict[int, EntryCache] = OrderedDict()
        self.bytes_held = 0

    def grew(self, cache: EntryCache) -> None:
        """`cache` was appended to: others make room when there is too much."""
        self._caches[id(cache)] = cache
        self._caches.move_to_end(id(cache))
        while self.bytes_held > self._bytes_max and len(self._caches) > 1:
            self._caches.popitem(last=False)[1].clear()

    def forget(self, cache: EntryCache) -> None:
        self._caches.pop(id(cache), None)


class EntryCache:
    """Always a run of entries that ends at the log's end (or nothing)."""

    __slots__ = ("_budget", "_bytes", "_bytes_max", "_entries", "_first")

    def __init__(self, bytes_max: int, budget: CacheBudget | None = None) -> None:
        self._bytes_max = bytes_max
        self._budget = budget
        self._entries: dict[int, Entry] = {}
        self._bytes = 0
        self._first = 0

    @property
    def first_index(self) -> int | None:
        return self._first if self._entries else None

    def get(self, index: int) -> Entry | None:
        return self._entries.get(index)

    def add(self, entries: Sequence[Entry]) -> None:
        held = self._entries
        if not held:
            self._first = entries[0].index
        grown = 0
        for entry in entries:
            held[entry.index] = entry
            grown += len(entry.record)
        while self._bytes + grown > self._bytes_max and held:
            grown -= len(held.pop(self._first).record)
            self._first += 1
        self._held(grown)
        if self._budget is not None:
            self._budget.grew(self)

    def truncate_after(self, index: int) -> None:
        held = self._entries
        while held and (last := self._first + len(held) - 1) > index:
            self._held(-len(held.pop(last).record))

    def drop_through(self, index: int) -> None:
        held = self._entries
        while held and self._first <= index:
            self._held(-len(held.pop(self._first).record))
            self._first += 1

    def clear(self) -> None:
        self._entries.clear()
        self._held(-self._bytes)

    def close(self) -> None:
        """The log is closed: what it held is free for others."""
        self.clear()
        if self._budget is not None:
            self._budget.forget(self)

    def _held(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        if self._budget is not None:
            self._budget.bytes_held += size_bytes
