"""A file that only occupies room, so that it can be released when the disk is full (SF-18).

`Space` keeps messages from the last of a disk's room, but other programs write to the disk too. When it is
full to the last byte, this file shrinks, which makes room for the operations that free space: the entry of a
purge, and the checkpoint that allows segments to be deleted. It grows again when there is plenty.
"""

from __future__ import annotations

from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.disk.disk import Disk

BALLAST = "ballast"
# Some entries, a checkpoint of a large stream, and the block or two that each file takes besides.
BALLAST_BYTES = 4 * 1024 * 1024
# It is given up in so many pieces: whoever fills the disk takes what was given before it is used, and elections use some.
PIECES = 8


class Ballast:
    """One file of a volume, which holds nothing. Where the file system stores no zeros, it takes no room either."""

    def __init__(self, disk: Disk, size_bytes: int = BALLAST_BYTES) -> None:
        self._disk = disk
        self._piece_bytes = max(1, size_bytes // PIECES)
        self._size_bytes = self._piece_bytes * PIECES
        self.held_bytes = 0
        try:
            self.held_bytes = self._found_bytes() if disk.exists(BALLAST) else 0
        except DiskError:
            return  # A file that cannot be looked at is no help; it is written again when there is room.

    @property
    def missing_bytes(self) -> int:
        return self._size_bytes - self.held_bytes

    def _found_bytes(self) -> int:
        file = self._disk.open(BALLAST)
        try:
            return min(file.size(), self._size_bytes)
        finally:
            file.close()

    def take(self) -> None:
        """Take what is missing; when there is not enough room, what there is stays as it was."""
        try:
            file = self._disk.open(BALLAST, create=True)
        except DiskError:
            return
        before = self.held_bytes
        try:
            for offset in range(before, self._size_bytes, self._piece_bytes):
                size_bytes = min(self._piece_bytes, self._size_bytes - offset)
                file.write(offset, (bytes(size_bytes),))
                self.held_bytes += size_bytes
        except DiskError:
            self._cut(before)
        finally:
            file.close()

    def give_up(self, *, for_entry: bool) -> bool:
        """Give a piece back. False when there is none to give. Entries get half of the file at most: the room that they free
        is free only behind a checkpoint."""
        kept_bytes = PIECES // 2 * self._piece_bytes if for_entry else 0
        return self.held_bytes > kept_bytes and self._cut(
            max(kept_bytes, self.held_bytes - self._piece_bytes)
        )

    def _cut(self, size_bytes: int) -> bool:
        self.held_bytes = size_bytes
        try:
            file = self._disk.open(BALLAST)
        except DiskError:
            return False
        try:
            file.truncate(size_bytes)
        except DiskError:
            return False
        finally:
            file.close()
        return True
