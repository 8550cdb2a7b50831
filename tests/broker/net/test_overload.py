"""Overload and garbage harm nobody but who causes them."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest


@pytest.mark.covers("MV-11")
async def test_a_slow_consumer_is_cut_off_alone(brokers: Any) -> None:
    (broker,) = await brokers.start(limits={"maxPendingBytes": 1 << 20})
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect((broker.place.host, broker.client_port))
    slow.sendall(b"CONNECT {}\r\nSUB news 1\r\nPING\r\n")
    good = await brokers.client(broker)
    subscription = await good.subscribe("news")
    await good.flush()
    await brokers.until(lambda: broker.router.account("$G").sublist.local_count == 2, "both subscriptions")
    payload = bytes(100_000)
    for number in range(200):
        await good.publish("news", payload)
        if number % 10 == 9:
            await good.flush()
    for _ in range(200):
        assert len((await subscription.next_msg(timeout=30)).data) == 100_000
    assert broker.server.counts.slow_consumers == 1
    await brokers.until(lambda: len(broker.server.clients) == 1, "the slow consumer to be gone")
    assert good.is_connected
    slow.close()


@pytest.mark.covers("MV-11")
async def test_garbage_on_every_port_leaves_clients_and_links_alone(brokers: Any) -> None:
    east = await brokers.start(2)
    publisher = await brokers.client(east[0])
    subscriber = await brokers.client(east[1])
    subscription = await subscriber.subscribe("calm")
    await subscriber.flush()
    await brokers.until(lambda: east[0].router.has_interest("$G", b"calm"), "interest")
    garbage = [
        b"\x00" * 100,
        b"\xff" * 5000,
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"PUB a 5\r\nab",
    ]
    for port in (east[0].client_port, east[0].cluster_port, east[0].monitor_port):
        for sent in garbage:
            reader, writer = await asyncio.open_connection(east[0].place.host, port)
            writer.write(sent)
            writer.write_eof()
            async with asyncio.timeout(60):
                await reader.read()
            writer.close()
    await publisher.publish("calm", b"still")
    assert (await subscription.next_msg(timeout=30)).data == b"still"
    assert all(brokers.links(broker) == 1 for broker in east)
    assert publisher.is_connected
    assert subscriber.is_connected


async def test_a_lost_broker_takes_its_interest_along_and_brings_it_back(brokers: Any) -> None:
    east = await brokers.start(2)
    hosts = {broker.place.name: broker.place.host for broker in east}
    router = east[0].router
    there = await brokers.raw(east[1])
    there.send(b"CONNECT {}\r\nSUB calm.* 1\r\nSUB calm.x crew 2\r\n")
    await brokers.until(lambda: len(router.account("$G").sublist.match(b"calm.x").groups) == 1, "interest")
    before = east[0].mesh.links["east-1"].peer.process
    await brokers.stop_one(east[1])
    await brokers.until(lambda: brokers.links(east[0]) == 0, "the loss")
    assert not router.has_interest("$G", b"calm.x")
    again = await brokers.start_one("east-1", hosts)
    back = await brokers.raw(again)
    back.send(b"CONNECT {}\r\nSUB calm.* 1\r\n")
    await brokers.until(lambda: bool(router.has_interest("$G", b"calm.x")), "interest again")
    assert east[0].mesh.links["east-1"].peer.process != before
    publisher = await brokers.client(east[0])
    await publisher.publish("calm.x", b"back")
    assert [await back.line(), await back.line()] == [b"MSG calm.x 1 4", b"back"]
    await there.close()
    await back.close()


@pytest.mark.covers("MV-11")
async def test_a_congested_link_slows_publishers_down_and_drops_nothing(brokers: Any) -> None:
    east = await brokers.start(2)
    there = await brokers.raw(east[1])
    there.send(b"CONNECT {}\r\nSUB load 1\r\n")
    await brokers.until(lambda: east[0].router.has_interest("$G", b"load"), "interest")
    far_end = east[1].mesh.links["east-0"].control
    far_end._transport.pause_reading()
    far_end.heard_ms += 60_000
    here = await brokers.raw(east[0])
    count, size = 600, 50_000
    for number in range(count):
        here.send(b"PUB load %d\r\n%06d%b\r\n" % (size, number, bytes(size - 6)))
    await brokers.until(lambda: east[0].server.counts.reading_paused > 0, "the publisher to be held back")
    assert east[0].mesh.links["east-1"].control.pending_bytes() < 16 << 20
    far_end._transport.resume_reading()
    for number in range(count):
        assert await there.line() == b"MSG load 1 %d" % size
        payload = await there.reader.readexactly(size + 2)
        assert int(payload[:6]) == number
    assert east[0].mesh.links["east-1"].dropped_messages == 0
    await here.close()
    await there.close()


@pytest.mark.covers("MV-11")
async def test_a_broker_that_delivers_learns_when_the_far_client_takes_too_little(brokers: Any) -> None:
    east = await brokers.start(2)
    deliverer = east[0].router
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
    slow.connect((east[1].place.host, east[1].client_port))
    slow.sendall(b"CONNECT {}\r\nSUB _INBOX.s.* 1\r\n")
    await brokers.until(lambda: deliverer.has_interest("$G", b"_INBOX.s.1"), "interest")
    sent = 0
    while deliverer.pending_bytes("$G", b"_INBOX.s.1") <= 4 << 20:
        deliverer.deliver("$G", b"_INBOX.s.1", [(b"x", b"", b"", bytes(100_000))] * 10)
        sent += 10
        assert sent < 300, "the deliverer was not told before 30 MB were on the way"
        await asyncio.sleep(0.01)
    assert not deliverer.has_interest("$G", b"elsewhere")
    assert deliverer.pending_bytes("$G", b"elsewhere") == 0
    slow.setblocking(False)
    async with asyncio.timeout(60):
        while deliverer.pending_bytes("$G", b"_INBOX.s.1"):
            await asyncio.get_running_loop().sock_recv(slow, 1 << 20)
    assert east[1].server.counts.slow_consumers == 0
    slow.close()
