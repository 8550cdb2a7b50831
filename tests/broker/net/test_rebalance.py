"""Clients that are asked to go to other brokers of the cluster: who is asked, who is not, and that nothing is lost (CL-7)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest
from tests.broker.net.test_full_windows import Shelves

from supercluster.broker.net.clients import rebalance
from supercluster.broker.net.clients.rebalance import CannotAskError
from supercluster.broker.ports import ClientInfo, Publisher

pytestmark = pytest.mark.covers("CL-7")


class Stocked(Shelves):
    """A core that says who waits for an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: set[str] = set()
        """By the clients' names."""
        self.waiting_in: set[str] = set()
        """By the accounts that they asked in."""

    def awaiting_answers(self, clients: Mapping[Publisher, ClientInfo]) -> set[Publisher]:
        here = {client for client in clients if getattr(client, "name", None) in self.waiting}
        return here | {client for client, info in clients.items() if info.account in self.waiting_in}

    def overdue(self, clients: Mapping[Publisher, ClientInfo], age_ms: int) -> set[Publisher]:
        return set()


async def start(brokers: Any, count: int, **options: Any) -> tuple[list[Any], list[Stocked]]:
    cores: list[Stocked] = []

    def make(process: Any) -> Stocked:
        core = Stocked()
        core.network = process.router
        cores.append(core)
        return core

    return await brokers.start(count, make_core=make, **options), cores


def names(broker: Any) -> list[str]:
    return sorted(client.name for client in broker.server.clients.values())


async def ended(brokers: Any, broker: Any) -> Any:
    await brokers.until(lambda: broker.rebalance.run is None, "the end of the run")
    return broker.rebalance.last


async def test_as_many_go_as_are_asked_the_longest_connected_first(brokers: Any) -> None:
    (full, empty), _ = await start(brokers, 2)
    for number in range(6):
        await brokers.client(full, name=f"c{number}", reconnect_time_wait=0.01, dont_randomize=True)
    full.rebalance.begin(3, per_s=1000)
    run = await ended(brokers, full)
    assert (run.asked, run.gone, run.cut_off, run.why) == (6, 6, 0, ""), "each tried this one again first"
    assert (names(full), names(empty)) == (["c3", "c4", "c5"], ["c0", "c1", "c2"])
    for client in brokers.clients:
        await client.flush()


async def test_who_waits_for_an_answer_is_asked_when_it_has_come_and_others_go_before(brokers: Any) -> None:
    (full, empty), cores = await start(brokers, 2)
    cores[0].waiting = {"c0"}
    for number in range(2):
        await brokers.client(full, name=f"c{number}", reconnect_time_wait=0.01)
    full.rebalance.begin(2, per_s=1000)
    await brokers.until(lambda: names(empty) == ["c1"], "the one that waits for nothing")
    run = full.rebalance.run
    await brokers.until(lambda: run.busy == 1 and not run.leaving, "another look at the one that waits")
    assert names(full) == ["c0"]
    cores[0].waiting = set()
    assert (await ended(brokers, full)).why == ""
    await brokers.until(lambda: names(empty) == ["c0", "c1"], "the other one")


async def test_who_waits_for_an_answer_from_another_account_is_not_asked_yet(brokers: Any) -> None:
    people = [{"user": name.lower(), "password": "p", "account": name} for name in ("A", "B")]
    accounts = {
        "A": {"exports": [{"service": "orders.>"}]},
        "B": {"imports": [{"service": {"account": "A", "subject": "orders.>"}, "to": "bought.>"}]},
    }
    link = {"user": "route", "password": "r"}
    credentials = {
        "users.json": {"users": people, "accounts": accounts},
        "cluster.json": {"accept": [link], "send": link},
    }
    (full, empty), cores = await start(brokers, 2, credentials=credentials)
    cores[0].waiting_in = {"A"}
    for name in ("asks", "idle"):
        found = await brokers.client(full, name=name, user="b", password="p", reconnect_time_wait=0.01)
        if name == "asks":
            await found.publish("bought.1", b"", reply="in")
            await found.flush()
    assert [subject for subject, _, _ in cores[0].orders.taken] == [b"orders.1"]
    full.rebalance.begin(2, per_s=1000)
    await brokers.until(lambda: names(empty) == ["idle"], "the one that waits for nothing")
    run = full.rebalance.run
    await brokers.until(lambda: run.busy == 1 and not run.leaving, "another look at the one that waits")
    assert names(full) == ["asks"]
    cores[0].waiting_in = set()
    assert (await ended(brokers, full)).why == ""


async def test_a_run_ends_when_those_that_are_left_cannot_be_asked(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebalance, "PATIENCE_MS", 300)
    (full, _), cores = await start(brokers, 2)
    cores[0].waiting = {"waits"}
    await brokers.client(full, name="waits")
    old = await brokers.raw(full)
    old.send(b'CONNECT {"name":"old","protocol":0}\r\nPING\r\n')
    await old.until_line(b"PONG")
    assert full.rebalance.movable == 1, "an old client does not know what it would be told"
    full.rebalance.begin(2, per_s=1000)
    run = await ended(brokers, full)
    assert (run.asked, run.wanted, run.busy) == (0, 2, 1)
    assert run.why == "2 surplus clients would lose messages, or do not support being asked"
    assert names(full) == ["old", "waits"]
    await old.close()


async def test_a_client_that_is_asked_hears_of_the_others_and_what_it_still_sends_is_taken(
    brokers: Any,
) -> None:
    (full, *others), cores = await start(brokers, 3)
    await brokers.client(others[0])
    await brokers.until(
        lambda: full.server.others.get(others[0].advertised_client_url) == 1, "word of the others' load"
    )
    raw = await brokers.raw(full)
    raw.send(b'CONNECT {"protocol":1}\r\nSUB news 1\r\nPING\r\n')
    await raw.until_line(b"PONG")
    full.rebalance.begin(1)
    info = await raw.line()
    while b'"ldm"' not in info:
        info = await raw.line()
    told = json.loads(info[len(b"INFO ") :])
    assert told["ldm"] is True
    assert told["connect_urls"] == [broker.advertised_client_url for broker in (others[1], others[0])]
    assert await raw.to_end() == b"", "the broker has sent FIN"
    assert full.router.account("$G").interest == {}, "it can be sent nothing, so it wants nothing"
    for number in range(50):
        raw.send(b"PUB orders.%d 0\r\n\r\n" % number)
    await raw.writer.drain()
    assert full.rebalance.run.leaving
    await raw.close()
    assert (await ended(brokers, full)).gone == 1
    assert [subject for subject, _, _ in cores[0].orders.taken] == [b"orders.%d" % n for n in range(50)]


async def test_a_client_that_does_not_close_is_cut_off_within_the_time_of_a_lame_duck(brokers: Any) -> None:
    (full, _), _ = await start(brokers, 2, limits={"drainMs": 200})
    raw = await brokers.raw(full)
    raw.send(b'CONNECT {"protocol":1}\r\nPING\r\n')
    await raw.until_line(b"PONG")
    full.rebalance.begin(1)
    run = await ended(brokers, full)
    assert (run.asked, run.gone, run.cut_off) == (1, 1, 1)
    await raw.close()


async def test_plain_publishers_and_a_queue_group_lose_nothing(brokers: Any) -> None:
    (full, other), cores = await start(brokers, 2)
    got: list[bytes] = []

    async def take(message: Any) -> None:
        got.append(message.data)

    stays = await brokers.client(other)
    await stays.subscribe("work", queue="q", cb=take)
    await stays.flush()
    client = await brokers.client(full, reconnect_time_wait=0.01)
    count = 5_000
    for number in range(count):
        await client.publish("orders.x", b"%d" % number)
        if number == count // 2:
            full.rebalance.begin(1)
        if number % 50 == 0:
            await asyncio.sleep(0.001)
    assert (await ended(brokers, full)).gone >= 1
    assert len(other.server.clients) == 2
    await client.flush()
    numbers = [int(payload) for core in cores for _, _, payload in core.orders.taken]
    assert numbers == list(range(count)), "each once, in order"
    for number in range(100):
        await client.publish("work", b"%d" % number)
    await brokers.until(lambda: len(got) == 100, "every message of the queue group")


async def test_nobody_is_asked_without_a_place_to_go_nor_twice_at_a_time(brokers: Any) -> None:
    (alone,), _ = await start(brokers, 1)
    with pytest.raises(CannotAskError, match="no other broker"):
        alone.rebalance.begin(1)


async def call(broker: Any, method: str, body: Any = None) -> tuple[int, Any]:
    url = f"http://{broker.place.host}:{broker.monitor_port}/admin/rebalance"
    headers = {"Content-Type": "application/json"}
    request = aiohttp.ClientSession(headers=headers)
    async with request as session, session.request(method, url, json=body) as response:
        return response.status, await response.json()


async def test_the_admin_call_says_how_many_there_are_and_begins_and_ends_a_run(brokers: Any) -> None:
    (full, empty), cores = await start(brokers, 2)
    cores[0].waiting = {"c"}
    await brokers.client(full, name="c")
    status, told = await call(full, "GET")
    assert (status, told["node"], told["cluster"], told["clients"], told["movable"]) == (
        200,
        "east-0",
        "east",
        1,
        1,
    )
    assert list(told["others"]) == [empty.advertised_client_url]
    assert (told["running"], told["last"]) == (None, None)
    wrong_bodies: list[Any] = [None, [], {}, {"clients": 0}, {"clients": True}, {"clients": 1, "x": 1}]
    for body in [*wrong_bodies, {"clients": 1, "perS": 5000}]:
        status, wrong = await call(full, "POST", body)
        assert status == 400, body
        assert wrong["error"]
    status, told = await call(full, "POST", {"clients": 1, "perS": 1000})
    assert (status, told["running"]["wanted"]) == (202, 1)
    status, refused = await call(full, "POST", {"clients": 1})
    assert (status, refused["error"]) == (409, "1 clients are being asked already")
    status, _ = await call(full, "DELETE")
    assert status == 200
    run = await ended(brokers, full)
    assert (run.asked, run.why) == (0, "it was called off")
    assert (await call(full, "GET"))[1]["last"]["why"] == "it was called off"
