"""Streams without room: their messages wait, others go on, and nothing is dropped in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from supercluster.broker.monitor import views
from supercluster.broker.net.clients import client_server
from supercluster.broker.ports import ClientInfo, FarSuperCluster, PeerInfo, Publisher
from supercluster.broker.protocol.not_stored import CLOSED

Taken = tuple[bytes, bytes, bytes]


class Shelf:
    """A window with a switch: open or full."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.full = False
        self.taken: list[Taken] = []
        self.waiting: dict[int, Publisher] = {}

    def take(self, publisher: Publisher, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> bool:
        if self.full:
            self.waiting[id(publisher)] = publisher
            publisher.pause(self.stream)
            return False
        self.taken.append((subject, reply, payload))
        return True

    def make_room(self) -> None:
        self.full = False
        waiting, self.waiting = self.waiting, {}
        for publisher in waiting.values():
            publisher.resume(self.stream)


class Shelves:
    """A core that captures `orders.>` and `audit.>`, keeps what it is given, and answers one API call."""

    incarnation = "inc"
    lineage = ""
    bootstrap_id = ""
    map_level = 0
    meta_state = 0
    process_count = 0
    accepts_clients = True
    is_drained = True
    has_work = False

    def __init__(self) -> None:
        self.invalidate_captures: Any = None
        self.orders = Shelf("ORDERS")
        self.audit = Shelf("AUDIT")
        self.everything: Shelf | None = None
        self.gone: set[str] = set()
        self.network: Any = None
        self.turns = 0
        self.asked: list[tuple[ClientInfo, bytes]] = []
        self.left = False
        self.closed_clean = False
        self.troubles: list[str] = []

    def capture(self, account: str, subject: bytes) -> Any:
        if self.everything is not None:
            return self.everything
        for shelf, prefix in ((self.orders, b"orders."), (self.audit, b"audit.")):
            if subject.startswith(prefix) and shelf.stream not in self.gone:
                return shelf
        return None

    def cluster_of(self, node: str) -> str | None:
        return None

    def interest_changed(self, account: str, subject: bytes) -> None:
        pass

    def captures_inboxes(self, account: str) -> bool:
        return False

    def on_api(self, client: ClientInfo, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        self.asked.append((client, subject))
        self.network.publish("$G", reply, b"", b"", b"{}")

    def turn(self) -> None:
        self.turns += 1

    def on_frame(self, node: str, frame_type: int, body: memoryview) -> None:
        raise AssertionError("nobody sends frames here")

    def on_link_up(self, peer: PeerInfo) -> None: ...

    def on_link_down(self, node: str) -> None: ...

    def stood_still(self) -> None: ...

    def peer_clock(self, node: str, clock_ns: int) -> None: ...

    def peer_stalls(self, node: str, stall_ms: int) -> None: ...

    def tick(self) -> None: ...

    def next_deadline_ms(self) -> int:
        return 1 << 60

    def wanted_far(self) -> dict[str, FarSuperCluster]:
        return {}

    def leave(self) -> None:
        self.left = True

    def close(self, *, clean: bool) -> None:
        self.closed_clean = clean

    def jsz(self) -> dict[str, Any]:
        return {"streams": 2}

    def jsz_streams(self) -> Iterator[dict[str, Any]]:
        return iter(())


async def start(brokers: Any, **options: Any) -> tuple[Any, Shelves]:
    shelves = Shelves()

    def make(process: Any) -> Shelves:
        shelves.network = process.router
        return shelves

    (broker,) = await brokers.start(make_core=make, **options)
    return broker, shelves


@pytest.mark.covers("SF-15")
async def test_a_full_stream_holds_back_its_own_messages_only(brokers: Any) -> None:
    broker, core = await start(brokers)
    core.orders.full = True
    raw = await brokers.raw(broker)
    raw.send(
        b"CONNECT {}\r\nSUB in 1\r\nPUB orders.1 1\r\na\r\nPUB audit.1 1\r\nb\r\nPUB orders.2 1\r\nc\r\n"
    )
    raw.send(b"PUB $JS.API.INFO in 0\r\n\r\nPING\r\n")
    assert await raw.until_line(b"PONG") == [b"MSG in 1 2", b"{}", b"PONG"]
    assert core.orders.taken == []
    assert core.audit.taken == [(b"audit.1", b"", b"b")]
    core.orders.make_room()
    raw.send(b"PUB orders.3 1\r\nd\r\nPING\r\n")
    await raw.until_line(b"PONG")
    assert [payload for _, _, payload in core.orders.taken] == [b"a", b"c", b"d"]
    await raw.close()


@pytest.mark.covers("SF-15", "MV-11")
async def test_a_publisher_of_a_full_stream_is_read_no_more_and_not_called_stale(brokers: Any) -> None:
    broker, core = await start(brokers, limits={"pingIntervalMs": 100, "pingsOutMax": 1})
    core.orders.full = True
    raw = await brokers.raw(broker)
    raw.send(b"CONNECT {}\r\n")
    payload = bytes(10_000)
    count = 3000
    for number in range(count):
        raw.send(b"PUB orders.%d %d\r\n%b\r\n" % (number, len(payload), payload))
    await brokers.until(lambda: broker.server.counts.reading_paused == 1, "reading to be paused")
    for _ in range(5):
        assert await raw.line() == b"PING"
    assert broker.server.counts.stale_connections == 0
    assert broker.server.held_bytes < 2 << 20, "memory stays bounded while 30 MB want in"
    other = await brokers.client(broker)
    subscription = await other.subscribe("others")
    await other.publish("others", b"go on")
    assert (await subscription.next_msg(timeout=30)).data == b"go on"
    core.orders.make_room()
    await brokers.until(lambda: len(core.orders.taken) == count, "all messages")
    assert [subject for subject, _, _ in core.orders.taken] == [
        b"orders.%d" % number for number in range(count)
    ]
    await raw.close()


@pytest.mark.covers("SF-15")
async def test_after_the_time_limit_publishers_are_told(brokers: Any) -> None:
    broker, core = await start(brokers, limits={"windowWaitMs": 100})
    core.orders.full = True
    raw = await brokers.raw(broker)
    raw.send(b'CONNECT {"headers":true,"no_responders":true}\r\nSUB in.* 1\r\n')
    raw.send(b"PUB orders.1 in.1 1\r\na\r\nPUB orders.2 1\r\nb\r\n")
    lines = [await raw.line() for _ in range(5)]
    assert lines == [b"HMSG in.1 1 40 40", b"NATS/1.0 503", b"Nats-Subject: orders.1", b"", b""]
    error = await raw.line()
    assert error.startswith(b"-ERR")
    assert b"ORDERS" in error
    assert b"orders.2" in error
    assert broker.server.counts.held_refused == 2
    assert broker.server.held_bytes == 0
    await raw.close()


@pytest.mark.covers("SF-15")
async def test_deleting_the_stream_frees_what_waits_for_it(brokers: Any) -> None:
    broker, core = await start(brokers)
    core.orders.full = True
    raw = await brokers.raw(broker)
    raw.send(
        b'CONNECT {"headers":true,"no_responders":true}\r\nSUB in.* 1\r\nPUB orders.1 in.1 1\r\na\r\nPING\r\n'
    )
    await raw.until_line(b"PONG")
    core.gone.add("ORDERS")
    core.invalidate_captures()
    core.orders.make_room()
    assert await raw.line() == b"HMSG in.1 1 40 40"
    assert core.orders.taken == []
    assert broker.server.held_bytes == 0
    await raw.close()


@pytest.mark.covers("SF-14", "SF-3")
async def test_order_is_kept_when_everything_is_held_while_the_map_is_read(brokers: Any) -> None:
    broker, core = await start(brokers)
    core.orders.full = True
    raw = await brokers.raw(broker)
    raw.send(b"CONNECT {}\r\nPUB orders.1 0\r\n\r\nPING\r\n")
    await raw.until_line(b"PONG")
    everything = core.everything = Shelf("")
    everything.full = True
    core.invalidate_captures()
    raw.send(b"PUB orders.2 0\r\n\r\nPUB audit.1 0\r\n\r\nPUB plain 0\r\n\r\nPING\r\n")
    await raw.until_line(b"PONG")
    core.everything = None
    core.invalidate_captures()
    everything.make_room()
    raw.send(b"PUB orders.3 0\r\n\r\nPING\r\n")
    await raw.until_line(b"PONG")
    assert core.audit.taken == [(b"audit.1", b"", b"")]
    core.orders.make_room()
    assert [subject for subject, _, _ in core.orders.taken] == [b"orders.1", b"orders.2", b"orders.3"]
    await raw.close()


@pytest.mark.covers("SF-2", "SF-15")
async def test_what_a_gone_client_had_sent_is_still_taken(brokers: Any) -> None:
    broker, core = await start(brokers)
    core.orders.full = True
    raw = await brokers.raw(broker)
    raw.send(b"CONNECT {}\r\nPUB orders.1 1\r\na\r\nPING\r\n")
    await raw.until_line(b"PONG")
    await raw.close()
    await brokers.until(lambda: not broker.server.clients, "the client to be gone")
    assert broker.server.held_bytes > 0
    core.orders.make_room()
    assert core.orders.taken == [(b"orders.1", b"", b"a")]
    assert broker.server.held_bytes == 0


@pytest.mark.parametrize("bound", ["LINGERING_MAX", "LINGERING_BYTES_MAX"])
async def test_who_comes_publishes_and_goes_makes_a_broker_keep_no_more_than_a_bound(
    brokers: Any, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(
        client_server, bound, 3 if bound == "LINGERING_MAX" else 3 * len(b"orders.1" + bytes(1000))
    )
    broker, core = await start(brokers)
    core.orders.full = True
    for number in range(8):
        raw = await brokers.raw(broker)
        raw.send(b"CONNECT {}\r\nPUB orders.1 1000\r\n%04d%b\r\nPING\r\n" % (number, bytes(996)))
        await raw.until_line(b"PONG")
        await raw.close()
        await brokers.until(lambda: not broker.server.clients, "the client to be gone")
    assert broker.server.counts.held_refused == 5
    core.orders.make_room()
    assert [payload[:4] for _, _, payload in core.orders.taken] == [b"0005", b"0006", b"0007"]


@pytest.mark.covers("SF-16", "CL-4")
async def test_a_lame_duck_loses_no_plain_publish(brokers: Any) -> None:
    cores: list[Shelves] = []

    def make(process: Any) -> Shelves:
        core = Shelves()
        core.network = process.router
        cores.append(core)
        return core

    leaver, stayer = await brokers.start(2, make_core=make, limits={"lameDuckGraceMs": 0})
    count = 20_000
    client = await brokers.client(leaver, reconnect_time_wait=0.01)
    for number in range(count):
        await client.publish("orders.x", b"%d" % number)
        if number == count // 2:
            leaving = asyncio.create_task(leaver.lame_duck())
        if number % 100 == 0:
            await asyncio.sleep(0)
    await leaving
    assert cores[0].left
    await brokers.until(lambda: len(stayer.server.clients) == 1, "the client at the other broker")
    await client.flush()
    numbers = [int(payload) for core in cores for _, _, payload in core.orders.taken]
    assert cores[1].orders.taken, "the client went on at the other broker"
    assert numbers == list(range(count)), "each once, in order"


@pytest.mark.covers("SF-16")
async def test_a_lame_duck_takes_what_a_client_sends_until_its_fin(brokers: Any) -> None:
    broker, core = await start(brokers)
    raw = await brokers.raw(broker)
    raw.send(b'CONNECT {"protocol":1}\r\nPUB orders.1 0\r\n\r\nPING\r\n')
    await raw.until_line(b"PONG")
    leaving = asyncio.create_task(broker.lame_duck())
    info = await raw.line()
    assert b'"ldm":true' in info
    assert await raw.to_end() == b"", "the broker has sent FIN"
    for number in range(2, 100):
        raw.send(b"PUB orders.%d 0\r\n\r\n" % number)
        await raw.writer.drain()
    assert not leaving.done()
    await raw.close()
    await leaving
    assert [subject for subject, _, _ in core.orders.taken] == [
        b"orders.%d" % number for number in range(1, 100)
    ]


@pytest.mark.covers("SF-14")
async def test_clients_come_in_only_when_the_core_knows_its_streams_and_health_says_what_is_wrong(
    brokers: Any,
) -> None:
    cores: list[Shelves] = []

    def make(process: Any) -> Shelves:
        cores.append(Shelves())
        cores[0].accepts_clients = False
        return cores[0]

    hosts = {"east-0": brokers.address()}
    starting = asyncio.create_task(brokers.start_one("east-0", hosts, make_core=make))
    await brokers.until(lambda: bool(cores), "the core to be made")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(hosts["east-0"], 4222)
    assert not starting.done()
    cores[0].accepts_clients = True
    broker = await starting
    await brokers.client(broker)
    assert views.health(broker, "ready") == (200, {"status": "ok"})
    cores[0].troubles = ["the map is old"]
    assert views.health(broker, "ready") == (200, {"status": "ok", "warnings": ["the map is old"]})


@pytest.mark.covers("BG-4")
async def test_what_a_stream_on_its_way_here_refuses_reaches_no_subscriber(brokers: Any) -> None:
    broker, core = await start(brokers)
    raw = await brokers.raw(broker)
    raw.send(b"CONNECT {}\r\nSUB orders.> 1\r\nSUB audit.> 2\r\nPUB orders.1 1\r\na\r\nPING\r\n")
    assert await raw.until_line(b"PONG") == [b"MSG orders.1 1 1", b"a", b"PONG"]
    core.orders.stream = CLOSED
    core.invalidate_captures()
    raw.send(b"PUB orders.1 1\r\nb\r\nPUB orders.1 1\r\nc\r\nPUB audit.1 1\r\nd\r\nPING\r\n")
    assert await raw.until_line(b"PONG") == [b"MSG audit.1 2 1", b"d", b"PONG"]
    assert [payload for _, _, payload in core.orders.taken] == [b"a", b"b", b"c"], (
        "what stands in for it refuses them"
    )
    core.orders.stream = "ORDERS"
    core.invalidate_captures()
    raw.send(b"PUB orders.1 1\r\ne\r\nPING\r\n")
    assert await raw.until_line(b"PONG") == [b"MSG orders.1 1 1", b"e", b"PONG"]
    await raw.close()
