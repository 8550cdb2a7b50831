"""Finds the differences between two copies of a range of sequences. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

from supercluster.spark.pipelines.digest import RowDigest, columns_of
from supercluster.spark.pipelines.read_task import Block
from supercluster.spark.wire import Record

RANGES_MAX = 1_000
"""Differences that a block names; the rest is only counted."""
ONLY_HERE, ONLY_THERE = "only here", "only there"
NAMES = ("sequence", "time", "subject", "headers", "payload")


@dataclass(frozen=True, slots=True)
class Difference:
    """Adjacent messages that differ in the same way; sequences first … last, of which `count` exist."""

    kind: str
    first: int
    last: int
    count: int


@dataclass(slots=True)
class Comparison:
    """A block on both sides."""

    block: Block
    rows_here: int = 0
    rows_there: int = 0
    digest_here: str = ""
    digest_there: str = ""
    differences: list[Difference] = field(default_factory=list)
    unnamed: int = 0
    """Messages that differ beyond RANGES_MAX."""

    def note(self, kind: str, sequence: int, *, is_adjacent: bool) -> None:
        found = self.differences
        if is_adjacent and found and found[-1].kind == kind:
            found[-1] = replace(found[-1], last=sequence, count=found[-1].count + 1)
        elif len(found) < RANGES_MAX:
            found.append(Difference(kind, sequence, sequence, 1))
        else:
            self.unnamed += 1


def compare(
    block: Block, here: Iterable[list[Record]], there: Iterable[list[Record]], *, with_times: bool
) -> Comparison:
    """Compare messages by their sequences."""
    found = Comparison(block)
    digests = RowDigest(), RowDigest()
    is_adjacent = False
    for left, right in joined(chain.from_iterable(here), chain.from_iterable(there)):
        kind = ONLY_THERE if left is None else ONLY_HERE if right is None else ""
        shown = []
        for record, digest in zip((left, right), digests, strict=True):
            if record is not None:
                sequence, time_us, *rest = columns_of(record)
                shown.append((sequence, time_us if with_times else 0, *rest))
                digest.add(*shown[-1])
        found.rows_here += left is not None
        found.rows_there += right is not None
        if not kind and shown[0] != shown[1]:
            wrong = [name for name, one, other in zip(NAMES, *shown, strict=True) if one != other]
            kind = f"different {', '.join(wrong)}"
        if kind:
            found.note(kind, shown[0][0], is_adjacent=is_adjacent)
        is_adjacent = bool(kind)
    found.digest_here, found.digest_there = (each.value() for each in digests)
    return found


def joined(here: Iterator[Record], there: Iterator[Record]) -> Iterator[tuple[Record | None, Record | None]]:
    """Messages of both sides side by side, in the order of their sequences."""
    left, right = next(here, None), next(there, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left[0] < right[0]):
            yield left, None
            left = next(here, None)
        elif left is None or right[0] < left[0]:
            yield None, right
            right = next(there, None)
        else:
            yield left, right
            left, right = next(here, None), next(there, None)
