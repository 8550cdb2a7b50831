"""Blocks for a stream's sink over the bulk port of a real broker (SP-1)."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import logging
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import nats
import pytest
from aiohttp import web
from aiohttp.http_exceptions import TransferEncodingError
from nats.js import JetStreamContext
from tests.broker.bulk.process import APP, running

from supercluster.broker.bulk import stages
from supercluster.broker.runtime.process import BrokerProcess

pytestmark = pytest.mark.covers("SP-1")
Json = dict[str, Any]

DENIED = {"publish": {"deny": ["$JS.API.SINK.STAGE.orders"]}}


def users(permissions: Json | None = None) -> Json:
    app: Json = {"user": "app", "password": "app-secret", "role": "client"}
    reader = {"user": "reader", "password": "secret", "role": "client", "permissions": DENIED}
    small = {"user": "small", "password": "secret", "role": "client", "limits": {"payloadBytesMax": 2000}}
    return {"users": [app | ({"permissions": permissions} if permissions else {}), reader, small]}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    async with running(tmp_path, users(), bulk={"port": 0, "readersMax": 1}) as process:
        yield process


@pytest.fixture
async def js(broker: BrokerProcess) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(f"nats://{APP}@{broker.advertised_client_url}", allow_reconnect=False)
    js = client.jetstream()
    await js.add_stream(name="orders", subjects=["orders.>"])
    yield js
    await client.close()


def block(*rows: tuple[bytes, bytes]) -> bytes:
    """As `docs/adr/spark-sink.md` has it; rows are subjects and payloads."""
    lengths = [size for subject, payload in rows for size in (len(subject), 0, len(payload))]
    return struct.pack(f"<I{len(lengths)}I", len(rows), *lengths) + b"".join(map(b"".join, rows))


def call(number: int, data: bytes, token: str = "t") -> bytes:
    body = {"writer": "q", "batch": 1, "token": token, "block": number, "crc": crc32(data)}
    return json.dumps(body).encode() + b"\n" + data


def rows(number: int, count: int = 3) -> list[tuple[bytes, bytes]]:
    return [(b"orders.%d" % at, b"%d-%d" % (number, at)) for at in range(count)]


class Poster:
    """One request, by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.status = 0

    @classmethod
    async def begun(
        cls,
        broker: BrokerProcess,
        login: str = APP,
        *,
        content_type: str = "Content-Type: application/octet-stream\r\n",
    ) -> Poster:
        found = cls(*await asyncio.open_connection("127.0.0.1", broker.bulk_port))
        secret = base64.b64encode(login.encode()).decode()
        found.writer.write(
            f"POST /bulk/streams/orders/stage HTTP/1.1\r\nHost: b\r\nAuthorization: Basic {secret}\r\n"
            f"{content_type}Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        head = await asyncio.wait_for(found.reader.readuntil(b"\r\n\r\n"), 10)
        found.status = int(head.split()[1])
        return found

    def send(self, payload: bytes, size: int | None = None) -> None:
        self.raw(struct.pack(">I", len(payload) if size is None else size) + payload)

    def raw(self, data: bytes) -> None:
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def answers(self, count: int) -> list[Json]:
        """The next ones; fewer if the connection ends."""
        found: list[Json] = []
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while len(found) < count:
                size = int(await asyncio.wait_for(self.reader.readuntil(b"\r\n"), 10), 16)
                if not size:
                    break
                found.append(json.loads((await self.reader.readexactly(size + 2)).strip()))
        return found

    def close(self) -> None:
        self.writer.close()


async def committed(js: JetStreamContext, parts: list[Json]) -> int:
    body = {"writer": "q", "batch": 1, "offsets_hash": "h", "parts": parts}
    while True:
        told = json.loads(
            (await js._nc.request("$JS.API.SINK.COMMIT.orders", json.dumps(body).encode())).data
        )
        if told.get("released") == told.get("rows"):
            return int(told["rows"])


async def test_blocks_of_one_request_become_messages_in_order(
    broker: BrokerProcess, js: JetStreamContext
) -> None:
    poster = await Poster.begun(broker)
    crc = 0
    for number in range(1, 11):
        data = block(*rows(number))
        crc = crc32(data, crc)
        poster.send(call(number, data))
    poster.raw(b"")  # The body's end.
    answers = await poster.answers(11)
    assert (poster.status, len(answers)) == (200, 10)
    assert not [one for one in answers if "error" in one]
    assert await committed(js, [{"token": "t", "rows": 30, "crc": crc}]) == 30
    found = [(await js.get_msg("orders", seq)) for seq in range(1, 31)]
    expected = [row for number in range(1, 11) for row in rows(number)]
    assert [((one.subject or "").encode(), one.data) for one in found] == expected
    poster.close()


async def test_a_refusal_is_the_answer_of_its_call(broker: BrokerProcess, js: JetStreamContext) -> None:
    poster = await Poster.begun(broker)
    poster.send(call(1, block((b"other.1", b"x"))))
    poster.send(call(1, block(*rows(1)), token="u"))
    refused, taken = await poster.answers(2)
    assert refused["error"]["err_code"]
    assert "error" not in taken
    poster.close()


@pytest.mark.parametrize(("login", "status"), [("app:wrong", 401), ("reader:secret", 403), (APP, 200)])
async def test_who_may_not_stage_by_nats_may_not_here(
    broker: BrokerProcess, js: JetStreamContext, login: str, status: int
) -> None:
    poster = await Poster.begun(broker, login)
    assert poster.status == status
    poster.close()


@pytest.mark.parametrize("content_type", ["Content-Type: text/plain\r\n", ""])
async def test_what_a_page_in_a_browser_may_send_is_no_body(
    broker: BrokerProcess, js: JetStreamContext, content_type: str
) -> None:
    poster = await Poster.begun(broker, content_type=content_type)
    assert poster.status == 415
    poster.close()


async def test_a_user_has_the_same_limit_for_a_block_as_for_a_message(
    broker: BrokerProcess, js: JetStreamContext
) -> None:
    poster = await Poster.begun(broker, "small:secret")
    poster.send(call(1, block((b"orders.1", b"x" * 1000))))
    assert len(await poster.answers(1)) == 1
    poster.send(call(2, block((b"orders.1", b"x" * 5000))))
    assert await poster.answers(1) == []
    poster.close()


async def until_nobody_writes(broker: BrokerProcess) -> None:
    async with asyncio.timeout(5):
        while broker.bulk is not None and broker.bulk.writers:
            await asyncio.sleep(0.01)


async def test_a_request_that_ends_well_is_not_logged(
    broker: BrokerProcess, js: JetStreamContext, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        poster = await Poster.begun(broker)
        poster.send(call(1, block(*rows(1)), token=f"t{number}"))
        assert len(await poster.answers(1)) == 1
        poster.raw(b"")
        poster.close()
        await until_nobody_writes(broker)
    assert [one.getMessage() for one in caplog.records if "blocks for" in one.getMessage()] == []


@pytest.mark.parametrize(
    "error",
    [TransferEncodingError("zz"), web.RequestPayloadError("zz"), OSError(errno.EHOSTUNREACH, "no route")],
    ids=lambda error: type(error).__name__,
)
async def test_what_a_connection_can_do_is_no_fault_of_the_port(
    broker: BrokerProcess,
    js: JetStreamContext,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    async def fails(self: stages.Stages, body: object, lines: object) -> None:
        raise ExceptionGroup("", [error])

    monkeypatch.setattr(stages.Stages, "serve", fails)
    poster = await Poster.begun(broker)
    assert await poster.answers(1) == []
    poster.close()
    await until_nobody_writes(broker)
    assert [one.exc_info for one in caplog.records if one.levelno >= logging.WARNING] == [None]


async def test_a_right_that_is_taken_away_ends_the_request(
    broker: BrokerProcess, js: JetStreamContext, tmp_path: Path
) -> None:
    poster = await Poster.begun(broker)
    poster.send(call(1, block(*rows(1))))
    assert len(await poster.answers(1)) == 1
    (tmp_path / "users.json").write_text(json.dumps(users(DENIED)))
    async with asyncio.timeout(20):
        while all(user.permissions is None for user in broker.credentials.users if user.name == "app"):
            await asyncio.sleep(0.05)
    poster.send(call(2, block(*rows(2))))
    assert await poster.answers(1) == []
    poster.close()


async def test_there_are_so_many_writers_and_the_place_of_one_is_free_again(
    broker: BrokerProcess, js: JetStreamContext
) -> None:
    first = await Poster.begun(broker)
    second = await Poster.begun(broker)
    assert (first.status, second.status) == (200, 429)
    first.close()
    second.close()
    async with asyncio.timeout(10):
        while (third := await Poster.begun(broker)).status != 200:
            third.close()
            await asyncio.sleep(0.05)
    third.close()


@pytest.mark.parametrize("size", [(1 << 20) + 1, 0xFFFF_FFFF])
async def test_a_block_beyond_max_payload_ends_the_request(
    broker: BrokerProcess, js: JetStreamContext, size: int
) -> None:
    poster = await Poster.begun(broker)
    poster.send(b"", size=size)
    assert await poster.answers(1) == []
    poster.close()


async def test_who_sends_nothing_for_long_is_cut(
    broker: BrokerProcess, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "IDLE_S", 0.2)
    monkeypatch.setattr(stages, "PIECE_S", 0.2)
    for begun in (b"", b"\0\0\1\0half of it"):
        poster = await Poster.begun(broker)
        if begun:
            poster.raw(begun)
        assert await asyncio.wait_for(poster.answers(1), 5) == []
        poster.close()
        await until_nobody_writes(broker)


class Body:
    """As much as is asked for, and then nothing."""

    def __init__(self, data: bytes) -> None:
        self.left = data

    async def readexactly(self, n: int) -> bytes:
        data, self.left = self.left[:n], self.left[n:]
        if len(data) < n:
            raise asyncio.IncompleteReadError(data, n)
        return data


class Lines:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_ended = False

    async def write(self, data: bytes) -> None:
        self.written.append(data)

    async def write_eof(self) -> None:
        self.is_ended = True


async def test_no_more_than_some_calls_are_on_their_way() -> None:
    body = Body(b"".join(struct.pack(">I", 1) + b"%d" % number for number in range(9)))
    lines, asked = Lines(), list[tuple[bytes, Any]]()
    serving = asyncio.create_task(
        stages.Stages(lambda payload, then: asked.append((payload, then)), 100).serve(body, lines)
    )
    most = 0
    while not serving.done():
        for _ in range(20):
            await asyncio.sleep(0)
        most = max(most, len(asked))
        while asked:
            payload, then = asked.pop(0)
            then(b"to " + payload)
    await serving
    assert lines.written == [b"to %d\n" % number for number in range(9)]
    assert (most, lines.is_ended) == (stages.IN_FLIGHT_MAX, True)


class ClosedBody:
    """aiohttp ends one so when its port is closed."""

    async def readexactly(self, n: int) -> bytes:
        raise asyncio.CancelledError


async def test_a_port_that_is_closed_ends_a_request_at_once() -> None:
    with pytest.raises(ExceptionGroup) as found:
        async with asyncio.timeout(5):
            await stages.Stages(lambda payload, then: then(b""), 100).serve(ClosedBody(), Lines())
    assert found.group_contains(ConnectionResetError)


@pytest.mark.parametrize("data", [b"\0\0", b"\0\0\0\5ab", b"\0\0\0\4", b"\0\0\0\4abc"])
async def test_a_body_that_ends_inside_a_block_is_none(data: bytes) -> None:
    with pytest.raises(ExceptionGroup) as found:
        await stages.Stages(lambda payload, then: then(b""), 100).serve(Body(data), Lines())
    assert found.group_contains(stages.WrongFrameError)
