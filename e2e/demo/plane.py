"""The demo's brokers on the embedded control plane, which is started here together with the operator.

The manifests are those that a real cluster would get. Where SUPERCLUSTER_KUBE_ASSETS names Kubernetes' own programs, they are the
control plane, and helm installs the operator by its chart.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import psutil
from e2e.demo import chart
from e2e.demo.kube import KubernetesBrokers, Say
from e2e.demo.manifests import ROOT, documents
from e2e.demo.pipelines import NAMESPACE, PipelinesReport
from e2e.demo.processes import Child
from e2e.demo.stream_pipelines import StreamPipelines

from tools import fetch_kube_tools

CRDS = ROOT / "crds"
PLANE_SECONDS = 30.0
NODES = 3
"""Simulated, each in a zone of its own."""


class PlaneBrokers(KubernetesBrokers):
    """The embedded control plane, the operator, and the brokers as local processes."""

    def __init__(
        self, directory: Path, stack: ExitStack, say: Say, *, keep: bool, nodes: int = NODES
    ) -> None:
        super().__init__(directory, say)
        self._keep = keep
        self.state = directory / "plane"
        self.kubeconfig = self.state / "kubeconfig"
        arguments = ("--state", str(self.state), "--nodes", str(nodes))
        self._plane = self._child(stack, "control plane", "supercluster.localplane", *arguments)
        self._operator: Child | None = None
        self._stack = stack
        self._is_by_chart = bool(os.environ.get("SUPERCLUSTER_KUBE_ASSETS"))

    def _child(self, stack: ExitStack, name: str, module: str, *arguments: str) -> Child:
        log = self._directory / f"{name.replace(' ', '-')}.log"
        child = Child(
            name, [sys.executable, "-m", module, *arguments], log, environment=os.environ, keep=self._keep
        )
        stack.callback(child.stop)
        return child

    async def start(self) -> None:
        """From nothing to a stream that is Ready.

        Raises:
            TimeoutError: something is not ready in time; the message has its condition.
            ProcessEndedError: the control plane or the operator ended.
        """
        ready = self.state / "ready.json"
        await self._until(ready.exists, PLANE_SECONDS, lambda: f"the control plane does not write {ready}")
        self._connect(self.kubeconfig)
        if self._is_by_chart:
            await asyncio.to_thread(self._install_chart)
        else:
            await asyncio.to_thread(self._apply, documents(CRDS))
            self._operator = self._child(
                self._stack, "operator", "supercluster.app.renewed", *self._operator_arguments()
            )
        self._say("control plane and operator are up")
        await self.declare()

    def _install_chart(self) -> None:
        """Raises RuntimeError when helm fails; the message has what it said."""
        # The chart makes the drivers' account there.
        self._apply([NAMESPACE])
        served = f"{self.namespace},{NAMESPACE['metadata']['name']}"
        command = chart.install_command(fetch_kube_tools.fetch()["helm"], served)
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self._directory)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"helm install failed: {done.stderr.strip()}")

    def _check(self) -> None:
        self._plane.check()
        if self._operator is not None:
            self._operator.check()

    def _operator_arguments(self) -> list[str]:
        # Any free port, and a short lease: there is one operator on this plane, and other planes may run beside it.
        return ["--kubeconfig", str(self.kubeconfig), "--listen", "127.0.0.1:0", "--lease-duration", "3"]

    def urls(self) -> dict[str, str]:
        return {
            name: f"{self.login.scheme}://{pod.status.pod_ip}:4222"
            for name, pod in self._pods().items()
            if pod.status.pod_ip
        }

    def kill(self, name: str) -> None:
        """Find the broker's process by what its pod's environment says, and kill it.

        Raises:
            LookupError: there is no such process.
        """
        for pid in self.broker_pids(name, self._pod(name).status.pod_ip):
            os.kill(pid, signal.SIGKILL)

    def broker_pids(self, name: str, address: str) -> list[int]:
        """Processes of the broker that has this name at this address.

        Raises:
            LookupError: there are none.
        """
        found = []
        for process in psutil.process_iter():
            try:
                environment = process.environ()
                is_broker = any(
                    "supercluster.broker" in word or "supercluster-broker" in word
                    for word in process.cmdline()
                )
            except psutil.Error:
                continue
            if is_broker and environment.get("POD_NAME") == name and environment.get("POD_IP") == address:
                found.append(process.pid)
        if not found:
            raise LookupError(f"no process of broker {name} at {address} was found")
        return found

    async def run_pipelines(self, directory: Path, say: Say) -> PipelinesReport:
        pipelines = StreamPipelines(self._client(), self._core, self._apply, say)
        return await pipelines.run(brings_account=not self._is_by_chart)

    def reach(self) -> list[str]:
        urls = self.urls()
        first = next(iter(urls.values()))
        started = [self._plane] if self._operator is None else [self._operator, self._plane]
        return [
            f"export KUBECONFIG={self.kubeconfig}",
            f"{Path(sys.executable).with_name('supercluster')} status",
            "kubectl get superclusters,clusters,streams,streampipelines,pods -A  (python -m tools.fetch_kube_tools fetches a kubectl)",
            f"nats:       {', '.join(urls.values())} (user and password: {self._credentials})",
            f"authority:  {self.login.ca_file}, for the name {self.login.tls_name}",
            f"monitoring: https://{first.partition('://')[2].replace(':4222', ':8222')}/varz, /jsz, /metrics",
            f"stop it:    kill {' '.join(str(child.pid) for child in started)}",
        ]
