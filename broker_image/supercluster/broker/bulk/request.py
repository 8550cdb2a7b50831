"""A request of the bulk port: its parameters, and whether its user may read the stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from supercluster.broker.auth.users import User
from supercluster.broker.bounds import U64_MAX
from supercluster.broker.bulk.layout import COLUMNS
from supercluster.broker.protocol.permission_gate import PermissionGate

RIGHT = "$JS.API.STREAM.MSG.GET."
"""Who may publish this with a stream's name may see every message of it."""
APPEND_RIGHT = "$JS.API.SINK.STAGE."
"""Who may publish this with a stream's name may stage rows for it."""


class WrongParameterError(ValueError):
    """The text names it."""


@dataclass(frozen=True, slots=True)
class Asked:
    first: int
    last: int
    columns: tuple[str, ...]
    lineage: str
    """Empty: whichever."""


def asked_by(query: Mapping[str, str]) -> Asked:
    """Raises WrongParameterError."""
    for name in query:
        if name not in ("first", "last", "columns", "lineage"):
            raise WrongParameterError(f"{name} is no parameter; first, last, columns and lineage are")
    columns = tuple(query.get("columns", ",".join(COLUMNS)).split(","))
    if not set(columns) <= set(COLUMNS) or len(set(columns)) < len(columns):
        raise WrongParameterError(f"columns has to be some of {', '.join(COLUMNS)}, each once")
    first, last = _sequence(query, "first", 1), _sequence(query, "last", U64_MAX)
    if last < first:
        raise WrongParameterError(f"last is {last}, before first, which is {first}")
    return Asked(first, last, columns, query.get("lineage", ""))


def _sequence(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and 0 < int(text) <= U64_MAX):
        raise WrongParameterError(f"{name} has to be a sequence, from 1 to {U64_MAX}")
    return int(text)


def may_read(user: User | None, stream: str) -> bool:
    """May it see every message? Without users everybody may."""
    return _may(user, RIGHT + stream)


def may_append(user: User | None, stream: str) -> bool:
    """May it stage rows? Without users everybody may."""
    return _may(user, APPEND_RIGHT + stream)


def _may(user: User | None, call: str) -> bool:
    if user is None or user.permissions is None:
        return True
    return PermissionGate(user.permissions, lambda: 0).may_publish(call.encode())
