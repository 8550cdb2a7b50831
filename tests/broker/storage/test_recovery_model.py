"""Random lives of a log on the simulated disk, against a model: what must be there is there, and nothing else ever is.

After a kill all that was written is there. After a power failure all that was fsynced is, and what is there beyond it
is a beginning of what was written. A reader never gets a record that was not appended at that index, and a log that
misses something says so (SF-4).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.storage.lives import Stop, open_log
from tests.simulator.disk import CrashNow, SimDisk
from tests.support.tiers import examples

from supercluster.broker.raft.entry import Entry, EntryKind, make_entry
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.disk.os_disk import OsDisk
from supercluster.broker.storage.log.log import FileLog
from supercluster.broker.storage.log.options import Fsync, LogOptions
from supercluster.broker.storage.recovery.recovery import Recovery, Verdict

_DIRECTORY = "groups/g"


@dataclass
class Model:
    """What the log was told, and what of it must outlive which fault."""

    entries: dict[int, Entry] = field(default_factory=dict)
    ever: set[bytes] = field(default_factory=set)
    last: int = 0
    commit: int = 0
    durable: int = 0
    base: int = 0
    vote: tuple[int, str] = (0, "")
    vote_asked: tuple[int, str] = (0, "")
    term: int = 1
    next_seq: int = 1
    time_ms: int = 0
    checkpoints: dict[int, bytes] = field(default_factory=dict)


class Life:
    """One log, its disk and its model."""

    def __init__(self, seed: int, fsync: Fsync) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(random.Random(seed + 1))
        self.options = LogOptions(fsync=fsync, segment_bytes=900, cache_bytes=400, sync_interval_ms=50)
        self.model = Model()
        self.log, _ = self.open(Stop.KILLED)
        self.confirmed = 0
        """What the log called persisted behind its last step, and may not lose unless it says so."""

    def open(self, stop: Stop) -> tuple[FileLog, Recovery]:
        return open_log(self.disk, _DIRECTORY, self.options, stop)

    def step(self) -> None:
        """One thing that Raft or a stream does with a log."""
        model, log, rng = self.model, self.log, self.rng
        what = rng.choices(
            ("append", "commit", "truncate", "sync", "tick", "vote", "checkpoint", "drop", "install"),
            (40, 15, 6, 8, 10, 5, 6, 4, 1),
        )[0]
        if what == "append":
            self.append(rng.randint(1, 5))
        elif what == "commit":
            model.commit = max(model.commit, min(rng.randint(model.commit, model.last), log.persisted_index))
            log.note_commit(model.commit)
        elif what == "truncate":
            self.truncate(rng.randint(max(model.commit, model.base), model.last))
        elif what == "sync":
            log.sync()
            model.durable = model.last
        elif what == "tick":
            model.time_ms += rng.randint(0, 60)
            log.tick(model.time_ms)
            if log.next_sync_ms() is None and self.options.fsync is not Fsync.NEVER:
                model.durable = model.last
        elif what == "vote":
            model.vote_asked = (model.vote[0] + 1, f"node-{rng.randint(0, 9)}@x")
            log.save_vote(*model.vote_asked)
            model.vote = model.vote_asked
        elif what == "checkpoint" and model.commit > model.base:
            index = rng.randint(model.base + 1, model.commit)
            model.checkpoints[index] = b"state at %d" % index
            log.save_checkpoint(index, model.checkpoints[index])
        elif what == "drop":
            model.base = log.drop_head(rng.randint(model.base, model.commit + 1))
            model.durable = max(model.durable, model.base)
        elif what == "install":
            self.install()
        self.confirmed = log.persisted_index

    def append(self, count: int) -> None:
        model, rng = self.model, self.rng
        if rng.random() < 0.1:
            model.term += 1
        entries = []
        for index in range(model.last + 1, model.last + 1 + count):
            messages = rng.choice((0, 1, 1, 3))
            entries.append(
                make_entry(
                    index=index,
                    term=model.term,
                    kind=EntryKind.BATCH if messages else EntryKind.NOOP,
                    time_ns=index,
                    first_seq=model.next_seq if messages else 0,
                    count=messages,
                    payload=rng.randbytes(rng.randint(0, 200)) if messages else b"",
                )
            )
            model.next_seq += messages
        # Before the call: a crash inside it may leave any beginning of them.
        model.ever |= {entry.record for entry in entries}
        self.log.append(entries)
        model.entries |= {entry.index: entry for entry in entries}
        model.last = entries[-1].index

    def truncate(self, index: int) -> None:
        model = self.model
        # A crash inside the call leaves the log cut or uncut.
        model.durable = min(model.durable, index)
        self.confirmed = min(self.confirmed, index)
        self.log.truncate_after(index)
        for dropped in range(index + 1, model.last + 1):
            del model.entries[dropped]
        model.last = index
        model.term += 1
        held = [entry for entry in model.entries.values() if entry.index > model.base]
        model.next_seq = max([model.next_seq - 0 if not held else 1, *(entry.last_seq + 1 for entry in held)])

    def install(self) -> None:
        model = self.model
        index = model.last + self.rng.randint(1, 20)
        self.log.install_base(index, model.term, b"installed")
        model.entries.clear()
        model.base = model.last = model.commit = model.durable = index
        model.checkpoints = {index: b"installed"}

    # ---- checking -------------------------------------------------------------------------------------------------

    def check_running(self) -> None:
        """The log and the model agree on everything."""
        model, log = self.model, self.log
        assert (log.base_index, log.last_index) == (model.base, model.last)
        held = [model.entries[index] for index in range(model.base + 1, model.last + 1)]
        assert log.entries(model.base + 1, model.last, 1 << 30) == held
        for entry in held:
            assert log.term(entry.index) == entry.term
            for seq in range(entry.first_seq, entry.first_seq + entry.count):
                assert log.index_of_seq(seq) == entry.index
        assert log.index_of_seq(model.next_seq) is None
        found = log.load_checkpoint()
        if model.checkpoints:
            assert found is not None
            assert found[1] == model.checkpoints[found[0]]
        assert log.load_vote() == model.vote

    def check_reopened(self, report: Recovery, *, floor: int) -> None:
        """After a fault: `floor` and what is before it must be there, unless the log says that it lost a record."""
        model, log = self.model, self.log
        assert log.last_index >= floor, f"{report} though {floor} had to survive"
        assert log.load_vote() in (model.vote, model.vote_asked)
        read = log.entries(log.base_index + 1, log.last_index, 1 << 30)
        assert [entry.index for entry in read] == list(range(log.base_index + 1, log.last_index + 1))
        terms = [entry.term for entry in read]
        assert terms == sorted(terms)
        for entry in read:
            assert entry.record in model.ever
            if entry.index <= floor and entry.index in model.entries:
                assert entry == model.entries[entry.index]
            assert log.term(entry.index) == entry.term
            for seq in range(entry.first_seq, entry.first_seq + entry.count):
                assert log.index_of_seq(seq) == entry.index
        found = log.load_checkpoint()
        assert found is None or found[0] <= log.last_index
        self.adopt()

    def adopt(self) -> None:
        """Go on from what recovery left."""
        model, log = self.model, self.log
        read = log.entries(log.base_index + 1, log.last_index, 1 << 30)
        model.entries = {entry.index: entry for entry in read}
        model.base, model.last = log.base_index, log.last_index
        self.confirmed = log.persisted_index
        model.durable = max(log.base_index, min(model.durable, log.last_index))
        model.commit = min(max(model.commit, log.commit_index), log.last_index)
        model.vote = model.vote_asked = log.load_vote()
        model.term = max(model.term, log.last_term)
        model.next_seq = max([model.next_seq, *(entry.last_seq + 1 for entry in read)])
        model.checkpoints |= {found[0]: found[1] for found in (log.load_checkpoint(),) if found is not None}


@pytest.mark.covers("RP-4", "SF-17")
@settings(max_examples=examples(40, 150), deadline=None)
@given(seed=st.integers(0, 2**32), fsync=st.sampled_from(Fsync), steps=st.integers(1, 60))
def test_a_running_log_agrees_with_the_model(seed: int, fsync: Fsync, steps: int) -> None:
    life = Life(seed, fsync)
    for _ in range(steps):
        life.step()
        life.check_running()
    life.log.close(clean=True)
    life.log, report = life.open(Stop.KILLED)
    assert (report.verdict, report.commit_index) == (
        Verdict.CLEAN,
        max(life.model.commit, report.commit_index),
    )
    life.check_running()


@pytest.mark.covers("RP-4", "SF-4")
@settings(max_examples=examples(40, 200), deadline=None)
@given(seed=st.integers(0, 2**32), fsync=st.sampled_from(Fsync))
def test_after_a_kill_all_that_was_written_is_there(seed: int, fsync: Fsync) -> None:
    life = Life(seed, fsync)
    for _ in range(3):
        life.disk.crash_after(life.rng.randint(0, 60))
        before = life.model.last
        try:
            for _ in range(30):
                before = life.model.last
                life.step()
        except CrashNow:
            pass
        life.disk.crash()
        life.log, report = life.open(Stop.KILLED)
        assert report.verdict in (Verdict.CLEAN, Verdict.TORN_TAIL), report
        # Interrupted truncations may or may not have happened; nothing else takes entries away.
        life.check_reopened(report, floor=min(before, max(life.model.commit, life.model.durable)))


@pytest.mark.covers("RP-6", "SF-4", "SF-17")
@settings(max_examples=examples(50, 300), deadline=None)
@given(seed=st.integers(0, 2**32), fsync=st.sampled_from(Fsync))
def test_after_a_power_failure_all_that_was_fsynced_is_there(seed: int, fsync: Fsync) -> None:
    life = Life(seed, fsync)
    for _ in range(3):
        life.disk.crash_after(life.rng.randint(0, 80))
        try:
            for _ in range(40):
                life.step()
        except CrashNow:
            pass
        life.disk.crash(power=True)
        life.log, report = life.open(Stop.POWER)
        assert report.verdict is not Verdict.LOST_RECORD, report
        is_sound = report.verdict is not Verdict.DOUBTFUL
        life.check_reopened(report, floor=life.confirmed if is_sound else life.model.durable)
        life.log.settle()


@pytest.mark.covers("SF-4")
@settings(max_examples=examples(40, 250), deadline=None)
@given(seed=st.integers(0, 2**32), clean=st.booleans(), data=st.data())
def test_a_flipped_bit_is_never_read_as_a_record_and_never_overlooked_for_long(
    seed: int, clean: bool, data: st.DataObject
) -> None:
    life = Life(seed, Fsync.ALWAYS)
    for _ in range(40):
        life.step()
    life.log.sync()
    life.log.tick(10_000)
    life.log.close(clean=clean)
    segments = [path for path in life.disk.paths() if path.endswith(".seg")]
    if not segments:
        return
    path = data.draw(st.sampled_from(segments))
    # The header has 16 bytes that mean nothing; a flip there is no damage.
    size = len(life.disk.read_file(path))
    byte = data.draw(st.integers(0, size - 1).filter(lambda at: not 48 <= at < 64))
    life.disk.flip_bit(path, byte * 8 + data.draw(st.integers(0, 7)))
    before = life.model.entries.copy()
    try:
        life.log, report = life.open(Stop.KILLED)
        if report.verdict is Verdict.CLEAN:
            with_damage = life.log.entries(life.log.base_index + 1, life.log.last_index, 1 << 30)
            assert [before[entry.index] for entry in with_damage] == with_damage
            # Trusted by its side-car, and in a part of the file that the base has left behind.
            assert life.log.last_index == life.model.last
            return
    except DiskError:
        # Found on reading: the loss is on disk, and the next opening sets the file aside.
        life.log.close(clean=False)
        life.log, report = life.open(Stop.KILLED)
    assert report.verdict in (Verdict.SHORT, Verdict.LOST_RECORD), report
    if report.verdict is Verdict.SHORT:
        last = life.model.last
        assert report.end == (before[last].term, last), "it is known how far it went"
    read = life.log.entries(life.log.base_index + 1, life.log.last_index, 1 << 30)
    assert [before[entry.index] for entry in read] == read
    assert report.quarantined
    assert all(life.disk.exists(name) for name in report.quarantined)


def test_the_simulated_disk_and_the_real_one_run_the_same_log(tmp_path: object) -> None:
    """The same life on both gives the same log."""
    lives = [Life(5, Fsync.INTERVAL), Life(5, Fsync.INTERVAL)]
    real = OsDisk(str(tmp_path))
    lives[1].log, _ = open_log(real, _DIRECTORY, lives[1].options, Stop.KILLED)
    for _ in range(200):
        for life in lives:
            life.step()
    lives[0].check_running()
    lives[1].check_running()
    names = [disk.listdir(_DIRECTORY) for disk in (lives[0].disk, real)]
    assert names[0] == names[1]
    for name in names[0]:
        assert lives[0].disk.read_file(f"{_DIRECTORY}/{name}") == real.read_file(f"{_DIRECTORY}/{name}")
