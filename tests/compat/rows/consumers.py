"""Pull consumers: configuration and its refusals, what they deliver, acknowledgements, statuses."""

from __future__ import annotations

from typing import Any

import pytest
from nats.errors import NoRespondersError
from tests.compat.bench import Bench, ConsumerOfRow, StreamOfRow, eventually, status_of
from tests.compat.table import Group

rows = Group("consumers")
pulls = Group("pull")
acks = Group("acks")

SECOND = 1_000_000_000
MS = 1_000_000


async def six(b: Bench, **config: Any) -> StreamOfRow:
    """A stream of six messages, to a, b, c, a, b, c; the payload is the number of the message from 0 on."""
    stream = await b.stream(**config)
    for number in range(6):
        await stream.publish("abc"[number % 3], str(number).encode())
    return stream


def _of(stream: StreamOfRow, value: Any) -> Any:
    """The value with "$" replaced by the stream's name and a dot."""
    if isinstance(value, str):
        return value.replace("$", f"{stream.name}.")
    if isinstance(value, list):
        return [_of(stream, item) for item in value]
    if isinstance(value, dict):
        return {name: _of(stream, item) for name, item in value.items()}
    return value


# ---- configuration --------------------------------------------------------------------------------------------------


@rows("create", "a durable consumer is created, and the answer has its configuration and state")
async def create(b: Bench) -> None:
    stream = await six(b)
    consumer = await stream.consumer("worker")
    found = consumer.created
    assert found["type"] == "io.nats.jetstream.api.v1.consumer_create_response"
    assert (found["stream_name"], found["name"]) == (stream.name, "worker")
    assert found["delivered"] == {"consumer_seq": 0, "stream_seq": 0}
    assert found["ack_floor"] == {"consumer_seq": 0, "stream_seq": 0}
    counts = ("num_ack_pending", "num_redelivered", "num_waiting", "num_pending")
    assert [found[name] for name in counts] == [0, 0, 0, 6]


@rows("create.defaults", "what a configuration does not say has NATS's defaults")
async def defaults(b: Bench) -> None:
    stream = await b.stream()
    config = (await stream.consumer("worker")).created["config"]
    wanted = {
        "durable_name": "worker",
        "name": "worker",
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": 30 * SECOND,
        "max_deliver": -1,
        "replay_policy": "instant",
        "max_waiting": 512,
        "max_ack_pending": 1000,
        "num_replicas": 0,
    }
    assert {name: config.get(name) for name in wanted} == wanted


KEPT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ack.none": ({"ack_policy": "none"}, {"ack_policy": "none"}),
    "ack.all": ({"ack_policy": "all"}, {"ack_policy": "all"}),
    "ack-wait": ({"ack_wait": SECOND}, {"ack_wait": SECOND}),
    "ack-wait.zero": ({"ack_wait": 0}, {"ack_wait": 30 * SECOND}),
    "max-deliver": ({"max_deliver": 5}, {"max_deliver": 5}),
    "max-deliver.zero": ({"max_deliver": 0}, {"max_deliver": -1}),
    "max-ack-pending": ({"max_ack_pending": 5}, {"max_ack_pending": 5}),
    "max-ack-pending.none": ({"max_ack_pending": -1}, {"max_ack_pending": -1}),
    "max-waiting": ({"max_waiting": 5}, {"max_waiting": 5}),
    "max-waiting.zero": ({"max_waiting": 0}, {"max_waiting": 512}),
    "description": ({"description": "x"}, {"description": "x"}),
    "filter": ({"filter_subject": "$a"}, {"filter_subject": "$a"}),
    "filters": ({"filter_subjects": ["$a", "$b"]}, {"filter_subjects": ["$a", "$b"]}),
    "backoff": (
        {"backoff": [SECOND, 2 * SECOND], "max_deliver": 3},
        {"backoff": [SECOND, 2 * SECOND], "ack_wait": SECOND},
    ),
    "headers-only": ({"headers_only": True}, {"headers_only": True}),
    "max-batch": ({"max_batch": 5}, {"max_batch": 5}),
    "max-expires": ({"max_expires": SECOND}, {"max_expires": SECOND}),
    "max-bytes": ({"max_bytes": 100}, {"max_bytes": 100}),
    "mem-storage": ({"mem_storage": True}, {"mem_storage": True}),
    "inactive-threshold": ({"inactive_threshold": 100 * SECOND}, {"inactive_threshold": 100 * SECOND}),
    "deliver.last": ({"deliver_policy": "last"}, {"deliver_policy": "last"}),
    "deliver.new": ({"deliver_policy": "new"}, {"deliver_policy": "new"}),
    "deliver.sequence": (
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 3},
        {"opt_start_seq": 3},
    ),
    "deliver.time": (
        {"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"},
        {"opt_start_time": "2020-01-01T00:00:00Z"},
    ),
    "deliver.last-per-subject": (
        {"deliver_policy": "last_per_subject", "filter_subject": "$*"},
        {"deliver_policy": "last_per_subject"},
    ),
    "replay.original": ({"replay_policy": "original"}, {"replay_policy": "original"}),
}


def _kept(name: str, given: dict[str, Any], wanted: dict[str, Any]) -> None:
    @rows(f"create.kept.{name}", f"a consumer with {', '.join(given)} is created and says so")
    async def kept(b: Bench) -> None:
        stream = await b.stream()
        consumer = await stream.consumer(**_of(stream, given))
        config = consumer.created["config"]
        assert {field: config[field] for field in wanted} == _of(stream, wanted)
        assert (await consumer.info())["config"] == config


for _name, (_given, _wanted) in KEPT.items():
    _kept(_name, _given, _wanted)

# The configuration, the error's code, err_code and text.
REFUSED: dict[str, tuple[dict[str, Any], int, int, str]] = {
    "ack-wait.negative": ({"ack_wait": -1}, 400, 10183, "consumer ack wait needs to be positive"),
    "backoff.negative": ({"backoff": [-1]}, 400, 10184, "consumer backoff needs to be positive"),
    "backoff.too-long": (
        {"backoff": [SECOND, SECOND], "max_deliver": 1},
        400,
        10116,
        "max deliver is required to be > length of backoff values",
    ),
    "description": (
        {"description": "d" * 4097},
        400,
        10107,
        "consumer description is too long, maximum allowed is 4096",
    ),
    "filter-and-filters": (
        {"filter_subject": "$a", "filter_subjects": ["$b"]},
        400,
        10136,
        "consumer cannot have both FilterSubject and FilterSubjects specified",
    ),
    "filters.overlap": (
        {"filter_subjects": ["$a", "$*"]},
        400,
        10138,
        "consumer subject filters cannot overlap",
    ),
    "filters.empty": (
        {"filter_subjects": [""]},
        400,
        10139,
        "consumer filter in FilterSubjects cannot be empty",
    ),
    "heartbeat": (
        {"idle_heartbeat": SECOND},
        400,
        10088,
        "consumer idle heartbeat requires a push based consumer",
    ),
    "flow-control": (
        {"flow_control": True},
        400,
        10089,
        "consumer flow control requires a push based consumer",
    ),
    "rate-limit": (
        {"rate_limit_bps": 100},
        400,
        10086,
        "consumer in pull mode can not have rate limit set",
    ),
    "max-expires.short": (
        {"max_expires": 5},
        400,
        10115,
        "consumer max request expires needs to be >= 1ms",
    ),
    "replicas.negative": ({"num_replicas": -1}, 400, 10133, "replicas count cannot be negative"),
    "start-seq.not-asked": (
        {"opt_start_seq": 5},
        400,
        10094,
        "consumer delivery policy is deliver all, but optional start sequence is also set",
    ),
    "start-time.not-asked": (
        {"opt_start_time": "2020-01-01T00:00:00Z"},
        400,
        10094,
        "consumer delivery policy is deliver all, but optional start time is also set",
    ),
    "start-seq.missing": (
        {"deliver_policy": "by_start_sequence"},
        400,
        10094,
        "consumer delivery policy is deliver by start sequence, but optional start sequence is not set",
    ),
    "start-time.missing": (
        {"deliver_policy": "by_start_time"},
        400,
        10094,
        "consumer delivery policy is deliver by start time, but optional start time is not set",
    ),
    "unknown-field": ({"foo": 1}, 400, 10025, 'invalid JSON: json: unknown field "foo"'),
}


def _refused(name: str, given: dict[str, Any], code: int, err_code: int, text: str) -> None:
    @rows(f"create.refused.{name}", f"a consumer is refused with {err_code}: {name}")
    async def refused(b: Bench) -> None:
        stream = await b.stream()
        await stream.consumer_refused(**_of(stream, given), code=code, err_code=err_code, text=text)


for _name, (_given, _code, _err_code, _text) in REFUSED.items():
    _refused(_name, _given, _code, _err_code, _text)


def _wrong_word(field: str) -> None:
    @rows(f"create.word.{field}", f"an unknown {field} is refused with 10025")
    async def wrong_word(b: Bench) -> None:
        stream = await b.stream()
        for word in ("nonsense", ""):
            config = {"durable_name": "c", "ack_policy": "explicit", field: word}
            answer = await b.api(
                f"CONSUMER.DURABLE.CREATE.{stream.name}.c", {"stream_name": stream.name, "config": config}
            )
            assert (answer["error"]["code"], answer["error"]["err_code"]) == (400, 10025), answer


for _field in ("ack_policy", "deliver_policy", "replay_policy"):
    _wrong_word(_field)


@rows("create.again", "the same consumer again is the same consumer")
async def create_again(b: Bench) -> None:
    stream = await six(b)
    consumer = await stream.consumer()
    await consumer.fetch(2)
    again = await stream.consumer(consumer.name)
    assert again.created["created"] == consumer.created["created"]
    assert again.created["delivered"]["stream_seq"] == 2


def _body(stream: StreamOfRow, **config: Any) -> dict[str, Any]:
    return {"stream_name": stream.name, "config": {"ack_policy": "explicit", **config}}


@rows("create.named", "a consumer with a name is created by the call that has it")
async def named(b: Bench) -> None:
    stream = await b.stream()
    answer = await b.ok(f"CONSUMER.CREATE.{stream.name}.x", _body(stream, name="x", durable_name="x"))
    assert (answer["name"], answer["config"]["durable_name"]) == ("x", "x")


@rows("create.ephemeral", "a consumer without a name is ephemeral and gets one")
async def ephemeral(b: Bench) -> None:
    stream = await b.stream()
    answer = await b.ok(f"CONSUMER.CREATE.{stream.name}", _body(stream))
    assert answer["name"]
    assert "durable_name" not in answer["config"]
    assert answer["config"]["inactive_threshold"] == 5 * SECOND


@rows("create.ephemeral.goes", "an ephemeral consumer that nobody uses goes")
async def ephemeral_goes(b: Bench) -> None:
    stream = await b.stream()
    answer = await b.ok(f"CONSUMER.CREATE.{stream.name}", _body(stream, inactive_threshold=300 * MS))

    async def gone() -> bool:
        names: list[str] = (await b.ok(f"CONSUMER.NAMES.{stream.name}"))["consumers"]
        return answer["name"] not in names

    await eventually(gone, "the consumer to go", 10)


@rows("create.filter-in-subject", "the filter in the call's subject has to be the configuration's")
async def filter_in_subject(b: Bench) -> None:
    stream = await b.stream()
    name = stream.name
    await b.ok(f"CONSUMER.CREATE.{name}.x.{name}.a", _body(stream, name="x", filter_subject=f"{name}.a"))
    text = "Consumer create request did not match filtered subject from create subject"
    await b.refused(
        f"CONSUMER.CREATE.{name}.y.{name}.a",
        _body(stream, name="y", filter_subject=f"{name}.b"),
        code=400,
        err_code=10131,
        text=text,
    )


@rows("create.action", "action create makes, action update changes, and neither does the other's work")
async def action(b: Bench) -> None:
    stream = await b.stream()
    call = f"CONSUMER.CREATE.{stream.name}.x"
    await b.refused(
        call,
        {**_body(stream, durable_name="x"), "action": "update"},
        code=400,
        err_code=10149,
        text="consumer does not exist",
    )
    await b.ok(call, {**_body(stream, durable_name="x"), "action": "create"})
    await b.refused(
        call,
        {**_body(stream, durable_name="x", description="other"), "action": "create"},
        code=400,
        err_code=10148,
        text="consumer already exists",
    )
    answer = await b.ok(call, {**_body(stream, durable_name="x", description="other"), "action": "update"})
    assert answer["config"]["description"] == "other"


# What is wrong with the call; the call's end, its body's stream and configuration; the error.
WRONG_CALLS: dict[str, tuple[str, dict[str, Any] | bytes, int, int, str]] = {
    "durable-name-differs": (
        "DURABLE.CREATE.{}.c",
        {"durable_name": "d"},
        400,
        10017,
        "consumer name in subject does not match durable name in request",
    ),
    "durable-name-missing": (
        "DURABLE.CREATE.{}.c",
        {},
        400,
        10018,
        "consumer expected to be durable but a durable name was not set",
    ),
    "ephemeral-with-durable": (
        "CREATE.{}",
        {"durable_name": "d"},
        400,
        10020,
        "consumer expected to be ephemeral but a durable name was set in request",
    ),
}


def _wrong_call(name: str, call: str, config: Any, code: int, err_code: int, text: str) -> None:
    @rows(f"call.{name}", f"a call is refused with {err_code}: {name}")
    async def wrong_call(b: Bench) -> None:
        stream = await b.stream()
        await b.refused(
            f"CONSUMER.{call.format(stream.name)}",
            _body(stream, **config),
            code=code,
            err_code=err_code,
            text=text,
        )


for _name, (_call, _config, _code, _err_code, _text) in WRONG_CALLS.items():
    _wrong_call(_name, _call, _config, _code, _err_code, _text)


@rows("call.stream-differs", "the stream in the subject has to be the one in the request")
async def stream_differs(b: Bench) -> None:
    stream = await b.stream()
    await b.refused(
        f"CONSUMER.DURABLE.CREATE.{stream.name}.c",
        {"stream_name": "other", "config": {"durable_name": "c"}},
        code=400,
        err_code=10056,
        text="stream name in subject does not match request",
    )


@rows("call.no-stream", "a stream that is not there has no consumers")
async def no_stream(b: Bench) -> None:
    name = b.name()
    error = {"code": 404, "err_code": 10059, "text": "stream not found"}
    body = {"stream_name": name, "config": {"durable_name": "c", "ack_policy": "explicit"}}
    await b.refused(f"CONSUMER.DURABLE.CREATE.{name}.c", body, **error)  # type: ignore[arg-type]
    for call in ("INFO", "DELETE"):
        await b.refused(f"CONSUMER.{call}.{name}.c", **error)  # type: ignore[arg-type]
    for call in ("NAMES", "LIST"):
        await b.refused(f"CONSUMER.{call}.{name}", **error)  # type: ignore[arg-type]


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
        changed = await stream.consumer(consumer.name, **{field: _of(stream, value)})
        assert changed.created["config"][field] == _of(stream, value)
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


@rows("delete", "a deleted consumer is gone")
async def delete(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer()
    call = f"{stream.name}.{consumer.name}"
    answer = await b.ok(f"CONSUMER.DELETE.{call}")
    assert answer == {"type": "io.nats.jetstream.api.v1.consumer_delete_response", "success": True}
    error = {"code": 404, "err_code": 10014, "text": "consumer not found"}
    await b.refused(f"CONSUMER.INFO.{call}", **error)  # type: ignore[arg-type]
    await b.refused(f"CONSUMER.DELETE.{call}", **error)  # type: ignore[arg-type]


@rows("names", "names and list come sorted, with the fields of paging")
async def names(b: Bench) -> None:
    stream = await b.stream()
    for name in ("b", "a", "c"):
        await stream.consumer(name)
    found = await b.ok(f"CONSUMER.NAMES.{stream.name}")
    assert (found["consumers"], found["total"], found["offset"]) == (["a", "b", "c"], 3, 0)
    found = await b.ok(f"CONSUMER.LIST.{stream.name}", {"offset": 1})
    assert [row["name"] for row in found["consumers"]] == ["b", "c"]
    assert (found["total"], found["offset"], found["limit"]) == (3, 1, 256)


@rows("names.none", "a stream without consumers has an empty list of them")
async def names_none(b: Bench) -> None:
    stream = await b.stream()
    for call in ("NAMES", "LIST"):
        found = await b.ok(f"CONSUMER.{call}.{stream.name}")
        assert (found["consumers"], found["total"]) == ([], 0)


@rows("workqueue.filters", "consumers of a work queue may not share messages")
async def workqueue_filters(b: Bench) -> None:
    stream = await b.stream(retention="workqueue")
    await stream.consumer(filter_subject=f"{stream.name}.a")
    await stream.consumer(filter_subject=f"{stream.name}.b")
    text = "filtered consumer not unique on workqueue stream"
    await stream.consumer_refused(filter_subject=f"{stream.name}.*", code=400, err_code=10100, text=text)
    text = "multiple non-filtered consumers not allowed on workqueue stream"
    await stream.consumer_refused(code=400, err_code=10099, text=text)


@rows("workqueue.deliver", "a work queue delivers all")
async def workqueue_deliver(b: Bench) -> None:
    stream = await b.stream(retention="workqueue")
    text = "consumer must be deliver all on workqueue stream"
    await stream.consumer_refused(deliver_policy="last", code=400, err_code=10101, text=text)


@rows("workqueue.removes", "a work queue's message goes when it is acknowledged, not before")
async def workqueue_removes(b: Bench) -> None:
    stream = await six(b, retention="workqueue")
    consumer = await stream.consumer()
    await consumer.fetch(2, ack=None)
    assert (await stream.state())["messages"] == 6
    await consumer.fetch(2)

    async def gone() -> bool:
        return bool((await stream.state())["messages"] == 4)

    await eventually(gone, "two messages to go")


@rows("interest.removes", "with interest retention a message goes when every consumer acknowledged it")
async def interest_removes(b: Bench) -> None:
    stream = await b.stream(retention="interest")
    one, other = await stream.consumer(), await stream.consumer()
    await stream.fill("a", "b")
    await one.fetch(2)
    assert (await stream.state())["messages"] == 2
    await other.fetch(1)

    async def gone() -> bool:
        return bool((await stream.state())["messages"] == 1)

    await eventually(gone, "one message to go")


@rows("interest.none", "with interest retention nobody's message is not kept")
async def interest_none(b: Bench) -> None:
    stream = await b.stream(retention="interest")
    assert (await stream.publish("a"))["seq"] == 1
    assert (await stream.state())["messages"] == 0


@rows("limits.pending", "a stream bounds its consumers' max_ack_pending")
async def limits_pending(b: Bench) -> None:
    stream = await b.stream(consumer_limits={"max_ack_pending": 5})
    assert (await stream.consumer()).created["config"]["max_ack_pending"] == 5
    text = "consumer max ack pending exceeds system limit of 5"
    await stream.consumer_refused(max_ack_pending=6, code=400, err_code=10121, text=text)


@rows("limits.inactive", "a stream gives its consumers an inactive threshold")
async def limits_inactive(b: Bench) -> None:
    stream = await b.stream(consumer_limits={"inactive_threshold": 100 * SECOND})
    assert (await stream.consumer()).created["config"]["inactive_threshold"] == 100 * SECOND


# ---- what is delivered ----------------------------------------------------------------------------------------------

# The configuration, and the payloads that are delivered.
DELIVERED: dict[str, tuple[dict[str, Any], list[bytes]]] = {
    "all": ({}, [b"0", b"1", b"2", b"3", b"4", b"5"]),
    "last": ({"deliver_policy": "last"}, [b"5"]),
    "last.filter": ({"deliver_policy": "last", "filter_subject": "$a"}, [b"3"]),
    "new": ({"deliver_policy": "new"}, []),
    "last-per-subject": (
        {"deliver_policy": "last_per_subject", "filter_subject": "$*"},
        [b"3", b"4", b"5"],
    ),
    "sequence": ({"deliver_policy": "by_start_sequence", "opt_start_seq": 4}, [b"3", b"4", b"5"]),
    "sequence.beyond": ({"deliver_policy": "by_start_sequence", "opt_start_seq": 99}, []),
    "time": (
        {"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"},
        [b"0", b"1", b"2", b"3", b"4", b"5"],
    ),
    "time.behind": ({"deliver_policy": "by_start_time", "opt_start_time": "2099-01-01T00:00:00Z"}, []),
    "filter": ({"filter_subject": "$a"}, [b"0", b"3"]),
    "filter.none": ({"filter_subject": "$z"}, []),
    "filters": ({"filter_subjects": ["$a", "$c"]}, [b"0", b"2", b"3", b"5"]),
}


def _delivered(name: str, config: dict[str, Any], wanted: list[bytes]) -> None:
    @pulls(f"delivered.{name}", f"a consumer with {config or 'nothing said'} delivers {len(wanted)} of six")
    async def delivered(b: Bench) -> None:
        stream = await six(b)
        consumer = await stream.consumer(**_of(stream, config))
        assert consumer.created["num_pending"] == len(wanted)
        assert [message.data for message in await consumer.fetch(10)] == wanted
        assert (await consumer.info())["num_pending"] == 0


for _name, (_given, _payloads) in DELIVERED.items():
    _delivered(_name, _given, _payloads)


@pulls("reply", "a delivery's reply names stream, consumer, count, sequences, time and what is pending")
async def reply(b: Bench) -> None:
    stream = await six(b)
    consumer = await stream.consumer("worker")
    await consumer.fetch(1)
    message = await consumer.next()
    words = message.reply.split(".")
    assert words[:3] == ["$JS", "ACK", stream.name]
    assert (words[3], words[4], words[5], words[6], words[8]) == ("worker", "1", "2", "2", "4")
    assert message.subject == f"{stream.name}.b"


@pulls("headers-only", "headers_only leaves the payload out and says its size")
async def headers_only(b: Bench) -> None:
    stream = await b.stream()
    await stream.publish("a", b"12345", {"K": "v"})
    consumer = await stream.consumer(headers_only=True)
    message = await consumer.next()
    assert message.data == b""
    assert message.headers == {"K": "v", "Nats-Msg-Size": "5"}


@pulls("one", "a request without a body asks for one message")
async def one(b: Bench) -> None:
    stream = await six(b)
    consumer = await stream.consumer()
    for body in (b"", b"1", {"batch": 1}):
        answers = await consumer.ask(body)
        assert (await answers.next()).data
    assert (await consumer.info())["delivered"]["consumer_seq"] == 3


@pulls("no-wait.empty", "a request that does not wait is told 404 when there is nothing")
async def no_wait(b: Bench) -> None:
    consumer = await (await b.stream()).consumer()
    answers = await consumer.ask({"batch": 1, "no_wait": True})
    assert await answers.status() == ("404", "No Messages")


@pulls("no-wait.some", "a request that does not wait gets what is there, then a status")
async def no_wait_some(b: Bench) -> None:
    stream = await six(b)
    consumer = await stream.consumer()
    answers = await consumer.ask({"batch": 10, "no_wait": True})
    assert [(await answers.next()).data for _ in range(6)] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert status_of(await answers.next()) in ("404", "408")


@pulls("expires", "a request ends when it expires, and says what it lacked")
async def expires(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    consumer = await stream.consumer()
    answers = await consumer.ask({"batch": 5, "expires": 200 * MS})
    assert (await answers.next()).data == b"a"
    status = await answers.next()
    headers = status.headers or {}
    assert (headers["Status"], headers["Description"]) == ("408", "Request Timeout")
    assert (headers["Nats-Pending-Messages"], headers["Nats-Pending-Bytes"]) == ("4", "0")


@pulls("waits", "a waiting request gets what comes")
async def waits(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer()
    answers = await consumer.ask({"batch": 2, "expires": 5 * SECOND})
    assert (await consumer.info())["num_waiting"] == 1
    await stream.fill("a", "b")
    assert [(await answers.next()).data for _ in range(2)] == [b"a", b"b"]


@pulls("max-bytes", "a request's max_bytes bounds what it gets")
async def max_bytes(b: Bench) -> None:
    stream = await b.stream()
    for _ in range(5):
        await stream.publish("a", b"x" * 1000)
    consumer = await stream.consumer()
    answers = await consumer.ask({"batch": 5, "max_bytes": 2500, "expires": SECOND})
    got = [await answers.next() for _ in range(3)]
    assert [len(message.data) for message in got[:2]] == [1000, 1000]
    headers = got[2].headers or {}
    assert (headers["Status"], headers["Description"]) == ("409", "Message Size Exceeds MaxBytes")
    assert headers["Nats-Pending-Messages"] == "3"


@pulls("max-bytes.none", "a request for too few bytes is told so at once")
async def max_bytes_none(b: Bench) -> None:
    consumer = await (await six(b)).consumer()
    answers = await consumer.ask({"batch": 1, "max_bytes": 5, "expires": 5 * SECOND})
    assert await answers.status(2) == ("409", "Message Size Exceeds MaxBytes")
    assert (await consumer.next()).data == b"0"


@pulls("heartbeat", "a waiting request is told that the consumer lives")
async def heartbeat(b: Bench) -> None:
    consumer = await (await b.stream()).consumer()
    answers = await consumer.ask({"batch": 1, "expires": SECOND, "idle_heartbeat": 100 * MS})
    for _ in range(2):
        message = await answers.next()
        headers = message.headers or {}
        assert (headers["Status"], headers["Description"]) == ("100", "Idle Heartbeat")
        assert headers["Nats-Last-Consumer"] == "0"


# The body, and the status.
STATUSES: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, str]]] = {
    "batch": ({"max_batch": 2}, {"batch": 3}, ("409", "Exceeded MaxRequestBatch of 2")),
    "expires": (
        {"max_expires": SECOND},
        {"batch": 1, "expires": 2 * SECOND},
        ("409", "Exceeded MaxRequestExpires of 1s"),
    ),
    "bytes": (
        {"max_bytes": 200},
        {"batch": 1, "max_bytes": 201, "expires": SECOND},
        ("409", "Exceeded MaxRequestMaxBytes of 200"),
    ),
    "heartbeat-without-expires": (
        {},
        {"batch": 1, "idle_heartbeat": 100 * MS},
        ("400", "Bad Request - heartbeat value too large"),
    ),
    "heartbeat-too-long": (
        {},
        {"batch": 1, "idle_heartbeat": 150 * MS, "expires": 200 * MS},
        ("400", "Bad Request - heartbeat value too large"),
    ),
}


def _status(name: str, config: dict[str, Any], body: dict[str, Any], wanted: tuple[str, str]) -> None:
    @pulls(f"status.{name}", f"a request is refused with {' '.join(wanted)}")
    async def status(b: Bench) -> None:
        consumer = await (await six(b)).consumer(**config)
        assert await (await consumer.ask(body)).status() == wanted


for _name, (_config, _given, _pair) in STATUSES.items():
    _status(_name, _config, _given, _pair)


@pulls("max-waiting", "more requests than max_waiting are refused")
async def max_waiting(b: Bench) -> None:
    consumer = await (await b.stream()).consumer(max_waiting=1)
    await consumer.ask({"batch": 1, "expires": 5 * SECOND})
    answers = await consumer.ask({"batch": 1, "expires": SECOND})
    assert await answers.status() == ("409", "Exceeded MaxWaiting")


@pulls("max-ack-pending", "no more than max_ack_pending are out at once")
async def max_ack_pending(b: Bench) -> None:
    consumer = await (await six(b)).consumer(max_ack_pending=2)
    answers = await consumer.ask({"batch": 5, "expires": 5 * SECOND})
    got = [await answers.next() for _ in range(2)]
    info = await consumer.info()
    assert (info["num_ack_pending"], info["num_pending"]) == (2, 4)
    await answers.acknowledge(got[0])
    assert (await answers.next()).data == b"2"


@pulls("deleted", "who waits is told that the consumer was deleted")
async def deleted(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer()
    answers = await consumer.ask({"batch": 1, "expires": 5 * SECOND})
    await consumer.info()
    await b.ok(f"CONSUMER.DELETE.{stream.name}.{consumer.name}")
    assert await answers.status() == ("409", "Consumer Deleted")


@pulls("no-consumer", "nobody responds for a consumer that is not there")
async def no_consumer(b: Bench) -> None:
    stream = await b.stream()
    with pytest.raises(NoRespondersError):
        await b.nc.request(f"$JS.API.CONSUMER.MSG.NEXT.{stream.name}.none", b"", timeout=5)


@pulls("purged", "a purge leaves nothing to deliver")
async def purged(b: Bench) -> None:
    stream = await six(b)
    consumer = await stream.consumer()
    await b.ok(f"STREAM.PURGE.{stream.name}")
    assert (await consumer.info())["num_pending"] == 0
    await stream.fill("a")
    message = await consumer.next()
    assert message.reply.split(".")[5] == "7"


# ---- acknowledgements -----------------------------------------------------------------------------------------------


async def _first(b: Bench, **config: Any) -> tuple[ConsumerOfRow, Any, Any]:
    """A consumer that has delivered the first message of six: it, its answers and the message."""
    consumer = await (await six(b)).consumer(**config)
    answers = await consumer.ask({"batch": 1, "expires": 5 * SECOND})
    return consumer, answers, await answers.next()


# The acknowledgement, and what is left: pending, floor of the stream's sequence.
ACKS: dict[str, tuple[bytes, int, int]] = {
    "ack": (b"+ACK", 0, 1),
    "empty": (b"", 0, 1),
    "term": (b"+TERM", 0, 1),
    "term.reason": (b"+TERM broken beyond repair", 0, 1),
    "progress": (b"+WPI", 1, 0),
}


def _ack(name: str, payload: bytes, pending: int, floor: int) -> None:
    @acks(name, f"after {payload!r} {pending} are pending, and the floor is {floor}")
    async def ack(b: Bench) -> None:
        consumer, answers, message = await _first(b)
        await answers.acknowledge(message, payload)
        info = await consumer.info()
        assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (pending, floor)


for _name, (_payload, _pending, _floor) in ACKS.items():
    _ack(_name, _payload, _pending, _floor)


@acks("double", "an acknowledgement with a reply is confirmed by an empty message")
async def double(b: Bench) -> None:
    _, answers, message = await _first(b)
    confirmed = await answers.subscription._conn.request(message.reply, b"+ACK", timeout=5)
    assert (confirmed.data, confirmed.headers) == (b"", None)


@acks("nak", "a message that was refused is delivered again")
async def nak(b: Bench) -> None:
    consumer, answers, message = await _first(b)
    await answers.acknowledge(message, b"-NAK")
    again = await consumer.next()
    assert (again.data, again.reply.split(".")[4]) == (b"0", "2")
    assert (await consumer.info())["num_redelivered"] == 1


@acks("nak.delay", "a message that was refused with a delay is delivered again after it")
async def nak_delay(b: Bench) -> None:
    consumer, answers, message = await _first(b)
    await answers.acknowledge(message, b'-NAK {"delay": 300000000}')
    assert (await consumer.next()).data == b"1"
    answers = await consumer.ask({"batch": 10, "expires": 3 * SECOND})
    got = [(await answers.next()).data for _ in range(5)]
    assert got == [b"2", b"3", b"4", b"5", b"0"]


@acks("next", "+NXT acknowledges and asks for the next message")
async def next_one(b: Bench) -> None:
    consumer, answers, message = await _first(b)
    client = answers.subscription._conn
    await client.publish(message.reply, b"+NXT", reply=answers.subscription.subject)
    assert (await answers.next()).data == b"1"
    assert (await consumer.info())["ack_floor"]["stream_seq"] == 1


@acks("next.batch", "+NXT asks for as many as it says")
async def next_batch(b: Bench) -> None:
    _, answers, message = await _first(b)
    client = answers.subscription._conn
    body = b'+NXT {"batch": 2, "expires": 1000000000}'
    await client.publish(message.reply, body, reply=answers.subscription.subject)
    assert [(await answers.next()).data for _ in range(2)] == [b"1", b"2"]


@acks("all", "with ack all one acknowledgement is for all before it")
async def ack_all(b: Bench) -> None:
    consumer = await (await six(b)).consumer(ack_policy="all")
    answers = await consumer.ask({"batch": 4, "expires": SECOND})
    got = [await answers.next() for _ in range(4)]
    await answers.acknowledge(got[2])
    info = await consumer.info()
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (1, 3)


@acks("none", "with ack none a delivery is its acknowledgement")
async def ack_none(b: Bench) -> None:
    consumer = await (await six(b)).consumer(ack_policy="none")
    await consumer.fetch(3, ack=None)
    info = await consumer.info()
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (0, 3)


@acks("order", "acknowledgements out of order move the floor when the hole closes")
async def ack_order(b: Bench) -> None:
    consumer = await (await six(b)).consumer()
    answers = await consumer.ask({"batch": 3, "expires": SECOND})
    got = [await answers.next() for _ in range(3)]
    await answers.acknowledge(got[1])
    await answers.acknowledge(got[2])
    assert (await consumer.info())["ack_floor"]["stream_seq"] == 0
    await answers.acknowledge(got[0])
    info = await consumer.info()
    assert (info["ack_floor"], info["num_ack_pending"]) == (
        {**info["ack_floor"], "stream_seq": 3, "consumer_seq": 3},
        0,
    )


@acks("wait", "a message that nobody acknowledges in time is delivered again")
async def ack_wait(b: Bench) -> None:
    consumer, _, _ = await _first(b, ack_wait=300 * MS, max_ack_pending=1)
    again = await consumer.next()
    assert (again.data, again.reply.split(".")[4]) == (b"0", "2")


@acks("progress.wait", "work in progress makes the time begin again")
async def progress_wait(b: Bench) -> None:
    _, answers, message = await _first(b, ack_wait=400 * MS)
    for _ in range(4):
        await answers.acknowledge(message, b"+WPI")
    await answers.acknowledge(message)


@acks("max-deliver", "a message is delivered max_deliver times at most")
async def max_deliver(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    consumer = await stream.consumer(max_deliver=2)
    for _ in range(2):
        answers = await consumer.ask({"batch": 1, "expires": SECOND})
        await answers.acknowledge(await answers.next(), b"-NAK")
    answers = await consumer.ask({"batch": 1, "expires": 300 * MS})
    assert (await answers.status())[0] == "408"


@acks("backoff", "back-off says how long each delivery is waited for")
async def backoff(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    consumer = await stream.consumer(backoff=[100 * MS, 200 * MS], max_deliver=3)
    counts = [(await consumer.next()).reply.split(".")[4] for _ in range(3)]
    assert counts == ["1", "2", "3"]


@acks("late", "a late acknowledgement counts")
async def late(b: Bench) -> None:
    consumer, answers, message = await _first(b, ack_wait=200 * MS)
    await consumer.next()
    await answers.acknowledge(message)
    assert (await consumer.info())["ack_floor"]["stream_seq"] == 1
