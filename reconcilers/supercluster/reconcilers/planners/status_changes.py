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
    ("StreamMove", "plan"): frozenset(
        {
            *("plannedAt", "bytes", "messages", "estimatedSeconds", "headRoom", "disturbs", "refusal"),
            *("targets.reason", "rejected.reason"),
        }
    ),
}
"""They follow the traffic: /metrics has them as they are now. Parts of parts are named with a dot."""

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

# Phases of a StreamMove that waits for a person, a time or room. The plan is made anew meanwhile, and the messages repeat its figures.
WAITING = frozenset({"AwaitingApproval", "AwaitingWindow", "Planned", "Refused"})
_FIGURES_OF_WAITING: Mapping[tuple[str, str], _Parts] = {**FIGURES, ("StreamMove", "message"): None}

# Their messages say how far something is, and no plan reads them.
_CHATTY = frozenset(
    {
        *(ConditionType.READY, ConditionType.WHOLE, ConditionType.RECONCILING, ConditionType.STALLED),
        *(ConditionType.SYNCED, ConditionType.PROGRESSING, ConditionType.COMPLETE),
    }
)
_CHATTY_OF_WAITING = frozenset(
    {
        *(ConditionType.ACCEPTED, ConditionType.PROGRESSING, ConditionType.COMPLETE),
        *(ConditionType.RECONCILING, ConditionType.STALLED),
    }
)


class Weight(IntEnum):
    """What a change of a status is about, at most."""

    FIGURES = 0
    WORDS = 1
    STATE = 2


def weigh(kind: str, before: Mapping[str, Any], patch: Mapping[str, Any]) -> Weight:
    """`patch`: the JSON merge patch of the status."""
    waits = kind == "StreamMove" and before.get("phase") in WAITING
    figures = _FIGURES_OF_WAITING if waits else FIGURES
    silent, chatty = (_CHATTY_OF_WAITING, _CHATTY | _CHATTY_OF_WAITING) if waits else (frozenset(), _CHATTY)
    found = Weight.FIGURES
    for field, value in patch.items():
        old, new = before.get(field), merged(before.get(field), value)
        if _without(figures, silent, kind, field, old) == _without(figures, silent, kind, field, new):
            continue
        if _without(WORDS, chatty, kind, field, old) != _without(WORDS, chatty, kind, field, new):
            return Weight.STATE
        found = Weight.WORDS
    return found


def _without(
    table: Mapping[tuple[str, str], _Parts],
    chatty: frozenset[ConditionType],
    kind: str,
    field: str,
    value: Any,
) -> Any:
    """What is left of a field's value without what the table names, and without the messages of these conditions."""
    if field == "conditions":
        return [
            _less(entry, frozenset({"message"})) if entry.get("type") in chatty else entry
            for entry in value or ()
        ]
    if (kind, field) not in table:
        return value
    parts = table[kind, field]
    return None if parts is None else _less(value, parts)


def _less(value: Any, parts: frozenset[str]) -> Any:
    """An object, or each of a list of objects, without these parts."""
    if isinstance(value, list):
        return [_less(entry, parts) for entry in value]
    if not isinstance(value, Mapping):
        return value
    left = {}
    for key, part in value.items():
        if key not in parts:
            inner = frozenset(each[len(key) + 1 :] for each in parts if each.startswith(f"{key}."))
            left[key] = _less(part, inner) if inner else part
    return left


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
