"""TLS on the ports for clients: real clients, renewed certificates, and what cuts a handshake off."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import nats
import pytest
from tests.compat.raw import RawClient
from tests.support.certificates import Authority, Certificate

from supercluster.broker.net.clients.certificates import ClientCertificates
from supercluster.broker.settings.settings import ClientTls, SettingsError


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


def settings(certificate: Certificate, **more: Any) -> dict[str, Any]:
    return {"clientTls": {**certificate.settings(), **more}}


async def start(brokers: Any, **document: Any) -> Any:
    (broker,) = await brokers.start(1, **document)
    return broker


def url(broker: Any) -> str:
    return f"nats://{broker.place.host}:{broker.client_port}"


async def test_a_client_of_nats_goes_over_tls(brokers: Any, authority: Authority) -> None:
    certificate = authority.sign("server")
    broker = await start(brokers, **settings(certificate))
    client = await nats.connect(url(broker), tls=certificate.context(), allow_reconnect=False)
    subscription = await client.subscribe("a.>")
    for number in range(100):
        await client.publish(f"a.{number}", bytes(number) * 1000)
    assert [len((await subscription.next_msg(timeout=30)).data) for _ in range(100)] == [
        number * 1000 for number in range(100)
    ]
    (connection,) = broker.server.clients.values()
    assert connection.tls is not None
    assert connection.tls[0] == "TLSv1.3"
    await client.drain()


async def test_a_renewed_certificate_is_shown_to_new_clients(brokers: Any, authority: Authority) -> None:
    broker = await start(brokers, **settings(authority.sign("first", file="server")))
    assert await shown(broker, authority) == "first"
    authority.sign("second", file="server")
    async with asyncio.timeout(60):
        while await shown(broker, authority) != "second":
            await asyncio.sleep(0.05)


async def shown(broker: Any, authority: Authority) -> str:
    """The name in the certificate that the broker shows."""
    context = ssl.create_default_context(cafile=authority.file)
    context.check_hostname = False
    client = await RawClient.open(broker.place.host, broker.client_port, tls=context)
    found = client.writer.get_extra_info("peercert")
    await client.close()
    return str(dict(part[0] for part in found["subject"])["commonName"])


async def test_an_authority_that_is_gone_from_the_file_is_trusted_no_more(
    authority: Authority, tmp_path: Path
) -> None:
    server = authority.sign("server")
    ca_file = tmp_path / "clients.pem"
    ca_file.write_text(authority.file.read_text())
    found = ClientCertificates(ClientTls(server.cert, server.key, ca_file, verify=True), "clientTls")
    assert not found.refresh()
    assert len(found.context.get_ca_certs()) == 1
    ca_file.write_text(Authority(tmp_path, "others").file.read_text())
    assert found.refresh()
    (trusted,) = found.context.get_ca_certs()
    assert trusted["subject"] == ((("commonName", "others"),),)


async def test_files_that_can_not_be_used_leave_the_certificate_as_it_was(authority: Authority) -> None:
    server = authority.sign("server")
    found = ClientCertificates(ClientTls(server.cert, server.key), "clientTls")
    before = found.context
    server.key.write_text("no key")
    with pytest.raises(SettingsError, match=r"clientTls: certFile .*server.crt with keyFile .*server.key"):
        found.refresh()
    assert found.context is before
    assert not found.refresh()


async def test_what_a_client_sends_behind_the_lame_ducks_goodbye_is_taken(
    brokers: Any, authority: Authority
) -> None:
    certificate = authority.sign("server")
    broker = await start(brokers, **settings(certificate))
    watcher = await nats.connect(url(broker), tls=certificate.context(), allow_reconnect=False)
    subscription = await watcher.subscribe("late")
    await watcher.flush()
    # A client that keeps its own half open, which neither asyncio nor most clients do.
    reader, writer = await asyncio.open_connection(broker.place.host, broker.client_port)
    await reader.readline()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = certificate.context().wrap_bio(incoming, outgoing)
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            writer.write(outgoing.read())
            incoming.write(await reader.read(65536))
    tls.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
    writer.write(outgoing.read())
    heard = b""
    while not heard.endswith(b"PONG\r\n"):
        incoming.write(await reader.read(65536))
        try:
            heard += tls.read(65536)
        except ssl.SSLWantReadError:
            continue
    leaving = max(broker.server.clients.values(), key=lambda client: client.id)
    leaving.finish()
    async with asyncio.timeout(60):
        while data := await reader.read(65536):
            incoming.write(data)
    assert tls.read(65536) == b""  # The broker's goodbye.
    tls.write(b"PUB late 5\r\nhello\r\n")
    writer.write(outgoing.read())
    assert (await subscription.next_msg(timeout=30)).data == b"hello"
    writer.close()
    await watcher.close()


async def test_garbage_in_place_of_a_handshake_is_counted_and_harms_nobody(
    brokers: Any, authority: Authority
) -> None:
    certificate = authority.sign("server")
    broker = await start(brokers, **settings(certificate))
    reader, writer = await asyncio.open_connection(broker.place.host, broker.client_port)
    await reader.readline()
    writer.write(b"\x16\x03\x01\x00\x05hello" + bytes(100))
    async with asyncio.timeout(60):
        await reader.read()
    writer.close()
    assert broker.server.counts.tls_failures == 1
    client = await nats.connect(url(broker), tls=certificate.context(), allow_reconnect=False)
    await client.close()


async def test_a_key_that_has_a_password_is_refused_at_the_start(brokers: Any, authority: Authority) -> None:
    certificate = authority.sign("server")
    certificate.key.write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    with pytest.raises(SettingsError, match="clientTls: certFile"):
        await start(brokers, **settings(certificate))


@pytest.mark.parametrize("connect", [b'{"user":"CN=app"}', b"{}"])
async def test_who_shows_no_certificate_is_nobody_where_certificates_say_who_a_client_is(
    brokers: Any, authority: Authority, connect: bytes
) -> None:
    certificate = authority.sign("server")
    users = [{"user": "CN=app"}, {"user": "guest"}]
    broker = await start(
        brokers,
        credentials={"users.json": {"users": users}},
        **settings(certificate, verifyAndMap=True, allowPlain=True),
    )
    client = await brokers.raw(broker)
    client.send(b"CONNECT " + connect + b"\r\nPING\r\n")
    assert await client.line() == b"-ERR 'Authorization Violation'"
    client.writer.close()
