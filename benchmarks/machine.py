"""What a reader has to know of the machine to make sense of a figure."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path

import psutil
from benchmarks.servers import SYNC_INTERVAL_MS, nats_server_binary


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def describe() -> list[str]:
    version = subprocess.run(
        [nats_server_binary(), "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    memory_gib = psutil.virtual_memory().total / 2**30
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return [
        time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        f"{len(os.sched_getaffinity(0))} cores of {cpu_model()}, {memory_gib:.0f} GiB, {platform.system()} {platform.release()}",
        f"Python {platform.python_version()}; {version}; fsync every {SYNC_INTERVAL_MS} ms on both",
        f"load average at the start: {load} (1, 5 and 15 minutes)",
    ]
