"""Pull consumers: creating and deleting them, the defaults and refusals of their configuration, and lists of them."""

from __future__ import annotations

from typing import Any

from tests.compat.bench import Bench, StreamOfRow, eventually
from tests.compat.six import of, six
from tests.compat.table import SINGLES, Group

rows = Group("consumers")

SECOND = 1_000_000_000

MS = 1_000_000


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
        consumer = await stream.consumer(**of(stream, given))
        config = consumer.created["config"]
        assert {field: config[field] for field in wanted} == of(stream, wanted)
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
    "filter.invalid": ({"filter_subject": "$.>.a"}, 500, 10052, "invalid subject"),
    "filters.invalid": ({"filter_subjects": ["$a", "$..b"]}, 500, 10052, "invalid subject"),
    "metadata": (
        {"metadata": {"a": "m" * 131072}},
        400,
        10135,
        "consumer metadata exceeds maximum size of 128KB",
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
    "start-time.with-seq": (
        {"deliver_policy": "by_start_time", "opt_start_seq": 1, "opt_start_time": "2020-01-01T00:00:00Z"},
        400,
        10094,
        "consumer delivery policy is deliver by start time, but optional start start sequence is also set",
    ),
    "direct": ({"direct": True}, 400, 10090, "consumer direct requires a push based consumer"),
    "unknown-field": ({"foo": 1}, 400, 10025, 'invalid JSON: json: unknown field "foo"'),
}


def _refused(name: str, given: dict[str, Any], code: int, err_code: int, text: str) -> None:
    @rows(f"create.refused.{name}", f"a consumer is refused with {err_code}: {name}")
    async def refused(b: Bench) -> None:
        stream = await b.stream()
        await stream.consumer_refused(**of(stream, given), code=code, err_code=err_code, text=text)


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

TAKEN: dict[str, dict[str, Any]] = {
    "backoff.as-deliveries": {"backoff": [SECOND, 2 * SECOND], "max_deliver": 2},
    "backoff.one": {"backoff": [SECOND], "max_deliver": 1},
    "backoff.many": {"backoff": [SECOND] * 1000},
    "filters.in-common": {"filter_subjects": ["$*.a", "$b.*"]},
    "filters.many": {"filter_subjects": [f"${number}" for number in range(1000)]},
    "max-expires.push": {"deliver_subject": "not.captured", "max_expires": 5},
}


def _taken(name: str, given: dict[str, Any]) -> None:
    @rows(f"create.taken.{name}", f"a consumer is taken: {name}")
    async def taken(b: Bench) -> None:
        stream = await b.stream()
        config = of(stream, given)
        consumer = await stream.consumer(**config)
        assert {field: consumer.created["config"][field] for field in config} == config


for _name, _given in TAKEN.items():
    _taken(_name, _given)


@rows("filters.in-common", "a message that two filters of a consumer match is delivered once and counts once")
async def filters_in_common(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a.x", "b.a", "c.a", "b.c", "c.c")
    consumer = await stream.consumer(filter_subjects=of(stream, {"f": ["$*.a", "$b.*"]})["f"])
    assert (await consumer.info())["num_pending"] == 3
    subjects = [(await consumer.next()).subject.removeprefix(f"{stream.name}.") for _ in range(3)]
    assert subjects == ["b.a", "c.a", "b.c"]
    assert (await consumer.info())["num_pending"] == 0


@rows("create.replicas-alone", "a server alone makes no replicas of a consumer", on=SINGLES)
async def replicas_alone(b: Bench) -> None:
    stream = await b.stream()
    text = "replicas > 1 not supported in non-clustered mode"
    for replicas in (2, 3, 6):
        await stream.consumer_refused(num_replicas=replicas, code=500, err_code=10074, text=text)


@rows("step-down.alone", "a server alone has nobody to hand a stream's leadership to", on=SINGLES)
async def step_down_alone(b: Bench) -> None:
    stream = await b.stream()
    text = "JetStream clustering support required"
    await b.refused(f"STREAM.LEADER.STEPDOWN.{stream.name}", code=503, err_code=10010, text=text)


@rows("create.names", "the name in the subject counts, whatever name the configuration has")
async def create_names(b: Bench) -> None:
    stream = await b.stream()
    for number, name in enumerate(("other", "a.b", "a*", "n" * 256)):
        for call, config in (
            (f"CONSUMER.CREATE.{stream.name}.k{number}", {"name": name}),
            (f"CONSUMER.CREATE.{stream.name}.d{number}", {"name": name, "durable_name": f"d{number}"}),
            (
                f"CONSUMER.DURABLE.CREATE.{stream.name}.e{number}",
                {"name": name, "durable_name": f"e{number}"},
            ),
        ):
            answer = await b.ok(call, {"stream_name": stream.name, "config": config})
            assert answer["name"] == answer["config"]["name"] == call.rpartition(".")[2]


@rows("create.names.durable", "a durable name has to be the subject's, whatever the name is")
async def create_names_durable(b: Bench) -> None:
    stream = await b.stream()
    text = "consumer name in subject does not match durable name in request"
    for config in (
        {"durable_name": "d"},
        {"durable_name": "d", "name": "c"},
        {"durable_name": "d", "name": "d"},
    ):
        await b.refused(
            f"CONSUMER.CREATE.{stream.name}.c",
            {"stream_name": stream.name, "config": config},
            code=400,
            err_code=10017,
            text=text,
        )


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


@rows(
    "create.undefined",
    "a deliver policy that is said to be undefined is all, and a null in metadata an empty text",
)
async def create_undefined(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer(deliver_policy="undefined", metadata={"a": None})
    assert consumer.created["config"]["deliver_policy"] == "all"
    assert consumer.created["config"]["metadata"]["a"] == ""


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
