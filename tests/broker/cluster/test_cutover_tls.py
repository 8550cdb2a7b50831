"""A client that verifies its servers' certificates follows its stream from blue to green, over real processes (rule 21)."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from tests.support.blue_green import BlueGreen
from tests.support.certificates import Authority
from tests.support.local_clusters import until

pytestmark = [pytest.mark.e2e, pytest.mark.covers("BG-5")]

BLUE, GREEN = "blue.test", "green.test"


@pytest.fixture
async def sides(tmp_path: Path) -> AsyncIterator[BlueGreen]:
    made = BlueGreen(tmp_path)
    try:
        yield made
    finally:
        await made.stop()


On = Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]


@pytest.fixture
def on_plain_loop() -> Iterator[On]:
    """Runs the client: uvloop, which runs the test, finds addresses without `socket`."""
    loop = asyncio.SelectorEventLoop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield lambda work: asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def resolve(monkeypatch: pytest.MonkeyPatch, names: dict[str, str]) -> None:
    """Have this process, where the client is, find these names at these addresses."""
    find = socket.getaddrinfo

    def found(host: Any, *more: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        return find(names.get(name, host), *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", found)


async def test_a_client_that_verifies_goes_to_green_by_the_name_of_its_certificate(
    sides: BlueGreen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_plain_loop: On
) -> None:
    """Each side's certificate is for its own name alone: an address would be verified against blue's name, and refused."""
    authority = Authority(tmp_path, "ours")
    sides.blue.advertise, sides.green.advertise = {"east-0": BLUE}, {"east-0": GREEN}
    blue, green = (
        {"clientTls": {"certFile": str(signed.cert), "keyFile": str(signed.key)}}
        for signed in (authority.sign(BLUE), authority.sign(GREEN))
    )
    await sides.start(1, blue=blue, green=green)
    resolve(
        monkeypatch, {name: side.running[0].host for name, side in ((BLUE, sides.blue), (GREEN, sides.green))}
    )
    errors: list[Exception] = []

    async def error(found: Exception) -> None:
        errors.append(found)

    trusts = ssl.create_default_context(cafile=authority.file)
    client = await on_plain_loop(
        nats.connect(
            f"tls://{BLUE}:4222", tls=trusts, name="verifies", error_cb=error, max_reconnect_attempts=-1
        )
    )
    js = client.jetstream(timeout=10)
    await on_plain_loop(js.add_stream(name="S", subjects=["s"]))
    assert (await on_plain_loop(js.publish("s", b"at blue"))).seq == 1
    await sides.migrate()

    async def has_arrived() -> bool:
        rows = (await sides.green.running[0].get("/connz"))["connections"]
        return client.is_connected and "verifies" in [row.get("name") for row in rows]

    await until(has_arrived, "the client on green")
    assert client.connected_url is not None
    assert client.connected_url.netloc == f"{GREEN}:4222"
    assert (await on_plain_loop(js.publish("s", b"at green"))).seq == 2
    assert [found for found in errors if isinstance(found, ssl.SSLError)] == []
    await sides.reached(("redirected",))
    await on_plain_loop(client.close())


@pytest.mark.covers("BG-12")
async def test_clients_without_tls_are_counted_where_green_takes_no_others(
    sides: BlueGreen, tmp_path: Path
) -> None:
    signed = Authority(tmp_path, "ours").sign(GREEN)
    tls = {"clientTls": {"certFile": str(signed.cert), "keyFile": str(signed.key)}}
    await sides.start(1, green=tls)
    js = await sides.blue.js()
    await js.add_stream(name="S", subjects=["s"])

    async def told(policy: str) -> dict[str, str] | None:
        status, document = await sides.call("/preflight", sides.body(cannotFollow=policy))
        found = {row["code"]: row for row in document["findings"]} if status == 200 else {}
        return found.get("ClientsCannotFollow")

    found = await until(lambda: told("refuse"), "preflight to count the client")
    assert (found["level"], found["subject"]) == ("refused", "no TLS")
    assert found["message"].startswith("1 connected clients use no TLS")
    assert (await told("bridge") or {})["level"] == "warn"
