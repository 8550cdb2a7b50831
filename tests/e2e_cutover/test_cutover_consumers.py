"""What the consumers of a cutover note of their deliveries, and when."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from e2e.cutover import consumers
from e2e.cutover.consumers import Consumer


class Delivery:
    """Its acknowledgement is confirmed when the test says so."""

    def __init__(self, sequence: int) -> None:
        self.metadata = SimpleNamespace(sequence=SimpleNamespace(stream=sequence))
        self.data = b"%d" % sequence
        self.confirmed = asyncio.Event()

    async def ack_sync(self, timeout: float) -> None:
        await self.confirmed.wait()


async def test_a_second_delivery_that_came_before_the_confirmation_is_not_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It came while acknowledgements were held up, and waits for its turn at none of them."""
    monkeypatch.setattr(consumers, "ACKS_OPEN_MAX", 1)
    nowhere: Any = None
    consumer = Consumer("c", "S", nowhere)
    deliveries: list[Any] = [Delivery(1), Delivery(2), Delivery(1)]
    async with asyncio.timeout(20):
        for each in deliveries:
            await consumer.take(each)
        for each in deliveries:
            each.confirmed.set()
        await consumer._settle()
    assert consumer.found.confirmed == {1, 2}
    assert consumer.found.again == []
    await consumer.take(deliveries[1])
    assert consumer.found.again == [2]
    await consumer._settle()
