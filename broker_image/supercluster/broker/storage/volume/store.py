"""A volume's groups, as the core opens them: `ports.GroupStore`.

It adds knowledge that only the volume has: a registered group without data was lost (SF-4), a memory log
never outlives its process, and a newly registered member has settled an earlier loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from isal.isal_zlib import crc32

from supercluster.broker.ports import OpenedGroup, StreamLog
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.disk.removal import remove_directory
from supercluster.broker.storage.disk.space import Space
from supercluster.broker.storage.log.cache import CacheBudget
from supercluster.broker.storage.log.log import FileLog
from supercluster.broker.storage.log.memory_log import MemoryLog
from supercluster.broker.storage.log.options import Fsync, LogOptions
from supercluster.broker.storage.log.sync_tickets import SyncTicket
from supercluster.broker.storage.recovery.recovery import Recovery, Verdict, open_log
from supercluster.broker.storage.volume.volume import Volume, directory_name

# What the newest entries of all file logs may take in memory together.
CACHE_BYTES_ALL = 64 * 1024 * 1024
# The room of a volume that nobody measures.
UNLIMITED_BYTES = 1 << 62
# What copies of an older lineage had and the new one has not (SF-9).
DISCARDED = "discarded"
# What the core keeps besides groups: copies that a recovered map does not know.
NOTE = "kept.json"
# In the directory of a group whose copy contradicted another one (SF-34).
HALTED = "halted"


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
        is_short: Callable[[], bool] = lambda: False,
    ) -> None:
        """`options` are for every log; the space is set per group, and so is the policy: `options` have it for those of
        "interval". `is_short` says that the process has few file
        descriptors left: then others are told that there is no room here for a new stream."""
        self._is_short = is_short
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
        return self._volume.identity.incarnation

    @property
    def process_count(self) -> int:
        return self._volume.identity.process_count

    def renew(self) -> None:
        self._volume.renew()

    def registered(self) -> dict[str, str]:
        return self._volume.groups()

    def open(self, group: str, *, memory: bool, fsync: str, create: bool) -> OpenedGroup:
        """Raises DiskError when the log cannot be read or written, ValueError for an unknown policy."""
        self._close_stale(group)
        known = group in self._volume.groups()
        if memory:
            log: StreamLog = MemoryLog(replace(self._options, space=self._memory_space))
            self._logs[group] = log
            return OpenedGroup(log=log, commit_index=0, doubtful=False, lost=known)
        policy, space = self._policy(fsync), self._file_space
        options = replace(self._options, fsync=policy, space=space)
        log, report = open_log(
            self._volume.disk,
            self._volume.group_directory(group),
            options,
            known=known,
            power_failures=self._volume.identity.power_failures,
        )
        self._logs[group] = log
        log.on_unsynced = partial(self._unsynced.add, group)
        self._unsynced.add(group)
        self.reports[group] = report
        return OpenedGroup(
            log=log,
            commit_index=report.commit_index,
            doubtful=report.verdict in (Verdict.DOUBTFUL, Verdict.SHORT),
            lost=report.verdict is Verdict.LOST_RECORD,
            end=report.end,
        )

    def _close_stale(self, group: str) -> None:
        """What was to begin with an opened log had no room, or failed, or was put away."""
        stale = self._logs.pop(group, None)
        if stale is not None:
            stale.close(clean=False)
            if isinstance(stale, FileLog):
                stale.uncount()

    def set_aside(self, group: str) -> str:
        self._close_stale(group)
        return self._volume.set_aside(self._volume.group_directory(group))

    def _policy(self, fsync: str) -> Fsync:
        """Where this broker fsyncs always, a stream that did not ask for never does so too."""
        wanted = Fsync(fsync)
        return self._options.fsync if wanted is Fsync.INTERVAL else wanted

    def set_fsync(self, group: str, fsync: str) -> None:
        log = self._logs.get(group)
        if isinstance(log, FileLog):
            log.set_fsync(self._policy(fsync))

    def register(self, group: str, member: str, home: str = "") -> None:
        renamed = self._volume.groups().get(group, member) != member
        self._volume.registry.note(group, member, home)
        log = self._logs.get(group)
        if home:
            # A person chose that copy, or it has all that was handed over.
            self._volume.disk.unlink(self._mark(group))
        if renamed and log is not None:
            # The old identity does not vote any more, so what was lost under it is dealt with.
            log.settle()

    def _mark(self, group: str) -> str:
        return f"{self._volume.group_directory(group)}/{HALTED}"

    def halt(self, group: str) -> None:
        if self._volume.disk.exists(self._volume.group_directory(group)):
            self._volume.disk.write_file_durably(self._mark(group), b"")

    def is_halted(self, group: str) -> bool:
        return group in self._volume.groups() and self._volume.disk.exists(self._mark(group))

    def destroy(self, group: str) -> None:
        log = self._logs.get(group)
        if log is not None:
            log.destroy()
        else:
            remove_directory(self._volume.disk, self._volume.group_directory(group))

    def forget(self, group: str) -> None:
        self._volume.registry.note(group, None)
        self._logs.pop(group, None)
        self.reports.pop(group, None)

    def has_tail(self, group: str, last_index: int, last_term: int) -> bool:
        return self._volume.disk.exists(_tail_path(group, last_index, last_term))

    def keep_tail(
        self, group: str, last_index: int, last_term: int, head: bytes, records: Iterable[bytes]
    ) -> str:
        disk, path = self._volume.disk, _tail_path(group, last_index, last_term)
        disk.mkdirs(DISCARDED)
        part = f"{path}.part"
        disk.unlink(part)
        file = disk.open(part, create=True)
        try:
            file.write(0, (head,))
            size = len(head)
            for record in records:
                file.write(size, (record,))
                size += len(record)
            file.fdatasync()
        finally:
            file.close()
        disk.rename(part, path)
        disk.fsync_dir(DISCARDED)
        disk.fsync_dir("")
        return path

    def note(self) -> bytes | None:
        disk = self._volume.disk
        try:
            if not disk.exists(NOTE):
                return b""
            data = disk.read_file(NOTE)
        except DiskError:
            return None
        if data[:1] == b"{":
            return data  # As a version before wrote it.
        crc, _, note = data.partition(b" ")
        return note if crc == b"%08x" % crc32(note) else None

    def put_note(self, note: bytes) -> None:
        self._volume.disk.write_file_durably(NOTE, b"%08x %s" % (crc32(note), note))

    def tick(self, now_ms: int) -> None:
        for space in (self._file_space, self._memory_space):
            if space is not None:
                space.tick(now_ms)

    def directory_of(self, group: str) -> str:
        return self._volume.group_directory(group)

    def room_bytes(self, *, memory: bool) -> int:
        if self._is_short():
            return 0
        space = self._memory_space if memory else self._file_space
        return space.room_bytes() if space is not None else UNLIMITED_BYTES

    def limit(self, *, file_bytes: int, memory_bytes: int) -> None:
        """Other capacities from now on; 0: none but the disk's."""
        if self._file_space is not None:
            self._file_space.limit(file_bytes)
        if self._memory_space is not None:
            self._memory_space.limit(memory_bytes)

    def due_syncs(self, now_ms: int) -> list[DueSync]:
        """Tickets for every log that should be fsynced now: for a runtime that fsyncs on a thread
        (`LogOptions.sync_in_tick` False)."""
        due = []
        for group in sorted(self._unsynced):
            log = self._logs.get(group)
            if isinstance(log, FileLog) and log.sync_due(now_ms):
                ticket = log.begin_sync(now_ms)
                if ticket is not None:
                    due.append(DueSync(group, log, ticket))
            elif not isinstance(log, FileLog) or log.rests:
                self._unsynced.discard(group)
        return due

    def close(self, *, clean: bool) -> None:
        """Close what is still open, and give the directory free.

        Raises:
            DiskError: a log could not be made durable; it goes on owing then.
        """
        try:
            for log in self._logs.values():
                log.close(clean=clean)
        finally:
            self._logs.clear()
            self._volume.close()


def _tail_path(group: str, last_index: int, last_term: int) -> str:
    return f"{DISCARDED}/{directory_name(group)}.{last_term}-{last_index}.entries"
