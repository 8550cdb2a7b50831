"""What tests of lost replicas share: a cluster of five on the embedded control plane, the levers of its nodes, what the brokers and
the operator say, and publishers that go on while nodes are lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from tests.app.test_operator_on_the_plane import Site, cli
from tests.conftest import Kubectl, eventually, kubectl_runner

from supercluster.localplane.node import faults

INTERVAL_S = 8
CHECK_S = 1
REPAIR_TIMEOUT_S = 180.0
MESSAGES = 500
# Well below the bandwidth of moves that are watched, on any machine: a copy that is paced below what comes in never catches up.
PUBLISH_PAUSE_S = 0.05
BROKERS = [f"east-{number}" for number in range(5)]
# East's brokers are on five of them; others are for clusters that a test adds.
NODES = 9
ROUNDS = 'supercluster_operator_rounds_total{{kind="{kind}"}} '
# Looks of the operator that show that nothing is done any more: one may have been under way already.
QUIET_ROUNDS = 2
SUPER_CLUSTER = {
    "apiVersion": "supercluster.dev/v1alpha1",
    "kind": "SuperCluster",
    "metadata": {"name": "demo", "namespace": "default"},
    "spec": {
        "repair": {"failureRecoveryInterval": f"{INTERVAL_S}s", "checkInterval": f"{CHECK_S}s"},
        "moves": {"concurrentMax": 4, "concurrentPerNodeMax": 4},
    },
}
EAST: dict[str, Any] = {
    "apiVersion": "supercluster.dev/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": "east", "namespace": "default"},
    "spec": {"superCluster": "demo", "replicas": 5, "storage": {"size": "1Gi"}},
}


class RepairSite(Site):
    """Five brokers on five nodes, and the levers of the nodes."""

    names: Sequence[str] = BROKERS

    def pod(self, broker: str) -> dict[str, Any]:
        """Empty for a moment while it is replaced."""
        found = self.kubectl("get", "pod", broker, "--ignore-not-found", "-o", "json").stdout
        return dict(json.loads(found)) if found.strip() else {}

    def node_of(self, broker: str) -> str:
        return str(self.get("pod", broker)["spec"]["nodeName"])

    def zone_of(self, broker: str) -> str:
        labels = self.get("node", self.node_of(broker))["metadata"]["labels"]
        return str(labels["topology.kubernetes.io/zone"])

    def lever(self, which: str, node: str) -> None:
        asyncio.run(faults.call(self.state, "POST", f"/faults/{which}", {"node": node}))

    def lose(self, broker: str) -> str:
        """The node of a broker fails; its name."""
        node = self.node_of(broker)
        self.lever("lose-node", node)
        return node

    def give_back(self, nodes: dict[str, str]) -> None:
        """Nodes of brokers are back, as after a reboot, and the brokers have met again."""
        for node in nodes.values():
            self.lever("return-node", node)
        self.wait(lambda: not nodes.keys() & set(self.missed()), f"{', '.join(nodes)} to be back")

    @contextmanager
    def lost(self, broker: str) -> Iterator[str]:
        """The node of a broker is lost, and comes back in the end."""
        node = self.lose(broker)
        try:
            yield node
        finally:
            self.lever("return-node", node)
        self.give_back({broker: node})

    def address(self) -> str:
        return f"nats://{self._some()}:4222"

    def _some(self) -> str:
        return next(self.ip(name) for name in self.names if self.is_ready(name))

    def ip(self, broker: str) -> str:
        return str(self.get("pod", broker)["status"]["podIP"])

    def is_ready(self, broker: str) -> bool:
        conditions = self.pod(broker).get("status", {}).get("conditions", ())
        return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)

    def members(self, stream: str) -> set[str]:
        cluster = self.ask(f"STREAM.INFO.{stream}")["cluster"]
        followers = {entry["name"] for entry in cluster.get("replicas") or () if not entry.get("observer")}
        return followers | {cluster["leader"]}

    def leader(self, stream: str) -> str:
        return str(self.ask(f"STREAM.INFO.{stream}")["cluster"]["leader"])

    def is_current(self, stream: str) -> bool:
        """Do all replicas have all that is committed?"""
        cluster = self.ask(f"STREAM.INFO.{stream}")["cluster"]
        return all(entry["current"] for entry in cluster.get("replicas") or ())

    def replication(self, stream: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get("str", stream).get("status", {}).get("replication") or {}
        return found

    def moves(self, stream: str) -> dict[str, dict[str, Any]]:
        """StreamMoves of a stream, by name."""
        listed = json.loads(self.kubectl("get", "smv", "-o", "json").stdout)["items"]
        return {
            body["metadata"]["name"]: body
            for body in listed
            if stream in (body["spec"].get("streamRef"), body["spec"].get("stream"))
        }

    def phases(self, stream: str) -> list[str]:
        """Of all its StreamMoves."""
        return [str(body.get("status", {}).get("phase")) for body in self.moves(stream).values()]

    def wait_for_move(self, stream: str, phase: str) -> None:
        """Until the only StreamMove of a stream is there."""
        self.wait(lambda: self.phases(stream) == [phase], f"{stream} to be {phase}, of {self.moves(stream)}")

    def repairs(self, stream: str) -> list[str]:
        """Phases of the StreamMoves that repair a stream, the oldest first."""
        mine = [body for body in self.moves(stream).values() if "repair" in body["spec"]]
        mine.sort(key=lambda body: (body["metadata"]["creationTimestamp"], body["metadata"]["name"]))
        return [str(body.get("status", {}).get("phase")) for body in mine]

    def publish(self, stream: str, count: int = MESSAGES, size_bytes: int = 0) -> None:
        async def send(client: Client) -> None:
            jetstream = client.jetstream()
            for number in range(count):
                await jetstream.publish(f"{stream}.a", f"{number}".encode().ljust(size_bytes))

        self.with_client(send)

    def wait(self, until: Callable[[], Any], what: str) -> None:
        eventually(until, what, REPAIR_TIMEOUT_S)

    def missed(self) -> list[str]:
        """Brokers that the others have missed for some seconds."""
        status = self.get("scl", "demo").get("status", {})
        return list((status.get("repair") or {}).get("lostBrokers") or ())

    def policy(self, stream: str, **spec: Any) -> None:
        """Rules of its own for one stream."""
        rules = {"failureRecoveryInterval": f"{INTERVAL_S}s", "checkInterval": f"{CHECK_S}s", **spec}
        self.kubectl(
            "apply",
            "-f",
            "-",
            stdin={
                "apiVersion": "supercluster.dev/v1alpha1",
                "kind": "ReplicaPolicy",
                "metadata": {"name": stream, "namespace": "default"},
                "spec": {"superCluster": "demo", "selector": {"namePattern": stream}, **rules},
            },
        )

    def kill_the_operator(self) -> None:
        os.kill(self.operator(), signal.SIGKILL)

    def start_the_operator(self) -> None:
        """Another one in place of the one that was killed."""
        again = cli("dev", "up", "--state", str(self.state))
        assert again.returncode == 0, again.stderr

    def admin(self, path: str, method: str = "GET", body: Any = None) -> tuple[int, dict[str, Any]]:
        """One of the operator's calls that JetStream does not have: status and answer."""
        login = b64encode(f"operator:{self.password('operator')}".encode()).decode()
        raw = json.dumps(body).encode() if body is not None else None
        headers = {"Authorization": f"Basic {login}"}
        url = f"http://{self._some()}:8222/admin/{path}"
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, raw, headers, method=method), timeout=10
            ) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def brokers(self) -> dict[str, Any]:
        """What the brokers' map has of all of them."""
        status, found = self.admin("brokers")
        assert status == 200, found
        return found

    def away_since_ns(self, broker: str) -> int | None:
        """Since when the brokers have missed one of them, by their own map."""
        found: int | None = next(
            entry["awaySinceNs"] for entry in self.brokers()["brokers"] if entry["node"] == broker
        )
        return found

    def rounds(self, kind: str = "SuperCluster") -> int:
        """How often the operator has looked at resources of a kind."""
        port, head = 0, ROUNDS.format(kind=kind)
        for line in (self.state / "logs" / "operator.log").read_text().splitlines():
            said = json.loads(line) if line.startswith("{") else {}
            port = said["port"] if said.get("message") == "listening" else port
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return next(
            (int(float(line.removeprefix(head))) for line in text.splitlines() if line.startswith(head)), 0
        )

    def watch_some_rounds(self, kind: str = "SuperCluster") -> None:
        """The operator looks some times more."""
        before = self.rounds(kind)
        self.wait(lambda: self.rounds(kind) >= before + QUIET_ROUNDS, "the operator to look")

    def watch_beyond(self, ns: int) -> None:
        """Until the brokers' clock has passed a moment, and the operator has looked some times since."""
        self.wait(lambda: self.brokers()["timeNs"] > ns, "the moment to pass")
        self.watch_some_rounds()


@contextmanager
def site_of_five(state: Path, kubectl: Path) -> Iterator[RepairSite]:
    started = cli("dev", "up", "--state", str(state), "--nodes", str(NODES))
    try:
        assert started.returncode == 0, started.stderr
        runner: Kubectl = kubectl_runner(kubectl, state / "kubeconfig", state)
        made = RepairSite(state, runner)
        for body in (SUPER_CLUSTER, EAST):
            made.kubectl("apply", "-f", "-", stdin=body)
        made.kubectl("wait", "--for=condition=Ready", "ncl/east", "--timeout=180s")
        yield made
    finally:
        assert cli("dev", "down", "--state", str(state)).returncode == 0


async def _ignore(_: Exception) -> None:
    """Connections break when brokers go; that is what tests here are about."""


class Publisher(threading.Thread):
    """Publishes one message after the other with an identity of its own, each until it is acknowledged, and rests between them
    where something else is to keep up."""

    def __init__(self, site: Site, stream: str, servers: list[str], pause_s: float = 0.0) -> None:
        super().__init__()
        self.acknowledged = 0
        self._pause_s = pause_s
        self._stream, self._servers, self._password = stream, servers, site.password("app")
        self._is_over = threading.Event()
        self._failure: Exception | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._publish())
        except Exception as error:
            self._failure = error

    async def _publish(self) -> None:
        client = await nats.connect(
            self._servers,
            user="app",
            password=self._password,
            error_cb=_ignore,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.1,
        )
        jetstream = client.jetstream()
        while not self._is_over.is_set():
            number, deadline = self.acknowledged, asyncio.get_running_loop().time() + REPAIR_TIMEOUT_S
            while True:
                try:
                    headers = {"Nats-Msg-Id": f"m{number}"}
                    await jetstream.publish(
                        f"{self._stream}.a", f"{number}".encode(), timeout=2, headers=headers
                    )
                    break
                except (NatsError, TimeoutError, OSError):
                    assert asyncio.get_running_loop().time() < deadline, f"message {number} is not taken"
            self.acknowledged += 1
            if self._pause_s:
                await asyncio.sleep(self._pause_s)
        await client.close()

    def finish(self) -> int:
        """How many were acknowledged."""
        self._is_over.set()
        self.join(REPAIR_TIMEOUT_S + 10)
        assert not self.is_alive()
        if self._failure is not None:
            raise self._failure
        return self.acknowledged


class Listener(threading.Thread):
    """A client that a broker tells what it has to say until the connection ends."""

    def __init__(self, site: Site, host: str) -> None:
        super().__init__(daemon=True)
        self.told: list[dict[str, Any]] = []
        """What INFO said, the greeting first."""
        # Protocol 1: INFO may come at any time.
        login = {
            "user": "app",
            "pass": site.password("app"),
            "verbose": False,
            "pedantic": False,
            "protocol": 1,
        }
        self._socket = socket.create_connection((host, 4222), timeout=REPAIR_TIMEOUT_S)
        self._socket.sendall(f"CONNECT {json.dumps(login)}\r\nPING\r\n".encode())
        self.start()

    def run(self) -> None:
        with self._socket, self._socket.makefile("rb") as lines:
            for line in lines:
                if line.startswith(b"INFO "):
                    self.told.append(json.loads(line[5:]))
                elif line.startswith(b"PING"):
                    self._socket.sendall(b"PONG\r\n")

    def wait(self) -> list[dict[str, Any]]:
        self.join(REPAIR_TIMEOUT_S)
        assert not self.is_alive(), "the broker keeps the connection"
        return self.told


@contextmanager
def publishing(
    site: RepairSite, stream: str, without: set[str], *, before: int = 0, pause_s: float = 0.0
) -> Iterator[Publisher]:
    """Publishes at brokers that stay, all the time; in the end all that was acknowledged is there, in its order and once, behind
    what was published `before`."""
    servers = [f"nats://{site.ip(name)}:4222" for name in site.names if name not in without]
    publisher = Publisher(site, stream, servers, pause_s)
    publisher.start()
    try:
        yield publisher
    finally:
        sent = publisher.finish()
    assert site.ask(f"STREAM.INFO.{stream}")["state"]["messages"] == before + sent
    found = site.with_client(lambda client: read_numbers(client, stream, before + sent))
    assert found == [*range(before), *range(sent)]


async def read_numbers(client: Client, stream: str, count: int) -> list[int]:
    """All that is in the stream, in its order."""
    subscription = await client.jetstream().pull_subscribe(f"{stream}.>", stream=stream)
    found: list[int] = []
    while len(found) < count:
        for message in await subscription.fetch(min(500, count - len(found)), timeout=10):
            found.append(int(message.data))
            await message.ack()
    await subscription.unsubscribe()
    return found
