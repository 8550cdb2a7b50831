"""The subjects that two patterns share: the brokers refuse overlapping streams without naming the other one."""

from __future__ import annotations

from collections.abc import Iterable


def overlap(one: str, other: str) -> bool:
    """Is there a subject that both patterns match?

    Example: overlap("flights.EWR.*", "flights.>") is True
    """
    ours, theirs = one.split("."), other.split(".")
    for mine, yours in zip(ours, theirs, strict=False):
        if ">" in (mine, yours):
            return True
        if mine != yours and "*" not in (mine, yours):
            return False
    # A ">" needs at least one more token than stands before it, so the lengths decide.
    return len(ours) == len(theirs)


def first_overlap(ours: Iterable[str], theirs: Iterable[str]) -> tuple[str, str] | None:
    """The first pair that overlaps, ours first."""
    others = tuple(theirs)
    return next(((mine, yours) for mine in ours for yours in others if overlap(mine, yours)), None)
