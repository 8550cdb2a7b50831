"""Rows that Spark writes become messages, each once, whatever is repeated."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from benchmarks.client import wait_for_jetstream
from benchmarks.servers import Fleet, NatsServers
from nats.js import JetStreamContext

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def rows(spark: Any, count: int, partitions: int = 2) -> Any:
    return spark.range(0, count, 1, partitions).selectExpr(
        "concat('out.', id % 3) as subject",
        "map('Row', cast(id as string)) as headers",
        "string(id) as payload",
    )


def writer(write: Any, fleet: Fleet, **options: object) -> Any:
    chosen = {"url": fleet.urls[0], "stream": "OUT", **options}
    return write.format("supercluster").options(**{name: str(value) for name, value in chosen.items()})


async def stored(js: JetStreamContext) -> list[int]:
    """What the payloads say, in the order of the stream."""
    state = (await js.stream_info("OUT")).state
    if not state.messages:
        return []
    reader = await js.subscribe("out.>", ordered_consumer=True)
    found = [int((await reader.next_msg(timeout=20)).data) for _ in range(state.messages)]
    await reader.unsubscribe()
    return found


@pytest.mark.covers("SP-1")
async def test_a_batch_write_becomes_messages_in_the_order_of_its_partitions(
    spark: Any, fleet: Fleet, js: JetStreamContext
) -> None:
    await js.add_stream(name="OUT", subjects=["out.>"])
    writer(rows(spark, 20_000).write, fleet).mode("append").save()
    assert await stored(js) == list(range(20_000))
    message = await js.get_msg("OUT", 8)
    assert (message.subject, message.headers) == ("out.1", {"Row": "7"})
    # A write that nobody can repeat leaves no writer behind.
    answer = await js._nc.request("$JS.API.SINK.STATUS.OUT", b"", timeout=5)
    assert json.loads(answer.data)["writers"] == 0


@pytest.mark.covers("SP-1")
async def test_a_write_with_writer_and_batch_is_repeated_without_effect(
    spark: Any, fleet: Fleet, js: JetStreamContext
) -> None:
    await js.add_stream(name="OUT", subjects=["out.>"])
    for partitions in (2, 3):
        write = rows(spark, 100, partitions).write
        writer(write, fleet, writerId="nightly", batchId=4).mode("append").save()
    assert await stored(js) == list(range(100))
    with pytest.raises(Exception, match="batch: 3 is below 4"):
        writer(rows(spark, 1).write, fleet, writerId="nightly", batchId=3).mode("append").save()


@pytest.mark.covers("SP-1")
async def test_a_streaming_query_that_dies_behind_its_commit_writes_each_row_once(
    spark: Any, fleet: Fleet, js: JetStreamContext, tmp_path: Path
) -> None:
    await js.add_stream(name="S", subjects=["a.>"])
    await js.add_stream(name="OUT", subjects=["out.>"])

    async def publish(first: int, count: int) -> None:
        await asyncio.gather(*[await js.publish_async("a.x", b"%d" % n) for n in range(first, first + count)])

    def run() -> None:
        source = spark.readStream.format("supercluster").options(
            url=fleet.urls[0], stream="S", maxOffsetsPerTrigger="300", minPartitions="2"
        )
        frame = source.load().select("payload")
        query = (
            writer(frame.writeStream, fleet, subject="out.all", checkpointLocation=tmp_path / "c")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    await publish(0, 1000)
    run()
    assert await stored(js) == list(range(1000))
    # As if the driver had died between the sink's commit and its own note of it.
    commits = sorted((tmp_path / "c" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    await publish(1000, 200)
    run()
    found = await stored(js)
    assert found == list(range(1200)), Counter(found).most_common(3)


@pytest.mark.covers("SP-1")
async def test_a_write_within_foreach_batch_is_its_querys(
    spark: Any, fleet: Fleet, js: JetStreamContext, tmp_path: Path
) -> None:
    for name in ("S", "OUT"):
        await js.add_stream(name=name, subjects=[f"{name.lower()}.>"])
    for row in range(40):
        await js.publish("s.x", b"%d" % row)
    is_second = False
    source = spark.readStream.format("supercluster").options(
        url=fleet.urls[0], stream="S", maxOffsetsPerTrigger="20", minPartitions="1"
    )

    def write(frame: Any, batch: int) -> None:
        writer(frame.select("payload").write, fleet, subject="out.x").mode("append").save()
        if is_second:
            writer(frame.select("payload").write, fleet, subject="out.y").mode("append").save()
        if batch == 1:
            raise RuntimeError("behind its write")

    def run() -> None:
        query = source.load().writeStream.foreachBatch(write).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()

    for _ in range(2):
        with pytest.raises(Exception, match="behind its write"):
            run()  # The second time the batch is repeated.
    assert await stored(js) == list(range(40))
    is_second = True
    with pytest.raises(Exception, match="each needs a writer of its own"):
        run()  # Its rows are others, which would go as those of a repeated batch.
    assert await stored(js) == list(range(40))


@pytest.mark.covers("SP-1")
async def test_two_queries_are_not_one_writer(
    spark: Any, fleet: Fleet, js: JetStreamContext, tmp_path: Path
) -> None:
    """The second one's rows would go as those of a repeated batch."""
    for name in ("S", "OUT"):
        await js.add_stream(name=name, subjects=[f"{name.lower()}.>"])
    await js.publish("s.x", b"0")
    source = spark.readStream.format("supercluster").options(url=fleet.urls[0], stream="S", minPartitions="1")

    def write(frame: Any, batch: int) -> None:
        writer(frame.select("payload").write, fleet, subject="out.x", writerId="both").mode("append").save()

    def run(checkpoint: str) -> None:
        query = source.load().writeStream.foreachBatch(write).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / checkpoint)).start().awaitTermination()

    run("a")
    with pytest.raises(Exception, match="another query writes as both"):
        run("b")
    assert await stored(js) == [0]


async def test_a_writer_outside_a_query_says_its_batch(
    spark: Any, fleet: Fleet, js: JetStreamContext
) -> None:
    """Each of its writes would be batch 0, and all but the first be taken for repeats."""
    await js.add_stream(name="OUT", subjects=["out.>"])
    with pytest.raises(Exception, match="option 'batchId' is missing; give a number that grows"):
        writer(rows(spark, 5).write, fleet, writerId="nightly").mode("append").save()
    assert await stored(js) == []


@pytest.mark.parametrize(
    ("options", "columns", "says"),
    [
        ({}, "payload", "option 'subject' is missing"),
        ({"subject": "out.x"}, "payload, subject", "not both"),
        ({}, "subject, payload, 1 as sequence", "column sequence is none of a message"),
        (
            {"subject": "out.x"},
            "1 as payload",
            "column payload has the type int; cast it to binary or string",
        ),
        ({"subject": "elsewhere"}, "payload", "row 0: subject: stream OUT does not capture 'elsewhere'"),
        ({"subjct": "out.x"}, "payload", "did you mean 'subject'"),
        ({"subject": "out.x", "batchId": "1"}, "payload", "give a whole number, and the option writerId"),
        (
            {"subject": "out.x", "delivery": "maybe"},
            "payload",
            "give exactlyOnce, which is the default, or atLeastOnce",
        ),
    ],
)
async def test_what_cannot_be_written_is_refused_in_a_line(
    spark: Any, fleet: Fleet, js: JetStreamContext, options: dict[str, str], columns: str, says: str
) -> None:
    await js.add_stream(name="OUT", subjects=["out.>"])
    frame = rows(spark, 3, 1).selectExpr(*columns.split(", "))
    with pytest.raises(Exception, match=says):
        writer(frame.write, fleet, **options).mode("append").save()
    assert await stored(js) == []


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[Fleet]:
    with NatsServers(tmp_path, 1) as servers:
        wait_for_jetstream(servers.urls[0])
        yield servers


@pytest.mark.covers("SP-1")
async def test_a_stock_nats_server_is_written_to_at_least_once_or_not_at_all(
    spark: Any, nats_server: Fleet
) -> None:
    connection = await nats.connect(nats_server.urls[0])
    js = connection.jetstream()
    await js.add_stream(name="OUT", subjects=["out.>"])
    write = rows(spark, 600)
    with pytest.raises(
        Exception, match=r"a stock nats-server.*Write to Supercluster.s brokers, or set delivery"
    ):
        writer(write.write, nats_server).mode("append").save()
    writer(write.write, nats_server, delivery="atLeastOnce").mode("append").save()
    assert sorted(await stored(js)) == list(range(600))
    chosen = {"subject": "nobodys", "delivery": "atLeastOnce", "patienceSeconds": "0.5"}
    with pytest.raises(Exception, match="got no acknowledgement"):
        writer(write.select("payload").write, nats_server, **chosen).mode("append").save()
    await connection.close()
