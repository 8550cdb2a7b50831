"""Disks that fill up, fail, tear and rot: what a log makes of each."""

from __future__ import annotations

import errno
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from tests.broker.storage.entries import batch, fill, owing
from tests.broker.storage.lives import Stop, open_log
from tests.simulator.disk import CrashNow, SimDisk

from supercluster.broker.raft.entry import EntryKind, make_entry
from supercluster.broker.raft.errors import DiskError, NewerFormatError, NoDescriptorError, UnreadableError
from supercluster.broker.storage.disk.os_disk import OsDisk
from supercluster.broker.storage.disk.space import Space
from supercluster.broker.storage.log.group_files import HARD_STATE, NOTES
from supercluster.broker.storage.log.log import FileLog
from supercluster.broker.storage.log.options import Fsync, LogOptions
from supercluster.broker.storage.log.slot_file import SLOT_BYTES, SlotFile, slot_offset
from supercluster.broker.storage.log.sync_pace import QUIET_MS
from supercluster.broker.storage.recovery import found_segments
from supercluster.broker.storage.recovery.recovery import Recovery, Verdict
from supercluster.broker.storage.segments.scan import scan
from supercluster.broker.storage.segments.segment import SEGMENT_HEAD_BYTES
from supercluster.broker.storage.segments.segments import Segments

DIRECTORY = "groups/g"
OPTIONS = LogOptions(segment_bytes=1000, cache_bytes=0)
ALWAYS = LogOptions(segment_bytes=1000, cache_bytes=0, fsync=Fsync.ALWAYS)
RECORD_BYTES = 148
ALL = 1 << 30


def open_(disk: SimDisk, options: LogOptions = OPTIONS, stop: Stop = Stop.KILLED) -> tuple[FileLog, Recovery]:
    return open_log(disk, DIRECTORY, options, stop)


def filled(disk: SimDisk, count: int, options: LogOptions = OPTIONS, *, commit: int | None = None) -> FileLog:
    log, _ = open_(disk, options)
    fill(log, count)
    log.note_commit(count if commit is None else commit)
    log.tick(0)
    return log


def segments(disk: SimDisk) -> list[str]:
    return [path for path in disk.paths() if path.endswith(".seg") and "quarantine" not in path]


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(11))


# ---- writes that fail -------------------------------------------------------------------------------------------------


@pytest.mark.covers("SF-18")
def test_nothing_of_an_append_stays_when_the_disk_is_full(disk: SimDisk) -> None:
    log = filled(disk, 3)
    disk.capacity_bytes -= disk.free_bytes() - 200  # One record and a part of the next.
    with pytest.raises(DiskError, match="no space left"):
        log.append([batch(4), batch(5)])
    assert (log.last_index, log.failed) == (3, None)
    disk.capacity_bytes += 1000
    log.append([batch(4)])
    disk.crash()
    log, report = open_(disk)
    assert report.verdict is Verdict.CLEAN
    assert log.entries(1, 9, ALL) == [batch(index) for index in range(1, 5)]


@pytest.mark.covers("SF-18")
def test_a_segment_that_cannot_be_begun_leaves_nothing(disk: SimDisk) -> None:
    log = filled(disk, 7)  # 64 + 7 * 148 bytes: the first segment is full.
    disk.capacity_bytes -= disk.free_bytes() - 10
    with pytest.raises(DiskError, match="no space left"):
        log.append([batch(8)])
    assert len(segments(disk)) == 1
    disk.capacity_bytes += 10_000
    log.append([batch(8)])
    assert log.entries(7, 9, ALL) == [batch(7), batch(8)]


def test_a_log_that_cannot_take_a_failed_write_back_refuses_everything(disk: SimDisk) -> None:
    log = filled(disk, 3)
    disk.failing_writes = disk.failing_truncates = 1
    with pytest.raises(DiskError, match="input/output error"):
        log.append([batch(4)])
    for act in (
        lambda: log.append([batch(4)]),
        lambda: log.save_vote(9, "n"),
        lambda: log.entries(1, 3, ALL),
        lambda: log.truncate_after(3),
        lambda: log.save_checkpoint(3, b""),
    ):
        with pytest.raises(DiskError, match="refuses all operations"):
            act()
    assert not log.has_room(1)
    assert log.last_index == 3


@pytest.mark.covers("RP-6", "SF-1")
@pytest.mark.parametrize("failed_at", [4, 7, 9])
def test_what_a_failed_fsync_left_in_the_page_cache_is_written_again(disk: SimDisk, failed_at: int) -> None:
    """The next process reads it, and would confirm it by an fsync that has nothing to carry."""
    log = filled(disk, failed_at - 1, ALWAYS)
    log.append([batch(failed_at)])
    disk.failing_syncs = 1
    with pytest.raises(DiskError, match="fsync"):
        log.sync()
    disk.crash()
    log, _ = open_(disk, ALWAYS)
    assert log.persisted_index == failed_at
    log.append([batch(failed_at + 1)])
    log.sync()
    disk.crash(power=True)
    log, report = open_(disk, ALWAYS, Stop.POWER)
    assert report.verdict is Verdict.CLEAN
    assert log.entries(1, 99, ALL) == [batch(index) for index in range(1, failed_at + 2)]


@pytest.mark.covers("SF-4", "RP-6")
@pytest.mark.parametrize("fsync", list(Fsync))
@pytest.mark.parametrize("before", [1, 7, 17])
def test_a_membership_that_a_failed_fsync_left_in_the_page_cache_is_written_again(
    before: int, fsync: Fsync
) -> None:
    """It is confirmed by the next process, whatever the policy; so all that stands before it is written again with it."""
    options = LogOptions(segment_bytes=1000, cache_bytes=0, fsync=fsync)
    for seed in range(10):
        disk = SimDisk(random.Random(seed))
        log, _ = open_(disk, options)
        for index in range(1, before + 1):
            log.append([batch(index)])
        log.append([make_entry(index=before + 1, term=1, kind=EntryKind.CONFIG, time_ns=1, payload=b"a,b,c")])
        disk.failing_syncs = 1
        ticket = log.begin_sync(0)
        assert ticket is not None
        ticket.run()
        with pytest.raises(DiskError, match="fsync"):
            log.finish_sync(ticket)
        disk.crash()
        log, _ = open_(disk, options)
        log.tick(0)
        assert log.persisted_index == before + 1
        disk.crash(power=True)
        log, _ = open_(disk, options, Stop.POWER)
        assert log.last_index == before + 1


def test_without_fsync_a_start_writes_a_segment_again_at_most(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that was ever appended would be read and written otherwise, before the broker serves."""
    options = LogOptions(segment_bytes=1000, cache_bytes=0, fsync=Fsync.NEVER)
    log = filled(disk, 1, options)
    for now_ms in range(1, 40):
        fill(log, 1)
        assert log.persisted_index == log.last_index
        log.tick(now_ms * 1000)
    full = log.last_index - log.last_index % 7
    disk.crash()
    written: list[int] = []
    monkeypatch.setattr(Segments, "write_again", lambda self, segment, index: written.append(index))
    open_(disk, options)
    assert written == [full + 1]


@pytest.mark.covers("RP-6")
def test_a_failed_fsync_is_never_taken_back_by_a_later_one(disk: SimDisk) -> None:
    log = filled(disk, 1, ALWAYS)
    assert log.persisted_index == 1
    log.append([batch(2)])
    disk.failing_syncs = 1
    with pytest.raises(DiskError, match="fsync"):
        log.tick(1)
    assert log.persisted_index == 1
    assert log.tick(2) == 1
    with pytest.raises(DiskError, match="refuses all operations"):
        log.sync()


@pytest.mark.covers("SF-18")
def test_room_is_kept_for_entries_that_are_not_messages(disk: SimDisk) -> None:
    space = Space(disk, capacity_bytes=4000, reserve_bytes=1000)
    log, _ = open_log(disk, DIRECTORY, LogOptions(space=space), Stop.KILLED)
    index = 0
    while log.has_room(RECORD_BYTES):
        index += 1
        log.append([batch(index)])
    assert 2000 < log.bytes_on_disk() <= 3000
    assert not log.is_scarce, "consumers may go on while half of the reserve is there"
    while log.bytes_on_disk() <= 3500:
        index += 1
        log.append([batch(index)])
    assert log.is_scarce
    log.truncate_after(1)
    assert log.has_room(RECORD_BYTES), "room that was given back counts"
    log.destroy()
    assert space.used_bytes == 0


@pytest.mark.covers("SF-18")
def test_a_disk_that_others_fill_is_noticed(disk: SimDisk) -> None:
    space = Space(disk, reserve_bytes=1000)
    log, _ = open_log(disk, DIRECTORY, LogOptions(space=space), Stop.KILLED)
    assert log.has_room(RECORD_BYTES)
    disk.capacity_bytes -= disk.free_bytes() - 900
    space.tick(10_000)
    assert not log.has_room(RECORD_BYTES)
    assert not log.is_scarce


# ---- fsync --------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("RP-6")
def test_one_fsync_covers_all_appends_before_it(disk: SimDisk) -> None:
    log = filled(disk, 1, ALWAYS)
    before = disk.syncs
    for index in range(2, 6):
        log.append([batch(index)])
    assert log.persisted_index == 1
    assert log.tick(1) == 5
    assert disk.syncs == before + 1


@pytest.mark.covers("RP-6", "RP-2")
def test_a_ticket_from_before_a_truncation_says_nothing(disk: SimDisk) -> None:
    log = filled(disk, 2, ALWAYS, commit=2)
    log.append([batch(3), batch(4)])
    ticket = log.begin_sync()
    assert ticket is not None
    log.truncate_after(2)
    log.append([batch(3, 2), batch(4, 2)])
    ticket.run()
    log.finish_sync(ticket)
    assert log.persisted_index == 2, "entries 3 and 4 are others now"
    log.sync()
    assert log.persisted_index == 4


@pytest.mark.covers("RP-6")
def test_the_interval_policy_fsyncs_when_its_time_has_come(disk: SimDisk) -> None:
    log = filled(disk, 1)
    before = disk.syncs
    fill(log, 1)
    assert log.persisted_index == 1, "one alone is confirmed by its fsync"
    log.tick(100)
    assert (log.persisted_index, disk.syncs) == (2, before + 2), "which is the last one of its own"
    fill(log, 1)
    assert log.persisted_index == 3, "confirmed when written"
    assert log.next_sync_ms() == 1100
    log.tick(1099)
    assert disk.syncs == before + 2
    log.tick(1100)
    assert disk.syncs == before + 3
    assert log.next_sync_ms() == 1100 + QUIET_MS
    log.tick(1100 + QUIET_MS)
    assert disk.syncs == before + 4, "nothing came for a minute: nothing is owed any more"
    assert log.next_sync_ms() is None


@pytest.mark.covers("SF-4", "SF-20")
@pytest.mark.parametrize("kind", [EntryKind.CONFIG, EntryKind.DURABLE])
@pytest.mark.parametrize("fsync", list(Fsync))
def test_what_decides_who_writes_counts_when_it_is_durable_whatever_the_policy(
    disk: SimDisk, fsync: Fsync, kind: EntryKind
) -> None:
    log, _ = open_(disk, LogOptions(fsync=fsync))
    syncs = disk.syncs
    log.append([make_entry(index=1, term=1, kind=kind, time_ns=1, payload=b"a,b,c")])
    log.append([batch(2)])
    assert disk.syncs == syncs, "whoever appends does not wait"
    assert log.persisted_index == 0
    assert log.next_sync_ms() == 0, "nor does the fsync wait for its interval"
    log.tick(0)
    assert log.persisted_index == 2
    disk.crash(power=True)
    log, _ = open_(disk, LogOptions(fsync=fsync), Stop.POWER)
    assert log.last_index == 2


@pytest.mark.covers("SF-4", "SF-20")
@pytest.mark.parametrize("kind", [EntryKind.CONFIG, EntryKind.DURABLE])
@pytest.mark.parametrize("fsync", [Fsync.INTERVAL, Fsync.NEVER])
def test_what_a_killed_process_left_unsynced_of_that_is_not_confirmed_by_the_next(
    disk: SimDisk, fsync: Fsync, kind: EntryKind
) -> None:
    options = replace(OPTIONS, fsync=fsync)
    log = filled(disk, 3, options)
    log.sync()
    log.close(clean=False)
    disk.crash()
    log, _ = open_(disk, options)
    durable = log.persisted_index
    log.append([make_entry(index=4, term=1, kind=kind, time_ns=1, payload=b"a,b,c")])
    disk.crash()
    log, _ = open_(disk, options)
    assert log.last_index == 4
    assert log.persisted_index <= durable
    assert log.next_sync_ms() == 0
    log.sync()
    assert log.persisted_index == 4


@pytest.mark.covers("SF-4")
def test_a_membership_that_is_cut_off_again_keeps_nothing_back(disk: SimDisk) -> None:
    log = filled(disk, 2)
    owing(log)
    log.append([make_entry(index=3, term=1, kind=EntryKind.CONFIG, time_ns=1, payload=b"a,b,c")])
    assert log.persisted_index == 2
    log.truncate_after(2)
    log.append([batch(3)])
    assert log.persisted_index == 3


# ---- term and vote ------------------------------------------------------------------------------------------------------


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("fsync", list(Fsync))
def test_a_saved_vote_survives_a_power_failure_under_every_policy(fsync: Fsync) -> None:
    for seed in range(20):
        disk = SimDisk(random.Random(seed))
        options = LogOptions(fsync=fsync)
        log, _ = open_(disk, options)
        for term in range(1, 4):
            log.save_vote(term, f"candidate-{term}@x")
        disk.crash(power=True)
        log, _ = open_(disk, options, Stop.POWER)
        assert log.load_vote() == (3, "candidate-3@x")


@pytest.mark.covers("SF-4")
def test_a_vote_that_was_interrupted_leaves_the_one_before_or_itself() -> None:
    outcomes = set()
    for seed in range(60):
        disk = SimDisk(random.Random(seed))
        log, _ = open_(disk)
        log.save_vote(1, "first@x")
        disk.crash_after(seed % 3)
        with pytest.raises(CrashNow):
            log.save_vote(2, "second@x")
        disk.crash(power=True)
        log, report = open_(disk, stop=Stop.POWER)
        assert report.verdict is Verdict.DOUBTFUL
        outcomes.add(log.load_vote())
    assert outcomes == {(1, "first@x"), (2, "second@x")}


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("slot", [0, 1])
def test_one_rotten_slot_does_not_take_the_vote_back(disk: SimDisk, slot: int) -> None:
    log = filled(disk, 1)
    log.save_vote(1, "first@x")
    log.save_vote(2, "second@x")
    disk.crash()
    disk.flip_bit(f"{DIRECTORY}/{HARD_STATE}", (slot_offset(slot) + 20) * 8)
    assert open_(disk)[0].load_vote() == (2, "second@x")


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("sector", [0, 1])
def test_a_disk_that_writes_4_kib_at_once_tears_one_slot_of_a_vote_at_most(
    disk: SimDisk, sector: int
) -> None:
    """D10."""
    log = filled(disk, 1)
    log.save_vote(1, "first@x")
    log.save_vote(2, "second@x")
    disk.crash()
    path = f"{DIRECTORY}/{HARD_STATE}"
    for slot_at in range(sector * 4096, min((sector + 1) * 4096, disk.size(path)), SLOT_BYTES):
        disk.flip_bit(path, (slot_at + 20) * 8)
    log, report = open_(disk)
    assert (log.load_vote(), report.verdict) == ((2, "second@x"), Verdict.CLEAN)


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("votes", range(1, 5))
def test_a_file_of_slots_as_layout_1_had_them_is_read_and_goes_on_in_the_new_places(votes: int) -> None:
    outcomes = set()
    for seed in range(40):
        disk = SimDisk(random.Random(seed))
        slots = SlotFile.create(disk, "slots", b"0")
        for vote in range(1, votes):
            slots.save(b"%d" % vote, durable=True)
        data = disk.read_file("slots")
        disk.write_file_durably("slots", data[:SLOT_BYTES] + data[slot_offset(1) :])
        confirmed = votes - 1
        for vote in range(votes, votes + 3):
            loaded = SlotFile.load(disk, "slots", durable=True)
            assert loaded is not None
            assert int(loaded.value) in (confirmed, vote - 1)
            outcomes.add(int(loaded.value) - confirmed)
            loaded.begin(b"%d" % vote)
            if seed % 3:
                loaded.save(b"%d" % vote, durable=True)
                confirmed = vote
            else:
                confirmed = int(loaded.value)
            disk.crash(power=True)
    assert outcomes >= {0, 1}


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("how", ["gone", "rotten"])
def test_a_lost_vote_is_a_lost_record(disk: SimDisk, how: str) -> None:
    filled(disk, 1).save_vote(1, "first@x")
    disk.crash()
    path = f"{DIRECTORY}/{HARD_STATE}"
    if how == "gone":
        disk.lose(path)
    else:
        disk.flip_bit(path, 20 * 8)
        disk.flip_bit(path, (slot_offset(1) + 20) * 8)
    _, report = open_(disk)
    assert report.verdict is Verdict.LOST_RECORD
    assert "term and vote cannot be read" in report.reasons[0]


def test_a_failed_vote_is_not_answered_and_nothing_after_it_is(disk: SimDisk) -> None:
    log = filled(disk, 1)
    disk.failing_syncs = 1
    with pytest.raises(DiskError):
        log.save_vote(1, "first@x")
    assert log.load_vote() == (0, "")
    with pytest.raises(DiskError, match="refuses all operations"):
        log.save_vote(2, "first@x")


def test_a_value_too_long_for_a_slot_is_refused(disk: SimDisk) -> None:
    with pytest.raises(ValueError, match="a slot takes"):
        SlotFile.create(disk, "slots", b"x" * SLOT_BYTES)


# ---- damage -------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("SF-4")
def test_a_write_cut_short_by_a_kill_is_a_torn_tail(disk: SimDisk) -> None:
    owing(open_(disk)[0])
    filled(disk, 4, commit=3)
    disk.crash()
    path = segments(disk)[0]
    disk.cut(path, SEGMENT_HEAD_BYTES + 4 * RECORD_BYTES - 10)
    log, report = open_(disk)
    assert (report.verdict, report.last_index, report.dropped_bytes) == (
        Verdict.TORN_TAIL,
        3,
        RECORD_BYTES - 10,
    )
    assert not report.quarantined
    log.append([batch(4, 2)])
    assert log.entries(3, 9, ALL) == [batch(3), batch(4, 2)]


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize(
    ("commit", "stop", "is_synced", "verdict"),
    [
        (4, Stop.KILLED, False, Verdict.LOST_RECORD),  # It had been committed.
        (3, Stop.KILLED, True, Verdict.LOST_RECORD),  # What was fsynced was not cut short.
        (3, Stop.POWER, True, Verdict.LOST_RECORD),
        (3, Stop.POWER, False, Verdict.DOUBTFUL),
    ],
)
def test_a_tail_cut_short_may_be_a_loss(
    disk: SimDisk, commit: int, stop: Stop, is_synced: bool, verdict: Verdict
) -> None:
    if not is_synced:
        owing(open_(disk)[0])
    filled(disk, 4, commit=commit)
    disk.crash()
    disk.cut(segments(disk)[0], SEGMENT_HEAD_BYTES + 4 * RECORD_BYTES - 10)
    _, report = open_(disk, stop=stop)
    assert (report.verdict, report.last_index) == (verdict, 3)


@pytest.mark.covers("SF-4")
def test_a_log_that_ends_below_the_noted_commit_lost_records(disk: SimDisk) -> None:
    filled(disk, 4)
    disk.crash()
    disk.cut(segments(disk)[0], SEGMENT_HEAD_BYTES + 3 * RECORD_BYTES)
    _, report = open_(disk)
    assert report.verdict is Verdict.LOST_RECORD
    assert "ends at entry 3, but 4 was durable" in report.reasons[0]


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("record", [0, 1, 3])
def test_from_a_damaged_record_on_a_segment_goes_to_quarantine(disk: SimDisk, record: int) -> None:
    filled(disk, 4)
    disk.crash()
    path = segments(disk)[0]
    offset = SEGMENT_HEAD_BYTES + record * RECORD_BYTES
    disk.flip_bit(path, (offset + 60) * 8)
    before = disk.read_file(path)
    log, report = open_(disk)
    assert (report.verdict, report.last_index) == (
        Verdict.LOST_RECORD if record == 3 else Verdict.SHORT,
        record,
    )
    assert "checksum differs" in report.reasons[0]
    name = path.rpartition("/")[2]
    assert [kept.rpartition("/")[2] for kept in report.quarantined] == [
        f"{name}.from-{offset}" if record else name
    ]
    kept = disk.read_file(report.quarantined[0])
    assert kept == (before[offset:] if record else before)
    assert log.entries(1, 9, ALL) == [batch(index) for index in range(1, record + 1)]


@pytest.mark.covers("SF-31")
@pytest.mark.parametrize("power", [False, True])
def test_a_crash_at_any_step_of_a_repair_leaves_every_good_record(*, power: bool) -> None:
    operations = 0
    while True:
        disk = SimDisk(random.Random(operations))
        filled(disk, 20, ALWAYS).close(clean=True)
        disk.crash()
        disk.flip_bit(segments(disk)[1], (SEGMENT_HEAD_BYTES + 3 * RECORD_BYTES + 60) * 8)
        # Sealed segments are taken by their side-cars: this one is read.
        disk.lose(segments(disk)[1].replace(".seg", ".idx"))
        disk.crash_after(operations)
        try:
            open_(disk, ALWAYS)
        except CrashNow:
            disk.crash(power=power)
            log, report = open_(disk, ALWAYS, Stop.POWER if power else Stop.KILLED)
        else:
            break
        assert (report.verdict, report.last_index) == (Verdict.SHORT, 10), operations
        assert log.entries(1, 99, ALL) == [batch(index) for index in range(1, 11)]
        operations += 1
    assert operations > 8


@pytest.mark.covers("SF-31", "SF-18")
def test_a_repair_without_room_leaves_the_log_as_it_was(disk: SimDisk) -> None:
    filled(disk, 6)
    disk.crash()
    path = segments(disk)[0]
    disk.flip_bit(path, (SEGMENT_HEAD_BYTES + 3 * RECORD_BYTES + 60) * 8)
    before = disk.read_file(path)
    disk.capacity_bytes = disk.used_bytes + 200
    for _ in range(3):
        with pytest.raises(DiskError, match="no space"):
            open_(disk)
        disk.crash()
        assert disk.read_file(path) == before
    disk.capacity_bytes += 10_000
    log, report = open_(disk)
    assert (report.verdict, report.last_index) == (Verdict.SHORT, 3)
    assert log.entries(1, 99, ALL) == [batch(index) for index in range(1, 4)]


@pytest.mark.covers("SF-4")
def test_a_damaged_size_is_no_torn_tail(disk: SimDisk) -> None:
    for record in range(4):
        disk = SimDisk(random.Random(record))
        filled(disk, 4, commit=0)
        disk.crash()
        disk.flip_bit(segments(disk)[0], (SEGMENT_HEAD_BYTES + record * RECORD_BYTES + 2) * 8)  # 64 KiB more
        _, report = open_(disk)
        assert (report.verdict, report.last_index) == (Verdict.LOST_RECORD, record), report


@pytest.mark.covers("SF-4")
def test_a_missing_segment_is_a_lost_record_and_what_is_behind_it_is_kept_aside(disk: SimDisk) -> None:
    filled(disk, 20)
    disk.crash()
    paths = segments(disk)
    assert len(paths) == 3
    disk.lose(paths[1])
    log, report = open_(disk)
    assert (report.verdict, report.last_index) == (Verdict.SHORT, 7)
    assert "entries 8 to 14 are missing" in report.reasons[0]
    assert [name.rpartition("/")[2] for name in report.quarantined] == [paths[2].rpartition("/")[2]]
    log.append([batch(8, 3)])
    assert log.entries(7, 9, ALL) == [batch(7), batch(8, 3)]


@pytest.mark.covers("SF-4")
def test_rot_in_a_sealed_segment_is_found_when_it_is_read_and_is_not_forgotten(disk: SimDisk) -> None:
    filled(disk, 20).close(clean=True)
    disk.flip_bit(segments(disk)[0], (SEGMENT_HEAD_BYTES + 2 * RECORD_BYTES + 60) * 8)
    log, report = open_(disk, stop=Stop.KILLED)
    assert report.verdict is Verdict.CLEAN, "sealed segments are taken by size and side-car"
    assert log.entry(2) == batch(2)
    with pytest.raises(DiskError, match="record damaged"):
        log.entry(3)
    with pytest.raises(DiskError, match="refuses all operations"):
        log.append([batch(21)])
    disk.crash()
    _, report = open_(disk)
    assert (report.verdict, report.last_index) == (Verdict.SHORT, 2)
    assert len(report.quarantined) == 3


@pytest.mark.covers("SF-32")
def test_a_record_that_the_disk_does_not_give_back_is_asked_for_again_and_waited_for_then(
    disk: SimDisk,
) -> None:
    log = filled(disk, 20)
    disk.failing_reads, disk.failing_reads_of = 1, ".seg"
    assert log.entry(3) == batch(3)
    disk.failing_reads = 4
    with pytest.raises(UnreadableError, match="cannot read"):
        log.entry(3)
    with pytest.raises(DiskError, match="refuses all operations"):
        log.entry(4)
    assert (log.failed is not None, log.may_open_anew, log.may_ever_open_anew) == (True, False, True)
    assert log.may_open_anew, "it can be read by now"
    log.close(clean=False)
    log, report = open_(disk)
    assert (report.verdict, log.last_index) == (Verdict.CLEAN, 20)


@pytest.mark.covers("SF-32")
def test_a_segment_whose_index_has_to_be_built_is_waited_for_as_well(disk: SimDisk) -> None:
    filled(disk, 20).close(clean=True)
    for path in disk.paths():
        if path.endswith(".idx"):
            disk.lose(path)
    log, _ = open_(disk, stop=Stop.KILLED)
    log._segments.all[1].index = None  # It was put away since.
    assert log.entry(3) == batch(3)
    disk.failing_reads, disk.failing_reads_of = 1 << 30, segments(disk)[1].rpartition("/")[2]
    with pytest.raises(UnreadableError):
        log.entry(9)
    assert not log.may_open_anew
    disk.heal()
    assert log.may_open_anew


@pytest.mark.covers("SF-4", "SF-31")
@pytest.mark.parametrize(("stop", "clean"), [(Stop.KILLED, True), (Stop.KILLED, False), (Stop.POWER, False)])
def test_a_segment_that_the_disk_does_not_give_back_is_waited_for_and_not_touched(
    disk: SimDisk, stop: Stop, clean: bool
) -> None:
    """What an error says of it is nothing: the log is opened again later (D4)."""
    log = filled(disk, 20, ALWAYS)
    log.sync()
    log.close(clean=clean)
    _, bad, *_ = segments(disk)
    for path in disk.paths():
        if path.endswith(".idx"):
            disk.lose(path)  # All is read.
    disk.crash(power=stop is Stop.POWER)
    disk.failing_reads, disk.failing_reads_of = 1 << 30, bad.rpartition("/")[2]
    files = {path: disk.durable(path) for path in disk.paths()}
    with pytest.raises(UnreadableError):
        open_(disk, ALWAYS, stop)
    assert {path: disk.durable(path) for path in disk.paths()} == files
    disk.failing_reads = 0
    log, report = open_(disk, ALWAYS, stop)
    assert (report.verdict, log.last_index) == (Verdict.CLEAN, 20)


@pytest.mark.covers("SF-32")
def test_what_is_to_be_written_again_and_cannot_be_read_is_waited_for(disk: SimDisk) -> None:
    """A6: the error was of a disk that cannot be written, and counted as one."""
    filled(disk, 4, ALWAYS)
    disk.crash()
    disk.lose(f"{DIRECTORY}/{NOTES}")  # Nobody knows what is durable.
    for reads in range(6):
        disk.failing_reads, disk.failing_reads_of = 1 << 30, segments(disk)[0].rpartition("/")[2]
        disk.failing_reads_after = reads
        try:
            open_(disk, ALWAYS)
        except UnreadableError:
            disk.crash()
            continue
        break
    else:
        pytest.fail("it reads more than six times")
    assert reads > 2, "the header, the records, and the records again"
    disk.crash()
    disk.failing_reads = 0
    log, report = open_(disk, ALWAYS)
    assert (report.verdict, log.last_index) == (Verdict.CLEAN, 4)


@pytest.mark.covers("SF-31", "SF-32")
def test_what_is_to_be_cut_off_and_cannot_be_read_stays(disk: SimDisk) -> None:
    """A6: what stands behind the damage goes to quarantine before it is cut off, so it is waited for."""
    filled(disk, 6, ALWAYS)
    disk.crash()
    path = segments(disk)[0]
    disk.flip_bit(path, (SEGMENT_HEAD_BYTES + 2 * RECORD_BYTES + 60) * 8)
    held = disk.durable(path)
    for reads in range(6):
        disk.failing_reads, disk.failing_reads_of = 1 << 30, path.rpartition("/")[2]
        disk.failing_reads_after = reads
        try:
            open_(disk, ALWAYS)
        except UnreadableError:
            assert disk.durable(path) == held
            disk.crash()
            continue
        break
    disk.failing_reads = 0
    log, report = open_(disk, ALWAYS)
    assert (report.verdict, log.last_index) == (Verdict.SHORT, 2)


@pytest.mark.covers("SF-31")
def test_a_segment_of_a_newer_version_behind_a_damaged_one_is_not_touched(disk: SimDisk) -> None:
    """A9: it was set aside, and the version that wrote it did not find it any more."""
    filled(disk, 20, ALWAYS)
    disk.crash()
    for path in disk.paths():
        if path.endswith(".idx"):
            disk.lose(path)
    first, _, last = segments(disk)
    disk.flip_bit(first, (SEGMENT_HEAD_BYTES + 2 * RECORD_BYTES + 60) * 8)
    disk.flip_bit(last, 8 * 8 + 1)  # Its version.
    disk.flip_bit(last, 12 * 8)  # A later version's checksum covers it.
    files = {path: disk.durable(path) for path in disk.paths()}
    with pytest.raises(NewerFormatError):
        open_(disk, ALWAYS)
    assert {path: disk.durable(path) for path in disk.paths()} == files


@pytest.mark.covers("SF-4")
def test_a_bit_that_turns_over_in_a_version_is_damage(disk: SimDisk) -> None:
    filled(disk, 20, ALWAYS)
    disk.crash()
    for path in disk.paths():
        if path.endswith(".idx"):
            disk.lose(path)
    disk.flip_bit(segments(disk)[-1], 8 * 8 + 5)
    _, report = open_(disk, ALWAYS)
    assert report.verdict in (Verdict.SHORT, Verdict.LOST_RECORD)


def test_side_cars_and_checkpoints_that_the_disk_does_not_give_back_cost_nothing_but_time(
    disk: SimDisk,
) -> None:
    log = filled(disk, 20)
    log.save_checkpoint(7, b"at 7")
    log.save_checkpoint(20, b"at 20")
    log.close(clean=True)
    disk.failing_reads, disk.failing_reads_of = 1 << 30, ".idx"
    log, report = open_(disk, stop=Stop.KILLED)
    assert (report.verdict, log.entry(9)) == (Verdict.CLEAN, batch(9))
    disk.failing_reads, disk.failing_reads_of = 1, ".ckpt"
    assert log.load_checkpoint() == (20, b"at 20")
    disk.failing_reads = 2
    with pytest.raises(UnreadableError):
        log.load_checkpoint()
    assert log.load_checkpoint() == (20, b"at 20"), "it was not set aside"
    log.close(clean=True)


def test_a_side_car_is_never_needed(disk: SimDisk) -> None:
    filled(disk, 20).close(clean=True)
    for number, path in enumerate(path for path in disk.paths() if path.endswith(".idx")):
        if number == 0:
            disk.lose(path)
        else:
            disk.flip_bit(path, 8 * 30)
    log, report = open_(disk, stop=Stop.KILLED)
    assert report.verdict is Verdict.CLEAN
    assert log.entries(1, 20, ALL) == [batch(index) for index in range(1, 21)]
    assert log.index_of_seq(9) == 9


def test_a_side_car_whose_body_is_damaged_is_built_again(disk: SimDisk) -> None:
    filled(disk, 20).close(clean=True)
    path = next(path for path in disk.paths() if path.endswith(".idx"))
    disk.flip_bit(path, 8 * (len(disk.read_file(path)) - 3))
    log, _ = open_(disk, stop=Stop.KILLED)
    assert log.index_of_seq(5) == 5
    assert log.entries(1, 20, ALL) == [batch(index) for index in range(1, 21)]


def test_without_notes_less_is_known_and_nothing_is_lost(disk: SimDisk) -> None:
    filled(disk, 4)
    disk.crash()
    disk.lose(f"{DIRECTORY}/{NOTES}")
    log, report = open_(disk)
    assert (report.verdict, report.commit_index, log.last_index) == (Verdict.CLEAN, 0, 4)


# ---- checkpoints ------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("SF-17")
def test_a_checkpoint_beyond_the_recovered_log_is_thrown_away(disk: SimDisk) -> None:
    log = filled(disk, 6)
    log.save_checkpoint(3, b"at 3")
    log.save_checkpoint(6, b"at 6")
    disk.crash()
    disk.cut(segments(disk)[0], SEGMENT_HEAD_BYTES + 4 * RECORD_BYTES)
    log, report = open_(disk)
    assert report.verdict is Verdict.LOST_RECORD
    assert log.load_checkpoint() == (3, b"at 3")
    assert not any(path.endswith("6.ckpt") for path in disk.paths())


@pytest.mark.covers("SF-17")
def test_a_damaged_checkpoint_gives_way_to_the_one_before(disk: SimDisk) -> None:
    log = filled(disk, 6)
    log.save_checkpoint(3, b"at 3")
    log.save_checkpoint(6, b"at 6")
    disk.crash()
    disk.flip_bit(next(path for path in disk.paths() if path.endswith("6.ckpt")), 8 * 42)
    log, report = open_(disk)
    assert report.verdict is Verdict.CLEAN
    assert log.load_checkpoint() == (3, b"at 3")
    assert any("quarantine" in path for path in disk.paths())


@pytest.mark.covers("SF-17")
def test_segments_are_sealed_when_their_last_entry_is_committed(disk: SimDisk) -> None:
    log = filled(disk, 20, commit=6)
    assert not [path for path in disk.paths() if path.endswith(".idx")]
    log.note_commit(7)
    assert len([path for path in disk.paths() if path.endswith(".idx")]) == 1
    assert [index for index in range(21) if log.checkpoint_at(index)] == [7, 14]
    log.save_checkpoint(7, b"at 7")
    assert not log.checkpoint_at(7)


def test_a_damaged_state_at_the_base_is_a_lost_record(disk: SimDisk) -> None:
    log, _ = open_(disk)
    log.install_base(10, 2, b"snapshot")
    disk.crash()
    disk.flip_bit(next(path for path in disk.paths() if path.endswith(".ckpt")), 8 * 42)
    _, report = open_(disk)
    assert report.verdict is Verdict.LOST_RECORD
    assert "the state at the log's beginning" in report.reasons[0]


@pytest.mark.parametrize("newer", [True, False])
def test_a_damaged_state_at_the_base_costs_nothing_where_a_newer_one_is_whole(
    disk: SimDisk, *, newer: bool
) -> None:
    """D9."""
    log, _ = open_(disk)
    log.install_base(10, 2, b"snapshot")
    for index in (11, 12):
        log.append([batch(index, 2)])
    log.note_commit(12)
    log.save_checkpoint(12, b"at 12")
    disk.crash()
    checkpoints = sorted(path for path in disk.paths() if path.endswith(".ckpt"))
    for path in checkpoints[:1] if newer else checkpoints:
        disk.flip_bit(path, 8 * 42)
    for _ in range(2):
        log, report = open_(disk)
        assert report.verdict is (Verdict.CLEAN if newer else Verdict.LOST_RECORD)
        disk.crash()
    if newer:
        assert (log.last_index, log.load_checkpoint()) == (12, (12, b"at 12"))


def test_a_damaged_base_is_a_lost_record_and_the_log_begins_anew(disk: SimDisk) -> None:
    log, _ = open_(disk)
    log.install_base(10, 2, b"snapshot")
    log.append([batch(11, 2)])
    disk.crash()
    disk.flip_bit(f"{DIRECTORY}/base", 8 * 10)
    log, report = open_(disk)
    assert report.verdict is Verdict.LOST_RECORD
    # The snapshot speaks of messages that stood before it: nothing is built on it, and nothing is thrown away.
    assert (log.base_index, log.last_index, log.base_state()) == (0, 0, None)
    assert sorted(path.rpartition("/")[2].rpartition(".")[2] for path in report.quarantined) == [
        "base",
        "ckpt",
        "seg",
    ]


@pytest.mark.covers("SF-4", "SF-31")
@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_without_its_base_a_log_is_lost_and_nothing_of_it_is_removed(how: str) -> None:
    """Also when the process ends at any step of the opening that finds it so."""
    operations = 0
    while True:
        disk = SimDisk(random.Random(operations))
        log, _ = open_(disk)
        log.install_base(10, 2, b"snapshot")
        log.append([batch(11, 2)])
        log.close(clean=True)
        disk.crash()
        before = [disk.read_file(path) for path in disk.paths() if path.endswith((".seg", ".ckpt"))]
        if how == "gone":
            disk.lose(f"{DIRECTORY}/base")
        else:
            disk.flip_bit(f"{DIRECTORY}/base", 8 * 10)
        disk.crash_after(operations)
        is_through = True
        try:
            log, report = open_(disk)
        except CrashNow:
            is_through = False
            disk.crash()
            log, report = open_(disk)
        assert report.verdict is Verdict.LOST_RECORD, operations
        assert (log.base_index, log.last_index) == (0, 0)
        kept = [disk.read_file(path) for path in disk.paths() if "quarantine" in path]
        assert all(data in kept for data in before)
        if is_through:
            break
        operations += 1
    assert operations > 5


@pytest.mark.parametrize("suffix", [".seg", ".ckpt"])
def test_a_file_of_a_newer_version_is_refused_and_nothing_is_written(disk: SimDisk, suffix: str) -> None:
    log = filled(disk, 20)
    log.save_checkpoint(20, b"state")
    log.close(clean=True)
    path = [path for path in disk.paths() if path.endswith(suffix)][-1]
    disk.flip_bit(path, 8 * 8 + 1)
    disk.flip_bit(path, 12 * 8)  # A later version's checksum covers it.
    before = {path: disk.read_file(path) for path in disk.paths()}
    with pytest.raises(DiskError, match="format 3 of a newer version, this one reads up to 1"):
        open_(disk)
    assert {path: disk.read_file(path) for path in disk.paths()} == before
    disk.flip_bit(path, 8 * 8 + 1)
    disk.flip_bit(path, 12 * 8)
    assert open_(disk)[1].verdict is Verdict.CLEAN


def test_an_interrupted_installation_leaves_the_old_log_or_the_new_one() -> None:
    outcomes = set()
    for operations in range(26):
        for power in (False, True):
            disk = SimDisk(random.Random(operations))
            log = filled(disk, 10, ALWAYS)
            disk.crash_after(operations)
            try:
                log.install_base(50, 4, b"snapshot")
                log.append([batch(51, 4)])
                log.sync()
            except CrashNow:
                pass
            disk.crash(power=power)
            log, report = open_(disk, ALWAYS, Stop.POWER if power else Stop.KILLED)
            assert report.verdict in (Verdict.CLEAN, Verdict.TORN_TAIL), report
            if log.base_index == 0:
                assert log.entries(1, 99, ALL) == [batch(index) for index in range(1, 11)]
            else:
                assert (log.base_index, log.base_state()) == (50, b"snapshot")
                assert log.entries(51, 99, ALL) in ([], [batch(51, 4)])
            outcomes.add((log.base_index, log.last_index))
    assert outcomes == {(0, 10), (50, 50), (50, 51)}


# ---- power failures between two steps ---------------------------------------------------------------------------------------


@pytest.mark.covers("RP-2", "SF-4")
def test_a_truncation_across_segments_is_whole_after_a_power_failure() -> None:
    for seed in range(20):
        disk = SimDisk(random.Random(seed))
        log = filled(disk, 20, ALWAYS, commit=3)
        log.truncate_after(5)
        disk.crash(power=True)
        log, report = open_(disk, ALWAYS, Stop.POWER)
        assert (report.verdict, report.last_index) == (Verdict.CLEAN, 5), report


@pytest.mark.covers("SF-17")
def test_a_dropped_head_needs_nothing_of_its_segments() -> None:
    for seed in range(20):
        disk = SimDisk(random.Random(seed))
        options = LogOptions(segment_bytes=1000, fsync=Fsync.NEVER)
        log = filled(disk, 20, options)
        log.save_checkpoint(10, b"at 10")
        assert log.drop_head(12) == 10
        disk.crash(power=True)
        log, report = open_(disk, options, Stop.POWER)
        assert (report.verdict, log.base_index, log.base_state()) == (Verdict.DOUBTFUL, 10, b"at 10")
        assert log.last_index >= 10


@pytest.mark.covers("RP-6")
def test_what_a_killed_process_had_only_written_is_fsynced_before_it_is_confirmed() -> None:
    for seed in range(20):
        disk = SimDisk(random.Random(seed))
        log = filled(disk, 2, ALWAYS)
        for index in range(3, 12):
            log.append([batch(index)])
        assert log.persisted_index == 2
        disk.crash()
        log, _ = open_(disk, ALWAYS)
        assert log.persisted_index == 11
        disk.crash(power=True)
        log, report = open_(disk, ALWAYS, Stop.POWER)
        assert (report.verdict, report.last_index) == (Verdict.CLEAN, 11)


@pytest.mark.covers("SF-4")
def test_a_segment_of_another_history_is_not_taken(disk: SimDisk) -> None:
    other = SimDisk(random.Random(1))
    filled(disk, 20)
    log, _ = open_(other)
    for index in range(1, 21):
        log.append([batch(index, 2)])
    disk.crash()
    second = segments(disk)[1]
    disk.write_file_durably(second, other.read_file(second))
    _, report = open_(disk)
    assert (report.verdict, report.last_index) == (Verdict.LOST_RECORD, 7)
    assert "continues entry 7 of term 2" in report.reasons[0]


@pytest.mark.covers("SF-4")
def test_a_term_that_goes_back_is_damage(disk: SimDisk) -> None:
    log, _ = open_(disk)
    log.append([batch(1, 5), batch(2, 5)])
    disk.crash()
    path = segments(disk)[0]
    data = disk.read_file(path)
    disk.write_file_durably(path, data[: SEGMENT_HEAD_BYTES + RECORD_BYTES] + batch(2, 4).record)
    _, report = open_(disk)
    assert (report.verdict, report.last_index) == (Verdict.LOST_RECORD, 1)
    assert "in term 4" in report.reasons[0]


@pytest.mark.covers("RP-6", "SF-18")
@pytest.mark.parametrize("options", [OPTIONS, ALWAYS])
def test_without_a_file_descriptor_an_fsync_is_done_in_place_or_tried_again(
    tmp_path: Path, options: LogOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = open_log(OsDisk(tmp_path), DIRECTORY, options, Stop.KILLED)
    log.append([batch(1)])
    synced: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "dup", _no_descriptor)
        patched.setattr(os, "open", _no_descriptor)
        patched.setattr(os, "fdatasync", synced.append)
        ticket = log.begin_sync(1000)
        assert ticket is not None
        ticket.run()
        log.finish_sync(ticket)
    assert len(synced) == 1, "with the descriptor that is open"
    assert not log.all_synced, "the new segment's name is not durable so far"
    assert not log.sync_due(1050)
    assert log.next_sync_ms() == 1100
    log.append([batch(2)])
    assert log.sync_due(2000)
    ticket = log.begin_sync(2000)
    assert ticket is not None
    assert ticket.covers_directory
    ticket.run()
    log.finish_sync(ticket)
    assert log.all_synced
    assert log.persisted_index == 2


def test_a_membership_that_finds_no_file_descriptor_is_not_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = open_log(OsDisk(tmp_path), DIRECTORY, OPTIONS, Stop.KILLED)
    owing(log)
    log.append([batch(1)])
    log.append([make_entry(index=2, term=1, time_ns=2, kind=EntryKind.CONFIG, payload=b"")])
    with monkeypatch.context() as patch:
        patch.setattr(os, "dup", _no_descriptor)
        patch.setattr(os, "open", _no_descriptor)
        ticket = log.begin_sync(0)
        assert ticket is not None
        ticket.run()
        log.finish_sync(ticket)
    assert isinstance(ticket.error, NoDescriptorError)
    assert log.failed is None
    assert log.persisted_index == 1
    assert log.next_sync_ms(), "it is due again, a little later"
    log.sync()
    assert log.persisted_index == 2


def _no_descriptor(*_: object) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.covers("SF-4")
def test_a_descriptor_that_cannot_be_closed_after_its_fsync_counts_as_a_failed_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = open_log(OsDisk(tmp_path), DIRECTORY, OPTIONS, Stop.KILLED)
    log.append([batch(1)])
    ticket, vote = log.begin_sync(0), log.begin_vote(1, "n@x")
    assert ticket is not None

    def close_badly(fd: int) -> None:
        close(fd)
        raise OSError(errno.EIO, "input/output error")

    close = os.close
    with monkeypatch.context() as patch:
        patch.setattr(os, "close", close_badly)
        ticket.run()
        vote.run()
    for error in (ticket.error, vote.error):
        assert error is not None
        assert "cannot close after fsync" in str(error)
    with pytest.raises(DiskError, match="close after fsync"):
        log.finish_vote(vote)


def test_an_opening_that_fails_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = OsDisk(tmp_path)
    log, _ = open_log(disk, DIRECTORY, ALWAYS, Stop.KILLED)
    fill(log, 20)
    log.close(clean=False)
    opened = os.listdir("/proc/self/fd")  # noqa: PTH208
    with monkeypatch.context() as faulty:
        faulty.setattr(os, "fdatasync", _fail_with_eio)
        for _ in range(3):
            with pytest.raises(DiskError, match="fsync"):
                open_log(disk, DIRECTORY, ALWAYS, Stop.POWER)
    assert len(os.listdir("/proc/self/fd")) == len(opened)  # noqa: PTH208
    log, _ = open_log(disk, DIRECTORY, ALWAYS, Stop.KILLED)
    assert log.last_index == 20
    log.close(clean=True)


def _fail_with_eio(_: int) -> None:
    raise OSError(errno.EIO, "Input/output error")


# ---- short logs: what is known of the end stays known ------------------------------------------------------------------------


@pytest.mark.covers("SF-4", "SF-34")
def test_a_log_with_a_record_gone_knows_its_end_until_it_has_that_again(disk: SimDisk) -> None:
    """A4: it was lost as a whole, and with it a vote."""
    filled(disk, 20, ALWAYS)
    disk.crash()
    disk.flip_bit(segments(disk)[1], (SEGMENT_HEAD_BYTES + 2 * RECORD_BYTES + 60) * 8)
    for path in disk.paths():
        if path.endswith(".idx"):
            disk.lose(path)
    log, report = open_(disk, ALWAYS)
    end = (batch(20).term, 20)
    assert (report.verdict, report.end, log.last_index) == (Verdict.SHORT, end, 9)
    disk.crash(power=True)
    log, report = open_(disk, ALWAYS)
    assert (report.verdict, report.end, log.last_index) == (Verdict.SHORT, end, 9)
    log.append([batch(index) for index in range(10, 20)])
    log.sync()
    disk.crash()
    log, report = open_(disk, ALWAYS)
    assert (report.verdict, report.end) == (Verdict.SHORT, end), "one is missing"
    log.append([batch(20)])
    log.sync()
    disk.crash()
    _, report = open_(disk, ALWAYS)
    assert report.verdict is Verdict.CLEAN


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("what", ["the last record", "the one before the last, with its length", "power"])
def test_a_log_of_which_nobody_knows_how_far_it_went_is_lost(disk: SimDisk, what: str) -> None:
    log = filled(disk, 6, OPTIONS if what == "power" else ALWAYS)
    if what == "power":
        owing(log)
    disk.crash()
    record = {"the last record": 5, "the one before the last, with its length": 4, "power": 2}[what]
    at = SEGMENT_HEAD_BYTES + record * RECORD_BYTES + (60 if what == "the last record" else 1)
    disk.flip_bit(segments(disk)[0], (at if what != "power" else at + 59) * 8)
    if what != "power":
        assert open_(disk, ALWAYS)[1].verdict is Verdict.LOST_RECORD
        return
    assert open_(disk)[1].verdict is Verdict.SHORT
    disk.crash(power=True)
    _, report = open_(disk, stop=Stop.POWER)
    assert report.verdict is Verdict.LOST_RECORD, "what it has confirmed since may be gone too"


@pytest.mark.covers("SF-4")
def test_a_copy_that_is_settled_forgets_that_it_was_short(disk: SimDisk) -> None:
    filled(disk, 6, ALWAYS)
    disk.crash()
    disk.flip_bit(segments(disk)[0], (SEGMENT_HEAD_BYTES + 2 * RECORD_BYTES + 60) * 8)
    log, report = open_(disk, ALWAYS)
    assert report.verdict is Verdict.SHORT
    log.save_vote(7, "n@inc")
    assert log.load_vote() == (7, "n@inc")
    disk.crash()
    log, report = open_(disk, ALWAYS)
    assert (report.verdict, log.load_vote()) == (Verdict.SHORT, (7, "n@inc"))
    log.settle()
    disk.crash()
    assert open_(disk, ALWAYS)[1].verdict is Verdict.CLEAN


@pytest.mark.covers("SF-29")
def test_an_opening_reads_the_segment_that_was_found_damaged_and_no_other(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A9: it read all of them in one go, 135 MiB a second, while the broker did nothing else."""
    log = filled(disk, 40, ALWAYS)
    log.sync()
    log.close(clean=True)
    paths = segments(disk)
    assert len(paths) >= 5
    disk.flip_bit(paths[1], (SEGMENT_HEAD_BYTES + 2 * RECORD_BYTES + 60) * 8)
    log, _ = open_(disk, ALWAYS, Stop.KILLED)
    with pytest.raises(DiskError, match="record damaged"):
        log.entry(10)
    assert log.may_open_anew
    log.close(clean=False)
    scanned: list[int] = []

    def counted(*args: object, **named: int) -> object:
        scanned.append(named["first_index"])
        return scan(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(found_segments, "scan", counted)
    log, report = open_(disk, ALWAYS)
    assert (report.verdict, log.last_index, report.end[1]) == (Verdict.SHORT, 9, 40)
    assert sorted(scanned) == [8, 36], "the damaged one, and the last one for its end"
    scanned.clear()
    log.close(clean=False)
    _, report = open_(disk, ALWAYS)
    assert (report.verdict, report.end[1], scanned) == (Verdict.SHORT, 40, [8]), (
        "only the last one that is left"
    )
