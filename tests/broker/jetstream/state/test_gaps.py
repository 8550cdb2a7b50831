"""Long runs of sequences without a message: a part of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.jetstream.state.gaps import Gaps


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=8),
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_what_lies_between_two_sequences(
    stretches: list[tuple[int, int]], low: int, high: int, dropped: int
) -> None:
    first, last = sorted((low, high))
    gaps, seq, model = Gaps(), 1, set[int]()
    for messages, count in stretches:
        seq += messages
        gaps.add(seq, seq + count - 1)
        model |= set(range(seq, seq + count))
        seq += count
    if dropped not in model:
        gaps.drop_below(dropped)
        model = {each for each in model if each >= dropped}
    found = [each for begin, end in gaps.within(first, last) for each in range(begin, end + 1)]
    assert found == sorted(each for each in model if first <= each <= last)
