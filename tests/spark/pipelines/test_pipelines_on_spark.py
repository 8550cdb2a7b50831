"""The pipelines by their names, with their tasks in Spark's workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.servers import Fleet
from nats.js import JetStreamContext

from supercluster.spark.errors import one_line
from supercluster.spark.pipelines.parameters import read_parameters
from supercluster.spark.pipelines.pipeline import FindingsError, RunOptions
from supercluster.spark.pipelines.registry import PIPELINES

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
COUNT = 2_000
Start = Callable[..., Any]


@pytest.fixture
async def start(spark: Any, fleet: Fleet, js: JetStreamContext, tmp_path: Path) -> Start:
    """Starts a pipeline over the stream S, which has 2,000 numbered messages, of which number 1,500 is missing."""
    await js.add_stream(name="S", subjects=["a.>"])
    for first in range(1, COUNT + 1, 1_000):
        numbers = [number for number in range(first, first + 1_000) if number != 1_500]
        await asyncio.gather(
            *[
                await js.publish_async(f"a.{number % 3}", json.dumps({"n": number}).encode())
                for number in numbers
            ]
        )

    async def start(name: str, **given: object) -> list[Any]:
        reports: list[Any] = []
        pipeline = PIPELINES[name]()
        parameters = read_parameters(pipeline.parameters, {"streams": ["S"], **given})
        options = RunOptions({"url": fleet.urls[0]}, str(tmp_path / "checkpoint"), report=reports.append)
        await asyncio.to_thread(pipeline.start, spark, parameters, options)
        return reports

    return start


@pytest.mark.covers("SP-4")
async def test_audit_and_archive_read_a_stream_in_parallel_tasks(
    start: Start, spark: Any, js: JetStreamContext, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FindingsError, match=r"^1 messages lost$"):
        await start("audit", number="json:n", settleSeconds=0)
    assert "numbers 1500 to 1500 (1), between sequences 1499 and 1500" in capsys.readouterr().out
    location = str(tmp_path / "archive")
    assert (await start("archive", location=location, targetFileSize="40Ki"))[-1]["archivedTo"] == COUNT - 1
    frame = spark.read.parquet(location)
    assert frame.select("stream").distinct().collect()[0].stream == "S"
    assert frame.select("sequence").distinct().count() == frame.count() == COUNT - 1
    assert len(frame.inputFiles()) > 1
    assert (await start("archive_verify", location=location))[-1]["findings"] == 0


@pytest.mark.covers("SP-4")
async def test_statistics_and_a_comparison_with_the_stream_itself(
    start: Start, fleet: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = await start("compare", otherUrl=fleet.urls[0])
    assert [each["digest"] for each in reports] == [each["otherDigest"] for each in reports]
    assert "1,999 messages compared, 0 differences" in capsys.readouterr().out
    rows = tmp_path / "rows"
    await start("stream_stats", publisher="subject:2", windowSeconds=1, location=str(rows))
    [open_windows] = json.loads((tmp_path / "checkpoint" / "stream_stats" / "S.json").read_text())["work"][
        "windows"
    ][-1:]
    assert open_windows[1] == "a"


async def test_an_error_of_a_task_says_in_one_line_what_to_do(start: Start, tmp_path: Path) -> None:
    (tmp_path / "stream=S").write_text("no folder")
    with pytest.raises(Exception, match="NotADirectoryError") as failed:
        await start("archive", location=str(tmp_path))
    assert one_line(failed.value).startswith("NotADirectoryError: [Errno 20] Not a directory: ")
