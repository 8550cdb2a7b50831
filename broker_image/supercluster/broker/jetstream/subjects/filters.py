"""Subject filters: their validity, the subjects that they match, and the relation of two filters.

A filter is compiled once to a predicate over subjects as bytes, as they are stored; compiled ones are kept
for the filters in use. Wildcards are NATS's: `*` stands for one token, a last `>` for one or more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from supercluster.broker.bounds import PATTERN_CHARS_MAX
from supercluster.broker.jetstream.subjects.capture import CaptureMap

# All consumers of a stream are begun at once with its leader, and each compiles its filters some times.
_COMPILED_MAX = 4096
_FILTERS_KEPT = 4
_EXPRESSION_CHARS_MAX = 2048
"""A regular expression of more takes long to compile (10 µs a token), and a tree hardly longer to ask."""
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f]")

Predicate = Callable[[bytes], bool]


def is_valid_filter(subject: str) -> bool:
    """Is this a subject that a stream may capture or a consumer may filter by (wildcards allowed)?"""
    if not subject or len(subject) > PATTERN_CHARS_MAX or _UNPRINTABLE.search(subject):
        return False
    tokens = subject.split(".")
    return all(tokens) and ">" not in tokens[:-1]


def is_literal(subject: str) -> bool:
    """True when no token is a wildcard."""
    return not any(token in ("*", ">") for token in subject.split("."))


def overlaps(one: str, other: str) -> bool:
    """Is there a subject that both match?"""
    left, right = one.split("."), other.split(".")
    for a, b in zip(left, right, strict=False):
        if a == ">" or b == ">":
            return True
        if a != b and a != "*" and b != "*":
            return False
    return len(left) == len(right)


def shared(one: str, other: str) -> str | None:
    """The pattern of all subjects that both match; None: there are none."""
    left, right = one.split("."), other.split(".")
    found: list[str] = []
    for position in range(max(len(left), len(right))):
        if position >= len(left) or position >= len(right):
            return None
        a, b = left[position], right[position]
        if a == ">" or b == ">":
            return ".".join(found + (right if a == ">" else left)[position:])
        if a != b and a != "*" and b != "*":
            return None
        found.append(b if a == "*" else a)
    return ".".join(found)


def is_subset(narrow: str, wide: str) -> bool:
    """Does `wide` match everything that `narrow` matches?"""
    inner, outer = narrow.split("."), wide.split(".")
    for position, token in enumerate(outer):
        if token == ">":
            return len(inner) > position
        if position >= len(inner) or inner[position] == ">":
            return False
        if token != "*" and token != inner[position]:
            return False
    return len(inner) == len(outer)


def literals(filters: Sequence[str]) -> list[bytes] | None:
    """The filters as plain subjects, None when one of them has a wildcard."""
    if any(not is_literal(item) for item in filters):
        return None
    return [item.encode() for item in filters]


def compile_filters(filters: Sequence[str]) -> Predicate | None:
    """A predicate over subjects; None when everything matches (no filter, or `>`)."""
    return _kept(tuple(filters)) if len(filters) <= _FILTERS_KEPT else _compiled(filters)


def _compiled(filters: Sequence[str]) -> Predicate | None:
    if not filters or ">" in filters:
        return None
    plain = literals(filters)
    if plain is not None:
        if len(plain) == 1:
            return plain[0].__eq__
        return frozenset(plain).__contains__
    if sum(map(len, filters)) > _EXPRESSION_CHARS_MAX:
        tree = CaptureMap()
        for item in filters:
            tree.add(item.encode(), item)
        return lambda subject: bool(tree.find(subject))
    pattern = re.compile(b"|".join(b"(?:" + _expression(item) + b")" for item in filters))
    fullmatch = pattern.fullmatch
    return lambda subject: fullmatch(subject) is not None


_kept = lru_cache(_COMPILED_MAX)(_compiled)


def _expression(item: str) -> bytes:
    tokens = item.encode().split(b".")
    parts = [b"[^.]+" if token == b"*" else re.escape(token) for token in tokens]
    if tokens[-1] == b">":
        parts[-1] = b"(?s:.+)"
    return rb"\.".join(parts)
