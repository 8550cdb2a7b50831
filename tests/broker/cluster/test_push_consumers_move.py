"""Consumers that deliver by themselves go on when their stream moves to another cluster under load: push, group and ordered."""

from __future__ import annotations

import asyncio

import pytest
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, Placement
from tests.support.local_clusters import Fleet, until

pytestmark = pytest.mark.e2e
COUNT = 600


@pytest.mark.covers("MV-10")
async def test_push_and_ordered_consumers_go_on_through_a_move(fleet: Fleet) -> None:
    clusters = await fleet.start_clusters({"east": 3, "west": 3})
    js = await fleet.js(*clusters["east"])
    await js.add_stream(name="S", subjects=["s.>"], num_replicas=3, placement=Placement(cluster="east"))
    pushed: list[int] = []
    ordered: list[int] = []
    grouped: list[int] = []

    async def acked(message: Msg) -> None:
        pushed.append(message.metadata.sequence.stream)
        await message.ack()

    async def shared(message: Msg) -> None:
        grouped.append(message.metadata.sequence.stream)
        await message.ack()

    async def seen(message: Msg) -> None:
        ordered.append(message.metadata.sequence.stream)

    await js.subscribe("s.>", durable="push", cb=acked, manual_ack=True, config=ConsumerConfig(ack_wait=60))
    for _ in range(2):
        await js.subscribe(
            "s.>",
            queue="group",
            durable="group",
            cb=shared,
            manual_ack=True,
            config=ConsumerConfig(ack_wait=60),
        )
    await js.subscribe("s.>", ordered_consumer=True, cb=seen)
    created = {name: (await js.consumer_info("S", name)).created for name in ("push", "group")}

    async def load() -> None:
        for number in range(COUNT):
            await js.publish(f"s.{number % 3}", b"%d" % number, timeout=20)

    loading = asyncio.create_task(load())
    await until(lambda: _is(len(pushed) > 50), "messages to be delivered before the move")
    await js.update_stream(name="S", subjects=["s.>"], num_replicas=3, placement=Placement(cluster="west"))
    await loading

    async def moved() -> bool:
        info = await js.stream_info("S")
        names = [info.cluster.leader, *(peer.name for peer in info.cluster.replicas or ())]  # type: ignore[union-attr]
        return len(names) == 3 and all(str(name).startswith("west") for name in names)

    await until(moved, "the stream to be in west alone")
    await js.publish("s.end", b"end", timeout=20)
    wanted = list(range(1, COUNT + 2))
    await until(lambda: _is(set(pushed) == set(wanted) == set(grouped)), "everything to be delivered")
    await until(lambda: _is(ordered == wanted), "everything to be delivered in order, once")
    assert pushed == wanted, "in order, and nothing that was acknowledged comes again"
    assert len(grouped) == len(wanted)
    for name, at in created.items():
        assert (await js.consumer_info("S", name)).created == at, "nobody made it anew"


async def _is(found: bool) -> bool:
    return found
