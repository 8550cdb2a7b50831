"""The entries of users.json that follow from all Users and their Secrets: those to write, and those to
remove.

No entry is removed because an object is not seen. An entry is removed when the Secret of its User no longer
has such a credential, or when its User is gone and no client presents it. A User whose Secret is gone keeps
its entries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from supercluster.api import SuperCluster, User
from supercluster.api.conditions import Reason
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.cluster import manifests
from supercluster.reconcilers.planners.plan import WriteUsers
from supercluster.reconcilers.planners.status import is_within, parse_timestamp
from supercluster.reconcilers.planners.super_cluster.account_entries import (
    AccountEntriesView,
    plan_account_entries,
)
from supercluster.reconcilers.planners.user.entries import declared_entry
from supercluster.reconcilers.planners.user.refusals import (
    Finding,
    account_refusal,
    first_of_keys,
    holders_of_keys,
    limits_problem,
    name_refusal,
    permissions_problem,
)
from supercluster.reconcilers.planners.user.rotation import not_quiet
from supercluster.reconcilers.planners.user.views import EntryView, Reports, UserSecretView, label, owner_of

USERS_BYTES_MAX = 448 * 1024
"""Of users.json; accounts may have 512 KiB beside them."""
SECRET_BYTES = 128
"""A hash or a public key, with what is around it."""
NAMED_MAX = 5
BATCH_TIME = timedelta(seconds=5)
"""How long a User that has its Secret waits at most for others that have none yet, so that many are one write."""
QUIET_TIME = timedelta(minutes=2)
"""Of the credentials of a User that is gone, with what it said of its quiet time."""


@dataclass(frozen=True, slots=True)
class UsersView:
    """Users of a super-cluster, and what brokers are told of them."""

    users: tuple[User, ...] = ()
    secrets: Mapping[str, UserSecretView] = field(default_factory=dict)
    """By uid of the User."""
    entries: Mapping[str, Mapping[int, EntryView]] = field(default_factory=dict)
    """By uid, then by number."""
    by_hand: frozenset[tuple[str, str]] = frozenset()
    """Account and name of those that no User has made."""
    accounts: AccountEntriesView = field(default_factory=AccountEntriesView)
    is_complete: bool = True
    """Every User that there is can be read."""
    reports: Reports | None = None
    """Asked for only while entries have no User any more."""

    def declares_application(self, whole: SuperCluster) -> bool:
        """Does a User take over, or has it taken over, the application user?"""
        return any(
            naming.is_application_user(each, whole) and (each.spec.adopt or each.metadata.uid in self.entries)
            for each in self.users
        )

    @property
    def orphans(self) -> frozenset[str]:
        """Uids with entries whose Users are gone, or are being deleted and have no Secret."""
        if not self.is_complete:
            return frozenset()
        served = {
            each.metadata.uid
            for each in self.users
            if each.metadata.deletion_timestamp is None or each.metadata.uid in self.secrets
        }
        return frozenset(self.entries) - served

    @property
    def cut_off(self) -> frozenset[str]:
        """Uids of Users that are being deleted, with whoever is connected, and whose Secrets are gone."""
        return frozenset(
            each.metadata.uid
            for each in self.users
            if each.metadata.deletion_timestamp is not None
            and each.spec.deletion_policy == "Immediately"
            and each.metadata.uid not in self.secrets
        )


@dataclass(frozen=True, slots=True)
class UsersPlan:
    """What to do about users.json."""

    step: WriteUsers | None = None
    waits: bool = False
    """For Users that have no Secret yet, or for clients of Users that are gone."""
    refusals: tuple[Finding, ...] = ()
    """What of spec.accounts cannot be written into users.json."""


def plan_users(desired: SuperCluster, view: UsersView, now: datetime) -> UsersPlan:
    entries: dict[str, Mapping[str, Any]] = {}
    secrets: dict[str, str] = {}
    taken: dict[str, tuple[str, str]] = {}
    dropped: set[str] = set()
    is_waiting = is_overdue = False
    first = {
        each.claim: each for each in sorted(view.users, key=lambda each: each.metadata.age_key, reverse=True)
    }
    keys, holders = first_of_keys(view.users), holders_of_keys(view.entries)
    for user in view.users:
        uid, secret = user.metadata.uid, view.secrets.get(user.metadata.uid)
        there = view.entries.get(uid, {})
        created = parse_timestamp(user.metadata.creation_timestamp)
        is_new = is_within(created, BATCH_TIME, now)
        key = user.spec.authentication.public_key
        is_refused = _is_refused(desired, user, first[user.claim], view)
        is_refused |= key is not None and keys[key].metadata.uid != uid
        is_refused |= key is not None and bool(holders.get(key, frozenset()) - {uid})
        if secret is None or secret.broken:
            is_waiting |= secret is None and is_new and not is_refused and not there
            continue
        # Later ones than the Secret knows are in force although it was restored; its User takes them in.
        gone = {number for number in there if number <= secret.last} - secret.numbers.all
        dropped |= {label(uid, number) for number in gone}
        for number in sorted(secret.numbers.all):
            name = label(uid, number)
            if is_refused:
                continue  # What brokers have of it stays as it is.
            wanted = declared_entry(user, number, _kind(secret, there, number))
            if number in there and there[number].declared == wanted:
                continue
            if number not in there and number not in secret.secrets and not _takes_over(user, number, view):
                continue  # Nobody knows its secret half.
            entries[name] = wanted
            secrets[name] = naming.user_secret(user, desired)
            is_overdue |= number not in there and not is_new
            if number not in there and _takes_over(user, number, view):
                taken[name] = user.spec.account, user.user_name
    orphans = view.orphans
    for uid in orphans:
        names = {label(uid, number) for number in view.entries[uid]}
        is_quiet = view.reports is not None and not not_quiet(view.reports, names, QUIET_TIME)
        if is_quiet or uid in view.cut_off:
            dropped |= names
    left = bool(orphans) and not dropped.issuperset(
        label(uid, number) for uid in orphans for number in view.entries[uid]
    )
    accounts = plan_account_entries(desired, view.accounts)
    refusals = accounts.refusals
    if beyond := _beyond(view, entries):
        entries = {name: entry for name, entry in entries.items() if name not in beyond}
        waiting = sorted({secrets[name] for name in beyond})
        told = (
            f"users.json has room for {USERS_BYTES_MAX} bytes of Users, since a Secret holds 1 MiB; {len(waiting)} more do not fit. Give some "
            f"of them to another SuperCluster, or shorten their permissions. First of their Secrets: {', '.join(waiting[:NAMED_MAX])}"
        )
        refusals = (*refusals, (Reason.OUT_OF_RANGE, told))
    if not entries and not dropped and accounts.change is None:
        return UsersPlan(waits=is_waiting or left, refusals=refusals)
    if is_waiting and not is_overdue and not dropped:
        return UsersPlan(waits=True, refusals=refusals)
    manifest = manifests.credentials_secret(desired)
    step = WriteUsers(manifest, entries, secrets, taken, frozenset(dropped), accounts.change)
    return UsersPlan(step, waits=left, refusals=refusals)


def _beyond(view: UsersView, wanted: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """Labels of new entries for which the Secret has no room. Those that brokers have come first."""
    there = {
        label(uid, number): each for uid, found in view.entries.items() for number, each in found.items()
    }
    if not wanted.keys() - there.keys():
        return frozenset()
    left = USERS_BYTES_MAX - sum(_size(each.declared) for each in there.values())
    found = set()
    # The next credential of a User that is served comes before other Users.
    for name in sorted(
        wanted.keys() - there.keys(), key=lambda name: (_owner(name) not in view.entries, name)
    ):
        if (size := _size(wanted[name])) > left:
            found.add(name)
        else:
            left -= size
    return frozenset(found)


def _owner(name: str) -> str:
    owner = owner_of(name)
    return owner[0] if owner is not None else ""


def _size(declared: Mapping[str, Any]) -> int:
    """Bytes of an entry in users.json, at most."""
    return len(json.dumps(declared, indent=1)) + SECRET_BYTES


def _kind(secret: UserSecretView, there: Mapping[int, EntryView], number: int) -> str:
    """Of a credential that brokers have, by what they have: of one that is lost the Secret knows nothing."""
    if number in there:
        return "Password" if "user" in there[number].declared else "NKey"
    return secret.kinds.get(number, "Password")


def _takes_over(user: User, number: int, view: UsersView) -> bool:
    """Does an entry by hand become this credential?"""
    has_entries = bool(view.entries.get(user.metadata.uid))
    return user.spec.adopt and not has_entries and (user.spec.account, user.user_name) in view.by_hand


def _is_refused(desired: SuperCluster, user: User, first: User, view: UsersView) -> bool:
    has_entries = bool(view.entries.get(user.metadata.uid))
    return bool(
        account_refusal(user, desired, view.accounts.by_hand)
        or name_refusal(user, desired, first, view.by_hand, has_entries=has_entries)
        or permissions_problem(user)
        or limits_problem(user)
    )
