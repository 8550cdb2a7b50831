"""The data directory: its identity, how often power may have failed, and the groups that it has joined.

Layout: `volume.json` (identity), `groups.journal` (registry), `lock`, `ballast`, `groups/<group>/` (logs),
`quarantine/`, `discarded/` (ends of copies of an older lineage, SF-9).

A directory that was lost or replaced has another incarnation, and members are named after it: so no process
can vote with the identity of data that it does not have (SF-4). The process count numbers sessions (SF-10):
it rises, durably, at every start (`process_count.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256

from isal.isal_zlib import crc32

from supercluster.broker.process_count import next_count
from supercluster.broker.raft.errors import DiskError, NewerFormatError
from supercluster.broker.storage.disk.ballast import Ballast
from supercluster.broker.storage.disk.disk import Disk, Lock
from supercluster.broker.storage.disk.removal import finish_removals
from supercluster.broker.storage.volume.registry import REGISTRY, Registry, is_whole

VOLUME = "volume.json"
LAYOUT = 3
"""Of the files in the directory; one more when an earlier version would take any of them for damaged, or for an older
state. 2: the slots of `hard` and `notes` are 4 KiB apart. 3: `hard` says what its log owes. Files of layouts 1 and 2 are read."""
GROUPS = "groups"
_LOCK = "lock"
_QUARANTINE = "quarantine"
_NAME_BYTES_MAX = 128
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@dataclass(frozen=True, slots=True)
class Identity:
    incarnation: str
    boot_id: str
    process_count: int
    owner: str = ""
    """Identity of the super-cluster whose data this is; empty when nobody has said it yet."""
    power_failures: int = 0
    """One more at each start on another boot of the machine: power may have failed. Each log is judged after each of them,
    whenever it is opened."""
    is_put_back: bool = False
    """The volume was put back to an earlier state (SF-27): the next start takes another incarnation."""
    was_closed: bool = False
    """Everything was fsynced at the end, by a process of layout 2: what its logs owe is not said."""

    def encode(self) -> bytes:
        fields = {
            "incarnation": self.incarnation,
            "bootId": self.boot_id,
            "processCount": self.process_count,
            "owner": self.owner,
            "powerFailures": self.power_failures,
            "layout": LAYOUT,
            **({"putBack": True} if self.is_put_back else {}),
        }
        text = json.dumps(fields, sort_keys=True)
        return json.dumps({**fields, "crc": crc32(text.encode())}, indent=1, sort_keys=True).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Identity | None:
        """None when it is damaged. Raises NewerFormatError."""
        try:
            fields = json.loads(data)
            crc = fields.pop("crc")
            if crc32(json.dumps(fields, sort_keys=True).encode()) != crc:
                return None
            if (layout := int(fields.get("layout", LAYOUT))) > LAYOUT:
                raise NewerFormatError(VOLUME, layout, LAYOUT)
            return cls(
                str(fields["incarnation"]),
                str(fields["bootId"]),
                int(fields["processCount"]),
                str(fields.get("owner", "")),
                int(fields.get("powerFailures", 0)),
                bool(fields.get("putBack", False)),
                bool(fields.get("clean", False)),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


@dataclass(eq=False)
class Volume:
    """An open data directory. Made by `open_volume`."""

    disk: Disk
    _lock: Lock
    identity: Identity
    registry: Registry
    is_new: bool
    """The directory had no identity: it is new, or it was lost."""
    had_set_aside: list[str]
    """Where the files are that did not say any more who the directory is; it got a new identity."""
    _new_token: Callable[[], str]

    def groups(self) -> dict[str, str]:
        """group → member id of every group that was joined and not forgotten."""
        return dict(self.registry.groups)

    def group_directory(self, group: str) -> str:
        return f"{GROUPS}/{directory_name(self.registry.homes.get(group, group))}"

    def set_aside(self, path: str) -> str:
        """Move a file or a directory to the quarantine. Returns where it is. Raises DiskError."""
        return _set_aside(self.disk, path, self._new_token)[0]

    def renew(self) -> None:
        """From the next start on the directory is another one (SF-27)."""
        self.identity = replace(self.identity, is_put_back=True)
        self.disk.write_file_durably(VOLUME, self.identity.encode())

    def close(self) -> None:
        self.registry.close()
        self._lock.release()


def directory_name(group: str) -> str:
    """A file name for a group: readable where it can be, distinct always."""
    name = "".join(
        char if char in _PLAIN else "".join(f"%{byte:02x}" for byte in char.encode()) for char in group
    )
    if len(name) > _NAME_BYTES_MAX:
        return f"{name[: _NAME_BYTES_MAX - 33]}%{sha256(group.encode()).hexdigest()[:32]}"
    return name or "%"


def open_volume(disk: Disk, boot_id: str, new_token: Callable[[], str], owner: str = "") -> Volume:
    """Open the data directory at the disk's root for the super-cluster with the identity `owner`, and count this start.

    Raises:
        DiskError: another process has it, it cannot be read or written, a newer version wrote it, or it is another
            super-cluster's: groups of two super-clusters must never meet.
    """
    lock = disk.lock(_LOCK)
    try:
        found = Identity.decode(disk.read_file(VOLUME)) if disk.exists(VOLUME) else None
        if found is not None and found.owner and owner and found.owner != owner:
            raise DiskError(
                f"it holds data of the super-cluster with identity {found.owner}, and this broker is of {owner}: give the "
                f"super-cluster the identity {found.owner}, or this broker an empty directory"
            )
        set_aside: list[str] = []
        if not is_whole(disk):
            # Which groups were joined is not known any more: to go on as the same would be to have joined none. First the
            # registry goes aside, so that a crash in between comes to the same.
            found = None
            set_aside += _set_aside(disk, REGISTRY, new_token)
        if found is None:
            # An identity that cannot be read is no identity: the directory gets a new one, and its members with it.
            set_aside += _set_aside(disk, VOLUME, new_token)
        if found is None:
            incarnation, count = new_token(), next_count(0, crc32(new_token().encode()))
            # Nobody knows what became of logs that may be here: none of them has noted that count.
            identity = Identity(incarnation, boot_id, count, owner, power_failures=count)
        else:
            count = next_count(found.process_count, crc32(new_token().encode()))
            identity = replace(
                found,
                incarnation=new_token() if found.is_put_back else found.incarnation,
                boot_id=boot_id,
                process_count=count,
                owner=owner or found.owner,
                power_failures=found.power_failures + (found.boot_id != boot_id and not found.was_closed),
                was_closed=False,
            )
        disk.mkdirs(GROUPS)
        finish_removals(disk, GROUPS)
        _count_start(disk, identity)
        registry = Registry.open(disk)
        if identity.is_put_back:
            registry.rename(identity.incarnation)
            identity = replace(identity, is_put_back=False)
            _count_start(disk, identity)
        return Volume(disk, lock, identity, registry, found is None, set_aside, new_token)
    except BaseException:
        lock.release()
        raise


def _set_aside(disk: Disk, name: str, new_token: Callable[[], str]) -> list[str]:
    """The path that it has from now on; empty when it is not there."""
    if not disk.exists(name):
        return []
    folder, _, last = name.rpartition("/")
    target = f"{_QUARANTINE}/{last}.{new_token()}"
    disk.mkdirs(_QUARANTINE)
    disk.rename(name, target)
    disk.fsync_dir(folder)
    disk.fsync_dir(_QUARANTINE)
    return [target]


def _count_start(disk: Disk, identity: Identity) -> None:
    """A disk that is full to its last byte has room where an earlier process left its ballast (SF-18)."""
    ballast = Ballast(disk)
    while True:
        try:
            disk.write_file_durably(VOLUME, identity.encode())
            return
        except DiskError:
            if not ballast.give_up(for_entry=False):
                raise
