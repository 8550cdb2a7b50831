"""Fast batches, and how streams persist."""

from __future__ import annotations

import json
from typing import Any

from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.errors import TimeoutError as NothingCameError
from tests.compat.bench import Bench, StreamOfRow
from tests.compat.table import Group

rows = Group("fast")
START, APPEND, COMMIT, END, PING = range(5)


class Publisher:
    """A client with one batch."""

    def __init__(self, stream: StreamOfRow, client: Client, inbox: str, answers: Subscription) -> None:
        self.stream = stream
        self.client = client
        self.inbox = inbox
        self.answers = answers

    async def send(
        self, number: object, kind: object, mode: str = "ok", flow: object = 2, **headers: str
    ) -> None:
        reply = f"{self.inbox}.{flow}.{mode}.{number}.{kind}.$FI"
        more = {f"Nats-{k.replace('_', '-')}": v for k, v in headers.items()} or None
        await self.client.publish(f"{self.stream.name}.a", b"x", reply, headers=more)

    async def hears(self, *wanted: dict[str, Any]) -> None:
        """Just this, in this order; a PubAck's batch is left out."""
        for each in wanted:
            found = json.loads((await self.answers.next_msg(timeout=5)).data)
            if "batch" in found:
                assert found.pop("batch") == self.inbox.rpartition(".")[2]
            assert found == each, (found, each)

    async def refused(self, code: int, err_code: int, text: str) -> None:
        error = {"code": code, "err_code": err_code, "description": text}
        await self.hears({"error": error, "stream": self.stream.name, "seq": 0})

    async def hears_no_more(self) -> None:
        await self.client.flush()
        try:
            found = await self.answers.next_msg(timeout=0.2)
        except NothingCameError:
            return
        raise AssertionError(found.data)


async def _publisher(b: Bench, **config: Any) -> Publisher:
    stream = await b.stream(**{"allow_batched": True, **config})
    client = await b.connect()
    inbox = client.new_inbox()
    answers = await client.subscribe(f"{inbox}.>")
    await client.flush()
    return Publisher(stream, client, inbox, answers)


def _ack(seq: int, msgs: int = 2) -> dict[str, Any]:
    return {"type": "ack", "seq": seq, "msgs": msgs}


def _done(p: Publisher, seq: int, count: int) -> dict[str, Any]:
    return {"stream": p.stream.name, "seq": seq, "count": count}


@rows("acks", "a batch is acknowledged when it begins, every so many messages, and at its end")
async def acks(b: Bench) -> None:
    p = await _publisher(b)
    await p.send(1, START)
    for number in range(2, 6):
        await p.send(number, APPEND)
    await p.send(6, COMMIT)
    await p.hears(_ack(0), _ack(2), _ack(4), _done(p, 6, 6))
    await p.hears_no_more()


@rows("one", "one message may be a batch")
async def one(b: Bench) -> None:
    p = await _publisher(b)
    await p.send(1, COMMIT)
    await p.hears(_done(p, 1, 1))


@rows("end", "an end commits and is not stored")
async def end(b: Bench) -> None:
    p = await _publisher(b)
    await p.send(1, START, flow=10)
    await p.send(2, APPEND, flow=10)
    await p.send(3, END, flow=10)
    await p.hears(_ack(0, 10), _done(p, 2, 2))
    assert (await p.stream.state())["messages"] == 2


@rows("flow", "the flow is 10 unless the client says so, and 500 at most")
async def flow(b: Bench) -> None:
    for asked, given in ((0, 10), ("x", 10), (25, 25), (1000, 500)):
        p = await _publisher(b)
        await p.send(1, START, flow=asked)
        await p.hears(_ack(0, given))


@rows("gap.ok", "a gap is told, and the batch goes on")
async def gap_ok(b: Bench) -> None:
    p = await _publisher(b)
    await p.send(1, START, flow=10)
    await p.hears(_ack(0, 10))
    await p.send(4, APPEND, flow=10)
    await p.hears({"type": "gap", "last_seq": 2, "seq": 4})
    await p.send(5, COMMIT, flow=10)
    await p.hears(_done(p, 3, 5))


@rows("gap.fail", "a gap ends a batch that must have none, with what was stored")
async def gap_fail(b: Bench) -> None:
    p = await _publisher(b)
    for number, kind in ((1, START), (2, APPEND), (5, APPEND)):
        await p.send(number, kind, "fail", 10)
    await p.hears(_ack(0, 10), {"type": "gap", "last_seq": 3, "seq": 5}, _done(p, 2, 2))
    await p.send(6, COMMIT, "fail", 10)
    await p.refused(400, 10208, "batch publish ID unknown")
    assert (await p.stream.state())["messages"] == 2


@rows("repeat", "a sequence that comes again ends the batch")
async def repeat(b: Bench) -> None:
    for mode in ("ok", "fail"):
        p = await _publisher(b)
        for number, kind in ((1, START), (2, APPEND), (2, APPEND)):
            await p.send(number, kind, mode, 10)
        await p.hears(_ack(0, 10), {"type": "gap", "last_seq": 3, "seq": 2}, _done(p, 2, 2))


@rows("error.ok", "what is refused is told, and the batch goes on")
async def error_ok(b: Bench) -> None:
    p = await _publisher(b)
    await p.send(1, START, flow=10)
    await p.send(2, APPEND, flow=10, Expected_Last_Sequence="9")
    await p.send(3, COMMIT, flow=10)
    wrong = {"code": 400, "err_code": 10071, "description": "wrong last sequence: 1"}
    await p.hears(_ack(0, 10), {"type": "err", "seq": 2, "error": wrong}, _done(p, 2, 3))


@rows("error.fail", "what is refused ends a batch that must not go on")
async def error_fail(b: Bench) -> None:
    p = await _publisher(b)
    for number, kind in ((1, START), (2, APPEND), (3, APPEND)):
        more = {"Expected_Last_Sequence": "9"} if number == 2 else {}
        await p.send(number, kind, "fail", 10, **more)
    wrong = {"code": 400, "err_code": 10071, "description": "wrong last sequence: 1"}
    await p.hears(_ack(0, 10), {"type": "err", "seq": 2, "error": wrong}, _done(p, 1, 1))
    await p.refused(400, 10208, "batch publish ID unknown")
    assert (await p.stream.state())["messages"] == 1


@rows("duplicate", "a message that is known by its id counts for the batch")
async def duplicate(b: Bench) -> None:
    p = await _publisher(b)
    await p.send(1, START, flow=10, Msg_Id="m")
    await p.send(2, APPEND, flow=10, Msg_Id="m")
    await p.send(3, COMMIT, flow=10)
    await p.hears(_ack(0, 10), _done(p, 2, 3))


@rows("ping", "a ping is answered with what was acknowledged last")
async def ping(b: Bench) -> None:
    p = await _publisher(b)
    await p.send(1, START)
    await p.send(2, APPEND)
    await p.hears(_ack(0), _ack(2))
    await p.send(2, PING)
    await p.hears(_ack(2))
    await p.send(3, COMMIT)
    await p.hears(_done(p, 3, 3))


@rows("unknown", "a batch that nobody began is unknown")
async def unknown(b: Bench) -> None:
    p = await _publisher(b)
    for number, kind in ((2, APPEND), (5, COMMIT), (5, END), (1, PING)):
        await p.send(number, kind)
        await p.refused(400, 10208, "batch publish ID unknown")


@rows("pattern", "another reply subject is refused")
async def pattern(b: Bench) -> None:
    p = await _publisher(b)
    for number, kind, mode in (
        (2, START, "ok"),
        (1, APPEND, "ok"),
        (1, END, "ok"),
        (0, START, "ok"),
        ("x", 0, "ok"),
        (1, 7, "ok"),
        (1, START, "maybe"),
    ):
        await p.send(number, kind, mode)
        await p.refused(400, 10206, "batch publish pattern is invalid")


@rows("disabled", "a batch has to be allowed")
async def disabled(b: Bench) -> None:
    p = await _publisher(b, allow_batched=False)
    for kind in (START, COMMIT):
        await p.send(1, kind)
        await p.refused(400, 10205, "batch publish is disabled")


@rows("id", "a batch's id has 64 characters at most")
async def batch_id(b: Bench) -> None:
    p = await _publisher(b)
    p.inbox += "." + "x" * 65
    await p.send(1, START)
    await p.refused(400, 10207, "batch publish ID is invalid")


@rows("many", "a batch has no end of its own")
async def many(b: Bench) -> None:
    p = await _publisher(b)
    await p.send(1, START, flow=500)
    for number in range(2, 2500):
        await p.send(number, APPEND, flow=500)
    await p.send(2500, COMMIT, flow=500)
    await p.hears(*(_ack(seq, 500) for seq in (0, 500, 1000, 1500, 2000)), _done(p, 2500, 2500))


@rows("config", "an update may allow fast batches and stop that")
async def config(b: Bench) -> None:
    stream = await b.stream()
    assert "allow_batched" not in stream.config
    assert (await stream.update(allow_batched=True))["config"]["allow_batched"] is True
    assert "allow_batched" not in (await stream.update(allow_batched=False))["config"]


@rows("persist.memory", "async persist mode is for files")
async def persist_memory(b: Bench) -> None:
    text = "async persist mode is only supported on file storage"
    await b.stream_refused(
        code=500, err_code=10052, text=text, persist_mode="async", storage="memory", num_replicas=1
    )


@rows("persist.atomic", "async persist mode does not go with atomic batches")
async def persist_atomic(b: Bench) -> None:
    text = "async persist mode is not supported with atomic batch publish"
    await b.stream_refused(
        code=500, err_code=10052, text=text, persist_mode="async", allow_atomic=True, num_replicas=1
    )


@rows("persist.update", "no update changes the persist mode")
async def persist_update(b: Bench) -> None:
    text = "stream configuration update can not change persist mode"
    stream = await b.stream(persist_mode="async", num_replicas=1)
    assert stream.config["persist_mode"] == "async"
    await stream.update_refused(code=500, err_code=10052, text=text, persist_mode="default")
    other = await b.stream(num_replicas=1, persist_mode="default")
    assert "persist_mode" not in other.config
    await other.update_refused(code=500, err_code=10052, text=text, persist_mode="async")


@rows("mirrors", "a mirror takes no batches, counters, schedules or delete markers of its own")
async def mirrors(b: Bench) -> None:
    stream = await b.stream()
    for field, code, err_code, text in (
        ("allow_msg_counter", 400, 10173, "stream mirrors can not also calculate counters"),
        ("allow_msg_schedules", 400, 10186, "stream mirrors can not also schedule messages"),
        ("allow_atomic", 400, 10198, "stream mirrors can not also use atomic publishing"),
        ("allow_batched", 400, 10209, "stream mirrors can not also use batch publishing"),
        ("subject_delete_marker_ttl", 500, 10052, "subject delete markers forbidden on mirrors"),
    ):
        value: Any = 2_000_000_000 if field.endswith("ttl") else True
        fields: dict[str, Any] = {field: value, "mirror": {"name": stream.name}}
        await b.stream_refused(code=code, err_code=err_code, text=text, **fields)
