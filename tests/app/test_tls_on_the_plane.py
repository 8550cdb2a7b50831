"""TLS between the brokers of two clusters is turned on and off on the embedded plane, while messages come in and a stream moves."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from tests.app.repair_site import EAST, SUPER_CLUSTER, RepairSite, publishing
from tests.app.test_moves_on_the_plane import Publisher, read_all
from tests.app.test_operator_on_the_plane import cli
from tests.conftest import kubectl_runner

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.covers("CL-3", "CL-6", "SF-1", "SF-3")]

CLUSTERS = {"east": 3, "west": 1}
PRELOADED = 2_000
# Four megabytes at this rate take far longer than the stages that restart nobody.
SLOW = {"bandwidth": {"bytesPerS": "100k"}}


class TlsSite(RepairSite):
    """Two clusters, and how their brokers are linked."""

    names = tuple(f"{cluster}-{number}" for cluster, count in CLUSTERS.items() for number in range(count))

    def turn(self, mode: str) -> None:
        patch = json.dumps({"spec": {"tls": {"mode": mode}}})
        self.kubectl("patch", "scl", "demo", "--type=merge", "-p", patch)

    def restarts(self, mode: str) -> None:
        """Whether they wait for a person."""
        patch = json.dumps({"spec": {"rollout": {"mode": mode}}})
        for name in CLUSTERS:
            self.kubectl("patch", "ncl", name, "--type=merge", "-p", patch)

    def stage(self) -> str:
        return str(self.get("scl", "demo")["status"]["tls"]["stage"])

    def wait_for_stage(self, *stages: str) -> None:
        self.wait(lambda: self.stage() in stages, f"{stages}, of {self.condition('scl', 'demo', 'Synced')}")

    def links(self) -> set[tuple[frozenset[str], bool]]:
        """Pairs of brokers that are linked, and whether over TLS."""
        found = set()
        for broker in self.names:
            told, others = self._page(broker, "routez"), self._page(broker, "gatewayz")
            rows = list(told["routes"])
            for direction in ("outbound_gateways", "inbound_gateways"):
                rows += (row for of_cluster in others[direction].values() for row in of_cluster)
            found |= {(frozenset({broker, str(row["remote_name"])}), bool(row["tls"])) for row in rows}
        return found

    def wait_for_links(self, *, encrypted: bool) -> None:
        pairs = len(self.names) * (len(self.names) - 1) // 2
        self.wait(
            lambda: {kind for _, kind in self.links()} == {encrypted} and len(self.links()) == pairs,
            f"all links to be {'encrypted' if encrypted else 'plain'}",
        )

    def lost_links(self) -> int:
        """How often brokers said that a link was lost."""
        files = (self.state / "logs" / "default").glob("*/broker.log")
        return sum(file.read_text(errors="replace").count(" lost: ") for file in files)

    def uids(self) -> set[str]:
        """Of the pods that are there."""
        found = (self.pod(name) for name in self.names)
        return {str(pod["metadata"]["uid"]) for pod in found if pod}

    def wait_for_others(self, uids: set[str]) -> None:
        self.wait(
            lambda: len(self.uids() - uids) == len(self.names) and all(map(self.is_ready, self.names)),
            "every broker to be restarted",
        )

    def _page(self, broker: str, path: str) -> dict[str, Any]:
        login = b64encode(f"operator:{self.password('operator')}".encode()).decode()
        request = urllib.request.Request(
            f"http://{self.ip(broker)}:8222/{path}", headers={"Authorization": f"Basic {login}"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return dict(json.load(answer))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, kubectl: Path) -> Iterator[TlsSite]:
    state = tmp_path_factory.mktemp("dev")
    started = cli("dev", "up", "--state", str(state))
    try:
        assert started.returncode == 0, started.stderr
        made = TlsSite(state, kubectl_runner(kubectl, state / "kubeconfig", state))
        plain = {"spec": {**SUPER_CLUSTER["spec"], "tls": {"mode": "Off"}}}  # type: ignore[dict-item]
        made.kubectl("apply", "-f", "-", stdin={**SUPER_CLUSTER, **plain})
        for name, count in CLUSTERS.items():
            body = {**EAST, "metadata": {**EAST["metadata"], "name": name}}
            made.kubectl("apply", "-f", "-", stdin={**body, "spec": {**EAST["spec"], "replicas": count}})
        for name in CLUSTERS:
            made.kubectl("wait", "--for=condition=Ready", f"ncl/{name}", "--timeout=180s")
        yield made
    finally:
        assert cli("dev", "down", "--state", str(state)).returncode == 0


async def counted(site: TlsSite, stream: str, course: Any) -> dict[str, int]:
    """What publishers without message ids sent while something was done, plainly and acknowledged."""
    password = site.password("app")
    addresses = [f"nats://{site.ip(name)}:4222" for name in ("east-0", "west-0")]
    clients = [await nats.connect(each, user="app", password=password) for each in addresses]
    publishers = [
        Publisher(f"{kind}{number}", client, stream, is_plain=kind == "plain")
        for number, client in enumerate(clients)
        for kind in ("plain", "acked")
    ]
    try:
        await asyncio.to_thread(course)
    finally:
        sent = {each.name: await each.stop() for each in publishers}
        for client in clients:
            await client.close()
    return sent


def check(site: TlsSite, stream: str, sent: dict[str, int]) -> None:
    """All of it is there, once and in the order of each publisher."""
    total = sum(sent.values())
    site.wait(lambda: site.ask(f"STREAM.INFO.{stream}")["state"]["messages"] >= total, "every message")
    assert site.ask(f"STREAM.INFO.{stream}")["state"]["messages"] == total
    found = site.with_client(lambda client: read_all(client, stream, total))
    for publisher, count in sent.items():
        assert count > 20, publisher
        assert [number for name, number in found if name == publisher] == list(range(count)), publisher


def test_tls_goes_on_under_load_and_a_killed_operator_goes_on_with_it(site: TlsSite) -> None:
    assert site.stage() == "Off"
    site.wait_for_links(encrypted=False)
    for name in ("through", "meanwhile"):
        site.declare(name)
        site.ready(name)
    before = site.uids()

    def on() -> None:
        site.wait_for_stage("Required")
        site.wait_for_links(encrypted=True)

    with publishing(site, "through", set()) as publisher:
        site.turn("Required")
        site.wait_for_stage("AcceptBoth")
        site.kill_the_operator()
        site.start_the_operator()
        site.wait_for_others(before)
        sent = asyncio.run(counted(site, "meanwhile", on))
        assert publisher.acknowledged > 100
    check(site, "meanwhile", sent)
    assert [site.condition("scl", "demo", kind)["status"] for kind in ("Synced", "Whole")] == ["True"] * 2
    assert "LinkEncryptionChanged" in site.events("demo")


@pytest.mark.long
def test_tls_goes_off_while_a_stream_moves_and_no_link_is_lost_before_brokers_restart(site: TlsSite) -> None:
    """Behind the test before."""
    site.declare("moved", move=SLOW, replicas=1, placement={"cluster": "east"})
    site.ready("moved")
    site.publish("moved", PRELOADED, 2_000)
    patch = json.dumps({"spec": {"placement": {"cluster": "west"}}})
    for name in ("beside", "again"):
        site.declare(name)
        site.ready(name)
    site.kubectl("patch", "str", "moved", "--type=merge", "-p", patch)
    site.wait(lambda: "Running" in site.phases("moved"), "the move")
    site.restarts("Supervised")
    lost, uids = site.lost_links(), site.uids()

    def off() -> None:
        site.turn("Off")
        site.wait_for_stage("AcceptBoth", "Off")
        site.wait_for_links(encrypted=False)

    with publishing(site, "again", set()):
        sent = asyncio.run(counted(site, "beside", off))
        assert site.phases("moved") == ["Running"], "it goes on meanwhile"
        assert site.uids() == uids
        assert site.lost_links() == lost
        site.restarts("Automatic")
        site.wait_for_stage("Off")
        site.wait_for_move("moved", "Succeeded")
        site.wait_for_others(uids)
        site.wait(lambda: site.condition("scl", "demo", "Whole")["status"] == "True", "all to be whole")
    check(site, "beside", sent)
    assert site.ask("STREAM.INFO.moved")["state"]["messages"] == PRELOADED
    site.wait_for_links(encrypted=False)
