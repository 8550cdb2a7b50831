"""Direct gets of a stream that are answered by its mirrors."""

from __future__ import annotations

import json
from typing import Any

from nats.aio.msg import Msg
from tests.compat.bench import WAIT_S, Bench, StreamOfRow, eventually, status_of
from tests.compat.table import Group

rows = Group("mirror-reads")

ASKED_MAX = 200
"""Whoever is as near is asked at random; nobody of two is missed for so long."""


async def pair(b: Bench, *suffixes: str, **mirror: Any) -> tuple[StreamOfRow, StreamOfRow]:
    """A stream that allows direct gets, with a message for each suffix, and a mirror that has them."""
    origin = await b.stream(allow_direct=True)
    await origin.fill(*suffixes)
    copy = await b.stream(**{"mirror": {"name": origin.name}, **mirror})
    if not mirror:
        await has(copy, len(suffixes))
    return origin, copy


async def has(stream: StreamOfRow, messages: int) -> None:
    async def there() -> bool:
        return bool((await stream.state())["messages"] == messages)

    await eventually(there, f"{messages} messages in {stream.name}", 10)


async def batch(b: Bench, node: int, stream: str, request: Any, subject: str = "") -> list[Msg]:
    """What comes for a direct get that a client of that node sends, up to the first message or, of a batch, its end."""
    client = await b.connect(node)
    inbox = await b.subscribe(nc=client)
    call = f"$JS.API.DIRECT.GET.{stream}" + (f".{subject}" if subject else "")
    payload = b"" if request is None else json.dumps(request).encode()
    await client.publish(call, payload, reply=inbox.subject)
    is_batch = request is not None and ("batch" in request or "multi_last" in request)
    found = [await inbox.next_msg(timeout=WAIT_S)]
    while is_batch and not status_of(found[-1]):
        found.append(await inbox.next_msg(timeout=WAIT_S))
    await client.close()
    return found


def said(message: Msg) -> tuple[str, str, str, bytes]:
    """(status, subject, sequence, payload) of an answer."""
    headers = message.headers or {}
    return status_of(message), headers.get("Nats-Subject", ""), headers.get("Nats-Sequence", ""), message.data


async def answers_by_stream(
    b: Bench, wanted: set[str], stream: str, request: Any, subject: str = ""
) -> dict[str, Any]:
    """Ask every node until all of `wanted` have answered; what each stream said, which is the same whenever it is asked."""
    found: dict[str, Any] = {}
    for number in range(ASKED_MAX):
        told = await batch(b, number % b.target.size, stream, request, subject)
        name = (told[0].headers or {}).get("Nats-Stream", "")
        answer = [said(message) for message in told]
        assert found.setdefault(name, answer) == answer
        if wanted <= set(found):
            break
    assert set(found) == wanted
    return found


@rows("one", "a message of the origin is read from the origin or from a mirror, whose name the answer has")
async def one(b: Bench) -> None:
    origin, copy = await pair(b, "a", "b")
    found = await answers_by_stream(b, {origin.name, copy.name}, origin.name, {"seq": 2})
    assert found[copy.name] == found[origin.name] == [("", f"{origin.name}.b", "2", b"b")]


@rows(
    "last", "the last message of a subject is read from mirrors as well, by the call's subject or the request"
)
async def last(b: Bench) -> None:
    origin, copy = await pair(b, "a", "b", "a")
    subject = f"{origin.name}.a"
    for request, by in ((None, subject), ({"last_by_subj": subject}, "")):
        found = await answers_by_stream(b, {origin.name, copy.name}, origin.name, request, by)
        assert found[copy.name] == found[origin.name] == [("", subject, "3", b"a")]


@rows("next", "so is the next message of a subject")
async def next_by_subject(b: Bench) -> None:
    origin, copy = await pair(b, "a", "b", "a")
    request = {"seq": 2, "next_by_subj": f"{origin.name}.a"}
    found = await answers_by_stream(b, {origin.name, copy.name}, origin.name, request)
    assert found[copy.name] == found[origin.name] == [("", f"{origin.name}.a", "3", b"a")]


@rows("batch", "a batch comes whole from one of them")
async def a_batch(b: Bench) -> None:
    origin, copy = await pair(b, "a", "b", "a", "b")
    for request in ({"seq": 2, "batch": 2}, {"multi_last": [f"{origin.name}.>"]}):
        found = await answers_by_stream(b, {origin.name, copy.name}, origin.name, request)
        assert found[copy.name] == found[origin.name]
        assert [status for status, *_ in found[copy.name]] == ["", "", "204"]


@rows("missing", "a message that neither has is not found")
async def missing(b: Bench) -> None:
    origin, _ = await pair(b, "a")
    for number in range(12):
        answer = await batch(b, number % b.target.size, origin.name, {"seq": 9})
        assert said(answer[0])[0] == "404"


@rows("deleted-there", "a message that the origin has deleted is there in the mirror, which may answer")
async def deleted_there(b: Bench) -> None:
    origin, copy = await pair(b, "a", "b")
    await b.ok(f"STREAM.MSG.DELETE.{origin.name}", {"seq": 1})
    found: set[str] = set()
    for number in range(ASKED_MAX):
        answer = await batch(b, number % b.target.size, origin.name, {"seq": 1})
        found.add((answer[0].headers or {}).get("Nats-Stream", "") or said(answer[0])[0])
        if copy.name in found:
            break
    assert copy.name in found
    assert found <= {copy.name, "404"}


@rows("origin-forbids", "mirrors go on to answer when the origin does not allow direct gets any more")
async def origin_forbids(b: Bench) -> None:
    origin, copy = await pair(b, "a")
    answer = await origin.update(allow_direct=False)
    assert answer["config"]["allow_direct"] is False
    assert (await copy.info())["config"]["mirror_direct"] is True
    found = await answers_by_stream(b, {copy.name}, origin.name, {"seq": 1})
    assert found[copy.name] == [("", f"{origin.name}.a", "1", b"a")]


@rows("origin-gone", "and when it is deleted")
async def origin_gone(b: Bench) -> None:
    origin, copy = await pair(b, "a")
    await b.ok(f"STREAM.DELETE.{origin.name}")
    found = await answers_by_stream(b, {copy.name}, origin.name, {"seq": 1})
    assert found[copy.name] == [("", f"{origin.name}.a", "1", b"a")]


@rows("promoted", "a mirror that became a stream of its own answers no more for what was its origin")
async def promoted(b: Bench) -> None:
    origin, copy = await pair(b, "a")
    config = (await copy.info())["config"]
    del config["mirror"]
    config |= {"subjects": [f"{copy.name}.>"], "mirror_direct": False}
    await b.ok(f"STREAM.UPDATE.{copy.name}", config)
    for number in range(12):
        answer = await batch(b, number % b.target.size, origin.name, {"seq": 1})
        assert (answer[0].headers or {})["Nats-Stream"] == origin.name


@rows(
    "forbidden",
    "a mirror of a stream without allow_direct answers nothing for it, whatever its own configuration asks for",
)
async def forbidden(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a")
    copy = await b.stream(mirror={"name": origin.name}, mirror_direct=True)
    await has(copy, 1)
    for number in range(6):
        answer = await batch(b, number % b.target.size, origin.name, {"seq": 1})
        assert status_of(answer[0]) == "503"
