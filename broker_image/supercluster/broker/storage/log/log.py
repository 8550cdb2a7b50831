"""A group's log on disk, which is its stream's store (RP-4): a message is written once, in the batch that
Raft agreed on.

`EntryLog` has the entries. This class adds term and vote (fsynced under any policy, SF-4), the notes for
recovery, checkpoints, and the log's creation and removal. Segments are sealed when their last entry is
committed (SF-17).

`recovery.open_log` makes one; this class never looks for files. It may be used on one thread; only a ticket's
`run` belongs elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from supercluster.broker.ports import Ticket
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.disk.removal import remove_directory
from supercluster.broker.storage.log.checkpoint import Checkpoints, CheckpointTicket
from supercluster.broker.storage.log.entry_log import EntryLog
from supercluster.broker.storage.log.group_files import BASE, NO_END, Base, Notes
from supercluster.broker.storage.log.options import Integrity
from supercluster.broker.storage.log.sync_tickets import HardTicket
from supercluster.broker.storage.segments.segment import Segment
from supercluster.broker.storage.segments.segments import Segments
from supercluster.broker.storage.segments.term_runs import TermRuns


class FileLog(EntryLog):
    """Implements `ports.StreamLog`."""

    # ---- what recovery needs to know ------------------------------------------------------------------------------

    def begin_vote(self, term: int, vote: str) -> HardTicket:
        self._guard()
        return self._begin_hard(term=term, vote=vote, owes=self._owes_with_vote())

    def finish_vote(self, ticket: Ticket) -> None:
        if isinstance(ticket, HardTicket) and not self._closed:
            self._finish_hard(ticket)

    def save_vote(self, term: int, vote: str) -> None:
        self._guard()
        self._save_hard(term=term, vote=vote, owes=self._owes_with_vote())

    def load_vote(self) -> tuple[int, str]:
        return self._hard.term, self._hard.vote

    def settle(self) -> None:
        """What recovery found was dealt with: caught up with a leader, or registered under a new identity (SF-4)."""
        if self._hard.integrity is not Integrity.SOUND or self._hard.end != NO_END:
            self._guard()
            self._save_hard(integrity=Integrity.SOUND, end=NO_END, suspect=0)

    def note_commit(self, index: int) -> None:
        index = min(index, self.last_index)
        if index > self.commit_index:
            self.commit_index = index
        while self._unsealed and self._unsealed[0].last_index <= index:
            self._seal(self._unsealed.pop(0))

    def _seal(self, segment: Segment) -> None:
        runs = self._terms.between(segment.first_index, segment.last_index)
        try:
            self._segments.write_side_car(segment, runs)
        except DiskError:
            # Only the next start is slower: the segment will be scanned.
            return
        segment.sealed = True
        if segment.synced_bytes >= segment.size_bytes:
            self._segments.release(segment)

    def _note(self) -> None:
        notes = self._current_notes()
        if notes != self._notes:
            self._save_notes(notes, durable=False)

    def _current_notes(self) -> Notes:
        durable_index = min(self._synced_index, self.last_index)
        return Notes(self._base.epoch, self.commit_index, durable_index, self._notes.power_failures)

    # ---- checkpoints and the head ---------------------------------------------------------------------------------

    def checkpoint_at(self, index: int) -> bool:
        """True when a segment ends at `index` and has no checkpoint there: the best place for one."""
        segment = self._segments.holding(index)
        return (
            segment is not None
            and segment.full
            and segment.last_index == index
            and index > self._checkpoints.newest
        )

    def save_checkpoint(self, index: int, state: bytes) -> None:
        self._guard()
        term = self._checkpoint_term(index)
        self.drop_checkpoint()
        before = self._checkpoints.size_bytes
        while True:
            try:
                self._checkpoints.save(index, term, state)
                break
            except DiskError:
                # Until there is room, or nothing to give up any more: a few times at most.
                if not self._give_up_ballast():
                    raise
        self._prune()
        self._took(self._checkpoints.size_bytes - before)

    def begin_checkpoint(self, index: int, pieces: Sequence[bytes]) -> CheckpointTicket:
        self._guard()
        return self._begin(self._checkpoints, index, self._checkpoint_term(index), pieces)

    def _checkpoint_term(self, index: int) -> int:
        term = self.term(index)
        if term is None:
            raise ValueError(
                f"{self._directory}: checkpoint at {index}, the log holds {self.base_index} to {self.last_index}"
            )
        return term

    def begin_base(self, base_index: int, base_term: int, pieces: Sequence[bytes]) -> CheckpointTicket:
        self._guard()
        checkpoints = Checkpoints(self._disk, self._directory, self._base.epoch + 1)
        return self._begin(checkpoints, base_index, base_term, pieces)

    def _begin(
        self, checkpoints: Checkpoints, index: int, term: int, pieces: Sequence[bytes]
    ) -> CheckpointTicket:
        self.drop_checkpoint()
        self._writing = checkpoints.begin(index, term, pieces)
        return self._writing

    def finish_checkpoint(self, ticket: Ticket) -> Ticket | None:
        if ticket is not self._writing or not isinstance(ticket, CheckpointTicket):
            raise ValueError(f"{self._directory}: this checkpoint was given up")
        checkpoints, error = ticket.checkpoints, ticket.error
        if error is None and not ticket.is_named:
            try:
                checkpoints.give_name(ticket)
            except DiskError as refused:
                error = refused
            else:
                ticket.is_named = True
                return ticket
        if error is not None:
            self.drop_checkpoint()
            if self._give_up_ballast():
                return self._begin(checkpoints, ticket.index, ticket.term, ticket.pieces)
            raise error
        self._writing = None
        before = checkpoints.size_bytes
        checkpoints.take(ticket)
        if checkpoints is self._checkpoints:
            self._prune()
            self._took(checkpoints.size_bytes - before)
        else:
            self._next_base = checkpoints
        return None

    def drop_checkpoint(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.checkpoints.discard(writing)

    def _prune(self) -> None:
        ends = [s.last_index for s in self._segments.all if s.full]
        self._checkpoints.prune(self._base.index, ends, self.durable_checkpoint)

    def load_checkpoint(self) -> tuple[int, bytes] | None:
        for index in reversed(self._checkpoints.indexes[:]):
            found = self._checkpoints.load(index)
            if found is not None and self.term(index) == found[0]:
                return index, found[1]
        return None

    def base_state(self) -> bytes | None:
        found = self._checkpoints.load(self._base.index)
        return found[1] if found is not None else None

    def _new_base(self, keep_from_index: int) -> int | None:
        """The base that a head drop would take; None when no segment would go."""
        first = self._segments.all[0] if len(self._segments) else None
        if first is None or not first.full or first.last_index > min(keep_from_index - 1, self.commit_index):
            return None
        usable = [index for index in self._checkpoints.indexes if first.last_index <= index < keep_from_index]
        return max(usable, default=None)

    def can_drop_head(self, keep_from_index: int) -> bool:
        return self.failed is None and self._new_base(keep_from_index) is not None

    def drop_head(self, keep_from_index: int) -> int:
        self._guard()
        new_base = self._new_base(keep_from_index)
        while new_base is not None and self._checkpoints.load(new_base) is None:
            new_base = self._new_base(keep_from_index)  # That one was damaged, and is set aside.
        if new_base is None:
            return self._base.index
        base = Base(self._base.epoch, new_base, self._term_held(new_base))
        before = self.bytes_on_disk()
        try:
            self._write_base(base)
        except DiskError:
            if self.failed is not None or not self._give_up_ballast():
                raise
            self._write_base(base)
        self._base = base
        with self._failing():
            while len(self._segments) and self._segments.all[0].last_index <= new_base:
                self._segments.remove(self._segments.all[0])
            ends = [s.last_index for s in self._segments.all if s.full]
            self._checkpoints.prune(new_base, ends, self.durable_checkpoint)
            for index in [each for each in self._checkpoints.indexes if each < new_base]:
                self._checkpoints.remove(index)
        self._terms.drop_through(new_base)
        self._cache.drop_through(new_base)
        self._unsealed = [each for each in self._segments.all if each.full and not each.sealed]
        self._took(self.bytes_on_disk() - before)
        return new_base

    def _write_base(self, base: Base) -> None:
        """Raises DiskError when the base on the disk is the old one still; the log fails when nobody knows."""
        path, before = f"{self._directory}/{BASE}", self._base.encode()
        try:
            self._disk.write_file_durably(path, base.encode())
        except DiskError as error:
            try:
                # A log that never dropped anything has no such file.
                is_old = not self._disk.exists(path) or self._disk.read_file(path) == before
            except DiskError:
                is_old = False
            if not is_old:
                self.failed = error
            raise

    def lose(self, why: str) -> DiskError:
        self.failed = DiskError(why, self._directory)
        with suppress(DiskError):  # It is found once more then.
            self._save_hard(integrity=Integrity.LOST)
            # The next opening cannot read it: it sets everything aside and begins anew, under another identity.
            self._disk.write_file_durably(f"{self._directory}/{BASE}", b"lost" + self._base.encode())
            self._is_marked_damaged = True
        return self.failed

    def reset(self, base_index: int, base_term: int) -> None:
        self._restart(base_index, base_term, None)

    def install_base(self, base_index: int, base_term: int, state: bytes) -> None:
        self._restart(base_index, base_term, state)

    def _restart(self, base_index: int, base_term: int, state: bytes | None) -> None:
        """A new epoch of the same directory. Until the base file is replaced the old one stands, whole."""
        self._guard()
        base = Base(self._base.epoch + 1, base_index, base_term)
        before = self.bytes_on_disk()
        prepared, self._next_base = self._next_base, None
        self.drop_checkpoint()
        if state is not None and prepared is not None and prepared.indexes == [base_index]:
            checkpoints = prepared
        else:
            checkpoints = Checkpoints(self._disk, self._directory, base.epoch)
            if state is not None:
                checkpoints.save(base_index, base_term, state)
        with self._failing():
            # When this fails, nobody knows whether the new base counts: the next start reads what is there.
            self._disk.write_file_durably(f"{self._directory}/{BASE}", base.encode())
            for segment in self._segments.all[::-1]:
                self._segments.remove(segment)
            for index in self._checkpoints.indexes[:]:
                self._checkpoints.remove(index)
        self._base = base
        self._segments = Segments(self._disk, self._directory)
        self._active = None
        self._terms = TermRuns()
        self._checkpoints = checkpoints
        self._cache.clear()
        self._unsealed = []
        self._truncations += 1
        self.last_index = self.commit_index = self._synced_index = base_index
        self._confirmed_index = self._wanted_index = 0
        self._unforgotten = []
        self.last_term = base_term
        self._took(self.bytes_on_disk() - before)

    # ---- life -----------------------------------------------------------------------------------------------------

    def has_room(self, size_bytes: int) -> bool:
        if self.failed is not None:
            return False
        space = self._options.space
        return space is None or space.has_room(size_bytes)

    @property
    def is_scarce(self) -> bool:
        space = self._options.space
        return space is not None and space.is_scarce

    def tick(self, now_ms: int) -> int:
        if self.failed is None and not self._closed:
            while self._options.sync_in_tick and self.sync_due(now_ms):
                ticket = self.begin_sync(now_ms)
                assert ticket is not None, "it is due"
                ticket.run()
                self.finish_sync(ticket)
            if self.on_unsynced is not None and self.sync_due(now_ms):
                self.on_unsynced()
            if self._last_note_ms is None or now_ms - self._last_note_ms >= self._options.sync_interval_ms:
                self._last_note_ms = now_ms
                self._note()
        return self.persisted_index

    def deadline_ms(self) -> int | None:
        if self.failed is not None or self._closed:
            return None
        sync_ms = self.next_sync_ms()
        if self._notes == self._current_notes():
            return sync_ms
        note_ms = 0 if self._last_note_ms is None else self._last_note_ms + self._options.sync_interval_ms
        return note_ms if sync_ms is None else min(note_ms, sync_ms)

    def close(self, *, clean: bool) -> None:
        """`clean`: everything is made durable first, so that the log owes nothing."""
        if self._closed:
            return
        try:
            if clean and self.failed is None:
                self.sync()
                if self._hard.owes or self._hard_out is not None:
                    self._save_hard(owes=False)
                self._save_notes(self._current_notes(), durable=True)
                last = self._segments.last
                if last is not None and not last.sealed:
                    self._segments.write_side_car(
                        last, self._terms.between(last.first_index, last.last_index)
                    )
        finally:
            self._closed = True
            self._ticket = None
            self.drop_checkpoint()
            self._cache.close()
            self._segments.close()
            for slots in (self._hard_file, self._notes_file):
                with suppress(DiskError):
                    slots.close()

    def uncount(self) -> None:
        """Another log on the same files is about to be opened, and counts them."""
        self._took(-self._counted_bytes)

    def destroy(self) -> None:
        size_bytes = self.bytes_on_disk()
        self.close(clean=False)
        remove_directory(self._disk, self._directory)
        self._took(-size_bytes)
