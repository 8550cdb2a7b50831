"""The founder of a super-cluster's map of streams, and the founding information for each cluster's brokers.

The map is one Raft group over all clusters, and it must be started exactly once: two starts give two maps
that claim the same streams. So one Cluster, the founder, is recorded in the SuperCluster's status before
anything is created. One worker writes the record, so two Clusters of the same second can't both become
founder. The names of the founder's first brokers never change afterwards: brokers of every other cluster get
those names and therefore join. The record is dropped only when no trace of the founder is left: the Cluster
and its volume claims are gone, and no other cluster has begun.

Once brokers report that they hold the map, every broker is configured to join only (SF-26): a founder whose
volume is lost while the others are out of contact would start a second map. Only the annotation
supercluster.dev/begin-map-anew reverts that, and only while no broker reports that it holds the map. The
ConfigMaps and the volume claims are further sources of this fact, as they are of the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from supercluster.api import Cluster, SuperCluster
from supercluster.api.cluster import BROKERS_MAX
from supercluster.api.recovery import BEGIN_MAP_ANEW
from supercluster.api.super_cluster import FounderStatus
from supercluster.reconcilers.planners import naming

VOTERS_MAX = 5
ANEW_CHARACTERS_MAX = 253


@dataclass(frozen=True, slots=True)
class Traces:
    """What is left in Kubernetes of clusters that began, besides their statuses."""

    told: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By Cluster: the voters that its ConfigMap was written with. The second source, should a status be lost."""
    claimed: frozenset[str] = frozenset()
    """Names of clusters, present or past, of which there are volume claims."""
    join_only: bool = False
    """A ConfigMap tells brokers to join only."""
    has_volumes: bool = False
    """There are volume claims of this very identity."""


@dataclass(frozen=True, slots=True)
class Missing:
    """The cluster can't be told anybody to join: the founder has gone and left its volumes."""

    founder: FounderStatus


def choose_meta_voters(cluster: str, replicas: int) -> tuple[str, ...]:
    """Brokers that start the meta group: an odd number, at most five."""
    count = min(replicas, VOTERS_MAX)
    return naming.brokers(cluster, count if count % 2 else count - 1)


def oldest(clusters: tuple[Cluster, ...]) -> Cluster | None:
    """The oldest Cluster that is not about to go; of those that are, if there is no other."""
    return min(
        clusters,
        key=lambda each: (each.metadata.deletion_timestamp is not None, each.metadata.age_key),
        default=None,
    )


def first_of(super_cluster: SuperCluster | None, clusters: tuple[Cluster, ...]) -> Cluster | None:
    """The cluster that is named first to applications and takes streams that ask for none: the founder while it is there."""
    record = super_cluster.status.founder if super_cluster is not None else None
    if record is not None:
        for each in clusters:
            if each.metadata.name == record.cluster and each.metadata.deletion_timestamp is None:
                return each
    return oldest(clusters)


def founder(
    recorded: FounderStatus | None, clusters: tuple[Cluster, ...], traces: Traces
) -> FounderStatus | None:
    """Who the founder is, by the record or, the first time, by what there is to see."""
    if recorded is not None and _holds(recorded, clusters, traces):
        return recorded
    begun = [
        (each, each.status.meta_voters or traces.told.get(each.metadata.name, ()))
        for each in sorted(clusters, key=lambda each: each.metadata.age_key)
    ]
    for each, voters in begun:
        if voters and set(voters) <= set(naming.brokers(each.metadata.name, BROKERS_MAX)):
            return FounderStatus(cluster=each.metadata.name, uid=each.metadata.uid, brokers=voters)
    for _, voters in begun:
        if voters:
            # The record was lost and the founder is gone: what those who joined it were told still names it.
            return FounderStatus(cluster=naming.cluster_of(voters[0]), brokers=voters)
    first = oldest(clusters)
    if first is None or first.metadata.deletion_timestamp is not None:
        return None
    name = first.metadata.name
    brokers = choose_meta_voters(name, first.spec.replicas)
    return FounderStatus(cluster=name, uid=first.metadata.uid, brokers=brokers)


def asks_anew(super_cluster: SuperCluster) -> bool:
    """Does a person permit another beginning, and has nobody made use of it? What came with the resource, as out of a backup,
    permits none: the first record says that it was dealt with."""
    value, record = _anew(super_cluster), super_cluster.status.founder
    return bool(value) and record is not None and value != record.anew


def _anew(super_cluster: SuperCluster) -> str:
    return super_cluster.metadata.annotations.get(BEGIN_MAP_ANEW, "")[:ANEW_CHARACTERS_MAX]


def beginning(
    super_cluster: SuperCluster, record: FounderStatus | None, traces: Traces, *, holds_map: bool
) -> FounderStatus | None:
    """The founder's record with whether its map was begun. `holds_map`: brokers say so now."""
    if record is None:
        return None
    before = super_cluster.status.founder
    asks = asks_anew(super_cluster)
    known = before.begun and before.uid == record.uid if before is not None else traces.has_volumes
    begun = holds_map or (not asks and (known or traces.join_only))
    anew = before.anew if before is not None else ""
    if not asks or holds_map:
        anew = _anew(super_cluster) or anew
    return record.model_copy(update={"begun": begun, "anew": anew})


def is_join_only(super_cluster: SuperCluster, told: bool) -> bool:
    """What a cluster's brokers are told. `told`: what their ConfigMap says now; it counts until a person permits a beginning, since
    a record may be lost, or older than it."""
    record = super_cluster.status.founder
    return (record is not None and record.begun) or (told and not asks_anew(super_cluster))


def _holds(recorded: FounderStatus, clusters: tuple[Cluster, ...], traces: Traces) -> bool:
    """Is anything left of what the founder began?"""
    return recorded.cluster in traces.claimed or any(
        each.metadata.uid == recorded.uid or each.status.meta_voters for each in clusters
    )


def voters_for(
    cluster: Cluster, recorded: FounderStatus | None, siblings: tuple[Cluster, ...]
) -> tuple[str, ...] | Missing | None:
    """What a cluster's brokers are told, the first time; None while the record is awaited.

    A cluster of the founder's name that is not the founder must not be told its own brokers while others live: with
    empty volumes they would begin a second map. It is told brokers of a cluster that has begun, and joins.
    """
    if recorded is None:
        return None
    if recorded.uid == cluster.metadata.uid:
        return recorded.brokers
    others = tuple(each for each in siblings if each.metadata.uid != cluster.metadata.uid)
    begun = tuple(each for each in others if each.status.meta_voters)
    if recorded.cluster != cluster.metadata.name:
        present = begun or any(each.metadata.uid == recorded.uid for each in others)
        return recorded.brokers if present else Missing(recorded)
    joined = oldest(begun)
    if joined is None:
        return recorded.brokers
    return choose_meta_voters(joined.metadata.name, max(joined.spec.replicas, joined.status.replicas))
