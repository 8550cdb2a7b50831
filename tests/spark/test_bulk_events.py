"""What happens to brokers and streams in the middle of a bulk read: every row comes once, or an error says what is gone."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial

import nats
import pyarrow as pa
import pytest
from benchmarks.client import publish_acknowledged, wait_for_jetstream
from benchmarks.servers import Fleet
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from tests.broker.bulk.reading import read as ask
from tests.spark.test_bulk_reads import READY_S, BulkBrokers, session_of, table
from tests.support.local_clusters import fetch, until
from tests.support.tiers import case

from supercluster.spark.bulk import port as port_module
from supercluster.spark.bulk.bulk_reader import BulkReader
from supercluster.spark.client import BulkPort
from supercluster.spark.datasource import source
from supercluster.spark.datasource.options import read_options
from supercluster.spark.datasource.plan import StreamReplacedError
from supercluster.spark.datasource.source import BatchReader
from supercluster.spark.jetstream import DataRemovedError, StreamMissingError
from supercluster.spark.nats.nats_reader import NatsReader

pytestmark = pytest.mark.covers("SP-1")

NAMES = ("sequence", "time", "subject", "payload")
MESSAGES, PAYLOAD_BYTES = 2_000, 2_000
PORT = 8333
SEGMENT_BYTES = 512 << 10
"""A block takes a whole segment: there are seven."""
CONFIG = StreamConfig(name="S", subjects=["a.>"])


class SmallSegments(BulkBrokers):
    more_settings = {
        "bulk": {"port": PORT},
        "storage": {"syncIntervalMs": 1_000, "segmentBytes": SEGMENT_BYTES},
    }


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with SmallSegments(tmp_path_factory.mktemp("events"), 3) as servers:
        for url in servers.urls:
            wait_for_jetstream(url)
        yield servers


@pytest.fixture
async def js(fleet: Fleet) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(fleet.urls, reconnect_time_wait=0.05, max_reconnect_attempts=-1)
    js = client.jetstream(timeout=10)
    yield js
    await until(partial(_gone, js), "the stream to be deleted")
    await client.close()


async def _gone(js: JetStreamContext) -> bool:
    try:
        await js.delete_stream("S")
    except nats.js.errors.NotFoundError:
        return True
    except nats.errors.Error:
        return False  # Nobody leads it yet.
    return True


@pytest.fixture(autouse=True)
def little_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets hold less than a block, so that a broker has not sent what the reader has not come to."""

    def connected(port: BulkPort, timeout_seconds: float) -> socket.socket:
        plain = socket.socket()
        plain.settimeout(timeout_seconds)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1_400)
        try:
            plain.connect((port.host, port.port))
        except OSError:
            plain.close()
            raise
        return plain

    monkeypatch.setattr(port_module, "connected", connected)


async def fill(fleet: Fleet, js: JetStreamContext, replicas: int = 3) -> str:
    """Returns the stream's leader, once all copies are level."""
    await until(partial(_is_made, js, replicas), "a stream")
    leader = await leader_of(js)
    await asyncio.to_thread(
        publish_acknowledged,
        *(fleet.by_name(leader).url, "a.b", MESSAGES),
        payload_bytes=PAYLOAD_BYTES,
        distinct=True,
        in_flight=50,
    )
    await until(partial(_is_level, fleet, replicas), "level copies")
    return leader


async def _is_made(js: JetStreamContext, replicas: int) -> bool:
    try:
        await js.add_stream(CONFIG.evolve(num_replicas=replicas))
    except nats.errors.Error:
        return False  # A broker that came back is not known to all yet.
    return True


async def leader_of(js: JetStreamContext) -> str:
    found: list[str] = []

    async def is_led() -> bool:
        try:
            cluster = (await js.stream_info("S")).cluster
        except nats.errors.Error:
            return False
        found.append((cluster.leader if cluster is not None else None) or "")
        return bool(found[-1])

    await until(is_led, "a leader")
    return found[-1]


async def _is_level(fleet: Fleet, replicas: int) -> bool:
    documents = [(await asyncio.to_thread(fetch, f"http://{host}:8222/jsz"))[1] or {} for host in fleet.hosts]
    copies = [copy for each in documents for copy in each.get("streams", ()) if copy["name"] == "S"]
    return len(copies) == replicas and {copy["state"]["last_seq"] for copy in copies} == {MESSAGES}


class Read:
    """A task's read of the whole stream that asks one broker first."""

    def __init__(self, fleet: Fleet, name: str, *, fails: bool = True) -> None:
        self.session = session_of(fleet.by_name(name).url)
        lineage = self.session.stream_state("S").lineage
        self.over_nats: list[tuple[int, int]] = []
        reader = NatsReader(self.session, "S", NAMES, patience_seconds=20, fail_on_data_loss=fails)
        self.wanted = table(reader.read(1, MESSAGES))
        self._batches = BulkReader(_Noting.of(reader, self.over_nats), lineage).read(1, MESSAGES)
        self.found = [next(self._batches)]

    def rest(self) -> None:
        """Raises what the task raises."""
        try:
            self.found += self._batches
        finally:
            self.session.drop()

    @property
    def sequences(self) -> list[int]:
        return [each for batch in self.found for each in batch.column(0).to_pylist()]


class _Noting(NatsReader):
    """Notes which ranges it reads."""

    ranges: list[tuple[int, int]]

    @classmethod
    def of(cls, reader: NatsReader, ranges: list[tuple[int, int]]) -> NatsReader:
        made = cls(
            *(reader.session, reader.stream, reader.names, reader.patience_seconds, reader.fail_on_data_loss)
        )
        object.__setattr__(made, "ranges", ranges)
        return made

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        self.ranges.append((first, last))
        yield from super().read(first, last)


async def kill(fleet: Fleet, js: JetStreamContext, serving: str) -> None:
    fleet.by_name(serving).kill()


async def restart(fleet: Fleet, js: JetStreamContext, serving: str) -> None:
    await kill(fleet, js, serving)
    start(fleet)


async def step_down(fleet: Fleet, js: JetStreamContext, serving: str) -> None:
    answer = await js._nc.request("$JS.API.STREAM.LEADER.STEPDOWN.S", b"", timeout=10)
    assert json.loads(answer.data)["success"]

    async def is_other() -> bool:
        return await leader_of(js) != serving

    await until(is_other, "another leader")


def start(fleet: Fleet) -> None:
    """On the main thread: brokers die with the thread that started them."""
    for broker in fleet.brokers:
        if broker.process is None:
            broker.start()
            broker.wait_until_accepting(time.monotonic() + READY_S)
            wait_for_jetstream(broker.url)


@pytest.mark.parametrize(
    ("act", "is_leader"),
    [
        case(kill, False, id="kill-follower", is_short=True),
        case(kill, True, id="kill-leader", is_short=True),
        case(restart, False, id="restart-follower", is_short=False),
        case(restart, True, id="restart-leader", is_short=True),
        case(step_down, True, id="step-down", is_short=True),
    ],
)
async def test_every_row_comes_once_whatever_happens_to_the_serving_broker(
    fleet: Fleet, js: JetStreamContext, act: Callable[..., Awaitable[None]], is_leader: bool
) -> None:
    leader = await fill(fleet, js)
    serving = leader if is_leader else next(name for name in fleet.names if name != leader)
    read = await asyncio.to_thread(Read, fleet, serving)
    try:
        await act(fleet, js, serving)
        await asyncio.to_thread(read.rest)
    finally:
        start(fleet)
    assert table(iter(read.found)) == read.wanted
    rows = sum(last - first + 1 for first, last in read.over_nats)
    assert rows < MESSAGES // 4, f"{read.over_nats} over NATS: only the tail has no block"


async def test_every_row_comes_once_when_the_only_copy_moves_to_another_broker(
    fleet: Fleet, js: JetStreamContext
) -> None:
    serving = await fill(fleet, js, 1)
    read = await asyncio.to_thread(Read, fleet, serving)
    body = json.dumps({"peer": serving}).encode()

    async def is_taken() -> bool:
        answer = json.loads((await js._nc.request("$JS.API.STREAM.PEER.REMOVE.S", body, timeout=10)).data)
        return "error" not in answer

    async def has_moved() -> bool:
        host = fleet.by_name(serving).host
        return await leader_of(js) != serving and (await ask(PORT, "S", host=host)).status == 404

    await until(is_taken, "the move to begin")
    await until(has_moved, "the move to end")
    await asyncio.to_thread(read.rest)
    assert table(iter(read.found)) == read.wanted


async def has_first(js: JetStreamContext, first: int) -> bool:
    return (await js.stream_info("S")).state.first_seq == first


async def by_count(js: JetStreamContext) -> int:
    await js.update_stream(CONFIG.evolve(num_replicas=3, max_msgs=400))
    return MESSAGES - 399


async def by_age(js: JetStreamContext) -> int:
    await js.update_stream(CONFIG.evolve(num_replicas=3, max_age=0.1, duplicate_window=0.1))
    return MESSAGES + 1


async def by_purge(js: JetStreamContext) -> int:
    await js.purge_stream("S", seq=1_700)
    return 1_700


async def by_purge_of_all(js: JetStreamContext) -> int:
    await js.purge_stream("S")
    return MESSAGES + 1


@pytest.mark.parametrize("remove", [by_count, by_age, by_purge, by_purge_of_all])
async def test_a_head_that_goes_in_the_middle_of_a_read_is_an_error_unless_loss_is_allowed(
    fleet: Fleet, js: JetStreamContext, remove: Callable[[JetStreamContext], Awaitable[int]]
) -> None:
    leader = await fill(fleet, js)
    other = next(name for name in fleet.names if name != leader)
    reads = [
        await asyncio.to_thread(partial(Read, fleet, name, fails=fails))
        for name, fails in ((leader, True), (other, True), (leader, False), (other, False))
    ]
    begin = await remove(js)
    await until(partial(has_first, js, begin), "the head to go")
    for read in reads[:2]:
        with pytest.raises(DataRemovedError, match=f"begins at {begin}"):
            await asyncio.to_thread(read.rest)
    for read in reads[2:]:
        await asyncio.to_thread(read.rest)
    for read in reads[2:]:
        before = list(itertools.takewhile(lambda seq: seq < begin, read.sequences))
        assert before == list(range(1, len(before) + 1))
        assert len(before) < begin - 200, "what is gone is not sent any more"
        assert read.sequences == [*before, *range(begin, MESSAGES + 1)]


async def test_messages_that_are_deleted_before_the_reader_comes_to_them_are_no_loss_and_not_read(
    fleet: Fleet, js: JetStreamContext
) -> None:
    leader = await fill(fleet, js)
    read = await asyncio.to_thread(Read, fleet, leader)
    gone = {1_100, 1_101, 1_102, 1_400, 1_600, MESSAGES - 1}
    for sequence in gone:
        assert await js.delete_msg("S", sequence)
    await asyncio.to_thread(read.rest)
    assert read.sequences == [each for each in range(1, MESSAGES + 1) if each not in gone]
    left = pa.array(each not in gone for each in range(1, MESSAGES + 1))
    assert table(iter(read.found)) == read.wanted.filter(left).combine_chunks()


async def delete(fleet: Fleet, js: JetStreamContext) -> None:
    await js.delete_stream("S")


async def make_again(fleet: Fleet, js: JetStreamContext) -> None:
    await js.delete_stream("S")
    await fill(fleet, js)


@pytest.mark.parametrize("bulk", ["auto", "only"])
@pytest.mark.parametrize(
    ("act", "error", "says"),
    [
        (delete, StreamMissingError, r"was deleted while it was read; .* a new checkpoint"),
        (make_again, StreamReplacedError, "deleted and created again"),
    ],
    ids=["deleted", "made again"],
)
async def test_a_stream_that_is_deleted_in_the_middle_of_a_read_is_the_error_of_a_read_over_nats(
    fleet: Fleet,
    js: JetStreamContext,
    act: Callable[..., Awaitable[None]],
    error: type[Exception],
    says: str,
    bulk: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source, "BULK_BYTES_MIN", 1)
    leader = await fill(fleet, js)
    options = {"url": fleet.by_name(leader).url, "stream": "S", "minPartitions": "1", "bulk": bulk}
    reader = BatchReader(read_options(options, streaming=False), ("sequence", "payload"))
    (partition,) = await asyncio.to_thread(reader.partitions)
    batches = reader.read(partition)
    found = [(await asyncio.to_thread(next, batches)).num_rows]
    await act(fleet, js)

    def rest() -> None:
        found.extend(batch.num_rows for batch in batches)

    with pytest.raises(error, match=says) as told:
        await asyncio.to_thread(rest)
    assert "\n" not in str(told.value)
    assert sum(found) < MESSAGES or act is make_again
