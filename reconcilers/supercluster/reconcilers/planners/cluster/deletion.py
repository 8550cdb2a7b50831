"""Deletion of a Cluster: the order in which its parts are removed, by its deletion policy.

The order is the same in every propagation (background, foreground, orphan). Kubernetes deletes nothing by itself,
because the objects that brokers need have no owner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from supercluster.api import Cluster
from supercluster.api.conditions import ConditionType, EventReason, Reason
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.cluster.cluster_observed import ClusterObserved
from supercluster.reconcilers.planners.cluster.departure import consider, others_stay, retained_streams
from supercluster.reconcilers.planners.cluster.volumes import ClaimView
from supercluster.reconcilers.planners.plan import (
    CLUSTER_ANNOTATION,
    FINALIZER,
    DeleteObject,
    Ground,
    Manifest,
    Note,
    Plan,
    SetFinalizers,
)
from supercluster.reconcilers.planners.status import Conditions, timestamp

# While others are asked to vote in place of brokers that go.
PARTING_RECHECK_MS = 500
# So many Streams are named in a sentence.
NAMED_MAX = 5

Patch = Callable[[str | None], Mapping[str, Any] | None]
"""The patch of the status, given since when brokers part."""


def plan_deletion(
    desired: Cluster, observed: ClusterObserved, conditions: Conditions, patch_since: Patch, now: datetime
) -> Plan:
    """Streams that are being deleted too need the brokers; these part from the others; then the brokers go, then (Delete only)
    their volumes, then the rest."""
    if FINALIZER not in desired.metadata.finalizers:
        return Plan()
    running = observed.objects.get(("StatefulSet", naming.stateful_set(desired.metadata.name)))

    def wait(reason: Reason, message: str) -> Plan:
        conditions.put(ConditionType.READY, False, reason, message)
        return Plan((), patch_since(None), conditions.notes())

    leaving = _leaving_streams(desired, observed)
    if leaving and any(pod.ready for pod in observed.pods):
        return wait(Reason.STREAMS_REMAIN, f"deletion waits for Streams that are being deleted: {leaving}")
    if running is not None or observed.pods:
        going = _brokers_go(desired, observed, running, conditions, patch_since, now)
        return going or wait(
            Reason.DELETING, f"deletion waits until these brokers have ended: {_pods(observed)}"
        )
    conditions.put(ConditionType.READY, False, Reason.DELETING, "brokers are gone, and their objects follow")
    ours = _claims_that_go(desired, observed)
    for claim in ours:
        if not claim.terminating:
            told = f"spec.deletionPolicy is Delete: deleted claim {claim.name}"
            step = _delete(
                desired, "v1", "PersistentVolumeClaim", claim.name, claim.uid, Ground.CLUSTER_DELETED, told
            )
            return Plan((step,), patch_since(None))
    if ours:
        return Plan((), patch_since(None))
    rest = tuple(
        _delete(
            desired,
            str(body["apiVersion"]),
            kind,
            name,
            str(body["metadata"]["uid"]),
            Ground.BROKERS_GONE,
        )
        for (kind, name), body in sorted(observed.objects.items())
        if _is_left(desired, body)
    )
    if rest:
        return Plan(rest, patch_since(None), in_a_row=len(rest))
    finalizers = tuple(name for name in desired.metadata.finalizers if name != FINALIZER)
    note = _farewell(desired, observed)
    return Plan((SetFinalizers(finalizers, desired.metadata.resource_version, note=note),))


def _leaving_streams(desired: Cluster, observed: ClusterObserved) -> str:
    """Where nobody stays, all of them need the brokers: those that hold the map of streams may be here."""
    is_last = not others_stay(desired, observed.siblings)
    return ", ".join(
        sorted(
            stream.metadata.name
            for stream in observed.streams
            if stream.metadata.deletion_timestamp is not None
            and FINALIZER in stream.metadata.finalizers
            and (is_last or stream.status.cluster in (None, desired.metadata.name))
        )
    )


def _brokers_go(
    desired: Cluster,
    observed: ClusterObserved,
    running: Manifest | None,
    conditions: Conditions,
    patch_since: Patch,
    now: datetime,
) -> Plan | None:
    """Brokers part from the others, and go; None: they end."""
    is_there = running is not None and not running["metadata"].get("deletionTimestamp")
    if not is_there and all(pod.terminating for pod in observed.pods):
        return None
    parting = consider(desired, observed.parting)
    if parting is not None:
        conditions.put(ConditionType.READY, False, Reason.DELETING, observed.refusal or parting.message)
        since = desired.status.parting_since or timestamp(now)
        steps = (parting.step,) if parting.step is not None else ()
        return Plan(steps, patch_since(since), conditions.notes(), recheck_after_ms=PARTING_RECHECK_MS)
    if running is None or not is_there:
        return None
    retained = retained_streams(desired, observed.streams)
    if retained:
        message = (
            "deletion waits: spec.deletionPolicy is Delete, and Streams that are to be retained live here: "
            f"{', '.join(retained[:NAMED_MAX])}{' and more' if len(retained) > NAMED_MAX else ''}; have them placed in another Cluster, "
            "delete them, or set one of the two policies"
        )
        conditions.put(ConditionType.READY, False, Reason.STREAMS_REMAIN, message)
        return Plan((), patch_since(None), conditions.notes())
    conditions.put(ConditionType.READY, False, Reason.DELETING, "brokers are being deleted")
    name, uid = naming.stateful_set(desired.metadata.name), str(running["metadata"]["uid"])
    step = _delete(desired, "apps/v1", "StatefulSet", name, uid, Ground.BROKERS_PARTED)
    return Plan((step,), patch_since(None))


def _claims_that_go(desired: Cluster, observed: ClusterObserved) -> list[ClaimView]:
    if desired.spec.deletion_policy == "Retain":
        return []
    identity = observed.super_cluster.identity if observed.super_cluster is not None else None
    return [claim for claim in observed.claims if _is_of(desired, claim, identity)]


def _is_left(desired: Cluster, body: Manifest) -> bool:
    """Made for this Cluster, and not handed to garbage collection yet."""
    metadata = body["metadata"]
    return (
        (metadata.get("annotations") or {}).get(CLUSTER_ANNOTATION) == desired.metadata.uid
        and not metadata.get("ownerReferences")
        and not metadata.get("deletionTimestamp")
    )


def _farewell(desired: Cluster, observed: ClusterObserved) -> Note | None:
    left = ", ".join(sorted(claim.name for claim in observed.claims))
    if desired.spec.deletion_policy == "Retain":
        owner = observed.super_cluster
        whose = (
            f"; they belong to identity {owner.identity} (spec.identity of a SuperCluster)" if owner else ""
        )
        told = f"spec.deletionPolicy is Retain: volume claims kept: {left or 'none'}{whose}"
        return Note.done(EventReason.RELEASED, told)
    told = f"volume claims kept, since they are not marked as those of this super-cluster: {left}"
    return Note.done(EventReason.RELEASED, told) if left else None


def _pods(observed: ClusterObserved) -> str:
    return ", ".join(sorted(pod.name for pod in observed.pods)) or "none is left"


def _delete(
    desired: Cluster, api_version: str, kind: str, name: str, uid: str, ground: Ground, told: str = ""
) -> DeleteObject:
    note = Note.done(EventReason.DELETED, told) if told else None
    return DeleteObject(api_version, kind, desired.metadata.namespace, name, uid, ground, note=note)


def _is_of(desired: Cluster, claim: ClaimView, identity: str | None) -> bool:
    """By its name, its label, and what is written on it: another super-cluster may have had a cluster of this name."""
    return (
        naming.cluster_of(claim.broker) == desired.metadata.name
        and naming.ordinal(claim.broker) >= 0
        and claim.super_cluster == desired.spec.super_cluster
        and claim.identity == identity
    )
