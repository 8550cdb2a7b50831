"""Rules that one cluster can show: full disks and windows, lame ducks, declared streams, and the shape of a turn."""

from __future__ import annotations

import asyncio
import json
import resource
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, Placement, StorageType, StreamConfig
from nats.js.errors import APIError, NoStreamResponseError
from tests.support.local_clusters import Broker, Fleet, until
from tests.support.tiers import examples

from supercluster.broker.runtime import descriptors

pytestmark = pytest.mark.e2e


async def refused(asking: Any) -> APIError:
    with pytest.raises(APIError) as caught:
        await asking
    return caught.value


async def raw(broker: Broker) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A bare connection, greeted and ready."""
    reader, writer = await asyncio.open_connection(broker.host, 4222, limit=1 << 22)
    await reader.readline()
    writer.write(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n')
    return reader, writer


async def pong(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """All that was sent before is read by the broker."""
    writer.write(b"PING\r\n")
    while (await reader.readline()) not in (b"PONG\r\n", b""):
        pass


async def messages(fleet: Fleet, stream: str, count: int) -> dict[str, Any]:
    """Wait until the stream has so many."""

    async def there() -> dict[str, Any] | None:
        row = await (await fleet.leader(stream)).stream(stream)
        return row if row is not None and row["state"]["messages"] == count else None

    row: dict[str, Any] = await until(there, f"{count} messages in {stream}")
    return row


@pytest.mark.covers("SF-18", "SF-1")
@pytest.mark.parametrize("replicas", [pytest.param(1, marks=pytest.mark.long), 3])
async def test_a_full_disk_refuses_messages_and_a_purge_frees_it(fleet: Fleet, replicas: int) -> None:
    storage = {"maxFileBytes": 4 << 20, "segmentBytes": 65536}
    await fleet.start(replicas, storage=storage)
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s"], num_replicas=replicas)
    stored = 0
    refusals: list[BaseException] = []
    while not refusals:
        publishing = (js.publish("s", b"x" * 4000) for _ in range(50))
        answers = await asyncio.gather(*publishing, return_exceptions=True)
        refusals = [answer for answer in answers if isinstance(answer, BaseException)]
        stored += len(answers) - len(refusals)
        assert stored < 2000, "the disk never became full"
    assert all(isinstance(found, APIError) and found.err_code == 10023 for found in refusals), refusals
    assert (await js.stream_info("S")).state.messages == stored
    assert (await js.get_msg("S", stored)).data == b"x" * 4000
    # What is no message may use the reserve: consumers, configurations and what frees the disk.
    await js.add_consumer("S", ConsumerConfig(durable_name="d", ack_policy=AckPolicy.EXPLICIT))
    await js.add_stream(name="T", subjects=["t"])
    await js.purge_stream("S")

    async def has_room() -> bool:
        (answer,) = await asyncio.gather(js.publish("s", b"x" * 4000), return_exceptions=True)
        return not isinstance(answer, BaseException)

    await until(has_room, "room behind the purge")


@pytest.mark.covers("SF-16", "SF-2", "SF-3")
async def test_a_lame_duck_loses_nothing_of_a_client_that_goes_on_writing(fleet: Fleet) -> None:
    await fleet.start(3)
    setup = await fleet.js()
    await setup.add_stream(name="S", subjects=["s"], num_replicas=3)
    duck = await fleet.leader("S")
    others = [broker for broker in fleet.running if broker is not duck]
    client = await fleet.client(duck, *others)
    total = 20_000
    half = asyncio.Event()

    async def write() -> None:
        for number in range(total):
            await client.publish("s", b"%d" % number)
            if number % 100 == 0:
                await asyncio.sleep(0)
            if number == total // 2:
                half.set()

    writing = asyncio.create_task(write())
    await half.wait()
    duck.terminate()
    await writing
    assert await duck.exited() == 0

    async def flushed() -> bool:
        (failed,) = await asyncio.gather(client.flush(timeout=1), return_exceptions=True)
        return failed is None

    await until(flushed, "the client's buffer to be empty")
    await messages(fleet, "S", total)
    js = await fleet.js(*others)
    await js.add_consumer("S", ConsumerConfig(durable_name="d", ack_policy=AckPolicy.NONE))
    consumer = await js.pull_subscribe_bind("d", "S")
    found: list[int] = []
    while len(found) < total:
        found += [int(message.data) for message in await consumer.fetch(2000, timeout=5)]
    assert sorted(found) == list(range(total))
    place = {number: index for index, number in enumerate(found)}
    # Order is a connection's (SF-3): where the client went over to another broker, what that one takes may overtake
    # what still stands in the duck's window.
    turned = [number for number in range(total - 1) if place[number] > place[number + 1]]
    assert len(turned) <= 1, f"out of order behind {turned[:5]}"


USERS = {
    "users": [
        {"user": "app", "password": "a", "account": "$G", "role": "client"},
        {"user": "operator", "password": "o", "account": "$G", "role": "operator"},
    ]
}


@pytest.mark.covers("SF-23")
async def test_a_declared_stream_is_changed_by_the_operator_alone(fleet: Fleet) -> None:
    await fleet.start(1, credentials={"users.json": USERS})
    operator = (await fleet.client(user="operator", password="o")).jetstream()
    app = (await fleet.client(user="app", password="a")).jetstream()
    declared = StreamConfig(
        name="S", subjects=["s"], max_msgs=10, metadata={"supercluster.dev/resource": "shop/orders"}
    )
    await operator.add_stream(declared)
    for asking in (
        app.update_stream(declared.evolve(max_msgs=5)),
        app.update_stream(declared.evolve(metadata={})),
        app.add_stream(declared.evolve(max_msgs=5)),
        app.delete_stream("S"),
    ):
        wrong = await refused(asking)
        assert wrong.err_code == 19001
        assert "shop/orders" in str(wrong.description)
    assert (await app.stream_info("S")).config.max_msgs == 10
    # What is in it is the application's.
    assert (await app.publish("s", b"x")).seq == 1
    await app.purge_stream("S")
    await app.add_consumer("S", ConsumerConfig(durable_name="d", ack_policy=AckPolicy.EXPLICIT))
    assert (await operator.update_stream(declared.evolve(max_msgs=5))).config.max_msgs == 5
    own = StreamConfig(name="OWN", subjects=["own"])
    await app.add_stream(own)
    claimed = {"supercluster.dev/resource": "shop/own"}
    for asking in (
        app.update_stream(own.evolve(metadata=claimed)),
        app.add_stream(name="NEW", subjects=["new"], metadata=claimed),
    ):
        wrong = await refused(asking)
        assert wrong.err_code == 19001
        assert "shop/own" in str(wrong.description)
    assert await app.delete_stream("OWN")
    assert await operator.delete_stream("S")


async def two_streams(fleet: Fleet, **limits: int) -> tuple[Broker, Client]:
    """An R3 stream without a leader, since only one of three brokers is left, and one that lives on that broker."""
    await fleet.start(3, limits=limits)
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s"], num_replicas=3)
    stays = (await fleet.followers("S"))[0]
    here = {"supercluster.dev/preferred-leader": stays.name}
    await js.add_stream(StreamConfig(name="HERE", subjects=["here"], num_replicas=1, metadata=here))
    assert await fleet.leader("HERE") is stays
    client = await fleet.client(stays)
    await client.jetstream().publish("s", b"0" * 1000)
    for broker in fleet.running:
        if broker is not stays:
            broker.kill()
    return stays, client


@pytest.mark.covers("SF-15", "MV-11", "SF-3")
async def test_a_full_window_holds_its_stream_back_and_nothing_else(fleet: Fleet) -> None:
    stays, client = await two_streams(fleet, windowBytesPerStream=65536, windowWaitMs=60_000)
    for number in range(1, 300):
        await client.publish("s", b"%d" % number + b"." * 1000)
    await client.flush(timeout=20)
    js = client.jetstream(timeout=10)
    for number in range(1, 50):
        assert (await js.publish("here", b"goes on")).seq == number
    row = await stays.stream("S")
    assert row is not None
    assert 0 < row["window_unconfirmed"] < 100, "the window is bounded; the rest waits at the connection"
    assert (await stays.get("/varz"))["held_bytes"] > 0
    for broker in fleet.brokers.values():
        if broker.process is None:
            broker.start()
    await fleet.ready()
    await messages(fleet, "S", 300)
    info = await js.add_consumer("S", ConsumerConfig(ack_policy=AckPolicy.NONE))
    consumer = await js.pull_subscribe_bind(info.name, "S")
    found: list[int] = []
    while len(found) < 300:
        found += [int(message.data.split(b".")[0]) for message in await consumer.fetch(300, timeout=5)]
    assert found == list(range(300))


@pytest.mark.covers("SF-15")
async def test_past_its_time_a_publish_is_refused_aloud(fleet: Fleet) -> None:
    stays, client = await two_streams(fleet, windowBytesPerStream=65536, windowWaitMs=500)
    reader, writer = await raw(stays)
    writer.write(b"PUB s 5\r\nplain\r\n")
    async with asyncio.timeout(20):
        said = await reader.readline()
    assert said.startswith(b"-ERR")
    assert b"stream S has had no leader for too long" in said
    writer.close()
    with pytest.raises(NoStreamResponseError):
        await client.jetstream().publish("s", b"acknowledged", timeout=20)
    assert (await stays.get("/jsz"))["publishes_given_up"] == 2
    # A client is told, and stays: on any other -ERR it would close its connection for good.
    told: asyncio.Queue[Exception] = asyncio.Queue()
    plain = await fleet.client(stays, error_cb=told.put)
    await plain.publish("s", b"plain")
    async with asyncio.timeout(60):
        assert "has had no leader for too long" in str(await told.get())
    await plain.flush(timeout=60)
    assert plain.is_connected


@pytest.mark.covers("SF-15")
async def test_deleting_a_stream_frees_what_waits_for_it(fleet: Fleet) -> None:
    brokers = await fleet.start(3, limits={"windowWaitMs": 60_000})
    js = await fleet.js(brokers[0])
    there = {"supercluster.dev/preferred-leader": brokers[2].name}
    await js.add_stream(StreamConfig(name="THERE", subjects=["there"], num_replicas=1, metadata=there))
    await js.publish("there", b"1")
    brokers[2].kill()
    waiting = asyncio.create_task(js.publish("there", b"2", timeout=30))

    async def waits() -> bool:
        return bool((await brokers[0].get("/jsz"))["windows"].get("THERE"))

    await until(waits, "a publish in the window")
    assert await js.delete_stream("THERE")
    with pytest.raises(NoStreamResponseError):
        await waiting


@pytest.mark.covers("RP-3", "RP-4", "RP-7")
async def test_a_turn_is_one_entry_and_a_message_is_on_the_disk_once(fleet: Fleet) -> None:
    await fleet.start(3)
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s.*"], num_replicas=3)
    await js.publish("s.0", b"")
    leader = await fleet.leader("S")
    before = await messages(fleet, "S", 1)
    reader, writer = await raw(leader)
    payload = b"x" * 200
    count = 10_000
    for start in range(0, count, 1000):
        writer.write(
            b"".join(
                b"PUB s.%d 200\r\n%s\r\n" % (number % 10, payload) for number in range(start, start + 1000)
            )
        )
    await pong(reader, writer)
    await messages(fleet, "S", count + 1)
    writer.close()
    for row in await fleet.level("S", 3):
        entries = row["commit_index"] - before["commit_index"]
        assert entries < count / 20, f"{entries} entries for {count} messages"
        logical = count * (200 + len("s.0"))
        assert logical < row["bytes_on_disk"] - before["bytes_on_disk"] < 1.2 * logical


@pytest.mark.covers("RP-6", "SF-1")
@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
async def test_every_fsync_policy_keeps_what_was_acknowledged_over_kill_9(fleet: Fleet, fsync: str) -> None:
    await fleet.start(1)
    js = await fleet.js()
    await js.add_stream(StreamConfig(name="S", subjects=["s"], metadata={"supercluster.dev/fsync": fsync}))
    for _ in range(4):
        await asyncio.gather(*(js.publish("s", b"x" * 100) for _ in range(100)))
    (broker,) = fleet.running
    broker.kill()
    broker.start()
    await fleet.ready()
    js = await fleet.js()
    assert (await js.stream_info("S")).state.messages == 400
    assert (await js.publish("s", b"on")).seq == 401


@pytest.mark.covers("RP-5")
async def test_acknowledged_when_committed_when_appended_or_never(fleet: Fleet) -> None:
    await fleet.start(3)
    client = await fleet.client()
    js = client.jetstream()
    for policy in ("commit", "append", "none"):
        metadata = {"supercluster.dev/ack-policy": policy}
        await js.add_stream(
            StreamConfig(name=policy.upper(), subjects=[policy], num_replicas=3, metadata=metadata)
        )
    for number in range(1, 20):
        assert (await js.publish("commit", b"x")).seq == number
        assert (await js.publish("append", b"x")).seq == number
    one = await js.publish("append", b"x", headers={"Supercluster-Ack": "commit", "Nats-Msg-Id": "1"})
    two = await js.publish("append", b"x", headers={"Nats-Msg-Id": "1"})
    assert (one.seq, two.seq, two.duplicate) == (20, 20, True)
    inbox = await client.subscribe("answers.*")
    await client.publish("none", b"x", reply="answers.none")
    await client.publish("commit", b"x", reply="answers.never", headers={"Supercluster-Ack": "none"})
    await client.publish("commit", b"x", reply="answers.commit")
    answer = await inbox.next_msg(timeout=10)
    assert (answer.subject, answer.data) == ("answers.commit", b'{"stream":"COMMIT","seq":21}')
    await messages(fleet, "NONE", 1)
    assert inbox.pending_msgs == 0


async def test_many_messages_are_there_after_kill_9(fleet: Fleet) -> None:
    (broker,) = await fleet.start(1, storage={"segmentBytes": 1 << 20})
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s.*"])
    reader, writer = await raw(broker)
    total = examples(20_000, 200_000)
    for start in range(0, total, 5000):
        writer.write(
            b"".join(
                b"PUB s.%d 8\r\n%08d\r\n" % (number % 100, number) for number in range(start, start + 5000)
            )
        )
        await pong(reader, writer)
    await messages(fleet, "S", total)
    writer.close()
    await writer.wait_closed()
    broker.kill()
    broker.start()
    await fleet.ready()
    js = await fleet.js()
    state = (await messages(fleet, "S", total))["state"]
    assert (state["last_seq"], state["num_subjects"]) == (total, 100)
    assert (await js.get_msg("S", 12_345)).data == b"00012344"
    assert (await js.get_last_msg("S", "s.7")).seq == total - 92


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("replicas", [pytest.param(1, marks=pytest.mark.long), 3])
async def test_a_stream_in_memory_begins_anew_when_all_its_copies_are_gone(
    fleet: Fleet, replicas: int
) -> None:
    await fleet.start(3)
    js = await fleet.js()
    await js.add_stream(name="M", subjects=["m"], num_replicas=replicas, storage=StorageType.MEMORY)
    await js.add_stream(name="F", subjects=["f"], num_replicas=3)
    for number in range(1, 6):
        assert (await js.publish("m", b"x")).seq == number
        await js.publish("f", b"x")
    victims = [await fleet.leader("M")] if replicas == 1 else list(fleet.running)
    for broker in victims:
        broker.kill()
    for broker in victims:
        broker.start()
    await fleet.ready()
    js = await fleet.js()
    assert (await js.publish("m", b"anew", timeout=20)).seq == 1
    assert (await js.publish("f", b"on")).seq == 6
    assert (await js.stream_info("M")).state.messages == 1
    assert "MemoryLost" in "".join(broker.log() for broker in fleet.running)


async def test_a_part_of_a_memory_stream_is_copied_again(fleet: Fleet) -> None:
    await fleet.start(3)
    js = await fleet.js()
    await js.add_stream(name="M", subjects=["m"], num_replicas=3, storage=StorageType.MEMORY)
    await asyncio.gather(*(js.publish("m", b"%d" % number) for number in range(200)))
    leader = await fleet.leader("M")
    leader.kill()
    leader.start()
    await fleet.ready()
    rows = await fleet.level("M", 3)
    assert rows[0]["state"]["messages"] == 200


@pytest.mark.covers("SF-14")
async def test_placement_and_subjects_that_cannot_be_are_refused(fleet: Fleet) -> None:
    await fleet.start(3)
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s.>"], num_replicas=3)
    assert (await refused(js.add_stream(name="T", subjects=["s.a"]))).err_code == 10065
    assert (await refused(js.add_stream(name="S", subjects=["t"]))).err_code == 10058
    wrong = await refused(js.add_stream(name="T", subjects=["t"], placement=Placement(cluster="west")))
    assert wrong.err_code == 10005
    assert "west" in str(wrong.description)
    wrong = await refused(js.update_stream(name="S", subjects=["s.>"], num_replicas=5))
    assert wrong.err_code == 10005
    assert "5 replicas wanted" in str(wrong.description)
    # A repeated create of the same is no error; at another broker too, and the map is there at once.
    for broker in fleet.running:
        other: JetStreamContext = await fleet.js(broker)
        await other.add_stream(name="S", subjects=["s.>"], num_replicas=3)
        await other.add_stream(name=f"N{broker.name}", subjects=[f"n.{broker.name}"])
        for also in fleet.running:
            answer = await (await fleet.js(also)).publish(f"n.{broker.name}", b"captured at once")
            assert answer.stream == f"N{broker.name}"
    with pytest.raises(nats.js.errors.NotFoundError):
        await js.update_stream(name="NOTHING", subjects=["x"])


@pytest.mark.covers("SF-13")
async def test_age_takes_messages_on_every_replica_by_the_same_entry(fleet: Fleet) -> None:
    await fleet.start(3)
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s"], num_replicas=3, max_age=1, duplicate_window=1)
    await asyncio.gather(*(js.publish("s", b"%d" % number) for number in range(300)))

    async def gone() -> bool:
        return (await js.stream_info("S")).state.messages == 0

    await until(gone, "the end of old messages")
    rows = await fleet.level("S", 3)
    assert [row["state"]["first_seq"] for row in rows] == [301] * 3
    assert (await js.publish("s", b"young")).seq == 301


async def test_a_broker_that_runs_out_of_file_descriptors_refuses_streams_and_goes_on(fleet: Fleet) -> None:
    (broker,) = await fleet.start(1)
    js = await fleet.js()
    await js.add_stream(name="KEEP", subjects=["keep"], metadata={"supercluster.dev/fsync": "always"})
    assert broker.process is not None
    resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (200, 200))
    refusal: APIError | None = None
    for number in range(200):
        try:
            await js.add_stream(name=f"S{number}", subjects=[f"s{number}"])
        except APIError as error:
            refusal = error
            break
    assert refusal is not None
    assert refusal.err_code == 10005
    assert "few file descriptors" in str(refusal.description)
    # A file that was open for that moment may have made the difference.
    resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (190, 200))
    assert "few file descriptors" in json.dumps(await broker.get("/healthz"))
    assert (await js.publish("keep", b"x")).seq == 1
    # With none left at all, what is open goes on, durably where that is what an answer means.
    resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (10, 200))
    assert (await js.publish("keep", b"y")).seq == 2
    assert (await js.publish("s0", b"z")).seq == 1
    resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (200, 200))
    assert await broker.is_ready()
    assert "DiskFailed" not in broker.log()


def test_a_process_uses_the_descriptors_that_it_is_allowed() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
        descriptors.raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
