"""A plane with the chart's operator, a super-cluster in namespace `flights`, and a StreamPipeline in namespace `pipes` that keeps what
it reads: a file for each batch, so that a batch that is repeated replaces itself."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from e2e.moves.site import Site
from tests.conftest import Kubectl, RunningPlane, eventually
from tests.helm_command import run_helm_in

from supercluster.localplane.node import faults
from supercluster.spark.client import Credentials

ROOT = Path(__file__).resolve().parents[2]
BROKERS, PIPES = "flights", "pipes"
NAME = "keep"
STREAM = "numbers"
START_SECONDS = 400.0
"""Java and Python of three pods begin, beside all the rest."""
# The compiler that is slow to compile would never earn its time back.
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
PROGRAM = """
import os
from pathlib import Path
from pyspark.sql import SparkSession

folder = Path({folder!r})
spark = SparkSession.builder.getOrCreate()
numbers = spark.readStream.format("supercluster").option("stream", {stream!r}).option("minPartitions", 2).load()

def keep(rows, batch):
    found = rows.select("sequence", "payload").collect()
    part = folder / "part"
    with part.open("wb") as file:
        file.write(b"".join(b"%d %b\\n" % (row.sequence, bytes(row.payload)) for row in found))
        file.flush()
        os.fsync(file.fileno())
    part.replace(folder / f"{{batch:06d}}")

numbers.writeStream.foreachBatch(keep).option("checkpointLocation", os.environ["SUPERCLUSTER_CHECKPOINT"]).start()
"""


def custom(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "supercluster.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


class BrokerSite(Site):
    """The brokers of one super-cluster on the plane; `connect` once they are there."""

    def __init__(
        self, plane: RunningPlane, kubectl: Kubectl, name: str, clusters: Mapping[str, Sequence[str]]
    ) -> None:
        super().__init__(clusters, Credentials(), Credentials())
        self.name = name
        self._plane, self._kubectl = plane, kubectl
        self._addresses: dict[str, str] = {}

    def connect(self) -> None:
        users = json.loads(secret_of(self._kubectl, f"{self.name}-credentials")["users.json"])["users"]
        logins = {
            each["user"]: Credentials(each["user"], each["password"]) for each in users if "user" in each
        }
        self.login, self.operator = logins["app"], logins["operator"]
        path = 'jsonpath={range .items[*]}{.metadata.name}{" "}{.status.podIP}{"\\n"}{end}'
        pods = self._kubectl("-n", BROKERS, "get", "pods", "-o", path).stdout
        self._addresses = dict(line.split() for line in pods.splitlines())
        self.wait_ready()

    def host(self, name: str) -> str:
        return self._addresses[name]

    def kill(self, name: str) -> None:
        """SIGKILL; the node agent starts it again."""
        kill_pod(self._plane, BROKERS, name)


def kill_pod(plane: RunningPlane, namespace: str, pod: str) -> None:
    """SIGKILL to its container's first process."""
    body = {"namespace": namespace, "pod": pod, "forgive": True}
    killed = asyncio.run(faults.call(plane.state_dir, "POST", "/faults/kill", body))
    assert killed["killed"], f"{namespace}/{pod} had no process"


def secret_of(kubectl: Kubectl, name: str) -> dict[str, str]:
    """Its data, decoded."""
    data = json.loads(kubectl("-n", BROKERS, "get", "secret", name, "-o", "json").stdout)["data"]
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


class PipelineSite:
    """The pipeline's side."""

    def __init__(self, plane: RunningPlane, kubectl: Kubectl, folder: Path) -> None:
        self.plane, self.kubectl = plane, kubectl
        self.folder = folder
        folder.mkdir()

    def install(self, helm: Path, home: Path) -> None:
        """Namespaces and the operator."""
        for namespace in ("ops", BROKERS, PIPES):
            self.kubectl("create", "namespace", namespace)
        self.kubectl("label", "namespace", PIPES, "pod-security.kubernetes.io/enforce=restricted")
        run_helm_in(
            *(home, helm, "--kubeconfig", str(self.plane.kubeconfig), "install", "op"),
            *(str(ROOT / "charts" / "supercluster"), "--namespace", "ops", "--wait", "--timeout", "90s"),
            *("--set", f"namespaces={{{BROKERS},{PIPES}}}", "--set", "leaseDurationSeconds=3"),
        )

    def apply(self, namespace: str, *bodies: dict[str, Any]) -> None:
        for body in bodies:
            self.kubectl("-n", namespace, "apply", "-f", "-", stdin=body)

    def wait(self, namespace: str, *names: str, condition: str = "Ready", seconds: float = 120) -> None:
        for name in names:
            self.kubectl(
                "-n", namespace, "wait", f"--for=condition={condition}", name, f"--timeout={seconds:.0f}s"
            )

    def copy_secret(self, super_cluster: str) -> None:
        """That of applications, to where the pipeline is, under the name `client`."""
        data = secret_of(self.kubectl, f"{super_cluster}-client")
        head = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "client"}}
        self.apply(PIPES, {**head, "stringData": data})

    def is_mounted(self, super_cluster: str) -> bool:
        """Do all pods show a Secret that names this super-cluster's brokers?"""
        found = list((self.plane.state_dir / "pods" / PIPES).glob("*/volumes/client/urls"))
        return bool(found) and all(f"//{super_cluster}." in path.read_text() for path in found)

    def share_users(self, blue: str, green: str) -> None:
        """The applications' users of blue are let in by green."""
        head = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{green}-credentials"}}
        users = secret_of(self.kubectl, f"{blue}-credentials")["users.json"]
        patch = json.dumps({**head, "stringData": {"users.json": users}})
        self.kubectl("-n", BROKERS, "patch", "secret", f"{green}-credentials", "--type=merge", "-p", patch)

    def migration(self, name: str) -> dict[str, Any]:
        """Its status."""
        found = json.loads(self.kubectl("-n", BROKERS, "get", "mig", name, "-o", "json").stdout)
        return dict(found.get("status") or {})

    def brokers_of(self, cluster: str) -> list[str]:
        """Pods."""
        found = self.kubectl("-n", BROKERS, "get", "pods", "-o", "name").stdout.split()
        return [name for name in found if name.startswith(f"pod/{cluster}-")]

    def start(self, super_cluster: str) -> None:
        """Return when the first rows were kept."""
        self.copy_secret(super_cluster)
        text = PROGRAM.format(folder=str(self.folder), stream=STREAM)
        program = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "program"}}
        spec = {
            "superCluster": super_cluster,
            "superClusterNamespace": BROKERS,
            "credentialsSecret": "client",
            "python": {"configMap": {"name": "program"}},
            "executors": {"cpu": "100m"},
            "sparkConf": {
                "spark.driver.extraJavaOptions": QUICK,
                "spark.executor.extraJavaOptions": QUICK,
            },
        }
        self.apply(PIPES, {**program, "data": {"main.py": text}}, custom("StreamPipeline", NAME, spec))
        self.wait_for_row(1, START_SECONDS)

    def status(self) -> dict[str, Any]:
        found = json.loads(self.kubectl("-n", PIPES, "get", "spl", NAME, "-o", "json").stdout)
        return dict(found.get("status") or {})

    def executors(self) -> list[str]:
        """Pods that run."""
        words = ("-l", "spark-role=executor", "--field-selector", "status.phase=Running")
        path = "jsonpath={.items[*].metadata.name}"
        return self.kubectl("-n", PIPES, "get", "pods", *words, "-o", path).stdout.split()

    def patch(self, spec: dict[str, Any]) -> None:
        """Of the StreamPipeline."""
        patch = json.dumps({"spec": spec})
        self.kubectl("-n", PIPES, "patch", "spl", NAME, "--type=merge", "-p", patch)

    def images(self) -> set[str]:
        """Of driver and executors that run."""
        words = (
            "--field-selector",
            "status.phase=Running",
            "-o",
            "jsonpath={.items[*].spec.containers[*].image}",
        )
        return set(self.kubectl("-n", PIPES, "get", "pods", *words).stdout.split())

    def kill(self, pod: str) -> None:
        kill_pod(self.plane, PIPES, pod)

    def last_row(self) -> int:
        """The highest sequence that was kept; 0: none."""
        for path in sorted(self.folder.glob("[0-9]*"), reverse=True):
            if lines := path.read_bytes().splitlines():
                return int(lines[-1].split(b" ", 1)[0])
        return 0

    def wait_for_row(self, sequence: int, seconds: float = START_SECONDS) -> None:
        eventually(lambda: self.last_row() >= sequence, f"row {sequence}, of {self.last_row()}", seconds)

    def rows(self) -> list[tuple[int, bytes]]:
        """All that was kept, in the order of batches and, within each, of partitions."""
        lines = (
            line for path in sorted(self.folder.glob("[0-9]*")) for line in path.read_bytes().splitlines()
        )
        return [(int(head), body) for head, _, body in (line.partition(b" ") for line in lines)]

    def refusals(self) -> list[str]:
        """Lines of the pipeline's and the operator's logs that say that something was forbidden."""
        logs = [
            path for name in ("ops", PIPES) for path in (self.plane.state_dir / "pods" / name).glob("*/*.log")
        ]
        assert len(logs) >= 4, "operator, driver, two executors"
        lines = (line for path in logs for line in path.read_text(errors="replace").splitlines())
        return [line for line in lines if "forbidden" in line.lower()]
