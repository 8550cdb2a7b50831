"""Clusters that are joined: who is linked with whom, who is refused and why, and what crosses."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any

import pytest
from nats.aio.msg import Msg
from tests.broker.net.test_links import Listener

from supercluster.broker.jetstream.meta_leader.map_waits import MAP_WAIT_MS
from supercluster.broker.monitor import views
from supercluster.broker.net.links import address_book, gateways
from supercluster.broker.net.links.mesh import CHECK_S
from supercluster.broker.net.links.silence import FAR_SILENCE_MAX_MS, HEARTBEAT_MS, SILENCE_MAX_MS
from supercluster.broker.ports import Channel
from supercluster.broker.protocol import frames
from supercluster.broker.protocol.frames import FrameType, Hello
from supercluster.broker.runtime.process import BrokerProcess
from supercluster.broker.settings import settings

GATEWAY = {"user": "gateway", "password": "g4te"}
ROUTE = {"user": "route", "password": "r0ute"}
CREDENTIALS = {
    "cluster.json": {"accept": [ROUTE], "send": ROUTE},
    "gateway.json": {"accept": [GATEWAY], "send": GATEWAY},
}


def remotes(broker: Any) -> list[str]:
    """The brokers of other clusters that it is linked with."""
    return sorted(link.peer.node for link in broker.mesh.gateways.links)


def interest(broker: Any, subject: str) -> bool:
    return bool(broker.router.has_interest("$G", subject.encode()))


# Who finds whom


@pytest.mark.covers("CL-6")
async def test_brokers_of_all_clusters_are_linked_by_one_hop(brokers: Any) -> None:
    clusters = await brokers.start_clusters(
        {"east": 2, "west": 2, "north": 1}, make_core=Listener, tags=["ssd"]
    )
    east = clusters["east"][0]
    assert remotes(east) == ["north-0", "west-0", "west-1"]
    peers = {peer.node: peer for peer in east.core.up}
    assert (peers["west-1"].cluster, peers["east-1"].cluster) == ("west", "east")
    west = clusters["west"][1]
    assert peers["west-1"].gateway_url == f"{west.place.advertise}:{west.gateway_port}"
    assert peers["west-1"].tags == ("ssd",)


@pytest.mark.covers("CL-6")
@pytest.mark.parametrize("knows", ["east", "west"])
async def test_one_address_is_enough_for_all_to_find_each_other(brokers: Any, knows: str) -> None:
    """One broker of one cluster has one seed; of some pairs only the one that may not dial knows an address."""
    hosts = {
        cluster: {f"{cluster}-{index}": brokers.address() for index in range(2)}
        for cluster in ("east", "west", "north")
    }
    other = "west" if knows == "east" else "east"
    for cluster, found in hosts.items():
        for name in found:
            seeds: dict[str, list[str]] = {}
            if name == f"{knows}-1":
                seeds = {other: [f"{hosts[other][f'{other}-0']}:7222"]}
            if name == "north-0":
                seeds = {knows: [f"{hosts[knows][f'{knows}-0']}:7222"]}
            await brokers.start_one(name, found, cluster=cluster, gateways=seeds, credentials=CREDENTIALS)
    await brokers.all_linked()


@pytest.mark.covers("CL-6")
async def test_whoever_may_not_dial_and_is_not_dialled_introduces_itself(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """west-0 knows east-0 by name and address, as from gossip, and east-0 knows nothing of it."""
    monkeypatch.setattr(gateways, "PATIENCE_S", 0.05)
    east = await brokers.start_one("east-0", {"east-0": brokers.address()}, gateways={})
    west = await brokers.start_one("west-0", {"west-0": brokers.address()}, cluster="west", gateways={})
    assert remotes(east) == []
    west.mesh.gateways.book.said_itself("east-0", "east", f"{east.place.host}:7222")
    west.mesh.gateways._keep_all()
    await brokers.all_linked()
    assert east.mesh.links["west-0"].control.dialled


@pytest.mark.covers("CL-6")
async def test_stale_and_wrong_seeds_do_no_harm(brokers: Any, caplog: pytest.LogCaptureFixture) -> None:
    hosts = {name: brokers.address() for name in ("east-0", "west-0", "north-0")}
    dead = f"{brokers.address()}:7222"
    seeds = {
        "west": [dead, f"{hosts['north-0']}:7222", f"{hosts['west-0']}:7222"],
        "east": [f"{hosts['east-0']}:7222"],
    }
    for name, host in hosts.items():
        mine = seeds if name == "east-0" else {}
        await brokers.start_one(name, {name: host}, cluster=name.partition("-")[0], gateways=mine)
    await brokers.all_linked()
    east = brokers.running[0]
    shown = east.mesh.gateways.seeds
    assert set(shown) == {("west", address) for address in seeds["west"]}, "the own cluster is passed over"
    await brokers.until(lambda: bool(shown["west", dead].error), "the error of a dead seed")
    wrong = shown["west", f"{hosts['north-0']}:7222"]
    await brokers.until(
        lambda: wrong.error == "north-0 is there, which is of cluster north, not west", "the error"
    )


@pytest.mark.covers("CL-6")
async def test_a_broker_that_comes_back_elsewhere_is_found_again(brokers: Any) -> None:
    """West has no seeds: the new address is known in west alone until the broker there is told by gossip."""
    hosts = {
        cluster: {f"{cluster}-{index}": brokers.address() for index in range(2)}
        for cluster in ("east", "west")
    }
    seeds = {"west": [f"{host}:7222" for host in hosts["west"].values()]}
    started = [
        await brokers.start_one(name, found, cluster=cluster, gateways=seeds if cluster == "east" else {})
        for cluster, found in hosts.items()
        for name in found
    ]
    await brokers.all_linked()
    moved = started[3]
    await brokers.stop_one(moved)
    await brokers.until(lambda: all(brokers.links(broker) == 2 for broker in brokers.running), "the loss")
    elsewhere = {**hosts["west"], "west-1": brokers.address()}
    back = await brokers.start_one("west-1", elsewhere, cluster="west", gateways={})
    started[2].mesh.set_peers({"west-1": f"{elsewhere['west-1']}:6222"})
    await brokers.all_linked()
    assert started[0].mesh.links["west-1"].peer.process == back.process_id


@pytest.mark.covers("CL-6")
@pytest.mark.parametrize("away", ["west-0", "a-west-0"])
async def test_seeds_bring_back_what_was_forgotten(
    brokers: Any, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    """Whether east-0 dials it or is dialled by it: a cluster that was away for too long is asked for again."""
    monkeypatch.setattr(address_book, "FORGET_MS", 0)
    monkeypatch.setattr(gateways, "PATIENCE_S", 0.05)
    host = brokers.address()
    seeds = {"west": [f"{host}:7222"]}
    east = await brokers.start_one("east-0", {"east-0": brokers.address()}, gateways=seeds)
    west = await brokers.start_one(away, {away: host}, cluster="west", gateways={})
    await brokers.all_linked()
    await brokers.stop_one(west)
    book = east.mesh.gateways.book
    await brokers.until(
        lambda: book.nodes == [] and not east.mesh.gateways._keeper._tasks, "east to forget it"
    )
    await brokers.start_one(away, {away: host}, cluster="west", gateways={})
    await brokers.all_linked()


@pytest.mark.covers("CL-6")
async def test_seeds_are_taken_over_while_the_broker_runs(brokers: Any) -> None:
    east = await brokers.start_one("east-0", {"east-0": brokers.address()}, gateways={})
    west = await brokers.start_one("west-0", {"west-0": brokers.address()}, cluster="west", gateways={})
    document = json.loads(west.place.config.read_text())
    document["gateways"] = {"east": [f"{east.place.host}:7222"]}
    west.place.config.write_text(json.dumps(document))
    await brokers.all_linked()


async def test_without_gateways_in_the_settings_no_port_is_open(brokers: Any) -> None:
    (east,) = await brokers.start()
    assert east.gateway_port == 0
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(east.place.host, 7222)


# Who is refused


def hello(broker: Any, **changes: Any) -> bytes:
    facts = broker.mesh.facts
    fields: dict[str, Any] = {
        "version": frames.VERSION,
        "super_cluster": facts.super_cluster,
        "identity": facts.identity,
        "cluster": "west",
        "node": "a-west",
        "incarnation": "inc",
        "process": "proc",
        "client_url": "127.0.0.1:1",
        "meta_state": 0,
        "channel": 0,
        "pair": "p",
        **GATEWAY,
    }
    return b"".join(frames.frame(FrameType.HELLO, [frames.encode_hello(Hello(**{**fields, **changes}))]))


async def answer(broker: Any, port: int, said: bytes) -> bytes:
    """What the broker says until it closes."""
    reader, writer = await asyncio.open_connection(broker.place.host, port)
    writer.write(said)
    async with asyncio.timeout(60):
        found = await reader.read()
    writer.close()
    return found


@pytest.mark.covers("CL-3", "CL-6")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"password": "wrong"}, "its credentials are not among the accepted ones"),
        (ROUTE, "its credentials are not among the accepted ones"),
        ({"identity": "id-2"}, "it belongs to super-cluster demo (id-2), this broker to demo (id-1)"),
        (
            {"cluster": "east"},
            "both are of cluster east: they link over the cluster port, not the gateway port",
        ),
        ({"node": "east-0"}, "its name is east-0, which is this broker's own"),
        ({"node": "east-1"}, "its name is east-1, and cluster east has a broker of that name"),
        (
            {"node": "west-0", "cluster": "north"},
            "its name is west-0, and cluster west has a broker of that name",
        ),
        ({"node": "z"}, "east-0 dials z, not the other way round"),
        (
            {"introduces": True, "node": "west-0", "cluster": "north"},
            "cluster west has a broker of that name",
        ),
    ],
)
async def test_strangers_at_the_gateway_port_are_refused_with_the_reason(
    brokers: Any, changes: dict[str, Any], reason: str
) -> None:
    clusters = await brokers.start_clusters({"east": 2, "west": 1}, credentials=CREDENTIALS)
    east = clusters["east"][0]
    said = await answer(east, east.gateway_port, hello(east, **changes))
    size, kind = struct.unpack_from(">IB", said)
    assert (size, kind) == (len(said) - 4, FrameType.REFUSED)
    assert reason in said.decode()
    for secret in (GATEWAY, ROUTE):
        assert secret["password"] not in said.decode()
    assert set(east.mesh.links) == {"east-1", "west-0"}


@pytest.mark.covers("CL-3", "CL-6")
async def test_a_broker_of_another_cluster_is_sent_away_from_the_cluster_port(brokers: Any) -> None:
    (east,) = await brokers.start(gateways={}, credentials=CREDENTIALS)
    said = await answer(east, east.cluster_port, hello(east, **ROUTE))
    assert b"it is of cluster west, this one of east: they link over the gateway port" in said
    said = await answer(east, east.cluster_port, hello(east, cluster="east", introduces=True, **ROUTE))
    assert b"introduce themselves to those of other clusters, at the gateway port" in said


@pytest.mark.covers("CL-3", "CL-6")
async def test_the_gateway_port_has_a_time_limit_and_takes_no_garbage(brokers: Any) -> None:
    (east,) = await brokers.start(gateways={}, credentials=CREDENTIALS, limits={"authTimeoutMs": 100})
    for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x02\x05x"):
        assert await answer(east, east.gateway_port, garbage) == b""
    assert east.mesh.handshakes.refused_total == 3
    told = await answer(east, east.gateway_port, hello(east, introduces=True, gateway_url="nonsense"))
    reader = frames.FrameReader()
    assert [kind for kind, _ in reader.feed(told)] == [FrameType.HELLO, FrameType.GATEWAYS]
    assert east.mesh.gateways.book.nodes == [], "an address that is none is not kept"


@pytest.mark.covers("CL-3", "CL-6")
async def test_a_gateway_port_without_credentials_of_its_own_lets_nobody_in(
    brokers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    only_routes = {"cluster.json": CREDENTIALS["cluster.json"]}
    east = await brokers.start_one(
        "east-0", {"east-0": brokers.address()}, gateways={}, credentials=only_routes
    )
    assert "there is no gateway.json" in caplog.text
    said = await answer(east, east.gateway_port, hello(east, user="", password=""))
    assert b"its credentials are not among the accepted ones" in said


@pytest.mark.covers("CL-3", "CL-6")
async def test_secrets_are_in_no_log_info_or_monitoring(
    brokers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    clusters = await brokers.start_clusters({"east": 1, "west": 1}, credentials=CREDENTIALS)
    east = clusters["east"][0]
    await answer(east, east.gateway_port, hello(east, password="wr0ng"))
    raw = await brokers.raw(east)
    shown = json.dumps([raw.info, views.gatewayz(east, {}), views.routez(east, {}), views.varz(east, {})])
    for secret in ("g4te", "r0ute", "wr0ng"):
        assert secret not in shown + caplog.text + str(views.figures(east))
    await raw.close()


class Remembers(Listener):
    """A core that knows a broker which is away."""

    def cluster_of(self, node: str) -> str | None:
        return "north" if node == "a-0" else None


@pytest.mark.covers("CL-6")
async def test_the_name_of_a_broker_that_is_away_is_not_given_to_another_cluster(brokers: Any) -> None:
    (east,) = await brokers.start(gateways={}, make_core=Remembers)
    said = await answer(east, east.gateway_port, hello(east, node="a-0"))
    assert b"its name is a-0, and cluster north has a broker of that name" in said
    said = await answer(east, east.gateway_port, hello(east, node="a-0", cluster="north", introduces=True))
    assert said[4] == FrameType.HELLO


# What crosses


@pytest.mark.covers("CL-6", "CL-1")
async def test_a_message_crosses_only_to_brokers_with_interest_and_once(brokers: Any) -> None:
    clusters = await brokers.start_clusters({"east": 1, "west": 2})
    (east,), west = clusters["east"], clusters["west"]
    received: list[bytes] = []

    async def take(message: Msg) -> None:
        received.append(message.data)

    subscriber = await brokers.client(west[0])
    for _ in range(3):
        await subscriber.subscribe("news.*", cb=take)
    await subscriber.flush()
    await brokers.until(lambda: interest(east, "news.x"), "interest in east")
    publisher = await brokers.client(east)
    before = {name: link.control.sent_bytes for name, link in east.mesh.links.items()}
    for number in range(50):
        await publisher.publish("news.x", b"%d" % number + bytes(1000))
    await publisher.flush()
    await brokers.until(lambda: len(received) == 150, "150 deliveries")
    sent = {name: link.control.sent_bytes - before[name] for name, link in east.mesh.links.items()}
    assert 50_000 < sent["west-0"] < 60_000
    assert sent["west-1"] < 5_000


@pytest.mark.covers("CL-2", "CL-6")
async def test_queue_members_are_of_the_own_broker_then_the_own_cluster_then_another(brokers: Any) -> None:
    clusters = await brokers.start_clusters({"east": 2, "west": 2})
    places = {"here": clusters["east"][0], "near": clusters["east"][1], "far": clusters["west"][1]}
    counts = dict.fromkeys(places, 0)
    plain = {"near": 0, "far": 0}

    def counter(book: dict[str, int], where: str) -> Any:
        async def take(message: Msg) -> None:
            book[where] += 1

        return take

    members = {}
    for where, broker in places.items():
        client = await brokers.client(broker)
        members[where] = await client.subscribe("work", queue="crew", cb=counter(counts, where))
        if where in plain:
            await client.subscribe("work", cb=counter(plain, where))
        await client.flush()
    east = places["here"]
    groups = east.router.account("$G").sublist
    await brokers.until(
        lambda: len(groups.match(b"work").nodes) == 2 and bool(groups.match(b"work").groups[0].remote),
        "interest",
    )
    publisher = await brokers.client(east)
    expected = dict.fromkeys(places, 0)
    for round_number, where in enumerate(("here", "near", "far"), start=1):
        for _ in range(100):
            await publisher.publish("work", b"")
        await publisher.flush()
        expected[where] = 100
        await brokers.until(lambda: counts == expected, f"100 deliveries {where}")
        await brokers.until(
            lambda: plain == {"near": 100 * round_number, "far": 100 * round_number},  # noqa: B023
            "a copy for every plain subscriber",
        )
        await members[where].unsubscribe()
        await members[where]._conn.flush()
        if where == "near":
            await brokers.until(
                lambda: list(groups.match(b"work").groups[0].remote) == ["west-1"], "near members to be gone"
            )
    assert counts == {"here": 100, "near": 100, "far": 100}, "nothing came twice"


@pytest.mark.covers("CL-6")
async def test_requests_are_answered_across_clusters_from_the_first_message(brokers: Any) -> None:
    clusters = await brokers.start_clusters({"east": 2, "west": 2})
    service = await brokers.client(clusters["west"][1])

    async def answer_it(message: Msg) -> None:
        await message.respond(message.data.upper())

    await service.subscribe("upper", queue="services", cb=answer_it)
    await service.flush()
    east = clusters["east"]
    await brokers.until(lambda: all(interest(broker, "upper") for broker in east), "interest in east")
    for number in range(20):
        client = await brokers.client(east[number % 2])
        reply = await client.request("upper", b"a%d" % number, timeout=5)
        assert reply.data == b"A%d" % number, "the first request of a new connection"
        await client.close()


@pytest.mark.covers("CL-4", "CL-6")
async def test_info_names_the_own_cluster_alone_and_clients_stay_in_it(brokers: Any) -> None:
    clusters = await brokers.start_clusters({"east": 2, "west": 2})
    for cluster, found in clusters.items():
        raw = await brokers.raw(found[0])
        assert raw.info["cluster"] == cluster
        assert set(raw.info["connect_urls"]) == {broker.advertised_client_url for broker in found}
        await raw.close()


@pytest.mark.covers("CL-7")
async def test_clients_that_have_to_leave_are_sent_to_the_least_loaded_first(brokers: Any) -> None:
    clusters = await brokers.start_clusters({"east": 4, "west": 1})
    east = clusters["east"]
    for index, count in ((1, 5), (2, 1), (3, 3)):
        for _ in range(count):
            await brokers.client(east[index])
    urls = [broker.advertised_client_url for broker in east]
    loads = east[0].server._loads
    await brokers.until(lambda: [loads.get(url) for url in urls[1:]] == [5, 1, 3], "the loads of the others")
    leaving = [await brokers.raw(east[0]) for _ in range(4)]
    for raw in leaving:
        raw.send(b'CONNECT {"protocol":1}\r\nPING\r\n')
        await raw.until_line(b"PONG")
    drain = asyncio.create_task(east[0].lame_duck())
    told = []
    for raw in leaving:
        info = json.loads((await raw.line())[len(b"INFO ") :])
        assert info["ldm"] is True
        told.append([urls.index(url) for url in info["connect_urls"]])
        await raw.close()
    assert told[:2] == [[2, 3, 1], [2, 3, 1]]
    assert sorted(first for first, *_ in told) == [2, 2, 2, 3], "each one that is sent there counts"
    await drain


# Faults and what is said of them


@pytest.mark.covers("SF-14")
def test_a_change_of_the_map_waits_longer_than_silence_and_shorter_than_clients() -> None:
    """Two layers, one rule: who has not confirmed a new map within the wait is out of contact by then."""
    lost_ms = max(SILENCE_MAX_MS[Channel.CONTROL], FAR_SILENCE_MAX_MS[Channel.CONTROL]) + 2000 * CHECK_S
    assert lost_ms + HEARTBEAT_MS < MAP_WAIT_MS < 5000


async def test_faults_are_there_only_where_the_settings_say_so_and_are_checked(brokers: Any) -> None:
    (east,) = await brokers.start()
    faults = east.mesh.faults
    assert await faults.admin({}, {"brokers": ["west-0"]}) == (200, {"brokers": ["west-0"], "clusters": []})
    assert await faults.admin({}, None) == (200, {"brokers": ["west-0"], "clusters": []})
    wrongs: list[Any] = [[], {"nodes": []}, {"brokers": "west-0"}, {"clusters": [1]}]
    for wrong in wrongs:
        assert (await faults.admin({}, wrong))[0] == 400
    assert faults.cuts("west-0", "west")
    assert await faults.admin({}, {}) == (200, {"brokers": [], "clusters": []})
    assert ("PUT", "faults") in east.monitor._admin
    await brokers.stop_one(east)
    document = json.loads(east.place.config.read_text())
    del document["linkFaults"]
    quiet = BrokerProcess(settings.parse(document), east.place)
    await quiet.start()
    brokers.running.append(quiet)
    assert not [path for _, path in quiet.monitor._admin if path == "faults"]


@pytest.mark.covers("CL-6")
async def test_a_cluster_that_is_cut_off_is_named_and_found_again(brokers: Any) -> None:
    clusters = await brokers.start_clusters({"east": 2, "west": 1, "north": 1})
    for broker in clusters["east"]:
        broker.mesh.faults.set(frozenset(), frozenset({"west"}))
    (west,) = clusters["west"]
    await brokers.until(lambda: remotes(west) == ["north-0"], "the loss in west, which has no fault itself")
    for broker in clusters["east"]:
        await brokers.until(lambda broker=broker: remotes(broker) == ["north-0"], "the loss in east")
        assert views.health(broker, "ready")[1]["warnings"] == [
            "there is no link with any broker of cluster west"
        ]
    for broker in clusters["east"]:
        broker.mesh.faults.set(frozenset(), frozenset())
    await brokers.all_linked()
    assert "warnings" not in views.health(west, "ready")[1]


async def test_a_short_cut_delays_what_is_sent_and_loses_nothing(brokers: Any) -> None:
    clusters = await brokers.start_clusters({"east": 1, "west": 1})
    (east,), (west,) = clusters.values()
    subscriber, publisher = await brokers.client(west), await brokers.client(east)
    subscription = await subscriber.subscribe("news")
    await subscriber.flush()
    await brokers.until(lambda: interest(east, "news"), "interest in east")
    for round_number in range(3):
        east.mesh.faults.set(frozenset({"west-0"}), frozenset())
        for number in range(100):
            await publisher.publish("news", b"%d.%d" % (round_number, number))
        await publisher.flush()
        assert east.mesh.links["west-0"].control.pending_bytes() > 0
        east.mesh.faults.set(frozenset(), frozenset())
        for number in range(100):
            assert (await subscription.next_msg(timeout=30)).data == b"%d.%d" % (round_number, number)
