"""Two whole brokers: what one of them lacks the other makes up for, and large pull requests go at the pace of clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
from tests.support.local_clusters import fresh_address

from supercluster.broker.runtime.process import BrokerProcess
from supercluster.broker.runtime.process_core import make_core
from supercluster.broker.settings import settings
from supercluster.broker.settings.place import Place


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[list[BrokerProcess]]:
    """Two linked brokers with streams, and little room for unsent bytes."""
    hosts = {f"east-{index}": fresh_address() for index in range(2)}
    started: list[BrokerProcess] = []
    for name, host in hosts.items():
        parsed = settings.parse(
            {
                "superCluster": "demo",
                "identity": "id-1",
                "cluster": "east",
                "peers": {node: f"{address}:6222" for node, address in hosts.items()},
                "metaVoters": ["east-0"],
                "limits": {"maxPendingBytes": 16 << 20},
            }
        )
        file = tmp_path / f"{name}.json"
        file.write_text("{}")
        place = Place(name, host, host, file, tmp_path / name)
        started.append(BrokerProcess(parsed, place, make_core))
    await asyncio.gather(*(broker.start() for broker in started))
    yield started
    await asyncio.gather(*(broker.stop() for broker in started))


@pytest.mark.covers("SF-14")
async def test_a_broker_without_a_vote_in_the_meta_group_captures_what_it_reads(
    pair: list[BrokerProcess],
) -> None:
    client = await nats.connect(f"nats://{pair[1].advertised_client_url}", allow_reconnect=False)
    stream = client.jetstream()
    await stream.add_stream(name="SEEN", subjects=["seen.>"], num_replicas=2, storage="memory")
    for number in range(100):
        await client.publish("seen.plain", b"%d" % number)
    ack = await stream.publish("seen.acknowledged", b"")
    assert ack.seq == 101
    await client.close()


@pytest.mark.covers("MV-11")
@pytest.mark.parametrize("where", [pytest.param(0, marks=pytest.mark.long), 1])
async def test_a_large_batch_arrives_whole_at_a_client_of_any_broker(
    pair: list[BrokerProcess], where: int
) -> None:
    client = await nats.connect(f"nats://{pair[where].advertised_client_url}", allow_reconnect=False)
    stream = client.jetstream()
    await stream.add_stream(name="LARGE", subjects=["large"], num_replicas=1, storage="memory")
    body = bytes(500_000)
    for _ in range(100):
        await stream.publish("large", body)
    pull = await stream.pull_subscribe("large", None, pending_bytes_limit=1 << 30)
    messages = await pull.fetch(100, timeout=30)
    assert [message.metadata.sequence.stream for message in messages] == list(range(1, 101))
    assert {len(message.data) for message in messages} == {len(body)}
    assert [broker.server.counts.slow_consumers for broker in pair] == [0, 0]
    await client.close()
