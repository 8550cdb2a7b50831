"""Obstacles to a StreamMove before it starts: missing objects, and impossible requests."""

from __future__ import annotations

from supercluster.api import Stream, StreamMove
from supercluster.api.conditions import Reason
from supercluster.reconcilers.planners.move.views import MoveObserved

# JetStream's numbers for "no suitable peers" and "a move is in progress".
NO_SUITABLE_PEERS = 10005
MOVE_IN_PROGRESS = 10124
# Ours for "the brokers of the plan do not fit any more".
PLAN_OUTDATED = 19004


def missing(desired: StreamMove, observed: MoveObserved) -> tuple[Reason, str] | None:
    """What has to be there before anything can be said of the move."""
    spec, brokers = desired.spec, observed.brokers
    if observed.super_cluster is None or observed.super_cluster.metadata.deletion_timestamp is not None:
        told = (
            f"spec.superCluster is {spec.super_cluster}, and there is no such SuperCluster in namespace "
            f"{desired.metadata.namespace}; create it, or correct the name in a new StreamMove"
        )
        return Reason.SUPER_CLUSTER_NOT_FOUND, told
    if spec.stream_ref is not None and observed.stream is None:
        return (
            Reason.STREAM_NOT_FOUND,
            f"spec.streamRef is {spec.stream_ref}, and there is no such Stream of SuperCluster {spec.super_cluster}",
        )
    if not brokers.reachable:
        return Reason.BROKERS_UNREACHABLE, brokers.error
    if not brokers.exists:
        return Reason.STREAM_NOT_FOUND, f"there is no stream {observed.stream_name} on the brokers"
    return None


def problem(desired: StreamMove, observed: MoveObserved) -> tuple[Reason, str] | None:
    """Why the move can't be made."""
    spec, stream, clusters = desired.spec, observed.stream, observed.clusters
    if observed.brokers.handed:
        return (
            Reason.STREAM_HANDED,
            f"{observed.brokers.handed}; move it there, where its Stream or a StreamMove of that super-cluster says so",
        )
    if spec.stream is not None and observed.brokers.declared_by and not spec.dry_run:
        told = (
            f"stream {spec.stream} is declared by Stream {observed.brokers.declared_by}, which would move it back: change "
            "spec.placement there, which makes a StreamMove by itself"
        )
        return Reason.STREAM_DECLARED, told
    disagreement = _disagrees(desired, stream) if stream is not None and not spec.dry_run else None
    if disagreement is not None:
        return Reason.PLACEMENT_CONFLICT, disagreement
    too_few = _too_few(desired, observed)
    if too_few is not None:
        return Reason.BELOW_MINIMUM, too_few
    names = sorted(cluster.metadata.name for cluster in clusters)
    goal = spec.destination.cluster if spec.destination is not None else None
    if goal is not None and goal not in names:
        told = (
            f"spec.destination.cluster is {goal}, which is no Cluster of SuperCluster {spec.super_cluster}; its "
            f"Clusters are: {', '.join(names)}"
        )
        return Reason.CLUSTER_NOT_FOUND, told
    if observed.window_error:
        return Reason.INVALID_WINDOW, observed.window_error
    if observed.refusal is not None and observed.refusal_code not in (MOVE_IN_PROGRESS, PLAN_OUTDATED):
        unplaced = observed.refusal_code == NO_SUITABLE_PEERS
        return Reason.NO_SUITABLE_BROKERS if unplaced else Reason.REFUSED_BY_BROKERS, observed.refusal
    return None


def _too_few(desired: StreamMove, observed: MoveObserved) -> str | None:
    """A person's removal that would leave fewer than the minimum is refused, and so is one below the count, which is for them
    to change where it stands (MR-3)."""
    change, brokers = desired.spec.members, observed.brokers
    if change is None or not set(change.remove) & set(brokers.members):
        return None
    left = len(set(brokers.members) - set(change.remove))
    if left < observed.minimum:
        return (
            f"spec.members.remove would leave {left} replicas, and {observed.minimum_by} keeps at least {observed.minimum}: the "
            "stream stays as it is; lower spec.minReplicas there first, if so few are meant"
        )
    if brokers.replicas is not None and left < brokers.replicas:
        return (
            f"spec.members.remove would leave {left} replicas, and the stream's count is {brokers.replicas}: only those beyond "
            "the count go by name; to have fewer, lower the count (spec.replicas of the Stream)"
        )
    return None


def _disagrees(desired: StreamMove, stream: Stream) -> str | None:
    """What the Stream itself would set back."""
    spec, own = desired.spec, stream.spec
    if spec.repair is not None or spec.members is not None:
        return None  # Neither placement nor count is changed by it.
    told = "change it there, which makes a StreamMove by itself"
    if spec.destination is None:
        if spec.replicas == own.replicas:
            return None
        return (
            f"spec.replicas is {spec.replicas}, and spec.replicas of Stream {spec.stream_ref} is {own.replicas}, which would "
            f"set it back: {told}"
        )
    goal, home = spec.destination.cluster, own.placement.cluster
    if home is None or goal in (None, home):
        return None
    return (
        f"spec.destination.cluster is {goal}, and spec.placement.cluster of Stream {spec.stream_ref} is {home}, which would "
        f"move it back: {told}"
    )
