"""A turn has room for so much; what is beyond it waits in order, while others get their turn (P11)."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from supercluster.broker.net.clients import connection as connection_module
from supercluster.broker.net.routing import backlog, turn
from supercluster.broker.net.routing.account import Account
from supercluster.broker.net.routing.backlog import FEW, FanOut, FromLink, ItemsFanOut, Lanes
from supercluster.broker.net.routing.cross_account_replies import Nobody
from supercluster.broker.net.routing.subscriber import Subscriber, Subscription
from supercluster.broker.net.routing.turn import DELIVERY_BYTES, FLUSH_BYTES

ROOM = 100 * DELIVERY_BYTES


class Sink(Subscriber):
    """A client, and what it would be sent."""

    def __init__(self, count: int) -> None:
        super().__init__(Nobody())
        self.headers = True
        self.subscriptions = {
            b"%d" % number: Subscription(self, b"a", b"", b"%d" % number) for number in range(count)
        }

    @property
    def text(self) -> bytes:
        return b"".join(self.out)


class Room:
    """A turn's room, without a loop."""

    def __init__(self, room_bytes: int = ROOM) -> None:
        self.room_bytes = room_bytes
        self.dirty: list[Any] = []
        self.waiting: list[Any] = []

    def wait(self, one: Any) -> None:
        self.waiting.append(one)

    def go_on(self, room_bytes: int = ROOM) -> int:
        """One turn of all that wait; returns how many still do."""
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            self.room_bytes = room_bytes
            if one.go_on(self):
                self.waiting.append(one)
        return len(self.waiting)


def lines(sink: Sink) -> list[bytes]:
    return [line for line in sink.text.split(b"\r\n") if line.startswith(b"MSG")]


def test_a_message_for_many_is_delivered_in_stretches_of_a_turn_s_room() -> None:
    sink, room = Sink(1000), Room()
    lanes = Lanes(room)  # type: ignore[arg-type]
    for number in range(3):
        lanes.do("x", FanOut(list(sink.subscriptions.values()), (b"a", b"", b"", b"%d" % number), None))
    most, turns = len(lines(sink)), 1
    while room.waiting:
        before = len(lines(sink))
        room.go_on()
        most, turns = max(most, len(lines(sink)) - before), turns + 1
    assert most <= 101
    assert turns >= 30
    assert not lanes
    assert lines(sink)[:2] == [b"MSG a 0 1", b"MSG a 1 1"]
    assert sink.text.count(b"\r\n0\r\n") == sink.text.count(b"\r\n2\r\n") == 1000
    assert sink.text.rindex(b"\r\n0\r\n") < sink.text.index(b"\r\n1\r\n"), "in order for each of them"


def test_connections_that_have_output_now_count_more() -> None:
    sinks = [Sink(1) for _ in range(200)]
    room = Room(20 * (DELIVERY_BYTES + FLUSH_BYTES))
    everyone = [one for sink in sinks for one in sink.subscriptions.values()]
    backlog.STRETCH, before = 8, backlog.STRETCH
    try:
        Lanes(room).do("x", FanOut(everyone, (b"a", b"", b"", b""), None))  # type: ignore[arg-type]
    finally:
        backlog.STRETCH = before
    assert 20 <= len(room.dirty) <= 28


def test_whoever_went_meanwhile_gets_nothing_and_headers_go_to_those_who_know_them() -> None:
    sink, room = Sink(300), Room()
    old = Sink(1)
    old.headers = False
    everyone = [*sink.subscriptions.values(), *old.subscriptions.values()]
    Lanes(room).do("x", FanOut(everyone, (b"a", b"r", b"NATS/1.0\r\n\r\n", b"p"), None))  # type: ignore[arg-type]
    sent = sink.text.count(b"HMSG a ")
    sink.subscriptions.clear()
    while room.waiting:
        room.go_on()
    assert sink.text.count(b"HMSG a ") == sent
    assert sink.text.startswith(b"HMSG a 0 r 12 13\r\nNATS/1.0\r\n\r\np\r\n")
    assert old.text == b"MSG a 0 r 1\r\np\r\n"


def test_a_maximum_of_messages_holds_in_stretches() -> None:
    sink, room = Sink(300), Room()
    everyone = list(sink.subscriptions.values())
    everyone[250].max_messages = 2
    lanes = Lanes(room)  # type: ignore[arg-type]
    for _ in range(4):
        lanes.do("x", FanOut(everyone, (b"a", b"", b"", b""), None))
    while room.waiting:
        room.go_on()
    assert sink.text.count(b"MSG a 250 ") == 2
    assert sink.text.count(b"MSG a 251 ") == 4


def remote(number: int) -> Any:
    return (True, (), b"a", b"", b"", b"%d" % number)


def test_messages_of_a_link_keep_their_order_over_turns() -> None:
    account, sink, room = Account("$G"), Sink(FEW + 200), Room()
    for one in sink.subscriptions.values():
        account.add(one)
    lanes = Lanes(room)  # type: ignore[arg-type]
    for start in (0, 3, 6):
        messages = [remote(number) for number in range(start, start + 3)]
        lanes.do("east-1", FromLink(account, messages, lambda members: members[0]))
    while room.waiting:
        room.go_on()
    for sid in (b"0", b"263"):
        wanted = [b"MSG a %b 1\r\n%d\r\n" % (sid, number) for number in range(9)]
        places = [sink.text.index(text) for text in wanted]
        assert places == sorted(places)


def test_what_a_link_has_waiting_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "LANE_BYTES_MAX", 20_000)
    account, sink, room = Account("$G"), Sink(1000), Room(0)
    lanes = Lanes(room)  # type: ignore[arg-type]
    few = Sink(2)
    for one in few.subscriptions.values():
        account.add(one)
    for number in range(500):
        lanes.do("narrow", FromLink(account, [remote(number)], lambda members: members[0]))
    assert lanes.dropped == 0, "what goes to few is delivered at once rather than lost"
    assert lanes.size_bytes("narrow") <= 21_000
    for one in sink.subscriptions.values():
        account.add(one)
    room.room_bytes = ROOM
    for number in range(500):
        lanes.do("wide", FromLink(account, [remote(number)], lambda members: members[0]))
    assert lanes.dropped > 400
    assert lanes.size_bytes("wide") <= 21_000


def test_what_streams_deliver_to_many_waits_and_counts_as_pending() -> None:
    sink, room = Sink(50), Room()
    lanes = Lanes(room)  # type: ignore[arg-type]
    items = [(b"a", b"ack", b"", b"x" * 1000)] * 10
    lanes.do("x", ItemsFanOut(list(sink.subscriptions.values()), items))
    assert lanes.size_bytes("x") > 10_000
    assert len(lines(sink)) < 100
    while room.waiting:
        room.go_on()
    assert len(lines(sink)) == 500
    assert lanes.size_bytes("x") == 0


# On the wire


@pytest.fixture
def small_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "ROOM_BYTES", ROOM)
    monkeypatch.setattr(turn, "SHARE_BYTES", ROOM // 4)
    monkeypatch.setattr(connection_module, "OPERATION_BYTES", 64)
    monkeypatch.setattr(connection_module, "ENDED_AT_ONCE", 10)


@pytest.mark.covers("MV-11")
@pytest.mark.usefixtures("small_room")
async def test_a_flood_to_many_subscriptions_is_sliced_and_others_get_their_turn(brokers: Any) -> None:
    (broker,) = await brokers.start()
    many = await brokers.raw(broker)
    many.send(b"CONNECT {}\r\n" + b"".join(b"SUB flood %d\r\n" % n for n in range(1000)) + b"PING\r\n")
    await many.until_line(b"PONG")
    (subscriber,) = (one.subscriber for one in broker.server.clients.values())
    flushed: list[int] = []
    flush = type(subscriber).flush

    def watched(one: Any) -> None:
        if one is subscriber:
            flushed.append(sum(map(len, one.out)))
        flush(one)

    type(subscriber).flush = watched
    try:
        flooder, other = await brokers.raw(broker), await brokers.raw(broker)
        other.send(b"CONNECT {}\r\nSUB calm 1\r\nPING\r\n")
        await other.until_line(b"PONG")
        flooder.send(b"CONNECT {}\r\n" + b"PUB flood 2\r\nhi\r\n" * 50 + b"PING\r\n")
        await brokers.until(lambda: sum(flushed) > 0, "the flood to begin")
        other.send(b"PUB calm 1\r\nx\r\n")
        assert [await other.line(), await other.line()] == [b"MSG calm 1 1", b"x"]
        size = len(b"MSG flood 1 2\r\nhi\r\n")
        assert sum(flushed) < 40 * 1000 * size, "the other did not wait for the flood"
        await flooder.until_line(b"PONG")
    finally:
        type(subscriber).flush = flush
    assert max(flushed) < 3 * 100 * size, "no turn collected more than its room"
    got = await many.reader.readexactly(sum(len(b"MSG flood %d 2\r\nhi\r\n" % n) for n in range(1000)) * 50)
    assert got.count(b"MSG flood 999 2\r\n") == 50
    for one in (many, flooder, other):
        await one.close()


@pytest.mark.covers("SF-2", "SF-3")
@pytest.mark.usefixtures("small_room")
async def test_what_was_read_is_routed_in_order_though_its_client_is_gone(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (broker,) = await brokers.start()
    listener = await brokers.raw(broker)
    listener.send(b"CONNECT {}\r\nSUB a 1\r\nPING\r\n")
    await listener.until_line(b"PONG")
    wait = connection_module.ClientConnection._wait_for_room
    read: list[int] = []

    def lost(one: Any) -> None:
        wait(one)
        if one._transport is not None:
            read.append(one.read_bytes)
            one._transport.abort()

    monkeypatch.setattr(connection_module.ClientConnection, "_wait_for_room", lost)
    publisher = await brokers.raw(broker)
    said = b"CONNECT {}\r\n" + b"".join(b"PUB a 4\r\n%04d\r\n" % n for n in range(5000))
    publisher.send(said)
    await brokers.until(lambda: len(broker.server.clients) == 1, "the loss")
    await brokers.until(lambda: not broker.server.is_routing, "all that was read")
    got = await rest_of(listener)
    count = (read[-1] - len(b"CONNECT {}\r\n")) // len(b"PUB a 4\r\n0000\r\n")
    assert count > 200, "more than a turn's room"
    assert got == b"".join(b"MSG a 1 4\r\n%04d\r\n" % n for n in range(count))
    await publisher.close()
    await listener.close()


async def rest_of(client: Any) -> bytes:
    """What was sent up to now."""
    client.send(b"PING\r\n")
    found = b""
    async with asyncio.timeout(30):
        while not found.endswith(b"PONG\r\n"):
            found += await client.reader.read(1 << 16)
    return found.removesuffix(b"PONG\r\n")


@pytest.mark.usefixtures("small_room")
async def test_subscriptions_of_a_client_that_went_are_taken_out_in_slices(brokers: Any) -> None:
    (broker,) = await brokers.start()
    raw = await brokers.raw(broker)
    names = b"".join(b"SUB a.%d %d\r\nSUB q group %d\r\n" % (n, n, 5000 + n) for n in range(2000))
    raw.send(b"CONNECT {}\r\n" + names + b"PING\r\n")
    await raw.until_line(b"PONG")
    sublist = broker.router.account("$G").sublist
    assert sublist.local_count == 4000
    (connection,) = broker.server.clients.values()
    ended: Counter[int] = Counter()
    unsubscribe = broker.router.unsubscribe

    def watched(account: Account, subscription: Subscription) -> None:
        ended[broker.turn.count] += 1
        assert subscription.queue or sum(ended.values()) > 2000, "members of groups go first"
        unsubscribe(account, subscription)

    broker.router.unsubscribe = watched
    connection._transport.abort()
    await brokers.until(lambda: sublist.local_count == 0, "all of them")
    assert max(ended.values()) <= ROOM // 64 + 10
    await raw.close()


async def test_a_waiting_client_that_fails_leaves_the_others_alone(brokers: Any) -> None:
    (broker,) = await brokers.start()

    def fail(turn: Any) -> bool:
        raise ValueError("of one client")

    broker.turn.wait(SimpleNamespace(go_on=fail))
    raw = await brokers.raw(broker)
    raw.send(b"CONNECT {}\r\nPING\r\n")
    await raw.until_line(b"PONG")
    await raw.close()
