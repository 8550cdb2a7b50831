"""The next step of a StatefulSet, as a pure function of the observed objects.

There is at most one pod per ordinal. OrderedReady creates and ends one pod at a time, and only while all
before it are healthy. A rolling update ends one old pod at a time, from the highest ordinal down to the
partition. OnDelete leaves old pods alone and gives new ones the newest template. Claims are created before
their pod and never deleted here.
"""

from __future__ import annotations

import copy
import datetime as dt
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from supercluster.localplane.client import STATEFUL_SETS, Json
from supercluster.localplane.controllers.base import (
    available_in_s,
    is_ready,
    is_terminating,
    owner_reference,
    phase_of,
    pod_from_template,
)

REVISION_LABEL = "controller-revision-hash"
HASH_LABEL = "controller.kubernetes.io/hash"
POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"
HISTORY_LIMIT = 10
HASH_CHARACTERS = 10


@dataclass(slots=True)
class Plan:
    """What to do, in this order: revisions, claims, pods to make, pods to end, revisions to drop, status."""

    create_revision: Json | None = None
    renumber_revision: tuple[Json, int] | None = None
    create_claims: list[Json] = field(default_factory=list)
    create_pods: list[Json] = field(default_factory=list)
    delete_pods: list[Json] = field(default_factory=list)
    delete_revisions: list[Json] = field(default_factory=list)
    status: Json = field(default_factory=dict)
    again_s: float | None = None


@dataclass(frozen=True, slots=True)
class _View:
    """The set and its pods by ordinal, with the two revisions in play."""

    sts: Json
    start: int
    replicas: int
    is_ordered: bool
    update: Json
    current: Json
    pods: dict[int, Json]
    claims: frozenset[str]
    now: dt.datetime

    @property
    def wanted(self) -> range:
        return range(self.start, self.start + self.replicas)

    def available_in_s(self, pod: Json) -> float | None:
        return available_in_s(pod, int(self.sts["spec"].get("minReadySeconds") or 0), self.now)

    def is_healthy(self, pod: Json) -> bool:
        return not is_terminating(pod) and self.available_in_s(pod) == 0


def revision_hash(data: Json) -> str:
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(canonical).hexdigest()[:HASH_CHARACTERS]


def ordinal_of(sts: Json, pod: Json) -> int | None:
    head, _, tail = str(pod["metadata"]["name"]).rpartition("-")
    if head != sts["metadata"]["name"] or not tail.isdecimal() or str(int(tail)) != tail:
        return None
    return int(tail)


def claim_name(template: Json, sts: Json, ordinal: int) -> str:
    return f"{template['metadata']['name']}-{sts['metadata']['name']}-{ordinal}"


def plan(
    sts: Json, revisions: Sequence[Json], pods: Sequence[Json], claims: frozenset[str], now: dt.datetime
) -> Plan:
    """One step towards `sts`. `revisions` and `pods` are those it owns, `claims` the names of claims beside it."""
    result = Plan()
    if is_terminating(sts):
        return result
    update = _update_revision(sts, revisions, result)
    view = _view(sts, revisions, update, pods, claims, now)
    settled = _scale(view, result)
    if settled:
        _roll(view, result)
    result.status = _status(view, result)
    if result.create_revision is None:
        result.delete_revisions = _old_revisions(sts, revisions, pods, result.status)
    _wait_for_availability(view, result)
    return result


def _update_revision(sts: Json, revisions: Sequence[Json], result: Plan) -> Json:
    """The revision of the present template: one that is there already (renumbered if it is not the newest) or new."""
    data = {"spec": {"template": {"$patch": "replace", **sts["spec"]["template"]}}}
    digest = revision_hash(data)
    newest = max((int(found.get("revision", 0)) for found in revisions), default=0)
    for found in revisions:
        if found["metadata"].get("labels", {}).get(HASH_LABEL) == digest or found.get("data") == data:
            if int(found.get("revision", 0)) < newest:
                result.renumber_revision = (found, newest + 1)
            return found
    made: Json = {
        "metadata": {
            "name": f"{sts['metadata']['name']}-{digest}",
            "namespace": sts["metadata"]["namespace"],
            "labels": {
                **(sts["spec"].get("selector", {}).get("matchLabels") or {}),
                HASH_LABEL: digest,
            },
            "ownerReferences": [owner_reference(STATEFUL_SETS, sts)],
        },
        "data": data,
        "revision": newest + 1,
    }
    result.create_revision = made
    return made


def _view(
    sts: Json,
    revisions: Sequence[Json],
    update: Json,
    pods: Sequence[Json],
    claims: frozenset[str],
    now: dt.datetime,
) -> _View:
    spec = sts["spec"]
    named = (sts.get("status") or {}).get("currentRevision")
    current = next((found for found in revisions if found["metadata"]["name"] == named), update)
    by_ordinal: dict[int, Json] = {}
    for pod in pods:
        ordinal = ordinal_of(sts, pod)
        if ordinal is not None:
            by_ordinal[ordinal] = pod
    replicas = spec.get("replicas")
    return _View(
        sts=sts,
        start=int((spec.get("ordinals") or {}).get("start") or 0),
        replicas=1 if replicas is None else int(replicas),
        is_ordered=spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady",
        update=update,
        current=current,
        pods=by_ordinal,
        claims=claims,
        now=now,
    )


def _scale(view: _View, result: Plan) -> bool:
    """Make missing pods and end surplus ones. True when there is nothing of that left to do or wait for."""
    for ordinal in view.wanted:
        pod = view.pods.get(ordinal)
        if pod is None:
            _create(view, ordinal, result)
        elif phase_of(pod) in ("Failed", "Succeeded") and not is_terminating(pod):
            result.delete_pods.append(pod)
        else:
            _create_claims(view, ordinal, result)
            if not view.is_ordered or view.is_healthy(pod):
                continue
        if view.is_ordered:
            return False
    for ordinal in sorted(view.pods.keys() - view.wanted, reverse=True):
        pod = view.pods[ordinal]
        if not is_terminating(pod):
            result.delete_pods.append(pod)
        if view.is_ordered:
            return False
    return not (result.create_pods or result.delete_pods)


def _strategy(sts: Json) -> tuple[bool, int]:
    """Whether pods are rolled, and the first ordinal (relative) that is."""
    strategy = sts["spec"].get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return False, 0
    return True, int((strategy.get("rollingUpdate") or {}).get("partition") or 0)


def _roll(view: _View, result: Plan) -> None:
    is_rolled, partition = _strategy(view.sts)
    if not is_rolled:
        return
    for ordinal in reversed(view.wanted[partition:]):
        pod = view.pods[ordinal]
        if not _has_revision(pod, view.update):
            if not is_terminating(pod):
                result.delete_pods.append(pod)
            return
        if not view.is_healthy(pod):
            return


def _has_revision(pod: Json, revision: Json) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return bool(labels.get(REVISION_LABEL) == revision["metadata"]["name"])


def _create(view: _View, ordinal: int, result: Plan) -> None:
    _create_claims(view, ordinal, result)
    is_rolled, partition = _strategy(view.sts)
    is_held_back = is_rolled and ordinal < view.start + partition
    revision = view.current if is_held_back else view.update
    result.create_pods.append(make_pod(view.sts, revision, ordinal))


def _create_claims(view: _View, ordinal: int, result: Plan) -> None:
    for template in view.sts["spec"].get("volumeClaimTemplates") or ():
        name = claim_name(template, view.sts, ordinal)
        if name in view.claims:
            continue
        labels = view.sts["spec"].get("selector", {}).get("matchLabels") or {}
        meta = {
            "name": name,
            "namespace": view.sts["metadata"]["namespace"],
            "labels": {**(template["metadata"].get("labels") or {}), **labels},
        }
        if template["metadata"].get("annotations"):
            meta["annotations"] = template["metadata"]["annotations"]
        result.create_claims.append({"metadata": meta, "spec": copy.deepcopy(template["spec"])})


def make_pod(sts: Json, revision: Json, ordinal: int) -> Json:
    """The pod of one ordinal, as a revision's template says."""
    template = {
        name: value for name, value in revision["data"]["spec"]["template"].items() if name != "$patch"
    }
    pod = pod_from_template(template, STATEFUL_SETS, sts)
    name = f"{sts['metadata']['name']}-{ordinal}"
    pod["metadata"]["name"] = name
    pod["metadata"]["labels"] |= {
        REVISION_LABEL: revision["metadata"]["name"],
        POD_NAME_LABEL: name,
        POD_INDEX_LABEL: str(ordinal),
    }
    spec = pod["spec"]
    spec["hostname"] = name
    if sts["spec"].get("serviceName"):
        spec["subdomain"] = sts["spec"]["serviceName"]
    own = {template["metadata"]["name"] for template in sts["spec"].get("volumeClaimTemplates") or ()}
    spec["volumes"] = [volume for volume in spec.get("volumes") or () if volume["name"] not in own] + [
        {
            "name": template["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": claim_name(template, sts, ordinal)},
        }
        for template in sts["spec"].get("volumeClaimTemplates") or ()
    ]
    return pod


def _status(view: _View, result: Plan) -> Json:
    """The status after this step, counting the pods that are about to be made and not those about to be ended."""
    ended = {pod["metadata"]["uid"] for pod in result.delete_pods}
    held = [pod for pod in view.pods.values() if pod["metadata"]["uid"] not in ended]
    living = [pod for pod in held if not is_terminating(pod)] + result.create_pods
    ready = [pod for pod in held if is_ready(pod) and not is_terminating(pod)]
    status: Json = {
        "observedGeneration": view.sts["metadata"].get("generation"),
        "replicas": len(held) + len(result.create_pods),
        "readyReplicas": len(ready),
        "availableReplicas": sum(view.is_healthy(pod) for pod in ready),
        "currentReplicas": sum(_has_revision(pod, view.current) for pod in living),
        "updatedReplicas": sum(_has_revision(pod, view.update) for pod in living),
        "currentRevision": view.current["metadata"]["name"],
        "updateRevision": view.update["metadata"]["name"],
        "collisionCount": 0,
    }
    is_rolled, _ = _strategy(view.sts)
    if (
        is_rolled
        and status["updatedReplicas"] == status["replicas"] == status["readyReplicas"] == view.replicas
    ):
        status["currentReplicas"] = status["updatedReplicas"]
        status["currentRevision"] = status["updateRevision"]
    return status


def _old_revisions(sts: Json, revisions: Sequence[Json], pods: Sequence[Json], status: Json) -> list[Json]:
    in_use = {status["currentRevision"], status["updateRevision"]}
    in_use |= {(pod["metadata"].get("labels") or {}).get(REVISION_LABEL) for pod in pods}
    idle = [found for found in revisions if found["metadata"]["name"] not in in_use]
    idle.sort(key=lambda found: int(found.get("revision", 0)))
    limit = sts["spec"].get("revisionHistoryLimit")
    return idle[: max(0, len(idle) - (HISTORY_LIMIT if limit is None else int(limit)))]


def _wait_for_availability(view: _View, result: Plan) -> None:
    waits = [left for pod in view.pods.values() if (left := view.available_in_s(pod))]
    if waits:
        result.again_s = min(waits)
