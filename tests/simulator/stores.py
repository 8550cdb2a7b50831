"""A simulated broker's volume: the real `VolumeStore` over a disk that forgets what was not made durable."""

from __future__ import annotations

import random

from tests.simulator.disk import SimDisk

from supercluster.broker.storage.disk.ballast import Ballast
from supercluster.broker.storage.disk.space import Space
from supercluster.broker.storage.log.group_files import HARD_STATE, HardState
from supercluster.broker.storage.log.options import LogOptions
from supercluster.broker.storage.log.slot_file import newest
from supercluster.broker.storage.volume.store import VolumeStore
from supercluster.broker.storage.volume.volume import GROUPS, Volume, directory_name, open_volume

# Small, so that a run of seconds seals segments, takes checkpoints and starts from them.
SEGMENT_BYTES = 4096
SYNC_INTERVAL_MS = 200
RESERVE_BYTES = 16 * 1024
BALLAST_BYTES = 16 * 1024


class SimStore:
    """One broker's machine: a disk and a boot id."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._boot = 1
        self._starts = 0
        self.has_boot_id = True
        """Does the machine say when it was started? Else every start is one behind a power failure."""
        self.may_be_another = False
        """Is there a reason for the volume to get another incarnation?"""
        self.disk = SimDisk(rng)
        self._volume: Volume | None = None
        self.incarnation = ""
        self.unread: set[str] = set()
        """Incarnations that the directory had and that could not be read: its logs are what they were, and named after these."""
        self.ballast_bytes = BALLAST_BYTES
        """As brokers have it, but small: a checkpoint or two, and the entry of a purge."""

    def start(self) -> VolumeStore:
        """Open the volume for a new process."""
        self._starts += 1
        boot = f"boot-{self._boot}" if self.has_boot_id else f"start-{self._starts}"
        volume = open_volume(self.disk, boot, lambda: f"{self._rng.getrandbits(48):012x}")
        self._volume = volume
        if volume.is_new and self.incarnation:
            self.unread.add(self.incarnation)
        self.incarnation = volume.identity.incarnation
        options = LogOptions(
            segment_bytes=SEGMENT_BYTES, sync_interval_ms=SYNC_INTERVAL_MS, sync_in_tick=False
        )
        ballast = Ballast(self.disk, self.ballast_bytes) if self.ballast_bytes else None
        space = Space(self.disk, reserve_bytes=RESERVE_BYTES, ballast=ballast)
        return VolumeStore(volume, options, file_space=space)

    def durable_vote(self, group: str) -> tuple[int, str]:
        """(term, vote) of a group as a power failure at this moment would leave it at worst."""
        assert self._volume is not None
        data = self.disk.durable(f"{self._volume.group_directory(group)}/{HARD_STATE}")
        found = newest(data)
        state = HardState.decode(found[1]) if found is not None else HardState()
        return state.term, state.vote

    def files_of(self, group: str) -> list[str]:
        """A group's files that hold something."""
        folder = f"{GROUPS}/{directory_name(group)}/"
        return [path for path in self.disk.paths() if path.startswith(folder) and self.disk.size(path)]

    def files_of_volume(self) -> list[str]:
        """The files that all groups share."""
        return [path for path in self.disk.paths() if "/" not in path and self.disk.size(path)]

    def lose_copy(self, group: str) -> None:
        """The directory of one group is gone; what the volume remembers of the group is not."""
        self.disk.lose(f"{GROUPS}/{directory_name(group)}")

    def crash(self, *, power: bool) -> None:
        """The process dies; with `power` so does the machine."""
        self.disk.crash(power=power)
        if power:
            self._boot += 1

    def put_back(self, image: object) -> None:
        """The directory is as it was when the image of its disk was taken."""
        self.disk.put_back(image)
        self.may_be_another = True

    def destroy(self) -> None:
        """The directory is gone."""
        self.disk = SimDisk(self._rng)
        self._volume = None
        self.unread.clear()
        self.incarnation = ""
