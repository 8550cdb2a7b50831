"""Names of groups across forced recoveries (SF-9): a group's lineage is part of its name.

Every frame between brokers names its group. So a frame of another lineage concerns a group that the receiver
does not hold, whatever kind of frame it is.

The map counts the lineages of a stream, `…~2`; in a map that was recovered itself a token makes them unique,
`…~2-1f3a`. The map's own lineages are named by the path of its recoveries, `meta~1f3a~77b0`: nothing above
the map could count them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

META_GROUP = "meta"
"""The meta group's name before any recovery."""
# Recoveries of the map one behind the other.
META_LINEAGES_MAX = 16

_MARK = "~"
_NUMBER = re.compile("([0-9]+)(?:-[0-9a-f]+)?", re.ASCII)


def _split(group: str) -> tuple[str, int]:
    # The token that every group's name ends with has neither dots nor marks; a stream's own name may have a mark.
    base, _, suffix = group.rpartition(_MARK)
    found = _NUMBER.fullmatch(suffix) if base else None
    return (base, int(found[1])) if found else (group, 0)


def lineage_of(group: str) -> int:
    """0 before the first forced recovery, and one more with each."""
    return group.count(_MARK) if is_meta(group) else _split(group)[1]


def next_lineage(group: str, token: str = "") -> str:
    """The group that follows this one of a stream by a forced recovery."""
    base, number = _split(group)
    return f"{base}{_MARK}{number + 1}{'-' if token else ''}{token}"


def has_later(group: str, groups: Iterable[str]) -> bool:
    """Is there one of a later lineage of the stream among them?"""
    base, number = _split(group)
    prefix = base + _MARK
    return any(
        one.startswith(prefix) and _split(one)[0] == base and _split(one)[1] > number for one in groups
    )


def base_of(group: str) -> str:
    """The stream's group before any forced recovery."""
    return _split(group)[0]


def is_same_stream(group: str, other: str) -> bool:
    """Are they one stream's, of whatever lineages?"""
    return _split(group)[0] == _split(other)[0]


# ---- the map's own ---------------------------------------------------------------------------------------------------


def is_meta(group: str) -> bool:
    """Is it the meta group, of whatever lineage? (Streams' groups begin with `S.`.)"""
    return group == META_GROUP or group.startswith(META_GROUP + _MARK)


def next_meta(group: str, token: str) -> str:
    """The lineage that follows this one."""
    return f"{group}{_MARK}{token}"


def follows(group: str, other: str) -> bool:
    """Did the other lineage of the map lead to this one, by one recovery or more?"""
    return group.startswith(other + _MARK)
