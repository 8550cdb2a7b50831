"""`disk.Disk` on the operating system's files."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from supercluster.broker.raft.errors import DiskError, NoDescriptorError
from supercluster.broker.storage.disk.disk import Buffer, File, Lock, SyncHandle

# Linux takes at most 1,024 buffers in one call; past half of that one joined copy is as cheap.
_BUFFERS_MAX = 512
_MODE = 0o640
# A removal that meets files that somebody else removes is begun anew so often at most.
_REMOVALS_MAX = 100


@contextmanager
def _named(path: str, doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = NoDescriptorError if error.errno in (errno.EMFILE, errno.ENFILE) else DiskError
        raise kind(f"cannot {doing}: {error.strerror or error}", path) from error


class _OsSyncHandle:
    """A duplicated descriptor."""

    __slots__ = ("_fd", "_path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path

    def sync(self) -> None:
        with _named(self._path, "fsync"):
            os.fdatasync(self._fd)

    def close(self) -> None:
        with _named(self._path, "close after fsync"):
            os.close(self._fd)


class _Synced:
    """In place of a handle: the file was made durable when it was asked for."""

    __slots__ = ()

    def sync(self) -> None: ...

    def close(self) -> None: ...


class _OsFile:
    """A descriptor; see `disk.File`."""

    __slots__ = ("_fd", "_path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        parts = buffers if len(buffers) <= _BUFFERS_MAX else (b"".join(buffers),)
        total = sum(len(part) for part in parts)
        with _named(self._path, f"write {total} bytes"):
            written = os.pwritev(self._fd, parts, offset)
            if written == total:
                return
            # A short write happens when the disk fills up; the next call says why.
            rest = memoryview(b"".join(parts))
            while written < total:
                more = os.pwrite(self._fd, rest[written:], offset + written)
                if more == 0:
                    raise DiskError(f"wrote {written} of {total} bytes and no more", self._path)
                written += more

    def pread(self, offset: int, size: int) -> bytes:
        with _named(self._path, "read"):
            data = os.pread(self._fd, size, offset)
            while len(data) < size:
                more = os.pread(self._fd, size - len(data), offset + len(data))
                if not more:
                    break
                data += more
            return data

    def size(self) -> int:
        with _named(self._path, "stat"):
            return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        with _named(self._path, "truncate"):
            os.ftruncate(self._fd, size)

    def fdatasync(self) -> None:
        with _named(self._path, "fsync"):
            os.fdatasync(self._fd)

    def sync_handle(self) -> SyncHandle:
        try:
            with _named(self._path, "duplicate the descriptor"):
                return _OsSyncHandle(os.dup(self._fd), self._path)
        except NoDescriptorError:
            # The loop waits for the disk this once: what was confirmed has to become durable all the same.
            self.fdatasync()
            return _Synced()

    def close(self) -> None:
        # The descriptor is gone whatever the kernel answers.
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with _named(self._path, "close"):
                os.close(fd)


class _OsLock:
    """flock on an open descriptor: the kernel releases it when the process ends, however it ends."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)


class OsDisk:
    """A directory of the operating system."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)
        with _named(str(root), "create the directory"):
            self._root.mkdir(parents=True, exist_ok=True)

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}" if path else str(self._root)

    def open(self, path: str, *, create: bool = False) -> File:
        full = self._full(path)
        with _named(full, "open"):
            return _OsFile(
                os.open(full, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), _MODE), full
            )

    def exists(self, path: str) -> bool:
        full = self._full(path)
        with _named(full, "look for"):
            try:
                os.lstat(full)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def listdir(self, path: str) -> list[str]:
        full = self._full(path)
        with _named(full, "list"):
            try:
                return sorted(os.listdir(full))  # noqa: PTH208 (names, not paths)
            except FileNotFoundError:
                return []

    def read_file(self, path: str) -> bytes:
        full = self._full(path)
        with _named(full, "read"):
            return Path(full).read_bytes()

    def write_file_durably(self, path: str, data: Buffer) -> None:
        temporary = f"{path}.tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.write(0, (data,))
            file.fdatasync()
        except DiskError:
            file.close()
            self.unlink(temporary)
            raise
        file.close()
        self.rename(temporary, path)
        self.fsync_dir(path.rpartition("/")[0])

    def rename(self, source: str, target: str) -> None:
        full = self._full(source)
        with _named(full, f"rename to {target}"):
            Path(full).replace(self._full(target))

    def unlink(self, path: str) -> None:
        full = self._full(path)
        with _named(full, "remove"):
            Path(full).unlink(missing_ok=True)

    def mkdirs(self, path: str) -> None:
        full = self._full(path)
        with _named(full, "create the directory"):
            Path(full).mkdir(parents=True, exist_ok=True)

    def rmtree(self, path: str) -> None:
        full = self._full(path)
        with _named(full, "remove"):
            for _ in range(_REMOVALS_MAX):
                try:
                    shutil.rmtree(full)
                except FileNotFoundError:
                    # Nothing was there; or something in it went away meanwhile, which ends the removal half-way.
                    if Path(full).exists():
                        continue
                return
            raise OSError(errno.EBUSY, "files come and go in it")

    def fsync_dir(self, path: str) -> None:
        full = self._full(path)
        with _named(full, "fsync"):
            fd = os.open(full, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def free_bytes(self) -> int:
        with _named(str(self._root), "ask for free space"):
            found = os.statvfs(self._root)
            return found.f_bavail * found.f_frsize

    def lock(self, path: str) -> Lock:
        full = self._full(path)
        with _named(full, "open the lock file"):
            fd = os.open(full, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise DiskError("the data directory is in use by another broker process", full) from error
        return _OsLock(fd)


def boot_id() -> str:
    """Identity of the machine's current run: another one means that the machine went down in between."""
    path = "/proc/sys/kernel/random/boot_id"
    with _named(path, "read"):
        return Path(path).read_text(encoding="ascii").strip()
