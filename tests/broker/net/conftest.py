"""Brokers of this process on loopback addresses of their own, and clients for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import nats
import pytest
import uvloop
from nats.aio.client import Client
from tests.support.local_clusters import fresh_address

from supercluster.broker.net.links import mesh
from supercluster.broker.runtime import process as process_module
from supercluster.broker.runtime.process import BrokerProcess
from supercluster.broker.settings import settings as settings_module
from supercluster.broker.settings.place import Place


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition; the test's own time limit ends it."""
    try:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"waited in vain for: {what}") from None


SETTINGS = frozenset(
    ("ports", "gateways", "clusterTls", "gatewayTls", "migrationTls", "clientTls", "tags", "bulk", "storage")
)
"""Parts of a broker's configuration that tests give."""


class Brokers:
    """Starts brokers and clients, and stops all of them at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[BrokerProcess] = []
        self.clients: list[Client] = []

    async def start(self, count: int = 1, linked: bool = True, **options: Any) -> list[BrokerProcess]:
        """Start brokers east-0 … of one cluster and wait until they are linked."""
        hosts = {f"east-{index}": fresh_address() for index in range(count)}
        processes = [await self.start_one(name, hosts, **options) for name in hosts]
        if linked:
            await until(lambda: all(self.links(process) == count - 1 for process in processes), "links")
        return processes

    async def start_clusters(self, sizes: dict[str, int], **options: Any) -> dict[str, list[BrokerProcess]]:
        """Start clusters that know of each other, and wait until every pair of brokers is linked."""
        hosts = {
            cluster: {f"{cluster}-{index}": fresh_address() for index in range(size)}
            for cluster, size in sizes.items()
        }
        seeds = {cluster: [f"{host}:7222" for host in found.values()] for cluster, found in hosts.items()}
        options = {"gateways": seeds, **options}
        clusters = {
            cluster: [await self.start_one(name, found, cluster=cluster, **options) for name in found]
            for cluster, found in hosts.items()
        }
        await self.all_linked()
        return clusters

    async def all_linked(self) -> None:
        """Wait until every pair of running brokers is linked."""
        others = len(self.running) - 1
        await until(lambda: all(self.links(broker) == others for broker in self.running), "all links")

    async def start_one(self, name: str, hosts: dict[str, str], **options: Any) -> BrokerProcess:
        """Start one broker of a cluster at known addresses."""
        document: dict[str, Any] = {
            "superCluster": "demo",
            "identity": options.get("identity", "id-1"),
            "cluster": options.get("cluster", "east"),
            "peers": {node: f"{host}:6222" for node, host in hosts.items()},
            "metaVoters": list(hosts),
            "limits": options.get("limits", {}),
            "linkFaults": True,
        }
        document |= {key: options[key] for key in SETTINGS if key in options}
        folder = self.folder / options.get("identity", "id-1") / name
        folder.mkdir(exist_ok=True, parents=True)
        (folder / "broker.json").write_text(json.dumps(document))
        for file, content in options.get("credentials", {}).items():
            (folder / file).write_text(json.dumps(content))
        place = Place(
            name=name,
            host=hosts[name],
            advertise=hosts[name],
            config=folder / "broker.json",
            data_dir=folder,
            credentials_dir=folder,
            tls_dir=options.get("tls_dir", Path()),
        )
        process = BrokerProcess(settings_module.load(place.config), place, options.get("make_core"))
        await process.start()
        self.running.append(process)
        return process

    until = staticmethod(until)
    address = staticmethod(fresh_address)

    @staticmethod
    def links(process: BrokerProcess) -> int:
        """How many brokers it is linked with."""
        return len(process.mesh.links) if process.mesh is not None else 0

    async def client(self, process: BrokerProcess, **options: Any) -> Client:
        """Connect with nats-py."""
        options.setdefault("connect_timeout", 30)
        client = await nats.connect(f"nats://{process.advertised_client_url}", **options)
        self.clients.append(client)
        return client

    async def raw(self, process: BrokerProcess) -> RawClient:
        """Connect with a bare socket."""
        reader, writer = await asyncio.open_connection(process.place.host, process.client_port)
        client = RawClient(reader, writer)
        client.info = json.loads((await client.line())[len(b"INFO ") :])
        return client

    async def stop_one(self, process: BrokerProcess) -> None:
        """Stop a broker at once, without lame duck."""
        self.running.remove(process)
        await process.stop()

    async def stop(self) -> None:
        """Stop whatever runs."""
        for client in self.clients:
            if not client.is_closed:
                await client.close()
        for process in list(self.running):
            await self.stop_one(process)


class RawClient:
    """Says exactly what the test wants said."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.info: dict[str, Any] = {}

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def line(self) -> bytes:
        """The next line, without its end; empty at the end of the stream."""
        async with asyncio.timeout(30):
            return (await self.reader.readline()).rstrip(b"\r\n")

    async def until_line(self, wanted: bytes) -> list[bytes]:
        """All lines up to the one that is wanted."""
        lines: list[bytes] = []
        while True:
            line = await self.line()
            lines.append(line)
            if line == wanted:
                return lines
            if not line and self.reader.at_eof():
                raise AssertionError(f"the connection ended before {wanted!r}: {lines}")

    async def to_end(self) -> bytes:
        """All that comes until the broker closes."""
        async with asyncio.timeout(30):
            return await self.reader.read()

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that brokers really run on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Brokers]:
    monkeypatch.setattr(process_module, "REFRESH_S", 0.1)
    monkeypatch.setattr(mesh, "LOAD_MS", 100)
    started = Brokers(tmp_path)
    try:
        yield started
    finally:
        await started.stop()
