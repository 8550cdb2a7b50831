"""A disk in memory that forgets what was not made durable: `storage.disk.Disk` for the simulator and for tests.

Two worlds are kept: what a process sees, and what is on the platter. `fdatasync` carries one file's writes over,
`fsync_dir` carries names over; a killed process loses neither, a power failure loses or tears what was not carried,
chosen by the random generator that was handed in. Names are a journal: of two changes the later is never durable
without the earlier.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.disk.disk import Buffer, File, Lock, SyncHandle

_SECTOR_BYTES = 512
_UNLIMITED = 1 << 50


class CrashNow(BaseException):
    """The process ends in the middle of a disk operation, as `crash_after` asked. Nothing may catch it but the test."""


@dataclass(slots=True, eq=False)
class _Inode:
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """(offset, bytes) of a write, (size, None) of a truncation, since the last fdatasync."""
    is_unreadable: bool = False
    bad_bytes: tuple[int, int] = (0, 0)
    """First and end of what cannot be read, until it is written again."""

    def sync(self) -> None:
        for offset, data in self.pending:
            _apply(self.durable, offset, data)
        self.pending.clear()

    def lose_power(self, rng: random.Random) -> None:
        """A beginning of the pending operations is on the platter, perhaps one torn, perhaps some later ones too."""
        survivors = rng.randint(0, len(self.pending))
        for position, (offset, data) in enumerate(self.pending):
            if position < survivors or (position > survivors and rng.random() < 0.2):
                _apply(self.durable, offset, data)
            elif position == survivors and data:
                # To write again what is there already harms none of it.
                there = _common(data, self.durable[offset : offset + len(data)])
                _apply(self.durable, offset + there, _torn(data[there:], rng))
        self.pending.clear()
        self.data = bytearray(self.durable)


def _apply(target: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        if offset < len(target):
            del target[offset:]
        else:
            target.extend(bytes(offset - len(target)))
        return
    if offset > len(target):
        target.extend(bytes(offset - len(target)))
    target[offset : offset + len(data)] = data


def _overlap(bad: tuple[int, int], offset: int, size: int) -> bool:
    return bad[0] < offset + size and offset < bad[1]


def _common(one: bytes, other: bytearray) -> int:
    """Bytes that both begin with."""
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _torn(data: bytes, rng: random.Random) -> bytes:
    """What a power failure leaves of a write: a beginning, or sectors of which some are zeros or garbage."""
    if rng.random() < 0.5:
        return data[: rng.randint(0, len(data))]
    parts = []
    for offset in range(0, len(data), _SECTOR_BYTES):
        sector = data[offset : offset + _SECTOR_BYTES]
        fate = rng.random()
        if fate < 0.3:
            sector = bytes(len(sector))
        elif fate < 0.5:
            sector = rng.randbytes(len(sector))
        parts.append(sector)
    return b"".join(parts)


def _moved(name: str, source: str, target: str) -> str:
    """The name of a file or a directory, after a directory became `target`."""
    return target + name.removeprefix(source) if name == source or name.startswith(f"{source}/") else name


def _move(names: dict[str, _Inode], source: str, target: str) -> None:
    for name in [name for name in names if name.startswith(f"{source}/")]:
        names[_moved(name, source, target)] = names.pop(name)


class _SimFile:
    """See `disk.File`. Dead after a crash of its disk."""

    __slots__ = ("_closed", "_disk", "_generation", "_inode", "_path")

    def __init__(self, disk: SimDisk, inode: _Inode, path: str) -> None:
        self._disk = disk
        self._inode = inode
        self._path = path
        self._generation = disk.generation
        self._closed = False

    def _check(self) -> None:
        if self._closed or self._generation != self._disk.generation:
            raise DiskError("the file is closed", self._path)

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        self._check()
        self._disk.write(self._inode, self._path, offset, b"".join(buffers))

    def pread(self, offset: int, size: int) -> bytes:
        self._check()
        return self._disk.read(self._inode, self._path, offset, size)

    def size(self) -> int:
        self._check()
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._check()
        self._disk.truncate(self._inode, self._path, size)

    def fdatasync(self) -> None:
        self._check()
        self._disk.sync(self._inode, self._path)

    def sync_handle(self) -> SyncHandle:
        self._check()
        return _SimSyncHandle(self._disk, self._inode, self._path)

    def close(self) -> None:
        self._closed = True


class _SimSyncHandle:
    __slots__ = ("_disk", "_generation", "_inode", "_path")

    def __init__(self, disk: SimDisk, inode: _Inode, path: str) -> None:
        self._disk = disk
        self._inode = inode
        self._path = path
        self._generation = disk.generation

    def sync(self) -> None:
        if self._generation == self._disk.generation:
            self._disk.sync(self._inode, self._path)

    def close(self) -> None:
        """Nothing is held."""


class _SimLock:
    __slots__ = ("_disk", "_path")

    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class SimDisk:
    """A file system in memory; directories are never lost, files and their names may be."""

    def __init__(self, rng: random.Random, *, capacity_bytes: int = _UNLIMITED) -> None:
        self._rng = rng
        self.capacity_bytes = capacity_bytes
        """May be changed at any time: a disk that fills up, or is given room."""
        self.generation = 0
        self.locks: set[str] = set()
        self.failing_writes = 0
        """So many of the next writes fail, after a part of them was written."""
        self.failing_writes_of = ""
        """Only those of paths with this in them."""
        self.failing_reads = 0
        """So many of the next reads fail."""
        self.failing_reads_after = 0
        """But not the first so many of them."""
        self.failing_reads_of = ""
        """Only those of paths with this in them."""
        self.refused_reads = 0
        """So many reads met damage that the disk knows of."""
        self.failing_truncates = 0
        self.failing_syncs = 0
        self.failing_syncs_of = ""
        """Only those of files whose names end so."""
        self.failing_names_of = ""
        """While it is set, names that have it in them can't be given."""
        self.syncs = 0
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        self._journal: list[tuple[str, str | None, _Inode | None]] = []
        self._directories: set[str] = {""}
        self._used_bytes = 0
        self._crash_in: int | None = None

    # ---- faults ---------------------------------------------------------------------------------------------------

    def crash(self, *, power: bool = False) -> None:
        """The process is gone, and with `power` everything that was not durable (or a part of it). Open files die."""
        self.generation += 1
        self.locks.clear()
        self._crash_in = None
        if not power:
            return
        for entry in self._journal[: self._rng.randint(0, len(self._journal))]:
            self._carry(entry)
        self._journal.clear()
        self._names = dict(self._durable_names)
        for name in self._names:
            self.mkdirs(name.rpartition("/")[0])
        for inode in self._names.values():
            inode.lose_power(self._rng)
        self._used_bytes = sum(len(inode.data) for inode in self._names.values())

    def crash_after(self, operations: int | None) -> None:
        """`CrashNow` in the middle of the changing operation that many from now (0: the next); None: not at all."""
        self._crash_in = operations

    def flip_bit(self, path: str, bit: int) -> None:
        """Damage on the platter, wherever that bit lies."""
        inode = self._names[path]
        inode.data[bit // 8] ^= 1 << bit % 8
        if bit // 8 < len(inode.durable):
            inode.durable[bit // 8] ^= 1 << bit % 8

    def image(self) -> object:
        """All that a process sees, for `put_back`."""
        return copy.deepcopy((self._names, self._directories))

    def put_back(self, image: object) -> None:
        """The disk is as it was when the image was taken, and all of it is on the platter. Nobody has it open."""
        names: dict[str, _Inode]
        directories: set[str]
        names, directories = copy.deepcopy(image)  # type: ignore[misc]
        for inode in names.values():
            inode.sync()
            inode.durable = bytearray(inode.data)
        self._names, self._durable_names, self._directories = names, dict(names), directories
        self._journal.clear()
        self._used_bytes = sum(len(inode.data) for inode in names.values())

    def spoil(self, path: str) -> None:
        """Damage on the platter that the disk knows of: it does not give the file's contents back any more."""
        self._names[path].is_unreadable = True

    def spoil_bytes(self, path: str, first: int, size: int) -> Callable[[], None]:
        """The same of some bytes of the file, until they are written again or what is returned is called."""
        inode = self._names[path]
        inode.bad_bytes = first, first + size
        return lambda: setattr(inode, "bad_bytes", (0, 0))

    @property
    def has_bad_bytes(self) -> bool:
        return any(inode.bad_bytes != (0, 0) for inode in self._names.values())

    def heal(self) -> None:
        """The disk gives back again whatever it did not."""
        self.failing_reads = 0
        for inode in self._names.values():
            inode.is_unreadable, inode.bad_bytes = False, (0, 0)

    def cut(self, path: str, size: int) -> None:
        """Damage on the platter: the file ends early."""
        inode = self._names[path]
        inode.sync()
        del inode.data[size:]
        del inode.durable[size:]

    def lose(self, path: str) -> None:
        """Damage on the platter: a file, or everything in a directory, is gone."""
        for name in [name for name in self._names if name == path or name.startswith(f"{path}/")]:
            self._used_bytes -= len(self._names.pop(name).data)
            self._durable_names.pop(name, None)
        self._journal = [entry for entry in self._journal if not entry[0].startswith(path)]

    def paths(self) -> list[str]:
        return sorted(self._names)

    def durable(self, path: str) -> bytes:
        """What of a file is on the platter, under the name that is there."""
        inode = self._durable_names.get(path)
        return bytes(inode.durable) if inode is not None else b""

    def is_durable(self, path: str, size: int) -> bool:
        """Is a file on the platter up to that byte, as a process reads it?"""
        inode, durable = self._names.get(path), self._durable_names.get(path)
        if inode is None or durable is None:
            return False
        return len(durable.durable) >= size and inode.data[:size] == durable.durable[:size]

    def size(self, path: str) -> int:
        return len(self._names[path].data)

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    @property
    def will_crash(self) -> bool:
        """Was `crash_after` asked for, and has nothing ended the process since?"""
        return self._crash_in is not None

    @property
    def will_refuse(self) -> bool:
        """Will it refuse to take something, or may it?"""
        return bool(self.failing_writes or self.failing_syncs) or self.capacity_bytes < _UNLIMITED

    @property
    def crashing(self) -> bool:
        """The moment of `crash_after` has come."""
        return self._crash_in == 0

    def _step(self) -> None:
        """Before every change."""
        if self._crash_in is not None:
            if self._crash_in == 0:
                raise CrashNow
            self._crash_in -= 1

    # ---- files ----------------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> File:
        inode = self._names.get(path)
        if inode is None:
            if not create:
                raise DiskError("cannot open: no such file", path)
            if path.rpartition("/")[0] not in self._directories:
                raise DiskError("cannot open: no such directory", path)
            self._step()
            inode = _Inode()
            self._names[path] = inode
            self._journal.append((path, None, inode))
        return _SimFile(self, inode, path)

    def write(self, inode: _Inode, path: str, offset: int, data: bytes) -> None:
        grown = max(offset + len(data) - len(inode.data), 0)
        room = self.capacity_bytes - self._used_bytes
        written = data
        error = None
        if grown > room:
            written, error = data[: max(len(data) - grown + max(room, 0), 0)], "no space left on device"
        elif self.failing_writes and self.failing_writes_of in path:
            self.failing_writes -= 1
            written, error = data[: self._rng.randint(0, len(data))], "input/output error"
        elif self._crash_in == 0:
            written = data[: self._rng.randint(0, len(data))]
        before = len(inode.data)
        if _overlap(inode.bad_bytes, offset, len(written)):
            inode.bad_bytes = 0, 0
        _apply(inode.data, offset, written)
        inode.pending.append((offset, written))
        self._used_bytes += len(inode.data) - before
        self._step()
        if error is not None:
            raise DiskError(f"cannot write {len(data)} bytes: {error}", path)

    def truncate(self, inode: _Inode, path: str, size: int) -> None:
        self._step()
        if self.failing_truncates:
            self.failing_truncates -= 1
            raise DiskError("cannot truncate: input/output error", path)
        if size == len(inode.data):
            return
        self._used_bytes += size - len(inode.data)
        _apply(inode.data, size, None)
        inode.pending.append((size, None))

    def sync(self, inode: _Inode, path: str) -> None:
        self._step()
        self.syncs += 1
        if self.failing_syncs and path.endswith(self.failing_syncs_of):
            # As Linux does: the pages are dropped from what a later fsync would carry.
            self.failing_syncs -= 1
            inode.pending.clear()
            raise DiskError("cannot fsync: input/output error", path)
        inode.sync()

    # ---- names ----------------------------------------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        return path in self._names or path in self._directories

    def listdir(self, path: str) -> list[str]:
        prefix = f"{path}/" if path else ""
        found = {name[len(prefix) :].partition("/")[0] for name in self._names if name.startswith(prefix)}
        found |= {
            name[len(prefix) :].partition("/")[0] for name in self._directories if name.startswith(prefix)
        }
        return sorted(found - {""})

    def read_file(self, path: str) -> bytes:
        inode = self._names.get(path)
        if inode is None:
            raise DiskError("cannot read: no such file", path)
        return self.read(inode, path, 0, len(inode.data))

    def read(self, inode: _Inode, path: str, offset: int, size: int) -> bytes:
        if inode.is_unreadable or _overlap(inode.bad_bytes, offset, min(size, len(inode.data) - offset)):
            self.refused_reads += 1
            raise DiskError("cannot read: input/output error", path)
        if self.failing_reads and self.failing_reads_of in path and not self._may_still_read():
            self.failing_reads -= 1
            raise DiskError("cannot read: input/output error", path)
        return bytes(inode.data[offset : offset + size])

    def _may_still_read(self) -> bool:
        if not self.failing_reads_after:
            return False
        self.failing_reads_after -= 1
        return True

    def write_file_durably(self, path: str, data: Buffer) -> None:
        temporary = f"{path}.tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.write(0, (data,))
            file.fdatasync()
        except DiskError:
            self.unlink(temporary)
            raise
        self.rename(temporary, path)
        self.fsync_dir(path.rpartition("/")[0])

    def rename(self, source: str, target: str) -> None:
        is_directory = source in self._directories
        if source not in self._names and not is_directory:
            raise DiskError("cannot rename: no such file", source)
        self._step()
        if self.failing_names_of and self.failing_names_of in target:
            raise DiskError("cannot rename: input/output error", source)
        if is_directory:
            self._journal.append((target, source, None))
            _move(self._names, source, target)
            self._directories = {_moved(name, source, target) for name in self._directories}
            return
        replaced = self._names.get(target)
        if replaced is not None:
            self._used_bytes -= len(replaced.data)
        inode = self._names.pop(source)
        self._names[target] = inode
        self._journal.append((target, source, inode))

    def unlink(self, path: str) -> None:
        if path in self._names:
            self._step()
            self._used_bytes -= len(self._names.pop(path).data)
            self._journal.append((path, None, None))

    def mkdirs(self, path: str) -> None:
        parts = path.split("/")
        self._directories.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))

    def rmtree(self, path: str) -> None:
        for name in [name for name in self._names if name.startswith(f"{path}/")]:
            self.unlink(name)
        self._directories = {
            name for name in self._directories if name != path and not name.startswith(f"{path}/")
        }

    def fsync_dir(self, path: str) -> None:
        self._step()
        last = 0
        for position, (name, source, _) in enumerate(self._journal):
            if path in (name.rpartition("/")[0], (source or "").rpartition("/")[0]):
                last = position + 1
        for entry in self._journal[:last]:
            self._carry(entry)
        del self._journal[:last]

    def _carry(self, entry: tuple[str, str | None, _Inode | None]) -> None:
        """One change of names reaches the platter."""
        path, source, inode = entry
        if source is not None and inode is None:
            _move(self._durable_names, source, path)
            return
        if source is not None:
            self._durable_names.pop(source, None)
        if inode is None:
            self._durable_names.pop(path, None)
        else:
            self._durable_names[path] = inode

    def free_bytes(self) -> int:
        return max(self.capacity_bytes - self._used_bytes, 0)

    def lock(self, path: str) -> Lock:
        if path in self.locks:
            raise DiskError("the data directory is in use by another broker process", path)
        self.locks.add(path)
        return _SimLock(self, path)
