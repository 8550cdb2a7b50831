"""What is ours alone: the embedded control plane, the way of a Stream to Ready, and the simulator's pace."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack

import psutil
from benchmarks.client import BenchError
from benchmarks.course import Course
from benchmarks.table import Row, Target
from e2e.demo.plane import PlaneBrokers
from e2e.demo.processes import Child, tail

PLANE_SECONDS_MAX = 30.0
SETTLE_SECONDS = 3.0
SEEDS = 16
SEEDS_PER_MINUTE_WANTED = 2_000 / 15
MIB = 2**20


def tree_bytes(pid: int) -> int:
    """Resident memory of a process and its children."""
    root = psutil.Process(pid)
    return sum(process.memory_info().rss for process in (root, *root.children(recursive=True)))


def localplane(course: Course) -> list[Row]:
    up = Row("embedded control plane: up after its start", "s", Target(4, at_least=False))
    memory = Row(
        "embedded control plane: resident memory, with its helpers", "MiB", Target(150, at_least=False)
    )
    for run in range(course.runs):
        state, log = course.directory / f"plane-{run}", course.directory / f"plane-{run}.log"
        started = time.monotonic()
        child = Child(
            "control plane",
            [sys.executable, "-m", "supercluster.localplane", "--state", str(state)],
            log,
            environment=os.environ,
        )
        try:
            while not (state / "ready.json").exists():
                child.check()
                if time.monotonic() - started > PLANE_SECONDS_MAX:
                    raise BenchError(
                        f"the control plane is not up after {PLANE_SECONDS_MAX:g} s:\n{tail(log)}"
                    )
                time.sleep(0.01)
            up.add("supercluster", time.monotonic() - started)
            time.sleep(SETTLE_SECONDS)
            memory.add("supercluster", tree_bytes(child.pid) / MIB)
        finally:
            child.stop()
    return [up, memory]


def stream_ready(course: Course) -> list[Row]:
    """From `kubectl apply` of a Stream to Ready, on a cluster that runs."""
    row = Row("Stream applied to a running cluster: Ready after", "s", Target(2, at_least=False))
    with ExitStack() as stack:
        course.directory.mkdir(parents=True, exist_ok=True)
        brokers = PlaneBrokers(course.directory, stack, lambda _: None, keep=False)
        asyncio.run(_time_streams(brokers, course.runs, row))
    return [row]


async def _time_streams(brokers: PlaneBrokers, runs: int, row: Row) -> None:
    await brokers.start()
    for run in range(runs):
        row.add("supercluster", await brokers.time_to_ready(f"bench-{run}", [f"bench{run}.>"]))


def simulator(course: Course) -> list[Row]:
    row = Row("simulator, 2 processes", "seeds/min", Target(SEEDS_PER_MINUTE_WANTED, at_least=True))
    course.directory.mkdir(parents=True, exist_ok=True)
    for run in range(course.runs):
        command = [sys.executable, "-m", "tests.simulator.run", "--seeds", str(SEEDS), "--jobs", "2"]
        started = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(
                f"the simulator failed with exit code {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-1000:]}"
            )
        row.add("supercluster", SEEDS / (time.monotonic() - started) * 60)
        (course.directory / f"simulator-{run}.log").write_text(
            json.dumps({"stdout": done.stdout[-4000:]}), encoding="utf-8"
        )
    return [row]
