"""subject_transform and republish of a stream."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.compat.bench import Bench
from tests.compat.table import Group

rows = Group("transforms")


async def _stored(b: Bench, stream: str, seq: int) -> str:
    answer = await b.ok(f"STREAM.MSG.GET.{stream}", {"seq": seq})
    subject: str = answer["message"]["subject"]
    return subject


@rows("subject", "subject_transform says under which subject a message is stored")
async def subject(b: Bench) -> None:
    name = b.name()
    stream = await b.stream(
        name=name,
        subject_transform={"src": f"{name}.*.*", "dest": f"T{name}.{{{{wildcard(2)}}}}.{{{{wildcard(1)}}}}"},
    )
    assert stream.config["subject_transform"]["dest"] == f"T{name}.{{{{wildcard(2)}}}}.{{{{wildcard(1)}}}}"
    await stream.fill("1.2", "other")
    assert [await _stored(b, name, seq) for seq in (1, 2)] == [f"T{name}.2.1", f"{name}.other"]


@rows("subject.headers", "messages with headers are transformed as well, and keep them")
async def with_headers(b: Bench) -> None:
    name = b.name()
    stream = await b.stream(name=name, subject_transform={"src": f"{name}.>", "dest": f"T{name}.>"})
    await stream.publish("a", headers={"K": "v"})
    message = await b.js.get_msg(name, 1)
    assert (message.subject, dict(message.headers or {})) == (f"T{name}.a", {"K": "v"})


@rows("subject.expected", "the expected last sequence of a subject is that of the transformed one")
async def expected(b: Bench) -> None:
    name = b.name()
    stream = await b.stream(name=name, subject_transform={"src": f"{name}.*", "dest": f"T{name}"})
    await stream.fill("a")
    answer = await stream.publish("b", headers={"Nats-Expected-Last-Subject-Sequence": "1"})
    assert answer.get("seq") == 2, answer


@rows("subject.consumer", "a consumer filters by the transformed subject")
async def consumer(b: Bench) -> None:
    name = b.name()
    stream = await b.stream(name=name, subject_transform={"src": f"{name}.>", "dest": f"T{name}.>"})
    await stream.fill("a", "b")
    reader = await stream.consumer(filter_subject=f"T{name}.b")
    assert [message.subject for message in await reader.fetch(5)] == [f"T{name}.b"]


@rows("subject.partition", "partitions are those of NATS's hash")
async def partition(b: Bench) -> None:
    name = b.name()
    stream = await b.stream(
        name=name, subject_transform={"src": f"{name}.*", "dest": f"T{name}.{{{{partition(10,1)}}}}"}
    )
    await stream.fill("abcdef", "a-b-c", "-a-b-", "a--b", "abc", "ab")
    found = [(await _stored(b, name, seq)).rpartition(".")[2] for seq in range(1, 7)]
    assert found == ["6", "9", "3", "6", "1", "6"]


@rows("subject.update", "it can be changed and taken away, for what is published from then on")
async def update(b: Bench) -> None:
    name = b.name()
    stream = await b.stream(name=name, subject_transform={"src": f"{name}.>", "dest": f"T{name}.>"})
    await stream.fill("a")
    assert "error" not in await stream.update(subject_transform={"src": f"{name}.>", "dest": f"U{name}.>"})
    await stream.fill("a")
    config = (await stream.info())["config"]
    del config["subject_transform"]
    changed = await b.ok(f"STREAM.UPDATE.{name}", config)
    assert "subject_transform" not in changed["config"]
    await stream.fill("a")
    assert [await _stored(b, name, seq) for seq in (1, 2, 3)] == [f"T{name}.a", f"U{name}.a", f"{name}.a"]


@rows("subject.empty", "an empty transform is kept and does nothing")
async def empty(b: Bench) -> None:
    stream = await b.stream(subject_transform={})
    assert stream.config["subject_transform"] == {"src": "", "dest": ""}
    await stream.fill("a")
    assert await _stored(b, stream.name, 1) == f"{stream.name}.a"


def _refused(name: str, what: str, transform: dict[str, str], err_code: int, text: str) -> None:
    @rows(f"subject.refused.{name}", f"a transform is refused: {what}")
    async def run(b: Bench) -> None:
        subject = b.subject()
        await b.stream_refused(
            subjects=[f"{subject}.>"], subject_transform=transform, code=400, err_code=err_code, text=text
        )


_WRONG = "stream transform: "
_MAPPING = _WRONG + "invalid mapping destination: "
_refused(
    "source",
    "its source",
    {"src": "a..b", "dest": "b"},
    10155,
    "stream transform source: invalid subject a..b",
)
_refused(
    "wildcard",
    "wildcards in its destination",
    {"src": "a.*", "dest": "b.*"},
    10156,
    f"{_WRONG}invalid subject",
)
_refused("tail", "a tail of the source alone", {"src": "a.>", "dest": "b"}, 10156, f"{_WRONG}invalid subject")
_refused(
    "range",
    "a wildcard too many",
    {"src": "a.*", "dest": "b.$2"},
    10156,
    f"{_MAPPING}wildcard index out of range in $2: [2]",
)
_refused(
    "function",
    "a function that there is not",
    {"src": "a.*", "dest": "{{f(1)}}"},
    10156,
    f"{_MAPPING}unknown function in {{{{f(1)}}}}",
)
_refused("token", "an empty token", {"src": "a.*", "dest": "b..c"}, 10156, f"{_MAPPING}invalid transform")


async def _next(subscription: Any) -> Any:
    return await subscription.next_msg(timeout=5)


@rows("republish", "what is stored is published again, with where it stands")
async def republish(b: Bench) -> None:
    name = b.name()
    stream = await b.stream(name=name, republish={"src": ">", "dest": f"R{name}.>"})
    assert stream.config["republish"] == {"src": ">", "dest": f"R{name}.>"}
    again = await b.subscribe(f"R{name}.>")
    await stream.publish("a", b"one", headers={"K": "v"})
    await stream.fill("b", "a")
    first, second, third = [await _next(again) for _ in range(3)]
    headers = dict(first.headers)
    assert headers.pop("Nats-Time-Stamp")
    assert (first.subject, first.data, first.reply) == (f"R{name}.{name}.a", b"one", "")
    assert headers == {
        "K": "v",
        "Nats-Stream": name,
        "Nats-Subject": f"{name}.a",
        "Nats-Sequence": "1",
        "Nats-Last-Sequence": "0",
    }
    assert second.headers["Nats-Last-Sequence"] == "0"
    assert (third.headers["Nats-Sequence"], third.headers["Nats-Last-Sequence"]) == ("3", "1")


@rows("republish.headers-only", "headers_only leaves the payload out and says its size")
async def headers_only(b: Bench) -> None:
    name = b.name()
    stream = await b.stream(
        name=name,
        republish={"src": f"{name}.*", "dest": f"R{name}.{{{{wildcard(1)}}}}.x", "headers_only": True},
    )
    again = await b.subscribe(f"R{name}.>")
    await stream.publish("a.b", b"not meant")
    await stream.publish("a", b"hello")
    message = await _next(again)
    assert (message.subject, message.data) == (f"R{name}.a.x", b"")
    assert (message.headers["Nats-Sequence"], message.headers["Nats-Msg-Size"]) == ("2", "5")


@rows("republish.transformed", "republish is about the subject that is stored")
async def republish_transformed(b: Bench) -> None:
    name = b.name()
    stream = await b.stream(
        name=name,
        subject_transform={"src": f"{name}.>", "dest": f"T{name}.>"},
        republish={"src": f"T{name}.>", "dest": f"R{name}.>"},
    )
    again = await b.subscribe(f"R{name}.>")
    await stream.fill("a")
    assert (await _next(again)).headers["Nats-Subject"] == f"T{name}.a"


@rows("republish.captured", "what is republished may be captured by another stream")
async def republish_captured(b: Bench) -> None:
    name = b.name()
    other = await b.stream(subjects=[f"R{name}.>"])
    stream = await b.stream(name=name, republish={"src": f"{name}.>", "dest": f"R{name}.>"})
    await stream.fill("a", "b")
    async with asyncio.timeout(5):
        while (await other.state())["messages"] < 2:
            await asyncio.sleep(0.01)
    assert await _stored(b, other.name, 2) == f"R{name}.b"


@rows("republish.refused", "a refused message and a duplicate are not republished")
async def republish_refused(b: Bench) -> None:
    name = b.name()
    stream = await b.stream(name=name, republish={"src": ">", "dest": f"R{name}.>"})
    again = await b.subscribe(f"R{name}.>")
    await stream.publish("a", headers={"Nats-Msg-Id": "1"})
    await stream.publish("a", headers={"Nats-Msg-Id": "1"})
    await stream.publish("a", headers={"Nats-Expected-Last-Sequence": "7"})
    await stream.fill("last")
    assert [(await _next(again)).headers["Nats-Sequence"] for _ in range(2)] == ["1", "2"]


@rows("republish.source", "no source means every subject")
async def republish_source(b: Bench) -> None:
    stream = await b.stream(republish={"src": "", "dest": "R.>"})
    assert stream.config["republish"] == {"src": ">", "dest": "R.>"}


@rows("republish.update", "it can be taken away")
async def republish_update(b: Bench) -> None:
    name = b.name()
    stream = await b.stream(name=name, republish={"src": ">", "dest": f"R{name}.>"})
    again = await b.subscribe(f"R{name}.>")
    await stream.fill("a")
    config = (await stream.info())["config"]
    del config["republish"]
    changed = await b.ok(f"STREAM.UPDATE.{name}", config)
    assert "republish" not in changed["config"]
    await stream.fill("a")
    assert "error" not in await stream.update(republish={"src": ">", "dest": f"R{name}.>"})
    await stream.fill("a")
    assert [(await _next(again)).headers["Nats-Sequence"] for _ in range(2)] == ["1", "3"]


@rows("republish.cycle", "a republished message may not come back into the stream")
async def republish_cycle(b: Bench) -> None:
    subject = b.subject()
    await b.stream_refused(
        subjects=[f"{subject}.>"],
        republish={"src": f"{subject}.>", "dest": f"{subject}.again.>"},
        code=500,
        err_code=10052,
        text="stream configuration for republish destination forms a cycle",
    )


@rows("republish.wrong", "a republish that is no transform is refused")
async def republish_wrong(b: Bench) -> None:
    subject = b.subject()
    await b.stream_refused(
        subjects=[f"{subject}.>"],
        republish={"src": "a.>", "dest": "r"},
        code=500,
        err_code=10052,
        text="stream configuration for republish with transform from 'a.>' to 'r' not valid",
    )
