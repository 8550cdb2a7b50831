"""The operator, brokers and kubectl together on the embedded control plane: what a user does with manifests.

One plane and one cluster serve all tests here; every test has streams of its own.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import pytest
import yaml
from nats.aio.client import Client
from tests.conftest import Kubectl, eventually, kubectl_runner

from supercluster.app.commands import processes
from supercluster.spark.datasource.options import read_options
from supercluster.spark.datasource.source import BatchReader

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

MANIFESTS = Path(__file__).resolve().parents[2] / "e2e" / "manifests" / "demo"
DECLARED_ERR_CODE = 19001


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "supercluster.app.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
    )


@dataclass
class Site:
    """A running plane with an operator, a cluster of three brokers and kubectl."""

    state: Path
    kubectl: Kubectl

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, "-o", "json").stdout)
        return found

    def exists(self, kind: str, name: str) -> bool:
        return self.kubectl("get", kind, name, check=False).returncode == 0

    def condition(self, kind: str, name: str, type_: str) -> dict[str, Any]:
        conditions = self.get(kind, name).get("status", {}).get("conditions", [])
        return next((entry for entry in conditions if entry["type"] == type_), {})

    def declare(self, name: str, /, **spec: Any) -> None:
        self.kubectl("apply", "-f", "-", stdin=stream(name, **spec))

    def ready(self, name: str) -> None:
        self.kubectl("wait", "--for=condition=Ready", f"str/{name}", "--timeout=60s")

    def events(self, name: str) -> set[str]:
        listed = json.loads(self.kubectl("get", "events", "-o", "json").stdout)["items"]
        return {event["reason"] for event in listed if event["involvedObject"]["name"] == name}

    def operator(self) -> int:
        """The operator's pid."""
        return int(json.loads((self.state / "dev.json").read_text())["operator"]["pid"])

    def ask(self, call: str, body: Any = None, *, user: str = "operator") -> dict[str, Any]:
        """One call of the JetStream API."""

        async def request(client: Client) -> dict[str, Any]:
            payload = json.dumps(body).encode() if body is not None else b""
            answer: dict[str, Any] = json.loads(
                (await client.request(f"$JS.API.{call}", payload, timeout=15)).data
            )
            return answer

        answer: dict[str, Any] = self.with_client(request, user)
        return answer

    def with_client(self, use: Callable[[Client], Awaitable[Any]], user: str = "app") -> Any:
        async def run() -> Any:
            client = await nats.connect(self.address(), user=user, password=self.password(user))
            try:
                return await use(client)
            finally:
                await client.close()

        return asyncio.run(run())

    def address(self) -> str:
        return f"nats://{self.get('pod', 'east-0')['status']['podIP']}:4222"

    def password(self, user: str) -> str:
        data = self.get("secret", "demo-credentials")["data"]["users.json"]
        users = json.loads(base64.b64decode(data))["users"]
        return next(str(entry["password"]) for entry in users if entry["user"] == user)


def stream(name: str, /, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "supercluster.dev/v1alpha1",
        "kind": "Stream",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"superCluster": "demo", "subjects": [f"{name}.>"], **spec},
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, kubectl: Path) -> Iterator[Site]:
    state = tmp_path_factory.mktemp("dev")
    started = cli("dev", "up", "--state", str(state))
    try:
        assert started.returncode == 0, started.stderr
        assert started.stdout == f"export KUBECONFIG={state}/kubeconfig\n"
        made = Site(state, kubectl_runner(kubectl, state / "kubeconfig", state))
        made.kubectl("apply", "-f", str(MANIFESTS))
        for resource in ("scl/demo", "ncl/east", "str/flights"):
            made.kubectl("wait", "--for=condition=Ready", resource, "--timeout=120s")
        yield made
    finally:
        assert cli("dev", "down", "--state", str(state)).returncode == 0


@pytest.mark.covers("OP-1", "RP-1")
def test_manifests_become_brokers_and_a_stream_that_takes_messages(site: Site) -> None:
    client = site.get("secret", "demo-client")["data"]
    assert base64.b64decode(client["user"]) == b"app"

    async def publish(connection: Client) -> list[int]:
        jetstream = connection.jetstream()
        return [(await jetstream.publish("flights.JFK.AA", b"{}")).seq for _ in range(5)]

    assert site.with_client(publish) == [1, 2, 3, 4, 5]
    status = site.get("stream", "flights")["status"]
    assert status["leader"] in {"east-0", "east-1", "east-2"}
    assert [replica["name"] for replica in status["replicas"]] == ["east-0", "east-1", "east-2"]
    assert status["observedGeneration"] == 1


@pytest.mark.covers("SP-1")
def test_spark_reads_from_the_bulk_ports_that_the_cluster_opens(site: Site) -> None:
    messages, size_bytes = 12_000, 1_000  # More than a block.
    site.declare("readings", replicas=3)
    site.ready("readings")

    async def publish(client: Client) -> None:
        jetstream = client.jetstream(publish_async_max_pending=4_000)
        await asyncio.gather(
            *[await jetstream.publish_async("readings.x", os.urandom(size_bytes)) for _ in range(messages)]
        )

    site.with_client(publish)
    given = {"url": site.address(), "user": "app", "password": site.password("app")}
    options = read_options({**given, "stream": "readings", "bulk": "only"}, streaming=False)
    reader = BatchReader(options, ("sequence", "payload"))
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    found = [sequence for batch in batches for sequence in batch.column("sequence").to_pylist()]
    assert found == list(range(1, messages + 1))
    address = site.get("pod", "east-0")["status"]["podIP"]
    login = base64.b64encode(f"app:{site.password('app')}".encode()).decode()
    asked = urllib.request.Request(
        f"http://{address}:8333/bulk/streams/readings?columns=payload",
        headers={"Authorization": f"Basic {login}"},
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        assert len(answer.read()) > 8 << 20


@pytest.mark.covers("OP-1")
def test_kubectl_shows_columns_and_describes(site: Site) -> None:
    def shown() -> list[list[str]]:
        return [line.split()[:4] for line in site.kubectl("get", "str", "flights").stdout.splitlines()]

    # Right behind a publish a replica may lack it for a moment.
    columns = [["NAME", "CLUSTER", "REPLICAS", "CURRENT"], ["flights", "east", "3", "3"]]
    eventually(lambda: shown() == columns, f"its columns, of {shown()}")
    assert "AllCurrent" in site.kubectl("describe", "stream", "flights").stdout
    assert "flights" in site.kubectl("get", "streaming").stdout


@pytest.mark.covers("OP-2")
def test_applying_again_changes_nothing_and_the_operator_writes_no_spec(site: Site) -> None:
    before = site.get("stream", "flights")
    again = site.kubectl("apply", "-f", str(MANIFESTS)).stdout
    assert again.count("unchanged") == 3
    after = site.get("stream", "flights")
    assert after["metadata"]["generation"] == before["metadata"]["generation"] == 1
    assert set(after["metadata"]["annotations"]) == {"kubectl.kubernetes.io/last-applied-configuration"}


@pytest.mark.covers("SF-23")
def test_a_client_may_not_change_a_declared_stream(site: Site) -> None:
    site.declare("guarded", limits={"maxMessages": 100})
    site.ready("guarded")
    config = site.ask("STREAM.INFO.guarded")["config"]
    refused = site.ask("STREAM.UPDATE.guarded", {**config, "max_msgs": 7}, user="app")
    assert refused["error"]["err_code"] == DECLARED_ERR_CODE
    assert "default/guarded" in refused["error"]["description"]
    assert "error" in site.ask("STREAM.DELETE.guarded", user="app")
    assert site.ask("STREAM.INFO.guarded")["config"] == config


@pytest.mark.long
@pytest.mark.covers("OP-2", "SF-23")
def test_drift_is_set_back(site: Site) -> None:
    site.declare("drift", limits={"maxMessages": 100})
    site.ready("drift")
    config = site.ask("STREAM.INFO.drift")["config"]
    assert site.ask("STREAM.UPDATE.drift", {**config, "max_msgs": 7})["config"]["max_msgs"] == 7
    eventually(lambda: site.ask("STREAM.INFO.drift")["config"]["max_msgs"] == 100, "the limit to be set back")
    assert site.ask("STREAM.DELETE.drift")["success"] is True
    eventually(lambda: "error" not in site.ask("STREAM.INFO.drift"), "the stream to be created again")
    eventually(
        lambda: {"DriftRepaired", "StreamLost"} <= site.events("drift"), "the events that tell of both"
    )


@pytest.mark.covers("OP-1", "OP-2", "SF-12")
def test_an_account_gets_limits_by_the_super_cluster_and_is_rid_of_them(site: Site) -> None:
    def patch(accounts: Any) -> None:
        site.kubectl(
            "patch", "scl", "demo", "--type=merge", "-p", json.dumps({"spec": {"accounts": accounts}})
        )

    def in_force() -> Any:
        accounts = site.get("scl", "demo")["status"].get("accounts", [])
        return [entry["name"] for entry in accounts if entry["inForce"]] == ["$G"]

    def create() -> dict[str, Any]:
        return site.ask("STREAM.CREATE.BEYOND", {"name": "BEYOND", "subjects": ["beyond"]}, user="app")

    patch([{"name": "$G", "limits": {"streamsMax": 1, "storageBytesMax": "1Gi"}}])
    try:
        eventually(in_force, "the limits to be in force")
        info = site.ask("INFO", user="app")
        assert (info["limits"]["max_streams"], info["limits"]["max_storage"]) == (1, 1 << 30)
        refused = create()["error"]
        wanted = {"code": 400, "err_code": 10027, "description": "maximum number of streams reached"}
        assert refused == wanted
    finally:
        patch(None)
    eventually(lambda: "error" not in create(), "the limits to be gone")
    assert site.ask("STREAM.DELETE.BEYOND", user="app")["success"] is True
    assert site.ask("INFO", user="app")["limits"]["max_streams"] == -1


@pytest.mark.covers("OP-2")
def test_what_kubernetes_runs_is_set_back_too(site: Site) -> None:
    site.kubectl("delete", "service", "east-brokers")
    eventually(lambda: site.exists("service", "east-brokers"), "the Service to be made again")
    site.kubectl("patch", "pdb", "east", "--type=merge", "-p", '{"spec": {"maxUnavailable": 3}}')
    eventually(lambda: site.get("pdb", "east")["spec"]["maxUnavailable"] == 1, "the budget to be set back")
    ports = site.get("service", "east")["spec"]["ports"]
    site.kubectl(
        "patch",
        "service",
        "east",
        "--type=merge",
        "-p",
        '{"spec": {"ports": [{"name": "client", "port": 4444}]}}',
    )
    eventually(
        lambda: site.get("service", "east")["spec"]["ports"] == ports, "the Service's port to be set back"
    )


@pytest.mark.covers("OP-5", "SF-23")
def test_retain_leaves_the_stream_and_adoption_is_explicit(site: Site) -> None:
    site.declare("kept")
    site.ready("kept")
    site.with_client(lambda connection: connection.jetstream().publish("kept.a", b"precious"))
    site.kubectl("delete", "stream", "kept", "--timeout=60s")
    info = site.ask("STREAM.INFO.kept")
    assert info["state"]["messages"] == 1
    assert "supercluster.dev/resource" not in info["config"].get("metadata", {})
    site.declare("kept")
    eventually(
        lambda: site.condition("stream", "kept", "Accepted").get("reason") == "NotAdopted", "a refusal"
    )
    assert "supercluster.dev/resource" not in site.ask("STREAM.INFO.kept")["config"].get("metadata", {})
    site.declare("kept", adopt=True)
    site.ready("kept")
    assert site.ask("STREAM.INFO.kept")["state"]["messages"] == 1


@pytest.mark.covers("OP-5")
def test_delete_deletes_the_stream(site: Site) -> None:
    site.declare("gone", deletionPolicy="Delete")
    site.ready("gone")
    site.kubectl("delete", "stream", "gone", "--timeout=60s")
    assert site.ask("STREAM.INFO.gone")["error"]["err_code"] == 10059


@pytest.mark.covers("SF-23")
def test_of_two_resources_that_claim_a_stream_the_older_has_it(site: Site) -> None:
    site.declare("claimed")
    site.ready("claimed")
    second = stream("second", name="claimed", subjects=["other.>"])
    site.kubectl("apply", "-f", "-", stdin=second)
    eventually(
        lambda: site.condition("stream", "second", "Accepted").get("reason") == "NameConflict", "the refusal"
    )
    assert site.ask("STREAM.INFO.claimed")["config"]["subjects"] == ["claimed.>"]
    site.kubectl("delete", "stream", "second", "--timeout=60s")
    assert (
        site.ask("STREAM.INFO.claimed")["config"]["metadata"]["supercluster.dev/resource"]
        == "default/claimed"
    )


@pytest.mark.covers("SF-23")
def test_a_stream_that_nobody_declared_is_left_alone(site: Site) -> None:
    created = site.ask(
        "STREAM.CREATE.mine", {"name": "mine", "subjects": ["mine"], "num_replicas": 1}, user="app"
    )
    assert "error" not in created
    site.declare("neighbour")
    site.ready("neighbour")
    assert site.ask("STREAM.INFO.mine")["config"] == created["config"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"replicas": 9}, "spec.replicas"),
        ({"colour": "blue"}, 'unknown field "spec.colour"'),
        ({"minReplicas": 5}, "spec.minReplicas must not be more than spec.replicas"),
        ({"subjects": ["a", "a..b"]}, "spec.subjects[1]: Invalid value: \"a..b\": 'a..b' has an empty token"),
    ],
)
def test_kubectl_refuses_a_bad_manifest_and_says_why(site: Site, spec: dict[str, Any], words: str) -> None:
    done = site.kubectl("apply", "-f", "-", stdin=stream("bad", **spec), check=False)
    assert done.returncode != 0
    assert words in done.stderr
    assert not site.exists("stream", "bad")


def test_what_needs_other_objects_is_a_condition_and_an_event(site: Site) -> None:
    site.declare("wide", replicas=5)
    accepted = eventually(lambda: site.condition("stream", "wide", "Accepted"), "the condition")
    assert (accepted["status"], accepted["reason"]) == ("False", "TooManyReplicas")
    assert "spec.replicas is 5" in accepted["message"]
    assert "Cluster east has 3 brokers" in accepted["message"]
    eventually(lambda: "TooManyReplicas" in site.events("wide"), "the event")


def test_a_storage_can_not_be_changed(site: Site) -> None:
    done = site.kubectl("apply", "-f", "-", stdin=stream("flights", storage="Memory"), check=False)
    assert done.returncode != 0
    assert "spec.storage can't be changed" in done.stderr


@pytest.mark.long
@pytest.mark.covers("OP-4")
def test_an_operator_that_is_killed_is_taken_over_and_nothing_is_lost(site: Site) -> None:
    site.declare("before")
    site.ready("before")
    site.with_client(lambda connection: connection.jetstream().publish("before.a", b"1"))
    passwords = (site.password("app"), site.password("operator"))
    os.kill(site.operator(), signal.SIGKILL)
    site.declare("during")
    assert cli("dev", "up", "--state", str(site.state)).returncode == 0
    site.ready("during")
    assert site.ask("STREAM.INFO.before")["state"]["messages"] == 1
    assert (site.password("app"), site.password("operator")) == passwords
    assert "StreamLost" not in site.events("before")


@pytest.mark.covers("OP-4")
def test_an_operator_that_lost_its_lease_begins_anew(site: Site) -> None:
    """A busy machine keeps the control plane from answering for longer than the lease lasts."""
    started = json.loads((site.state / "dev.json").read_text())
    log = site.state / "logs" / "operator.log"
    os.kill(started["plane"]["pid"], signal.SIGSTOP)
    try:
        eventually(lambda: '"beginning anew"' in log.read_text(), "the operator to give up")
    finally:
        os.kill(started["plane"]["pid"], signal.SIGCONT)
    site.declare("afterwards")
    site.ready("afterwards")
    assert processes.is_alive(processes.Process.from_json(started["operator"])), "`dev down` ends this one"


@pytest.mark.covers("OP-3")
def test_a_cluster_grows_and_is_restarted_one_by_one_without_losing_a_message(site: Site) -> None:
    site.declare("rolled")
    site.ready("rolled")
    before = {name: site.get("pod", name)["metadata"]["uid"] for name in ("east-0", "east-1", "east-2")}
    servers = [f"nats://{site.get('pod', name)['status']['podIP']}:4222" for name in before]
    change = {"spec": {"replicas": 5, "limits": {"streamWindowWait": "11s"}}}
    site.kubectl("patch", "cluster.supercluster.dev", "east", "--type=merge", "-p", json.dumps(change))

    def is_rolled() -> bool:
        pods = json.loads(site.kubectl("get", "pods", "-o", "json").stdout)["items"]
        uids = {pod["metadata"]["uid"] for pod in pods}
        return len(uids) == 5 and not uids & set(before.values())

    async def publish() -> int:
        """Publish without a pause until all brokers were restarted; the number of acknowledged messages."""
        client = await nats.connect(
            servers,
            user="app",
            password=password,
            error_cb=ignore,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.1,
        )
        rolled = asyncio.create_task(
            asyncio.to_thread(eventually, is_rolled, "all brokers to be restarted", 180.0)
        )
        number = 0
        while not rolled.done():
            number += 1
            await publish_until_acknowledged(client.jetstream(), number)
        await rolled
        await client.close()
        return number

    password = site.password("app")
    acknowledged = asyncio.run(publish())
    site.kubectl("wait", "--for=condition=Ready", "ncl/east", "--timeout=120s")
    site.ready("rolled")
    assert acknowledged > 0
    assert site.ask("STREAM.INFO.rolled")["state"]["messages"] == acknowledged
    assert [broker["name"] for broker in site.get("ncl", "east")["status"]["brokers"]] == [
        f"east-{n}" for n in range(5)
    ]
    site.declare("five")
    site.ready("five")
    # It waits until the status has the wanted count too.
    site.kubectl("scale", "str/five", "--replicas=5", "--timeout=60s")
    site.ready("five")


def evict(site: Site, pod: str) -> str:
    """As `kubectl drain` does, but asks once; empty when it was allowed."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}}
    path = f"/api/v1/namespaces/default/pods/{pod}/eviction"
    done = site.kubectl("create", "--raw", path, "-f", "-", stdin=body, check=False)
    return "" if done.returncode == 0 else done.stderr


def is_drainable(site: Site) -> bool:
    return site.condition("ncl", "east", "Drainable").get("status") == "True"


NOT_WHOLE = ("BrokersStarting", "BrokersUnreachable", "ReplicasCatchingUp")


def reason_not_drainable(site: Site) -> str:
    return str(site.condition("ncl", "east", "Drainable")["reason"])


@pytest.mark.long
@pytest.mark.covers("OP-3", "CL-7")
def test_brokers_are_evicted_one_at_a_time_and_only_while_all_is_whole(site: Site) -> None:
    eventually(lambda: is_drainable(site), "the cluster to be whole", 60.0)
    eventually(lambda: site.get("pdb", "east")["spec"]["maxUnavailable"] == 1, "the budget to be open")
    assert evict(site, "east-2") == ""
    assert "disruption budget" in evict(site, "east-1"), "one is gone"
    eventually(lambda: site.get("pdb", "east")["spec"]["maxUnavailable"] == 0, "the budget to be closed")
    eventually(lambda: reason_not_drainable(site) in NOT_WHOLE, "the status to say why")
    eventually(lambda: not evict(site, "east-1"), "the next one to be allowed", 90.0)
    back = {entry["name"]: entry["ready"] for entry in site.get("ncl", "east")["status"]["brokers"]}
    assert back["east-2"], "the first one was back before"
    eventually(lambda: is_drainable(site), "the cluster to be whole again", 90.0)
    # The status is written first, the budget behind it.
    eventually(lambda: site.get("pdb", "east")["spec"]["maxUnavailable"] == 1, "the budget to be open")


@pytest.mark.long
@pytest.mark.covers("OP-3")
def test_an_image_that_does_not_come_up_costs_one_broker_and_is_put_right(site: Site) -> None:
    def image(value: str | None) -> None:
        site.kubectl("patch", "ncl", "east", "--type=merge", "-p", json.dumps({"spec": {"image": value}}))

    def synced() -> dict[str, Any]:
        return site.condition("ncl", "east", "Synced")

    before = {entry["name"] for entry in site.get("ncl", "east")["status"]["brokers"] if entry["ready"]}
    image("nosuch/broker:1")
    eventually(lambda: synced().get("reason") == "RolloutStopped", "the roll-out to end", 90.0)
    (broken,) = re.findall(r"^(east-[0-9]) was restarted and does not come up: \S+", synced()["message"])
    assert {
        entry["name"] for entry in site.get("ncl", "east")["status"]["brokers"] if entry["ready"]
    } == before - {broken}
    image(None)
    eventually(lambda: synced().get("status") == "True", "the spec to be put right", 120.0)
    assert "RolloutStopped" in site.events("east")
    eventually(lambda: is_drainable(site), "the cluster to be whole again", 60.0)


@pytest.mark.long
@pytest.mark.covers("OP-3")
def test_a_changed_limit_is_in_force_on_every_broker_without_a_restart(site: Site) -> None:
    names = [entry["name"] for entry in site.get("ncl", "east")["status"]["brokers"]]
    before = {name: site.get("pod", name)["metadata"]["uid"] for name in names}
    site.kubectl("patch", "ncl", "east", "--type=merge", "-p", '{"spec": {"limits": {"maxPayload": "2Mi"}}}')
    eventually(
        lambda: (
            site.get("ncl", "east")["status"]["observedGeneration"]
            == site.get("ncl", "east")["metadata"]["generation"]
            and site.condition("ncl", "east", "Synced")["status"] == "True"
        ),
        "all brokers to have it",
        60.0,
    )
    assert {name: site.get("pod", name)["metadata"]["uid"] for name in names} == before
    assert site.with_client(_max_payload) == 2 << 20


async def _max_payload(client: Client) -> int:
    return client.max_payload


@pytest.mark.covers("OP-3")
def test_with_a_stream_that_needs_all_brokers_none_is_taken_away(site: Site) -> None:
    site.kubectl("scale", "ncl/east", "--replicas=3")
    deferred = eventually(
        lambda: site.condition("ncl", "east", "Deferred").get("status") == "True", "the condition"
    )
    assert deferred
    told = site.condition("ncl", "east", "Deferred")
    assert told["reason"] == "ScaleDownRefused"
    # wide, which was refused while there were three brokers, may have become such a stream as well.
    wanted = "stream (five|wide): 5 replicas, and 3 brokers would be left for them"
    assert re.search(wanted, told["message"]), told["message"]
    assert site.get("statefulset", "east")["spec"]["replicas"] == 5


async def ignore(_: Exception) -> None:
    """Connections break when brokers are restarted; that is what this test is about."""


async def publish_until_acknowledged(jetstream: Any, number: int) -> None:
    while True:
        try:
            await jetstream.publish("rolled.a", b"x", headers={"Nats-Msg-Id": str(number)}, timeout=1)
        except (nats.errors.Error, TimeoutError):
            continue
        return


def test_the_command_line_tells_how_things_stand(site: Site) -> None:
    kubeconfig = str(site.state / "kubeconfig")
    done = cli("status", "--kubeconfig", kubeconfig)
    assert done.returncode == 0
    assert "flights" in done.stdout
    found = json.loads(cli("status", "--kubeconfig", kubeconfig, "-o", "json").stdout)
    assert found["Cluster"][0]["metadata"]["name"] == "east"
    applied = cli("apply", "--kubeconfig", kubeconfig, "-f", str(MANIFESTS), "--force", "--wait")
    assert applied.returncode == 0, applied.stderr
    refused = cli("apply", "--kubeconfig", kubeconfig, "-f", str(Path(__file__)))
    assert refused.returncode == 2


@pytest.mark.long
@pytest.mark.covers("OP-5")
def test_a_deleted_cluster_leaves_its_volumes(site: Site) -> None:
    """The last test: it takes the cluster down."""
    done = site.kubectl("delete", "-f", str(MANIFESTS), "--timeout=60s")
    assert done.stdout.count("deleted") == 3
    eventually(lambda: not site.exists("statefulset", "east"), "the brokers to go")
    claims = json.loads(site.kubectl("get", "pvc", "-o", "json").stdout)["items"]
    assert sorted(claim["metadata"]["name"] for claim in claims) == [f"data-east-{n}" for n in range(5)]

    # A new super-cluster of that name is not the one that the volumes belong to, unless it says so.
    site.kubectl(
        "apply", "-f", str(MANIFESTS / "10-super-cluster.yaml"), "-f", str(MANIFESTS / "20-cluster.yaml")
    )
    identity = eventually(
        lambda: re.search(
            "data of the super-cluster with identity ([0-9a-f-]+)", str(site.get("cluster", "east"))
        ),
        "the condition that tells whose the volumes are",
    ).group(1)
    assert f"identity {identity}" in site.kubectl("get", "events").stdout
    site.kubectl("delete", "cluster/east", "supercluster/demo", "--timeout=60s")
    manifest = yaml.safe_load((MANIFESTS / "10-super-cluster.yaml").read_text())
    manifest["spec"]["identity"] = identity
    site.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    site.kubectl("apply", "-f", str(MANIFESTS / "20-cluster.yaml"))
    site.kubectl("wait", "--for=condition=Ready", "cluster/east", "--timeout=120s")
