"""Spark finds the format by itself, reads streams in batches and in micro-batches, and says clearly what it cannot do."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.servers import Fleet
from nats.js import JetStreamContext

from supercluster.spark.runner import driver
from supercluster.spark.runner.kube import KubeAccess
from supercluster.spark.runner.progress import ProgressReporter

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


async def fill(js: JetStreamContext, count: int, *, start: int = 1) -> None:
    if start == 1:
        await js.add_stream(name="S", subjects=["a.>"])
    await asyncio.gather(
        *[
            await js.publish_async(
                f"a.{number % 3}", json.dumps({"n": number}).encode(), headers={"Kind": f"k{number % 2}"}
            )
            for number in range(start, start + count)
        ]
    )


def reader(spark: Any, fleet: Fleet, **options: object) -> Any:
    chosen = {"url": fleet.urls[0], "stream": "S", **options}
    return spark.read.format("supercluster").options(**{name: str(value) for name, value in chosen.items()})


@pytest.mark.covers("SP-1")
async def test_a_batch_read_has_every_message_once_with_all_columns(
    spark: Any, fleet: Fleet, js: JetStreamContext
) -> None:
    await fill(js, 12_000)
    frame = reader(spark, fleet, minPartitions=2).load()
    assert frame.rdd.getNumPartitions() == 2
    row = frame.selectExpr(
        "count(*)",
        "count(distinct sequence)",
        "min(sequence)",
        "max(sequence)",
        "sum(get_json_object(string(payload), '$.n'))",
    ).first()
    assert tuple(row) == (12_000, 12_000, 1, 12_000, sum(range(1, 12_001)))
    first = frame.where("sequence = 7").first()
    assert (first.subject, first.headers["Kind"], bytes(first.payload)) == ("a.1", ["k1"], b'{"n": 7}')
    assert abs(first.time.timestamp() - (await js.get_msg("S", 7)).time.timestamp()) < 1e-5  # type: ignore[union-attr]


async def test_options_choose_a_range_and_a_schema_chooses_columns(
    spark: Any, fleet: Fleet, js: JetStreamContext
) -> None:
    await fill(js, 50)
    chosen = reader(spark, fleet, startingOffsets=10, endingOffsets=21)
    frame = chosen.schema("payload binary, sequence bigint").load()
    assert frame.columns == ["payload", "sequence"]
    assert [row.sequence for row in frame.orderBy("sequence").collect()] == list(range(10, 21))
    assert reader(spark, fleet, startingOffsets=51).load().count() == 0


async def test_an_available_now_query_reads_what_there_is_in_bounded_batches_and_goes_on_where_it_stopped(
    spark: Any, fleet: Fleet, js: JetStreamContext, tmp_path: Path
) -> None:
    await fill(js, 1_500)
    found: list[int] = []
    sizes: list[int] = []

    def run() -> None:
        def write(frame: Any, batch_id: int) -> None:
            rows = frame.select("sequence").collect()
            sizes.append(len(rows))
            found.extend(row.sequence for row in rows)

        query = (
            spark.readStream.format("supercluster")
            .option("url", fleet.urls[0])
            .option("stream", "S")
            .option("maxOffsetsPerTrigger", "1000")
            .option("minOffsetsPerTrigger", "10")
            .load()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    await asyncio.to_thread(run)
    assert sizes == [1000, 500]
    await fill(js, 300, start=1_501)
    await asyncio.to_thread(run)
    assert sizes == [1000, 500, 300]
    assert sorted(found) == list(range(1, 1_801))


class QueryOf:
    """A program: one query, always with the same checkpoint."""

    kind = "Python file"

    def __init__(self, spark: Any, url: str, stream: str, checkpoint: Path) -> None:
        self._query = spark.readStream.format("supercluster").options(url=url, stream=stream).load()
        self._checkpoint = str(checkpoint)

    def check(self) -> None: ...

    def run(self, environment: object, report: object) -> None:
        writer = self._query.writeStream.format("noop").option("checkpointLocation", self._checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination(120)


@pytest.mark.covers("SP-3")
async def test_a_checkpoint_of_another_stream_ends_the_driver_for_good(
    spark: Any, fleet: Fleet, js: JetStreamContext, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    await fill(js, 10)
    await js.add_stream(name="T", subjects=["t"])
    nowhere = KubeAccess("https://127.0.0.1:1")

    def run(stream: str) -> int:
        program = QueryOf(spark, fleet.urls[0], stream, tmp_path / "checkpoint")
        return driver._run(program, {}, ProgressReporter(nowhere, "pipes", "count-x"))

    assert await asyncio.to_thread(run, "S") == driver.EXIT_OK
    assert await asyncio.to_thread(run, "T") == driver.EXIT_REFUSED
    last = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error: ")][-1]
    for words in ("reads stream 'S', and this one reads 'T'", "name another checkpoint location"):
        assert words in last


async def test_a_password_from_a_file_is_in_no_plan(
    spark: Any, fleet: Fleet, js: JetStreamContext, tmp_path: Path
) -> None:
    await fill(js, 5)
    secret = tmp_path / "users.json"
    secret.write_text(json.dumps({"users": [{"user": "app", "password": "hush-hush"}]}), encoding="utf-8")
    frame = reader(spark, fleet, credentialsFile=secret, user="app").load()
    assert frame.count() == 5
    assert "hush" not in frame._jdf.queryExecution().toString()
