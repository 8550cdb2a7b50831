"""The process in nats-server's place: its flags, files and signals, with a real client."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import nats
import pytest
from nats.errors import Error
from nats.js.errors import BadRequestError
from tests.compat.raw import RawClient
from tests.support.broker_forks import BROKER, AsyncBrokerFork
from tests.support.certificates import Authority
from tests.support.local_clusters import until
from tests.support.nkeys import Nkey

from supercluster.broker.jetstream.config.metadata_keys import FSYNC_KEY
from supercluster.broker.storage.log.group_files import HARD_STATE, HardState
from supercluster.broker.storage.log.slot_file import newest

pytestmark = pytest.mark.e2e

CONF = """
listen: 127.0.0.1:-1
http: 127.0.0.1:-1
max_payload: 2MB
jetstream { store_dir: DIR/js }
accounts {
  A { users [{user: a, password: PASS}], jetstream { max_streams: 1 } }
  SYS { users [{user: s, password: t}] }
}
system_account: SYS
"""


class Server:
    """One process, with its log."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "log"
        self._process: asyncio.subprocess.Process | AsyncBrokerFork | None = None

    async def start(self, *flags: str, by_hand: bool = False) -> dict[str, list[str]]:
        """Start it and wait for its line; what its ports file says. By hand: as a user does, by the command line."""
        ports = self.directory / "ports"
        ports.mkdir(exist_ok=True)
        self.log.write_text("")
        words = (
            *flags,
            "--ports_file_dir",
            str(ports),
            "-l",
            str(self.log),
            "-P",
            str(self.directory / "pid"),
        )
        if by_hand:
            self._process = await asyncio.create_subprocess_exec(sys.executable, "-m", BROKER, *words)
        else:
            self._process = AsyncBrokerFork(words, self.directory / "output")
        await self.said("Server is ready")
        (file,) = ports.iterdir()
        told: dict[str, list[str]] = json.loads(file.read_text())
        return told

    async def said(self, text: str) -> None:
        """Wait until the log has it."""
        async with asyncio.timeout(30):
            while text not in self.log.read_text():
                assert self._process is not None
                assert self._process.returncode is None or text in self.log.read_text(), self.log.read_text()
                await asyncio.sleep(0.02)

    async def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def ended(self) -> int:
        assert self._process is not None
        async with asyncio.timeout(30):
            return await self._process.wait()

    async def close(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    found = Server(tmp_path)
    try:
        yield found
    finally:
        await found.close()


def write(server: Server, password: str, more: str = "") -> str:
    file = server.directory / "a.conf"
    file.write_text(CONF.replace("DIR", str(server.directory)).replace("PASS", password) + more)
    return str(file)


@pytest.mark.covers("RP-6")
async def test_a_server_that_syncs_always_confirms_what_is_on_the_disk(server: Server) -> None:
    """The file of a stream's vote says that it owes nothing: all that was confirmed had been fsynced."""
    (server.directory / "a.conf").write_text(
        f"listen: 127.0.0.1:-1\nhttp: 127.0.0.1:-1\n"
        f"jetstream {{ store_dir: {server.directory}/js, sync_interval: always }}"
    )
    told = await server.start("-c", str(server.directory / "a.conf"))
    client = await nats.connect(told["nats"][0])
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s.>"])

    async def owes() -> bool:
        (path,) = server.directory.glob(f"js/**/S*/{HARD_STATE}")
        found = newest(path.read_bytes())
        return found is not None and HardState.decode(found[1]).owes

    for _ in range(3):
        await js.publish("s.1", b"x")
    assert not await owes()
    async with aiohttp.ClientSession() as session, session.get(f"{told['monitoring'][0]}/jsz") as response:
        assert (await response.json())["config"]["sync_always"] is True
    stream = (await js.stream_info("S")).config
    stream.metadata = {FSYNC_KEY: "never"}
    await js.update_stream(stream)

    async def publish_and_owe() -> bool:
        await js.publish("s.1", b"y")
        return await owes()

    await until(publish_and_owe, "the stream's own policy")
    await client.close()


async def test_the_monitoring_port_has_nats_servers_pages(server: Server) -> None:
    told = await server.start("-c", write(server, "b"))
    (root,) = told["monitoring"]
    client = await nats.connect(told["nats"][0], user="a", password="b")
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s.>"])
    await js.publish("s.1", b"x")
    await js.add_consumer("S", durable_name="c")
    await client.subscribe("foo.*")
    await client.flush()

    async def get(path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(root + path) as response:
            return response.status, await response.text()

    async def page(path: str) -> Any:
        status, text = await get(path)
        assert status == 200, text
        return json.loads(text)

    jsz = await page("/jsz")
    assert (jsz["streams"], jsz["consumers"], jsz["messages"]) == (1, 1, 1)
    assert "account_details" not in jsz
    (account,) = (await page("/jsz?acc=A&streams=true&consumers=1&config=true"))["account_details"]
    (stream,) = account["stream_detail"]
    assert (stream["config"]["subjects"], stream["state"]["messages"]) == (["s.>"], 1)
    assert [each["name"] for each in stream["consumer_detail"]] == ["c"]
    assert (await page("/subsz?subs=1&test=foo.1"))["subscriptions_list"][0]["subject"] == "foo.*"
    assert "A" in (await page("/accountz"))["accounts"]
    assert (await page("/accountz?acc=A"))["account_detail"]["client_connections"] == 1
    assert [each["acc"] for each in (await page("/accstatz"))["account_statz"]] == ["A"]
    assert (await page("/leafz"))["leafnodes"] == 0
    (connection,) = (await page("/connz?subs=1&auth=true&limit=-1&state=open"))["connections"]
    assert connection["authorized_user"] == "a"
    assert "foo.*" in connection["subscriptions_list"]
    assert "subscriptions_list_detail" in (await page("/connz?subs=detail"))["connections"][0]
    assert (await page("/healthz?account=A&stream=S&consumer=c"))["status"] == "ok"
    assert "/jsz" in (await get("/"))[1]
    assert await get("/connz?sort=zz") == (400, "invalid sorting option: zz")
    for wrong in ("/jsz?limit=x", "/jsz?accounts=zz", "/connz?state=x", "/accountz?acc=NOPE"):
        assert (await get(wrong))[0] == 400
    await client.close()


async def test_a_configuration_is_carried_out_reloaded_and_survives_a_restart(server: Server) -> None:
    told = await server.start("-c", write(server, "b"), by_hand=True)
    (url,) = told["nats"]
    assert told["monitoring"][0].startswith("http://127.0.0.1:")
    client = await nats.connect(url, user="a", password="b")
    assert client.max_payload == 2 << 20
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s.>"])
    assert (await js.publish("s.1", b"x")).seq == 1
    with pytest.raises(BadRequestError, match="maximum number of streams"):
        await js.add_stream(name="S2", subjects=["t.>"])
    await client.close()

    write(server, "c")
    await server.send(signal.SIGHUP)
    await server.said("Reloaded server configuration")
    assert await refusal(url, "a", "b") == b"-ERR 'Authorization Violation'\r\n"
    client = await nats.connect(url, user="a", password="c")
    await client.close()
    write(server, "d", "prot: 1\n")
    await server.send(signal.SIGHUP)
    await server.said('unknown field "prot"')
    client = await nats.connect(url, user="a", password="c")
    await client.close()

    await server.send(signal.SIGTERM)
    assert await server.ended() == 0
    assert not list((server.directory / "ports").iterdir())
    assert not (server.directory / "pid").exists()

    told = await server.start("-c", write(server, "c"))
    client = await nats.connect(told["nats"][0], user="a", password="c")
    assert (await client.jetstream().stream_info("S")).state.messages == 1
    await client.close()


SHARED = """
listen: 127.0.0.1:-1
jetstream { store_dir: DIR/js, domain: hub }
accounts {
  A {
    users [{user: a, password: a}]
    jetstream {
      max_streams: 2, max_consumers: 2, max_ack_pending: 100, max_bytes_required: true
      memory_max_stream_bytes: 1000, store_max_stream_bytes: 2000
    }
    exports [{stream: "a.>"}, {service: "$JS.API.>", response_type: stream, latency: {subject: l, sampling: 1}}]
  }
  B {
    users [{user: b, password: b}]
    imports [{stream: {account: A, subject: "a.>"}, to: "b.>"}, {service: {account: A, subject: "$JS.API.>"}, to: "JS.A.>"}]
  }
}
no_auth_user: b
"""


async def test_accounts_share_and_are_held_to_their_limits(server: Server) -> None:
    file = server.directory / "a.conf"
    file.write_text(SHARED.replace("DIR", str(server.directory)))
    (url,) = (await server.start("-c", str(file)))["nats"]
    await server.said("latency has no effect here")
    a, b = await nats.connect(url, user="a", password="a"), await nats.connect(url)

    async def call(name: str, body: object = None) -> dict[str, Any]:
        payload = b"" if body is None else json.dumps(body).encode()
        found: dict[str, Any] = json.loads((await b.request(f"JS.A.{name}", payload, timeout=30)).data)
        return found

    async def refused(name: str, body: object) -> tuple[int, int]:
        error = (await call(name, body))["error"]
        return error["code"], error["err_code"]

    told = json.loads((await b.request("$JS.API.INFO", b"", timeout=30)).data)
    assert told["error"] == {
        "code": 503,
        "err_code": 10039,
        "description": "JetStream not enabled for account",
    }
    info = await call("INFO")
    assert info["domain"] == "hub"
    assert info["limits"] == {
        "max_memory": -1,
        "max_storage": -1,
        "max_streams": 2,
        "max_consumers": 2,
        "max_ack_pending": 100,
        "memory_max_stream_bytes": 1000,
        "storage_max_stream_bytes": 2000,
        "max_bytes_required": True,
    }
    stream = {"name": "S", "subjects": ["a.>"]}
    assert await refused("STREAM.CREATE.S", stream) == (400, 10113)
    assert await refused("STREAM.CREATE.S", stream | {"max_bytes": 2001}) == (400, 10122)
    assert await refused("STREAM.CREATE.S", stream | {"max_bytes": 1001, "storage": "memory"}) == (400, 10122)
    assert "error" not in await call("STREAM.CREATE.S", stream | {"max_bytes": 2000})
    assert await refused("STREAM.UPDATE.S", stream | {"max_bytes": 2001}) == (400, 10122)
    assert await refused("STREAM.UPDATE.S", stream | {"max_bytes": -1}) == (400, 10113)

    def consumer(name: str, **more: object) -> tuple[str, dict[str, object]]:
        config = {"name": name, "ack_policy": "explicit", **more}
        return f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config}

    assert await refused(*consumer("C", max_ack_pending=101)) == (400, 10121)
    assert (await call(*consumer("C")))["config"]["max_ack_pending"] == 100
    assert (await call(*consumer("D", max_ack_pending=-1)))["config"]["max_ack_pending"] == -1
    assert await refused(*consumer("E", ack_policy="none")) == (400, 10026)
    heard = await b.subscribe("b.*")
    await b.flush()
    assert (await a.jetstream().publish("a.1", b"x")).domain == "hub"
    assert (await heard.next_msg(timeout=30)).subject == "b.1"
    file.write_text(SHARED.replace("DIR", str(server.directory)).replace("b.>", "c.>"))
    other = await b.subscribe("c.*")
    await b.flush()
    await server.send(signal.SIGHUP)
    await server.said("Reloaded server configuration")
    await a.publish("a.2", b"y")
    assert (await other.next_msg(timeout=30)).subject == "c.2"
    assert heard.pending_msgs == 0
    file.write_text(SHARED.replace("DIR", str(server.directory)).replace('"a.>"}, to', '"x.>"}, to'))
    await server.send(signal.SIGHUP)
    await server.said("stream import 'x.>': account 'A' does not export it")
    for client in (a, b):
        await client.close()


async def refusal(url: str, user: str, password: str) -> bytes:
    """What a server says to a client with wrong credentials, before it closes the connection."""
    host, _, port = url.removeprefix("nats://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        await reader.readline()
        writer.write(b"CONNECT " + json.dumps({"user": user, "pass": password}).encode() + b"\r\nPING\r\n")
        async with asyncio.timeout(30):
            return await reader.readline()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_lame_duck_asks_its_clients_to_leave(server: Server) -> None:
    told = await server.start("-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(server.directory / "js"))
    left: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def lame_duck() -> None:
        left.set_result(None)

    client = await nats.connect(told["nats"][0], lame_duck_mode_cb=lame_duck, allow_reconnect=False)
    await server.send(signal.SIGUSR2)
    async with asyncio.timeout(30):
        await left
    await client.close()
    assert await server.ended() == 0


async def test_a_lame_duck_that_is_told_to_stop_does_so_at_once(server: Server) -> None:
    """CL-7: the grace period of nats-server's default is ten seconds, and its duration two minutes."""
    told = await server.start("-a", "127.0.0.1", "-p", "-1")
    asked = asyncio.Event()

    async def lame_duck() -> None:
        asked.set()

    client = await nats.connect(told["nats"][0], lame_duck_mode_cb=lame_duck, allow_reconnect=False)
    await server.send(signal.SIGUSR2)
    async with asyncio.timeout(30):
        await asked.wait()
    await client.flush()
    await server.send(signal.SIGTERM)
    async with asyncio.timeout(8):
        assert await server.ended() == 0
    await client.close()


LAME_DUCK_CONF = """
listen: 127.0.0.1:-1
accounts { SYS { users [ {user: s, password: s} ] } }
system_account: SYS
"""


async def test_the_system_account_hears_of_a_lame_duck(server: Server) -> None:
    file = server.directory / "lame.conf"
    file.write_text(LAME_DUCK_CONF)
    told = await server.start("-c", str(file))
    client = await nats.connect(told["nats"][0], user="s", password="s", allow_reconnect=False)
    events = await client.subscribe("$SYS.SERVER.*.LAMEDUCK")
    await client.flush()
    await server.send(signal.SIGUSR2)
    event = await events.next_msg(timeout=30)
    document = json.loads(event.data)
    assert event.subject == f"$SYS.SERVER.{document['id']}.LAMEDUCK"
    assert document["id"] == client._server_info["server_id"]
    await client.close()
    assert await server.ended() == 0


async def test_streams_belong_to_the_server_that_has_their_name(server: Server) -> None:
    flags = ("-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(server.directory / "js"))
    await server.start(*flags, "-n", "one")
    await server.send(signal.SIGINT)
    assert await server.ended() == 0
    with pytest.raises(AssertionError, match="those of server 'one'"):
        await server.start(*flags, "-n", "two")
    assert await server.ended() == 1


async def test_without_js_there_are_no_streams(server: Server) -> None:
    told = await server.start("-a", "127.0.0.1", "-p", "-1", "--auth", "t0ken")
    client = await nats.connect(told["nats"][0], token="t0ken")
    with pytest.raises(Error):
        await client.jetstream().account_info()
    await client.close()


TLS_CONF = """
listen: 127.0.0.1:-1
http: 127.0.0.1:-1
tls { cert_file: "DIR/ours-server.crt", key_file: "DIR/ours-server.key", ca_file: "DIR/ours.pem", VERIFY }
websocket { listen: "127.0.0.1:-1", tls { cert_file: "DIR/ours-server.crt", key_file: "DIR/ours-server.key" } }
authorization { users [ {nkey: NKEY}, {user: h, password: "HASH"} ] }
"""
HASH = "$2a$04$FHxS9YPi/Yu8a7Ut.5afLuRYxPp6IDgTjjLsxuElMd/ZQBDYwOd66"


def write_tls(server: Server, verify: str) -> str:
    file = server.directory / "tls.conf"
    text = TLS_CONF.replace("DIR", str(server.directory)).replace("VERIFY", verify)
    file.write_text(text.replace("NKEY", Nkey().public).replace("HASH", HASH))
    return str(file)


async def test_clients_come_over_tls_and_the_file_is_read_again_for_it(server: Server) -> None:
    authority = Authority(server.directory, "ours")
    certificate, own = authority.sign("server", addresses=["127.0.0.1"]), authority.sign("client")
    told = await server.start("-c", write_tls(server, "verify: false"))
    (url,), (websocket,) = told["nats"], told["websocket"]
    assert url.startswith("tls://127.0.0.1:")
    assert websocket.startswith("wss://127.0.0.1:")
    context = ssl.create_default_context(cafile=authority.file)
    client = await nats.connect(url, tls=context, user="h", password="s3cret", allow_reconnect=False)
    await client.close()

    write_tls(server, "verify: true")
    await server.send(signal.SIGHUP)
    await server.said("Reloaded server configuration")
    host, _, port = url.removeprefix("tls://").rpartition(":")
    with_certificate = await RawClient.open(host, int(port), tls=certificate.context(shown=own))
    assert with_certificate.info["tls_verify"] is True
    await with_certificate.connect(**Nkey().connect(with_certificate.info["nonce"]))
    await with_certificate.close()
    without = await RawClient.open(host, int(port), tls=certificate.context())
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await refused_line(without)
    text = server.log.read_text()
    assert "s3cret" not in text
    assert HASH not in text


async def refused_line(client: RawClient) -> None:
    """With TLS 1.3 a client hears that its certificate is lacking when it reads."""
    try:
        if not await client.reader.readline():
            raise ConnectionResetError
    finally:
        await client.close()
