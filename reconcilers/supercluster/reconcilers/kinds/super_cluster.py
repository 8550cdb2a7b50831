"""The reconciler's record of the kind SuperCluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from supercluster.api import Cluster, Migration, ReplicaPolicy, Stream, StreamMove, User, crd
from supercluster.api.conditions import Reason
from supercluster.api.recovery import BEGIN_MAP_ANEW, FORCE_RECOVER_META
from supercluster.api.super_cluster import EXCHANGE_AUTHORITY
from supercluster.api.user import ROTATE_CREDENTIALS
from supercluster.reconcilers.execute.logins import LOGIN_STEPS
from supercluster.reconcilers.execute.super_cluster import SUPER_CLUSTER_STEPS
from supercluster.reconcilers.execute.tls_stages import TLS_STEPS
from supercluster.reconcilers.execute.users import USERS_STEPS
from supercluster.reconcilers.kinds.reconciler import Reconciler
from supercluster.reconcilers.observe.look import look_at_super_cluster
from supercluster.reconcilers.planners.status_changes import StatusFields
from supercluster.reconcilers.planners.super_cluster.super_cluster import plan_super_cluster
from supercluster.reconcilers.ports import Key, mapping


def _grants(body: Mapping[str, Any]) -> frozenset[tuple[Key, Any]]:
    """StreamMoves that have a place in its budget, with the ticket that it was given to. Thousands of Streams need not look at
    themselves because a move of one has begun."""
    namespace = str(mapping(body.get("metadata")).get("namespace", ""))
    places = map(mapping, mapping(body.get("status")).get("moves") or ())
    return frozenset(
        (Key("StreamMove", namespace, str(each.get("name", ""))), each.get("ticket")) for each in places
    )


def _matters(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[Any, ...]:
    annotations = mapping(metadata.get("annotations"))
    return (
        *(
            annotations.get(name)
            for name in (FORCE_RECOVER_META, BEGIN_MAP_ANEW, EXCHANGE_AUTHORITY, ROTATE_CREDENTIALS)
        ),
        status.get("founder"),
        json.dumps([status.get("migration"), status.get("tls")], sort_keys=True),
        # Clusters and Streams repeat it, also where the SuperCluster was not ready before for another reason.
        any(
            mapping(each).get("reason") == Reason.MAP_WITHOUT_MAJORITY
            for each in status.get("conditions") or ()
        ),
    )


SUPER_CLUSTER = Reconciler(
    kind=crd.SUPER_CLUSTER,
    observe=look_at_super_cluster,
    plan=lambda context, desired, seen, now: plan_super_cluster(desired, seen, now, context.strategies),
    status=StatusFields(
        figures={"accounts": frozenset({"streams", "storageBytes", "memoryBytes"})},
        words={"otherMoves": None},
    ),
    steps={**SUPER_CLUSTER_STEPS, **USERS_STEPS, **LOGIN_STEPS, **TLS_STEPS},
    reads=frozenset({Cluster, Migration, Stream, StreamMove, ReplicaPolicy, User}),
    grants=_grants,
    matters=_matters,
)
