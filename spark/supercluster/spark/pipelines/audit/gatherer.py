"""A task's report to the audit on a block of sequences: consecutive numbers become one segment. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from supercluster.spark.pipelines.fields import FieldSource, values_of
from supercluster.spark.wire import Record

DIGITS_MAX = 20
"""Of a number without zeros before it; 64 bits have no more."""
TEXT_MAX = 4096
"""With such zeros. Python reads no more than 4,300 digits."""
Key = tuple[str, str]
"""(publisher, run)."""


class Segment(NamedTuple):
    """Consecutive numbers of a run that are stored in their order, with other runs' messages in between."""

    first: int
    last: int
    first_sequence: int
    last_sequence: int
    first_time_ns: int
    first_missing: int
    """Sequences of the block that do not exist, below first_sequence."""
    last_missing: int
    """… and below last_sequence."""


@dataclass(slots=True)
class BlockFacts:
    """A block's segments in the order in which they begin, and what it lacks."""

    segments: list[tuple[Key, Segment]] = field(default_factory=list)
    messages: int = 0
    missing: int = 0
    """Sequences of the block that do not exist."""
    expired: int = 0
    """Those of them that lie before the stream's first sequence."""
    unreadable: int = 0
    """Messages without the fields that were asked for."""
    unreadable_first: int = 0
    unreadable_last: int = 0
    last_time_ns: int = 0


class Gatherer:
    """Makes a block's facts of its messages."""

    def __init__(
        self, first: int, sources: tuple[FieldSource | None, FieldSource | None, FieldSource]
    ) -> None:
        self._next = first
        self._sources = sources
        self._facts = BlockFacts()
        self._open: dict[Key, int] = {}
        # Where sequences are missing: the sequence behind each hole, and how many are missing below it.
        self._behind: list[int] = []
        self._missing: list[int] = []

    def take(self, records: Iterable[Record]) -> None:
        facts = self._facts
        for record in records:
            sequence = record[0]
            self._skip_to(sequence)
            self._next = sequence + 1
            facts.messages += 1
            facts.last_time_ns = max(facts.last_time_ns, record[1])
            publisher, run, number = values_of(self._sources, record)
            if publisher is None or run is None or number is None or not _is_whole(number):
                facts.unreadable += 1
                facts.unreadable_first = facts.unreadable_first or sequence
                facts.unreadable_last = sequence
            else:
                self._place((publisher, run), int(number), sequence, record[1])

    def _skip_to(self, sequence: int) -> None:
        if sequence > self._next:
            self._facts.missing += sequence - self._next
            self._behind.append(sequence)
            self._missing.append(self._facts.missing)

    def _place(self, key: Key, number: int, sequence: int, time_ns: int) -> None:
        facts = self._facts
        at = self._open.get(key)
        if at is not None:
            segment = facts.segments[at][1]
            if number == segment.last + 1:
                longer = segment._replace(last=number, last_sequence=sequence, last_missing=facts.missing)
                facts.segments[at] = (key, longer)
                return
        self._open[key] = len(facts.segments)
        missing = facts.missing
        facts.segments.append((key, Segment(number, number, sequence, sequence, time_ns, missing, missing)))

    def finish(self, last: int, begins_at: int) -> BlockFacts:
        """The facts, when the block was read to its `last` sequence and the stream begins at `begins_at` now."""
        self._skip_to(last + 1)
        at = bisect_left(self._behind, min(begins_at, last + 1))
        if at < len(self._behind):
            before = self._missing[at - 1] if at else 0
            hole_begins = self._behind[at] - (self._missing[at] - before)
            self._facts.expired = before + max(0, min(begins_at, last + 1) - hole_begins)
        else:
            self._facts.expired = self._facts.missing
        return self._facts


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text.lstrip("0")) <= DIGITS_MAX and len(text) <= TEXT_MAX
