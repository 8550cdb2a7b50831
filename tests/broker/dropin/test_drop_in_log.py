"""What tools read in a server's log: where it listens, and why it does not start."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.broker.dropin.running import Server, both
from tests.compat.raw import RawClient
from tests.support.local_clusters import fresh_address

pytestmark = pytest.mark.e2e

CLIENTS = r"Listening for client connections on (\S+):(\d+)"
WEBSOCKET = r"Listening for websocket clients on (ws://\S+):(\d+)"
MONITOR = r"Starting http monitor on (\S+):(\d+)"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    found = Server(tmp_path, "one", fresh_address())
    try:
        yield found
    finally:
        await found.kill()


def port(server: Server, pattern: str, host: str) -> int:
    """What the log says of that."""
    found = re.search(pattern, server.log.read_text())
    assert found is not None, pattern
    assert found[1] == host
    return int(found[2])


@both
@pytest.mark.parametrize(
    ("listen", "hosts"), [("::1", ["::1"]), ("::", ["::1", "127.0.0.1"])], ids=["one-address", "everywhere"]
)
async def test_a_server_listens_on_ipv6_addresses_and_says_where(
    server: Server, command: tuple[str, ...], listen: str, hosts: list[str]
) -> None:
    server.write(
        'listen: "[LISTEN]:-1", http: "[LISTEN]:-1", websocket: {listen: "HOST:-1", no_tls: true}',
        LISTEN=listen,
    )
    await server.start(*command)
    await server.ready()
    assert port(server, WEBSOCKET, f"ws://{server.host}")
    monitor = port(server, MONITOR, f"[{listen}]")
    for host in hosts:
        client = await RawClient.open(host, port(server, CLIENTS, f"[{listen}]"))
        assert client.info["host"] == listen
        await client.close()
        _, writer = await asyncio.open_connection(host, monitor)
        writer.close()


@both
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("listen: HOST:4222, jetstream: {store_dir: FILE}", "storage directory is not a directory"),
        ("listen: HOST:4222, jetstream: {store_dir: FILE/within}", "storage directory"),
        ("listen: HOST:TAKEN", "Error listening on port: HOST:TAKEN"),
        ("listen: HOST:4222, http: HOST:TAKEN", "port"),
        ("listen: HOST:4222\nlimits {", "Parse error"),
    ],
    ids=[
        "store_dir is a file",
        "store_dir cannot be made",
        "port in use",
        "monitoring port in use",
        "grammar",
    ],
)
async def test_a_server_that_cannot_start_says_why(
    server: Server, tmp_path: Path, command: tuple[str, ...], text: str, words: str
) -> None:
    (tmp_path / "file").touch()
    with socket.create_server((server.host, 0)) as taken:
        number = str(taken.getsockname()[1])
        server.write(text, FILE=str(tmp_path / "file"), TAKEN=number)
        await server.start(*command)
        assert server.process is not None
        async with asyncio.timeout(30):
            assert await server.process.wait() == 1
    assert words.replace("HOST", server.host).replace("TAKEN", number) in server.log.read_text()
