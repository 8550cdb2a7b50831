"""The version and the level of the API that servers tell, what requests may ask of it, and what is shown in metadata."""

from __future__ import annotations

from typing import Any

from tests.compat.bench import Bench
from tests.compat.table import Group

rows = Group("levels")
VERSION, LEVEL = "2.15.1", 5
REFUSED = {"code": 412, "err_code": 10185, "description": "JetStream minimum api level required"}


def server(needed: int) -> dict[str, str]:
    """The metadata of an answer about one stream or consumer."""
    return {"_nats.level": str(LEVEL), "_nats.ver": VERSION, "_nats.req.level": str(needed)}


async def asked(b: Bench, call: str, level: str) -> dict[str, Any]:
    """The answer to a call that asks for a level."""
    return await b.api(call, headers={"Nats-Required-Api-Level": level})


@rows("info", "INFO tells version and level, and so does the account's")
async def info(b: Bench) -> None:
    client = await b.raw()
    assert (client.info["version"], client.info["api_lvl"]) == (VERSION, LEVEL)
    assert (await b.ok("INFO"))["api"]["level"] == LEVEL


@rows("required", "a request that asks for no more than there is is answered")
async def required(b: Bench) -> None:
    stream = await b.stream()
    for level in ("0", "2", "5", "-1", ""):
        assert "error" not in await asked(b, f"STREAM.INFO.{stream.name}", level)


@rows("too_high", "one that asks for more is refused, whatever it is")
async def too_high(b: Bench) -> None:
    stream = await b.stream()
    for call in (
        "INFO",
        "STREAM.NAMES",
        "STREAM.LIST",
        f"STREAM.INFO.{stream.name}",
        f"STREAM.PURGE.{stream.name}",
        f"STREAM.MSG.GET.{stream.name}",
        f"STREAM.DELETE.{stream.name}",
        f"CONSUMER.NAMES.{stream.name}",
        f"CONSUMER.INFO.{stream.name}.nobody",
    ):
        assert (await asked(b, call, "6"))["error"] == REFUSED, call
    assert (await b.ok(f"STREAM.INFO.{stream.name}"))["config"]["name"] == stream.name


@rows("no_number", "and one whose level is no number")
async def no_number(b: Bench) -> None:
    assert (await asked(b, "INFO", "x"))["error"] == REFUSED


@rows("pull", "a pull request that asks for more is told so by a status")
async def pull(b: Bench) -> None:
    stream = await b.stream()
    name = b.name("C")
    config = {"durable_name": name, "ack_policy": "explicit"}
    await b.ok(f"CONSUMER.CREATE.{stream.name}.{name}", {"stream_name": stream.name, "config": config})
    found = await b.nc.request(
        f"$JS.API.CONSUMER.MSG.NEXT.{stream.name}.{name}",
        b"{}",
        timeout=5,
        headers={"Nats-Required-Api-Level": "6"},
    )
    assert found.headers is not None
    assert (found.headers["Status"], found.headers["Description"]) == ("412", "Required Api Level")


def _stream(name: str, needed: int, **config: Any) -> None:
    @rows(f"stream.{name}", f"a stream's metadata says that it needs level {needed}: {name}")
    async def stream(b: Bench) -> None:
        found = await b.stream(**config)
        kept = {key: text for key, text in config.get("metadata", {}).items() if key == "own"}
        assert found.config["metadata"] == {**server(needed), **kept}
        again = await b.ok(f"STREAM.INFO.{found.name}")
        assert again["config"]["metadata"] == {**server(needed), **kept}
        updated = await b.ok(f"STREAM.UPDATE.{found.name}", {**again["config"], "description": "d"})
        assert updated["config"]["metadata"] == {**server(needed), **kept}


_stream("plain", 0)
_stream("metadata", 0, metadata={"own": "x", "_nats.req.level": "9", "_nats.ver": "0"})
_stream("ttl", 1, allow_msg_ttl=True)
_stream("counter", 2, allow_msg_counter=True)
_stream("atomic", 2, allow_atomic=True)
_stream("schedules", 2, allow_msg_schedules=True)
_stream("batched", 4, allow_batched=True)


@rows("stream.list", "lists say only what a stream needs")
async def stream_list(b: Bench) -> None:
    stream = await b.stream(allow_atomic=True)
    found = await b.ok("STREAM.LIST", {"subject": f"{stream.name}.>"})
    (listed,) = found["streams"]
    assert listed["config"]["metadata"] == {"_nats.req.level": "2"}


def _consumer(name: str, needed: int, **config: Any) -> None:
    @rows(f"consumer.{name}", f"a consumer's metadata says that it needs level {needed}: {name}")
    async def consumer(b: Bench) -> None:
        stream, durable = await b.stream(), b.name("C")
        whole = {"durable_name": durable, "ack_policy": "explicit", **config}
        call = f"CONSUMER.CREATE.{stream.name}.{durable}"
        for _ in range(2):
            made = await b.ok(call, {"stream_name": stream.name, "config": whole})
            assert made["config"]["metadata"] == server(needed)
        found = await b.ok(f"CONSUMER.INFO.{stream.name}.{durable}")
        assert found["config"]["metadata"] == server(needed)
        (listed,) = (await b.ok(f"CONSUMER.LIST.{stream.name}"))["consumers"]
        assert listed["config"]["metadata"] == {"_nats.req.level": str(needed)}


_consumer("plain", 0)
_consumer("metadata", 0, metadata={"_nats.level": "77"})
_consumer("overflow", 1, priority_groups=["a"], priority_policy="overflow")
_consumer("pause", 1, pause_until="2100-01-01T00:00:00Z")


@rows("consumer.paused", "a pause needs level 1 as long as it is there")
async def paused(b: Bench) -> None:
    stream, durable = await b.stream(), b.name("C")
    config = {"durable_name": durable, "ack_policy": "explicit"}
    await b.ok(f"CONSUMER.CREATE.{stream.name}.{durable}", {"stream_name": stream.name, "config": config})
    for body, needed in (({"pause_until": "2100-01-01T00:00:00Z"}, 1), ({}, 0)):
        await b.ok(f"CONSUMER.PAUSE.{stream.name}.{durable}", body)
        found = await b.ok(f"CONSUMER.INFO.{stream.name}.{durable}")
        assert found["config"]["metadata"]["_nats.req.level"] == str(needed)
