"""Servers in nats-server's place, and nats-servers, as processes with configuration files."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nats
import pytest
from benchmarks.servers import nats_server_binary
from nats.aio.client import Client
from tests.support.broker_forks import BROKER, AsyncBrokerFork
from tests.support.local_clusters import fetch, until
from tests.support.tiers import ALL, case

OURS = (sys.executable, "-m", BROKER)

both = pytest.mark.parametrize(
    "command",
    [case(OURS, id="ours", is_short=True), case((nats_server_binary(),), id="nats-server", is_short=False)],
)
"""What holds for both servers. `make test-all` shows that it is what nats-server does."""


IMPATIENT: dict[str, int] = (
    {}
    if ALL
    else {
        "supercluster.broker.jetstream.node.map_reader.MAP_WAIT_MS": 1000,
        "supercluster.broker.jetstream.node.pending_requests.REQUEST_WAIT_MS": 1000,
    }
)
"""In `make test` a server waits less for the stream map before it takes clients, and before it refuses what needs the map."""


class Server:
    """One process, of ours or of nats-server's."""

    def __init__(self, folder: Path, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.conf = folder / f"{name}.conf"
        self.log = folder / f"{name}.log"
        self.constants: dict[str, int] = {}
        """As of `BrokerFork`."""
        self.process: asyncio.subprocess.Process | AsyncBrokerFork | None = None
        self.is_ours = True

    def write(self, text: str, **words: str) -> None:
        """The configuration, with words in capitals replaced: NAME and HOST are the server's own."""
        for word, value in {**words, "NAME": self.name, "HOST": self.host}.items():
            text = text.replace(word, value)
        self.conf.write_text(text)

    async def start(self, *command: str) -> None:
        self.is_ours = command in ((), OURS)
        command = (*(command or OURS), "-c", str(self.conf))
        if command[: len(OURS)] == OURS:
            self.process = AsyncBrokerFork(command[len(OURS) :], self.log, self.constants)
            return
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)

    async def ready(self) -> None:
        async def is_ready() -> bool:
            assert self.process is not None
            ended = self.process.returncode
            text = self.log.read_text()
            assert ended is None, text
            return "Server is ready" in text

        await until(is_ready, f"{self.name} to be ready")

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def client(self) -> Client:
        url = f"nats://{self.host}:4222"
        return await nats.connect(url, user="a", password="b", allow_reconnect=False, connect_timeout=30)


async def again(act: Callable[[], Awaitable[Any]], what: str) -> Any:
    """Until it succeeds."""

    async def succeeded() -> Any:
        try:
            return await act()
        except (nats.js.errors.APIError, nats.errors.Error):
            return None

    return await until(succeeded, what)


async def linked(server: Server, count: int) -> None:
    async def is_linked() -> bool:
        _, found = await asyncio.to_thread(fetch, f"http://{server.host}:8222/varz")
        return bool(found) and found["remotes"] == count

    await until(is_linked, f"{server.name} to be linked with {count}")
