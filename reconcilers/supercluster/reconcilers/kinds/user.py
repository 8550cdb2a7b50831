"""The reconciler's record of the kind User."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supercluster.api import Cluster, SuperCluster, crd
from supercluster.api.user import ROTATE
from supercluster.reconcilers.execute.users import USER_STEPS
from supercluster.reconcilers.kinds.reconciler import Reconciler
from supercluster.reconcilers.observe.users import look_at_user
from supercluster.reconcilers.planners.status_changes import StatusFields
from supercluster.reconcilers.planners.user.user import plan_user
from supercluster.reconcilers.ports import mapping


def _matters(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[Any, ...]:
    return (mapping(metadata.get("annotations")).get(ROTATE),)


USER = Reconciler(
    kind=crd.USER,
    observe=lambda context, desired, attempt, _: look_at_user(context, desired, attempt),
    plan=lambda _, desired, seen, now: plan_user(desired, seen, now),
    status=StatusFields(
        figures={"connections": None}, words={"rotation": frozenset({"clients", "connections"})}
    ),
    steps=USER_STEPS,
    reads=frozenset({SuperCluster, Cluster}),
    matters=_matters,
)
