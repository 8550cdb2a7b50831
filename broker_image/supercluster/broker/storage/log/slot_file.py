"""A small value in two slots of one file: a torn write leaves the other slot.

A durable save writes and fsyncs the slot that does not hold the newest value, then copies the value to the
other slot without waiting. So after a save one bad slot costs nothing, and a torn write during a save leaves
the older value, which is the last one that a save confirmed. The slots are 4 KiB apart, since a disk may
write so much at once.
"""

from __future__ import annotations

import struct

from isal.isal_zlib import crc32

from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.disk.disk import Disk, File, SyncHandle, read_twice

_HEAD = struct.Struct("<4sIQI")
_MAGIC = b"SCsl"
SLOT_BYTES = 512
_SECTOR_BYTES = 4096
_SECOND_BEFORE = SLOT_BYTES
"""Where the second slot was in layout 1 (`volume.LAYOUT`)."""
VALUE_BYTES_MAX = SLOT_BYTES - _HEAD.size


def _encode(number: int, value: bytes) -> bytes:
    if len(value) > VALUE_BYTES_MAX:
        raise ValueError(f"value of {len(value)} bytes, a slot takes {VALUE_BYTES_MAX}")
    body = _HEAD.pack(_MAGIC, 0, number, len(value))[8:] + value
    return (_MAGIC + struct.pack("<I", crc32(body)) + body).ljust(SLOT_BYTES, b"\0")


def slot_offset(number: int) -> int:
    """Where the value with that number stands."""
    return number % 2 * _SECTOR_BYTES


def _slots(data: bytes) -> list[tuple[int, bytes]]:
    # A file of layout 1 is longer as soon as anything was written into its second slot's new place. What is left in the
    # old place is older than that.
    second = slot_offset(1) if len(data) > 2 * SLOT_BYTES else _SECOND_BEFORE
    slots = (_decode(data[at : at + SLOT_BYTES]) for at in (0, second))
    return [slot for slot in slots if slot is not None]


def newest(data: bytes) -> tuple[int, bytes] | None:
    """(number, value) of the newest value in a file's contents; None when no slot is readable."""
    return max(_slots(data), default=None)


def _decode(slot: bytes) -> tuple[int, bytes] | None:
    if len(slot) < _HEAD.size:
        return None
    magic, crc, number, size = _HEAD.unpack_from(slot)
    if magic != _MAGIC or size > VALUE_BYTES_MAX or crc32(slot[8 : _HEAD.size + size]) != crc:
        return None
    return number, slot[_HEAD.size : _HEAD.size + size]


class SlotFile:
    """The file stays open: a save is one write and one fsync."""

    __slots__ = ("_file", "_number", "_path", "value")

    def __init__(self, path: str, file: File, number: int, value: bytes) -> None:
        self._path = path
        self._file = file
        self._number = number
        self.value = value
        """The newest value."""

    @classmethod
    def create(cls, disk: Disk, path: str, value: bytes, *, durable: bool = True) -> SlotFile:
        """Make (or replace) the file."""
        slots = _encode(1, value).ljust(slot_offset(1), b"\0") + _encode(1, value)
        if durable:
            disk.write_file_durably(path, slots)
            return cls(path, disk.open(path), 1, value)
        file = disk.open(path, create=True)
        try:
            file.write(0, (slots,))
        except DiskError:
            file.close()
            raise
        return cls(path, file, 1, value)

    @classmethod
    def load(cls, disk: Disk, path: str, *, durable: bool) -> SlotFile | None:
        """The file as it is; None when neither slot is readable. `durable`: its value is made durable first where a killed
        process may not have. Raises DiskError."""
        file = disk.open(path)
        try:
            slots = _slots(read_twice(file, 0, slot_offset(1) + SLOT_BYTES))
        except DiskError:
            file.close()
            raise
        if not slots:
            file.close()
            return None
        number, value = max(slots)
        found = cls(path, file, number, value)
        if durable and slots != [(number, value)] * 2:
            # The copy is behind its value's fsync. Without one the other slot may have the last value that is durable, and
            # would be written next.
            found._number -= 1
            try:
                found.save(value, durable=True)
            except DiskError:
                file.close()
                raise
        return found

    def save(self, value: bytes, *, durable: bool) -> None:
        """Raises DiskError; the older value then still counts."""
        self._write(value)
        if durable:
            self._file.fdatasync()
            self.settle(value)
        else:
            self._number += 1
            self.value = value

    def begin(self, value: bytes) -> SyncHandle:
        """Write a value that counts once the handle's `sync` is through and `settle` was called. Until then the slot of the
        older value is not touched, whatever else is written here. Raises DiskError."""
        self._write(value)
        return self._file.sync_handle()

    def settle(self, value: bytes) -> None:
        """The value that was written last is durable."""
        self._number += 1
        self.value = value
        number = self._number
        try:
            self._file.write(slot_offset(number + 1), (_encode(number, value),))
        except DiskError:
            # The value is durable in its own slot; the copy only guards against later damage to that slot.
            return

    def _write(self, value: bytes) -> None:
        number = self._number + 1
        self._file.write(slot_offset(number), (_encode(number, value),))

    def close(self) -> None:
        self._file.close()
