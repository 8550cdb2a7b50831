"""What a server's store has room for: streams that reserve more are not made, and messages beyond it not stored."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.compat.bench import Bench
from tests.compat.table import SINGLES, Group, Settings

MIB = 1 << 20
ROOM = 4 * MIB

SMALL = Settings(
    "small-store",
    ours={"storage": {"maxFileBytes": ROOM, "maxMemoryBytes": ROOM, "segmentBytes": 65536}},
    nats={"jetstream": {"max_file_store": ROOM, "max_memory_store": ROOM}},
)

rows = Group("stores", on=SINGLES, settings=SMALL)

TOO_MUCH = {
    "file": (500, 10047, "insufficient storage resources available"),
    "memory": (500, 10028, "insufficient memory resources available"),
}


async def refused(b: Bench, call: str, config: dict[str, Any]) -> None:
    """With the text of its storage."""
    code, err_code, text = TOO_MUCH[config["storage"]]
    error = (await b.api(call, config))["error"]
    assert error == {"code": code, "err_code": err_code, "description": text}


@rows("create", "a stream whose max_bytes is beyond the server's store is not made, alone or beside others")
async def create(b: Bench) -> None:
    for storage in TOO_MUCH:
        name = b.name()
        config = {"name": name, "storage": storage, "max_bytes": ROOM + 1}
        await refused(b, f"STREAM.CREATE.{name}", config)
        first = await b.stream(storage=storage, max_bytes=3 * MIB)
        await refused(b, f"STREAM.CREATE.{name}", {**config, "max_bytes": 2 * MIB})
        second = await b.stream(storage=storage, max_bytes=MIB)
        await b.ok(f"STREAM.DELETE.{first.name}")
        await b.ok(f"STREAM.DELETE.{second.name}")
        for bound in (ROOM, -1):
            found = await b.stream(storage=storage, max_bytes=bound)
            await b.ok(f"STREAM.DELETE.{found.name}")


@rows("update", "nor is one given so much later")
async def update(b: Bench) -> None:
    for storage in TOO_MUCH:
        stream = await b.stream(storage=storage, max_bytes=2 * MIB)
        call = f"STREAM.UPDATE.{stream.name}"
        await refused(b, call, {**stream.config, "max_bytes": ROOM + 1})
        for enough in (ROOM, MIB):
            await b.ok(call, {**stream.config, "max_bytes": enough})
        await b.ok(f"STREAM.DELETE.{stream.name}")


@rows("publish", "a message for which the store has no room is refused with 10023")
async def publish(b: Bench) -> None:
    for storage in TOO_MUCH:
        stream = await b.stream(storage=storage)
        for _ in range(100):
            subject = f"{stream.name}.a"
            found = await asyncio.gather(*(b.nc.request(subject, bytes(50_000), timeout=5) for _ in range(5)))
            errors = [error for one in found if (error := json.loads(one.data).get("error"))]
            if errors:
                break
        wanted = {"code": 503, "err_code": 10023, "description": "insufficient resources"}
        assert errors
        assert all(error == wanted for error in errors), errors
        await b.ok(f"STREAM.PURGE.{stream.name}")
        await b.ok(f"STREAM.DELETE.{stream.name}")
