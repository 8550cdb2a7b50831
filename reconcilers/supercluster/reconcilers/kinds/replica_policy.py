"""ReplicaPolicy."""

from __future__ import annotations

from datetime import datetime

from supercluster.api import Cluster, ReplicaPolicy, SuperCluster, crd
from supercluster.reconcilers.kinds.reconciler import Attempt, Context, Reconciler
from supercluster.reconcilers.observe.look import look_at_replica_policy
from supercluster.reconcilers.planners.replica.policy import PolicyObserved, plan_replica_policy


async def _observe(context: Context, desired: ReplicaPolicy, _: Attempt, __: datetime) -> PolicyObserved:
    return look_at_replica_policy(context.cache, desired)


REPLICA_POLICY = Reconciler(
    kind=crd.REPLICA_POLICY,
    observe=_observe,
    plan=lambda context, desired, seen, now: plan_replica_policy(desired, seen, context.strategies, now),
    reads=frozenset({SuperCluster, Cluster, ReplicaPolicy}),
)
