"""Three processes in nats-server's place, with routes to each other: one cluster, as three nats-servers with the same files."""

from __future__ import annotations

import asyncio
import functools
import json
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import nats
import pytest
from nats.aio.msg import Msg
from nats.js.api import StreamConfig
from tests.broker.dropin.running import IMPATIENT, Server, again, both, linked
from tests.compat.raw import RawClient
from tests.support.certificates import Authority
from tests.support.local_clusters import fresh_address, until

pytestmark = [pytest.mark.e2e]

CONF = """
server_name: NAME
listen: "HOST:4222"
http: "HOST:8222"
jetstream { store_dir: "DIR/js-NAME" }
authorization { users [ {user: a, password: b} ] }
cluster {
  name: C1
  listen: "HOST:6222"
  authorization { user: route, password: secret, timeout: 2 }
  routes: [ ROUTES ]
  TLS
}
"""


def write(server: Server, folder: Path, routes: list[str], tls: str = "") -> None:
    listed = ", ".join(f'"nats-route://route:secret@{host}:6222"' for host in routes)
    server.write(CONF, DIR=str(folder), ROUTES=listed, TLS=tls)


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[list[Server]]:
    started = [Server(tmp_path, f"s{number}", fresh_address()) for number in (1, 2, 3)]
    try:
        yield started
    finally:
        for server in started:
            await server.kill()


async def use(servers: list[Server]) -> None:
    """A stream with three replicas is written on one server, read on another, and outlives the loss of a third. While a
    cluster forms, or has just lost somebody, clients try again."""
    for server in servers:
        await server.ready()
    client, there = await servers[0].client(), await servers[1].client()
    js, js_there = client.jetstream(timeout=2), there.jetstream(timeout=2)
    await again(lambda: js.add_stream(name="S", subjects=["s.>"], num_replicas=3), "a stream")
    for number in range(20):
        subject, headers = f"s.{number}", {"Nats-Msg-Id": str(number)}
        await again(functools.partial(js.publish, subject, b"x", headers=headers), "an acknowledgement")
    found = await again(lambda: js_there.stream_info("S"), "the stream's information")
    assert {found.cluster.leader, *(peer.name for peer in found.cluster.replicas)} == {"s1", "s2", "s3"}
    assert found.state.messages == 20

    async def answer(message: Msg) -> None:
        await message.respond(b"over a route")

    await there.subscribe("plain", cb=answer)
    await there.flush()
    assert (await again(lambda: client.request("plain", timeout=2), "an answer")).data == b"over a route"
    await servers[2].kill()
    stored = await again(lambda: js.publish("s.more", b"x"), "a message to be stored by two of three")
    assert stored.seq > 20
    reader = await again(lambda: js_there.pull_subscribe("s.>", durable="D"), "a consumer")
    assert len(await again(lambda: reader.fetch(20, timeout=2), "messages")) > 0
    await client.close()
    await there.close()


@both
async def test_routes_make_a_cluster(servers: list[Server], tmp_path: Path, command: tuple[str, ...]) -> None:
    for server in servers:
        write(server, tmp_path, [other.host for other in servers])
        await server.start(*command)
    await use(servers)


async def test_one_server_that_all_know_is_enough(servers: list[Server], tmp_path: Path) -> None:
    """The seed has no routes, and starts last: the others learn of each other by it."""
    for server in servers:
        write(server, tmp_path, [] if server is servers[2] else [servers[2].host])
    for server in servers:
        await server.start()
    for server in servers:
        await linked(server, 2)
    await use(servers)


async def test_each_starts_while_the_others_are_not_there(servers: list[Server], tmp_path: Path) -> None:
    for server in servers:
        write(server, tmp_path, [other.host for other in servers])
        server.constants = IMPATIENT
        await server.start()
        await server.ready()
        await (await server.client()).close()
    await use(servers)


WITH_SYSTEM = CONF.replace(
    "authorization { users [ {user: a, password: b} ] }",
    "accounts { A { users [ {user: a, password: b} ], jetstream: enabled }, SYS { users [ {user: s, password: t} ] } }\n"
    "system_account: SYS",
)


@both
async def test_copies_of_a_server_that_is_removed_get_others_in_its_place(
    servers: list[Server], tmp_path: Path, command: tuple[str, ...]
) -> None:
    servers.append(Server(tmp_path, "s4", fresh_address()))
    routes = ", ".join(f'"nats-route://route:secret@{server.host}:6222"' for server in servers)
    for server in servers:
        server.write(WITH_SYSTEM, DIR=str(tmp_path), ROUTES=routes, TLS="")
        await server.start(*command)
    for server in servers:
        await server.ready()
        await linked(server, 3)
    client = await servers[0].client()
    js = client.jetstream(timeout=2)
    for number in range(3):
        config = StreamConfig(name=f"S{number}", subjects=[f"s{number}"], num_replicas=3)
        await again(functools.partial(js.add_stream, config), "a stream")
        await again(functools.partial(js.publish, f"s{number}", b"x"), "an acknowledgement")

    async def members(number: int) -> set[str]:
        cluster = (await again(lambda: js.stream_info(f"S{number}"), "information")).cluster
        return {cluster.leader, *(peer.name for peer in cluster.replicas)}

    of_first = await members(0)
    gone = next(server for server in servers[1:] if server.name in of_first)
    there = {server.name for server in servers} - {gone.name}
    held = [number for number in range(3) if gone.name in await members(number)]
    await gone.kill()
    system = await nats.connect(f"nats://{servers[0].host}:4222", user="s", password="t")

    async def is_removed() -> bool:
        body = json.dumps({"peer": gone.name}).encode()
        answer = json.loads((await system.request("$JS.API.SERVER.REMOVE", body, timeout=2)).data)
        return bool(answer.get("success"))

    await until(lambda: again(is_removed, "an answer"), "the server to be removed")
    for number in held:
        await until(functools.partial(_is, functools.partial(members, number), there), "others in its place")
    await system.close()
    await client.close()


async def _is(found: Callable[[], Awaitable[set[str]]], wanted: set[str]) -> bool:
    return await found() == wanted


WITHOUT_STREAMS = CONF.replace('jetstream { store_dir: "DIR/js-NAME" }', "lame_duck_grace_period: 200ms")


async def start_without_streams(servers: list[Server], which: list[Server], *command: str) -> None:
    """These of them, one after another."""
    routes = ", ".join(f'"nats-route://route:secret@{server.host}:6222"' for server in servers)
    for server in which:
        server.write(WITHOUT_STREAMS, ROUTES=routes, TLS="")
        await server.start(*command)
        await server.ready()


@pytest.mark.covers("CL-4")
async def test_a_server_that_is_ready_tells_its_clients_of_all_that_are(servers: list[Server]) -> None:
    """Those that were there before, too."""
    first, *later = servers
    there = {f"{server.host}:4222" for server in servers}
    await start_without_streams(servers, [first])
    early = await RawClient.open(first.host)
    await early.connect(protocol=1, user="a", **{"pass": "b"})
    await start_without_streams(servers, later)
    for server in (first, later[-1]):
        late = await RawClient.open(server.host)
        assert set(late.info["connect_urls"]) == there
        await late.close()
    async with asyncio.timeout(30):
        while set((await early.read_info())["connect_urls"]) != there:
            pass
    await early.close()


@both
@pytest.mark.covers("CL-4")
async def test_a_lame_ducks_client_goes_to_another_server(
    servers: list[Server], command: tuple[str, ...]
) -> None:
    await start_without_streams(servers, servers, *command)
    came = asyncio.Event()

    async def reconnected() -> None:
        came.set()

    first = servers[0]
    client = await nats.connect(
        f"nats://{first.host}:4222",
        user="a",
        password="b",
        reconnected_cb=reconnected,
        reconnect_time_wait=0.1,
    )
    heard = await client.subscribe("a")
    await until(lambda: asyncio.sleep(0, len(client.servers) == 3), "all servers to be known")
    assert first.process is not None
    first.process.send_signal(signal.SIGUSR2)
    async with asyncio.timeout(60):
        await came.wait()
        assert client.connected_url is not None
        assert client.connected_url.hostname in [server.host for server in servers[1:]]
        await client.publish("a", b"x")
        assert (await heard.next_msg(timeout=30)).data == b"x"
        await client.close()
        assert await first.process.wait() == 0


async def test_a_server_comes_back_with_its_streams(servers: list[Server], tmp_path: Path) -> None:
    for server in servers:
        write(server, tmp_path, [other.host for other in servers])
        await server.start()
    await use(servers)
    servers[2].log.write_text("")
    await servers[2].start()
    await servers[2].ready()
    client = await servers[2].client()

    async def is_whole() -> bool:
        info = await again(lambda: client.jetstream(timeout=2).stream_info("S"), "information")
        return all(peer.current for peer in info.cluster.replicas) and info.state.messages > 20

    await until(is_whole, "three current replicas")
    await client.close()
    for server in servers:
        assert "secret" not in server.log.read_text()


async def test_links_are_encrypted_where_the_block_says_so(servers: list[Server], tmp_path: Path) -> None:
    certificate = Authority(tmp_path, "ours").sign("server")
    tls = f'tls {{ cert_file: "{certificate.cert}", key_file: "{certificate.key}", ca_file: "{certificate.ca}" }}'
    for server in servers:
        write(server, tmp_path, [other.host for other in servers], tls)
        await server.start()
    await use(servers)
    mine = ssl.create_default_context(cafile=certificate.ca)
    mine.check_hostname = False
    mine.load_cert_chain(certificate.cert, certificate.key)
    for server in servers[:2]:
        _, writer = await asyncio.open_connection(server.host, 6222, ssl=mine)
        assert writer.get_extra_info("ssl_object").version() in ("TLSv1.2", "TLSv1.3")
        writer.close()


async def test_who_has_another_password_or_name_is_not_let_in(servers: list[Server], tmp_path: Path) -> None:
    _, second, third = servers
    for server in servers:
        write(server, tmp_path, [other.host for other in servers])
    second.conf.write_text(second.conf.read_text().replace("secret", "other"))
    third.conf.write_text(third.conf.read_text().replace("name: C1", "name: C2"))
    for server in servers:
        server.constants = IMPATIENT
        await server.start()
        await server.ready()

    async def said(server: Server, text: str) -> bool:
        return text in server.log.read_text()

    await until(lambda: said(second, "credentials are not among the accepted ones"), "a refusal")
    await until(lambda: said(third, "it is of cluster C2, this one of C1"), "a refusal")
    for server in servers:
        await linked(server, 0)
