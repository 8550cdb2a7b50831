"""The reconciler's record of the kind Migration."""

from __future__ import annotations

from supercluster.api import Cluster, Migration, SuperCluster, crd
from supercluster.reconcilers.execute.migration import MIGRATION_STEPS
from supercluster.reconcilers.kinds.reconciler import Reconciler
from supercluster.reconcilers.observe.migrations import look_at_migration
from supercluster.reconcilers.planners.migration.migration import plan_migration
from supercluster.reconcilers.planners.status_changes import StatusFields

MIGRATION = Reconciler(
    kind=crd.MIGRATION,
    observe=look_at_migration,
    plan=lambda _, desired, seen, now: plan_migration(desired, seen, now),
    status=StatusFields(
        figures={
            "preflight": frozenset({"checkedAt", "bytes", "clientsMay"}),
            "proof": frozenset({"comparedAt"}),
        },
        words={
            "message": None,
            "worstLag": None,
            "stages": None,
            "onGreen": None,
            "clients": None,
            "stalled": None,
            "stalledTotal": None,
        },
        waiting=frozenset({"AwaitingApproval", "AwaitingFinalize", "Refused"}),
    ),
    steps=MIGRATION_STEPS,
    reads=frozenset({SuperCluster, Cluster, Migration}),
    matters=lambda _, status: (status.get("phase"), status.get("startedAt")),
)
