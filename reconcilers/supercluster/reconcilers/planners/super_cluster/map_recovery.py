"""The annotation supercluster.dev/force-recover-meta of a SuperCluster: each value of it is one operation
(RP-8, SF-9).

As with a Stream's (`planners/stream/recovery.py`), the identity of the operation on the brokers derives from
the resource and the value, and the status records the outcome: a recorded value is not acted upon again. The
difference is the broker to ask. The map has no leader, so the operator asks the broker whose copy was chosen,
ready or not. If that one does not answer, any broker that knows of the operation may report it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from supercluster.api import SuperCluster
from supercluster.api.conditions import ConditionType, EventReason, Reason
from supercluster.api.recovery import ACCEPT_DOUBTFUL, FORCE_RECOVER_META, RecoveryStatus
from supercluster.reconcilers.planners.plan import ForceMapRecovery, Note
from supercluster.reconcilers.planners.status import Conditions
from supercluster.reconcilers.planners.stream.recovery import (
    INHERITED,
    MESSAGE_CHARS_MAX,
    is_inherited,
    read,
    recovered,
    refused,
)


@dataclass(frozen=True, slots=True)
class MapRecoveryView:
    """What there is of brokers, and what one says of the last recovery of the map."""

    brokers: tuple[str, ...] = ()
    """All that the super-cluster's Clusters have or had pods of, with an address or not."""
    error: str = ""
    """Why nobody says anything now; empty when somebody does."""
    done: Mapping[str, Any] = field(default_factory=dict)
    """The recovery that the map's present lineage began with; empty when there was none."""


@dataclass(frozen=True, slots=True)
class MapRecovery:
    """What the annotation comes to in this round."""

    steps: tuple[ForceMapRecovery, ...] = ()
    status: RecoveryStatus | None = None
    """What is to stand in the status: of the last value that was dealt with."""
    is_waiting: bool = False
    """Somebody asks, and nothing came of it so far."""


def request_of(desired: SuperCluster) -> str:
    """The annotation's value that nobody has dealt with so far; empty when there is none."""
    value = desired.metadata.annotations.get(FORCE_RECOVER_META, "")
    dealt_with = desired.status.map_recovery.request if desired.status.map_recovery is not None else ""
    return value if value != dealt_with else ""


def node_of(desired: SuperCluster) -> str:
    """The broker that is to be asked; empty when nobody asks, or the value names none."""
    wanted = read(request_of(desired))
    return wanted[0] if wanted is not None else ""


def recovery_id(desired: SuperCluster, value: str) -> str:
    """The act's name on the brokers, the same for a resource that was restored from a backup."""
    metadata = desired.metadata
    return hashlib.sha256(f"{metadata.namespace}/{metadata.name} meta {value}".encode()).hexdigest()[:40]


def consider(
    desired: SuperCluster, view: MapRecoveryView, refusal: str | None, conditions: Conditions
) -> MapRecovery:
    """What is next for a request that nobody has dealt with. `refusal` is what the brokers said to this round's step of it."""
    value = request_of(desired)
    if not value:
        return MapRecovery(status=desired.status.map_recovery)
    wanted = read(value)
    if wanted is None:
        why = (
            f"annotation {FORCE_RECOVER_META} is {value[:100]!r}; it has to be <broker>:<last entry that its copy must have>, "
            "such as east-0:840"
        )
        return MapRecovery(status=refused(value, why, conditions))
    if is_inherited(desired.status.observed_generation):
        return MapRecovery(status=refused(value, INHERITED, conditions))
    node, accepted = wanted
    if node not in view.brokers:
        there = ", ".join(view.brokers) or "none"
        return MapRecovery(
            status=refused(value, f"there is no broker {node}; there are: {there}", conditions)
        )
    act = recovery_id(desired, value)
    done = recovered(value, act, view.done, conditions)
    if done is not None:
        return MapRecovery(status=done)
    before = desired.status.map_recovery
    if view.error:
        conditions.put(ConditionType.RECOVERED, None, Reason.RECOVERING, view.error[:MESSAGE_CHARS_MAX])
        return MapRecovery(status=before, is_waiting=True)
    if refusal is not None:
        return MapRecovery(status=refused(value, refusal, conditions))
    goes_on = f"the map of streams is to go on from the copy on {node}"
    conditions.put(ConditionType.RECOVERED, None, Reason.RECOVERING, goes_on)
    note = Note.done(
        EventReason.RECOVERY_STARTED,
        f"annotation {FORCE_RECOVER_META}: the map of streams goes on from the copy on {node}, which has entry {accepted} at least",
    )
    accepts_doubt = ACCEPT_DOUBTFUL in value.split(":")[2:]
    step = ForceMapRecovery(act, node, accepted, accepts_doubt, note=note)
    return MapRecovery((step,), before, is_waiting=True)
