"""Blue and green of a migration: their addresses, the login for each, and their descriptions of themselves.

A side is either a SuperCluster in the namespace, whose Secrets the operator made, or one elsewhere, given by
its addresses and a Secret for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from supercluster.api import Cluster, SuperCluster
from supercluster.api.conditions import Reason
from supercluster.api.migration import Side, SideStatus
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.migration_answers import NAME_CHARACTERS_MAX, instant, text
from supercluster.reconcilers.observe.migration_secrets import given_authority, given_secret
from supercluster.reconcilers.observe.targets import broker_target
from supercluster.reconcilers.planners.cluster.broker_config import migration_seeds
from supercluster.reconcilers.planners.cluster.certificates import server_name
from supercluster.reconcilers.planners.migration.views import SideView, Trouble
from supercluster.reconcilers.planners.tls_stages import OFF, stage_of
from supercluster.reconcilers.ports import (
    Brokers,
    BrokersRefusedError,
    BrokersUnreachableError,
    BrokerTarget,
    Kube,
    mapping,
)

GREENS_MAX = 8
UNAUTHORIZED = frozenset({401, 403})


async def side_target(cache: ObjectCache, kube: Kube, namespace: str, side: Side) -> BrokerTarget | Trouble:
    """Whom to ask of blue or green, and as whom; or why nobody can be asked."""
    if side.super_cluster is not None:
        if cache.get("SuperCluster", namespace, side.super_cluster) is None:
            return Reason.SUPER_CLUSTER_NOT_FOUND, (
                f"there is no SuperCluster {side.super_cluster} in namespace {namespace}; create it, or correct the name in a new Migration"
            )
        found = broker_target(cache, namespace, side.super_cluster)
        return (Reason.BROKERS_UNREACHABLE, found) if isinstance(found, str) else found
    given = await given_secret(kube, namespace, side.credentials_secret or "", ("user", "password"))
    if isinstance(given, tuple):
        return given
    ca = await given_authority(kube, namespace, side)
    if isinstance(ca, tuple):
        return ca
    urls = tuple(url.rstrip("/") for url in side.urls)
    return BrokerTarget(namespace, "", (), given["user"], given["password"], urls, ca=ca)


async def look_at_side(
    cache: ObjectCache,
    brokers: Brokers,
    namespace: str,
    side: Side,
    target: BrokerTarget | Trouble,
    now: datetime,
) -> SideView:
    deleted, is_gone = _deleted(cache, namespace, side)
    if isinstance(target, tuple):
        return SideView(trouble=target, deleted=deleted, is_gone=is_gone)
    try:
        answer = await brokers.identity(target)
    except BrokersRefusedError as error:
        reason = Reason.CREDENTIALS_NOT_FOUND if error.code in UNAUTHORIZED else Reason.BROKERS_UNREACHABLE
        told = f"{side.text} refuses the operator's credentials: {error}; put user and password right"
        message = told if error.code in UNAUTHORIZED else f"{side.text}: {error}"
        return SideView(trouble=(reason, message), deleted=deleted)
    except BrokersUnreachableError as error:
        return SideView(trouble=(Reason.BROKERS_UNREACHABLE, f"{side.text}: {error}"), deleted=deleted)
    identity = text(answer.get("identity"), NAME_CHARACTERS_MAX)
    if not identity:
        message = f"{side.text}: the answer has no identity, so it is no broker of supercluster"
        return SideView(trouble=(Reason.BROKERS_UNREACHABLE, message), deleted=deleted)
    version = text(answer.get("version"), NAME_CHARACTERS_MAX)
    time = instant(answer.get("timeNs"))
    whole = cache.model(SuperCluster, namespace, side.super_cluster) if side.super_cluster else None
    has_tls = whole is not None and stage_of(whole) != OFF
    return SideView(
        told=SideStatus(
            identity=identity,
            name=text(answer.get("superCluster"), NAME_CHARACTERS_MAX),
            version=version,
        ),
        clock_ahead_ms=(time - now).total_seconds() * 1000 if time is not None else 0.0,
        deleted=deleted,
        is_gone=is_gone,
        addresses=_addresses(cache, namespace, side, target, answer.get("migrationPort")),
        has_tls=has_tls or side.ca_secret is not None,
        tls_name=server_name(whole) if whole is not None and has_tls else "",
        greens=tuple(
            text(found, NAME_CHARACTERS_MAX) for found in list(answer.get("greens") or ())[:GREENS_MAX]
        ),
    )


def _deleted(cache: ObjectCache, namespace: str, side: Side) -> tuple[str, bool]:
    """The words for a resource that goes, and whether it is gone."""
    if side.super_cluster is None:
        return "", False
    body = cache.get("SuperCluster", namespace, side.super_cluster)
    if body is None:
        return f"SuperCluster {side.super_cluster} is gone", True
    going = [f"SuperCluster {side.super_cluster}"] if _is_going(body) else []
    clusters = cache.of_super_cluster(Cluster, namespace, side.super_cluster)
    going += [
        f"Cluster {each.metadata.name}" for each in clusters if each.metadata.deletion_timestamp is not None
    ]
    return (f"{', '.join(going)} {'is' if len(going) == 1 else 'are'} being deleted" if going else ""), False


def _is_going(body: Mapping[str, Any]) -> bool:
    return mapping(body.get("metadata")).get("deletionTimestamp") is not None


def _addresses(
    cache: ObjectCache, namespace: str, side: Side, target: BrokerTarget, port: Any
) -> tuple[str, ...]:
    """Some are enough: brokers tell each other the addresses of all."""
    if side.addresses:
        return side.addresses
    if type(port) is not int or not 1 <= port <= 65_535:
        return ()
    if side.super_cluster is not None:
        clusters = cache.of_super_cluster(Cluster, namespace, side.super_cluster)
        return tuple(seed for each in clusters for seed in migration_seeds(each))
    hosts = (urlsplit(url).hostname or "" for url in target.monitors)
    return tuple(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts)
