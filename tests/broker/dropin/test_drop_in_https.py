"""Monitoring over TLS, on ours and on nats-server."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.dropin.running import OURS, Server, both
from tests.support.certificates import Authority
from tests.support.local_clusters import fresh_address, until

pytestmark = [pytest.mark.e2e]

CONF = """
server_name: NAME
listen: "HOST:4222"
https: "HOST:8443"
tls { cert_file: "DIR/cert.pem", key_file: "DIR/key.pem", ca_file: "CA", verify: true }
"""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    found = Server(tmp_path, "s1", fresh_address())
    try:
        yield found
    finally:
        await found.kill()


def use(authority: Authority, folder: Path, host: str, name: str) -> None:
    """A certificate of that name where the file says."""
    found = authority.sign(name, addresses=[host])
    shutil.copy(found.cert, folder / "cert.pem")
    shutil.copy(found.key, folder / "key.pem")


def varz(server: Server, context: ssl.SSLContext) -> dict[str, Any]:
    with urllib.request.urlopen(f"https://{server.host}:8443/varz", timeout=30, context=context) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


def shown(server: Server) -> str:
    """The certificate that the port has now."""
    return ssl.get_server_certificate((server.host, 8443), timeout=30)


@both
async def test_who_asks_by_https_needs_no_certificate_where_clients_do(
    server: Server, tmp_path: Path, command: tuple[str, ...]
) -> None:
    authority = Authority(tmp_path, "ours")
    use(authority, tmp_path, server.host, "first")
    server.write(CONF, DIR=str(tmp_path), CA=str(authority.file))
    await server.start(*command)
    await server.ready()
    context = ssl.create_default_context(cafile=authority.file)
    assert (await asyncio.to_thread(varz, server, context))["server_name"] == "s1"
    assert "Starting https monitor on" in server.log.read_text()
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        await asyncio.to_thread(varz, server, ssl.create_default_context())


async def test_a_renewed_certificate_is_shown_to_who_comes_then(server: Server, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    use(authority, tmp_path, server.host, "first")
    server.write(CONF, DIR=str(tmp_path), CA=str(authority.file))
    await server.start()
    await server.ready()
    before = await asyncio.to_thread(shown, server)
    use(authority, tmp_path, server.host, "second")

    async def is_new() -> bool:
        return await asyncio.to_thread(shown, server) != before

    await until(is_new, "the new certificate")


@pytest.mark.parametrize(
    ("text", "flags", "why"),
    [
        ("http: 1\nhttps: 2", (), "1:1: http and https: monitoring has one port"),
        ("https: x", (), "1:1: https has to be host:port"),
        ("https: 8443", (), "https needs tls"),
        ("", ("-ms", "8443"), "https needs tls"),
        ("", ("-m", "1", "-ms", "2"), "--http_port and --https_port: monitoring has one port"),
    ],
)
async def test_what_can_not_be_is_said(server: Server, text: str, flags: tuple[str, ...], why: str) -> None:
    server.write(text)
    await server.start(*OURS, *flags)
    assert server.process is not None
    async with asyncio.timeout(30):
        assert await server.process.wait() == 1
    assert why in server.log.read_text()
