"""Counters that are added up over sources."""

from __future__ import annotations

import json
from typing import Any

from tests.compat.bench import Bench, StreamOfRow, eventually
from tests.compat.table import Group

rows = Group("counter-sources")


async def add(stream: StreamOfRow, by: str, suffix: str = "x", **headers: str) -> str:
    answer = await stream.publish(suffix, b"", {"Nats-Incr": by, **headers})
    return str(answer["val"])


async def counter(b: Bench, **config: Any) -> StreamOfRow:
    return await b.stream(allow_msg_counter=True, **config)


def from_(stream: StreamOfRow, to: str) -> dict[str, Any]:
    """A source whose subjects become `<to>.…`."""
    return {
        "name": stream.name,
        "subject_transforms": [{"src": f"{stream.name}.>", "dest": f"{to}.>"}],
    }


async def last(stream: StreamOfRow, messages: int, suffix: str = "x") -> tuple[str, str, Any]:
    """Once it has so many messages: (sum, increment, what is known of its sources) of the subject's last one."""

    async def there() -> bool:
        return bool((await stream.state())["messages"] == messages)

    await eventually(there, f"{messages} messages in {stream.name}", 10)
    found = await stream.nc.jetstream().get_last_msg(stream.name, f"{stream.name}.{suffix}")
    headers = found.headers or {}
    sources = json.loads(headers["Nats-Counter-Sources"])
    return json.loads(found.data or b"")["val"], headers["Nats-Incr"], sources


@rows("sum", "a stream adds up what the counters of its sources stand at")
async def total(b: Bench) -> None:
    east, west = await counter(b), await counter(b)
    name = b.name()
    whole = await counter(b, name=name, sources=[from_(east, name), from_(west, name)])
    assert [await add(east, "5"), await add(east, "-2")] == ["5", "3"]
    e, w = f"{east.name}.x", f"{west.name}.x"
    assert await last(whole, 2) == ("3", "-2", {east.name: {e: "3"}})
    assert await add(west, "7") == "7"
    assert await last(whole, 3) == ("10", "7", {east.name: {e: "3"}, west.name: {w: "7"}})


@rows("own", "its own increments count too, and keep what is known of the sources")
async def own(b: Bench) -> None:
    source = await counter(b)
    name = b.name()
    whole = await counter(b, name=name, subjects=[f"{name}.>"], sources=[from_(source, name)])
    await add(source, "5")
    known = {source.name: {f"{source.name}.x": "5"}}
    assert await last(whole, 1) == ("5", "5", known)
    assert await add(whole, "100") == "105"
    assert await last(whole, 2) == ("105", "100", known)
    await add(source, "1")
    assert await last(whole, 3) == ("106", "1", {source.name: {f"{source.name}.x": "6"}})


@rows("missed", "what was left out of a source is made up by what comes next")
async def missed(b: Bench) -> None:
    source = await counter(b)
    for by in ("1", "2", "3"):
        await add(source, by)
    name = b.name()
    whole = await counter(b, name=name, sources=[{**from_(source, name), "opt_start_seq": 3}])
    assert await last(whole, 1) == ("6", "6", {source.name: {f"{source.name}.x": "6"}})


@rows("purged", "a source that was purged begins anew, and the sum falls by what it had")
async def purged(b: Bench) -> None:
    source = await counter(b)
    name = b.name()
    whole = await counter(b, name=name, sources=[from_(source, name)])
    await add(source, "13")
    await last(whole, 1)
    await b.ok(f"STREAM.PURGE.{source.name}")
    assert await add(source, "3") == "3"
    assert await last(whole, 2) == ("3", "-10", {source.name: {f"{source.name}.x": "3"}})


@rows("cascade", "a sum may be the source of another")
async def cascade(b: Bench) -> None:
    source = await counter(b)
    name, above = b.name(), b.name()
    middle = await counter(b, name=name, sources=[from_(source, name)])
    top = await counter(b, name=above, sources=[from_(middle, above)])
    await add(source, "5")
    await add(source, "2")
    assert await last(top, 2) == ("7", "2", {middle.name: {f"{middle.name}.x": "7"}})
    found = await top.nc.jetstream().get_msg(top.name, 2)
    assert list(found.headers or {}) == ["Nats-Incr", "Nats-Counter-Sources", "Nats-Stream-Source"]


@rows("signs", "subjects are escaped in the header as Go does it")
async def signs(b: Bench) -> None:
    source = await counter(b)
    name = b.name()
    whole = await counter(b, name=name, sources=[from_(source, name)])
    await add(source, "1", "a&b<c")
    await last(whole, 1, "a&b<c")
    found = await whole.nc.jetstream().get_msg(whole.name, 1)
    told = (found.headers or {})["Nats-Counter-Sources"]
    assert told == f'{{"{source.name}":{{"{source.name}.a\\u0026b\\u003cc":"1"}}}}'


@rows("no-counter", "messages that are no counter's are passed over")
async def no_counter(b: Bench) -> None:
    plain = await b.stream()
    name = b.name()
    whole = await counter(b, name=name, sources=[from_(plain, name)])
    await plain.fill("x", "y")

    async def heard() -> bool:
        found = (await whole.info())["sources"][0]
        return bool(found["active"] >= 0 and found["lag"] == 0)

    await eventually(heard, "the source to be heard", 10)
    assert (await whole.state())["messages"] == 0


@rows("plain", "a stream without counters takes a source's sums as they are")
async def plain(b: Bench) -> None:
    source = await counter(b)
    copy = await b.stream(sources=[{"name": source.name}])
    await add(source, "5")

    async def there() -> bool:
        return bool((await copy.state())["messages"] == 1)

    await eventually(there, "the message", 10)
    found = await copy.nc.jetstream().get_msg(copy.name, 1)
    assert found.data == b'{"val":"5"}'
    assert "Nats-Counter-Sources" not in (found.headers or {})
