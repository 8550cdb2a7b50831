"""A stream goes over to another super-cluster in the middle of a bulk read: every row comes once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benchmarks.client import publish_acknowledged
from nats.js.api import StreamConfig
from tests.broker.bulk.reading import read
from tests.spark.test_bulk_events import MESSAGES, NAMES, PAYLOAD_BYTES, SEGMENT_BYTES, little_on_its_way
from tests.spark.test_bulk_reads import session_of, table
from tests.support.blue_green import BlueGreen
from tests.support.local_clusters import Broker, until

from supercluster.spark.bulk.bulk_reader import BulkReader
from supercluster.spark.nats.nats_reader import NatsReader

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.covers("SP-1", "BG-4"),
    pytest.mark.usefixtures("little_on_its_way"),
]

__all__ = ["little_on_its_way"]
PORT = 8333
MORE: dict[str, Any] = {"bulk": {"port": PORT}, "storage": {"segmentBytes": SEGMENT_BYTES}}


@pytest.fixture
async def sides(tmp_path: Path) -> AsyncIterator[BlueGreen]:
    made = BlueGreen(tmp_path)
    try:
        yield made
    finally:
        await made.stop()


async def serves(broker: Broker) -> bool:
    answer = await read(PORT, "S", ["sequence"], host=broker.host)
    return answer.end is not None and answer.is_complete() and answer.covered[1] > MESSAGES // 2


async def test_a_read_that_began_at_blue_ends_at_green(sides: BlueGreen) -> None:
    await sides.start(1, blue=MORE, green=MORE)
    (blue,), (green,) = sides.blue.running, sides.green.running
    js = await sides.blue.js()
    await js.add_stream(StreamConfig(name="S", subjects=["a.>"]))
    fill = partial(publish_acknowledged, payload_bytes=PAYLOAD_BYTES, distinct=True, in_flight=50)
    await asyncio.to_thread(fill, blue.url, "a.b", MESSAGES)
    await js.delete_msg("S", 1_700)
    session = session_of(blue.url)
    nats = NatsReader(session, "S", NAMES, patience_seconds=20)
    wanted = await asyncio.to_thread(lambda: table(nats.read(1, MESSAGES)))
    lineage = session.stream_state("S").lineage
    batches = BulkReader(nats, lineage).read(1, MESSAGES)
    found = [await asyncio.to_thread(next, batches)]
    await sides.migrate()
    assert (await read(PORT, "S", host=blue.host)).status in (404, 503)
    found += await asyncio.to_thread(list, batches)
    assert table(iter(found)) == wanted
    session.drop()

    await until(partial(serves, green), "green to have blocks")
    session = session_of(green.url)
    state = await asyncio.to_thread(session.stream_state, "S")
    assert (state.lineage, state.last_sequence, state.messages) == (lineage, MESSAGES, MESSAGES - 1)
    reader = BulkReader(NatsReader(session, "S", NAMES, patience_seconds=20), lineage, is_required=True)
    assert await asyncio.to_thread(lambda: table(reader.read(1, MESSAGES))) == wanted
    session.drop()
