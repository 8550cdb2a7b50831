"""Moves from the user's side: two clusters on the embedded control plane, a placement is edited, publishers go on.

One plane serves all tests here; every test has streams of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from tests.app.test_operator_on_the_plane import MANIFESTS, Site, cli
from tests.conftest import eventually, kubectl_runner

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

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
SLOW = {"bandwidth": {"bytesPerS": "2Mi"}}
MOVE_TIMEOUT_S = 90.0


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

    def kill_the_operator(self) -> None:
        """SIGKILL, and another one in its place."""
        os.kill(self.operator(), signal.SIGKILL)
        again = cli("dev", "up", "--state", str(self.state))
        assert again.returncode == 0, again.stderr

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
        made.kubectl("apply", "-f", str(MANIFESTS))
        made.kubectl("apply", "-f", "-", stdin=WEST)
        for resource in ("ncl/east", "ncl/west", "scl/demo", "str/flights"):
            made.kubectl("wait", "--for=condition=Ready", resource, "--timeout=60s")
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
    site.kubectl("wait", "--for=condition=Synced", "str/moved", "--timeout=30s")
    site.ready("moved")
    assert site.get("str", "moved")["status"]["cluster"] == "west"
    assert site.get("scl", "demo")["status"].get("moves", []) == []


@pytest.mark.covers("MV-9")
def test_setting_the_placement_back_leaves_the_stream_where_it_was(site: MoveSite) -> None:
    site.declare("back", move={"bandwidth": {"bytesPerS": "200k"}}, placement={"cluster": "east"})
    site.ready("back")
    site.preload("back")
    site.place("back", "west")
    site.wait_for_phase("back", "Running")
    site.place("back", "east")
    eventually(lambda: site.moves("back") == {}, "the move to be called off", MOVE_TIMEOUT_S)
    site.kubectl("wait", "--for=condition=Synced", "str/back", "--timeout=30s")
    assert site.members("back") == MEMBERS["east"]
    assert site.ask("STREAM.INFO.back")["state"]["messages"] == PRELOADED
    assert "move" not in site.ask("STREAM.INFO.back")


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
    site.kubectl("wait", "--for=condition=Synced", "str/turns", "--timeout=30s")
    assert site.members("turns") == MEMBERS["east"]
    assert site.ask("STREAM.INFO.turns")["state"]["messages"] == PRELOADED
    assert site.get("scl", "demo")["status"].get("moves", []) == []


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
    moved = cli("move", "mine", "--to", goal, "--wait", "--timeout", "60", *kubeconfig)
    assert moved.returncode == 0, moved.stderr
    assert site.members("mine") == MEMBERS[goal]
    header, *lines = cli("moves", *kubeconfig).stdout.splitlines()
    assert header.split()[:5] == ["NAME", "STREAM", "FROM", "TO", "PHASE"]
    assert [line.split()[1:5] for line in lines if " mine " in line] == [["mine", home, goal, "Succeeded"]]


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


@pytest.mark.covers("MV-6", "MV-7", "CL-6")
def test_through_clusters_of_three_three_and_five_exactly_three_brokers_hold_the_stream(
    site: MoveSite,
) -> None:
    """The last test: it adds a cluster."""
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
