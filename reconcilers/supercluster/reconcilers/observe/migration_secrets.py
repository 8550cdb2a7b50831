"""Secrets of a migration: those of a side elsewhere that it names, and those that the brokers of both sides
get.

The brokers of both sides present the same user to each other, that of green's migration port. With
certificates, each side trusts the authorities of both.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field

from supercluster.api import Cluster, SuperCluster
from supercluster.api.conditions import Reason
from supercluster.api.migration import SECRET_TYPE, MigrationSpec, Side
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.views import secret_json
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.migration.views import Trouble
from supercluster.reconcilers.planners.tls_stages import OFF, stage_of
from supercluster.reconcilers.ports import Json, Kube, KubeError, mapping


@dataclass(frozen=True, slots=True)
class Shared:
    """What the brokers of both sides are to have."""

    send: Mapping[str, str] = field(repr=False)
    """User and password of green's migration port, which blue's brokers show and want to be shown."""
    authorities: tuple[str, ...] = ()
    """Both sides', as PEM; none: links between them are not encrypted."""

    def is_in(self, secret: Mapping[str, object] | None, *, sends: bool) -> bool:
        """Has a credentials Secret all of it?"""
        there = secret_json(secret or {}, naming.MIGRATION_FILE)
        text = _text(secret, naming.MIGRATION_AUTHORITIES)
        accept = [dict(mapping(each)) for each in there.get("accept") or ()]
        is_sent = not sends or (
            dict(mapping(there.get("send"))) == dict(self.send) and dict(self.send) in accept
        )
        return is_sent and all(each in text for each in self.authorities)

    def added_to(self, secret: Json, *, sends: bool) -> dict[str, str]:
        """Files of the credentials Secret that change, as text. What else they have stays."""
        there, text = secret_json(secret, naming.MIGRATION_FILE), _text(secret, naming.MIGRATION_AUTHORITIES)
        files = {}
        if sends:
            entry, before = dict(self.send), there.get("accept") or ()
            accept = [*before, *([entry] if entry not in before else [])]
            files[naming.MIGRATION_FILE] = (
                json.dumps({**there, "accept": accept, "send": entry}, indent=1) + "\n"
            )
        lacking = [each for each in self.authorities if each not in text]
        if lacking:
            files[naming.MIGRATION_AUTHORITIES] = "\n".join((*([text] if text else []), *lacking))
        return files


async def shared_by(cache: ObjectCache, kube: Kube, namespace: str, spec: MigrationSpec) -> Shared | Trouble:
    send = await _send(cache, kube, namespace, spec.green)
    if isinstance(send, tuple):
        return send
    found = [await _authority(cache, kube, namespace, side) for side in (spec.green, spec.blue)]
    for each in found:
        if isinstance(each, tuple):
            return each
    green, blue = (str(each) for each in found)
    return Shared(send, tuple(dict.fromkeys((green, blue))) if green and blue else ())


async def _send(cache: ObjectCache, kube: Kube, namespace: str, green: Side) -> Mapping[str, str] | Trouble:
    """What green's migration port lets blue's brokers in by."""
    if green.super_cluster is None:
        keys = ("migrationUser", "migrationPassword")
        given = await given_secret(kube, namespace, green.credentials_secret or "", keys)
        return (
            given
            if isinstance(given, tuple)
            else dict(zip(("user", "password"), given.values(), strict=True))
        )
    secret = naming.credentials_secret(green.super_cluster)
    there = secret_json(cache.get("Secret", namespace, secret) or {}, naming.MIGRATION_FILE)
    entry = mapping(there.get("send"))
    if not (entry.get("user") and entry.get("password")):
        return Reason.MIGRATION_PORT_CLOSED, f"Secret {secret} has no user of the migration port yet"
    return {"user": str(entry["user"]), "password": str(entry["password"])}


async def _authority(cache: ObjectCache, kube: Kube, namespace: str, side: Side) -> str | Trouble:
    """Who signs the certificates of a side's brokers; empty: they have none."""
    if side.super_cluster is None:
        return await given_authority(kube, namespace, side)
    whole = cache.model(SuperCluster, namespace, side.super_cluster)
    if whole is None or stage_of(whole) == OFF:
        return ""
    for cluster in cache.of_super_cluster(Cluster, namespace, side.super_cluster):
        secret = cache.get("Secret", namespace, naming.certificate_secret(cluster.metadata.name))
        found = _text(secret, "ca.crt")
        if found:
            return found
    return Reason.CHECKING, f"{side.text} has no certificates yet"


def _text(secret: Mapping[str, object] | None, key: str) -> str:
    try:
        return b64decode(str(mapping((secret or {}).get("data"))[key])).decode()
    except (KeyError, ValueError):
        return ""


async def given_authority(kube: Kube, namespace: str, side: Side) -> str | Trouble:
    if side.ca_secret is None:
        return ""
    found = await given_secret(kube, namespace, side.ca_secret, ("ca.crt",))
    return found if isinstance(found, tuple) else found["ca.crt"]


async def given_secret(
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
