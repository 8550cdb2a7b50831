"""fsync outside the loop: a ticket names the data to make durable, a thread runs it, and the log gets the
outcome.

The log goes on taking appends meanwhile. One ticket for entries is out at a time per log, so many appends
share one fsync.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock

from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.disk.disk import Disk, SyncHandle
from supercluster.broker.storage.log.group_files import HardState
from supercluster.broker.storage.segments.segment import Segment


@dataclass(frozen=True, slots=True)
class SyncPart:
    """One file of a ticket, and how much of it the fsync covers."""

    segment: Segment
    size_bytes: int
    handle: SyncHandle


@dataclass(slots=True, eq=False)
class _Ticket:
    """Only `run` may be called on another thread."""

    error: DiskError | None = field(default=None, init=False)
    _is_run: bool = field(default=False, init=False)
    _running: Lock = field(default_factory=Lock, init=False)

    def run(self) -> None:
        """fsync, once: the kernel tells of a failure once, so whoever calls meanwhile waits for the outcome. An error is kept for
        the log."""
        with self._running:
            if self._is_run:
                return
            self._is_run = True
            try:
                self._sync()
            except DiskError as error:
                self.error = self.error or error

    def _sync(self) -> None:
        raise NotImplementedError


@dataclass(slots=True, eq=False)
class HardTicket(_Ticket):
    """Term, vote and what is owed on their way to the disk (`group_files.HARD_STATE`)."""

    _handle: SyncHandle
    hard: HardState
    _before: HardTicket | None
    """One on its way to the same slot, which this one takes along."""

    def _sync(self) -> None:
        before, self._before = self._before, None
        try:
            if before is not None:
                before.run()
                if before.error is not None:
                    raise before.error
            self._handle.sync()
        finally:
            self._handle.close()


@dataclass(slots=True, eq=False)
class SyncTicket(_Ticket):
    """What `begin_sync` hands out."""

    _disk: Disk
    _directory: str
    parts: tuple[SyncPart, ...]
    index: int
    """Everything up to here is durable when `run` succeeded."""
    generation: int
    """The log's count of truncations when the ticket was made: after one, the ticket says nothing of entries."""
    covers_directory: bool
    hard: HardTicket | None
    """What the disk is to know of what the log owes."""

    def _sync(self) -> None:
        try:
            for part in self.parts:
                part.handle.sync()
            if self.covers_directory:
                self._disk.fsync_dir(self._directory)
        finally:
            for part in self.parts:
                try:
                    part.handle.close()
                except DiskError as error:
                    self.error = error
            if self.hard is not None:
                self.hard.run()
