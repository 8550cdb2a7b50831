"""A range is read completely and once: with holes, with much of it, and with its broker dying."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path

import nats
import pyarrow as pa
import pytest
from benchmarks.client import make_stream, publish_acknowledged, wait_for_jetstream
from benchmarks.servers import FLEETS, Fleet, NatsServers, SuperclusterBrokers
from nats.js import JetStreamContext
from nats.js.api import RetentionPolicy
from nats.js.errors import NotFoundError
from tests.support.local_clusters import until
from tests.support.tiers import case

from supercluster.spark.client import (
    Address,
    ClientConnection,
    ConnectionFailedError,
    Credentials,
    Servers,
    Tls,
)
from supercluster.spark.columns import COLUMNS, batch_of
from supercluster.spark.jetstream import (
    DataRemovedError,
    JetStreamSession,
    NotReadableError,
    StreamMissingError,
    StreamState,
    UnansweredError,
)
from supercluster.spark.nats.nats_reader import NatsReader
from supercluster.spark.nats.reader import read_range
from supercluster.spark.wire import Record


@pytest.fixture(
    scope="module",
    params=[case(kind, id=kind, is_short=kind == SuperclusterBrokers.kind) for kind in sorted(FLEETS)],
)
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Both kinds: the reader speaks NATS, and nothing of ours alone."""
    with FLEETS[request.param](tmp_path_factory.mktemp("broker"), 1) as servers:
        wait_for_jetstream(servers.urls[0])
        yield servers


READY_S = 60.0
"""Only ends a test that hangs."""


def open_session(urls: list[str], patience_seconds: float = 20.0) -> JetStreamSession:
    return JetStreamSession(
        Servers([Address.parse(url) for url in urls], Credentials()), patience_seconds=patience_seconds
    )


def read_all(
    urls: list[str], stream: str, first: int, last: int, *, fail_on_data_loss: bool = True
) -> list[Record]:
    session = open_session(urls)
    try:
        return [
            record
            for records in read_range(
                session, stream, first, last, patience_seconds=20, fail_on_data_loss=fail_on_data_loss
            )
            for record in records
        ]
    finally:
        session.drop()


async def fill(js: JetStreamContext, count: int, *, subject: str = "a.b") -> None:
    await js.add_stream(name="S", subjects=["a.>"])
    acks = [await js.publish_async(subject, b"%d" % number) for number in range(1, count + 1)]
    await asyncio.gather(*acks)


async def test_a_range_is_read_in_order_and_only_it(fleet: Fleet, js: JetStreamContext) -> None:
    await fill(js, 5_000)
    records = await asyncio.to_thread(read_all, fleet.urls, "S", 1_001, 4_500)
    assert [record[0] for record in records] == list(range(1_001, 4_501))
    assert [record[4] for record in records] == [b"%d" % number for number in range(1_001, 4_501)]
    assert {record[2] for record in records} == {b"a.b"}


async def test_columns_are_what_the_records_are(fleet: Fleet, js: JetStreamContext) -> None:
    await js.add_stream(name="S", subjects=["a.>"])
    await asyncio.gather(
        *[
            await js.publish_async(
                f"a.{number % 7}", b"x" * (number % 90), headers={"N": str(number)} if number % 3 else None
            )
            for number in range(6_000)
        ]
    )
    for sequence in (1_500, 3_000, 3_001, 5_500):
        await js.delete_msg("S", sequence)
    records = await asyncio.to_thread(read_all, fleet.urls, "S", 1_000, 5_500)
    names = tuple(COLUMNS)
    session = open_session(fleet.urls)
    reader = NatsReader(session, "S", names, patience_seconds=20)
    batches = await asyncio.to_thread(lambda: list(reader.read(1_000, 5_500)))
    session.drop()
    assert len(records) == 4_497
    assert pa.Table.from_batches(batches).combine_chunks() == pa.Table.from_batches(
        [batch_of(records, names)]
    )


async def test_deleted_messages_are_passed_over_also_at_both_ends(fleet: Fleet, js: JetStreamContext) -> None:
    await fill(js, 50)
    gone = {10, 11, 20, 38, 39, 40}
    for sequence in gone:
        await js.delete_msg("S", sequence)
    records = await asyncio.to_thread(read_all, fleet.urls, "S", 10, 40)
    assert [record[0] for record in records] == [n for n in range(10, 41) if n not in gone]


async def test_a_range_ends_at_deleted_messages_that_nothing_follows(
    fleet: Fleet, js: JetStreamContext
) -> None:
    await fill(js, 30)
    for sequence in (28, 29, 30):
        await js.delete_msg("S", sequence)
    records = await asyncio.to_thread(read_all, fleet.urls, "S", 25, 30)
    assert [record[0] for record in records] == [25, 26, 27]


async def test_a_range_of_nothing_but_deleted_messages_is_empty(fleet: Fleet, js: JetStreamContext) -> None:
    await fill(js, 30)
    for sequence in range(5, 16):
        await js.delete_msg("S", sequence)
    assert await asyncio.to_thread(read_all, fleet.urls, "S", 5, 15) == []


@pytest.mark.covers("SP-1")
@pytest.mark.parametrize(
    ("purged_below", "left"),
    [(11, range(11, 31)), (21, range(21, 31)), (31, range(0)), (36, range(0)), (41, range(0))],
)
async def test_a_head_that_is_removed_before_it_was_read_is_an_error_and_no_shorter_range(
    fleet: Fleet, js: JetStreamContext, purged_below: int, left: range
) -> None:
    await fill(js, 40)
    await js.delete_msg("S", 25)  # inside: no loss
    await js.purge_stream("S", seq=purged_below)
    with pytest.raises(DataRemovedError, match=f"sequence 5 .* begins at {purged_below}"):
        await asyncio.to_thread(read_all, fleet.urls, "S", 5, 30)
    rest = await asyncio.to_thread(read_all, fleet.urls, "S", 5, 30, fail_on_data_loss=False)
    assert [record[0] for record in rest] == [number for number in left if number != 25]


async def test_a_head_that_is_removed_in_the_middle_of_a_read_is_an_error(
    fleet: Fleet, js: JetStreamContext
) -> None:
    """The consumer has told what it can; the rest of the range goes before it is asked for."""
    await fill(js, 4_000)
    loop = asyncio.get_running_loop()
    session = open_session(fleet.urls)
    seen: list[int] = []

    def read() -> None:
        for records in read_range(session, "S", 1, 4_000, patience_seconds=20):
            if not seen:
                asyncio.run_coroutine_threadsafe(js.purge_stream("S"), loop).result(20)
            seen.extend(record[0] for record in records)

    try:
        with pytest.raises(DataRemovedError, match="begins at 4001"):
            await asyncio.to_thread(read)
    finally:
        session.drop()
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) < 4_000


async def test_what_was_read_is_handed_out_and_the_question_stays_open_when_nobody_answers_it(
    fleet: Fleet, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(js, 40)
    await js.purge_stream("S", seq=11)
    session, asked = open_session(fleet.urls), 0
    answered = JetStreamSession.stream_state

    def answer(self: JetStreamSession, stream: str) -> StreamState:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise UnansweredError("nobody")
        return answered(self, stream)

    monkeypatch.setattr(JetStreamSession, "stream_state", answer)
    seen: list[int] = []

    def read() -> None:
        for records in read_range(session, "S", 5, 40, patience_seconds=20):
            seen.extend(record[0] for record in records)

    with pytest.raises(DataRemovedError, match=r"sequence 5 .* begins at 11"):
        await asyncio.to_thread(read)
    session.drop()
    assert asked == 2
    assert seen[0] == 11


async def test_a_missing_stream_is_named_at_once(fleet: Fleet) -> None:
    session = open_session(fleet.urls)
    with pytest.raises(StreamMissingError, match="NOPE"):
        await asyncio.to_thread(session.stream_state, "NOPE")
    session.drop()


async def test_a_work_queue_is_refused_because_reading_would_empty_it(
    fleet: Fleet, js: JetStreamContext
) -> None:
    await js.add_stream(name="W", subjects=["w.>"], retention=RetentionPolicy.WORK_QUEUE)
    session = open_session(fleet.urls)
    with pytest.raises(NotReadableError, match="work queue"):
        await asyncio.to_thread(session.stream_state, "W")
    session.drop()


async def test_no_broker_is_an_error_that_names_the_address_after_the_patience() -> None:
    session = open_session(["nats://127.0.0.1:1"], patience_seconds=0.2)
    with pytest.raises(UnansweredError, match=r"127\.0\.0\.1:1"):
        await asyncio.to_thread(session.stream_state, "S")


@pytest.fixture(scope="module")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with SuperclusterBrokers(tmp_path_factory.mktemp("three"), 3) as servers:
        yield servers


@pytest.fixture
async def three(three_brokers: Fleet) -> AsyncIterator[Fleet]:
    """All of them running, with no stream."""
    for broker in three_brokers.brokers:
        if broker.process is None:
            broker.start()
    for broker in three_brokers.brokers:
        broker.wait_until_accepting(time.monotonic() + READY_S)
        wait_for_jetstream(broker.url)
    yield three_brokers
    for broker in three_brokers.brokers:
        if broker.process is None:
            broker.start()
            broker.wait_until_accepting(time.monotonic() + READY_S)
    client = await nats.connect(three_brokers.urls)
    await until(partial(gone, client.jetstream(timeout=10)), "the stream to be deleted")
    await client.close()


async def gone(js: JetStreamContext) -> bool:
    try:
        await js.delete_stream("S")
    except NotFoundError:
        return True
    except nats.errors.Error:
        return False  # Nobody leads it yet.
    return True


@pytest.mark.covers("SP-1", "CL-4", "MV-5")
@pytest.mark.parametrize(
    ("connected", "victim"),
    [
        case("follower", "follower", id="follower-follower", is_short=False),
        case("leader", "leader", id="leader-leader", is_short=True),
        case("follower", "leader", id="follower-leader", is_short=False),
    ],
)
async def test_a_read_survives_the_death_of_its_broker_and_of_the_leader(
    three: Fleet, connected: str, victim: str
) -> None:
    client = await nats.connect(three.urls)
    js = client.jetstream(timeout=10)
    for _ in range(100):  # a cluster takes a moment to elect who assigns streams
        try:
            await js.add_stream(name="S", subjects=["a.>"], num_replicas=3)
            break
        except nats.errors.Error:
            await asyncio.sleep(0.1)
    payload = b"x" * 200
    await asyncio.gather(*[await js.publish_async("a.b", payload) for _ in range(3_900)])
    cluster = (await js.stream_info("S")).cluster
    assert cluster is not None
    leader = str(cluster.leader)
    brokers = {"leader": three.by_name(leader), "follower": next(iter(three.others(leader)))}
    # Knowing one broker only, the reader has to learn the others from INFO.
    session = open_session([brokers[connected].url])
    lineage = session.stream_state("S").lineage
    seen: list[int] = []

    def read_with_a_death() -> None:
        for records in read_range(session, "S", 1, 3_900, patience_seconds=30):
            if not seen:
                brokers[victim].kill()
            seen.extend(record[0] for record in records)

    await asyncio.to_thread(read_with_a_death)
    assert (await asyncio.to_thread(session.stream_state, "S")).lineage == lineage
    session.drop()
    await client.close()
    assert brokers[victim].process is None
    assert seen == list(range(1, 3_901))


async def test_a_stream_is_the_same_after_all_brokers_were_killed_and_started_again(three: Fleet) -> None:
    make_stream(three.urls[0], "S", ["a.>"], 3)
    publish_acknowledged(three.urls[0], "a.b", 3_000)
    session = open_session(three.urls)
    before = await asyncio.to_thread(session.stream_state, "S")
    for broker in three.brokers:
        broker.kill()
    for broker in three.brokers:
        broker.start()
    assert await asyncio.to_thread(session.stream_state, "S") == before
    session.drop()
    records = await asyncio.to_thread(read_all, three.urls, "S", 1, 3_000)
    assert [record[0] for record in records] == list(range(1, 3_001))


async def test_a_refused_login_is_not_repeated(tmp_path: Path) -> None:
    class Guarded(NatsServers):
        def command(self, number: int) -> list[str]:
            command = super().command(number)
            with Path(command[-1]).open("a", encoding="utf-8") as file:
                file.write("authorization { user: app, password: right }\n")
            return command

    with Guarded(tmp_path, 1) as servers:
        address = Address.parse(servers.urls[0])
        ClientConnection(address, Credentials("app", "right")).close()
        with pytest.raises(Exception, match="refused the login") as caught:
            JetStreamSession(
                Servers([address], Credentials("app", "wrong")), patience_seconds=60
            ).stream_state("S")
        assert "wrong" not in str(caught.value)


@pytest.mark.covers("SP-2")
def test_a_session_goes_to_the_brokers_that_are_named_by_now(tmp_path: Path) -> None:
    """It began before a mounted Secret named green, and blue is gone since."""

    def others() -> tuple[Sequence[Address], Credentials, Tls]:
        found = told.pop(0)
        if isinstance(found, Exception):
            raise found
        return [found], Credentials(), Tls()

    with NatsServers(tmp_path, 1) as servers:
        gone, green = Address("127.0.0.1", 1), Address.parse(servers.urls[0])
        known = Servers([gone], Credentials(), renew=others)
        known.learn(["nats://127.0.0.1:2"], gone)
        told: list[Address | Exception] = [gone, ValueError("it is being written"), green]
        connection = known.connect(time.monotonic() + READY_S)
        assert (connection.address, known.known) == (green, (green,))
        connection.close()
        told = [gone, green]
        known.connect(time.monotonic() + READY_S).close()
        assert not told


async def test_garbage_from_a_port_that_is_no_broker_is_a_connection_failure() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    with pytest.raises(ConnectionFailedError, match="unknown operation"):
        await asyncio.to_thread(ClientConnection, Address(host, port), Credentials())
    server.close()
    await server.wait_closed()
