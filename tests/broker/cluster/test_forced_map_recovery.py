"""Two of three brokers lost with their volumes: the map of streams goes on from the third, on real processes (RP-8, SF-9)."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

import pytest
from nats.js.api import StreamConfig
from nats.js.errors import Error
from tests.broker.cluster.test_forced_recovery import USERS, _http, recover
from tests.support.local_clusters import Broker, Fleet, until


async def recover_map(
    broker: Broker, method: str = "GET", body: Any = None, who: str = "operator:op-secret"
) -> tuple[int, Any]:
    url = f"http://{broker.host}:8222/admin/meta/recover"
    return await asyncio.to_thread(_http, url, method, body, who)


@pytest.mark.covers("RP-8", "SF-9")
async def test_two_of_three_volumes_are_destroyed_and_the_map_goes_on_from_the_third(fleet: Fleet) -> None:
    """One stream has its only copy on the broker that is left and goes on; one lost its majority and is recovered after the map;
    two empty brokers join."""
    found = await fleet.start_clusters({"east": 3}, credentials={"users.json": USERS})
    left, *victims = found["east"]
    js = await fleet.js(left, user="app", password="app-secret")
    await js.add_stream(StreamConfig(name="S", subjects=["s"], num_replicas=3))
    for number in range(30):
        await js.publish("s", b"%d" % number)
    status, told = await recover_map(left, who="app:app-secret")
    assert status == 403, told
    status, told = await recover_map(
        left, "POST", {"node": left.name, "acceptLastIndex": 0, "id": "too-early"}
    )
    assert (status, told["err_code"]) == (409, 19006)
    assert "nothing has to be forced" in told["error"]

    async def has_all() -> bool:
        _, told = await recover(left)
        mine = [copy for copy in told.get("copies", ()) if copy["node"] == left.name]
        return bool(mine) and mine[0]["committedSeq"] == 30

    await until(has_all, "the broker that will be left has all messages")
    for victim in victims:
        victim.kill()
        shutil.rmtree(victim.data_dir)

    async def is_lost() -> Any:
        status, told = await recover_map(left)
        return told if status == 200 and not told["alive"] and not told["refusal"] else None

    told = await until(is_lost, "the broker that is left says that the majority is gone")
    assert sorted(told["outOfContact"]) == sorted(victim.name for victim in victims)
    (copy,) = told["copies"]
    asked = {"node": left.name, "acceptLastIndex": copy["lastIndex"], "id": "act-1"}
    status, _ = await recover_map(left, "POST", {**asked, "acceptLastIndex": copy["lastIndex"] + 1})
    assert status == 409
    status, told = await recover_map(left, "POST", asked)
    assert (status, told["recoveries"]) == (202, 1), told
    assert victims[0].name in told["recovery"]["mayLose"]
    assert (await recover_map(left, "POST", asked))[0] == 200

    async def is_led() -> bool:
        status, told = await recover(left)
        return status == 200 and not told["alive"]

    await until(is_led, "the new map says that the stream has no majority")
    status, told = await recover(left, "POST", {"node": left.name, "acceptLastSeq": 30, "id": "act-2"})
    assert status == 202, told
    assert (await js.publish("s", b"30")).seq == 31

    for victim in victims:
        victim.start()
    for victim in victims:
        await victim.ready()

    async def is_whole() -> bool:
        status, told = await recover(left)
        lineages = [(await recover_map(broker))[1]["lineage"] for broker in found["east"]]
        return status == 200 and len(told.get("members", ())) == 3 and len(set(lineages)) == 1

    await until(is_whole, "the empty brokers have joined, and the stream has all replicas", 90)
    assert [int((await js.get_msg("S", seq)).data or b"") for seq in range(1, 32)] == list(range(31))
    other = await fleet.js(victims[1], user="app", password="app-secret")

    async def creates() -> bool:
        try:
            await other.add_stream(StreamConfig(name="T", subjects=["t"], num_replicas=3))
        except Error:
            return False
        return (await other.publish("t", b"1")).seq == 1

    await until(creates, "streams can be created again")

    async def votes() -> bool:
        jsz = await left.get("/jsz")
        return len(jsz["meta"]["voters"]) == 3

    await until(votes, "three brokers vote about the map again", 90)
