"""How soon a change of a status has to be written: at once, unless all of it is figures or words that only move.

Plans depend on none of the fields named here; a test holds the table against the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from supercluster.api.conditions import ConditionType

# Of a field: all of it, or so much of each of its entries.
_Parts = frozenset[str] | None

FIGURES: Mapping[tuple[str, str], _Parts] = {
    ("Stream", "messages"): None,
    ("Stream", "bytes"): None,
    ("Stream", "firstSequence"): None,
    ("Stream", "lastSequence"): None,
    ("Stream", "consumers"): None,
    ("Stream", "replicas"): frozenset({"lag"}),
    ("SuperCluster", "accounts"): frozenset({"streams", "storageBytes", "memoryBytes"}),
}
"""They follow the traffic: /metrics has them as they are now."""

WORDS: Mapping[tuple[str, str], _Parts] = {
    **FIGURES,
    ("Stream", "leader"): None,
    ("Stream", "replicas"): frozenset({"lag", "leader", "current", "offline"}),
    ("Stream", "readyReplicas"): None,
    ("StreamMove", "message"): None,
    ("StreamMove", "percent"): None,
    ("StreamMove", "progress"): frozenset({"bytesLeft", "lagEntries", "etaSeconds"}),
    ("SuperCluster", "otherMoves"): None,
}
"""People read them; several changes within seconds are written as one."""

# Their messages say how far something is, and no plan reads them.
_CHATTY = frozenset(
    {ConditionType.READY, ConditionType.SYNCED, ConditionType.PROGRESSING, ConditionType.COMPLETE}
)


class Weight(IntEnum):
    """What a change of a status is about, at most."""

    FIGURES = 0
    WORDS = 1
    STATE = 2


def weigh(kind: str, before: Mapping[str, Any], patch: Mapping[str, Any]) -> Weight:
    """`patch`: the JSON merge patch of the status."""
    found = Weight.FIGURES
    for field, value in patch.items():
        old, new = before.get(field), merged(before.get(field), value)
        if _without(FIGURES, kind, field, old) == _without(FIGURES, kind, field, new):
            continue
        if _without(WORDS, kind, field, old) != _without(WORDS, kind, field, new):
            return Weight.STATE
        found = Weight.WORDS
    return found


def _without(table: Mapping[tuple[str, str], _Parts], kind: str, field: str, value: Any) -> Any:
    """What is left of a field's value without what the table names."""
    if field == "conditions" and table is WORDS:
        return [
            _less(entry, frozenset({"message"})) if entry.get("type") in _CHATTY else entry
            for entry in value or ()
        ]
    if (kind, field) not in table:
        return value
    parts = table[kind, field]
    if parts is None:
        return None
    if isinstance(value, Mapping):
        return _less(value, parts)
    return [_less(entry, parts) for entry in value] if isinstance(value, list) else value


def _less(entry: Mapping[str, Any], parts: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in parts}


def merged(before: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, Mapping):
        return patch
    there = dict(before) if isinstance(before, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            there.pop(key, None)
        else:
            there[key] = merged(there.get(key), value)
    return there
