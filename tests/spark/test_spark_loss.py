"""What goes between a plan and its tasks, or before a given start, stops a query that asked to be stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from benchmarks.servers import Fleet
from nats.js import JetStreamContext
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from supercluster.spark.datasource import source
from supercluster.spark.datasource.options import read_options
from supercluster.spark.datasource.plan import StreamReplacedError
from supercluster.spark.datasource.source import BatchReader, StreamReader
from supercluster.spark.jetstream import DataRemovedError
from supercluster.spark.reader import Record, read_range

pytestmark = pytest.mark.covers("SP-1")


def batch(fleet: Fleet, **options: str) -> BatchReader:
    return BatchReader(
        read_options({"url": fleet.urls[0], "stream": "S", **options}, streaming=False), ("sequence",)
    )


def stream(fleet: Fleet, **options: str) -> StreamReader:
    return StreamReader(
        read_options({"url": fleet.urls[0], "stream": "S", **options}, streaming=True), ("sequence",)
    )


def sequences(
    reader: DataSourceReader | DataSourceStreamReader, partitions: Iterable[InputPartition]
) -> list[int]:
    found: list[int] = []
    for partition in partitions:
        for table in reader.read(partition):
            assert isinstance(table, pa.RecordBatch)
            found += table.column(0).to_pylist()
    return found


@pytest.fixture
async def hundred(js: JetStreamContext) -> JetStreamContext:
    await js.add_stream(name="S", subjects=["a.>"])
    await asyncio.gather(*[await js.publish_async("a.b", b"%d" % number) for number in range(100)])
    return js


@pytest.mark.parametrize("purged_below", [51, 101])
async def test_what_goes_between_the_plan_of_a_batch_and_its_tasks_stops_it(
    fleet: Fleet, hundred: JetStreamContext, purged_below: int
) -> None:
    strict, lenient = batch(fleet), batch(fleet, failOnDataLoss="false")
    planned = await asyncio.to_thread(strict.partitions)
    await hundred.purge_stream("S", seq=purged_below)
    with pytest.raises(DataRemovedError, match=f"sequence 1 .* begins at {purged_below}"):
        await asyncio.to_thread(sequences, strict, planned)
    assert await asyncio.to_thread(sequences, lenient, planned) == list(range(purged_below, 101))


@pytest.mark.parametrize("purged_below", [51, 101])
async def test_what_goes_between_the_plan_of_a_micro_batch_and_its_tasks_stops_it(
    fleet: Fleet, hundred: JetStreamContext, purged_below: int
) -> None:
    strict, lenient = stream(fleet), stream(fleet, failOnDataLoss="false")

    def plan() -> list[InputPartition]:
        start = strict.initialOffset()
        return list(strict.partitions(start, strict.latestOffset(start, ReadAllAvailable())))

    planned = await asyncio.to_thread(plan)
    await hundred.purge_stream("S", seq=purged_below)
    with pytest.raises(DataRemovedError, match=f"sequence 1 .* begins at {purged_below}"):
        await asyncio.to_thread(sequences, strict, planned)
    assert await asyncio.to_thread(sequences, lenient, planned) == list(range(purged_below, 101))


async def test_a_given_start_that_is_gone_is_an_error_and_the_earliest_is_not(
    fleet: Fleet, hundred: JetStreamContext
) -> None:
    await hundred.purge_stream("S", seq=51)

    def read(options: dict[str, str]) -> list[int]:
        reader = batch(fleet, **options)
        return sequences(reader, reader.partitions())

    for wanted in ("10", "50"):
        with pytest.raises(DataRemovedError, match=f"sequence {wanted} .* begins at 51"):
            await asyncio.to_thread(batch(fleet, startingSequence=wanted).partitions)
        with pytest.raises(DataRemovedError, match=f"sequence {wanted} .* begins at 51"):
            await asyncio.to_thread(stream(fleet, startingSequence=wanted).initialOffset)
        lenient = {"startingSequence": wanted, "failOnDataLoss": "false"}
        assert await asyncio.to_thread(read, lenient) == list(range(51, 101))
    assert await asyncio.to_thread(read, {}) == list(range(51, 101))
    assert await asyncio.to_thread(read, {"startingSequence": "51"}) == list(range(51, 101))
    assert await asyncio.to_thread(read, {"startingSequence": "101"}) == []


async def test_a_stream_that_is_made_again_while_a_task_reads_stops_it(
    fleet: Fleet, hundred: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, loop = batch(fleet), asyncio.get_running_loop()
    planned = await asyncio.to_thread(reader.partitions)

    async def make_again() -> None:
        await hundred.delete_stream("S")
        await hundred.add_stream(name="S", subjects=["a.>"])
        await asyncio.gather(*[await hundred.publish_async("a.b", b"other") for _ in range(100)])

    def read(*given: Any, **options: Any) -> Iterator[list[Record]]:
        asyncio.run_coroutine_threadsafe(make_again(), loop).result(20)
        yield from read_range(*given, **options)

    monkeypatch.setattr(source, "read_range", read)
    with pytest.raises(StreamReplacedError, match="deleted and created again"):
        await asyncio.to_thread(sequences, reader, planned)
