"""Ends processes of a plane that is gone: run by the next plane at its start, and by the guard when the plane
dies.

The guard is this file run as a script by a bare interpreter (`-I -S`): it waits for the end of the pipe that
the plane holds open, then ends the remaining processes. The death signal of `launcher` reaches only direct
children; this reaches theirs. A process belongs to the plane if it has the state's mark in its environment or
is in a session that the plane recorded. Standard library only.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

MARK = "SUPERCLUSTER_LOCALPLANE_STATE"
CONTAINER_MARK = "SUPERCLUSTER_LOCALPLANE_CONTAINER"
ROUNDS_MAX = 50
ROUND_S = 0.02


def stat_of(pid: int) -> tuple[str, int, int, int] | None:
    """(state, parent, session, start time in ticks) of a process; None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[1]), int(fields[3]), int(fields[19])


def record(run_dir: Path, pid: int) -> None:
    """Note that a session of ours has started."""
    found = stat_of(pid)
    if found is not None:
        (run_dir / str(pid)).write_text(str(found[3]))


def forget(run_dir: Path, pid: int) -> None:
    (run_dir / str(pid)).unlink(missing_ok=True)


def pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def of_container(session: int, container: str) -> list[int]:
    """Living processes of a container: those of its session, and those that left it but have its mark."""
    mark = b"\0" + f"{CONTAINER_MARK}={container}".encode() + b"\0"
    found = []
    for pid in pids():
        stat = stat_of(pid)
        if stat is not None and stat[0] != "Z" and (stat[2] == session or _marked(pid, mark)):
            found.append(pid)
    return found


def _recorded_sessions(run_dir: Path) -> set[int]:
    """Sessions that are still the recorded ones: the leader is the same process, or is gone."""
    sessions = set()
    for entry in run_dir.iterdir():
        if not entry.name.isdecimal():
            continue
        stat = stat_of(int(entry.name))
        try:
            is_recorded = stat is None or str(stat[3]) == entry.read_text()
        except FileNotFoundError:
            continue  # Whoever recorded it has seen its end, or another process of this kind has.
        if is_recorded:
            sessions.add(int(entry.name))
    return sessions


def _marked(pid: int, mark: bytes) -> bool:
    try:
        return mark in b"\0" + Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
    except OSError:
        return False


def find(state_dir: Path) -> list[int]:
    """Living processes that a plane with this state has started."""
    run_dir = state_dir / "run"
    sessions = _recorded_sessions(run_dir) if run_dir.is_dir() else set()
    mark = b"\0" + f"{MARK}={state_dir}".encode() + b"\0"
    found = []
    for pid in pids():
        stat = stat_of(pid)
        if stat is None or stat[0] == "Z" or pid == os.getpid():
            continue
        if stat[2] in sessions or _marked(pid, mark):
            found.append(pid)
    return found


def end_all(state_dir: Path) -> int:
    """SIGKILL everything that is left. Returns how many processes there were."""
    ended: set[int] = set()
    for _ in range(ROUNDS_MAX):
        left = find(state_dir)
        if not left:
            break
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            ended.add(pid)
        time.sleep(ROUND_S)
    run_dir = state_dir / "run"
    if run_dir.is_dir():
        for entry in run_dir.iterdir():
            if entry.name.isdecimal():
                entry.unlink(missing_ok=True)
    return len(ended)


def guard(state_dir: Path) -> None:
    """Wait until the plane is gone, then end what it left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    end_all(state_dir)


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
