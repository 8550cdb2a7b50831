"""A broker that stands still (SIGSTOP: starved, swapped out, its node frozen) and goes on as if nothing had been."""

from __future__ import annotations

import asyncio
import signal

import pytest
from tests.support.local_clusters import WAIT_S, Broker, Fleet, until

pytestmark = pytest.mark.e2e


async def _stand_still(fleet: Fleet, broker: Broker) -> None:
    """Stop its process until the others have given it up."""
    assert broker.process is not None
    broker.process.send_signal(signal.SIGSTOP)
    others = [other for other in fleet.running if other is not broker]

    async def given_up() -> bool:
        found = [await other.get("/routez") for other in others]
        return all(row and row["num_routes"] == len(others) - 1 for row in found)

    await until(given_up, f"the others to give {broker.name} up")


@pytest.mark.covers("SF-14", "SF-2")
@pytest.mark.parametrize("paused_leads", [True, pytest.param(False, marks=pytest.mark.long)])
async def test_what_waited_at_a_stopped_broker_is_captured_by_a_stream_made_meanwhile(
    fleet: Fleet, paused_leads: bool
) -> None:
    brokers = await fleet.start(3)
    meta = (await brokers[0].get("/jsz"))["meta"]["leader"]
    paused = next(broker for broker in brokers if (broker.name == meta) is paused_leads)
    others = [broker for broker in brokers if broker is not paused]
    reader, writer = await asyncio.open_connection(paused.host, 4222)
    writer.write(b"CONNECT {}\r\nPUB made.0 1\r\nx\r\nPING\r\n")
    await reader.readuntil(b"PONG\r\n")
    await _stand_still(fleet, paused)
    js = await fleet.js(*others)
    await js.add_stream(name="made", subjects=["made.>"], num_replicas=1)
    writer.write(b"".join(b"PUB made.%d 1\r\nx\r\n" % number for number in range(100)))
    await writer.drain()
    assert paused.process is not None
    paused.process.send_signal(signal.SIGCONT)
    writer.write(b"PING\r\n")
    await reader.readuntil(b"PONG\r\n")

    async def all_stored() -> bool:
        return bool((await js.stream_info("made")).state.messages == 100)

    await until(all_stored, "100 messages")
    writer.close()
    await writer.wait_closed()


@pytest.mark.covers("SF-29", "SF-15", "SF-2")
@pytest.mark.parametrize(
    ("wait_ms", "still_s"), [(2000, 3.0), pytest.param(10_000, 15.0, marks=pytest.mark.long)]
)
async def test_a_broker_that_stood_still_gives_nothing_up_that_it_took(
    fleet: Fleet, wait_ms: int, still_s: float
) -> None:
    """The stream's leader stands still when the messages come, so that they wait; it is back before their broker is."""
    brokers = await fleet.start(3, limits={"windowWaitMs": wait_ms})
    js = await fleet.js(brokers[0], allow_reconnect=False)
    await js.add_stream(name="S", subjects=["s"], num_replicas=1)
    leader = await fleet.leader("S")
    taker = next(broker for broker in brokers if broker is not leader)
    client = await fleet.client(taker, allow_reconnect=False)
    stops: list[Broker] = []
    try:
        for broker in (leader, taker):
            if broker is taker:
                asked = asyncio.create_task(client.jetstream().publish("s", b"asked", timeout=WAIT_S))
                for number in range(100):
                    await client.publish("s", b"%d" % number)
                await client.flush()
            assert broker.process is not None
            broker.process.send_signal(signal.SIGSTOP)
            stops.append(broker)
        leader.process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]
        await asyncio.sleep(still_s)  # What is shown is how long it stands still.
    finally:
        for broker in stops:
            broker.process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]
    await asked

    async def all_stored() -> bool:
        return bool((await js.stream_info("S")).state.messages == 101)

    await until(all_stored, "101 messages")
    assert client.is_connected
    assert client.last_error is None
    assert "was stopped for" in taker.log()
