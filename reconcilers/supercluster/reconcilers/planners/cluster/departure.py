"""Brokers of a Cluster that is being deleted announce their departure to the others, and hand their votes
over.

If two clusters have three votes each in the map of streams, the one that stays is no majority of six. So the
departure has to be recorded while the brokers still run: afterwards it could not be. The brokers stay until the
map says that they are no voters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from supercluster.api import Cluster, Stream
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.plan import LeaveBrokers


@dataclass(frozen=True, slots=True)
class PartingBroker:
    """A broker of the cluster, as the map of streams has it."""

    name: str
    leaves: bool = False
    leaves_for: str = ""
    """The mark of the resource that says so; empty: a person does, or an operator of before."""
    votes: bool = False
    copies: int = 0
    """Of streams, that it holds or is to hold."""


@dataclass(frozen=True, slots=True)
class Departure:
    """What comes before the brokers go."""

    step: LeaveBrokers | None
    message: str


def retained_streams(desired: Cluster, streams: Iterable[Stream]) -> list[str]:
    """Streams that keep a Cluster from being deleted with its data."""
    if desired.spec.deletion_policy == "Retain":
        return []
    return sorted(
        stream.metadata.name
        for stream in streams
        if stream.status.cluster == desired.metadata.name
        and stream.metadata.deletion_timestamp is None
        and stream.spec.deletion_policy == "Retain"
    )


def others_stay(desired: Cluster, siblings: tuple[Cluster, ...]) -> bool:
    """Does a Cluster stay that is not being deleted? Those of a SuperCluster that is being deleted go on until each Cluster is
    deleted."""
    return any(
        sibling.metadata.name != desired.metadata.name and sibling.metadata.deletion_timestamp is None
        for sibling in siblings
    )


def needs_parting(desired: Cluster, siblings: tuple[Cluster, ...], streams: tuple[Stream, ...]) -> bool:
    """Is there anybody to part from? A Cluster that is being deleted and held by Streams stays too. Where all of them are, nobody
    parts and nobody goes."""
    if others_stay(desired, siblings):
        return True
    return not retained_streams(desired, streams) and any(
        retained_streams(sibling, streams)
        for sibling in siblings
        if sibling.metadata.name != desired.metadata.name
    )


def consider(desired: Cluster, brokers: tuple[PartingBroker, ...] | None) -> Departure | None:
    """None: the brokers may go. `brokers` is None while nobody can say."""
    if brokers is None:
        name = desired.metadata.name
        told = (
            f"deletion waits until the brokers of Cluster {name} have left the map of streams, and no broker is in contact with the "
            "map's leader. If the map has lost its majority for good, run `supercluster recover meta`; delete StatefulSet "
            f"{naming.stateful_set(name)} yourself to give up what its brokers hold of the map"
        )
        return Departure(None, told)
    staying = tuple(broker.name for broker in brokers if not broker.leaves)
    if staying:
        return Departure(
            LeaveBrokers(staying), f"next: tell the other brokers that {', '.join(staying)} leave"
        )
    voting = [broker.name for broker in brokers if broker.votes]
    if voting:
        return Departure(None, f"deletion waits until others vote in place of {', '.join(voting)}")
    return None
