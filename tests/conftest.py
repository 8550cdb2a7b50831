"""Fixtures for all tests: the tools of Kubernetes' users and a fresh embedded control plane."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.support import crashes, failures, order, watch
from tests.support.tiers import examples

# The suite decides whether work lands: the same examples every time, and no verdict on how busy the machine is. Other
# examples: pytest --hypothesis-profile=default.
settings.register_profile(
    "suite",
    max_examples=examples(50, 300),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("suite")


def pytest_configure(config: pytest.Config) -> None:
    failures.register(config)
    watch.register(config)
    crashes.register(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not KUBE_ASSETS:
        left_out = [item for item in items if item.get_closest_marker("kube")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    order.sort(items)


ROOT = Path(__file__).resolve().parent.parent
# Kubernetes' own programs, where the tests run on them (make e2e-kube).
KUBE_ASSETS = os.environ.get("SUPERCLUSTER_KUBE_ASSETS")
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 60.0
# Longer than any wait that a test asks of kubectl, so that kubectl itself reports the time-out.
KUBECTL_TIMEOUT_S = 240.0


def _fetched() -> dict[str, Path]:
    """The tools, fetched when they are missing; a failure is an error of the test, never a skip."""
    spec = importlib.util.spec_from_file_location("fetch_kube_tools", ROOT / "tools" / "fetch_kube_tools.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    paths: dict[str, Path] = module.fetch()
    return paths


@pytest.fixture(scope="session")
def kube_tools() -> dict[str, Path]:
    return _fetched()


@pytest.fixture(scope="session")
def kubectl(kube_tools: dict[str, Path]) -> Path:
    """The path of kubectl 1.35."""
    return kube_tools["kubectl"]


@pytest.fixture(scope="session")
def helm(kube_tools: dict[str, Path]) -> Path:
    return kube_tools["helm"]


@dataclass
class RunningPlane:
    """The embedded control plane as a process of its own."""

    state_dir: Path
    extra: tuple[str, ...] = ()
    process: subprocess.Popen[str] | None = None
    url: str = ""

    @property
    def kubeconfig(self) -> Path:
        return self.state_dir / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """Of Kubernetes' own API server."""
        return self.state_dir / "kube" / "audit.log"

    @property
    def token(self) -> str:
        return (self.state_dir / "token").read_text().strip()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "supercluster.localplane", "--state", str(self.state_dir), *self.extra],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "ready at" in line, f"the control plane did not come up: {line!r}"
        self.url = json.loads((self.state_dir / "ready.json").read_text())["url"]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it and return its exit code."""
        process = self.process
        assert process is not None
        if process.poll() is None:
            process.send_signal(number)
        try:
            return process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            assert process.stdout is not None
            process.stdout.close()
            self.process = None


@pytest.fixture(scope="module")
def plane_arguments() -> tuple[str, ...]:
    """Arguments of the module's control plane; a module may say others."""
    return ()


@pytest.fixture(scope="module")
def plane(
    tmp_path_factory: pytest.TempPathFactory, plane_arguments: tuple[str, ...]
) -> Iterator[RunningPlane]:
    """A control plane for the tests of one module."""
    running = RunningPlane(tmp_path_factory.mktemp("plane"), plane_arguments)
    running.start()
    yield running
    assert running.stop() == 0


Kubectl = Callable[..., subprocess.CompletedProcess[str]]


def kubectl_runner(binary: Path, kubeconfig: Path, home: Path) -> Kubectl:
    """A function that runs kubectl against a control plane and, unless told otherwise, insists on success."""

    def run(*arguments: str, stdin: Any = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        text = stdin if stdin is None or isinstance(stdin, str) else json.dumps(stdin)
        done = subprocess.run(
            [str(binary), "--kubeconfig", str(kubeconfig), *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=KUBECTL_TIMEOUT_S,
            env={**os.environ, "HOME": str(home), "KUBECTL_KUBERC": "false"},
        )
        if check and done.returncode != 0:
            shown = _how_it_stands(run, home) if arguments[0] == "wait" else ""
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}{shown}")
        return done

    return run


_CONDITIONS = (
    "jsonpath={range .items[*]}{.kind} {.metadata.name}:"
    '{range .status.conditions[*]} {.type}={.status} {.reason} "{.message}";{end}{"\\n"}{end}'
)


def _how_it_stands(kubectl: Kubectl, home: Path) -> str:
    """What a wait in vain was for: the conditions, the last events, and the end of the operator's log where it runs here."""
    log = home / "logs" / "operator.log"
    told = (
        kubectl("get", "scl,ncl,str,pods", "-A", "-o", _CONDITIONS, check=False),
        kubectl("get", "events", "-A", "--sort-by=.lastTimestamp", check=False),
    )
    parts = [done.stdout or done.stderr for done in told] + ([log.read_text()] if log.is_file() else [])
    return "".join("\n" + "\n".join(part.splitlines()[-30:]) for part in parts)


@pytest.fixture
def run_kubectl(plane: RunningPlane, kubectl: Path, tmp_path: Path) -> Kubectl:
    return kubectl_runner(kubectl, plane.kubeconfig, tmp_path)


def eventually(check: Callable[[], Any], what: str, timeout_s: float = 60.0) -> Any:
    """Poll a condition that another process brings about; the limit only ends a hung test."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.05)
