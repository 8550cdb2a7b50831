"""The bulk port of a real broker: whole streams as Arrow columns, and nothing that NATS would refuse."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from tests.broker.bulk.reading import read

from supercluster.broker.runtime.process import BrokerProcess
from supercluster.broker.runtime.process_core import make_core
from supercluster.broker.settings import settings
from supercluster.broker.settings.place import Place

USERS = {
    "users": [
        {"user": "app", "password": "app-secret", "role": "client"},
        {
            "user": "narrow",
            "password": "secret",
            "role": "client",
            "permissions": {"publish": {"deny": ["$JS.API.STREAM.MSG.GET.orders"]}},
        },
        {"user": "operator", "password": "op-secret", "role": "operator"},
    ]
}
APP = "app:app-secret"
SEGMENT_BYTES = 64 << 10


def parsed(**more: Any) -> settings.Settings:
    return settings.parse(
        {
            "superCluster": "demo",
            "identity": "id-1",
            "cluster": "east",
            "peers": {},
            "metaVoters": ["east-0"],
            "ports": {"client": 0, "cluster": 0, "monitor": 0},
            "storage": {"segmentBytes": SEGMENT_BYTES},
            "bulk": {"port": 0},
            **more,
        }
    )


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    (tmp_path / "users.json").write_text(json.dumps(USERS))
    file = tmp_path / "broker.json"
    file.write_text("{}")
    place = Place("east-0", "127.0.0.1", "127.0.0.1", file, tmp_path / "data", tmp_path)
    process = BrokerProcess(parsed(), place, make_core)
    await process.start()
    yield process
    await process.stop()


@pytest.fixture
async def js(broker: BrokerProcess) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(f"nats://{APP}@{broker.advertised_client_url}", allow_reconnect=False)
    yield client.jetstream()
    await client.close()


async def fill(js: JetStreamContext, count: int = 400, size: int = 500, **config: Any) -> None:
    """A stream of some segments, the messages in it of different kinds."""
    await js.add_stream(StreamConfig(name="orders", subjects=["orders.>"], **config))
    for number in range(1, count + 1):
        headers = {"Number": str(number)} if number % 3 == 0 else None
        await js.publish(f"orders.{number % 7}", bytes([number % 251]) * size, headers=headers)


async def test_every_row_comes_once_and_as_it_is(broker: BrokerProcess, js: JetStreamContext) -> None:
    await fill(js)
    answer = await read(broker.bulk_port, "orders", login=APP)
    first, last = answer.covered
    assert (first, answer.status, answer.is_complete()) == (1, 200, True)
    assert len(answer.blocks) > 2
    assert last > 300
    for row in answer.rows:
        number = row["sequence"]
        assert row["subject"] == f"orders.{number % 7}"
        assert row["payload"] == bytes([number % 251]) * 500
        assert row["headers"] == ([("Number", [str(number)])] if number % 3 == 0 else None)
        told = await js.get_msg("orders", number) if number % 50 == 0 else None
        assert told is None or told.time is None or row["time"].timestamp() == told.time.timestamp()
