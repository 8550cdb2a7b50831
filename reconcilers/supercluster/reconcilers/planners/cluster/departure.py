"""Brokers of a Cluster that is being deleted announce their departure to the others, and hand their votes
over.

If two clusters have three votes each in the map of streams, the one that stays is no majority of six. So the
departure has to be recorded while the brokers still run: afterwards it could not be. The wait has a bound,
because deletion must come to an end.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from supercluster.api import Cluster, SuperCluster
from supercluster.reconcilers.planners.plan import LeaveBrokers
from supercluster.reconcilers.planners.status import parse_timestamp

# Votes change a few seconds after it was said; a map without a majority never takes it.
PATIENCE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class PartingBroker:
    """A broker of the cluster, as the map of streams has it."""

    name: str
    leaves: bool = False
    votes: bool = False
    copies: int = 0
    """Of streams, that it holds or is to hold."""


@dataclass(frozen=True, slots=True)
class Departure:
    """What comes before the brokers go."""

    step: LeaveBrokers | None
    message: str


def others_stay(desired: Cluster, super_cluster: SuperCluster | None, siblings: tuple[Cluster, ...]) -> bool:
    """Is there anybody to part from?"""
    if super_cluster is None or super_cluster.metadata.deletion_timestamp is not None:
        return False
    return any(
        sibling.metadata.name != desired.metadata.name and sibling.metadata.deletion_timestamp is None
        for sibling in siblings
    )


def consider(brokers: tuple[PartingBroker, ...], since: str | None, now: datetime) -> Departure | None:
    """None: the brokers may go. `since`: when the parting began."""
    began = parse_timestamp(since) if since else now
    if began is None or now - began >= PATIENCE:
        return None
    staying = tuple(broker.name for broker in brokers if not broker.leaves)
    if staying:
        return Departure(
            LeaveBrokers(staying), f"next: tell the other brokers that {', '.join(staying)} leave"
        )
    voting = [broker.name for broker in brokers if broker.votes]
    if voting:
        return Departure(None, f"deletion waits until others vote in place of {', '.join(voting)}")
    return None
