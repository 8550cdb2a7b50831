"""`supercluster dev up` and `dev down`: the embedded control plane and the operator as background processes.

The state folder holds all state: objects, volumes, logs, the kubeconfig, and the list of started processes.
`down` ends exactly those.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from supercluster.api.crd import definitions
from supercluster.app import kubeconfig, lease
from supercluster.app.commands import processes
from supercluster.app.commands.errors import CommandError, NotReadyError
from supercluster.app.commands.processes import Process
from supercluster.app.kube import KubeClient
from supercluster.reconcilers.ports import KubeError, mapping

POLL_S = 0.05
PLANE_GRACE_S = 30.0
OPERATOR_GRACE_S = 10.0
LEASE_NAME = "supercluster-operator"
# As long as a loaded laptop may keep the operator from renewing it; the one after a killed operator waits for it.
LEASE_DURATION_S = 10


class DevError(CommandError):
    """Something could not be started; the message says what and where its log is."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Files of a state folder."""

    path: Path

    @property
    def kubeconfig(self) -> Path:
        return self.path / "kubeconfig"

    @property
    def ready(self) -> Path:
        return self.path / "ready.json"

    @property
    def record(self) -> Path:
        """What was started, by name."""
        return self.path / "dev.json"

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"

    def started(self) -> dict[str, Process]:
        """Processes of this folder that still run."""
        try:
            content = json.loads(self.record.read_text(encoding="utf-8"))
            known = {str(name): Process.from_json(entry) for name, entry in content.items()}
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            return {}
        return {name: process for name, process in known.items() if processes.is_alive(process)}

    def remember(self, running: dict[str, Process]) -> None:
        text = json.dumps({name: process.to_json() for name, process in running.items()}, indent=1) + "\n"
        draft = self.record.with_suffix(".new")
        draft.write_text(text, encoding="utf-8")
        draft.replace(self.record)


async def up(
    folder: Folder,
    *,
    nodes: int,
    port: int,
    with_operator: bool,
    timeout_s: float,
    say: Callable[[str], None],
) -> None:
    """Start what does not run yet, and wait until all of it is ready.

    Raises:
        DevError, NotReadyError: something did not start, or was not ready in time.
    """
    folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.path.chmod(0o700)
    deadline = time.monotonic() + timeout_s
    running = folder.started()
    if "plane" not in running:
        say("starting the embedded control plane")
        folder.ready.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "supercluster.localplane", "--state", str(folder.path)]
        argv += ["--port", str(port), "--nodes", str(nodes)]
        running["plane"] = processes.start(argv, folder.log("plane"), os.environ)
        folder.remember(running)
    await _until(
        lambda: _plane_is_ready(folder, running["plane"]), running["plane"], "the control plane", deadline
    )
    async with KubeClient(kubeconfig.from_file(folder.kubeconfig), field_manager="supercluster-cli") as kube:
        await install_definitions(kube, deadline)
        say("custom resource definitions installed")
        if not with_operator:
            return
        if "operator" in running:
            say("the operator is already running")
            return
        say("starting the operator")
        identity = f"dev-{secrets.token_hex(4)}"
        running["operator"] = processes.start(
            _operator_argv(folder), folder.log("operator"), {**os.environ, "POD_NAME": identity}
        )
        folder.remember(running)
        while not await _leads(kube, identity):
            await _pause(running["operator"], "the operator", deadline)
    say("the operator is ready")


def _operator_argv(folder: Folder) -> list[str]:
    return [
        sys.executable,
        "-m",
        "supercluster.app.renewed",
        "--kubeconfig",
        str(folder.kubeconfig),
        "--listen",
        "127.0.0.1:0",
        "--lease-duration",
        str(LEASE_DURATION_S),
    ]


async def install_definitions(kube: KubeClient, deadline: float) -> None:
    """Apply the definitions and wait until the server serves them."""
    for definition in definitions():
        await kube.apply(definition)
    for definition in definitions():
        name = definition["metadata"]["name"]
        while True:
            there = await kube.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name)
            conditions = mapping((there or {}).get("status")).get("conditions") or ()
            if any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions):
                break
            if time.monotonic() > deadline:
                raise NotReadyError(f"definition {name} was not established in time")
            await asyncio.sleep(POLL_S)


def _plane_is_ready(folder: Folder, process: Process) -> bool:
    try:
        ready = json.loads(folder.ready.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return mapping(ready).get("pid") == process.pid and folder.kubeconfig.exists()


async def _leads(kube: KubeClient, identity: str) -> bool:
    with suppress(KubeError):
        there = await kube.get(lease.API_VERSION, "Lease", "default", LEASE_NAME)
        return mapping((there or {}).get("spec")).get("holderIdentity") == identity
    return False


async def _until(is_so: Callable[[], bool], process: Process, what: str, deadline: float) -> None:
    while not is_so():
        await _pause(process, what, deadline)


async def _pause(process: Process, what: str, deadline: float) -> None:
    if not processes.is_alive(process):
        raise DevError(
            f"{what} stopped unexpectedly; the end of {process.log}:\n{processes.tail(process.log)}"
        )
    if time.monotonic() > deadline:
        raise NotReadyError(f"{what} was not ready in time; it still runs, and its log is {process.log}")
    await asyncio.sleep(POLL_S)


def down(folder: Folder, say: Callable[[str], None]) -> bool:
    """End what `up` started, the operator first. False when nothing ran."""
    running = folder.started()
    ended = 0
    for name, grace_s in (("operator", OPERATOR_GRACE_S), ("plane", PLANE_GRACE_S)):
        process = running.pop(name, None)
        if process is not None:
            say(f"stopping {name} (pid {process.pid})")
            ended += processes.end(process, grace_s)
            folder.remember(running)
    folder.record.unlink(missing_ok=True)
    return ended > 0
