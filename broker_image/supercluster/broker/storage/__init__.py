"""The broker's disk: a group's log that is its stream's store, and the identity of the data directory.

Everything goes through the `Disk` seam (`disk/disk.py`), so the same code runs on the operating system's files and on the
simulator's. Entry points: `volume.open_volume`, `recovery.open_log`, `memory_log.MemoryLog`, `store.VolumeStore`.
"""
