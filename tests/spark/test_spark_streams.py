"""Reads of several streams: by names and by a pattern, with streams that join and go, and with a real Spark."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from benchmarks.servers import Fleet
from nats.js import JetStreamContext
from nats.js.api import RetentionPolicy
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from supercluster.spark.datasource import streams
from supercluster.spark.datasource.options import read_options
from supercluster.spark.datasource.plan import OtherCheckpointError, StreamReplacedError
from supercluster.spark.datasource.source import BatchReader, StreamReader
from supercluster.spark.datasource.streams import NothingMatchesError, TooManyStreamsError
from supercluster.spark.jetstream import DataRemovedError, NotReadableError, StreamMissingError

pytestmark = pytest.mark.covers("SP-5")

COLUMNS = ("stream", "sequence")
Rows = list[tuple[str, int]]


async def fill(js: JetStreamContext, stream: str, count: int) -> None:
    """Publish so many messages, into a stream that is made where it is not there."""
    await js.add_stream(name=stream, subjects=[f"{stream}.>"])
    await asyncio.gather(*[await js.publish_async(f"{stream}.x", b"%d" % number) for number in range(count)])


def batch(fleet: Fleet, **options: str) -> BatchReader:
    return BatchReader(read_options({"url": fleet.urls[0], **options}, streaming=False), COLUMNS)


def stream(fleet: Fleet, **options: str) -> StreamReader:
    return StreamReader(read_options({"url": fleet.urls[0], **options}, streaming=True), COLUMNS)


def rows(reader: DataSourceReader | DataSourceStreamReader, partitions: Iterable[InputPartition]) -> Rows:
    found: Rows = []
    for partition in partitions:
        for table in reader.read(partition):
            assert isinstance(table, pa.RecordBatch)
            found += zip(*(column.to_pylist() for column in table.columns), strict=True)
    return found


def expect(**ranges: tuple[int, int]) -> Rows:
    return [(name, number) for name, (low, high) in ranges.items() for number in range(low, high + 1)]


async def test_a_batch_has_each_stream_from_its_own_start_to_its_own_end(
    fleet: Fleet, js: JetStreamContext
) -> None:
    await fill(js, "a", 30)
    for name, count in (("b", 20), ("c", 10)):
        await js.add_stream(name=name, subjects=[f"{name}.>"])
        for _ in range(count):  # One by one, so that each has a time of its own.
            await js.publish(f"{name}.x", b"")

    def read(**options: str) -> Rows:
        reader = batch(fleet, **options)
        return rows(reader, reader.partitions())

    async def check(wanted: Rows, **options: str) -> None:
        assert await asyncio.to_thread(read, **options) == wanted

    await check(expect(a=(1, 30), b=(1, 20)), subscribe="b,a")
    await check(expect(a=(1, 30), c=(1, 10)), subscribePattern="[ac]")
    bounds = {"startingOffsets": '{"a": 29, "b": -2}', "endingOffsets": '{"a": -1, "b": 3}'}
    await check(expect(a=(29, 30), b=(1, 2)), subscribe="a,b", **bounds)
    await check(expect(a=(1, 30), b=(11, 20)), subscribePattern="a|b", startingOffsets='{"b": 11}')
    answer = await js._api_request("$JS.API.STREAM.MSG.GET.b", b'{"seq": 5}')
    moment = answer["message"]["time"]
    await check(expect(b=(5, 20), c=(1, 10)), subscribe="a,b,c", startingTimestamp=moment)
    by_time = json.dumps({"a": 0, "b": moment})
    to_time = json.dumps({"a": 4_000_000_000_000, "b": moment})
    await check(expect(a=(1, 30), b=(1, 4)), subscribe="a,b", endingOffsetsByTimestamp=to_time)
    await check(expect(a=(1, 30), b=(5, 20)), subscribe="a,b", startingOffsetsByTimestamp=by_time)
    planned = await asyncio.to_thread(batch(fleet, subscribe="a,b,c", minPartitions="6").partitions)
    assert len(planned) == 6


async def test_what_cannot_be_read_says_what_to_do_in_one_line(
    fleet: Fleet, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(js, "a", 10)
    await js.add_stream(name="work", subjects=["work"], retention=RetentionPolicy.WORK_QUEUE)
    for kind, says, options in (
        (StreamMissingError, r"'gone' does not exist on these brokers; check", {"subscribe": "a,gone"}),
        (
            NothingMatchesError,
            r"none of the 2 streams .* matches subscribePattern 'A'.*; check",
            {"subscribePattern": "A"},
        ),
        (
            NotReadableError,
            r"'work' is a work queue .* have subscribePattern match no other",
            {"subscribePattern": ".*"},
        ),
    ):
        with pytest.raises(kind, match=says) as told:
            await asyncio.to_thread(batch(fleet, **options).partitions)
        assert "\n" not in str(told.value)
    monkeypatch.setattr(streams, "STREAMS_MAX", 1)
    with pytest.raises(TooManyStreamsError, match=r"2 streams match .*; narrow|narrow the pattern"):
        await asyncio.to_thread(batch(fleet, subscribePattern=".*").partitions)


async def test_streams_that_match_join_a_query_at_its_next_batch_from_their_first_message(
    fleet: Fleet, js: JetStreamContext
) -> None:
    reader = stream(fleet, subscribePattern="day-.*", startingOffsets="latest")
    start = await asyncio.to_thread(reader.initialOffset)
    assert start == {"streams": []}
    seen: list[Rows] = []

    def micro_batch(limit: Any = ReadAllAvailable()) -> None:  # noqa: B008
        nonlocal start
        end = reader.latestOffset(start, limit)
        planned = [
            rows(each, each.partitions(start, end))
            for each in (reader, stream(fleet, subscribePattern="day-.*"))
        ]
        assert planned[0] == planned[1], "another driver replays the batch"
        seen.append(planned[0])
        start = end

    await fill(js, "day-1", 10)
    await fill(js, "other", 5)
    await asyncio.to_thread(micro_batch)
    assert start["stream"] == "day-1"
    await fill(js, "day-2", 90)
    await js.purge_stream("day-2", seq=11)
    await asyncio.to_thread(micro_batch, ReadMaxRows(30))
    await js.publish("day-1.x", b"")
    await asyncio.to_thread(micro_batch, ReadMaxBytes(1))
    await asyncio.to_thread(micro_batch)
    assert seen == [
        expect(**{"day-1": (1, 10)}),
        expect(**{"day-2": (11, 40)}),
        expect(**{"day-1": (11, 11), "day-2": (41, 41)}),
        expect(**{"day-2": (42, 90)}),
    ]
    latest = await asyncio.to_thread(reader.reportLatestOffset)
    assert latest is not None
    assert {each["stream"]: each["next"] for each in latest["streams"]} == {"day-1": 12, "day-2": 91}
    with pytest.raises(
        OtherCheckpointError, match=r"reads stream 'day-1', and this one reads what matches 'week'"
    ):
        await asyncio.to_thread(
            stream(fleet, subscribePattern="week").latestOffset, start, ReadAllAvailable()
        )
    with pytest.raises(
        OtherCheckpointError, match=r"reads stream 'day-2', and this one reads 'day-1', 'other'"
    ):
        await asyncio.to_thread(
            stream(fleet, subscribe="day-1,other").latestOffset, start, ReadAllAvailable()
        )


async def test_a_stream_that_goes_or_is_made_again_stops_a_query_unless_data_loss_is_allowed(
    fleet: Fleet, js: JetStreamContext
) -> None:
    await fill(js, "a", 5)
    await fill(js, "b", 5)
    strict = [stream(fleet, subscribe="a,b"), stream(fleet, subscribePattern="a|b")]
    lenient = stream(fleet, subscribePattern="a|b", failOnDataLoss="false")
    start = await asyncio.to_thread(lenient.initialOffset)

    def step(reader: StreamReader) -> Rows:
        end = reader.latestOffset(start, ReadAllAvailable())
        return rows(reader, reader.partitions(start, end))

    await js.purge_stream("a", seq=4)
    for reader in strict:
        with pytest.raises(DataRemovedError, match=r"'a': sequence 1 .* Set failOnDataLoss to false"):
            await asyncio.to_thread(step, reader)
    assert await asyncio.to_thread(step, lenient) == expect(a=(4, 5), b=(1, 5))
    await js.delete_stream("a")
    for reader in strict:
        with pytest.raises(
            StreamMissingError, match=r"'a' was deleted while it was read; .* a new checkpoint"
        ):
            await asyncio.to_thread(step, reader)
    assert await asyncio.to_thread(step, lenient) == expect(b=(1, 5))
    await fill(js, "a", 2)
    for reader in strict:
        with pytest.raises(StreamReplacedError, match=r"'a' .* deleted and created again"):
            await asyncio.to_thread(step, reader)
    assert await asyncio.to_thread(step, lenient) == expect(a=(1, 2), b=(1, 5))


@pytest.mark.spark
@pytest.mark.timeout(300)
async def test_a_query_of_one_stream_goes_on_with_several_from_its_checkpoint(
    spark: Any, fleet: Fleet, js: JetStreamContext, tmp_path: Path
) -> None:
    await fill(js, "a", 100)
    await fill(js, "b", 50)
    checkpoint, found = tmp_path / "checkpoint", []

    def run(**options: str) -> list[int]:
        sizes = []

        def write(frame: Any, batch_id: int) -> None:
            read = [(row.stream, row.sequence) for row in frame.collect()]
            sizes.append(len(read))
            found.extend(read)

        query = (
            spark.readStream.format("supercluster")
            .options(url=fleet.urls[0], **options)
            .schema("stream string, sequence bigint")
            .load()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return sizes

    assert await asyncio.to_thread(run, stream="a") == [100]
    written = json.loads((checkpoint / "offsets" / "0").read_text().splitlines()[-1])
    assert set(written) == {"stream", "lineage", "next"}
    await fill(js, "a", 60)
    assert await asyncio.to_thread(run, subscribePattern="[ab]", maxOffsetsPerTrigger="80") == [80, 30]
    assert sorted(found) == expect(a=(1, 160), b=(1, 50))
