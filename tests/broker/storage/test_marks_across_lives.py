"""What a log's mark, or a clean stop, says of entries that another process, another copy or another version wrote.

Each story ends with a power failure: a copy that counts as sound then has all that was confirmed before.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from isal.isal_zlib import crc32
from tests.broker.storage.entries import fill
from tests.simulator.disk import SimDisk

from supercluster.broker.raft.entry import EntryKind, make_entry
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.disk.os_disk import OsDisk
from supercluster.broker.storage.log.group_files import EACH_SYNCED
from supercluster.broker.storage.log.log import FileLog
from supercluster.broker.storage.log.options import Fsync, LogOptions, Stop
from supercluster.broker.storage.recovery.recovery import Verdict
from supercluster.broker.storage.volume.store import DueSync, VolumeStore
from supercluster.broker.storage.volume.volume import VOLUME, open_volume

MARK = f"groups/g/{EACH_SYNCED}"
SEEDS = range(24)
SOUND = (Verdict.CLEAN, Verdict.TORN_TAIL)


class Site:
    """A machine's disk and the process on it, with one group."""

    def __init__(self, seed: int, *, by_ticket: bool = False) -> None:
        self.disk = SimDisk(random.Random(seed))
        self._by_ticket = by_ticket
        self._boot = 1
        self.store = self._start()

    def _start(self) -> VolumeStore:
        volume = open_volume(self.disk, f"boot-{self._boot}", lambda: "inc")
        return VolumeStore(volume, LogOptions(segment_bytes=1000, sync_in_tick=not self._by_ticket))

    def open(self, fsync: Fsync) -> FileLog:
        known = "g" in self.store.registered()
        log = self.store.open("g", memory=False, fsync=fsync.value, create=not known).log
        assert isinstance(log, FileLog)
        if not known:
            self.store.register("g", "member")
        return log

    def kill(self) -> None:
        self.disk.crash()
        self.store = self._start()

    def kill_after_failed_fsync(self, log: FileLog) -> None:
        """What it should have carried is in the page cache, clean, where the next process finds it."""
        self.disk.failing_syncs = 1
        with pytest.raises(DiskError):
            log.sync()
        self.kill()

    def stop_cleanly(self) -> None:
        self.store.close(clean=True)
        self.store = self._start()

    def due(self) -> DueSync:
        (found,) = self.store.due_syncs(0)
        return found

    def power_fails(self, confirmed: int) -> None:
        """The end: what counts as sound has all of it."""
        self.disk.crash(power=True)
        self._boot += 1
        self.store = self._start()
        log = self.open(Fsync.INTERVAL)
        assert self.store.reports["g"].verdict not in SOUND or log.last_index >= confirmed


@pytest.mark.covers("SF-4", "RP-6")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_policy_that_waited_counts_once_a_snapshot_took_the_place_of_what_it_waited_for(seed: int) -> None:
    site = Site(seed)
    fill(site.open(Fsync.NEVER), 3)
    site.kill()
    log = site.open(Fsync.NEVER)
    assert log.set_fsync(Fsync.ALWAYS) is False
    log.install_base(10, 2, b"state")
    log.tick(0)
    fill(log, 3, term=2)
    assert log.persisted_index == 10
    log.tick(5)
    fill(log, 3, term=2)
    assert log.persisted_index == 13
    site.power_fails(13)


@pytest.mark.covers("SF-4", "RP-6")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_snapshot_confirms_nothing_that_stood_behind_it_before(seed: int) -> None:
    """A membership was on its way to the disk, in entries that the snapshot took away."""
    site = Site(seed, by_ticket=True)
    fill(site.open(Fsync.NEVER), 3)
    site.kill()
    log = site.open(Fsync.NEVER)
    fill(log, 11)
    log.append([make_entry(index=15, term=1, kind=EntryKind.CONFIG, time_ns=15, payload=b"a,b,c")])
    assert log.persisted_index == 14
    assert log.set_fsync(Fsync.ALWAYS) is False
    log.install_base(10, 2, b"state")
    due = site.due()
    due.ticket.run()
    log.finish_sync(due.ticket)
    fill(log, 3, term=2)
    assert log.persisted_index == 10
    site.power_fails(10)


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_mark_that_a_removal_left_behind_is_seen(seed: int) -> None:
    site = Site(seed)
    log = site.open(Fsync.ALWAYS)
    fill(log, 3)
    log.tick(0)
    for name in [name for name in site.disk.paths() if name.startswith("groups/g/") and name != MARK]:
        site.disk.unlink(name)
    site.kill()
    log = site.open(Fsync.INTERVAL)
    site.store.register("g", "another")
    log.tick(0)
    fill(log, 10)
    site.power_fails(log.persisted_index)


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("opens", [True, False])
def test_a_clean_stop_speaks_of_no_log_that_was_not_opened_since_a_kill(seed: int, opens: bool) -> None:
    """Its process ended before it read the map, or the disk did not let it open the log."""
    site = Site(seed)
    log = site.open(Fsync.INTERVAL)
    log.tick(0)
    fill(log, 6)
    confirmed = log.persisted_index
    assert confirmed == 6
    site.kill()
    site.stop_cleanly()
    if opens:
        log = site.open(Fsync.ALWAYS)
        assert log.persisted_index == 6
        log.tick(0)
    site.power_fails(confirmed)


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_clean_stop_does_not_speak_of_what_a_failed_fsync_left(seed: int) -> None:
    site = Site(seed)
    log = site.open(Fsync.INTERVAL)
    fill(log, 3)
    log.tick(0)
    log.tick(5000)
    fill(log, 3)
    site.kill_after_failed_fsync(log)
    site.open(Fsync.NEVER)
    site.stop_cleanly()
    log = site.open(Fsync.ALWAYS)
    log.tick(0)
    site.power_fails(log.persisted_index)


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_clean_stop_writes_again_what_a_failed_fsync_left(seed: int) -> None:
    """The power fails behind it; and the next start finds nothing that it has to look through."""
    site = Site(seed)
    log = site.open(Fsync.INTERVAL)
    fill(log, 3)
    log.tick(0)
    log.tick(5000)
    fill(log, 13)
    site.kill_after_failed_fsync(log)
    fill(site.open(Fsync.NEVER), 9)
    site.stop_cleanly()
    log = site.open(Fsync.NEVER)
    assert log.set_fsync(Fsync.INTERVAL), "nothing waits for another opening"
    log.set_fsync(Fsync.NEVER)
    assert log.all_synced
    site.disk.crash()
    site.disk.crash(power=True)
    site.store = site._start()
    log = site.open(Fsync.NEVER)
    assert log.last_index == 25


@pytest.mark.covers("SF-4")
def test_a_copy_that_is_only_kept_does_not_keep_stops_unclean() -> None:
    """After a kill nobody opens it; the stop does, and speaks for it then."""
    site = Site(3)
    log = site.open(Fsync.INTERVAL)
    log.tick(0)
    fill(log, 6)
    site.store.register("gone", "member")  # In memory, or lost with its directory.
    site.kill()
    site.stop_cleanly()
    assert site.store._volume.stop is Stop.CLEAN
    site.disk.crash(power=True)
    site.store = site._start()
    log = site.open(Fsync.INTERVAL)
    assert (site.store.reports["g"].verdict, log.last_index) == (Verdict.CLEAN, 6)


@pytest.mark.covers("SF-4")
def test_a_stop_that_cannot_look_at_a_kept_copy_is_not_clean() -> None:
    site = Site(3)
    fill(site.open(Fsync.INTERVAL), 6)
    site.kill()
    site.disk.failing_syncs = 1
    site.stop_cleanly()
    assert site.store._volume.stop is Stop.KILLED


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_sync_that_overtakes_a_ticket_makes_its_names_durable_too(seed: int) -> None:
    site = Site(seed, by_ticket=True)
    log = site.open(Fsync.ALWAYS)
    log.sync()
    fill(log, 8)  # The last of them are in a file of their own.
    site.due()
    log.sync()
    assert log.persisted_index == 8
    site.power_fails(8)


@pytest.mark.covers("SF-4")
def test_a_sync_waits_for_the_ticket_that_it_overtakes_to_hear_how_it_went() -> None:
    """The kernel tells of a failure once: to whom it was not told, its own fsync would succeed."""
    site = Site(1, by_ticket=True)
    log = site.open(Fsync.INTERVAL)
    fill(log, 3)
    log.set_fsync(Fsync.ALWAYS)
    due = site.due()
    began, goes_on = Event(), Event()
    fsync = site.disk.sync

    def slow(inode: Any, path: str) -> None:
        began.set()
        assert goes_on.wait(30)
        site.disk.failing_syncs = 1
        fsync(inode, path)

    site.disk.sync = slow  # type: ignore[method-assign]
    thread = Thread(target=due.ticket.run)
    thread.start()
    assert began.wait(30)
    site.disk.sync = fsync  # type: ignore[method-assign]
    failures: list[DiskError] = []

    def sync() -> None:
        try:
            log.sync()
        except DiskError as error:
            failures.append(error)

    other = Thread(target=sync)
    other.start()
    goes_on.set()
    thread.join(30)
    other.join(30)
    assert [str(failure) for failure in failures] == [str(due.ticket.error)]
    assert not site.disk.exists(MARK)


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_mark_that_the_disk_does_not_let_go_confirms_nothing_that_a_failed_fsync_left(seed: int) -> None:
    site = Site(seed)
    log = site.open(Fsync.ALWAYS)
    fill(log, 2)
    log.tick(0)
    fill(log, 3)
    site.kill_after_failed_fsync(log)
    site.disk.failing_names_of = EACH_SYNCED
    log = site.open(Fsync.NEVER)
    log.tick(0)
    site.disk.failing_names_of = ""
    site.power_fails(log.persisted_index)


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_ticket_of_a_copy_that_was_removed_puts_no_mark_for_the_next(seed: int) -> None:
    site = Site(seed, by_ticket=True)
    log = site.open(Fsync.INTERVAL)
    fill(log, 3)
    log.set_fsync(Fsync.ALWAYS)
    due = site.due()
    log.destroy()
    site.store.forget("g")
    after = site.open(Fsync.INTERVAL)
    due.ticket.run()
    log.finish_sync(due.ticket)
    assert not site.disk.exists(MARK)
    fill(after, 8)
    site.power_fails(after.persisted_index)


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_mark_says_nothing_of_what_a_version_without_marks_confirmed(seed: int) -> None:
    """A downgrade and back: the older version drops the volume's field, and leaves the mark where it is."""
    site = Site(seed)
    log = site.open(Fsync.ALWAYS)
    fill(log, 2)
    log.tick(0)
    site.disk.crash()
    fields = json.loads(site.disk.read_file(VOLUME))
    del fields["crc"], fields["marksFrom"]
    fields["processCount"] += 1
    fields["crc"] = crc32(json.dumps(fields, sort_keys=True).encode())
    site.disk.write_file_durably(VOLUME, json.dumps(fields).encode())
    older, _ = site.store.open("g", memory=False, fsync="always", create=False).log, None
    assert isinstance(older, FileLog)
    older._pace.fsync = Fsync.INTERVAL
    fill(older, 5)
    site.power_fails(older.persisted_index)
    log = site.open(Fsync.ALWAYS)
    log.settle()
    log.tick(0)
    assert site.disk.read_file(MARK) == f"inc.{site.store.process_count}".encode(), (
        "put anew, by the first that knows of marks again"
    )


@pytest.mark.covers("RP-6")
@pytest.mark.parametrize("first", [Fsync.INTERVAL, Fsync.ALWAYS])
def test_a_policy_that_changed_back_while_a_ticket_was_out_is_followed_to_its_end(first: Fsync) -> None:
    """Nobody appends anything: the change is what has to be done, once, and then nothing."""
    site = Site(1, by_ticket=True)
    log = site.open(first)
    fill(log, 2)
    log.sync()
    log.tick(0)
    second = Fsync.ALWAYS if first is Fsync.INTERVAL else Fsync.INTERVAL
    site.store.set_fsync("g", second.value)
    due = site.due()
    site.store.set_fsync("g", first.value)
    assert site.store.due_syncs(0) == []
    due.ticket.run()
    log.finish_sync(due.ticket)
    due = site.due()
    due.ticket.run()
    log.finish_sync(due.ticket)
    log.tick(20)
    assert (log.rests, log.deadline_ms(), site.store.due_syncs(5000)) == (True, None, [])
    assert log.fsync is first
    assert site.disk.exists(MARK) is (first is Fsync.ALWAYS)


@pytest.mark.covers("SF-4")
def test_a_failed_fsync_that_nobody_has_heard_of_yet_is_not_taken_back_by_the_stop() -> None:
    site = Site(1, by_ticket=True)
    log = site.open(Fsync.INTERVAL)
    fill(log, 3)
    log.set_fsync(Fsync.ALWAYS)
    due = site.due()
    site.disk.failing_syncs = 1
    due.ticket.run()
    with pytest.raises(DiskError, match="fsync"):
        site.store.close(clean=True)
    assert not site.disk.exists(MARK)
    site.disk.crash()
    assert open_volume(site.disk, "boot-1", lambda: "inc").stop is Stop.KILLED


def test_a_removal_goes_on_where_files_go_away_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk(tmp_path)
    disk.mkdirs("groups/g")
    disk.write_file_durably("groups/g/a", b"x")
    removes: Callable[[str], None] = shutil.rmtree
    raced: list[str] = []

    def raced_once(path: str) -> None:
        if not raced:
            raced.append(path)
            raise FileNotFoundError(path)
        removes(path)

    monkeypatch.setattr(shutil, "rmtree", raced_once)
    disk.rmtree("groups/g")
    assert not disk.exists("groups/g")
    disk.rmtree("groups/g")  # There is none.
    monkeypatch.setattr(shutil, "rmtree", lambda path: (_ for _ in ()).throw(FileNotFoundError(path)))
    disk.mkdirs("groups/h")
    with pytest.raises(DiskError, match="come and go"):
        disk.rmtree("groups/h")
