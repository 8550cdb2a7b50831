"""Several clusters of real broker processes on loopback, for tests and benchmarks.

Every broker is a process of `supercluster-broker` (`broker_forks.py`) with an address, a folder and a data directory of its
own; all use the ports of a real deployment (4222, 6222, 7222, 8222). In a test, with a fixture that stops it at the end::

    fleet = Fleet(tmp_path)
    try:
        clusters = await fleet.start_clusters({"east": 3, "west": 3})   # ready, and every pair is linked
        js = await fleet.js(*clusters["east"])                          # nats-py on the brokers of one cluster
        leader = await fleet.leader("ORDERS")
        leader.kill()                                                   # kill -9; leader.start(), await leader.ready()
        await fleet.cut(clusters["east"], clusters["west"])             # a partition; await fleet.heal() ends it
        await leader.get("/gatewayz")                                   # a monitoring endpoint
    finally:
        await fleet.stop()                                              # kills what is left, by its own process id

`start(count)` is the same for one cluster, "east". What `start` and `start_clusters` are given besides goes into every
broker's settings (`limits={...}`); `credentials={"users.json": {...}}` writes credential files, `per_cluster={"west":
{"tags": ["ssd"]}}` and `per_broker={"west-0": {...}}` change the settings of some. Brokers of the first cluster are the
meta group's founders unless `metaVoters` says otherwise. Each test process has a block of addresses, so that runs beside each
other don't meet. The loop is the caller's; the time limits here only end what hangs.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import itertools
import json
import os
import shutil
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext
from tests.support.broker_forks import BrokerFork
from tests.support.tiers import ALL

BLOCKS, BLOCK_ADDRESSES = 250, 250
LINKS = {"accept": [{"user": "link", "password": "link"}], "send": {"user": "link", "password": "link"}}
WAIT_S = 60.0
"""Only ends a test that hangs."""
QUICK: Mapping[str, int] = {} if ALL else {"supercluster.broker.runtime.process_core.BOOTSTRAP_WAIT_MS": 200}
"""Constants of brokers in `make test`: a fleet's brokers start together, so its founders need not wait long for others who may
know of an older stream map."""


@functools.cache
def _own_block() -> tuple[int, socket.socket]:
    """A block of addresses that is this process's as long as it runs, whatever others run beside it: who holds its last address
    has it."""
    for number in range(BLOCKS):
        block = (os.getpid() + number) % BLOCKS
        holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            holder.bind((f"127.79.{block}.254", 20_004))
        except OSError:
            holder.close()
        else:
            return block, holder
    raise AssertionError(f"all {BLOCKS} blocks of test addresses in 127.79.0.0/16 are in use")


_numbers = itertools.count()


def fresh_address() -> str:
    """A loopback address that no other test uses now."""
    return f"127.79.{_own_block()[0]}.{1 + next(_numbers) % BLOCK_ADDRESSES}"


async def until(condition: Callable[[], Awaitable[Any]], what: str, timeout_s: float = WAIT_S) -> Any:
    """Poll what a process brings about; the time limit only ends a test that hangs.

    Raises:
        AssertionError: it is not there in time.
        TimeoutError: the condition's own, which is not this limit.
    """
    try:
        async with asyncio.timeout(timeout_s) as limit:
            while True:
                found = await condition()
                if found:
                    return found
                await asyncio.sleep(0.02)
    except TimeoutError:
        if not limit.expired():
            raise
        raise AssertionError(f"waited in vain for: {what}") from None


def fetch(url: str, body: Any = None, method: str = "PUT", who: str = "") -> tuple[int, Any]:
    """GET of a monitoring endpoint (with a body: PUT, or another method): status and JSON; (0, None) while nobody answers. `who`:
    `user:password`."""
    headers = {"Authorization": f"Basic {base64.b64encode(who.encode()).decode()}"} if who else {}
    request = urllib.request.Request(url, headers=headers)
    if body is not None:
        headers["Content-Type"] = "application/json"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())
    except (OSError, ValueError):
        return 0, None


class Broker:
    """One broker: its address, its data directory, and its process while it runs."""

    def __init__(self, name: str, host: str, folder: Path, cluster: str = "east") -> None:
        self.name = name
        self.cluster = cluster
        self.host = host
        self.folder = folder
        self.data_dir = folder / "data"
        self.log_file = folder / "broker.log"
        self.constants: Mapping[str, int] = {}
        """As of `BrokerFork`."""
        self.advertise = host
        """What clients and other brokers are told in place of its address."""
        self.process: BrokerFork | None = None

    @property
    def url(self) -> str:
        return f"nats://{self.host}:4222"

    def settings(self) -> dict[str, Any]:
        """What its settings file says."""
        found: dict[str, Any] = json.loads((self.folder / "broker.json").read_text())
        return found

    def change(self, **document: Any) -> None:
        """Change its settings: peers and gateways at once, the rest with its next start."""
        (self.folder / "broker.json").write_text(json.dumps({**self.settings(), **document}))

    def start(self) -> None:
        assert self.process is None, f"{self.name} runs already"
        self.process = BrokerFork(
            [
                *("--config", str(self.folder / "broker.json"), "--data-dir", str(self.data_dir)),
                *("--name", self.name, "--host", self.host, "--credentials", str(self.folder)),
                *("--advertise", self.advertise),
            ],
            self.log_file,
            {key: value for key, value in os.environ.items() if not key.startswith("POD_")},
            self.constants,
        )

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(WAIT_S)
        self.process = None

    def end(self) -> str:
        """kill -9. What it died of, if it had died before; else nothing."""
        assert self.process is not None
        code = self.process.poll()
        self.kill()
        return "" if code is None else f"{self.name} had ended with {code}: {self.log()[-2000:]}"

    def terminate(self) -> None:
        """Ask it to leave; `exited` waits for the end."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    async def exited(self) -> int:
        process = self.process
        assert process is not None
        code = await asyncio.to_thread(process.wait, WAIT_S)
        self.process = None
        return code

    async def get(self, path: str) -> Any:
        """A monitoring endpoint's document; None while the broker does not answer."""
        return (await asyncio.to_thread(fetch, f"http://{self.host}:8222{path}"))[1]

    async def put(self, path: str, body: Any) -> Any:
        """PUT to an admin endpoint; it has to succeed."""
        status, document = await asyncio.to_thread(fetch, f"http://{self.host}:8222{path}", body)
        assert status == 200, f"{self.name} answered {path} with {status}: {document}"
        return document

    async def is_ready(self) -> bool:
        assert self.process is not None, f"{self.name} was not started"
        code = self.process.poll()
        assert code is None, f"{self.name} ended with {code}: {self.log()[-2000:]}"
        return (await asyncio.to_thread(fetch, f"http://{self.host}:8222/healthz?probe=ready"))[0] == 200

    async def ready(self) -> None:
        await until(self.is_ready, f"{self.name} to be ready")

    def log(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""

    async def stream(self, name: str) -> dict[str, Any] | None:
        """What /jsz says about a stream's replica here."""
        document = await self.get("/jsz")
        for found in (document or {}).get("streams", ()):
            if found["name"] == name:
                return dict(found)
        return None


class Fleet:
    """The brokers of some clusters, and the clients of a test."""

    def __init__(self, folder: Path, constants: Mapping[str, int] | None = None) -> None:
        """`constants`: as of `BrokerFork`, for all brokers."""
        self.folder = folder
        self.constants = {**QUICK, **(constants or {})}
        self.advertise: dict[str, str] = {}
        """Names that brokers are told of by, in place of their addresses; by broker, set before it is prepared."""
        self.brokers: dict[str, Broker] = {}
        self.clients: list[Client] = []

    async def start(self, count: int, **document: Any) -> list[Broker]:
        """Write settings and start east-0 … of one cluster; returns when all are ready."""
        return (await self.start_clusters({"east": count}, **document))["east"]

    async def start_clusters(
        self,
        sizes: Mapping[str, int],
        *,
        credentials: Mapping[str, Any] | None = None,
        per_cluster: Mapping[str, Mapping[str, Any]] | None = None,
        per_broker: Mapping[str, Mapping[str, Any]] | None = None,
        **document: Any,
    ) -> dict[str, list[Broker]]:
        """Write settings and start the brokers of these clusters; returns when all are ready and linked."""
        hosts = {
            cluster: {f"{cluster}-{index}": fresh_address() for index in range(size)}
            for cluster, size in sizes.items()
        }
        shared: dict[str, Any] = {}
        if len(sizes) > 1:
            seeds = {cluster: [f"{host}:7222" for host in found.values()] for cluster, found in hosts.items()}
            shared = {"gateways": seeds, "metaVoters": _odd(list(next(iter(hosts.values()))))}
        clusters = {
            cluster: self.prepare(
                cluster,
                found,
                credentials=credentials or {},
                per_broker=per_broker or {},
                **{**shared, **document, **(per_cluster or {}).get(cluster, {})},
            )
            for cluster, found in hosts.items()
        }
        for broker in self.brokers.values():
            broker.start()
        await self.ready()
        return clusters

    async def add_cluster(self, cluster: str, size: int, **document: Any) -> list[Broker]:
        """Start one more cluster beside running ones, which must have been given `gateways` (`{}` will do): only the new
        brokers know where the others are."""
        first = next(iter(self.brokers.values()))
        settings = {"gateways": self.seeds(), "metaVoters": first.settings()["metaVoters"], **document}
        hosts = {f"{cluster}-{index}": fresh_address() for index in range(size)}
        added = self.prepare(
            cluster, hosts, credentials=settings.pop("credentials", {}), per_broker={}, **settings
        )
        for broker in added:
            broker.start()
        await self.ready()
        return added

    def prepare(
        self,
        cluster: str,
        hosts: Mapping[str, str],
        *,
        credentials: Mapping[str, Any],
        per_broker: Mapping[str, Mapping[str, Any]],
        **document: Any,
    ) -> list[Broker]:
        """Write the settings of one cluster's brokers without starting them."""
        names = list(hosts)
        for name, host in hosts.items():
            folder = self.folder / name
            folder.mkdir()
            settings = {
                "superCluster": "demo",
                "identity": "id-1",
                "cluster": cluster,
                "peers": {node: f"{address}:6222" for node, address in hosts.items()},
                "metaVoters": _odd(names),
                "linkFaults": True,
                **document,
                **per_broker.get(name, {}),
            }
            (folder / "broker.json").write_text(json.dumps(settings))
            # With any credentials and none for the cluster port, no broker is let in there.
            links = {"cluster.json": LINKS} if credentials else {}
            for file, content in {**links, **credentials}.items():
                (folder / file).write_text(json.dumps(content))
            self.brokers[name] = Broker(name, host, folder, cluster)
            self.brokers[name].constants = self.constants
            self.brokers[name].advertise = self.advertise.get(name, host)
        return [self.brokers[name] for name in names]

    def seeds(self) -> dict[str, list[str]]:
        """Every cluster's gateway addresses."""
        found: dict[str, list[str]] = {}
        for broker in self.brokers.values():
            found.setdefault(broker.cluster, []).append(f"{broker.host}:7222")
        return found

    async def ready(self) -> None:
        """Until every running broker takes clients and is linked with all others."""
        for broker in self.brokers.values():
            if broker.process is not None:
                await broker.ready()
        if len(self.running) > 1:
            await until(self._all_linked, "links between all brokers")

    async def cut(self, some: Sequence[Broker], others: Sequence[Broker]) -> None:
        """Nothing gets through between these and those, as if the network were cut, until `heal`."""
        for here, there in ((some, others), (others, some)):
            for broker in here:
                if broker.process is not None:
                    await broker.put("/admin/faults", {"brokers": [other.name for other in there]})

    async def heal(self) -> None:
        """The network is whole again."""
        for broker in self.running:
            await broker.put("/admin/faults", {})

    @property
    def running(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if broker.process is not None]

    async def _all_linked(self) -> bool:
        documents = [await broker.get("/varz") for broker in self.running]
        return all(found and found["remotes"] == len(self.running) - 1 for found in documents)

    async def client(self, *brokers: Broker, **options: Any) -> Client:
        """A client of these brokers (of the first one, with the others to go to); of all when none is named."""
        chosen = brokers or tuple(self.running)
        options = {
            "connect_timeout": 10,
            "reconnect_time_wait": 0.05,
            "max_reconnect_attempts": -1,
            **options,
        }
        options.setdefault("dont_randomize", True)
        options.setdefault("error_cb", _quiet)
        client = await nats.connect([broker.url for broker in chosen], **options)
        self.clients.append(client)
        return client

    async def js(self, *brokers: Broker, **options: Any) -> JetStreamContext:
        return (await self.client(*brokers, **options)).jetstream(timeout=10)

    async def leader(self, stream: str) -> Broker:
        """The broker that serves as the stream's leader."""

        async def find() -> Broker | None:
            for broker in self.running:
                found = await broker.stream(stream)
                if found is not None and found["is_leader"]:
                    return broker
            return None

        broker: Broker = await until(find, f"a leader of {stream}")
        return broker

    async def followers(self, stream: str) -> list[Broker]:
        leader = await self.leader(stream)
        return [
            broker
            for broker in self.running
            if broker is not leader and await broker.stream(stream) is not None
        ]

    async def level(self, stream: str, replicas: int) -> list[dict[str, Any]]:
        """Wait until that many replicas have the same state; returns what each says."""

        async def same() -> list[dict[str, Any]] | None:
            found = [row for broker in self.running if (row := await broker.stream(stream)) is not None]
            states = {json.dumps(row["state"], sort_keys=True) for row in found}
            indexes = {row["commit_index"] for row in found}
            return found if len(found) == replicas and len(states) == 1 and len(indexes) == 1 else None

        rows: list[dict[str, Any]] = await until(same, f"{replicas} level replicas of {stream}")
        return rows

    def wipe(self, broker: Broker) -> None:
        """The volume is lost."""
        assert broker.process is None
        shutil.rmtree(broker.data_dir)

    async def stop(self) -> None:
        for client in self.clients:
            await _close(client)
        ended = [broker.end() for broker in self.running]
        told = "\n".join(text for text in ended if text)
        assert not told, told


async def _close(client: Client) -> None:
    """nats-py's own `close` may leave a connection that is being made, and the loop would wait for it without end."""
    if client.is_closed:
        return
    connecting = client._reconnection_task
    if connecting is not None and not connecting.done():
        connecting.cancel()
        await asyncio.wait([connecting], timeout=WAIT_S)
    await asyncio.wait_for(client.close(), WAIT_S)


def _odd(names: list[str]) -> list[str]:
    return names if len(names) % 2 else names[:-1]


async def _quiet(error: Exception) -> None:
    """Connections are meant to break here; what a test expects it looks for itself."""
