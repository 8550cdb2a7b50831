"""A leader that stands still is replaced: what it was about to hand out, and what it was acknowledged, is not left waiting.

Only what the turn in which it was stopped had handed out may be gone with a link, and comes again when the time for its
acknowledgement is over."""

from __future__ import annotations

import asyncio
import signal
from functools import partial

import pytest
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig
from nats.js.errors import ServiceUnavailableError
from tests.support.local_clusters import Broker, Fleet, until

pytestmark = pytest.mark.e2e

ACK_WAIT_S = 20
STOPS = (1, 2, 1)
IN_A_TURN_MAX = 100
"""More than a turn hands out here: each consumer's batch, twice."""


@pytest.mark.covers("SF-2", "MV-10")
async def test_nothing_waits_for_its_acknowledgements_time_when_a_leader_stood_still(fleet: Fleet) -> None:
    brokers = await fleet.start(3)
    js = await fleet.js(*brokers)
    await js.add_stream(name="S", subjects=["s"], num_replicas=3)
    seen: list[int] = []
    again: list[int] = []

    async def take(message: Msg) -> None:
        note(message, seen)
        await message.ack()

    def note(message: Msg, where: list[int]) -> None:
        where.append(message.metadata.sequence.stream)
        if message.metadata.num_delivered > 1:
            again.append(message.metadata.sequence.stream)

    await js.subscribe("s", durable="push", cb=take, manual_ack=True, config=_config())
    pull = await js.pull_subscribe("s", durable="pull", config=_config())
    is_over = asyncio.Event()
    pulled: list[int] = []

    async def publish() -> None:
        while not is_over.is_set():
            await asyncio.gather(*(js.publish("s", b"", timeout=20) for _ in range(8)))

    async def fetch() -> None:
        while not is_over.is_set():
            try:
                for message in await pull.fetch(20, timeout=1):
                    note(message, pulled)
                    await message.ack()
            except (TimeoutError, ServiceUnavailableError):
                continue  # Nothing came, or nobody led for as long as a broker keeps a request (REQUEST_WAIT_MS).

    async def more_than(count: int) -> bool:
        return len(seen) > count

    async def stand_still(leader: Broker) -> None:
        """Until another leads, and has delivered for a while; the client's own broker goes on."""
        assert leader.process is not None
        leader.process.send_signal(signal.SIGSTOP)
        try:
            await until(lambda: _another_leads(fleet, leader), "another leader")
            count = len(seen)
            await until(partial(more_than, count + 300), "messages from the next leader")
        finally:
            leader.process.send_signal(signal.SIGCONT)

    busy = [asyncio.create_task(publish()), asyncio.create_task(fetch())]
    for number in STOPS:
        if not await _leads(fleet, brokers[number]):
            wanted = b'{"placement": {"preferred": "%s"}}' % brokers[number].name.encode()
            await js._api_request("$JS.API.STREAM.LEADER.STEPDOWN.S", wanted, timeout=10)
        await until(partial(_leads, fleet, brokers[number]), "the leader that is asked for")
        count = len(seen)
        await until(partial(more_than, count + 100), "messages from that leader")
        await stand_still(brokers[number])
        await until(brokers[number].is_ready, "it to be there again")
    is_over.set()
    await asyncio.gather(*busy)
    last = (await js.stream_info("S")).state.last_seq

    async def all_acknowledged() -> bool:
        found = [await js.consumer_info("S", name) for name in ("push", "pull")]
        return all(info.ack_floor.stream_seq == last for info in found)

    is_over.clear()
    rest = asyncio.create_task(fetch())
    await until(all_acknowledged, "every message to be delivered and acknowledged")
    is_over.set()
    await rest
    assert set(seen) == set(range(1, last + 1)) == set(pulled)
    assert len(again) <= len(STOPS) * IN_A_TURN_MAX


def _config() -> ConsumerConfig:
    """nats-py writes into the one that it is given."""
    return ConsumerConfig(ack_wait=ACK_WAIT_S, max_ack_pending=100_000)


async def _leads(fleet: Fleet, broker: Broker) -> bool:
    found = await broker.stream("S")
    return found is not None and bool(found["is_leader"])


async def _another_leads(fleet: Fleet, stopped: Broker) -> bool:
    others = [broker for broker in fleet.running if broker is not stopped]
    return any([await _leads(fleet, broker) for broker in others])
