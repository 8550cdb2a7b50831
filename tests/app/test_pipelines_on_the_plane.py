"""StreamPipelines: one from `kubectl apply` to its last row, with the chart's rights, in a namespace of Pod Security level `restricted`; and
those that can't run."""

from __future__ import annotations

import asyncio
import json
import os
import time
from base64 import b64decode
from collections import Counter
from pathlib import Path
from typing import Any

import nats
import pytest
from tests.conftest import Kubectl, RunningPlane, eventually, kubectl_runner
from tests.helm_command import run_helm_in
from tests.support import audit
from tools.find_java import find_java_home

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]
NAMESPACES = ("pipes", "others", "tight")
MESSAGES = 2_000
FIRST_ROW_MAX_S = 60.0
# Of a quiet machine; with the suite's other half beside it, it takes longer.
BUSY_FACTOR = 3.0
PROGRAM = """
import os
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
numbers = spark.readStream.format("supercluster").option("stream", "numbers").option("minPartitions", 2).load()

def show(rows, batch):
    for row in rows.select("sequence").collect():
        print("row", row.sequence, flush=True)

numbers.writeStream.foreachBatch(show).option("checkpointLocation", os.environ["SUPERCLUSTER_CHECKPOINT"]).start()
"""
# It starts and ends once: the compiler that is slow to compile would never earn its time back.
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
ONE = {"count": 1, "cpu": "100m"}


@pytest.fixture(scope="module")
def plane_arguments() -> tuple[str, ...]:
    os.environ["JAVA_HOME"] = str(find_java_home(os.environ))
    return ()


def custom(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "supercluster.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def pipeline() -> dict[str, Any]:
    conf = {"spark.driver.extraJavaOptions": QUICK, "spark.executor.extraJavaOptions": QUICK}
    spec = {
        "superCluster": "demo",
        "superClusterNamespace": "flights",
        "credentialsSecret": "demo-client",
        "python": {"configMap": {"name": "program"}},
        "executors": {"cpu": "100m"},
        "sparkConf": conf,
    }
    return custom("StreamPipeline", "count", spec)


def named(name: str, pipeline_name: str, parameters: dict[str, str]) -> dict[str, Any]:
    """A pipeline that ends at the messages that are there."""
    spec = {**pipeline()["spec"], "executors": ONE}
    del spec["python"]
    spec |= {"pipeline": {"name": pipeline_name, "parameters": parameters}, "trigger": "AvailableNow"}
    return custom("StreamPipeline", name, {**spec, "checkpoint": {"type": "Ephemeral"}, "backoffLimit": 0})


@pytest.fixture(scope="module")
def secret(
    plane: RunningPlane, kubectl: Path, helm: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The chart, a stream with messages, and namespaces for pipelines. The fixture: what clients of the super-cluster log in with."""
    folder = tmp_path_factory.mktemp("site")
    run_kubectl = kubectl_runner(kubectl, plane.kubeconfig, folder)
    for namespace in ("ops", "flights", *NAMESPACES):
        run_kubectl("create", "namespace", namespace)
    for namespace in NAMESPACES:
        run_kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    run_helm_in(
        *(folder, helm, "--kubeconfig", str(plane.kubeconfig), "install", "op"),
        *(str(ROOT / "charts" / "supercluster"), "--namespace", "ops", "--wait", "--timeout", "90s"),
        *("--set", f"namespaces={{{','.join(('flights', *NAMESPACES))}}}", "--set", "leaseDurationSeconds=3"),
    )
    for body in (
        custom("SuperCluster", "demo", {}),
        custom("Cluster", "east", {"superCluster": "demo", "replicas": 1}),
        custom("Stream", "numbers", {"superCluster": "demo", "replicas": 1, "subjects": ["numbers"]}),
    ):
        run_kubectl("-n", "flights", "apply", "-f", "-", stdin=body)
    run_kubectl("-n", "flights", "wait", "--for=condition=Ready", "str/numbers", "--timeout=120s")
    found = json.loads(run_kubectl("-n", "flights", "get", "secret", "demo-client", "-o", "json").stdout)
    address = run_kubectl("-n", "flights", "get", "pod", "east-0", "-o", "jsonpath={.status.podIP}").stdout
    asyncio.run(publish(address, found["data"]))
    return dict(found["data"])


def make(run_kubectl: Kubectl, namespace: str, kind: str, name: str, data: dict[str, str]) -> None:
    body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "data": data}
    run_kubectl("-n", namespace, "apply", "-f", "-", stdin=body)


@pytest.mark.covers("SP-3", "OP-1")
def test_every_message_is_read_once_and_nothing_is_left_behind(
    plane: RunningPlane, run_kubectl: Kubectl, secret: dict[str, str]
) -> None:
    make(run_kubectl, "pipes", "ConfigMap", "program", {"main.py": PROGRAM})
    before = objects(run_kubectl) | {"secret/demo-client"}
    # Without what it needs the pipeline says so, and begins by itself when that is there.
    began_s = time.monotonic()
    run_kubectl("-n", "pipes", "apply", "-f", "-", stdin=pipeline())
    eventually(lambda: accepted(run_kubectl) == "CredentialsNotFound", "the Secret to be missed")
    make(run_kubectl, "pipes", "Secret", "demo-client", secret)
    eventually(lambda: rows(plane), "the first row", FIRST_ROW_MAX_S * BUSY_FACTOR)
    print(f"first row after {time.monotonic() - began_s:.1f} s")
    eventually(lambda: len(rows(plane)) >= MESSAGES, "all rows")
    assert rows(plane) == Counter(range(1, MESSAGES + 1))
    run_kubectl("-n", "pipes", "wait", "--for=condition=Whole", "spl/count", "--timeout=60s")
    run_kubectl("-n", "pipes", "wait", "--for=condition=Reconciling=False", "spl/count", "--timeout=60s")
    assert accepted(run_kubectl) == "AsDeclared"
    done = [{"name": "numbers", "nextSequence": MESSAGES + 1, "lag": 0}]
    eventually(lambda: progress(run_kubectl).get("streams") == done, "the status to have the last row")
    driver = run_kubectl("-n", "pipes", "get", "spl", "count", "-o", "jsonpath={.status.driver}").stdout
    held = ("-n", "pipes", "get", "leases", "-o", "jsonpath={.items[*].spec.holderIdentity}")
    assert run_kubectl(*held).stdout.split("/")[0] == driver

    run_kubectl("-n", "pipes", "delete", "spl/count", "--timeout=60s")
    stays = before | {"persistentvolumeclaim/count-checkpoint"}
    eventually(lambda: objects(run_kubectl) <= stays, "the pipeline's objects to go", 90.0)
    assert objects(run_kubectl) == stays, "the checkpoint is kept"
    assert len(rows(plane)) == MESSAGES
    texts = [path.read_text(errors="replace") for path in logs(plane, "pipes") + logs(plane, "ops")]
    assert len(texts) >= 4, "operator, driver, two executors"
    for text in texts:
        assert "forbidden" not in text.lower()
    if plane.audit_log.exists():
        for account in ("ops:op", "pipes:supercluster-driver"):
            asked = list(audit.requests(plane.audit_log, f"system:serviceaccount:{account}"))
            assert asked
            assert not [right for right, code in asked if code in (401, 403)]


def objects(run_kubectl: Kubectl) -> set[str]:
    """What is there but the operator's Lease of the namespace, which it takes when it first has work there."""
    kinds = "pods,jobs,cronjobs,services,configmaps,secrets,leases,persistentvolumeclaims"
    found = set(run_kubectl("-n", "pipes", "get", kinds, "-o", "name").stdout.split())
    return found - {"lease.coordination.k8s.io/supercluster-operator"}


@pytest.mark.covers("SP-3", "SP-4")
def test_a_pipeline_runs_by_name_and_bad_ones_say_what_is_wrong_and_what_to_do(
    run_kubectl: Kubectl, secret: dict[str, str]
) -> None:
    """All at the same time: most of it is the start of Spark's Java."""
    for namespace in ("others", "tight"):
        make(run_kubectl, namespace, "Secret", "demo-client", secret)
    make(run_kubectl, "others", "ConfigMap", "raises", {"main.py": "raise ValueError('no flights today')\n"})
    make(run_kubectl, "tight", "ConfigMap", "program", {"main.py": PROGRAM})
    run_kubectl("-n", "tight", "create", "quota", "driver-only", "--hard=pods=1")
    mine = {"type": "Claim", "claim": {"name": "raises-checkpoint"}}
    for namespace, body in (
        ("others", named("stats", "stream_stats", {"streams": "numbers"})),
        ("others", named("absent", "stream_stats", {"streams": "flights"})),
        ("others", named("wrong", "stream_stat", {})),
        ("others", filed("raises", "raises")),
        ("tight", filed("refused", "program")),
    ):
        run_kubectl("-n", namespace, "apply", "-f", "-", stdin=body)
    # Who is older is seen by the second.
    eventually(lambda: claimed_by(run_kubectl) == "raises", "the first one to have a checkpoint")
    second = filed("second", "raises")
    second["spec"]["checkpoint"] = mine
    run_kubectl("-n", "others", "apply", "-f", "-", stdin=second)

    for namespace, name, type_, reason, words in (
        ("others", "wrong", "Ready", "ProgramRefused", ["did you mean 'stream_stats'", "Correct the spec"]),
        ("others", "raises", "Ready", "DriverGaveUp", ["ValueError: no flights today", "mend the cause"]),
        (
            "others",
            "absent",
            "Ready",
            "DriverGaveUp",
            ["'flights' does not exist", "check the option 'stream'"],
        ),
        ("tight", "refused", "Ready", "DriverGaveUp", ["exceeded quota: driver-only", "change that quota"]),
        (
            "others",
            "second",
            "Accepted",
            "CheckpointClaimed",
            ["StreamPipeline others/raises", "name another one"],
        ),
    ):
        message = ends_with(run_kubectl, namespace, name, reason, type_)
        for word in words:
            assert word in message, name
        if reason in ("DriverGaveUp", "ProgramRefused"):
            assert f"kubectl -n {namespace} delete job {name}-" in message

    # With the older one gone the checkpoint is still its, until the user says otherwise.
    run_kubectl("-n", "others", "delete", "spl/raises", "--timeout=60s")
    message = ends_with(run_kubectl, "others", "second", "ProgramRefused")
    assert "is of StreamPipeline others/raises (Python file)" in message
    assert "set spec.checkpoint.takeOverFrom: others/raises" in message
    patch = '{"spec": {"checkpoint": {"takeOverFrom": "others/raises"}}}'
    run_kubectl("-n", "others", "patch", "spl", "second", "--type=merge", "-p", patch)
    assert "no flights today" in ends_with(run_kubectl, "others", "second", "DriverGaveUp")
    ends_with(run_kubectl, "others", "stats", "ProgramEnded")


def filed(name: str, program: str) -> dict[str, Any]:
    """A Python file whose driver is started once."""
    spec = {
        **pipeline()["spec"],
        "executors": ONE,
        "python": {"configMap": {"name": program}},
        "backoffLimit": 0,
    }
    return custom("StreamPipeline", name, spec)


def claimed_by(run_kubectl: Kubectl) -> str:
    path = "jsonpath={.metadata.labels.supercluster\\.dev/stream-pipeline}"
    found = run_kubectl("-n", "others", "get", "pvc", "raises-checkpoint", "-o", path, check=False)
    return found.stdout


async def publish(address: str, secret: dict[str, str]) -> None:
    user, password = (b64decode(secret[name]).decode() for name in ("user", "password"))
    connection = await nats.connect(f"nats://{address}:4222", user=user, password=password)
    js = connection.jetstream()
    for number in range(1, MESSAGES):
        await connection.publish("numbers", str(number).encode())
    assert (await js.publish("numbers", b"last")).seq == MESSAGES
    await connection.close()


def accepted(run_kubectl: Kubectl) -> str:
    path = 'jsonpath={.status.conditions[?(@.type=="Accepted")].reason}'
    return run_kubectl("-n", "pipes", "get", "spl", "count", "-o", path).stdout


def ends_with(run_kubectl: Kubectl, namespace: str, name: str, reason: str, type_: str = "Ready") -> str:
    """Wait until a condition has this reason; its message."""

    def condition() -> dict[str, Any]:
        found = json.loads(run_kubectl("-n", namespace, "get", "spl", name, "-o", "json").stdout)
        conditions = (found.get("status") or {}).get("conditions", ())
        return next((each for each in conditions if each["type"] == type_), {})

    eventually(lambda: condition().get("reason") == reason, f"{name} to be {reason}", 180.0)
    return str(condition()["message"])


def progress(run_kubectl: Kubectl) -> dict[str, Any]:
    status = json.loads(run_kubectl("-n", "pipes", "get", "spl", "count", "-o", "json").stdout)["status"]
    return dict(status.get("progress") or {})


def logs(plane: RunningPlane, namespace: str) -> list[Path]:
    return list((plane.state_dir / "pods" / namespace).glob("*/*.log"))


def rows(plane: RunningPlane) -> Counter[int]:
    """Those that drivers have printed."""
    found: Counter[int] = Counter()
    for path in logs(plane, "pipes"):
        if path.name.startswith("driver"):
            lines = path.read_text(errors="replace").splitlines()
            found.update(int(line.split()[1]) for line in lines if line.startswith("row "))
    return found
