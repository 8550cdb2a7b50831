"""Whole clusters of a super-cluster killed at once: with three of them the map of streams stays alive whichever goes, and with
two of them every broker that is left says what is lost until the other is back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from nats.js import JetStreamContext
from nats.js.api import Placement, StreamConfig
from nats.js.errors import APIError
from tests.broker.cluster.test_super_cluster import contents
from tests.support.local_clusters import Broker, Fleet, until

from supercluster.app.admin import BrokerAdmin
from supercluster.reconcilers.ports import BrokerTarget

NOT_AVAILABLE = 10008


def stream(name: str, brokers: Sequence[Broker]) -> StreamConfig:
    """A stream on these brokers, with its own name as subject."""
    placement = Placement(cluster=brokers[0].cluster)
    return StreamConfig(name=name, subjects=[name], num_replicas=len(brokers), placement=placement)


async def meta(broker: Broker) -> dict[str, Any]:
    """What a broker says of the map of streams."""
    found: dict[str, Any] = (await broker.get("/jsz"))["meta"]
    return found


async def told_of_the_meta_group(broker: Broker) -> list[str]:
    """What /healthz says of clusters that are gone and the meta group's voters."""
    warnings = (await broker.get("/healthz")).get("warnings", [])
    return [text for text in warnings if "meta group's" in text]


async def told_to_the_operator(broker: Broker) -> list[str]:
    """What the operator puts into the SuperCluster's condition."""
    admin = BrokerAdmin()
    target = BrokerTarget("ns", "demo", (), "operator", "", (f"http://{broker.host}:8222",))
    try:
        return list((await admin.brokers_state(target))["lostClusters"])
    finally:
        await admin.close()


async def until_voters_are(brokers: Sequence[Broker]) -> None:
    """All of these vote in the map of streams, and nobody else."""
    wanted = sorted(broker.name for broker in brokers)

    async def vote() -> bool:
        told = [await meta(broker) for broker in brokers]
        return all(sorted(voter.partition("@")[0] for voter in found["voters"]) == wanted for found in told)

    await until(vote, f"the votes of {wanted}", timeout_s=60)


async def until_followed(brokers: Sequence[Broker]) -> None:
    """All have the same map, confirmed by its majority, and miss nobody."""

    async def same() -> bool:
        told = [await meta(broker) for broker in brokers]
        warned = [(await broker.get("/healthz")).get("warnings") for broker in brokers]
        fresh = all(found["map_is_fresh"] for found in told) and not any(warned)
        return fresh and len({found["applied_index"] for found in told}) == 1

    await until(same, "one map of streams on every broker")


async def until_held_by(js: JetStreamContext, stream: str, brokers: Sequence[Broker]) -> None:
    """The move is over: these have the stream."""

    async def held() -> bool:
        cluster = (await js.stream_info(stream)).cluster
        assert cluster is not None
        found = [cluster.leader, *(replica.name for replica in cluster.replicas or ())]
        return sorted(map(str, found)) == sorted(broker.name for broker in brokers)

    await until(held, f"{stream} on {[broker.name for broker in brokers]}")


async def refusal(asking: Coroutine[Any, Any, Any]) -> tuple[int, str]:
    """The error that JetStream's API answers with."""
    with pytest.raises(APIError) as error:
        await asking
    assert error.value.err_code is not None
    return error.value.err_code, str(error.value.description)


# In `make test`: tests/broker/jetstream/node/test_bootstrap.py, any one of three clusters, and one of two.
pytestmark = pytest.mark.long


@pytest.mark.covers("CL-6", "MV-9")
async def test_of_three_clusters_any_one_may_be_gone_and_the_map_of_streams_goes_on(fleet: Fleet) -> None:
    clusters = await fleet.start_clusters({"east": 2, "west": 2, "north": 2})
    await until_voters_are(fleet.running)
    for gone, brokers in clusters.items():
        for broker in brokers:
            broker.kill()
        here, there = (found for name, found in clusters.items() if name != gone)
        js = await fleet.js(*here)
        name = f"WITHOUT-{gone}"
        config = stream(name, here)
        await js.add_stream(config)
        for number in range(100):
            await js.publish(name, b"%d" % number)
        changed = config.evolve(max_msgs=1000)
        await js.update_stream(changed)
        await js.update_stream(changed.evolve(placement=Placement(there[0].cluster)))
        await until_held_by(js, name, there)
        for number in range(100, 110):
            await js.publish(name, b"%d" % number)
        for broker in fleet.running:
            (text,) = await told_of_the_meta_group(broker)
            assert text.startswith(f"cluster {gone} is out of contact (2 brokers): it holds 2 of")
            assert text.endswith("the meta group goes on")
        for broker in brokers:
            broker.start()
        await fleet.ready()
        await until_followed(fleet.running)
        back = await fleet.js(*brokers)
        assert (await back.stream_info(name)).config.max_msgs == 1000
        assert (await back.publish(name, b"110")).seq == 111
        assert await contents(back, name, name) == [b"%d" % number for number in range(111)]


@pytest.mark.covers("CL-6", "SF-14")
async def test_of_two_clusters_the_one_that_is_left_says_what_is_lost_until_the_other_is_back(
    fleet: Fleet,
) -> None:
    clusters = await fleet.start_clusters({"east": 2, "west": 2})
    east, west = clusters.values()
    await until_voters_are(fleet.running)
    js = await fleet.js(*east)
    near, far = stream("NEAR", east), stream("FAR", west)
    for config in (near, far):
        await js.add_stream(config)
        await js.publish(str(config.name), b"0")
    for broker in west:
        broker.kill()

    async def told() -> bool:
        """Who led until now gives up too: what it takes before that is carried out when west is back."""
        leads = [(await meta(broker))["is_leader"] for broker in east]
        return not any(leads) and all([await told_of_the_meta_group(broker) for broker in east])

    await until(told, "every broker to say what is lost")
    for broker in east:
        (text,) = await told_of_the_meta_group(broker)
        assert "it holds 2 of the meta group's 4 voters, 2 are in contact and 3 must agree" in text
        assert "no stream can be created, changed, deleted or moved" in text
        assert await told_to_the_operator(broker) == [text]
    refused = await asyncio.gather(
        refusal(js.add_stream(stream("NEW", east))),
        refusal(js.update_stream(near.evolve(max_msgs=10))),
        refusal(js.update_stream(near.evolve(placement=Placement("west")))),
        refusal(js.delete_stream("NEAR")),
        refusal(js.stream_info("FAR")),
    )
    for err_code, description in refused:
        assert (err_code, "cluster west" in description) == (NOT_AVAILABLE, True), description
    assert (await js.stream_info("NEAR")).state.messages == 1
    assert (await js.publish("NEAR", b"1")).seq == 2, "a stream that has its majority goes on"
    assert await contents(js, "NEAR", "NEAR") == [b"0", b"1"]
    east[0].kill()
    east[0].start()
    await fleet.ready()
    warnings = (await east[0].get("/healthz"))["warnings"]
    assert any("no majority of the meta group confirms the map of streams" in text for text in warnings)
    again = await fleet.js(east[0])
    assert (await again.publish("NEAR", b"2")).seq == 3, "it captures by the map that is on its disk"
    for broker in west:
        broker.start()
    await fleet.ready()
    await until_followed(fleet.running)
    assert (await js.stream_info("FAR")).state.messages == 1
    await js.add_stream(stream("NEW", west))
    await js.update_stream(near.evolve(placement=Placement("west")))
    await until_held_by(js, "NEAR", west)
    assert await contents(js, "NEAR", "NEAR") == [b"0", b"1", b"2"]
