"""The publishers keep their promises against a real server: bounded in flight, repeated when unanswered, never silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from benchmarks.servers import Fleet, NatsServers
from e2e.demo.flights import Flight, encode
from e2e.demo.publish import AcknowledgedPublisher, Login, PlainPublisher, PublishError
from nats.aio.client import Client
from nats.js import JetStreamContext

ROW = {"origin": "JFK", "carrier": "B6", "dep_delay": "3"}
FLIGHTS = [encode(number, ROW) for number in range(1, 1_501)]


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    with NatsServers(tmp_path, 1) as servers:
        yield servers


@pytest.fixture
async def js(fleet: Fleet) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(fleet.urls[0], reconnect_time_wait=0, max_reconnect_attempts=-1)
    context = client.jetstream()
    await context.add_stream(name="F", subjects=["flights.>"])
    yield context
    await client.close()


async def test_plain_messages_arrive_and_a_move_to_another_connection_loses_none(
    fleet: Fleet, js: JetStreamContext
) -> None:
    publisher = PlainPublisher(Login())
    await publisher.connect(fleet.urls[0])
    other_way_to_write_it = fleet.urls[0] + "/"
    publisher.move(other_way_to_write_it)
    await publisher.run(FLIGHTS)
    assert publisher.url == other_way_to_write_it
    assert publisher.connection_starts == [201]
    assert publisher.sent == 1_500

    # A flush says that the server has read them; it stores them after that.
    async with asyncio.timeout(60):
        while (await js.stream_info("F")).state.messages < 1_500:
            pass
    assert (await js.stream_info("F")).state.messages == 1_500


async def test_publishers_that_are_given_another_login_connect_anew_and_lose_nothing(
    fleet: Fleet, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[str, str]] = []
    connect = nats.connect

    async def noted(*places: Any, **options: Any) -> Client:
        shown.append((options["name"], options.get("password", "")))
        return await connect(*places, **options)

    monkeypatch.setattr("e2e.demo.publish.nats.connect", noted)
    plain = PlainPublisher(Login("app", "former"))
    acknowledged = AcknowledgedPublisher(Login("app", "former"), "roll")
    await plain.connect(fleet.urls[0])
    await acknowledged.connect(fleet.urls)
    plain.show(Login("app", "new"))
    await acknowledged.show(Login("app", "new"), fleet.urls)
    assert shown[2:] == [("demo-acknowledged", "new")], "the plain one waits for its next pause"
    await plain.run(FLIGHTS)
    assert shown[3:] == [("demo-plain", "new")]
    assert plain.connection_starts == [201]
    await acknowledged.run(encode(number, ROW) for number in range(2_001, 2_501))
    async with asyncio.timeout(60):
        while (await js.stream_info("F")).state.messages < 2_000:
            pass
    assert (await js.stream_info("F")).state.messages == 2_000
    await acknowledged.show(Login("app", "later"), fleet.urls)
    assert len(shown) == 4, "all was sent, so it does not come back"


async def test_a_plain_publisher_does_not_pass_over_a_broken_connection(
    fleet: Fleet, js: JetStreamContext
) -> None:
    publisher = PlainPublisher(Login())
    await publisher.connect(fleet.urls[0])

    def endless() -> Iterator[Flight]:
        yield from FLIGHTS
        fleet.brokers[0].kill()
        while True:
            yield from FLIGHTS

    with pytest.raises(PublishError, match="plain publisher"):
        await publisher.run(endless())


@pytest.mark.covers("MV-5")
async def test_unanswered_messages_are_repeated_after_the_broker_came_back_and_stored_once(
    fleet: Fleet, js: JetStreamContext
) -> None:
    publisher = AcknowledgedPublisher(Login(), "test")
    await publisher.connect([fleet.urls[0]])

    def with_a_death() -> Iterator[Flight]:
        for flight in FLIGHTS:
            if flight.number == 700:
                fleet.brokers[0].kill()
                fleet.brokers[0].start()
            yield flight

    await publisher.run(with_a_death())
    assert (publisher.sent, publisher.answered) == (1_500, 1_500)
    assert publisher.repeats > 0
    assert (await js.stream_info("F")).state.messages == 1_500


async def test_a_refusal_for_good_is_an_error(fleet: Fleet, js: JetStreamContext) -> None:
    await js.update_stream(name="F", subjects=["flights.>"], max_msg_size=10)
    publisher = AcknowledgedPublisher(Login(), "test")
    await publisher.connect([fleet.urls[0]])
    with pytest.raises(PublishError, match="refused"):
        await asyncio.wait_for(publisher.run([Flight(1, "flights.JFK.B6", b"x" * 100)]), 30)
