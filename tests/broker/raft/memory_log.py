"""The store's log in memory, as tests of Raft want it: durable only when told, able to fail, and to lose its tail."""

from __future__ import annotations

from collections.abc import Sequence

from supercluster.broker.raft.entry import NEVER_FORGOTTEN, Entry
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.log import memory_log


class MemoryLog(memory_log.MemoryLog):
    """Implements `ports.RaftLog`."""

    def __init__(self, *, sync_at_once: bool = True) -> None:
        super().__init__()
        self.sync_at_once = sync_at_once
        self.fail = False
        self.fail_reads = False
        self._persisted = 0

    @property
    def persisted_index(self) -> int:
        return self._persisted

    def append(self, entries: Sequence[Entry]) -> None:
        if self.fail:
            raise DiskError("no space left", "memory")
        super().append(entries)
        # These are durable whatever the policy: a member that lost a membership might elect itself alone.
        if self.sync_at_once or any(entry.kind in NEVER_FORGOTTEN for entry in entries):
            self.sync()

    def sync(self) -> None:
        self._persisted = self.last_index

    def truncate_after(self, index: int) -> None:
        super().truncate_after(index)
        self._persisted = min(self._persisted, index)

    def entries(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        if self.fail_reads:
            raise DiskError("record damaged", "memory")
        return super().entries(first, last, bytes_max)

    def reset(self, base_index: int, base_term: int) -> None:
        super().reset(base_index, base_term)
        self._persisted = base_index

    def drop_before(self, base_index: int) -> None:
        """What a store does with sealed segments that a checkpoint covers."""
        self.save_checkpoint(base_index, b"")
        self._ends = [base_index]
        self.note_commit(base_index)
        self.drop_head(base_index + 1)

    def crash(self) -> None:
        """Power failure: what was not durable is gone."""
        self.truncate_after(self._persisted)

    def lose_after(self, index: int) -> None:
        """Power failure under a relaxed fsync policy: confirmed entries are gone too, but for memberships."""
        kept = [entry.index for entry in self._entries if entry.kind in NEVER_FORGOTTEN]
        self.truncate_after(max([index, *kept]))
