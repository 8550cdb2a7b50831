"""How far TLS between brokers is turned on, by what Clusters were told and what brokers report of their links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supercluster.api import Cluster, Migration, SuperCluster
from supercluster.api.super_cluster import AUTHORITIES_MAX, PortTls
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.certificates import (
    authorities_beside,
    brokers_named,
    certificate_view,
    known_brokers_of,
)
from supercluster.reconcilers.planners import naming, tls_ports
from supercluster.reconcilers.planners.cluster.broker_config import port_told, stage_told
from supercluster.reconcilers.planners.cluster.certificates import why_not_for_clients, why_unusable
from supercluster.reconcilers.planners.migration.views import needs_sides
from supercluster.reconcilers.planners.tls_ports import PORTS, PortView
from supercluster.reconcilers.planners.tls_stages import LinksView, TlsView, target_of
from supercluster.reconcilers.ports import Brokers, BrokersError, BrokerTarget, Kube, KubeError, mapping


async def look_at_tls(
    cache: ObjectCache,
    brokers: Brokers,
    kube: Kube,
    desired: SuperCluster,
    clusters: tuple[Cluster, ...],
    target: BrokerTarget | str,
) -> TlsView:
    """Brokers are asked while the stage is not the one that is wanted."""
    namespace, name = desired.metadata.namespace, desired.metadata.name
    is_whole = not cache.unreadable(namespace, name)
    status = desired.status.tls
    if status is None:
        told = (_stage_told(cache, namespace, cluster.metadata.name) for cluster in clusters)
        ports = {port: _ports_told(cache, namespace, clusters, port) for port in PORTS}
        return TlsView(
            frozenset(stage for stage in told if stage is not None), ports_told=ports, is_whole=is_whole
        )
    is_on_its_way = status.stage != target_of(desired, status) or not tls_ports.is_settled(desired)
    if not is_on_its_way and not tls_ports.is_used(desired):
        return TlsView(is_whole=is_whole)
    secrets = {
        each.metadata.name: await _secret(
            cache, kube, namespace, naming.certificate_secret(each.metadata.name)
        )
        for each in clusters
        if each.metadata.deletion_timestamp is None
    }
    if not is_on_its_way:
        return TlsView(authorities=_authorities(secrets), is_whole=is_whole)
    known = (known_brokers_of(cache, each) for each in clusters)
    return await _view(desired, brokers, target, frozenset().union(*known), secrets, cache, is_whole=is_whole)


async def look_now(
    cache: ObjectCache, brokers: Brokers, kube: Kube, desired: SuperCluster, target: BrokerTarget | str
) -> TlsView:
    """The same by the API server's own word."""
    namespace, name = desired.metadata.namespace, desired.metadata.name
    listed = await kube.list("supercluster.dev/v1alpha1", "Cluster", namespace)
    bodies = [
        each
        for each in map(mapping, listed.get("items") or ())
        if mapping(each.get("spec")).get("superCluster") == name
    ]
    known, secrets = frozenset[str](), dict[str, Mapping[str, Any] | None]()
    for metadata in (mapping(each.get("metadata")) for each in bodies):
        cluster = str(metadata.get("name"))
        known |= await brokers_named(kube, namespace, cluster)
        if metadata.get("deletionTimestamp") is None:
            secrets[cluster] = await kube.get("v1", "Secret", namespace, naming.certificate_secret(cluster))
    is_whole = not cache.unreadable(namespace, name)
    return await _view(desired, brokers, target, known, secrets, cache, is_whole=is_whole)


async def _view(
    desired: SuperCluster,
    brokers: Brokers,
    target: BrokerTarget | str,
    known: frozenset[str],
    secrets: Mapping[str, Mapping[str, Any] | None],
    cache: ObjectCache,
    *,
    is_whole: bool,
) -> TlsView:
    namespace, name = desired.metadata.namespace, desired.metadata.name
    views = {each: certificate_view(secret) for each, secret in sorted(secrets.items())}
    why = {each: why_unusable(desired, view) for each, view in views.items()}
    why_not_shown = {each: why_not_for_clients(namespace, each, view) for each, view in views.items()}
    reports, ports, unasked = await _reports(brokers, target)
    migrations = cache.of_super_cluster(Migration, namespace, name)
    return TlsView(
        brokers=known,
        reports=reports,
        ports=ports,
        unasked=unasked,
        unusable=_named(why),
        unusable_for_clients=_named(why_not_shown),
        authorities=_authorities(secrets),
        migrations=tuple(
            sorted(each.metadata.name for each in migrations if needs_sides(each.status.to_object()))
        ),
        is_whole=is_whole,
    )


def _named(why: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{naming.certificate_secret(each)}: {text}" for each, text in why.items() if text)


def _authorities(secrets: Mapping[str, Mapping[str, Any] | None]) -> str | None:
    """Those of all clusters; None while one of them can't be read, or they are too many to be recorded."""
    found = [authorities_beside(secret) if secret is not None else {} for secret in secrets.values()]
    whole = "".join(
        text for _, text in sorted({key: text for each in found for key, text in each.items()}.items())
    )
    return whole if all(found) and len(whole) <= AUTHORITIES_MAX else None


_Ports = dict[str, dict[str, PortView]]


async def _reports(brokers: Brokers, target: BrokerTarget | str) -> tuple[dict[str, LinksView], _Ports, str]:
    ports: _Ports = {port: {} for port in PORTS}
    if isinstance(target, str):
        return {}, ports, target
    try:
        states = await brokers.restart_states(target)
    except BrokersError as error:
        return {}, ports, str(error)
    found = {}
    for name, state in states.items():
        links = mapping(state.get("links"))
        if links:
            stages = frozenset(map(str, mapping(links.get("stages")).values()))
            found[name] = LinksView(stages, int(links.get("plain", 0)), int(links.get("encrypted", 0)))
        for port, told in mapping(state.get("ports")).items():
            each = mapping(told)
            ports.setdefault(str(port), {})[name] = PortView(
                str(each.get("stage", "")), int(each.get("plain", 0)), int(each.get("encrypted", 0))
            )
    return found, ports, ""


def _ports_told(
    cache: ObjectCache, namespace: str, clusters: tuple[Cluster, ...], port: str
) -> frozenset[PortTls]:
    configs = (cache.get("ConfigMap", namespace, naming.config_map(each.metadata.name)) for each in clusters)
    return frozenset(port_told(each, port) for each in configs if each is not None)


def _stage_told(cache: ObjectCache, namespace: str, cluster: str) -> Any:
    return stage_told(
        cache.get("ConfigMap", namespace, naming.config_map(cluster)),
        cache.get("StatefulSet", namespace, naming.stateful_set(cluster)),
    )


async def _secret(cache: ObjectCache, kube: Kube, namespace: str, name: str) -> Mapping[str, Any] | None:
    """The Secret itself where the cache has none: one of another issuer has none of our labels."""
    known = cache.get("Secret", namespace, name)
    if known is not None:
        return known
    try:
        return await kube.get("v1", "Secret", namespace, name)
    except KubeError:
        return None
