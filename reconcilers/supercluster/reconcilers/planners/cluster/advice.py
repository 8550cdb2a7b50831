"""Warnings about a Cluster's spec, and fields that can't take effect at present."""

from __future__ import annotations

from supercluster.api import Cluster
from supercluster.api.conditions import ConditionType, Reason
from supercluster.reconcilers.planners.cluster.volumes import Volumes
from supercluster.reconcilers.planners.status import Conditions, put_findings


def even_replicas(count: int) -> tuple[Reason, str]:
    """What an even `count` of brokers or of copies is worth."""
    tolerated = (count - 1) // 2
    failures = "1 failure" if tolerated == 1 else f"{tolerated or 'no'} failures"
    told = (
        f"spec.replicas is {count}, which tolerates {failures}, just as {count - 1} would; "
        f"use {count - 1} or {count + 1}"
    )
    return Reason.EVEN_REPLICAS, told


def advise(desired: Cluster, refused: str, volumes: Volumes, conditions: Conditions) -> None:
    """`refused`: why fewer brokers can't be had."""
    spec = desired.spec
    warnings = []
    if spec.replicas % 2 == 0:
        warnings.append(even_replicas(spec.replicas))
    if spec.storage.type == "EmptyDir":
        told = (
            "spec.storage.type is EmptyDir: a broker's data is lost with its pod, and all data when a majority of "
            "pods is; it can't be changed later, so create Clusters with PersistentVolumeClaim for what must last"
        )
        warnings.append((Reason.VOLATILE_STORAGE, told))
    put_findings(conditions, ConditionType.WARNING, [*warnings, *volumes.warnings])
    deferred = [(Reason.SCALE_DOWN_REFUSED, refused)] if refused else []
    put_findings(conditions, ConditionType.DEFERRED, [*deferred, *volumes.deferred])
