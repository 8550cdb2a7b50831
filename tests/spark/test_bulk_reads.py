"""Tasks read whole streams from the bulk ports of real brokers: every row once, and the same rows as over NATS."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial

import nats
import pyarrow as pa
import pytest
from benchmarks.client import wait_for_jetstream
from benchmarks.servers import Fleet, SuperclusterBrokers
from nats.js import JetStreamContext
from tests.support.local_clusters import until

from supercluster.spark.bulk.bulk_reader import BulkReader, NoBulkError
from supercluster.spark.client import Address, Credentials, Servers
from supercluster.spark.columns import COLUMNS, STREAM
from supercluster.spark.datasource.options import read_options
from supercluster.spark.datasource.source import BatchReader
from supercluster.spark.jetstream import JetStreamSession
from supercluster.spark.nats.nats_reader import NatsReader

pytestmark = pytest.mark.covers("SP-1")

NAMES = (STREAM, *COLUMNS)
MESSAGES, PAYLOAD_BYTES = 3_000, 2_000
SEGMENT_BYTES = 1 << 20
READY_S = 60.0
"""Only ends a test that hangs."""


class BulkBrokers(SuperclusterBrokers):
    more_settings = {
        "bulk": {"port": 8333},
        "storage": {"syncIntervalMs": 1_000, "segmentBytes": SEGMENT_BYTES},
    }


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with BulkBrokers(tmp_path_factory.mktemp("bulk"), 3) as servers:
        for url in servers.urls:
            wait_for_jetstream(url)
        yield servers


@pytest.fixture
async def js(fleet: Fleet) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(fleet.urls)
    js = client.jetstream(timeout=10)
    yield js
    await js.delete_stream("S")
    await client.close()


async def fill(js: JetStreamContext, replicas: int) -> None:
    await js.add_stream(name="S", subjects=["a.>"], num_replicas=replicas)
    for begin in range(0, MESSAGES, 500):
        acks = [
            await js.publish_async(
                f"a.{number % 7}",
                os.urandom(number % PAYLOAD_BYTES),
                headers={"N": str(number)} if number % 3 else None,
            )
            for number in range(begin, begin + 500)
        ]
        await asyncio.gather(*acks)
    for sequence in (5, 700, 701, 702, 1_500, MESSAGES):
        await js.delete_msg("S", sequence)


def session_of(*urls: str) -> JetStreamSession:
    return JetStreamSession(Servers([Address.parse(url) for url in urls], Credentials()), patience_seconds=20)


class Counting(NatsReader):
    """Tells which ranges it read."""

    ranges: list[tuple[int, int]] = []

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        self.ranges.append((first, last))
        yield from super().read(first, last)


def over_nats(session: JetStreamSession, names: tuple[str, ...] = NAMES) -> Counting:
    Counting.ranges.clear()
    return Counting(session, "S", names, patience_seconds=20)


def table(batches: Iterator[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches).combine_chunks()


@pytest.mark.parametrize("replicas", [1, 3])
async def test_a_whole_stream_is_the_same_from_the_bulk_port_and_over_nats(
    fleet: Fleet, js: JetStreamContext, replicas: int
) -> None:
    await fill(js, replicas)

    def compare() -> None:
        for url in fleet.urls:
            session = session_of(url)
            lineage = session.stream_state("S").lineage
            for names, first, last in (
                (NAMES, 1, MESSAGES),
                (("payload",), 1, MESSAGES),
                (("time", "subject"), 650, 1_501),
            ):
                wanted = table(NatsReader(session, "S", names, patience_seconds=20).read(first, last))
                nats_reader = over_nats(session, names)
                found = table(BulkReader(nats_reader, lineage, is_required=True).read(first, last))
                assert found == wanted
                rows = sum(high - low + 1 for low, high in nats_reader.ranges)
                assert rows < (last - first + 1) // 2, f"{nats_reader.ranges} over NATS"
            session.drop()

    await asyncio.to_thread(compare)


async def test_a_read_goes_on_when_its_broker_dies(fleet: Fleet, js: JetStreamContext) -> None:
    await fill(js, 3)
    session = session_of(*fleet.urls)
    state = await asyncio.to_thread(session.stream_state, "S")
    wanted = await asyncio.to_thread(
        lambda: table(NatsReader(session, "S", NAMES, patience_seconds=20).read(1, MESSAGES))
    )
    victim = next(each for each in fleet.brokers if each.name == session.broker().server_name)

    def read() -> pa.Table:
        batches: list[pa.RecordBatch] = []
        for batch in BulkReader(over_nats(session), state.lineage).read(1, MESSAGES):
            if not batches:
                victim.kill()
            batches.append(batch)
        return table(iter(batches))

    try:
        assert await asyncio.to_thread(read) == wanted
    finally:
        session.drop()
        if victim.process is None:
            victim.start()
            victim.wait_until_accepting(time.monotonic() + READY_S)
            wait_for_jetstream(victim.url)
    await until(partial(_answers, js), "the stream to be led")


async def test_messages_that_are_deleted_during_a_read_cost_no_other_row(
    fleet: Fleet, js: JetStreamContext
) -> None:
    await fill(js, 1)
    loop, session = asyncio.get_running_loop(), session_of(*fleet.urls)
    state = await asyncio.to_thread(session.stream_state, "S")
    gone = list(range(110, MESSAGES, 150))

    async def delete() -> None:
        for sequence in gone:
            await js.delete_msg("S", sequence)

    def over_nats_now() -> list[int]:
        reader = NatsReader(session, "S", ("sequence",), patience_seconds=20)
        found: list[int] = table(reader.read(1, MESSAGES))["sequence"].to_pylist()
        return found

    def read() -> list[int]:
        found: list[int] = []
        for batch in BulkReader(over_nats(session, ("sequence",)), state.lineage).read(1, MESSAGES):
            if not found:
                asyncio.run_coroutine_threadsafe(delete(), loop).result(READY_S)
            found += batch.column(0).to_pylist()
        return found

    before = await asyncio.to_thread(over_nats_now)
    found = await asyncio.to_thread(read)
    after = await asyncio.to_thread(over_nats_now)
    session.drop()
    assert found == sorted(set(found))
    assert set(after) <= set(found) <= set(before)
    assert len(after) == len(before) - len(gone)


async def _answers(js: JetStreamContext) -> bool:
    try:
        await js.stream_info("S")
    except nats.errors.Error:
        return False
    return True


async def test_followers_are_asked_before_the_leader_and_brokers_without_a_copy(
    fleet: Fleet, js: JetStreamContext
) -> None:
    await js.add_stream(name="S", subjects=["a.>"], num_replicas=3)
    await until(partial(_has_followers, js), "followers")
    names = dict(zip(fleet.hosts, fleet.names, strict=True))

    def asked(connected: int, followers: tuple[str, ...]) -> list[str]:
        session = session_of(fleet.urls[connected])
        found = [names[port.host] for port in session.bulk_ports(followers, lambda name: False)]
        session.drop()
        return found

    def check() -> None:
        session = session_of(*fleet.urls)
        state = session.stream_state("S")
        session.drop()
        assert len(state.followers) == 2
        (leader,) = set(fleet.names) - set(state.followers)
        for connected, name in enumerate(fleet.names):
            found = asked(connected, state.followers)
            assert set(found) == {*state.followers, name}
            assert found[0] == name if name != leader else found[-1] == name
            assert asked(connected, ()) == [name]

    await asyncio.to_thread(check)


async def _has_followers(js: JetStreamContext) -> bool:
    cluster = (await js.stream_info("S")).cluster
    return cluster is not None and len(cluster.replicas or ()) == 2


async def test_the_option_bulk_says_which_way_a_task_reads(
    fleet: Fleet, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(js, 3)

    def rows(**options: str) -> int:
        reader = BatchReader(
            read_options(
                {"url": fleet.urls[0], "stream": "S", "minPartitions": "1", **options}, streaming=False
            ),
            ("sequence",),
        )
        (partition,) = reader.partitions()
        return sum(batch.num_rows for batch in reader.read(partition))

    there = MESSAGES - 6
    assert await asyncio.to_thread(rows, bulk="only") == there
    assert await asyncio.to_thread(rows, bulk="auto") == there
    monkeypatch.setattr(BulkReader, "_by_blocks", lambda *given: pytest.fail("was asked"))
    assert await asyncio.to_thread(rows, bulk="off") == there
    assert await asyncio.to_thread(rows, bulk="auto") == there, "less than a block"
    monkeypatch.undo()
    monkeypatch.setattr("supercluster.spark.client.ClientConnection.bulk_port", None)
    assert await asyncio.to_thread(rows, bulk="auto") == there
    with pytest.raises(NoBulkError, match="the brokers have no bulk port"):
        await asyncio.to_thread(rows, bulk="only")
