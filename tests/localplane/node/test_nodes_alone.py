"""Nodes that come to an API server by themselves, as `supercluster dev node` brings them: here to one that has no controllers."""

from __future__ import annotations

import datetime as dt
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from tests.localplane.lab import Lab, bare_pod

from supercluster.app import kubeconfig
from supercluster.localplane import certificates
from supercluster.localplane import client as plane_client
from supercluster.localplane.agent import Agent, start_nodes
from supercluster.localplane.certificates import Certificate
from supercluster.localplane.client import Client, Json
from supercluster.localplane.controllers.scheduler import SELECTED_NODE
from supercluster.localplane.node import program
from supercluster.localplane.node.nodes import ForeignNode
from supercluster.localplane.plane import Plane

pytestmark = pytest.mark.e2e


@dataclass
class Site:
    """An API server without controllers, and nodes on request."""

    plane: Plane
    folder: Path
    client: Client
    agents: list[Agent]

    async def nodes(
        self,
        state: str = "nodes",
        count: int = 2,
        names: str = "far",
        client_ca: Path | None = None,
        open_logs: bool = False,
    ) -> Agent:
        access = json.loads(self.plane.kubeconfig_path.read_text())
        client = Client(self.plane.server.plain_url, self.plane.token)
        folder = self.folder / state
        agent = await start_nodes(
            client, folder, count, access, names=names, client_ca=client_ca, open_logs=open_logs
        )
        self.agents.append(agent)
        return agent

    def lab(self, agent: Agent) -> Lab:
        found = Lab(agent.node_agent.state_dir, self.plane, agent, self.client)
        found.follow()
        return found


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    plane = Plane(tmp_path / "plane", 0)
    await plane.start(0)
    client = Client(plane.server.plain_url, plane.token, "test")
    found = Site(plane, tmp_path, client, [])
    yield found
    for agent in found.agents:
        await agent.stop()
    await client.close()
    await plane.stop()


def on_node(pod: Json, node: str) -> Json:
    return {**pod, "spec": {**pod["spec"], "nodeName": node}}


async def test_a_pod_that_is_given_a_node_runs_with_tokens_in_its_volumes(site: Site) -> None:
    agent = await site.nodes()
    lab = site.lab(agent)
    assert {node["metadata"]["name"] for node in agent.cluster[plane_client.NODES].all()} == {
        "far-1",
        "far-2",
    }
    words = "cat /token/vault; test -n $KUBECONFIG; echo; sleep 100"
    pod = bare_pod("one", "-c", words, volumeMounts=[{"name": "token", "mountPath": "/token"}])
    source = {"serviceAccountToken": {"path": "vault", "audience": "vault", "expirationSeconds": 600}}
    pod["spec"]["volumes"] = [{"name": "token", "projected": {"sources": [source]}}]
    await lab.create(plane_client.PODS, on_node(pod, "far-2"))
    await lab.until(lambda: "." in lab.log("one"))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    body = {**review, "spec": {"token": lab.log("one").strip()}}
    told = await site.client.request("POST", path, body=body)
    assert told["status"]["user"]["username"] == "system:serviceaccount:default:default"
    await lab.delete(plane_client.PODS, "one")
    await lab.until(lambda: lab.get(plane_client.PODS, "one") is None)


async def test_its_nodes_give_signs_of_life(site: Site) -> None:
    agent = await site.nodes(count=1)

    async def renewed() -> str:
        found = await site.client.list(plane_client.LEASES, "kube-node-lease")
        return "".join(str(lease["spec"]["renewTime"]) for lease in found["items"])

    await site.lab(agent).until(renewed)


async def test_a_claim_has_a_directory_while_it_lives(site: Site) -> None:
    agent = await site.nodes()
    lab = site.lab(agent)
    await lab.until(lambda: agent.cluster[plane_client.STORAGE_CLASSES].get("", "localplane"))
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim: Json = {
        "metadata": {"name": "data", "namespace": "default", "annotations": {SELECTED_NODE: "far-2"}},
        "spec": {**spec, "storageClassName": "localplane"},
    }
    made = await lab.create(plane_client.CLAIMS, claim)
    elsewhere = {**claim, "metadata": {**claim["metadata"], "name": "other"}}
    elsewhere["metadata"]["annotations"] = {SELECTED_NODE: "moon"}
    await lab.create(plane_client.CLAIMS, elsewhere)
    name = f"pvc-{made['metadata']['uid']}"
    volume = await lab.until(lambda: agent.cluster[plane_client.VOLUMES].get("", name))
    directory = Path(volume["spec"]["hostPath"]["path"])
    assert directory.is_dir()
    rules = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"]
    assert rules[0]["values"] == ["far-2"]
    # What a cluster's controllers do when the claim is deleted.
    await lab.delete(plane_client.CLAIMS, "data")
    await site.client.patch(plane_client.VOLUMES, ("", name), {"status": {"phase": "Released"}}, "status")
    await lab.until(lambda: agent.cluster[plane_client.VOLUMES].get("", name) is None)
    assert not directory.exists()
    assert not list(agent.cluster[plane_client.VOLUMES].all())


async def test_nodes_of_others_are_left_alone(site: Site) -> None:
    first = await site.nodes("first", names="a")
    await site.nodes("second", names="b")
    ready = [
        node["metadata"]["name"]
        for node in first.cluster[plane_client.NODES].all()
        if not node["spec"].get("taints")
    ]
    assert sorted(ready) == ["a-1", "a-2", "b-1", "b-2"]
    with pytest.raises(ForeignNode, match="a-1"):
        await site.nodes("third", names="a")


def test_pods_are_told_the_way_to_the_api_and_nobodys_secrets(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "current-context: x\n"
        "clusters: [{name: c, cluster: {server: 'https://api.test:6443', certificate-authority: ca.crt}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}]\n"
        "users: [{name: u, user: {token: very-secret}}]\n"
    )
    (tmp_path / "ca.crt").write_text("AUTHORITY")
    told = program.access(kubeconfig.load(str(config)))
    assert "very-secret" not in json.dumps(told)
    assert told["clusters"][0]["cluster"] == {
        "server": "https://api.test:6443",
        "certificate-authority-data": "QVVUSE9SSVRZ",
    }


def client_context(certificate: Certificate | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate.certificate, certificate.key)
    return context


async def test_open_logs_are_for_every_client(site: Site) -> None:
    agent = await site.nodes(open_logs=True)
    node = next(iter(agent.cluster[plane_client.NODES].all()))
    address = node["status"]["addresses"][0]["address"]
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    connector = aiohttp.TCPConnector(ssl=client_context(None))
    async with aiohttp.ClientSession(connector=connector) as session:
        async with session.get(f"https://{address}:{port}/containerLogs/default/none/main") as answer:
            assert answer.status == 404
            assert "does not run here" in await answer.text()


async def test_logs_are_for_those_with_a_certificate_of_the_api_server(site: Site) -> None:
    now = dt.datetime.now(dt.UTC)
    known, stranger = (certificates.ensure(site.folder, now, name) for name in ("known", "stranger"))
    agent = await site.nodes(client_ca=known.certificate)
    lab = site.lab(agent)
    words = "test -e again && echo two && sleep 100; echo one; touch again; exit 1"
    await lab.create(plane_client.PODS, on_node(bare_pod("one", "-c", words), "far-2"))
    await lab.until(lambda: "two" in lab.log("one"))
    (node,) = (
        node for node in agent.cluster[plane_client.NODES].all() if node["metadata"]["name"] == "far-2"
    )
    address = node["status"]["addresses"][0]["address"]
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]

    async def get(path: str, certificate: Certificate | None = known) -> tuple[int, str]:
        connector = aiohttp.TCPConnector(ssl=client_context(certificate))
        async with aiohttp.ClientSession(connector=connector) as session:
            async with session.get(f"https://{address}:{port}{path}") as answer:
                return answer.status, await answer.text()

    logs = "/containerLogs/default/one/main"
    assert await get(logs) == (200, "two\n")
    assert await get(f"{logs}?previous=true") == (200, "one\n")
    assert await get(f"{logs}?limitBytes=2") == (200, "tw")
    assert (await get(f"{logs}?timestamps=true"))[0] == 400
    assert (await get("/containerLogs/default/two/main"))[0] == 404
    assert (await get("/containerLogs/default/one/other"))[0] == 404
    for certificate in (None, stranger):
        with pytest.raises((aiohttp.ClientError, OSError)):
            await get(logs, certificate)
