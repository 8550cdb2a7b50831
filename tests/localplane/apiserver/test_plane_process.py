"""The control plane as a process: its files, its end, its restart, and what it costs."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.conftest import RunningPlane, kubectl_runner
from tests.localplane.apiserver.apilab import a_definition
from tests.support.tiers import case

from supercluster.localplane.__main__ import main
from supercluster.localplane.kubeplane import KubePlane, KubePlaneError

pytestmark = pytest.mark.e2e

# What the issue allows the whole control plane.
MAX_MEMORY_MIB = 150


@pytest.fixture
def start(tmp_path: Path) -> Any:
    started: list[RunningPlane] = []

    def make(*extra: str) -> RunningPlane:
        running = RunningPlane(tmp_path / "state", extra)
        running.start()
        started.append(running)
        return running

    yield make
    for running in started:
        if running.process is not None:
            running.stop(signal.SIGKILL)


def test_secrets_are_readable_by_their_owner_only(start: Callable[..., RunningPlane], tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)  # as an older version left it
    running = start("--nodes", "0")
    for name in ("kubeconfig", "token", "apiserver.key"):
        assert stat.S_IMODE((running.state_dir / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(running.state_dir.stat().st_mode) == 0o700
    ready = json.loads((running.state_dir / "ready.json").read_text())
    assert running.process is not None
    assert ready["pid"] == running.process.pid
    assert ready["url"].startswith("https://127.0.0.1:")
    assert running.stop() == 0
    assert not (running.state_dir / "ready.json").exists()


@pytest.mark.parametrize(
    "end",
    [
        case(end, id=end.name, is_short=end is not signal.SIGINT)
        for end in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
    ],
)
def test_objects_definitions_and_the_revision_survive_a_restart(
    start: Callable[..., RunningPlane], kubectl: Path, tmp_path: Path, end: signal.Signals
) -> None:
    first = start("--nodes", "0")
    run = kubectl_runner(kubectl, first.kubeconfig, tmp_path)
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **a_definition()}
    run("apply", "-f", "-", stdin=crd)
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"n": 1}}
    run("apply", "-f", "-", stdin=widget)
    before = json.loads(run("get", "widget", "w", "-o", "json").stdout)
    token = first.token
    assert first.stop(end) == (-9 if end == signal.SIGKILL else 0)
    second = start("--nodes", "0")
    assert second.token == token
    again = kubectl_runner(kubectl, second.kubeconfig, tmp_path)
    assert json.loads(again("get", "widget", "w", "-o", "json").stdout) == before
    changed = json.loads(again("annotate", "widget", "w", "x=y", "-o", "json").stdout)
    assert int(changed["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])


def test_a_second_plane_over_the_same_directory_is_refused(start: Callable[..., RunningPlane]) -> None:
    running = start("--nodes", "0")
    command = [
        sys.executable,
        "-m",
        "supercluster.localplane",
        "--state",
        str(running.state_dir),
        "--nodes",
        "0",
    ]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 4
    assert "another control plane runs on" in refused.stderr


def test_a_taken_port_and_bad_arguments_have_exit_codes(
    start: Callable[..., RunningPlane], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = start("--nodes", "0")
    port = running.url.rsplit(":", 1)[1]
    base = [sys.executable, "-m", "supercluster.localplane", "--state", str(tmp_path / "other")]
    taken = subprocess.run(
        [*base, "--port", port, "--nodes", "0"], capture_output=True, text=True, timeout=60
    )
    assert (taken.returncode, "is in use" in taken.stderr) == (3, True)
    for wrong in (("--port", "70000"), ("--nodes", "101"), ("--nodes", "x"), ("--help",)):
        with pytest.raises(SystemExit) as ended:
            main([*base[3:], *wrong])
        assert ended.value.code == (0 if wrong == ("--help",) else 2)
    shown = " ".join(capsys.readouterr().out.lower().split())
    assert "for laptops and tests" in shown
    assert "4 another control plane runs on the directory" in shown


def test_the_whole_plane_stays_below_its_memory(
    start: Callable[..., RunningPlane], kubectl: Path, tmp_path: Path
) -> None:
    running = start("--nodes", "3")
    run = kubectl_runner(kubectl, running.kubeconfig, tmp_path)
    for path in sorted((Path(__file__).resolve().parents[3] / "crds").glob("*.yaml")):
        run("apply", "--server-side", "-f", str(path))
    run("get", "nodes,crd", "-o", "wide")
    stream = {
        "apiVersion": "supercluster.dev/v1alpha1",
        "kind": "Stream",
        "metadata": {"name": "s"},
        "spec": {"superCluster": "demo", "subjects": ["a.>"]},
    }
    run("apply", "-f", "-", stdin=stream)
    assert running.process is not None
    memory_mib = psutil.Process(running.process.pid).memory_info().rss / 2**20
    assert memory_mib < MAX_MEMORY_MIB
    assert running.stop() == 0


def test_a_folder_without_kubernetes_programs_is_refused_with_their_names(tmp_path: Path) -> None:
    (tmp_path / "etcd").touch(mode=0o755)
    with pytest.raises(
        KubePlaneError, match="no program kube-apiserver, kube-controller-manager, kube-scheduler"
    ):
        KubePlane(tmp_path / "state", 1, tmp_path)
    assert not (tmp_path / "state").exists()
