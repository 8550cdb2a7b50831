"""Each broker's report on the credentials that it accepts, and on the clients that present them.

Hundreds of Users are observed in turn, and one answer of a broker covers all of them. So an answer is reused
for ten times as long as it took to get, at least a second. No credential is withdrawn on a reused answer:
`execute/users.py` asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from supercluster.api import Cluster, SuperCluster
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.certificates import known_brokers_of
from supercluster.reconcilers.observe.targets import each_broker
from supercluster.reconcilers.planners.user.views import (
    BrokerReport,
    ClientView,
    CredentialUse,
    Reports,
    numbers_by_user,
)
from supercluster.reconcilers.ports import Brokers, BrokersError, BrokerTarget, Clock, mapping

AGE_MIN = timedelta(seconds=1)
AGE_MAX = timedelta(seconds=10)
AGE_PER_COST = 10
ANSWER_SECONDS_MAX = 2.0
"""A broker that stands still holds up nobody for longer."""
CLIENTS_MAX = 64


@dataclass(slots=True)
class CredentialReports:
    """By super-cluster."""

    brokers: Brokers
    clock: Clock
    _known: dict[tuple[str, str], tuple[datetime, datetime, Reports]] = field(default_factory=dict)
    _locks: dict[tuple[str, str], asyncio.Lock] = field(default_factory=dict)

    async def of(self, cache: ObjectCache, namespace: str, super_cluster: str) -> Reports:
        key = namespace, super_cluster
        async with self._locks.setdefault(key, asyncio.Lock()):
            known, now = self._known.get(key), self.clock.now()
            # A clock that was set back makes an answer old, not young.
            if known is not None and known[0] <= now < known[1]:
                return known[2]
            found = await ask_for_credentials(self.brokers, cache, namespace, super_cluster)
            age = min(AGE_MAX, max(AGE_MIN, AGE_PER_COST * (self.clock.now() - now)))
            self._known[key] = now, now + age, found
            return found

    def forget(self, namespace: str, super_cluster: str) -> None:
        """There is no such super-cluster any more."""
        self._known.pop((namespace, super_cluster), None)
        self._locks.pop((namespace, super_cluster), None)


async def ask_for_credentials(
    brokers: Brokers, cache: ObjectCache, namespace: str, super_cluster: str
) -> Reports:
    """Of every broker that there is, or is to be."""
    clusters = cache.of_super_cluster(Cluster, namespace, super_cluster)
    names = frozenset[str]().union(*(known_brokers_of(cache, each) for each in clusters))
    # Of one that can't be read nobody knows the brokers.
    unreadable = cache.unreadable(namespace, super_cluster)
    names |= {str(key) for key in unreadable if key.kind in (Cluster.__name__, SuperCluster.__name__)}
    targets = each_broker(cache, namespace, super_cluster)
    if isinstance(targets, str):
        return dict.fromkeys(names)
    reached = sorted(targets)
    answers = await asyncio.gather(*(_ask(brokers, targets[name]) for name in reached))
    return {**dict.fromkeys(names), **dict(zip(reached, answers, strict=True))}


async def _ask(brokers: Brokers, target: BrokerTarget) -> BrokerReport | None:
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            return report_of(await brokers.credentials(target))
    except (BrokersError, TimeoutError):
        return None


def report_of(answer: Mapping[str, Any]) -> BrokerReport:
    """An answer of GET /admin/credentials (docs/admin.md)."""
    files = {str(name): mapping(told) for name, told in mapping(answer.get("files")).items()}
    uses = {_name(told): _use(told) for told in map(mapping, answer.get("shown") or ())}
    return BrokerReport(
        up=timedelta(milliseconds=_count(answer.get("upMs"))),
        is_whole=not answer.get("shownMore"),
        uses=uses,
        numbers=numbers_by_user(uses),
        accepted=numbers_by_user(name for name, use in uses.items() if use.is_accepted),
        links={
            str(file): {str(user): _count(number) for user, number in mapping(users).items()}
            for file, users in mapping(answer.get("links")).items()
        },
        digests={name: str(told.get("digest") or "") for name, told in files.items()},
        problems={name: str(told["problem"]) for name, told in files.items() if told.get("problem")},
    )


def hand_label(account: str, user: str) -> str:
    """For credentials that no User has made."""
    return f"{account}/{user}"


def _name(told: Mapping[str, Any]) -> str:
    name = str(told.get("credential") or "")
    return name or hand_label(str(told.get("account") or ""), str(told.get("user") or told.get("nkey") or ""))


def _use(told: Mapping[str, Any]) -> CredentialUse:
    idle = told.get("idleMs")
    return CredentialUse(
        connections=_count(told.get("connections")),
        idle=timedelta(milliseconds=_count(idle)) if idle is not None else None,
        digest=str(told.get("digest") or ""),
        is_accepted=bool(told.get("inForce", True)),
        clients=tuple(
            ClientView(
                str(each.get("address") or ""),
                str(each.get("name") or ""),
                f"{each.get('language') or ''} {each.get('version') or ''}".strip(),
                _count(each.get("connections")),
            )
            for each in map(mapping, (told.get("clients") or ())[:CLIENTS_MAX])
        ),
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
