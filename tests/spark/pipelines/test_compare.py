"""Two clusters' copies are compared message by message, and differences are narrowed to sequences."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import nats
import pytest
from benchmarks.client import wait_for_jetstream
from benchmarks.servers import Fleet, SuperclusterBrokers
from nats.js import JetStreamContext

from supercluster.spark.pipelines import rounds
from supercluster.spark.pipelines.compare import differences
from supercluster.spark.pipelines.compare.differences import Comparison, Difference, compare
from supercluster.spark.pipelines.compare.pipeline import CompareParameters, ComparePipeline
from supercluster.spark.pipelines.parameters import ParameterError, read_parameters
from supercluster.spark.pipelines.pipeline import FindingsError, RunOptions
from supercluster.spark.pipelines.read_task import Block
from supercluster.spark.wire import Record


def message(sequence: int, payload: bytes = b"x", time_us: int = 5, header: bytes = b"") -> Record:
    return sequence, time_us * 1_000, b"s", header, payload


def compared(here: list[Record], there: list[Record], *, with_times: bool = False) -> Comparison:
    return compare(Block(1, 100), [here], [there[:2], there[2:]], with_times=with_times)


@pytest.mark.covers("SP-4")
def test_differences_are_ranges_of_sequences_with_their_kind() -> None:
    here = [message(each) for each in (1, 2, 3, 6, 7, 8, 9)]
    there = [
        message(1),
        message(2),
        message(4),
        message(6, b"y"),
        message(7, b"z"),
        message(8),
        message(9, header=b"NATS/1.0\r\nA: 1\r\n\r\n"),
    ]
    found = compared(here, there)
    assert found.differences == [
        Difference("only here", 3, 3, 1),
        Difference("only there", 4, 4, 1),
        Difference("different payload", 6, 7, 2),
        Difference("different headers", 9, 9, 1),
    ]
    assert (found.rows_here, found.rows_there) == (7, 7)
    assert found.digest_here != found.digest_there


def test_times_count_where_they_are_asked_for() -> None:
    here, there = [message(1), message(2)], [message(1), message(2, time_us=6)]
    assert compared(here, there).differences == []
    found = compared(here, there, with_times=True)
    assert found.differences == [Difference("different time", 2, 2, 1)]
    assert found.digest_here != found.digest_there


def test_many_differences_are_counted_without_names() -> None:
    here = [message(2 * each) for each in range(1, differences.RANGES_MAX + 6)]
    there = [message(each[0], b"y" if at % 2 else b"x", 7) for at, each in enumerate(here)]
    found = compared([*here, *(message(10_000 + each, b"%d" % (each % 2)) for each in range(3_000))], there)
    assert sum(each.count for each in found.differences) + found.unnamed == 3_000 + len(here) // 2
    assert len(found.differences) <= differences.RANGES_MAX


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with SuperclusterBrokers(tmp_path_factory.mktemp("other"), 1) as servers:
        wait_for_jetstream(servers.urls[0])
        yield servers


@pytest.fixture
async def there(other: Fleet) -> AsyncIterator[JetStreamContext]:
    connection = await nats.connect(other.urls[0])
    context = connection.jetstream()
    yield context
    await context.delete_stream("S")
    await connection.close()


async def test_two_clusters_are_compared(
    fleet: Fleet,
    other: Fleet,
    js: JetStreamContext,
    there: JetStreamContext,
    runner: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "SEQUENCES_PER_BLOCK", 10)
    for side in (js, there):
        await side.add_stream(name="S", subjects=["S"])
        for number in range(1, 101):
            await side.publish("S", b"%d" % (0 if side is there and number == 55 else number))
    lines: list[str] = []
    reports: list[Any] = []

    async def run(**given: object) -> None:
        lines.clear()
        reports.clear()
        wanted = {"streams": "S", "otherUrl": other.urls[0], **given}
        options = RunOptions({"url": fleet.urls[0]}, report=reports.append)
        pipeline = ComparePipeline(lines.append)
        await asyncio.to_thread(pipeline.run, runner, read_parameters(CompareParameters, wanted), options)

    with pytest.raises(FindingsError, match=r"^1 differences$"):
        await run()
    assert lines == [
        "stream S: different payload, sequences 55 to 55 (1)",
        "stream S: 100 messages compared, 1 differences",
    ]
    assert [each["first"] for each in reports if each["digest"] != each["otherDigest"]] == [31]
    await js.delete_msg("S", 55)
    await there.delete_msg("S", 55)
    await run()
    assert lines == ["stream S: 99 messages compared, 0 differences"]
    await js.publish("S", b"101")
    await there.purge_stream("S", seq=3)
    with pytest.raises(FindingsError, match=r"^3 differences$"):
        await run()
    assert lines[:2] == [
        "stream S: begins at sequence 1 here and at 3 there",
        "stream S: ends at sequence 101 here and at 100 there",
    ]
    await run(ends="false")
    parameters = read_parameters(CompareParameters, {"streams": "S", "otherUrl": other.urls[0]})
    with pytest.raises(ParameterError, match="compare has an end"):
        ComparePipeline().run(runner, parameters, RunOptions(is_continuous=True))
