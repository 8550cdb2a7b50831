"""The newest entries of a log in memory, up to a number of bytes: replication and the tail's consumers read here."""

from __future__ import annotations

from collections.abc import Sequence

from supercluster.broker.raft.entry import Entry


class EntryCache:
    """Always a run of entries that ends at the log's end (or nothing)."""

    __slots__ = ("_bytes", "_bytes_max", "_entries", "_first")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
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
        for entry in entries:
            held[entry.index] = entry
            self._bytes += len(entry.record)
        while self._bytes > self._bytes_max and held:
            self._bytes -= len(held.pop(self._first).record)
            self._first += 1

    def truncate_after(self, index: int) -> None:
        held = self._entries
        while held and (last := self._first + len(held) - 1) > index:
            self._bytes -= len(held.pop(last).record)

    def drop_through(self, index: int) -> None:
        held = self._entries
        while held and self._first <= index:
            self._bytes -= len(held.pop(self._first).record)
            self._first += 1

    def clear(self) -> None:
        self._entries.clear()
        self._bytes = 0
