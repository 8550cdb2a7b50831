"""All kinds that the operator serves. A new kind has its record here, its definition in `api/crd.py`, and a planner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supercluster.reconcilers.kinds.cluster import CLUSTER
from supercluster.reconcilers.kinds.migration import MIGRATION
from supercluster.reconcilers.kinds.reconciler import Reconciler
from supercluster.reconcilers.kinds.replica_policy import REPLICA_POLICY
from supercluster.reconcilers.kinds.stream import STREAM
from supercluster.reconcilers.kinds.stream_move import STREAM_MOVE
from supercluster.reconcilers.kinds.stream_pipeline import STREAM_PIPELINE
from supercluster.reconcilers.kinds.super_cluster import SUPER_CLUSTER
from supercluster.reconcilers.kinds.user import USER

Reconcilers = Mapping[str, Reconciler[Any, Any]]
"""By kind."""

RECONCILERS: Reconcilers = {
    each.kind.name: each
    for each in (
        SUPER_CLUSTER,
        CLUSTER,
        STREAM,
        STREAM_MOVE,
        REPLICA_POLICY,
        STREAM_PIPELINE,
        MIGRATION,
        USER,
    )
}
