"""Faults of disks that only a reader notices: a bit that turned over long before, and reads that fail for a while.

They are drawn apart from the rest of the weather, so what a seed stands for stays in the runs that have none of them.
"""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from supercluster.broker.jetstream.encoding.sections import Section, sections
from supercluster.broker.jetstream.replica.lineage import META_GROUP
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.raft.entry import Entry
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.log.log import FileLog
from supercluster.broker.storage.volume.volume import GROUPS, directory_name

if TYPE_CHECKING:
    from tests.simulator.weather import Weather

# In so many of the runs on files, each.
ROT_PART = 0.25
READ_ERRORS_PART = 0.15
RETRY_MS = 700


class BadDisks:
    """Of one run."""

    def __init__(self, weather: Weather) -> None:
        self._weather = weather
        self._world = weather.world
        self._rng = random.Random(f"bad disks {weather.world.seed}")
        self._dying: set[str] = set()
        """Brokers whose disk will never give some bytes back."""

    def start(self, end_ms: float) -> None:
        if self._weather.plan.storage == "file" and self._rng.random() < ROT_PART:
            self._world.at(end_ms * (0.4 + 0.4 * self._rng.random()), self._rot)
        errors = random.Random(f"read errors {self._world.seed}")
        if self._weather.plan.storage == "file" and errors.random() < READ_ERRORS_PART:
            self._world.at(end_ms * (0.3 + 0.5 * errors.random()), lambda: self._read_errors(errors))
        of_map = random.Random(f"read errors of the map {self._world.seed}")
        if self._weather.plan.storage == "file" and of_map.random() < READ_ERRORS_PART:
            self._world.at(end_ms * (0.2 + 0.6 * of_map.random()), lambda: self._map_errors(of_map))

        if self._weather.rare.bad_sectors:
            inside = random.Random(f"bad sectors {self._world.seed}")
            self._world.at(end_ms * (0.15 + 0.6 * inside.random()), lambda: self._bad_sectors(inside))

    def _bad_sectors(self, rng: random.Random) -> None:
        """Some bytes of a file cannot be read, for a time or never again; the broker starts again in half of the cases, or old messages
        are read (SF-32)."""
        name = rng.choice(self._world.names)
        node, weather = self._world.nodes[name], self._weather
        if weather.calm:
            return
        for_ms = rng.choice((300.0, 3000.0, 9000.0, 0.0))
        of_map = rng.random() < 0.25
        group = META_GROUP if of_map else weather.main_group
        copy = node.core.groups.get(group) if node.core is not None else None
        files = node.store.files_of(group) if rng.random() < 0.9 else node.store.files_of_volume()
        if copy is None or not files or (not for_ms and not weather.may_lose_data(name)):
            self._world.at(RETRY_MS, lambda: self._bad_sectors(rng))
            return
        disk, path = node.store.disk, rng.choice(files)
        first, size = rng.randrange(disk.size(path)), rng.choice((1, 512, 4096))
        self._world.note(
            f"{name}: {size} bytes of {path} from {first} on cannot be read {f'for {for_ms:.0f} ms' if for_ms else 'any more'}"
        )
        self._world.met["bad sectors"] += 1
        healed = disk.spoil_bytes(path, first, size)
        if for_ms:
            self._world.at(for_ms, healed)
        else:
            weather.is_scarred(name, copy)
            self._dying.add(name)
        if rng.random() < 0.5 and weather.may_stop(name, power=False):
            weather.stop(name)
            weather.start_in(name, 20 + rng.random() * 100)
        for delay_ms in (1.0, 400.0, 2000.0):
            self._world.at(delay_ms, partial(self._read_all, name, group))

    def _read_all(self, name: str, group: str) -> None:
        """Somebody reads the whole log there."""
        core = self._world.nodes[name].awake
        copy = core.groups.get(group) if core is not None else None
        if copy is not None and copy.failed is None and isinstance(copy.log, FileLog):
            copy.log._cache.clear()
            copy.guarded(lambda: _entries(copy))
            self._world.want_turn(name)

    def exchange(self) -> None:
        """The weather is over: a disk that never gives some bytes back is replaced by an empty one, as far as others have all that it
        had."""
        for name in sorted(self._dying):
            if self._world.nodes[name].store.disk.has_bad_bytes and self._weather.may_lose_data(name):
                self._weather.stop(name)
                self._weather.is_unsure(name)
                self._world.lose_volume(name)

    def _read_errors(self, rng: random.Random) -> None:
        """For a third of a second on all brokers, or for longer on one, the disk does not give back the main stream's files.
        Old messages are read meanwhile (SF-32)."""
        if self._weather.calm or not self._weather.main_group:
            return
        is_on_all = rng.random() < 0.6
        ms = 300.0 if is_on_all else rng.choice((300.0, 3000.0, 9000.0))
        for name in self._world.names if is_on_all else [rng.choice(self._world.names)]:
            disk = self._world.nodes[name].store.disk
            disk.failing_reads = 1 << 30
            disk.failing_reads_of = f"{GROUPS}/{directory_name(self._weather.main_group)}/"
            self._world.note(f"{name}: the stream's files cannot be read for {ms:.0f} ms")
            self._world.at(ms, partial(setattr, disk, "failing_reads", 0))
            core = self._world.nodes[name].awake
            copy = core.groups.get(self._weather.main_group) if core is not None else None
            if copy is not None and copy.log.last_index > copy.log.base_index:
                self._read(name, rng.randint(copy.log.base_index + 1, copy.log.last_index))

    def _map_errors(self, rng: random.Random) -> None:
        """Brokers are started again while their disks do not give back the map's log (SF-32)."""
        if self._weather.calm:
            return
        for name in rng.sample(self._world.names, rng.choice((1, len(self._world.names)))):
            disk, ms = self._world.nodes[name].store.disk, rng.choice((300.0, 3000.0, 9000.0))
            if not self._weather.may_stop(name, power=False):
                continue
            self._weather.stop(name)
            disk.failing_reads = 1 << 30
            disk.failing_reads_of = f"{GROUPS}/{directory_name(META_GROUP)}/"
            self._world.note(f"{name}: starts, and cannot read the map's log for {ms:.0f} ms")
            self._weather.start_in(name, 20 + rng.random() * 100)
            self._world.at(150 + ms, partial(setattr, disk, "failing_reads", 0))

    def _follower(self) -> tuple[str, Replica | None]:
        """A copy of the main stream that follows, and may lose what it has; and what the world calls its broker."""
        group = self._weather.main_group
        cores = [(key, node.core) for key, node in self._world.nodes.items() if node.core is not None]
        copies = [(key, core.groups[group]) for key, core in cores if group in core.groups]
        found = [each for each in copies if _may_rot(each[1])]
        return self._rng.choice(found) if found else ("", None)

    def _rot(self) -> None:
        """A bit turns over in the middle of a follower's log, in messages that were carried if there are any. Nobody reads it
        before the copy was opened again (SF-33)."""
        weather = self._weather
        node, copy = self._follower()
        if weather.calm:
            return
        entries = list(_entries(copy)) if copy is not None else []
        if copy is None or not entries or not weather.may_lose_data(node):
            self._world.at(RETRY_MS, self._rot)
            return
        carried = [entry for entry in entries if _is_carried(entry)]
        entry = carried[0] if carried else self._rng.choice(entries)
        weather.stop(node)
        weather.is_scarred(node, copy)
        disk, record = self._world.nodes[node].store.disk, bytes(entry.record)
        for path in self._world.nodes[node].store.files_of(copy.id):
            at = -1
            with suppress(DiskError):  # One that cannot be read anyway.
                at = disk.read_file(path).find(record)
            if at >= 0:
                disk.flip_bit(path, 8 * (at + self._rng.randrange(len(record))))
                self._world.note(f"{node}: a bit of entry {entry.index} turns over in {path}")
        weather.start_in(node, 20 + self._rng.random() * 100)
        self._world.at(500 + self._rng.random() * 2000, lambda: self._read(node, entry.index))

    def _read(self, node: str, index: int) -> None:
        """Somebody reads that entry there, long after it was written."""
        core = self._world.nodes[node].awake
        copy = core.groups.get(self._weather.main_group) if core is not None else None
        if copy is not None and copy.failed is None:
            if isinstance(copy.log, FileLog):
                copy.log._cache.clear()
            copy.guarded(lambda: copy.log.entry(index))
            self._world.want_turn(node)


def _may_rot(copy: Replica) -> bool:
    return copy.failed is None and not copy.serves and copy.log.base_index > 0


def _entries(copy: Replica) -> list[Entry]:
    return copy.log.entries(copy.log.base_index + 1, copy.log.last_index, 1 << 30)


def _is_carried(entry: Entry) -> bool:
    return entry.has_sections and any(kind == Section.CARRIED for kind, _ in sections(entry.payload))
