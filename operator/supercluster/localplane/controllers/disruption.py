"""The status of PodDisruptionBudgets: how many of the selected pods may be evicted now."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from supercluster.localplane.client import BUDGETS, JOBS, PODS, REPLICA_SETS, STATEFUL_SETS, Json, Key, key_of
from supercluster.localplane.controllers.base import (
    Cluster,
    Controller,
    condition,
    controller_of,
    is_ready,
    is_terminating,
    phase_of,
    selects,
)
from supercluster.localplane.event_recorder import EventRecorder
from supercluster.localplane.times import now_utc, stamp

OWNERS = {"StatefulSet": STATEFUL_SETS, "ReplicaSet": REPLICA_SETS, "Job": JOBS}


def share(value: int | str, whole: int) -> int:
    """A count, or a percentage of `whole` rounded up."""
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(int(value[:-1]) * whole / 100)
    return int(value)


def plan_status(budget: Json, pods: Sequence[Json], expected: int) -> Json:
    """The status fields except conditions. `pods` are those selected, `expected` how many their owners want."""
    spec = budget["spec"]
    if spec.get("maxUnavailable") is not None:
        desired = max(0, expected - share(spec["maxUnavailable"], expected))
    elif spec.get("minAvailable") is not None:
        desired = share(spec["minAvailable"], expected)
    else:
        desired = max(0, expected - 1)
    healthy = sum(is_ready(pod) and not is_terminating(pod) for pod in pods)
    allowed = max(0, healthy - desired) if expected else 0
    return {
        "observedGeneration": budget["metadata"].get("generation"),
        "expectedPods": expected,
        "desiredHealthy": desired,
        "currentHealthy": healthy,
        "disruptionsAllowed": allowed,
    }


def expected_pods(pods: Sequence[Json], replicas_of: Callable[[Json], int | None]) -> int:
    """What the controllers of `pods` want in all; a pod without a known one counts for itself."""
    by_owner: dict[str, int] = {}
    bare = 0
    for pod in pods:
        owner = controller_of(pod)
        wanted = replicas_of(owner) if owner else None
        if owner is None or wanted is None:
            bare += 1
        else:
            by_owner[owner["uid"]] = wanted
    return bare + sum(by_owner.values())


class DisruptionController(Controller):
    kind = BUDGETS

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        super().__init__(cluster, recorder)
        self.watch(PODS, self._budgets_beside)
        self.watch(STATEFUL_SETS, self._budgets_beside)
        self.watch(REPLICA_SETS, self._budgets_beside)

    def _budgets_beside(self, obj: Json) -> list[Key]:
        return [key_of(found) for found in self.cluster[self.kind].in_namespace(obj["metadata"]["namespace"])]

    async def reconcile(self, budget: Json) -> float | None:
        if is_terminating(budget):
            return None
        namespace = budget["metadata"]["namespace"]
        pods = [
            pod
            for pod in self.cluster[PODS].in_namespace(namespace)
            if selects(budget["spec"].get("selector"), pod["metadata"].get("labels"))
            and phase_of(pod) not in ("Succeeded", "Failed")
        ]
        status = plan_status(
            budget, pods, expected_pods(pods, lambda owner: self._replicas(namespace, owner))
        )
        status["disruptedPods"] = self._still_disrupted(budget)
        status["conditions"] = _conditions(budget, status)
        await self.cluster.patch_status(self.kind, budget, status)
        return None

    def _still_disrupted(self, budget: Json) -> Json | None:
        """Evicted pods that are still to be ended: the others' entries are taken away one by one."""
        held = (budget.get("status") or {}).get("disruptedPods")
        if not held:
            return None if held is None else held
        namespace = budget["metadata"]["namespace"]
        present = {
            name
            for name in held
            if (pod := self.cluster[PODS].get(namespace, name)) is not None and not is_terminating(pod)
        }
        if present == set(held):
            found: Json = held
            return found
        return {name: (held[name] if name in present else None) for name in held}

    def _replicas(self, namespace: str, owner: Json) -> int | None:
        kind = OWNERS.get(owner["kind"])
        found = self.cluster[kind].get(namespace, owner["name"]) if kind else None
        if found is None or found["metadata"]["uid"] != owner["uid"]:
            return None
        spec = found["spec"]
        wanted = spec.get("parallelism") if kind is JOBS else spec.get("replicas")
        return 1 if wanted is None else int(wanted)


def _conditions(budget: Json, status: Json) -> list[Json]:
    is_allowed = status["disruptionsAllowed"] > 0
    wanted: Json = {
        "type": "DisruptionAllowed",
        "status": "True" if is_allowed else "False",
        "reason": "SufficientPods" if is_allowed else "InsufficientPods",
        "message": "",
        "observedGeneration": status["observedGeneration"],
    }
    held = condition(budget, "DisruptionAllowed")
    is_same = held is not None and held["status"] == wanted["status"]
    wanted["lastTransitionTime"] = held["lastTransitionTime"] if held and is_same else stamp(now_utc())
    return [wanted]
