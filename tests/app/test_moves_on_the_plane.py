"""Moves from the user's side: two clusters on the embedded control plane, a placement is edited, publishers go on.

One plane serves all tests here; every test has streams of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import nats
import psutil
import pytest
from nats.aio.client import Client
from tests.app.test_operator_on_the_plane import MANIFESTS, Site, cli
from tests.conftest import eventually, kubectl_runner

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

# All moves here go over TLS.
WHOLE = {
    "apiVersion": "supercluster.dev/v1alpha1",
    "kind": "SuperCluster",
    "metadata": {"name": "demo", "namespace": "default"},
    "spec": {"tls": {}},
}
WEST = {
    "apiVersion": "supercluster.dev/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": "west", "namespace": "default"},
    "spec": {"superCluster": "demo", "replicas": 3, "storage": {"size": "2Gi"}, "tags": ["ssd"]},
}
MEMBERS = {name: {f"{name}-{n}" for n in range(3)} for name in ("east", "west")}
PAYLOAD_BYTES = 512
PUBLISH_PAUSE_S = 0.02
PRELOADED = 4_000
# Two megabytes to each of three new replicas take a few seconds at this rate: time to look, and to kill the operator.
DOORS = ("clusterTls", "gatewayTls")
SLOW = {"bandwidth": {"bytesPerS": "2Mi"}}
MOVE_TIMEOUT_S = 180.0


class MoveSite(Site):
    """Two clusters, and what tests ask of moves."""

    def place(self, name: str, cluster: str) -> None:
        patch = json.dumps({"spec": {"placement": {"cluster": cluster}}})
        self.kubectl("patch", "str", name, "--type=merge", "-p", patch)

    def moves(self, stream: str) -> dict[str, dict[str, Any]]:
        """Statuses of the StreamMoves of a stream, by name."""
        listed = json.loads(self.kubectl("get", "smv", "-o", "json").stdout)["items"]
        return {
            body["metadata"]["name"]: body.get("status", {})
            for body in listed
            if stream in (body["spec"].get("streamRef"), body["spec"].get("stream"))
        }

    def phase(self, stream: str) -> str:
        """Of the stream's only move."""
        return next((str(status.get("phase")) for status in self.moves(stream).values()), "none yet")

    def wait_for_phase(self, stream: str, *phases: str) -> dict[str, Any]:
        eventually(
            lambda: self.phase(stream) in phases,
            f"{stream} to be {phases}, of {self.moves(stream)}",
            MOVE_TIMEOUT_S,
        )
        return next(iter(self.moves(stream).values()))

    def wait_for_home(self, stream: str, cluster: str) -> None:
        eventually(
            lambda: self.get("str", stream)["status"].get("cluster") == cluster,
            f"{stream} to live in {cluster}, of {self.moves(stream)}",
            MOVE_TIMEOUT_S,
        )

    def messages(self, name: str, reason: str) -> list[str]:
        """What the events of one reason say of an object."""
        listed = json.loads(self.kubectl("get", "events", "-o", "json").stdout)["items"]
        mine = (event for event in listed if event["involvedObject"]["name"] == name)
        return [str(event["message"]) for event in mine if event["reason"] == reason]

    def pods(self, cluster: str) -> set[str]:
        """The uids of a Cluster's brokers."""
        listed = json.loads(self.kubectl("get", "pods", "-o", "json").stdout)["items"]
        mine = [body["metadata"] for body in listed if body["metadata"]["name"].startswith(f"{cluster}-")]
        return {str(metadata["uid"]) for metadata in mine}

    def admin(self, stream: str, method: str, body: Any = None) -> None:
        """The brokers' own call about moves: of somebody who has the operator's password and makes no StreamMove."""
        host = self.get("pod", "east-0")["status"]["podIP"]
        login = b64encode(f"operator:{self.password('operator')}".encode()).decode()
        url = f"http://{host}:8222/admin/streams/$G/{stream}/move"
        raw = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(url, raw, {"Authorization": f"Basic {login}"}, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status in (200, 202)

    def broker(self, name: str) -> dict[str, Any]:
        """What east's first broker knows of a broker; empty: nothing."""
        host = self.get("pod", "east-0")["status"]["podIP"]
        login = b64encode(f"operator:{self.password('operator')}".encode()).decode()
        url = f"http://{host}:8222/admin/brokers/{name}"
        request = urllib.request.Request(url, headers={"Authorization": f"Basic {login}"})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            error.close()
            return {}

    def monitored(self, broker: str, path: str) -> dict[str, Any]:
        """A page of a broker's monitoring port."""
        url = f"http://{self.get('pod', broker)['status']['podIP']}:8222/{path}"
        login = b64encode(f"operator:{self.password('operator')}".encode()).decode()
        request = urllib.request.Request(url, headers={"Authorization": f"Basic {login}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def links(self, broker: str) -> dict[str, bool]:
        """Brokers that one is linked with, and whether over TLS."""
        told, others = self.monitored(broker, "routez"), self.monitored(broker, "gatewayz")
        rows = list(told["routes"])
        for direction in ("outbound_gateways", "inbound_gateways"):
            rows += (row for of_cluster in others[direction].values() for row in of_cluster)
        return {str(row["remote_name"]): bool(row["tls"]) for row in rows}

    def rejected(self, stream: str) -> dict[str, str]:
        """Brokers that are no use to a stream, and why."""
        found = self.get("str", stream).get("status", {}).get("rejected") or ()
        return {entry["name"]: entry["reason"] for entry in found}

    def wait_for_free_places(self) -> None:
        """The SuperCluster frees the place of a finished move in its own next round."""
        eventually(lambda: self.get("scl", "demo")["status"].get("moves", []) == [], "all places to be free")

    def wait_for_count(self, stream: str, count: int) -> None:
        eventually(
            lambda: len(self.members(stream)) == count,
            f"{stream} to have {count} replicas, of {self.moves(stream)}",
            MOVE_TIMEOUT_S,
        )

    def kill_the_operator(self) -> None:
        """SIGKILL, and another one in its place."""
        os.kill(self.operator(), signal.SIGKILL)
        again = cli("dev", "up", "--state", str(self.state))
        assert again.returncode == 0, again.stderr

    def process_of(self, broker: str) -> psutil.Process:
        """A broker's process, by what its pod's environment says."""
        address = self.get("pod", broker)["status"]["podIP"]
        for process in psutil.process_iter():
            try:
                environment, words = process.environ(), process.cmdline()
            except psutil.Error:
                continue
            is_broker = any("supercluster.broker" in w or "supercluster-broker" in w for w in words)
            if is_broker and (environment.get("POD_NAME"), environment.get("POD_IP")) == (broker, address):
                return process
        raise LookupError(f"no process of broker {broker} at {address}")

    def members(self, stream: str) -> set[str]:
        """Brokers whose replicas are in force."""
        cluster = self.ask(f"STREAM.INFO.{stream}")["cluster"]
        followers = {entry["name"] for entry in cluster.get("replicas") or () if not entry.get("observer")}
        return followers | {cluster["leader"]}

    def preload(self, stream: str, count: int = PRELOADED) -> None:
        async def publish(client: Client) -> None:
            jetstream = client.jetstream()
            for start in range(0, count, 200):
                numbers = range(start, min(start + 200, count))
                await asyncio.gather(
                    *(jetstream.publish(f"{stream}.old", _payload("old", n)) for n in numbers)
                )

        self.with_client(publish)


def _payload(publisher: str, number: int) -> bytes:
    return f"{publisher} {number} ".encode().ljust(PAYLOAD_BYTES, b".")


def _author(payload: bytes) -> tuple[str, int]:
    publisher, number, _ = payload.decode().split(" ", 2)
    return publisher, int(number)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, kubectl: Path) -> Iterator[MoveSite]:
    state = tmp_path_factory.mktemp("dev")
    started = cli("dev", "up", "--state", str(state))
    try:
        assert started.returncode == 0, started.stderr
        made = MoveSite(state, kubectl_runner(kubectl, state / "kubeconfig", state))
        made.kubectl("apply", "-f", "-", stdin=WHOLE)
        for file in ("20-cluster.yaml", "30-stream.yaml"):
            made.kubectl("apply", "-f", str(MANIFESTS / file))
        made.kubectl("apply", "-f", "-", stdin=WEST)
        for resource in ("ncl/east", "ncl/west", "scl/demo", "str/flights"):
            made.kubectl("wait", "--for=condition=Ready", resource, "--timeout=120s")
        yield made
    finally:
        assert cli("dev", "down", "--state", str(state)).returncode == 0


class Publisher:
    """Publishes to a stream until it is told to stop; what was acknowledged, or handed over plainly, has to be there."""

    def __init__(self, name: str, client: Client, stream: str, *, is_plain: bool) -> None:
        self.name, self.sent = name, 0
        self._client, self._subject, self._is_plain = client, f"{stream}.{name}", is_plain
        self._stop = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        jetstream = self._client.jetstream()
        while not self._stop.is_set():
            payload = _payload(self.name, self.sent)
            if self._is_plain:
                await self._client.publish(self._subject, payload)
            else:
                await jetstream.publish(self._subject, payload, timeout=10)
            self.sent += 1
            # Well below the bandwidth of SLOW, on any machine: a copy that is paced below what comes in never catches up.
            await asyncio.sleep(PUBLISH_PAUSE_S)
        await self._client.flush()

    async def stop(self) -> int:
        self._stop.set()
        await self.task
        return self.sent


async def read_all(client: Client, stream: str, count: int) -> list[tuple[str, int]]:
    """Everything in the stream, in its order."""
    subscription = await client.jetstream().pull_subscribe(f"{stream}.>", stream=stream)
    found: list[tuple[str, int]] = []
    while len(found) < count:
        for message in await subscription.fetch(min(500, count - len(found)), timeout=10):
            found.append(_author(message.data))
            await message.ack()
    await subscription.unsubscribe()
    return found


@pytest.mark.covers("CL-3", "CL-6")
def test_all_links_are_encrypted_and_a_renewed_certificate_is_taken_over_without_a_restart(
    site: MoveSite,
) -> None:
    brokers = sorted(MEMBERS["east"] | MEMBERS["west"])
    for broker in brokers:
        assert site.links(broker) == {name: True for name in brokers if name != broker}
    pods = {cluster: site.pods(cluster) for cluster in MEMBERS}

    def shown() -> dict[str, str]:
        """Fingerprints of certificates between brokers, by door and broker."""
        told = {broker: site.monitored(broker, "admin/restart")["tls"] for broker in brokers}
        return {
            f"{door} {broker}": tls[door]["certificate"] for broker, tls in told.items() for door in DOORS
        }

    before = shown()
    assert len(set(before.values())) == len(MEMBERS), "one certificate per cluster"
    # Of this lifetime less than a third is left of those that were issued before.
    longer = json.dumps({"spec": {"tls": {"certificateLifetime": "8784h"}}})
    site.kubectl("patch", "scl", "demo", "--type=merge", "-p", longer)
    eventually(lambda: not set(shown().values()) & set(before.values()), "another certificate", 120)
    site.kubectl("delete", "pod", "east-2")
    eventually(lambda: site.links("east-1").get("east-2", False), "a link with renewed certificates", 120)
    site.kubectl("wait", "--for=condition=Whole", "ncl/east", "--timeout=120s")

    def trusted() -> set[str]:
        told = [site.monitored(broker, "admin/restart")["tls"] for broker in brokers]
        return {name for tls in told for door in DOORS for name in tls[door]["authorities"]}

    (former,) = trusted()
    site.kubectl("annotate", "scl", "demo", "supercluster.dev/exchange-authority=monday")
    eventually(lambda: len(trusted()) == 1 and former not in trusted(), "another authority alone", 120)
    for broker in brokers:
        assert site.links(broker) == {name: True for name in brokers if name != broker}
    site.kubectl("wait", "--for=condition=Synced", "scl/demo", "--timeout=60s")
    assert site.pods("west") == pods["west"]
    assert len(site.pods("east") & pods["east"]) == 2


@pytest.mark.covers("MV-1", "MV-4", "MV-6", "MV-7", "MV-13", "OP-4", "CL-6")
def test_an_edited_placement_moves_a_stream_while_it_is_published_to_and_the_operator_is_killed(
    site: MoveSite,
) -> None:
    site.declare("moved", move=SLOW)
    site.ready("moved")
    site.preload("moved")
    passwords = site.password("app")
    address = site.address()

    async def course() -> dict[str, int]:
        clients = [await nats.connect(address, user="app", password=passwords) for _ in range(2)]
        publishers = [
            Publisher("plain", clients[0], "moved", is_plain=True),
            Publisher("acked", clients[1], "moved", is_plain=False),
        ]
        await asyncio.to_thread(site.place, "moved", "west")
        running = await asyncio.to_thread(site.wait_for_phase, "moved", "Running", "Succeeded")
        assert running["plan"]["targets"], running
        await asyncio.to_thread(site.kill_the_operator)
        await asyncio.to_thread(site.wait_for_phase, "moved", "Succeeded")
        sent = {publisher.name: await publisher.stop() for publisher in publishers}
        for client in clients:
            await client.close()
        return sent

    sent = asyncio.run(course()) | {"old": PRELOADED}
    total = sum(sent.values())
    eventually(
        lambda: site.ask("STREAM.INFO.moved")["state"]["messages"] >= total, "every message to be there"
    )
    assert site.ask("STREAM.INFO.moved")["state"]["messages"] == total
    assert site.members("moved") == MEMBERS["west"]
    found = site.with_client(lambda client: read_all(client, "moved", total))
    for publisher, count in sent.items():
        assert [number for name, number in found if name == publisher] == list(range(count)), publisher

    (done,) = site.moves("moved").values()
    audit = done["audit"]
    assert audit["messages"] >= PRELOADED
    assert (audit["firstSequence"], bool(audit["digest"])) == (1, True)
    assert {member["result"] for member in audit["members"]} == {"equal"}
    assert {found["name"] for found in done["plan"]["targets"]} == MEMBERS["west"]
    site.kubectl("wait", "--for=condition=Synced", "str/moved", "--timeout=60s")
    site.ready("moved")
    assert site.get("str", "moved")["status"]["cluster"] == "west"
    site.wait_for_free_places()


@pytest.mark.long
@pytest.mark.covers("MV-9")
def test_setting_the_placement_back_leaves_the_stream_where_it_was(site: MoveSite) -> None:
    site.declare("back", move={"bandwidth": {"bytesPerS": "200k"}}, placement={"cluster": "east"})
    site.ready("back")
    site.preload("back")
    site.place("back", "west")
    site.wait_for_phase("back", "Running")
    site.place("back", "east")
    eventually(lambda: site.moves("back") == {}, "the move to be called off", MOVE_TIMEOUT_S)
    site.kubectl("wait", "--for=condition=Synced", "str/back", "--timeout=60s")
    assert site.members("back") == MEMBERS["east"]
    assert site.ask("STREAM.INFO.back")["state"]["messages"] == PRELOADED
    assert "move" not in site.ask("STREAM.INFO.back", {"supercluster_details": True})


@pytest.mark.long
@pytest.mark.covers("MV-13")
def test_a_move_whose_destination_is_out_of_contact_says_so_until_it_is_back(site: MoveSite) -> None:
    site.declare("waits", move={"bandwidth": {"bytesPerS": "400k"}}, placement={"cluster": "east"})
    site.ready("waits")
    site.preload("waits")
    site.place("waits", "west")
    site.wait_for_phase("waits", "Running")
    (name,) = site.moves("waits")

    def progress() -> dict[str, Any]:
        return site.condition("smv", name, "Progressing")

    frozen = site.process_of("west-2")
    frozen.suspend()
    try:
        eventually(lambda: progress()["reason"] == "MoveStalled", "it to be said", MOVE_TIMEOUT_S)
        told = progress()
        assert told["status"] == "True"
        assert "west-2" in told["message"]
        assert "has been out of contact for" in told["message"]
        assert site.phase("waits") == "Running"
    finally:
        frozen.resume()
    assert len(site.messages(name, "MoveStalled")) == 1
    site.wait_for_phase("waits", "Succeeded")
    assert len(site.members("waits") & MEMBERS["west"]) == 3


@pytest.mark.long
@pytest.mark.covers("MV-9", "OP-5")
@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_deleting_a_stream_while_it_moves_leaves_no_move_and_no_place_taken(
    site: MoveSite, policy: str
) -> None:
    name = f"fleeting{policy.lower()}"
    slow = {"bandwidth": {"bytesPerS": "200k"}}
    site.declare(name, move=slow, placement={"cluster": "east"}, deletionPolicy=policy)
    site.ready(name)
    site.preload(name)
    site.place(name, "west")
    site.wait_for_phase(name, "Running")
    site.kubectl("delete", "str", name, "--timeout=60s")
    eventually(lambda: site.moves(name) == {}, f"no move of {name} to be left", MOVE_TIMEOUT_S)
    site.wait_for_free_places()
    if policy == "Delete":
        assert site.ask(f"STREAM.INFO.{name}")["error"]["err_code"] == 10059
        return
    assert site.members(name) == MEMBERS["east"]
    assert site.ask(f"STREAM.INFO.{name}")["state"]["messages"] == PRELOADED


@pytest.mark.long
@pytest.mark.covers("OP-4", "MV-9")
def test_an_operator_that_is_killed_at_every_turn_of_a_cancelled_move_leaves_nothing_behind(
    site: MoveSite,
) -> None:
    site.declare("turns", move={"bandwidth": {"bytesPerS": "200k"}}, placement={"cluster": "east"})
    site.ready("turns")
    site.preload("turns")
    site.place("turns", "west")
    site.kill_the_operator()
    site.wait_for_phase("turns", "Running")
    site.kill_the_operator()
    assert site.phase("turns") == "Running"
    site.place("turns", "east")
    site.kill_the_operator()
    eventually(lambda: site.moves("turns") == {}, "the move to be called off", MOVE_TIMEOUT_S)
    site.kubectl("wait", "--for=condition=Synced", "str/turns", "--timeout=60s")
    assert site.members("turns") == MEMBERS["east"]
    assert site.ask("STREAM.INFO.turns")["state"]["messages"] == PRELOADED
    site.wait_for_free_places()


@pytest.mark.covers("MV-13", "SF-23")
def test_the_command_line_plans_moves_and_lists(site: MoveSite) -> None:
    kubeconfig = ("--kubeconfig", str(site.state / "kubeconfig"))
    created = site.ask(
        "STREAM.CREATE.mine", {"name": "mine", "subjects": ["mine.>"], "num_replicas": 3}, user="app"
    )
    assert "error" not in created
    home = next(iter(site.members("mine"))).rpartition("-")[0]
    goal = "west" if home == "east" else "east"
    planned = cli("move", "mine", "--to", goal, "--dry-run", *kubeconfig)
    assert planned.returncode == 0, planned.stderr
    assert f"{goal}-0  chosen:" in planned.stdout
    assert "2 must agree" in planned.stdout
    assert site.moves("mine") == {}
    assert site.members("mine") == MEMBERS[home]
    moved = cli("move", "mine", "--to", goal, "--wait", "--timeout", "180", *kubeconfig)
    assert moved.returncode == 0, moved.stderr
    assert site.members("mine") == MEMBERS[goal]
    header, *lines = cli("moves", *kubeconfig).stdout.splitlines()
    assert header.split()[:5] == ["NAME", "STREAM", "FROM", "TO", "PHASE"]
    assert [line.split()[1:5] for line in lines if " mine " in line] == [["mine", home, goal, "Succeeded"]]


@pytest.mark.long
@pytest.mark.covers("MV-2")
def test_a_move_that_no_broker_suits_is_refused_and_every_broker_is_named(site: MoveSite) -> None:
    site.ask("STREAM.CREATE.tape", {"name": "tape", "subjects": ["tape"], "num_replicas": 3}, user="app")
    before = site.members("tape")
    body = {
        "apiVersion": "supercluster.dev/v1alpha1",
        "kind": "StreamMove",
        "metadata": {"name": "tape", "namespace": "default"},
        "spec": {"superCluster": "demo", "stream": "tape", "destination": {"tags": ["tape"]}},
    }
    site.kubectl("apply", "-f", "-", stdin=body)
    refused = site.wait_for_phase("tape", "Refused")
    assert {found["name"] for found in refused["plan"]["rejected"]} == MEMBERS["east"] | MEMBERS["west"]
    assert site.condition("smv", "tape", "Accepted")["reason"] == "NoSuitableBrokers"
    assert site.members("tape") == before


@pytest.mark.long
@pytest.mark.covers("MV-13")
def test_a_move_waits_for_approval_and_only_that_may_be_changed(site: MoveSite) -> None:
    site.declare("careful", move={"approval": "Manual"})
    site.ready("careful")
    site.place("careful", "west")
    waiting = site.wait_for_phase("careful", "AwaitingApproval")
    assert "set spec.approved to true" in waiting["message"]
    (name,) = site.moves("careful")
    for patch, is_taken in (({"destination": {"cluster": "east"}}, False), ({"approved": True}, True)):
        text = json.dumps({"spec": patch})
        done = site.kubectl("patch", "smv", name, "--type=merge", "-p", text, check=False)
        assert (done.returncode == 0) is is_taken, done.stderr
    site.kubectl("wait", "--for=condition=Complete", f"smv/{name}", f"--timeout={MOVE_TIMEOUT_S:.0f}s")
    assert site.members("careful") == MEMBERS["west"]


@pytest.mark.long
@pytest.mark.covers("MV-13")
def test_moves_of_one_super_cluster_come_one_after_the_other(site: MoveSite) -> None:
    budget = json.dumps({"spec": {"moves": {"concurrentMax": 1}}})
    site.kubectl("patch", "scl", "demo", "--type=merge", "-p", budget)
    names = [f"turn{n}" for n in range(3)]
    for name in names:
        site.declare(name)
    for name in names:
        site.ready(name)
        site.preload(name, 200)
    for name in names:
        site.place(name, "west")
    most, deadline = 0, time.monotonic() + MOVE_TIMEOUT_S
    phases = dict.fromkeys(names, "none yet")
    while set(phases.values()) != {"Succeeded"}:
        assert time.monotonic() < deadline, phases
        phases = {name: site.phase(name) for name in names}
        most = max(most, sum(phase in ("Running", "Cancelling") for phase in phases.values()))
    assert most <= 1
    for name in names:
        assert site.members(name) == MEMBERS["west"]
        assert site.ask(f"STREAM.INFO.{name}")["state"]["messages"] == 200


def homes(brokers: Iterable[str]) -> list[str]:
    """The Cluster of each."""
    return [broker.rpartition("-")[0] for broker in brokers]


@pytest.mark.long
@pytest.mark.covers("MV-3", "MV-4", "MV-6", "MV-13")
def test_a_move_and_another_count_of_replicas_in_one_edit_are_made_one_after_the_other(
    site: MoveSite,
) -> None:
    """Under load: from one replica in east to three in west, and back."""
    site.declare("both", replicas=1, placement={"cluster": "east"})
    site.ready("both")
    site.preload("both", 500)
    address, password = site.address(), site.password("app")

    def edit(replicas: int, cluster: str) -> None:
        """Change both at once, and wait until both are done."""
        text = json.dumps({"spec": {"replicas": replicas, "placement": {"cluster": cluster}}})
        site.kubectl("patch", "str", "both", "--type=merge", "-p", text)
        generation = site.get("str", "both")["metadata"]["generation"]

        def is_done() -> bool:
            synced = site.condition("str", "both", "Synced")
            moves = site.moves("both")
            assert sum(status.get("phase") != "Succeeded" for status in moves.values()) <= 1, moves
            return bool(synced["status"] == "True" and synced["observedGeneration"] == generation)

        eventually(is_done, f"both to be done, of {site.moves('both')}", MOVE_TIMEOUT_S)

    async def course() -> int:
        client = await nats.connect(address, user="app", password=password)
        publisher = Publisher("acked", client, "both", is_plain=False)
        await asyncio.to_thread(edit, 3, "west")
        assert await asyncio.to_thread(site.members, "both") == MEMBERS["west"]
        await asyncio.to_thread(edit, 1, "east")
        (left,) = await asyncio.to_thread(site.members, "both")
        assert left in MEMBERS["east"]
        sent = await publisher.stop()
        await client.close()
        return sent

    sent = asyncio.run(course())
    plans = {name: status["plan"] for name, status in site.moves("both").items()}
    steps = {
        name: (homes(plan["origin"]), homes(found["name"] for found in plan["targets"]))
        for name, plan in plans.items()
    }
    east, west, wide = ["east"], ["west"], ["west"] * 3
    assert steps == {
        "both-g2": (east, west),
        "both-g2-r3": (west, wide),
        "both-g3-r1": (wide, west),
        "both-g3": (west, east),
    }
    said = site.messages("both", "MoveCreated")
    for made, then in (
        ("both-g2", "the change of spec.replicas to 3"),
        ("both-g3-r1", "the move to Cluster east"),
    ):
        assert any(text.endswith(f"made StreamMove {made}; after it comes {then}") for text in said), said
    found = site.with_client(lambda client: read_all(client, "both", 500 + sent))
    assert [number for name, number in found if name == "acked"] == list(range(sent))
    assert site.ask("STREAM.INFO.both")["config"]["num_replicas"] == 1


@pytest.mark.long
@pytest.mark.covers("MV-13", "OP-3")
def test_a_change_that_somebody_else_began_takes_a_place_and_brokers_are_restarted_after_it(
    site: MoveSite,
) -> None:
    budget = json.dumps({"spec": {"moves": {"concurrentMax": 1}}})
    site.kubectl("patch", "scl", "demo", "--type=merge", "-p", budget)
    theirs = {"name": "theirs", "subjects": ["theirs.>"], "num_replicas": 1, "placement": {"cluster": "west"}}
    assert "error" not in site.ask("STREAM.CREATE.theirs", theirs, user="app")
    site.preload("theirs", 200)
    site.declare("queued", replicas=1, placement={"cluster": "east"})
    site.ready("queued")
    site.admin("theirs", "POST", {"replicas": 3, "bytesPerS": 1})

    site.place("queued", "west")
    said = "theirs (started outside the queue)"
    eventually(lambda: said in str(site.wait_for_phase("queued", "Queued").get("message")), said)
    assert site.get("scl", "demo")["status"]["otherMoves"] == ["theirs"]

    before = site.pods("west")
    limits = json.dumps({"spec": {"limits": {"streamWindowWait": "11s"}}})
    site.kubectl("patch", "ncl", "west", "--type=merge", "-p", limits)
    held = "streams move and are waited for, 30 minutes at most: theirs (west-0), theirs (west-1), theirs (west-2)"
    eventually(lambda: site.condition("ncl", "west", "Synced").get("message") == held, held)
    assert site.pods("west") == before
    assert site.phase("queued") == "Queued"

    site.admin("theirs", "DELETE")
    eventually(lambda: not site.pods("west") & before, "all brokers of west to be restarted", MOVE_TIMEOUT_S)
    site.wait_for_phase("queued", "Succeeded")
    assert site.get("scl", "demo")["status"].get("otherMoves", []) == []
    site.kubectl("wait", "--for=condition=Synced", "ncl/west", "--timeout=60s")
    assert site.ask("STREAM.INFO.theirs")["state"]["messages"] == 200
    assert len(site.members("theirs")) == 1


@pytest.mark.covers("CL-7")
def test_rebalancing_is_planned_from_the_command_line(site: MoveSite) -> None:
    kubeconfig = ("--kubeconfig", str(site.state / "kubeconfig"))
    shown = cli("rebalance", "east", "--dry-run", *kubeconfig)
    assert shown.returncode == 0, shown.stderr
    assert [line.split()[0] for line in shown.stdout.splitlines()[:4]] == [
        "BROKER",
        "east-0",
        "east-1",
        "east-2",
    ]
    assert shown.stdout.endswith("no client is asked to leave\n"), shown.stdout
    wrong = cli("rebalance", "nowhere", *kubeconfig)
    assert (wrong.returncode, "there is no Cluster nowhere" in wrong.stderr) == (1, True)


def explain_who_fits_nowhere(site: MoveSite) -> None:
    """Of eleven brokers in three clusters each is named, with the reason why it is no use."""
    every = {f"{name}-{n}" for name, size in (("east", 3), ("west", 3), ("south", 5)) for n in range(size)}
    wishes: dict[str, tuple[dict[str, Any], str]] = {
        "wide": ({"replicas": 5, "placement": {"cluster": "west"}}, "TooManyReplicas"),
        "taped": ({"placement": {"tags": ["tape"]}}, "PlacementUnmatched"),
    }
    for name, (spec, reason) in wishes.items():
        site.declare(name, **spec)
        eventually(partial(site.rejected, name), f"{name} to be judged")
        assert site.condition("str", name, "Accepted")["reason"] == reason
        told = site.rejected(name)
        assert told.keys() == every
        assert all(told.values()), told
        kubeconfig = ("--kubeconfig", str(site.state / "kubeconfig"))
        shown = cli("explain", name, *kubeconfig)
        assert shown.returncode == 0, shown.stderr
        assert f"Accepted is False: {reason}" in shown.stdout
        assert all(f"  {broker} " in shown.stdout for broker in every)
        site.kubectl("delete", "str", name)


@pytest.mark.long
@pytest.mark.covers("MV-6", "MV-7", "CL-6")
def test_through_clusters_of_three_three_and_five_exactly_three_brokers_hold_the_stream(
    site: MoveSite,
) -> None:
    """Behind the other moves: it adds a cluster."""
    south: dict[str, Any] = json.loads(json.dumps(WEST))
    south["metadata"]["name"] = "south"
    south["spec"] |= {"replicas": 5, "tags": []}
    site.kubectl("apply", "-f", "-", stdin=south)
    site.kubectl("wait", "--for=condition=Ready", "ncl/south", "--timeout=90s")
    site.declare("round")
    site.ready("round")
    site.preload("round", 500)
    for cluster in ("west", "south", "east"):
        site.place("round", cluster)
        site.wait_for_home("round", cluster)
        site.kubectl("wait", "--for=condition=Synced", "str/round", "--timeout=60s")
        members = site.members("round")
        assert len(members) == 3
        assert {member.rpartition("-")[0] for member in members} == {cluster}
        assert site.ask("STREAM.INFO.round")["state"]["messages"] == 500
    found = site.with_client(lambda client: read_all(client, "round", 500))
    assert sorted(number for _, number in found) == list(range(500))
    assert [status["phase"] for status in site.moves("round").values()] == ["Succeeded"] * 3

    explain_who_fits_nowhere(site)
    site.place("round", "south")
    for count in (5, 3):
        site.kubectl("patch", "str", "round", "--type=merge", "-p", json.dumps({"spec": {"replicas": count}}))
        site.wait_for_count("round", count)
        site.kubectl("wait", "--for=condition=Synced", "str/round", "--timeout=60s")
        assert {member.rpartition("-")[0] for member in site.members("round")} == {"south"}
    assert site.ask("STREAM.INFO.round")["state"]["messages"] == 500


@pytest.mark.long
@pytest.mark.covers("OP-3", "OP-5")
def test_a_cluster_that_is_deleted_parts_from_the_others_first(site: MoveSite) -> None:
    spec = {"superCluster": "demo", "replicas": 1, "storage": {"size": "1Gi"}, "deletionPolicy": "Delete"}
    north = {**WEST, "metadata": {"name": "north", "namespace": "default"}, "spec": spec}
    site.kubectl("apply", "-f", "-", stdin=north)
    eventually(lambda: site.broker("north-0").get("inContact") is True, "north-0 to be known", MOVE_TIMEOUT_S)
    site.kubectl("delete", "ncl", "north", "--wait=false")
    told: list[dict[str, Any]] = []

    def is_gone() -> bool:
        told.append(site.broker("north-0"))
        listed = json.loads(site.kubectl("get", "ncl", "-o", "json").stdout)["items"]
        return all(body["metadata"]["name"] != "north" for body in listed)

    eventually(is_gone, "Cluster north to be gone", MOVE_TIMEOUT_S)
    assert told[-1].get("leaves") is True, told[-1]
    assert told[-1].get("votes") is False
