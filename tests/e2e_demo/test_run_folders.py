"""Each run of the demo, and of the matrix of moves, has a folder of its own; old ones go, but never one that is in use."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from e2e.demo.course import RUNS_KEPT, make_directory


def ended_process() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_the_oldest_runs_are_removed_but_for_those_that_run_or_are_kept(tmp_path: Path) -> None:
    ended = ended_process()
    running = tmp_path / f"20260101-000000-{os.getppid()}"
    kept = tmp_path / f"20260101-000001-{ended}"
    old = [tmp_path / f"20260101-00000{number}-{ended}" for number in range(2, 2 + RUNS_KEPT)]
    for path in (running, kept, *old):
        path.mkdir()
    (kept / "plane").mkdir()
    (kept / "plane" / "ready.json").touch()
    made = make_directory(tmp_path)
    assert made.name.endswith(f"-{os.getpid()}")
    assert sorted(tmp_path.iterdir()) == sorted((running, kept, *old[1:], made))
