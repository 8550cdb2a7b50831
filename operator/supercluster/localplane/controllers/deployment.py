"""Deployments: one ReplicaSet per template, rolled from the old ones to the new one.

The rolling rule: never more than `replicas + maxSurge` pods, never fewer than `replicas - maxUnavailable` available.
"""

from __future__ import annotations

import copy
import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from supercluster.localplane.client import DEPLOYMENTS, REPLICA_SETS, Json, key_of
from supercluster.localplane.controllers.base import Controller, condition, is_terminating, owner_reference
from supercluster.localplane.controllers.statefulset_plan import revision_hash
from supercluster.localplane.times import now_utc, parse_stamp, stamp

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
HISTORY_LIMIT = 10
PROGRESS_DEADLINE_S = 600


@dataclass(slots=True)
class Plan:
    create: Json | None = None
    revise: tuple[Json, str] | None = None
    scale: list[tuple[Json, int]] = field(default_factory=list)
    delete: list[Json] = field(default_factory=list)
    status: Json = field(default_factory=dict)
    again_s: float | None = None


def _share(value: int | str | None, whole: int, *, is_rounded_up: bool) -> int:
    if isinstance(value, str) and value.endswith("%"):
        exact = int(value[:-1]) * whole / 100
        return math.ceil(exact) if is_rounded_up else math.floor(exact)
    return int(value or 0)


def _size(replica_set: Json) -> int:
    return int(replica_set["spec"].get("replicas") or 0)


def _count(replica_set: Json, name: str) -> int:
    return int((replica_set.get("status") or {}).get(name) or 0)


def _revision(replica_set: Json) -> int:
    return int((replica_set["metadata"].get("annotations") or {}).get(REVISION) or 0)


def plan(deployment: Json, sets: Sequence[Json], now: dt.datetime) -> Plan:
    """One step of a rollout. `sets` are the ReplicaSets it owns."""
    result = Plan()
    if is_terminating(deployment):
        return result
    spec = deployment["spec"]
    replicas = 1 if spec.get("replicas") is None else int(spec["replicas"])
    digest = revision_hash(spec["template"])
    new = next((one for one in sets if (one["metadata"].get("labels") or {}).get(HASH_LABEL) == digest), None)
    old = [one for one in sets if one is not new]
    newest = max((_revision(one) for one in old), default=0)
    if new is not None and _revision(new) <= newest:
        result.revise = (new, str(newest + 1))
    strategy = spec.get("strategy") or {}
    is_rolled = strategy.get("type", "RollingUpdate") == "RollingUpdate"
    surge, unavailable = _bounds(strategy, replicas) if is_rolled else (0, replicas)
    old_pods = sum(max(_size(one), _count(one, "replicas")) for one in old)
    room = replicas + surge - (old_pods if is_rolled else 0)
    target = min(replicas, max(room, _size(new) if new else 0))
    if not is_rolled and old_pods:
        target = _size(new) if new else 0
    if new is None:
        result.create = _new_set(deployment, digest, max(0, target), newest + 1)
    elif not spec.get("paused") and _size(new) != (wanted := target if _size(new) < replicas else replicas):
        result.scale.append((new, wanted))
    if not spec.get("paused"):
        _scale_down(old, new, replicas - unavailable, result, is_rolled=is_rolled)
    idle = sorted((one for one in old if not _size(one) and not _count(one, "replicas")), key=_revision)
    limit = spec.get("revisionHistoryLimit")
    result.delete = idle[: max(0, len(idle) - (HISTORY_LIMIT if limit is None else int(limit)))]
    _report(deployment, new, sets, replicas, replicas - unavailable, now, result)
    return result


def _bounds(strategy: Json, replicas: int) -> tuple[int, int]:
    """maxSurge and maxUnavailable as counts; at least one of them is more than 0."""
    rolling = strategy.get("rollingUpdate") or {}
    surge = _share(rolling.get("maxSurge", "25%"), replicas, is_rounded_up=True)
    unavailable = _share(rolling.get("maxUnavailable", "25%"), replicas, is_rounded_up=False)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def _scale_down(old: list[Json], new: Json | None, floor: int, result: Plan, *, is_rolled: bool) -> None:
    """Take pods from the old sets: those that are not available freely, others down to the floor."""
    spare = sum(_count(one, "availableReplicas") for one in old)
    spare += _count(new, "availableReplicas") if new else 0
    spare -= floor
    for one in sorted(old, key=_revision):
        size = _size(one)
        if not is_rolled:
            left = 0
        else:
            unhealthy = max(0, size - _count(one, "availableReplicas"))
            healthy = min(max(0, spare), size - unhealthy)
            # Unhealthy old pods go only when a new set is there to take their place.
            left = size - (unhealthy if new is not None else 0) - healthy
            spare -= healthy
        if left != size:
            result.scale.append((one, left))


def _new_set(deployment: Json, digest: str, replicas: int, revision: int) -> Json:
    template = copy.deepcopy(deployment["spec"]["template"])
    meta = template.setdefault("metadata", {})
    meta["labels"] = {**(meta.get("labels") or {}), HASH_LABEL: digest}
    selector = copy.deepcopy(deployment["spec"]["selector"])
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: digest}
    spec: Json = {"replicas": replicas, "selector": selector, "template": template}
    if deployment["spec"].get("minReadySeconds"):
        spec["minReadySeconds"] = deployment["spec"]["minReadySeconds"]
    return {
        "metadata": {
            "name": f"{deployment['metadata']['name']}-{digest}",
            "namespace": deployment["metadata"]["namespace"],
            "labels": meta["labels"],
            "annotations": {REVISION: str(revision)},
            "ownerReferences": [owner_reference(DEPLOYMENTS, deployment)],
        },
        "spec": spec,
    }


def _report(
    deployment: Json,
    new: Json | None,
    sets: Sequence[Json],
    replicas: int,
    floor: int,
    now: dt.datetime,
    result: Plan,
) -> None:
    total = sum(_count(one, "replicas") for one in sets)
    available = sum(_count(one, "availableReplicas") for one in sets)
    updated = _count(new, "replicas") if new else 0
    status: Json = {
        "observedGeneration": deployment["metadata"].get("generation"),
        "replicas": total,
        "updatedReplicas": updated,
        "readyReplicas": sum(_count(one, "readyReplicas") for one in sets),
        "availableReplicas": available,
        "unavailableReplicas": max(0, replicas - available) or None,
    }
    is_done = updated == total == replicas and available >= replicas and new is not None
    name = new["metadata"]["name"] if new else ""
    is_enough = available >= floor
    held = condition(deployment, "Progressing")
    progress = ("True", "NewReplicaSetAvailable", f'ReplicaSet "{name}" has successfully progressed.')
    if not is_done:
        progress = ("True", "ReplicaSetUpdated", f'ReplicaSet "{name}" is progressing.')
        before = deployment.get("status") or {}
        is_stuck = all((before.get(field) or 0) == (status[field] or 0) for field in status)
        deadline_s = int(deployment["spec"].get("progressDeadlineSeconds") or PROGRESS_DEADLINE_S)
        if held is not None and is_stuck and held.get("lastUpdateTime"):
            left_s = deadline_s - (now - parse_stamp(held["lastUpdateTime"])).total_seconds()
            if left_s <= 0:
                progress = (
                    "False",
                    "ProgressDeadlineExceeded",
                    f'ReplicaSet "{name}" has timed out progressing.',
                )
            else:
                result.again_s = left_s + 1
        elif held is not None and not is_stuck:
            held = {**held, "lastUpdateTime": None}
    status["conditions"] = [
        _condition(
            condition(deployment, "Available"),
            "Available",
            "True" if is_enough else "False",
            "MinimumReplicasAvailable" if is_enough else "MinimumReplicasUnavailable",
            f"Deployment {'has' if is_enough else 'does not have'} minimum availability.",
            now,
        ),
        _condition(held, "Progressing", *progress, now),
    ]
    result.status = status


def _condition(
    held: Json | None, kind: str, status: str, reason: str, message: str, now: dt.datetime
) -> Json:
    moment = stamp(now)
    is_same = held is not None and held["status"] == status
    is_told = is_same and held is not None and held.get("reason") == reason and held.get("message") == message
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": held["lastTransitionTime"] if held is not None and is_same else moment,
        "lastUpdateTime": (held.get("lastUpdateTime") if held is not None and is_told else None) or moment,
    }


class DeploymentController(Controller):
    kind = DEPLOYMENTS
    owns = (REPLICA_SETS,)

    async def reconcile(self, deployment: Json) -> float | None:
        wanted = plan(deployment, self.owned_by(deployment, REPLICA_SETS), now_utc())
        if wanted.create:
            made = await self.cluster.create(REPLICA_SETS, wanted.create)
            told = f"Scaled up replica set {made['metadata']['name']} to {made['spec']['replicas']}"
            self.recorder.normal(deployment, "ScalingReplicaSet", told)
        if wanted.revise:
            replica_set, number = wanted.revise
            annotation = {"metadata": {"annotations": {REVISION: number}}}
            await self.cluster.patch(REPLICA_SETS, key_of(replica_set), annotation)
        for replica_set, size in wanted.scale:
            way = "up" if size > _size(replica_set) else "down"
            await self.cluster.patch(REPLICA_SETS, key_of(replica_set), {"spec": {"replicas": size}})
            told = f"Scaled {way} replica set {replica_set['metadata']['name']} to {size}"
            self.recorder.normal(deployment, "ScalingReplicaSet", told)
        for replica_set in wanted.delete:
            await self.cluster.delete(REPLICA_SETS, replica_set)
        if wanted.status:
            await self.cluster.patch_status(self.kind, deployment, wanted.status)
        return wanted.again_s
