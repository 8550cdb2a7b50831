"""Reads `users.json`: users, and the imports and exports of accounts.

An error names the field and the values that would be right, and never contains a secret.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from supercluster.broker.auth import passwords
from supercluster.broker.auth.nkeys import NkeyError, public_key
from supercluster.broker.auth.passwords import PasswordError
from supercluster.broker.auth.users import (
    NO_CLIENT_LIMITS,
    ROLES,
    SYSTEM_ACCOUNT,
    ClientLimits,
    CredentialsError,
    User,
)
from supercluster.broker.bounds import TEXT_BYTES_MAX
from supercluster.broker.protocol.durations import parse_duration_ns
from supercluster.broker.protocol.imports import AccountBook, WrongImportError
from supercluster.broker.protocol.imports_file import KEYS, read_account
from supercluster.broker.protocol.permissions import (
    PATTERNS_MAX,
    RESPONSE_TTL_DEFAULT_MS,
    RESPONSES_DEFAULT,
    Permissions,
    Responses,
    Rules,
    is_pattern,
)

LABEL_CHARS_MAX = 64
"""Of the label that tells credentials of one user apart: the uid of a resource and a number have room."""

_LABEL = re.compile(r"[A-Za-z0-9.-]*")
_TEXTS = ("user", "password", "token", "nkey", "account", "role", "credential")
_KNOWN = (*_TEXTS, "permissions", "limits")
_LIMITS = {
    "connectionsMax": "connections_max",
    "subscriptionsMax": "subscriptions_max",
    "payloadBytesMax": "payload_bytes_max",
}
_NUMBER_MAX = 2**63 - 1


def parse_accounts(document: Mapping[str, Any]) -> AccountBook:
    """`{"accounts": {"A": {"exports": […], "imports": […], "mappings": {…}}}}`, worded as nats-server's configuration."""
    told = document.get("accounts", {})
    if not isinstance(told, dict):
        raise CredentialsError("accounts has to be an object of accounts by name")
    for name, entry in told.items():
        if not isinstance(entry, dict) or set(entry) - {*KEYS, "jetstream"}:
            raise CredentialsError(
                f"accounts.{name} has to be an object with any of jetstream, {', '.join(KEYS)}"
            )
        if type(entry.get("jetstream", True)) is not bool:
            raise CredentialsError(f"accounts.{name}.jetstream has to be true or false")
    try:
        return AccountBook(
            read_account(name, entry, parse_duration_ns, has_jetstream=entry.get("jetstream", True))
            for name, entry in told.items()
        )
    except WrongImportError as error:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.path)
        raise CredentialsError(f"accounts{where}: {error}") from None


def parse_users(document: object) -> tuple[User, ...]:
    entries = document.get("users") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise CredentialsError('has to be {"users": [...]}')
    users: list[User] = []
    for index, entry in enumerate(entries):
        where = f"users[{index}]"
        if not isinstance(entry, dict):
            raise CredentialsError(f"{where} has to be an object")
        values = {name: entry.get(name, "") for name in _TEXTS}
        for name, value in values.items():
            if not isinstance(value, str):
                raise CredentialsError(f"{where}.{name} has to be a text")
            if len(value.encode()) > TEXT_BYTES_MAX:
                raise CredentialsError(f"{where}.{name} has more than {TEXT_BYTES_MAX} bytes")
        if unknown := sorted(set(entry) - set(_KNOWN)):
            raise CredentialsError(f"{where}.{unknown[0]} is no known field; known are {', '.join(_KNOWN)}")
        permissions = _permissions(f"{where}.permissions", entry.get("permissions"))
        limits = _limits(f"{where}.limits", entry.get("limits"))
        _check_user(where, values)
        values["role"] = values["role"] or "client"
        if values["role"] not in ROLES:
            raise CredentialsError(f"{where}.role has to be one of {', '.join(ROLES)}")
        default = SYSTEM_ACCOUNT if values["role"] == "system" else "$G"
        values["account"] = values["account"] or default
        if values["account"].startswith(" "):
            raise CredentialsError(f"{where}.account is {values['account']!r}; it cannot begin with a space")
        if limits != NO_CLIENT_LIMITS and values["token"]:
            raise CredentialsError(f"{where} has token and limits; only those by user or nkey are counted")
        users.append(User(**values, permissions=permissions, limits=limits, digest=_digest(entry)))
    return tuple(users)


def _check_user(where: str, values: Mapping[str, str]) -> None:
    if sum(bool(values[name]) for name in ("user", "token", "nkey")) != 1:
        raise CredentialsError(f"{where} needs one of user (with password), token and nkey")
    label = values["credential"]
    if len(label) > LABEL_CHARS_MAX or _LABEL.fullmatch(label) is None:
        # It is not shown: it may be a password in the wrong place.
        raise CredentialsError(
            f"{where}.credential has to have at most {LABEL_CHARS_MAX} letters, digits, dots and dashes"
        )
    for name in ("password", "token"):
        try:
            passwords.check_hash(values[name])
        except PasswordError as error:
            raise CredentialsError(f"{where}.{name} {error}") from None
    if values["nkey"]:
        try:
            public_key(values["nkey"])
        except NkeyError as error:
            raise CredentialsError(f"{where}.nkey {error}") from None
        if values["password"]:
            raise CredentialsError(f"{where} has nkey and password; only one of them may be")


def _limits(where: str, value: object) -> ClientLimits:
    """`{"connectionsMax": 10, "subscriptionsMax": 100, "payloadBytesMax": 65536}`; what is not there has no limit."""
    if value is None:
        return NO_CLIENT_LIMITS
    if not isinstance(value, dict):
        raise CredentialsError(f"{where} has to be an object with any of {', '.join(_LIMITS)}")
    if unknown := sorted(set(value) - set(_LIMITS)):
        raise CredentialsError(f"{where}.{unknown[0]} is no known field; known are {', '.join(_LIMITS)}")
    for name, number in value.items():
        if type(number) is not int or not 0 <= number <= _NUMBER_MAX:
            raise CredentialsError(
                f"{where}.{name} is {str(number)[:100]}; it has to be a whole number from 0"
            )
    return ClientLimits(**{_LIMITS[name]: number for name, number in value.items()})


def _permissions(where: str, value: object) -> Permissions | None:
    """`{"publish": {"allow": […], "deny": […]}, "subscribe": {…}, "responses": {"max": 1, "ttlMs": 120000}}`."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise CredentialsError(f"{where} has to be an object")
    if unknown := sorted(set(value) - {"publish", "subscribe", "responses"}):
        raise CredentialsError(
            f"{where}.{unknown[0]} is no known field; known are publish, subscribe, responses"
        )
    publish = _rules(f"{where}.publish", value.get("publish"), with_queues=False)
    subscribe = _rules(f"{where}.subscribe", value.get("subscribe"), with_queues=True)
    responses: Responses | None = None
    if (told := value.get("responses")) is not None:
        if not isinstance(told, dict) or set(told) - {"max", "ttlMs"}:
            raise CredentialsError(f"{where}.responses has to be an object with max and ttlMs")
        numbers = told.get("max", RESPONSES_DEFAULT), told.get("ttlMs", RESPONSE_TTL_DEFAULT_MS)
        if any(type(number) is not int or number < 0 for number in numbers):
            raise CredentialsError(f"{where}.responses: max and ttlMs have to be whole numbers from 0")
        responses = Responses(*numbers)
        if publish.allow is None:
            publish = replace(
                publish, allow=()
            )  # Who answers may do that, and nothing else that is not named.
    return Permissions(publish, subscribe, responses)


def _rules(where: str, value: object, *, with_queues: bool) -> Rules:
    if value is None:
        return Rules()
    if not isinstance(value, dict) or set(value) - {"allow", "deny"}:
        raise CredentialsError(f"{where} has to be an object with allow and deny")
    lists: dict[str, tuple[bytes, ...] | None] = {}
    for name in ("allow", "deny"):
        told = value.get(name)
        if told is not None and (not isinstance(told, list) or len(told) > PATTERNS_MAX):
            raise CredentialsError(f"{where}.{name} has to be a list of at most {PATTERNS_MAX} subjects")
        for pattern in told or ():
            if not is_pattern(pattern, with_queue=with_queues):
                raise CredentialsError(f"{where}.{name}: {pattern!r} is no subject")
        lists[name] = tuple(pattern.encode() for pattern in told) if told is not None else None
    return Rules(lists["allow"], lists["deny"] or ())


def _digest(entry: dict[str, Any]) -> str:
    """The first 16 hex digits of the SHA-256 of the entry as JSON with sorted keys and no spaces."""
    text = json.dumps(entry, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
