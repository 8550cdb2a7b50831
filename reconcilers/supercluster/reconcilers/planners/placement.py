"""In which Cluster a stream lives, and what speaks against it."""

from __future__ import annotations

from supercluster.api import Cluster, Stream
from supercluster.api.conditions import Reason
from supercluster.api.units import size_bytes
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.subjects import first_overlap
from supercluster.reconcilers.planners.super_cluster import active_cluster

Finding = tuple[Reason, str]
# NATS keeps the size of a message in 32 bits.
MESSAGE_BYTES_MAX = 2**31 - 1
BROKER_SUBJECTS = ("$JS.>", "$JSC.>", "$SYS.>")


def current_home(stream: Stream, clusters: tuple[Cluster, ...]) -> Cluster | None:
    """The Cluster in which the stream is, or would be looked for: the only one that is active."""
    return active_cluster(clusters)


def placement_problem(stream: Stream, clusters: tuple[Cluster, ...], home: Cluster | None) -> Finding | None:
    """Why the placement can't be followed by any Cluster of the super-cluster."""
    spec = stream.spec
    names = ", ".join(sorted(cluster.metadata.name for cluster in clusters)) or "none"
    if home is None:
        return (
            Reason.CLUSTER_NOT_FOUND,
            f"SuperCluster {spec.super_cluster} has no Cluster in namespace {stream.metadata.namespace}; create one",
        )
    wanted = spec.placement.cluster
    if wanted is not None and wanted not in {cluster.metadata.name for cluster in clusters}:
        return (
            Reason.CLUSTER_NOT_FOUND,
            (
                f"spec.placement.cluster is {wanted}, which is no Cluster of SuperCluster {spec.super_cluster}; "
                f"its Clusters are: {names}"
            ),
        )
    if spec.placement.tags and not any(has_tags(stream, cluster) for cluster in clusters):
        return (
            Reason.PLACEMENT_UNMATCHED,
            (
                f"spec.placement.tags is [{', '.join(spec.placement.tags)}], and no Cluster of SuperCluster "
                f"{spec.super_cluster} has all of them in spec.tags; its Clusters are: {names}"
            ),
        )
    return None


def has_tags(stream: Stream, cluster: Cluster) -> bool:
    return set(stream.spec.placement.tags) <= set(cluster.spec.tags)


def wants_elsewhere(stream: Stream, home: Cluster) -> str | None:
    """What of the placement asks for another Cluster than `home`; None when `home` will do."""
    placement = stream.spec.placement
    if placement.cluster is not None and placement.cluster != home.metadata.name:
        return f"spec.placement.cluster is {placement.cluster}"
    if not has_tags(stream, home):
        return f"spec.placement.tags is [{', '.join(placement.tags)}]"
    return None


def size_problem(stream: Stream, home: Cluster) -> Finding | None:
    """More replicas than brokers, or limits that can't both hold."""
    spec, brokers = stream.spec, max(home.spec.replicas, home.status.replicas)
    if spec.replicas > brokers:
        return (
            Reason.TOO_MANY_REPLICAS,
            (
                f"spec.replicas is {spec.replicas}, and Cluster {home.metadata.name} has {brokers} brokers; use at most "
                f"{brokers}, or give the Cluster more"
            ),
        )
    limits = spec.limits
    message = size_bytes(limits.max_message_size) if limits.max_message_size else 0
    whole = size_bytes(limits.max_bytes) if limits.max_bytes else 0
    if message and whole and message > whole:
        return (
            Reason.LIMITS_CONTRADICT,
            (
                f"spec.limits.maxMessageSize is {limits.max_message_size}, more than spec.limits.maxBytes, which is "
                f"{limits.max_bytes}; the largest message must fit into the stream"
            ),
        )
    if message > MESSAGE_BYTES_MAX:
        return (
            Reason.LIMITS_CONTRADICT,
            f"spec.limits.maxMessageSize is {limits.max_message_size}; at most {MESSAGE_BYTES_MAX} bytes are possible",
        )
    return None


def subjects_problem(stream: Stream) -> Finding | None:
    """Subjects that no stream can have together, or beside the brokers' own."""
    subjects = stream.spec.subjects
    for position, subject in enumerate(subjects):
        owned = first_overlap((subject,), BROKER_SUBJECTS)
        if owned is not None:
            return (
                Reason.SUBJECTS_OVERLAP,
                (
                    f"spec.subjects has {subject}, which overlaps with {owned[1]}: that belongs to the brokers; let it "
                    "begin with a word instead of a wildcard"
                ),
            )
        pair = first_overlap((subject,), subjects[position + 1 :])
        if pair is not None:
            return (
                Reason.SUBJECTS_OVERLAP,
                f"spec.subjects has {pair[0]} and {pair[1]}, which overlap; leave out the narrower one",
            )
    return None


def unwise(stream: Stream, home: Cluster) -> list[Finding]:
    """What is carried out and yet ill-advised."""
    spec, found = stream.spec, []
    if spec.replicas % 2 == 0:
        found.append(
            (
                Reason.EVEN_REPLICAS,
                (
                    f"spec.replicas is {spec.replicas}: an even count tolerates no more failures than {spec.replicas - 1}; "
                    f"use {spec.replicas - 1} or {spec.replicas + 1}"
                ),
            )
        )
    leader = spec.placement.preferred_leader
    brokers = naming.brokers(home.metadata.name, max(home.spec.replicas, home.status.replicas))
    if leader is not None and leader not in brokers:
        found.append(
            (
                Reason.PREFERRED_LEADER_UNKNOWN,
                (
                    f"spec.placement.preferredLeader is {leader}, which is no broker of Cluster {home.metadata.name}; its "
                    f"brokers are {brokers[0]} to {brokers[-1]}"
                ),
            )
        )
    return found


def deferred(stream: Stream, home: Cluster, replicas_there: int | None) -> list[Finding]:
    """What the spec asks for whose mechanism is not there yet; `replicas_there` is what an existing stream has."""
    found = []
    if replicas_there is not None and replicas_there != stream.spec.replicas:
        found.append(
            (
                Reason.REPLICA_CHANGE_NOT_AVAILABLE,
                (
                    f"spec.replicas is {stream.spec.replicas}, and the stream was created with {replicas_there}; adding and "
                    f"removing replicas is not there yet: it keeps {replicas_there}"
                ),
            )
        )
    elsewhere = wants_elsewhere(stream, home)
    if elsewhere is not None:
        found.append(
            (
                Reason.MOVE_NOT_AVAILABLE,
                (
                    f"{elsewhere}, and the stream lives in Cluster {home.metadata.name}; moving streams is not there yet: "
                    "it stays where it is"
                ),
            )
        )
    if stream.spec.min_replicas is not None:
        found.append(
            (
                Reason.REPAIR_NOT_AVAILABLE,
                (
                    f"spec.minReplicas is {stream.spec.min_replicas}; replacing lost replicas is not there yet: nothing is "
                    "done when fewer are left"
                ),
            )
        )
    return found
