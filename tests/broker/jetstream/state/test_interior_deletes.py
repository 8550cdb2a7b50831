"""The set of deleted sequences: a set like any other, of a size that does not grow with what is deleted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.state import interior_deletes
from supercluster.broker.jetstream.state.interior_deletes import FEW_MAX, STRETCH, InteriorDeletes


def size_bytes(found: InteriorDeletes) -> int:
    """What it takes in memory."""
    held = [getattr(found, slot) for slot in InteriorDeletes.__slots__]
    inside = [each for one in held if isinstance(one, dict | list) for each in one]
    values = [value for one in held if isinstance(one, dict) for value in one.values()]
    return sum(map(sys.getsizeof, (*held, *inside, *values)))


def is_same(found: InteriorDeletes, model: set[int], places: set[int]) -> None:
    assert len(found) == len(model)
    assert bool(found) == bool(model)
    assert list(found) == sorted(model)
    for place in places | {max(0, each + by) for each in (0, 256, 512) for by in (-1, 0, 1)}:
        assert (place in found) == (place in model)
        assert found.count_behind(place) == sum(1 for seq in model if seq > place)
        past = place
        while past in model:
            past += 1
        assert found.past(place) == past
        before = place
        while before in model:
            before -= 1
        assert found.before(place) == before
        wanted = [seq for seq in range(place, place + 40) if seq not in model]
        assert list(found.absent(place, place + 40)) == wanted
    again = InteriorDeletes()
    for piece in found.encoded():
        again.take(Reader(piece))
    assert (list(again), len(again)) == (sorted(model), len(model))
    assert list(again.encoded()) == list(found.encoded()) == list(InteriorDeletes(sorted(model)).encoded())


SMALL = {"STRETCH_BITS": 8, "STRETCH": 256, "_LOW": 255, "_BITMAP_BYTES": 32, "FEW_MAX": 16, "_FEW_AGAIN": 8}
Step = tuple[str, int, int]
SEQS = st.integers(0, 4 * SMALL["STRETCH"])


@contextmanager
def small_stretches() -> Iterator[None]:
    """All forms and their changes within some hundred sequences."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setattr(interior_deletes, name, value)
        yield


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["add", "discard", "take"]), SEQS, st.integers(1, 300)), max_size=20),
    st.sets(st.sampled_from([0, 1, 2]), max_size=3),
    st.sets(SEQS, max_size=4),
)
def test_it_is_a_set(steps: list[Step], whole: set[int], places: set[int]) -> None:
    with small_stretches():
        is_a_set(steps, whole, places)


def is_a_set(steps: list[Step], whole: set[int], places: set[int]) -> None:
    size = SMALL["STRETCH"]
    found, model = InteriorDeletes(), set[int]()
    for stretch in sorted(whole, reverse=True):
        for seq in range(stretch * size, (stretch + 1) * size):
            found.add(seq)
            model.add(seq)
    for what, seq, count in steps:
        if what == "take":
            end = found.take_run(seq)
            assert end not in model
            assert model.issuperset(range(seq, end))
            model.difference_update(range(seq, end))
            continue
        for at in range(seq, seq + count):
            (found.add if what == "add" else found.discard)(at)
            (model.add if what == "add" else model.discard)(at)
    kept = found.copy()
    is_same(found, model, places | {seq for _, seq, _ in steps})
    found.clear()
    assert (len(found), list(found), found.past(5)) == (0, [], 5)
    assert list(kept) == sorted(model), "a copy stays as it was"


COUNT = 200_000


@pytest.mark.parametrize(
    ("pattern", "bytes_each_max"),
    [
        (lambda rng: range(2, COUNT), 0.1),
        (lambda rng: range(2, COUNT, 2), 0.5),
        (lambda rng: sorted(rng.sample(range(10 * COUNT), COUNT)), 1.5),
        (lambda rng: sorted(rng.sample(range(COUNT * COUNT), 1000)), 400),
    ],
    ids=["one old key", "every other one", "one of ten", "far apart"],
)
def test_it_takes_little_memory_whatever_is_deleted(
    pattern: Callable[[Random], list[int]], bytes_each_max: float
) -> None:
    seqs = pattern(Random(1))
    found = InteriorDeletes(seqs)
    assert len(found) == len(seqs)
    assert size_bytes(found) / len(seqs) <= bytes_each_max
    assert len(b"".join(found.encoded())) / len(seqs) <= bytes_each_max


def test_one_old_key_for_a_year_takes_no_more_than_for_a_day() -> None:
    found = InteriorDeletes(range(2, 3 * STRETCH))
    day = size_bytes(found)
    found._ends[0] += 365 * 1318  # As if so many stretches more had been filled, one behind the other.
    found._count += 365 * 1318 * STRETCH
    assert size_bytes(found) <= day + 16
    assert found.past(2) > 365 * 1318 * STRETCH
    assert found.take_run(2) == (365 * 1318 + 3) * STRETCH
    assert not found


def test_a_stretch_changes_its_form_with_room_between() -> None:
    found = InteriorDeletes(range(0, 2 * FEW_MAX, 2))
    assert not isinstance(found._parts[0], bytearray)
    found.add(1)
    assert isinstance(found._parts[0], bytearray)
    found.discard(1)
    assert isinstance(found._parts[0], bytearray), "one that comes and goes does not change it"
    for seq in range(FEW_MAX, 2 * FEW_MAX, 2):
        found.discard(seq)
    assert not isinstance(found._parts[0], bytearray)
    assert list(found) == list(range(0, FEW_MAX, 2))


@given(
    st.sets(st.integers(0, 40)),
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3)), max_size=3),
    st.integers(0, 40),
    st.integers(0, 40),
)
@settings(deadline=None)
def test_a_part_of_the_set_has_all_that_is_in_it_between_two_sequences(
    some: set[int], runs: list[tuple[int, int]], low: int, high: int
) -> None:
    """Sequences are multiplied, so that they are in several stretches, whole ones among them."""
    first, last = sorted((low * STRETCH // 3, high * STRETCH // 3))
    whole = {seq for begin, count in runs for seq in range(begin * STRETCH, (begin + count) * STRETCH)}
    model = whole | {seq * STRETCH // 3 for seq in some}
    found = InteriorDeletes(sorted(model))
    part = found.within(first, last)
    assert [seq for seq in part if first <= seq <= last] == sorted(
        seq for seq in model if first <= seq <= last
    )
    assert set(part) <= model
    assert len(part) == sum(1 for _ in part)
    taken = InteriorDeletes()
    for piece in part.encoded():
        taken.take(Reader(piece))
    assert list(taken) == list(part)
    assert list(found) == sorted(model)
