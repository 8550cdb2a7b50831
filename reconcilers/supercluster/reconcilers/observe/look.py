"""The snapshots: everything that a plan is made from, taken at one moment."""

from __future__ import annotations

from dataclasses import replace

from supercluster.api import Cluster, Stream, SuperCluster
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.views import (
    claim_view,
    credentials_view,
    group_view,
    pod_view,
    stream_info,
)
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.cluster import ClusterObserved, needs_group_states
from supercluster.reconcilers.planners.stream import BrokersView, StreamObserved
from supercluster.reconcilers.planners.super_cluster import SuperClusterObserved, active_cluster
from supercluster.reconcilers.ports import (
    Brokers,
    BrokersRefusedError,
    BrokersUnreachableError,
    BrokerTarget,
    mapping,
)


def broker_target(cache: ObjectCache, namespace: str, super_cluster: str) -> BrokerTarget | str:
    """The brokers that can be asked now, or why there are none."""
    cluster = active_cluster(cache.of_super_cluster(Cluster, namespace, super_cluster))
    if cluster is None:
        return f"SuperCluster {super_cluster} has no Cluster"
    secret = cache.get("Secret", namespace, naming.credentials_secret(super_cluster))
    credentials = credentials_view(secret)
    password = credentials.passwords.get(naming.OPERATOR_USER) if credentials else None
    if password is None:
        return f"Secret {naming.credentials_secret(super_cluster)} has no user {naming.OPERATOR_USER} yet"
    pods = [
        pod_view(body)
        for body in cache.of_cluster(namespace, cluster.metadata.name)
        if body.get("kind") == "Pod"
    ]
    port = cluster.spec.ports.client
    servers = tuple(f"nats://{pod.ip}:{port}" for pod in pods if pod.ready and pod.ip and not pod.terminating)
    if not servers:
        return f"no broker of Cluster {cluster.metadata.name} is ready"
    return BrokerTarget(namespace, super_cluster, servers, naming.OPERATOR_USER, password)


def look_at_super_cluster(cache: ObjectCache, desired: SuperCluster) -> SuperClusterObserved:
    namespace, name = desired.metadata.namespace, desired.metadata.name
    return SuperClusterObserved(
        clusters=cache.of_super_cluster(Cluster, namespace, name),
        streams=cache.of_super_cluster(Stream, namespace, name),
        credentials=credentials_view(cache.get("Secret", namespace, naming.credentials_secret(name))),
        client_secret=cache.get("Secret", namespace, naming.client_secret(name)),
    )


async def look_at_cluster(cache: ObjectCache, brokers: Brokers, desired: Cluster) -> ClusterObserved:
    namespace, name = desired.metadata.namespace, desired.metadata.name
    super_cluster = cache.model(SuperCluster, namespace, desired.spec.super_cluster)
    bodies = list(cache.of_cluster(namespace, name))
    credentials = credentials_view(
        cache.get("Secret", namespace, naming.credentials_secret(desired.spec.super_cluster))
    )
    user = super_cluster.spec.application_user if super_cluster else ""
    observed = ClusterObserved(
        super_cluster=super_cluster,
        siblings=cache.of_super_cluster(Cluster, namespace, desired.spec.super_cluster),
        streams=cache.of_super_cluster(Stream, namespace, desired.spec.super_cluster),
        objects={
            (str(body.get("kind")), str(mapping(body.get("metadata")).get("name"))): body
            for body in bodies
            if body.get("kind") not in ("Pod", "PersistentVolumeClaim")
        },
        pods=tuple(pod_view(body) for body in bodies if body.get("kind") == "Pod"),
        claims=tuple(claim_view(body) for body in bodies if body.get("kind") == "PersistentVolumeClaim"),
        credentials_ready=credentials is not None and not credentials.missing(user),
    )
    if not needs_group_states(observed, name):
        return observed
    target = broker_target(cache, namespace, desired.spec.super_cluster)
    if isinstance(target, str):
        return observed
    try:
        groups = tuple(group_view(answer) for answer in await brokers.stream_infos(target))
    except (BrokersUnreachableError, BrokersRefusedError):
        return observed
    return replace(observed, groups=groups)


async def look_at_stream(cache: ObjectCache, brokers: Brokers, desired: Stream) -> StreamObserved:
    namespace, super_cluster = desired.metadata.namespace, desired.spec.super_cluster
    rivals = cache.claimants(namespace, super_cluster, desired.stream_name)
    target = broker_target(cache, namespace, super_cluster)
    return StreamObserved(
        super_cluster=cache.model(SuperCluster, namespace, super_cluster),
        clusters=cache.of_super_cluster(Cluster, namespace, super_cluster),
        rivals=tuple(rival for rival in rivals if rival.metadata.uid != desired.metadata.uid),
        brokers=await ask_for_stream(brokers, target, desired.stream_name),
    )


async def ask_for_stream(brokers: Brokers, target: BrokerTarget | str, name: str) -> BrokersView:
    if isinstance(target, str):
        return BrokersView(error=target)
    try:
        answer = await brokers.stream_info(target, name)
    except (BrokersUnreachableError, BrokersRefusedError) as error:
        return BrokersView(error=str(error))
    return BrokersView(reachable=True, error="", info=stream_info(answer) if answer is not None else None)
