"""Opening a log: reads a directory, judges damage, and returns a log that holds only good records.

The meaning of damage depends on whether power may have failed since the log was opened last, on whether it
owed anything (`HardState.owes`), and on earlier notes (SF-4):

- a write cut short at the very end is a *torn tail*, which was never confirmed and is cut off;
- after a power failure a log that owed something is *doubtful*, since it may have lost a tail that it had
  confirmed; so is one with other damage above the index that was noted as durable;
- a damaged record, or a gap, in the middle of a log whose last record is whole makes the log *short*: it is
  known how far it went, so the member votes for no log that ends before that, and does not lead until its own
  goes there again;
- anything else (an end below the noted commit index, no file for term and vote) is a *lost record*: the member
  must not vote with its old identity.

Damaged files go to `quarantine/` beside the log, never away. Doubt and loss are kept on disk until `settle`.
Only the last segment is read as a whole, and one in which a damaged record was read before; the others are
taken by their side-car and size.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import Enum

from supercluster.broker.storage.disk.disk import Disk, read_file_twice, read_twice
from supercluster.broker.storage.log.checkpoint import CHECKPOINT_SUFFIX, QUARANTINE, Checkpoints
from supercluster.broker.storage.log.group_files import (
    BASE,
    HARD_STATE,
    NO_END,
    NOTES,
    Base,
    HardState,
    Notes,
)
from supercluster.broker.storage.log.log import FileLog
from supercluster.broker.storage.log.options import Fsync, Integrity, LogOptions
from supercluster.broker.storage.log.slot_file import SlotFile
from supercluster.broker.storage.recovery.found_segments import (
    FoundDamage,
    FoundSegments,
    find_end,
    find_segments,
)
from supercluster.broker.storage.segments.segment import INDEX_SUFFIX, SEGMENT_SUFFIX, parse_stem

_ALL = 1 << 63
_BEFORE_OWES = "each-synced"


class Verdict(Enum):
    """What opening found."""

    CLEAN = "clean"
    TORN_TAIL = "torn_tail"
    DOUBTFUL = "doubtful"
    SHORT = "short"
    LOST_RECORD = "lost_record"


@dataclass(frozen=True, slots=True)
class Recovery:
    """The report of an opening."""

    verdict: Verdict
    is_new: bool
    """There was no log in the directory."""
    base_index: int
    last_index: int
    commit_index: int
    """Entries up to here are known to be committed."""
    dropped_bytes: int
    """Bytes behind the last good record that were cut off or set aside."""
    reasons: tuple[str, ...]
    """Whole sentences; they name files."""
    quarantined: tuple[str, ...]
    """Paths of the files that were set aside."""
    end: tuple[int, int] = NO_END
    """Of a short log: term and index of the last entry that it had."""


def open_log(
    disk: Disk,
    directory: str,
    options: LogOptions,
    *,
    known: bool = False,
    power_failures: int = 0,
) -> tuple[FileLog, Recovery]:
    """Open (or create) the log in `directory`. Where the volume has `known` it, a log that is not there was lost. One that
    was not opened since the last of the volume's `power_failures` is judged by that, whichever process opens it (SF-4); any
    other was closed as by a kill at worst.

    Raises:
        UnreadableError: the disk does not give all of it back; nothing was judged by that (SF-32).
        DiskError: the directory cannot be read or written.
    """
    opening = _LogOpener(disk, directory, options, known, power_failures)
    with ExitStack() as on_failure:
        found = opening.run(on_failure)
        on_failure.pop_all()
    return found


@dataclass(slots=True)
class _LogOpener:
    """One opening, step by step: read everything, judge, write the judgement down, repair, hand out."""

    disk: Disk
    directory: str
    options: LogOptions
    known: bool
    power_failures: int
    power_failed: bool = False
    """Since the log was opened last: what was not fsynced may be gone, or torn anywhere."""
    owed: bool = False
    """May it have confirmed what was not fsynced? What its policy is now says nothing of that."""
    integrity: Integrity = Integrity.SOUND
    torn: bool = False
    end: tuple[int, int] = NO_END
    """The last entry that the log had before records of its middle were lost."""
    reasons: list[str] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def run(self, on_failure: ExitStack) -> tuple[FileLog, Recovery]:
        """What is open when it fails is handed to `on_failure`."""
        self.disk.mkdirs(self.directory)
        names = self.disk.listdir(self.directory)
        is_new = not any(
            name == HARD_STATE or name.endswith((SEGMENT_SUFFIX, CHECKPOINT_SUFFIX)) for name in names
        )
        hard_file = self._hard_state(is_new)
        on_failure.callback(hard_file.close)
        hard = HardState.decode(hard_file.value)
        notes_file, notes = self._notes()
        on_failure.callback(notes_file.close)
        base = self._base(names, hard_file, notes)
        if notes.epoch != base.epoch:
            notes = Notes(base.epoch, power_failures=notes.power_failures)
        self.power_failed = not is_new and notes.power_failures != self.power_failures
        self.owed = hard.owes
        self._remove_older(names, base)
        trusted_index = notes.durable_index if self.power_failed else _ALL
        found = find_segments(
            self.disk, self.directory, base, trusted_index=trusted_index, suspect=hard.suspect
        )
        checkpoints = Checkpoints(self.disk, self.directory, base.epoch)
        checkpoints.find()
        on_failure.callback(found.segments.close)
        self.end = hard.end
        self._judge_damage(found, notes)
        self._judge_end(found, notes, checkpoints)
        self._judge_base(base, checkpoints, found.last_index(base))
        if self.power_failed and self.owed:
            self._doubt(f"{self.directory}: power failed, and not all that was confirmed had been fsynced")
        self._judge_length(found.last(base), hard.integrity)
        integrity = self._write_down(hard_file)
        dropped_bytes = self._repair(found)
        found.drop_below_base()
        last_index = found.last_index(base)
        for index in [index for index in checkpoints.indexes if index > last_index]:
            self.reasons.append(
                f"{self.directory}: checkpoint at {index} is beyond the last entry {last_index}"
            )
            checkpoints.remove(index)
        return self._hand_out(
            base, found, checkpoints, hard_file, notes_file, notes, integrity, dropped_bytes, is_new
        )

    # ---- the small files ------------------------------------------------------------------------------------------

    def _hard_state(self, is_new: bool) -> SlotFile:
        path = self.path(HARD_STATE)
        if is_new:
            self.disk.fsync_dir(self.directory.rpartition("/")[0])
            state = HardState()
            if self.known:
                # Written with the first byte: the next start finds a directory, and must not take it for the one that was.
                self._lose(f"{self.directory}: the volume has joined this group, and has none of its data")
                state = replace(state, integrity=Integrity.LOST)
            return SlotFile.create(self.disk, path, state.encode())
        found = SlotFile.load(self.disk, path, durable=True) if self.disk.exists(path) else None
        if found is not None:
            return found
        self._lose(f"{path}: term and vote cannot be read, though the log holds data")
        if self.disk.exists(path):
            self._set_aside(HARD_STATE)
        return SlotFile.create(self.disk, path, HardState(integrity=Integrity.LOST).encode())

    def _write_down(self, hard_file: SlotFile) -> Integrity:
        """First the judgement, then the repair: a repaired log looks sound."""
        hard = HardState.decode(hard_file.value)
        integrity = max(self.integrity, hard.integrity)
        judged = replace(hard, integrity=integrity, end=self.end, suspect=0)
        if judged != hard:
            hard_file.save(judged.encode(), durable=True)
        return integrity

    def _base(self, names: list[str], hard_file: SlotFile, notes: Notes) -> Base:
        path = self.path(BASE)
        stems = [stem for name in names if name.endswith(SEGMENT_SUFFIX) and (stem := parse_stem(name))]
        if BASE in names:
            base, what = Base.decode(read_file_twice(self.disk, path)), "cannot be read"
        elif notes.epoch or any(epoch for epoch, _ in stems):
            base, what = None, "is not there any more"
        else:
            base, what = Base(), ""
        if base is not None:
            return base
        self._lose(f"{path}: where the log begins {what}")
        self._write_down(hard_file)
        # A snapshot is no beginning by itself: it speaks of messages that stand in segments before it. So nothing is
        # taken of what is here; the copy begins anew, under another identity, from what its leader sends.
        for name in names:
            if name == BASE or name.endswith((SEGMENT_SUFFIX, CHECKPOINT_SUFFIX)):
                self._set_aside(name)
        return Base()

    def _notes(self) -> tuple[SlotFile, Notes]:
        path = self.path(NOTES)
        found = SlotFile.load(self.disk, path, durable=False) if self.disk.exists(path) else None
        if found is None:
            # Notes are written without fsync: a power failure may take both slots. Less is known then, no more.
            found = SlotFile.create(self.disk, path, Notes().encode(), durable=False)
        return found, Notes.decode(found.value)

    def _remove_older(self, names: list[str], base: Base) -> None:
        """Files of an epoch that a reset ended, temporary files, and what layout 2 had beside `hard`."""
        for name in names:
            stem = parse_stem(name)
            if (
                name.startswith(_BEFORE_OWES)
                or name.endswith(".tmp")
                or (stem is not None and stem[0] != base.epoch)
            ):
                self.disk.unlink(self.path(name))

    # ---- judging --------------------------------------------------------------------------------------------------

    def _judge_damage(self, found: FoundSegments, notes: Notes) -> None:
        damage = found.damage
        if damage is None:
            return
        why = f"{self.path(damage.name)}: entry {damage.index} at offset {damage.offset}: {damage.why}"
        if damage.index <= notes.durable_index:
            self._shorten(found, f"{why}; it had been durable (up to entry {notes.durable_index})")
        elif damage.cut_short and not (self.power_failed and self.owed):
            # Unless it had been committed, which `_judge_end` sees.
            self._tear(why)
        elif self.power_failed:
            self._doubt(why)
        else:
            self._shorten(found, why)

    def _shorten(self, found: FoundSegments, why: str) -> None:
        """What stands behind the damage says how far the log went, and then goes to quarantine."""
        end = find_end(self.disk, self.directory, found)
        if end is None:
            self._lose(why)
            return
        self.end = max(self.end, end)
        self.reasons.append(f"{why}; the log went to entry {self.end[1]}")

    def _judge_length(self, last: tuple[int, int], before: Integrity) -> None:
        """A log that is short and may have lost its end too is lost, for nobody knows how far it went."""
        integrity = max(self.integrity, before)
        if self.end != NO_END and integrity is Integrity.DOUBTFUL:
            self._lose(f"{self.directory}: records are gone, and power failed before they were there again")
        if self.end <= last or integrity is not Integrity.SOUND:
            self.end = NO_END

    def _judge_end(self, found: FoundSegments, notes: Notes, checkpoints: Checkpoints) -> None:
        last_index = found.last_index(found.base)
        known, what = notes.durable_index, "durable"
        if not self.power_failed:
            known, what = max((known, what), (max(notes.commit_index, checkpoints.newest), "committed"))
        if max(last_index, self.end[1]) < known:
            self._lose(f"{self.directory}: the log ends at entry {last_index}, but {known} was {what}")

    def _judge_base(self, base: Base, checkpoints: Checkpoints, last_index: int) -> None:
        """The state at the log's beginning is for who begins there. Where it is damaged, a newer one does for a start."""
        if base.index not in checkpoints.indexes or checkpoints.load(base.index) is not None:
            return
        what = f"{self.directory}: the state at the log's beginning (entry {base.index}) is damaged"
        usable = [index for index in checkpoints.indexes if base.index < index <= last_index]
        newer = next((index for index in reversed(usable) if checkpoints.load(index) is not None), None)
        if newer is None:
            self._lose(what)
        else:
            self.reasons.append(f"{what}; the one at entry {newer} is whole")

    def _lose(self, reason: str) -> None:
        self.integrity = Integrity.LOST
        self.reasons.append(reason)

    def _doubt(self, reason: str) -> None:
        self.integrity = max(self.integrity, Integrity.DOUBTFUL)
        self.reasons.append(reason)

    def _tear(self, reason: str) -> None:
        self.torn = True
        self.reasons.append(reason)

    # ---- repairing ------------------------------------------------------------------------------------------------

    def _quarantine(self, name: str) -> str:
        """Where a file of that name goes: beside those that are there."""
        folder = self.path(QUARANTINE)
        self.disk.mkdirs(folder)
        self.disk.fsync_dir(self.directory)
        target, number = f"{folder}/{name}", 1
        while self.disk.exists(target):
            target, number = f"{folder}/{name}.{number}", number + 1
        return target

    def _set_aside(self, name: str) -> None:
        target = self._quarantine(name)
        self.disk.rename(self.path(name), target)
        self.quarantined.append(target)

    def _repair(self, found: FoundSegments) -> int:
        """Cut the damage off where it stands. Good records are never moved: neither a crash at any step nor a disk without
        room leaves fewer of them than there were (SF-31)."""
        damage = found.damage
        dropped = 0
        for name, size in reversed(found.behind):
            self._set_aside(name)
            self._drop_side_car(name)
            dropped += size
        if damage is not None:
            dropped += self._cut_off(damage)
        if damage is not None or found.behind:
            self.disk.fsync_dir(self.directory)
        return dropped

    def _cut_off(self, damage: FoundDamage) -> int:
        """What stands from the damage on goes to quarantine first, unless it is a write cut short."""
        path = self.path(damage.name)
        file = self.disk.open(path)
        try:
            size = file.size()
            self._drop_side_car(damage.name)
            if damage.keeps_segment:
                if not damage.cut_short:
                    target = self._quarantine(f"{damage.name}.from-{damage.offset}")
                    self.disk.write_file_durably(
                        target, read_twice(file, damage.offset, max(size - damage.offset, 0))
                    )
                    self.quarantined.append(target)
                file.truncate(damage.offset)
                file.fdatasync()
        finally:
            file.close()
        if not damage.keeps_segment:
            if damage.cut_short:
                self.disk.unlink(path)
            else:
                self._set_aside(damage.name)
        return max(size - damage.offset, 0)

    def _drop_side_car(self, name: str) -> None:
        self.disk.unlink(self.path(f"{name.removesuffix(SEGMENT_SUFFIX)}{INDEX_SUFFIX}"))

    # ---- handing out ----------------------------------------------------------------------------------------------

    def _hand_out(
        self,
        base: Base,
        found: FoundSegments,
        checkpoints: Checkpoints,
        hard_file: SlotFile,
        notes_file: SlotFile,
        notes: Notes,
        integrity: Integrity,
        dropped_bytes: int,
        is_new: bool,
    ) -> tuple[FileLog, Recovery]:
        last_index = found.last_index(base)
        commit_index = min(max(notes.commit_index, checkpoints.newest, base.index), last_index)
        # What reads well may be in memory only, also after a power failure: without a boot id every kill counts as one. That the
        # log begins at `base.index` says nothing of the entries before it in its first segment.
        head = found.segments.all[0].first_index - 1 if len(found.segments) else base.index
        synced_index = min(max(notes.durable_index, head), last_index)
        for segment in found.segments.all:
            segment.synced_bytes = segment.size_bytes if segment.last_index <= synced_index else 0
            if not segment.synced_bytes:
                found.segments.write_again(segment, synced_index + 1)
        notes_file.save(
            Notes(base.epoch, commit_index, synced_index, self.power_failures).encode(),
            durable=integrity is not Integrity.SOUND,
        )
        log = FileLog(
            self.disk,
            self.directory,
            self.options,
            base=base,
            segments=found.segments,
            terms=found.terms,
            checkpoints=checkpoints,
            hard=hard_file,
            notes=notes_file,
            synced_index=synced_index,
        )
        if (self.options.fsync is Fsync.ALWAYS or log.persisted_index < base.index) and not log.all_synced:
            log.sync()
        if integrity is Integrity.LOST:
            verdict = Verdict.LOST_RECORD
        elif integrity is Integrity.DOUBTFUL:
            verdict = Verdict.DOUBTFUL
        elif self.end != NO_END:
            verdict = Verdict.SHORT
        else:
            verdict = Verdict.TORN_TAIL if self.torn else Verdict.CLEAN
        if integrity is not Integrity.SOUND and self.integrity is Integrity.SOUND:
            self.reasons.append(f"{self.directory}: found at an earlier start, and not settled since")
        report = Recovery(
            verdict=verdict,
            is_new=is_new,
            base_index=base.index,
            last_index=last_index,
            commit_index=commit_index,
            dropped_bytes=dropped_bytes,
            reasons=tuple(self.reasons),
            quarantined=tuple(self.quarantined),
            end=self.end,
        )
        return log, report
