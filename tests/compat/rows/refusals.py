"""Of several mistakes the same one is told, and bodies that are no documents are read alike."""

from __future__ import annotations

from typing import Any

from tests.compat.bench import Bench
from tests.compat.table import CLUSTERS, SINGLES, Group, Settings

rows = Group("refusals")

SECOND = 1_000_000_000
NO_CONSUMER_NAME = "consumer name can not contain '.', '*', '>', '\\', '/'"
NO_STREAM_NAME = "stream name is required and can not contain '.', '*', '>', '\\', '/'"
NOT_DURABLE = "consumer expected to be durable but a durable name was not set"
NOT_EPHEMERAL = "consumer expected to be ephemeral but a durable name was set in request"
OTHER_DURABLE = "consumer name in subject does not match durable name in request"
STORE = "error creating store for consumer"


async def told(b: Bench, call: str, body: Any) -> tuple[int, int, str]:
    """Code, err_code and description of a refusal; zeros and nothing for a call that succeeds."""
    error = (await b.api(call, body)).get("error") or {}
    return error.get("code", 0), error.get("err_code", 0), error.get("description", "")


# ---- names --------------------------------------------------------------------------------------------------------


@rows("names.consumers", "a consumer's name that is none, by each call that can make one")
async def consumer_names(b: Bench) -> None:
    stream = await b.stream()

    async def create(call: str, **config: Any) -> tuple[int, int, str]:
        return await told(b, f"CONSUMER.{call}", {"stream_name": stream.name, "config": config})

    s = stream.name
    for name in ("a.b", "a b", "a*", "a>", "*", ">", "."):
        assert await create(f"CREATE.{s}", name=name) == (500, 10052, NO_CONSUMER_NAME), name
        assert await create(f"CREATE.{s}", durable_name=name) == (400, 10020, NOT_EPHEMERAL), name
        assert await create(f"CREATE.{s}", name=name, durable_name=name) == (400, 10020, NOT_EPHEMERAL), name
        assert await create(f"CREATE.{s}.x", durable_name=name) == (400, 10017, OTHER_DURABLE), name
        assert await create(f"DURABLE.CREATE.{s}.x", durable_name=name) == (400, 10017, OTHER_DURABLE), name
    for name in ("a*", "a>", "*", ">"):
        for config in ({}, {"name": name}, {"durable_name": name}):
            assert await create(f"CREATE.{s}.{name}", **config) == (500, 10052, NO_CONSUMER_NAME), name
        found = await create(f"DURABLE.CREATE.{s}.{name}", durable_name=name)
        assert found == (500, 10052, NO_CONSUMER_NAME), name
        assert await create(f"DURABLE.CREATE.{s}.{name}", name=name) == (400, 10018, NOT_DURABLE), name


@rows("names.consumer-paths", "a consumer's name with a path separator")
async def consumer_paths(b: Bench) -> None:
    stream = await b.stream()
    is_path = (400, 10127, "Consumer name can not contain path separators")
    for name in ("a/b", "a\\b"):
        for call, config in (
            (f"CREATE.{stream.name}", {"name": name}),
            (f"CREATE.{stream.name}", {"name": name, "durable_name": name}),
            (f"CREATE.{stream.name}.{name}", {}),
            (f"CREATE.{stream.name}.{name}", {"durable_name": "y"}),
            (f"DURABLE.CREATE.{stream.name}.{name}", {"durable_name": name}),
        ):
            body = {"stream_name": stream.name, "config": config}
            assert await told(b, f"CONSUMER.{call}", body) == is_path, (call, config)
        body = {"stream_name": stream.name, "config": {"durable_name": name}}
        assert await told(b, f"CONSUMER.CREATE.{stream.name}", body) == (400, 10020, NOT_EPHEMERAL)


@rows("names.consumer-length", "a consumer's name has 255 bytes at most")
async def consumer_lengths(b: Bench) -> None:
    stream = await b.stream()
    longest, too_long = "n" * 255, "n" * 256
    too_long_durable = (400, 10102, "consumer name is too long, maximum allowed is 255")
    calls = f"CONSUMER.CREATE.{stream.name}", f"CONSUMER.DURABLE.CREATE.{stream.name}"
    for name, durable, named in (
        (longest, (0, 0, ""), (0, 0, "")),
        (too_long, too_long_durable, (500, 10012, STORE)),
    ):
        for call in calls:
            body = {"stream_name": stream.name, "config": {"durable_name": name}}
            assert await told(b, f"{call}.{name}", body) == durable
            await b.api(f"CONSUMER.DELETE.{stream.name}.{name}")
        body = {"stream_name": stream.name, "config": {"name": name}}
        assert await told(b, f"{calls[0]}.{name}", body) == named
        await b.api(f"CONSUMER.DELETE.{stream.name}.{name}")
        assert await told(b, calls[0], body) == named


@rows(
    "names.streams",
    "a stream's name that is none: a create compares it with the subject first, an update last",
)
async def stream_names(b: Bench) -> None:
    stream = await b.stream()
    differs = (400, 10056, "stream name in subject does not match request")
    is_path = (400, 10128, "Stream name can not contain path separators")
    for name in ("", "a.b", "a/b", "a b", "*"):
        body = {"name": name, "max_age": -1}
        assert await told(b, f"STREAM.CREATE.{stream.name}", body) == differs, name
        assert await told(b, f"STREAM.UPDATE.{stream.name}", body) == (500, 10052, NO_STREAM_NAME), name
    for name in ("a/b", "a\\b"):
        assert await told(b, f"STREAM.CREATE.{name}", {"name": name}) == is_path
        assert await told(b, f"STREAM.UPDATE.{name}", {"name": name}) == (500, 10052, NO_STREAM_NAME)
    negative = (500, 10052, "max age can not be negative")
    assert await told(b, f"STREAM.UPDATE.{stream.name}", {"name": b.name(), "max_age": -1}) == negative
    assert await told(b, f"STREAM.UPDATE.{stream.name}", {"name": b.name()}) == differs


@rows("no-stream", "what is wrong with a request itself is told before that its stream is not there")
async def no_stream(b: Bench) -> None:
    s = b.name()
    gone = (404, 10059, "stream not found")
    bad, not_empty = (400, 10003, "bad request"), (400, 10038, "expected an empty request payload")
    body: Any
    for call, body, wanted in (
        (
            f"CONSUMER.CREATE.{s}",
            {"stream_name": s, "config": {"durable_name": "x"}},
            (400, 10020, NOT_EPHEMERAL),
        ),
        (
            f"CONSUMER.CREATE.{s}.c",
            {"stream_name": s, "config": {"durable_name": "x"}},
            (400, 10017, OTHER_DURABLE),
        ),
        (f"CONSUMER.DURABLE.CREATE.{s}.c", {"stream_name": s, "config": {}}, (400, 10018, NOT_DURABLE)),
        (f"CONSUMER.CREATE.{s}.c", {}, (400, 10056, "stream name in subject does not match request")),
        (f"CONSUMER.CREATE.{s}.c", {"stream_name": s, "config": {"max_expires": 5}}, gone),
        (f"STREAM.MSG.GET.{s}", None, bad),
        (f"STREAM.MSG.GET.{s}", {"seq": 1}, gone),
        (f"STREAM.MSG.DELETE.{s}", None, bad),
        (f"STREAM.SNAPSHOT.{s}", None, bad),
        (f"CONSUMER.INFO.{s}.c", b"x", not_empty),
        (f"CONSUMER.DELETE.{s}.c", b"x", not_empty),
        (f"STREAM.DELETE.{s}", b"x", not_empty),
        (f"STREAM.PURGE.{s}", None, gone),
        (f"STREAM.INFO.{s}", None, gone),
        (f"STREAM.UPDATE.{s}", {"name": s, "max_age": -1}, (500, 10052, "max age can not be negative")),
    ):
        assert await told(b, call, body) == wanted, (call, body)
    for call in (f"STREAM.INFO.{s}", f"STREAM.PURGE.{s}", f"CONSUMER.LIST.{s}", f"CONSUMER.CREATE.{s}.c"):
        assert (await told(b, call, b"["))[1] == 10025, call


# ---- bodies -------------------------------------------------------------------------------------------------------


@rows("bodies.null", "null for a body says nothing, as no body does")
async def null_bodies(b: Bench) -> None:
    stream = await b.stream()
    s, differs = stream.name, "stream name in subject does not match request"
    consumer = await stream.consumer()
    for call, wanted in (
        (f"STREAM.CREATE.{b.name()}", (400, 10056, differs)),
        (f"STREAM.UPDATE.{s}", (500, 10052, NO_STREAM_NAME)),
        (f"STREAM.MSG.GET.{s}", (400, 10003, "bad request")),
        (f"STREAM.SNAPSHOT.{s}", (400, 10015, "deliver subject not valid")),
        (f"CONSUMER.CREATE.{s}", (400, 10056, differs)),
        (f"CONSUMER.CREATE.{s}.c", (400, 10056, differs)),
        (f"CONSUMER.DURABLE.CREATE.{s}.c", (400, 10056, differs)),
        (f"CONSUMER.UNPIN.{s}.{consumer.name}", (400, 10025, "invalid JSON: consumer group not specified")),
        (f"CONSUMER.RESET.{s}.{consumer.name}", (0, 0, "")),
        (f"STREAM.INFO.{s}", (0, 0, "")),
        (f"CONSUMER.LIST.{s}", (0, 0, "")),
        (f"CONSUMER.INFO.{s}.{consumer.name}", (400, 10038, "expected an empty request payload")),
    ):
        assert await told(b, call, b"null") == wanted, call


@rows("bodies.blank", "a body of blanks is not an empty one")
async def blank_bodies(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer()
    not_empty = (400, 10038, "expected an empty request payload")
    for call in (f"CONSUMER.INFO.{stream.name}.{consumer.name}", f"STREAM.DELETE.{stream.name}"):
        assert await told(b, call, b" ") == not_empty
    assert await told(b, f"CONSUMER.INFO.{stream.name}.{consumer.name}", b" { } ") == (0, 0, "")
    assert await told(b, f"STREAM.SNAPSHOT.{stream.name}", b" ") == (400, 10015, "deliver subject not valid")
    assert (await told(b, f"CONSUMER.RESET.{stream.name}.{consumer.name}", b" "))[1] == 10025


@rows("bodies.no-object", "a body of another kind is refused where one is needed, and passed over elsewhere")
async def no_objects(b: Bench) -> None:
    stream = await b.stream()
    s = stream.name
    consumer = await stream.consumer()
    needing = (
        "STREAM.CREATE.X",
        f"STREAM.UPDATE.{s}",
        f"STREAM.MSG.GET.{s}",
        f"STREAM.MSG.DELETE.{s}",
        f"STREAM.SNAPSHOT.{s}",
        f"CONSUMER.CREATE.{s}",
        f"CONSUMER.RESET.{s}.{consumer.name}",
    )
    for body in (b"[]", b'"x"', b"1", b"true", b"x", b"{"):
        for call in needing:
            code, err_code, text = await told(b, call, body)
            assert (code, err_code) == (400, 10025), (call, body)
            assert text.startswith("invalid JSON: ")
    for body in (b'"x"', b"1", b"true", b"x"):
        for call in (f"STREAM.INFO.{s}", f"CONSUMER.LIST.{s}", f"STREAM.PURGE.{s}"):
            assert await told(b, call, body) == (0, 0, ""), (call, body)


@rows(
    "bodies.unknown-field", "a field that there is not is told before whose body it is; RESET passes it over"
)
async def unknown_fields(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer()
    unknown = (400, 10025, 'invalid JSON: json: unknown field "foo"')
    for call in (
        f"STREAM.CREATE.{b.name()}",
        f"STREAM.UPDATE.{stream.name}",
        f"CONSUMER.CREATE.{stream.name}.c",
        f"CONSUMER.DURABLE.CREATE.{stream.name}.c",
    ):
        assert await told(b, call, {"foo": 1}) == unknown, call
    assert await told(b, f"CONSUMER.RESET.{stream.name}.{consumer.name}", {"foo": 1}) == (0, 0, "")


@rows("bodies.null-words", "null is none of the words that a field can have, and an empty text is no time")
async def null_words(b: Bench) -> None:
    stream = await b.stream()

    async def refused(call: str, body: Any) -> None:
        assert (await told(b, call, body))[:2] == (400, 10025), body

    name = b.name()
    for field in ("retention", "storage", "discard", "compression", "persist_mode"):
        await refused(f"STREAM.CREATE.{name}", {"name": name, field: None})
    create = f"CONSUMER.CREATE.{stream.name}.c"
    for field in ("deliver_policy", "ack_policy", "replay_policy", "priority_policy"):
        await refused(create, {"stream_name": stream.name, "config": {field: None}})
    for field in ("opt_start_time", "pause_until"):
        await refused(create, {"stream_name": stream.name, "config": {field: ""}})
        body = {"stream_name": stream.name, "config": {field: None}}
        assert await told(b, create, body) == (0, 0, "")
    await refused(create, {"stream_name": stream.name, "config": {}, "action": None})


@rows("bodies.consumer-config", "a consumer without a configuration has the defaults")
async def no_consumer_config(b: Bench) -> None:
    stream = await b.stream()
    for body in ({"stream_name": stream.name}, {"stream_name": stream.name, "config": None}):
        created = await b.ok(f"CONSUMER.CREATE.{stream.name}", body)
        assert (created["config"]["ack_policy"], created["config"]["deliver_policy"]) == ("none", "all")
        call = f"CONSUMER.DURABLE.CREATE.{stream.name}.c"
        assert await told(b, call, body) == (400, 10018, NOT_DURABLE)


@rows(
    "alone",
    "what only a cluster can do is refused by a server alone, whatever it is about and whatever it says",
    on=SINGLES,
)
async def alone(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer()
    wanted = (503, 10010, "JetStream clustering support required")
    for call in (
        f"STREAM.PEER.REMOVE.{stream.name}",
        f"STREAM.LEADER.STEPDOWN.{stream.name}",
        f"CONSUMER.LEADER.STEPDOWN.{stream.name}.{consumer.name}",
        f"CONSUMER.LEADER.STEPDOWN.{stream.name}.nobody",
        "STREAM.PEER.REMOVE.nothing",
        "STREAM.LEADER.STEPDOWN.nothing",
        "CONSUMER.LEADER.STEPDOWN.nothing.nobody",
    ):
        bodies: tuple[Any, ...] = (
            None,
            {},
            {"peer": "east-0"},
            {"placement": {"preferred": "x"}},
            b"[",
            b"x",
        )
        for body in (*bodies, {"placement": {"cluster": "x"}}, {"foo": 1}, b"null", b" "):
            assert await told(b, call, body) == wanted, (call, body)


@rows("cluster", "what is wrong with calls that only a cluster carries out", on=CLUSTERS)
async def in_cluster(b: Bench) -> None:
    stream = await b.stream()
    s, nothing = stream.name, b.name()
    bad, no_stream_ = (400, 10003, "bad request"), (404, 10059, "stream not found")
    body: Any
    for call, body, wanted in (
        (f"STREAM.PEER.REMOVE.{s}", None, bad),
        (f"STREAM.PEER.REMOVE.{s}", {}, bad),
        (f"STREAM.PEER.REMOVE.{s}", {"peer": ""}, bad),
        (f"STREAM.PEER.REMOVE.{s}", {"peer": "nobody"}, (400, 10040, "peer not a member")),
        (f"STREAM.PEER.REMOVE.{nothing}", {"peer": "nobody"}, no_stream_),
        (f"STREAM.LEADER.STEPDOWN.{nothing}", None, no_stream_),
        (f"CONSUMER.LEADER.STEPDOWN.{nothing}.c", None, no_stream_),
        (f"CONSUMER.LEADER.STEPDOWN.{s}.c", None, (404, 10014, "consumer not found")),
    ):
        assert await told(b, call, body) == wanted, (call, body)
    for call in (f"STREAM.PEER.REMOVE.{s}", f"STREAM.LEADER.STEPDOWN.{s}"):
        assert (await told(b, call, {"foo": 1}))[1] == 10025
    await stream.update_refused(
        num_replicas=1,
        placement={"tags": ["other"]},
        code=400,
        err_code=10123,
        text="can not move and scale a stream in a single update",
    )
    error = (await stream.update(num_replicas=5))["error"]
    assert (error["code"], error["err_code"]) == (400, 10005)
    assert error["description"].startswith("no suitable peers for placement")


WITHOUT = Settings(
    "without-jetstream",
    credentials={
        "users.json": {
            "users": [
                {"user": "app", "password": "a", "account": "APP"},
                {"user": "none", "password": "n", "account": "NONE"},
            ],
            "accounts": {"NONE": {"jetstream": False}},
        }
    },
    nats={
        "accounts": {
            "APP": {"jetstream": "enabled", "users": [{"user": "app", "password": "a"}]},
            "NONE": {"users": [{"user": "none", "password": "n"}]},
        }
    },
    login={"user": "app", "password": "a"},
)


@rows("not-enabled", "an account without JetStream is told so by every call", settings=WITHOUT)
async def not_enabled(b: Bench) -> None:
    nc = await b.connect(user="none", password="n")
    error = {"code": 503, "err_code": 10039, "description": "JetStream not enabled for account"}
    for call in (
        "INFO",
        "STREAM.NAMES",
        "STREAM.LIST",
        "STREAM.INFO.S",
        "STREAM.CREATE.S",
        "CONSUMER.INFO.S.c",
    ):
        assert (await b.api(call, nc=nc))["error"] == error, call
    assert "error" not in await b.api("INFO")


# ---- configurations -----------------------------------------------------------------------------------------------


@rows(
    "create.sealed-again",
    "a create with a sealed configuration is refused for that, though the stream is there",
)
async def sealed_again(b: Bench) -> None:
    stream = await b.stream()
    await b.refused(
        f"STREAM.CREATE.{stream.name}",
        {**stream.config, "sealed": True},
        code=500,
        err_code=10052,
        text="stream configuration for create can not be sealed",
    )


@rows("create.schedules-discard-new", "a stream with message schedules does not refuse what is new")
async def schedules_discard_new(b: Bench) -> None:
    text = "message scheduling cannot use discard new"
    await b.stream_refused(allow_msg_schedules=True, discard="new", code=500, err_code=10052, text=text)
    stream = await b.stream(allow_msg_schedules=True)
    await stream.update_refused(discard="new", code=500, err_code=10052, text=text)
    assert (await stream.update(sealed=True))["config"]["discard"] == "new"


@rows(
    "create.republish-implicit",
    "all republished as all is what the stream's transform makes of its one subject",
)
async def implicit_republish(b: Bench) -> None:
    name = b.name()
    everything = {"src": ">", "dest": ">"}
    made = f"{name}made.>"
    stream = await b.stream(
        name=name, subject_transform={"src": f"{name}.>", "dest": made}, republish=everything
    )
    assert stream.config["republish"] == {"src": made, "dest": made}
    heard = await b.subscribe(made)
    await stream.fill("a")
    assert (await heard.next_msg(timeout=5)).subject == f"{name}made.a"
    await b.stream_refused(
        republish=everything,
        code=500,
        err_code=10052,
        text="stream configuration for republish destination forms a cycle",
    )


@rows("consumers.direct-durable", "what servers make for themselves is no durable consumer")
async def direct_durable(b: Bench) -> None:
    stream = await b.stream()
    await stream.consumer_refused(
        direct=True,
        deliver_subject=b.subject(),
        code=400,
        err_code=10091,
        text="consumer direct requires an ephemeral consumer",
    )


@rows(
    "consumers.ack-pending",
    "of the limits of server and stream that a max_ack_pending passes the server's is told, also of one that is filled in",
    settings=Settings(
        "few-pending",
        ours={"jetstream": {"maxAckPending": 5}},
        nats={"jetstream": {"limits": {"max_ack_pending": 5}}},
    ),
)
async def ack_pending(b: Bench) -> None:
    for of_stream, asked, told_ in ((3, 6, 5), (3, 4, 3), (100, 101, 5), (100, 0, 5), (0, 6, 5)):
        stream = await b.stream(consumer_limits={"max_ack_pending": of_stream})
        text = f"consumer max ack pending exceeds system limit of {told_}"
        await stream.consumer_refused(max_ack_pending=asked, code=400, err_code=10121, text=text)
    for of_stream, asked, wanted in ((0, 0, 5), (3, 0, 3), (3, -1, -1), (0, 5, 5), (-1, 0, -1)):
        stream = await b.stream(consumer_limits={"max_ack_pending": of_stream})
        created = (await stream.consumer(max_ack_pending=asked)).created
        assert created["config"]["max_ack_pending"] == wanted


@rows(
    "consumers.replicas",
    "consumers of work queues and under interest have all replicas of their stream",
    on=CLUSTERS,
)
async def consumer_replicas(b: Bench) -> None:
    text = "consumer config replicas must match interest retention stream's replicas"
    for retention in ("workqueue", "interest"):
        stream = await b.stream(retention=retention)
        await stream.consumer_refused(num_replicas=1, code=400, err_code=10134, text=text)
        await stream.consumer(num_replicas=b.replicas)
    stream = await b.stream(num_replicas=1)
    text = "consumer config replica count exceeds parent stream"
    await stream.consumer_refused(num_replicas=3, code=400, err_code=10126, text=text)


@rows("consumers.workqueue-beside-all", "a filter beside a consumer of a work queue that has none")
async def beside_all(b: Bench) -> None:
    stream = await b.stream(retention="workqueue")
    await stream.consumer()
    await stream.consumer_refused(
        filter_subject=f"{stream.name}.a",
        code=400,
        err_code=10100,
        text="filtered consumer not unique on workqueue stream",
    )


@rows("consumers.filter-in-subject", "a filter in the subject is the only one that the configuration has")
async def filter_in_subject(b: Bench) -> None:
    stream = await b.stream()
    s = stream.name
    several = (400, 10137, "consumer with multiple subject filters cannot use subject based API")
    differs = (400, 10131, "Consumer create request did not match filtered subject from create subject")
    for config, wanted in (
        ({"filter_subjects": [f"{s}.a", f"{s}.b"]}, several),
        ({"filter_subjects": [f"{s}.a"]}, several),
        ({"filter_subject": f"{s}.b"}, differs),
        ({}, differs),
        ({"filter_subject": f"{s}.a"}, (0, 0, "")),
    ):
        body = {"stream_name": s, "config": config}
        assert await told(b, f"CONSUMER.CREATE.{s}.c.{s}.a", body) == wanted, config


@rows(
    "consumers.max-batch",
    "a server's limit of max_batch is told",
    settings=Settings(
        "small-batches",
        ours={"jetstream": {"maxRequestBatch": 5}},
        nats={"jetstream": {"limits": {"max_request_batch": 5}}},
    ),
)
async def max_batch(b: Bench) -> None:
    stream = await b.stream()
    text = "consumer max request batch exceeds server limit of 5"
    await stream.consumer_refused(max_batch=6, code=400, err_code=10125, text=text)
    assert (await stream.consumer()).created["config"]["max_batch"] == 5


@rows("mirror.subjects-first", "of a mirror without a name that has subjects, the subjects are told")
async def mirror_subjects_first(b: Bench) -> None:
    for mirror in ({}, {"name": "a b"}):
        await b.stream_refused(
            subjects=[b.subject()],
            mirror=mirror,
            code=400,
            err_code=10034,
            text="stream mirrors can not contain subjects",
        )
