"""Checkpoints: the state machine's snapshots as of committed entries, one file each, written durably.

Kept are the newest two, the newest one whose entries are durable, the one at the log's base, and one for each
boundary of segments that a later head drop may take as its new base. Header, little endian: magic, version,
checksum, epoch, index, term. The state follows.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

from isal.isal_zlib import crc32

from supercluster.broker.raft.errors import DiskError, NewerFormatError
from supercluster.broker.storage.disk.disk import Disk, File, read_twice
from supercluster.broker.storage.segments.segment import parse_stem, segment_stem

_HEAD = struct.Struct("<8sIIQQQ")
_MAGIC = b"SCcheck\0"
_VERSION = 1
CHECKPOINT_SUFFIX = ".ckpt"
QUARANTINE = "quarantine"
# Pieces of a state in one write.
_WRITE_PIECES = 64


def _refuse_newer(head: bytes, path: str) -> None:
    if len(head) == _HEAD.size:
        magic, version, *_ = _HEAD.unpack(head)
        if magic == _MAGIC and version > _VERSION:
            raise NewerFormatError(path, version, _VERSION)


def decode_checkpoint(data: bytes) -> tuple[int, bytes] | None:
    """(index, state) of a file's contents, whatever its name; None when it is damaged or of another version."""
    if len(data) < _HEAD.size:
        return None
    magic, version, crc, _, index, _ = _HEAD.unpack_from(data)
    if (magic, version) != (_MAGIC, _VERSION) or crc32(memoryview(data)[16:]) != crc:
        return None
    return index, data[_HEAD.size :]


@dataclass(eq=False)
class CheckpointTicket:
    """A checkpoint on its way to the disk: first the file as a whole under a temporary name, then the directory with its own name.
    Only `run` may be called on another thread. Names change on the loop."""

    checkpoints: Checkpoints
    index: int
    term: int
    pieces: Sequence[bytes]
    file: File
    _fsync_directory: Callable[[], None]
    is_named: bool = False
    is_dropped: bool = False
    error: DiskError | None = None
    _lock: Lock = field(default_factory=Lock)
    _has_file: bool = True

    def run(self) -> None:
        """An error is kept for `finish_checkpoint`."""
        try:
            if self.is_named:
                self._fsync_directory()
            elif self._takes_file():
                try:
                    self.checkpoints.write(self)
                finally:
                    self.file.close()
        except DiskError as error:
            self.error = error

    def _takes_file(self) -> bool:
        with self._lock:
            had, self._has_file = self._has_file, False
            return had

    def drop(self) -> None:
        """Nobody waits for it. What a thread still writes, it writes into a file without a name."""
        self.is_dropped = True
        if self._takes_file():
            self.file.close()


class Checkpoints:
    """The checkpoints of one log and one epoch."""

    def __init__(self, disk: Disk, directory: str, epoch: int) -> None:
        self._disk = disk
        self._directory = directory
        self._epoch = epoch
        self._sizes: dict[int, int] = {}
        self.indexes: list[int] = []
        """Indexes that a file exists for, in order."""

    def find(self) -> None:
        """Take what the directory has. Raises NewerFormatError."""
        for name in self._disk.listdir(self._directory):
            stem = parse_stem(name)
            if stem is None or not name.endswith(CHECKPOINT_SUFFIX) or stem[0] != self._epoch:
                continue
            path = f"{self._directory}/{name}"
            file = self._disk.open(path)
            try:
                self._sizes[stem[1]] = file.size()
                head = b""
                with suppress(DiskError):  # `load` says so.
                    head = read_twice(file, 0, _HEAD.size)
                _refuse_newer(head, path)
            finally:
                file.close()
        self.indexes = sorted(self._sizes)

    @property
    def size_bytes(self) -> int:
        return sum(self._sizes.values())

    @property
    def newest(self) -> int:
        """The newest checkpoint's index; -1 when there is none."""
        return self.indexes[-1] if self.indexes else -1

    def _path(self, index: int) -> str:
        return f"{self._directory}/{segment_stem(self._epoch, index)}{CHECKPOINT_SUFFIX}"

    def save(self, index: int, term: int, state: bytes) -> None:
        """Write one while the caller waits. Raises DiskError, and then there is none."""
        data = self._head(index, term, (state,)) + state
        self._disk.write_file_durably(self._path(index), data)
        self._add(index, len(data))

    def _head(self, index: int, term: int, pieces: Iterable[bytes]) -> bytes:
        head = _HEAD.pack(_MAGIC, _VERSION, 0, self._epoch, index, term)
        crc = crc32(head[16:])
        for piece in pieces:
            crc = crc32(piece, crc)
        return b"".join((head[:12], struct.pack("<I", crc), head[16:]))

    def _add(self, index: int, size_bytes: int) -> None:
        if index not in self._sizes:
            insort(self.indexes, index)
        self._sizes[index] = size_bytes

    def begin(self, index: int, term: int, pieces: Sequence[bytes]) -> CheckpointTicket:
        """A ticket that writes one. Raises DiskError."""
        temporary = f"{self._path(index)}.tmp"
        file = self._disk.open(temporary, create=True)
        return CheckpointTicket(
            self, index, term, pieces, file, partial(self._disk.fsync_dir, self._directory)
        )

    def write(self, ticket: CheckpointTicket) -> None:
        """On the ticket's thread: all of the file, durably. Raises DiskError."""
        file, pieces = ticket.file, ticket.pieces
        file.truncate(0)
        file.write(0, (self._head(ticket.index, ticket.term, pieces),))
        size_bytes = _HEAD.size
        for at in range(0, len(pieces), _WRITE_PIECES):
            if ticket.is_dropped:
                return
            some = pieces[at : at + _WRITE_PIECES]
            file.write(size_bytes, some)
            size_bytes += sum(map(len, some))
        file.fdatasync()

    def give_name(self, ticket: CheckpointTicket) -> None:
        """The file is whole. Raises DiskError."""
        path = self._path(ticket.index)
        self._disk.rename(f"{path}.tmp", path)

    def take(self, ticket: CheckpointTicket) -> None:
        """The file is durable under its name."""
        self._add(ticket.index, _HEAD.size + sum(map(len, ticket.pieces)))

    def discard(self, ticket: CheckpointTicket) -> None:
        """Nobody wants the file any more. A disk that does not let it go leaves it for the next opening."""
        ticket.drop()
        if not ticket.is_named:
            with suppress(DiskError):
                self._disk.unlink(f"{self._path(ticket.index)}.tmp")

    def load(self, index: int) -> tuple[int, bytes] | None:
        """(term, state); None when the file is damaged, which is then set aside. Raises UnreadableError."""
        if index not in self._sizes:
            return None
        file = self._disk.open(self._path(index))
        try:
            data = read_twice(file, 0, file.size())
        finally:
            file.close()
        if len(data) >= _HEAD.size:
            magic, version, crc, epoch, named, term = _HEAD.unpack_from(data)
            whole = magic == _MAGIC and version == _VERSION and (epoch, named) == (self._epoch, index)
            if whole and crc32(memoryview(data)[16:]) == crc:
                return term, data[_HEAD.size :]
        self._set_aside(index)
        return None

    def _set_aside(self, index: int) -> None:
        folder = f"{self._directory}/{QUARANTINE}"
        self._disk.mkdirs(folder)
        if self._disk.exists(self._path(index)):
            self._disk.rename(
                self._path(index), f"{folder}/{segment_stem(self._epoch, index)}{CHECKPOINT_SUFFIX}"
            )
        self._forget(index)

    def _forget(self, index: int) -> None:
        del self._sizes[index]
        self.indexes.remove(index)

    def remove(self, index: int) -> None:
        self._disk.unlink(self._path(index))
        self._forget(index)

    def remove_after(self, index: int) -> None:
        """A checkpoint beyond the log is of entries that are not there any more (SF-17)."""
        while self.indexes and self.indexes[-1] > index:
            self.remove(self.indexes[-1])

    def prune(self, base_index: int, segment_ends: list[int], durable_index: int) -> None:
        """Remove what no rule keeps. Of the checkpoints between two segment ends the first is the one by which the
        segments before it can go soonest."""
        keep = {base_index, durable_index, *self.indexes[-2:]}
        seen: set[int] = set()
        for index in self.indexes:
            boundary = bisect_left(segment_ends, index + 1)
            if index > base_index and boundary not in seen and boundary > 0:
                seen.add(boundary)
                keep.add(index)
        for index in [index for index in self.indexes if index not in keep]:
            self.remove(index)
