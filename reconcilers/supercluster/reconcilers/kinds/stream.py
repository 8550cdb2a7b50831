"""The reconciler's record of the kind Stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from supercluster.api import Cluster, ReplicaPolicy, SuperCluster, crd
from supercluster.api.recovery import FORCE_RECOVER
from supercluster.reconcilers.execute.stream import STREAM_STEPS
from supercluster.reconcilers.kinds.reconciler import Reconciler
from supercluster.reconcilers.observe.cache import ObjectCache, key_of_resource
from supercluster.reconcilers.observe.look import look_at_stream
from supercluster.reconcilers.planners.status_changes import StatusFields
from supercluster.reconcilers.planners.stream.stream import plan_stream
from supercluster.reconcilers.ports import Key, mapping


def _wakes(cache: ObjectCache, key: Key, spec: Mapping[str, Any]) -> Iterator[Key]:
    """Streams of the same name, and its moves."""
    super_cluster, name = str(spec.get("superCluster", "")), str(spec.get("name") or key.name)
    yield from map(key_of_resource, cache.claimants(key.namespace, super_cluster, name))
    yield from map(key_of_resource, cache.moves_about(key.namespace, super_cluster, key.name))


def _matters(metadata: Mapping[str, Any], _: Mapping[str, Any]) -> tuple[Any, ...]:
    """A ReplicaPolicy selects Streams by their labels."""
    labels = json.dumps(metadata.get("labels"), sort_keys=True)
    return labels, mapping(metadata.get("annotations")).get(FORCE_RECOVER)


_FIGURES = ("messages", "bytes", "firstSequence", "lastSequence", "consumers", "figuresAt")

STREAM = Reconciler(
    kind=crd.STREAM,
    observe=look_at_stream,
    plan=lambda _, desired, seen, now: plan_stream(desired, seen, now),
    status=StatusFields(
        figures={
            **dict.fromkeys(_FIGURES),
            "replicas": frozenset({"lag"}),
        },
        words={
            "leader": None,
            "readyReplicas": None,
            "replicas": frozenset({"lag", "leader", "current", "offline"}),
        },
    ),
    steps=STREAM_STEPS,
    reads=frozenset({SuperCluster, Cluster, ReplicaPolicy}),
    wakes=_wakes,
    matters=_matters,
)
