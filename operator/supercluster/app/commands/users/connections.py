"""`supercluster users who-uses`: the clients that present each credential of a User, as each broker reports
them.

The brokers are found as the operator finds them: every pod of every Cluster, ready or not. A broker that does
not answer is named, since it may have clients with the former credential. Of Secrets, only the operator's
password and the numbers of credentials are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from supercluster.api import API_VERSION, Cluster, User
from supercluster.app.admin import BrokerAdmin
from supercluster.app.commands.tables import columns
from supercluster.app.commands.users.find import UsersError
from supercluster.app.commands.users.listing import span_text
from supercluster.app.kube import KubeClient
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.certificates import known_brokers_of
from supercluster.reconcilers.observe.credential_reports import report_of
from supercluster.reconcilers.observe.targets import each_broker
from supercluster.reconcilers.observe.users import user_secret_view
from supercluster.reconcilers.observe.views import secret_json
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.plan import LABEL_SUPER_CLUSTER
from supercluster.reconcilers.planners.user.views import (
    BrokerReport,
    CredentialUse,
    Numbers,
    label,
    owner_of,
)
from supercluster.reconcilers.ports import BrokersError, BrokerTarget, mapping

HEADER = ("BROKER", "CREDENTIAL", "CONNECTIONS", "NAME", "ADDRESS", "CLIENT", "LAST SHOWN")
NAMES_ASKED_MAX = 16
"""Of one call (docs/admin.md). A User with NKeys has a name for each of its credentials, of which it has two as a rule."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for, and of whom."""

    user: User
    numbers: Numbers
    names: tuple[str, ...]
    """As brokers know the user: account and name, or account and public key."""
    targets: Mapping[str, BrokerTarget]
    known: frozenset[str]
    """Brokers that there are, or are to be."""


@dataclass(slots=True)
class Answers:
    """What came of it, by broker."""

    reports: dict[str, BrokerReport] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)
    """Those that did not answer, and why."""


async def prepare(kube: KubeClient, namespace: str, user: User) -> Asked:
    """
    Raises:
        UsersError: it has no credential yet, or nobody can be asked.
        KubeError: the API server refused.
    """
    whole = user.spec.super_cluster
    name = user.status.secret
    secret = user_secret_view(await kube.get("v1", "Secret", namespace, name) if name else None)
    if secret is None or not secret.numbers.all:
        raise UsersError(
            f"User {user.metadata.name} has no credential yet; `supercluster users show {user.metadata.name}` says why"
        )
    credentials = await kube.get("v1", "Secret", namespace, naming.credentials_secret(whole))
    cache = ObjectCache()
    if credentials is not None:
        cache.put(credentials)
    for api_version, kind, selector in (
        (API_VERSION, "SuperCluster", ""),
        (API_VERSION, "Cluster", ""),
        ("v1", "Pod", f"{LABEL_SUPER_CLUSTER}={whole}"),
        ("apps/v1", "StatefulSet", f"{LABEL_SUPER_CLUSTER}={whole}"),
    ):
        for body in (await kube.list(api_version, kind, namespace, selector)).get("items") or ():
            cache.put(body)
    targets = each_broker(cache, namespace, whole)
    if isinstance(targets, str):
        raise UsersError(f"no broker can be asked: {targets}")
    clusters = cache.of_super_cluster(Cluster, namespace, whole)
    known = frozenset[str]().union(*(known_brokers_of(cache, each) for each in clusters))
    if not known:
        raise UsersError(f"SuperCluster {whole} has no broker")
    return Asked(user, secret.numbers, _names(user, credentials), targets, known)


def _names(user: User, credentials: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Names by which brokers know the credentials of a User: its user name, and the public keys of its entries."""
    found = dict.fromkeys([user.user_name])
    users = secret_json(credentials, "users.json").get("users") if credentials is not None else None
    for entry in map(mapping, users if isinstance(users, list) else ()):
        if entry.get("nkey") and (owner_of(str(entry.get("credential"))) or ("", 0))[0] == user.metadata.uid:
            found[str(entry["nkey"])] = None
    return tuple(f"{user.spec.account}/{each}" for each in list(found)[:NAMES_ASKED_MAX])


async def ask(admin: BrokerAdmin, asked: Asked) -> Answers:
    """Every broker at once."""
    answers = Answers(silent=dict.fromkeys(asked.known - asked.targets.keys(), "it has no address"))

    async def one(name: str, target: BrokerTarget) -> None:
        try:
            answers.reports[name] = report_of(await admin.credentials(target, asked.names))
        except BrokersError as error:
            answers.silent[name] = str(error)

    await asyncio.gather(*(one(name, target) for name, target in asked.targets.items()))
    return answers


def described(asked: Asked, answers: Answers, *, shows_all: bool) -> str:
    """Who shows what, by broker; `shows_all`: credentials that nobody shows, too."""
    uid, rows = asked.user.metadata.uid, list[tuple[str, ...]]()
    counts: dict[int, int] = dict.fromkeys(asked.numbers.all, 0)
    for broker, report in sorted(answers.reports.items()):
        for number in sorted(report.numbers.get(uid, ())):
            use = report.uses[label(uid, number)]
            counts[number] = counts.get(number, 0) + use.connections
            place = f"{number} ({_place(asked.numbers, number, use)})"
            if use.connections or shows_all:
                rows += [(broker, place, *row) for row in _rows(use)]
    told = [
        f"credential {number} ({_place(asked.numbers, number)}): {count} connection{'' if count == 1 else 's'}"
        for number, count in sorted(counts.items())
    ]
    of = f"{len(answers.reports)} of {len(answers.reports) + len(answers.silent)} brokers answered"
    return "\n".join([*([columns([HEADER, *rows])] if rows else []), *told, of])


def _place(numbers: Numbers, number: int, use: CredentialUse | None = None) -> str:
    if number == numbers.current:
        return "current"
    if number == numbers.next:
        return "new"
    if number == numbers.previous:
        return "former"
    return "former" if use is not None and use.is_accepted else "withdrawn"


def _rows(use: CredentialUse) -> list[tuple[str, ...]]:
    if not use.connections:
        shown = f"{span_text(use.idle.total_seconds())} ago" if use.idle is not None else "never"
        return [("0", "-", "-", "-", shown)]
    rows: list[tuple[str, ...]] = [
        (str(each.connections), each.name or "-", each.address or "-", each.client or "-", "now")
        for each in use.clients
    ]
    unnamed = use.connections - sum(each.connections for each in use.clients)
    return [*rows, (str(unnamed), "(not named)", "-", "-", "now")] if unnamed > 0 else rows


def silence(answers: Answers) -> Sequence[str]:
    """A sentence for each broker that did not answer."""
    return [f"broker {name} does not answer: {why}" for name, why in sorted(answers.silent.items())]
