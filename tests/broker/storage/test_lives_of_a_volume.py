"""What a log, or a clean stop, says of entries that another process, another copy or another version wrote.

Each story ends with a power failure: a copy that counts as sound then has all that was confirmed before.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from isal.isal_zlib import crc32
from tests.broker.storage.entries import fill, owing
from tests.simulator.disk import SimDisk

from supercluster.broker.raft.entry import EntryKind, make_entry
from supercluster.broker.raft.errors import DiskError, NewerFormatError
from supercluster.broker.storage.disk.os_disk import OsDisk
from supercluster.broker.storage.log.group_files import HARD_STATE, HardState
from supercluster.broker.storage.log.log import FileLog
from supercluster.broker.storage.log.options import Fsync, LogOptions
from supercluster.broker.storage.log.slot_file import SlotFile, newest
from supercluster.broker.storage.log.sync_pace import QUIET_MS
from supercluster.broker.storage.recovery.recovery import Verdict
from supercluster.broker.storage.volume import volume
from supercluster.broker.storage.volume.store import DueSync, VolumeStore
from supercluster.broker.storage.volume.volume import VOLUME, open_volume

HARD = f"groups/g/{HARD_STATE}"
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

    def start_anew(self) -> None:
        """On another boot of the machine."""
        self._boot += 1
        self.store = self._start()

    def power_fails(self, confirmed: int) -> None:
        """The end: what counts as sound has all of it."""
        self.disk.crash(power=True)
        self.start_anew()
        log = self.open(Fsync.INTERVAL)
        assert self.store.reports["g"].verdict not in SOUND or log.last_index >= confirmed


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
    log.set_fsync(Fsync.ALWAYS)
    due = site.due()
    log.install_base(10, 2, b"state")
    due.ticket.run()
    log.finish_sync(due.ticket)
    fill(log, 3, term=2)
    assert log.persisted_index == 10
    site.power_fails(10)


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("opens", [True, False])
def test_a_clean_stop_speaks_of_no_log_that_was_not_opened_since_a_kill(seed: int, opens: bool) -> None:
    """Its process ended before it read the map, or the disk did not let it open the log; or the copy is only kept."""
    site = Site(seed)
    log = site.open(Fsync.INTERVAL)
    owing(log)
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
    assert log.all_synced
    site.disk.crash()
    site.disk.crash(power=True)
    site.store = site._start()
    log = site.open(Fsync.NEVER)
    assert log.last_index == 25


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
@pytest.mark.parametrize("seed", SEEDS)
def test_a_ticket_of_a_copy_that_was_removed_says_nothing_of_the_next(seed: int) -> None:
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
    assert after.persisted_index == 0
    owing(after)
    fill(after, 8)
    site.power_fails(after.persisted_index)


@pytest.mark.covers("RP-6")
@pytest.mark.parametrize("first", [Fsync.INTERVAL, Fsync.ALWAYS])
def test_a_policy_that_changed_back_while_a_ticket_was_out_is_followed_to_its_end(first: Fsync) -> None:
    """Nobody appends anything: the change is what has to be done, once, and then nothing."""
    site = Site(1, by_ticket=True)
    log = site.open(first)
    owing(log)
    fill(log, 2)
    log.sync()
    log.tick(0)
    second = Fsync.ALWAYS if first is Fsync.INTERVAL else Fsync.INTERVAL
    site.store.set_fsync("g", second.value)
    fill(log, 1)
    due = site.store.due_syncs(0) or site.store.due_syncs(1000)
    site.store.set_fsync("g", first.value)
    for now_ms in range(1000, 3000 + QUIET_MS, 500):
        for each in due:
            each.ticket.run()
            log.finish_sync(each.ticket)
        log.tick(now_ms)
        due = site.store.due_syncs(now_ms)
    assert not log._hard.owes
    assert (log.rests, log.deadline_ms(), due) == (True, None, [])
    assert log.fsync is first


@pytest.mark.covers("SF-4")
def test_a_failed_fsync_that_nobody_has_heard_of_yet_is_not_taken_back_by_the_stop() -> None:
    site = Site(1, by_ticket=True)
    log = site.open(Fsync.INTERVAL)
    owing(log)
    fill(log, 3)
    log.set_fsync(Fsync.ALWAYS)
    due = site.due()
    site.disk.failing_syncs = 1
    due.ticket.run()
    with pytest.raises(DiskError, match="fsync"):
        site.store.close(clean=True)
    site.power_fails(3)


def as_of_layout_2(site: Site, *, clean: bool) -> None:
    """The files of a broker of layout 2: its volume says whether the stop was clean, its log says nothing of what it owes."""
    found = newest(site.disk.read_file(HARD))
    assert found is not None
    term, vote = HardState.decode(found[1]).term, HardState.decode(found[1]).vote
    SlotFile.create(site.disk, HARD, term.to_bytes(8, "little") + b"\0" + vote.encode())
    fields = json.loads(site.disk.read_file(VOLUME))
    del fields["crc"]
    fields |= {"clean": clean, "layout": 2, "marksFrom": 1}
    fields["crc"] = crc32(json.dumps(fields, sort_keys=True).encode())
    site.disk.write_file_durably(VOLUME, json.dumps(fields).encode())


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("policy", list(Fsync))
@pytest.mark.parametrize("clean", [True, False])
def test_a_volume_of_layout_2_is_read_and_its_logs_owe_unless_it_was_closed(
    clean: bool, policy: Fsync
) -> None:
    site = Site(1)
    log = site.open(policy)
    log.save_vote(7, "n@x")
    fill(log, 6)
    log.sync()
    log.close(clean=clean)
    site.disk.crash()
    as_of_layout_2(site, clean=clean)
    # The node was replaced, or power failed: another boot id.
    site.disk.crash(power=True)
    site.start_anew()
    log = site.open(policy)
    verdict = site.store.reports["g"].verdict
    assert verdict is (Verdict.CLEAN if clean else Verdict.DOUBTFUL)
    assert (log.load_vote(), log.last_index) == ((7, "n@x"), 6)
    log.settle()
    for now_ms in (0, QUIET_MS):
        log.tick(now_ms)
    with pytest.MonkeyPatch.context() as older:
        older.setattr(volume, "LAYOUT", 2)
        with pytest.raises(NewerFormatError):
            volume.Identity.decode(site.disk.read_file(VOLUME))
    if policy is not Fsync.NEVER:
        site.disk.crash(power=True)
        site.start_anew()
        site.open(policy)
        assert site.store.reports["g"].verdict is Verdict.CLEAN, "it was fsynced, and nothing came"


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
