"""The reconciler's record of the kind ReplicaPolicy."""

from __future__ import annotations

from supercluster.api import Cluster, ReplicaPolicy, SuperCluster, crd
from supercluster.reconcilers.kinds.reconciler import Reconciler
from supercluster.reconcilers.observe.look import look_at_replica_policy
from supercluster.reconcilers.planners.replica.policy import plan_replica_policy

REPLICA_POLICY = Reconciler(
    kind=crd.REPLICA_POLICY,
    observe=look_at_replica_policy,
    plan=lambda context, desired, seen, now: plan_replica_policy(desired, seen, context.strategies, now),
    reads=frozenset({SuperCluster, Cluster, ReplicaPolicy}),
)
