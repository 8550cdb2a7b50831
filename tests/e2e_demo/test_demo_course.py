"""The demo's course on three brokers of ours, with a part of the data set: it kills the right broker, and counts right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import nats
import pytest
from e2e.demo import run
from e2e.demo.brokers import DirectBrokers
from e2e.demo.flights import Flight, data_file, encode, read_rows
from e2e.demo.publish import AcknowledgedPublisher, Login, PlainPublisher


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectBrokers]:
    with ExitStack() as stack:
        yield DirectBrokers("supercluster", tmp_path_factory.mktemp("brokers"), stack)


@pytest.fixture
async def brokers(three: DirectBrokers) -> AsyncIterator[DirectBrokers]:
    """The same brokers for all tests, with an empty stream for each."""
    await three.create_stream()
    yield three
    client = await nats.connect(list(three.urls().values()))
    assert await client.jetstream(timeout=10).delete_stream(three.stream)
    await client.close()


@pytest.mark.covers("MV-5", "SF-2", "SF-4", "MR-7")
async def test_a_killed_leader_and_a_lost_volume_lose_and_repeats_nothing_of_either_kind(
    brokers: DirectBrokers,
) -> None:
    rows = read_rows(data_file())[:30_000]
    said: list[str] = []
    marks = {name: brokers.volume(name) / "mark-of-the-test" for name in brokers.urls()}
    for mark in marks.values():
        mark.touch()
    report = await run.publish(brokers, rows, said.append, "course")
    ledger = await asyncio.to_thread(run.read_ledger, brokers, len(rows), report.plain.connection_starts)
    assert (ledger.lost, ledger.repeated, ledger.foreign, ledger.disordered) == (0, 0, 0, 0)
    assert (report.plain.sent, report.acknowledged.sent) == (15_000, 15_000)
    assert f"killing the stream's leader {report.killed} with SIGKILL" in said
    assert report.stall_seconds > 0
    assert report.loss.messages == 30_000
    assert {name for name, mark in marks.items() if not mark.exists()} == {report.loss.broker}
    watch = run.StreamWatch(brokers)
    await watch.open()
    assert await watch.leader() == report.loss.broker, "the ledger was read from the volume that was empty"
    await watch.close()


async def test_the_ledger_sees_a_message_that_is_missing_and_one_that_is_there_twice(
    brokers: DirectBrokers,
) -> None:
    client = await nats.connect(list(brokers.urls().values()))
    js = client.jetstream(timeout=10)
    row = {"origin": "JFK", "carrier": "B6"}
    for number in (1, 2, 4, 4, 5):
        flight = encode(number, row)
        await js.publish(flight.subject, flight.payload)
    await client.close()
    ledger = await asyncio.to_thread(run.read_ledger, brokers, 5, ())
    assert (ledger.lost, ledger.examples_lost(), ledger.repeated) == (1, [3], 1)


async def test_before_the_kill_publishers_are_moved_to_where_they_belong(brokers: DirectBrokers) -> None:
    watch = run.StreamWatch(brokers)
    await watch.open()
    leader = await watch.leader()
    urls = brokers.urls()
    other = next(url for name, url in urls.items() if name != leader)
    plain, acknowledged = PlainPublisher(Login()), AcknowledgedPublisher(Login(), "moved")
    await plain.connect(urls[leader])
    await acknowledged.connect([other])
    stop = asyncio.Event()

    def until_stopped() -> Iterator[Flight]:
        number = 1
        while not stop.is_set():
            yield encode(number, {"origin": "JFK", "carrier": "B6"})
            number += 2

    publishing = asyncio.create_task(plain.run(until_stopped()))
    assert await run._arrange(brokers, watch, plain, acknowledged) == leader
    stop.set()
    await publishing
    assert plain.url != urls[leader]
    assert acknowledged.connected_url == urls[leader].removeprefix("nats://")
    await acknowledged.close()
    # Nobody answered the plain ones: the last may still be on their way.
    await run.wait_for_arrival(watch, plain.sent, pytest.fail)
    await watch.close()
    ledger = await asyncio.to_thread(run.read_ledger, brokers, 2 * plain.sent, plain.connection_starts)
    assert ledger.lost == plain.sent  # the even numbers, which nobody published
    assert (ledger.repeated, ledger.disordered) == (0, 0)
