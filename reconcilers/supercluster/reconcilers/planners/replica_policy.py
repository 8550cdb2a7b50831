"""Plans for a ReplicaPolicy: it has a status only. What it asks for is carried out by its SuperCluster's repairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from supercluster.api import ReplicaPolicy, ReplicaPolicyStatus, Stream, StreamMove, SuperCluster
from supercluster.api.conditions import ConditionType, Reason
from supercluster.api.replica_policy import NAMED_MAX
from supercluster.reconcilers.planners.move_views import is_ended, is_repair
from supercluster.reconcilers.planners.plan import Plan
from supercluster.reconcilers.planners.replica_rules import policy_for, selects
from supercluster.reconcilers.planners.status import Conditions, put_findings, status_patch
from supercluster.reconcilers.planners.strategies import Strategy


@dataclass(frozen=True, slots=True)
class PolicyObserved:
    """What one look at Kubernetes shows of a policy."""

    super_cluster: SuperCluster | None = None
    policies: tuple[ReplicaPolicy, ...] = ()
    """Of the super-cluster, this one too."""
    streams: tuple[Stream, ...] = ()
    moves: tuple[StreamMove, ...] = ()


def plan_replica_policy(
    desired: ReplicaPolicy, observed: PolicyObserved, strategies: Mapping[str, Strategy], now: datetime
) -> Plan:
    if desired.metadata.deletion_timestamp is not None:
        return Plan()
    conditions = Conditions(desired.status.conditions, desired.metadata.generation, now)
    selected = [each for each in observed.streams if selects(desired, each.stream_name, each.metadata.labels)]
    in_force = [each for each in selected if _is_in_force(desired, observed, each)]
    rivals = sorted(
        other.metadata.name
        for other in observed.policies
        if other.metadata.uid != desired.metadata.uid
        and other.spec.weight == desired.spec.weight
        and any(selects(other, each.stream_name, each.metadata.labels) for each in selected)
    )
    below = [each for each in in_force if _is_below(each)]
    names = {each.metadata.name for each in in_force}
    repairing = sum(
        is_repair(move) and move.spec.stream_ref in names and not is_ended(move) for move in observed.moves
    )
    _describe(desired, observed, strategies, conditions, rivals, below)
    status = ReplicaPolicyStatus(
        observed_generation=desired.metadata.generation,
        selected=len(selected),
        in_force=len(in_force),
        below_minimum=len(below),
        repairing=repairing,
        conflicts=tuple(rivals[:NAMED_MAX]),
        conditions=conditions.result(),
    )
    return Plan((), status_patch(desired.status.to_object(), status.to_object()), conditions.notes())


def _is_in_force(desired: ReplicaPolicy, observed: PolicyObserved, stream: Stream) -> bool:
    first, _ = policy_for(observed.policies, stream.stream_name, stream.metadata.labels)
    return first is not None and first.metadata.uid == desired.metadata.uid


def _is_below(stream: Stream) -> bool:
    told = stream.status.replication
    return told is not None and told.usable < told.minimum


def _describe(
    desired: ReplicaPolicy,
    observed: PolicyObserved,
    strategies: Mapping[str, Strategy],
    conditions: Conditions,
    rivals: list[str],
    below: list[Stream],
) -> None:
    spec = desired.spec
    if observed.super_cluster is None:
        message = (
            f"spec.superCluster is {spec.super_cluster}, and there is no such SuperCluster in namespace "
            f"{desired.metadata.namespace}; create it, or make the policy anew with the right name"
        )
        conditions.put(ConditionType.ACCEPTED, False, Reason.SUPER_CLUSTER_NOT_FOUND, message)
    elif spec.placement_strategy not in strategies:
        known = ", ".join(sorted(strategies))
        message = f"spec.placementStrategy is {spec.placement_strategy}, and there is no such one; known are {known}"
        conditions.put(ConditionType.ACCEPTED, False, Reason.UNKNOWN_STRATEGY, message)
    else:
        conditions.put(ConditionType.ACCEPTED, True, Reason.AS_DECLARED)
    found = []
    if rivals:
        message = (
            f"spec.weight is {spec.weight}, as that of ReplicaPolicy {', '.join(rivals)}, and both select the same streams: "
            "the oldest counts; give them different weights"
        )
        found.append((Reason.POLICY_CONFLICT, message))
    put_findings(conditions, ConditionType.UNWISE, found)
    if below:
        names = ", ".join(sorted(each.metadata.name for each in below)[:NAMED_MAX])
        message = f"{len(below)} streams have fewer usable replicas than they must have: {names}"
        conditions.put(ConditionType.READY, False, Reason.LOST_REPLICAS, message)
    else:
        conditions.put(ConditionType.READY, True, Reason.ALL_CURRENT, "every stream has its minimum")
