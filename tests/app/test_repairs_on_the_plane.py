"""Lost replicas on real processes: a cluster of five on the embedded control plane, whose nodes are lost and come back.

The recovery interval is shortened by the SuperCluster's own settings. One plane serves all tests, in their order: every test
gives the nodes back that it took.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from tests.app.test_operator_on_the_plane import Site, cli
from tests.conftest import eventually, kubectl_runner

from supercluster.localplane.node import faults

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

INTERVAL_S = 8
REPAIR_TIMEOUT_S = 90.0
MESSAGES = 500
BROKERS = [f"east-{number}" for number in range(5)]
SUPER_CLUSTER = {
    "apiVersion": "supercluster.dev/v1alpha1",
    "kind": "SuperCluster",
    "metadata": {"name": "demo", "namespace": "default"},
    "spec": {"repair": {"failureRecoveryInterval": f"{INTERVAL_S}s", "checkInterval": "1s"}},
}
EAST = {
    "apiVersion": "supercluster.dev/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": "east", "namespace": "default"},
    "spec": {"superCluster": "demo", "replicas": 5, "storage": {"size": "1Gi"}},
}


class RepairSite(Site):
    """Five brokers on five nodes, and the levers of the nodes."""

    def node_of(self, broker: str) -> str:
        return str(self.get("pod", broker)["spec"]["nodeName"])

    def lever(self, which: str, node: str) -> None:
        asyncio.run(faults.call(self.state, "POST", f"/faults/{which}", {"node": node}))

    def address(self) -> str:
        return next(f"nats://{self.ip(name)}:4222" for name in BROKERS if self.is_ready(name))

    def ip(self, broker: str) -> str:
        return str(self.get("pod", broker)["status"]["podIP"])

    def is_ready(self, broker: str) -> bool:
        conditions = self.get("pod", broker).get("status", {}).get("conditions", ())
        return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)

    def members(self, stream: str) -> set[str]:
        cluster = self.ask(f"STREAM.INFO.{stream}")["cluster"]
        followers = {entry["name"] for entry in cluster.get("replicas") or () if not entry.get("observer")}
        return followers | {cluster["leader"]}

    def replication(self, stream: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get("str", stream).get("status", {}).get("replication") or {}
        return found

    def repairs(self) -> dict[str, str]:
        """Phases of the StreamMoves that repair."""
        listed = json.loads(self.kubectl("get", "smv", "-o", "json").stdout)["items"]
        return {
            body["metadata"]["name"]: str(body.get("status", {}).get("phase"))
            for body in listed
            if "repair" in body["spec"]
        }

    def publish(self, stream: str, count: int = MESSAGES) -> None:
        async def send(client: Client) -> None:
            jetstream = client.jetstream()
            for number in range(count):
                await jetstream.publish(f"{stream}.a", f"{number}".encode())

        self.with_client(send)

    def wait(self, until: Callable[[], bool], what: str) -> None:
        eventually(until, what, REPAIR_TIMEOUT_S)

    def missed(self) -> list[str]:
        """Brokers that the others have missed for some seconds."""
        status = self.get("scl", "demo").get("status", {})
        return list((status.get("repair") or {}).get("lostBrokers") or ())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, kubectl: Path) -> Iterator[RepairSite]:
    state = tmp_path_factory.mktemp("dev")
    started = cli("dev", "up", "--state", str(state), "--nodes", "5")
    try:
        assert started.returncode == 0, started.stderr
        made = RepairSite(state, kubectl_runner(kubectl, state / "kubeconfig", state))
        for body in (SUPER_CLUSTER, EAST):
            made.kubectl("apply", "-f", "-", stdin=body)
        made.kubectl("wait", "--for=condition=Ready", "ncl/east", "--timeout=90s")
        yield made
    finally:
        assert cli("dev", "down", "--state", str(state)).returncode == 0


class Publisher(threading.Thread):
    """Publishes one message after the other with an identity of its own, each until it is acknowledged."""

    def __init__(self, site: RepairSite, stream: str, servers: list[str]) -> None:
        super().__init__()
        self.acknowledged = 0
        self._stream, self._servers, self._password = stream, servers, site.password("app")
        self._is_over = threading.Event()
        self._failure: Exception | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._publish())
        except Exception as error:
            self._failure = error

    async def _publish(self) -> None:
        client = await nats.connect(self._servers, user="app", password=self._password)
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
        await client.close()

    def finish(self) -> int:
        """How many were acknowledged."""
        self._is_over.set()
        self.join(REPAIR_TIMEOUT_S + 10)
        assert not self.is_alive()
        if self._failure is not None:
            raise self._failure
        return self.acknowledged


@pytest.mark.covers("MR-6", "MR-2", "MR-7", "OP-4")
@pytest.mark.parametrize("whom", ["leader", "follower"])
def test_a_node_that_stays_away_is_replaced_and_no_message_is_lost(site: RepairSite, whom: str) -> None:
    name = f"lost-{whom}"
    site.declare(name)
    site.ready(name)
    before = site.members(name)
    leader = site.ask(f"STREAM.INFO.{name}")["cluster"]["leader"]
    gone = leader if whom == "leader" else max(before - {leader})
    node, known = site.node_of(gone), set(site.repairs())
    servers = [f"nats://{site.ip(each)}:4222" for each in BROKERS if each != gone]
    publisher = Publisher(site, name, servers)
    publisher.start()

    def phases() -> list[str]:
        mine = {key: phase for key, phase in site.repairs().items() if key not in known}
        return [phase for key, phase in mine.items() if key.startswith(name)]

    site.lever("lose-node", node)
    try:
        site.wait(lambda: site.missed() == [gone], f"{gone} to be missed")
        os.kill(site.operator(), signal.SIGKILL)
        assert cli("dev", "up", "--state", str(site.state)).returncode == 0
        site.wait(lambda: phases() == ["Succeeded"], f"a repair, of {site.repairs()}")
        members = site.members(name)
        assert (len(members), before - members) == (3, {gone})
        site.wait(lambda: site.replication(name).get("usable") == 3, "the status to say so")
        sent = publisher.finish()
        assert sent > MESSAGES, "it went on all the time"
        assert site.ask(f"STREAM.INFO.{name}")["config"]["num_replicas"] == 3
        assert site.ask(f"STREAM.INFO.{name}")["state"]["messages"] == sent
        assert site.with_client(lambda client: read_numbers(client, name, sent)) == list(range(sent))
        assert phases() == ["Succeeded"], "future checks discover that no action is necessary"
    finally:
        publisher.finish()
        site.lever("return-node", node)
    site.wait(lambda: site.missed() == [], f"{gone} to be back")
    assert site.members(name) == members, "who comes back too late is not taken in again"


def capacities(site: RepairSite) -> dict[str, str]:
    """What the brokers' volumes have."""
    listed = json.loads(site.kubectl("get", "pvc", "-o", "json").stdout)["items"]
    return {
        body["metadata"]["name"].removeprefix("data-"): str(body["status"]["capacity"]["storage"])
        for body in listed
    }


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


@pytest.mark.covers("MR-6", "MR-3")
def test_a_replica_that_a_person_adds_at_the_same_time_stays_as_the_one_of_the_repair_does(
    site: RepairSite,
) -> None:
    site.declare("both")
    site.ready("both")
    site.publish("both")
    before = site.members("both")
    gone = max(before)
    node = site.node_of(gone)
    added = min(set(BROKERS) - before)
    kubeconfig = ("--kubeconfig", str(site.state / "kubeconfig"), "-n", "default")
    asked = cli("replica", "add", "both", added, *kubeconfig)
    assert asked.returncode == 0, asked.stderr
    site.lever("lose-node", node)
    try:
        site.wait(
            lambda: len(site.members("both") - {gone}) == 4, f"four replicas, of {site.members('both')}"
        )
        site.wait(lambda: gone not in site.members("both"), f"{gone} to be replaced, of {site.repairs()}")
        assert site.members("both") == set(BROKERS) - {gone}
        site.wait(lambda: site.replication("both").get("usable") == 4, "the status to say so")
        info = site.ask("STREAM.INFO.both")
        assert (info["state"]["messages"], info["config"]["num_replicas"]) == (MESSAGES, 3)
        assert site.replication("both")["extra"] == 1
    finally:
        site.lever("return-node", node)
    site.wait(lambda: site.missed() == [], f"{gone} to be back")
    assert site.members("both") == set(BROKERS) - {gone}, "both stay, and nothing more is done"


@pytest.mark.covers("MR-6")
def test_a_node_that_is_back_in_time_keeps_its_replicas(site: RepairSite) -> None:
    long = {"repair": {"failureRecoveryInterval": "300s"}}
    site.kubectl("patch", "scl", "demo", "--type=merge", "-p", json.dumps({"spec": long}))
    site.declare("back")
    site.ready("back")
    before, repairs = site.members("back"), site.repairs()
    node = site.node_of(max(before))
    site.lever("lose-node", node)
    try:
        site.wait(lambda: bool(site.missed()), "it to be missed")
        site.wait(lambda: "since" in site.replication("back"), "the Stream to say so")
    finally:
        site.lever("return-node", node)
    site.wait(lambda: site.missed() == [], "it to be back")
    short = {"repair": {"failureRecoveryInterval": f"{INTERVAL_S}s"}}
    site.kubectl("patch", "scl", "demo", "--type=merge", "-p", json.dumps({"spec": short}))
    site.wait(lambda: site.replication("back").get("usable") == 3, "all replicas to be there")
    assert (site.members("back"), site.repairs()) == (before, repairs)


@pytest.mark.covers("MR-2", "MR-7")
def test_without_a_spare_broker_the_stream_says_so_and_nothing_is_tried(site: RepairSite) -> None:
    site.declare("wide", replicas=5, deletionPolicy="Delete")
    site.ready("wide")
    repairs = site.repairs()
    node = site.node_of("east-4")
    site.lever("lose-node", node)
    try:

        def told() -> str:
            return str(site.condition("str", "wide", "Ready").get("message"))

        site.wait(
            lambda: "no broker can take a replica in the place of east-4" in told(),
            f"it to be said: {told()}",
        )
        assert site.condition("str", "wide", "Ready")["reason"] == "LostReplicas"
        wide = [name for name in site.repairs().keys() - repairs.keys() if name.startswith("wide")]
        assert wide == []
        assert len(site.members("wide")) == 5
    finally:
        site.lever("return-node", node)
    site.wait(lambda: site.missed() == [], "it to be back")
    site.ready("wide")


@pytest.mark.covers("OP-3", "OP-4", "MR-2", "SF-5")
def test_a_broker_fewer_and_one_more_again_and_nothing_is_lost(site: RepairSite) -> None:
    def scale(replicas: int) -> None:
        patch = json.dumps({"spec": {"replicas": replicas}})
        site.kubectl("patch", "ncl", "east", "--type=merge", "-p", patch)

    def running() -> int:
        return int(site.get("statefulset", "east")["spec"]["replicas"])

    def all_members() -> dict[str, set[str]]:
        listed = json.loads(site.kubectl("get", "str", "-o", "json").stdout)["items"]
        return {body["metadata"]["name"]: site.members(body["metadata"]["name"]) for body in listed}

    site.declare("full", replicas=5, deletionPolicy="Delete")
    site.declare("four", replicas=4)
    site.ready("full")
    site.ready("four")
    site.publish("four")
    scale(4)
    site.wait(lambda: site.condition("ncl", "east", "Deferred").get("status") == "True", "the refusal")
    assert "stream full: 5 replicas" in site.condition("ncl", "east", "Deferred")["message"]
    scale(5)
    site.kubectl("delete", "str", "full", "wide", "--ignore-not-found")
    site.declare("shrinks", placement={"preferredLeader": "east-4"})
    site.ready("shrinks")
    scale(4)
    uids = {name: site.get("pod", name)["metadata"]["uid"] for name in BROKERS[:4]}
    publisher = Publisher(site, "shrinks", [f"nats://{site.ip(name)}:4222" for name in BROKERS[:4]])
    publisher.start()
    try:
        site.wait(lambda: bool(site.get("ncl", "east")["status"].get("drain")), "it to be begun")
        os.kill(site.operator(), signal.SIGKILL)
        assert cli("dev", "up", "--state", str(site.state)).returncode == 0
        site.wait(lambda: running() == 4, f"east-4 to go: {site.condition('ncl', 'east', 'Synced')}")
        site.wait(lambda: site.condition("ncl", "east", "Synced").get("status") == "True", "it to be over")
        members = all_members()
        assert all("east-4" not in held for held in members.values()), members
        assert all(len(members[name]) == count for name, count in (("shrinks", 3), ("four", 4)))
    finally:
        sent = publisher.finish()
    assert site.with_client(lambda client: read_numbers(client, "shrinks", sent)) == list(range(sent))
    assert site.ask("STREAM.INFO.four")["state"]["messages"] == MESSAGES
    assert {name: site.get("pod", name)["metadata"]["uid"] for name in BROKERS[:4]} == uids, "none restarted"
    assert site.get("pvc", "data-east-4")["status"]["phase"] == "Bound"

    scale(5)  # On the volume that was kept, with the copies that it had.
    site.wait(lambda: site.exists("pod", "east-4") and site.is_ready("east-4"), "east-4 to be back")
    site.wait(lambda: not site.get("ncl", "east")["status"].get("drain"), "it to be told to stay")
    patch = json.dumps({"spec": {"storage": {"size": "2Gi"}}})
    site.kubectl("patch", "ncl", "east", "--type=merge", "-p", patch)
    site.wait(lambda: capacities(site) == dict.fromkeys(BROKERS, "2Gi"), "larger volumes")
    assert {name: site.get("pod", name)["metadata"]["uid"] for name in BROKERS[:4]} == uids, "none restarted"
    site.declare("again", replicas=5)
    site.ready("again")
    site.publish("again")
    assert site.members("again") == set(BROKERS)
    assert all("east-4" not in held for name, held in all_members().items() if name != "again")
    assert site.with_client(lambda client: read_numbers(client, "shrinks", sent)) == list(range(sent))
