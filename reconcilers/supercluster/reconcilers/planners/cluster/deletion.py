"""Deletion of a Cluster: the order in which its parts are removed, by its deletion policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from supercluster.api import Cluster
from supercluster.api.conditions import ConditionType, EventReason, Reason
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.cluster.cluster_observed import ClusterObserved
from supercluster.reconcilers.planners.cluster.departure import consider
from supercluster.reconcilers.planners.cluster.volumes import ClaimView
from supercluster.reconcilers.planners.plan import FINALIZER, DeleteObject, Ground, Note, Plan, SetFinalizers
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
    """Streams that are being deleted too need the brokers; these part from the others; then the pods go, then (Delete only)
    the volumes."""
    metadata = desired.metadata
    if FINALIZER not in metadata.finalizers:
        return Plan()
    leaving = sorted(
        stream.metadata.name
        for stream in observed.streams
        if stream.metadata.deletion_timestamp is not None and FINALIZER in stream.metadata.finalizers
    )
    if leaving and any(pod.ready for pod in observed.pods):
        message = f"deletion waits for Streams that are being deleted: {', '.join(leaving)}"
        conditions.put(ConditionType.READY, False, Reason.STREAMS_REMAIN, message)
        return Plan((), patch_since(None), conditions.notes())
    parting = consider(observed.parting, desired.status.parting_since, now)
    if parting is not None:
        conditions.put(ConditionType.READY, False, Reason.DELETING, observed.refusal or parting.message)
        since = desired.status.parting_since or timestamp(now)
        patch = patch_since(since)
        steps = (parting.step,) if parting.step is not None else ()
        return Plan(steps, patch, conditions.notes(), recheck_after_ms=PARTING_RECHECK_MS)
    rest = tuple(name for name in metadata.finalizers if name != FINALIZER)
    if desired.spec.deletion_policy == "Retain":
        kept = ", ".join(sorted(claim.name for claim in observed.claims)) or "none"
        owner = observed.super_cluster
        whose = (
            f"; they belong to identity {owner.identity} (spec.identity of a SuperCluster)" if owner else ""
        )
        note = Note.done(
            EventReason.RELEASED, f"spec.deletionPolicy is Retain: volume claims kept: {kept}{whose}"
        )
        return Plan((SetFinalizers(rest, metadata.resource_version, note=note),))
    retained = sorted(
        stream.metadata.name
        for stream in observed.streams
        if stream.status.cluster == metadata.name
        and stream.metadata.deletion_timestamp is None
        and stream.spec.deletion_policy == "Retain"
    )
    if retained:
        message = (
            "deletion waits: spec.deletionPolicy is Delete, and Streams that are to be retained live here: "
            f"{', '.join(retained[:NAMED_MAX])}{' and more' if len(retained) > NAMED_MAX else ''}; have them placed in another Cluster, "
            "delete them, or set one of the two policies"
        )
        conditions.put(ConditionType.READY, False, Reason.STREAMS_REMAIN, message)
        return Plan((), patch_since(None), conditions.notes())
    conditions.put(ConditionType.READY, False, Reason.DELETING, "brokers and volume claims are being deleted")
    patch = patch_since(None)
    name = naming.stateful_set(metadata.name)
    running = observed.objects.get(("StatefulSet", name))
    if running is not None:
        if running["metadata"].get("deletionTimestamp"):
            return Plan((), patch)
        uid = running["metadata"]["uid"]
        step = DeleteObject("apps/v1", "StatefulSet", metadata.namespace, name, uid, Ground.CLUSTER_DELETED)
        return Plan((step,), patch)
    if observed.pods:
        return Plan((), patch)
    identity = observed.super_cluster.identity if observed.super_cluster is not None else None
    ours = [claim for claim in observed.claims if _is_of(desired, claim, identity)]
    for claim in ours:
        if not claim.terminating:
            note = Note.done(
                EventReason.DELETED, f"spec.deletionPolicy is Delete: deleted claim {claim.name}"
            )
            step = DeleteObject(
                "v1",
                "PersistentVolumeClaim",
                metadata.namespace,
                claim.name,
                claim.uid,
                Ground.CLUSTER_DELETED,
                note=note,
            )
            return Plan((step,), patch)
    if ours:
        return Plan((), patch)
    left = ", ".join(sorted(claim.name for claim in observed.claims))
    told = f"volume claims kept, since they are not marked as those of this super-cluster: {left}"
    return Plan(
        (
            SetFinalizers(
                rest, metadata.resource_version, note=Note.done(EventReason.RELEASED, told) if left else None
            ),
        )
    )


def _is_of(desired: Cluster, claim: ClaimView, identity: str | None) -> bool:
    """By its name, its label, and what is written on it: another super-cluster may have had a cluster of this name."""
    return (
        naming.cluster_of(claim.broker) == desired.metadata.name
        and naming.ordinal(claim.broker) >= 0
        and claim.super_cluster == desired.spec.super_cluster
        and claim.identity == identity
    )
