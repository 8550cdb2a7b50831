"""Observes a requested forced recovery of the map of streams. It asks the chosen broker, and then a few
others, one by one.
"""

from __future__ import annotations

from supercluster.api import Cluster, SuperCluster
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.targets import each_broker, pods_of
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.super_cluster.map_recovery import (
    MapRecoveryView,
    node_of,
    recovery_id,
    request_of,
)
from supercluster.reconcilers.ports import Brokers, BrokersError, mapping

# Who tells of an act that the chosen broker does not tell of: more are not asked at one look, each takes seconds when it is gone.
OTHERS_ASKED_MAX = 3


async def look_at_map_recovery(
    cache: ObjectCache, brokers: Brokers, desired: SuperCluster
) -> MapRecoveryView:
    """Only while somebody asks for one: every broker looks at its copies for it."""
    node = node_of(desired)
    if not node:
        return MapRecoveryView()
    namespace, name = desired.metadata.namespace, desired.metadata.name
    names = _names(cache, namespace, name)
    targets = each_broker(cache, namespace, name)
    if isinstance(targets, str):
        return MapRecoveryView(names, error=targets)
    error = f"broker {node} has no pod with an address"
    if node in targets:
        try:
            answer = await brokers.map_recovery_state(targets[node])
            return MapRecoveryView(names, done=mapping(answer.get("recovery")))
        except BrokersError as failed:
            error = f"broker {node} does not say what copy it has: {failed}"
    act = recovery_id(desired, request_of(desired))
    for other in sorted(targets.keys() - {node})[:OTHERS_ASKED_MAX]:
        try:
            done = mapping((await brokers.map_recovery_state(targets[other])).get("recovery"))
        except BrokersError:
            continue
        if act in (done.get("known") or ()):
            return MapRecoveryView(names, done=done)
    return MapRecoveryView(names, error=error)


def _names(cache: ObjectCache, namespace: str, super_cluster: str) -> tuple[str, ...]:
    """Brokers that there are or should be: one whose pod is just being made anew counts."""
    found: set[str] = set()
    for cluster in cache.of_super_cluster(Cluster, namespace, super_cluster):
        found.update(naming.brokers(cluster.metadata.name, cluster.spec.replicas))
        found.update(pod.name for pod in pods_of(cache, namespace, cluster.metadata.name))
    return tuple(sorted(found))
