"""Evictions: a polite deletion of a pod that PodDisruptionBudgets may refuse."""

from __future__ import annotations

from supercluster.localplane.apiserver.errors import ApiError, Cause
from supercluster.localplane.apiserver.objects.objects import Objects
from supercluster.localplane.apiserver.objects.writes import Write
from supercluster.localplane.apiserver.storage.registry import PDBS, Resource
from supercluster.localplane.apiserver.storage.selectors import label_selector_matches
from supercluster.localplane.apiserver.storage.store import clone
from supercluster.localplane.json_data import Json
from supercluster.localplane.times import stamp


def is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)


def _budgets(objects: Objects, pod: Json) -> list[Json]:
    metadata = pod["metadata"]
    return [
        budget
        for budget in objects.store.all_of(PDBS, metadata["namespace"])
        if label_selector_matches((budget.get("spec") or {}).get("selector"), metadata.get("labels") or {})
    ]


def check(objects: Objects, pod: Json, write: Write) -> None:
    """Refuse an eviction that a budget does not allow; one that it allows is counted in the budget's status."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed", "Pending"):
        return
    if pod["metadata"].get("deletionTimestamp"):
        return
    budgets = _budgets(objects, pod)
    if len(budgets) > 1:
        message = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        raise ApiError(500, "InternalError", message)
    if budgets:
        _spend(objects, pod, budgets[0], write)


def mark(objects: Objects, resource: Resource, pod: Json, write: Write) -> None:
    """Say in the pod's status why it ends: a Job's podFailurePolicy may tell this end from others."""
    moment = stamp(objects.chance.now())
    told = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    told |= {"message": "Eviction API: evicting", "lastTransitionTime": moment}

    def change(old: Json) -> Json:
        new: Json = clone(old)
        held = new.setdefault("status", {}).setdefault("conditions", [])
        if not any(each["type"] == told["type"] and each["status"] == "True" for each in held):
            new["status"]["conditions"] = [*(each for each in held if each["type"] != told["type"]), told]
        return new

    metadata = pod["metadata"]
    objects.patch(resource, metadata["namespace"], metadata["name"], change, write, subresource="status")


def _spend(objects: Objects, pod: Json, budget: Json, write: Write) -> None:
    status = budget.get("status") or {}
    name = budget["metadata"]["name"]
    policy = (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") or "IfHealthyBudget"
    if not is_ready(pod):
        healthy = status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0
        if policy == "AlwaysAllow" or healthy:
            return
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 1):
        raise _refused(name, f"The disruption budget {name} is still being processed by the server.")
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        needs = status.get("desiredHealthy", 0)
        healthy_now = status.get("currentHealthy", 0)
        told = f"The disruption budget {name} needs {needs} healthy pods and has {healthy_now} currently"
        raise _refused(name, told)
    if write.dry_run:
        return
    resource = objects.registry.by_storage(PDBS)
    assert resource is not None

    def spend(old: Json) -> Json:
        new: Json = clone(old)
        new["status"]["disruptionsAllowed"] = allowed - 1
        disrupted = new["status"].setdefault("disruptedPods", {})
        disrupted[pod["metadata"]["name"]] = stamp(objects.chance.now())
        return new

    objects.patch(resource, budget["metadata"]["namespace"], name, spend, write, subresource="status")


def _refused(name: str, told: str) -> ApiError:
    return ApiError(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        causes=(Cause("", told, "DisruptionBudget"),),
    )
