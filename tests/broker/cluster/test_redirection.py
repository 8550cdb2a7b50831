"""Unmodified nats-py is sent from one super-cluster to another one (BG-5, BG-8, BG-12; rules 10 and 16 to 22).

Blue and green are two brokers with streams that know nothing of each other; the test hands in the orders, and carries from one to the
other what far links would.
"""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import nats
import pytest
from nats.aio.client import Client
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import ConsumerConfig
from nats.js.errors import APIError, NoStreamResponseError
from tests.support.local_clusters import until
from tests.support.redirected import TwoWorlds

from supercluster.broker.jetstream.publish.windows import PublishWindows
from supercluster.broker.net.clients import partings
from supercluster.broker.net.clients.redirect.facts import User
from supercluster.broker.net.clients.redirect.orders import Phase, Policy
from supercluster.broker.runtime.process import BrokerProcess

pytestmark = pytest.mark.covers("BG-5")

ARRIVES_S = 2.5
"""Clients wait two seconds before they try a server again."""


@pytest.fixture
async def worlds(tmp_path: Path) -> AsyncIterator[TwoWorlds]:
    found = await TwoWorlds.start(tmp_path)
    yield found
    await found.stop()


class Watched:
    """One nats-py client, and how long it was without a server each time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.gaps_s: list[float] = []
        self.is_closed = False
        self.lame_ducks = 0
        self._left_s = 0.0
        self.client = Client()

    async def connect(self, broker: BrokerProcess, **options: Any) -> Client:
        async def left() -> None:
            self._left_s = time.monotonic()

        async def back() -> None:
            self.gaps_s.append(time.monotonic() - self._left_s)

        async def closed() -> None:
            self.is_closed = True

        async def lame_duck() -> None:
            self.lame_ducks += 1

        async def error(_: Exception) -> None:
            pass  # Refused connections, while it looks for a server.

        await self.client.connect(
            f"nats://{broker.advertised_client_url}",
            name=self.name,
            disconnected_cb=left,
            reconnected_cb=back,
            closed_cb=closed,
            lame_duck_mode_cb=lame_duck,
            error_cb=error,
            connect_timeout=2,
            **options,
        )
        return self.client


def names(broker: BrokerProcess) -> list[str]:
    return sorted(client.name for client in broker.server.clients.values() if client.has_come)


async def arrive(worlds: TwoWorlds, wanted: list[str]) -> None:
    await until(lambda: asyncio.sleep(0, names(worlds.green) == sorted(wanted)), f"{wanted} on green", 40)


async def again(ask: Callable[[], Awaitable[Any]], *errors: type[Exception]) -> Any:
    """Ask until it is answered; clients may do that with a request, or with a message that has an id."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await ask()
            except errors:
                continue


@pytest.mark.covers("BG-6")
async def test_clients_of_every_kind_arrive_on_green_within_two_and_a_half_seconds(worlds: TwoWorlds) -> None:
    """An idle subscriber, a publisher at a rate with acknowledgements, a pull that waits, and an ordered consumer."""
    for broker in (worlds.blue, worlds.green):
        maker = await nats.connect(f"nats://{broker.advertised_client_url}")
        for stream in ("orders", "ordered"):
            await maker.jetstream().add_stream(name=stream.upper(), subjects=[stream], storage="memory")
        await maker.jetstream().add_consumer("ORDERS", ConsumerConfig(durable_name="worker"))
        for _ in range(10):
            await maker.jetstream().publish("ordered", b"before")
        await maker.close()
    watched = {name: Watched(name) for name in ("idle", "publisher", "pull", "ordered")}
    clients = {name: await found.connect(worlds.blue) for name, found in watched.items()}
    idle = await clients["idle"].subscribe("core")
    pull = await clients["pull"].jetstream().pull_subscribe_bind("worker", "ORDERS")
    config = ConsumerConfig(idle_heartbeat=0.5)
    ordered = await clients["ordered"].jetstream().subscribe("ordered", ordered_consumer=True, config=config)
    acknowledged: list[int] = []
    ends = asyncio.Event()

    async def publish() -> None:
        js = clients["publisher"].jetstream(timeout=1)
        number = 0
        while not ends.is_set():
            headers = {"Nats-Msg-Id": f"{number}"}
            ask = functools.partial(js.publish, "orders", b"", headers=headers)
            await again(ask, NatsTimeout, NoStreamResponseError)
            acknowledged.append(number)
            number += 1
            await asyncio.sleep(0.005)

    publishing = asyncio.create_task(publish())
    waiting = asyncio.create_task(again(lambda: pull.fetch(5, timeout=1), NatsTimeout))
    for _ in range(10):
        assert (await ordered.next_msg(timeout=10)).data == b"before"
    await until(lambda: asyncio.sleep(0, len(acknowledged) > 300), "two seconds of publishes on blue")
    await waiting
    worlds.order(Phase.REDIRECT)
    waiting = asyncio.create_task(again(lambda: pull.fetch(5, timeout=1), NatsTimeout, APIError))
    await arrive(worlds, list(clients))
    for name, found in watched.items():
        is_back = functools.partial(lambda one: asyncio.sleep(0, len(one.gaps_s) == one.lame_ducks), found)
        await until(is_back, f"{name} to be back as often as it was asked")
        assert max(found.gaps_s) < ARRIVES_S, (name, found.gaps_s)
        assert not found.is_closed, name
    assert worlds.blue.redirection.partings.cut_off == 0
    before = len(acknowledged)
    await until(lambda: asyncio.sleep(0, len(acknowledged) > before + 20), "publishes on green")
    for message in await again(lambda: pull.fetch(5, timeout=1), NatsTimeout, APIError):
        await message.ack()
    await waiting
    await clients["publisher"].publish("core", b"here")
    assert (await idle.next_msg(timeout=10)).data == b"here"
    await clients["publisher"].jetstream().publish("ordered", b"after")
    assert (await ordered.next_msg(timeout=20)).data == b"after"
    ends.set()
    await publishing
    # Each was stored on the one or on the other; what is on both was published twice, with one id.
    stored = 0
    for broker in (worlds.blue, worlds.green):
        client = await nats.connect(f"nats://{broker.advertised_client_url}")
        stored += (await client.jetstream().stream_info("ORDERS")).state.messages
        await client.close()
    assert len(acknowledged) <= stored <= len(acknowledged) + len(watched["publisher"].gaps_s)
    for client in clients.values():
        await client.close()


async def test_one_client_of_a_user_goes_first_and_the_operator_stays(tmp_path: Path) -> None:
    """BG-8, and rule 22: bob's first one does not arrive, since it is a client that never reconnects."""
    ann, bob = ({"user": name, "password": "p", "account": "A"} for name in ("ann", "bob"))
    operator = {"user": "op", "password": "p", "account": "A", "role": "operator"}
    people = {"users": [ann, bob, operator]}
    worlds = await TwoWorlds.start(tmp_path, {"blue": people, "green": people})
    blue = worlds.blue
    found = {}
    for user, count in (("ann", 3), ("bob", 3), ("op", 1)):
        for number in range(count):
            watched = found[f"{user}{number}"] = Watched(f"{user}{number}")
            reconnects = user != "bob"
            await watched.connect(
                blue, user=user, password="p", reconnect_time_wait=0.1, allow_reconnect=reconnects
            )
    worlds.order(Phase.REDIRECT, "A")
    await arrive(worlds, ["ann0", "ann1", "ann2"])
    assert names(blue) == ["bob1", "bob2", "op0"]
    rows = {
        client.name: blue.redirection.described(client)
        for client in blue.server.clients.values()
        if client.has_come
    }
    assert rows["op0"] == {}
    assert rows["bob1"] == {"state": "waiting", "reach": "may", "asks": 0, "published": 0}
    assert [found[name].lame_ducks for name in ("bob1", "bob2", "op0")] == [0, 0, 0]
    assert found["bob0"].is_closed
    for watched in found.values():
        await watched.client.close()
    await worlds.stop()


async def test_a_client_that_returns_to_the_old_url_is_served_and_asked_again(worlds: TwoWorlds) -> None:
    """Rule 20: three times in all, then it stays and is listed."""
    watched = Watched("stays")
    client = await watched.connect(worlds.blue, reconnect_time_wait=0.05)
    core = worlds.blue.redirection.redirects
    core.reported("", User("$G", ""), 0)

    def only_blue(servers: Any, info: Any) -> Any:
        blue = worlds.blue.advertised_client_url
        return next((one for one in servers if one.uri.netloc == blue), None), 0.05

    client._reconnect_to_server_handler = only_blue
    inbox = await client.subscribe("core")
    worlds.order(Phase.REDIRECT)

    async def is_bridged() -> bool:
        return [found.get("state") for found in described(worlds.blue)] == ["bridged"]

    await until(is_bridged, "the client to be left alone", 30)
    assert described(worlds.blue)[0]["why"] == "it came back 3 times"
    assert (core.counts["asked"], core.counts["returned"], core.counts["refused"]) == (3, 3, 3)
    assert max(watched.gaps_s) < ARRIVES_S
    await client.publish("core", b"x")
    assert (await inbox.next_msg(timeout=10)).data == b"x"
    assert not watched.is_closed
    assert described(worlds.blue)[0]["published"] == 0, "to no stream that green has"
    worlds.blue.redirection.passed_on("$G", "ORDERS", list(worlds.blue.server.clients.values()))
    await shows_who_stays(worlds.blue)
    worlds.order(Phase.CLOSED)
    client._reconnect_to_server_handler = None
    await arrive(worlds, ["stays"])
    await client.close()


async def shows_who_stays(blue: BrokerProcess) -> None:
    """`/admin/redirects`, `/connz`, `/varz` and `/metrics` name and count the client (BG-12)."""
    base = f"http://{blue.place.host}:{blue.monitor_port}"
    async with aiohttp.ClientSession(base) as session:

        async def get(path: str) -> Any:
            async with session.get(path) as answer:
                assert answer.status == 200
                return await (answer.text() if path == "/metrics" else answer.json())

        told = await get("/admin/redirects")
        (row,) = (await get("/connz"))["connections"]
        figures, metrics = await get("/varz"), await get("/metrics")
    named = {"account": "$G", "user": "", "name": "stays", "language": "python3", "address": "127.0.0.1"}
    assert told["publishers"] == {"total": 1, "first": [{**named, "messages": 1, "streams": ["ORDERS"]}]}
    (bridged,) = told["bridged"]["first"]
    assert bridged.items() >= {**named, "why": "it came back 3 times", "connections": 1}.items()
    assert told["states"] == {"waiting": 0, "asked": 0, "returned": 0, "bridged": 1}
    assert (told["published"], told["orderNotKept"], told["cutOff"]) == (1, 0, 0)
    assert row["redirect"] == {
        "state": "bridged",
        "reach": "seen on green",
        "asks": 3,
        "published": 1,
        "why": "it came back 3 times",
    }
    assert (figures["redirects_bridged"], figures["redirects_asked"]) == (1, 3)
    assert "supercluster_broker_redirects_returned_total{" in metrics
    assert "supercluster_broker_order_not_kept_total{" in metrics


def described(broker: BrokerProcess) -> list[dict[str, Any]]:
    return [broker.redirection.described(client) for client in broker.server.clients.values()]


async def test_when_all_accounts_are_in_scope_the_first_info_names_green_and_only_green(
    worlds: TwoWorlds,
) -> None:
    """Rule 19: INFO of blue names no broker of blue, the first one included."""

    async def infos() -> list[dict[str, Any]]:
        host, port = worlds.blue.place.host, worlds.blue.client_port
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b'CONNECT {"protocol":1}\r\nPING\r\n')
        lines = [await asyncio.wait_for(reader.readline(), 10) for _ in range(3)]
        writer.close()
        await writer.wait_closed()
        assert lines[1] == b"PONG\r\n", "no INFO before it"
        return [json.loads(line[len(b"INFO ") :]) for line in (lines[0], lines[2])]

    worlds.order_all(Phase.ANNOUNCE)
    green = [worlds.green.advertised_client_url]
    assert [info["connect_urls"] for info in await infos()] == [green, green]
    assert names(worlds.green) == []


async def test_at_the_end_new_clients_are_refused_and_find_green(worlds: TwoWorlds) -> None:
    """A client that knows only blue is let in once, told of green, and then refused without an error."""
    worlds.order(Phase.CLOSED)
    watched = Watched("late")
    client = await watched.connect(worlds.blue, reconnect_time_wait=0.05)
    await arrive(worlds, ["late"])
    await client.flush()
    assert not watched.is_closed
    assert names(worlds.blue) == []
    await client.close()


async def test_by_policy_a_new_client_is_refused_as_soon_as_green_has_its_user(worlds: TwoWorlds) -> None:
    worlds.order_all(Phase.REDIRECT, policy=Policy.REFUSE)
    worlds.blue.redirection.users_reported("", [User("$G", "")])
    watched = Watched("new")
    # It tries the server first that it has left; by chance it would go to green at once.
    client = await watched.connect(worlds.blue, reconnect_time_wait=0.05, dont_randomize=True)
    await arrive(worlds, ["new"])
    counts = worlds.blue.redirection.redirects.counts
    assert (counts["asked"], counts["refused"]) == (1, 1)
    await client.close()


async def test_green_holds_the_first_pong_while_blue_settles_what_a_closing_connection_sent(
    worlds: TwoWorlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 10: the client closes late, so its account stays unsettled; the PONG waits for a second at most."""
    monkeypatch.setattr(partings, "CLOSES_MS", 10_000)
    host, port = worlds.blue.place.host, worlds.blue.client_port
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b'CONNECT {"protocol":1}\r\nPING\r\n')
    assert b"INFO" in await reader.readline()
    assert await reader.readline() == b"PONG\r\n"
    worlds.order(Phase.REDIRECT)
    rest = await asyncio.wait_for(reader.read(), 10)
    assert b'"ldm":true' in rest
    assert b"-ERR" not in rest
    assert worlds.unsettled[-1] == ["$G"]
    writer.write(b"PUB orders 1\r\nx\r\n")  # It has not seen FIN yet, and is read all the same.
    watched = Watched("held")
    began_s = time.monotonic()
    client = await watched.connect(worlds.green)
    assert 0.9 < time.monotonic() - began_s < 2
    assert worlds.green.redirection.pongs.not_kept_total == 1
    waiting = asyncio.create_task(Watched("freed").connect(worlds.green))
    await until(lambda: asyncio.sleep(0, len(worlds.green.redirection.pongs) == 1), "another one to be held")
    writer.close()
    await writer.wait_closed()
    other = await waiting
    assert worlds.green.redirection.pongs.not_kept_total == 1, "it was freed, and did not come too late"
    assert worlds.unsettled[-1] == []
    assert worlds.blue.server.counts.in_messages == 1
    for found in (client, other):
        await found.close()


@pytest.mark.covers("SF-22")
async def test_green_counts_a_client_that_came_by_itself_before_its_publish_was_settled(
    worlds: TwoWorlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 10 for a client that nobody asked: INFO names only green, so it goes there when its connection breaks."""
    blue = worlds.blue
    maker = await nats.connect(f"nats://{blue.advertised_client_url}")
    await maker.jetstream().add_stream(name="ORDERS", subjects=["orders"], storage="memory")
    await maker.close()
    worlds.order(Phase.ANNOUNCE)
    # Nothing gets a verdict, as with a link to green that is cut.
    monkeypatch.setattr(PublishWindows, "verdicts", lambda *_, **__: None)
    reader, writer = await asyncio.open_connection(blue.place.host, blue.client_port)
    writer.write(b'CONNECT {"protocol":1}\r\nPUB orders 1\r\nx\r\nPING\r\n')
    while await reader.readline() != b"PONG\r\n":
        pass
    writer.close()
    await writer.wait_closed()
    await until(lambda: asyncio.sleep(0, worlds.unsettled), "blue to say that it has something unsettled")
    client = await Watched("came by itself").connect(worlds.green)
    pongs = worlds.green.redirection.pongs
    assert (pongs.held_total, pongs.not_kept_total) == (1, 1)
    await client.close()


async def test_an_order_that_is_taken_back_names_blue_again(worlds: TwoWorlds) -> None:
    watched = Watched("stays")
    client = await watched.connect(worlds.blue)
    worlds.order(Phase.ANNOUNCE)
    await until(lambda: asyncio.sleep(0, len(client.servers) == 2), "green to be known")
    worlds.orders.by_account.clear()
    worlds.blue.redirection.orders_changed()
    (connection,) = worlds.blue.server.clients.values()
    told = json.loads(worlds.blue.server.info_line(connection)[len(b"INFO ") :])
    assert told["connect_urls"] == [worlds.blue.advertised_client_url]
    assert described(worlds.blue) == [{}]
    await client.close()
