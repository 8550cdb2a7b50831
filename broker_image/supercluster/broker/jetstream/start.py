"""Where a new consumer begins in its stream: worked out once, by the entry that creates it, alike on every replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from supercluster.broker.jetstream.consumer_config import ConsumerConfig
from supercluster.broker.jetstream.subject_index import SubjectIndex


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
    seq_at_time: Callable[[int], int | None],
) -> StartPosition:
    """`seq_at_time` gives the first stored sequence of a time or later, None when there is none."""
    policy = config.deliver_policy
    behind = last_seq + 1
    if policy == "new":
        return StartPosition(behind)
    if policy == "last":
        last = subjects.last_for_filters(*config.filter_subjects)
        return StartPosition(last or behind)
    if policy == "by_start_sequence":
        return StartPosition(max(config.opt_start_seq, first_seq, 1))
    if policy == "by_start_time":
        return StartPosition(seq_at_time(config.opt_start_time_ns) or behind)
    if policy == "last_per_subject":
        last_seqs = subjects.last_seqs(config.filter_subjects)
        return StartPosition(last_seqs[0] if last_seqs else behind, last_seqs)
    return StartPosition(max(first_seq, 1))
