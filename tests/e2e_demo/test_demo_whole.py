"""The demo as a user runs it: from manifests to equal figures, and interrupted, without anything left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.support.tiers import case

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def _interrupts_count() -> Iterator[None]:
    """A shell in the background has its children ignore SIGINT, and theirs: those of this test must not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def start(logs: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "e2e.demo", "--logs", str(logs), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def left_behind(logs: Path) -> list[str]:
    """Processes that have the run's folder in their arguments or environment."""
    mark, found = str(logs), []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if process.pid != os.getpid() and any(mark in word for word in words):
            found.append(f"{process.pid}: {' '.join(process.cmdline())}")
    return found


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "demo-logs"
    yield folder
    for line in left_behind(folder):
        os.kill(int(line.partition(":")[0]), signal.SIGKILL)


@pytest.mark.parametrize(
    "moment",
    [
        case("control plane and operator are up", id="at its start", is_short=True),
        case("publishing 336,776 flights", id="while it publishes", is_short=False),
    ],
)
def test_an_interrupted_demo_leaves_no_process_behind(logs: Path, moment: str) -> None:
    process = start(logs)
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if moment in line:
            assert left_behind(logs) != []
            process.send_signal(signal.SIGINT)
            break
    rest, _ = process.communicate(timeout=120)
    assert process.returncode == 130, "".join(seen) + rest
    assert "interrupted" in rest
    assert left_behind(logs) == []


@pytest.mark.spark
@pytest.mark.covers(
    "MV-1",
    "MV-4",
    "MV-5",
    "MV-13",
    "OP-2",
    "SF-2",
    "SF-3",
    "SP-1",
    "CL-4",
    "RP-2",
    "MR-7",
    "SF-4",
    "SP-3",
    "SP-4",
    "CL-5",
)
@pytest.mark.parametrize(
    ("every", "flights"),
    [
        case(6, 56_130, id="every sixth flight", is_short=True),
        case(1, 336_776, id="all flights", is_short=False),
    ],
)
def test_the_demo_loses_and_repeats_nothing_and_kept_it_says_how_to_reach_and_stop_it(
    logs: Path, every: int, flights: int
) -> None:
    process = start(logs, "--keep", "--every", str(every))
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    assert f"flights: {flights:,d} in the data set, {flights:,d} archived by Spark" in output
    assert "groups that differ: 0 of 35" in output
    assert "messages lost: 0   repeated: 0   out of order: 0" in output
    assert re.search(r"longest publish stall: \d+\.\d\d s", output)
    assert re.search(r"(\S+) was killed while it led", output)
    rotated = re.search(
        r"the clients' User was rotated while ([\d,]+) flights were published: credential 2 alone is accepted \d+\.\d s after the",
        output,
    )
    assert rotated is not None, output
    if every == 1:
        # Of fewer flights all may be published when the killed broker is back.
        assert int(rotated.group(1).replace(",", "")) > flights // 20
    moved = re.search(
        r"moved from east to west in .* audit of sequences 1 to \d+ \(([\d,]+) messages.*replicas equal",
        output,
    )
    assert moved is not None, output
    assert int(moved.group(1).replace(",", "")) > flights // 7
    assert "plan: to west-0" in output
    lost = re.search(
        r"(west-\d) lost its volume while it led: .* \(([\d,]+) messages\); what was counted was read from it",
        output,
    )
    assert lost is not None, output
    assert int(lost.group(2).replace(",", "")) > flights // 7
    assert f"PersistentVolumeClaim data-{lost.group(1)}; Kubernetes made both anew" in output
    assert f"{lost.group(1)} leads the stream again" in output
    assert re.search(rf"archive: archived to sequence {flights:,d}; Parquet files: [1-9]", output)
    assert f"audit: passed: stream flights: {flights:,d} messages audited, " in output
    for name in ("archive", "audit"):
        assert f"  {name}: ProgramEnded" in output
    assert f"logs: {logs}" in output
    kubeconfig = re.search(r"export KUBECONFIG=(\S+)", output)
    stop = re.search(r"stop it:\s+kill (\d+(?: \d+)?)$", output, re.MULTILINE)
    assert kubeconfig is not None
    assert stop is not None
    assert Path(kubeconfig.group(1)).exists()
    running = [psutil.Process(int(pid)) for pid in stop.group(1).split()]
    for kept in running:
        kept.terminate()
    assert psutil.wait_procs(running, timeout=60)[1] == []
    assert left_behind(logs) == []
