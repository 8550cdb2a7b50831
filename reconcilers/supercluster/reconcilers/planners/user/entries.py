"""The entry of users.json for one credential of a User, without its hash or key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from supercluster.api import User
from supercluster.api.units import duration_ms, size_bytes
from supercluster.api.user import SubjectRules
from supercluster.reconcilers.planners.user.views import label

SECRET_FIELDS = frozenset({"password", "nkey", "token"})


def declared_entry(user: User, number: int, kind: str) -> dict[str, Any]:
    """As docs/broker-process.md has it."""
    spec = user.spec
    entry: dict[str, Any] = {"user": user.user_name} if kind == "Password" else {}
    entry |= {"account": spec.account, "role": "client", "credential": label(user.metadata.uid, number)}
    if spec.permissions is not None:
        entry["permissions"] = {
            "publish": _rules(spec.permissions.publish),
            "subscribe": _rules(spec.permissions.subscribe),
        }
        if (responses := spec.permissions.responses) is not None:
            entry["permissions"]["responses"] = {"max": responses.max, "ttlMs": duration_ms(responses.ttl)}
    limits = {
        "connectionsMax": spec.limits.connections_max,
        "subscriptionsMax": spec.limits.subscriptions_max,
        "payloadBytesMax": size_bytes(spec.limits.payload_max) if spec.limits.payload_max else None,
    }
    limits = {name: value for name, value in limits.items() if value is not None}
    return {**entry, "limits": limits} if limits else entry


def without_secret(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in SECRET_FIELDS}


def entry_digest(entry: Mapping[str, Any]) -> str:
    """As brokers tell it of the entry that is in force."""
    text = json.dumps(entry, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _rules(rules: SubjectRules) -> dict[str, Any]:
    found: dict[str, Any] = {"deny": list(rules.deny)} if rules.deny else {}
    return found if rules.allow is None else {"allow": list(rules.allow), **found}
