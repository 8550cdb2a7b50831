"""Pull consumers: which fields of their configuration may change."""

from __future__ import annotations

from typing import Any

from tests.compat.bench import Bench
from tests.compat.six import of
from tests.compat.table import Group

rows = Group("consumers")

SECOND = 1_000_000_000


@rows("update.direct", "no update makes a pull consumer a direct one")
async def update_direct(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer()
    config = {**consumer.created["config"], "direct": True}
    await b.refused(
        f"CONSUMER.CREATE.{stream.name}.{consumer.name}",
        {"stream_name": stream.name, "config": config},
        code=400,
        err_code=10090,
        text="consumer direct requires a push based consumer",
    )


@rows("update.storage", "an update does not put a consumer into memory")
async def update_storage(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer()
    config = {**consumer.created["config"], "mem_storage": True}
    await b.refused(
        f"CONSUMER.CREATE.{stream.name}.{consumer.name}",
        {"stream_name": stream.name, "config": config},
        code=500,
        err_code=10012,
        text="storage type can not be updated",
    )


@rows("update.to-durable", "an ephemeral consumer becomes a durable one by an update")
async def update_to_durable(b: Bench) -> None:
    stream = await b.stream()
    call, body = f"CONSUMER.CREATE.{stream.name}.c", {"name": "c", "ack_policy": "explicit"}
    await b.ok(call, {"stream_name": stream.name, "config": body})
    await b.ok(call, {"stream_name": stream.name, "config": {**body, "durable_name": "c"}})
    config = (await b.ok(f"CONSUMER.INFO.{stream.name}.c"))["config"]
    assert (config["durable_name"], config["inactive_threshold"]) == ("c", 5 * SECOND)


@rows("update.without-durable", "an update of a durable consumer need not say that it is one")
async def update_without_durable(b: Bench) -> None:
    stream = await b.stream()
    call, body = f"CONSUMER.CREATE.{stream.name}.c", {"name": "c", "ack_policy": "explicit"}
    await b.ok(call, {"stream_name": stream.name, "config": {**body, "durable_name": "c"}})
    await b.ok(call, {"stream_name": stream.name, "config": {**body, "description": "d"}, "action": "update"})
    config = (await b.ok(f"CONSUMER.INFO.{stream.name}.c"))["config"]
    assert config["description"] == "d"
    assert "inactive_threshold" not in config


MAY_CHANGE: dict[str, Any] = {
    "description": "other",
    "ack_wait": SECOND,
    "max_deliver": 3,
    "max_ack_pending": 7,
    "filter_subject": "$a",
    "filter_subjects": ["$a", "$b"],
    "headers_only": True,
    "max_batch": 5,
    "max_expires": SECOND,
    "max_bytes": 7,
    "inactive_threshold": 100 * SECOND,
}


def _may_change(field: str, value: Any) -> None:
    @rows(f"update.may.{field}", f"{field} may change")
    async def may_change(b: Bench) -> None:
        stream = await b.stream()
        consumer = await stream.consumer()
        changed = await stream.consumer(consumer.name, **{field: of(stream, value)})
        assert changed.created["config"][field] == of(stream, value)
        assert changed.created["created"] == consumer.created["created"]


for _field, _value in MAY_CHANGE.items():
    _may_change(_field, _value)

MAY_NOT_CHANGE: dict[str, tuple[dict[str, Any], str]] = {
    "ack_policy": ({"ack_policy": "all"}, "ack policy can not be updated"),
    "deliver_policy": ({"deliver_policy": "new"}, "deliver policy can not be updated"),
    "replay_policy": ({"replay_policy": "original"}, "replay policy can not be updated"),
    "max_waiting": ({"max_waiting": 5}, "max waiting can not be updated"),
}


def _may_not_change(field: str, change: dict[str, Any], text: str) -> None:
    @rows(f"update.may-not.{field}", f"{field} may not change")
    async def may_not_change(b: Bench) -> None:
        stream = await b.stream()
        consumer = await stream.consumer()
        config = {"durable_name": consumer.name, "ack_policy": "explicit", **change}
        await stream.consumer_refused(**config, code=500, err_code=10012, text=text)


for _field, (_change, _text) in MAY_NOT_CHANGE.items():
    _may_not_change(_field, _change, _text)
