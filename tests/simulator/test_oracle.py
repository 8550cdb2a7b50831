"""The oracle's memory of what replicas held."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.simulator.oracle import Oracle

from supercluster.broker.raft.confchange import membership_of
from supercluster.broker.raft.entry import EntryKind, make_entry
from supercluster.broker.storage.log.memory_log import MemoryLog

VOTERS = ("a@1", "b@1", "c@1")


def entry(index: int, term: int) -> Any:
    return make_entry(
        index=index, term=term, kind=EntryKind.BATCH, time_ns=1, first_seq=0, count=0, payload=b"x"
    )


@pytest.mark.parametrize("held_by_b", [2, 1])
def test_a_copy_in_memory_counts_after_its_stream_was_deleted_for_what_it_held(held_by_b: int) -> None:
    """A leader may commit by an answer that left before the deletion came: of a file's copy the log tells that."""
    oracle = Oracle(None, AssertionError, lambda group: {})  # type: ignore[arg-type]  # Groups that need no world.
    raft = SimpleNamespace(membership=membership_of(VOTERS), term=3, commit_index=2, doubtful=False)
    groups = [SimpleNamespace(id="S", member=member, log=MemoryLog(), raft=raft) for member in VOTERS]
    for group, count in zip(groups, (2, held_by_b, 0), strict=True):
        oracle.watch_group(group)  # type: ignore[arg-type]
        for index in range(1, count + 1):
            group.log.append([entry(index, 3)])
    groups[1].log.destroy()
    if held_by_b == 2:
        oracle._committed(groups[0], (raft.membership,))  # type: ignore[arg-type]
    else:
        with pytest.raises(AssertionError, match="only"):
            oracle._committed(groups[0], (raft.membership,))  # type: ignore[arg-type]


def comes_back(terms: list[int], committed: list[int], left: int) -> None:
    """A member that had entries of these terms comes back with so many of them, beside committed entries of those terms."""
    records = {index: (term, 0) for index, term in enumerate(committed, 1)}
    oracle = Oracle(None, AssertionError, lambda group: records)  # type: ignore[arg-type]  # Groups that need no world.
    raft = SimpleNamespace(membership=membership_of(VOTERS), term=9, commit_index=0, doubtful=False)
    for count in (len(terms), left):
        log = MemoryLog()
        for index in range(1, count + 1):
            log.append([entry(index, terms[index - 1])])
        oracle.watch_group(SimpleNamespace(id="S", member="a@1", log=log, raft=raft))  # type: ignore[arg-type]


def test_who_lost_what_others_replaced_lost_nothing() -> None:
    """Seed 731235: the entries that came back without were never committed, and others stood at their places."""
    comes_back([3, 3, 4, 4], [3, 3, 5, 5, 5], 2)
    comes_back([3, 3, 4, 4], [3, 3], 2)
    with pytest.raises(AssertionError, match="had entry 3"):
        comes_back([3, 3, 5, 6], [3, 3, 5, 5], 2)
