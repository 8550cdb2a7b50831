"""A stream whose majority was killed, forced onto the copy that is left, on real processes with their volumes (RP-8, SF-9)."""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from nats.js.api import Placement, StreamConfig
from tests.support.local_clusters import Broker, Fleet, until

from supercluster.broker.raft.entry import decode_entries

USERS = {
    "users": [
        {"user": "app", "password": "app-secret", "account": "$G", "role": "client"},
        {"user": "operator", "password": "op-secret", "account": "$G", "role": "operator"},
    ]
}


def _http(url: str, method: str, body: Any, who: str) -> tuple[int, Any]:
    headers = {"Authorization": f"Basic {base64.b64encode(who.encode()).decode()}"}
    raw = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, raw, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=15) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


async def recover(
    broker: Broker, method: str = "GET", body: Any = None, who: str = "operator:op-secret"
) -> tuple[int, Any]:
    url = f"http://{broker.host}:8222/admin/streams/$G/S/recover"
    return await asyncio.to_thread(_http, url, method, body, who)


@pytest.mark.covers("RP-8", "SF-9")
async def test_two_of_three_are_killed_and_the_third_is_forced(fleet: Fleet) -> None:
    """The third was behind when they died; they come back, and nothing of theirs is mixed in."""
    tagged = {f"east-{number}": {"tags": ["ssd"]} for number in range(3)}
    found = await fleet.start_clusters({"east": 5}, credentials={"users.json": USERS}, per_broker=tagged)
    brokers = {broker.name: broker for broker in found["east"]}
    holders, others = [brokers[f"east-{n}"] for n in range(3)], [brokers["east-3"], brokers["east-4"]]
    client = await fleet.client(others[0], user="app", password="app-secret")
    js = client.jetstream(timeout=10)
    await js.add_stream(
        StreamConfig(name="S", subjects=["s"], num_replicas=3, placement=Placement(tags=["ssd"]))
    )
    for number in range(50):
        await js.publish("s", b"both-%d" % number)
    behind, *victims = holders

    async def has_all() -> bool:
        status, told = await recover(others[0])
        return status == 200 and len([c for c in told["copies"] if c["committedSeq"] == 50]) == 3

    await until(has_all, "all copies have all messages")
    status, told = await recover(others[1], who="app:app-secret")
    assert status == 403, told
    refused = {"node": behind.name, "acceptLastSeq": 0, "id": "too-early"}
    status, told = await recover(others[1], "POST", refused)
    assert status == 409
    assert "nothing has to be forced" in told["error"]

    behind.kill()
    lost = [b"lost-%d" % number for number in range(20)]
    for payload in lost:
        assert (await js.publish("s", payload)).seq > 50
    for victim in victims:
        victim.kill()
    behind.start()
    await behind.ready()

    async def is_lost() -> Any:
        status, told = await recover(others[1])
        mine = [copy for copy in told.get("copies", ()) if copy["node"] == behind.name]
        return told if status == 200 and mine and not told["alive"] else None

    told = await until(is_lost, "the broker that is left says what it has")
    assert [(copy["node"], copy["lastSeq"]) for copy in told["copies"]] == [(behind.name, 50)]
    assert sorted(told["outOfContact"]) == sorted(victim.name for victim in victims)
    wanted = {"node": behind.name, "acceptLastSeq": 50, "id": "act-1"}
    status, told = await recover(others[1], "POST", {**wanted, "dryRun": True})
    assert (status, told["refusal"]) == (200, "")
    assert victims[0].name in told["mayLose"]
    status, told = await recover(others[1], "POST", wanted)
    assert (status, told["lineage"]) == (202, 1), told
    for number in range(30):
        assert (await js.publish("s", b"new-%d" % number)).seq == 51 + number

    for victim in victims:
        victim.start()

    async def is_whole() -> bool:
        status, told = await recover(others[0])
        nodes = {member.partition("@")[0] for member in told.get("members", ())}
        current = [c for c in told.get("copies", ()) if c["lineage"] == 1 and c["committedSeq"] == 80]
        return status == 200 and nodes == {holder.name for holder in holders} and len(current) == 3

    await until(is_whole, "the old members are members again", 60)
    payloads = [(await js.get_msg("S", seq)).data for seq in range(1, 81)]
    assert payloads == [b"both-%d" % n for n in range(50)] + [b"new-%d" % n for n in range(30)]
    for victim in victims:
        (tail,) = (victim.data_dir / "discarded").glob("*.entries")
        head, _, records = tail.read_bytes().partition(b"\n")
        assert json.loads(head)["recovery"] == "act-1"
        kept = b"".join(bytes(entry.payload) for entry in decode_entries(records))
        assert all(payload in kept for payload in lost)
