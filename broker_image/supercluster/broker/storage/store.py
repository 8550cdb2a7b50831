"""A volume's groups, as the core opens them: `ports.GroupStore`.

It knows what only the volume can know: a group that was registered and has no data any more was lost (SF-4), a memory
log never outlives its process, and a member that is registered anew has dealt with what was lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from supercluster.broker.ports import OpenedGroup, StreamLog
from supercluster.broker.storage.cache import CacheBudget
from supercluster.broker.storage.log import FileLog
from supercluster.broker.storage.memory_log import MemoryLog
from supercluster.broker.storage.options import Fsync, LogOptions
from supercluster.broker.storage.recovery import Recovery, Verdict, open_log
from supercluster.broker.storage.space import Space
from supercluster.broker.storage.syncing import SyncTicket
from supercluster.broker.storage.volume import Volume

# What the newest entries of all file logs may take in memory together.
CACHE_BYTES_ALL = 64 * 1024 * 1024
# The room of a volume that nobody measures.
UNLIMITED_BYTES = 1 << 62


@dataclass(frozen=True, slots=True)
class DueSync:
    """A log and its ticket: `ticket.run()` on a thread, then `log.finish_sync(ticket)` on the loop."""

    group: str
    log: FileLog
    ticket: SyncTicket


class VolumeStore:
    """Implements `ports.GroupStore` on an open volume."""

    def __init__(
        self,
        volume: Volume,
        options: LogOptions,
        *,
        file_space: Space | None = None,
        memory_space: Space | None = None,
    ) -> None:
        """`options` are for every log; policy and space are set per group."""
        self._volume = volume
        self._options = replace(options, cache_budget=options.cache_budget or CacheBudget(CACHE_BYTES_ALL))
        self._file_space = file_space
        self._memory_space = memory_space
        self._logs: dict[str, StreamLog] = {}
        self._unsynced: set[str] = set()
        self.reports: dict[str, Recovery] = {}
        """What opening found, for the log and for events; file logs only."""

    @property
    def incarnation(self) -> str:
        return self._volume.incarnation

    @property
    def process_count(self) -> int:
        return self._volume.process_count

    def registered(self) -> dict[str, str]:
        return self._volume.groups()

    def open(self, group: str, *, memory: bool, fsync: str, create: bool) -> OpenedGroup:
        """Raises DiskError when the log cannot be read or written, ValueError for an unknown policy."""
        stale = self._logs.pop(group, None)
        if stale is not None:
            stale.close(clean=False)  # What was to begin with it had no room, and begins anew.
        known = group in self._volume.groups()
        if memory:
            log: StreamLog = MemoryLog(replace(self._options, space=self._memory_space))
            self._logs[group] = log
            return OpenedGroup(log=log, commit_index=0, doubtful=False, lost=known)
        options = replace(self._options, fsync=Fsync(fsync), space=self._file_space)
        log, report = open_log(
            self._volume.disk, self._volume.group_directory(group), options, self._volume.stop, known=known
        )
        self._logs[group] = log
        if options.fsync is not Fsync.NEVER:
            log.on_unsynced = partial(self._unsynced.add, group)
            self._unsynced.add(group)
        self.reports[group] = report
        return OpenedGroup(
            log=log,
            commit_index=report.commit_index,
            doubtful=report.verdict is Verdict.DOUBTFUL,
            lost=report.verdict is Verdict.LOST_RECORD,
        )

    def register(self, group: str, member: str) -> None:
        renamed = self._volume.groups().get(group, member) != member
        self._volume.register_group(group, member)
        log = self._logs.get(group)
        if renamed and log is not None:
            # The old identity does not vote any more, so what was lost under it is dealt with.
            log.settle()

    def forget(self, group: str) -> None:
        self._volume.forget_group(group)
        self._logs.pop(group, None)
        self.reports.pop(group, None)

    def tick(self, now_ms: int) -> None:
        for space in (self._file_space, self._memory_space):
            if space is not None:
                space.tick(now_ms)

    def room_bytes(self, *, memory: bool) -> int:
        space = self._memory_space if memory else self._file_space
        return space.room_bytes() if space is not None else UNLIMITED_BYTES

    def due_syncs(self, now_ms: int) -> list[DueSync]:
        """Tickets for every log that should be fsynced now: for a runtime that fsyncs on a thread
        (`LogOptions.sync_in_tick` False)."""
        due = []
        for group in sorted(self._unsynced):
            log = self._logs.get(group)
            if not isinstance(log, FileLog) or log.all_synced or log.failed is not None:
                self._unsynced.discard(group)
            elif log.sync_due(now_ms):
                ticket = log.begin_sync(now_ms)
                if ticket is not None:
                    due.append(DueSync(group, log, ticket))
        return due

    def close(self, *, clean: bool) -> None:
        """Close what is still open, say good-bye when all went well, and give the directory free.

        Raises:
            DiskError: a log could not be made durable; the stop does not count as clean then.
        """
        try:
            for log in self._logs.values():
                log.close(clean=clean)
            if clean and not any(isinstance(log, FileLog) and log.failed for log in self._logs.values()):
                self._volume.mark_clean()
        finally:
            self._logs.clear()
            self._volume.close()
