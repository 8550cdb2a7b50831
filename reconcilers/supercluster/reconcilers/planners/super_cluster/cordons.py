"""Brokers that get no new copies: brings the cordons of Kubernetes and the specs into the brokers' map
(docs/adr/cordons.md). Pure.

A cordon that an administrator set on the brokers is left alone: only those with this SuperCluster's mark are
changed or removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from supercluster.api import Cluster, SuperCluster
from supercluster.api.conditions import EventReason
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.plan import CordonBroker, Note


@dataclass(frozen=True, slots=True)
class CordonTold:
    """A cordon as the brokers' map has it."""

    reason: str
    declared_by: str = ""


@dataclass(frozen=True, slots=True)
class CordonView:
    """What one look shows of cordons."""

    known: Mapping[str, CordonTold | None] = field(default_factory=dict)
    """Of every broker in the map."""
    hosts: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    """Broker → its Kubernetes node, and whether that is cordoned; those of which nobody can say are not in it."""


def plan_cordons(
    desired: SuperCluster, clusters: Sequence[Cluster], view: CordonView | None
) -> tuple[CordonBroker, ...]:
    """`view` is None while no broker says."""
    if view is None:
        return ()
    mark = naming.mark(desired)
    declared = {name: each.metadata.name for each in clusters for name in each.spec.cordoned}
    steps = []
    for name, told in sorted(view.known.items()):
        host, is_cordoned = view.hosts.get(name, ("", False))
        reason = f"spec.cordoned of Cluster {declared[name]}" if name in declared else ""
        if not reason and is_cordoned:
            reason = f"Kubernetes node {host} is cordoned"
        is_ours = told is not None and told.declared_by == mark
        if reason and (told is None or (is_ours and told.reason != reason)):
            note = Note.done(EventReason.BROKER_CORDONED, f"{name} gets no new copies: {reason}")
            steps.append(CordonBroker(name, reason, mark, note=note))
        elif not reason and is_ours and told is not None and (host or told.reason.startswith("spec.")):
            # Of a broker whose pod has no node nobody knows whether its node is still cordoned.
            note = Note.done(EventReason.BROKER_UNCORDONED, f"{name} gets copies again")
            steps.append(CordonBroker(name, "", mark, note=note))
    return tuple(steps)
