"""The position of a query in its streams, the sequences of a batch, and their division among tasks. Pure.

Limits apply to all streams together, and each stream with messages advances with each batch. A stream that
joins a query begins at its first message. Its offset records that position (`first`), so that a repeated
batch has the same rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from supercluster.spark.jetstream import DataRemovedError, StreamCutOffError, StreamState

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
            f"the checkpoint is of a query that reads stream {then!r}, and this one reads {now}; name another checkpoint location for it"
        )


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in a stream: everything below `next_sequence` was read."""

    stream: str
    lineage: str
    next_sequence: int
    first: int | None = None
    """Where the query began with a stream that joined it."""

    def to_json(self) -> dict[str, Any]:
        joined = {} if self.first is None else {"first": self.first}
        return {"stream": self.stream, "lineage": self.lineage, "next": self.next_sequence, **joined}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Offset:
        """Raises ValueError when it is no offset of ours."""
        try:
            first = value.get("first")
            return cls(
                str(value["stream"]),
                str(value["lineage"]),
                int(value["next"]),
                None if first is None else int(first),
            )
        except (AttributeError, KeyError, TypeError, ValueError):
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
            raise OtherCheckpointError(self.stream, repr(stream))
        if self.lineage != lineage:
            raise StreamReplacedError(self.stream, self.lineage, lineage)


Offsets = Mapping[str, Offset]
"""By streams."""


def offsets_to_json(offsets: Offsets) -> dict[str, Any]:
    """Of one stream in the form that a query of one stream always had."""
    found = [offsets[name].to_json() for name in sorted(offsets)]
    return found[0] if len(found) == 1 else {"streams": found}


def offsets_from_json(value: dict[str, Any]) -> dict[str, Offset]:
    """Raises ValueError when they are no offsets of ours."""
    is_list = isinstance(value, dict) and isinstance(value.get("streams"), list)
    found = [Offset.from_json(each) for each in (value["streams"] if is_list else [value])]
    return {each.stream: each for each in found}


def begin_of_batch(
    start: Offsets, states: Mapping[str, StreamState], *, fail_on_data_loss: bool, forgets: bool
) -> dict[str, Offset]:
    """Where each stream that is there goes on. One that is not in `start` begins at its first message.

    Args:
        forgets: a stream that is gone, or was made again, does not stop the query; the new one joins.

    Raises:
        StreamReplacedError: a stream has another life.
        StreamCutOffError: a stream ends before what was read of it. What it gets next would be taken for read.
        DataRemovedError: a stream begins behind what was to be read next (`fail_on_data_loss`).
    """
    found = {}
    for name, state in states.items():
        offset = start.get(name)
        if offset is None or (forgets and offset.lineage != state.lineage):
            found[name] = Offset(name, state.lineage, state.first_sequence, state.first_sequence)
            continue
        offset.check(stream=name, lineage=state.lineage)
        if state.last_sequence + 1 < offset.next_sequence:
            raise StreamCutOffError(name, offset.next_sequence - 1, state.last_sequence)
        _check_head(name, offset.next_sequence, state, fail_on_data_loss=fail_on_data_loss)
        found[name] = offset
    return found


def unread(begin: Offsets, states: Mapping[str, StreamState]) -> dict[str, int]:
    """How many sequences each stream has that are to be read. What was removed before it could be read costs no batches."""
    return {
        name: max(0, states[name].last_sequence + 1 - _low(offset, states[name]))
        for name, offset in begin.items()
    }


def end_of_batch(
    begin: Offsets,
    states: Mapping[str, StreamState],
    *,
    target: Mapping[str, int] | None,
    limit: int | None,
) -> dict[str, Offset]:
    """Where the next micro-batch ends.

    Args:
        target: where an AvailableNow query ends in each of its streams (exclusive); others do not join it.
        limit: sequences of all streams together.
    """
    if target is not None:
        begin = {
            name: offset
            for name, offset in begin.items()
            if name in target or offset.next_sequence != offset.first
        }
    available = unread(begin, states)
    if target is not None:
        for name, offset in begin.items():
            left = target.get(name, 0) - _low(offset, states[name])
            available[name] = max(0, min(available[name], left))
    taken = allot(available, limit)
    return {
        name: replace(offset, next_sequence=_low(offset, states[name]) + taken[name])
        for name, offset in begin.items()
    }


def moved(start: Offsets, end: Offsets) -> dict[str, tuple[int, int]]:
    """The first and the last sequence that a micro-batch has of each stream with any."""
    found = {}
    for name, stop in end.items():
        begin = start.get(name)
        if begin is not None and begin.lineage == stop.lineage:
            first: int | None = begin.next_sequence
        else:
            first = stop.first
        if first is not None and stop.next_sequence > first:
            found[name] = (first, stop.next_sequence - 1)
    return found


def ranges_of_batch(
    start: Offsets,
    end: Offsets,
    states: Mapping[str, StreamState],
    *,
    fail_on_data_loss: bool,
    forgets: bool,
) -> dict[str, tuple[int, int]]:
    """What a planned micro-batch has of each stream, as far as it is there.

    Raises:
        StreamReplacedError, DataRemovedError: as begin_of_batch.
        StreamCutOffError: a stream ends before the plan does.
    """
    found = {}
    for name, (first, last) in moved(start, end).items():
        state = states.get(name)
        if state is None or (forgets and state.lineage != end[name].lineage):
            continue
        end[name].check(stream=name, lineage=state.lineage)
        if state.last_sequence < last:
            raise StreamCutOffError(name, last, state.last_sequence)
        _check_head(name, first, state, fail_on_data_loss=fail_on_data_loss)
        found[name] = (max(first, state.first_sequence), last)
    return found


def _low(offset: Offset, state: StreamState) -> int:
    return max(offset.next_sequence, state.first_sequence)


def _check_head(name: str, wanted: int, state: StreamState, *, fail_on_data_loss: bool) -> None:
    if wanted < state.first_sequence and fail_on_data_loss:
        raise DataRemovedError(name, wanted, state.first_sequence)


def allot(available: Mapping[str, int], limit: int | None) -> dict[str, int]:
    """Share a batch's limit among streams by what they have, at least one sequence for each that has any.

    Example: allot({"a": 900, "b": 100, "c": 0}, 100) == {"a": 90, "b": 10, "c": 0}
    """
    total = sum(available.values())
    if limit is None or total <= limit:
        return dict(available)
    taken = {name: limit * count // total for name, count in available.items()}
    by_remainder = sorted(available, key=lambda name: (-(limit * available[name] % total), name))
    for name in by_remainder[: limit - sum(taken.values())]:
        taken[name] += 1
    for name, count in available.items():
        if count and not taken[name]:
            most = max(taken, key=lambda each: taken[each])
            taken[most] -= taken[most] > 1
            taken[name] = 1
    return taken


def share_tasks(
    ranges: Mapping[str, tuple[int, int]], tasks: int, *, least: int = SEQUENCES_PER_PARTITION_MIN
) -> list[tuple[str, int, int]]:
    """Cut the ranges (first, last) of streams into `tasks` pieces in all, the longest ones first, none shorter than `least` where a
    stream has several. Each stream with a range has a piece of its own."""
    counts = {name: last - first + 1 for name, (first, last) in ranges.items() if last >= first}
    parts = dict.fromkeys(counts, 1)
    longest = [(-float(count), name) for name, count in counts.items()]
    heapq.heapify(longest)
    left = tasks - len(parts)
    while left > 0 and longest:
        _, name = heapq.heappop(longest)
        if counts[name] // (parts[name] + 1) >= least:
            parts[name] += 1
            left -= 1
            heapq.heappush(longest, (-counts[name] / parts[name], name))
    return [
        (name, low, high)
        for name in sorted(parts)
        for low, high in split_range(*ranges[name], parts[name], least=1)
    ]


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
