"""The groups that this volume has joined, and its member name in each: the record by which an emptied
directory is detected (SF-4).

A journal of one line per act, fsynced; opening it writes it anew when most of it is out of date. It lies
apart from the groups' directories on purpose.

A group of a new lineage (SF-9) may have the files of the group that it follows: then its line names that one
too.
"""

from __future__ import annotations

import json

from isal.isal_zlib import crc32

from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.disk.disk import Disk, File

REGISTRY = "groups.journal"
_REWRITE_LINES_MIN = 64


def _line(group: str, member: str | None, home: str = "") -> bytes:
    text = json.dumps([group, member, *([home] if home else [])], separators=(",", ":")).encode()
    return b"%08x %s\n" % (crc32(text), text)


def _parse(line: bytes) -> tuple[str, str | None, str] | None:
    crc, _, text = line.partition(b" ")
    if crc != b"%08x" % crc32(text):
        return None
    group, member, *home = json.loads(text)
    return group, member, home[0] if home else ""


def read_homes(data: bytes) -> dict[str, str]:
    """Group → the group whose directory it has, where that is another one, from a journal that may be in use."""
    acts = (_parse(line) for line in data.split(b"\n") if line)
    return {group: home for group, member, home in filter(None, acts) if member is not None and home}


def _lines(data: bytes) -> list[bytes]:
    """Without an end that was cut short: of that nobody was told. A last line that is all there and wrong was not cut short: it was
    synced, and damaged since."""
    whole, newline, rest = data.rpartition(b"\n")
    lines = whole.split(b"\n") if newline else []
    if not rest:
        return lines[:-1] if lines and _lacks_sectors(lines[-1]) else lines
    # The bit that turned over may be one of the line's end.
    return [*lines, rest[:-1]] if _parse(rest[:-1]) is not None else lines


def _lacks_sectors(line: bytes) -> bool:
    """A power failure may write the end of a line and not what stands before it, which reads as zeros."""
    return line[:1] == b"\0" or b"\0\0" in line or line[-1:] == b"\0"


def _apply(groups: dict[str, str], homes: dict[str, str], group: str, member: str | None, home: str) -> None:
    homes.pop(group, None)
    if member is None:
        groups.pop(group, None)
        return
    groups[group] = member
    if home:
        homes[group] = home


def is_whole(disk: Disk) -> bool:
    """Does the journal say which groups were joined? Not where it is gone, nor where a line is damaged. Raises DiskError."""
    return disk.exists(REGISTRY) and None not in map(_parse, _lines(disk.read_file(REGISTRY)))


class Registry:
    """The journal and what it says."""

    def __init__(
        self, disk: Disk, file: File, size: int, groups: dict[str, str], homes: dict[str, str]
    ) -> None:
        self._disk = disk
        self._file = file
        self._size = size
        self.groups = groups
        """group → member id."""
        self.homes = homes
        """group → the group whose directory it has, where that is another one."""

    @classmethod
    def open(cls, disk: Disk) -> Registry:
        """Raises DiskError; also when a line is damaged (`is_whole` says so before)."""
        if not disk.exists(REGISTRY):
            disk.write_file_durably(REGISTRY, b"")
        data = disk.read_file(REGISTRY)
        lines = _lines(data)
        groups: dict[str, str] = {}
        homes: dict[str, str] = {}
        for line in lines:
            act = _parse(line)
            if act is None:
                raise DiskError("a line is damaged", REGISTRY)
            _apply(groups, homes, *act)
        size = sum(map(len, lines)) + len(lines)
        if (
            len(lines) > max(2 * len(groups), _REWRITE_LINES_MIN)
            or size < len(data)
            or not data.endswith(b"\n")
        ):
            text = b"".join(_line(*item, homes.get(item[0], "")) for item in groups.items())
            disk.write_file_durably(REGISTRY, text)
            size = len(text)
        return cls(disk, disk.open(REGISTRY), size, groups, homes)

    def note(self, group: str, member: str | None, home: str = "") -> None:
        """Durably: `group` was joined as `member`, or (None) is not this volume's any more. With `home` it has that
        group's directory from now on."""
        known = self.homes.get(group, "")
        home = home or known
        if self.groups.get(group) == member and home == known:
            return
        line = _line(group, member, home if member is not None else "")
        try:
            if self._file.size() > self._size:
                # What is left of a line that the disk refused would be damage behind a shorter one.
                self._file.truncate(self._size)
            self._file.write(self._size, (line,))
            self._file.fdatasync()
        except DiskError:
            # A line that may or may not be there: take it off.
            self._file.truncate(self._size)
            raise
        self._size += len(line)
        _apply(self.groups, self.homes, group, member, home)

    def rename(self, incarnation: str) -> None:
        """The volume has another incarnation: it is a new member of each of its groups, with what it holds of them."""
        for group, member in list(self.groups.items()):
            self.note(group, f"{node_of(member)}@{incarnation}")

    def close(self) -> None:
        self._file.close()
