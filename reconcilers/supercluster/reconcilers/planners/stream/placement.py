"""The Cluster in which a stream lives, and the obstacles to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from supercluster.api import Cluster, Stream
from supercluster.api.conditions import Reason
from supercluster.api.stream import NodeFinding
from supercluster.api.units import size_bytes
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.cluster.advice import even_replicas
from supercluster.reconcilers.planners.stream.subjects import first_overlap

Finding = tuple[Reason, str]
# NATS keeps the size of a message in 32 bits.
MESSAGE_BYTES_MAX = 2**31 - 1
BROKER_SUBJECTS = ("$JS.>", "$JSC.>", "$SYS.>")


def cluster_there(
    replicas: Iterable[str], clusters: tuple[Cluster, ...], last_seen: str | None
) -> Cluster | None:
    """The Cluster in which a stream lives: the one with most of its replicas. In the middle of a move two may have as many:
    then it is still the one in which the stream was last seen."""
    counts = Counter(naming.cluster_of(replica) for replica in replicas)
    known = {cluster.metadata.name: cluster for cluster in clusters}
    found = [(count, name == last_seen, name) for name, count in counts.items() if name in known]
    return known[max(found)[2]] if found else None


def wanted_cluster(
    stream: Stream, clusters: tuple[Cluster, ...], first: Cluster | None, there: Cluster | None
) -> Cluster | None:
    """The Cluster that the spec asks for; where it leaves a choice, the one in which the stream is, then the super-cluster's
    first, then the oldest. None when there is none."""
    fitting = [cluster for cluster in clusters if fits(stream, cluster)]
    if there is not None and there in fitting:
        return there

    def rank(cluster: Cluster) -> tuple[bool, bool, bool, tuple[str, str]]:
        metadata = cluster.metadata
        going, small = metadata.deletion_timestamp is not None, brokers_of(cluster) < stream.spec.replicas
        return (going, small, cluster is not first, metadata.age_key)

    return min(fitting, key=rank, default=None)


def fits(stream: Stream, cluster: Cluster) -> bool:
    """Does the placement allow this Cluster?"""
    name = stream.spec.placement.cluster
    return name in (None, cluster.metadata.name) and has_tags(stream, cluster)


def has_tags(stream: Stream, cluster: Cluster) -> bool:
    return set(stream.spec.placement.tags) <= set(cluster.spec.tags)


def brokers_of(cluster: Cluster) -> int:
    return max(cluster.spec.replicas, cluster.status.replicas)


def placement_problem(stream: Stream, clusters: tuple[Cluster, ...]) -> Finding | None:
    """Why the placement can't be followed by any Cluster of the super-cluster."""
    spec, wanted = stream.spec, stream.spec.placement.cluster
    named = {cluster.metadata.name: cluster for cluster in clusters}
    names = ", ".join(sorted(named)) or "none"
    if not named:
        return (
            Reason.CLUSTER_NOT_FOUND,
            f"SuperCluster {spec.super_cluster} has no Cluster in namespace {stream.metadata.namespace}; create one",
        )
    if wanted is not None and wanted not in named:
        told = (
            f"spec.placement.cluster is {wanted}, which is no Cluster of SuperCluster {spec.super_cluster}; "
            f"its Clusters are: {names}"
        )
        return Reason.CLUSTER_NOT_FOUND, told
    tags = ", ".join(spec.placement.tags)
    if wanted is not None and not has_tags(stream, named[wanted]):
        return (
            Reason.PLACEMENT_UNMATCHED,
            f"spec.placement.tags is [{tags}], and Cluster {wanted} does not have all of them in spec.tags",
        )
    if not any(has_tags(stream, cluster) for cluster in clusters):
        told = (
            f"spec.placement.tags is [{tags}], and no Cluster of SuperCluster "
            f"{spec.super_cluster} has all of them in spec.tags; its Clusters are: {names}"
        )
        return Reason.PLACEMENT_UNMATCHED, told
    return None


def explain(stream: Stream, clusters: tuple[Cluster, ...], told: str = "") -> tuple[NodeFinding, ...]:
    """Every broker of the super-cluster, and why it is no use to a stream that can't be placed. `told`: the brokers' own
    refusal; what it says of a broker (that its disk is full, say) is more than can be seen from here."""
    return tuple(
        NodeFinding(name=broker, reason=_told(broker, told) or _why_not(stream, cluster, broker))
        for cluster in sorted(clusters, key=lambda cluster: cluster.metadata.name)
        for broker in naming.brokers(cluster.metadata.name, brokers_of(cluster))
    )


def _told(broker: str, refusal: str) -> str:
    """The part of a refusal that is about one broker: `…; east-0 is not in contact; east-1 …`."""
    parts = (part.strip() for part in refusal.split("; "))
    return next((part.removeprefix(f"{broker} ") for part in parts if part.startswith(f"{broker} ")), "")


def _why_not(stream: Stream, cluster: Cluster, broker: str) -> str:
    placement, name = stream.spec.placement, cluster.metadata.name
    if placement.cluster not in (None, name):
        return f"is in Cluster {name}, and spec.placement.cluster is {placement.cluster}"
    wanting = sorted(set(placement.tags) - set(cluster.spec.tags))
    if wanting:
        return f"Cluster {name} has no tag {', '.join(wanting)}"
    ready = {entry.name for entry in cluster.status.brokers if entry.ready}
    if broker not in ready:
        return "is not ready"
    return f"would do, and is one of {len(ready)} in Cluster {name}; {stream.spec.replicas} are needed"


def size_problem(stream: Stream, home: Cluster) -> Finding | None:
    """More replicas than brokers, or limits that can't both hold."""
    spec, brokers = stream.spec, brokers_of(home)
    if spec.replicas > brokers:
        told = (
            f"spec.replicas is {spec.replicas}, and Cluster {home.metadata.name} has {brokers} brokers; use at most "
            f"{brokers}, or give the Cluster more"
        )
        return Reason.TOO_MANY_REPLICAS, told
    limits = spec.limits
    message = size_bytes(limits.max_message_size) if limits.max_message_size else 0
    whole = size_bytes(limits.max_bytes) if limits.max_bytes else 0
    if message and whole and message > whole:
        told = (
            f"spec.limits.maxMessageSize is {limits.max_message_size}, more than spec.limits.maxBytes, which is "
            f"{limits.max_bytes}; the largest message must fit into the stream"
        )
        return Reason.LIMITS_CONFLICT, told
    if message > MESSAGE_BYTES_MAX:
        return (
            Reason.LIMITS_CONFLICT,
            f"spec.limits.maxMessageSize is {limits.max_message_size}; at most {MESSAGE_BYTES_MAX} bytes are possible",
        )
    return None


def subjects_problem(stream: Stream) -> Finding | None:
    """Subjects that no stream can have together, or beside the brokers' own."""
    subjects = stream.spec.subjects
    for position, subject in enumerate(subjects):
        owned = first_overlap((subject,), BROKER_SUBJECTS)
        if owned is not None:
            told = (
                f"spec.subjects has {subject}, which overlaps with {owned[1]}: that belongs to the brokers; let it "
                "begin with a word instead of a wildcard"
            )
            return Reason.SUBJECTS_OVERLAP, told
        pair = first_overlap((subject,), subjects[position + 1 :])
        if pair is not None:
            return (
                Reason.SUBJECTS_OVERLAP,
                f"spec.subjects has {pair[0]} and {pair[1]}, which overlap; leave out the narrower one",
            )
    return None


def warnings(stream: Stream, home: Cluster) -> list[Finding]:
    """What is carried out and yet ill-advised."""
    spec, found = stream.spec, []
    if spec.replicas % 2 == 0:
        found.append(even_replicas(spec.replicas))
    if spec.storage == "Memory":
        told = (
            "spec.storage is Memory: a broker that restarts loses its copy, and the stream is lost when a majority "
            "of its brokers restarts at once; it can't be changed later, so use File for what must last"
        )
        found.append((Reason.VOLATILE_STORAGE, told))
    leader = spec.placement.preferred_leader
    brokers = naming.brokers(home.metadata.name, brokers_of(home))
    if leader is not None and leader not in brokers:
        told = (
            f"spec.placement.preferredLeader is {leader}, which is no broker of Cluster {home.metadata.name}; its "
            f"brokers are {brokers[0]} to {brokers[-1]}"
        )
        found.append((Reason.PREFERRED_LEADER_UNKNOWN, told))
    return found
