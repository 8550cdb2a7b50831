"""A log whose fsync policy changes: what a power failure leaves is judged by how it was written, not by what is wanted now."""

from __future__ import annotations

import random

import pytest
from tests.broker.storage.entries import batch, fill
from tests.simulator.disk import CrashNow, SimDisk

from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.log.group_files import EACH_SYNCED
from supercluster.broker.storage.log.log import FileLog
from supercluster.broker.storage.log.options import Fsync, LogOptions, Stop
from supercluster.broker.storage.log.sync_tickets import SyncTicket
from supercluster.broker.storage.recovery.recovery import Recovery, Verdict, open_log
from supercluster.broker.storage.volume.store import VolumeStore
from supercluster.broker.storage.volume.volume import open_volume

ALL = 1 << 30
WEAK = (Fsync.INTERVAL, Fsync.NEVER)


def open_(disk: SimDisk, fsync: Fsync, stop: Stop = Stop.KILLED) -> tuple[FileLog, Recovery]:
    return open_log(disk, "groups/g", LogOptions(fsync=fsync, segment_bytes=1000), stop)


def marking(disk: SimDisk) -> tuple[FileLog, SyncTicket]:
    """A log of three entries whose policy got stronger just now, and the ticket that is to put its mark."""
    log, _ = open_(disk, Fsync.INTERVAL)
    fill(log, 3)
    log.set_fsync(Fsync.ALWAYS)
    ticket = log.begin_sync(0)
    assert ticket is not None
    return log, ticket


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(3))


@pytest.mark.covers("SF-4", "RP-6")
@pytest.mark.parametrize("before", WEAK)
def test_who_confirmed_what_was_in_memory_is_doubtful_though_each_append_is_to_be_fsynced_now(
    disk: SimDisk, before: Fsync
) -> None:
    """The map may say `always` before this broker hears of it, or while it is down."""
    log, _ = open_(disk, before)
    fill(log, 5)
    assert log.persisted_index == 5
    disk.crash(power=True)
    log, report = open_(disk, Fsync.ALWAYS, Stop.POWER)
    assert report.verdict is Verdict.DOUBTFUL
    # From here on each is fsynced: that the copy is doubtful is on the disk, and nothing is added to it.
    log.settle()
    fill(log, 1)
    log.sync()
    disk.crash(power=True)
    assert open_(disk, Fsync.ALWAYS, Stop.POWER)[1].verdict is Verdict.CLEAN


@pytest.mark.covers("SF-4", "RP-6")
@pytest.mark.parametrize("after", list(Fsync))
def test_who_fsynced_all_that_it_confirmed_is_sound_whatever_is_wanted_now(
    disk: SimDisk, after: Fsync
) -> None:
    log, _ = open_(disk, Fsync.ALWAYS)
    fill(log, 5)
    assert log.persisted_index == 0
    log.tick(0)
    assert log.persisted_index == 5
    disk.crash(power=True)
    log, report = open_(disk, after, Stop.POWER)
    assert (report.verdict, log.last_index) == (Verdict.CLEAN, 5)


@pytest.mark.covers("SF-4", "RP-6")
@pytest.mark.parametrize("before", WEAK)
def test_a_stronger_policy_counts_at_once_and_takes_back_nothing(disk: SimDisk, before: Fsync) -> None:
    log, _ = open_(disk, before)
    fill(log, 5)
    log.set_fsync(Fsync.ALWAYS)
    fill(log, 2)
    assert log.persisted_index == 5, "the first five were confirmed; the others wait for the disk"
    assert (log.rests, log.next_sync_ms()) == (False, 0)
    log.tick(1)
    assert (log.persisted_index, log.rests, log.next_sync_ms()) == (7, True, None)
    disk.crash(power=True)
    log, report = open_(disk, Fsync.ALWAYS, Stop.POWER)
    assert (report.verdict, log.last_index) == (Verdict.CLEAN, 7)


@pytest.mark.covers("SF-4", "RP-6")
@pytest.mark.parametrize("after", WEAK)
def test_a_weaker_policy_counts_once_the_disk_knows(disk: SimDisk, after: Fsync) -> None:
    log, _ = open_(disk, Fsync.ALWAYS)
    fill(log, 2)
    log.tick(0)
    log.set_fsync(after)
    fill(log, 1)
    assert log.persisted_index == 2, "the mark stands yet"
    assert log.next_sync_ms() == 0
    log.tick(1)
    fill(log, 1)
    assert log.persisted_index == 4
    disk.crash(power=True)
    assert open_(disk, Fsync.ALWAYS, Stop.POWER)[1].verdict is Verdict.DOUBTFUL


@pytest.mark.covers("SF-4", "RP-6")
def test_a_policy_that_changes_while_a_ticket_is_out_waits_for_it(disk: SimDisk) -> None:
    log, ticket = marking(disk)
    log.set_fsync(Fsync.INTERVAL)
    fill(log, 1)
    assert log.persisted_index == 3, "the mark is on its way"
    ticket.run()
    log.finish_sync(ticket)
    assert log.persisted_index == 3, "and has come"
    removal = log.begin_sync(0)
    assert removal is not None
    log.set_fsync(Fsync.ALWAYS)
    removal.run()
    log.finish_sync(removal)
    fill(log, 1)
    assert log.persisted_index == 4, "what the removal's fsync covered"
    log.tick(0)
    assert (log.persisted_index, log.rests) == (5, True)
    assert disk.exists(f"groups/g/{EACH_SYNCED}")


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("is_run", [True, False])
def test_a_ticket_that_nobody_waits_for_puts_no_mark(is_run: bool, seed: int) -> None:
    """Its thread is slow: by then the log was closed, and another one confirms what is in memory only."""
    disk = SimDisk(random.Random(seed))
    log, ticket = marking(disk)
    if is_run:
        ticket.run()
    log.close(clean=False)
    log, _ = open_(disk, Fsync.INTERVAL)
    if not is_run:
        ticket.run()
    log.tick(0)
    fill(log, 3)
    assert log.persisted_index == 6
    disk.crash(power=True)
    assert open_(disk, Fsync.ALWAYS, Stop.POWER)[1].verdict is Verdict.DOUBTFUL


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("is_run", [True, False])
def test_a_ticket_that_a_sync_in_between_overtook_says_nothing_of_the_mark(is_run: bool, seed: int) -> None:
    disk = SimDisk(random.Random(seed))
    log, ticket = marking(disk)
    log.set_fsync(Fsync.INTERVAL)
    if is_run:
        ticket.run()
    log.sync()
    log.set_fsync(Fsync.NEVER)
    fill(log, 3)
    if not is_run:
        ticket.run()
    confirmed = log.persisted_index
    disk.crash(power=True)
    log, report = open_(disk, Fsync.ALWAYS, Stop.POWER)
    assert report.verdict is Verdict.DOUBTFUL or log.last_index >= confirmed


@pytest.mark.covers("SF-4", "RP-6")
def test_what_a_failed_fsync_left_is_not_confirmed_by_a_policy_that_is_stronger_since(disk: SimDisk) -> None:
    """Under `never` the next process does not write it again; so no fsync of that process says anything of it."""
    log, _ = open_(disk, Fsync.INTERVAL)
    fill(log, 3)
    disk.failing_syncs = 1
    with pytest.raises(DiskError, match="fsync"):
        log.sync()
    disk.crash()
    log, _ = open_(disk, Fsync.NEVER)
    assert log.set_fsync(Fsync.ALWAYS) is False
    assert log.set_fsync(Fsync.ALWAYS) is True, "it was said once"
    fill(log, 1)
    log.tick(0)
    assert not disk.exists(f"groups/g/{EACH_SYNCED}")
    disk.crash()
    log, _ = open_(disk, Fsync.ALWAYS)
    assert (log.last_index, log.persisted_index) == (4, 4)
    disk.crash(power=True)
    log, report = open_(disk, Fsync.ALWAYS, Stop.POWER)
    assert (report.verdict, log.last_index) == (Verdict.CLEAN, 4)


@pytest.mark.covers("SF-4", "RP-6")
@pytest.mark.parametrize("fails", [True, False])
def test_where_every_kill_counts_as_a_power_failure_what_reads_well_is_written_again(
    disk: SimDisk, fails: bool
) -> None:
    """D6: without a boot id nobody knows that the machine stayed up, and that this was read from memory."""
    log, _ = open_(disk, Fsync.ALWAYS)
    log.tick(0)
    fill(log, 3)
    if fails:
        disk.failing_syncs = 1
        with pytest.raises(DiskError, match="fsync"):
            log.sync()
    disk.crash()
    log, _ = open_(disk, Fsync.ALWAYS, Stop.POWER)
    log.tick(0)
    confirmed = log.persisted_index
    assert confirmed == 3
    disk.crash(power=True)
    log, report = open_(disk, Fsync.ALWAYS, Stop.POWER)
    assert (report.verdict, log.last_index) == (Verdict.CLEAN, 3)


@pytest.mark.covers("SF-4", "SF-17")
@pytest.mark.parametrize("policy", [Fsync.INTERVAL, Fsync.ALWAYS])
def test_where_the_log_begins_says_nothing_of_the_entries_before_it_in_its_segment(
    disk: SimDisk, policy: Fsync
) -> None:
    """D8: they were never fsynced, and without them nothing behind them can be read."""
    log, _ = open_(disk, Fsync.INTERVAL)
    fill(log, 10)
    log.note_commit(9)
    log.save_checkpoint(9, b"state")
    assert log.drop_head(11) == 9
    disk.failing_syncs = 1
    with pytest.raises(DiskError, match="fsync"):
        log.sync()
    disk.crash()
    log, _ = open_(disk, policy)
    assert log.persisted_index == 10
    log.sync()
    disk.crash(power=True)
    log, _ = open_(disk, policy, Stop.POWER)
    assert [entry.index for entry in log.entries(10, 10, ALL)] == [10]


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("is_put", [True, False])
def test_a_disk_that_refuses_the_mark_costs_trust_and_nothing_else(disk: SimDisk, is_put: bool) -> None:
    log, _ = open_(disk, Fsync.INTERVAL if is_put else Fsync.ALWAYS)
    fill(log, 3)
    log.tick(0)
    disk.failing_names_of = EACH_SYNCED
    log.set_fsync(Fsync.ALWAYS if is_put else Fsync.INTERVAL)
    log.tick(1)
    assert log.failed is None
    assert log.next_sync_ms() is None, "it is not asked again and again"
    disk.failing_names_of = ""
    # Nobody knows what the disk has of it: the stronger policy holds, whichever is wanted.
    log.set_fsync(Fsync.INTERVAL)
    fill(log, 1)
    assert log.persisted_index == 3
    log.tick(2000)
    fill(log, 1)
    assert log.persisted_index == 5, "with the next entries the mark was taken away"
    assert not disk.exists(f"groups/g/{EACH_SYNCED}")


@pytest.mark.covers("SF-1", "SF-4", "RP-6")
@pytest.mark.parametrize("knows_boot", [True, False])
@pytest.mark.parametrize("seeds", [range(first, first + 100) for first in range(0, 400, 100)])
def test_a_log_that_counts_as_sound_has_all_that_it_ever_confirmed(seeds: range, knows_boot: bool) -> None:
    """Without a boot id every kill counts as a power failure."""
    verdicts = set()
    for seed in seeds:
        rng = random.Random(seed)
        disk = SimDisk(rng)
        policy = rng.choice(list(Fsync))
        log, report = open_(disk, policy)
        confirmed = 0
        now_ms = 0
        for life in range(6):
            ticket: SyncTicket | None = None
            disk.crash_after(rng.randrange(4, 60))
            try:
                while True:
                    now_ms += rng.randrange(700)
                    act = rng.random()
                    if act < 0.4:
                        fill(log, rng.randrange(1, 4))
                    elif act < 0.5 and log.last_index > log.persisted_index:
                        log.truncate_after(max(log.persisted_index, log.commit_index))
                    elif act < 0.65:
                        policy = rng.choice(list(Fsync))
                        log.set_fsync(policy)
                    elif act < 0.7 and log.persisted_index > log.base_index:
                        log.note_commit(log.persisted_index)
                        log.save_checkpoint(log.persisted_index, b"state")
                        log.drop_head(log.last_index + 1)
                    elif ticket is None:
                        if log.sync_due(now_ms):
                            ticket = log.begin_sync(now_ms)
                    elif ticket.mark is None or act < 0.9:
                        ticket.run()
                        log.finish_sync(ticket)
                        ticket = None
                    assert log.persisted_index >= confirmed
                    confirmed = log.persisted_index
                    if life % 2 and rng.random() < 0.1:
                        disk.failing_syncs, disk.failing_syncs_of = 1, ".seg"
            except (CrashNow, DiskError):
                pass
            disk.failing_syncs, disk.failing_syncs_of = 0, ""
            # What is wanted may have changed meanwhile, or the map on the disk be an older one.
            policy = rng.choice((policy, *Fsync))
            power = rng.random() < 0.6
            disk.crash(power=power)
            log, report = open_(disk, policy, Stop.POWER if power or not knows_boot else Stop.KILLED)
            verdicts.add(report.verdict)
            if report.verdict in (Verdict.CLEAN, Verdict.TORN_TAIL):
                assert log.last_index >= confirmed, f"seed {seed}, life {life}"
                confirmed = min(confirmed, log.persisted_index)
            else:
                log.settle()
                confirmed = 0
    assert verdicts >= {Verdict.CLEAN, Verdict.DOUBTFUL}


@pytest.mark.covers("RP-6")
@pytest.mark.parametrize(("stream", "waits"), [("interval", True), ("always", True), ("never", False)])
def test_a_broker_may_fsync_always_for_all_streams_that_do_not_ask_for_never(
    disk: SimDisk, stream: str, waits: bool
) -> None:
    store = VolumeStore(open_volume(disk, "boot", lambda: "inc"), LogOptions(fsync=Fsync.ALWAYS))
    log = store.open("g", memory=False, fsync=stream, create=True).log
    log.append([batch(1)])
    assert (log.persisted_index == 0) is waits
    store.set_fsync("g", "never")
    log.tick(0)
    log.append([batch(2)])
    assert log.persisted_index == 2
    store.set_fsync("g", "interval")
    log.append([batch(3)])
    assert log.persisted_index == 2
    store.set_fsync("other", "always")  # Nothing of the kind is open.
    store.close(clean=True)


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("step", range(3))
def test_a_process_that_is_killed_while_it_takes_the_mark_away_leaves_no_trust_behind(
    step: int, seed: int
) -> None:
    """The kernel shows the next process a name that the disk does not know yet."""
    disk = SimDisk(random.Random(seed))
    log, _ = open_(disk, Fsync.ALWAYS)
    fill(log, 3)
    log.tick(0)
    log.set_fsync(Fsync.INTERVAL)
    disk.crash_after(step)
    try:
        log.tick(1)
    except CrashNow:
        disk.crash()
        log, _ = open_(disk, Fsync.INTERVAL)
    fill(log, 3)
    confirmed = log.persisted_index
    disk.crash(power=True)
    log, report = open_(disk, Fsync.ALWAYS, Stop.POWER)
    assert report.verdict is Verdict.DOUBTFUL or log.last_index >= confirmed
