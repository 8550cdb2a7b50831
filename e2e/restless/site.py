"""The embedded control plane, an operator that is started again when it ends, kubectl, and what is asked of the API and brokers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.servers import CLIENT_PORT
from e2e.moves.plane import NAMESPACE, Plane
from e2e.moves.site import PATIENCE_SECONDS
from e2e.restless import resources
from e2e.restless.plan import NODES

from supercluster.spark.client import Address, Credentials, Servers
from supercluster.spark.jetstream import JetStreamSession
from supercluster.spark.nats.reader import read_range
from tools import fetch_kube_tools

LEASE_SECONDS = "10"
KUBECTL_SECONDS = 240.0
POLL_SECONDS = 0.2
LEASE_LOST = 4
"""An operator that could not renew its Lease in time ends so, and Kubernetes starts another one."""
KINDS = "scl,ncl,str,rpp,nu"
OWNED = "sts,svc,cm,pdb,secret,pvc"
SHORT = {
    "SuperCluster": "scl",
    "Cluster": "ncl",
    "Stream": "str",
    "ReplicaPolicy": "rpp",
    "User": "nu",
    "StatefulSet": "sts",
    "Service": "svc",
    "ConfigMap": "cm",
    "PodDisruptionBudget": "pdb",
    "Secret": "secret",
    "PersistentVolumeClaim": "pvc",
    "Pod": "pod",
}


WATCHED = 'jsonpath={.type} {.object.kind} {.object.metadata.name} {.object.metadata.uid}{"\\n"}'


def tell_deletions(lines: Iterable[str], saw: Callable[[str, str], None]) -> None:
    """Of a watch's lines (`WATCHED`), those of objects that are gone."""
    for line in lines:
        words = line.split()
        if len(words) == 4 and words[0] == "DELETED" and words[1] in SHORT:
            saw(f"{SHORT[words[1]]}/{words[2]}", words[3])


class KubectlError(Exception):
    """kubectl ended with an error; the message has its words."""


class FaultError(Exception):
    """The lever was refused; the message says why."""


class RestlessPlane(Plane):
    """With a lease that a busy machine can renew, and an operator whose end is no end of the run."""

    def _operator_arguments(self) -> list[str]:
        *others, _ = super()._operator_arguments()
        return [*others, LEASE_SECONDS]

    @property
    def operator_exit_code(self) -> int | None:
        assert self._operator is not None
        return self._operator.exit_code


class RestlessSite:
    """See the module."""

    def __init__(self, directory: Path, stack: ExitStack, say: Callable[[str], None]) -> None:
        self.directory = directory
        self.plane = RestlessPlane(directory, stack, say, keep=False, nodes=NODES)
        self.operator_ends: list[int] = []
        """Exit codes of operators that nobody killed."""
        self._binary = ""
        self._operator_lock = threading.Lock()
        self._killed_until = 0.0
        """Zero: nobody has killed it."""

    def start(self) -> None:
        """From nothing to resources that are all Ready."""
        self._binary = str(fetch_kube_tools.fetch()["kubectl"])
        asyncio.run(self.plane.start_with(list(resources.all_of().values())))
        self.login = self.plane.credentials("app")

    # ---- kubectl --------------------------------------------------------------------------------------------------

    def kubectl(self, *words: str, stdin: Any = None) -> str:
        """Its output.

        Raises:
            KubectlError: it failed.
        """
        done = subprocess.run(
            [self._binary, "--kubeconfig", str(self.plane.kubeconfig), *words],
            input=None if stdin is None else json.dumps(stdin),
            capture_output=True,
            text=True,
            timeout=KUBECTL_SECONDS,
            env={**os.environ, "HOME": str(self.directory), "KUBECTL_KUBERC": "false"},
            check=False,
        )
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def listed(self, kinds: str) -> dict[str, dict[str, Any]]:
        """Objects by kind/name."""
        items = json.loads(self.kubectl("get", kinds, "-o", "json"))["items"]
        return {f"{SHORT[body['kind']]}/{body['metadata']['name']}": body for body in items}

    def watch_deletions(self, saw: Callable[[str, str], None]) -> None:
        """Tell kind/name and uid of each object that is deleted from now on. A watch that ends begins anew; what is deleted between
        two of them shows in the uids at the end alone."""
        for kind in f"{KINDS},{OWNED}".split(","):
            threading.Thread(target=self._watch, args=(kind, saw), daemon=True, name=f"watch {kind}").start()

    def _watch(self, kind: str, saw: Callable[[str, str], None]) -> None:
        """kubectl watches one kind at a time."""
        words = ("get", kind, "--watch-only", "--output-watch-events", "-o", WATCHED)
        while True:
            with subprocess.Popen(
                [self._binary, "--kubeconfig", str(self.plane.kubeconfig), *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "HOME": str(self.directory), "KUBECTL_KUBERC": "false"},
            ) as process:
                assert process.stdout is not None
                tell_deletions(process.stdout, saw)
            time.sleep(POLL_SECONDS)

    def get(self, target: str) -> dict[str, Any]:
        """Empty: it is not there."""
        text = self.kubectl("get", target, "--ignore-not-found", "-o", "json")
        return dict(json.loads(text)) if text.strip() else {}

    def node(self, target: str) -> str:
        """The name of the node that an act calls node/<number>."""
        names = sorted(self.kubectl("get", "nodes", "-o", "name").split())
        return names[int(target.partition("/")[2])].removeprefix("node/")

    def fault(self, *words: str) -> None:
        """A lever of the embedded plane, as `python -m supercluster.localplane.node.faults` has it.

        Raises:
            FaultError: it was refused.
        """
        command = [sys.executable, "-m", "supercluster.localplane.node.faults", str(self.plane.state), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=KUBECTL_SECONDS, check=False)
        if done.returncode:
            raise FaultError(done.stderr.strip())

    # ---- the operator ---------------------------------------------------------------------------------------------

    def kill_operator(self, away_s: float) -> None:
        """SIGKILL; `mind_operator` starts another one when that time is over."""
        with self._operator_lock:
            self.plane.kill_operator()
            self._killed_until = time.monotonic() + away_s

    def mind_operator(self) -> None:
        """Start another one where it ended, as a Deployment does. On the main thread: it ends with the thread that started it."""
        with self._operator_lock:
            code = self.plane.operator_exit_code
            if code is None or time.monotonic() < self._killed_until:
                return
            if not self._killed_until and code != LEASE_LOST:
                self.operator_ends.append(code)
            self._killed_until = 0.0
            self.plane.start_operator()

    # ---- brokers --------------------------------------------------------------------------------------------------

    def urls(self) -> list[str]:
        found = self.plane.addresses()
        return [f"nats://{host}:{CLIENT_PORT}" for host, _ in found.values() if host]

    def session(self) -> JetStreamSession:
        servers = Servers([Address.parse(url) for url in self.urls()], self.login)
        return JetStreamSession(servers, patience_seconds=PATIENCE_SECONDS)

    def created(self) -> dict[str, str]:
        """When each stream was created, by stream/name."""
        session = self.session()
        try:
            return {
                f"stream/{name}": str(session.ask(f"$JS.API.STREAM.INFO.{name}", {})["created"])
                for name in session.stream_names()
            }
        finally:
            session.drop()

    def messages(self, stream: str) -> list[bytes]:
        """All of a stream, in its order."""
        session = self.session()
        try:
            last = session.stream_state(stream).last_sequence
            found = read_range(session, stream, 1, last, patience_seconds=PATIENCE_SECONDS)
            return [record[4] for records in found for record in records]
        finally:
            session.drop()

    def uids(self) -> dict[str, str]:
        """Of all resources, of what the operator made for them, and of streams."""
        found = self.listed(f"{KINDS},{OWNED}")
        return {target: str(body["metadata"]["uid"]) for target, body in found.items()} | self.created()

    def logs(self) -> dict[str, Path]:
        """Of the operator, and of brokers, by name."""
        found = {"operator": self.directory / "operator.log"}
        for path in (self.plane.state / "pods" / NAMESPACE).glob("*/broker.log"):
            found[path.parent.name] = path
        return found


__all__ = ["NAMESPACE", "Credentials", "FaultError", "KubectlError", "RestlessSite"]
