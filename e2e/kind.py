"""`python -m e2e.kind`: the demo's course on a real Kubernetes, a kind cluster that is made for it and deleted afterwards.

Images are built with the container engine and loaded, the operator is installed by its chart, and the same manifests are
applied as on the embedded control plane. Brokers are reached through `kubectl port-forward` and killed, as SIGKILL, in the
node that their pod runs on.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from e2e.demo import chart
from e2e.demo.course import EXIT_CODES, EXIT_FAILED, Speaker, add_logs_argument, conduct
from e2e.demo.kube import KubernetesBrokers, Say
from e2e.demo.manifests import ROOT
from e2e.demo.processes import Child, tail

ENGINES = ("docker", "podman", "nerdctl")
HINTS = {
    "an engine": f"a container engine ({', '.join(ENGINES)}; or name one by ENGINE=)",
    "kind": "kind, which makes Kubernetes clusters in containers (any recent release)",
    "kubectl": "kubectl (python -m tools.fetch_kube_tools fetches one)",
    "helm": "helm (python -m tools.fetch_kube_tools fetches one)",
}
NODES = 3
REGISTRY = "localhost"
"""Part of the images' names, so that every engine calls them the same and nobody pulls them from elsewhere."""
CREATE_SECONDS, BUILD_SECONDS, STEP_SECONDS = 600, 1_800, 300
FORWARD_SECONDS = 30.0
CLIENT_PORT = 4222


class MissingToolsError(Exception):
    """What is not installed, or does not work, with what would help."""

    def __init__(self, wanting: Sequence[str]) -> None:
        super().__init__("make e2e-kind can't be run; it needs " + "; ".join(wanting))


class ClusterExistsError(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"a kind cluster named {name} exists; it is left alone: give another --name, or delete it with"
            f" `kind delete cluster --name {name}`"
        )


class CommandFailedError(Exception):
    def __init__(self, what: str, code: int | str, log: Path) -> None:
        super().__init__(f"{what} failed ({code}); the end of {log}:\n{tail(log)}")


@dataclass(frozen=True, slots=True)
class Tools:
    """Paths of the programs that are needed."""

    engine: str
    kind: str
    kubectl: str
    helm: str

    @property
    def environment(self) -> dict[str, str]:
        """What kind has to be told of an engine other than Docker."""
        name = Path(self.engine).name
        return {} if name == "docker" else {"KIND_EXPERIMENTAL_PROVIDER": name}


def find_tools(environment: Mapping[str, str]) -> Tools:
    """The programs on the PATH.

    Raises:
        MissingToolsError: some are not there; all of them are named.
    """
    path = environment.get("PATH", "")
    asked = environment.get("ENGINE")
    names = {"kind": ("kind",), "kubectl": ("kubectl",), "helm": ("helm",)}
    candidates = {"an engine": (asked,) if asked else ENGINES, **names}
    found = {
        what: next((there for name in options if (there := shutil.which(name, path=path))), None)
        for what, options in candidates.items()
    }
    wanting = [HINTS[what] for what, there in found.items() if there is None]
    if wanting:
        raise MissingToolsError(wanting)
    return Tools(*(str(there) for there in found.values()))


def check_engine(tools: Tools) -> None:
    """Raises MissingToolsError when the engine is installed and does not answer."""
    done = subprocess.run(
        [tools.engine, "info"], capture_output=True, text=True, timeout=STEP_SECONDS, check=False
    )
    if done.returncode != 0:
        words = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise MissingToolsError([f"a container engine that answers; {tools.engine} info says: {words}"])


def cluster_config(nodes: int = NODES) -> dict[str, Any]:
    """A control plane and workers, each worker in a zone of its own."""
    workers = [
        {"role": "worker", "labels": {"topology.kubernetes.io/zone": f"zone-{number}"}}
        for number in range(1, nodes + 1)
    ]
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [{"role": "control-plane"}, *workers],
    }


def images(version: str) -> dict[str, str]:
    """The images' names by part, as tools/build-images.sh gives them."""
    return {part: f"{REGISTRY}/supercluster/{part}:{version}" for part in ("broker", "operator")}


def save_command(engine: str, archive: Path, names: Sequence[str]) -> list[str]:
    """Write images to one archive; podman does so on request only."""
    many = ["--multi-image-archive"] if Path(engine).name == "podman" else []
    return [engine, "save", *many, "--output", str(archive), *names]


def project_version() -> str:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class KindBrokers(KubernetesBrokers):
    """The demo's brokers in a kind cluster of their own."""

    # The pipelines reach brokers by forwarded ports, and no certificate is for a local address.
    tls: Mapping[str, str] = {"clients": "Optional", "monitoring": "Required"}

    def __init__(
        self, directory: Path, stack: ExitStack, say: Say, *, tools: Tools, name: str, keep: bool
    ) -> None:
        super().__init__(directory, say)
        self._tools = tools
        self._name = name
        self._keep = keep
        self._stack = stack
        self.kubeconfig = directory / "kubeconfig"
        self._forwards: dict[str, tuple[Child, int]] = {}

    async def start(self) -> None:
        """From nothing to a stream that is Ready.

        Raises:
            CommandFailedError: a step failed; the message has the end of its log.
            TimeoutError: something is not Ready in time; the message has its condition.
        """
        await asyncio.to_thread(self._install)
        self._connect(self.kubeconfig)
        await self.declare()
        await asyncio.to_thread(self.urls)

    def _install(self) -> None:
        version, config = project_version(), self._directory / "kind.yaml"
        config.write_text(yaml.safe_dump(cluster_config()), encoding="utf-8")
        if self._name in self._ask_many([self._tools.kind, "get", "clusters"]):
            raise ClusterExistsError(self._name)
        self._say(f"creating the kind cluster {self._name} with {NODES} workers")
        self._stack.callback(self._delete)
        create = ["create", "cluster", "--name", self._name, "--config", str(config), "--wait", "120s"]
        self._command([self._tools.kind, *create], CREATE_SECONDS)
        self._say("building the images of the broker and the operator, and loading them")
        build = {"ENGINE": self._tools.engine, "REGISTRY": REGISTRY}
        self._command([str(ROOT / "tools" / "build-images.sh")], BUILD_SECONDS, build)
        archive = self._directory / "images.tar"
        names = images(version)
        self._command(save_command(self._tools.engine, archive, list(names.values())), STEP_SECONDS)
        load = ["load", "image-archive", str(archive), "--name", self._name]
        self._command([self._tools.kind, *load], STEP_SECONDS)
        archive.unlink()
        self._say("installing the chart")
        own = {"image": names["operator"], "brokerImage": names["broker"]}
        self._command(chart.install_command(self._tools.helm, self.namespace, own), STEP_SECONDS)

    def _delete(self) -> None:
        self._say(f"deleting the kind cluster {self._name}")
        self._command([self._tools.kind, "delete", "cluster", "--name", self._name], STEP_SECONDS)

    def _command(
        self, command: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None
    ) -> None:
        log = self._directory / f"{Path(command[0]).name}.log"
        what = " ".join([Path(command[0]).name, *command[1:3]])
        with log.open("ab") as file:
            try:
                done = subprocess.run(
                    list(command),
                    cwd=ROOT,
                    env=self._environment(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    timeout=seconds,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise CommandFailedError(what, f"not done after {seconds:g} s", log) from None
        if done.returncode != 0:
            raise CommandFailedError(what, f"exit code {done.returncode}", log)

    def _environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {**os.environ, **self._tools.environment, "KUBECONFIG": str(self.kubeconfig), **(more or {})}

    def urls(self) -> dict[str, str]:
        """Local addresses that lead to the brokers; a forward that ended with its broker is made anew."""
        for name, (child, _) in list(self._forwards.items()):
            if child.exit_code is not None:
                del self._forwards[name]
        for name in sorted(self._pods()):
            if name not in self._forwards:
                with suppress(TimeoutError):
                    self._forward(name)
        return {name: f"{self.login.scheme}://127.0.0.1:{port}" for name, (_, port) in self._forwards.items()}

    def _forward(self, name: str) -> None:
        port = free_port()
        command = [self._tools.kubectl, "port-forward", "--namespace", self.namespace, f"pod/{name}"]
        command += [f"{port}:{CLIENT_PORT}", "--address", "127.0.0.1"]
        log = self._directory / f"port-forward-{name}.log"
        child = Child(f"port-forward {name}", command, log, environment=self._environment(), keep=self._keep)
        self._stack.callback(child.stop)
        deadline = time.monotonic() + FORWARD_SECONDS
        while child.exit_code is None and time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as client:
                client.settimeout(2)
                if client.recv(4) == b"INFO":
                    self._forwards[name] = (child, port)
                    return
            time.sleep(0.1)
        child.stop()
        raise TimeoutError(f"broker {name} is not reached through port-forward; see {log}")

    def kill(self, name: str) -> None:
        """SIGKILL from the node, past Kubernetes: inside its container process 1 could not be killed like that."""
        node = str(self._pod(name).spec.node_name)
        inside = [self._tools.engine, "exec", node]
        labels = [f"io.kubernetes.pod.name={name}", f"io.kubernetes.pod.namespace={self.namespace}"]
        listing = ["crictl", "ps", "--quiet", "--name", "broker", "--label", labels[0], "--label", labels[1]]
        container = self._ask([*inside, *listing])
        inspect = ["crictl", "inspect", "--output", "go-template", "--template", "{{.info.pid}}", container]
        self._command([*inside, "kill", "-9", self._ask([*inside, *inspect])], STEP_SECONDS)

    def _ask(self, command: Sequence[str]) -> str:
        answer = self._ask_many(command)
        if len(answer) != 1:
            raise LookupError(f"{' '.join(command)} did not give one word: {answer}")
        return answer[0]

    def _ask_many(self, command: Sequence[str]) -> list[str]:
        done = subprocess.run(
            list(command),
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=STEP_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise LookupError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout.split()

    async def bring_back(self, name: str) -> None:
        """The kubelet starts it again; wait until its pod is ready, and reach it once more."""
        await super().bring_back(name)
        forward = self._forwards.pop(name, None)
        if forward is not None:
            await asyncio.to_thread(forward[0].stop)
        await asyncio.to_thread(self._forward, name)

    def reach(self) -> list[str]:
        return [
            f"export KUBECONFIG={self.kubeconfig}",
            "kubectl get superclusters,clusters,streams,pods",
            f"nats:       {', '.join(self.urls().values())} (user and password: {self._credentials})",
            f"stop it:    {self._tools.kind} delete cluster --name {self._name}",
            f"            kill {' '.join(str(child.pid) for child, _ in self._forwards.values())}",
        ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.kind",
        description="The demo on a real Kubernetes: a kind cluster is made, used and deleted.",
        epilog=f"It needs {'; '.join(HINTS.values())}. {EXIT_CODES}",
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster and say how to reach it")
    parser.add_argument(
        "--name", default="supercluster-e2e", help="of the kind cluster, which must not exist (%(default)s)"
    )
    add_logs_argument(parser)
    arguments = parser.parse_args(argv)
    try:
        tools = find_tools(os.environ)
        check_engine(tools)
    except MissingToolsError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_FAILED

    async def start(directory: Path, stack: ExitStack, say: Speaker) -> KindBrokers:
        brokers = KindBrokers(directory, stack, say, tools=tools, name=arguments.name, keep=arguments.keep)
        await brokers.start()
        return brokers

    return conduct(start, arguments.logs, keep=arguments.keep)


if __name__ == "__main__":
    sys.exit(main())
