"""The broker that is asked first is cut off and has an old map: it refuses to answer, and the next one is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from aiohttp import web
from nats.aio.client import Client
from tests.app.scripted import serving
from tests.reconcilers.builders import NOW, cluster, stream, stream_move, super_cluster, with_status

from supercluster.api import StreamMove
from supercluster.app import brokers
from supercluster.app.brokers import MISSES_MAX, WRITE_TIMEOUT_S, NatsBrokers
from supercluster.reconcilers.observe.moves import move_view
from supercluster.reconcilers.planners.move.stream_move import plan_stream_move
from supercluster.reconcilers.planners.move.views import MoveObserved
from supercluster.reconcilers.planners.plan import CancelMove, Plan
from supercluster.reconcilers.planners.stream.stream import BrokersView, StreamInfo
from supercluster.reconcilers.ports import BrokersRefusedError, BrokersUnreachableError, BrokerTarget

NOT_AVAILABLE = {"error": "JetStream system temporarily unavailable", "err_code": 10008}
RUNS = {
    "members": ["east-0@a", "east-1@b", "east-2@c"],
    "move": {"id": "uid-move", "targets": ["west-0@d"], "progress": None},
    "lastMove": None,
}


class Monitor:
    """A broker's monitoring port; without `document` its map may be old."""

    def __init__(self, document: dict[str, Any] | None) -> None:
        self.document, self.asked = document, 0
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.asked += 1
        if self.document is None:
            return web.json_response(NOT_AVAILABLE, status=503)
        return web.json_response(self.document)


@pytest_asyncio.fixture
async def alpha() -> AsyncIterator[Monitor]:
    made = Monitor(None)
    async with serving(made.handle) as made.url:
        yield made


@pytest_asyncio.fixture
async def east() -> AsyncIterator[Monitor]:
    made = Monitor(RUNS)
    async with serving(made.handle) as made.url:
        yield made


@pytest_asyncio.fixture
async def admin() -> AsyncIterator[NatsBrokers]:
    made = NatsBrokers()
    yield made
    await made.close()


def target(*monitors: Monitor) -> BrokerTarget:
    urls = tuple(monitor.url for monitor in monitors)
    return BrokerTarget("ns", "demo", ("nats://127.0.0.1:9",), "operator", "s3cret", urls)


async def plan_by(admin: NatsBrokers, there: BrokerTarget, move: StreamMove) -> Plan:
    info = StreamInfo({}, leader="east-0")
    told = await admin.move_state(there, "flights")
    view = move_view(told, BrokersView(reachable=True, error="", info=info))
    observed = MoveObserved(
        super_cluster=super_cluster(),
        clusters=(cluster("alpha"), cluster(), cluster("west", tags=["ssd"])),
        stream=stream(),
        stream_name="flights",
        brokers=view,
    )
    return plan_stream_move(move, observed, NOW)


@pytest.mark.covers("MV-9", "MV-13", "OP-4")
async def test_a_move_that_runs_is_watched_and_called_off_though_the_first_broker_is_cut_off(
    admin: NatsBrokers, alpha: Monitor, east: Monitor
) -> None:
    there = target(alpha, east)
    running = stream_move(status={"phase": "Running"})
    told = with_status(running, await plan_by(admin, there, running))
    assert isinstance(told, StreamMove)
    assert told.status.phase == "Running"
    gone = {
        "deletionTimestamp": "2026-01-02T00:00:00Z",
        "finalizers": ["supercluster.dev/deletion-policy"],
    }
    deleted = await plan_by(admin, there, stream_move(meta=gone, status={"phase": "Running"}))
    assert deleted.steps == (CancelMove("flights", "uid-move"),)
    assert (alpha.asked, east.asked) == (2, 2)


@pytest.mark.covers("CL-4")
async def test_what_is_lost_is_told_by_a_broker_that_is_sure_of_its_map_if_there_is_one(
    admin: NatsBrokers, alpha: Monitor, east: Monitor
) -> None:
    alpha.document = {"lostClusters": ["east is gone", "west is gone"], "mapIsFresh": False}
    east.document = {"lostClusters": ["alpha is gone"], "mapIsFresh": True}
    assert await admin.brokers_state(target(alpha, east)) == east.document
    assert await admin.brokers_state(target(alpha)) == alpha.document
    alpha.document = None
    with pytest.raises(BrokersUnreachableError, match="no broker answers"):
        await admin.brokers_state(target(alpha))


@pytest.mark.covers("OP-4")
async def test_a_connection_to_a_broker_that_can_not_answer_is_given_up_for_another(
    admin: NatsBrokers, alpha: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = {"code": 503, "err_code": 10008, "description": "temporarily unavailable"}
    made: list[SimpleNamespace] = []
    asked: list[tuple[str, ...]] = []
    one, other = "nats://127.0.0.1:9", "nats://127.0.0.1:10"

    async def connect(target: BrokerTarget, _: object) -> Client:
        asked.append(target.servers)

        async def request(subject: str, payload: bytes, *, timeout: float) -> SimpleNamespace:
            return SimpleNamespace(data=json.dumps({"error": error}).encode())

        async def close() -> None:
            pass

        url = urlsplit(target.servers[0])
        made.append(SimpleNamespace(is_connected=True, request=request, close=close, connected_url=url))
        return cast("Client", made[-1])

    monkeypatch.setattr(brokers, "_connect", connect)
    for _ in range(MISSES_MAX + 1):
        with pytest.raises(BrokersRefusedError, match="temporarily unavailable"):
            await admin.stream_info(replace(target(alpha), servers=(one, other)), "flights")
    assert asked == [(one, other), (other,)]


@pytest.mark.covers("OP-6")
async def test_a_broker_that_stands_still_is_waited_for_no_longer_than_for_its_ping(
    admin: NatsBrokers, alpha: Monitor
) -> None:
    """It has taken the connection, and answers nothing from then on."""

    async def stand_still(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id": "S", "version": "2.15.0", "max_payload": 1048576}\r\n')
        while (line := await reader.readline()) != b"PING\r\n":
            assert line
        writer.write(b"PONG\r\n")
        await reader.read()
        writer.close()

    loop = asyncio.get_running_loop()
    async with await asyncio.start_server(stand_still, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        there = replace(target(alpha), servers=(f"nats://127.0.0.1:{port}",))
        began_s = loop.time()
        with pytest.raises(BrokersUnreachableError, match="stands still"):
            await admin.create_stream(there, {"name": "flights"})
        assert loop.time() - began_s < WRITE_TIMEOUT_S
        await admin.close()
