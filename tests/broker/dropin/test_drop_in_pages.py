"""The monitoring port's pages: the fields and types that nats-server's have, one by one (`tests/compat/shapes.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
from tests.broker.dropin.running import Server, both
from tests.compat.shapes import SHAPES
from tests.support.local_clusters import fetch, fresh_address

pytestmark = pytest.mark.e2e

CONF = """
server_name: NAME
listen: "HOST:4222"
http: "HOST:8222"
jetstream { store_dir: "DIR" }
accounts { A { users [ {user: a, password: b} ], jetstream: enabled }, SYS { users [ {user: s, password: t} ] } }
system_account: SYS
"""
PAGES = {
    "VARZ": ("/varz",),
    "JSZ": ("/jsz", "/jsz?acc=A&streams=true&consumers=true&config=true"),
    "CONNZ": ("/connz", "/connz?auth=true&subs=detail"),
    "SUBSZ": ("/subsz", "/subsz?subs=true"),
    "ROUTEZ": ("/routez",),
    "GATEWAYZ": ("/gatewayz",),
    "LEAFZ": ("/leafz",),
    "ACCOUNTZ": ("/accountz", "/accountz?acc=A"),
    "HEALTHZ": ("/healthz",),
}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    found = Server(tmp_path, "one", fresh_address())
    try:
        yield found
    finally:
        await found.kill()


@both
async def test_pages_have_nats_servers_fields(
    server: Server, tmp_path: Path, command: tuple[str, ...]
) -> None:
    server.write(CONF, DIR=str(tmp_path / "js"))
    await server.start(*command)
    await server.ready()
    client = await nats.connect(f"nats://{server.host}:4222", user="a", password="b", name="reader")
    js = client.jetstream(timeout=30)
    await js.add_stream(name="S", subjects=["s.>"])
    await js.publish("s.1", b"x")
    await js.add_consumer("S", durable_name="c")
    await client.subscribe("foo.*", queue="q")
    await client.flush()
    problems = []
    for kind, pages in PAGES.items():
        for page in pages:
            status, document = await asyncio.to_thread(fetch, f"http://{server.host}:8222{page}")
            assert status == 200, page
            code = {"status_code": 200} if kind == "HEALTHZ" else {}  # A field of the other way to ask alone.
            told = SHAPES.problems(
                f"$SYS.REQ.SERVER.*.{kind}", {"data": {**document, **code}}, is_ours=server.is_ours
            )
            problems += [f"{page}: {text}" for text in told if ": server is missing" not in text]
    await client.close()
    assert problems == []
