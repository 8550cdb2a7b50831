"""Statistics count each message once in its window, whatever was killed, with bounded state."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.servers import Fleet
from nats.js import JetStreamContext

from supercluster.spark.pipelines import rounds
from supercluster.spark.pipelines.fields import FieldSource
from supercluster.spark.pipelines.parameters import read_parameters
from supercluster.spark.pipelines.pipeline import RunOptions
from supercluster.spark.pipelines.stats import windows
from supercluster.spark.pipelines.stats.pipeline import StatsParameters, StatsPipeline
from supercluster.spark.pipelines.stats.windows import Row, Windows
from supercluster.spark.wire import Record

NS = windows.NS_PER_S


def message(time_s: float, subject: str, size: int = 10, sequence: int = 1) -> Record:
    return sequence, int(time_s * NS), subject.encode(), b"", b"x" * size


def counted(*records: Record, tokens: int = 1) -> Windows:
    found = Windows(10, tokens, FieldSource.parse("subject:2"))
    found.take(records)
    return found


def shown(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    names = ("window", "prefix", "messages", "bytes", "largest", "rate", "peak", "publishers")
    return [tuple(row[name] for name in names) for row in rows]


@pytest.mark.covers("SP-4")
def test_windows_have_rates_sizes_peaks_and_publishers_by_prefix() -> None:
    found = counted(
        *(
            message(0, "a.p"),
            message(1.0, "a.q", 30),
            message(1.9, "a.p"),
            message(9.9, "b.p"),
            message(10, "a.p"),
        )
    )
    assert shown(found.close("S", None)) == [
        ("1970-01-01T00:00:00Z", "a", 3, 50, 30, 0.3, 2, 2),
        ("1970-01-01T00:00:00Z", "b", 1, 10, 10, 0.1, 1, 1),
        ("1970-01-01T00:00:10Z", "a", 1, 10, 10, 0.1, 1, 1),
    ]
    assert [row["prefix"] for row in counted(message(0, "a.p.z"), tokens=2).close("S", None)] == ["a.p"]
    assert [row["prefix"] for row in counted(message(0, "a.p"), tokens=0).close("S", None)] == [""]


def test_what_tasks_counted_adds_up_and_survives_a_restart() -> None:
    parts = [message(each / 4, f"a.{each % 3}", each) for each in range(80)]
    whole = counted(*parts)
    summed = counted()
    for first in range(0, 80, 13):
        summed.add(counted(*parts[first : first + 13]))
        kept = json.loads(json.dumps(summed.to_json()))
        summed = counted()
        summed.restore(kept)
    assert summed.close("S", None) == whole.close("S", None)


def test_a_window_ends_a_little_after_its_time_and_once() -> None:
    found = counted(message(5, "a.p"), message(15, "a.p"))
    assert found.close("S", int(19.9 * NS)) == []
    assert [row["window"] for row in found.close("S", 20 * NS)] == ["1970-01-01T00:00:00Z"]
    assert found.close("S", 20 * NS) == []


def test_prefixes_and_publishers_are_bounded() -> None:
    found = counted(*(message(0, f"a{each}.p") for each in range(windows.PREFIXES_MAX + 5)))
    rows = found.close("S", None)
    assert len(rows) == windows.PREFIXES_MAX + 1
    assert next(row["messages"] for row in rows if row["prefix"] == windows.OTHERS) == 5
    first, second = (counted(*(message(0, f"a.{start + each}") for each in range(800))) for start in (0, 800))
    first.add(second)
    assert first.close("S", None)[0]["publishers"] == windows.PUBLISHERS_MAX


async def test_a_stream_is_counted_once_in_files_after_a_kill_and_printed_without_a_checkpoint(
    fleet: Fleet, js: JetStreamContext, runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "SEQUENCES_PER_BLOCK", 10)
    await js.add_stream(name="S", subjects=["a.>"])
    for number in range(100):
        await js.publish(f"a.{number % 3}", b"%d" % number)
    given = {"streams": "S", "prefixTokens": 2, "windowSeconds": 3600}
    lines: list[str] = []

    async def count(checkpoint: str | None, **more: object) -> None:
        parameters = read_parameters(StatsParameters, {**given, **more})
        options = RunOptions({"url": fleet.urls[0]}, checkpoint, report=lambda report: None)
        await asyncio.to_thread(StatsPipeline(lines.append).run, runner, parameters, options)

    def messages(rows: list[str]) -> dict[str, int]:
        total: dict[str, int] = {}
        for row in map(json.loads, rows):
            total[row["prefix"]] = total.get(row["prefix"], 0) + row["messages"]
        return total

    await count(None)
    assert messages(lines) == {"a.0": 34, "a.1": 33, "a.2": 33}
    # Windows of the past are closed in each round.
    monkeypatch.setattr(windows, "LATENESS_SECONDS", -3600)
    runner.die_in = runner.tasks + 3
    with pytest.raises(InterruptedError):
        await count(str(tmp_path / "checkpoint"), location=str(tmp_path / "rows"))
    await count(str(tmp_path / "checkpoint"), location=str(tmp_path / "rows"))
    files = sorted((tmp_path / "rows").glob("S-*.jsonl"))
    assert len(files) == 4
    assert messages([line for file in files for line in file.read_text().splitlines()]) == {
        "a.0": 34,
        "a.1": 33,
        "a.2": 33,
    }
