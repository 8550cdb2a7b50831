"""Which sequences a batch has, and how they are shared among tasks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SEQUENCES_PER_PARTITION_MIN = 5_000
"""Below this a task costs more than it reads."""


class StreamReplacedError(Exception):
    """The stream that the offsets belong to was deleted and made again."""

    def __init__(self, stream: str, then: str, now: str) -> None:
        super().__init__(
            f"stream {stream!r} is not the one that this query has read: it was deleted and created again, or "
            f"recovered by force from one copy (lineage {then} then, {now} now). Its sequences mean other messages. Start the query with a new"
            " checkpoint location to read the new stream from its beginning."
        )


class OtherCheckpointError(Exception):
    """The offsets belong to a query of another stream."""

    def __init__(self, then: str, now: str) -> None:
        super().__init__(
            f"the checkpoint is of a query that reads stream {then!r}, and this one reads {now!r}; name another checkpoint location for it"
        )


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in a stream: everything below `next_sequence` was read."""

    stream: str
    lineage: str
    next_sequence: int

    def to_json(self) -> dict[str, Any]:
        return {"stream": self.stream, "lineage": self.lineage, "next": self.next_sequence}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Offset:
        """Raises ValueError when it is no offset of ours."""
        try:
            return cls(str(value["stream"]), str(value["lineage"]), int(value["next"]))
        except (KeyError, TypeError, ValueError):
            raise ValueError(
                f"{value!r} is no offset of a supercluster source (stream, lineage, next)"
            ) from None

    def check(self, *, stream: str, lineage: str) -> None:
        """
        Raises:
            OtherCheckpointError: the offset is of another stream.
            StreamReplacedError: the stream has another life than the one the offset was made in.
        """
        if self.stream != stream:
            raise OtherCheckpointError(self.stream, stream)
        if self.lineage != lineage:
            raise StreamReplacedError(self.stream, self.lineage, lineage)


def split_range(
    first: int, last: int, partitions: int, *, least: int = SEQUENCES_PER_PARTITION_MIN
) -> list[tuple[int, int]]:
    """Share the sequences first … last (inclusive) among at most `partitions` ranges of nearly equal length, none shorter than
    `least` if there are several.

    Example: split_range(1, 10_000, 4) == [(1, 5_000), (5_001, 10_000)]
    """
    count = last - first + 1
    if count <= 0:
        return []
    parts = max(1, min(partitions, count // least))
    edges = [first + count * part // parts for part in range(parts + 1)]
    return [(edges[part], edges[part + 1] - 1) for part in range(parts)]


def admit(start: int, available_end: int, target_end: int | None, limit_messages: int | None) -> int:
    """Where the next micro-batch ends (exclusive): not beyond what there is, nor beyond the target of an AvailableNow
    query, nor with more sequences than the limit; never before its start."""
    end = available_end if target_end is None else min(available_end, target_end)
    if limit_messages is not None:
        end = min(end, start + limit_messages)
    return max(start, end)
