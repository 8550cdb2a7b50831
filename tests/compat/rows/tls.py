"""TLS between clients and servers: the upgrade behind INFO, certificates of clients, and handshakes that come first."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.compat.bench import Bench
from tests.compat.raw import RawClient
from tests.compat.rows import websocket
from tests.compat.table import SINGLES, Group, Settings
from tests.support.certificates import Authority, Certificate

CERT, KEY, CA = "{folder}/ours-server.crt", "{folder}/ours-server.key", "{folder}/ours.pem"
OURS = {"certFile": CERT, "keyFile": KEY, "caFile": CA}
NATS = {"cert_file": CERT, "key_file": KEY, "ca_file": CA}
SUBJECT = "client"


def write(folder: Path) -> Mapping[str, Any]:
    """A server's certificate, a client's, and one of an authority that nobody trusts."""
    authority = Authority(folder, "ours")
    server = authority.sign("server")
    client = authority.sign(
        SUBJECT, emails=["derek@example.com"], dns=["client.example.com"], organization="Example"
    )
    authority.sign("other", dns=[])
    Authority(folder, "theirs").sign("client")
    return {"tls": server.context(shown=client)}


def write_files(folder: Path) -> Mapping[str, Any]:
    """The same, where clients on the usual port come in plain."""
    write(folder)
    return {}


def _settings(
    name: str, ours: Mapping[str, Any], nats: Mapping[str, Any], *, first: bool = False, **more: Any
) -> Settings:
    return Settings(
        f"tls-{name}",
        ours={"clientTls": {**OURS, **ours}},
        nats={"tls": {**NATS, **nats}, **more.pop("nats_more", {})},
        login={"tls_handshake_first": True} if first else {},
        files=write,
        **more,
    )


PLAIN = _settings("plain", {}, {})
VERIFY = _settings("verify", {"verify": True}, {"verify": True})
FIRST = _settings("first", {"handshakeFirst": True}, {"handshake_first": True}, first=True)
AUTO = _settings(
    "auto", {"handshakeFirst": True, "firstWaitMs": 300}, {"handshake_first": "300ms"}, first=True
)
MIXED = _settings("mixed", {"allowPlain": True}, {}, nats_more={"allow_non_tls": True})
SHORT = _settings("short", {"timeoutMs": 300}, {"timeout": 0.3})
NEW = _settings("new", {"minVersion": "1.3"}, {"min_version": "1.3"})
NAMED = [
    {"user": "derek@example.com"},
    {"user": "b", "password": "b"},
]
MAPPED = _settings(
    "mapped",
    {"verifyAndMap": True},
    {"verify_and_map": True},
    credentials={"users.json": {"users": NAMED}},
    nats_more={"authorization": {"users": NAMED}},
)


def _by(name: str, user: str, **permissions: Any) -> Settings:
    users = [{"user": "nobody"}, {"user": user, **permissions}]
    return _settings(
        f"mapped-{name}",
        {"verifyAndMap": True},
        {"verify_and_map": True},
        credentials={"users.json": {"users": users}},
        nats_more={"authorization": {"users": users}},
    )


rows = Group("tls", settings=PLAIN)


def certificate(b: Bench, name: str, authority: str = "ours") -> Certificate:
    """One of those that `write` wrote."""
    folder = b.target.folder
    return Certificate(
        folder / f"{authority}-{name}.crt", folder / f"{authority}-{name}.key", folder / "ours.pem"
    )


def context(b: Bench, shown: str = "", authority: str = "ours") -> ssl.SSLContext:
    return certificate(b, "server").context(shown=certificate(b, shown, authority) if shown else None)


async def handshake_refused(b: Bench, tls: ssl.SSLContext) -> None:
    """With TLS 1.3 the client learns of it when it reads."""

    async def talk() -> None:
        client = await b.raw(connect=False, tls=tls)
        client.send("PING\r\n")
        if not await client.reader.readline():
            raise ConnectionResetError

    with pytest.raises((ssl.SSLError, ConnectionError)):
        await talk()


@rows("info", "INFO comes in plain and says that TLS is required")
async def info(b: Bench) -> None:
    found = (await b.raw(connect=False)).info
    assert found["tls_required"] is True
    assert "tls_verify" not in found
    assert "tls_available" not in found


@rows("upgrade", "behind INFO the client begins TLS, and all goes on inside of it")
async def upgrade(b: Bench) -> None:
    client = await b.raw(tls=context(b))
    client.send("SUB a 1\r\nPUB a 2\r\nhi\r\n")
    assert (await client.message()).payload == b"hi"


@rows("large", "messages of many records go both ways")
async def large(b: Bench) -> None:
    subject = b.subject()
    client = await b.raw(tls=context(b))
    payload = bytes(range(256)) * 2000
    client.send(
        f"SUB {subject} 1\r\n".encode() + b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(payload), payload)
    )
    assert (await client.message()).payload == payload


@rows("jetstream", "streams are published to and read over TLS")
async def jetstream(b: Bench) -> None:
    stream = await b.stream()
    for number in range(20):
        ack = await b.publish(f"{stream.name}.{number}", b"x" * 10_000)
        assert ack["seq"] == number + 1
    found = await b.js.pull_subscribe(f"{stream.name}.>", durable=b.name("D"))
    assert [len(message.data) for message in await found.fetch(20, timeout=5)] == [10_000] * 20


@rows("plain_client", "a client that goes on in plain is cut off, and is told nothing")
async def plain_client(b: Bench) -> None:
    client = await b.raw(connect=False)
    client.send('CONNECT {"verbose":false}\r\nPING\r\n')
    assert await client.closed() == []


@rows("silent", "a client that never begins TLS is cut off, and is told nothing", settings=SHORT)
async def silent(b: Bench) -> None:
    client = await b.raw(connect=False)
    assert await client.closed() == []


@rows("first_anyway", "a handshake before INFO was read is a handshake", on=SINGLES)
async def first_anyway(b: Bench) -> None:
    reader, writer = await asyncio.open_connection(b.host, 4222)
    tls = context(b)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    shaking = tls.wrap_bio(incoming, outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        shaking.do_handshake()
    writer.write(outgoing.read())
    assert (await reader.readline()).startswith(b"INFO {")
    assert (await reader.readexactly(1)) == b"\x16"
    writer.close()


@rows("version_too_old", "a client that knows only older versions of TLS is refused", settings=NEW)
async def version_too_old(b: Bench) -> None:
    tls = context(b)
    tls.maximum_version = ssl.TLSVersion.TLSv1_2
    await handshake_refused(b, tls)


@rows("version_1_2", "TLS 1.2 will do unless the settings say otherwise")
async def version_1_2(b: Bench) -> None:
    tls = context(b)
    tls.maximum_version = ssl.TLSVersion.TLSv1_2
    await (await b.raw(tls=tls)).ping()


@rows("close", "who is cut off inside of TLS is told so there, and then TLS ends")
async def close(b: Bench) -> None:
    client = await b.raw(tls=context(b))
    client.send("WHAT\r\n")
    assert await client.closed() == ["-ERR 'Unknown Protocol Operation'"]


@rows("verify.info", "where clients need a certificate INFO says so", settings=VERIFY)
async def verify_info(b: Bench) -> None:
    found = (await b.raw(connect=False)).info
    assert found["tls_required"] is True
    assert found["tls_verify"] is True


@rows("verify.signed", "a client shows a certificate of the authority", settings=VERIFY)
async def verify_signed(b: Bench) -> None:
    await (await b.raw(tls=context(b, "client"))).ping()


@rows("verify.none", "one that shows none is refused", settings=VERIFY)
async def verify_none(b: Bench) -> None:
    await handshake_refused(b, context(b))


@rows("verify.stranger", "one that shows another authority's is refused", settings=VERIFY)
async def verify_stranger(b: Bench) -> None:
    await handshake_refused(b, context(b, "client", "theirs"))


@rows("not_asked", "where none is needed any certificate is as good as none")
async def not_asked(b: Bench) -> None:
    await (await b.raw(tls=context(b, "client", "theirs"))).ping()


@rows("first.info", "with handshake_first INFO comes inside of TLS", settings=FIRST)
async def first_info(b: Bench) -> None:
    client = await b.raw(tls=context(b), first=True)
    assert client.info["tls_required"] is True
    await client.ping()


@rows(
    "first.plain",
    "a client that says something in plain is cut off there, and is told nothing",
    settings=FIRST,
)
async def first_plain(b: Bench) -> None:
    reader, writer = await asyncio.open_connection(b.host, 4222)
    writer.write(b"PING\r\n")
    async with asyncio.timeout(10):
        assert not (await reader.read()).startswith(b"INFO")
    writer.close()


@rows("auto.first", "with a time for handshake_first a handshake may come first", settings=AUTO)
async def auto_first(b: Bench) -> None:
    await (await b.raw(tls=context(b), first=True)).ping()


@rows("auto.later", "a client that is silent for that time is sent INFO, and then begins TLS", settings=AUTO)
async def auto_later(b: Bench) -> None:
    await (await b.raw(tls=context(b))).ping()


@rows("mixed.info", "where plain clients are let in INFO says that TLS is there", settings=MIXED)
async def mixed_info(b: Bench) -> None:
    found = (await b.raw(connect=False)).info
    assert found["tls_available"] is True
    assert "tls_required" not in found


@rows("mixed.both", "a client in plain and one over TLS hear each other", settings=MIXED)
async def mixed_both(b: Bench) -> None:
    subject = b.subject()
    plain, secure = await b.raw(), await b.raw(tls=context(b))
    for client in (plain, secure):
        client.send(f"SUB {subject} 1\r\n")
        await client.ping()
    plain.send(f"PUB {subject} 1\r\np\r\n")
    assert (await secure.message()).payload == b"p"
    assert (await plain.message()).payload == b"p"
    secure.send(f"PUB {subject} 1\r\ns\r\n")
    assert (await secure.message()).payload == b"s"
    assert (await plain.message()).payload == b"s"


async def as_mapped(b: Bench, shown: str = "client", **options: Any) -> RawClient:
    client = await b.raw(connect=False, tls=context(b, shown))
    client.send_connect(**options)
    client.send("PING\r\n")
    return client


@rows("mapped.info", "where certificates name users INFO asks for one", settings=MAPPED)
async def mapped_info(b: Bench) -> None:
    found = (await b.raw(connect=False)).info
    assert (found["tls_verify"], found["auth_required"]) == (True, True)


@rows("mapped.email", "a certificate's e-mail address names the user", settings=MAPPED)
async def mapped_email(b: Bench) -> None:
    await (await as_mapped(b)).expect("PONG")


@rows("mapped.nobody", "a certificate that names no user is refused", settings=MAPPED)
async def mapped_nobody(b: Bench) -> None:
    await (await as_mapped(b, "other")).expect("-ERR 'Authorization Violation'", "")


@rows("mapped.other_user", "a user and password beside a certificate don't help", settings=MAPPED)
async def mapped_other_user(b: Bench) -> None:
    client = await as_mapped(b, "other", **{"user": "b", "pass": "b"})
    await client.expect("-ERR 'Authorization Violation'", "")


@rows("mapped.password", "the password has to be the named user's", settings=MAPPED)
async def mapped_password(b: Bench) -> None:
    client = await as_mapped(b, "client", **{"user": "b", "pass": "b"})
    await client.expect("-ERR 'Authorization Violation'", "")


def _mapped(name: str, title: str, user: str) -> None:
    @rows(f"mapped.{name}", title, on=SINGLES, settings=_by(name, user))
    async def mapped(b: Bench) -> None:
        await (await as_mapped(b)).expect("PONG")


_mapped("dns", "a certificate's DNS name names the user", "client.example.com")
_mapped("subject", "a certificate's whole subject names the user", f"CN={SUBJECT},O=Example")
_mapped("subject_order", "in any order, with spaces or without", f"O=Example, CN={SUBJECT}")


@rows(
    "mapped.order",
    "an e-mail address goes before a DNS name",
    on=SINGLES,
    settings=_settings(
        "mapped-order",
        {"verifyAndMap": True},
        {"verify_and_map": True},
        credentials={
            "users.json": {
                "users": [
                    {"user": "client.example.com", "permissions": {"publish": {"allow": ["d"]}}},
                    {
                        "user": "derek@example.com",
                        "permissions": {"publish": {"allow": ["e", "$JS.API.INFO"]}},
                    },
                ]
            }
        },
        nats_more={
            "authorization": {
                "users": [
                    {"user": "client.example.com", "permissions": {"publish": {"allow": ["d"]}}},
                    {
                        "user": "derek@example.com",
                        "permissions": {"publish": {"allow": ["e", "$JS.API.INFO"]}},
                    },
                ]
            }
        },
    ),
)
async def mapped_order(b: Bench) -> None:
    client = await as_mapped(b)
    await client.expect("PONG")
    client.send("PUB e 0\r\n\r\nPUB d 0\r\n\r\n")
    await client.expect("-ERR 'Permissions Violation for Publish to \"d\"'")


WSS = Settings(
    "tls-websocket",
    ours={"ports": {"websocket": websocket.PORT}, "websocketTls": OURS},
    nats={"websocket": {"listen": f"{{host}}:{websocket.PORT}", "tls": {"cert_file": CERT, "key_file": KEY}}},
    files=write_files,
)


@rows("websocket", "clients come by WebSocket over TLS", on=SINGLES, settings=WSS)
async def over_websocket(b: Bench) -> None:
    subject, there = b.subject(), await b.connect()
    reader, writer, line = await websocket.request(b, tls=context(b))
    assert line.startswith("HTTP/1.1 101")
    while (await reader.readline()).strip():
        pass
    assert (await websocket.read_frame(reader))[1].startswith(b"INFO {")
    text = f"SUB {subject} 1\r\nPING\r\n".encode()
    writer.write(websocket.frame(2, websocket.CONNECT + text))
    await websocket.until(reader, b"PONG\r\n")
    await there.publish(subject, b"there")
    assert await websocket.until(reader, b"there\r\n") == f"MSG {subject} 1 5\r\nthere\r\n".encode()
    writer.close()
