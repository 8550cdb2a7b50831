"""How a lame duck parts from its clients: a grace period, then FIN after FIN (CL-7, SF-16)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from supercluster.broker.net.clients.farewell import due

pytestmark = pytest.mark.covers("CL-7")


@pytest.mark.parametrize(
    ("clients", "elapsed_ms", "spread_ms", "expected"),
    [
        (0, 0, 1000, 0),
        (10, 0, 1000, 1),
        (10, 99, 1000, 1),
        (10, 100, 1000, 2),
        (10, 900, 1000, 10),
        (10, 5000, 1000, 10),
        (3, 2000, 110_000, 3),
        (3, 1999, 110_000, 2),
        (5000, 100, 1000, 501),
        (7, 0, 0, 7),
        (7, 0, -5, 7),
    ],
)
def test_fins_are_spread_over_the_duration_at_most_a_second_apart(
    clients: int, elapsed_ms: int, spread_ms: int, expected: int
) -> None:
    assert due(clients, elapsed_ms, spread_ms) == expected


async def connected(brokers: Any, broker: Any) -> Any:
    raw = await brokers.raw(broker)
    raw.send(b'CONNECT {"protocol":1}\r\nPING\r\n')
    await raw.until_line(b"PONG")
    return raw


async def test_a_client_is_served_within_the_grace_period_and_one_that_goes_shortens_it(brokers: Any) -> None:
    limits = {"lameDuckGraceMs": 600_000, "lameDuckDurationMs": 600_000}
    (broker,) = await brokers.start(limits=limits)
    raw = await connected(brokers, broker)
    leaving = asyncio.create_task(broker.lame_duck())
    assert b'"ldm":true' in await raw.line()
    with pytest.raises(OSError, match="onnect"):
        await brokers.raw(broker)
    raw.send(b"SUB a 1\r\nPUB a 1\r\nx\r\nPING\r\n")
    assert await raw.line() == b"MSG a 1 1", "it is served as ever"
    await raw.close()
    async with asyncio.timeout(30):
        await leaving


async def test_clients_are_sent_fin_one_by_one(brokers: Any) -> None:
    (broker,) = await brokers.start(limits={"lameDuckGraceMs": 0, "lameDuckDurationMs": 600_000})
    raws = [await connected(brokers, broker) for _ in range(2)]
    leaving = asyncio.create_task(broker.lame_duck())
    first, second = raws
    assert b'"ldm":true' in await first.line()
    assert await first.to_end() == b""
    assert [client.is_leaving for client in broker.server.clients.values()] == [True, False]
    await first.close()
    assert b'"ldm":true' in await second.line()
    assert await second.to_end() == b"", "a second later"
    await second.close()
    async with asyncio.timeout(30):
        await leaving
