"""Brokers of one cluster: one hop, once per link, local queue members first, INFO and fail-over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.aio.msg import Msg


def interest(broker: Any, subject: str) -> bool:
    return bool(broker.router.has_interest("$G", subject.encode()))


@pytest.mark.covers("CL-1")
async def test_a_message_crosses_each_link_once_and_only_where_there_is_interest(brokers: Any) -> None:
    east = await brokers.start(3)
    publisher = await brokers.client(east[0])
    received: list[bytes] = []

    async def take(message: Msg) -> None:
        received.append(message.data)

    subscriber = await brokers.client(east[1])
    for _ in range(3):
        await subscriber.subscribe("news.*", cb=take)
    await subscriber.flush()
    await brokers.until(lambda: interest(east[0], "news.x"), "interest at east-0")
    before = {name: link.control.sent_bytes for name, link in east[0].mesh.links.items()}
    for number in range(50):
        await publisher.publish("news.x", b"%d" % number + bytes(1000))
    await publisher.flush()
    await brokers.until(lambda: len(received) == 150, "150 deliveries")
    await subscriber.flush()
    assert sorted(received) == sorted([b"%d" % number + bytes(1000) for number in range(50)] * 3)
    sent = {name: link.control.sent_bytes - before[name] for name, link in east[0].mesh.links.items()}
    assert 50_000 < sent["east-1"] < 60_000, "each message crosses once, whatever the number of subscribers"
    assert sent["east-2"] < 5_000, "a broker without subscribers gets nothing"


@pytest.mark.covers("CL-1")
async def test_a_message_makes_one_hop_where_all_brokers_have_interest(brokers: Any) -> None:
    """Whoever got it over a link sends it to nobody: the others have it from where it came in."""
    east = await brokers.start(3)
    received: dict[str, list[bytes]] = {broker.place.name: [] for broker in east}

    def taker(name: str) -> Any:
        async def take(message: Msg) -> None:
            received[name].append(message.data)

        return take

    subscribers = [await brokers.client(broker) for broker in east]
    for broker, subscriber in zip(east, subscribers, strict=True):
        await subscriber.subscribe("news.*", cb=taker(broker.place.name))
        await subscriber.subscribe("end", cb=taker(broker.place.name))
        await subscriber.flush()
    nodes = [broker.router.account("$G").sublist for broker in east]
    await brokers.until(lambda: all(len(found.match(b"end").nodes) == 2 for found in nodes), "all interest")
    wanted = [b"%d" % number for number in range(50)]
    for data in wanted:
        await subscribers[0].publish("news.x", data)
    # Behind what each broker could have passed on to each other comes its own last word.
    for subscriber in subscribers:
        await subscriber.flush()
    for broker, subscriber in zip(east, subscribers, strict=True):
        await brokers.until(
            lambda name=broker.place.name: len(received[name]) >= len(wanted),
            "the messages",
        )
        await subscriber.publish("end", b"end")
        await subscriber.flush()
    await brokers.until(lambda: all(found.count(b"end") == 3 for found in received.values()), "the ends")
    for found in received.values():
        assert [data for data in found if data != b"end"] == wanted


@pytest.mark.covers("CL-2")
async def test_queue_members_of_the_own_broker_are_preferred(brokers: Any) -> None:
    east = await brokers.start(2)
    counts = {"here": 0, "there": 0, "last": 0}

    def member(where: str) -> Any:
        async def take(message: Msg) -> None:
            counts[where] += 1

        return take

    here = await brokers.client(east[0])
    there = await brokers.client(east[1])
    local = await here.subscribe("work", queue="crew", cb=member("here"))
    await there.subscribe("work", queue="crew", cb=member("there"))
    await there.subscribe("last", cb=member("last"))
    await here.flush()
    await there.flush()
    groups = east[0].router.account("$G").sublist
    await brokers.until(lambda: bool(groups.match(b"work").groups[0].remote), "the remote member")
    await brokers.until(lambda: bool(groups.match(b"last").nodes), "interest in the last word")
    for _ in range(100):
        await here.publish("work", b"")
    await here.flush()
    await brokers.until(lambda: counts["here"] == 100, "100 local deliveries")
    # What else east-0 had sent over the link would be there before this.
    await here.publish("last", b"")
    await brokers.until(lambda: counts["last"] == 1, "the last word")
    assert counts["there"] == 0, "one member gets each message, and it is here"
    await local.unsubscribe()
    for _ in range(100):
        await here.publish("work", b"")
    await here.flush()
    await brokers.until(lambda: counts["there"] == 100, "100 remote deliveries")
    assert counts == {"here": 100, "there": 100, "last": 1}


@pytest.mark.covers("CL-4")
async def test_clients_learn_the_brokers_and_fail_over_along_them(brokers: Any) -> None:
    east = await brokers.start(3)
    client = await brokers.client(east[0], reconnect_time_wait=0.05)
    reconnected = asyncio.Event()

    async def note() -> None:
        reconnected.set()

    client._reconnected_cb = note
    urls = {broker.advertised_client_url for broker in east}
    assert {url.netloc for url in client.discovered_servers} | {client.connected_url.netloc} == urls
    await brokers.stop_one(east[0])
    async with asyncio.timeout(60):
        await reconnected.wait()
    assert client.connected_url.netloc in {broker.advertised_client_url for broker in east[1:]}
    await brokers.until(lambda: brokers.links(east[1]) == 1, "the loss of east-0")
    raw = await brokers.raw(east[1])
    assert set(raw.info["connect_urls"]) == {broker.advertised_client_url for broker in east[1:]}
    await raw.close()


@pytest.mark.covers("CL-1")
async def test_requests_are_answered_across_brokers(brokers: Any) -> None:
    east = await brokers.start(2)
    service = await brokers.client(east[1])

    async def answer(message: Msg) -> None:
        await message.respond(message.data.upper())

    await service.subscribe("upper", cb=answer)
    await service.flush()
    await brokers.until(lambda: interest(east[0], "upper"), "interest at east-0")
    client = await brokers.client(east[0])
    replies = await asyncio.gather(*(client.request("upper", b"a%d" % n, timeout=5) for n in range(50)))
    assert [reply.data for reply in replies] == [b"A%d" % n for n in range(50)]
