"""Term and vote on their way to the disk, while the loop goes on: what counts, and when (SF-4)."""

from __future__ import annotations

import random

import pytest
from tests.broker.storage.lives import Stop, open_log
from tests.simulator.disk import CrashNow, SimDisk

from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.log.log import FileLog
from supercluster.broker.storage.log.options import Integrity, LogOptions
from supercluster.broker.storage.log.slot_file import SlotFile
from supercluster.broker.storage.recovery.recovery import Verdict

pytestmark = pytest.mark.covers("SF-4")
OLD, NEW = (1, "first@x"), (2, "second@x")


def opened(disk: SimDisk, stop: Stop = Stop.KILLED) -> FileLog:
    log, report = open_log(disk, "g", LogOptions(), stop)
    assert report.verdict is not Verdict.LOST_RECORD
    return log


def voted(seed: int = 0) -> tuple[SimDisk, FileLog]:
    disk = SimDisk(random.Random(seed))
    log = opened(disk)
    log.save_vote(*OLD)
    return disk, log


def test_a_vote_counts_when_its_fsync_is_through_and_heard_of() -> None:
    _, log = voted()
    ticket = log.begin_vote(*NEW)
    assert log.load_vote() == OLD
    ticket.run()
    assert log.load_vote() == OLD
    log.finish_vote(ticket)
    assert log.load_vote() == NEW


def test_a_power_failure_on_the_way_leaves_the_one_before_or_itself() -> None:
    outcomes = set()
    for seed in range(60):
        disk, log = voted(seed)
        ticket = log.begin_vote(*NEW)
        if seed % 3 == 0:
            ticket.run()
        disk.crash(power=True)
        outcomes.add((seed % 3 == 0, opened(disk, Stop.POWER).load_vote()))
    assert outcomes == {(True, NEW), (False, OLD), (False, NEW)}


def test_what_becomes_durable_meanwhile_takes_the_vote_along() -> None:
    disk = SimDisk(random.Random(1))
    log = opened(disk)
    log._save_hard(term=1, vote="first@x", integrity=Integrity.DOUBTFUL)
    ticket = log.begin_vote(*NEW)
    log.settle()
    assert log.load_vote() == NEW
    ticket.run()
    log.finish_vote(ticket)
    disk.crash(power=True)
    assert opened(disk, Stop.KILLED).load_vote() == NEW


def test_of_two_on_their_way_the_newer_counts() -> None:
    disk, log = voted()
    first, second = log.begin_vote(*NEW), log.begin_vote(3, "third@x")
    first.run()
    log.finish_vote(first)
    assert log.load_vote() == OLD
    second.run()
    log.finish_vote(second)
    disk.crash(power=True)
    assert opened(disk, Stop.POWER).load_vote() == (3, "third@x")


def test_a_failed_fsync_ends_the_log() -> None:
    disk, log = voted()
    ticket = log.begin_vote(*NEW)
    disk.failing_syncs = 1
    ticket.run()
    with pytest.raises(DiskError):
        log.finish_vote(ticket)
    assert log.load_vote() == OLD
    with pytest.raises(DiskError, match="refuses all operations"):
        log.begin_vote(3, "third@x")


def test_a_log_that_was_closed_meanwhile_hears_nothing_more() -> None:
    _, log = voted()
    ticket = log.begin_vote(*NEW)
    log.close(clean=False)
    ticket.run()
    log.finish_vote(ticket)
    assert log.load_vote() == OLD


def test_no_sequence_of_kills_and_power_failures_takes_a_vote_back() -> None:
    """A vote that a killed process did not fsync reads well, though the disk has the one before it at best."""
    for seed in range(400):
        rng = random.Random(seed)
        disk = SimDisk(rng)
        slots = SlotFile.create(disk, "slots", b"0")
        asked = answered = 0
        for life in range(8):
            disk.crash_after(rng.randrange(1, 12))
            try:
                while True:
                    asked += 1
                    slots.save(b"%d" % asked, durable=True)
                    answered = asked
            except CrashNow:
                disk.crash(power=rng.random() < 0.4)
            loaded = SlotFile.load(disk, "slots", durable=True)
            assert loaded is not None
            slots = loaded
            assert answered <= int(slots.value) <= asked, f"seed {seed}, life {life}"
            answered = int(slots.value)
