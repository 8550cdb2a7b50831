"""The newest entries stay in memory, within the bounds of one log and of all of them."""

from __future__ import annotations

import pytest

from supercluster.broker.raft.entry import Entry, EntryKind, make_entry
from supercluster.broker.storage.log.cache import CacheBudget, EntryCache


def entries(first: int, last: int) -> list[Entry]:
    """Records of 100 bytes."""
    return [
        make_entry(index=index, term=1, kind=EntryKind.BATCH, time_ns=1, payload=bytes(52))
        for index in range(first, last + 1)
    ]


def held(cache: EntryCache) -> list[int]:
    return [index for index in range(100) if cache.get(index) is not None]


def test_the_oldest_entries_of_a_log_go_first() -> None:
    cache = EntryCache(500)
    cache.add(entries(1, 3))
    cache.add(entries(4, 7))
    assert held(cache) == [3, 4, 5, 6, 7]
    assert cache.first_index == 3
    cache.truncate_after(5)
    cache.drop_through(3)
    assert held(cache) == [4, 5]
    cache.add(entries(6, 6))
    assert held(cache) == [4, 5, 6]


def test_an_entry_over_the_bound_is_not_kept() -> None:
    cache = EntryCache(99)
    cache.add(entries(1, 2))
    assert held(cache) == []
    cache.add(entries(3, 3))
    assert cache.first_index is None


@pytest.mark.covers("MV-11")
def test_the_log_that_was_silent_longest_makes_room_for_others() -> None:
    budget = CacheBudget(1000)
    first, second, third = (EntryCache(500, budget) for _ in range(3))
    first.add(entries(1, 5))
    second.add(entries(1, 5))
    first.add(entries(6, 6))
    third.add(entries(1, 5))
    assert (held(first), held(second), held(third)) == ([2, 3, 4, 5, 6], [], [1, 2, 3, 4, 5])
    assert budget.bytes_held == 1000
    first.close()
    second.add(entries(6, 7))
    assert held(second) == [6, 7]
    assert budget.bytes_held == 700
