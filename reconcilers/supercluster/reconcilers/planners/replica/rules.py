"""The rule that applies to a stream's replicas: its own, then that of the ReplicaPolicy with the highest
weight, then the SuperCluster's (MR-1).

The stream's own `spec.minReplicas` concerns the number alone; the policy still determines how lost replicas
are replaced. A minimum is never above the stream's own count: no automatic step exceeds the configured
number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from supercluster.api import ReplicaPolicy, Stream, SuperCluster
from supercluster.api.replica_policy import RepairRules


@dataclass(frozen=True, slots=True)
class Rule:
    """What counts for one stream."""

    minimum: int
    rules: RepairRules
    decided_by: str
    """Whose word the minimum is."""
    reason: str
    policy: str = ""
    """The ReplicaPolicy whose rules count; empty: the SuperCluster's."""


def selects(policy: ReplicaPolicy, stream_name: str, labels: Mapping[str, str] | None) -> bool:
    """Is the policy for this stream? `labels` is None for one that no resource declares: only a pattern can mean it."""
    selector = policy.spec.selector
    if selector.name_pattern is not None and not fnmatchcase(stream_name, selector.name_pattern):
        return False
    if selector.match_labels:
        return labels is not None and selector.match_labels.items() <= labels.items()
    return selector.name_pattern is not None


def in_order(policies: Iterable[ReplicaPolicy]) -> list[ReplicaPolicy]:
    """The one that counts first: by weight, then by age."""
    there = (policy for policy in policies if policy.metadata.deletion_timestamp is None)
    return sorted(there, key=lambda policy: (-policy.spec.weight, policy.metadata.age_key))


def policy_for(
    policies: Sequence[ReplicaPolicy], stream_name: str, labels: Mapping[str, str] | None
) -> tuple[ReplicaPolicy | None, str]:
    """The policy that counts, and what is to be said of the others that select the stream."""
    found = [policy for policy in in_order(policies) if selects(policy, stream_name, labels)]
    if not found:
        return None, ""
    first, rest = found[0], found[1:]
    equal = sorted(policy.metadata.name for policy in rest if policy.spec.weight == first.spec.weight)
    lighter = sorted(policy.metadata.name for policy in rest if policy.spec.weight != first.spec.weight)
    said = []
    if equal:
        said.append(f"it is older than {', '.join(equal)} of the same weight {first.spec.weight}")
    if lighter:
        said.append(f"its weight {first.spec.weight} is above that of {', '.join(lighter)}")
    return first, "; ".join(said)


def rule_for(
    stream: Stream | None,
    stream_name: str,
    replicas: int,
    policies: Sequence[ReplicaPolicy],
    super_cluster: SuperCluster,
) -> Rule | None:
    """What counts for a stream; None for one that neither a resource nor a policy is about: the operator leaves it alone."""
    labels = stream.metadata.labels if stream is not None else None
    policy, why = policy_for(policies, stream_name, labels)
    if stream is None and policy is None:
        return None
    rules: RepairRules = policy.spec if policy is not None else super_cluster.spec.repair
    name = policy.metadata.name if policy is not None else ""
    own = stream.spec.min_replicas if stream is not None else None
    if own is not None:
        reason = f"spec.minReplicas of the Stream is {own}" + (
            f", which comes before ReplicaPolicy {name}" if name else ""
        )
        return Rule(min(own, replicas), rules, "Stream", reason, name)
    silent = (
        f"spec.minReplicas of ReplicaPolicy {name} is unset"
        if name
        else "no ReplicaPolicy selects the stream"
    )
    found = least_of(policy, super_cluster)
    if found is None:
        whose = f"ReplicaPolicy {name}" if name else f"SuperCluster {super_cluster.metadata.name}"
        least, told = replicas, f"{silent}, so the minimum is the stream's count, {replicas}"
    else:
        least, whose = found
        told = (
            f"spec.minReplicas of {whose} is {least}"
            if policy is not None and policy.spec.min_replicas is not None
            else f"{silent}, and spec.repair.minReplicas of {whose} is {least}"
        )
    if least > replicas:
        told += f", and the stream's count is {replicas}: nothing automatic goes past it"
    return Rule(min(least, replicas), rules, whose, f"{told}; {why}" if why else told, name)


def least_of(policy: ReplicaPolicy | None, super_cluster: SuperCluster | None) -> tuple[int, str] | None:
    """A minimum that is not the stream's own, and whose it is; None: nobody set one."""
    if policy is not None and policy.spec.min_replicas is not None:
        return policy.spec.min_replicas, f"ReplicaPolicy {policy.metadata.name}"
    if super_cluster is not None and super_cluster.spec.repair.min_replicas is not None:
        return super_cluster.spec.repair.min_replicas, f"SuperCluster {super_cluster.metadata.name}"
    return None
