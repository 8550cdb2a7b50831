"""The data directory knows who it is, how it was left, and which groups it had."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.broker.storage.entries import owing
from tests.simulator.disk import CrashNow, SimDisk

from supercluster.broker.process_count import next_count, numbers_from, starts_of
from supercluster.broker.raft.entry import EntryKind, make_entry
from supercluster.broker.raft.errors import DiskError, NewerFormatError
from supercluster.broker.storage.disk.os_disk import OsDisk, boot_id
from supercluster.broker.storage.disk.space import Space
from supercluster.broker.storage.log.options import LogOptions
from supercluster.broker.storage.volume import volume
from supercluster.broker.storage.volume.registry import REGISTRY
from supercluster.broker.storage.volume.store import HALTED, NOTE, VolumeStore
from supercluster.broker.storage.volume.volume import VOLUME, directory_name, open_volume

ENTRY = make_entry(index=1, term=1, kind=EntryKind.NOOP, time_ns=1)


def tokens() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"token{next(numbers)}"


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(7))


def open_store(
    disk: SimDisk, boot: str = "boot-1", new_token: Callable[[], str] = lambda: "inc"
) -> VolumeStore:
    return VolumeStore(open_volume(disk, boot, new_token), LogOptions(segment_bytes=4096))


@pytest.mark.covers("SF-4", "SF-10")
def test_a_volume_keeps_its_incarnation_and_counts_its_processes(disk: SimDisk) -> None:
    new_token = tokens()
    first = open_volume(disk, "boot-1", new_token)
    assert (first.is_new, first.identity.incarnation, starts_of(first.identity.process_count)) == (
        True,
        "token1",
        1,
    )
    disk.crash()
    second = open_volume(disk, "boot-1", new_token)
    assert (
        second.is_new,
        second.identity.incarnation,
        starts_of(second.identity.process_count),
        second.identity.power_failures,
    ) == (False, "token1", 2, first.identity.power_failures)
    disk.crash(power=True)
    third = open_volume(disk, "boot-2", new_token)
    assert (third.identity.incarnation, starts_of(third.identity.process_count)) == ("token1", 3)
    assert third.identity.power_failures == first.identity.power_failures + 1


@pytest.mark.covers("SF-10", "SF-27")
def test_a_volume_put_back_does_not_repeat_the_number_of_a_process(disk: SimDisk) -> None:
    new_token = tokens()
    open_volume(disk, "b", new_token).close()
    snapshot = disk.read_file(VOLUME)
    numbers = []
    for _ in range(3):
        disk.write_file_durably(VOLUME, snapshot)
        again = open_volume(disk, "b", new_token)
        assert (again.identity.incarnation, starts_of(again.identity.process_count)) == ("token1", 2)
        numbers.append(again.identity.process_count)
        again.close()
    assert len(set(numbers)) == 3


@pytest.mark.covers("SF-10")
def test_versions_that_count_starts_alone_go_on_from_a_higher_number(disk: SimDisk) -> None:
    """And this version from theirs: an upgrade, a way back and another upgrade repeat nothing, and each session is the newest."""
    assert starts_of(next_count(7, 0)) == 8
    here = next_count(7, 0xFFFF)
    before = here + 1  # The older version counts on by one.
    after = next_count(before, 0)
    assert 7 < here < before < after
    assert starts_of(after) > starts_of(here)
    assert numbers_from(after) < 1 << 64


def test_a_volume_of_another_super_cluster_is_refused_and_left_as_it_is(disk: SimDisk) -> None:
    first = open_volume(disk, "b", lambda: "inc")
    first.close()
    own = open_volume(disk, "b", lambda: "inc", "blue")
    assert own.identity.incarnation == "inc", "a volume without an owner gets one"
    own.close()
    before = disk.read_file(VOLUME)
    with pytest.raises(DiskError, match="identity blue, and this broker is of green"):
        open_volume(disk, "b", lambda: "other", "green")
    assert disk.read_file(VOLUME) == before
    assert open_volume(disk, "b", lambda: "other", "blue").identity.incarnation == "inc"


def test_a_volume_of_a_newer_layout_is_refused_and_left_as_it_is(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(volume, "LAYOUT", volume.LAYOUT + 1)
        open_volume(disk, "b", lambda: "inc").close()
    before = {path: disk.read_file(path) for path in disk.paths()}
    with pytest.raises(DiskError, match=r"volume\.json.* newer version"):
        open_volume(disk, "b", lambda: "other")
    assert {path: disk.read_file(path) for path in disk.paths()} == before


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("name", [VOLUME, REGISTRY])
def test_a_file_that_cannot_be_looked_for_is_not_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    real = OsDisk(tmp_path)
    open_volume(real, "b", lambda: "inc").close()
    lstat = os.lstat

    def failing(path: str, **more: object) -> os.stat_result:
        if str(path).endswith(name):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return lstat(path)

    with monkeypatch.context() as faulty:
        faulty.setattr(os, "lstat", failing)
        with pytest.raises(DiskError, match="cannot look for"):
            open_volume(real, "b", lambda: "other")
    again = open_volume(real, "b", lambda: "other")
    assert (again.is_new, again.identity.incarnation) == (False, "inc")


@pytest.mark.covers("SF-32")
@pytest.mark.parametrize("name", [VOLUME, REGISTRY])
def test_a_file_that_cannot_be_read_for_a_moment_makes_no_other_volume(disk: SimDisk, name: str) -> None:
    new_token = tokens()
    open_volume(disk, "b", new_token).registry.note("g", "n@token1")
    disk.crash()
    disk.failing_reads, disk.failing_reads_of = 1, name
    with pytest.raises(DiskError, match="cannot read"):
        open_volume(disk, "b", new_token)
    disk.crash()
    again = open_volume(disk, "b", new_token)
    assert (again.is_new, again.identity.incarnation) == (False, "token1")
    assert again.groups() == {"g": "n@token1"}


@pytest.mark.covers("SF-4")
def test_a_lost_directory_has_another_incarnation(disk: SimDisk) -> None:
    new_token = tokens()
    assert open_volume(disk, "b", new_token).identity.incarnation == "token1"
    disk.crash()
    disk.lose(VOLUME)
    again = open_volume(disk, "b", new_token)
    assert (again.is_new, again.identity.incarnation) == (True, "token3")


@pytest.mark.covers("SF-4")
def test_a_volume_that_forgot_its_groups_is_another_volume(disk: SimDisk) -> None:
    new_token = tokens()
    volume = open_volume(disk, "b", new_token)
    volume.registry.note("g", "n@token1")
    disk.crash()
    disk.lose(REGISTRY)
    again = open_volume(disk, "b", new_token)
    assert again.is_new
    assert again.identity.incarnation != "token1"
    assert again.groups() == {}


@pytest.mark.covers("SF-4")
def test_an_unreadable_identity_is_no_identity_and_is_kept_aside(disk: SimDisk) -> None:
    new_token = tokens()
    open_volume(disk, "b", new_token)
    disk.crash()
    disk.flip_bit(VOLUME, 8 * 40)
    again = open_volume(disk, "b", new_token)
    assert again.is_new
    assert again.identity.incarnation != "token1"
    assert disk.listdir("quarantine") != []


def test_a_directory_has_one_process_at_a_time(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    volume = open_volume(disk, boot_id(), lambda: "inc")
    with pytest.raises(DiskError, match="in use by another broker process"):
        open_volume(disk, boot_id(), lambda: "inc")
    volume.close()
    open_volume(disk, boot_id(), lambda: "inc").close()


@pytest.mark.covers("SF-4")
def test_registered_groups_survive_a_power_failure(disk: SimDisk) -> None:
    volume = open_volume(disk, "b", lambda: "inc")
    for number in range(200):
        volume.registry.note(f"g{number}", "n@inc")
    for number in range(0, 200, 2):
        volume.registry.note(f"g{number}", None)
    expected = {f"g{number}": "n@inc" for number in range(1, 200, 2)}
    disk.crash(power=True)
    volume = open_volume(disk, "b2", lambda: "inc")
    assert volume.groups() == expected
    disk.crash(power=True)
    assert open_volume(disk, "b3", lambda: "inc").groups() == expected, (
        "also after the journal was written anew"
    )


@pytest.mark.covers("SF-4", "SF-31")
def test_a_registry_with_a_damaged_line_is_answered_like_one_that_is_gone(disk: SimDisk) -> None:
    """D10: nobody knows which groups are missing. Nothing is removed, and a crash on the way changes nothing."""
    for step in range(20):
        new_token = tokens()
        disk = SimDisk(random.Random(step))
        volume = open_volume(disk, "b", new_token)
        volume.registry.note("g1", "n@inc")
        volume.registry.note("g2", "n@inc")
        disk.crash()
        disk.flip_bit(REGISTRY, 8 * 12)
        damaged = disk.read_file(REGISTRY)
        disk.crash_after(step)
        with suppress(CrashNow):
            open_volume(disk, "b", new_token)
        disk.crash(power=step % 2 == 0)
        again = open_volume(disk, "b", new_token)
        assert again.identity.incarnation != "token1"
        assert again.groups() == {}
        kept = [
            disk.read_file(path) for path in disk.paths() if path.startswith("quarantine/groups.journal.")
        ]
        assert damaged in kept


@pytest.mark.covers("SF-4")
def test_a_bit_that_turns_over_in_the_last_line_of_the_registry_is_no_line_cut_short() -> None:
    """A8: the group was forgotten, or had its member of before again, and nobody was told."""
    whole = b""
    for bit in range(8 * 40):
        new_token = tokens()
        disk = SimDisk(random.Random(bit))
        volume = open_volume(disk, "b", new_token)
        volume.registry.note("g1", "n@inc")
        volume.registry.note("g1", "n@inc2")
        disk.crash()
        whole = disk.read_file(REGISTRY)
        if bit < 8 * len(whole) // 2:
            disk.flip_bit(REGISTRY, 8 * len(whole) - 1 - bit)
        again = open_volume(disk, "b", new_token)
        assert again.groups() == ({} if again.is_new else {"g1": "n@inc2"}), bit
        again.registry.note("g2", "n@inc")
        disk.crash()
        assert open_volume(disk, "b", new_token).groups() == again.groups()
    assert len(whole) // 2 < 40, "all bits of the last line"


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("left", ["all", "a beginning", "an end"])
def test_a_line_of_the_registry_that_nobody_was_told_of_is_taken_or_left(disk: SimDisk, left: str) -> None:
    volume = open_volume(disk, "b", tokens())
    volume.registry.note("g1", "n@inc")
    size = len(disk.read_file(REGISTRY))
    volume.registry.note("g2", "n@inc")
    line = disk.read_file(REGISTRY)[size:]
    disk.crash()
    disk.cut(REGISTRY, size)
    torn = {"all": line, "a beginning": line[:-3], "an end": bytes(9) + line[9:]}[left]
    disk.open(REGISTRY).write(size, (torn,))
    groups = open_volume(disk, "b", tokens()).groups()
    assert groups == ({"g1": "n@inc", "g2": "n@inc"} if left == "all" else {"g1": "n@inc"})


def test_a_line_that_the_disk_refused_leaves_nothing_behind_a_shorter_one(disk: SimDisk) -> None:
    volume = open_volume(disk, "b", tokens())
    volume.registry.note("g1", "n@inc")
    disk.failing_writes, disk.failing_truncates = 1, 1
    with pytest.raises(DiskError):
        volume.registry.note("g" * 100, "n@inc")
    volume.registry.note("g2", "n@inc")
    disk.crash()
    assert open_volume(disk, "b", tokens()).groups() == {"g1": "n@inc", "g2": "n@inc"}


@pytest.mark.covers("SF-32")
def test_a_group_that_is_set_aside_is_lost_and_its_files_are_kept(disk: SimDisk) -> None:
    store = open_store(disk)
    opened = store.open("g", memory=False, fsync="always", create=True)
    store.register("g", "n@inc")
    opened.log.append([ENTRY])
    held = {path: disk.read_file(path) for path in disk.paths() if path.startswith("groups/g/")}
    where = store.set_aside("g")
    assert {path: disk.read_file(path.replace("groups/g", where)) for path in held} == held
    assert store.open("g", memory=False, fsync="always", create=False).lost
    disk.crash(power=True)
    assert {path: disk.read_file(path.replace("groups/g", where)) for path in held}.keys() == held.keys()


def test_group_names_become_distinct_plain_directory_names() -> None:
    names = ["$G/ORDERS", "$G/orders", "..", ".", "", "a/b", "a%2fb", "ü", "x" * 300, "x" * 301]
    found = [directory_name(name) for name in names]
    assert len(set(found)) == len(names)
    assert all("/" not in name and not name.startswith(".") and 0 < len(name) <= 128 for name in found)


@pytest.mark.covers("SF-4")
def test_an_emptied_group_directory_is_a_lost_copy(disk: SimDisk) -> None:
    store = open_store(disk)
    opened = store.open("g", memory=False, fsync="always", create=True)
    assert not opened.lost
    store.register("g", "n@inc")
    opened.log.append([ENTRY])
    disk.crash()
    disk.lose("groups/g")
    assert open_store(disk).open("g", memory=False, fsync="always", create=False).lost


@pytest.mark.covers("SF-4")
def test_a_memory_log_never_outlives_its_process(disk: SimDisk) -> None:
    store = open_store(disk)
    assert not store.open("m", memory=True, fsync="never", create=True).lost
    store.register("m", "n@inc")
    store.close(clean=True)
    assert open_store(disk).open("m", memory=True, fsync="never", create=False).lost


@pytest.mark.covers("SF-4")
def test_a_loss_is_reported_until_the_member_is_registered_anew(disk: SimDisk) -> None:
    store = open_store(disk)
    store.register("g", "n@inc")
    log = store.open("g", memory=False, fsync="interval", create=True).log
    log.append([ENTRY])
    log.note_commit(1)
    log.tick(0)
    disk.crash()
    disk.cut(next(path for path in disk.paths() if path.endswith(".seg")), 80)
    assert open_store(disk).open("g", memory=False, fsync="interval", create=False).lost
    disk.crash()
    store = open_store(disk)
    assert store.open("g", memory=False, fsync="interval", create=False).lost
    store.register("g", "n@inc.again")
    disk.crash()
    store = open_store(disk)
    assert store.registered() == {"g": "n@inc.again"}
    assert not store.open("g", memory=False, fsync="interval", create=False).lost


@pytest.mark.covers("SF-4", "RP-6")
@pytest.mark.parametrize(("fsync", "doubtful"), [("always", False), ("interval", True), ("never", True)])
def test_power_failure_makes_a_log_doubtful_unless_every_append_was_fsynced(
    disk: SimDisk, fsync: str, doubtful: bool
) -> None:
    store = open_store(disk)
    log = store.open("g", memory=False, fsync=fsync, create=True).log
    store.register("g", "n@inc")
    log.append([ENTRY])
    log.tick(0)
    log.append([make_entry(index=2, term=1, kind=EntryKind.NOOP, time_ns=2)])
    log.tick(1)
    disk.crash(power=True)
    for boot in ("boot-2", "boot-2"):
        # The second start is a plain one: doubt lasts until it is settled.
        opened = open_store(disk, boot).open("g", memory=False, fsync=fsync, create=False)
        assert (opened.doubtful, opened.lost) == (doubtful, False)
        disk.crash()
    open_store(disk, "boot-2").open("g", memory=False, fsync=fsync, create=False).log.settle()
    disk.crash()
    assert not open_store(disk, "boot-2").open("g", memory=False, fsync=fsync, create=False).doubtful


def test_a_clean_stop_leaves_no_doubt_whatever_the_policy(disk: SimDisk) -> None:
    store = open_store(disk)
    log = store.open("g", memory=False, fsync="never", create=True).log
    store.register("g", "n@inc")
    log.append([ENTRY])
    store.close(clean=True)
    disk.crash(power=True)
    opened = open_store(disk, "boot-2").open("g", memory=False, fsync="never", create=False)
    assert (opened.doubtful, opened.lost, opened.log.last_index) == (False, False, 1)


@pytest.mark.covers("SF-4", "RP-6")
def test_a_log_that_was_closed_as_it_was_asks_for_no_fsync_and_the_stop_is_not_clean(disk: SimDisk) -> None:
    store = open_store(disk)
    log = store.open("g", memory=False, fsync="interval", create=True).log
    store.register("g", "n@inc")
    log.append([ENTRY])
    for due in store.due_syncs(10_000):
        due.ticket.run()
        due.log.finish_sync(due.ticket)
    owing(log)
    log.append([make_entry(index=2, term=1, kind=EntryKind.NOOP, time_ns=2)])
    log.close(clean=False)
    assert store.due_syncs(20_000) == []
    store.close(clean=True)
    disk.crash(power=True)
    opened = open_store(disk, "boot-2").open("g", memory=False, fsync="interval", create=False)
    assert opened.doubtful, "entry 2 was confirmed and may be gone"


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_at_any_step_of_a_removal_leaves_all_of_a_copy_or_nothing(*, power: bool) -> None:
    """D15."""
    for step in range(100):
        disk = SimDisk(random.Random(step))
        store = open_store(disk)
        log = store.open("g", memory=False, fsync="always", create=True).log
        store.register("g", "n@inc")
        log.append([ENTRY])
        log.close(clean=True)
        disk.crash_after(step)
        try:
            store.destroy("g")
        except CrashNow:
            is_over = False
        else:
            is_over = True
        disk.crash(power=power)
        store = open_store(disk)
        if disk.exists("groups/g"):
            opened = store.open("g", memory=False, fsync="always", create=False)
            assert (opened.lost, opened.log.entry(1)) == (False, ENTRY)
            store.destroy("g")
        assert [path for path in disk.paths() if path.startswith("groups/")] == []
        if is_over:
            return
    raise AssertionError("there are more steps than this goes through")


def test_a_copy_that_cannot_be_opened_can_be_removed(disk: SimDisk) -> None:
    store = open_store(disk)
    opened = store.open("g", memory=False, fsync="interval", create=True)
    store.register("g", "n@inc")
    opened.log.append([ENTRY])
    disk.crash()
    disk.lose("groups/g/hard")
    file = disk.open(next(path for path in disk.paths() if path.endswith(".seg")))
    file.write(8, (b"\xff\0\0\0" + bytes(4),))  # A version that is not known, with a checksum of its own.
    store = open_store(disk)
    with pytest.raises(NewerFormatError):
        store.open("g", memory=False, fsync="interval", create=False)
    store.destroy("g")
    assert [path for path in disk.paths() if path.startswith("groups/")] == []


@pytest.mark.parametrize("data", [b"", b"nothing", b'0badcafe {"lineage": "m", "groups": []}', None])
def test_a_note_that_cannot_be_read_is_told_from_none(disk: SimDisk, data: bytes | None) -> None:
    """D14."""
    store = open_store(disk)
    assert store.note() == b""
    store.put_note(b'{"lineage": "m"}')
    assert store.note() == b'{"lineage": "m"}'
    disk.write_file_durably(NOTE, b'{"lineage": "older"}')
    assert store.note() == b'{"lineage": "older"}'
    if data is None:
        disk.failing_reads = 1
    else:
        disk.write_file_durably(NOTE, data)
    assert store.note() is None


def test_a_descriptor_that_cannot_be_closed_is_a_disk_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D14: a bare OSError would end the process."""
    file = OsDisk(tmp_path).open("f", create=True)
    close = os.close

    def failing(fd: int) -> None:
        close(fd)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as faulty:
        faulty.setattr(os, "close", failing)
        with pytest.raises(DiskError, match="cannot close"):
            file.close()
    file.close()


def test_a_removed_group_leaves_no_files_and_no_memory(disk: SimDisk) -> None:
    store = open_store(disk)
    opened = store.open("g", memory=False, fsync="interval", create=True)
    store.register("g", "n@inc")
    opened.log.append([ENTRY])
    opened.log.destroy()
    store.forget("g")
    assert [path for path in disk.paths() if path.startswith("groups/")] == []
    assert open_reopened(disk, store) == {}


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("clean", [False, True])
def test_a_log_that_a_process_never_came_to_is_judged_by_the_power_failure_before_it(
    disk: SimDisk, clean: bool
) -> None:
    """It ended before it knew the group again: that is no word on what the power failure took."""
    log = open_store(disk).open("g", memory=False, fsync="interval", create=True).log
    owing(log)
    log.append([ENTRY])
    disk.crash(power=True)
    between = open_store(disk, "boot-2")
    if clean:
        between.close(clean=True)
    else:
        disk.crash()
    third = open_store(disk, "boot-2")
    assert third.open("g", memory=False, fsync="interval", create=False).doubtful
    other = third.open("other", memory=False, fsync="interval", create=True)
    assert not other.doubtful, "it is new"
    other.log.append([ENTRY])
    disk.crash()
    fourth = open_store(disk, "boot-2")
    assert fourth.open("g", memory=False, fsync="interval", create=False).doubtful, "nobody settled it"
    assert not fourth.open("other", memory=False, fsync="interval", create=False).doubtful


def open_reopened(disk: SimDisk, store: VolumeStore) -> dict[str, str]:
    store.close(clean=True)
    return open_store(disk).registered()


@pytest.mark.covers("RP-6")
def test_tickets_of_due_logs_run_apart_and_count_when_they_are_finished(disk: SimDisk) -> None:
    volume = open_volume(disk, "b", lambda: "inc")
    store = VolumeStore(volume, LogOptions(sync_in_tick=False))
    always = store.open("a", memory=False, fsync="always", create=True).log
    interval = store.open("i", memory=False, fsync="interval", create=True).log
    never = store.open("n", memory=False, fsync="never", create=True).log
    for log in (always, interval, never):
        if log is not always:
            owing(log)
        log.append([ENTRY])
        log.tick(0)
    assert (always.persisted_index, interval.persisted_index, never.persisted_index) == (0, 1, 1)
    due = store.due_syncs(0)
    assert [each.group for each in due] == ["a"]
    assert store.due_syncs(0) == [], "one ticket at a time"
    due[0].ticket.run()
    assert always.persisted_index == 0
    due[0].log.finish_sync(due[0].ticket)
    assert always.persisted_index == 1
    assert [each.group for each in store.due_syncs(1000)] == ["i"]


@pytest.mark.covers("RP-6")
def test_what_is_appended_while_a_ticket_is_out_gets_the_next_one(disk: SimDisk) -> None:
    store = VolumeStore(open_volume(disk, "b", lambda: "inc"), LogOptions(sync_in_tick=False))
    log = store.open("a", memory=False, fsync="always", create=True).log
    log.append([ENTRY])
    (first,) = store.due_syncs(0)
    log.append([make_entry(index=2, term=1, kind=EntryKind.NOOP, time_ns=2)])
    assert store.due_syncs(0) == []
    first.ticket.run()
    first.log.finish_sync(first.ticket)
    assert log.persisted_index == 1
    (second,) = store.due_syncs(0)
    second.ticket.run()
    second.log.finish_sync(second.ticket)
    assert log.persisted_index == 2
    assert store.due_syncs(10_000) == []


def test_a_group_that_is_opened_again_leaves_no_file_open(disk: SimDisk) -> None:
    store = open_store(disk)
    first = store.open("S", memory=False, fsync="interval", create=True)
    store.register("S", "n@1")
    again = store.open("S", memory=False, fsync="interval", create=False)
    assert not again.lost
    with pytest.raises(DiskError, match="the log is closed"):
        first.log.save_vote(1, "n@1")
    again.log.save_vote(1, "n@1")
    assert again.log.load_vote() == (1, "n@1")


@pytest.mark.covers("RP-6", "SF-4")
def test_what_a_log_wrote_before_it_was_opened_again_in_the_same_process_is_not_taken_for_durable() -> None:
    """However the process before had stopped: that says nothing of what this one wrote."""
    for seed in range(20):
        disk = SimDisk(random.Random(seed))
        open_store(disk).close(clean=True)
        store = open_store(disk)
        first = store.open("S", memory=False, fsync="always", create=True).log
        store.register("S", "n@1")
        first.append([ENTRY])
        assert first.persisted_index == 0
        again = store.open("S", memory=False, fsync="always", create=False).log
        assert again.persisted_index == again.last_index == 1, "opening made it durable"
        disk.crash(power=True)
        kept = open_store(disk, "boot-2").open("S", memory=False, fsync="always", create=False)
        assert (kept.log.last_index, kept.lost, kept.doubtful) == (1, False, False), seed


@pytest.mark.covers("SF-18")
@pytest.mark.parametrize("memory", [False, True])
def test_a_group_that_is_opened_again_is_counted_once(disk: SimDisk, *, memory: bool) -> None:
    space = Space(disk, capacity_bytes=1 << 20)
    store = VolumeStore(
        open_volume(disk, "b", lambda: "inc"), LogOptions(), file_space=space, memory_space=space
    )
    for _ in range(3):
        opened = store.open("S", memory=memory, fsync="interval", create=True)
        store.register("S", "n@1")
        opened.log.append(
            [make_entry(index=opened.log.last_index + 1, term=1, kind=EntryKind.NOOP, time_ns=2)]
        )
        assert space.used_bytes == opened.log.bytes_on_disk()
    opened.log.close(clean=False)
    store.open("S", memory=False, fsync="interval", create=False).log.destroy()
    assert space.used_bytes == 0


@pytest.mark.covers("SF-9")
def test_a_group_of_a_new_lineage_has_the_files_of_the_one_before_and_power_failures_change_nothing(
    disk: SimDisk,
) -> None:
    store = open_store(disk)
    opened = store.open("g", memory=False, fsync="always", create=True)
    store.register("g", "n@inc")
    opened.log.append([make_entry(index=1, term=1, kind=EntryKind.BATCH, time_ns=1, payload=b"x")])
    opened.log.close(clean=True)
    store.register("g~1", "n@inc.t", home="g")
    store.forget("g")
    disk.crash(power=True)
    again = open_store(disk)
    assert again.registered() == {"g~1": "n@inc.t"}
    assert again.directory_of("g~1") == again.directory_of("g")
    found = again.open("g~1", memory=False, fsync="always", create=False)
    assert (found.lost, found.log.last_index) == (False, 1)
    again.register("g~1", "n@inc.u")
    assert again.directory_of("g~1") == again.directory_of("g"), "another identity has the same files"
    again.forget("g~1")
    assert again.directory_of("g~1") != again.directory_of("g")


@pytest.mark.covers("SF-9")
def test_the_end_of_a_copy_is_in_its_file_whole_or_not_at_all(disk: SimDisk) -> None:
    store = open_store(disk)
    assert not store.has_tail("g", 7, 2)

    def torn() -> Iterator[bytes]:
        yield b"one"
        raise DiskError("cannot be read", "g")

    with pytest.raises(DiskError):
        store.keep_tail("g", 7, 2, b"head", torn())
    assert not store.has_tail("g", 7, 2)
    path = store.keep_tail("g", 7, 2, b"head", iter([b"one", b"two"]))
    disk.crash(power=True)
    store = open_store(disk)
    assert store.has_tail("g", 7, 2)
    assert not store.has_tail("g", 7, 3)
    assert store.keep_tail("g", 7, 3, b"head", iter([b"three"])) != path, "another end is kept beside it"
    assert disk.read_file(path) == b"headonetwo"


@pytest.mark.covers("SF-4")
def test_what_a_process_has_judged_it_does_not_doubt_when_it_opens_it_again(disk: SimDisk) -> None:
    before = open_store(disk, "boot-1")
    for group in ("sure", "unsure"):
        opened = before.open(
            group, memory=False, fsync="always" if group == "sure" else "interval", create=True
        )
        before.register(group, "n@1")
        if group == "unsure":
            owing(opened.log)
        opened.log.append([ENTRY])
    disk.crash()
    store = open_store(disk, "boot-2")
    new = store.open("new", memory=False, fsync="interval", create=True)
    store.register("new", "n@1")
    new.log.append([ENTRY])
    assert store.open("unsure", memory=False, fsync="interval", create=False).doubtful
    for _ in range(2):
        assert not store.open("new", memory=False, fsync="interval", create=False).doubtful
        assert store.open("unsure", memory=False, fsync="interval", create=False).doubtful, (
            "nobody settled it"
        )
    store.register("unsure", "n@2")
    assert not store.open("unsure", memory=False, fsync="interval", create=False).doubtful


@pytest.mark.covers("SF-27")
@pytest.mark.parametrize("dies_after", [None, *range(14)])
def test_a_volume_that_was_put_back_comes_with_other_names_whenever_its_next_start_dies(
    disk: SimDisk, dies_after: int | None
) -> None:
    new_token = tokens()
    store = open_store(disk, new_token=new_token)
    for group in ("one", "two"):
        store.open(group, memory=False, fsync="always", create=True).log.append((ENTRY,))
        store.register(group, f"n1@{store.incarnation}")
    before = store.incarnation
    store.renew()
    store.close(clean=True)
    disk.crash_after(dies_after)
    with suppress(CrashNow):
        open_store(disk, new_token=new_token)
    disk.crash()
    again = open_store(disk, new_token=new_token)
    assert again.incarnation != before
    assert again.registered() == dict.fromkeys(("one", "two"), f"n1@{again.incarnation}")
    assert again.open("one", memory=False, fsync="always", create=False).log.last_index == 1
    incarnation = again.incarnation
    disk.crash()
    assert open_store(disk, new_token=new_token).incarnation == incarnation, "it is another one once"


def test_a_new_group_costs_three_fsyncs_of_files_and_three_of_folders(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A9: four of each. Nothing depends on the notes of a group in which nothing was committed."""
    store = open_store(disk)
    counted = {"files": 0, "folders": 0}
    fsync_dir, sync = SimDisk.fsync_dir, SimDisk.sync

    def folders(self: SimDisk, path: str) -> None:
        counted["folders"] += 1
        fsync_dir(self, path)

    def files(self: SimDisk, *args: Any) -> None:
        counted["files"] += 1
        sync(self, *args)

    monkeypatch.setattr(SimDisk, "fsync_dir", folders)
    monkeypatch.setattr(SimDisk, "sync", files)
    opened = store.open("g", memory=False, fsync="interval", create=True)
    opened.log.save_checkpoint(0, b"first")
    store.register("g", "n@inc")
    assert counted == {"files": 3, "folders": 3}
    disk.crash(power=True)
    assert (
        open_store(disk).open("g", memory=False, fsync="interval", create=False).log.base_state() == b"first"
    )


@pytest.mark.covers("SF-34")
def test_that_a_copy_halted_is_known_as_long_as_its_files_are_there(disk: SimDisk) -> None:
    store = open_store(disk)
    for group in ("one", "two"):
        assert store.open(group, memory=False, fsync="always", create=True).log.last_index == 0
        store.register(group, "n1@inc")
    store.open("memory", memory=True, fsync="always", create=True)
    store.register("memory", "n1@inc")
    for group in ("one", "memory"):
        assert not store.is_halted(group)
        store.halt(group)
    disk.crash(power=True)
    store = open_store(disk)
    assert [store.is_halted(group) for group in ("one", "two", "memory", "other")] == [
        True,
        False,
        False,
        False,
    ]
    opened = store.open("one", memory=False, fsync="always", create=False)
    assert not opened.lost
    opened.log.append([ENTRY])
    assert store.is_halted("one"), "an opening leaves it"
    opened.log.destroy()
    store.forget("one")
    store.open("one", memory=False, fsync="always", create=True)
    store.register("one", "n1@inc.2")
    assert not store.is_halted("one"), "it was the other copy's"


@pytest.mark.covers("SF-34", "SF-9")
def test_a_halted_copy_that_was_chosen_for_a_new_lineage_is_halted_no_more(disk: SimDisk) -> None:
    store = open_store(disk)
    store.open("old", memory=False, fsync="always", create=True)
    store.register("old", "n1@inc")
    store.halt("old")
    store.register("new", "n1@inc.2", home="old")
    store.forget("old")
    assert not store.is_halted("new")
    assert not disk.exists(f"{store.directory_of('new')}/{HALTED}")
