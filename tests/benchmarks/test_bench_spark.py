"""The benchmark of Spark's reads at a small size, by calls of functions: no reader, and no writer, takes a step for each row.

A loop over rows that is put back makes it fail.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import count, repeat
from pathlib import Path
from types import FrameType

import pytest
from benchmarks.servers import Fleet
from benchmarks.spark import append, speed
from benchmarks.spark.speed import ALL, Case, brokers_with, fill, stream_name

from supercluster.spark.datasource.options import read_options
from supercluster.spark.datasource.source import BatchReader

ROWS, PER_ENTRY = 60_000, (20, 512)
CALLS_A_ROW_MAX = 0.2
"""A loop takes one at least. Most are those of a broker's answers of a thousand messages, of blocks and of batches."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    directory: Path = tmp_path_factory.mktemp("speed")
    fill(directory / speed.BROKER, ROWS, PER_ENTRY)
    with brokers_with({})(directory, 1) as servers:
        speed.wait_for_stream(servers.urls[0], {}, stream_name(20))
        yield servers


def calls(act: Callable[[], object]) -> int:
    """Of functions, Python's and C's, on this thread."""
    found = 0

    def event(frame: FrameType, kind: str, argument: object) -> None:
        nonlocal found
        found += kind in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(event)
    try:
        act()
    finally:
        sys.setprofile(before)
    return found


def rows_of(reader: BatchReader) -> Iterable[int]:
    return (batch.num_rows for partition in reader.partitions() for batch in reader.read(partition))


@pytest.mark.covers("SP-1")
@pytest.mark.parametrize("bulk", ["only", "off"])
@pytest.mark.parametrize("per_entry", PER_ENTRY)
@pytest.mark.parametrize("columns", [ALL, ("sequence",)])
def test_no_reader_takes_a_step_for_each_row(
    fleet: Fleet, bulk: str, per_entry: int, columns: tuple[str, ...]
) -> None:
    given = {"url": fleet.urls[0], "stream": stream_name(per_entry), "bulk": bulk, "minPartitions": "1"}
    reader, rows = BatchReader(read_options(given, streaming=False), columns), list[int]()
    assert calls(lambda: rows.extend(rows_of(reader))) <= CALLS_A_ROW_MAX * ROWS
    assert sum(rows) == ROWS


@pytest.mark.covers("SP-1")
def test_the_sink_takes_no_step_for_each_row(fleet: Fleet) -> None:
    direct = append.Direct(fleet.urls)
    direct.create(1)
    taken = calls(lambda: direct.release(direct.stage(ROWS)))
    direct.close()
    assert taken <= CALLS_A_ROW_MAX * ROWS


def test_a_table_says_what_is_missed_and_the_picture_is_drawn(tmp_path: Path) -> None:
    numbers = count(1)
    cases = [
        Case("no I/O, plain", 100, lambda: None),
        Case("cached", 100, lambda: None, 0.8, "no I/O, plain"),
    ]
    for case, seconds in zip(cases, ([1.0, 2.0, 3.0], [4.0, 4.0, 4.0]), strict=True):
        case.seconds, case.spark_s, case.broker_s = seconds, list(repeat(0.1, 3)), list(repeat(0.0, 3))
    _, _, first, second = speed.lines(cases)
    assert first.startswith("| no I/O, plain | 50 (33 to 100) |")
    assert "| 0.50 of no I/O, plain | 0.80 MISSED |" in second
    speed.draw(cases, tmp_path / f"{next(numbers)}.png")
    assert (tmp_path / "1.png").stat().st_size > 0
