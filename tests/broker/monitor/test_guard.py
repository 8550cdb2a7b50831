"""Whoever holds connections of the monitoring port, slowly or silently, keeps neither probes nor others from it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from tests.broker.net.conftest import brokers, pytest_asyncio_loop_factories, until

from supercluster.broker.monitor import guard, monitor

__all__ = ["brokers", "pytest_asyncio_loop_factories"]

ATTACKER = ("127.0.0.9", 0)


async def connect(broker: Any, said: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    found = await asyncio.open_connection(broker.place.host, broker.monitor_port, local_addr=ATTACKER)
    found[1].write(said)
    return found


async def statuses(broker: Any) -> list[int]:
    """Of the probes."""
    found = []
    async with aiohttp.ClientSession() as session:
        for probe in ("live", "startup", "ready"):
            url = f"http://{broker.place.host}:{broker.monitor_port}/healthz?probe={probe}"
            async with session.get(url) as answer:
                found.append(answer.status)
    return found


def is_over(reader: asyncio.StreamReader) -> bool:
    """Has the broker ended the connection?"""
    return reader.at_eof() or reader.exception() is not None


async def test_an_attacker_that_holds_all_it_can_does_not_keep_probes_out(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "CONNECTIONS_MAX", 40)
    monkeypatch.setattr(guard, "PER_ADDRESS_MAX", 30)
    (broker,) = await brokers.start()
    guards = broker.monitor.port.guards
    held = [await connect(broker, b"GET /varz HTTP/1.1\r\nHost: x\r\nX-Slow: ") for _ in range(100)]
    await until(lambda: sum(is_over(reader) for reader, _ in held) == 70, "the oldest to go")
    assert len(guards) == 30
    assert await statuses(broker) == [200, 200, 200]
    for _, writer in held:
        writer.close()


@pytest.mark.parametrize(
    "said", [b"", b"GET /varz HTTP/1.1\r\nHost: x\r\nX-Slow: "], ids=["silent", "half a head"]
)
async def test_a_head_that_does_not_come_ends_the_connection(
    brokers: Any, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(guard, "HEAD_S", 0.2)
    (broker,) = await brokers.start()
    reader, writer = await connect(broker, said)
    async with asyncio.timeout(30):
        assert await reader.read() == b""
    writer.close()


async def test_the_next_head_has_its_limit_too_and_idle_connections_may_stay(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "SEND_S", 0.01)
    (broker,) = await brokers.start()
    guards = broker.monitor.port.guards
    whole = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    reader, writer = await connect(broker, whole)
    for _ in range(3):
        async with asyncio.timeout(30):
            await reader.readuntil(b"\r\n\r\n")
            await reader.readuntil(b"}\n")
        writer.write(whole)
    async with asyncio.timeout(30):
        await reader.readuntil(b"}\n")
    assert len(guards) == 1
    monkeypatch.setattr(guard, "HEAD_S", 0.2)
    writer.write(b"GET /healthz HTT")
    async with asyncio.timeout(30):
        assert await reader.read() == b""
    await until(lambda: not len(guards), "the connection to end")
    writer.close()


async def test_a_body_that_does_not_come_is_refused(brokers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_S", 0.2)
    (broker,) = await brokers.start()
    head = b"POST /admin/rebalance HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
    reader, writer = await connect(broker, head)
    async with asyncio.timeout(30):
        assert b"408 Request Timeout" in (await reader.readline())
        await reader.read()
    writer.close()


async def test_answers_that_nobody_takes_end_their_connections_and_no_more_are_made(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (broker,) = await brokers.start()
    monkeypatch.setattr(monitor, "UNSENT_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(guard, "SEND_S", 0.5)

    async def large(query: dict[str, str], body: Any) -> tuple[int, Any]:
        return 200, "x" * (16 << 20)

    broker.monitor.register_admin("GET", "large", large)
    guards = broker.monitor.port.guards
    _, writer = await connect(broker, b"GET /admin/large HTTP/1.1\r\nHost: x\r\n\r\n")
    await until(lambda: guards.unsent_bytes() > 1 << 20, "the answer to wait")
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://{broker.place.host}:{broker.monitor_port}/varz") as answer:
            assert answer.status == 503
    assert await statuses(broker) == [200, 200, 200]
    await until(lambda: not guards.unsent_bytes(), "the connection to end")
    writer.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "application/json"}, 200),
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Host": "localhost:18222"}, 200),
        ({"Host": "east-0"}, 200),
        ({"Host": "east-0.east-brokers.ns.svc:8222"}, 200),
        ({"Host": "[::1]:8222"}, 200),
        ({"Host": "10.1.2.3:8222"}, 200),
        ({"Host": "attacker.example:8222"}, 403),
        ({"Host": "east-0.svc.attacker.example"}, 403),
        ({"Origin": "https://attacker.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "localhost:8222", "Origin": "http://localhost:8222"}, 200),
        ({"Host": "localhost:8222", "Origin": "http://localhost:3000"}, 403),
    ],
)
async def test_without_users_pages_of_other_sites_ask_for_nothing(
    brokers: Any, headers: dict[str, str], status: int
) -> None:
    (broker,) = await brokers.start()
    asked = []

    async def recover(query: dict[str, str], body: Any) -> tuple[int, Any]:
        asked.append(body)
        return 200, {}

    broker.monitor.register_admin("POST", "recover", recover)
    url = f"http://{broker.place.host}:{broker.monitor_port}/admin/recover"
    headers = {"Content-Type": "application/json", **headers}
    async with aiohttp.ClientSession() as session:
        async with session.post(url, data=b"{}", headers=headers) as answer:
            assert answer.status == status, await answer.text()
    assert len(asked) == (status == 200)


async def test_with_users_a_page_of_another_site_uses_nobody_s_login(brokers: Any) -> None:
    users = {"users": [{"user": "op", "password": "x", "role": "operator"}]}
    (broker,) = await brokers.start(credentials={"users.json": users})
    url = f"http://op:x@{broker.place.host}:{broker.monitor_port}/admin/rebalance"
    body = json.dumps({"clients": 1})
    async with aiohttp.ClientSession() as session:
        async with session.post(url, data=body, headers={"Origin": "https://attacker.example"}) as answer:
            assert answer.status == 403
        async with session.get(url, headers={"Host": "broker.company.example"}) as answer:
            assert answer.status == 200, "names of an ingress are right where there are users"
