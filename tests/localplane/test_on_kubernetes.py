"""The nodes under Kubernetes' own API server, scheduler and controllers, asked by kubectl (`make e2e-kube`)."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Kubectl, RunningPlane, eventually
from tests.localplane.lab import bare_pod, web_set

pytestmark = [pytest.mark.e2e, pytest.mark.kube]

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def restricted(spec: dict[str, Any]) -> dict[str, Any]:
    """A pod's spec that the restricted profile lets pass."""
    containers = [{**container, "securityContext": RESTRICTED} for container in spec["containers"]]
    return {**spec, "containers": containers}


def pod(name: str, *words: str, **container: Any) -> dict[str, Any]:
    made = bare_pod(name, *words, **container)
    return {"apiVersion": "v1", "kind": "Pod", **made, "spec": restricted(made["spec"])}


def get(run_kubectl: Kubectl, *what: str) -> Any:
    return json.loads(run_kubectl("get", *what, "-o", "json").stdout)


def test_a_stateful_set_has_volumes_that_outlive_pods_nodes_and_the_plane(
    plane: RunningPlane, run_kubectl: Kubectl
) -> None:
    made = {"apiVersion": "apps/v1", "kind": "StatefulSet", **web_set(2)}
    made["spec"]["template"]["spec"] = restricted(made["spec"]["template"]["spec"])
    run_kubectl("apply", "-f", "-", stdin=made)
    rollout = ("rollout", "status", "statefulset/web", "--timeout=120s")
    run_kubectl(*rollout)
    claim = get(run_kubectl, "pvc", "data-web-0")
    assert claim["status"]["phase"] == "Bound"
    volume = get(run_kubectl, "pv", claim["spec"]["volumeName"])
    starts = Path(volume["spec"]["hostPath"]["path"]) / "starts"
    assert starts.read_text() == "1"
    before = get(run_kubectl, "pod", "web-0")
    rules = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"]
    assert rules[0]["values"] == [before["spec"]["nodeName"]]

    run_kubectl("delete", "pod", "web-0")
    run_kubectl(*rollout)
    assert starts.read_text() == "2"
    assert get(run_kubectl, "pod", "web-0")["status"]["podIP"] == before["status"]["podIP"]

    patch = '{"spec": {"resources": {"requests": {"storage": "2Gi"}}}}'
    run_kubectl("patch", "pvc", "data-web-0", "--type=merge", "-p", patch)
    told = ("wait", "--for=jsonpath={.status.capacity.storage}=2Gi", "pvc/data-web-0", "--timeout=60s")
    run_kubectl(*told)

    assert plane.stop() == 0
    plane.start()
    eventually(lambda: starts.read_text() == "3", "the pod to be started again")
    run_kubectl(*rollout)

    run_kubectl("delete", "statefulset", "web", "--cascade=foreground")
    run_kubectl("delete", "pvc", "data-web-0")
    run_kubectl("wait", "--for=delete", f"pv/{claim['spec']['volumeName']}", "--timeout=60s")
    assert not starts.exists()


def test_logs_status_and_probes(run_kubectl: Kubectl) -> None:
    words = "test -e again || { touch again; echo one; exit 3; }; echo two; while test ! -e ok; do sleep 0.1; done; sleep 100"
    probe = {"exec": {"command": ["sh", "-c", "echo looked; test -e ok"]}, "periodSeconds": 1}
    run_kubectl("apply", "-f", "-", stdin=pod("loud", "-c", words, readinessProbe=probe))
    eventually(lambda: run_kubectl("logs", "loud", check=False).stdout == "two\n", "its log")
    assert run_kubectl("logs", "loud", "--previous").stdout == "one\n"
    status = get(run_kubectl, "pod", "loud")["status"]["containerStatuses"][0]
    assert (status["restartCount"], status["ready"]) == (1, False)
    assert status["lastState"]["terminated"]["exitCode"] == 3
    run_kubectl("delete", "pod", "loud", "--grace-period=1")


def test_an_eviction_asks_the_budget_first(run_kubectl: Kubectl) -> None:
    run_kubectl("apply", "-f", "-", stdin={**pod("kept", "-c", "sleep 100")})
    run_kubectl("label", "pod", "kept", "app=kept")
    run_kubectl("create", "poddisruptionbudget", "kept", "--selector=app=kept", "--min-available=1")
    run_kubectl("wait", "--for=condition=Ready", "pod/kept", "--timeout=60s")
    run_kubectl("wait", "--for=jsonpath={.status.currentHealthy}=1", "pdb/kept", "--timeout=60s")
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "kept", "namespace": "default"},
    }
    path = "/api/v1/namespaces/default/pods/kept/eviction"
    evict = ("create", "--raw", path, "-f", "-")
    refused = run_kubectl(*evict, stdin=body, check=False)
    assert "disruption budget" in refused.stderr
    run_kubectl("delete", "poddisruptionbudget", "kept")
    run_kubectl(*evict, stdin=body)
    run_kubectl("wait", "--for=delete", "pod/kept", "--timeout=60s")


EVICTED = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]


def test_a_job_goes_on_after_an_eviction_that_its_policy_ignores(run_kubectl: Kubectl) -> None:
    spec = {**pod("drained", "-c", "exec sleep 100")["spec"], "restartPolicy": "Never"}
    body: dict[str, Any] = {"apiVersion": "batch/v1", "kind": "Job"}
    job = {"backoffLimit": 0, "podReplacementPolicy": "Failed", "template": {"spec": spec}}
    run_kubectl("apply", "-f", "-", stdin={**body, "metadata": {"name": "counts"}, "spec": job})
    job["podFailurePolicy"] = {"rules": EVICTED}
    run_kubectl("apply", "-f", "-", stdin={**body, "metadata": {"name": "ignores"}, "spec": job})

    def running(name: str) -> list[str]:
        found = get(run_kubectl, "pods", "-l", f"job-name={name}")["items"]
        is_up = [each for each in found if (each.get("status") or {}).get("phase") == "Running"]
        return [each["metadata"]["name"] for each in is_up if "deletionTimestamp" not in each["metadata"]]

    for name in ("counts", "ignores"):
        (first,) = eventually(partial(running, name), "its pod")
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": first}}
        path = f"/api/v1/namespaces/default/pods/{first}/eviction"
        run_kubectl("create", "--raw", path, "-f", "-", stdin=eviction)
        run_kubectl("wait", "--for=delete", f"pod/{first}", "--timeout=60s")
    run_kubectl("wait", "--for=condition=Failed", "job/counts", "--timeout=60s")
    eventually(lambda: running("ignores"), "a pod in the place of the evicted one")
    assert not get(run_kubectl, "job", "ignores")["status"].get("failed")
    run_kubectl("delete", "job", "counts", "ignores")


def test_a_pod_has_tokens_that_the_api_server_takes(run_kubectl: Kubectl) -> None:
    words = "cat /var/run/secrets/kubernetes.io/serviceaccount/token; sleep 100"
    run_kubectl("apply", "-f", "-", stdin=pod("known", "-c", words))
    token = eventually(lambda: run_kubectl("logs", "known", check=False).stdout, "its token")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    told = json.loads(run_kubectl("create", "-f", "-", "-o", "json", stdin=body).stdout)["status"]["user"]
    assert told["username"] == "system:serviceaccount:default:default"
    assert told["extra"]["authentication.kubernetes.io/pod-name"] == ["known"]


def test_pods_beyond_the_restricted_profile_are_refused(run_kubectl: Kubectl) -> None:
    loose = {"apiVersion": "v1", "kind": "Pod", **bare_pod("loose", "-c", "true")}
    refused = run_kubectl("apply", "-f", "-", stdin=loose, check=False)
    assert 'violates PodSecurity "restricted:latest"' in refused.stderr


def test_a_service_of_pods_on_loopback_floods_nobody_with_events(run_kubectl: Kubectl) -> None:
    """Endpoints may not have addresses of loopback, so nothing writes any here."""
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "quiet"}}
    labels = {"app": "quiet"}
    template = {"metadata": {"labels": labels}, "spec": pod("quiet", "-c", "exec sleep 100")["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "quiet"}}
    run_kubectl("apply", "-f", "-", stdin={**service, "spec": {"selector": labels, "ports": [{"port": 80}]}})
    run_kubectl("apply", "-f", "-", stdin={**made, "spec": spec})
    run_kubectl("rollout", "status", "deployment/quiet", "--timeout=120s")
    reasons = {event["reason"] for event in get(run_kubectl, "events")["items"]}
    assert not {each for each in reasons if each.startswith("FailedToUpdateEndpoint")}
    run_kubectl("delete", "deployment/quiet", "service/quiet")
