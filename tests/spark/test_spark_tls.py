"""A reader over TLS: what is verified, and what it says where a certificate or a login is refused."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest
from tests.broker.net.conftest import Brokers
from tests.support.certificates import Authority, Certificate
from tests.support.local_clusters import until

from supercluster.broker.runtime.process_core import make_core
from supercluster.spark.client import Address, ClientConnection, LoginRefusedError, Servers
from supercluster.spark.datasource.option_values import OptionError
from supercluster.spark.datasource.options import ReadOptions, read_options
from supercluster.spark.datasource.source import BatchReader

pytestmark = pytest.mark.covers("SP-5")


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    found = Brokers(tmp_path)
    yield found
    await found.stop()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


async def serve(brokers: Brokers, certificate: Certificate, **more: Any) -> str:
    """Start a broker and return its `host:port`."""
    others = {name: more.pop(name) for name in ("credentials", "make_core") if name in more}
    (broker,) = await brokers.start(1, clientTls={**certificate.settings(), **more}, **others)
    return f"{broker.place.host}:{broker.client_port}"


def options(url: str, **more: object) -> ReadOptions:
    given = {"url": url, "stream": "S", **{name: str(value) for name, value in more.items()}}
    return read_options(given, streaming=False)


async def connect(found: ReadOptions) -> None:
    servers = Servers(found.current_addresses(), found.current_credentials(), tls=found.current_tls())
    connection: ClientConnection = await asyncio.to_thread(servers.connect, time.monotonic() + 20)
    connection.close()


def named(certificate: Certificate, monkeypatch: pytest.MonkeyPatch, folder: Path, address: str) -> str:
    """The URL of a broker by a name that its certificate has."""
    host, port = address.split(":")
    (folder / "hosts").write_text(f"{host} east.test\n")
    monkeypatch.setenv("SUPERCLUSTER_HOSTS_FILE", str(folder / "hosts"))
    return f"tls://east.test:{port}"


async def test_a_stream_is_read_with_a_certificate_of_either_options_or_the_mounted_secret(
    brokers: Brokers, authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server, client = authority.sign("east.test"), authority.sign("app")
    address = await serve(brokers, server, verify=True, make_core=make_core)
    url = named(server, monkeypatch, tmp_path, address)
    connection = await nats.connect(f"nats://{address}", tls=server.context(shown=client))
    context = connection.jetstream()

    async def has_stream() -> bool:
        with contextlib.suppress(nats.errors.Error):  # until the broker has found its meta leader
            return bool(await context.add_stream(name="S", subjects=["a"]))
        return False

    await until(has_stream, "a stream")
    for _ in range(20):
        await context.publish("a", b"x" * 40_000)
    await connection.close()

    def read(found: ReadOptions) -> list[int]:
        reader = BatchReader(found, ("sequence",))
        return [
            number
            for partition in reader.partitions()
            for batch in reader.read(partition)
            for number in batch.column(0).to_pylist()
        ]

    files = {"caFile": client.ca, "certFile": client.cert, "keyFile": client.key}
    assert await asyncio.to_thread(read, options(url, **files)) == list(range(1, 21))
    for name, path in (("ca.crt", client.ca), ("tls.crt", client.cert), ("tls.key", client.key)):
        (tmp_path / name).write_bytes(path.read_bytes())
    (tmp_path / "urls").write_text(url)
    monkeypatch.setenv("SUPERCLUSTER_CLIENT", str(tmp_path))
    mounted = read_options({"stream": "S"}, streaming=False)
    assert await asyncio.to_thread(read, mounted) == list(range(1, 21))


async def test_a_certificate_that_is_not_trusted_or_has_another_name_is_refused_in_one_line(
    brokers: Brokers, authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server, stranger = authority.sign("east.test"), Authority(tmp_path, "strangers").sign("app")
    address = await serve(brokers, server, verify=True)
    url = named(server, monkeypatch, tmp_path, address)
    own = authority.sign("app")
    shown = {"certFile": own.cert, "keyFile": own.key}
    for found, says in (
        (options(url, **shown), "is not trusted .*; set the option caFile"),
        (options(url, caFile=stranger.ca, **shown), "is not trusted .*; set the option caFile"),
        (options(f"tls://{address}", caFile=server.ca, **shown), "mismatch.*connect by a name that"),
        (
            options(url, caFile=server.ca),
            "asks for a client's certificate; set the options certFile and keyFile",
        ),
        (
            options(url, caFile=server.ca, certFile=stranger.cert, keyFile=stranger.key),
            "refused the client's certificate .* that an authority of the brokers has signed",
        ),
        (options(url, caFile=tmp_path / "none", **shown), "caFile .*none' cannot be used .No such file"),
        (
            options(url, caFile=server.ca, certFile=own.cert, keyFile=stranger.key),
            "certFile .* cannot be used",
        ),
    ):
        with pytest.raises(LoginRefusedError, match=says) as refused:
            await connect(found)
        assert "\n" not in str(refused.value)


async def test_a_refused_login_says_what_to_check_and_a_plain_broker_gets_no_password(
    brokers: Brokers, authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = authority.sign("east.test")
    users = {"users.json": {"users": [{"user": "app", "password": "right"}]}}
    url = named(server, monkeypatch, tmp_path, await serve(brokers, server, credentials=users))
    await connect(options(url, caFile=server.ca, user="app", password="right"))
    plain_url = url.replace("tls://", "nats://")
    with pytest.raises(LoginRefusedError, match="is not trusted"):  # the broker requires TLS by itself
        await connect(options(plain_url, user="app", password="right"))
    with pytest.raises(LoginRefusedError, match=r"refused the login .*; check user and") as refused:
        await connect(options(url, caFile=server.ca, user="app", password="wrong"))
    assert "wrong" not in str(refused.value)
    (plain,) = await brokers.start(1, credentials=users)
    with pytest.raises(LoginRefusedError, match="has no TLS; write nats://"):
        await connect(options(f"tls://{plain.place.host}:{plain.client_port}", user="app", password="right"))


def test_brokers_that_are_learnt_by_number_have_the_known_name_in_their_certificates() -> None:
    first = Address.parse("tls://east.test:4222")
    servers = Servers([first], options("tls://east.test").credentials)
    servers.learn(["10.0.0.1:4222", "west.test:4222"], first)
    assert [each.tls_name for each in servers.known] == ["", "east.test", ""]


def test_certificate_and_key_go_together() -> None:
    with pytest.raises(OptionError, match="'keyFile' is missing; certFile and keyFile go together"):
        options("tls://a", certFile="/x")
