"""Room on the volume, shared by all logs on it, with a reserve for entries that are not messages (SF-18).

A full disk must not keep out the purge, the deletion or the configuration change that would free it: messages are
refused while the reserve is still whole. Asking the file system is bounded: at most once per `_RECHECK_BYTES` written
and once in `_RECHECK_MS`.
"""

from __future__ import annotations

from typing import Protocol

from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.disk.ballast import Ballast

RESERVE_BYTES = 16 * 1024 * 1024
_RECHECK_BYTES = 8 * 1024 * 1024
_RECHECK_MS = 2_000


class Room(Protocol):
    """Whatever the logs are kept on."""

    def free_bytes(self) -> int: ...


class Space:
    """Counts what the logs hold against a capacity, and what they write against the disk's free bytes."""

    def __init__(
        self,
        disk: Room,
        *,
        capacity_bytes: int = 0,
        reserve_bytes: int = RESERVE_BYTES,
        ballast: Ballast | None = None,
    ) -> None:
        """`capacity_bytes` 0: only the disk limits. `ballast` goes when there is no room for what frees some."""
        self._ballast = ballast
        self._disk = disk
        self._whole_reserve_bytes = reserve_bytes
        self.limit(capacity_bytes)
        self._free_bytes = 0
        self._unchecked_bytes = 0
        self._checked_ms = 0
        self.used_bytes = 0
        self.refresh()
        self._take_ballast()

    def limit(self, capacity_bytes: int) -> None:
        """Another capacity from now on; 0: only the disk limits. What is held stays, also above it."""
        self._capacity_bytes = capacity_bytes
        whole = self._whole_reserve_bytes
        self._reserve_bytes = min(whole, capacity_bytes // 4) if capacity_bytes else whole

    def took(self, size_bytes: int) -> None:
        """A log grew (or, with a negative size, gave room back)."""
        self.used_bytes += size_bytes
        self._free_bytes -= size_bytes
        self._unchecked_bytes += abs(size_bytes)

    def refresh(self) -> None:
        """Ask the file system again: others write there too."""
        self._unchecked_bytes = 0
        try:
            self._free_bytes = self._disk.free_bytes()
        except DiskError:
            # A disk that does not even answer this has no room for anything.
            self._free_bytes = 0

    def tick(self, now_ms: int) -> None:
        """Called often; asks the file system seldom."""
        if now_ms - self._checked_ms >= _RECHECK_MS:
            self._checked_ms = now_ms
            self.refresh()
            self._take_ballast()

    def _take_ballast(self) -> None:
        """While there is plenty: what was given up is not taken from the reserve."""
        ballast = self._ballast
        if ballast is not None and 0 < ballast.missing_bytes <= self._free_bytes - self._reserve_bytes:
            ballast.take()
            self.refresh()

    def give_up_ballast(self, *, for_entry: bool) -> bool:
        """Something that frees room had none. True when there is more now: try once more."""
        given = self._ballast is not None and self._ballast.give_up(for_entry=for_entry)
        self.refresh()
        return given

    def room_bytes(self) -> int:
        """What messages may still take."""
        return max(0, self._room(self._reserve_bytes))

    def has_room(self, size_bytes: int) -> bool:
        """Is there room for so many bytes of messages?"""
        return size_bytes <= self._room(self._reserve_bytes)

    @property
    def is_scarce(self) -> bool:
        """Is half of the reserve used up?"""
        return self._room(self._reserve_bytes // 2) < 0

    def _room(self, kept_back_bytes: int) -> int:
        """What there is beside so much; negative when that is used."""
        if self._unchecked_bytes >= _RECHECK_BYTES:
            self.refresh()
        room = self._free_bytes
        if self._capacity_bytes:
            room = min(room, self._capacity_bytes - self.used_bytes)
        return room - kept_back_bytes
