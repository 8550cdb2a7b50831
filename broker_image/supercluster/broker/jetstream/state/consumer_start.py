"""The first sequence of a new consumer: the leader finds it and writes it into the entry that creates the
consumer, so it is the same on every replica.

A search by subject in a large stream runs in slices (`turn/slices.py`). Messages that are stored meanwhile
come after the start, and the consumer gets them as new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice

from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.state.lookup import SLICE_UNITS, last_seq_of
from supercluster.broker.jetstream.state.subject_index import SubjectIndex

# Sequences that are sorted into one list in one go.
SLICE_SEQS = 4096


@dataclass(frozen=True, slots=True)
class StartPosition:
    """What `ConsumerState` begins with."""

    start_seq: int
    last_seqs: Sequence[int] = ()


def start_position(
    config: ConsumerConfig,
    *,
    first_seq: int,
    last_seq: int,
    subjects: SubjectIndex,
    seq_at_time: Callable[[int], int],
) -> Generator[int, None, StartPosition]:
    """`first_seq` and `last_seq` are the stream's as it is now. `seq_at_time` gives the first sequence of a time or later."""
    policy, filters = config.deliver_policy, config.filter_subjects
    behind = last_seq + 1
    if policy == "new":
        return StartPosition(behind)
    if policy == "by_start_sequence":
        return StartPosition(max(config.opt_start_seq, 1))
    if policy == "by_start_time":
        return StartPosition(seq_at_time(config.opt_start_time_ns))
    if policy == "last":
        last = last_seq
        if filters:
            last = min((yield from last_seq_of(subjects, filters)), last_seq)
        return StartPosition(max(last, 1) if len(subjects) else behind)
    if policy == "last_per_subject":
        chosen = yield from _lasts(subjects.slices(filters or (">",)), last_seq)
        return StartPosition(chosen[0] if chosen else behind, chosen)
    return StartPosition(max(first_seq, 1))


Rows = Iterator[list[tuple[bytes, int, int, int]]]


def _lasts(slices: Rows, last_seq: int) -> Generator[int, None, list[int]]:
    """The last sequence of every subject, in rising order. A subject that got another one since `last_seq` is given that one."""
    runs: list[list[int]] = []
    for rows in slices:
        runs.append(sorted(row[3] for row in rows if row[3] <= last_seq))
        yield SLICE_UNITS
    ordered = merge(*runs)
    found: list[int] = []
    while some := list(islice(ordered, SLICE_SEQS)):
        found += some
        yield SLICE_UNITS
    return found
