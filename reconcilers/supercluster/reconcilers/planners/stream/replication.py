"""The replica status of a Stream: the number kept up and the rule behind it, the lost ones, and their repair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from supercluster.api import ReplicaPolicy, Stream, StreamMove, SuperCluster
from supercluster.api.conditions import Reason
from supercluster.api.stream import MoveReference, ReplicaStatus, ReplicationStatus
from supercluster.reconcilers.planners.move.views import is_ended, is_repair
from supercluster.reconcilers.planners.replica.rules import least_of, policy_for, rule_for
from supercluster.reconcilers.planners.status import status_patch, timestamp


def replication_status(
    stream: Stream,
    replicas: Sequence[ReplicaStatus],
    configured: int,
    policies: Sequence[ReplicaPolicy],
    super_cluster: SuperCluster,
    moves: Sequence[StreamMove],
    now: datetime,
    *,
    is_moving: bool = False,
) -> ReplicationStatus | None:
    rule = rule_for(stream, stream.stream_name, configured, policies, super_cluster)
    if rule is None:
        return None
    lost = tuple(sorted(replica.name for replica in replicas if replica.offline or replica.unusable))
    usable = len(replicas) - len(lost)
    before = stream.status.replication
    since = None
    if usable < rule.minimum:
        since = before.since if before is not None and before.since is not None else timestamp(now)
    repair = max(
        (move for move in moves if is_repair(move) and not is_ended(move)),
        key=lambda move: move.metadata.age_key,
        default=None,
    )
    return ReplicationStatus(
        desired=configured,
        minimum=rule.minimum,
        usable=usable,
        decided_by=rule.decided_by,
        reason=rule.reason,
        lost=lost,
        extra=0 if is_moving else max(0, len(replicas) - configured),
        since=since,
        repair=MoveReference(name=repair.metadata.name, phase=repair.status.phase or "Pending")
        if repair is not None
        else None,
    )


def with_replication(
    stream: Stream, told: ReplicationStatus | None, patch: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """A patch of the Stream's status with what changed of its replication besides."""
    before = stream.status.replication
    changed = status_patch(
        {"replication": before.to_object()} if before is not None else {},
        {"replication": told.to_object()} if told is not None else {},
    )
    return {**(patch or {}), **changed} if changed else patch


def blocked(
    stream: Stream,
    configured: int | None,
    policies: Sequence[ReplicaPolicy],
    super_cluster: SuperCluster | None = None,
) -> tuple[Reason, str] | None:
    """A person's removal that would go below the minimum is refused (MR-3); a stream that is made with fewer is their
    choice."""
    wanted = stream.spec.replicas
    if configured is None or wanted >= configured or stream.spec.min_replicas is not None:
        return None
    policy, _ = policy_for(policies, stream.stream_name, stream.metadata.labels)
    found = least_of(policy, super_cluster)
    if found is None or wanted >= min(found[0], configured):
        return None
    least, whose = found
    told = (
        f"spec.replicas is {wanted}, and {whose} keeps at least {least}: the stream stays at "
        f"{configured}; set spec.replicas to {min(least, configured)} or more, or spec.minReplicas to {wanted} or less"
    )
    return Reason.BELOW_MINIMUM, told


def repair_text(stream: Stream, super_cluster: SuperCluster | None) -> str:
    """What the SuperCluster says of a stream whose lost replicas are not being replaced just now; empty: nothing."""
    told = super_cluster.status.repair if super_cluster is not None else None
    if told is None:
        return ""
    return next((entry.reason for entry in told.waiting if entry.stream == stream.stream_name), "")
