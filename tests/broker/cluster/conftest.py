"""Real broker processes on loopback addresses of their own, killed and brought back at will, and nats-py as client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop
from tests.support.local_clusters import Fleet


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Clients on the loop that brokers use too."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    started = Fleet(tmp_path)
    try:
        yield started
    finally:
        await started.stop()
