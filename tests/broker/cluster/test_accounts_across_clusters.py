"""Accounts that give to each other over two clusters of processes: requests, captures, JetStream, and an external source whose
ends lose their leaders."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.errors import Error
from nats.js.api import ExternalStream, Placement, StreamConfig, StreamSource
from tests.support.local_clusters import Broker, Fleet, until
from tests.support.tiers import examples

LINK = {"user": "link", "password": "l1nk"}
A = {
    "exports": [
        {"stream": "news.>"},
        {"service": "kept.>"},
        {"service": "$JS.API.>", "response_type": "stream"},
        {"service": "$JS.ACK.>"},
        {"stream": "dlv.>"},
    ]
}
B = {
    "imports": [
        {"stream": {"account": "A", "subject": "news.>"}, "prefix": "a"},
        {"service": {"account": "A", "subject": "kept.>"}},
        {"service": {"account": "A", "subject": "$JS.API.>"}, "to": "JS.A.>"},
        {"service": {"account": "A", "subject": "$JS.ACK.>"}},
        {"stream": {"account": "A", "subject": "dlv.>"}},
    ]
}
CREDENTIALS = {
    "users.json": {
        "users": [
            {"user": "a", "password": "a", "account": "A"},
            {"user": "b", "password": "b", "account": "B"},
            {"user": "operator", "password": "o", "account": "$G", "role": "operator"},
        ],
        "accounts": {"A": A, "B": B},
    },
    "cluster.json": {"accept": [LINK], "send": LINK},
    "gateway.json": {"accept": [LINK], "send": LINK},
}


async def start(fleet: Fleet, sizes: dict[str, int]) -> dict[str, list[Broker]]:
    return await fleet.start_clusters(sizes, credentials=CREDENTIALS)


async def js_of(fleet: Fleet, user: str, *brokers: Broker, **options: Any) -> Any:
    return (await fleet.client(*brokers, user=user, password=user)).jetstream(timeout=10, **options)


@pytest.mark.covers("CL-6")
async def test_an_account_uses_the_streams_of_another_one_in_another_cluster(fleet: Fleet) -> None:
    clusters = await start(fleet, {"east": 1, "west": 2})
    (east,), west = clusters["east"], clusters["west"]
    of_a = await js_of(fleet, "a", west[0])
    await of_a.add_stream(
        StreamConfig(name="KEPT", subjects=["kept.>"], num_replicas=2, placement=Placement(cluster="west"))
    )
    of_b = await js_of(fleet, "b", east, prefix="JS.A")
    for number in range(200):
        assert (await of_b.publish(f"kept.{number}", b"%d" % number)).seq == number + 1
    pulled = await of_b.pull_subscribe("kept.>", durable="D", stream="KEPT")
    found: list[bytes] = []
    while len(found) < 200:
        for message in await pulled.fetch(50, timeout=10):
            found.append(message.data)
            await message.ack_sync(timeout=10)
    assert found == [b"%d" % number for number in range(200)]
    assert (await of_a.consumer_info("KEPT", "D")).num_ack_pending == 0


@pytest.mark.covers("CL-6")
async def test_a_stream_of_one_account_captures_what_another_cluster_publishes_in_the_other(
    fleet: Fleet,
) -> None:
    clusters = await start(fleet, {"east": 1, "west": 1})
    (east,), (west,) = clusters.values()
    of_b = await js_of(fleet, "b", west)
    await of_b.add_stream(
        StreamConfig(name="NEWS", subjects=["a.news.>"], placement=Placement(cluster="west"))
    )
    there = await fleet.client(east, user="a", password="a")
    for number in range(500):
        await there.publish(f"news.{number}", b"%d" % number)
    await there.flush()

    async def all_are_there() -> bool:
        return bool((await of_b.stream_info("NEWS")).state.messages == 500)

    await until(all_are_there, "500 messages")
    for seq in (1, 250, 500):
        message = await of_b.get_msg("NEWS", seq)
        assert (message.subject, message.data) == (f"a.news.{seq - 1}", b"%d" % (seq - 1))


@pytest.mark.covers("MV-5", "SF-12")
async def test_an_external_source_takes_each_message_once_and_in_order_while_leaders_change_at_both_ends(
    fleet: Fleet,
) -> None:
    count = examples(1000, 3000)
    clusters = await start(fleet, {"east": 3, "west": 3})
    of_a = await js_of(fleet, "a", *clusters["west"])
    of_b = await js_of(fleet, "b", *clusters["east"])
    await of_a.add_stream(
        StreamConfig(name="O", subjects=["o.>"], num_replicas=3, placement=Placement(cluster="west"))
    )
    external = ExternalStream(api="JS.A", deliver="dlv.o")
    await of_b.add_stream(
        StreamConfig(
            name="T",
            num_replicas=3,
            placement=Placement(cluster="east"),
            sources=[StreamSource(name="O", external=external)],
        )
    )

    async def publish() -> None:
        for number in range(count):
            await retried(
                lambda number=number: of_a.publish(
                    "o.x", b"%d" % number, headers={"Nats-Msg-Id": str(number)}
                )
            )

    async def unsettle() -> None:
        for _ in range(3):
            await asyncio.gather(step_down(of_a, "O"), step_down(of_b, "T"))
            await asyncio.sleep(0.3)  # Between troubles, not for them.

    await asyncio.gather(publish(), unsettle())
    for stream in ("O", "T"):
        (await fleet.leader(stream)).kill()
    await retried(lambda: of_a.publish("o.x", b"%d" % count, headers={"Nats-Msg-Id": str(count)}))

    async def all_are_there() -> bool:
        try:
            return bool((await of_b.stream_info("T")).state.messages >= count + 1)
        except (Error, TimeoutError):
            return False

    await until(all_are_there, "all messages")
    assert (await of_b.stream_info("T")).state.messages == count + 1, "none twice"
    reader = await of_b.subscribe("o.x", stream="T", ordered_consumer=True)
    found = [int((await reader.next_msg(timeout=10)).data) for _ in range(count + 1)]
    assert found == list(range(count + 1))


async def step_down(js: Any, stream: str) -> None:
    await js._nc.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", b"", timeout=10)


async def retried(call: Any) -> None:
    """Until it is acknowledged; a repeat has the same id."""

    async def is_acknowledged() -> bool:
        try:
            await call()
        except (Error, TimeoutError):
            return False
        return True

    await until(is_acknowledged, "an acknowledgement", 60)
