"""Volume claims of brokers that went since the Cluster has fewer: kept, or deleted after a grace time, as its policy says.

A broker that went holds no copy that anybody needs, but its volume has them still for a while, as every broker keeps what
was moved off it (SF-5). A broker that comes back finds its old volume, if it was kept: it is then the same member, with
copies of streams that it does not belong to any more, which it drops after the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from supercluster.api import Cluster
from supercluster.api.cluster import RetiredClaim
from supercluster.api.conditions import EventReason
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.plan import DeleteObject, Note, Step
from supercluster.reconcilers.planners.status import parse_timestamp, timestamp

# As long as brokers keep copies that were moved off, claims of those that went are kept too.
CLAIM_GRACE = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A volume claim of a broker."""

    name: str
    uid: str
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class RetiredClaims:
    """What is to be done and said about claims that no broker has."""

    steps: tuple[Step, ...] = ()
    status: tuple[RetiredClaim, ...] = ()
    notes: tuple[Note, ...] = ()


def retired_claims(
    desired: Cluster, claims: Sequence[ClaimView], replicas: int, pods: Collection[str], now: datetime
) -> RetiredClaims:
    """`replicas`: brokers that are to run now. `pods`: names of those that are there."""
    name, policy = desired.metadata.name, desired.spec.deletion_policy
    owners = {claim.name: claim.name.removeprefix(naming.claim("")) for claim in claims}
    unused = [
        claim
        for claim in sorted(claims, key=lambda claim: (len(claim.name), claim.name))
        if not claim.terminating
        and naming.cluster_of(owners[claim.name]) == name
        and naming.ordinal(owners[claim.name]) >= replicas
        and owners[claim.name] not in pods
    ]
    since = {claim.name: claim.since for claim in desired.status.retired_claims}
    status = tuple(
        RetiredClaim(name=claim.name, since=since.get(claim.name) or timestamp(now)) for claim in unused
    )
    if policy == "Retain":
        notes = tuple(
            Note.done(EventReason.RELEASED, f"spec.deletionPolicy is Retain: volume claim kept: {claim.name}")
            for claim in unused
            if claim.name not in since
        )
        return RetiredClaims((), status, notes)
    began = {entry.name: parse_timestamp(entry.since) for entry in status}
    for claim in unused:
        when = began[claim.name]
        if when is not None and now - when >= CLAIM_GRACE:
            note = Note.done(
                EventReason.DELETED,
                f"spec.deletionPolicy is Delete: deleted claim {claim.name}, whose broker went",
            )
            metadata = desired.metadata
            step = DeleteObject(
                "v1", "PersistentVolumeClaim", metadata.namespace, claim.name, claim.uid, note
            )
            return RetiredClaims((step,), status)
    return RetiredClaims((), status)
