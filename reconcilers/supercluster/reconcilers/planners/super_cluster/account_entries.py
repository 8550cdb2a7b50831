"""The accounts of users.json that follow from spec.accounts: the entries that the operator owns, and their
contents.

An account of the spec that declares exports, imports, mappings or jetstream has an entry. So has one that an
export names, since brokers know only accounts with an entry. Entries that an administrator wrote stay; the
operator takes one over only if it has the same content. All entries are checked and written together, or none
is changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from supercluster.api import SuperCluster
from supercluster.api.accounts import Account, Export, Import
from supercluster.api.accounts import Mapping as SubjectMapping
from supercluster.api.conditions import Reason
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.plan import AccountEntries
from supercluster.reconcilers.planners.super_cluster.account_exchange import exchange_findings
from supercluster.reconcilers.planners.super_cluster.account_rules import findings_of
from supercluster.reconcilers.planners.user.refusals import Finding

IMPORTS_MAX = 4096
"""Of all accounts together: circles are looked for among pairs of them."""
BYTES_MAX = 512 * 1024
"""Of all accounts in users.json. A Secret holds 1 MiB, and what does not fit would hold up the entries of Users."""
JUDGED_MAX = 64

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AccountEntriesView:
    """What users.json has of accounts."""

    entries: Entry = field(default_factory=dict)
    """As it is there, by name."""
    ours: frozenset[str] = frozenset()
    """Those that the operator wrote, by the annotation of the Secret."""
    broken: str = ""
    """Why the accounts there can't be read."""

    @property
    def by_hand(self) -> frozenset[str]:
        return frozenset(self.entries) - self.ours


@dataclass(frozen=True, slots=True)
class AccountEntriesPlan:
    change: AccountEntries | None = None
    """None: users.json has the accounts that it is to have, or nothing can be said."""
    refusals: tuple[Finding, ...] = ()


def plan_account_entries(desired: SuperCluster, view: AccountEntriesView) -> AccountEntriesPlan:
    wanted = declared_entries(desired.spec.accounts, view.by_hand)
    if not wanted and not view.ours:
        return AccountEntriesPlan()
    secret = naming.credentials_secret(desired.metadata.name)
    if view.broken:
        told = (
            f"Secret {secret}: {view.broken}; put it right, until then no account of spec.accounts is written"
        )
        return AccountEntriesPlan(refusals=((Reason.NOT_ADOPTED, told),))
    wrong = _spec_findings(desired.spec.accounts)
    if wrong:
        return AccountEntriesPlan(refusals=wrong)
    indexes = {account.name: index for index, account in enumerate(desired.spec.accounts)}
    others = {
        name: entry for name, entry in view.entries.items() if name not in view.ours and name not in wanted
    }
    refusals = [
        (Reason.NOT_ADOPTED, _not_adopted(f"spec.accounts[{indexes[name]}]", name, secret))
        for name in wanted
        if name in view.by_hand and not _says_the_same(view.entries[name], wanted[name])
    ]
    whole = {**others, **wanted}
    places = {
        name: f"spec.accounts[{indexes[name]}]"
        if name in wanted
        else f"Secret {secret}, users.json, accounts.{name}"
        for name in whole
    }
    readable = {name: entry if isinstance(entry, Mapping) else {} for name, entry in whole.items()}
    refusals += _exchange_findings(json.dumps([readable, places]))
    if not refusals and (size := len(json.dumps(whole, indent=1))) > BYTES_MAX:
        told = f"spec.accounts make accounts of {size} bytes in users.json; they may have {BYTES_MAX}, declare wider subjects"
        refusals.append((Reason.OUT_OF_RANGE, told))
    if refusals:
        return AccountEntriesPlan(refusals=tuple(refusals))
    if whole == view.entries and view.ours == frozenset(wanted):
        return AccountEntriesPlan()
    return AccountEntriesPlan(AccountEntries(view.entries, whole, tuple(sorted(wanted))))


def _not_adopted(where: str, name: str, secret: str) -> str:
    return (
        f"{where} {name!r} differs from accounts.{name} that users.json in Secret {secret} has by hand; declare the same and it is taken "
        "over, or remove it there"
    )


def declared_entries(accounts: tuple[Account, ...], by_hand: frozenset[str]) -> dict[str, dict[str, Any]]:
    """The entries of a spec, by name. An account that only an export names has an empty one, or what a person wrote."""
    named = {name for account in accounts for export in account.exports for name in export.accounts or ()}
    return {
        account.name: _entry(account)
        for account in accounts
        if account.has_entry or (account.name in named and account.name not in by_hand)
    }


@lru_cache(maxsize=JUDGED_MAX)
def _spec_findings(accounts: tuple[Account, ...]) -> tuple[Finding, ...]:
    total = sum(len(account.imports) for account in accounts)
    if total > IMPORTS_MAX:
        told = (
            f"spec.accounts have {total} imports together; they may have {IMPORTS_MAX}, import wider subjects"
        )
        return ((Reason.OUT_OF_RANGE, told),)
    return tuple(
        finding
        for index, account in enumerate(accounts)
        for finding in findings_of(account, f"spec.accounts[{index}]")
    )


@lru_cache(maxsize=JUDGED_MAX)
def _exchange_findings(text: str) -> tuple[Finding, ...]:
    entries, places = json.loads(text)
    return exchange_findings(entries, places)


def _says_the_same(one: Any, other: Any) -> bool:
    return isinstance(one, Mapping) and isinstance(other, Mapping) and _normal(one) == _normal(other)


def _normal(entry: Entry) -> Entry:
    """Without what counts when nothing is said; the same for a mapping in any of nats-server's forms."""
    found = {
        name: value for name, value in entry.items() if value != [] and (name, value) != ("jetstream", True)
    }
    for name, default in (("exports", ("response_type", "singleton")), ("imports", ("share", False))):
        if isinstance(found.get(name), list):
            found[name] = [_without(item, *default) for item in found[name]]
    if isinstance(found.get("mappings"), dict):
        found["mappings"] = {
            subject: _normal_destinations(told) for subject, told in found["mappings"].items()
        }
    return found


def _normal_destinations(told: Any) -> list[Any]:
    listed = told if isinstance(told, list) else [told]
    items = [{"destination": each} if isinstance(each, str) else each for each in listed]
    return [
        {**each, "weight": str(each.get("weight", 100)).removesuffix("%")} if isinstance(each, dict) else each
        for each in items
    ]


def _without(item: Any, name: str, default: Any) -> Any:
    is_default = isinstance(item, dict) and item.get(name) == default
    return {key: value for key, value in item.items() if key != name} if is_default else item


def _entry(account: Account) -> dict[str, Any]:
    """Worded as nats-server's configuration (`broker/protocol/imports_file.py`)."""
    entry: dict[str, Any] = {"jetstream": account.jetstream} if account.jetstream is not None else {}
    if account.exports:
        entry["exports"] = [_export(each) for each in account.exports]
    if account.imports:
        entry["imports"] = [_import(each) for each in account.imports]
    if account.mappings:
        entry["mappings"] = {each.subject: _destinations(each) for each in account.mappings}
    return entry


def _export(export: Export) -> dict[str, Any]:
    found = {
        "stream": export.stream,
        "service": export.service,
        "accounts": list(export.accounts) if export.accounts is not None else None,
        "account_token_position": export.account_token_position,
        "response_type": export.response_type.lower() if export.response_type is not None else None,
        "response_threshold": export.response_threshold,
    }
    return {name: value for name, value in found.items() if value is not None}


def _import(wanted: Import) -> dict[str, Any]:
    found = {
        "stream": wanted.stream.to_object() if wanted.stream is not None else None,
        "service": wanted.service.to_object() if wanted.service is not None else None,
        "to": wanted.to,
        "prefix": wanted.prefix,
        "share": wanted.share,
    }
    return {name: value for name, value in found.items() if value is not None}


def _destinations(mapping: SubjectMapping) -> list[dict[str, Any]]:
    return [{"destination": each.subject, "weight": each.weight} for each in mapping.destinations]
