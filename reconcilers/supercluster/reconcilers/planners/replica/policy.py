"""Plans for a ReplicaPolicy: it has a status only. The repairs of its SuperCluster carry it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from supercluster.api import ReplicaPolicy, ReplicaPolicyStatus, Stream, StreamMove, SuperCluster
from supercluster.api.conditions import ConditionType, Reason
from supercluster.api.replica_policy import NAMED_MAX
from supercluster.api.super_cluster import UndeclaredStreams
from supercluster.reconcilers.planners.move.views import is_ended, is_repair
from supercluster.reconcilers.planners.plan import Plan
from supercluster.reconcilers.planners.replica.rules import policy_for, selects
from supercluster.reconcilers.planners.replica.undeclared import told_of, undeclared_in_common
from supercluster.reconcilers.planners.status import Conditions, put_findings, status_patch
from supercluster.reconcilers.planners.strategies import Strategy, StrategyError, strategy_of

# Each with what both select, in a condition's 4,096 characters.
RIVALS_TOLD_MAX = 8


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
    shared = {
        other.metadata.name: common
        for other in observed.policies
        if other.metadata.uid != desired.metadata.uid
        and other.metadata.deletion_timestamp is None
        and other.spec.weight == desired.spec.weight
        and (common := _in_common(desired, other, selected))
    }
    rivals = sorted(shared)
    undeclared = told_of(observed.super_cluster, desired.metadata.name)
    below = [each for each in in_force if _is_below(each)]
    names = {each.metadata.name for each in in_force}
    repairing = sum(
        is_repair(move)
        and not is_ended(move)
        and (move.spec.stream_ref in names or _means_undeclared(desired, observed, move.spec.stream))
        for move in observed.moves
    )
    _describe(desired, observed, strategies, conditions, shared, below, undeclared)
    status = ReplicaPolicyStatus(
        observed_generation=desired.metadata.generation,
        selected=len(selected),
        in_force=len(in_force),
        below_minimum=len(below) + (undeclared.below_minimum if undeclared is not None else 0),
        repairing=repairing,
        conflicts=tuple(rivals[:NAMED_MAX]),
        conditions=conditions.result(),
    )
    return Plan((), status_patch(desired.status.to_object(), status.to_object()), conditions.notes())


def _is_in_force(desired: ReplicaPolicy, observed: PolicyObserved, stream: Stream) -> bool:
    first, _ = policy_for(observed.policies, stream.stream_name, stream.metadata.labels)
    return first is not None and first.metadata.uid == desired.metadata.uid


def _in_common(desired: ReplicaPolicy, other: ReplicaPolicy, selected: list[Stream]) -> str:
    """What both policies are for, in words; empty: nothing."""
    for each in selected:
        if selects(other, each.stream_name, each.metadata.labels):
            return f"Stream {each.metadata.name}"
    name = undeclared_in_common((desired, other))
    pattern = other.spec.selector.name_pattern
    return f"by its namePattern {pattern} streams with names such as {name}" if name else ""


def _means_undeclared(desired: ReplicaPolicy, observed: PolicyObserved, stream: str | None) -> bool:
    if stream is None:
        return False
    first, _ = policy_for(observed.policies, stream, None)
    return first is not None and first.metadata.uid == desired.metadata.uid


def _is_below(stream: Stream) -> bool:
    told = stream.status.replication
    return told is not None and told.usable < told.minimum


def _describe(
    desired: ReplicaPolicy,
    observed: PolicyObserved,
    strategies: Mapping[str, Strategy],
    conditions: Conditions,
    shared: Mapping[str, str],
    below: list[Stream],
    undeclared: UndeclaredStreams | None,
) -> None:
    spec, refusal = desired.spec, None
    if observed.super_cluster is None:
        message = (
            f"spec.superCluster is {spec.super_cluster}, and there is no such SuperCluster in namespace "
            f"{desired.metadata.namespace}; create it, or make the policy anew with the right name"
        )
        conditions.put(ConditionType.ACCEPTED, False, Reason.SUPER_CLUSTER_NOT_FOUND, message)
        refusal = message
    else:
        try:
            strategy_of(strategies, spec.placement_strategy)
        except StrategyError as error:
            refusal = f"spec.{error}"
            conditions.put(ConditionType.ACCEPTED, False, Reason.UNKNOWN_STRATEGY, refusal)
        else:
            conditions.put(ConditionType.ACCEPTED, True, Reason.AS_DECLARED)
    found = []
    if shared:
        told = "; ".join(
            f"ReplicaPolicy {name}, {what}" for name, what in sorted(shared.items())[:RIVALS_TOLD_MAX]
        )
        more = f"; and of {len(shared) - RIVALS_TOLD_MAX} more" if len(shared) > RIVALS_TOLD_MAX else ""
        message = (
            f"spec.weight is {spec.weight}, as that of others that select the same: {told}{more}: the oldest counts; give them "
            "different weights (declared streams were compared one by one, others by the patterns alone)"
        )
        found.append((Reason.POLICY_CONFLICT, message))
    put_findings(conditions, ConditionType.WARNING, found)
    if refusal is not None:
        conditions.put(ConditionType.READY, False, Reason.NOT_ACCEPTED, refusal)
        return
    conditions.put(ConditionType.READY, True, Reason.SERVING, "its rules are in force for what it selects")
    means_others = spec.selector.name_pattern is not None and not spec.selector.match_labels
    count = len(below) + (undeclared.below_minimum if undeclared is not None else 0)
    if count:
        names = sorted(each.metadata.name for each in below)
        names += undeclared.names if undeclared is not None else ()
        message = (
            f"{count} streams have fewer usable replicas than they must have: {', '.join(names[:NAMED_MAX])}"
        )
        conditions.put(ConditionType.WHOLE, False, Reason.LOST_REPLICAS, message)
    elif undeclared is None and means_others:
        message = (
            "every declared stream has its minimum; of those that no resource declares too many policies' streams lack some "
            "for all to be told of"
        )
        conditions.put(ConditionType.WHOLE, None, Reason.LOST_REPLICAS, message)
    else:
        others = ", and so has every other one that it means, by the SuperCluster's last look at the brokers"
        message = f"every declared stream has its minimum{others if means_others else ''}"
        conditions.put(ConditionType.WHOLE, True, Reason.ALL_CURRENT, message)
