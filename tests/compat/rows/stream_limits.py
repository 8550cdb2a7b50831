"""Limits of streams at work: what goes, and what is refused."""

from __future__ import annotations

from tests.compat.bench import Bench, eventually
from tests.compat.table import Group

rows = Group("streams")


@rows("limits.max-msgs", "beyond max_msgs the oldest goes")
async def max_msgs(b: Bench) -> None:
    stream = await b.stream(max_msgs=2)
    await stream.fill("a", "b", "c")
    state = await stream.state()
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (2, 2, 3)


@rows("limits.max-msgs.new", "with discard new a full stream refuses")
async def max_msgs_new(b: Bench) -> None:
    stream = await b.stream(max_msgs=2, discard="new")
    await stream.fill("a", "b")
    answer = await stream.publish("c")
    assert answer["error"] == {"code": 503, "err_code": 10077, "description": "maximum messages exceeded"}
    assert (await stream.state())["messages"] == 2


@rows("limits.max-bytes", "beyond max_bytes the oldest go")
async def max_bytes(b: Bench) -> None:
    stream = await b.stream(max_bytes=1000)
    for _ in range(4):
        await stream.publish("a", b"x" * 400)
    state = await stream.state()
    assert (state["messages"], state["last_seq"]) == (2, 4)
    assert 800 < state["bytes"] <= 1000


@rows("limits.max-bytes.new", "with discard new too many bytes are refused")
async def max_bytes_new(b: Bench) -> None:
    stream = await b.stream(max_bytes=1000, discard="new")
    for _ in range(2):
        await stream.publish("a", b"x" * 400)
    answer = await stream.publish("a", b"x" * 400)
    assert answer["error"] == {"code": 503, "err_code": 10077, "description": "maximum bytes exceeded"}


@rows("limits.max-msg-size", "a message over max_msg_size is refused, one of that size is not")
async def max_msg_size(b: Bench) -> None:
    stream = await b.stream(max_msg_size=10)
    assert (await stream.publish("a", b"x" * 10))["seq"] == 1
    answer = await stream.publish("a", b"x" * 11)
    text = "message size exceeds maximum allowed"
    assert answer["error"] == {"code": 400, "err_code": 10054, "description": text}


@rows("limits.max-msg-size.header", "headers count for max_msg_size")
async def max_msg_size_header(b: Bench) -> None:
    stream = await b.stream(max_msg_size=10)
    assert (await stream.publish("a", b"x", {"a": "b"}))["error"]["err_code"] == 10054


@rows("limits.per-subject", "of each subject only the newest max_msgs_per_subject stay")
async def per_subject(b: Bench) -> None:
    stream = await b.stream(max_msgs_per_subject=2)
    await stream.fill("a", "a", "b", "a")
    state = (await stream.info({"subjects_filter": ">"}))["state"]
    assert state["subjects"] == {f"{stream.name}.a": 2, f"{stream.name}.b": 1}
    assert state["first_seq"] == 2


@rows("limits.per-subject.new", "with discard_new_per_subject a full subject refuses, others do not")
async def per_subject_new(b: Bench) -> None:
    stream = await b.stream(discard="new", discard_new_per_subject=True, max_msgs_per_subject=1)
    await stream.fill("a", "b")
    answer = await stream.publish("a")
    text = "maximum messages per subject exceeded"
    assert answer["error"] == {"code": 503, "err_code": 10077, "description": text}


@rows("limits.per-subject.discard-new", "discard new alone lets a subject's oldest go for its newest")
async def per_subject_discard_new(b: Bench) -> None:
    stream = await b.stream(discard="new", max_msgs_per_subject=1, max_msgs=2)
    await stream.fill("a", "b", "a")
    assert (await stream.publish("c"))["error"]["description"] == "maximum messages exceeded"


@rows("limits.per-subject.discard-new.bytes", "a subject's newest takes the room of its oldest")
async def per_subject_discard_new_bytes(b: Bench) -> None:
    stream = await b.stream(discard="new", max_msgs_per_subject=1, max_bytes=1000)
    await stream.publish("a", b"x" * 400)
    await stream.publish("b", b"x" * 400)
    for _ in range(3):
        assert "error" not in await stream.publish("a", b"x" * 400)
    assert (await stream.publish("c", b"x" * 400))["error"]["description"] == "maximum bytes exceeded"


@rows("limits.max-age", "messages older than max_age go")
async def max_age(b: Bench) -> None:
    stream = await b.stream(max_age=200_000_000)
    await stream.fill("a", "b")

    async def gone() -> bool:
        return bool((await stream.state())["messages"] == 0)

    await eventually(gone, "both messages to expire")
    state = await stream.state()
    assert (state["first_seq"], state["last_seq"]) == (3, 2)


@rows("limits.max-consumers", "max_consumers bounds a stream's consumers")
async def max_consumers(b: Bench) -> None:
    stream = await b.stream(max_consumers=1)
    await stream.consumer()
    name = b.name("C")
    answer = await b.api(
        f"CONSUMER.DURABLE.CREATE.{stream.name}.{name}",
        {"stream_name": stream.name, "config": {"durable_name": name, "ack_policy": "explicit"}},
    )
    wanted = {"code": 400, "err_code": 10026, "description": "maximum consumers limit reached"}
    assert answer["error"] == wanted


@rows("limits.no-ack", "a stream with no_ack stores and says nothing")
async def no_ack(b: Bench) -> None:
    stream = await b.stream(no_ack=True)
    answers = await b.subscribe()
    await b.nc.publish(f"{stream.name}.a", b"x", reply=answers.subject)

    async def stored() -> bool:
        return bool((await stream.state())["messages"] == 1)

    await eventually(stored, "the message to be stored")
    assert answers.pending_msgs == 0


@rows("limits.first-seq", "the first message has the sequence first_seq")
async def first_seq(b: Bench) -> None:
    stream = await b.stream(first_seq=100)
    state = await stream.state()
    assert (state["first_seq"], state["last_seq"]) == (100, 99)
    assert (await stream.publish("a"))["seq"] == 100
