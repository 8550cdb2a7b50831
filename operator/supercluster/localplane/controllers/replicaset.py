"""ReplicaSets: keeps the requested number of pods of a template."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from supercluster.localplane.client import PODS, REPLICA_SETS, Json
from supercluster.localplane.controllers.base import (
    Controller,
    available_in_s,
    is_ready,
    is_terminating,
    phase_of,
    pod_from_template,
)
from supercluster.localplane.times import now_utc

BURST_PODS_MAX = 500


@dataclass(frozen=True, slots=True)
class Plan:
    """How many pods to make, which to end, and what to say."""

    create: int
    delete: tuple[Json, ...]
    status: Json
    again_s: float | None


def _usefulness(pod: Json) -> tuple[bool, bool, bool, str]:
    """Small for the pods to end first: those without a node, not running, not ready; of equals the newest."""
    age = str(pod["metadata"].get("creationTimestamp", ""))
    inverted = "".join(chr(0x10FFFF - ord(character)) for character in age)
    return bool(pod["spec"].get("nodeName")), phase_of(pod) == "Running", is_ready(pod), inverted


def plan(replica_set: Json, pods: Sequence[Json], now: dt.datetime) -> Plan:
    """One step towards the wanted number. `pods` are those the set owns."""
    spec = replica_set["spec"]
    wanted = 1 if spec.get("replicas") is None else int(spec["replicas"])
    min_ready_s = int(spec.get("minReadySeconds") or 0)
    active = [pod for pod in pods if not is_terminating(pod) and phase_of(pod) not in ("Succeeded", "Failed")]
    waits = [available_in_s(pod, min_ready_s, now) for pod in active]
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    status: Json = {
        "observedGeneration": replica_set["metadata"].get("generation"),
        "replicas": len(active),
        "fullyLabeledReplicas": sum(
            all((pod["metadata"].get("labels") or {}).get(name) == value for name, value in labels.items())
            for pod in active
        ),
        "readyReplicas": sum(is_ready(pod) for pod in active),
        "availableReplicas": sum(left == 0 for left in waits),
    }
    surplus = sorted(active, key=_usefulness)[: max(0, len(active) - wanted)]
    return Plan(
        create=0 if is_terminating(replica_set) else min(max(0, wanted - len(active)), BURST_PODS_MAX),
        delete=() if is_terminating(replica_set) else tuple(surplus),
        status=status,
        again_s=min((left for left in waits if left), default=None),
    )


class ReplicaSetController(Controller):
    kind = REPLICA_SETS
    owns = (PODS,)

    async def reconcile(self, replica_set: Json) -> float | None:
        wanted = plan(replica_set, self.owned_by(replica_set, PODS), now_utc())
        for _ in range(wanted.create):
            pod = pod_from_template(replica_set["spec"]["template"], self.kind, replica_set)
            pod["metadata"]["generateName"] = f"{replica_set['metadata']['name']}-"
            made = await self.create_pod(replica_set, pod)
            self.recorder.normal(replica_set, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
        for pod in wanted.delete:
            await self.cluster.delete(PODS, pod)
            self.recorder.normal(replica_set, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
        status = wanted.status
        if wanted.create or wanted.delete:
            status = plan(replica_set, self.owned_by(replica_set, PODS), now_utc()).status
        await self.cluster.patch_status(self.kind, replica_set, status)
        return wanted.again_s
