"""The chart installed by helm: the operator in a pod, with its service account's rights and no others (RBAC enforced)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conftest import Kubectl, RunningPlane, eventually
from tests.helm_command import run_helm_in
from tests.support import audit
from tests.support.audit import Right

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
Helm = Callable[..., str]


@pytest.fixture
def run_helm(plane: RunningPlane, helm: Path, tmp_path: Path) -> Helm:
    def run(*arguments: str) -> str:
        return run_helm_in(tmp_path, helm, "--kubeconfig", str(plane.kubeconfig), *arguments).stdout

    return run


def manifests() -> str:
    folder = ROOT / "e2e" / "manifests" / "demo"
    return "---\n".join(path.read_text() for path in sorted(folder.iterdir()))


@pytest.mark.covers("OP-1", "OP-2")
def test_the_operator_works_with_the_rights_that_the_chart_grants(
    run_kubectl: Kubectl, run_helm: Helm
) -> None:
    run_kubectl("create", "namespace", "ops")
    run_kubectl("create", "namespace", "flights")
    chart = str(ROOT / "charts" / "supercluster")
    values = ("--set", "namespaces={flights}", "--set", "leaseDurationSeconds=3")
    run_helm("install", "op", chart, "--namespace", "ops", *values, "--wait", "--timeout", "90s")

    run_kubectl("-n", "flights", "apply", "-f", "-", stdin=manifests())
    for resource in ("scl/demo", "ncl/east", "str/flights"):
        run_kubectl("-n", "flights", "wait", "--for=condition=Ready", resource, "--timeout=120s")

    run_kubectl("-n", "flights", "apply", "-f", "-", stdin=USER)
    run_kubectl("-n", "flights", "wait", "--for=condition=Whole", "nu/visitor", "--timeout=60s")
    # Every right is used once: make and withdraw a move, restart brokers, repair, finalize, delete volumes.
    for body in hop():
        run_kubectl("-n", "flights", "apply", "-f", "-", stdin=body)
    for resource in ("ncl/west", "str/hop"):
        run_kubectl("-n", "flights", "wait", "--for=condition=Ready", resource, "--timeout=120s")
    place(run_kubectl, "west")
    eventually(lambda: phase(run_kubectl, "hop-g2"), "a move with a status")
    place(run_kubectl, "east")
    eventually(lambda: not names(run_kubectl, "smv"), "the move to be withdrawn")
    run_kubectl("-n", "flights", "delete", "ncl/west", "str/hop", "--timeout=120s")
    patch = '{"spec": {"limits": {"streamWindowWait": "11s"}, "deletionPolicy": "Delete"}}'
    before = pods(run_kubectl)
    run_kubectl("-n", "flights", "patch", "ncl", "east", "--type=merge", "-p", patch)
    eventually(lambda: len(pods(run_kubectl) - before) == 3, "the brokers to be restarted", 180.0)
    run_kubectl("-n", "flights", "wait", "--for=condition=Synced", "ncl/east", "--timeout=120s")
    run_kubectl(
        "-n",
        "flights",
        "patch",
        "str",
        "flights",
        "--type=merge",
        "-p",
        '{"spec": {"deletionPolicy": "Delete"}}',
    )
    run_kubectl("-n", "flights", "delete", "nu/visitor", "--timeout=60s")
    run_kubectl("-n", "flights", "delete", "-f", "-", "--timeout=180s", stdin=manifests())
    eventually(lambda: not names(run_kubectl, "pvc"), "the volume claims to go")

    logs = run_kubectl("-n", "ops", "logs", "deployment/op").stdout
    lines = [json.loads(line) for line in logs.splitlines() if line.startswith("{")]
    assert any(line["message"] == "leading" for line in lines)
    assert "forbidden" not in logs.lower()
    assert "cannot" not in logs.lower()


USER = {
    "apiVersion": "supercluster.dev/v1alpha1",
    "kind": "User",
    "metadata": {"name": "visitor"},
    "spec": {"superCluster": "demo", "deletionPolicy": "Immediately"},
}

# Granted, and not used by the story above.
RESERVED = {
    Right("", "persistentvolumeclaims", "patch"): "a larger spec.storage.size",
    Right("storage.k8s.io", "storageclasses", "get"): "a larger spec.storage.size",
    Right("supercluster.dev", "replicapolicies", "get"): "there is no ReplicaPolicy",
    Right(
        "supercluster.dev", "streammoves", "patch"
    ): "no move begins: the one that is made waits for approval",
    Right("supercluster.dev", "replicapolicies/status", "patch"): "there is no ReplicaPolicy",
    **{
        Right(*right): "there is no StreamPipeline"
        for right in (
            ("", "persistentvolumeclaims", "create"),
            *(
                ("batch", plural, verb)
                for plural in ("jobs", "cronjobs")
                for verb in ("get", "create", "patch", "delete")
            ),
            ("supercluster.dev", "streampipelines", "get"),
            ("supercluster.dev", "streampipelines/status", "patch"),
        )
    },
    **{
        Right("supercluster.dev", *right): "there is no Migration"
        for right in (("migrations", "get"), ("migrations", "patch"), ("migrations/status", "patch"))
    },
    **{
        Right(
            "supercluster.dev", f"{kind}/finalizers", "update"
        ): "asked for by clusters that enforce it for owner references"
        for kind in ("superclusters", "clusters", "streams", "streampipelines", "users")
    },
}


@pytest.mark.kube
@pytest.mark.covers("OP-2")
def test_the_audit_log_has_the_granted_verbs_and_no_refusal(
    plane: RunningPlane, run_kubectl: Kubectl
) -> None:
    selector = "app.kubernetes.io/name=supercluster-operator"
    arguments = ("get", "roles,clusterroles", "-A", "-l", selector, "-o", "json")
    rights = audit.granted(json.loads(run_kubectl(*arguments).stdout)["items"])
    assert rights, "installed by the test above"
    asked = list(audit.requests(plane.audit_log, "system:serviceaccount:ops:op"))
    refused = {right for right, code in asked if code in (401, 403)}
    assert not refused
    assert rights - {right for right, _ in asked} == set(RESERVED)


@pytest.mark.covers("OP-2")
@pytest.mark.parametrize("values", ["namespaces={flights}", "allNamespaces=true"])
def test_no_second_release_serves_the_same_namespace(
    plane: RunningPlane, helm: Path, tmp_path: Path, run_helm: Helm, values: str
) -> None:
    """O28."""
    assert "op" in run_helm("list", "--namespace", "ops", "--short"), "installed by the test above"
    chart = str(ROOT / "charts" / "supercluster")
    arguments = ("install", "other", chart, "--namespace", "default", "--set", f"crds.create=false,{values}")
    refused = run_helm_in(tmp_path, helm, "--kubeconfig", str(plane.kubeconfig), *arguments, check=False)
    assert refused.returncode != 0
    told = (
        'in namespace "flights" exists'
        if values.startswith("namespaces")
        else "release ops/op serves flights already"
    )
    assert told in refused.stderr
    assert "other" not in run_helm("list", "--namespace", "default", "--short")


@pytest.mark.covers("OP-2")
def test_a_namespace_that_is_not_served_is_left_alone(run_kubectl: Kubectl, run_helm: Helm) -> None:
    assert "op" in run_helm("list", "--namespace", "ops", "--short"), "installed by the test above"
    body = yaml.safe_load((ROOT / "e2e" / "manifests" / "demo" / "10-super-cluster.yaml").read_text())
    run_kubectl("-n", "default", "apply", "-f", "-", stdin=json.dumps(body))
    run_kubectl("-n", "flights", "apply", "-f", "-", stdin=json.dumps(body))
    eventually(lambda: names(run_kubectl, "secret"), "the credentials of the one that is served")
    found = json.loads(run_kubectl("-n", "default", "get", "scl", "demo", "-o", "json").stdout)
    assert "status" not in found
    assert not found["metadata"].get("finalizers")


def hop() -> list[dict[str, Any]]:
    """A second cluster, and a stream that is moved to it when somebody has approved it."""
    api_version = "supercluster.dev/v1alpha1"
    spec = {"superCluster": "demo", "replicas": 1}
    stream = {"subjects": ["hop"], "placement": {"cluster": "east"}, "move": {"approval": "Manual"}}
    return [
        {
            "apiVersion": api_version,
            "kind": "Cluster",
            "metadata": {"name": "west"},
            "spec": {**spec, "deletionPolicy": "Delete"},
        },
        {
            "apiVersion": api_version,
            "kind": "Stream",
            "metadata": {"name": "hop"},
            "spec": {**spec, **stream, "deletionPolicy": "Delete"},
        },
    ]


def place(run_kubectl: Kubectl, cluster: str) -> None:
    patch = json.dumps({"spec": {"placement": {"cluster": cluster}}})
    run_kubectl("-n", "flights", "patch", "str", "hop", "--type=merge", "-p", patch)


def phase(run_kubectl: Kubectl, name: str) -> str:
    found = run_kubectl("-n", "flights", "get", "smv", name, "-o", "jsonpath={.status.phase}", check=False)
    return found.stdout if found.returncode == 0 else ""


def pods(run_kubectl: Kubectl) -> set[str]:
    listed = json.loads(run_kubectl("-n", "flights", "get", "pods", "-o", "json").stdout)["items"]
    return {pod["metadata"]["uid"] for pod in listed}


def names(run_kubectl: Kubectl, kind: str) -> list[str]:
    return run_kubectl("-n", "flights", "get", kind, "-o", "name").stdout.split()
