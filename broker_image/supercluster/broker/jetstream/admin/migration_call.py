"""The bodies of a migration's calls, parsed as untrusted input."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from supercluster.broker.bounds import I64_MAX
from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.meta.accounts import NAME as ACCOUNT_NAME
from supercluster.broker.jetstream.meta.migration import Green, Migration
from supercluster.broker.migration.worlds import world_id

ID = re.compile(r"[A-Za-z0-9./-]{1,400}")
IDENTITY_CHARACTERS_MAX = 256
ADDRESSES_MAX = 64
ADDRESS = re.compile(r"[^\s/]{1,255}:[0-9]{1,5}")
CLUSTERS_MAX = 64
CLUSTER = re.compile(r"[^\s.*>/\\]{1,255}")
_FIELDS = frozenset({"id", "account", "cannotFollow", "clusters", "green"})
_TAKE_BACK_FIELDS = frozenset({"account", "stream", "attempt", "acceptLoss"})
_GREEN_FIELDS = frozenset({"identity", "name", "addresses", "tlsName"})


def read_id(migration_id: object) -> str:
    """
    Raises:
        ApiError: it is none.
    """
    if not isinstance(migration_id, str) or not ID.fullmatch(migration_id):
        raise errors.error(
            10052,
            f"id is {str(migration_id)[:100]!r}; it has to be 1 to 400 letters, digits, dots, dashes and slashes",
        )
    return migration_id


def read_start(body: object) -> Migration:
    """
    Raises:
        ApiError: naming the field, its value and what would be right.
    """
    told = _object(body, "the body", _FIELDS)
    account, follows = told.get("account", ""), told.get("cannotFollow", "refuse")
    if not isinstance(account, str) or (account and not ACCOUNT_NAME.fullmatch(account)):
        raise errors.error(
            10052, f"account is {str(account)[:100]!r}; it has to be the name of an account, or empty for all"
        )
    if follows not in ("refuse", "bridge"):
        raise errors.error(10052, f"cannotFollow is {str(follows)[:100]!r}; it has to be refuse or bridge")
    green = _read_green(told.get("green"))
    return Migration(
        read_id(told.get("id")),
        green,
        world_id(green.identity),
        account,
        _read_clusters(told.get("clusters", {})),
        bridges=follows == "bridge",
    )


@dataclass(frozen=True, slots=True)
class TakeBack:
    """A stream that blue takes for itself again though green has not said what became of it."""

    account: str
    stream: str
    attempt: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_take_back(body: object) -> TakeBack:
    """
    Raises:
        ApiError: naming the field, its value and what would be right.
    """
    told = _object(body, "the body", _TAKE_BACK_FIELDS)
    account, stream, attempt = told.get("account"), told.get("stream"), told.get("attempt")
    for name, value in (("account", account), ("stream", stream)):
        if not isinstance(value, str) or not value:
            raise errors.error(10052, f"{name} is {str(value)[:100]!r}; it has to be the name of the {name}")
    if type(attempt) is not int or not 1 <= attempt <= I64_MAX:
        raise errors.error(
            10052,
            f"attempt is {str(attempt)[:100]!r}; it has to be the stream's attempt as its state shows it",
        )
    if told.get("acceptLoss") is not True:
        raise errors.error(
            10052,
            f"acceptLoss is {str(told.get('acceptLoss'))[:100]!r}; it has to be true: what green has taken of the stream is not here",
        )
    return TakeBack(str(account), str(stream), attempt)


def _read_clusters(body: object) -> tuple[tuple[str, str], ...]:
    """By blue's names, so that a repeated call says the same."""
    found = list(body.items()) if isinstance(body, Mapping) else []
    names = [name for pair in found for name in pair]
    is_wrong = any(not isinstance(name, str) or not CLUSTER.fullmatch(name) for name in names)
    if not isinstance(body, Mapping) or len(found) > CLUSTERS_MAX or is_wrong:
        raise errors.error(
            10052,
            f"clusters is {str(body)[:200]}; it has to be an object with at most {CLUSTERS_MAX} names of blue's clusters, each with the name of "
            "a cluster of green",
        )
    return tuple(sorted(found))


def _read_green(body: object) -> Green:
    told = _object(body, "green", _GREEN_FIELDS)
    identity, name, tls_name = _text(told, "identity"), _text(told, "name"), _text(told, "tlsName")
    if not identity:
        raise errors.error(10052, "green.identity is missing; it has to be green's identity")
    addresses = told.get("addresses")
    is_list = isinstance(addresses, list) and 1 <= len(addresses) <= ADDRESSES_MAX
    if not is_list or not all(isinstance(one, str) and ADDRESS.fullmatch(one) for one in addresses or ()):
        raise errors.error(
            10052,
            f"green.addresses is {str(addresses)[:200]}; it has to be a list of 1 to {ADDRESSES_MAX} texts host:port",
        )
    return Green(identity, name, tuple(addresses or ()), tls_name)


def _text(told: Mapping[str, Any], name: str) -> str:
    value = told.get(name, "")
    if not isinstance(value, str) or len(value) > IDENTITY_CHARACTERS_MAX:
        raise errors.error(
            10052,
            f"green.{name} is {str(value)[:100]!r}; it has to be a text of at most {IDENTITY_CHARACTERS_MAX} characters",
        )
    return value


def _object(body: object, what: str, fields: frozenset[str]) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        raise errors.error(10052, f"{what} has to be an object with {', '.join(sorted(fields))}")
    unknown = sorted(map(str, body.keys() - fields))
    if unknown:
        raise errors.error(
            10052, f"{unknown[0]} is no known field of {what}; known are {', '.join(sorted(fields))}"
        )
    return body
