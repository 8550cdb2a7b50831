"""fsync outside the loop: a ticket names the data to make durable, a thread runs it, and the log gets the
outcome.

The log goes on taking appends meanwhile. One ticket is out at a time per log, so many appends share one
fsync.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock

from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.disk.disk import Disk, SyncHandle
from supercluster.broker.storage.log.group_files import EACH_SYNCED, NO_LONGER, HardState
from supercluster.broker.storage.segments.segment import Segment


@dataclass(frozen=True, slots=True)
class SyncPart:
    """One file of a ticket, and how much of it the fsync covers."""

    segment: Segment
    size_bytes: int
    handle: SyncHandle


@dataclass(slots=True, eq=False)
class SyncTicket:
    """What `begin_sync` hands out. Only `run` may be called on another thread."""

    _disk: Disk
    _directory: str
    parts: tuple[SyncPart, ...]
    index: int
    """Everything up to here is durable when `run` succeeded."""
    generation: int
    """The log's count of truncations when the ticket was made: after one, the ticket says nothing."""
    covers_directory: bool
    mark: bool | None = None
    """Is the mark of a log whose entries are each fsynced put as well (True), or taken away (False)?"""
    _mark_text: bytes = b""
    mark_error: DiskError | None = None
    error: DiskError | None = None
    is_dropped: bool = False
    _lock: Lock = field(default_factory=Lock)
    _running: Lock = field(default_factory=Lock)

    def run(self) -> None:
        """fsync. An error is kept for `finish_sync`."""
        with self._running:
            try:
                if not self.is_dropped:
                    self._sync()
            except DiskError as error:
                self.error = error
            finally:
                for part in self.parts:
                    try:
                        part.handle.close()
                    except DiskError as error:
                        self.error = error
            if self.mark is not None and self.error is None:
                with self._lock:
                    if not self.is_dropped:
                        self._change_mark()

    def _sync(self) -> None:
        for part in self.parts:
            part.handle.sync()
        if self.covers_directory:
            self._disk.fsync_dir(self._directory)

    def drop(self) -> None:
        """Nobody waits for this one any more: from here on it changes no mark, which another ticket, or another log of this
        directory, may do by then. Waits for a change that is under way."""
        with self._lock:
            self.is_dropped = True

    def overtake(self) -> None:
        """Another fsync of the same files is to come. The kernel tells of a failure once: waits until this one has heard of its
        own, or has it not begin."""
        with self._running:
            self.drop()

    def _change_mark(self) -> None:
        """Behind all that it speaks of. Without it the log is trusted less, and no more."""
        path, gone = f"{self._directory}/{EACH_SYNCED}", f"{self._directory}/{NO_LONGER}"
        try:
            if self.mark:
                self._disk.write_file_durably(path, self._mark_text)
                return
            # A name that is only taken away may come back with the power, and the next process has nothing to tell by.
            if self._disk.exists(path):
                self._disk.rename(path, gone)
            self._disk.fsync_dir(self._directory)
            self._disk.unlink(gone)
        except DiskError as error:
            self.mark_error = error


@dataclass(slots=True, eq=False)
class VoteTicket:
    """Term and vote on their way to the disk. Only `run` may be called on another thread."""

    _handle: SyncHandle
    hard: HardState
    error: DiskError | None = None

    def run(self) -> None:
        """fsync. An error is kept for `finish_vote`."""
        try:
            try:
                self._handle.sync()
            finally:
                self._handle.close()
        except DiskError as error:
            self.error = error
