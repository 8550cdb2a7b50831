"""A Raft log in memory for tests: durable at once, or only when told, and able to fail or to lose its tail."""

from __future__ import annotations

from collections.abc import Sequence

from supercluster.broker.raft.entry import Entry, EntryKind
from supercluster.broker.raft.errors import DiskError


class MemoryLog:
    """Implements `ports.RaftLog`."""

    def __init__(self, *, sync_at_once: bool = True) -> None:
        self.sync_at_once = sync_at_once
        self.fail = False
        self.fail_reads = False
        self._base = (0, 0)
        self._entries: list[Entry] = []
        self._persisted = 0

    @property
    def base_index(self) -> int:
        return self._base[0]

    @property
    def base_term(self) -> int:
        return self._base[1]

    @property
    def last_index(self) -> int:
        return self._base[0] + len(self._entries)

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else self._base[1]

    @property
    def persisted_index(self) -> int:
        return self._persisted

    def term(self, index: int) -> int | None:
        if index == self._base[0]:
            return self._base[1]
        if self._base[0] < index <= self.last_index:
            return self._entries[index - self._base[0] - 1].term
        return None

    def append(self, entries: Sequence[Entry]) -> None:
        if self.fail:
            raise DiskError("no space left", "memory")
        for entry in entries:
            assert entry.index == self.last_index + 1, f"gap: {entry.index} behind {self.last_index}"
            self._entries.append(entry)
        # A membership is durable whatever the policy: a member that lost one might elect itself alone.
        if self.sync_at_once or any(entry.kind == EntryKind.CONFIG for entry in entries):
            self.sync()

    def sync(self) -> None:
        self._persisted = self.last_index

    def truncate_after(self, index: int) -> None:
        del self._entries[index - self._base[0] :]
        self._persisted = min(self._persisted, index)

    def entries(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        if self.fail_reads:
            raise DiskError("record damaged", "memory")
        if first <= self._base[0]:
            return []
        found: list[Entry] = []
        size = 0
        for entry in self._entries[first - self._base[0] - 1 : last - self._base[0]]:
            size += len(entry.record)
            if found and size > bytes_max:
                break
            found.append(entry)
        return found

    def reset(self, base_index: int, base_term: int) -> None:
        self._base = (base_index, base_term)
        self._entries = []
        self._persisted = base_index

    def drop_head(self, base_index: int) -> None:
        """What a store does with sealed segments that a checkpoint covers."""
        term = self.term(base_index)
        assert term is not None
        del self._entries[: base_index - self._base[0]]
        self._base = (base_index, term)

    def crash(self) -> None:
        """Power failure: what was not durable is gone."""
        del self._entries[self._persisted - self._base[0] :]

    def lose_after(self, index: int) -> None:
        """Power failure under a relaxed fsync policy: confirmed entries are gone too, but for memberships."""
        configs = [entry.index for entry in self._entries if entry.kind == EntryKind.CONFIG]
        self.truncate_after(max([index, *configs]))
