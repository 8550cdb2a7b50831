"""Blue and green of a migration: whom to ask, as whom, and what each says of itself.

A side is a SuperCluster of the namespace, whose Secrets the operator made, or one somewhere else, by its addresses and a Secret that is meant
for it.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from supercluster.api import Cluster, Migration, SuperCluster
from supercluster.api.conditions import Reason
from supercluster.api.migration import SECRET_TYPE, Side, SideStatus
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.migration_answers import NAME_CHARACTERS_MAX, instant, text
from supercluster.reconcilers.observe.targets import broker_target
from supercluster.reconcilers.observe.views import secret_json
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.cluster.broker_config import migration_seeds
from supercluster.reconcilers.planners.cluster.certificates import server_name
from supercluster.reconcilers.planners.migration.views import SideView, Trouble
from supercluster.reconcilers.ports import (
    Brokers,
    BrokersRefusedError,
    BrokersUnreachableError,
    BrokerTarget,
    Kube,
    KubeError,
    mapping,
)

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
    given = await _secret(kube, namespace, side.credentials_secret or "", ("user", "password"))
    if isinstance(given, tuple):
        return given
    ca = await _authority(kube, namespace, side)
    if isinstance(ca, tuple):
        return ca
    urls = tuple(url.rstrip("/") for url in side.urls)
    return BrokerTarget(namespace, "", (), given["user"], given["password"], urls, ca=ca)


async def _authority(kube: Kube, namespace: str, side: Side) -> str | Trouble:
    if side.ca_secret is None:
        return ""
    found = await _secret(kube, namespace, side.ca_secret, ("ca.crt",))
    return found if isinstance(found, tuple) else found["ca.crt"]


async def _secret(
    kube: Kube, namespace: str, name: str, keys: tuple[str, ...]
) -> Mapping[str, str] | Trouble:
    """These keys of a Secret that is meant for a Migration. Others are not read for it: whoever may create a Migration would have them
    sent to an address of their choice."""
    try:
        body = await kube.get("v1", "Secret", namespace, name)
    except KubeError as error:
        return Reason.CREDENTIALS_NOT_FOUND, f"Secret {name}: {error}"
    if body is None:
        return Reason.CREDENTIALS_NOT_FOUND, (
            f"there is no Secret {name} in namespace {namespace}; create it with the type {SECRET_TYPE} and {', '.join(keys)}"
        )
    if body.get("type") != SECRET_TYPE:
        return Reason.CREDENTIALS_NOT_FOUND, (
            f"Secret {name} has the type {body.get('type') or 'Opaque'}, and a Migration takes those of the type {SECRET_TYPE} alone; create it "
            "anew with that type"
        )
    data = mapping(body.get("data"))
    found, lacking = dict[str, str](), list[str]()
    for key in keys:
        try:
            found[key] = b64decode(str(data[key]), validate=True).decode()
        except (KeyError, ValueError):
            lacking.append(key)
    if lacking:
        return Reason.CREDENTIALS_NOT_FOUND, f"Secret {name} has no readable {' and '.join(lacking)}; add it"
    return found


async def migration_credentials(
    cache: ObjectCache, kube: Kube, namespace: str, green: Side
) -> Mapping[str, str] | Trouble:
    """What green's migration port lets blue's brokers in by, as `migration.json` of blue's Secret has it."""
    if green.super_cluster is not None:
        secret = naming.credentials_secret(green.super_cluster)
        there = secret_json(cache.get("Secret", namespace, secret) or {}, "migration.json")
        entry = next((each for each in map(mapping, there.get("accept") or ()) if each.get("password")), None)
        if entry is None:
            return Reason.MIGRATION_PORT_CLOSED, f"Secret {secret} has no user of the migration port yet"
        whole = cache.model(SuperCluster, namespace, green.super_cluster)
        has_tls = whole is not None and whole.spec.tls is not None
        return {
            "user": str(entry.get("user", "")),
            "password": str(entry["password"]),
            "ca": _authority_of(cache, namespace, green.super_cluster) if has_tls else "",
            "serverName": server_name(whole) if whole is not None and has_tls else "",
        }
    given = await _secret(
        kube, namespace, green.credentials_secret or "", ("migrationUser", "migrationPassword")
    )
    if isinstance(given, tuple):
        return given
    ca = await _authority(kube, namespace, green)
    if isinstance(ca, tuple):
        return ca
    return {
        "user": given["migrationUser"],
        "password": given["migrationPassword"],
        "ca": ca,
        "serverName": "",
    }


def _authority_of(cache: ObjectCache, namespace: str, super_cluster: str) -> str:
    """What brokers of green trust, and are trusted by: of any of its clusters."""
    for cluster in cache.of_super_cluster(Cluster, namespace, super_cluster):
        secret = cache.get("Secret", namespace, naming.certificate_secret(cluster.metadata.name))
        text = mapping(mapping(secret).get("data")).get("ca.crt")
        if text:
            return b64decode(str(text)).decode()
    return ""


def is_shared(
    cache: ObjectCache, desired: Migration, identity: str, wanted: Mapping[str, str] | Trouble
) -> bool:
    """A blue by its addresses has its credentials from whoever looks after it; preflight says whether green takes them."""
    blue = desired.spec.blue.super_cluster
    if blue is None:
        return True
    secret = cache.get("Secret", desired.metadata.namespace, naming.credentials_secret(blue))
    sent = mapping(mapping(secret_json(secret or {}, "migration.json").get("send")).get(identity))
    return not isinstance(wanted, tuple) and dict(sent) == dict(wanted)


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
    has_tls = whole is not None and whole.spec.tls is not None
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
        tls_name=server_name(whole) if whole is not None and has_tls else "",
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
