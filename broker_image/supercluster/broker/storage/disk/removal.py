"""Removes a group's directory in one step: after a crash either all of it is left, or a remainder that the
next start removes.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count

from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.disk.disk import Disk

# No group's directory has a dot in its name.
_GONE = ".gone"


def remove_directory(disk: Disk, path: str) -> None:
    """Raises DiskError: all of it is there still, or what is left is removed at the next start."""
    if not disk.exists(path):
        return
    target = next(name for number in count() if not disk.exists(name := f"{path}{_GONE}{number}"))
    disk.rename(path, target)
    disk.fsync_dir(path.rpartition("/")[0])
    disk.rmtree(target)


def finish_removals(disk: Disk, parent: str) -> None:
    """At a start. What the disk does not let go is for the start after that."""
    for name in disk.listdir(parent):
        if _GONE in name:
            with suppress(DiskError):
                disk.rmtree(f"{parent}/{name}")
