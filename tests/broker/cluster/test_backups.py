"""Backups on real brokers: whoever dies in the middle, a stream is whole or not there, and what is sent again succeeds."""

from __future__ import annotations

import json
from hashlib import shake_128
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from tests.compat.backups import Backup, call, restore, take_backup
from tests.support.local_clusters import Broker, Fleet, until

MESSAGES = 200
CHUNK_BYTES = 4096
CONFIG = {"name": "S", "subjects": ["s.>"], "num_replicas": 3}


async def _filled(nc: Client) -> Backup:
    """A stream of some hundred kilobytes that nothing packs, with a consumer; its backup."""
    assert "error" not in await call(nc, "STREAM.CREATE.S", CONFIG)
    js = nc.jetstream(timeout=10)
    for number in range(MESSAGES):
        await js.publish(f"s.{number % 3}", shake_128(b"%d" % number).digest(1000))
    await js.add_consumer("S", durable_name="c", ack_policy="explicit")
    sub = await js.pull_subscribe_bind("c", "S")
    for message in (await sub.fetch(10, timeout=10))[:5]:
        await message.ack_sync()
    return await take_backup(nc, "S", chunk_size=CHUNK_BYTES)


async def _clients(fleet: Fleet, brokers: list[Broker]) -> dict[str, Client]:
    return {broker.name: await fleet.client(broker, allow_reconnect=False) for broker in brokers}


async def _leader(brokers: list[Broker]) -> Broker:
    """Who leads the stream, whole or not."""

    async def found() -> Broker | None:
        for broker in brokers:
            stream = await broker.stream("S") if broker.process is not None else None
            if stream is not None and stream["is_leader"]:
                return broker
        return None

    leader: Broker = await until(found, "a leader of the stream")
    return leader


async def _is_gone(brokers: list[Broker]) -> bool:
    """No broker that runs has a copy of it."""
    return not any([await broker.stream("S") for broker in brokers if broker.process is not None])


async def _begin(nc: Client, backup: Backup) -> str:
    """A restore of which half was sent; where the rest would go."""
    begun = await call(nc, "STREAM.RESTORE.S", {"config": backup.config})
    assert "error" not in begun, begun
    subject: str = begun["deliver_subject"]
    half = backup.data[: len(backup.data) // 2]
    for at in range(0, len(half), CHUNK_BYTES):
        assert (await nc.request(subject, half[at : at + CHUNK_BYTES], timeout=10)).data == b""
    return subject


async def _restored_again(nc: Client, backup: Backup) -> None:
    """The same backup, from its beginning, makes the stream that it was taken of."""

    async def restored() -> dict[str, Any] | None:
        try:
            answer = await restore(nc, "S", backup.config, backup.data)
        except NatsError:
            return None
        return answer if "error" not in answer else None

    answer = await until(restored, "the stream to be restored")
    assert (answer["state"]["messages"], answer["state"]["last_seq"]) == (MESSAGES, MESSAGES)
    info = await call(nc, "CONSUMER.INFO.S.c")
    assert (info["delivered"]["stream_seq"], info["ack_floor"]["stream_seq"]) == (10, 5)
    message = await nc.jetstream(timeout=10).get_msg("S", MESSAGES)
    assert message.data == shake_128(b"%d" % (MESSAGES - 1)).digest(1000)


@pytest.mark.parametrize("how", ["killed", pytest.param("stopped", marks=pytest.mark.long)])
async def test_a_restore_whose_leader_goes_leaves_nothing_and_succeeds_when_it_is_sent_again(
    fleet: Fleet, how: str
) -> None:
    brokers = await fleet.start(3)
    clients = await _clients(fleet, brokers)
    backup = await _filled(clients["east-0"])
    await call(clients["east-0"], "STREAM.DELETE.S")
    subject = await _begin(clients["east-0"], backup)
    leader = await _leader(brokers)
    asked = next(clients[broker.name] for broker in brokers if broker is not leader)
    assert (await call(asked, "STREAM.INFO.S"))["error"]["err_code"] == 10059

    if how == "killed":
        leader.kill()
    else:
        leader.terminate()
        await leader.exited()

    told = json.loads((await asked.request(subject, b"more", timeout=30)).data)
    assert told["error"]["err_code"] == 10062
    assert (await call(asked, "STREAM.INFO.S"))["error"]["err_code"] == 10059
    await until(lambda: _is_gone(brokers), "every copy to be gone")
    leader.start()
    await leader.ready()
    await until(lambda: _is_gone(brokers), "the copy of the broker that was away to be gone")
    await _restored_again(asked, backup)


@pytest.mark.long  # In `make test`: the leader above; what is abandoned: tests/broker/jetstream/meta/test_restoring.py.
async def test_a_restore_whose_sender_s_broker_goes_leaves_nothing(fleet: Fleet) -> None:
    brokers = await fleet.start(3)
    clients = await _clients(fleet, brokers)
    backup = await _filled(clients["east-0"])
    await call(clients["east-0"], "STREAM.DELETE.S")
    begun = await call(clients["east-0"], "STREAM.RESTORE.S", {"config": backup.config})
    leader = await _leader(brokers)
    asked = next(broker for broker in brokers if broker is not leader)
    await clients[asked.name].request(begun["deliver_subject"], backup.data[:CHUNK_BYTES], timeout=10)

    asked.kill()

    await until(lambda: _is_gone(brokers), "every copy to be gone")
    asked.start()
    await asked.ready()
    await until(lambda: _is_gone(brokers), "the copy of the broker that was away to be gone")
    await _restored_again(clients[leader.name], backup)


async def test_a_restore_that_all_brokers_die_of_leaves_nothing(fleet: Fleet) -> None:
    brokers = await fleet.start(3)
    clients = await _clients(fleet, brokers)
    backup = await _filled(clients["east-0"])
    await call(clients["east-0"], "STREAM.DELETE.S")
    await _begin(clients["east-1"], backup)
    for broker in brokers:
        broker.kill()
    for broker in brokers:
        broker.start()
    for broker in brokers:
        await broker.ready()
    nc = await fleet.client(brokers[0], allow_reconnect=False)
    assert (await call(nc, "STREAM.INFO.S"))["error"]["err_code"] == 10059
    await until(lambda: _is_gone(brokers), "every copy to be gone")
    await _restored_again(nc, backup)


async def test_the_last_answer_comes_although_the_leader_of_the_map_goes(fleet: Fleet) -> None:
    """It is that one's word that shows the stream."""
    brokers = await fleet.start(3)
    clients = await _clients(fleet, brokers)
    backup = await _filled(clients["east-0"])
    await call(clients["east-0"], "STREAM.DELETE.S")
    begun = await call(clients["east-0"], "STREAM.RESTORE.S", {"config": backup.config})
    leads_stream = await _leader(brokers)
    (leads_map,) = [b for b in brokers if (await b.get("/jsz"))["meta"]["is_leader"]]
    asked = next(clients[b.name] for b in brokers if b not in (leads_stream, leads_map))
    for at in range(0, len(backup.data), CHUNK_BYTES):
        chunk = backup.data[at : at + CHUNK_BYTES]
        assert (await asked.request(begun["deliver_subject"], chunk, timeout=10)).data == b""
    if leads_map is not leads_stream:
        leads_map.kill()
    answer = json.loads((await asked.request(begun["deliver_subject"], b"", timeout=30)).data)
    assert answer["state"]["messages"] == MESSAGES


async def test_a_snapshot_whose_leader_goes_ends_and_the_next_one_is_whole(fleet: Fleet) -> None:
    brokers = await fleet.start(3)
    clients = await _clients(fleet, brokers)
    wanted = await _filled(clients["east-0"])
    leader = await _leader(brokers)
    asked = next(clients[broker.name] for broker in brokers if broker is not leader)
    inbox = asked.new_inbox()
    sub = await asked.subscribe(inbox)
    await asked.flush()
    request = {"deliver_subject": inbox, "chunk_size": 1024, "window_size": 4096}
    assert "error" not in await call(asked, "STREAM.SNAPSHOT.S", request)
    first = await sub.next_msg(timeout=10)

    leader.kill()

    async def again() -> Backup | None:
        try:
            return await take_backup(asked, "S", chunk_size=CHUNK_BYTES)
        except (AssertionError, NatsError):
            return None

    await asked.publish(first.reply)  # To nobody: the next leader knows nothing of it.
    backup: Backup = await until(again, "a backup by the next leader")
    assert backup.end == "204"
    assert (backup.state["messages"], backup.state["last_seq"]) == (
        wanted.state["messages"],
        wanted.state["last_seq"],
    )
    leader.start()
    await leader.ready()
    await call(asked, "STREAM.DELETE.S")
    await _restored_again(asked, backup)


async def test_a_snapshot_says_so_when_its_leader_hands_over(fleet: Fleet) -> None:
    brokers = await fleet.start(3)
    clients = await _clients(fleet, brokers)
    await _filled(clients["east-0"])
    asked = clients["east-0"]
    inbox = asked.new_inbox()
    sub = await asked.subscribe(inbox)
    await asked.flush()
    request = {"deliver_subject": inbox, "chunk_size": 1024, "window_size": 2048}
    assert "error" not in await call(asked, "STREAM.SNAPSHOT.S", request)
    assert (await call(asked, "STREAM.LEADER.STEPDOWN.S")).get("success")
    while (message := await sub.next_msg(timeout=10)).data:
        pass
    assert dict(message.headers or {}) == {"Status": "500", "Description": "the stream has another leader"}
