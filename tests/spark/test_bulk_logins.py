"""The bulk port is read and written with the certificate and the login of the NATS port, and over NATS by those it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import nats
import pyarrow as pa
import pytest
from tests.broker.net.conftest import Brokers
from tests.support.certificates import Authority, Certificate
from tests.support.local_clusters import until

from supercluster.broker.runtime.process_core import make_core
from supercluster.spark.bulk import stages
from supercluster.spark.bulk.bulk_reader import BulkReader, NoBulkError
from supercluster.spark.client import Address, ConnectionFailedError, Credentials, Servers, Tls
from supercluster.spark.datasource.arrow_blocks import MessageColumns, blocks
from supercluster.spark.jetstream import JetStreamSession
from supercluster.spark.nats.nats_reader import NatsReader
from supercluster.spark.sink_calls import Block, SinkCalls

pytestmark = pytest.mark.covers("SP-5")

MESSAGES = 200
APP = Credentials("app", "app-secret")
USERS = {
    "users": [
        {"user": "app", "password": "app-secret", "role": "client"},
        {"token": "a-long-token", "role": "client"},
        {
            "user": "narrow",
            "password": "narrow-secret",
            "role": "client",
            "permissions": {"publish": {"deny": ["$JS.API.STREAM.MSG.GET.S"]}},
        },
        {
            "user": "reader",
            "password": "reader-secret",
            "role": "client",
            "permissions": {"publish": {"deny": ["$JS.API.SINK.STAGE.S"]}},
        },
    ]
}


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    found = Brokers(tmp_path)
    yield found
    await found.stop()


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return Authority(tmp_path, "ours").sign("east.test")


@pytest.fixture
async def address(
    brokers: Brokers, certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Address:
    """Of a broker with a stream of sealed blocks; its certificate has only the name."""
    (broker,) = await brokers.start(
        1,
        clientTls=certificate.settings(),
        bulk={"port": 0},
        storage={"segmentBytes": 64 << 10},
        credentials={"users.json": USERS},
        make_core=make_core,
    )
    (tmp_path / "hosts").write_text(f"{broker.place.host} east.test\n")
    monkeypatch.setenv("SUPERCLUSTER_HOSTS_FILE", str(tmp_path / "hosts"))
    url = f"nats://{broker.place.host}:{broker.client_port}"
    client = await nats.connect(
        url, user="app", password="app-secret", tls=certificate.context(), tls_hostname="east.test"
    )
    js = client.jetstream()

    async def has_stream() -> bool:
        with contextlib.suppress(nats.errors.Error):  # until the broker has found its meta leader
            return bool(await js.add_stream(name="S", subjects=["a"]))
        return False

    await until(has_stream, "a stream")
    for _ in range(MESSAGES):
        await js.publish("a", os.urandom(2_000))
    await client.close()
    return Address("east.test", broker.client_port, is_tls=True)


def session_of(
    address: Address,
    certificate: Certificate,
    credentials: Credentials = APP,
    *,
    patience_seconds: float = 20,
) -> JetStreamSession:
    servers = Servers([address], credentials, tls=Tls(str(certificate.ca)))
    return JetStreamSession(servers, patience_seconds=patience_seconds)


async def read(
    address: Address, credentials: Credentials, certificate: Certificate, *, is_required: bool
) -> list[int]:
    session = session_of(address, certificate, credentials)

    def all_of_it() -> list[int]:
        lineage = session.stream_state("S").lineage
        over_nats = NatsReader(session, "S", ("sequence",), patience_seconds=20)
        reader = BulkReader(over_nats, lineage, is_required=is_required)
        return [each for batch in reader.read(1, MESSAGES) for each in batch.column(0).to_pylist()]

    try:
        return await asyncio.to_thread(all_of_it)
    finally:
        session.drop()


@pytest.mark.parametrize("credentials", [Credentials("app", "app-secret"), Credentials(token="a-long-token")])
async def test_the_login_and_the_certificate_are_those_of_the_nats_port(
    address: Address, certificate: Certificate, credentials: Credentials
) -> None:
    assert await read(address, credentials, certificate, is_required=True) == list(range(1, MESSAGES + 1))


async def test_a_user_who_may_not_read_the_whole_stream_reads_over_nats(
    address: Address, certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    narrow = Credentials("narrow", "narrow-secret")
    with caplog.at_level(logging.WARNING, "supercluster.spark"):
        found = await read(address, narrow, certificate, is_required=False)
    assert found == list(range(1, MESSAGES + 1))
    (line,) = [each.getMessage() for each in caplog.records if each.name.startswith("supercluster.spark")]
    assert "read over NATS from sequence 1 on" in line
    assert "answered 403" in line
    assert "secret" not in line
    with pytest.raises(NoBulkError, match="403"):
        await read(address, narrow, certificate, is_required=True)


ROWS = 30_000


def written(session: JetStreamSession, *, uses_bulk: bool = True) -> int:
    """Some blocks are staged and committed. Returns the last sequence."""
    calls = SinkCalls(session, "S", patience_seconds=20, bulk=stages.begun if uses_bulk else None)
    columns = MessageColumns(b"a", None, pa.array([b"%d" % row * 20 for row in range(ROWS)]))
    staged = calls.stage("w", 1, "t", lambda bytes_max: blocks([columns], bytes_max))
    assert calls.commit("w", 1, [staged], "") == ROWS
    return session.stream_state("S").last_sequence


@pytest.mark.parametrize("uses_bulk", [True, False])
async def test_blocks_are_staged_over_the_bulk_port_unless_nobody_wants_it(
    address: Address, certificate: Certificate, monkeypatch: pytest.MonkeyPatch, *, uses_bulk: bool
) -> None:
    sent: list[int] = []
    send = stages.Stages.send

    def noted(self: stages.Stages, payload: bytes) -> None:
        sent.append(len(payload))
        send(self, payload)

    monkeypatch.setattr(stages.Stages, "send", noted)
    session = session_of(address, certificate)
    try:
        assert await asyncio.to_thread(written, session, uses_bulk=uses_bulk) == MESSAGES + ROWS
    finally:
        session.drop()
    assert (len(sent) > 2) == uses_bulk


async def test_who_may_not_stage_is_refused_on_both_ways(
    address: Address, certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Credentials("reader", "reader-secret")
    session = session_of(address, certificate, reader, patience_seconds=2)
    try:
        with caplog.at_level(logging.INFO, "supercluster.spark"):
            assert await asyncio.to_thread(lambda: stages.begun(session.broker(), "S")) is None
        with pytest.raises(Exception, match="ermission") as found:
            await asyncio.to_thread(written, session)
    finally:
        session.drop()
    assert "secret" not in str(found.value)
    assert "blocks for stream S go over NATS: the bulk port answered 403" in caplog.text


async def test_blocks_of_an_attempt_that_fails_are_gone_behind_its_abort(
    address: Address, certificate: Certificate
) -> None:
    session = session_of(address, certificate)
    large = [MessageColumns(b"a", None, pa.array([os.urandom(70_000) for _ in range(10)])) for _ in range(4)]

    def some(bytes_max: int) -> Iterator[Block]:
        yield from blocks(large, bytes_max)
        raise ValueError("a row that cannot be encoded")

    def fails() -> None:
        calls = SinkCalls(session, "S", patience_seconds=20, bulk=stages.begun)
        for number in range(5):
            with pytest.raises(ValueError, match="encoded"):
                calls.stage("w", 1, f"t{number}", some)
            calls.abort("w", 1, [f"t{number}"])

    def left() -> object:
        return session.ask("$JS.API.SINK.STATUS.S", {})["staged_bytes"]

    try:
        await asyncio.to_thread(fails)
        assert await asyncio.to_thread(left) == 0
    finally:
        session.drop()


async def test_a_port_that_cannot_be_reached_is_not_asked_again_soon(
    address: Address, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def unreachable(*arguments: object, **more: object) -> None:
        tried.append(1)
        raise ConnectionFailedError("no route")

    monkeypatch.setattr(stages, "Stages", unreachable)
    monkeypatch.setattr(stages, "_unreachable_until", {})
    session = session_of(address, certificate)
    try:
        broker = await asyncio.to_thread(session.broker)
        assert [stages.begun(broker, "S") for _ in range(3)] == [None] * 3
    finally:
        session.drop()
    assert len(tried) == 1
