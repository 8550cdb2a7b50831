"""A log keeps what it was given, forgets what it is told to forget, and says the same after it was opened again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from tests.broker.storage.entries import owing
from tests.broker.storage.lives import Stop, open_log

from supercluster.broker.ports import StreamLog
from supercluster.broker.raft.entry import Entry, EntryKind, make_entry
from supercluster.broker.storage.disk.disk import File
from supercluster.broker.storage.disk.os_disk import OsDisk
from supercluster.broker.storage.log.log import FileLog
from supercluster.broker.storage.log.memory_log import MemoryLog
from supercluster.broker.storage.log.options import LogOptions
from supercluster.broker.storage.recovery.recovery import Recovery, Verdict

SMALL = LogOptions(segment_bytes=600, cache_bytes=300)


def entry(index: int, term: int = 1, *, seq: int = 0, count: int = 0, size: int = 20) -> Entry:
    kind = EntryKind.BATCH if count else EntryKind.NOOP
    payload = bytes([index % 251]) * size
    return make_entry(
        index=index, term=term, kind=kind, time_ns=index, first_seq=seq, count=count, payload=payload
    )


def batches(first: int, last: int, term: int = 1) -> list[Entry]:
    """Entries of two messages each, sequences 2 * index - 1 and 2 * index."""
    return [entry(index, term, seq=2 * index - 1, count=2) for index in range(first, last + 1)]


def reopen(disk: OsDisk, options: LogOptions = SMALL, stop: Stop = Stop.KILLED) -> tuple[FileLog, Recovery]:
    return open_log(disk, "groups/g", options, stop)


@pytest.fixture
def disk(tmp_path: Path) -> OsDisk:
    return OsDisk(tmp_path)


@pytest.fixture(params=["file", "memory"])
def log(request: pytest.FixtureRequest, disk: OsDisk) -> StreamLog:
    if request.param == "memory":
        return MemoryLog(SMALL)
    log = reopen(disk)[0]
    owing(log)
    return log


@pytest.mark.covers("RP-4")
def test_entries_are_read_back_across_segments_and_the_cache(log: StreamLog) -> None:
    written = batches(1, 40)
    for each in written:
        log.append([each])
    assert (log.last_index, log.last_term, log.persisted_index) == (40, 1, 40)
    assert log.entries(1, 40, 1 << 20) == written
    assert log.entries(7, 9, 1 << 20) == written[6:9]
    assert log.entries(38, 99, 1 << 20) == written[37:]
    assert log.entry(17) == written[16]
    assert log.entry(41) is None
    assert [log.index_of_seq(seq) for seq in (0, 1, 2, 39, 80, 81)] == [None, 1, 1, 20, 40, None]


def test_a_read_ends_before_its_limit_but_gives_at_least_one(log: StreamLog) -> None:
    log.append(batches(1, 40))
    size = len(batches(1, 1)[0].record)
    assert [e.index for e in log.entries(3, 40, size * 4)] == [3, 4, 5, 6]
    assert [e.index for e in log.entries(3, 40, size * 4 + size - 1)] == [3, 4, 5, 6]
    assert [e.index for e in log.entries(3, 40, 1)] == [3]


class Counted(OsDisk):
    """Counts the bytes that are read from its files."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read_bytes = 0

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        pread = file.pread

        def counted(offset: int, size: int) -> bytes:
            data = pread(offset, size)
            self.read_bytes += len(data)
            return data

        return cast("File", _Reading(file, counted))


class _Reading:
    def __init__(self, file: File, pread: Callable[[int, int], bytes]) -> None:
        self._file = file
        self.pread = pread

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


@pytest.mark.covers("RP-7")
def test_a_read_back_reads_nothing_that_it_does_not_hand_out(tmp_path: Path) -> None:
    disk = Counted(tmp_path)
    log, _ = reopen(disk, LogOptions(cache_bytes=0))
    log.append([entry(index, seq=index, count=1, size=10_000) for index in range(1, 41)])
    disk.read_bytes = handed_out = 0
    index = 1
    while index <= 40:
        found = log.entries(index, 40, 25_000)
        handed_out += sum(len(each.record) for each in found)
        index = found[-1].index + 1
    assert disk.read_bytes == handed_out


@pytest.mark.covers("RP-2")
def test_a_conflicting_tail_is_dropped_across_segments(log: StreamLog) -> None:
    for each in batches(1, 40):
        log.append([each])
    log.truncate_after(12)
    assert (log.last_index, log.term(12), log.term(13)) == (12, 1, None)
    assert log.index_of_seq(25) is None
    log.append(batches(13, 15, term=3))
    assert [log.term(index) for index in (12, 13, 15)] == [1, 3, 3]
    assert log.entries(11, 15, 1 << 20) == batches(11, 12) + batches(13, 15, term=3)


def test_a_gap_is_refused(log: StreamLog) -> None:
    log.append(batches(1, 2))
    with pytest.raises(ValueError, match="leaves a gap"):
        log.append(batches(4, 4))


def test_committed_entries_are_never_truncated(log: StreamLog) -> None:
    log.append(batches(1, 10))
    log.note_commit(8)
    with pytest.raises(ValueError, match="8 is committed"):
        log.truncate_after(7)


def test_the_head_is_dropped_up_to_a_checkpoint_whose_state_stays(log: StreamLog) -> None:
    for each in batches(1, 40):
        log.append([each])
        if log.checkpoint_at(each.index):
            log.save_checkpoint(each.index, b"state at %d" % each.index)
        log.note_commit(each.index)
    base = log.drop_head(25)
    assert 0 < base < 25
    assert log.base_index == base
    assert log.base_state() == b"state at %d" % base
    assert log.entry(base) is None
    assert log.index_of_seq(2 * base) is None
    assert log.term(base) == 1
    assert log.entries(base + 1, 40, 1 << 20) == batches(base + 1, 40)
    assert log.drop_head(25) == base


def test_an_installed_base_replaces_everything(log: StreamLog) -> None:
    log.append(batches(1, 30))
    log.save_vote(4, "b@x")
    log.install_base(100, 3, b"snapshot")
    assert (log.base_index, log.base_term, log.last_index, log.last_term) == (100, 3, 100, 3)
    assert log.base_state() == b"snapshot"
    assert log.load_checkpoint() == (100, b"snapshot")
    assert log.load_vote() == (4, "b@x")
    assert log.entries(1, 200, 1 << 20) == []
    log.append(batches(101, 110, term=4))
    assert log.entries(101, 110, 1 << 20) == batches(101, 110, term=4)
    assert log.index_of_seq(202) == 101


@pytest.mark.covers("RP-4", "SF-4")
@pytest.mark.parametrize("clean", [True, False])
def test_a_log_says_the_same_after_it_was_opened_again(disk: OsDisk, clean: bool) -> None:
    log, report = reopen(disk)
    assert report.is_new
    written = [*batches(1, 20), entry(21, 2), *batches(22, 40, term=2)]
    for each in written:
        log.append([each])
    log.save_vote(7, "node@abc")
    log.save_checkpoint(33, b"state")
    log.note_commit(35)
    log.tick(0)
    log.close(clean=clean)
    log, report = reopen(disk)
    assert (report.verdict, report.is_new, report.last_index, report.commit_index) == (
        Verdict.CLEAN,
        False,
        40,
        35,
    )
    assert log.load_vote() == (7, "node@abc")
    assert log.load_checkpoint() == (33, b"state")
    assert log.entries(1, 40, 1 << 20) == written
    assert [log.term(index) for index in (0, 20, 21, 40)] == [0, 1, 2, 2]
    assert [log.index_of_seq(seq) for seq in (1, 40, 41, 43, 80)] == [1, 20, None, 22, 40]
    log.append(batches(41, 44, term=2))
    assert log.entries(38, 44, 1 << 20) == batches(38, 44, term=2)


@pytest.mark.covers("SF-4", "RP-6")
def test_a_membership_is_synced_at_once_whatever_the_policy(disk: OsDisk) -> None:
    log, _ = reopen(disk)
    log.append(batches(1, 2))
    ticket = log.begin_sync(0)
    assert ticket is not None, "two batches wait for their interval"
    config = make_entry(index=3, term=1, kind=EntryKind.CONFIG, time_ns=0, payload=b"members")
    log.append([config])
    ticket.run()
    log.finish_sync(ticket)
    assert log.persisted_index == 2, "the ticket was from before it"
    assert log.sync_due(1)
    ticket = log.begin_sync(1)
    assert ticket is not None
    ticket.run()
    log.finish_sync(ticket)
    log.append(batches(4, 4))
    assert log.persisted_index == 4
    assert not log.sync_due(2)
    log.close(clean=False)


@pytest.mark.covers("MV-13")
def test_what_the_entries_behind_one_take_is_known_whatever_their_sizes(log: StreamLog) -> None:
    sizes = [5, 400, 30, 900, 7, 7, 7, 120, 2000, 1, 64, 3]
    written = [entry(index, seq=index, count=1, size=size) for index, size in enumerate(sizes, 1)]
    for each in written:
        log.append([each])

    def held() -> list[int]:
        reach = range(log.base_index, log.last_index + 1)
        return [sum(len(each.record) for each in written[index : log.last_index]) for index in reach]

    def told() -> list[int]:
        return [log.bytes_behind(index) for index in range(log.base_index, log.last_index + 1)]

    assert told() == held()
    assert log.bytes_behind(99) == 0
    log.truncate_after(10)
    assert told() == held()
    log.append([entry(11, 2, size=50)])
    written[10:] = [entry(11, 2, size=50)]
    assert told() == held()
    log.note_commit(8)
    log.save_checkpoint(4, b"state")
    assert log.drop_head(5) == log.base_index > 0
    assert told() == held()
    assert log.bytes_behind(0) == told()[0], "what is before the base is no entry any more"


def test_what_entries_take_is_known_without_reading_the_log_again(disk: OsDisk) -> None:
    log = reopen(disk)[0]
    written = batches(1, 40)
    for each in written:
        log.append([each])
    log.note_commit(40)
    log.sync()
    log.close(clean=True)
    log = reopen(disk, stop=Stop.KILLED)[0]
    opened = disk.open
    disk.open = lambda *args, **kwargs: pytest.fail("nothing is to be read")  # type: ignore[method-assign]
    told = [log.bytes_behind(index) for index in (0, 7, 39, 40)]
    disk.open = opened  # type: ignore[method-assign]
    size = len(written[0].record)
    assert told == [40 * size, 33 * size, size, 0]
