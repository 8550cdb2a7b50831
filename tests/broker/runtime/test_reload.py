"""Settings that change while a broker runs: what it takes over, what waits, what it refuses (OP-3)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from supercluster.broker.jetstream.node import map_reader
from supercluster.broker.monitor import views
from supercluster.broker.runtime import process as process_module
from supercluster.broker.runtime.process import BrokerProcess
from supercluster.broker.runtime.process_core import ProcessCore, make_core
from supercluster.broker.settings import settings
from supercluster.broker.settings.place import Place
from supercluster.broker.settings.reload import Reload, digest_of, merged, waiting

BASE: dict[str, Any] = {
    "superCluster": "demo",
    "identity": "id-1",
    "cluster": "east",
    "peers": {},
    "metaVoters": ["east-0"],
    "ports": {"client": 0, "cluster": 0, "monitor": 0},
}


def write(file: Path, **changes: Any) -> str:
    """As a ConfigMap's volume does it: another file in its place."""
    content = json.dumps({**BASE, **changes}).encode()
    other = file.with_suffix(".new")
    other.write_bytes(content)
    other.replace(file)
    return digest_of(content)


@pytest.fixture
async def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BrokerProcess]:
    monkeypatch.setattr(process_module, "REFRESH_S", 0.1)
    file = tmp_path / "broker.json"
    write(file)
    place = Place("east-0", "127.0.0.1", "127.0.0.1", file, tmp_path / "data")
    process = BrokerProcess(settings.load(file), place, make_core)
    await process.start()
    yield process
    await process.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.mark.covers("OP-3")
async def test_limits_tags_and_room_are_taken_over_while_clients_stay(broker: BrokerProcess) -> None:
    assert views.varz(broker, {})["config"]["digest"] == broker.reload.digest != ""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.client_port)
    assert json.loads((await reader.readline())[5:])["max_payload"] == 1 << 20
    writer.write(b'CONNECT {"protocol":1,"verbose":true}\r\n')
    assert await reader.readline() == b"+OK\r\n"
    digest = write(
        broker.place.config,
        limits={"maxPayloadBytes": 100, "maxConnections": 1, "pingIntervalMs": 200, "pingsOutMax": 100},
        storage={"maxFileBytes": 1 << 20, "maxMemoryBytes": 1 << 20},
        tags=["ssd"],
    )
    await until(lambda: broker.reload.digest == digest)
    told = await asyncio.wait_for(reader.readline(), 30)
    assert json.loads(told[5:])["max_payload"] == 100, "who is here is told"
    other_reader, other = await asyncio.open_connection("127.0.0.1", broker.client_port)
    assert b"maximum connections exceeded" in await other_reader.read()
    other.close()
    await other.wait_closed()
    writer.write(b"PUB a 100\r\n" + b"x" * 100 + b"\r\n")
    assert await _next(reader) == b"+OK\r\n", "who is here stays, whatever the limit"
    writer.write(b"PUB a 101\r\n" + b"x" * 101 + b"\r\n")
    assert b"Maximum Payload Violation" in await _next(reader)
    writer.close()
    await writer.wait_closed()
    shown = views.varz(broker, {})
    assert (shown["max_payload"], shown["max_connections"], shown["ping_interval"]) == (100, 1, 200_000_000)
    assert shown["config"] == {"digest": digest, "refused": "", "atNextStart": []}
    core = broker.core
    assert isinstance(core, ProcessCore)
    assert core.store.room_bytes(memory=False) < 1 << 20
    assert core.store.room_bytes(memory=True) < 1 << 20
    meta = core.meta
    assert meta is not None
    await until(lambda: any(record.tags == ("ssd",) for record in meta.state.brokers.values()))


async def _next(reader: asyncio.StreamReader) -> bytes:
    """The next line that is no PING."""
    while True:
        line = await asyncio.wait_for(reader.readline(), 30)
        if not line.startswith(b"PING"):
            return line


@pytest.mark.covers("OP-3", "SF-26")
async def test_a_broker_begins_no_map_until_its_settings_permit_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "REFRESH_S", 0.1)
    monkeypatch.setattr(map_reader, "MAP_WAIT_MS", 100)
    file = tmp_path / "broker.json"
    write(file, joinOnly=True)
    place = Place("east-0", "127.0.0.1", "127.0.0.1", file, tmp_path / "data")
    process = BrokerProcess(settings.load(file), place, make_core)
    await process.start()
    try:
        core = process.core
        assert isinstance(core, ProcessCore)
        assert core.meta is None
        status, document = views.health(process, "ready")
        assert status == 200, "clients without streams are served"
        assert any("joinOnly forbids" in warning for warning in document["warnings"])
        write(file)
        await until(lambda: core.meta is not None and core.map.is_fresh)
        write(file, joinOnly=True)
        await until(lambda: core.env.settings.join_only)
        assert views.health(process, "ready") == (200, {"status": "ok"})
    finally:
        await process.stop()


@pytest.mark.covers("OP-3")
async def test_a_bad_value_is_refused_by_its_field_and_the_old_ones_stay(broker: BrokerProcess) -> None:
    before = broker.reload.digest
    write(broker.place.config, limits={"maxPayloadBytes": 0, "maxConnections": 7})
    await until(lambda: bool(broker.reload.refused))
    assert "limits.maxPayloadBytes is 0" in broker.reload.refused
    assert broker.server.limits.max_connections == 65536, "nothing of a file that is refused is taken"
    assert broker.reload.digest == before
    digest = write(broker.place.config, limits={"maxConnections": 7})
    await until(lambda: broker.reload.digest == digest)
    assert broker.reload.refused == ""
    assert broker.server.limits.max_connections == 7


def test_what_waits_for_the_next_start_is_told_by_its_field(tmp_path: Path) -> None:
    file = tmp_path / "broker.json"
    write(file)
    in_force = settings.load(file)
    reload = Reload(file, in_force)
    assert reload.look(in_force) is None
    digest = write(
        file,
        raft={"heartbeatMs": 50},
        limits={"maxConnections": 7, "windowWaitMs": 200},
        storage={"segmentBytes": 70000},
        gateways={"west": []},
    )
    found = reload.look(in_force)
    assert found is not None
    assert found.limits.max_connections == 7
    assert (found.raft, found.gateways, found.limits.window_wait_ms) == (in_force.raft, None, 10_000)
    assert reload.digest == digest
    assert reload.waiting == (
        "gateways",
        "limits.windowWaitMs",
        "raft.heartbeatMs",
        "storage.segmentBytes",
    )
    assert reload.look(found) is None, "the same file is not taken over twice"


def test_a_file_that_changed_between_being_loaded_and_looked_at_is_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "broker.json"
    write(file)
    loaded = settings.load(file)
    digest = write(file, tags=["ssd"])
    reload = Reload(file, loaded)
    assert reload.digest == "", "it is not known what was loaded"
    found = reload.look(loaded)
    assert found is not None
    assert (found.tags, reload.digest) == (("ssd",), digest)


def test_every_field_is_either_taken_over_or_said_to_wait() -> None:
    one = settings.parse(BASE)
    other = settings.parse(
        {
            **BASE,
            "peers": {"east-1": "east-1.svc:6222"},
            "metaVoters": ["east-1"],
            "tags": ["ssd"],
            "joinOnly": True,
            "moves": {"bytesPerS": 5},
            "limits": {"maxControlLineBytes": 600, "maxPendingBytes": 70000},
        }
    )
    now = merged(one, other)
    assert (now.peers, now.tags, now.moves) == (other.peers, other.tags, other.moves)
    assert now.join_only
    assert (now.meta_voters, now.limits.max_control_line_bytes) == (("east-0",), 4096)
    assert waiting(one, other) == ("limits.maxControlLineBytes", "metaVoters")
    assert merged(now, other) == now
