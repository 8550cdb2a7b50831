"""The users of a configuration file: their passwords, keys and accounts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from supercluster.broker.auth.nkeys import NkeyError, public_key
from supercluster.broker.auth.passwords import PasswordError, check_hash
from supercluster.broker.auth.users import STANDARD, WEBSOCKET, ClientLimits, User
from supercluster.broker.dropin.account_options import (
    AccountReader,
    JetStreamLimits,
    read_client_limits,
    read_default_mappings,
    read_jetstream,
)
from supercluster.broker.dropin.conf import Value
from supercluster.broker.dropin.fields import Fields, shown, text_of
from supercluster.broker.dropin.permission_options import read_permissions
from supercluster.broker.protocol.imports import AccountBook
from supercluster.broker.protocol.permissions import Permissions

DEFAULT_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"
CLIENT = "client"
CONNECTION_TYPES = (STANDARD, WEBSOCKET, "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS")
"""All that nats-server has: nobody comes here by the others, so they may be named, and let nobody in."""
NO_JWT = "accounts by JWT are not supported; name accounts and users in the file"


@dataclass(frozen=True, slots=True)
class Accounts:
    """What the block `accounts` says, beside the accounts' users."""

    users: tuple[User, ...]
    limits: tuple[tuple[str, JetStreamLimits | None], ...]
    client_limits: tuple[tuple[str, ClientLimits], ...]
    declared: AccountBook


def read_authorization(root: Fields, auth_timeout_ms: int) -> tuple[tuple[User, ...], int]:
    """Users outside of any account, and how long a client may take to say who it is.

    Raises:
        ConfError: one of them is wrong, or something changes who is let in and is not there.
    """
    found = root.map("authorization")
    if found is None:
        return (), auth_timeout_ms
    found.refuse("auth callout is not supported", "auth_callout")
    usual = read_permissions(
        found, "default_permissions", "default_permission", "defaultperms", "permissions"
    )
    users = [_user(found.inner(value, "users"), DEFAULT_ACCOUNT, usual) for value in found.listed("users")]
    own = User(
        DEFAULT_ACCOUNT,
        CLIENT,
        user=found.text("user", "username"),
        password=_password(found),
        token=_password(found, "token"),
        permissions=usual,
    )
    if own.user or own.token:
        if own.user and own.token:
            raise found.value.wrong("authorization has a token and a user; only one of them may be")
        if users:
            raise found.value.wrong(
                "authorization has a user or token of its own and users; only one of them may be"
            )
        users = [own]
    timeout_ms = found.duration_ms("timeout", default=auth_timeout_ms, low=50, high=60_000)
    found.of_no_use("proxy_required")
    found.done()
    return tuple(users), timeout_ms


def read_accounts(root: Fields, others: Sequence[User], warnings: list[str]) -> Accounts:
    """The block with its users, behind `others`, which are of no account of their own.

    Raises:
        ConfError: something of it is wrong, or names a user twice.
    """
    default = read_default_mappings(root, DEFAULT_ACCOUNT, warnings)
    value = root.take("accounts")
    if value is None:
        _check_once(others, root.value)
        return Accounts(tuple(others), (), (), AccountBook(default))
    named = root.inner(_by_name(value), "accounts")
    reader = AccountReader(warnings)
    users = list(others)
    limits: list[tuple[str, JetStreamLimits | None]] = []
    client_limits: list[tuple[str, ClientLimits]] = []
    for name, inner in named.items():
        if name == DEFAULT_ACCOUNT:
            raise inner.wrong(f"accounts.{name}: it is there by itself; its users are those of authorization")
        found = named.inner(inner, name)
        found.refuse(NO_JWT, "nkey")
        usual = read_permissions(found, "default_permissions")
        users += [_user(found.inner(user, "users"), name, usual) for user in found.listed("users")]
        limits.append((name, read_jetstream(found)))
        reader.add(name, inner, found, has_jetstream=limits[-1][1] is not None)
        client_limits.append((name, read_client_limits(found)))
        found.of_no_use("msg_trace", "trace_dest")
        found.done()
    _check_once(users, value)
    book = reader.book()
    if DEFAULT_ACCOUNT not in book.accounts:
        book = AccountBook([*default, *book.accounts.values()])
    return Accounts(tuple(users), tuple(limits), tuple(client_limits), book)


def _by_name(value: Value) -> Value:
    """The block as a map, also where it only lists the accounts' names.

    Raises:
        ConfError: something in the list is no name, or is there twice.
    """
    if not isinstance(value.data, list):
        return value
    named: dict[str, Value] = {}
    for one in value.data:
        if not isinstance(one.data, str) or one.data in named:
            raise one.wrong(f"accounts: {shown(one)} is no name of an account, or is named twice")
        named[one.data] = replace(one, data={})
    return replace(value, data=named)


def _check_once(users: Sequence[User], place: Value) -> None:
    """
    Raises:
        ConfError: two users have the same name or key; who comes by it would be one or the other.
    """
    seen: set[str] = set()
    for name in (user.user or user.nkey for user in users):
        if name and name in seen:
            raise place.wrong(f"user {name!r} is named twice; a user belongs to one account")
        seen.add(name)


def _user(found: Fields, account: str, usual: Permissions | None) -> User:
    permissions = read_permissions(found, "permissions", "permission", "authorization")
    nkey = _nkey(found)
    connection_types = _connection_types(found)
    name = found.text("user", "username")
    if bool(name) == bool(nkey):
        raise found.value.wrong("a user needs a name (user) or a public key (nkey), and not both")
    password = _password(found)
    if nkey and password:
        raise found.value.wrong("a user by nkey has no password")
    found.of_no_use("proxy_required", "account")
    found.done()
    return User(account, CLIENT, name, password, "", nkey, permissions or usual, connection_types)


def _connection_types(found: Fields) -> frozenset[str]:
    value = found.take("allowed_connection_types", "connection_types", "clients")
    if value is None:
        return frozenset()
    types = set()
    for one in value.data if isinstance(value.data, list) else [value]:
        types.add(str(text_of(one)).upper())
        if not types <= set(CONNECTION_TYPES):
            raise one.wrong(
                f"allowed_connection_types: {shown(one)} is none; {', '.join(CONNECTION_TYPES)} are"
            )
    return frozenset(types)


def _nkey(found: Fields) -> str:
    value = found.take("nkey")
    if value is None:
        return ""
    try:
        public_key(text_of(value) or "")
    except NkeyError as error:
        raise value.wrong(f"nkey {error}") from None
    return str(value.data)


def _password(found: Fields, *names: str) -> str:
    value = found.take(*(names or ("pass", "password")))
    if value is None:
        return ""
    text = text_of(value)
    if text is None:
        raise value.wrong(f"{(names or ('password',))[0]} has to be a text")
    try:
        check_hash(text)
    except PasswordError as error:
        raise value.wrong(f"{(names or ('password',))[0]} {error}") from None
    return text
