"""The seam between the store and a file system: the operations that the store needs, and no more.

Paths are relative to the disk's root, with `/` between their parts. Every failure is a `DiskError` that names
the path. Implementations: `os_disk.OsDisk` and the simulator's disk, which forgets what was not made durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from supercluster.broker.raft.errors import DiskError, UnreadableError

Buffer = bytes | bytearray | memoryview


class SyncHandle(Protocol):
    """A second handle on an open file, for an fsync on another thread: closing the file does not disturb it."""

    def sync(self) -> None:
        """Make what was written so far durable. Raises DiskError."""

    def close(self) -> None: ...


class File(Protocol):
    """An open file. Writes name their offset: the log knows how long its files are."""

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write the buffers one behind the other from `offset`; all of them, or DiskError (any part may be written)."""

    def pread(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer only at the end of the file."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def fdatasync(self) -> None:
        """Make contents and length durable."""

    def sync_handle(self) -> SyncHandle:
        """For an fsync of what is written by now. Raises DiskError."""

    def close(self) -> None:
        """Raises DiskError, and is closed all the same."""


def read_twice(file: File, offset: int, size: int) -> bytes:
    """`pread`; what the disk does not give at once it is asked for once more. Raises UnreadableError."""
    return _twice(lambda: file.pread(offset, size))


def _twice(read: Callable[[], bytes]) -> bytes:
    with suppress(DiskError):
        return read()
    try:
        return read()
    except DiskError as error:
        raise UnreadableError(error.message, error.path) from error


class Lock(Protocol):
    """An exclusive lock that ends with its process."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A directory tree."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; `create` makes the file when it is not there."""

    def exists(self, path: str) -> bool:
        """Raises DiskError where the disk does not say: only what it says is not there is absent."""

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty when there is no such directory."""

    def read_file(self, path: str) -> bytes: ...

    def write_file_durably(self, path: str, data: Buffer) -> None:
        """Replace a file as a whole: temporary file, fsync, rename, fsync of the directory."""

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces the target. A directory's target must not be there."""

    def unlink(self, path: str) -> None:
        """Remove a file; nothing happens when it is not there."""

    def mkdirs(self, path: str) -> None: ...

    def rmtree(self, path: str) -> None:
        """Remove a directory and what is in it; nothing happens when it is not there. An error leaves some of it."""

    def fsync_dir(self, path: str) -> None:
        """Make the names in a directory durable. May be called from another thread."""

    def free_bytes(self) -> int: ...

    def lock(self, path: str) -> Lock:
        """Take the lock file, or DiskError when another process has it."""


def read_file_twice(disk: Disk, path: str) -> bytes:
    """`read_file`, as `read_twice` reads. Raises UnreadableError."""
    return _twice(lambda: disk.read_file(path))
