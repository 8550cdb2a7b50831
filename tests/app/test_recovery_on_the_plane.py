"""A stream that lost its majority, from the user's side: an annotation, on the embedded control plane with the operator."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from tests.app.test_moves_on_the_plane import MoveSite
from tests.app.test_operator_on_the_plane import MANIFESTS, cli
from tests.conftest import eventually, kubectl_runner

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

# Five brokers vote about the map of streams, so that two may be away; a stream has copies on three of them.
EAST = {
    "apiVersion": "supercluster.dev/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": "east", "namespace": "default"},
    "spec": {"superCluster": "demo", "replicas": 5, "storage": {"size": "2Gi"}},
}
WAIT_S = 60.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, kubectl: Path) -> Iterator[MoveSite]:
    state = tmp_path_factory.mktemp("dev")
    started = cli("dev", "up", "--state", str(state))
    try:
        assert started.returncode == 0, started.stderr
        made = MoveSite(state, kubectl_runner(kubectl, state / "kubeconfig", state))
        made.kubectl("apply", "-f", str(MANIFESTS / "10-super-cluster.yaml"))
        made.kubectl("apply", "-f", "-", stdin=EAST)
        for resource in ("ncl/east", "scl/demo"):
            made.kubectl("wait", "--for=condition=Ready", resource, "--timeout=90s")
        yield made
    finally:
        assert cli("dev", "down", "--state", str(state)).returncode == 0


def annotate(site: MoveSite, value: str) -> None:
    patch = json.dumps({"metadata": {"annotations": {"supercluster.dev/force-recover": value}}})
    site.kubectl("patch", "str", "rec", "--type=merge", "-p", patch)


def outcome(site: MoveSite, value: str) -> dict[str, Any]:
    """What became of a value of the annotation."""

    def told() -> dict[str, Any]:
        found: dict[str, Any] = site.get("str", "rec").get("status", {}).get("recovery") or {}
        return found

    eventually(lambda: told().get("request") == value, f"an outcome of {value}", WAIT_S)
    return told()


def publish(site: MoveSite, broker: str, count: int) -> list[int]:
    async def send(client: Client) -> list[int]:
        jetstream = client.jetstream(timeout=10)
        return [(await jetstream.publish("rec.x", b"%d" % n)).seq for n in range(count)]

    site.address = lambda: f"nats://{site.get('pod', broker)['status']['podIP']}:4222"  # type: ignore[method-assign]
    found: list[int] = site.with_client(send)
    return found


@pytest.mark.covers("RP-8", "SF-9")
def test_a_person_has_a_stream_without_majority_go_on_from_one_copy(site: MoveSite) -> None:
    site.declare("rec", replicas=3)
    site.ready("rec")
    assert publish(site, "east-0", 20)[-1] == 20
    members = sorted(site.members("rec"))
    kubeconfig = str(site.state / "kubeconfig")

    annotate(site, f"{members[0]}:0")
    refused = outcome(site, f"{members[0]}:0")
    assert refused["outcome"] == "Refused"
    assert "nothing has to be forced" in refused["message"]
    assert site.condition("str", "rec", "Recovered")["reason"] == "RecoveryRefused"

    left, *others = members
    rest = next(name for name in (f"east-{n}" for n in range(5)) if name not in members)
    processes = [site.process_of(name) for name in others]
    try:
        for process in processes:
            process.send_signal(signal.SIGSTOP)

        def shown() -> str:
            told = cli("recover", "stream", "rec", "--kubeconfig", kubeconfig)
            return told.stdout if told.returncode == 0 and "out of contact" in told.stdout else ""

        eventually(lambda: bool(shown()), "the command line to say that the majority is gone", WAIT_S)
        asked = ("--node", left, "--accept-last-seq", "9999", "--kubeconfig", kubeconfig)
        too_much = cli("recover", "stream", "rec", *asked, "--dry-run")
        assert too_much.returncode == 1
        assert "ends at sequence 20, before the accepted 9999" in too_much.stdout
        annotate(site, f"{left}:20")
        done = outcome(site, f"{left}:20")
        assert done["outcome"] == "Recovered", done
        assert f"goes on from the copy of {left}" in done["message"]
        assert site.condition("str", "rec", "Recovered")["status"] == "True"
        assert {"RecoveryStarted", "RecoveryForced", "RecoveryRefused"} <= site.events("rec")
        assert publish(site, rest, 3) == [21, 22, 23]
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)

    def is_whole() -> bool:
        status = site.get("str", "rec").get("status", {})
        ready = site.condition("str", "rec", "Whole").get("status") == "True"
        return ready and status.get("readyReplicas") == 3

    eventually(is_whole, "the stream to have all its replicas again", WAIT_S)
    # Figures of a status follow within minutes; the brokers have them now.
    assert publish(site, rest, 1) == [24]


def ask_for_the_map(site: MoveSite, value: str) -> None:
    patch = json.dumps({"metadata": {"annotations": {"supercluster.dev/force-recover-meta": value}}})
    site.kubectl("patch", "scl", "demo", "--type=merge", "-p", patch)


def outcome_of_the_map(site: MoveSite, value: str) -> dict[str, Any]:
    def told() -> dict[str, Any]:
        found: dict[str, Any] = site.get("scl", "demo").get("status", {}).get("mapRecovery") or {}
        return found

    eventually(lambda: told().get("request") == value, f"an outcome of {value}", WAIT_S)
    return told()


@pytest.mark.long
@pytest.mark.covers("RP-8", "SF-9", "OP-4")
def test_a_person_has_the_map_of_streams_go_on_from_one_copy(site: MoveSite) -> None:
    """Three of five voters are gone, and the operator is killed when it was told."""
    kubeconfig = str(site.state / "kubeconfig")
    ask_for_the_map(site, "east-0:0")
    refused = outcome_of_the_map(site, "east-0:0")
    assert refused["outcome"] == "Refused", refused
    assert "nothing has to be forced" in refused["message"]
    assert site.condition("scl", "demo", "Recovered")["reason"] == "RecoveryRefused"

    processes = [site.process_of(f"east-{n}") for n in (2, 3, 4)]
    try:
        for process in processes:
            process.send_signal(signal.SIGSTOP)

        def shown() -> bool:
            told = cli("recover", "meta", "--kubeconfig", kubeconfig)
            return "out of contact: east-2, east-3, east-4" in told.stdout

        eventually(shown, "the command line to say that the majority is gone", WAIT_S)
        ask_for_the_map(site, "east-1:1")
        site.kill_the_operator()
        done = outcome_of_the_map(site, "east-1:1")
        assert done["outcome"] == "Recovered", done
        assert "goes on from the copy of east-1" in done["message"]
        assert site.condition("scl", "demo", "Recovered")["status"] == "True"
        assert {"RecoveryForced", "RecoveryRefused"} <= site.events("demo")
        # Without a map that somebody leads, this stream could not be.
        site.declare("later", replicas=1)
        site.ready("later")
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)

    def is_one_map() -> bool:
        known = [site.broker(f"east-{n}") for n in range(5)]
        return (
            all(found.get("inContact") for found in known) and sum(bool(f.get("votes")) for f in known) >= 3
        )

    eventually(is_one_map, "others to vote in the new lineage", WAIT_S)
    assert outcome_of_the_map(site, "east-1:1") == done
