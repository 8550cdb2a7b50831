"""A simulated broker's volume: the real `VolumeStore` over a disk that forgets what was not made durable."""

from __future__ import annotations

import random

from tests.simulator.disk import SimDisk

from supercluster.broker.storage.options import LogOptions
from supercluster.broker.storage.store import VolumeStore
from supercluster.broker.storage.volume import open_volume

# Small, so that a run of seconds seals segments, takes checkpoints and starts from them.
SEGMENT_BYTES = 4096
SYNC_INTERVAL_MS = 200


class SimStore:
    """One broker's machine: a disk and a boot id."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._boot = 1
        self._disk = SimDisk(rng)
        self.incarnation = ""

    def start(self) -> VolumeStore:
        """Open the volume for a new process."""
        volume = open_volume(self._disk, f"boot-{self._boot}", lambda: f"{self._rng.getrandbits(48):012x}")
        self.incarnation = volume.incarnation
        options = LogOptions(segment_bytes=SEGMENT_BYTES, sync_interval_ms=SYNC_INTERVAL_MS)
        return VolumeStore(volume, options)

    def crash(self, *, power: bool) -> None:
        """The process dies; with `power` so does the machine."""
        self._disk.crash(power=power)
        if power:
            self._boot += 1

    def destroy(self) -> None:
        """The directory is gone."""
        self._disk = SimDisk(self._rng)
        self.incarnation = ""
