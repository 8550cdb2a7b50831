"""Names of groups over forced recoveries (SF-9): a stream's lineage is a part of its group's name.

Every frame between brokers names the group that it is about. So one of another lineage is about a group that the receiver
does not hold, whatever kind of frame it is.
"""

from __future__ import annotations

from collections.abc import Iterable

_MARK = "~"


def _split(group: str) -> tuple[str, int]:
    # The token that every group's name ends with has neither dots nor marks; a stream's own name may have a mark.
    base, _, number = group.rpartition(_MARK)
    return (base, int(number)) if base and number.isascii() and number.isdecimal() else (group, 0)


def lineage_of(group: str) -> int:
    """0 before the first forced recovery, and one more with each."""
    return _split(group)[1]


def next_lineage(group: str) -> str:
    """The group that follows this one by a forced recovery."""
    base, number = _split(group)
    return f"{base}{_MARK}{number + 1}"


def has_later(group: str, groups: Iterable[str]) -> bool:
    """Is there one of a later lineage of the stream among them?"""
    base, number = _split(group)
    prefix = base + _MARK
    return any(
        one.startswith(prefix) and _split(one)[0] == base and _split(one)[1] > number for one in groups
    )


def is_same_stream(group: str, other: str) -> bool:
    """Are they one stream's, of whatever lineages?"""
    return _split(group)[0] == _split(other)[0]
