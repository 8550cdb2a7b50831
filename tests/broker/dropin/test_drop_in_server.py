"""The process in nats-server's place: its flags, files and signals, with a real client."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
from nats.errors import Error
from nats.js.errors import BadRequestError

pytestmark = pytest.mark.e2e

CONF = """
listen: 127.0.0.1:-1
http: 127.0.0.1:-1
max_payload: 2MB
jetstream { store_dir: DIR/js }
accounts {
  A { users [{user: a, password: PASS}], jetstream { max_streams: 1 } }
  SYS { users [{user: s, password: t}] }
}
system_account: SYS
"""


class Server:
    """One process, with its log."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, *flags: str) -> dict[str, list[str]]:
        """Start it and wait for its line; what its ports file says."""
        ports = self.directory / "ports"
        ports.mkdir(exist_ok=True)
        self.log.write_text("")
        words = (
            *flags,
            "--ports_file_dir",
            str(ports),
            "-l",
            str(self.log),
            "-P",
            str(self.directory / "pid"),
        )
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "supercluster.broker.runtime.main", *words
        )
        await self.said("Server is ready")
        (file,) = ports.iterdir()
        told: dict[str, list[str]] = json.loads(file.read_text())
        return told

    async def said(self, text: str) -> None:
        """Wait until the log has it."""
        async with asyncio.timeout(30):
            while text not in self.log.read_text():
                assert self._process is not None
                assert self._process.returncode is None or text in self.log.read_text(), self.log.read_text()
                await asyncio.sleep(0.02)

    async def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def ended(self) -> int:
        assert self._process is not None
        async with asyncio.timeout(30):
            return await self._process.wait()

    async def close(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    found = Server(tmp_path)
    try:
        yield found
    finally:
        await found.close()


def write(server: Server, password: str, more: str = "") -> str:
    file = server.directory / "a.conf"
    file.write_text(CONF.replace("DIR", str(server.directory)).replace("PASS", password) + more)
    return str(file)


async def test_a_configuration_is_carried_out_reloaded_and_survives_a_restart(server: Server) -> None:
    told = await server.start("-c", write(server, "b"))
    (url,) = told["nats"]
    assert told["monitoring"][0].startswith("http://127.0.0.1:")
    client = await nats.connect(url, user="a", password="b")
    assert client.max_payload == 2 << 20
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s.>"])
    assert (await js.publish("s.1", b"x")).seq == 1
    with pytest.raises(BadRequestError, match="maximum number of streams"):
        await js.add_stream(name="S2", subjects=["t.>"])
    await client.close()

    write(server, "c")
    await server.send(signal.SIGHUP)
    await server.said("Reloaded server configuration")
    assert await refusal(url, "a", "b") == b"-ERR 'Authorization Violation'\r\n"
    client = await nats.connect(url, user="a", password="c")
    await client.close()
    write(server, "d", "prot: 1\n")
    await server.send(signal.SIGHUP)
    await server.said('unknown field "prot"')
    client = await nats.connect(url, user="a", password="c")
    await client.close()

    await server.send(signal.SIGTERM)
    assert await server.ended() == 0
    assert not list((server.directory / "ports").iterdir())
    assert not (server.directory / "pid").exists()

    told = await server.start("-c", write(server, "c"))
    client = await nats.connect(told["nats"][0], user="a", password="c")
    assert (await client.jetstream().stream_info("S")).state.messages == 1
    await client.close()


async def refusal(url: str, user: str, password: str) -> bytes:
    """What a server says to a client with wrong credentials, before it closes the connection."""
    host, _, port = url.removeprefix("nats://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        await reader.readline()
        writer.write(b"CONNECT " + json.dumps({"user": user, "pass": password}).encode() + b"\r\nPING\r\n")
        async with asyncio.timeout(30):
            return await reader.readline()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_lame_duck_asks_its_clients_to_leave(server: Server) -> None:
    told = await server.start("-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(server.directory / "js"))
    left: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def lame_duck() -> None:
        left.set_result(None)

    client = await nats.connect(told["nats"][0], lame_duck_mode_cb=lame_duck, allow_reconnect=False)
    await server.send(signal.SIGUSR2)
    async with asyncio.timeout(30):
        await left
    await client.close()
    assert await server.ended() == 0


async def test_streams_belong_to_the_server_that_has_their_name(server: Server) -> None:
    flags = ("-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(server.directory / "js"))
    await server.start(*flags, "-n", "one")
    await server.send(signal.SIGINT)
    assert await server.ended() == 0
    with pytest.raises(AssertionError, match="those of server 'one'"):
        await server.start(*flags, "-n", "two")
    assert await server.ended() == 1


async def test_without_js_there_are_no_streams(server: Server) -> None:
    told = await server.start("-a", "127.0.0.1", "-p", "-1", "--auth", "t0ken")
    client = await nats.connect(told["nats"][0], token="t0ken")
    with pytest.raises(Error):
        await client.jetstream().account_info()
    await client.close()
