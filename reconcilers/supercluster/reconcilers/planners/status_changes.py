"""The urgency of a change of a status: at once, unless all of it is figures or varying messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum
from typing import Any

from supercluster.api.conditions import ConditionType

# Of a field: all of it, or so much of each of its entries. Parts of parts are named with a dot.
Parts = frozenset[str] | None


@dataclass(frozen=True, slots=True)
class StatusFields:
    """Fields of a kind's status on which no plan depends."""

    figures: Mapping[str, Parts] = field(default_factory=dict)
    """They follow the traffic: /metrics has them as they are now."""
    figures_kept: timedelta | None = None
    """How long they stand at least. None: as those of all kinds."""
    words: Mapping[str, Parts] = field(default_factory=dict)
    """People read them; several changes within seconds are written as one."""
    waiting: frozenset[str] = frozenset()
    """Phases in which the plan is made anew again and again, so that the messages repeat its figures."""


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


def weigh(fields: StatusFields, before: Mapping[str, Any], patch: Mapping[str, Any]) -> Weight:
    """`patch`: the JSON merge patch of the status."""
    waits = before.get("phase") in fields.waiting
    figures = {**fields.figures, "message": None} if waits else fields.figures
    words = {**fields.figures, **fields.words}
    silent, chatty = (_CHATTY_OF_WAITING, _CHATTY | _CHATTY_OF_WAITING) if waits else (frozenset(), _CHATTY)
    found = Weight.FIGURES
    for name, value in patch.items():
        old, new = before.get(name), merged(before.get(name), value)
        if _without(figures, silent, name, old) == _without(figures, silent, name, new):
            continue
        if _without(words, chatty, name, old) != _without(words, chatty, name, new):
            return Weight.STATE
        found = Weight.WORDS
    return found


def _without(table: Mapping[str, Parts], chatty: frozenset[ConditionType], name: str, value: Any) -> Any:
    """What is left of a field's value without what the table names, and without the messages of these conditions."""
    if name == "conditions":
        return [
            _less(entry, frozenset({"message"})) if entry.get("type") in chatty else entry
            for entry in value or ()
        ]
    if name not in table:
        return value
    parts = table[name]
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
