"""Processes in nats-server's place whose files have a block `gateway`: one super-cluster with one map of streams."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from tests.broker.dropin.running import IMPATIENT, OURS, Server, again, both
from tests.support.certificates import Authority
from tests.support.local_clusters import fetch, fresh_address, until

pytestmark = [pytest.mark.e2e]

CONF = """
server_name: NAME
listen: "HOST:4222"
http: "HOST:8222"
STREAMS
accounts {
  $SYS { users [ {user: sys, password: s} ] }
  APP { jetstream: enabled, users [ {user: a, password: b} ] }
}
ROUTES
gateway {
  name: CLUSTER
  listen: "HOST:7222"
  authorization { user: gate, password: secret }
  gateways: [ GATEWAYS ]
  TLS
}
"""
ROUTES = 'cluster { name: CLUSTER, listen: "HOST:6222", routes: [ LIST ] }'


class Clusters:
    """Servers by cluster; each file names all clusters."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: dict[str, list[Server]] = {}

    def __getitem__(self, cluster: str) -> Server:
        return self.servers[cluster][0]

    def add(self, constants: Mapping[str, int] = MappingProxyType({}), **sizes: int) -> None:
        for cluster, size in sizes.items():
            names = [f"{cluster.lower()}{number}" for number in range(1, size + 1)]
            self.servers[cluster] = [Server(self.folder, name, fresh_address()) for name in names]
            for server in self.servers[cluster]:
                server.constants = dict(constants)

    def write(
        self, *clusters: str, streams: bool = True, routes: bool = True, tls: str = "", named: str = ""
    ) -> None:
        """Files for these clusters, or all; `named`: those whose names they give, in place of all."""
        listed = []
        for cluster, servers in self.servers.items():
            urls = ", ".join(f'"nats://gate:secret@{server.host}:7222"' for server in servers)
            if cluster in (named or self.servers):
                listed.append(f"{{name: {cluster}, urls: [{urls}]}}")
        for cluster in clusters or self.servers:
            servers = self.servers[cluster]
            urls = ", ".join(f'"nats-route://{server.host}:6222"' for server in servers)
            for server in servers:
                words = {
                    "ROUTES": ROUTES if len(servers) > 1 else "",
                    "LIST": urls if routes else "",
                    "CLUSTER": cluster,
                    "GATEWAYS": ", ".join(listed),
                    "STREAMS": f'jetstream {{ store_dir: "{self.folder}/js-{server.name}" }}'
                    if streams
                    else "",
                    "TLS": tls,
                }
                server.write(CONF, **words)

    async def start(self, *clusters: str, command: tuple[str, ...] = OURS) -> None:
        for cluster in clusters or self.servers:
            for server in self.servers[cluster]:
                await server.start(*command)
        for cluster in clusters or self.servers:
            for server in self.servers[cluster]:
                await server.ready()


@pytest.fixture
async def clusters(tmp_path: Path) -> AsyncIterator[Clusters]:
    found = Clusters(tmp_path)
    try:
        yield found
    finally:
        for server in [server for servers in found.servers.values() for server in servers]:
            await server.kill()


async def gateways(server: Server, cluster: str) -> dict[str, Any]:
    """What the system account is told by a server of that cluster; servers of all clusters answer."""
    client = await nats.connect(f"nats://{server.host}:4222", user="sys", password="s")

    async def told() -> dict[str, Any] | None:
        try:
            answer = await client.request("$SYS.REQ.SERVER.PING.GATEWAYZ", timeout=2)
        except nats.errors.Error:
            return None
        data: dict[str, Any] = json.loads(answer.data)["data"]
        return data if data["name"] == cluster else None

    try:
        found: dict[str, Any] = await until(told, f"GATEWAYZ of cluster {cluster}")
        return found
    finally:
        await client.close()


async def cross(one: Client, other: Client) -> None:
    """Messages and requests, both ways."""

    async def answer(message: Msg) -> None:
        await message.respond(b"from " + message.data)

    for number, (here, there) in enumerate(((one, other), (other, one))):
        await there.subscribe(f"plain.{number}", cb=answer)
        await there.flush()
        request = f"plain.{number}"
        got = await again(functools.partial(here.request, request, b"afar", timeout=2), "an answer")
        assert got.data == b"from afar"


@both
async def test_messages_and_requests_cross_between_clusters(
    clusters: Clusters, command: tuple[str, ...]
) -> None:
    clusters.add(A=1, B=1)
    clusters.write(streams=False)
    await clusters.start(command=command)
    one, other = await clusters["A"].client(), await clusters["B"].client()
    await cross(one, other)
    told = await gateways(clusters["A"], "A")
    assert (told["name"], told["port"], told["host"]) == ("A", 7222, clusters["A"].host)
    assert {*told["outbound_gateways"], *told["inbound_gateways"]} == {"B"}
    await one.close()
    await other.close()


async def use_a_stream(server: Server, there: Server, cluster: str) -> None:
    """A stream in `there`'s cluster is made, written and read by way of both."""
    client, far = await server.client(), await there.client()
    js, js_far = client.jetstream(timeout=2), far.jetstream(timeout=2)
    found = await again(lambda: js_far.add_stream(name="S", subjects=["s.>"]), "a stream")
    assert found.cluster.name == cluster
    for number in range(10):
        message, headers = b"%d" % number, {"Nats-Msg-Id": str(number)}
        await again(functools.partial(js.publish, "s.x", message, headers=headers), "an acknowledgement")
    reader = await again(lambda: js.pull_subscribe("s.>", durable="D"), "a consumer")
    messages = await reader.fetch(10, timeout=60)
    assert [message.data for message in messages] == [b"%d" % number for number in range(10)]
    for message in messages:
        await message.ack_sync()
    assert (await js_far.consumer_info("S", "D")).ack_floor.stream_seq == 10
    await client.close()
    await far.close()


async def test_two_clusters_of_one_server_have_one_map_of_streams_and_keep_it(clusters: Clusters) -> None:
    """Each starts alone first: clients are let in, and streams wait for the other."""
    clusters.add(IMPATIENT, B=1, A=1)
    clusters.write()
    await clusters.start("A")
    client = await clusters["A"].client()
    with pytest.raises(nats.js.errors.ServiceUnavailableError):
        await client.jetstream(timeout=15).add_stream(name="S", subjects=["s.>"])
    await client.close()
    await clusters.start("B")
    await use_a_stream(clusters["A"], clusters["B"], "B")
    for server in (clusters["A"], clusters["B"]):
        await server.kill()
        server.log.write_text("")
    await clusters.start("B", "A")
    client = await clusters["A"].client()
    found = await again(lambda: client.jetstream(timeout=2).stream_info("S"), "the stream")
    assert (found.state.messages, found.cluster.leader) == (10, "b1")
    await client.close()


async def test_clusters_with_routes_are_joined_over_tls(clusters: Clusters, tmp_path: Path) -> None:
    certificate = Authority(tmp_path, "ours").sign("server")
    tls = f'tls {{ cert_file: "{certificate.cert}", key_file: "{certificate.key}", ca_file: "{certificate.ca}" }}'
    clusters.add(A=2, B=1)
    clusters.write(tls=tls)
    await clusters.start()
    await use_a_stream(clusters["B"], clusters.servers["A"][1], "A")
    _, found = await asyncio.to_thread(fetch, f"http://{clusters['B'].host}:8222/varz")
    assert found["gateway"]["tls_required"] is True

    async def all_linked() -> bool:
        _, told = await asyncio.to_thread(fetch, f"http://{clusters['B'].host}:8222/gatewayz")
        return len(told["outbound_gateways"]) + sum(map(len, told["inbound_gateways"].values())) == 2

    await until(all_linked, "links with both servers of A")


async def test_files_that_name_different_clusters_are_not_linked(clusters: Clusters) -> None:
    clusters.add(IMPATIENT, A=1, B=1, C=1)
    clusters.write("A")
    clusters.write("B", named="AB")
    await clusters.start("A", "B")

    async def is_said(server: Server, text: str) -> bool:
        return text in server.log.read_text()

    await until(
        lambda: is_said(clusters["A"], "(clusters A, B), this broker to nats (clusters A, B, C)"), "a refusal"
    )
    await until(
        lambda: is_said(clusters["B"], "(clusters A, B, C), this broker to nats (clusters A, B)"), "a refusal"
    )
    assert "secret" not in clusters["A"].log.read_text() + clusters["B"].log.read_text()


async def test_servers_of_a_cluster_without_routes_begin_no_map_each(clusters: Clusters) -> None:
    """B is linked with both, and tells them of each other."""
    clusters.add(IMPATIENT, A=2, B=1)
    clusters.write(routes=False)
    first, second = clusters.servers["A"]
    await clusters.start()
    await until(lambda: _says(first, "a2 is a server of this cluster according to b1"), "a1 to hear of a2")
    await until(lambda: _says(second, "a1 is a server of this cluster according to b1"), "a2 to hear of a1")
    client = await clusters["B"].client()
    with pytest.raises(nats.js.errors.ServiceUnavailableError):
        await client.jetstream(timeout=15).add_stream(name="S", subjects=["s.>"])
    await client.close()


async def _says(server: Server, text: str) -> bool:
    return text in server.log.read_text()


async def test_streams_that_another_map_has_are_not_taken_along(clusters: Clusters) -> None:
    clusters.add(A=1, B=1)
    clusters.write("B", named="B")
    await clusters.start("B")
    await clusters["B"].kill()
    clusters["B"].log.write_text("")
    clusters.write()
    await clusters["B"].start()
    process = clusters["B"].process
    assert process is not None
    async with asyncio.timeout(30):
        assert await process.wait() == 1
    text = clusters["B"].log.read_text()
    assert (
        "it holds data of the super-cluster with identity clusters-from-B, and this broker is of clusters-from-A"
        in text
    )
