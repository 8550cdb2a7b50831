"""temporary"""
from __future__ import annotations
import json, os, random, shutil, tempfile
from pathlib import Path
from supercluster.broker.ports import OpenedGroup
from supercluster.broker.storage.osdisk import OsDisk
from supercluster.broker.storage.options import Fsync, LogOptions, Stop
from supercluster.broker.storage.recovery import Verdict, open_log

class SimStore:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.root = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="scsim-"))
        self.incarnation = ""
        self.process_count = 0
        self._registered: dict[str, str] = {}
        self._new()
    def _new(self) -> None:
        self.incarnation = f"{self.rng.getrandbits(48):012x}"
        self.process_count = 0
        self._registered = {}
        shutil.rmtree(self.root, ignore_errors=True); self.root.mkdir()
        self.disk = OsDisk(self.root)
        self.stop = Stop.CLEAN
    def start(self) -> "SimStore":
        self.process_count += 1
        return self
    def crash(self, *, power: bool) -> None:
        self.stop = Stop.KILLED
    def destroy(self) -> None:
        self._new()
    def registered(self) -> dict[str, str]:
        return dict(self._registered)
    def open(self, group: str, *, memory: bool, fsync: str, create: bool) -> OpenedGroup:
        log, report = open_log(self.disk, "groups/" + group, LogOptions(fsync=Fsync(fsync), segment_bytes=65536), self.stop if not create else Stop.CLEAN)
        return OpenedGroup(log, report.commit_index, report.verdict is Verdict.DOUBTFUL, report.verdict is Verdict.LOST_RECORD)
    def register(self, group: str, member: str) -> None:
        self._registered[group] = member
    def forget(self, group: str) -> None:
        self._registered.pop(group, None)
