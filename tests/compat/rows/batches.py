"""Atomic batches."""

from __future__ import annotations

import json
from typing import Any

from tests.compat.bench import Bench, StreamOfRow, eventually
from tests.compat.table import CLUSTERS, Group

rows = Group("batches")
INCOMPLETE = (10176, "atomic publish batch is incomplete")


async def _part(
    stream: StreamOfRow,
    batch: str,
    number: object,
    commit: str | None = None,
    suffix: str = "a",
    payload: bytes = b"x",
    **headers: Any,
) -> Any:
    """ "" when it is held; (sequence, count) when it committed its batch; err_code and text of a refusal."""
    sent = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
    if commit is not None:
        sent["Nats-Batch-Commit"] = commit
    sent |= {f"Nats-{k.replace('_', '-')}": v for k, v in headers.items()}
    answer = await stream.nc.request(f"{stream.name}.{suffix}", payload, timeout=5, headers=sent)
    if not answer.data:
        return ""
    found = json.loads(answer.data)
    if "error" in found:
        return found["error"]["err_code"], found["error"]["description"]
    assert found["batch"] == batch
    return found["seq"], found["count"]


async def _atomic(b: Bench, **config: Any) -> StreamOfRow:
    return await b.stream(allow_atomic=True, **config)


@rows("commit", "a batch is stored when its last message commits it, and not before")
async def commit(b: Bench) -> None:
    stream = await _atomic(b)
    assert await _part(stream, "b1", 1) == ""
    assert await _part(stream, "b1", 2, suffix="b") == ""
    assert (await stream.state())["messages"] == 0
    assert await _part(stream, "b1", 3, "1", suffix="c") == (3, 3)
    state = await stream.state()
    assert (state["messages"], state["last_seq"]) == (3, 3)


@rows("answer", "the acknowledgement names the batch and its count")
async def answer(b: Bench) -> None:
    stream = await _atomic(b)
    found = await stream.publish(
        headers={"Nats-Batch-Id": "one", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"}
    )
    assert found == {"stream": stream.name, "seq": 1, "batch": "one", "count": 1}


@rows("stored", "messages keep their headers")
async def stored(b: Bench) -> None:
    stream = await _atomic(b)
    await _part(stream, "b1", 1)
    await _part(stream, "b1", 2, "1", Foo="bar")
    found = await stream.nc.jetstream().get_msg(stream.name, 2)
    assert found.headers == {
        "Nats-Batch-Id": "b1",
        "Nats-Batch-Sequence": "2",
        "Nats-Batch-Commit": "1",
        "Nats-Foo": "bar",
    }


@rows("silent", "messages of a batch need no reply subject")
async def silent(b: Bench) -> None:
    stream = await _atomic(b)
    client = await b.connect()
    for number in range(1, 100):
        await client.publish(
            f"{stream.name}.a", b"x", headers={"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(number)}
        )
    headers = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "100", "Nats-Batch-Commit": "1"}
    found = await client.request(f"{stream.name}.a", b"x", headers=headers, timeout=5)
    assert json.loads(found.data)["count"] == 100
    assert client.last_error is None


@rows("together", "no message of another publisher comes between a batch's")
async def together(b: Bench) -> None:
    stream = await _atomic(b)
    await _part(stream, "b1", 1)
    await stream.fill("z")
    assert await _part(stream, "b1", 2, "1") == (3, 2)


@rows("several", "several batches may be under way at once")
async def several(b: Bench) -> None:
    stream = await _atomic(b)
    await _part(stream, "b1", 1)
    await _part(stream, "b2", 1)
    assert await _part(stream, "b2", 2, "1") == (2, 2)
    assert await _part(stream, "b1", 2, "1") == (4, 2)


@rows("eob", "an end marker commits and is not stored")
async def eob(b: Bench) -> None:
    stream = await _atomic(b)
    await _part(stream, "b1", 1)
    assert await _part(stream, "b1", 2, "eob") == (1, 1)
    assert (await stream.state())["messages"] == 1


@rows("eob.empty", "an end marker alone is incomplete")
async def eob_empty(b: Bench) -> None:
    stream = await _atomic(b)
    assert await _part(stream, "b1", 1, "eob") == INCOMPLETE


@rows("commit.word", "another word for the commit is refused, and the batch dropped")
async def commit_word(b: Bench) -> None:
    stream = await _atomic(b)
    for word in ("0", "yes", ""):
        await _part(stream, "b1", 1)
        assert await _part(stream, "b1", 2, word) == (10200, "atomic publish batch commit is invalid"), word
        assert await _part(stream, "b1", 2, "1") == INCOMPLETE


@rows("gap", "a gap in the sequence drops the batch")
async def gap(b: Bench) -> None:
    stream = await _atomic(b)
    await _part(stream, "b1", 1)
    assert await _part(stream, "b1", 3) == INCOMPLETE
    assert await _part(stream, "b1", 2) == INCOMPLETE
    assert (await stream.state())["messages"] == 0


@rows("start", "a batch begins with 1")
async def start(b: Bench) -> None:
    stream = await _atomic(b)
    assert await _part(stream, "b1", 2) == INCOMPLETE
    assert await _part(stream, "b1", 0) == INCOMPLETE


@rows("repeat", "a repeated number drops the batch")
async def repeat(b: Bench) -> None:
    stream = await _atomic(b)
    await _part(stream, "b1", 1)
    assert await _part(stream, "b1", 1) == INCOMPLETE
    assert await _part(stream, "b1", 2, "1") == INCOMPLETE


@rows("sequence", "the sequence has to be a number")
async def sequence(b: Bench) -> None:
    stream = await _atomic(b)
    for number in ("x", "-1", ""):
        assert await _part(stream, "b1", number) == (10175, "atomic publish sequence is missing"), number


@rows("id", "a batch's id has 64 characters at most; an empty one is none")
async def batch_id(b: Bench) -> None:
    stream = await _atomic(b)
    assert await _part(stream, "x" * 64, 1, "1") == (1, 1)
    assert await _part(stream, "x" * 65, 1, "1") == (10179, "atomic publish batch ID is invalid")
    found = await stream.publish(headers={"Nats-Batch-Id": "", "Nats-Batch-Sequence": "1"})
    assert found == {"stream": stream.name, "seq": 2}


@rows("disabled", "a batch on a stream that does not allow it is refused")
async def disabled(b: Bench) -> None:
    stream = await b.stream()
    for commit_word in (None, "1"):
        assert await _part(stream, "b1", 1, commit_word) == (10174, "atomic publish is disabled")


@rows("update", "an update may allow batches, and stop that; what is under way is dropped then")
async def update(b: Bench) -> None:
    stream = await b.stream()
    assert "allow_atomic" not in stream.config
    assert (await stream.update(allow_atomic=True))["config"]["allow_atomic"] is True
    await _part(stream, "b1", 1)
    await stream.update(allow_atomic=False)
    assert await _part(stream, "b1", 2, "1") == (10174, "atomic publish is disabled")
    await stream.update(allow_atomic=True)
    assert await _part(stream, "b1", 2, "1") == INCOMPLETE


@rows("many", "a thousand messages are a batch")
async def many(b: Bench) -> None:
    stream = await _atomic(b)
    for number in range(1, 1000):
        await stream.nc.publish(
            f"{stream.name}.a", b"", headers={"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(number)}
        )
    assert await _part(stream, "b", 1000, "1") == (1000, 1000)


@rows("too-many", "one more is too large")
async def too_many(b: Bench) -> None:
    stream = await _atomic(b)
    assert await _part(stream, "b", 1001) == (10199, "atomic publish batch is too large: 1000")


@rows("inflight", "fifty batches may be under way per stream")
async def inflight(b: Bench) -> None:
    stream = await _atomic(b)
    for number in range(50):
        assert await _part(stream, f"b{number}", 1) == ""
    assert await _part(stream, "b50", 1) == (10210, "atomic publish too many inflight")
    assert await _part(stream, "b7", 2, "1") == (2, 2)
    assert await _part(stream, "b50", 1) == ""


@rows("judged", "what is wrong with a message of a batch is told on commit, and nothing is stored")
async def judged(b: Bench) -> None:
    stream = await _atomic(b, allow_msg_ttl=True)
    cases: tuple[tuple[dict[str, Any], Any], ...] = (
        ({"Expected_Stream": "X"}, (10060, "expected stream does not match")),
        ({"TTL": "bad"}, (10165, "invalid per-message TTL")),
        (
            {"Expected_Last_Msg_Id": "m"},
            (10177, "atomic publish unsupported header used: Nats-Expected-Last-Msg-Id"),
        ),
        ({"Expected_Last_Sequence": "7"}, (10071, "wrong last sequence: 0")),
        ({"Expected_Last_Subject_Sequence": "7"}, (10071, "wrong last sequence: 0")),
    )
    for headers, told in cases:
        assert await _part(stream, "b1", 1, **headers) == ""
        assert await _part(stream, "b1", 2, "1") == told
    assert (await stream.state())["last_seq"] == 0


@rows("expected-last", "only the first message may expect a last sequence of the stream")
async def expected_last(b: Bench) -> None:
    stream = await _atomic(b)
    await stream.fill("a")
    await _part(stream, "b1", 1, Expected_Last_Sequence="1")
    assert await _part(stream, "b1", 2, "1") == (3, 2)
    await _part(stream, "b2", 1)
    assert await _part(stream, "b2", 2, "1", Expected_Last_Sequence="4") == (10164, "wrong last sequence")
    await _part(stream, "b3", 1)
    assert await _part(stream, "b3", 2, "1", Expected_Last_Sequence="3") == (10071, "wrong last sequence: 4")


@rows("expected-subject", "a subject's last sequence may be expected unless the batch wrote to it before")
async def expected_subject(b: Bench) -> None:
    stream = await _atomic(b)
    await _part(stream, "b1", 1, suffix="a", Expected_Last_Subject_Sequence="0")
    assert await _part(stream, "b1", 2, "1", suffix="b", Expected_Last_Subject_Sequence="0") == (2, 2)
    await _part(stream, "b2", 1, suffix="k")
    assert await _part(stream, "b2", 2, "1", suffix="k", Expected_Last_Subject_Sequence="0") == (
        10164,
        "wrong last sequence",
    )


@rows("msg-id", "message ids count for later messages, and none may be known or twice in the batch")
async def msg_id(b: Bench) -> None:
    stream = await _atomic(b)
    twice = (10201, "atomic publish batch contains duplicate message id")
    await _part(stream, "b1", 1, Msg_Id="m")
    assert await _part(stream, "b1", 2, "1") == (2, 2)
    assert (await stream.publish(headers={"Nats-Msg-Id": "m"})).get("duplicate") is True
    await _part(stream, "b2", 1, Msg_Id="m")
    assert await _part(stream, "b2", 2, "1") == twice
    await _part(stream, "b3", 1, Msg_Id="n")
    assert await _part(stream, "b3", 2, "1", Msg_Id="n") == twice
    assert await stream.publish(headers={"Nats-Msg-Id": "n"}) == {"stream": stream.name, "seq": 3}


@rows("rollup", "a roll-up has to be the first message of its subject, or of the batch")
async def rollup(b: Bench) -> None:
    stream = await _atomic(b, allow_rollup_hdrs=True)
    await stream.fill("a", "a", "b")
    await _part(stream, "b1", 1, Rollup="sub")
    assert await _part(stream, "b1", 2, "1") == (5, 2)
    assert (await stream.state())["messages"] == 3
    await _part(stream, "b2", 1)
    assert await _part(stream, "b2", 2, "1", Rollup="sub") == (10111, "batch rollup sub invalid")
    await _part(stream, "b3", 1)
    assert await _part(stream, "b3", 2, "1", suffix="z", Rollup="all") == (10111, "batch rollup all invalid")


@rows("full", "a batch that a full stream has no room for is refused as a whole")
async def full(b: Bench) -> None:
    stream = await _atomic(b, discard="new", max_msgs=3)
    await stream.fill("a", "a")
    await _part(stream, "b1", 1)
    assert await _part(stream, "b1", 2, "1") == (10077, "maximum messages exceeded")
    assert await _part(stream, "b2", 1, "1") == (3, 1)


@rows("limits", "old messages make room for a batch as a whole")
async def limits(b: Bench) -> None:
    stream = await _atomic(b, max_msgs=2)
    for number in (1, 2, 3):
        await _part(stream, "b1", number)
    assert await _part(stream, "b1", 4, "1") == (4, 4)
    state = await stream.state()
    assert (state["messages"], state["first_seq"]) == (2, 3)


@rows("consumer", "a consumer gets a batch's messages in order")
async def consumer(b: Bench) -> None:
    stream = await _atomic(b)
    consumer_ = await stream.consumer()
    for number in (1, 2):
        await _part(stream, "b1", number, payload=b"%d" % number)
    await _part(stream, "b1", 3, "1", payload=b"3")
    assert [found.data for found in await consumer_.fetch(3)] == [b"1", b"2", b"3"]


@rows("counters", "batches of increments add up")
async def counters(b: Bench) -> None:
    stream = await _atomic(b, allow_msg_counter=True)
    await _part(stream, "b1", 1, payload=b"", Incr="1")
    await _part(stream, "b1", 2, payload=b"", Incr="2")
    assert await _part(stream, "b1", 3, "1", payload=b"", Incr="3") == (3, 3)
    assert (await stream.nc.jetstream().get_msg(stream.name, 3)).data == b'{"val":"6"}'
    await _part(stream, "b2", 1, payload=b"", Incr="1")
    assert await _part(stream, "b2", 2, "1", payload=b"") == (10169, "message counter increment is missing")


@rows(
    "leader-gone",
    "an open batch goes with its leader, and its commit is refused, not lost in silence",
    on=CLUSTERS,
)
async def leader_gone(b: Bench) -> None:
    stream = await _atomic(b)
    assert await _part(stream, "b1", 1) == ""
    before = (await stream.info())["cluster"]["leader"]
    await b.ok(f"STREAM.LEADER.STEPDOWN.{stream.name}")

    async def another_leads() -> bool:
        return (await stream.info())["cluster"].get("leader") not in (None, "", before)

    await eventually(another_leads, "another leader", 10)
    assert await _part(stream, "b1", 2, "1") == INCOMPLETE
    assert (await stream.state())["messages"] == 0
    assert await _part(stream, "b1", 1, "1") == (1, 1)
