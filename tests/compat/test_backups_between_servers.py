"""Backups of one server are restored on the other: so people come to these brokers, and can go back."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from nats.aio.client import Client
from tests.compat.backups import call, restore, take_backup
from tests.compat.table import NATS_1, OURS_1, OURS_3, PLAIN
from tests.compat.targets import Nats, Ours, Target

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=[OURS_1, pytest.param(OURS_3, marks=pytest.mark.long)]
)
async def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[list[Target]]:
    folder: Path = tmp_path_factory.mktemp("between")
    kinds: list[Target] = [Ours(request.param, PLAIN, folder / "ours"), Nats(NATS_1, PLAIN, folder / "nats")]
    try:
        for target in kinds:
            target.folder.mkdir()
            await target.start()
        yield kinds
    finally:
        for target in kinds:
            await target.stop()


async def _content(nc: Client, stream: str) -> tuple[dict[str, Any], list[Any]]:
    """The state that counts, and every message."""
    state = (await call(nc, f"STREAM.INFO.{stream}", {"deleted_details": True}))["state"]
    found = []
    for seq in range(max(state["first_seq"], 1), state["last_seq"] + 1):
        answer = await call(nc, f"STREAM.MSG.GET.{stream}", {"seq": seq})
        if "message" in answer:
            message = answer["message"]
            data, header = (base64.b64decode(message.get(part, "")) for part in ("data", "hdrs"))
            found.append((seq, message["subject"], data, header, message["time"]))
    wanted = ("messages", "first_seq", "last_seq", "num_deleted", "deleted", "consumer_count", "num_subjects")
    return {name: state.get(name) for name in wanted}, found


async def _consumer(nc: Client, stream: str, name: str) -> dict[str, Any]:
    found = await call(nc, f"CONSUMER.INFO.{stream}.{name}")
    state = {key: found[key] for key in ("num_ack_pending", "num_redelivered", "num_pending")}
    for key in ("delivered", "ack_floor"):
        state[key] = (found[key]["consumer_seq"], found[key]["stream_seq"])
    return state


async def _make(nc: Client, replicas: int, name: str, **config: Any) -> None:
    """A stream with all that a backup has to keep."""
    config = {"name": name, "subjects": [f"{name}.>"], "num_replicas": replicas, **config}
    assert "error" not in await call(nc, f"STREAM.CREATE.{name}", config)
    js = nc.jetstream()
    for number in range(300):
        header = {"Number": str(number), "Text": "ä ö"} if number % 3 else None
        payload = (b"%d " % number) * (number % 50)
        await js.publish(f"{name}.{number % 5}", payload, headers=header)
    config = {"durable_name": "c", "ack_policy": "explicit", "filter_subject": f"{name}.2"}
    answer = await call(nc, f"CONSUMER.DURABLE.CREATE.{name}.c", {"stream_name": name, "config": config})
    assert "error" not in answer
    sub = await js.pull_subscribe_bind("c", name)
    taken = await sub.fetch(6, timeout=5)
    for at in (0, 1, 4):
        await taken[at].ack_sync()
    await sub.unsubscribe()
    if config.get("retention") != "workqueue":
        for seq in (1, 7, 8, 300):
            await call(nc, f"STREAM.MSG.DELETE.{name}", {"seq": seq})
        await call(nc, f"STREAM.PURGE.{name}", {"filter": f"{name}.4"})


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("retention", ["limits", "workqueue"])
@pytest.mark.parametrize("to_ours", [True, False], ids=["to-ours", "from-ours"])
async def test_a_backup_of_one_server_is_restored_on_the_other(
    servers: list[Target], to_ours: bool, retention: str, storage: str
) -> None:
    ours, theirs = servers
    origin, target = (theirs, ours) if to_ours else (ours, theirs)
    name = f"S_{retention}_{storage}_{to_ours}"
    # Not the first broker: in a cluster it may lead, or not.
    asked, there = origin.clients[-1], target.clients[-1]
    await _make(asked, origin.size, name, retention=retention, storage=storage)
    wanted, consumer = await _content(asked, name), await _consumer(asked, name, "c")
    backup = await take_backup(asked, name, chunk_size=1024)

    answer = await restore(there, name, {**backup.config, "num_replicas": target.size}, backup.data)

    assert "error" not in answer, answer
    assert await _content(there, name) == wanted
    assert await _consumer(there, name, "c") == consumer
    assert (await there.jetstream().publish(f"{name}.new", b"x")).seq == wanted[0]["last_seq"] + 1


async def test_a_backup_goes_there_and_back(servers: list[Target]) -> None:
    ours, theirs = servers
    await _make(ours.clients[0], ours.size, "ROUND")
    wanted = await _content(ours.clients[0], "ROUND")
    first = await take_backup(ours.clients[0], "ROUND")
    config = {**first.config, "num_replicas": 1}
    assert "error" not in await restore(theirs.clients[0], "ROUND", config, first.data)
    second = await take_backup(theirs.clients[0], "ROUND")
    await call(ours.clients[0], "STREAM.DELETE.ROUND")

    assert "error" not in await restore(ours.clients[0], "ROUND", first.config, second.data)

    assert await _content(ours.clients[0], "ROUND") == wanted
