"""The reconciler's record of the kind Cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supercluster.api import Cluster, Stream, SuperCluster, crd
from supercluster.api.cluster import APPROVE_RESTART, RELEASE_RESTART
from supercluster.reconcilers.execute.cluster import CLUSTER_STEPS
from supercluster.reconcilers.kinds.reconciler import Reconciler
from supercluster.reconcilers.observe.look import look_at_cluster
from supercluster.reconcilers.planners.cluster.cluster import plan_cluster
from supercluster.reconcilers.ports import mapping


def _matters(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[Any, ...]:
    annotations = mapping(metadata.get("annotations"))
    return (
        annotations.get(APPROVE_RESTART),
        annotations.get(RELEASE_RESTART),
        status.get("replicas"),
        status.get("readyReplicas"),
        bool(status.get("metaVoters")),
    )


CLUSTER = Reconciler(
    kind=crd.CLUSTER,
    observe=look_at_cluster,
    plan=lambda context, desired, seen, now: plan_cluster(desired, seen, context.defaults, now),
    steps=CLUSTER_STEPS,
    reads=frozenset({SuperCluster, Cluster, Stream}),
    matters=_matters,
)
