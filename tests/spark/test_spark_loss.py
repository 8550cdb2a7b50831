"""What goes between a plan and its tasks, or before a given start, stops a query that asked to be stopped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from benchmarks.servers import Fleet
from nats.js import JetStreamContext
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from supercluster.spark.client import Address, Credentials, Servers
from supercluster.spark.datasource import source
from supercluster.spark.datasource.options import read_options
from supercluster.spark.datasource.plan import StreamReplacedError
from supercluster.spark.datasource.source import BatchReader, StreamReader
from supercluster.spark.jetstream import (
    SETTLED_SECONDS,
    ApiRefusedError,
    DataRemovedError,
    JetStreamSession,
    StartBeyondEndError,
    StreamCutOffError,
    StreamMissingError,
    StreamState,
    settled,
)
from supercluster.spark.nats.nats_reader import NatsReader
from supercluster.spark.nats.reader import read_range

pytestmark = pytest.mark.covers("SP-1")


def batch(fleet: Fleet, **options: str) -> BatchReader:
    return BatchReader(
        read_options({"url": fleet.urls[0], "stream": "S", **options}, streaming=False), ("sequence",)
    )


def stream(fleet: Fleet, **options: str) -> StreamReader:
    return StreamReader(
        read_options({"url": fleet.urls[0], "stream": "S", **options}, streaming=True), ("sequence",)
    )


def opened(fleet: Fleet) -> JetStreamSession:
    return JetStreamSession(Servers([Address.parse(fleet.urls[0])], Credentials()), patience_seconds=20)


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
            await asyncio.to_thread(batch(fleet, startingOffsets=wanted).partitions)
        with pytest.raises(DataRemovedError, match=f"sequence {wanted} .* begins at 51"):
            await asyncio.to_thread(stream(fleet, startingOffsets=wanted).initialOffset)
        lenient = {"startingOffsets": wanted, "failOnDataLoss": "false"}
        assert await asyncio.to_thread(read, lenient) == list(range(51, 101))
    assert await asyncio.to_thread(read, {}) == list(range(51, 101))
    assert await asyncio.to_thread(read, {"startingOffsets": "51"}) == list(range(51, 101))
    assert await asyncio.to_thread(read, {"startingOffsets": "101"}) == []
    for reader in (
        batch(fleet, startingOffsets="102").partitions,
        stream(fleet, startingOffsets="102").initialOffset,
    ):
        with pytest.raises(
            StartBeyondEndError, match=r"ends at sequence 100.*behind it \(102\); give at most 101"
        ):
            await asyncio.to_thread(reader)
    with pytest.raises(StartBeyondEndError, match=r"behind it \(2999.*; give a time that has passed"):
        await asyncio.to_thread(batch(fleet, startingOffsets='{"S": "2999-01-01T00:00:00Z"}').partitions)


async def test_offsets_may_be_times_and_the_end_is_exclusive(fleet: Fleet, js: JetStreamContext) -> None:
    await js.add_stream(name="S", subjects=["a.>"])
    for _ in range(40):
        await js.publish("a.b", b"")
    for gone in (20, 21):
        await js.delete_msg("S", gone)
    answer = await js._api_request("$JS.API.STREAM.MSG.GET.S", b'{"seq": 30}')
    moment = answer["message"]["time"]

    def read(**options: str) -> list[int]:
        reader = batch(fleet, **options)
        return sequences(reader, reader.partitions())

    found = await asyncio.to_thread(read, startingOffsets=json.dumps({"S": 18}), endingOffsets='{"S": 23}')
    assert found == [18, 19, 22]
    assert await asyncio.to_thread(read, startingOffsets=json.dumps({"S": moment})) == list(range(30, 41))
    assert (await asyncio.to_thread(read, endingOffsets=json.dumps({"S": moment})))[-1] == 29
    assert await asyncio.to_thread(
        read, startingOffsets='{"S": "2020-01-01T00:00:00+01:00"}', endingOffsets="3"
    ) == [1, 2]


async def test_a_micro_batch_keeps_to_the_limits_of_options_and_of_spark(
    fleet: Fleet, hundred: JetStreamContext
) -> None:
    def end(reader: StreamReader, begin: int, limit: ReadLimit | None = None) -> int:
        start = {**reader.initialOffset(), "next": begin}
        return int(reader.latestOffset(start, limit or reader.getDefaultReadLimit())["next"])

    def check() -> None:
        assert end(stream(fleet), 1) == 101
        assert end(stream(fleet), 1, ReadMaxRows(30)) == 31
        assert 5 <= end(stream(fleet), 1, ReadMaxBytes(500)) <= 30
        assert end(stream(fleet, maxOffsetsPerTrigger="10"), 1) == 11
        assert end(stream(fleet, maxOffsetsPerTrigger="10"), 1, ReadAllAvailable()) == 101
        for options in ({}, {"maxOffsetsPerTrigger": "60"}):
            reader = stream(fleet, minOffsetsPerTrigger="50", maxTriggerDelay="1h", **options)
            assert end(reader, 60) == 101, "the first batch does not wait"
            assert end(reader, 60) == 60
            assert end(reader, 51) == 101
        reader = stream(fleet, minOffsetsPerTrigger="50", maxTriggerDelay="0ms")
        assert [end(reader, 60), end(reader, 60)] == [101, 101]
        reader = stream(fleet, minOffsetsPerTrigger="50")
        reader.prepareForTriggerAvailableNow()
        assert [end(reader, 60), end(reader, 60)] == [101, 101], "an AvailableNow query ends"

    await asyncio.to_thread(check)


async def test_as_many_tasks_are_planned_as_were_asked_for(fleet: Fleet, hundred: JetStreamContext) -> None:
    assert len(await asyncio.to_thread(batch(fleet).partitions)) == 1
    assert len(await asyncio.to_thread(batch(fleet, minPartitions="8").partitions)) == 8


async def test_a_stream_that_is_made_again_while_a_task_reads_stops_it(
    fleet: Fleet, hundred: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, loop = batch(fleet), asyncio.get_running_loop()
    planned = await asyncio.to_thread(reader.partitions)

    async def make_again() -> None:
        await hundred.delete_stream("S")
        await hundred.add_stream(name="S", subjects=["a.>"])
        await asyncio.gather(*[await hundred.publish_async("a.b", b"other") for _ in range(100)])

    read_all = NatsReader.read

    def read(*given: Any) -> Iterator[pa.RecordBatch]:
        asyncio.run_coroutine_threadsafe(make_again(), loop).result(20)
        yield from read_all(*given)

    monkeypatch.setattr(NatsReader, "read", read)
    with pytest.raises(StreamReplacedError, match="deleted and created again"):
        await asyncio.to_thread(sequences, reader, planned)


@pytest.mark.covers("SP-5")
async def test_a_stream_that_is_deleted_in_the_middle_of_a_query_says_what_to_do(
    fleet: Fleet, js: JetStreamContext
) -> None:
    await js.add_stream(name="S", subjects=["a.>"])
    await asyncio.gather(*[await js.publish_async("a.b", b"") for _ in range(4_000)])
    loop, reader, streaming = asyncio.get_running_loop(), batch(fleet), stream(fleet)
    planned = await asyncio.to_thread(reader.partitions)
    start = await asyncio.to_thread(streaming.initialOffset)
    session = opened(fleet)
    seen: list[int] = []

    def read() -> None:
        for records in read_range(session, "S", 1, 4_000, patience_seconds=20):
            if not seen:
                asyncio.run_coroutine_threadsafe(js.delete_stream("S"), loop).result(20)
            seen.extend(record[0] for record in records)
        pytest.fail("the range was read to its end")

    for attempt in (
        read,
        lambda: sequences(reader, planned),
        lambda: streaming.latestOffset(start, ReadAllAvailable()),
        streaming.reportLatestOffset,
    ):
        with pytest.raises(
            StreamMissingError, match=r"was deleted while it was read; .* a new checkpoint"
        ) as told:
            await asyncio.to_thread(attempt)
        assert "$JS" not in str(told.value)
        assert "\n" not in str(told.value)
    session.drop()
    with pytest.raises(
        StreamMissingError, match="does not exist on these brokers; check the option 'stream'"
    ):
        await asyncio.to_thread(batch(fleet).partitions)


async def test_a_stream_that_became_shorter_stops_a_plan(fleet: Fleet, hundred: JetStreamContext) -> None:
    reader = stream(fleet)
    start = await asyncio.to_thread(reader.initialOffset)
    with pytest.raises(StreamCutOffError, match=r"ends at sequence 100, .* was at 120"):
        await asyncio.to_thread(reader.partitions, start, {**start, "next": 121})


def test_what_brokers_refuse_names_the_request_and_no_subject() -> None:
    error = {"description": "no", "code": 400, "err_code": 10025}
    told = str(ApiRefusedError("$JS.API.CONSUMER.CREATE.s.spark-1", error))
    assert told == "JetStream refused CONSUMER.CREATE: no (code 400, err_code 10025)"


def test_a_leader_that_stood_still_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers from its old state until it hears of the next leader. An end that stays is an error."""
    now_s = [0.0]
    monkeypatch.setattr("supercluster.spark.jetstream.time.monotonic", lambda: now_s[0])
    monkeypatch.setattr(
        "supercluster.spark.jetstream.time.sleep", lambda seconds: now_s.append(now_s.pop() + seconds)
    )

    def look(right_at_s: float) -> str:
        if now_s[0] < right_at_s:
            raise StreamCutOffError("S", 100, 50)
        return "right"

    assert settled(lambda: look(2.0)) == "right"
    began_s = now_s[0]
    with pytest.raises(StreamCutOffError):
        settled(lambda: look(1000.0))
    assert now_s[0] - began_s == SETTLED_SECONDS


class LateLeader:
    """Of the streams of a read: its first answer is from before the query's last batch."""

    def __init__(self) -> None:
        self.ends = [50, 150]

    def states(self, before: Any = None, *, was_read: bool = False) -> dict[str, StreamState]:
        last = self.ends.pop(0)
        return {"S": StreamState("S", "l", 1, last, last, 100)}

    def states_of(self, names: Any, *, is_required: bool) -> dict[str, StreamState]:
        return self.states()

    def check_own(self, names: Any) -> None:
        pass


def test_a_query_asks_a_leader_that_stood_still_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supercluster.spark.jetstream.PAUSE_SECONDS_MAX", 0.0)
    leaders: list[LateLeader] = []

    @contextmanager
    def looking_at(options: Any) -> Iterator[LateLeader]:
        yield leaders[-1]

    monkeypatch.setattr(source, "looking_at", looking_at)
    reader = StreamReader(
        read_options({"url": "nats://nowhere:1", "stream": "S"}, streaming=True), ("sequence",)
    )
    begin, end = ({"stream": "S", "lineage": "l", "next": number} for number in (101, 151))
    leaders.append(LateLeader())
    assert reader.latestOffset(begin, ReadAllAvailable()) == end
    leaders.append(LateLeader())
    ranges: Any = reader.partitions(begin, end)
    assert (ranges[0].first, ranges[-1].last) == (101, 150)
    assert [leader.ends for leader in leaders] == [[], []]
