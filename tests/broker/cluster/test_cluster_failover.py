"""Leaders killed and asked away, followers that come back, lost and damaged volumes: nothing stored is lost."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig
from tests.support.local_clusters import Broker, Fleet, until

pytestmark = pytest.mark.e2e


@dataclass
class Plain:
    """Publishes without waiting for anything, on one connection: its broker stays up."""

    client: Client
    name: str
    subject: str = "s.plain"
    sent: int = 0
    stop: bool = False
    errors: list[str] = field(default_factory=list)

    async def run(self, gap_s: float = 0.002) -> None:
        while not self.stop:
            for _ in range(5):
                await self.client.publish(self.subject, b"%s:%d" % (self.name.encode(), self.sent))
                self.sent += 1
            await asyncio.sleep(gap_s)
        await self.client.flush(timeout=20)


async def plain(fleet: Fleet, broker: Broker, subject: str = "s.plain") -> Plain:
    """A plain publisher that notes what the broker refuses."""
    errors: list[str] = []

    async def note(error: Exception) -> None:
        errors.append(str(error))

    return Plain(await fleet.client(broker, error_cb=note), f"plain-{broker.name}", subject, errors=errors)


@dataclass
class Retrying:
    """Publishes with a message id, one at a time, again until it is answered."""

    js: JetStreamContext
    name: str
    subject: str = "s.retry"
    answered: dict[int, int] = field(default_factory=dict)
    repeats: int = 0
    stop: bool = False

    async def run(self) -> None:
        number = 0
        while not self.stop:
            name = f"{self.name}:{number}"
            try:
                headers = {"Nats-Msg-Id": name}
                answer = await self.js.publish(self.subject, name.encode(), headers=headers, timeout=1)
            except nats.errors.Error:
                self.repeats += 1
                await asyncio.sleep(0.02)
                continue
            if number in self.answered:
                assert (answer.seq, answer.duplicate) == (self.answered[number], True)
                self.repeats += 1
            elif number % 7 == 0:
                self.answered[number] = answer.seq
                continue  # As if the answer had been lost: the same again is known by its id.
            self.answered[number] = answer.seq
            number += 1


async def read_all(fleet: Fleet, stream: str, *brokers: Broker) -> dict[int, bytes]:
    """Every stored message, by sequence."""
    js = await fleet.js(*brokers)
    total = (await js.stream_info(stream)).state.messages
    info = await js.add_consumer(stream, ConsumerConfig(ack_policy=AckPolicy.NONE, inactive_threshold=30))
    consumer = await js.pull_subscribe_bind(info.name, stream)
    found: dict[int, bytes] = {}
    while len(found) < total:
        for message in await consumer.fetch(1000, timeout=5):
            found[message.metadata.sequence.stream] = message.data
    return found


def check(found: dict[int, bytes], plains: list[Plain], retrying: list[Retrying]) -> None:
    """0 lost, 0 repeated, each connection in order."""
    assert sorted(found) == list(range(1, len(found) + 1))
    by_name: dict[str, list[int]] = {}
    for _, payload in sorted(found.items()):
        name, _, count = payload.decode().rpartition(":")
        by_name.setdefault(name, []).append(int(count))
    for publisher in plains:
        assert not publisher.errors, publisher.errors
        assert publisher.client.stats["reconnects"] == 0
        numbers = by_name.get(publisher.name, [])
        assert sorted(set(range(publisher.sent)) - set(numbers)) == [], "lost"
        assert numbers == list(range(publisher.sent)), "repeated or out of order"
    for one in retrying:
        numbers = by_name.get(one.name, [])
        # The last one may be stored though the test ended before its answer came.
        assert numbers[: len(one.answered)] == list(range(len(one.answered)))
        assert len(numbers) <= len(one.answered) + 1
        for number, seq in one.answered.items():
            assert found[seq] == f"{one.name}:{number}".encode()


async def stored(fleet: Fleet, stream: str, plains: list[Plain], *brokers: Broker) -> None:
    """Wait until the windows are empty: what plain publishers sent is stored or was refused."""

    async def empty() -> bool:
        rows = [await broker.stream(stream) for broker in fleet.running]
        return all(row is None or row["window_unconfirmed"] == 0 for row in rows)

    await until(empty, "empty windows")


async def publish_while(
    fleet: Fleet, disturbance: Any, storage: str = "file"
) -> tuple[list[Plain], list[Retrying]]:
    """Three brokers and an R3 stream; plain publishers on the followers, a retrying one on the leader; disturb."""
    setup = await fleet.js()
    await setup.add_stream(name="S", subjects=["s.>"], num_replicas=3, storage=storage)
    await setup.publish("s.retry", b"first:0")
    leader = await fleet.leader("S")
    others = [broker for broker in fleet.running if broker is not leader]
    plains = [await plain(fleet, broker) for broker in others]
    retrying = [Retrying((await fleet.js(leader, *others)), "retry")]
    everyone: list[Plain | Retrying] = [*plains, *retrying]
    tasks = [asyncio.create_task(one.run()) for one in everyone]
    await disturbance(leader, plains, retrying)
    before = len(retrying[0].answered)

    async def goes_on() -> bool:
        return len(retrying[0].answered) > before + 20

    await until(goes_on, "publishes after the disturbance")
    for one in everyone:
        one.stop = True
    await asyncio.gather(*tasks)
    await stored(fleet, "S", plains)
    return plains, retrying


@pytest.mark.covers("MV-5", "SF-1", "SF-2", "SF-3", "SF-10", "SF-11")
@pytest.mark.parametrize("storage", ["file", pytest.param("memory", marks=pytest.mark.long)])
async def test_the_leader_is_killed_while_plain_and_repeated_publishes_come_in(
    fleet: Fleet, storage: str
) -> None:
    await fleet.start(3)

    async def kill(leader: Broker, plains: list[Plain], retrying: list[Retrying]) -> None:
        async def running() -> bool:
            return len(retrying[0].answered) > 50 and plains[0].sent > 200

        await until(running, "publishes")
        leader.kill()
        assert await fleet.leader("S") is not leader

    plains, retrying = await publish_while(fleet, kill, storage)
    found = await read_all(fleet, "S")
    assert found.pop(1) == b"first:0"
    check({seq - 1: data for seq, data in found.items()}, plains, [])
    numbers = [int(data.split(b":")[1]) for _, data in sorted(found.items()) if data.startswith(b"retry")]
    assert numbers[: len(retrying[0].answered)] == list(range(len(retrying[0].answered)))
    assert len(numbers) == len(set(numbers))
    for number, seq in retrying[0].answered.items():
        assert found[seq] == b"retry:%d" % number
    # The killed one comes back and is level with the others.
    for broker in fleet.brokers.values():
        if broker.process is None:
            broker.start()
            await broker.ready()
    await fleet.level("S", 3)


@pytest.mark.covers("MV-5", "SF-10", "SF-11")
async def test_leaders_step_down_under_load(fleet: Fleet) -> None:
    await fleet.start(3)

    async def step_down(leader: Broker, plains: list[Plain], retrying: list[Retrying]) -> None:
        client = await fleet.client()
        for _ in range(5):
            before = await fleet.leader("S")
            await client.request("$JS.API.STREAM.LEADER.STEPDOWN.S", b"", timeout=30)

            async def moved(before: Broker = before) -> bool:
                return await fleet.leader("S") is not before

            await until(moved, "another leader")
            await client.request("$JS.API.STREAM.INFO.S", b"", timeout=30)

    plains, retrying = await publish_while(fleet, step_down)
    found = await read_all(fleet, "S")
    assert found.pop(1) == b"first:0"
    check_shifted(found, plains, retrying)


def check_shifted(found: dict[int, bytes], plains: list[Plain], retrying: list[Retrying]) -> None:
    """`check` behind a first message that belongs to nobody."""
    for one in retrying:
        one.answered = {number: seq - 1 for number, seq in one.answered.items()}
    check({seq - 1: data for seq, data in found.items()}, plains, retrying)


async def fill(js: JetStreamContext, subject: str, count: int, size: int = 0) -> None:
    for start in range(0, count, 500):
        batch = range(start, min(count, start + 500))
        await asyncio.gather(*(js.publish(subject, b"%d" % number + b"." * size) for number in batch))


@pytest.mark.covers("SF-7", "SF-17")
async def test_a_follower_comes_back_after_the_leader_dropped_the_head_of_its_log(fleet: Fleet) -> None:
    await fleet.start(3, storage={"segmentBytes": 65536})
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s"], num_replicas=3, max_msgs=200)
    await fill(js, "s", 300, 200)
    (follower, _) = await fleet.followers("S")
    follower.kill()
    js = await fleet.js()
    await fill(js, "s", 3000, 200)
    leader, total = await fleet.leader("S"), 3300

    async def dropped() -> bool:
        """A head goes with a checkpoint behind the one that becomes its base, and they are seconds apart: so the stream goes on."""
        nonlocal total
        row = await leader.stream("S")
        if row is not None and row["bytes_on_disk"] < total * 200 // 2:
            return True
        await fill(js, "s", 100, 200)
        total += 100
        return False

    await until(dropped, "a dropped head")
    follower.start()
    await follower.ready()
    rows = await fleet.level("S", 3)
    assert rows[0]["state"]["messages"] == 200
    assert rows[0]["state"]["last_seq"] == total
    # It has the messages, not only their numbers: make it the leader and read them from it.
    await lead(fleet, "S", follower)
    found = await read_all(fleet, "S", follower)
    assert sorted(found) == list(range(total - 199, total + 1))
    assert found[total] == (b"2999" if total == 3300 else b"99") + b"." * 200


@pytest.mark.covers("SF-4")
async def test_a_broker_without_its_volume_comes_back_as_somebody_else(fleet: Fleet) -> None:
    await fleet.start(3)
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s"], num_replicas=3)
    await fill(js, "s", 500)
    (victim, _) = await fleet.followers("S")
    before = (await victim.get("/routez"))["routes"]
    assert before
    victim.kill()
    fleet.wipe(victim)
    victim.start()
    await victim.ready()
    rows = await fleet.level("S", 3)
    assert rows[0]["state"]["messages"] == 500

    await all_vote(fleet, "S")

    async def three_voters() -> bool:
        meta = (await (await fleet.leader("S")).get("/jsz"))["meta"]
        return len(meta["voters"]) == 3 and all("@" in voter for voter in meta["voters"])

    await until(three_voters, "three voters of the meta group")
    # Its vote counts again: one of the two others goes, and the stream goes on.
    (await fleet.leader("S")).kill()
    js = await fleet.js()
    assert (await js.publish("s", b"two are a majority")).seq == 501


@pytest.mark.covers("SF-14")
async def test_all_brokers_restart_and_everything_is_there(fleet: Fleet) -> None:
    await fleet.start(3)
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s"], num_replicas=3)
    await js.add_stream(name="ONE", subjects=["one"])
    await fill(js, "s", 400)
    await fill(js, "one", 100)
    config = ConsumerConfig(durable_name="d", ack_policy=AckPolicy.EXPLICIT)
    await js.add_consumer("S", config)
    consumer = await js.pull_subscribe_bind("d", "S")
    for message in await consumer.fetch(50):
        await message.ack_sync()
    for broker in fleet.running:
        broker.kill()
    for broker in fleet.brokers.values():
        broker.start()
    await fleet.ready()
    js = await fleet.js()
    assert (await js.publish("s", b"more")).seq == 401
    assert (await js.publish("one", b"more")).seq == 101
    info = await js.consumer_info("S", "d")
    assert (info.ack_floor.stream_seq if info.ack_floor else 0) == 50
    assert len(await read_all(fleet, "S")) == 401
    assert (await js.stream_info("ONE")).state.messages == 101


async def lead(fleet: Fleet, stream: str, wanted: Broker) -> None:
    """Make a broker the stream's leader."""
    client = await fleet.client(wanted)
    body = b'{"placement":{"preferred":"%s"}}' % wanted.name.encode()

    async def leads() -> bool:
        if await fleet.leader(stream) is wanted:
            return True
        await client.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", body, timeout=5)
        return False

    await until(leads, f"{wanted.name} to lead {stream}")


async def all_vote(fleet: Fleet, stream: str) -> None:
    """Wait until no replica is a learner or behind."""

    async def voting() -> bool:
        row = await (await fleet.leader(stream)).stream(stream)
        replicas = row["cluster"]["replicas"] if row is not None else []
        return len(replicas) == 2 and all(
            found["current"] and not found.get("observer") for found in replicas
        )

    await until(voting, f"three voting replicas of {stream}")


def largest_sealed(broker: Broker) -> Path:
    """The stream's first full segment."""
    files = [file for file in broker.data_dir.rglob("*") if file.is_file() and file.stat().st_size > 50_000]
    return min(files, key=lambda file: file.name)


@pytest.mark.long  # As the flipped bit below; the log's part: tests/broker/storage/test_log_faults.py.
@pytest.mark.covers("SF-4")
async def test_a_segment_that_was_cut_is_said_and_the_stream_is_whole_again(fleet: Fleet) -> None:
    await fleet.start(3, storage={"segmentBytes": 65536})
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s"], num_replicas=3)
    await fill(js, "s", 1500, 200)
    (victim, _) = await fleet.followers("S")
    victim.kill()
    target = largest_sealed(victim)
    content = target.read_bytes()
    target.write_bytes(content[: len(content) // 2])
    victim.start()
    await victim.ready()
    await fleet.level("S", 3)
    assert "RecordLost" in victim.log()
    await all_vote(fleet, "S")
    await lead(fleet, "S", victim)
    assert len(await read_all(fleet, "S", victim)) == 1500


@pytest.mark.covers("SF-4")
async def test_a_flipped_bit_is_never_served_and_costs_only_that_replica(fleet: Fleet) -> None:
    """Sealed segments are not read at the start; the damage is found by who reads it, and that replica goes."""
    await fleet.start(3, storage={"segmentBytes": 65536})
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s"], num_replicas=3)
    await fill(js, "s", 1500, 200)
    (victim, _) = await fleet.followers("S")
    victim.terminate()
    assert await victim.exited() == 0
    target = largest_sealed(victim)
    content = bytearray(target.read_bytes())
    content[len(content) // 2] ^= 0x40
    target.write_bytes(content)
    victim.start()
    await victim.ready()
    await fleet.level("S", 3)
    await lead(fleet, "S", victim)
    js = await fleet.js(victim)
    for seq in range(1, 1501):
        assert (await js.get_msg("S", seq)).data == b"%d" % (seq - 1) + b"." * 200
    assert await fleet.leader("S") is not victim
    assert "record damaged" in victim.log()
    row = await victim.stream("S")
    assert row is not None
    # It says so until it is opened anew, which may be over by now.
    assert row["failed"] == "" or "record damaged" in row["failed"]
    # The next start knows it: the replica is made anew, under another identity.
    victim.kill()
    victim.start()
    await victim.ready()
    await fleet.level("S", 3)
    await all_vote(fleet, "S")
    await lead(fleet, "S", victim)
    assert len(await read_all(fleet, "S", victim)) == 1500


async def test_the_stream_api_shows_no_error_while_leaders_move(fleet: Fleet) -> None:
    """A request whose leader moves is answered by the next one (also the meta group's)."""
    await fleet.start(3)
    victim = fleet.brokers[(await fleet.running[0].get("/jsz"))["meta"]["leader"]]
    # Those who ask are connected to brokers that stay.
    stays = [broker for broker in fleet.running if broker is not victim]
    js = await fleet.js(*stays)
    stays_put = {"supercluster.dev/preferred-leader": stays[0].name}
    await js.add_stream(name="S", subjects=["s"], num_replicas=3)
    stop = False

    async def ask() -> int:
        number = 0
        while not stop:
            # One replica, on a broker that stays: what only the victim held would be gone with it.
            await js.add_stream(name=f"T{number % 3}", subjects=[f"t{number % 3}"], metadata=stays_put)
            await js.stream_info("S")
            await js.add_consumer("S", ConsumerConfig(durable_name="d", ack_policy=AckPolicy.EXPLICIT))
            await js.delete_consumer("S", "d")
            await js.delete_stream(f"T{number % 3}")
            number += 1
        return number

    asking = asyncio.create_task(ask())
    client = await fleet.client(*stays)
    for _ in range(6):
        await client.request("$JS.API.STREAM.LEADER.STEPDOWN.S", b"", timeout=30)
        await asyncio.sleep(0)
    victim.kill()
    done = 0

    async def settled() -> bool:
        nonlocal done
        assert not asking.done(), asking.exception()
        done += 1
        return await fleet.leader("S") is not victim and done > 40

    await until(settled, "requests behind the fall of the meta leader")
    stop = True
    assert await asking > 0


@pytest.mark.covers("SF-4")
async def test_a_stream_whose_only_copy_lost_data_says_so_and_can_be_made_again(fleet: Fleet) -> None:
    brokers = await fleet.start(2, storage={"segmentBytes": 65536})
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s"])
    await fill(js, "s", 1500, 200)
    victim = await fleet.leader("S")
    (other,) = (broker for broker in brokers if broker is not victim)
    victim.kill()
    target = largest_sealed(victim)
    content = target.read_bytes()
    target.write_bytes(content[: len(content) // 2])
    for _ in range(2):
        victim.start()
        await victim.ready()

        async def is_told() -> bool:
            return "the stream can have no leader" in json.dumps(await victim.get("/healthz"))

        await until(is_told, "the warning")
        assert "NoVoterLeft" in victim.log()
        for broker in (victim, other):
            asking = (await fleet.js(broker)).stream_info("S")
            with pytest.raises(nats.js.errors.APIError) as caught:
                await asking
            assert caught.value.err_code == 10118
            assert "delete the stream and create it again" in str(caught.value.description)
        victim.kill()
        victim.log_file.unlink()
    victim.start()
    await victim.ready()
    js = await fleet.js(victim)
    await js.delete_stream("S")
    await js.add_stream(name="S", subjects=["s"])
    assert (await js.publish("s", b"x")).seq == 1
    assert "the stream can have no leader" not in json.dumps(await victim.get("/healthz"))
