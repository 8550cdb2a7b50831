"""Volume claims: those of removed brokers, those that can't be used any more, and those that need a larger
size.

- Every claim carries the identity of its super-cluster, from the StatefulSet's template or once its broker is
  ready. A claim with another identity, or none, is never deleted.
- A removed broker's copies are not needed, but its volume keeps them for a while, as every broker keeps
  copies that were moved off it (SF-5). Claims are kept, or deleted after that time, as the deletion policy
  says, and deleted only if this Cluster drained the broker: another claim may hold the only copies. A broker
  that comes back uses its old volume, if it was kept. It is then the same member, with copies of streams that
  it no longer belongs to.
- If a broker can't start because its claim is gone or being deleted, its pod is deleted: Kubernetes then
  creates a new claim, and the broker comes back empty. An administrator decides about a claim of a running
  broker, and about one whose volume is lost.
- Claims are expanded to the size in the spec. The StatefulSet's template can't be changed, so claims that are
  later made from it are expanded too (docs/adr/volumes.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from supercluster.api import Cluster
from supercluster.api.cluster import RetiredClaim
from supercluster.api.conditions import EventReason, Reason
from supercluster.api.units import size_bytes
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.cluster.restart_order import PodView
from supercluster.reconcilers.planners.plan import (
    IDENTITY_ANNOTATION,
    DeleteObject,
    ExpandClaim,
    Ground,
    Manifest,
    MarkClaim,
    Note,
    Step,
)
from supercluster.reconcilers.planners.status import parse_timestamp, timestamp

# As long as brokers keep copies that were moved off, claims of those that went are kept too.
CLAIM_GRACE = timedelta(minutes=10)
# A claim is made before its pod, and may be seen after it: a pod that is younger waits for nothing that is lost.
STUCK_AFTER = timedelta(seconds=30)

Finding = tuple[Reason, str]


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A volume claim of a broker."""

    name: str
    uid: str
    terminating: bool = False
    is_lost: bool = False
    """The volume that it was bound to does not exist any more."""
    requested: str = ""
    """The size that it asks for."""
    class_name: str = ""
    trouble: str = ""
    """Why its volume could not be made larger."""
    super_cluster: str = ""
    """The name on its label."""
    identity: str = ""
    """The identity of its super-cluster that is written on it; empty: nobody has said so yet."""

    @property
    def broker(self) -> str:
        return naming.broker_of_claim(self.name)


@dataclass(frozen=True, slots=True)
class Volumes:
    """What is to be done and said about claims."""

    steps: tuple[Step, ...] = ()
    late_steps: tuple[Step, ...] = ()
    """To be done when nothing else is: they may be refused for long."""
    retired: tuple[RetiredClaim, ...] = ()
    notes: tuple[Note, ...] = ()
    warnings: tuple[Finding, ...] = ()
    deferred: tuple[Finding, ...] = ()


def plan_volumes(
    desired: Cluster,
    claims: Sequence[ClaimView],
    replicas: int,
    pods: Sequence[PodView],
    expandable: Mapping[str, bool],
    now: datetime,
    identity: str,
) -> Volumes:
    """`replicas`: brokers that are to run now. `identity`: of the super-cluster. `expandable`: storage classes of which it is known whether they allow larger
    volumes."""
    names = {pod.name for pod in pods}
    owned = sorted(
        (claim for claim in claims if naming.cluster_of(claim.broker) == desired.metadata.name),
        key=lambda claim: (len(claim.name), claim.name),
    )
    unused = [
        claim
        for claim in owned
        if not claim.terminating and naming.ordinal(claim.broker) >= replicas and claim.broker not in names
    ]
    used = [claim for claim in owned if naming.ordinal(claim.broker) < replicas]
    unused = [claim for claim in unused if claim.super_cluster == desired.spec.super_cluster]
    retired, retiring, notes = _retired(desired, unused, now, identity)
    if desired.spec.storage.type != "PersistentVolumeClaim":
        return Volumes(retiring, retired=retired, notes=notes)
    late, deferred = _resizes(desired, used, expandable)
    # One that goes is ended by Kubernetes, and needs no claim any more.
    staying = [pod for pod in pods if naming.ordinal(pod.name) < replicas]
    restarts = _stuck(desired, used, staying, now)
    marks = _marks(desired, used, pods, identity)
    return Volumes((*marks, *restarts, *retiring), late, retired, notes, _going(used, pods), deferred)


def _retired(
    desired: Cluster, unused: Sequence[ClaimView], now: datetime, identity: str
) -> tuple[tuple[RetiredClaim, ...], tuple[Step, ...], tuple[Note, ...]]:
    since = {claim.name: claim for claim in desired.status.retired_claims}
    going = desired.status.drain.brokers if desired.status.drain is not None else ()
    drained = {broker.name for broker in going}
    status = tuple(
        since.get(claim.name)
        or RetiredClaim(name=claim.name, since=timestamp(now), drained=claim.broker in drained)
        for claim in unused
    )
    if desired.spec.deletion_policy == "Retain":
        notes = tuple(
            Note.done(EventReason.RELEASED, f"spec.deletionPolicy is Retain: volume claim kept: {claim.name}")
            for claim in unused
            if claim.name not in since
        )
        return status, (), notes
    ours = [claim for claim in unused if claim.identity == identity]
    began = {entry.name: parse_timestamp(entry.since) for entry in status if entry.drained}
    notes = tuple(
        Note.done(
            EventReason.RELEASED,
            f"volume claim {entry.name} is kept: no broker has it, and none was drained off it by this Cluster; delete it if "
            "nothing on it is needed",
        )
        for entry in status
        if entry.name not in since and (not entry.drained or entry.name not in {each.name for each in ours})
    )
    for claim in ours:
        if claim.name not in began:
            continue
        when = began[claim.name]
        if when is not None and now - when >= CLAIM_GRACE:
            note = Note.done(
                EventReason.DELETED,
                f"spec.deletionPolicy is Delete: deleted claim {claim.name}, whose broker went",
            )
            step = _delete(
                desired, "PersistentVolumeClaim", claim.name, claim.uid, Ground.BROKER_DRAINED, note
            )
            return status, (step,), notes
    return status, (), notes


def _delete(desired: Cluster, kind: str, name: str, uid: str, ground: Ground, note: Note) -> DeleteObject:
    return DeleteObject("v1", kind, desired.metadata.namespace, name, uid, ground, note=note)


def _marks(
    desired: Cluster, used: Sequence[ClaimView], pods: Sequence[PodView], identity: str
) -> tuple[Step, ...]:
    """Claims that an operator of before has had made, and says nothing on: a broker that is ready runs on a volume of its own
    super-cluster, since it refuses any other."""
    ready = {pod.name for pod in pods if pod.ready and not pod.terminating}
    return tuple(
        MarkClaim(desired.metadata.namespace, claim.name, claim.uid, identity)
        for claim in used
        if not claim.identity and not claim.terminating and claim.broker in ready
    )


def _stuck(
    desired: Cluster, used: Sequence[ClaimView], pods: Sequence[PodView], now: datetime
) -> tuple[Step, ...]:
    """The first pod that never started since its claim is gone or goes. Where the claim goes with the pod, the executor asks the
    brokers first whether all of its streams are whole without it."""
    known = {claim.broker: claim for claim in used}
    for pod in sorted(pods, key=lambda pod: pod.name):
        made = parse_timestamp(pod.created)
        if pod.running or pod.started or pod.terminating or made is None or now - made < STUCK_AFTER:
            continue
        claim = known.get(pod.name)
        if claim is not None and not claim.terminating:
            continue
        state = "is gone" if claim is None else "is being deleted"
        note = Note.done(
            EventReason.VOLUME_LOST,
            f"{pod.name} can't start, since claim {naming.claim(pod.name)} {state}: deleted its pod; it comes back with an "
            "empty volume, and gets its copies from the others",
        )
        return (_delete(desired, "Pod", pod.name, pod.uid, Ground.VOLUME_UNUSABLE, note),)
    return ()


def _going(used: Sequence[ClaimView], pods: Collection[PodView]) -> tuple[Finding, ...]:
    running = {pod.name for pod in pods if (pod.running or pod.started) and not pod.terminating}
    found = []
    for claim in used:
        if claim.terminating and claim.broker in running:
            message = (
                f"claim {claim.name} is being deleted, and {claim.broker} runs on its volume still: what is there is gone at "
                "its next restart; delete the pod to have it begin anew now, when its streams have all their other replicas"
            )
            found.append((Reason.VOLUME_TERMINATING, message))
        elif claim.is_lost and not claim.terminating:
            message = (
                f"claim {claim.name} has lost its volume: bring the PersistentVolume back, or delete the claim, and "
                f"{claim.broker} begins anew with copies from the others"
            )
            found.append((Reason.VOLUME_TERMINATING, message))
    return tuple(found)


def _resizes(
    desired: Cluster, used: Sequence[ClaimView], expandable: Mapping[str, bool]
) -> tuple[tuple[Step, ...], tuple[Finding, ...]]:
    size = desired.spec.storage.size
    steps: list[Step] = []
    larger, refused, troubles = [], [], []
    for claim in used:
        have = _bytes(claim.requested)
        if have is None or claim.terminating:
            continue
        if claim.trouble:
            troubles.append(f"{claim.name} could not be made larger: {claim.trouble}")
        if have > size_bytes(size):
            larger.append(f"{claim.name} has {claim.requested}")
        elif have < size_bytes(size) and expandable.get(claim.class_name) is False:
            refused.append(f"{claim.name} ({claim.requested}, class {claim.class_name})")
        elif have < size_bytes(size):
            note = Note.done(
                EventReason.VOLUME_EXPANDED,
                f"spec.storage.size is {size}: asked for it for claim {claim.name}, which had {claim.requested}",
            )
            steps.append(ExpandClaim(desired.metadata.namespace, claim.name, size, note=note))
    messages = []
    if larger:
        messages.append(
            f"spec.storage.size is {size}, and volumes never shrink: {', '.join(larger)}; set it to what they have, or more"
        )
    if refused:
        messages.append(
            f"spec.storage.size is {size}, and the storage class does not allow larger volumes (allowVolumeExpansion): "
            f"{', '.join(refused)}; allow it there, or set the size back"
        )
    messages += troubles
    return tuple(steps), tuple((Reason.VOLUME_NOT_RESIZED, message) for message in messages)


def claim_identity(identity: str, stateful_set: Manifest | None) -> str:
    """What the template of the StatefulSet's claims says of the super-cluster: as with the size, it stays as it was made."""
    for template in (stateful_set or {}).get("spec", {}).get("volumeClaimTemplates") or ():
        return str((template["metadata"].get("annotations") or {}).get(IDENTITY_ANNOTATION, ""))
    return identity


def claim_size(desired: Cluster, stateful_set: Manifest | None) -> str | None:
    """The size in the template of the StatefulSet's claims, which can't be changed, where it is not the spec's; else None."""
    size = desired.spec.storage.size
    for template in (stateful_set or {}).get("spec", {}).get("volumeClaimTemplates") or ():
        told = str(template["spec"]["resources"]["requests"]["storage"])
        return None if _bytes(told) == size_bytes(size) else told
    return None


def _bytes(quantity: str) -> int | None:
    """None: not written as we write sizes, so nobody here compares it."""
    try:
        return size_bytes(quantity)
    except ValueError:
        return None
