"""Logins of links roll through their stages while clients publish: no publisher sees an error, and no stream gets another leader."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from nats.js import JetStreamContext
from nats.js.api import Placement
from tests.support.local_clusters import Broker, Fleet, fetch, until

pytestmark = pytest.mark.e2e

USERS = {
    "users": [
        {"user": "app", "password": "p", "credential": "app.1"},
        {"user": "op", "password": "op", "role": "operator"},
    ]
}
A, B = ({"user": f"link-{one}", "password": f"secret-{one}"} for one in "ab")
STAGES = (
    {"accept": [A, B], "send": A},
    {"accept": [A, B], "send": B},
    {"accept": [B], "send": B},
)


@dataclass
class Publisher:
    """Publishes with acknowledgements, each message once."""

    js: JetStreamContext
    subject: str
    acked: int = 0
    stop: bool = False
    errors: list[str] = field(default_factory=list)

    async def run(self) -> None:
        while not self.stop:
            try:
                await self.js.publish(self.subject, b"x", timeout=5)
                self.acked += 1
            except Exception as error:
                self.errors.append(repr(error))


@asynccontextmanager
async def publishing(publishers: Sequence[Publisher]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(one.run()) for one in publishers]
    try:
        yield
    finally:
        for one in publishers:
            one.stop = True
        await asyncio.gather(*tasks)


async def said(broker: Broker) -> Any:
    url = f"http://{broker.host}:8222/admin/credentials"
    status, found = await asyncio.to_thread(fetch, url, None, "GET", "op:op")
    assert status == 200, found
    return found


async def roll(fleet: Fleet, file: str, kind: str, stages: Sequence[Any], count: dict[str, int]) -> None:
    """One stage after the other, as `docs/adr/users.md` has them: each when every broker says that the one before is done.
    `count`: how many such links each broker has."""
    for stage in stages:
        for broker in fleet.running:
            (broker.folder / file).write_text(json.dumps(stage))
        accepted = {one["user"] for one in stage["accept"]}

        async def is_done(stage: Any = stage, accepted: set[str] = accepted) -> bool:
            for broker in fleet.running:
                found = await said(broker)
                assert found["files"][file]["problem"] == ""
                shown = found["links"][kind]
                assert shown.keys() <= {A["user"], B["user"]}
                if shown != {stage["send"]["user"]: count[broker.name]} or not shown.keys() <= accepted:
                    return False
            return True

        async def is_read(stage: Any = stage) -> bool:
            digests = {(await said(broker))["files"][file]["digest"] for broker in fleet.running}
            return digests == {hashlib.sha256(json.dumps(stage).encode()).hexdigest()[:16]}

        await until(is_read, f"{file} to be in force")
        await until(is_done, f"links by {stage['send']['user']} alone")


async def leaders(fleet: Fleet) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for broker in fleet.running:
        document = await broker.get("/jsz")
        for row in ({"name": "", **document["meta"]}, *document["streams"]):  # The map of streams too.
            if row["is_leader"]:
                found[row["name"]] = broker.name, row["term"]
    return found


@pytest.mark.covers("CL-3", "CL-5", "SF-7")
async def test_the_login_of_a_cluster_rolls_under_publishers(fleet: Fleet) -> None:
    first = {"accept": [A], "send": A}
    brokers = await fleet.start(3, credentials={"users.json": USERS, "cluster.json": first})
    js = await fleet.js(brokers[0], user="app", password="p")
    for number in range(3):
        await js.add_stream(name=f"S{number}", subjects=[f"s{number}.>"], num_replicas=3)
        await js.publish(f"s{number}.first", b"x")
    publishers = [
        Publisher(await fleet.js(broker, user="app", password="p"), f"s{number}.x")
        for broker in brokers
        for number in range(3)
    ]
    before = await leaders(fleet)
    async with publishing(publishers):
        await roll(fleet, "cluster.json", "cluster", STAGES, dict.fromkeys(fleet.brokers, 2))
    assert [one.errors for one in publishers if one.errors] == []
    assert all(one.acked for one in publishers)
    assert await leaders(fleet) == before
    total = 0
    for number in range(3):
        total += (await js.stream_info(f"S{number}")).state.messages
    assert total == 3 + sum(one.acked for one in publishers), "nothing is lost, and nothing there twice"
    for broker in brokers:
        assert "not accepted any more" not in broker.log()
        assert "secret" not in broker.log()


@pytest.mark.covers("CL-3", "CL-5", "CL-6")
async def test_the_login_between_clusters_rolls_under_publishers(fleet: Fleet) -> None:
    first = {"accept": [A], "send": A}
    clusters = await fleet.start_clusters(
        {"east": 3, "west": 2}, credentials={"users.json": USERS, "gateway.json": first}
    )
    js = await fleet.js(clusters["east"][0], user="app", password="p")
    for cluster, replicas in (("east", 3), ("west", 1)):
        await js.add_stream(
            name=cluster,
            subjects=[f"{cluster}.>"],
            num_replicas=replicas,
            placement=Placement(cluster=cluster),
        )
        await js.publish(f"{cluster}.first", b"x")
    publishers = [
        Publisher(await fleet.js(broker, user="app", password="p"), f"{cluster}.x")
        for broker in fleet.running
        for cluster in clusters
    ]
    before = await leaders(fleet)
    counts = {broker.name: 2 if broker.cluster == "east" else 3 for broker in fleet.running}
    async with publishing(publishers):
        await roll(fleet, "gateway.json", "gateway", STAGES, counts)
    assert [one.errors for one in publishers if one.errors] == []
    assert all(one.acked for one in publishers)
    assert await leaders(fleet) == before
    total = 0
    for cluster in clusters:
        total += (await js.stream_info(cluster)).state.messages
    assert total == 2 + sum(one.acked for one in publishers)
