"""The entries of a log on disk: append, truncate, read, fsync. `log.FileLog` adds the rest of a log.

- An append is one write. If it fails, no part of it is kept; if even that cannot be ensured, the log refuses
  every further operation.
- `persisted_index` follows the fsync policy (RP-6), which may change. While `HardState.owes` is clear on the
  disk, every entry that was confirmed here is on the disk (`docs/adr/what-a-log-owes.md`). It is set before an
  entry is confirmed without an fsync, and cleared after everything was fsynced.
- Every record that is read back is checked. An invalid one is reported and never returned, and the loss is
  recorded on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from supercluster.broker.ports import LogSegment
from supercluster.broker.raft.entry import NEVER_FORGOTTEN, Entry, EntryKind
from supercluster.broker.raft.errors import DiskError, NoDescriptorError, UnreadableError
from supercluster.broker.storage.disk.disk import Disk
from supercluster.broker.storage.log.cache import EntryCache
from supercluster.broker.storage.log.checkpoint import Checkpoints, CheckpointTicket
from supercluster.broker.storage.log.group_files import Base, HardState, Notes
from supercluster.broker.storage.log.options import Fsync, LogOptions
from supercluster.broker.storage.log.slot_file import SlotFile
from supercluster.broker.storage.log.sync_pace import SyncPace
from supercluster.broker.storage.log.sync_tickets import HardTicket, SyncPart, SyncTicket
from supercluster.broker.storage.segments.segment import Segment, SegmentHead
from supercluster.broker.storage.segments.segments import DamagedError, Segments
from supercluster.broker.storage.segments.term_runs import TermRuns

_CONFIG = int(EntryKind.CONFIG)


class EntryLog:
    """Implements `ports.RaftLog` but for `reset`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        options: LogOptions,
        *,
        base: Base,
        segments: Segments,
        terms: TermRuns,
        checkpoints: Checkpoints,
        hard: SlotFile,
        notes: SlotFile,
        synced_index: int,
    ) -> None:
        """For `recovery`, which has read all of it, and has made `hard` durable."""
        self._disk = disk
        self._directory = directory
        self._options = options
        self._base = base
        self._segments = segments
        self._terms = terms
        self._checkpoints = checkpoints
        self._writing: CheckpointTicket | None = None
        """A checkpoint, or the state of a new base, that is on its way to the disk."""
        self._next_base: Checkpoints | None = None
        """The state of a base that is durable, and waits for `install_base`."""
        self._hard_file = hard
        self._hard = HardState.decode(hard.value)
        self._notes_file = notes
        self._notes = Notes.decode(notes.value)
        self._cache = EntryCache(options.cache_bytes, options.cache_budget)
        last = segments.last
        self.last_index = last.last_index if last is not None else base.index
        self.last_term = last.last_term if last is not None else base.term
        self.commit_index = self._notes.commit_index
        """The highest index noted as committed that is held."""
        self._synced_index = synced_index
        self._directory_dirty = synced_index < self.last_index
        # What a process that was killed left unsynced may have some of these in it.
        self._unforgotten = [synced_index + 1] if synced_index < self.last_index else []
        """CONFIG and DURABLE entries that are not durable yet, oldest first. None of them is confirmed before, whatever the policy:
        a group must not go on by what a majority of its members may forget (SF-4, SF-20)."""
        self._truncations = 0
        self._ticket: SyncTicket | None = None
        self._hard_out: HardTicket | None = None
        """The newest that is on its way: it has in it what was on its way before."""
        self._confirmed_index = 0
        """What was confirmed under a weaker policy before, and may not be durable."""
        self._wanted_index = 0
        """Up to where somebody waits for entries to be durable, whatever the policy."""
        self._pace = SyncPace(options)
        self._last_note_ms: int | None = None
        if last is not None:
            last.full = last.size_bytes >= options.segment_bytes
        self._active: Segment | None = None
        self._unsealed = [segment for segment in segments.all if segment.full and not segment.sealed]
        self.failed: DiskError | None = None
        """Why the log refuses everything, when it does."""
        self._is_marked_damaged = False
        """The disk knows of what it refuses everything for."""
        self._closed = False
        self._counted_bytes = 0
        """What the volume's space counts for this log."""
        self.frees_room: Callable[[Entry], bool] = lambda entry: False
        """Whether the volume's ballast is for this entry, where nothing else is left."""
        self.on_unsynced: Callable[[], None] | None = None
        """Called after every append: whoever runs tickets need not ask every log in every turn."""
        self._took(self.bytes_on_disk())

    # ---- Raft's view ----------------------------------------------------------------------------------------------

    @property
    def base_index(self) -> int:
        return self._base.index

    @property
    def base_term(self) -> int:
        return self._base.term

    @property
    def persisted_index(self) -> int:
        if not self._is_weak:
            return max(self._synced_index, self._confirmed_index)
        if self._unforgotten:
            return max(self._synced_index, self._unforgotten[0] - 1)
        return self.last_index

    @property
    def _is_weak(self) -> bool:
        """Are entries confirmed before their fsync? The disk has to know that, and go on knowing it."""
        out = self._hard_out
        return self._pace.fsync is not Fsync.ALWAYS and self._hard.owes and (out is None or out.hard.owes)

    @property
    def may_open_anew(self) -> bool:
        if self._ticket is not None or self._hard_out is not None or not self.may_ever_open_anew:
            return False
        # While the disk does not give back what was asked for, the copy would only come to leave again.
        return not isinstance(self.failed, UnreadableError) or self._segments.gives_back()

    @property
    def may_ever_open_anew(self) -> bool:
        is_whole = self.failed is None or isinstance(self.failed, UnreadableError)
        return is_whole or self._is_marked_damaged

    def term(self, index: int) -> int | None:
        if index == self.last_index:
            return self.last_term
        if index == self._base.index:
            return self._base.term
        if self._base.index < index < self.last_index:
            return self._terms.term(index)
        return None

    def append(self, entries: Sequence[Entry]) -> None:
        self._guard()
        if not entries:
            return
        if entries[0].index != self.last_index + 1:
            raise ValueError(
                f"{self._directory}: append of entry {entries[0].index} behind entry {self.last_index} leaves a gap"
            )
        try:
            segment, before = self._write(entries)
        except DiskError:
            if (
                self.failed is not None
                or not any(map(self.frees_room, entries))
                or not self._give_up_ballast(for_entry=True)
            ):
                raise
            segment, before = self._write(entries)
        segment.note(entries)
        for entry in entries:
            if entry.kind in NEVER_FORGOTTEN:
                self._unforgotten.append(entry.index)
            if entry.term != self.last_term or not self._terms:
                self._terms.note(entry.index, entry.term)
                self.last_term = entry.term
        self.last_index = entries[-1].index
        self._cache.add(entries)
        self._took(segment.size_bytes - before)
        if segment.size_bytes >= self._options.segment_bytes:
            segment.full = True
            self._unsealed.append(segment)
            if self.fsync is Fsync.NEVER:
                self._wanted_index = self.last_index
        if self.on_unsynced is not None:
            self.on_unsynced()

    def _write(self, entries: Sequence[Entry]) -> tuple[Segment, int]:
        """One write. Returns the segment and its size before. Raises DiskError, and then leaves nothing of it."""
        segment = self._segments.last
        if segment is None or segment.full:
            segment = self._new_segment(segment)
        elif segment is not self._active:
            self._activate(segment)
        before = segment.size_bytes
        try:
            self._segments.opened(segment).write(before, [entry.record for entry in entries])
        except DiskError as error:
            self._undo_write(segment, error)
            raise
        return segment, before

    def _new_segment(self, last: Segment | None) -> Segment:
        head = SegmentHead(
            self._base.epoch, self.last_index, self.last_term, last.next_seq if last is not None else 1
        )
        segment = self._segments.create(head)
        self._active = segment
        self._directory_dirty = True
        self._took(segment.size_bytes)
        return segment

    def _activate(self, segment: Segment) -> None:
        with self._reading():
            self._segments.activate(segment)
        self._active = segment

    def _undo_write(self, segment: Segment, error: DiskError) -> None:
        """Half a record at the end would be taken for a torn tail at best: take it off again."""
        try:
            self._segments.opened(segment).truncate(segment.size_bytes)
        except DiskError:
            self.failed = error
        if self._options.space is not None:
            self._options.space.refresh()

    def truncate_after(self, index: int) -> None:
        self._guard()
        if index >= self.last_index:
            return
        if index < max(self._base.index, self.commit_index):
            raise ValueError(
                f"{self._directory}: entries behind {index} are to be dropped, but {self.commit_index} is committed"
            )
        term = self._term_held(index)
        with self._failing():
            if self._notes.durable_index > index:
                # Otherwise recovery would miss what was dropped on purpose.
                self._save_notes(replace(self._notes, durable_index=index), durable=True)
            before = self._segments.size_bytes
            removed = False
            while (segment := self._segments.last) is not None and segment.first_index > index:
                self._segments.remove(segment)
                removed = True
            if removed:
                # First the names, then the cut: a removed segment that came back would leave a gap behind the cut.
                self._disk.fsync_dir(self._directory)
            if segment is not None and segment.last_index > index:
                self._segments.cut(segment, index, term)
                self._active = segment
                self._directory_dirty = True
        self._took(self._segments.size_bytes - before)
        self._truncations += 1
        self.last_term = term
        self.last_index = index
        self._terms.truncate_after(index)
        self._cache.truncate_after(index)
        self._synced_index = min(self._synced_index, index)
        self._confirmed_index = min(self._confirmed_index, index)
        self._wanted_index = min(self._wanted_index, index)
        self._unforgotten = [each for each in self._unforgotten if each <= index]
        self._unsealed = [each for each in self._segments.all if each.full and not each.sealed]
        self._checkpoints.remove_after(index)

    def entries(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        last = min(last, self.last_index)
        if first <= self._base.index or first > last:
            return []
        found: list[Entry] = []
        size = 0
        index = first
        while index <= last:
            held = self._cache.get(index)
            if held is not None:
                more = [held]
            else:
                cached = self._cache.first_index
                reach = min(last, cached - 1) if cached is not None else last
                more = self._read(index, reach, bytes_max - size, at_least_one=not found)
                if not more:
                    return found
            for entry in more:
                size += len(entry.record)
                if found and size > bytes_max:
                    return found
                found.append(entry)
            index += len(more)
        return found

    def entry(self, index: int) -> Entry | None:
        held = self._cache.get(index)
        if held is not None:
            return held
        if not self._base.index < index <= self.last_index:
            return None
        return self._read(index, index, 1)[0]

    def memberships(self, first: int, last: int) -> list[Entry]:
        with self._reading():
            indexes = list(self._segments.unforgotten(first, min(last, self.last_index)))
        found = [self.entry(index) for index in indexes]
        return [entry for entry in found if entry is not None and entry.kind == _CONFIG]

    def _read(self, first: int, last: int, bytes_max: int, *, at_least_one: bool = True) -> list[Entry]:
        with self._reading():
            return self._segments.read(first, last, bytes_max, at_least_one=at_least_one)

    @property
    def durable_checkpoint(self) -> int:
        return max((index for index in self._checkpoints.indexes if index <= self._synced_index), default=-1)

    def want_durable(self, index: int) -> None:
        self._wanted_index = max(self._wanted_index, min(index, self.last_index))
        if self.on_unsynced is not None and self._wanted_index > self._synced_index:
            self.on_unsynced()

    def _damaged(self, error: DamagedError) -> DiskError:
        """A record is gone: say on disk before anything else up to where there were any, and refuse from now on (SF-4)."""
        self.failed = DiskError(f"record damaged: {error.why}", error.path)
        with suppress(DiskError):  # A disk that does not even take the mark: the damage is found again.
            end = max(self._hard.end, (self.last_term, self.last_index))
            self._save_hard(end=end, suspect=self._segments.asked_last)
            self._is_marked_damaged = True
        return self.failed

    @property
    def first_seq(self) -> int:
        return self._segments.all[0].first_seq if len(self._segments) else 0

    @property
    def segment_bytes(self) -> int:
        return self._options.segment_bytes

    def index_of_seq(self, seq: int) -> int | None:
        with self._reading():
            index = self._segments.index_of_seq(seq)
        return index if index is not None and index > self._base.index else None

    def segment_of_seq(self, seq: int) -> LogSegment | None:
        with self._reading():
            return self._segments.of_seq(seq)

    # ---- fsync ----------------------------------------------------------------------------------------------------

    @property
    def all_synced(self) -> bool:
        return self._synced_index >= self.last_index

    @property
    def rests(self) -> bool:
        """Is nothing left to fsync soon? What is owed may be left: `tick` calls `on_unsynced` when that is due."""
        if self._closed or self.failed is not None:
            return True
        is_wanted = self.fsync is not Fsync.NEVER or self._is_urgent
        return self._ticket is None and (self.all_synced or not is_wanted)

    @property
    def fsync(self) -> Fsync:
        """The policy."""
        return self._pace.fsync

    def set_fsync(self, policy: Fsync) -> None:
        """Another policy from now on (RP-6). What was confirmed stays so."""
        self._confirmed_index = self.persisted_index
        self._pace.fsync = policy
        if self.on_unsynced is not None:
            self.on_unsynced()

    def sync_due(self, now_ms: int) -> bool:
        """Should a sync begin, by the policy?"""
        urgent, synced = self._is_urgent, self.all_synced
        return (
            not self._closed
            and self._may_begin
            and self._pace.is_due(now_ms, is_urgent=urgent, is_synced=synced)
        )

    @property
    def _is_urgent(self) -> bool:
        return not self._is_weak or bool(self._unforgotten) or self._wanted_index > self._synced_index

    @property
    def _may_begin(self) -> bool:
        """Is there anything to make durable, and nothing in its way? What is owed is cleared by itself, and not over a vote."""
        if self.failed is not None or self._ticket is not None:
            return False
        return not self.all_synced or (self._hard.owes and self._hard_out is None)

    def next_sync_ms(self) -> int | None:
        """When `sync_due` turns true (0: it is); None while everything is as durable as the policy wants it."""
        if not self._may_begin:
            return None
        return self._pace.next_ms(is_urgent=self._is_urgent, is_synced=self.all_synced)

    def begin_sync(self, now_ms: int | None = None) -> SyncTicket | None:
        """A ticket for all that is written and not yet durable; None when there is nothing, or one is out. The next
        interval counts from `now_ms`; without it what the disk says of what is owed stays."""
        self._guard()
        if not self._may_begin:
            return None
        # All of them are asked: a truncation makes the last one durable while those before it are not.
        parts: list[SyncPart] = []
        hard: HardTicket | None = None
        failure: DiskError | None = None
        try:
            for segment in self._segments.all:
                if segment.synced_bytes < segment.size_bytes:
                    handle = self._segments.opened(segment).sync_handle()
                    parts.append(SyncPart(segment, segment.size_bytes, handle))
            if (
                now_ms is not None
                and self._hard_out is None
                and self._hard.owes is not self._owes_next(now_ms)
            ):
                hard = self._begin_hard(owes=not self._hard.owes)
        except DiskError as error:
            # What cannot be made durable counts as an fsync that failed.
            failure = error
            for part in parts:
                part.handle.close()
            parts.clear()
        if now_ms is not None and not self.all_synced:
            self._pace.begins(now_ms)
        self._ticket = SyncTicket(
            self._disk,
            self._directory,
            tuple(parts),
            self.last_index,
            self._truncations,
            self._directory_dirty and failure is None,
            hard,
        )
        self._directory_dirty = False
        self._ticket.error = failure
        return self._ticket

    def _owes_next(self, now_ms: int) -> bool:
        """What the disk is to say from now on. The kernel may write it at any time: that nothing is owed is not even written
        before all is durable."""
        if self._hard.owes:
            return not self.all_synced or self._directory_dirty or self.fsync is Fsync.NEVER
        return self.fsync is not Fsync.ALWAYS and self._pace.is_busy(now_ms)

    def _owes_with_vote(self) -> bool:
        """The first entry of a leader follows: where the policy allows that, it needs no fsync before it is confirmed. What is on
        its way is not taken back, since the disk may have any of it."""
        if self._hard_out is not None:
            return self._hard_out.hard.owes
        if self._hard.owes or self.fsync is Fsync.ALWAYS:
            return self._hard.owes
        self._pace.begins_anew()
        return True

    def finish_sync(self, ticket: SyncTicket) -> None:
        """Take the outcome of a ticket. A failed fsync is never repeated: the kernel may have dropped the pages. One
        that was not tried, because no file descriptor was left for it, is due again a moment later.

        Raises:
            DiskError: the fsync failed, and the log refuses everything from now on.
        """
        if self._ticket is not ticket:
            return  # `sync` has taken it, or the log was closed.
        self._ticket = None
        if ticket.hard is not None:
            self._finish_hard(ticket.hard)
        if isinstance(ticket.error, NoDescriptorError):
            self._directory_dirty = True
            self._pace.found_no_descriptor()
            return
        if ticket.error is not None:
            self.failed = ticket.error
            raise ticket.error
        if ticket.generation != self._truncations:
            self._directory_dirty = True
            return
        for part in ticket.parts:
            part.segment.synced_bytes = max(part.segment.synced_bytes, part.size_bytes)
            if part.segment.sealed:
                self._segments.release(part.segment)
        self._synced_index = max(self._synced_index, ticket.index)
        self._unforgotten = [each for each in self._unforgotten if each > self._synced_index]

    def sync(self) -> None:
        """Make everything written durable, now, whatever ticket is out. Raises DiskError when it is not."""
        if self._ticket is not None:
            self._ticket.run()
            self.finish_sync(self._ticket)
        ticket = self.begin_sync()
        if ticket is not None:
            ticket.run()
            self.finish_sync(ticket)
            if ticket.error is not None:
                self.failed = ticket.error
                raise ticket.error

    # ---- small things ---------------------------------------------------------------------------------------------

    def _begin_hard(self, **changes: Any) -> HardTicket:
        """Write another hard state. What is on its way goes with it, into the same slot."""
        before = self._hard_out
        hard = replace(before.hard if before is not None else self._hard, **changes)
        try:
            self._hard_out = HardTicket(self._hard_file.begin(hard.encode()), hard, before)
        except DiskError as error:
            self.failed = self.failed or error
            raise
        return self._hard_out

    def _finish_hard(self, ticket: HardTicket) -> None:
        if ticket.error is not None:
            # After a failed fsync nobody knows what the disk has: no vote may be answered from here on.
            self.failed = self.failed or ticket.error
            raise ticket.error
        if ticket is self._hard_out:  # Else a newer one takes it along.
            self._hard_out = None
            self._hard_file.settle(ticket.hard.encode())
            self._hard = ticket.hard
            if self.on_unsynced is not None:
                self.on_unsynced()

    def _save_hard(self, **changes: Any) -> None:
        """While the caller waits."""
        ticket = self._begin_hard(**changes)
        ticket.run()
        self._finish_hard(ticket)

    def _save_notes(self, notes: Notes, *, durable: bool) -> None:
        self._notes_file.save(notes.encode(), durable=durable)
        self._notes = notes

    def bytes_on_disk(self) -> int:
        return self._segments.size_bytes + self._checkpoints.size_bytes

    def bytes_behind(self, index: int) -> int:
        return self._segments.bytes_behind(max(index, self._base.index))

    def _took(self, size_bytes: int) -> None:
        self._counted_bytes += size_bytes
        if self._options.space is not None:
            self._options.space.took(size_bytes)

    def _give_up_ballast(self, *, for_entry: bool = False) -> bool:
        """What frees room had none: may it be tried once more (SF-18)?"""
        space = self._options.space
        return space is not None and space.give_up_ballast(for_entry=for_entry)

    def _term_held(self, index: int) -> int:
        term = self.term(index)
        assert term is not None, f"{self._directory}: entry {index} is not held"
        return term

    def _guard(self) -> None:
        if self.failed is not None:
            raise DiskError(f"the log refuses all operations after a failure: {self.failed}", self._directory)
        if self._closed:
            raise DiskError("the log is closed", self._directory)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """A record that is damaged is lost. One that the disk does not give back is not: the log waits for it (SF-32)."""
        self._guard()
        try:
            yield
        except DamagedError as error:
            raise self._damaged(error) from error
        except UnreadableError as error:
            self.failed = error
            raise

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Around steps that must not stop half-way: an error ends the log's life."""
        try:
            yield
        except DiskError as error:
            self.failed = error
            raise
