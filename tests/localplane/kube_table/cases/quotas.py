"""ResourceQuotas: pods that a namespace has no room for."""

from __future__ import annotations

from typing import Any

from tests.localplane.kube_table.table import Case, Json, Step, case, post

PODS = "/api/v1/namespaces/{ns}-s/pods"
QUOTAS = "/api/v1/namespaces/{ns}-s/resourcequotas"


def quota(**spec: Any) -> tuple[Step, ...]:
    # A namespace of its own: the other one has objects of other cases.
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{ns}-s"}}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": spec}
    return post("/api/v1/namespaces", namespace, shows=("kind",)), post(QUOTAS, body, shows=("kind",))


def pod(*resources: Json) -> Step:
    """Nothing is made, so that it can be asked again until a real server has the quota in its cache."""
    containers = [{"name": f"c{at}", "image": "i:1", "resources": each} for at, each in enumerate(resources)]
    spec = {"containers": containers, "automountServiceAccountToken": False}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    return post(PODS, body, "dryRun=All", shows=("kind",), message=True, when=_is_judged)


def _is_judged(answer: Any) -> bool:
    message = str(answer.get("message", ""))
    return "exceeded quota" in message or "failed quota" in message


SMALL: Json = {"requests": {"cpu": "300m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}

# fmt: off
CASES: tuple[Case, ...] = (
    case("quota-counts-pods", *quota(hard={"pods": "0", "secrets": "9"}), pod({})),
    case("quota-of-amounts", *quota(hard={"requests.cpu": "500m", "limits.memory": "1536Mi", "pods": "5"}), pod(SMALL, SMALL)),
    case("quota-of-requests-without-a-prefix", *quota(hard={"cpu": "200m", "memory": "1Gi"}), pod(SMALL)),
    case("quota-needs-amounts", *quota(hard={"limits.memory": "1Gi", "requests.cpu": "1"}), pod(SMALL, {}, {"limits": {"memory": "1Mi"}})),
    case("quota-takes-limits-for-requests", *quota(hard={"requests.memory": "1Mi"}), pod({"limits": {"memory": "2Mi"}})),
)
# fmt: on
