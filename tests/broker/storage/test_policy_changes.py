"""A log whose fsync policy changes: what a power failure leaves is judged by how it was written, not by what is wanted now.

One bit on the disk says it (`HardState.owes`): while it is clear there, all that the log has confirmed is there as well.
"""

from __future__ import annotations

import random
from threading import Event, Thread
from typing import Any

import pytest
from tests.broker.storage.entries import batch, fill, owing
from tests.broker.storage.lives import Stop, open_log
from tests.simulator.disk import CrashNow, SimDisk

from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.log.group_files import HARD_STATE, HardState
from supercluster.broker.storage.log.log import FileLog
from supercluster.broker.storage.log.options import Fsync, LogOptions
from supercluster.broker.storage.log.slot_file import newest
from supercluster.broker.storage.log.sync_pace import QUIET_MS
from supercluster.broker.storage.log.sync_tickets import HardTicket, SyncTicket
from supercluster.broker.storage.recovery.recovery import Recovery, Verdict
from supercluster.broker.storage.volume.store import VolumeStore
from supercluster.broker.storage.volume.volume import open_volume

ALL = 1 << 30
WEAK = (Fsync.INTERVAL, Fsync.NEVER)
HARD = f"groups/g/{HARD_STATE}"
SOUND = (Verdict.CLEAN, Verdict.TORN_TAIL)


def open_(disk: SimDisk, fsync: Fsync, stop: Stop = Stop.KILLED) -> tuple[FileLog, Recovery]:
    return open_log(disk, "groups/g", LogOptions(fsync=fsync, segment_bytes=1000), stop)


def owes(data: bytes) -> bool:
    found = newest(data)
    assert found is not None
    return HardState.decode(found[1]).owes


def setting(disk: SimDisk) -> tuple[FileLog, SyncTicket]:
    """A log of four entries, the last of which came soon after the others, and the ticket that is to let it confirm what is written."""
    log, _ = open_(disk, Fsync.INTERVAL)
    fill(log, 3)
    log.tick(0)
    fill(log, 1)
    ticket = log.begin_sync(100)
    assert ticket is not None
    assert ticket.hard is not None
    assert ticket.hard.hard.owes
    return log, ticket


def clearing(disk: SimDisk) -> tuple[FileLog, SyncTicket]:
    """A log of five entries that nothing came to for a minute, and the ticket that clears what it owes."""
    log, setter = setting(disk)
    setter.run()
    log.finish_sync(setter)
    fill(log, 1)
    assert log.persisted_index == 5
    log.tick(1200)
    assert log.next_sync_ms() == 1200 + QUIET_MS
    ticket = log.begin_sync(1200 + QUIET_MS)
    assert ticket is not None
    assert ticket.hard is not None
    assert not ticket.hard.hard.owes
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
    owing(log)
    fill(log, 5)
    assert log.persisted_index == 5
    disk.crash(power=True)
    log, report = open_(disk, Fsync.ALWAYS, Stop.POWER)
    assert report.verdict is Verdict.DOUBTFUL
    # From here on each is fsynced: that the copy is doubtful is on the disk, and nothing is added to it.
    log.settle()
    fill(log, 1)
    log.tick(0)
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
    owing(log)
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
    assert log.persisted_index == 2, "the disk says yet that nothing is owed"
    assert log.next_sync_ms() == 0
    log.tick(1)
    fill(log, 1)
    assert log.persisted_index == 4
    disk.crash(power=True)
    assert open_(disk, Fsync.ALWAYS, Stop.POWER)[1].verdict is Verdict.DOUBTFUL


@pytest.mark.covers("SF-4", "RP-6")
def test_a_message_now_and_then_costs_its_own_fsync_and_leaves_no_doubt(disk: SimDisk) -> None:
    log, _ = open_(disk, Fsync.INTERVAL)
    for now_ms in range(0, 10 * QUIET_MS, QUIET_MS):
        syncs = disk.syncs
        fill(log, 1)
        log.tick(now_ms)
        assert (log.persisted_index, disk.syncs - syncs) == (log.last_index, 1)
        assert log.rests
    disk.crash(power=True)
    assert open_(disk, Fsync.INTERVAL, Stop.POWER)[1].verdict is Verdict.CLEAN


@pytest.mark.covers("SF-4", "RP-6")
def test_a_burst_pays_two_fsyncs_of_what_is_owed_and_an_idle_log_owes_nothing(disk: SimDisk) -> None:
    log, _ = open_(disk, Fsync.INTERVAL)
    for now_ms in range(0, 5000, 10):
        fill(log, 1)
        log.tick(now_ms)
        assert log.persisted_index == log.last_index
    log.tick(6000)
    syncs = disk.syncs
    log.tick(5000 + QUIET_MS - 1)
    assert (owes(disk.durable(HARD)), disk.syncs - syncs) == (True, 0)
    log.tick(6000 + QUIET_MS)
    assert (owes(disk.durable(HARD)), disk.syncs - syncs, log.deadline_ms()) == (False, 1, None)
    disk.crash(power=True)
    log, report = open_(disk, Fsync.INTERVAL, Stop.POWER)
    assert (report.verdict, log.last_index) == (Verdict.CLEAN, 500)


@pytest.mark.covers("RP-3", "RP-6")
def test_who_runs_tickets_asks_no_log_that_only_owes_until_that_is_due(disk: SimDisk) -> None:
    """A broker has thousands of them, each of which was used within a minute."""
    store = VolumeStore(open_volume(disk, "b", lambda: "inc"), LogOptions(sync_in_tick=False))
    log = store.open("g", memory=False, fsync="interval", create=True).log
    assert isinstance(log, FileLog)
    owing(log)
    fill(log, 1)
    for now_ms in (0, 1000):
        for due in store.due_syncs(now_ms):
            due.ticket.run()
            log.finish_sync(due.ticket)
    assert store.due_syncs(1001) == []
    log.tick(1001)
    assert (log.all_synced, log.deadline_ms()) == (True, 1000 + QUIET_MS)
    assert store.due_syncs(1000 + QUIET_MS) == [], "it is not asked"
    log.tick(1000 + QUIET_MS)
    (due,) = store.due_syncs(1000 + QUIET_MS)
    due.ticket.run()
    log.finish_sync(due.ticket)
    assert (log.deadline_ms(), owes(disk.durable(HARD))) == (None, False)


@pytest.mark.covers("SF-4", "RP-6")
def test_nothing_is_confirmed_before_its_fsync_until_the_disk_knows_what_is_owed(disk: SimDisk) -> None:
    log, ticket = setting(disk)
    fill(log, 1)
    assert log.persisted_index == 3
    ticket.run()
    assert log.persisted_index == 3
    log.finish_sync(ticket)
    assert log.persisted_index == 5
    assert owes(disk.durable(HARD))


@pytest.mark.covers("SF-4", "RP-6")
@pytest.mark.parametrize("policy", list(Fsync))
def test_what_comes_while_the_clear_is_on_its_way_is_confirmed_by_its_fsync(
    disk: SimDisk, policy: Fsync
) -> None:
    log, ticket = clearing(disk)
    fill(log, 1)
    log.set_fsync(policy)
    assert log.persisted_index == 5
    ticket.run()
    log.finish_sync(ticket)
    fill(log, 1)
    assert (log.persisted_index, log.next_sync_ms()) == (5, 0)
    assert not owes(disk.durable(HARD))
    log.tick(2300)
    assert log.persisted_index == 7
    disk.crash(power=True)
    log, report = open_(disk, policy, Stop.POWER)
    assert report.verdict is Verdict.DOUBTFUL or log.last_index == 7


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("finishes_first", ["vote", "bit"])
@pytest.mark.parametrize("way", [setting, clearing])
def test_a_vote_takes_along_what_is_on_its_way_and_both_count_with_it(
    disk: SimDisk, way: Any, finishes_first: str
) -> None:
    log, ticket = way(disk)
    is_owing = ticket.hard.hard.owes
    vote = log.begin_vote(7, "n@x")
    for each in ("vote", "bit") if finishes_first == "vote" else ("bit", "vote"):
        fill(log, 1)
        assert log._is_weak is (is_owing and each == "bit" and finishes_first == "vote")
        if each == "vote":
            vote.run()
            log.finish_vote(vote)
            assert log.load_vote() == (7, "n@x")
        else:
            ticket.run()
            log.finish_sync(ticket)
    assert log._is_weak is is_owing
    assert owes(disk.durable(HARD)) is is_owing
    disk.crash(power=True)
    assert open_(disk, Fsync.INTERVAL, Stop.POWER)[0].load_vote() == (7, "n@x")


@pytest.mark.covers("SF-4", "RP-6")
@pytest.mark.parametrize("policy", list(Fsync))
def test_what_follows_an_election_needs_no_fsync_where_the_policy_allows_it(
    disk: SimDisk, policy: Fsync
) -> None:
    """The vote's fsync says on the disk that it is owed; and where nothing follows, nothing is owed a minute later."""
    store = VolumeStore(open_volume(disk, "b", lambda: "inc"), LogOptions(sync_in_tick=False))
    log = store.open("g", memory=False, fsync=policy.value, create=True).log
    assert isinstance(log, FileLog)
    assert store.due_syncs(0) == []
    for now_ms in (0, 2 * QUIET_MS):
        vote = log.begin_vote(now_ms + 1, "n@x")
        vote.run()
        log.finish_vote(vote)
        assert store.due_syncs(now_ms) == [], "an interval counts from here"
        fill(log, 1)
        assert (log.persisted_index == log.last_index) is (policy is not Fsync.ALWAYS)
        for later_ms in range(now_ms, now_ms + 1500 + QUIET_MS, 500):
            log.tick(later_ms)
            for due in store.due_syncs(later_ms):
                due.ticket.run()
                log.finish_sync(due.ticket)
        assert owes(disk.durable(HARD)) is (policy is Fsync.NEVER)
        assert log.rests


@pytest.mark.covers("SF-4")
def test_what_is_owed_waits_for_a_vote_that_is_on_its_way(disk: SimDisk) -> None:
    log, ticket = setting(disk)
    ticket.run()
    log.finish_sync(ticket)
    vote = log.begin_vote(7, "n@x")
    log.tick(QUIET_MS)
    assert (log.next_sync_ms(), log.begin_sync(2 * QUIET_MS)) == (None, None)
    vote.run()
    log.finish_vote(vote)
    assert log.next_sync_ms() == 100 + QUIET_MS
    log.tick(2 * QUIET_MS)
    assert (log.deadline_ms(), owes(disk.durable(HARD))) == (None, False)


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("way", [setting, clearing])
def test_a_bit_that_the_disk_refuses_ends_the_log_as_a_vote_does(disk: SimDisk, way: Any) -> None:
    log, ticket = way(disk)
    disk.failing_syncs, disk.failing_syncs_of = 1, HARD_STATE
    ticket.run()
    with pytest.raises(DiskError, match="fsync"):
        log.finish_sync(ticket)
    with pytest.raises(DiskError, match="refuses all operations"):
        fill(log, 1)
    assert log.persisted_index == (3 if way is setting else 5)


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("way", [setting, clearing])
def test_a_bit_that_cannot_be_written_ends_the_log_too(disk: SimDisk, way: Any) -> None:
    log, ticket = way(disk)
    ticket.run()
    log.finish_sync(ticket)
    log.set_fsync(Fsync.ALWAYS if way is setting else Fsync.NEVER)
    fill(log, way is clearing)
    log.sync() if way is setting else None
    disk.failing_writes, disk.failing_writes_of = 1, HARD_STATE
    with pytest.raises(DiskError):
        log.tick(9000)
    assert log.failed is not None


@pytest.mark.covers("SF-4")
def test_a_vote_hears_of_the_failure_of_what_it_took_along(disk: SimDisk) -> None:
    """The kernel tells of a failure once: to the fsync that was under way, though the vote's pages were among those."""
    log, ticket = setting(disk)
    vote = log.begin_vote(7, "n@x")
    disk.failing_syncs, disk.failing_syncs_of = 1, HARD_STATE
    ticket.run()
    vote.run()
    with pytest.raises(DiskError):
        log.finish_vote(vote)
    assert log.load_vote() == (0, "")


@pytest.mark.covers("SF-4")
def test_settling_waits_for_the_vote_that_it_takes_along(disk: SimDisk) -> None:
    log, _ = open_(disk, Fsync.INTERVAL)
    owing(log)
    fill(log, 3)
    disk.crash(power=True)
    log, report = open_(disk, Fsync.INTERVAL, Stop.POWER)
    assert report.verdict is Verdict.DOUBTFUL
    vote = log.begin_vote(7, "n@x")
    disk.failing_syncs, disk.failing_syncs_of = 1, HARD_STATE
    vote.run()
    with pytest.raises(DiskError):
        log.settle()
    with pytest.raises(DiskError):
        log.finish_vote(vote)


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("way", [setting, clearing])
@pytest.mark.parametrize("is_run", [True, False])
def test_a_ticket_of_a_log_that_was_closed_says_nothing(is_run: bool, way: Any, seed: int) -> None:
    """Its thread is slow: by then another log confirms what is in memory only."""
    disk = SimDisk(random.Random(seed))
    log, ticket = way(disk)
    if is_run:
        ticket.run()
    log.close(clean=False)
    after, _ = open_(disk, Fsync.INTERVAL)
    for now_ms in (3000, 3001, 3002):
        fill(after, 1)
        after.tick(now_ms)
    fill(after, 3)
    assert after.persisted_index == after.last_index
    ticket.run()
    log.finish_sync(ticket)
    disk.crash(power=True)
    assert open_(disk, Fsync.ALWAYS, Stop.POWER)[1].verdict is Verdict.DOUBTFUL


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("way", [setting, clearing])
@pytest.mark.parametrize("is_run", [True, False])
def test_a_sync_takes_the_ticket_that_is_out(disk: SimDisk, is_run: bool, way: Any) -> None:
    log, ticket = way(disk)
    if is_run:
        ticket.run()
    fill(log, 1)
    log.sync()
    assert log.persisted_index == log.last_index
    assert owes(disk.durable(HARD)) is (way is setting)
    syncs = disk.syncs
    ticket.run()
    log.finish_sync(ticket)
    assert disk.syncs == syncs, "it was run, and heard of"


@pytest.mark.covers("SF-4")
def test_a_sync_waits_for_the_ticket_that_is_out_to_hear_how_it_went(disk: SimDisk) -> None:
    """The kernel tells of a failure once: to whom it was not told, its own fsync would succeed."""
    log, ticket = setting(disk)
    began, goes_on = Event(), Event()
    fsync = disk.sync

    def slow(inode: Any, path: str) -> None:
        began.set()
        assert goes_on.wait(30)
        disk.failing_syncs = 1
        fsync(inode, path)

    disk.sync = slow  # type: ignore[method-assign]
    thread = Thread(target=ticket.run)
    thread.start()
    assert began.wait(30)
    disk.sync = fsync  # type: ignore[method-assign]
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
    assert [str(failure) for failure in failures] == [str(ticket.error)]


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("seed", range(24))
def test_a_bit_that_a_killed_process_wrote_and_did_not_fsync_is_made_durable_before_it_is_believed(
    seed: int,
) -> None:
    disk = SimDisk(random.Random(seed))
    setting(disk)
    assert (owes(disk.read_file(HARD)), owes(disk.durable(HARD))) == (True, False)
    disk.crash()
    log, _ = open_(disk, Fsync.INTERVAL)
    assert owes(disk.durable(HARD))
    log.tick(0)
    fill(log, 3)
    assert log.persisted_index == 7
    disk.crash(power=True)
    assert open_(disk, Fsync.ALWAYS, Stop.POWER)[1].verdict is Verdict.DOUBTFUL


@pytest.mark.covers("SF-4")
def test_a_log_of_layout_2_owes_until_it_was_fsynced_once(disk: SimDisk) -> None:
    """It says nothing of that, so a power failure before it was opened makes it doubtful, and none after that."""
    log, _ = open_(disk, Fsync.ALWAYS)
    fill(log, 2)
    log.tick(0)
    log._hard_file.save(b"\x07" + bytes(8) + b"n@x", durable=True)  # Term 7, sound, and the vote.
    disk.write_file_durably("groups/g/each-synced", b"inc.1")
    disk.crash(power=True)
    image = disk.image()
    log, report = open_(disk, Fsync.ALWAYS, Stop.POWER)
    assert (report.verdict, log.load_vote()) == (Verdict.DOUBTFUL, (7, "n@x"))
    disk.crash()
    disk.put_back(image)
    log, report = open_(disk, Fsync.ALWAYS)
    assert (report.verdict, log.load_vote()) == (Verdict.DOUBTFUL, (7, "n@x")), "power failed before"
    assert not disk.exists("groups/g/each-synced")
    log.settle()
    log.tick(0)
    disk.crash(power=True)
    assert open_(disk, Fsync.ALWAYS, Stop.POWER)[1].verdict is Verdict.CLEAN


@pytest.mark.covers("SF-4", "RP-6")
@pytest.mark.parametrize("after", list(Fsync))
def test_what_a_failed_fsync_left_is_written_again_whatever_the_policy(disk: SimDisk, after: Fsync) -> None:
    """What it should have carried is in the page cache, clean: another fsync would have nothing to carry."""
    log, _ = open_(disk, Fsync.INTERVAL)
    fill(log, 3)
    disk.failing_syncs = 1
    with pytest.raises(DiskError, match="fsync"):
        log.sync()
    disk.crash()
    log, _ = open_(disk, after)
    fill(log, 1)
    log.tick(0)
    assert (log.last_index, log.persisted_index) == (4, 4)
    log.set_fsync(Fsync.ALWAYS)
    log.tick(0)
    disk.crash(power=True)
    log, report = open_(disk, Fsync.ALWAYS, Stop.POWER)
    assert (report.verdict, log.last_index) == (Verdict.CLEAN, 4)


@pytest.mark.covers("SF-4", "RP-6")
@pytest.mark.parametrize("policy", list(Fsync))
@pytest.mark.parametrize("owed", [True, False])
def test_a_clean_stop_leaves_nothing_owed(disk: SimDisk, policy: Fsync, owed: bool) -> None:
    log, _ = open_(disk, policy)
    if owed:
        owing(log)
    fill(log, 9)
    log.begin_vote(7, "n@x")
    log.close(clean=True)
    disk.crash(power=True)
    log, report = open_(disk, policy, Stop.POWER)
    assert (report.verdict, log.last_index, log.load_vote()) == (Verdict.CLEAN, 9, (7, "n@x"))


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


@pytest.mark.covers("SF-1", "SF-4", "RP-6")
@pytest.mark.parametrize("knows_boot", [True, False])
@pytest.mark.parametrize("seeds", [range(first, first + 100) for first in range(0, 600, 100)])
def test_a_log_that_counts_as_sound_has_all_that_it_ever_confirmed(seeds: range, knows_boot: bool) -> None:
    """Without a boot id every kill counts as a power failure."""
    verdicts = set()
    for seed in seeds:
        lives = Lives(seed)
        for _ in range(6):
            verdicts.add(lives.live(knows_boot=knows_boot))
    assert verdicts >= {Verdict.CLEAN, Verdict.DOUBTFUL}


class Lives:
    """Of one log, at random: its processes end by kills and power failures, in the middle of anything."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.disk = SimDisk(self.rng)
        self.policy = self.rng.choice(list(Fsync))
        self.log, _ = open_(self.disk, self.policy)
        self.confirmed = 0
        self.asked = self.answered = (0, "")
        self.now_ms = 0
        self.ticket: SyncTicket | None = None
        self.vote: HardTicket | None = None
        self.lived = 0

    def live(self, *, knows_boot: bool) -> Verdict:
        """One process, and what the next one finds."""
        rng, disk = self.rng, self.disk
        self.lived += 1
        self.ticket = self.vote = None
        disk.crash_after(rng.randrange(4, 60))
        try:
            while True:
                self.now_ms += rng.choice((10, rng.randrange(700), QUIET_MS))
                self.act(rng.random())
                assert self.log.persisted_index >= self.confirmed
                self.confirmed = self.log.persisted_index
                if self.lived % 2 and rng.random() < 0.1:
                    disk.failing_syncs, disk.failing_syncs_of = 1, rng.choice((".seg", HARD_STATE))
        except (CrashNow, DiskError):
            pass
        disk.failing_syncs, disk.failing_syncs_of = 0, ""
        # What is wanted may have changed meanwhile, or the map on the disk be an older one.
        self.policy = rng.choice((self.policy, *Fsync))
        power = rng.random() < 0.6
        disk.crash(power=power)
        self.log, report = open_(disk, self.policy, Stop.POWER if power or not knows_boot else Stop.KILLED)
        where = f"seed {self.seed}, life {self.lived}"
        assert self.log.load_vote() in (self.answered, self.asked), where
        self.answered = self.asked = self.log.load_vote()
        if report.verdict in SOUND:
            assert self.log.last_index >= self.confirmed, where
            self.confirmed = min(self.confirmed, self.log.persisted_index)
        else:
            self.log.settle()
            self.confirmed = 0
        return report.verdict

    def act(self, chance: float) -> None:
        """What is under way goes on at any time later."""
        rng, log = self.rng, self.log
        if chance < 0.35:
            fill(log, rng.randrange(1, 4))
        elif chance < 0.42 and log.last_index > log.persisted_index:
            log.truncate_after(max(log.persisted_index, log.commit_index))
        elif chance < 0.5:
            self.policy = rng.choice(list(Fsync))
            log.set_fsync(self.policy)
        elif chance < 0.55 and log.persisted_index > log.base_index:
            log.note_commit(log.persisted_index)
            log.save_checkpoint(log.persisted_index, b"state")
            log.drop_head(log.last_index + 1)
        elif chance < 0.57:
            log.sync()
        elif chance < 0.58:
            log.close(clean=True)
            raise DiskError("the process ends", "")
        elif chance < 0.68 and self.vote is None:
            self.asked = self.answered[0] + 1, "n@x"
            self.vote = log.begin_vote(*self.asked)
        elif chance < 0.73 and self.vote is not None:
            self.vote.run()
            log.finish_vote(self.vote)
            self.vote, self.answered = None, self.asked
            assert log.load_vote() == self.answered
        elif self.ticket is None:
            if log.sync_due(self.now_ms):
                self.ticket = log.begin_sync(self.now_ms)
        elif chance < 0.8:
            self.ticket.run()
        elif chance < 0.95:
            self.ticket.run()
            log.finish_sync(self.ticket)
            self.ticket = None


@pytest.mark.covers("RP-6")
@pytest.mark.parametrize(("stream", "waits"), [("interval", True), ("always", True), ("never", False)])
def test_a_broker_may_fsync_always_for_all_streams_that_do_not_ask_for_never(
    disk: SimDisk, stream: str, waits: bool
) -> None:
    store = VolumeStore(open_volume(disk, "boot", lambda: "inc"), LogOptions(fsync=Fsync.ALWAYS))
    log = store.open("g", memory=False, fsync=stream, create=True).log
    owing(log)
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
