"""What is long is answered in slices, between which the loop serves everybody else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from supercluster.broker.monitor import views
from supercluster.broker.monitor.slices import SLICE_MS, LongAnswers

ROWS = 200


class Clock:
    """Every row takes a millisecond to make."""

    def __init__(self) -> None:
        self.ms = 0

    def monotonic_ms(self) -> int:
        return self.ms

    def machine_ms(self) -> int:
        return self.ms

    def now_ns(self) -> int:
        return self.ms * 1_000_000

    def rows(self) -> Iterator[dict[str, Any]]:
        for number in range(ROWS):
            self.ms += 1
            yield {"name": f"s{number}"}


@pytest.mark.covers("RP-3", "MV-11")
async def test_others_are_served_between_the_slices() -> None:
    clock, seen_ms = Clock(), [0]

    async def others() -> None:
        while clock.ms < ROWS:
            seen_ms.append(clock.ms)
            await asyncio.sleep(0)

    asking = asyncio.create_task(others())
    answer = json.loads(await LongAnswers(clock).encode({"rows": clock.rows()}))
    await asking
    assert answer == {"rows": [{"name": f"s{number}"} for number in range(ROWS)]}
    assert max(after - before for before, after in pairwise(seen_ms)) <= SLICE_MS


async def test_no_rows_are_an_empty_list() -> None:
    assert json.loads(await LongAnswers(Clock()).encode({"rows": iter(())})) == {"rows": []}


async def test_rows_have_rows_of_their_own_pauses_and_what_is_known_behind_them() -> None:
    counted: list[int] = []

    def inner() -> Iterator[int | None]:
        for number in range(3):
            counted.append(number)
            yield number
            yield None

    told = {"a": {"b": "c"}, "rows": iter([{"inner": inner()}, {"plain": []}]), "count": lambda: len(counted)}
    answer = json.loads(await LongAnswers(Clock()).encode(told))
    assert answer == {"a": {"b": "c"}, "rows": [{"inner": [0, 1, 2]}, {"plain": []}], "count": 3}


@pytest.mark.covers("SF-36")
async def test_twenty_long_answers_at_once_take_one_slice_between_two_rounds_of_the_loop() -> None:
    """A slice of each would be a hundred milliseconds."""
    clock, seen_ms = Clock(), [0]
    long = LongAnswers(clock)
    asking = [asyncio.create_task(long.encode({"rows": clock.rows()})) for _ in range(20)]
    while not all(one.done() for one in asking):
        seen_ms.append(clock.ms)
        await asyncio.sleep(0)
    assert max(after - before for before, after in pairwise(seen_ms)) <= SLICE_MS


@pytest.mark.parametrize(
    ("query", "first", "count"),
    [
        ({}, 0, ROWS),
        ({"limit": "0"}, None, 0),
        ({"offset": "190", "limit": "20"}, 190, 10),
        ({"offset": "7"}, 7, ROWS - 7),
        ({"limit": "many"}, 0, ROWS),
    ],
)
def test_a_part_of_the_streams_can_be_asked_for(query: dict[str, str], first: int | None, count: int) -> None:
    process: Any = SimpleNamespace(core=SimpleNamespace(jsz_streams=Clock().rows))
    found = list(views.jsz_streams(process, query))
    assert len(found) == count
    assert not found or found[0] == {"name": f"s{first}"}
