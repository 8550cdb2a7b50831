"""Searches a log for the highest entry that may agree with another log."""

from __future__ import annotations

from supercluster.broker.ports import RaftLog


def last_at_or_below(log: RaftLog, index: int, term: int) -> int:
    """The last index up to `index` whose term is not above `term`. Terms only grow along a log, so it is bisected."""
    low, high = log.base_index, min(index, log.last_index)
    if high <= low:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        held = log.term(middle)
        if held is None or held > term:
            high = middle - 1
        else:
            low = middle
    return low
