"""A lost majority of the map of streams, as a condition of the SuperCluster, its Clusters and its Streams.

The worker of the SuperCluster learns of the loss from the brokers. Clusters and Streams repeat its condition.
"""

from __future__ import annotations

from dataclasses import dataclass

from supercluster.api import Cluster, SuperCluster
from supercluster.api.common import Condition
from supercluster.api.conditions import ConditionType, Reason
from supercluster.reconcilers.planners.status import Conditions

# An election takes a second or two.
PATIENCE_MS = 3_000
# How often a SuperCluster is looked at: a loss is told within ten seconds, two of which its brokers need to notice it.
LOOK_MS = 2_500
# While nobody leads the map.
RECHECK_MS = 500
NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class MapView:
    """What a broker says of the map of streams."""

    unread_ms: int = 0
    """For how long no broker has been in contact with the map's leader; 0: one is, or nobody says."""
    away: tuple[str, ...] = ()
    """Voters that the broker which says so is out of contact with."""


def trouble(desired: SuperCluster, found: MapView) -> str:
    """Why nothing of the map can be changed; empty: it can, or it is too early to say. A map that was never confirmed has lost nothing."""
    founder = desired.status.founder
    if found.unread_ms < PATIENCE_MS or founder is None or not founder.begun:
        return ""
    more = f" and {len(found.away) - NAMED_MAX} more" if len(found.away) > NAMED_MAX else ""
    away = f" (out of contact: {', '.join(found.away[:NAMED_MAX])}{more})" if found.away else ""
    return (
        f"the map of streams has no majority{away}: no stream can be created, moved or deleted. Bring its brokers back; if they are lost "
        "for good, run `supercluster recover meta`"
    )


def describe(super_cluster: SuperCluster | None, conditions: Conditions) -> None:
    """Repeat what the SuperCluster's condition says. A resource that is not ready for another reason keeps its reason."""
    ready = _ready(super_cluster) if super_cluster is not None else None
    if ready is None or not is_cause(ready):
        return
    own = conditions.unready()
    reason, message = own if own is not None else (Reason.MAP_WITHOUT_MAJORITY, "")
    told = f"{message}; {ready.message}" if message else ready.message
    conditions.put(ConditionType.READY, False, reason, told)


def serves(cluster: Cluster, type_: ConditionType) -> bool:
    """Is it ready, or whole, but for the map of streams? A SuperCluster that went by what its Clusters repeat of it would never be
    ready again."""
    found = next((each for each in cluster.status.conditions if each.type == type_), None)
    return found is not None and (found.status == "True" or is_cause(found))


def is_cause(found: Condition) -> bool:
    return found.status == "False" and found.reason == Reason.MAP_WITHOUT_MAJORITY


def _ready(super_cluster: SuperCluster) -> Condition | None:
    return next((each for each in super_cluster.status.conditions if each.type == ConditionType.READY), None)
