"""The brokers to query, and the login for it: all that are ready, or all that have an address."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from supercluster.api import Cluster, SuperCluster
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.views import credentials_view, pod_view
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.cluster.certificates import server_name
from supercluster.reconcilers.planners.cluster.restart_order import PodView
from supercluster.reconcilers.planners.tls_ports import Encryption, encryption_of
from supercluster.reconcilers.ports import BrokersError, BrokerTarget

AnswerT = TypeVar("AnswerT")


def broker_target(cache: ObjectCache, namespace: str, super_cluster: str) -> BrokerTarget | str:
    """The brokers that can be asked now, or why there are none."""
    clusters = cache.of_super_cluster(Cluster, namespace, super_cluster)
    if not clusters:
        return f"SuperCluster {super_cluster} has no Cluster"
    password = _password(cache, namespace, super_cluster)
    if password is None:
        return _no_user(super_cluster)
    ready = [
        (cluster, pod)
        for cluster in clusters
        for pod in pods_of(cache, namespace, cluster.metadata.name)
        if pod.ready and pod.ip and not pod.terminating
    ]
    if not ready:
        names = ", ".join(cluster.metadata.name for cluster in clusters)
        return f"no broker of Cluster {names} is ready"
    tls = encryption(cache.model(SuperCluster, namespace, super_cluster))
    return BrokerTarget(
        namespace,
        super_cluster,
        tuple(naming.pod_url(tls.nats, pod.ip, cluster.spec.ports.client) for cluster, pod in ready),
        naming.OPERATOR_USER,
        password,
        tuple(naming.pod_url(tls.http, pod.ip, cluster.spec.ports.monitor) for cluster, pod in ready),
        tuple(pod.name for _, pod in ready),
        tls.authorities,
        tls.name,
    )


def encryption(super_cluster: SuperCluster | None) -> Encryption:
    """How to talk with its brokers."""
    return encryption_of(super_cluster, server_name(super_cluster) if super_cluster is not None else "")


def each_broker(cache: ObjectCache, namespace: str, super_cluster: str) -> dict[str, BrokerTarget] | str:
    """One target for each broker that has an address, ready or not, by name; or why nobody can be asked."""
    password = _password(cache, namespace, super_cluster)
    if password is None:
        return _no_user(super_cluster)
    found, tls = {}, encryption(cache.model(SuperCluster, namespace, super_cluster))
    for cluster in cache.of_super_cluster(Cluster, namespace, super_cluster):
        for pod in pods_of(cache, namespace, cluster.metadata.name):
            if pod.ip:
                monitor = naming.pod_url(tls.http, pod.ip, cluster.spec.ports.monitor)
                found[pod.name] = BrokerTarget(
                    namespace,
                    super_cluster,
                    (),
                    naming.OPERATOR_USER,
                    password,
                    (monitor,),
                    (pod.name,),
                    tls.authorities,
                    tls.name,
                )
    return found


async def answer_of(
    target: BrokerTarget | str, ask: Callable[[BrokerTarget], Awaitable[AnswerT]]
) -> AnswerT | None:
    """What the brokers say; None when they don't, or there are none that could."""
    if isinstance(target, str):
        return None
    try:
        return await ask(target)
    except BrokersError:
        return None


def pods_of(cache: ObjectCache, namespace: str, cluster: str) -> tuple[PodView, ...]:
    return tuple(
        pod_view(body) for body in cache.children_of(Cluster, namespace, cluster) if body.get("kind") == "Pod"
    )


def _password(cache: ObjectCache, namespace: str, super_cluster: str) -> str | None:
    secret = cache.get("Secret", namespace, naming.credentials_secret(super_cluster))
    credentials = credentials_view(secret)
    return credentials.passwords.get(naming.OPERATOR_USER) if credentials else None


def _no_user(super_cluster: str) -> str:
    return f"Secret {naming.credentials_secret(super_cluster)} has no user {naming.OPERATOR_USER} yet"
