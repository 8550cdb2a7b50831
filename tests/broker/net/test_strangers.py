"""What strangers can hold is bounded by address, and never keeps those with credentials out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.net.test_credentials_on_the_wire import LINKS, hello

from supercluster.broker.net.clients.strangers import (
    ADDRESSES_MAX,
    Attempts,
    PendingConnections,
    RationedLog,
    network_of,
)
from supercluster.broker.net.links import handshake


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_an_ipv6_host_counts_by_its_network(address: str, network: str) -> None:
    assert network_of(address) == network


def test_the_oldest_of_the_address_with_the_most_goes() -> None:
    unfinished: PendingConnections[int] = PendingConnections(total_max=6, per_address_max=4)
    assert [unfinished.add(number, "10.0.0.1") for number in range(5)] == [None] * 4 + [0]
    assert [unfinished.add(number, "10.0.0.2") for number in (10, 11)] == [None, None]
    assert unfinished.add(20, "10.0.0.3") == 1, "of the one with the most"
    unfinished.discard(2)
    unfinished.discard(2)
    assert list(unfinished) == [3, 4, 10, 11, 20]
    assert 2 not in unfinished


def test_of_addresses_with_one_each_the_oldest_goes() -> None:
    unfinished: PendingConnections[int] = PendingConnections(total_max=300, per_address_max=4)
    evicted = [unfinished.add(number, f"10.0.{number >> 8}.{number & 255}") for number in range(900)]
    assert evicted == [None] * 300 + list(range(600))
    assert len(unfinished) == 300


def test_attempts_come_back_with_time_and_when_they_were_right() -> None:
    attempts = Attempts(burst=3, per_s=1)
    assert [attempts.take("10.0.0.1", 0) for _ in range(4)] == [True, True, True, False]
    assert attempts.take("10.0.0.2", 0), "another address has its own"
    attempts.give_back("10.0.0.1", 0)
    assert [attempts.take("10.0.0.1", 0) for _ in range(2)] == [True, False]
    assert [attempts.take("10.0.0.1", 2000) for _ in range(3)] == [True, True, False]


def test_addresses_are_forgotten_beyond_a_bound() -> None:
    attempts = Attempts(burst=1, per_s=1)
    for number in range(3 * ADDRESSES_MAX):
        attempts.take(str(number), number)
    assert len(attempts) == ADDRESSES_MAX


def test_log_lines_beyond_the_ration_are_counted_in_the_next_one() -> None:
    lines: list[str] = []
    now_ms = 0
    said = RationedLog(lambda text, *args: lines.append(text % args), lambda: now_ms, burst=2, per_s=1)
    for number in range(5):
        said("line %d", number)
    now_ms = 1000
    said("line %d", 5)
    assert lines == ["line 0", "line 1", "line 5 (3 more like it were not logged)"]


@pytest.mark.covers("CL-3")
async def test_silent_strangers_keep_no_broker_out(brokers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKES_MAX", 40)
    monkeypatch.setattr(handshake, "HANDSHAKES_PER_ADDRESS_MAX", 30)
    options = {"credentials": {"cluster.json": LINKS}, "limits": {"authTimeoutMs": 60_000}}
    hosts = {"east-0": brokers.address(), "east-1": brokers.address()}
    later = await brokers.start_one("east-1", hosts, **options)
    strangers = []
    for number in range(100):
        here = (f"127.0.0.{1 + number % 3}", 0)
        strangers.append(await asyncio.open_connection(later.place.host, later.cluster_port, local_addr=here))
    half = strangers[-1][1]
    half.write(hello(later)[:20])
    handshakes = later.mesh.handshakes
    await brokers.until(
        lambda: later.mesh.handshakes.refused_total >= 60, "the oldest strangers to be sent away"
    )
    assert len(handshakes._strangers) <= 40
    await brokers.start_one("east-0", hosts, **options)
    await brokers.until(lambda: brokers.links(later) == 1, "the link beside them")
    for _, writer in strangers:
        writer.close()


async def test_silent_strangers_take_no_client_s_place(brokers: Any) -> None:
    users = {"users": [{"user": "app", "password": "x"}]}
    limits = {"maxConnections": 5, "authTimeoutMs": 60_000}
    (broker,) = await brokers.start(credentials={"users.json": users}, limits=limits)
    login = b'CONNECT {"user":"app","pass":"x"}\r\nPING\r\n'
    early = await brokers.raw(broker)
    early.send(login)
    await early.until_line(b"PONG")
    strangers = []
    for number in range(4):
        here = (f"127.0.0.{8 + number // 3}", 0)
        strangers.append(
            await asyncio.open_connection(broker.place.host, broker.client_port, local_addr=here)
        )
    clients = [early]
    for place in range(4):
        late = await brokers.raw(broker)
        late.send(login)
        await late.until_line(b"PONG")
        clients.append(late)
        async with asyncio.timeout(30):
            said = await strangers[place][0].read()
        assert said.endswith(b"-ERR 'maximum connections exceeded'\r\n")
    refused = await brokers.raw(broker)
    assert await refused.to_end() == b"-ERR 'maximum connections exceeded'\r\n", "clients keep theirs"
    for client in (*clients, refused):
        await client.close()
    for _, writer in strangers:
        writer.close()
