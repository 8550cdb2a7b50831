"""Limits of clients in a configuration file, on ours and on nats-server."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import nats
import pytest
from tests.broker.dropin.running import OURS, Server, both
from tests.compat.raw import RawClient
from tests.support.local_clusters import fetch, fresh_address, until

pytestmark = [pytest.mark.e2e]

BEGIN = 'server_name: NAME\nlisten: "HOST:4222"\nhttp: "HOST:8222"\n'


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    found = Server(tmp_path, "s1", fresh_address())
    try:
        yield found
    finally:
        await found.kill()


class Clients:
    """Connections that are closed with the test."""

    def __init__(self, server: Server) -> None:
        self.opened: list[RawClient] = []
        self._server = server

    async def open(self) -> RawClient:
        self.opened.append(await RawClient.open(self._server.host))
        return self.opened[-1]


@pytest.fixture
async def clients(server: Server) -> AsyncIterator[Clients]:
    found = Clients(server)
    yield found
    for client in found.opened:
        await client.close()


async def start(server: Server, command: tuple[str, ...], text: str) -> None:
    server.write(BEGIN + text)
    await server.start(*command)
    await server.ready()


@both
async def test_without_headers_clients_are_told_so_and_held_to_it(
    server: Server, clients: Clients, command: tuple[str, ...]
) -> None:
    await start(server, command, "no_header_support: true")
    client = await clients.open()
    assert client.info["headers"] is False
    client.send('CONNECT {"verbose": false, "headers": true, "no_responders": true}\r\n')
    assert await client.closed() == ["-ERR 'no responders requires headers support'"]
    client = await clients.open()
    client.send('CONNECT {"verbose": false, "headers": true}\r\nSUB a 1\r\nPUB a 1\r\nx\r\n')
    await client.expect("MSG a 1 1")
    client = await clients.open()
    client.send('CONNECT {"verbose": false, "headers": true}\r\nHPUB a 12 13\r\nNATS/1.0\r\n\r\nx\r\n')
    # nats-server ends it without a word, as with all that it can't read.
    assert await client.closed() == (["-ERR 'message headers not supported'"] if command is OURS else [])


@both
async def test_who_does_not_take_what_it_is_sent_within_the_deadline_is_cut_off_alone(
    server: Server, clients: Clients, command: tuple[str, ...]
) -> None:
    """Sixteen megabytes are far below what a client may leave waiting otherwise."""
    await start(server, command, 'write_deadline: "300ms"')
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((server.host, 4222))
        slow.sendall(b'CONNECT {"verbose": false}\r\nSUB a 1\r\nPING\r\n')
        taker, sender = await clients.open(), await clients.open()
        taker.send('CONNECT {"verbose": false}\r\nSUB a 1\r\n')
        await taker.ping()
        sender.send('CONNECT {"verbose": false}\r\n')
        message = b"PUB a 1000000\r\n" + b"x" * 1_000_000 + b"\r\n"
        for _ in range(16):
            sender.send(message)
            await taker.expect("MSG a 1 1000000")
            await taker.line()

        async def is_counted() -> bool:
            _, found = await asyncio.to_thread(fetch, f"http://{server.host}:8222/varz")
            return bool(found["slow_consumers"] == 1 and found["connections"] == 2)

        await until(is_counted, "the slow client to be cut off")
        await taker.ping()
        await sender.ping()


ACCOUNT = """
accounts {
  A { users [{user: a, password: p}, {user: a2, password: p}], limits { max_connections: CONNECTIONS, LIMITS } }
  B { users [{user: b, password: p}] }
}
"""


def limited(connections: int, limits: str) -> str:
    return ACCOUNT.replace("CONNECTIONS", str(connections)).replace("LIMITS", limits)


async def reload(server: Server, text: str) -> None:
    server.write(BEGIN + text)
    before = server.log.read_text().count("Reloaded server configuration")
    assert server.process is not None
    server.process.send_signal(signal.SIGHUP)

    async def is_reloaded() -> bool:
        return server.log.read_text().count("Reloaded server configuration") > before

    await until(is_reloaded, "the file to be read again")


@both
async def test_an_account_has_no_more_clients_than_its_limit_says(
    server: Server, clients: Clients, command: tuple[str, ...]
) -> None:
    await start(server, command, limited(2, "max_leafnodes: 1"))
    first, second = await clients.open(), await clients.open()
    await first.connect(user="a", **{"pass": "p"})
    await first.connect(user="a", **{"pass": "p"})  # Said again it is still one client.
    await second.connect(user="a2", **{"pass": "p"})
    third = await clients.open()
    third.send_connect(user="a", **{"pass": "p"})
    assert await third.closed() == ["-ERR 'maximum account active connections exceeded'"]
    other = await clients.open()
    await other.connect(user="b", **{"pass": "p"})
    await second.close()

    async def has_room() -> bool:
        again = await clients.open()
        again.send_connect(user="a2", **{"pass": "p"})
        again.send("PING\r\n")
        return await again.line() == "PONG"

    await until(has_room, "the place of who has left")
    await reload(server, limited(1, "max_leafnodes: 1"))
    said = []
    for client in (first, clients.opened[-1]):
        client.send("PING\r\n")
        said.append(await client.line())
    gone = "-ERR 'maximum account active connections exceeded'"
    # With nats-server it is not told who has to go.
    assert said == ["PONG", gone] if command is OURS else set(said) == {"PONG", gone}
    await other.ping()


@both
async def test_clients_of_an_account_are_held_to_its_subscriptions_and_payload(
    server: Server, clients: Clients, command: tuple[str, ...]
) -> None:
    await start(server, command, limited(-1, "max_subs: 1, max_pay: 10"))
    client = await clients.open()
    assert client.info["max_payload"] == 1 << 20
    await client.connect(user="a", protocol=1, **{"pass": "p"})
    assert (await client.read_info())["max_payload"] == 10
    client.send("SUB a 1\r\nSUB b 2\r\n")
    await client.expect("-ERR 'maximum subscriptions exceeded'")
    client.send("PUB a 10\r\n0123456789\r\n")
    await client.expect("MSG a 1 10")
    await client.expect("0123456789")
    other = await clients.open()
    await other.connect(user="b", protocol=1, **{"pass": "p"})
    other.send("SUB a 1\r\nSUB b 2\r\nPUB b 11\r\n01234567890\r\n")
    if command is not OURS:
        await (
            other.read_info()
        )  # It tells all clients anew, and not only those to whom it says something else.
    await other.expect("MSG b 2 11")
    client.send("HPUB a 12 13\r\nNATS/1.0\r\n\r\nx\r\n")
    assert await client.closed() == ["-ERR 'Maximum Payload Violation'"]


async def test_what_comes_in_one_read_with_connect_is_held_to_the_accounts_payload_too(
    server: Server, clients: Clients
) -> None:
    await start(server, OURS, limited(-1, "max_payload: 10"))
    other = await clients.open()
    await other.connect(user="a2", **{"pass": "p"})
    other.send("SUB a 1\r\n")
    await other.ping()
    client = await clients.open()
    options = json.dumps({"verbose": False, "user": "a", "pass": "p"})
    client.send(f"CONNECT {options}\r\nPUB a 1\r\nx\r\nPUB a 11\r\n01234567890\r\nPUB a 1\r\ny\r\n")
    assert await client.closed() == ["-ERR 'Maximum Payload Violation'"]
    await other.expect("MSG a 1 1")
    await other.expect("x")
    await other.ping()


@both
async def test_changed_limits_of_an_account_are_those_of_clients_that_are_there(
    server: Server, clients: Clients, command: tuple[str, ...]
) -> None:
    await start(server, command, limited(-1, "max_payload: 10"))
    client = await clients.open()
    await client.connect(user="a", **{"pass": "p"})
    await reload(server, limited(-1, "max_payload: 5, max_subscriptions: 1"))
    client.send("SUB b 1\r\nSUB c 2\r\n")
    await client.expect("-ERR 'maximum subscriptions exceeded'")
    client.send("PUB a 6\r\n012345\r\n")
    assert await client.closed() == ["-ERR 'Maximum Payload Violation'"]


TYPES = """
websocket { listen: "HOST:8080", no_tls: true }
authorization { users [
  {user: s, password: p, allowed_connection_types: STANDARD}
  {user: w, password: p, connection_types: [websocket]}
  {user: m, password: p, allowed_connection_types: [MQTT, LEAFNODE, LEAFNODE_WS, MQTT_WS, IN_PROCESS]}
  {user: x, password: p, allowed_connection_types: []}
] }
NO_AUTH
"""


@both
async def test_users_come_by_the_ways_that_they_may(
    server: Server, clients: Clients, command: tuple[str, ...]
) -> None:
    await start(server, command, TYPES.replace("NO_AUTH", "no_auth_user: w"))

    def said(user: str) -> str:
        login = {"user": user, "pass": "p"} if user else {}
        return f"CONNECT {json.dumps({'verbose': False, **login})}\r\nPING\r\n"

    found = {}
    for user in ("s", "w", "m", "x", ""):
        client = await clients.open()
        client.send(said(user))
        found[user] = await client.line()
    no = "-ERR 'Authorization Violation'"
    assert found == {"s": "PONG", "w": no, "m": no, "x": "PONG", "": no}
    async with aiohttp.ClientSession() as session:
        for user in found:
            async with session.ws_connect(f"http://{server.host}:8080/") as socket_:
                await socket_.receive_bytes(timeout=30)
                await socket_.send_bytes(said(user).encode())
                found[user] = (await socket_.receive_bytes(timeout=30)).decode().partition("\r\n")[0]
    assert found == {"s": no, "w": "PONG", "m": no, "x": "PONG", "": "PONG"}


PAGES = """
websocket {
  listen: "HOST:8080", no_tls: true
  allowed_origins: ["http://localhost:3000"], user_cookie: who, pass_cookie: secret, no_auth_user: anyone
}
authorization { users [{user: anyone, password: p}, {user: a, password: p}] }
"""


@both
async def test_browsers_come_from_pages_that_may_and_cookies_say_who_they_are(
    server: Server, clients: Clients, command: tuple[str, ...]
) -> None:
    await start(server, command, PAGES)

    async def comes(headers: dict[str, str], **connect: str) -> str:
        async with aiohttp.ClientSession(headers=headers) as session:
            try:
                async with session.ws_connect(f"http://{server.host}:8080/") as web:
                    await web.receive_bytes(timeout=30)
                    options = json.dumps({"verbose": False, **connect})
                    await web.send_bytes(f"CONNECT {options}\r\nPING\r\n".encode())
                    return (await web.receive_bytes(timeout=30)).decode().partition("\r\n")[0]
            except aiohttp.WSServerHandshakeError as error:
                return str(error.status)

    no = "-ERR 'Authorization Violation'"
    assert await comes({}) == "PONG"
    assert await comes({"Origin": "http://localhost:3000"}) == "PONG"
    assert await comes({"Origin": "http://localhost:3001"}) == "403"
    assert await comes({"Cookie": "who=a; secret=p"}) == "PONG"
    assert await comes({"Cookie": "who=a; secret=wrong"}) == no
    assert await comes({"Cookie": "who=a"}) == no
    assert await comes({"Cookie": "who=a"}, **{"pass": "p"}) == "PONG"
    assert await comes({"Cookie": "who=a; secret=wrong"}, user="a", **{"pass": "p"}) == "PONG"
    client = await clients.open()
    client.send('CONNECT {"verbose": false}\r\n')
    assert await client.closed() == [no], "by the other port nobody comes without credentials"
    if command is OURS:  # nats-server changes nothing of the block by a reload.
        await reload(server, PAGES.replace(":3000", ":3001"))
        assert await comes({"Origin": "http://localhost:3001"}) == "PONG"


JETSTREAM = """
jetstream {
  store_dir: "STORE"
  limits { max_request_batch: 5, max_ack_pending: 10, duplicate_window: "10s", batch { max_msgs: 2, max_inflight_per_stream: 1 } }
}
"""


@both
async def test_streams_consumers_and_batches_are_held_to_the_limits_of_jetstream(
    server: Server, command: tuple[str, ...], tmp_path: Path
) -> None:
    text = JETSTREAM.replace("STORE", str(tmp_path / "store"))
    await start(server, command, text)
    client = await nats.connect(f"nats://{server.host}:4222", allow_reconnect=False)

    async def ask(call: str, body: dict[str, Any]) -> Any:
        answer = await client.request(f"$JS.API.{call}", json.dumps(body).encode(), timeout=30)
        found = json.loads(answer.data)
        return found["config"] if "config" in found else tuple(found["error"].values())

    async def batch(name: str, number: int) -> Any:
        headers = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(number)}
        answer = (await client.request("S", b"x", headers=headers, timeout=30)).data
        return json.loads(answer)["error"]["err_code"] if answer else 0

    stream = {"name": "S", "subjects": ["S"], "allow_atomic": True}
    too_long = stream | {"duplicate_window": 11_000_000_000}
    refused = (500, 10052, "duplicates window can not be larger then server limit of 10s")
    assert await ask("STREAM.CREATE.S", too_long) == refused
    assert (await ask("STREAM.CREATE.S", stream))["duplicate_window"] == 10_000_000_000
    assert await ask("STREAM.UPDATE.S", too_long) == refused

    async def consumer(**config: Any) -> Any:
        body = {"stream_name": "S", "config": {"name": "C", "ack_policy": "explicit", **config}}
        return await ask("CONSUMER.CREATE.S.C", body)

    assert await consumer(max_batch=6) == (400, 10125, "consumer max request batch exceeds server limit of 5")
    exceeded = (400, 10121, "consumer max ack pending exceeds system limit of 10")
    assert await consumer(max_ack_pending=11) == exceeded
    assert await consumer(max_ack_pending=11, ack_policy="none") == exceeded
    found = await consumer()
    assert (found["max_batch"], found["max_ack_pending"]) == (5, 10)
    assert [await batch("a", 1), await batch("b", 1), await batch("a", 2)] == [0, 10210, 0]
    assert [await batch("a", 3), await batch("b", 1)] == [10199, 0]
    await reload(server, text.replace("max_request_batch: 5", "max_request_batch: 4"))
    assert (await consumer(max_batch=5))[1] == 10125
    await client.close()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("max_sub_tokens: 256", "1:1: max_sub_tokens has to be a whole number from 0 to 255"),
        ("no_header_support: 1", "1:1: no_header_support has to be true or false"),
        (
            "accounts { A { limits { max_subs: many } } }",
            "1:25: accounts.A.limits.max_subscriptions has to be a whole number",
        ),
        (
            "jetstream { limits { max_batch: 1 } }",
            '1:22: unknown field "jetstream.limits.max_batch"',
        ),
        (
            "jetstream { limits { batch { timeout: never } } }",
            "1:30: jetstream.limits.batch.timeout has to be a time",
        ),
        ("accounts { A { limits { max_sub: 1 } } }", '1:25: unknown field "accounts.A.limits.max_sub"'),
        (
            "authorization { users [{user: a, allowed_connection_types: [STANDARD, FOO]}] }",
            "1:71: allowed_connection_types: 'FOO' is none; STANDARD, WEBSOCKET",
        ),
        ("write_deadline: never", "1:1: write_deadline has to be a time"),
    ],
)
async def test_wrong_limits_are_said_with_their_place(server: Server, text: str, why: str) -> None:
    server.write(text)
    await server.start()
    assert server.process is not None
    async with asyncio.timeout(30):
        assert await server.process.wait() == 1
    assert why in server.log.read_text()
