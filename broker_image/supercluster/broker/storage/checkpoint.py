"""Checkpoints: the state machine's snapshots as of committed entries, one file each, written durably.

Kept are the newest two, the one at the log's base, and one for each boundary of segments that a later head drop may
take as its new base. Header, little endian: magic, version, checksum, epoch, index, term; then the state.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort

from isal.isal_zlib import crc32

from supercluster.broker.raft.errors import DiskError, NewerFormatError
from supercluster.broker.storage.disk import Disk
from supercluster.broker.storage.segment import parse_stem, segment_stem

_HEAD = struct.Struct("<8sIIQQQ")
_MAGIC = b"SCcheck\0"
_VERSION = 1
CHECKPOINT_SUFFIX = ".ckpt"
QUARANTINE = "quarantine"


def _refuse_newer(head: bytes, path: str) -> None:
    if len(head) == _HEAD.size:
        magic, version, *_ = _HEAD.unpack(head)
        if magic == _MAGIC and version > _VERSION:
            raise NewerFormatError(path, version, _VERSION)


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
                _refuse_newer(file.pread(0, _HEAD.size), path)
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
        head = _HEAD.pack(_MAGIC, _VERSION, 0, self._epoch, index, term)
        crc = crc32(state, crc32(head[16:]))
        data = b"".join((head[:12], struct.pack("<I", crc), head[16:], state))
        self._disk.write_file_durably(self._path(index), data)
        if index not in self._sizes:
            insort(self.indexes, index)
        self._sizes[index] = len(data)

    def load(self, index: int) -> tuple[int, bytes] | None:
        """(term, state); None when the file is damaged, which is then set aside."""
        if index not in self._sizes:
            return None
        try:
            data = self._disk.read_file(self._path(index))
        except DiskError:
            data = b""
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

    def prune(self, base_index: int, segment_ends: list[int]) -> None:
        """Remove what no rule keeps. Of the checkpoints between two segment ends the first is the one by which the
        segments before it can go soonest."""
        keep = {base_index, *self.indexes[-2:]}
        seen: set[int] = set()
        for index in self.indexes:
            boundary = bisect_left(segment_ends, index + 1)
            if index > base_index and boundary not in seen and boundary > 0:
                seen.add(boundary)
                keep.add(index)
        for index in [index for index in self.indexes if index not in keep]:
            self.remove(index)
