"""What a user of Spark sees when a read goes wrong: one line that says what to do, which `one_line` finds for a pipeline's status."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from benchmarks.servers import Fleet
from nats.js import JetStreamContext

from supercluster.spark.errors import one_line

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.covers("SP-5")]


def last_line(error: Exception) -> str:
    """Of what Python prints, without Spark's number for the kind of error."""
    return [line for line in str(error).splitlines() if line.strip() and "SQLSTATE" not in line][-1]


async def test_a_read_that_goes_wrong_ends_in_a_line_with_the_remedy(
    spark: Any, fleet: Fleet, js: JetStreamContext
) -> None:
    await js.add_stream(name="S", subjects=["a"])
    for _ in range(3):
        await js.publish("a", b"")
    for options, kind, remedy in (
        ({"stream": "S", "startingOfsets": "1"}, "OptionError", "did you mean 'startingOffsets'?"),
        ({"stream": "NOPE"}, "StreamMissingError", "check the option 'stream'"),
        ({"stream": "S", "startingOffsets": "9"}, "StartBeyondEndError", "give at most 4, or check"),
    ):
        with pytest.raises(Exception) as told:
            spark.read.format("supercluster").options(url=fleet.urls[0], **options).load().count()
        assert one_line(told.value).startswith(kind)
        assert one_line(told.value) in last_line(told.value)
        assert remedy in last_line(told.value)


async def test_a_query_whose_stream_was_purged_deleted_or_made_again_ends_in_a_line_with_the_remedy(
    spark: Any, fleet: Fleet, js: JetStreamContext, tmp_path: Path
) -> None:
    async def fill(count: int) -> None:
        await js.add_stream(name="S", subjects=["a"])
        for _ in range(count):
            await js.publish("a", b"")

    def run() -> None:
        query = spark.readStream.format("supercluster").options(url=fleet.urls[0], stream="S").load()
        writer = query.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)

    async def expect(kind: str, remedy: str) -> None:
        with pytest.raises(Exception) as told:
            await asyncio.to_thread(run)
        assert one_line(told.value).startswith(kind)
        assert remedy in one_line(told.value)
        # Spark adds the query's plan behind it.
        assert any(line.endswith(one_line(told.value)) for line in str(told.value).splitlines())

    await fill(3)
    await asyncio.to_thread(run)
    await fill(5)
    await js.purge_stream("S", seq=6)
    await expect("DataRemovedError", "Set failOnDataLoss to false")
    await js.delete_stream("S")
    await expect("StreamMissingError", "check the option 'stream'")
    await fill(1)
    await expect("StreamReplacedError", "Start the query with a new checkpoint location")
