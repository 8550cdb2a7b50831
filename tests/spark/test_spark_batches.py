"""Micro-batches of several streams: what each of them gives, which tasks read it, and which offsets a checkpoint has."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.spark.datasource.plan import (
    Offset,
    StreamReplacedError,
    allot,
    begin_of_batch,
    end_of_batch,
    moved,
    offsets_from_json,
    offsets_to_json,
    ranges_of_batch,
    share_tasks,
    split_range,
    unread,
)
from supercluster.spark.jetstream import DataRemovedError, StreamCutOffError, StreamState

pytestmark = pytest.mark.covers("SP-5")

COUNTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 10_000))


def state(name: str, first: int, last: int, lineage: str = "l") -> StreamState:
    return StreamState(name, lineage, first, last, messages=last + 1 - first, bytes=10)


def states(*found: StreamState) -> dict[str, StreamState]:
    return {each.name: each for each in found}


def offsets(**following: int) -> dict[str, Offset]:
    return {name: Offset(name, "l", number) for name, number in following.items()}


def begin(
    start: dict[str, Offset], found: dict[str, StreamState], *, forgets: bool = False
) -> dict[str, Offset]:
    return begin_of_batch(start, found, fail_on_data_loss=not forgets, forgets=forgets)


def end(
    start: dict[str, Offset],
    found: dict[str, StreamState],
    *,
    target: dict[str, int] | None = None,
    limit: int | None = None,
) -> dict[str, int]:
    stop = end_of_batch(begin(start, found), found, target=target, limit=limit)
    return {name: offset.next_sequence for name, offset in stop.items()}


def ranges(
    start: dict[str, Offset], stop: dict[str, Offset], found: dict[str, StreamState], *, forgets: bool = False
) -> dict[str, tuple[int, int]]:
    return ranges_of_batch(start, stop, found, fail_on_data_loss=not forgets, forgets=forgets)


@pytest.mark.covers("SP-1")
@pytest.mark.parametrize("forgets", [False, True])
def test_a_stream_that_ends_before_what_was_read_is_not_read_on(forgets: bool) -> None:
    """A power failure took its end, or a volume was put back: what it gets next has numbers that were read."""
    assert begin(offsets(a=101), states(state("a", 1, 100)), forgets=forgets) == offsets(a=101)
    with pytest.raises(StreamCutOffError, match=r"ends at sequence 99, and this query was at 100"):
        begin(offsets(a=101), states(state("a", 1, 99)), forgets=forgets)


@given(COUNTS, st.integers(1, 30_000))
def test_a_limit_is_of_all_streams_together_and_each_of_them_comes_on(
    available: dict[str, int], limit: int
) -> None:
    taken = allot(available, limit)
    waiting = sum(count > 0 for count in available.values())
    assert sum(taken.values()) == min(sum(available.values()), max(limit, waiting))
    assert all(min(1, count) <= taken[name] <= count for name, count in available.items())
    assert taken.keys() == available.keys()


@pytest.mark.parametrize(
    ("available", "limit", "taken"),
    [
        ({"a": 5, "b": 7}, None, {"a": 5, "b": 7}),
        ({"a": 900, "b": 100, "c": 0}, 100, {"a": 90, "b": 10, "c": 0}),
        ({"a": 10_000, "b": 1}, 10, {"a": 9, "b": 1}),
        ({"a": 5, "b": 5, "c": 5}, 2, {"a": 1, "b": 1, "c": 1}),
    ],
)
def test_streams_share_a_limit_by_what_they_have(
    available: dict[str, int], limit: int | None, taken: dict[str, int]
) -> None:
    assert allot(available, limit) == taken


@given(COUNTS, st.integers(1, 40), st.sampled_from([1, 500]))
def test_tasks_cover_every_sequence_once_and_are_as_many_as_were_asked_for(
    counts: dict[str, int], tasks: int, least: int
) -> None:
    wanted = {name: (100, 99 + count) for name, count in counts.items()}
    pieces = share_tasks(wanted, tasks, least=least)
    for name, count in counts.items():
        own = [(low, high) for piece, low, high in pieces if piece == name]
        assert [number for low, high in own for number in range(low, high + 1)] == list(
            range(100, 100 + count)
        )
        assert len(own) == 1 or all(high - low + 1 >= least for low, high in own) or not count
    busy = sum(count > 0 for count in counts.values())
    assert len(pieces) <= max(tasks, busy)
    if least == 1:
        assert len(pieces) == min(max(tasks, busy), sum(counts.values()))


@given(st.integers(0, 50_000), st.integers(1, 64), st.sampled_from([1, 5_000]))
def test_the_tasks_of_one_stream_are_its_ranges(count: int, tasks: int, least: int) -> None:
    pieces = share_tasks({"a": (7, 6 + count)}, tasks, least=least)
    assert [(low, high) for _, low, high in pieces] == split_range(7, 6 + count, tasks, least=least)


def test_a_larger_stream_has_more_tasks() -> None:
    pieces = share_tasks({"a": (1, 30_000), "b": (1, 10)}, 4)
    assert [name for name, _, _ in pieces] == ["a", "a", "a", "b"]


@pytest.mark.parametrize(
    ("following", "last", "target", "limit", "ends"),
    [
        ((5, 1), (99, 0), None, None, (100, 1)),
        ((5, 1), (99, 0), (50, 1), None, (50, 1)),
        ((5, 1), (99, 5), (50, 6), 10, (14, 2)),
        ((50, 6), (99, 9), (50, 6), 10, (50, 6)),
        ((9, 1), (8, 0), None, 4, (9, 1)),
    ],
)
def test_a_batch_ends_at_the_least_of_its_bounds_and_never_before_its_start(
    following: tuple[int, int],
    last: tuple[int, int],
    target: tuple[int, int] | None,
    limit: int | None,
    ends: tuple[int, int],
) -> None:
    start = offsets(a=following[0], b=following[1])
    found = states(state("a", 1, last[0]), state("b", 1, last[1]))
    bound = None if target is None else {"a": target[0], "b": target[1]}
    assert end(start, found, target=bound, limit=limit) == {"a": ends[0], "b": ends[1]}


def test_a_stream_that_joins_is_read_from_its_first_message_on_also_when_the_batch_is_replayed() -> None:
    start, found = offsets(a=6), states(state("a", 1, 5), state("b", 3, 9))
    first = end_of_batch(begin(start, found), found, target=None, limit=4)
    assert moved(start, first) == {"b": (3, 6)}
    replayed = offsets_from_json(json.loads(json.dumps(offsets_to_json(first))))
    assert ranges(offsets_from_json(offsets_to_json(start)), replayed, found) == {"b": (3, 6)}
    assert ranges(start, replayed, states(state("a", 1, 8), state("b", 3, 20))) == {"b": (3, 6)}
    second = end_of_batch(begin(replayed, found), found, target=None, limit=None)
    assert moved(replayed, second) == {"b": (7, 9)}
    quiet = end_of_batch(begin(second, found), found, target=None, limit=None)
    assert offsets_to_json(quiet) == offsets_to_json(second), "Spark begins a batch for each difference"


def test_an_available_now_query_has_the_streams_that_were_there() -> None:
    found = states(state("a", 1, 9), state("b", 1, 9))
    assert end(offsets(a=1), found, target={"a": 6}) == {"a": 6}
    assert end(offsets(a=1), found, target={"a": 6, "b": 3}) == {"a": 6, "b": 3}
    joined = {"b": Offset("b", "l", 4, first=1)}
    assert end(joined, found, target={"a": 6}) == {"a": 6, "b": 4}


def test_what_went_before_it_was_read_stops_the_query_or_costs_no_places() -> None:
    start, found = offsets(a=5, b=1), states(state("a", 20, 40), state("b", 1, 3))
    with pytest.raises(DataRemovedError, match=r"stream 'a': sequence 5 .* begins at 20"):
        begin(start, found)
    lenient = begin(start, found, forgets=True)
    assert unread(lenient, found) == {"a": 21, "b": 3}
    stop = end_of_batch(lenient, found, target=None, limit=None)
    assert ranges(start, stop, found, forgets=True) == {"a": (20, 40), "b": (1, 3)}
    with pytest.raises(DataRemovedError, match="sequence 5"):
        ranges(start, stop, found)


def test_a_stream_that_was_made_again_stops_the_query_or_joins_anew() -> None:
    start, found = offsets(a=5, b=2), states(state("a", 3, 9, "other"), state("b", 1, 1))
    with pytest.raises(StreamReplacedError, match="stream 'a'"):
        begin(start, found)
    stop = end_of_batch(begin(start, found, forgets=True), found, target=None, limit=None)
    assert ranges(start, stop, found, forgets=True) == {"a": (3, 9)}
    gone = states(state("b", 1, 1))
    assert begin(start, gone, forgets=True) == offsets(b=2)
    assert ranges(start, stop, gone, forgets=True) == {}, "a planned batch that is replayed too late"
    assert ranges(start, stop, states(state("a", 1, 99, "third")), forgets=True) == {}


def test_a_stream_that_became_shorter_stops_a_planned_batch() -> None:
    with pytest.raises(StreamCutOffError, match=r"'b' ends at sequence 4, .* was at 9"):
        ranges(offsets(a=1, b=1), offsets(a=1, b=10), states(state("b", 1, 4)))


def test_a_checkpoint_of_one_stream_keeps_its_form() -> None:
    """Queries of earlier versions go on, and earlier versions read what one stream's query wrote."""
    written = '{"stream": "S", "lineage": "2026-01-01", "next": 7}'
    found = offsets_from_json(json.loads(written))
    assert found == {"S": Offset("S", "2026-01-01", 7)}
    assert json.dumps(offsets_to_json(found)) == written
    more = found | {"T": Offset("T", "2026-02-02", 3, first=2)}
    assert offsets_from_json(json.loads(json.dumps(offsets_to_json(more)))) == more
    assert offsets_from_json(offsets_to_json({})) == {}
    for bad in ({"streams": [{"stream": "S"}]}, {"topic": 3}, ["S"]):
        with pytest.raises(ValueError, match="no offset"):
            offsets_from_json(bad)  # type: ignore[arg-type]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=12
    ),
    st.integers(1, 25),
)
def test_batches_have_each_message_once_whatever_comes_meanwhile(
    growth: list[tuple[str, int, int]], limit: int
) -> None:
    found: dict[str, StreamState] = {}
    read: dict[str, list[int]] = {}
    at: dict[str, Offset] = {}

    def batch() -> None:
        nonlocal at
        stop = end_of_batch(begin(at, found), found, target=None, limit=limit)
        for name, (low, high) in ranges(at, stop, found).items():
            read.setdefault(name, []).extend(range(low, high + 1))
        at = offsets_from_json(offsets_to_json(stop))

    for name, first, more in growth:
        known = found.get(name) or state(name, first, first - 1)
        found[name] = replace(known, last_sequence=known.last_sequence + more)
        batch()
    while any(unread(begin(at, found), found).values()):
        batch()
    for name, each in found.items():
        assert read.get(name, []) == list(range(each.first_sequence, each.last_sequence + 1))
