"""The reasons why a User cannot be carried out. Each finding names the field, its value and the right value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from supercluster.api import SuperCluster, User
from supercluster.api.conditions import Reason
from supercluster.api.units import period_s, size_bytes
from supercluster.api.user import DEFAULT_ACCOUNT
from supercluster.reconcilers.planners.naming import OPERATOR_USER, is_application_user
from supercluster.reconcilers.planners.user.views import EntryView, UserObserved

PERIOD_MAX_S = 3_650 * 86_400
# Brokers have numbers of 4 bytes for it.
BYTES_MAX = 2**31 - 1
Finding = tuple[Reason, str]
# Neither name nor account of a User can be changed.
_ANOTHER = "delete this User and create one"


def refusal_of(desired: User, observed: UserObserved) -> Finding | None:
    """The first thing that is wrong; None: nothing is."""
    spec, whole = desired.spec, observed.super_cluster
    if whole is None:
        return (
            Reason.SUPER_CLUSTER_NOT_FOUND,
            (
                f"spec.superCluster is {spec.super_cluster}, and there is no such SuperCluster in namespace {desired.metadata.namespace}; "
                "create it, or delete this resource and create it with the right name"
            ),
        )
    found = account_refusal(desired, whole, observed.accounts) or name_refusal(
        desired, whole, observed.first or desired, observed.by_hand, has_entries=bool(observed.entries)
    )
    if found is not None:
        return found
    if problem := permissions_problem(desired):
        return Reason.INVALID_SUBJECT, problem
    if observed.given is not None and observed.given.problem:
        reason = Reason.INVALID_KEY if observed.given.is_key else Reason.SECRET_INVALID
        return reason, observed.given.problem
    if observed.key_owner:
        told = (
            f"spec.authentication.publicKey belongs to {observed.key_owner}: brokers could not tell their clients apart. Give each a pair of "
            "its own, or wait until brokers have dropped it"
        )
        return Reason.INVALID_KEY, told
    for field, period, least in (
        ("after", spec.rotation.after, "1m"),
        ("deadlineAfter", spec.rotation.deadline_after, "1s"),
    ):
        if period is not None and not period_s(least) <= period_s(period) <= PERIOD_MAX_S:
            told = f"spec.rotation.{field} is {period}; it has to be from {least} to 3650d"
            return Reason.OUT_OF_RANGE, told
    return limits_problem(desired)


def first_of_keys(users: Iterable[User]) -> dict[str, User]:
    """By public key, the oldest User that has it."""
    oldest_last = sorted(users, key=lambda each: each.metadata.age_key, reverse=True)
    keys = ((each.spec.authentication.public_key, each) for each in oldest_last)
    return {key: each for key, each in keys if key is not None}


def holders_of_keys(entries: Mapping[str, Mapping[int, EntryView]]) -> dict[str, frozenset[str]]:
    """By public key, the uids of the Users for whom brokers accept it now."""
    found: dict[str, frozenset[str]] = {}
    for uid, numbered in entries.items():
        for each in numbered.values():
            if each.nkey:
                found[each.nkey] = found.get(each.nkey, frozenset()) | {uid}
    return found


def limits_problem(desired: User) -> Finding | None:
    payload = desired.spec.limits.payload_max
    if payload is not None and size_bytes(payload) > BYTES_MAX:
        return (
            Reason.OUT_OF_RANGE,
            f"spec.limits.payloadMax is {payload}; brokers count up to {BYTES_MAX} bytes, leave it out for no limit",
        )
    return None


def account_refusal(desired: User, whole: SuperCluster, by_hand: frozenset[str]) -> Finding | None:
    account = desired.spec.account
    declared = {each.name for each in whole.spec.accounts} | by_hand | {DEFAULT_ACCOUNT}
    if account in declared:
        return None
    return (
        Reason.ACCOUNT_NOT_DECLARED,
        (
            f"spec.account {account!r} is not declared; add it to spec.accounts of SuperCluster {whole.metadata.name}, or {_ANOTHER} "
            f"with one of {', '.join(sorted(declared))}"
        ),
    )


def name_refusal(
    desired: User,
    whole: SuperCluster,
    first: User,
    by_hand: frozenset[tuple[str, str]],
    *,
    has_entries: bool,
) -> Finding | None:
    """One name of an account belongs to one User. `first`: the oldest of that name, this one too."""
    name, account = desired.user_name, desired.spec.account
    if account == DEFAULT_ACCOUNT and name == OPERATOR_USER:
        return (
            Reason.NAME_CONFLICT,
            f"user name {name!r} of account {account} is the super-cluster's own; {_ANOTHER} with another spec.name",
        )
    if is_application_user(desired, whole) and desired.spec.authentication.type != "Password":
        return (
            Reason.NAME_CONFLICT,
            (
                f"user name {name!r} is the application user of SuperCluster {whole.metadata.name}, which has a password; set "
                f"spec.authentication.type to Password, or {_ANOTHER} with another spec.name"
            ),
        )
    if first.metadata.uid != desired.metadata.uid:
        return (
            Reason.NAME_CONFLICT,
            (
                f"user name {name!r} of account {account} belongs to User {first.metadata.name}, which is older; "
                f"{_ANOTHER} with another spec.name"
            ),
        )
    if (account, name) in by_hand and not desired.spec.adopt and not has_entries:
        return (
            Reason.NOT_ADOPTED,
            (
                f"users.json of the super-cluster has a user {name!r} of account {account} by hand; set spec.adopt to true to take it over "
                f"with its password, or {_ANOTHER} with another spec.name"
            ),
        )
    return None


def permissions_problem(desired: User) -> str:
    """The first subject that is none; empty: all are."""
    permissions = desired.spec.permissions
    if permissions is None:
        return ""
    for field, rules, takes_queue in (
        ("publish", permissions.publish, False),
        ("subscribe", permissions.subscribe, True),
    ):
        for part, patterns in (("allow", rules.allow or ()), ("deny", rules.deny)):
            for index, pattern in enumerate(patterns):
                if problem := subject_problem(pattern, takes_queue=takes_queue):
                    return f"spec.permissions.{field}.{part}[{index}] {pattern!r} {problem}"
    return ""


def subject_problem(pattern: str, *, takes_queue: bool) -> str:
    """What is wrong with a subject of permissions, by NATS's rules; empty: nothing."""
    subject, *queue = pattern.split(" ")
    if len(queue) > (1 if takes_queue else 0):
        also = "; one queue group may follow after one space" if takes_queue else ""
        return f"has a space; a subject has none{also}"
    for text in (subject, *queue):
        if any(character.isspace() or ord(character) < 32 for character in text):
            return "has a space or a control character; a subject has none"
        tokens = text.split(".")
        if not all(tokens):
            return "has an empty token; write one or more characters between dots"
        if ">" in tokens[:-1]:
            return "has > before its end; > stands for all that follows, as the last token"
    return ""
