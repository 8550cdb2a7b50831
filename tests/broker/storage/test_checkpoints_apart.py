"""Checkpoints on their way to the disk while the loop goes on: what counts when, and what becomes of those given up (SF-17)."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from tests.broker.storage.entries import batch, fill
from tests.broker.storage.lives import Stop, open_log
from tests.simulator.disk import CrashNow, SimDisk

from supercluster.broker.ports import Ticket
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.disk.ballast import BALLAST, Ballast
from supercluster.broker.storage.disk.space import Space
from supercluster.broker.storage.log.log import FileLog
from supercluster.broker.storage.log.options import LogOptions
from supercluster.broker.storage.recovery.recovery import Verdict

pytestmark = pytest.mark.covers("SF-17", "SF-29")
OLD, NEW = b"as of 2", [b"as ", b"of ", b"9"]
WHOLE = b"as of 9"
# Seven entries to a segment.
OPTIONS = LogOptions(segment_bytes=1000)


def opened(disk: SimDisk, stop: Stop = Stop.KILLED) -> FileLog:
    log, report = open_log(disk, "g", OPTIONS, stop)
    assert report.verdict is not Verdict.LOST_RECORD, report
    return log


def filled(disk: SimDisk) -> FileLog:
    """Nine entries, the second checkpoint of which is durable."""
    log = opened(disk)
    fill(log, 9)
    log.sync()
    log.note_commit(9)
    log.save_checkpoint(2, OLD)
    return log


def finish(log: FileLog, ticket: Ticket | None) -> int:
    """Until it counts. Returns how many tickets were run."""
    count = 0
    while ticket is not None:
        ticket.run()
        count += 1
        ticket = log.finish_checkpoint(ticket)
    return count


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(1))


def temporary(disk: SimDisk) -> list[str]:
    return [path for path in disk.paths() if path.endswith(".tmp")]


def test_one_counts_when_its_file_and_its_name_are_durable(disk: SimDisk) -> None:
    log = filled(disk)
    first = log.begin_checkpoint(9, NEW)
    assert log.load_checkpoint() == (2, OLD)
    first.run()
    assert log.load_checkpoint() == (2, OLD)
    second = log.finish_checkpoint(first)
    assert second is not None
    assert log.load_checkpoint() == (2, OLD)
    assert not log.can_drop_head(10)
    second.run()
    assert log.finish_checkpoint(second) is None
    assert log.load_checkpoint() == (9, WHOLE)
    disk.crash(power=True)
    assert opened(disk, Stop.POWER).load_checkpoint() == (9, WHOLE)


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_anywhere_on_the_way_leaves_the_one_before_or_the_new_one(power: bool) -> None:
    found: list[bytes] = []
    for step in range(40):
        disk = SimDisk(random.Random(step))
        log = filled(disk)
        disk.crash_after(step)
        try:
            finish(log, log.begin_checkpoint(9, NEW))
            log.drop_head(8)  # Nothing goes that the durable ones need.
            crashed = False
        except CrashNow:
            crashed = True
        disk.crash(power=power)
        log = opened(disk, Stop.POWER if power else Stop.KILLED)
        checkpoint = log.load_checkpoint()
        assert checkpoint in ((2, OLD), (9, WHOLE))
        assert log.entries(log.base_index + 1, 9, 1 << 20) == [
            batch(i) for i in range(log.base_index + 1, 10)
        ]
        assert not temporary(disk)
        found.append(checkpoint[1])
        if not crashed:
            break
    assert len(found) > 5
    assert set(found) == {OLD, WHOLE}
    assert not crashed


@pytest.mark.parametrize("when", ["begun", "written", "named"])
@pytest.mark.parametrize("how", ["dropped", "closed", "another", "at-once", "installed"])
def test_one_that_was_given_up_tells_nobody_anything(disk: SimDisk, how: str, when: str) -> None:
    log = filled(disk)
    ticket: Ticket | None = log.begin_checkpoint(9, NEW)
    assert ticket is not None
    if when != "begun":
        ticket.run()
    if when == "named":
        ticket = log.finish_checkpoint(ticket)
    assert ticket is not None
    if how == "dropped":
        log.drop_checkpoint()
    elif how == "closed":
        log.close(clean=True)
        log = opened(disk, Stop.KILLED)
    elif how == "another":
        finish(log, log.begin_checkpoint(8, [b"as of 8"]))
    elif how == "at-once":
        log.save_checkpoint(8, b"as of 8")
    else:
        log.install_base(20, 3, b"installed")
    expected = {"dropped": (2, OLD), "installed": (20, b"installed")}.get(how, (8, b"as of 8"))
    if how == "closed":
        # What has its name already is as good as any other.
        expected = (9, WHOLE) if when == "named" else (2, OLD)
    ticket.run()
    with pytest.raises(ValueError, match="given up"):
        log.finish_checkpoint(ticket)
    assert log.load_checkpoint() == expected
    disk.crash()
    assert not temporary(disk)


@pytest.mark.parametrize("fault", ["write", "sync", "name"])
def test_one_that_the_disk_refuses_leaves_the_one_before(disk: SimDisk, fault: str) -> None:
    log = filled(disk)
    ticket = log.begin_checkpoint(9, NEW)
    if fault == "write":
        disk.failing_writes = 1
    elif fault == "sync":
        disk.failing_syncs = 1
    else:
        disk.failing_names_of = ".ckpt"
    ticket.run()
    with pytest.raises(DiskError):
        log.finish_checkpoint(ticket)
    disk.failing_names_of = ""
    assert log.failed is None
    assert log.load_checkpoint() == (2, OLD)
    assert not temporary(disk)
    assert finish(log, log.begin_checkpoint(9, NEW)) == 2
    assert log.load_checkpoint() == (9, WHOLE)


@pytest.mark.covers("SF-18")
def test_the_ballast_is_given_up_for_one(disk: SimDisk) -> None:
    space = Space(disk, ballast=Ballast(disk, 16 * 1024))
    log, _ = open_log(disk, "g", LogOptions(segment_bytes=1000, space=space), Stop.KILLED)
    fill(log, 9)
    log.sync()
    log.note_commit(9)
    space.tick(0)
    disk.capacity_bytes = disk.used_bytes
    assert finish(log, log.begin_checkpoint(9, [b"x" * 5000])) > 2, "once or more in vain"
    assert log.load_checkpoint() == (9, b"x" * 5000)


@pytest.mark.covers("SF-18")
def test_entries_leave_half_of_the_ballast_for_the_checkpoint_that_frees_their_room(disk: SimDisk) -> None:
    space = Space(disk, ballast=Ballast(disk, 16 * 1024))
    log, _ = open_log(disk, "g", LogOptions(segment_bytes=1000, space=space), Stop.KILLED)
    fill(log, 9)
    log.sync()
    log.note_commit(9)
    log.frees_room = lambda entry: True
    space.tick(0)
    with suppress(DiskError):
        for _ in range(100):
            # What others write to the disk takes the rest of each piece.
            disk.capacity_bytes = disk.used_bytes
            fill(log, 1)
    assert disk.size(BALLAST) == 8 * 1024
    disk.capacity_bytes = disk.used_bytes
    assert finish(log, log.begin_checkpoint(9, [b"x" * 5000])) > 2
    disk.capacity_bytes = disk.used_bytes
    before = disk.used_bytes
    log.drop_head(10)
    assert disk.used_bytes < before - 1000, "the base's file had no room either"


def test_the_state_of_a_new_base_is_written_before_the_log_changes(disk: SimDisk) -> None:
    log = filled(disk)
    finish(log, log.begin_base(20, 3, [b"of ", b"20"]))
    assert (log.base_index, log.last_index, log.load_checkpoint()) == (0, 9, (2, OLD))
    syncs = disk.syncs
    log.install_base(20, 3, b"of 20")
    assert disk.syncs == syncs + 1, "of the base alone"
    assert (log.base_index, log.last_index, log.base_state()) == (20, 20, b"of 20")
    disk.crash(power=True)
    log = opened(disk, Stop.POWER)
    assert (log.base_index, log.base_state()) == (20, b"of 20")


def test_a_base_that_was_prepared_and_not_taken_is_gone_with_the_next_start(disk: SimDisk) -> None:
    log = filled(disk)
    finish(log, log.begin_base(20, 3, [b"of 20"]))
    disk.crash()
    log = opened(disk)
    assert (log.base_index, log.load_checkpoint()) == (0, (2, OLD))
    log.install_base(21, 3, b"of 21")
    assert log.load_checkpoint() == (21, b"of 21")
    assert sum(path.endswith(".ckpt") for path in disk.paths()) == 1
