"""Messages of streams: publishing, purging, deleting, and reading single ones with MSG.GET and DIRECT.GET."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from tests.compat.bench import Answers, Bench, StreamOfRow, status_of
from tests.compat.table import Group

rows = Group("messages")
purges = Group("purge")
gets = Group("get")
directs = Group("direct")

# ---- publishing -----------------------------------------------------------------------------------------------------


@rows("ack", "a publish is acknowledged with stream and sequence")
async def ack(b: Bench) -> None:
    stream = await b.stream()
    assert await stream.publish("a") == {"stream": stream.name, "seq": 1}
    assert await stream.publish("a") == {"stream": stream.name, "seq": 2}


@rows("msg-id", "the same message id is stored once within the duplicate window")
async def msg_id(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("x")
    wanted = {"stream": stream.name, "seq": 2}
    assert await stream.publish("a", headers={"Nats-Msg-Id": "1"}) == wanted
    assert await stream.publish("b", headers={"Nats-Msg-Id": "1"}) == {**wanted, "duplicate": True}
    assert (await stream.publish("a", headers={"Nats-Msg-Id": "2"}))["seq"] == 3


@rows("no-stream", "nobody responds where no stream captures")
async def no_stream(b: Bench) -> None:
    with pytest.raises(NoRespondersError):
        await b.nc.request(b.subject(), b"x", timeout=5)


@rows("rollup.sub", "a roll-up of a subject leaves the subject's new message alone")
async def rollup_sub(b: Bench) -> None:
    stream = await b.stream(allow_rollup_hdrs=True)
    await stream.fill("a", "b", "a")
    await stream.publish("a", headers={"Nats-Rollup": "sub"})
    state = (await stream.info({"subjects_filter": ">"}))["state"]
    assert state["subjects"] == {f"{stream.name}.a": 1, f"{stream.name}.b": 1}


@rows("rollup.all", "a roll-up of all leaves the new message alone")
async def rollup_all(b: Bench) -> None:
    stream = await b.stream(allow_rollup_hdrs=True)
    await stream.fill("a", "b", "a")
    await stream.publish("a", headers={"Nats-Rollup": "all"})
    state = await stream.state()
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (1, 4, 4)


@rows("rollup.not-allowed", "a roll-up is refused where the stream allows none")
async def rollup_not_allowed(b: Bench) -> None:
    stream = await b.stream()
    answer = await stream.publish("a", headers={"Nats-Rollup": "sub"})
    assert answer["error"] == {"code": 500, "err_code": 10111, "description": "rollup not permitted"}
    assert (await stream.state())["messages"] == 0


@rows("headers", "a stored message keeps its headers, in order")
async def headers(b: Bench) -> None:
    stream = await b.stream()
    client, inbox = await b.raw(), b.subject()
    header = b"NATS/1.0\r\nA: 1\r\na: 2\r\nB: \r\n\r\n"
    client.send(f"SUB {inbox} 1\r\nHPUB {stream.name}.a {inbox} {len(header)} {len(header) + 1}\r\n")
    client.send(header + b"x\r\n")
    await client.message()
    answer = await b.ok(f"STREAM.MSG.GET.{stream.name}", {"seq": 1})
    assert b64decode(answer["message"]["hdrs"]) == header


@rows(
    "headers.blanks",
    "blanks before a header's value are none of it, those behind it are: message ids that differ by these differ",
)
async def headers_blanks(b: Bench) -> None:
    stream = await b.stream()
    client, inbox = await b.raw(), b.subject()
    client.send(f"SUB {inbox} 1\r\n")

    async def answer_to(line: str) -> dict[str, Any]:
        header = f"NATS/1.0\r\n{line}\r\n\r\n".encode()
        client.send(f"HPUB {stream.name}.a {inbox} {len(header)} {len(header) + 1}\r\n")
        client.send(header + b"x\r\n")
        answer: dict[str, Any] = json.loads((await client.message()).payload)
        return answer

    found = [await answer_to(f"Nats-Msg-Id:{value}") for value in (" z ", " z", "   z", "z", " z\t", " \tz")]
    assert [(each["seq"], each.get("duplicate", False)) for each in found] == [
        (1, False),
        (2, False),
        (2, True),
        (2, True),
        (3, False),
        (4, False),
    ]
    for line, err_code in (
        (f"Nats-Expected-Stream: {stream.name} ", 10060),
        ("Nats-Expected-Last-Sequence: 4 ", 10071),
        ("Nats-Expected-Last-Subject-Sequence: 4 ", 10071),
        ("Nats-Expected-Last-Msg-Id: z", 10070),
        ("Nats-TTL: 5 ", 10165),
        ("Nats-Incr: +1 ", 10171),
    ):
        assert (await answer_to(line))["error"]["err_code"] == err_code, line


@rows("empty", "an empty message is a message")
async def empty(b: Bench) -> None:
    stream = await b.stream()
    assert (await stream.publish("a", b""))["seq"] == 1
    answer = await b.ok(f"STREAM.MSG.GET.{stream.name}", {"seq": 1})
    assert "data" not in answer["message"]


@rows("both", "plain subscribers get what a stream stores")
async def both(b: Bench) -> None:
    stream = await b.stream()
    listener = await b.subscribe(f"{stream.name}.>")
    await stream.publish("a", b"hello")
    assert (await listener.next_msg(timeout=5)).data == b"hello"


# ---- purging and deleting -------------------------------------------------------------------------------------------


async def ten(b: Bench, **config: Any) -> StreamOfRow:
    """A stream of ten messages, to a, b, c, a, …; the payload is the number of the message from 0 on."""
    stream = await b.stream(**config)
    for number in range(10):
        headers = {"K": "v"} if number == 4 else None
        await stream.publish("abc"[number % 3], str(number).encode(), headers)
    return stream


# The request, how many go, what is left: count and first sequence.
PURGES: dict[str, tuple[dict[str, Any] | None, int, tuple[int, int]]] = {
    "all": (None, 10, (0, 11)),
    "empty-object": ({}, 10, (0, 11)),
    "seq": ({"seq": 5}, 4, (6, 5)),
    "seq.first": ({"seq": 1}, 0, (10, 1)),
    "keep": ({"keep": 2}, 8, (2, 9)),
    "keep.more-than-all": ({"keep": 99}, 0, (10, 1)),
    "filter": ({"filter": "$a"}, 4, (6, 2)),
    "filter.wildcard": ({"filter": "$*"}, 10, (0, 11)),
    "filter.all": ({"filter": ">"}, 10, (0, 11)),
    "filter.none": ({"filter": "other"}, 0, (10, 1)),
    "filter.no-subject": ({"filter": "a..b"}, 0, (10, 1)),
    "filter.keep": ({"filter": "$a", "keep": 1}, 3, (7, 2)),
    "filter.keep-zero": ({"filter": "$b", "keep": 0}, 3, (7, 1)),
    "filter.seq": ({"filter": "$a", "seq": 5}, 2, (8, 2)),
}


def _purge(name: str, request: dict[str, Any] | None, gone: int, left: tuple[int, int]) -> None:
    @purges(name, f"a purge with {request or 'nothing said'} removes {gone} of ten messages")
    async def purge(b: Bench) -> None:
        stream = await ten(b)
        body = request
        if request and "filter" in request:
            body = {**request, "filter": request["filter"].replace("$", f"{stream.name}.")}
        answer = await b.ok(f"STREAM.PURGE.{stream.name}", body)
        assert answer == {
            "type": "io.nats.jetstream.api.v1.stream_purge_response",
            "success": True,
            "purged": gone,
        }
        state = await stream.state()
        messages, first = left
        assert (state["messages"], state["first_seq"], state["last_seq"]) == (messages, first, 10)
        assert state.get("num_deleted", 0) == 11 - first - messages


for _name, (_request, _gone, _left) in PURGES.items():
    _purge(_name, _request, _gone, _left)


@purges("seq-and-keep", "seq and keep together are refused")
async def seq_and_keep(b: Bench) -> None:
    stream = await ten(b)
    await b.refused(
        f"STREAM.PURGE.{stream.name}",
        {"seq": 3, "keep": 2},
        code=400,
        err_code=10003,
        text="bad request",
    )


@purges("denied", "a stream with deny_purge is not purged")
async def purge_denied(b: Bench) -> None:
    stream = await ten(b, deny_purge=True)
    for body in (None, {"filter": f"{stream.name}.a"}):
        await b.refused(
            f"STREAM.PURGE.{stream.name}",
            body,
            code=500,
            err_code=10110,
            text="stream purge not permitted",
        )


@purges("not-there", "a stream that is not there is not purged; the answer counts 0")
async def purge_not_there(b: Bench) -> None:
    answer = await b.api(f"STREAM.PURGE.{b.name()}")
    assert answer["error"] == {"code": 404, "err_code": 10059, "description": "stream not found"}
    assert answer["purged"] == 0


@purges("goes-on", "sequences go on behind a purge")
async def purge_goes_on(b: Bench) -> None:
    stream = await ten(b)
    await b.ok(f"STREAM.PURGE.{stream.name}")
    assert (await stream.publish("a"))["seq"] == 11


@rows("delete", "a deleted message is gone and leaves a hole")
async def delete(b: Bench) -> None:
    stream = await ten(b)
    answer = await b.ok(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 5})
    assert answer == {"type": "io.nats.jetstream.api.v1.stream_msg_delete_response", "success": True}
    state = (await stream.info({"deleted_details": True}))["state"]
    assert (state["messages"], state["deleted"]) == (9, [5])
    await b.refused(
        f"STREAM.MSG.GET.{stream.name}", {"seq": 5}, code=404, err_code=10037, text="no message found"
    )


@rows("delete.no-erase", "no_erase is taken")
async def delete_no_erase(b: Bench) -> None:
    stream = await ten(b)
    await b.ok(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 5, "no_erase": True})
    assert (await stream.state())["messages"] == 9


@rows("delete.first", "deleting the first message moves the stream's beginning")
async def delete_first(b: Bench) -> None:
    stream = await ten(b)
    await b.ok(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 2})
    await b.ok(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 1})
    state = await stream.state()
    assert (state["first_seq"], state.get("num_deleted", 0)) == (3, 0)


@rows("delete.last", "deleting the last message leaves the last sequence")
async def delete_last(b: Bench) -> None:
    stream = await ten(b)
    await b.ok(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 10})
    assert (await stream.state())["last_seq"] == 10
    assert (await stream.publish("a"))["seq"] == 11


@rows("delete.twice", "a message is deleted once")
async def delete_twice(b: Bench) -> None:
    stream = await ten(b)
    await b.ok(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 5})
    await b.refused(
        f"STREAM.MSG.DELETE.{stream.name}",
        {"seq": 5},
        code=400,
        err_code=10043,
        text="sequence 5 not found",
    )


@rows("delete.gone", "a deletion of what is gone from the beginning, or never was there, finds no message")
async def delete_gone(b: Bench) -> None:
    stream = await ten(b)
    await b.ok(f"STREAM.PURGE.{stream.name}", {"seq": 4})
    for seq in (1, 3):
        await b.refused(
            f"STREAM.MSG.DELETE.{stream.name}",
            {"seq": seq},
            code=500,
            err_code=10057,
            text="no message found",
        )


@rows("delete.empty", "a deletion has to say what")
async def delete_empty(b: Bench) -> None:
    stream = await ten(b)
    for body in (b"", b"{}"):
        await b.refused(
            f"STREAM.MSG.DELETE.{stream.name}", body, code=400, err_code=10003, text="bad request"
        )


@rows("delete.denied", "a stream with deny_delete gives up no message")
async def delete_denied(b: Bench) -> None:
    stream = await ten(b, deny_delete=True)
    await b.refused(
        f"STREAM.MSG.DELETE.{stream.name}",
        {"seq": 1},
        code=500,
        err_code=10057,
        text="message delete not permitted",
    )


@rows("delete.no-stream", "no stream, no deletion")
async def delete_no_stream(b: Bench) -> None:
    await b.refused(
        f"STREAM.MSG.DELETE.{b.name()}", {"seq": 1}, code=404, err_code=10059, text="stream not found"
    )


# ---- MSG.GET --------------------------------------------------------------------------------------------------------


@gets("message", "a message comes with subject, sequence, header, payload and time")
async def get_message(b: Bench) -> None:
    stream = await ten(b)
    answer = await b.ok(f"STREAM.MSG.GET.{stream.name}", {"seq": 5})
    assert answer["type"] == "io.nats.jetstream.api.v1.stream_msg_get_response"
    message = answer["message"]
    assert (message["subject"], message["seq"]) == (f"{stream.name}.b", 5)
    assert b64decode(message["data"]) == b"4"
    assert b64decode(message["hdrs"]) == b"NATS/1.0\r\nK: v\r\n\r\n"
    state = await stream.state()
    assert state["first_ts"] < message["time"] < state["last_ts"]


# The request ("$" is the stream's name and a dot), the sequence that comes; 0: no message found; -1: bad request.
GETS: dict[str, tuple[dict[str, Any], int]] = {
    "seq": ({"seq": 1}, 1),
    "seq.beyond": ({"seq": 99}, 0),
    "seq.zero": ({"seq": 0}, -1),
    "nothing": ({}, -1),
    "last": ({"last_by_subj": "$a"}, 10),
    "last.wildcard": ({"last_by_subj": "$*"}, 10),
    "last.none": ({"last_by_subj": "$z"}, 0),
    "last.no-subject": ({"last_by_subj": "$."}, 0),
    "last.and-seq": ({"last_by_subj": "$a", "seq": 5}, -1),
    "next": ({"next_by_subj": "$b"}, 2),
    "next.from": ({"next_by_subj": "$b", "seq": 3}, 5),
    "next.at": ({"next_by_subj": "$b", "seq": 5}, 5),
    "next.wildcard": ({"next_by_subj": "$>", "seq": 10}, 10),
    "next.behind": ({"next_by_subj": "$b", "seq": 9}, 0),
    "next.and-last": ({"next_by_subj": "$b", "last_by_subj": "$a"}, -1),
    "time": ({"start_time": "2020-01-01T00:00:00Z"}, 1),
    "time.behind": ({"start_time": "2099-01-01T00:00:00Z"}, 0),
    "time.next": ({"start_time": "2020-01-01T00:00:00Z", "next_by_subj": "$c"}, 3),
    "time.and-seq": ({"start_time": "2020-01-01T00:00:00Z", "seq": 1}, -1),
    "time.and-last": ({"start_time": "2020-01-01T00:00:00Z", "last_by_subj": "$a"}, -1),
    "batch": ({"seq": 1, "batch": 2}, -1),
    "max-bytes": ({"seq": 1, "max_bytes": 2}, -1),
    "multi-last": ({"multi_last": ["$a"]}, -1),
    "no-header": ({"no_hdr": True}, -1),
}


def _of(stream: StreamOfRow, value: Any) -> Any:
    """The request with "$" replaced by the stream's name and a dot."""
    if isinstance(value, str):
        return value.replace("$", f"{stream.name}.")
    if isinstance(value, list):
        return [_of(stream, item) for item in value]
    if isinstance(value, dict):
        return {name: _of(stream, item) for name, item in value.items()}
    return value


def _get(name: str, request: dict[str, Any], wanted: int) -> None:
    what = {0: "nothing", -1: "a refusal"}.get(wanted, f"message {wanted}")

    @gets(f"by.{name}", f"a get of {request} gives {what}")
    async def get(b: Bench) -> None:
        stream = await ten(b)
        answer = await b.api(f"STREAM.MSG.GET.{stream.name}", _of(stream, request))
        if wanted > 0:
            assert answer["message"]["seq"] == wanted, answer
            return
        error = (404, 10037, "no message found") if wanted == 0 else (400, 10003, "bad request")
        found = answer["error"]
        assert (found["code"], found["err_code"], found["description"]) == error


for _name, (_request, _gone) in GETS.items():
    _get(_name, _request, _gone)


@gets("time.at", "a get from a message's own time gives that message")
async def get_at_time(b: Bench) -> None:
    stream = await ten(b)
    fifth = (await b.ok(f"STREAM.MSG.GET.{stream.name}", {"seq": 5}))["message"]
    found = await b.ok(f"STREAM.MSG.GET.{stream.name}", {"start_time": fifth["time"]})
    assert found["message"]["seq"] == 5


@gets("no-header", "no_hdr leaves the header out")
async def get_no_header(b: Bench) -> None:
    stream = await ten(b)
    answer = await b.ok(f"STREAM.MSG.GET.{stream.name}", {"seq": 5, "no_hdr": True})
    assert "hdrs" not in answer["message"]


@gets("empty", "a get has to say what")
async def get_empty(b: Bench) -> None:
    stream = await ten(b)
    await b.refused(f"STREAM.MSG.GET.{stream.name}", b"", code=400, err_code=10003, text="bad request")


@gets("no-stream", "no stream, no message")
async def get_no_stream(b: Bench) -> None:
    await b.refused(
        f"STREAM.MSG.GET.{b.name()}", {"seq": 1}, code=404, err_code=10059, text="stream not found"
    )


# ---- DIRECT.GET -----------------------------------------------------------------------------------------------------


async def direct(stream: StreamOfRow, request: Any, subject: str = "") -> list[Msg]:
    """All that a direct get is answered with: to the status behind a batch, or one message."""
    answers = Answers(await stream.bench.subscribe())
    client = answers.subscription._conn
    call = f"$JS.API.DIRECT.GET.{stream.name}" + (f".{subject}" if subject else "")
    payload = request if isinstance(request, bytes) else json.dumps(_of(stream, request)).encode()
    await client.publish(call, payload, reply=answers.subscription.subject)
    found = [await answers.next()]
    is_batch = "Nats-Num-Pending" in (found[0].headers or {})
    while is_batch and not status_of(found[-1]):
        found.append(await answers.next())
    return found


@directs("message", "a message comes as it was stored, with where it stands in its header")
async def direct_message(b: Bench) -> None:
    stream = await ten(b, allow_direct=True)
    (message,) = await direct(stream, {"seq": 5})
    headers = message.headers or {}
    stored = (await b.ok(f"STREAM.MSG.GET.{stream.name}", {"seq": 5}))["message"]
    assert message.data == b"4"
    assert headers == {
        "K": "v",
        "Nats-Stream": stream.name,
        "Nats-Subject": f"{stream.name}.b",
        "Nats-Sequence": "5",
        "Nats-Time-Stamp": stored["time"],
    }


@directs("subject", "the last message of the subject in the call's own subject")
async def direct_subject(b: Bench) -> None:
    stream = await ten(b, allow_direct=True)
    (message,) = await direct(stream, b"", f"{stream.name}.b")
    assert (message.headers or {})["Nats-Sequence"] == "8"
    (message,) = await direct(stream, b"", f"{stream.name}.z")
    assert (status_of(message), (message.headers or {})["Description"]) == ("404", "Message Not Found")


@directs("not-allowed", "nobody responds where the stream allows no direct gets")
async def direct_not_allowed(b: Bench) -> None:
    stream = await ten(b)
    (message,) = await direct(stream, {"seq": 1})
    assert status_of(message) == "503"


@directs("no-stream", "nobody responds where there is no such stream")
async def direct_no_stream(b: Bench) -> None:
    with pytest.raises(NoRespondersError):
        await b.nc.request(f"$JS.API.DIRECT.GET.{b.name()}", b'{"seq":1}', timeout=5)


# The request, and the sequences that come or the status.
DIRECTS: dict[str, tuple[Any, list[int] | tuple[str, str]]] = {
    "seq": ({"seq": 3}, [3]),
    "seq.beyond": ({"seq": 99}, ("404", "Message Not Found")),
    "last": ({"last_by_subj": "$a"}, [10]),
    "last.wildcard": ({"last_by_subj": "$*"}, [10]),
    "last.none": ({"last_by_subj": "$z"}, ("404", "Message Not Found")),
    "next": ({"next_by_subj": "$b"}, [2]),
    "next.from": ({"next_by_subj": "$b", "seq": 3}, [5]),
    "next.none": ({"next_by_subj": "$b", "seq": 9}, ("404", "Message Not Found")),
    "time": ({"start_time": "2020-01-01T00:00:00Z"}, [1]),
    "time.behind": ({"start_time": "2099-01-01T00:00:00Z"}, ("404", "Message Not Found")),
    "time.next": ({"start_time": "2020-01-01T00:00:00Z", "next_by_subj": "$c"}, [3]),
    "up-to-is-for-many": ({"seq": 1, "up_to_seq": 3}, [1]),
    "unknown-field": ({"seq": 1, "nonsense": 5}, [1]),
    "empty": (b"", ("408", "Empty Request")),
    "empty-object": ({}, ("408", "Empty Request")),
    "null": (b"null", ("408", "Empty Request")),
    "seq.zero": ({"seq": 0}, ("408", "Empty Request")),
    "only-batch": ({"batch": 3}, ("408", "Empty Request")),
    "only-max-bytes": ({"max_bytes": 3}, ("408", "Empty Request")),
    "only-up-to": ({"up_to_seq": 3}, ("408", "Empty Request")),
    "no-subjects": ({"multi_last": []}, ("408", "Empty Request")),
    "no-json": (b"{", ("408", "Malformed Request")),
    "a-list": (b"[]", ("408", "Malformed Request")),
    "seq.negative": ({"seq": -1}, ("408", "Malformed Request")),
    "seq.text": ({"seq": "x"}, ("408", "Malformed Request")),
    "no-time": ({"start_time": "yesterday"}, ("408", "Malformed Request")),
    "seq-and-last": ({"seq": 5, "last_by_subj": "$a"}, ("408", "Bad Request")),
    "last-and-next": ({"last_by_subj": "$a", "next_by_subj": "$a"}, ("408", "Bad Request")),
    "time-and-seq": ({"start_time": "2020-01-01T00:00:00Z", "seq": 1}, ("408", "Bad Request")),
    "time-and-last": ({"start_time": "2020-01-01T00:00:00Z", "last_by_subj": "$a"}, ("408", "Bad Request")),
    "batch-and-last": ({"batch": 2, "last_by_subj": "$a"}, ("408", "Bad Request")),
    "many-and-last": ({"multi_last": ["$a"], "last_by_subj": "$a"}, ("408", "Bad Request")),
    "many-and-next": ({"multi_last": ["$a"], "next_by_subj": "$a"}, ("408", "Bad Request")),
    "both-up-to": (
        {"multi_last": ["$a"], "up_to_seq": 3, "up_to_time": "2020-01-01T00:00:00Z"},
        ("408", "Bad Request"),
    ),
    "many.none": ({"multi_last": ["$z"]}, ("404", "No Results")),
    "many.no-subject": ({"multi_last": ["$."]}, ("404", "No Results")),
    "many.before-all": (
        {"multi_last": ["$>"], "up_to_time": "2020-01-01T00:00:00Z"},
        ("404", "No Results"),
    ),
    "batch.beyond": ({"batch": 3, "seq": 99}, ("404", "Message Not Found")),
    "batch.none": ({"batch": 3, "next_by_subj": "$z", "seq": 1}, ("404", "Message Not Found")),
}


def _direct(name: str, request: Any, wanted: list[int] | tuple[str, str]) -> None:
    @directs(f"by.{name}", f"a direct get of {request} gives {wanted}")
    async def direct_by(b: Bench) -> None:
        stream = await ten(b, allow_direct=True)
        found = await direct(stream, request)
        if isinstance(wanted, tuple):
            headers = found[0].headers or {}
            assert (headers.get("Status"), headers.get("Description")) == wanted
            assert len(found) == 1
        else:
            assert [int((message.headers or {})["Nats-Sequence"]) for message in found] == wanted


for _name, (_body, _result) in DIRECTS.items():
    _direct(_name, _body, _result)

# The request, the sequences, what is left behind them, and up to which sequence it was looked (many subjects).
BATCHES: dict[str, tuple[dict[str, Any], list[int], int, int]] = {
    "seq": ({"batch": 3, "seq": 5}, [5, 6, 7], 3, 0),
    "one": ({"batch": 1, "seq": 2}, [2], 8, 0),
    "end": ({"batch": 5, "seq": 9}, [9, 10], 0, 0),
    "next": ({"batch": 2, "next_by_subj": "$a"}, [1, 4], 2, 0),
    "next.from": ({"batch": 5, "next_by_subj": "$a", "seq": 2}, [4, 7, 10], 0, 0),
    "next.wildcard": ({"batch": 2, "next_by_subj": "$>"}, [1, 2], 8, 0),
    "time": ({"batch": 2, "start_time": "2020-01-01T00:00:00Z"}, [1, 2], 8, 0),
    "time.next": ({"batch": 2, "start_time": "2020-01-01T00:00:00Z", "next_by_subj": "$b"}, [2, 5], 1, 0),
    "max-bytes.tiny": ({"batch": 5, "seq": 1, "max_bytes": 1}, [1], 9, 0),
    "max-bytes.large": ({"batch": 2, "seq": 1, "max_bytes": 100_000}, [1, 2], 8, 0),
    "many": ({"multi_last": ["$a", "$b"]}, [8, 10], 0, 10),
    "many.twice": ({"multi_last": ["$a", "$a"]}, [10], 0, 10),
    "many.wildcard": ({"multi_last": ["$>"]}, [8, 9, 10], 0, 10),
    "many.batch": ({"multi_last": ["$>"], "batch": 2}, [8, 9], 1, 10),
    "many.up-to": ({"multi_last": ["$>"], "up_to_seq": 6}, [4, 5, 6], 0, 6),
    "many.up-to-first": ({"multi_last": ["$>"], "up_to_seq": 1}, [1], 0, 1),
    "many.up-to-later": ({"multi_last": ["$>"], "up_to_time": "2099-01-01T00:00:00Z"}, [8, 9, 10], 0, 10),
    "many.from": ({"multi_last": ["$>"], "seq": 9}, [9, 10], 0, 10),
}


def _batch(name: str, request: dict[str, Any], seqs: list[int], left: int, up_to: int) -> None:
    @directs(f"batch.{name}", f"a direct get of {request} gives {seqs} and says that {left} are left")
    async def batch(b: Bench) -> None:
        stream = await ten(b, allow_direct=True)
        *found, end = await direct(stream, request)
        headers = [message.headers or {} for message in found]
        assert [int(header["Nats-Sequence"]) for header in headers] == seqs
        assert [int(header["Nats-Last-Sequence"]) for header in headers] == [0, *seqs[:-1]]
        total = left + len(seqs)
        assert [int(header["Nats-Num-Pending"]) for header in headers] == list(range(total - 1, left - 1, -1))
        last = end.headers or {}
        assert (last["Status"], last["Description"]) == ("204", "EOB")
        assert (int(last["Nats-Num-Pending"]), int(last["Nats-Last-Sequence"])) == (left, seqs[-1])
        assert int(last.get("Nats-UpTo-Sequence", 0)) == up_to


for _name, (_request, _seqs, _left_over, _up_to) in BATCHES.items():
    _batch(_name, _request, _seqs, _left_over, _up_to)


@directs("no-header", "no_hdr leaves every header out")
async def direct_no_header(b: Bench) -> None:
    stream = await ten(b, allow_direct=True)
    (message,) = await direct(stream, {"seq": 5, "no_hdr": True})
    assert (message.data, message.headers) == (b"4", None)


@directs("batch.holes", "a batch passes over deleted messages and does not count them")
async def batch_holes(b: Bench) -> None:
    stream = await ten(b, allow_direct=True)
    for seq in (2, 5, 9):
        await b.ok(f"STREAM.MSG.DELETE.{stream.name}", {"seq": seq})
    *found, end = await direct(stream, {"batch": 4, "seq": 1})
    assert [int((message.headers or {})["Nats-Sequence"]) for message in found] == [1, 3, 4, 6]
    assert (end.headers or {})["Nats-Num-Pending"] == "3"


@directs("many.up-to-deleted", "what was last at a sequence is what is still there of it")
async def many_up_to_deleted(b: Bench) -> None:
    stream = await ten(b, allow_direct=True)
    await b.ok(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 5})
    *found, _ = await direct(stream, {"multi_last": ["$b"], "up_to_seq": 7})
    assert [int((message.headers or {})["Nats-Sequence"]) for message in found] == [2]


@directs("many.too-many", "more than 1024 subjects are too many")
async def too_many(b: Bench) -> None:
    stream = await b.stream(allow_direct=True)
    client = await b.connect()
    for number in range(1025):
        await client.publish(f"{stream.name}.{number}", b"x")
    await stream.publish("last")
    (message,) = await direct(stream, {"multi_last": ["$>"]})
    headers = message.headers or {}
    assert (headers["Status"], headers["Description"]) == ("413", "Too Many Results")
