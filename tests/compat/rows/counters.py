"""Message counters."""

from __future__ import annotations

import json
from typing import Any

from tests.compat.bench import Bench, StreamOfRow
from tests.compat.table import Group

rows = Group("counters")


async def _add(stream: StreamOfRow, by: str, suffix: str = "a", payload: bytes = b"", **headers: Any) -> Any:
    """The sum; or err_code and text of the refusal."""
    more = {f"Nats-{k.replace('_', '-')}": v for k, v in headers.items()}
    answer = await stream.publish(suffix, payload, {"Nats-Incr": by, **more})
    if "error" in answer:
        return answer["error"]["err_code"], answer["error"]["description"]
    return answer["val"]


async def _refused(b: Bench, text: str, **config: Any) -> None:
    await b.stream_refused(code=500, err_code=10052, text=text, allow_msg_counter=True, **config)


@rows("adds", "increments add up, and each is answered with its sum")
async def adds(b: Bench) -> None:
    stream = await b.stream(allow_msg_counter=True)
    assert stream.config["allow_msg_counter"] is True
    found = [
        await _add(stream, by) for by in ("1", "+5", "-10", "0", "123456789012345678901234567890", "007")
    ]
    assert found == ["1", "6", "-4", "-4", "123456789012345678901234567886", "123456789012345678901234567893"]
    assert await _add(stream, "2", "b") == "2"


@rows("answer", "the acknowledgement has the sum as a text behind the sequence")
async def answer(b: Bench) -> None:
    stream = await b.stream(allow_msg_counter=True)
    found = await stream.publish("a", b"", {"Nats-Incr": "3"})
    assert found == {"stream": stream.name, "seq": 1, "val": "3"}


@rows("stored", "what is stored is the sum, under the increment's own headers")
async def stored(b: Bench) -> None:
    stream = await b.stream(allow_msg_counter=True)
    await _add(stream, "1")
    await _add(stream, "+5", Foo="bar")
    found = await stream.nc.jetstream().get_msg(stream.name, 2)
    assert found.data == b'{"val":"6"}'
    assert found.headers == {"Nats-Incr": "+5", "Nats-Foo": "bar"}


@rows("flight", "increments in flight add up in their order")
async def flight(b: Bench) -> None:
    stream = await b.stream(allow_msg_counter=True)
    client = await b.connect()
    inbox = await client.subscribe(client.new_inbox())
    for _ in range(50):
        await client.publish(f"{stream.name}.a", b"", inbox.subject, headers={"Nats-Incr": "2"})
    found = [json.loads((await inbox.next_msg(timeout=5)).data)["val"] for _ in range(50)]
    assert sorted(map(int, found)) == list(range(2, 102, 2))


@rows("invalid", "an increment is a whole number")
async def invalid(b: Bench) -> None:
    stream = await b.stream(allow_msg_counter=True)
    for by in ("1.5", "abc", "--1", "0x10", "1_0"):
        assert await _add(stream, by) == (10171, "message counter increment is invalid"), by


@rows("missing", "a message without an increment is refused")
async def missing(b: Bench) -> None:
    stream = await b.stream(allow_msg_counter=True)
    for headers in (None, {"Foo": "bar"}, {"Nats-Incr": ""}):
        found = await stream.publish("a", b"", headers)
        assert found["error"]["err_code"] == 10169
        assert found["error"]["description"] == "message counter increment is missing"


@rows("payload", "a message with a payload is refused")
async def payload(b: Bench) -> None:
    stream = await b.stream(allow_msg_counter=True)
    assert await _add(stream, "1", payload=b"x") == (10170, "message counter has payload")


@rows("off", "an increment on a stream without counters is refused")
async def off(b: Bench) -> None:
    stream = await b.stream()
    assert await _add(stream, "1") == (10168, "message counters is disabled")
    assert await _add(stream, "x") == (10171, "message counter increment is invalid")


@rows("not-with", "expectations and roll-ups do not go with an increment")
async def not_with(b: Bench) -> None:
    stream = await b.stream(allow_msg_counter=True, allow_rollup_hdrs=True)
    for name, value in (
        ("Expected_Stream", stream.name),
        ("Expected_Last_Sequence", "0"),
        ("Expected_Last_Subject_Sequence", "0"),
        ("Expected_Last_Subject_Sequence_Subject", "a"),
        ("Expected_Last_Msg_Id", "a"),
        ("Rollup", "sub"),
    ):
        found = await _add(stream, "1", **dict[str, Any]({name: value}))
        assert found == (10171, "message counter increment is invalid"), name


@rows("msg-id", "a repeated increment counts once")
async def msg_id(b: Bench) -> None:
    stream = await b.stream(allow_msg_counter=True)
    assert await _add(stream, "1", Msg_Id="x") == "1"
    found = await stream.publish("a", b"", {"Nats-Incr": "1", "Nats-Msg-Id": "x"})
    assert found == {"stream": stream.name, "seq": 1, "duplicate": True}
    assert await _add(stream, "1") == "2"


@rows("sources", "what a counter says of its sources is kept")
async def sources(b: Bench) -> None:
    stream = await b.stream(allow_msg_counter=True)
    await _add(stream, "1", Counter_Sources='{"X":{"y":"3"}}')
    assert await _add(stream, "1") == "2"
    found = await stream.nc.jetstream().get_msg(stream.name, 2)
    assert (found.headers or {})["Nats-Counter-Sources"] == '{"X":{"y":"3"}}'


@rows("purged", "a purged counter begins anew")
async def purged(b: Bench) -> None:
    stream = await b.stream(allow_msg_counter=True)
    await _add(stream, "5")
    await b.ok(f"STREAM.PURGE.{stream.name}")
    assert await _add(stream, "2") == "2"


@rows("last-kept", "one message per subject is enough to count on")
async def last_kept(b: Bench) -> None:
    stream = await b.stream(allow_msg_counter=True, max_msgs_per_subject=1)
    assert [await _add(stream, "1") for _ in range(3)] == ["1", "2", "3"]
    assert (await stream.state())["messages"] == 1


@rows("size", "the sum is held against max_msg_size too")
async def size(b: Bench) -> None:
    stream = await b.stream(allow_msg_counter=True, max_msg_size=35)
    assert await _add(stream, "1") == (10054, "message size exceeds maximum allowed")


@rows("config.discard-new", "counters do not go with discard new")
async def config_discard(b: Bench) -> None:
    await _refused(b, "counter stream cannot use discard new", discard="new", max_msgs=5)


@rows("config.retention", "counters need limits retention")
async def config_retention(b: Bench) -> None:
    for retention in ("interest", "workqueue"):
        await _refused(b, "counter stream can only use limits retention", retention=retention)


@rows("config.ttl", "counters do not go with TTLs")
async def config_ttl(b: Bench) -> None:
    await _refused(b, "counter stream cannot use message TTLs", allow_msg_ttl=True)


@rows("config.update", "no update turns counters on or off")
async def config_update(b: Bench) -> None:
    text = "stream configuration update can not change message counter setting"
    stream = await b.stream(allow_msg_counter=True)
    await stream.update_refused(code=500, err_code=10052, text=text, allow_msg_counter=False)
    other = await b.stream()
    await other.update_refused(code=500, err_code=10052, text=text, allow_msg_counter=True)
