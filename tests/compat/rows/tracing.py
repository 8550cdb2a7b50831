"""Message tracing: which ways a message takes from the server that its publisher is connected to."""

from __future__ import annotations

import json
from typing import Any

from tests.compat.bench import Bench
from tests.compat.table import SINGLES, Group

rows = Group("tracing")
DESTINATION, ALONE = "Nats-Trace-Dest", "Nats-Trace-Only"


async def _events(b: Bench, subject: str, reply: str = "", **more: str) -> dict[str, Any]:
    """What is told of a message to `subject`."""
    told = await b.subscribe(b.subject())
    header = {DESTINATION: told.subject, **{name.replace("_", "-"): value for name, value in more.items()}}
    await b.nc.publish(subject, b"hello", reply=reply, headers=header)
    found: dict[str, Any] = json.loads((await told.next_msg(timeout=5)).data)
    return found


@rows("ways", "who sends a message with Nats-Trace-Dest hears there who gets it", on=SINGLES)
async def ways(b: Bench) -> None:
    subject = b.subject()
    plain = await b.subscribe(subject, nc=b.nc)
    grouped = await b.subscribe(subject, "q", nc=b.nc)
    found = await _events(b, subject)
    assert found["server"]["id"] == b.nc._server_info["server_id"]
    first, *others = found["events"]
    assert (first["type"], first["kind"], first["subj"]) == ("in", 0, subject)
    assert sorted((each["type"], each["kind"], each["sub"], each.get("queue", "")) for each in others) == [
        ("eg", 0, subject, ""),
        ("eg", 0, subject, "q"),
    ]
    assert {each["cid"] for each in found["events"]} == {b.nc.client_id}
    for subscription in (plain, grouped):
        assert (await subscription.next_msg(timeout=5)).data == b"hello"


@rows("request", "what is told of a traced message begins with its headers and its size", on=SINGLES)
async def request(b: Bench) -> None:
    found = await _events(b, b.subject(), Other="a b")
    sent = found["request"]["header"]
    assert set(sent) == {DESTINATION, "Other"}
    assert sent["Other"] == ["a b"]
    assert found["request"]["msgsize"] == len(
        f"NATS/1.0\r\n{DESTINATION}: {sent[DESTINATION][0]}\r\nOther: a b\r\n\r\nhello"
    )


@rows("stream", "a traced message is stored as any other, and the stream that captures it is named")
async def stream(b: Bench) -> None:
    found = await b.stream()
    events = (await _events(b, f"{found.name}.a"))["events"]
    assert [(each["stream"], each["subject"]) for each in events if each["type"] == "js"] == [
        (found.name, f"{found.name}.a")
    ]
    await found.publish("a")
    assert (await found.state())["messages"] == 2


@rows("alone", "a message with Nats-Trace-Only is told of, and neither delivered nor stored")
async def alone(b: Bench) -> None:
    found = await b.stream()
    listener = await b.subscribe(f"{found.name}.>")
    for yes in ("true", "1", "ON"):
        events = (await _events(b, f"{found.name}.a", Nats_Trace_Only=yes))["events"]
        assert [each["type"] for each in events if each["type"] != "eg"] == ["in", "js"]
    assert await found.publish("a", b"real") == {"stream": found.name, "seq": 1}
    assert (await listener.next_msg(timeout=5)).data == b"real"


@rows(
    "alone.others", "any other value of Nats-Trace-Only is none, and without a destination nothing is traced"
)
async def alone_others(b: Bench) -> None:
    subject = b.subject()
    listener = await b.subscribe(subject)
    await _events(b, subject, Nats_Trace_Only="no")
    assert (await listener.next_msg(timeout=5)).data == b"hello"
    await b.nc.publish(subject, b"untraced", headers={ALONE: "true"})
    assert (await listener.next_msg(timeout=5)).data == b"untraced"


@rows(
    "alone.nobody",
    "who asks for an answer to a traced message that nobody wants is told that nobody is there",
)
async def alone_nobody(b: Bench) -> None:
    answers = await b.subscribe(b.subject(), nc=b.nc)
    await _events(b, b.subject(), answers.subject, Nats_Trace_Only="true")
    answer = await answers.next_msg(timeout=5)
    assert answer.headers is not None
    assert answer.headers["Status"] == "503"


@rows(
    "destination.invalid",
    "a destination with wildcards hears nothing, and the message goes nowhere if it was for that alone",
)
async def destination_invalid(b: Bench) -> None:
    subject = b.subject()
    listener = await b.subscribe(subject)
    await b.nc.publish(subject, b"probe", headers={DESTINATION: "a.*", ALONE: "true"})
    await b.nc.publish(subject, b"real", headers={DESTINATION: "a.*"})
    assert (await listener.next_msg(timeout=5)).data == b"real"
