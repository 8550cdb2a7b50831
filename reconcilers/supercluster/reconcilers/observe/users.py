"""The snapshot of a User. Passwords and seeds are compared here, and never passed on."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import bcrypt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from supercluster.api import Cluster, SuperCluster, User
from supercluster.api.nkeys import encode_public_key, problem_of, seed_bytes
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.context import Attempt, Context
from supercluster.reconcilers.observe.views import marks_view, secret_json
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.founding import first_of
from supercluster.reconcilers.planners.status import parse_timestamp
from supercluster.reconcilers.planners.super_cluster.account_entries import AccountEntriesView
from supercluster.reconcilers.planners.super_cluster.users import UsersView
from supercluster.reconcilers.planners.tls_ports import CLIENTS, authorities_for_clients, speaks_tls
from supercluster.reconcilers.planners.user.entries import entry_digest, without_secret
from supercluster.reconcilers.planners.user.refusals import first_of_keys, holders_of_keys
from supercluster.reconcilers.planners.user.views import (
    EntryView,
    GivenView,
    Numbers,
    UserObserved,
    UserSecretView,
    label,
    owner_of,
)
from supercluster.reconcilers.ports import Kube, KubeError, mapping

CREDENTIALS_ANNOTATION = "supercluster.dev/credentials"
"""On the Secret of a User: which credentials it has, as JSON."""
ACCOUNTS_ANNOTATION = "supercluster.dev/accounts"
"""On the brokers' Secret: names of the accounts of users.json that spec.accounts declares, with spaces between them."""
PREFIXES: Mapping[str, Mapping[str, str]] = {
    "current": {"password": "password", "seed": "seed", "nkey": "nkey"},
    "next": {"password": "nextPassword", "seed": "nextSeed", "nkey": "nextNkey"},
    "previous": {"password": "previousPassword", "seed": "previousSeed", "nkey": "previousNkey"},
}
"""Keys of the Secret, by place and field."""
PUBLIC = ("user", "url", "urls", "ca.crt")
PASSWORD_BYTES_MAX = 72
"""bcrypt looks at no more."""
COMPARED_MAX = 4096
REMEMBERED_MAX = 16
"""Contents of users.json: one for each super-cluster, as a rule."""

_compared: dict[bytes, bool] = {}


async def look_at_user(context: Context, desired: User, attempt: Attempt) -> UserObserved:
    cache, metadata = context.cache, desired.metadata
    namespace, name = metadata.namespace, desired.spec.super_cluster
    whole = cache.model(SuperCluster, namespace, name)
    body = cache.get("Secret", namespace, naming.user_secret(desired, whole))
    credentials = cache.get("Secret", namespace, naming.credentials_secret(name))
    clusters = cache.of_super_cluster(Cluster, namespace, name)
    first = first_of(whole, clusters) if whole is not None else None
    has_tls = whole is not None and speaks_tls(whole, CLIENTS, by_choice=False)
    secret = user_secret_view(body)
    entries = entries_of(credentials).get(metadata.uid, {})
    if secret is not None and body is not None:
        is_edited = _is_edited(secret, body, credentials, metadata.uid)
        spoiled = _spoiled(secret, body, credentials, metadata.uid)
        secret = replace(
            secret, is_edited=is_edited, problem=_problem(secret, body), secrets=secret.secrets - spoiled
        )
    return UserObserved(
        super_cluster=whole,
        key_owner=_key_owner(cache, desired, credentials),
        first=min(cache.namesakes(desired), key=lambda each: each.metadata.age_key, default=None),
        accounts=hand_accounts(credentials),
        by_hand=users_by_hand(credentials),
        secret=secret,
        given=await _given(context.hosts.kube, desired, secret, body),
        entries=entries,
        url=naming.client_url(first, has_tls=has_tls) if first is not None else "",
        urls=",".join(sorted(naming.client_url(cluster, has_tls=has_tls) for cluster in clusters)),
        authorities=authorities_for_clients(whole) if whole is not None else "",
        reports=await context.credentials.of(cache, namespace, name) if whole is not None else {},
        refusal=attempt.refusal,
    )


async def look_at_users(
    context: Context, whole: SuperCluster, credentials: Mapping[str, Any] | None
) -> UsersView:
    """All Users of a super-cluster. Brokers are asked only while entries have no User any more."""
    cache, namespace, super_cluster = context.cache, whole.metadata.namespace, whole.metadata.name
    users = cache.of_super_cluster(User, namespace, super_cluster)
    unreadable = cache.unreadable(namespace, super_cluster)
    view = UsersView(
        users=users,
        secrets=user_secrets(cache, users, whole),
        entries=entries_of(credentials),
        by_hand=users_by_hand(credentials),
        accounts=account_entries_view(credentials),
        is_complete=not any(key.kind == User.__name__ for key in unreadable),
    )
    if not view.orphans:
        return view
    return replace(view, reports=await context.credentials.of(cache, namespace, super_cluster))


def user_secret_view(body: Mapping[str, Any] | None) -> UserSecretView | None:
    """None: there is no Secret, or none that a User has made or taken over."""
    if body is None:
        return None
    metadata = mapping(body.get("metadata"))
    text = str(mapping(metadata.get("annotations")).get(CREDENTIALS_ANNOTATION) or "")
    if not text:
        return None
    marks, version = marks_view(body), str(metadata.get("resourceVersion", ""))
    data = mapping(body.get("data"))
    try:
        told = json.loads(text)
        current, following, former = (_number(told.get(place)) for place in ("current", "next", "previous"))
        numbers = Numbers(current, following, former, frozenset(map(int, told.get("lost") or ())))
        kinds = {int(number): str(kind) for number, kind in mapping(told.get("kinds")).items()}
        given = frozenset(int(number) for number in told.get("given") or ())
        last = max(_number(told.get("last")) or 0, *numbers.all, 0)
    except (ValueError, TypeError, AttributeError):
        broken = f"the annotation {CREDENTIALS_ANNOTATION} can't be read"
        return UserSecretView(broken=broken, marks=marks, resource_version=version)
    named = {numbers.current: "current", numbers.next: "next", numbers.previous: "previous"}
    return UserSecretView(
        numbers=numbers,
        last=last,
        kinds=kinds,
        given=given,
        secrets=frozenset(
            number
            for number in numbers.all
            if _is_usable(kinds.get(number), credential_data(body, named.get(number, "")))
        ),
        since=parse_timestamp(str(told.get("since") or "")),
        rolling_since=parse_timestamp(str(told.get("rollingSince") or "")),
        asked=str(told.get("asked") or ""),
        is_returned=bool(told.get("returned")),
        public={key: secret_text(data.get(key)) for key in PUBLIC if key != "ca.crt" or key in data},
        marks=marks,
        resource_version=version,
    )


def credential_data(body: Mapping[str, Any], place: str) -> dict[str, str]:
    """The fields of a credential as the Secret has them, by name; empty: it has none of them."""
    data = mapping(body.get("data"))
    keys = PREFIXES.get(place, {})
    return {field: str(data[key]) for field, key in keys.items() if data.get(key)}


def _is_usable(kind: str | None, fields: Mapping[str, str]) -> bool:
    """Can brokers be told of it? People may have changed it."""
    if kind == "NKey":
        return not problem_of(secret_text(fields.get("nkey")))
    return not password_problem(secret_text(fields.get("password")))


def secret_text(value: object) -> str:
    """Of a value of a Secret; empty where it is no text."""
    try:
        return b64decode(str(value or ""), validate=True).decode()
    except ValueError:
        return ""


def entries_of(credentials: Mapping[str, Any] | None) -> Mapping[str, Mapping[int, EntryView]]:
    """Entries of Users in users.json: by uid of the User, then by number."""
    text = mapping((credentials or {}).get("data")).get("users.json")
    return _entries(str(text)) if text else {}


@lru_cache(REMEMBERED_MAX)
def _entries(encoded: str) -> Mapping[str, Mapping[int, EntryView]]:
    found: dict[str, dict[int, EntryView]] = {}
    for each in _parsed(encoded):
        if each.get("role", "client") != "client":
            continue
        if (owner := owner_of(str(each.get("credential") or ""))) is not None:
            uid, number = owner
            found.setdefault(uid, {})[number] = EntryView(
                without_secret(each), entry_digest(each), str(each.get("nkey") or "")
            )
    return found


def users_by_hand(credentials: Mapping[str, Any] | None) -> frozenset[tuple[str, str]]:
    """Account and name of users that no User has made."""
    text = mapping((credentials or {}).get("data")).get("users.json")
    return _by_hand(str(text)) if text else frozenset()


@lru_cache(REMEMBERED_MAX)
def _by_hand(encoded: str) -> frozenset[tuple[str, str]]:
    return frozenset(
        (str(each.get("account") or "$G"), str(each.get("user")))
        for each in _parsed(encoded)
        if each.get("user") and not _is_ours(each)
    )


def _is_ours(user: Mapping[str, Any]) -> bool:
    """Has a User made it?"""
    return owner_of(str(user.get("credential") or "")) is not None


def entry_by_hand(credentials: Mapping[str, Any] | None, account: str, user: str) -> Mapping[str, Any] | None:
    """The first entry of that user that no User has made."""
    return next(
        (
            each
            for each in _users(credentials)
            if not _is_ours(each) and (str(each.get("account") or "$G"), each.get("user")) == (account, user)
        ),
        None,
    )


def hand_accounts(credentials: Mapping[str, Any] | None) -> frozenset[str]:
    """Accounts that users.json declares and no spec."""
    return account_entries_view(credentials).by_hand


def account_entries_view(credentials: Mapping[str, Any] | None) -> AccountEntriesView:
    """Accounts of users.json, and which of them the operator wrote."""
    if credentials is None:
        return AccountEntriesView()
    text = str(mapping(mapping(credentials.get("metadata")).get("annotations")).get(ACCOUNTS_ANNOTATION, ""))
    return _account_entries(str(mapping(credentials.get("data")).get("users.json") or ""), text)


@lru_cache(REMEMBERED_MAX)
def _account_entries(encoded: str, declared: str) -> AccountEntriesView:
    told = secret_json({"data": {"users.json": encoded}}, "users.json").get("accounts", {})
    if not isinstance(told, dict):
        return AccountEntriesView(broken="users.json, accounts is no object of accounts by name")
    return AccountEntriesView(told, frozenset(declared.split()))


async def given_value(kube: Kube, user: User) -> tuple[str | None, str]:
    """The password or public key that a person gives, and why it can't be used.

    Raises:
        KubeError: nobody says.
    """
    authentication = user.spec.authentication
    if authentication.type == "NKey":
        key = authentication.public_key
        problem = problem_of(key) if key is not None else ""
        return key, f"spec.authentication.publicKey {problem}" if problem else ""
    source = authentication.password_from
    if source is None:
        return None, ""
    namespace = user.metadata.namespace
    where = f"spec.authentication.passwordFrom: Secret {source.name} of namespace {namespace}"
    secret = await kube.get("v1", "Secret", namespace, source.name)
    if secret is None:
        return None, f"{where} is not there; create it with the key {source.key}, or leave passwordFrom out"
    data = mapping(secret.get("data"))
    if source.key not in data:
        return None, f"{where} has no key {source.key!r}; add it, or set passwordFrom.key to one of its keys"
    try:
        password = b64decode(str(data[source.key] or ""), validate=True).decode()
    except ValueError:
        return None, f"{where}: {source.key} is no UTF-8 text; write a password as text"
    problem = password_problem(password)
    return (None, f"{where}: {source.key} {problem}") if problem else (password, "")


def password_problem(password: str) -> str:
    """Why it can be no password; empty: it can. The words never repeat it."""
    if not password:
        return "is empty; write a password"
    if password.endswith(("\n", "\r")):
        return "ends with a line break; make the Secret without it, as `printf %s` does and `echo` does not"
    if any(ord(character) < 32 for character in password):
        return "has a control character; write a password without one"
    if len(password.encode()) > PASSWORD_BYTES_MAX:
        return (
            f"has {len(password.encode())} bytes; bcrypt can hold {PASSWORD_BYTES_MAX}: write a shorter one"
        )
    return ""


async def _given(
    kube: Kube, desired: User, secret: UserSecretView | None, body: Mapping[str, Any] | None
) -> GivenView | None:
    authentication = desired.spec.authentication
    if authentication.password_from is None and authentication.public_key is None:
        return None
    is_key = authentication.type == "NKey"
    name = "spec.authentication.publicKey" if is_key else "spec.authentication.passwordFrom"
    try:
        value, problem = await given_value(kube, desired)
    except KubeError:
        # What nobody says has not changed.
        current = secret.numbers if secret is not None else Numbers()
        return GivenView(name, is_key=is_key, number=current.next or current.current)
    if problem:
        return GivenView(name, problem, is_key)
    field = "nkey" if is_key else "password"
    numbers = secret.numbers if secret is not None else Numbers()
    # With the newest first: the former one may be the same again.
    for number, place in ((numbers.next, "next"), (numbers.current, "current")):
        has_it = body is not None and secret_text(credential_data(body, place).get(field)) == value
        if number is not None and has_it:
            return GivenView(name, is_key=is_key, number=number)
    return GivenView(name, is_key=is_key)


def _is_edited(
    secret: UserSecretView, body: Mapping[str, Any], credentials: Mapping[str, Any] | None, uid: str
) -> bool:
    """Is what clients read another credential than the one of that number in users.json?"""
    return _differs(credentials, uid, secret.numbers.current, credential_data(body, "current"))


def _spoiled(
    secret: UserSecretView, body: Mapping[str, Any], credentials: Mapping[str, Any] | None, uid: str
) -> frozenset[int]:
    """Numbers of which a person has changed what clients do not read yet, or any more."""
    places = (("next", secret.numbers.next), ("previous", secret.numbers.previous))
    return frozenset(
        number
        for place, number in places
        if number is not None and _differs(credentials, uid, number, credential_data(body, place))
    )


def _differs(
    credentials: Mapping[str, Any] | None, uid: str, number: int | None, fields: Mapping[str, str]
) -> bool:
    """Is it another credential than the one of that number in users.json?"""
    entry = _labelled(credentials).get(label(uid, number)) if number is not None else None
    if entry is None or not fields:
        return False
    if entry.get("nkey"):
        return bool(fields.get("nkey")) and secret_text(fields.get("nkey")) != entry["nkey"]
    password = secret_text(fields.get("password"))
    return bool(password) and not fits(password, str(entry.get("password") or ""))


def _problem(secret: UserSecretView, body: Mapping[str, Any]) -> str:
    """What a person has made of the credential that clients read; empty: it is one."""
    number = secret.numbers.current
    fields = credential_data(body, "current")
    if number is None or (not fields and number in secret.given):
        return ""  # Of one that was taken over as a hash nobody knows the password.
    if secret.kinds.get(number) == "NKey":
        key, seed = (secret_text(fields.get(name)) for name in ("nkey", "seed"))
        if problem := problem_of(key):
            return f"nkey {problem}"
        raw = seed_bytes(seed)
        is_pair = raw is not None and encode_public_key(_public_half(raw)) == key
        return "seed is not the other half of nkey" if seed and not is_pair else ""
    if "password" not in fields:
        return "there is no password in it any more"
    problem = password_problem(secret_text(fields["password"]))
    return f"password {problem}" if problem else ""


def _public_half(seed: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def fits(password: str, configured: str) -> bool:
    """Hashes take long to compare, and are compared at every look: each once."""
    key = hashlib.sha256(f"{configured}\0{password}".encode()).digest()
    found = _compared.get(key)
    if found is None:
        try:
            found = bcrypt.checkpw(password.encode(), configured.encode())
        except ValueError:
            found = password == configured
        while len(_compared) >= COMPARED_MAX:
            del _compared[next(iter(_compared))]
        _compared[key] = found
    return found


def _users(credentials: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], ...]:
    text = mapping((credentials or {}).get("data")).get("users.json")
    return _parsed(str(text)) if text else ()


def _labelled(credentials: Mapping[str, Any] | None) -> Mapping[str, Mapping[str, Any]]:
    text = mapping((credentials or {}).get("data")).get("users.json")
    return _by_label(str(text)) if text else {}


@lru_cache(REMEMBERED_MAX)
def _by_label(encoded: str) -> Mapping[str, Mapping[str, Any]]:
    return {str(each["credential"]): each for each in _parsed(encoded) if each.get("credential")}


@lru_cache(REMEMBERED_MAX)
def _parsed(encoded: str) -> tuple[Mapping[str, Any], ...]:
    """Every look at each of hundreds of Users needs it, and it changes seldom."""
    try:
        users = mapping(json.loads(b64decode(encoded))).get("users")
    except ValueError:
        return ()
    return tuple(mapping(each) for each in users) if isinstance(users, list) else ()


def _number(value: object) -> int | None:
    if value is None:
        return None
    if type(value) is not int or value < 1:
        raise ValueError(value)
    return value


def _key_owner(cache: ObjectCache, desired: User, credentials: Mapping[str, Any] | None) -> str:
    """Who has the same public key before this User, for people; empty: nobody."""
    key, metadata = desired.spec.authentication.public_key, desired.metadata
    if key is None:
        return ""
    users = cache.of_super_cluster(User, metadata.namespace, desired.spec.super_cluster)
    first = first_of_keys(users)[key]
    if first.metadata.uid != metadata.uid:
        return f"User {first.metadata.name}, which is older"
    holders = holders_of_keys(entries_of(credentials)).get(key, frozenset()) - {metadata.uid}
    names = [each.metadata.name for each in users if each.metadata.uid in holders]
    return (
        f"User {names[0]}, for which brokers accept it still" if names else "another User" if holders else ""
    )


def user_secrets(
    cache: ObjectCache, users: tuple[User, ...], whole: SuperCluster
) -> dict[str, UserSecretView]:
    """The Secrets of Users that are there, by the User's uid."""
    found = {}
    for each in users:
        name = naming.user_secret(each, whole)
        view = user_secret_view(cache.get("Secret", each.metadata.namespace, name))
        if view is not None:
            found[each.metadata.uid] = view
    return found
