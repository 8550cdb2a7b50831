"""A stream's whole state is saved, read, hashed and sent in slices, whatever its size (SF-29); by counts, not by time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.one_broker import CallMeter, CpuMeter, OneBroker
from benchmarks.turns_of_state import arrive, checkpoint, mark, provide

from supercluster.broker.jetstream.node.copy_manager import OPENED_AT_ONCE
from supercluster.broker.jetstream.replica import checkpoints
from supercluster.broker.jetstream.state import consumer_states, message_ids, subject_index
from supercluster.broker.jetstream.state import digest as state_digest
from supercluster.broker.jetstream.state import snapshot as stream_snapshot
from supercluster.broker.jetstream.state.snapshot import snapshot_of
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.jetstream.turn import slices
from supercluster.broker.jetstream.turn.slices import Job
from supercluster.broker.ports import OpenedGroup
from supercluster.broker.storage.volume.store import VolumeStore

pytestmark = pytest.mark.covers("SF-29")
SMALL, TIMES = 300, 5


@pytest.fixture(autouse=True)
def fine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices so small that a state of some thousands has many."""
    for module in (subject_index, consumer_states):
        monkeypatch.setattr(module, "PART_ROWS", 20)
    monkeypatch.setattr(consumer_states, "PART_CONSUMERS", 4)
    monkeypatch.setattr(message_ids, "CHUNK_SEQS", 20)
    monkeypatch.setattr(stream_snapshot, "_CHUNKS_PER_PART", 2)
    monkeypatch.setattr(state_digest, "SLICE_UNITS", 20)
    monkeypatch.setattr(slices, "_FREED", 20)
    monkeypatch.setattr(slices, "UNITS_PER_TURN", 1)


def filled(directory: Path, size: int) -> OneBroker:
    broker = OneBroker(directory, CpuMeter())
    broker.create("S", duplicate_window=600 * 10**9)
    broker.publish([b"S.%d" % number for number in range(size)])
    broker.publish([b"S.x"] * size, ids="i")
    for number in range(12):
        config = {"durable_name": f"c{number}", "ack_policy": "explicit", "max_ack_pending": -1}
        broker.call(f"CONSUMER.CREATE.S.c{number}", {"stream_name": "S", "config": config})
    broker.pull_all("S", ["c0", "c1"], size)
    broker.meter = CallMeter()
    return broker


def started(broker: OneBroker, name: str) -> None:
    checkpoint(broker, name)
    broker.restart()


def deleted(broker: OneBroker, name: str) -> None:
    broker.delete(name)
    broker.settle()


ACTS: dict[str, Callable[[OneBroker, str], None]] = {
    "checkpoint": checkpoint,
    "mark": mark,
    "to a follower": provide,
    "from a leader": arrive,
    "start": started,
    "delete": deleted,
}


def test_no_turn_grows_with_the_state(tmp_path: Path) -> None:
    longest: dict[str, list[float]] = {act: [] for act in ACTS}
    for size in (SMALL, TIMES * SMALL):
        broker = filled(tmp_path / str(size), size)
        for name, act in ACTS.items():
            broker.meter.longest = 0.0
            act(broker, "S")
            longest[name].append(broker.meter.longest)
    grown = {name: found for name, found in longest.items() if found[1] > 1.6 * found[0]}
    assert not grown, "calls of functions in the longest turn, of the smaller and of the larger stream"


def entries_applied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    applied: list[str] = []
    apply_entry = StreamReplica.apply_entry

    def noted(replica: StreamReplica, entry: Any) -> Job:
        applied.append(replica.assignment.name)
        yield from apply_entry(replica, entry)

    monkeypatch.setattr(StreamReplica, "apply_entry", noted)
    return applied


class Watched(OneBroker):
    """Knows what each turn did."""

    def __init__(self, directory: Path, applied: list[str]) -> None:
        self.applied = applied
        self.most = 0
        self.serving: list[frozenset[str]] = []
        super().__init__(directory, CpuMeter())

    def step(self, first: Callable[[], object] = lambda: None) -> None:
        self.applied.clear()
        super().step(first)
        self.most = max(self.most, len(self.applied))
        self.serving.append(frozenset(name for name, group in self._streams().items() if group.serves))


def test_a_replay_goes_a_stretch_a_turn_and_other_streams_serve_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Watched(tmp_path, entries_applied(monkeypatch))
    for name in ("A", "B"):
        broker.create(name)
    for _ in range(800):
        broker.publish([b"A.x"])
    broker.publish([b"B.x"])
    broker.most, broker.serving = 0, []
    broker.restart()
    assert frozenset("B") in broker.serving
    assert broker.serving[-1] == frozenset("AB")
    assert broker.stream("A").state.messages == 800, "it is ready when it has replayed all"
    assert 0 < broker.most < 400


def test_a_start_opens_a_stream_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = OneBroker(tmp_path, CpuMeter())
    names = [f"S{number}" for number in range(12)]
    for name in names:
        broker.create(name)
    opened: list[str] = []
    found: list[int] = []
    open_, step = VolumeStore.open, OneBroker.step

    def noted(store: VolumeStore, group: str, **how: Any) -> OpenedGroup:
        opened.append(group)
        return open_(store, group, **how)

    def counted(one: OneBroker, first: Callable[[], object] = lambda: None) -> None:
        before = len(opened)
        step(one, first)
        found.append(len(opened) - before)

    monkeypatch.setattr(VolumeStore, "open", noted)
    monkeypatch.setattr(OneBroker, "step", counted)
    broker.restart()
    assert sum(found) >= len(names)
    assert max(found) <= OPENED_AT_ONCE


@pytest.mark.covers("SF-17")
def test_a_checkpoint_is_due_after_many_entries_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "ENTRIES_MAX", 100)
    broker = OneBroker(tmp_path, CpuMeter())
    broker.create("S")
    for _ in range(350):
        broker.publish([b"S.x"])
    broker.settle()
    found = broker.stream("S").log.load_checkpoint()
    assert found is not None
    assert 250 <= found[0] <= 360
    applied = entries_applied(monkeypatch)
    broker.restart()
    assert len(applied) < 150


@pytest.mark.covers("SF-17")
def test_entries_of_the_time_of_a_checkpoint_are_replayed_behind_it(tmp_path: Path) -> None:
    broker = filled(tmp_path, SMALL)
    group = broker.stream("S")
    began_at = group.applied_index
    broker.step(group.checkpoints.begin)
    broker.publish([b"S.later.%d" % number for number in range(100)])
    broker.acknowledge()
    broker.until(lambda: not group.checkpoints.is_under_way)
    found = group.log.load_checkpoint()
    assert found is not None
    assert found[0] == began_at < group.applied_index
    expected = snapshot_of(group.state)
    applied_index = group.applied_index
    broker.restart()
    again = broker.stream("S")
    assert again.state.messages == 2 * SMALL + 100
    if again.applied_index == applied_index:
        assert snapshot_of(again.state) == expected
    view = again.state
    assert sorted(view.consumers) == sorted(group.state.consumers)
