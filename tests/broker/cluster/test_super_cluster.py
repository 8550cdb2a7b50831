"""Clusters of processes joined by gateways: streams, requests and fail-over across them, partitions between them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, Placement, StreamConfig
from tests.support.local_clusters import Broker, Fleet, until


async def remotes(broker: Broker) -> list[str]:
    """Who the broker is linked with in other clusters."""
    found: dict[str, Any] = await broker.get("/gatewayz") or {}
    rows = [*found["outbound_gateways"].values(), *found["inbound_gateways"].values()]
    return sorted(link["remote_name"] for links in rows for link in links)


@pytest.mark.long  # In `make test`: tests/broker/net/test_gateways.py, brokers of all clusters.
@pytest.mark.covers("CL-6", "CL-1")
async def test_every_broker_is_linked_with_every_broker_of_every_cluster(fleet: Fleet) -> None:
    clusters = await fleet.start_clusters({"east": 2, "west": 3})
    for cluster, other in (("east", "west"), ("west", "east")):
        for broker in clusters[cluster]:
            assert await remotes(broker) == [found.name for found in clusters[other]]
            routes = await broker.get("/routez")
            assert routes["num_routes"] == len(clusters[cluster]) - 1
    client = await fleet.client(clusters["east"][0])
    urls = {url.netloc for url in client.servers}
    assert urls == {f"{broker.host}:4222" for broker in clusters["east"]}, "INFO names the own cluster alone"


@pytest.mark.covers("CL-6")
async def test_a_cluster_that_comes_later_finds_all_and_takes_part(fleet: Fleet) -> None:
    (east,) = await fleet.start(1, gateways={})
    west = await fleet.add_cluster("west", 2)
    assert await remotes(east) == ["west-0", "west-1"]
    js = await fleet.js(west[1])
    await stream_in(js, "ORDERS", "orders", "west", 1)
    assert (await (await fleet.js(east)).publish("orders", b"one")).seq == 1


@pytest.mark.long  # In `make test`: tests/broker/net/test_gateways.py, a cluster that is cut off; and the delayed publishes below.
@pytest.mark.covers("CL-6")
async def test_a_partition_between_clusters_ends_links_and_its_end_brings_them_back(fleet: Fleet) -> None:
    clusters = await fleet.start_clusters({"east": 1, "west": 1})
    (east,), (west,) = clusters.values()
    await fleet.cut([east], [west])

    async def apart() -> bool:
        return not await remotes(east) and not await remotes(west)

    await until(apart, "the loss of both links")
    await fleet.heal()
    await fleet.ready()
    assert "silent for" in east.log()
    assert "silent for" in west.log()


async def stream_in(js: JetStreamContext, name: str, subject: str, cluster: str, replicas: int) -> None:
    await js.add_stream(
        StreamConfig(
            name=name, subjects=[subject], num_replicas=replicas, placement=Placement(cluster=cluster)
        )
    )


async def contents(js: JetStreamContext, stream: str, subject: str) -> list[bytes]:
    """Every message of a stream, in order."""
    count = (await js.stream_info(stream)).state.messages
    subscription = await js.pull_subscribe(subject, stream=stream, config=ConsumerConfig(mem_storage=True))
    found: list[bytes] = []
    while len(found) < count:
        batch = await subscription.fetch(min(500, count - len(found)), timeout=10)
        found += [message.data for message in batch]
        for message in batch:
            await message.ack()
    await subscription.unsubscribe()
    return found


@pytest.mark.covers("CL-6", "SF-10")
async def test_a_stream_is_used_from_a_cluster_where_it_does_not_live(fleet: Fleet) -> None:
    clusters = await fleet.start_clusters({"east": 3, "west": 3})
    east = clusters["east"]
    js = await fleet.js(east[2], *east[:2])
    await stream_in(js, "ORDERS", "orders.>", "west", 3)
    assert (await fleet.leader("ORDERS")).cluster == "west"
    acked = [await js.publish(f"orders.{number % 7}", b"a%d" % number) for number in range(200)]
    assert [ack.seq for ack in acked] == list(range(1, 201))
    client = await fleet.client(east[0])
    for number in range(2000):
        await client.publish("orders.plain", b"p%d" % number)
    await client.flush()
    expected = [b"a%d" % number for number in range(200)] + [b"p%d" % number for number in range(2000)]

    async def all_there() -> bool:
        return (await js.stream_info("ORDERS")).state.messages == len(expected)

    await until(all_there, "what was published without waiting")
    assert await contents(js, "ORDERS", "orders.>") == expected
    info = await js.stream_info("ORDERS")
    assert info.config.placement is not None
    assert info.config.placement.cluster == "west"
    await js.delete_stream("ORDERS")


@pytest.mark.covers("CL-6", "MV-5")
async def test_publishers_of_another_cluster_lose_nothing_with_the_leader(fleet: Fleet) -> None:
    clusters = await fleet.start_clusters({"east": 3, "west": 3})
    js = await fleet.js(*clusters["east"])
    await stream_in(js, "ORDERS", "orders", "west", 3)
    client = await fleet.client(clusters["east"][1])
    leader = await fleet.leader("ORDERS")
    for number in range(6000):
        await client.publish("orders", b"%d" % number)
        if number == 2000:
            await client.flush()
            leader.kill()
        if number % 100 == 0:
            await asyncio.sleep(0)
    await client.flush()

    async def all_there() -> bool:
        return (await js.stream_info("ORDERS")).state.messages >= 6000

    await until(all_there, "every message")
    assert await contents(js, "ORDERS", "orders") == [b"%d" % number for number in range(6000)]


@pytest.mark.covers("CL-6", "SF-15")
async def test_a_partition_between_clusters_delays_publishes_and_loses_none(fleet: Fleet) -> None:
    """The stream's cluster is cut off from the publishers' for longer than links are kept."""
    clusters = await fleet.start_clusters({"east": 3, "west": 1})
    east, west = clusters["east"], clusters["west"]
    js = await fleet.js(*east)
    await stream_in(js, "ORDERS", "orders", "west", 1)
    client = await fleet.client(east[1])
    for number in range(500):
        await client.publish("orders", b"%d" % number)
    await client.flush()
    await fleet.cut(east, west)
    for number in range(500, 1000):
        await client.publish("orders", b"%d" % number)
    await client.flush()

    async def apart() -> bool:
        return not any([await remotes(broker) for broker in east])

    await until(apart, "the loss of the links")
    for number in range(1000, 1500):
        await client.publish("orders", b"%d" % number)
    await client.flush()
    await fleet.heal()
    await fleet.ready()

    async def all_there() -> bool:
        return (await js.stream_info("ORDERS")).state.messages >= 1500

    await until(all_there, "every message")
    assert await contents(js, "ORDERS", "orders") == [b"%d" % number for number in range(1500)]


@pytest.mark.long  # In `make test`: tests/broker/moves/test_stale_maps.py, test_map_reading.py and the simulator.
@pytest.mark.covers("SF-14", "CL-6")
async def test_the_map_of_streams_waits_for_a_cluster_that_is_cut_off_only_until_it_is_lost(
    fleet: Fleet,
) -> None:
    """A stream is made while west is cut off. West reads the map before it captures again, so nothing that its clients
    publish from then on passes the stream by."""
    clusters = await fleet.start_clusters({"east": 3, "west": 2})
    east, west = clusters["east"], clusters["west"]
    await fleet.cut(east, west)
    js = await fleet.js(*east)
    await stream_in(js, "NEWS", "news", "east", 3)
    client = await fleet.client(west[0])
    await fleet.heal()
    await fleet.ready()

    async def confirmed() -> bool:
        rows = [await broker.get("/healthz?probe=ready") for broker in west]
        return all(row is not None and not row.get("warnings") for row in rows)

    await until(confirmed, "fresh maps in west")
    for number in range(300):
        await client.publish("news", b"%d" % number)
    await client.flush()

    async def all_there() -> bool:
        return (await js.stream_info("NEWS")).state.messages >= 300

    await until(all_there, "every message")
    assert await contents(js, "NEWS", "news") == [b"%d" % number for number in range(300)]
