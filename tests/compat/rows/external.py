"""Mirrors and sources of streams that another API leads to: those of another account, by what it exports."""

from __future__ import annotations

import base64
from typing import Any

from nats.aio.client import Client
from tests.compat.bench import Bench, StreamOfRow, eventually
from tests.compat.table import Group, Settings

_A = {
    "exports": [
        {"service": "$JS.API.CONSUMER.>", "response_type": "stream"},
        {"stream": "dlv.>"},
        {"service": "$JS.FC.>"},
    ]
}
_B = {
    "imports": [
        {"service": {"account": "A", "subject": "$JS.API.CONSUMER.>"}, "to": "JS.A.CONSUMER.>"},
        {"stream": {"account": "A", "subject": "dlv.>"}},
        {"service": {"account": "A", "subject": "$JS.FC.>"}},
    ]
}
_C = {
    "imports": [
        {"service": {"account": "A", "subject": "$JS.API.CONSUMER.>"}, "to": "JS.A.CONSUMER.>"},
    ]
}
_USERS = [{"user": name.lower(), "password": name.lower(), "account": name} for name in ("A", "B", "C")]


def _nats(entry: dict[str, Any], user: str) -> dict[str, Any]:
    return {"jetstream": "enabled", "users": [{"user": user, "password": user}], **entry}


EXTERNAL = Settings(
    "external",
    credentials={"users.json": {"users": _USERS, "accounts": {"A": _A, "B": _B, "C": _C}}},
    nats={"accounts": {"A": _nats(_A, "a"), "B": _nats(_B, "b"), "C": _nats(_C, "c")}},
    login={"user": "b", "password": "b"},
)
rows = Group("external", settings=EXTERNAL)


def _of(name: str, api: str = "JS.A", deliver: str = "dlv.in", **more: Any) -> dict[str, Any]:
    return {"name": name, "external": {"api": api, "deliver": deliver}, **more}


async def _origin(b: Bench, count: int, **config: Any) -> StreamOfRow:
    """A stream of account A with so many messages."""
    a = await b.connect(user="a", password="a")
    found = await b.stream(nc=a, name=b.name("O"), **config)
    for number in range(count):
        await found.publish(f"m.{number}", b"%d" % number)
    return found


async def _has(stream: StreamOfRow, count: int) -> dict[str, Any]:
    async def is_there() -> Any:
        state = await stream.state()
        return state if state["messages"] >= count else None

    state: dict[str, Any] = await eventually(is_there, f"{count} messages in {stream.name}", 20)
    return state


async def _message(b: Bench, stream: StreamOfRow, seq: int, nc: Client | None = None) -> dict[str, Any]:
    found: dict[str, Any] = (await b.ok(f"STREAM.MSG.GET.{stream.name}", {"seq": seq}, nc=nc))["message"]
    return found


@rows("mirror", "a mirror of another account's stream has its messages under their sequences")
async def mirror(b: Bench) -> None:
    origin = await _origin(b, 20)
    stream = await b.stream(mirror=_of(origin.name))
    state = await _has(stream, 20)
    assert (state["first_seq"], state["last_seq"]) == (1, 20)
    found = await _message(b, stream, 7)
    assert (found["subject"], base64.b64decode(found["data"])) == (f"{origin.name}.m.6", b"6")
    assert "hdrs" not in found


@rows(
    "source",
    "a source of another account's stream takes its messages in order, and says where they come from",
)
async def source(b: Bench) -> None:
    origin = await _origin(b, 20)
    stream = await b.stream(sources=[_of(origin.name)])
    await _has(stream, 20)
    found = await _message(b, stream, 7)
    assert base64.b64decode(found["data"]) == b"6"
    header = base64.b64decode(found["hdrs"]).decode()
    value = header.split("Nats-Stream-Source: ")[1].split("\r\n")[0].split(" ")
    name, _, hashed = value[0].partition(":")
    assert (name, len(hashed)) == (origin.name, 8)
    assert value[1:5] == ["7", ">", ">", f"{origin.name}.m.6"]


@rows("goes-on", "what is published later comes as well")
async def goes_on(b: Bench) -> None:
    origin = await _origin(b, 3)
    stream = await b.stream(sources=[_of(origin.name)])
    await _has(stream, 3)
    for number in range(50):
        await origin.publish(f"later.{number}")
    assert (await _has(stream, 53))["last_seq"] == 53


@rows("filter", "a filter says which messages are taken")
async def filtered(b: Bench) -> None:
    origin = await _origin(b, 5)
    stream = await b.stream(sources=[_of(origin.name, filter_subject=f"{origin.name}.m.3")])
    await _has(stream, 1)
    assert base64.b64decode((await _message(b, stream, 1))["data"]) == b"3"
    (told,) = (await stream.info())["sources"]
    assert told["filter_subject"] == f"{origin.name}.m.3"
    assert told["seq"] == 4


@rows("transform", "a transform names the messages anew")
async def transform(b: Bench) -> None:
    origin = await _origin(b, 3)
    name = b.name("T")
    stream = await b.stream(
        sources=[_of(origin.name, subject_transforms=[{"src": f"{origin.name}.m.*", "dest": f"{name}.$1"}])]
    )
    await _has(stream, 3)
    assert (await _message(b, stream, 2))["subject"] == f"{name}.1"


@rows("start-seq", "a start sequence says where to begin")
async def start_seq(b: Bench) -> None:
    origin = await _origin(b, 10)
    stream = await b.stream(sources=[_of(origin.name, opt_start_seq=8)])
    await _has(stream, 3)
    assert base64.b64decode((await _message(b, stream, 1))["data"]) == b"7"


@rows("shown", "the configuration and the state of an origin name the API and the delivery prefix")
async def shown(b: Bench) -> None:
    origin = await _origin(b, 1)
    stream = await b.stream(mirror=_of(origin.name))
    assert stream.config["mirror"] == {"name": origin.name, "external": {"api": "JS.A", "deliver": "dlv.in"}}
    await _has(stream, 1)
    told = (await stream.info())["mirror"]
    assert told["external"] == {"api": "JS.A", "deliver": "dlv.in"}
    assert told["lag"] == 0


@rows("shown-empty", "an external without a delivery prefix is shown with an empty one")
async def shown_empty(b: Bench) -> None:
    stream = await b.stream(sources=[{"name": "O", "external": {"api": "JS.B"}}])
    assert stream.config["sources"] == [{"name": "O", "external": {"api": "JS.B", "deliver": ""}}]


@rows("missing", "a stream that is not there is waited for, and the state says so")
async def missing(b: Bench) -> None:
    name = b.name("O")
    stream = await b.stream(mirror=_of(name))

    async def says_so() -> bool:
        told = (await stream.info())["mirror"]
        return bool(told.get("error", {}).get("err_code") == 10059)

    await eventually(says_so, "the error", 20)


@rows("same-name", "a mirror may have the name of its origin in the other account")
async def same_name(b: Bench) -> None:
    origin = await _origin(b, 4)
    stream = await b.stream(name=origin.name, mirror=_of(origin.name))
    await _has(stream, 4)


@rows("same-name-origins", "two origins of one name behind other APIs are two")
async def same_name_origins(b: Bench) -> None:
    origin = await _origin(b, 2)
    own = await b.stream(name=origin.name, subjects=[b.name("own")])
    await b.publish(own.config["subjects"][0])
    stream = await b.stream(sources=[_of(origin.name), {"name": origin.name}])
    await _has(stream, 3)


@rows("twice", "the same origin behind the same API twice is refused")
async def twice(b: Bench) -> None:
    await b.stream_refused(
        sources=[_of("O"), _of("O", deliver="dlv.other")],
        code=400,
        err_code=10140,
        text="duplicate source configuration detected",
    )


@rows("not-delivered", "without a delivery prefix that is imported nothing comes from another account")
async def not_delivered(b: Bench) -> None:
    origin = await _origin(b, 2)
    silent = await b.stream(sources=[_of(origin.name, deliver="")])
    c = await b.connect(user="c", password="c")
    other = await b.stream(nc=c, sources=[_of(origin.name)])
    loud = await b.stream(sources=[_of(origin.name)])
    await _has(loud, 2)
    assert (await silent.state())["messages"] == 0
    assert (await other.state())["messages"] == 0


@rows("no-consumers", "the origin shows no consumer for it")
async def no_consumers(b: Bench) -> None:
    origin = await _origin(b, 2)
    stream = await b.stream(sources=[_of(origin.name)])
    await _has(stream, 2)
    assert (await b.ok(f"CONSUMER.NAMES.{origin.name}", nc=origin.nc))["total"] == 0
    assert (await origin.state())["consumer_count"] == 0


@rows("update", "an external source may be added to a stream later")
async def update(b: Bench) -> None:
    origin = await _origin(b, 5)
    stream = await b.stream()
    answer = await stream.update(sources=[_of(origin.name)])
    assert "error" not in answer, answer
    await _has(stream, 5)


@rows("promote", "a mirror of another account's stream may become a stream of its own")
async def promote(b: Bench) -> None:
    origin = await _origin(b, 5)
    stream = await b.stream(mirror=_of(origin.name))
    await _has(stream, 5)
    config = {name: value for name, value in stream.config.items() if name != "mirror"}
    answer = await b.api(f"STREAM.UPDATE.{stream.name}", {**config, "subjects": [f"{stream.name}.>"]})
    assert "error" not in answer, answer
    assert (await stream.publish())["seq"] == 6


def _refused(name: str, title: str, external: dict[str, str], code: int, err_code: int, text: str) -> None:
    async def run(b: Bench) -> None:
        origin = {"name": "O", "external": external}
        await b.stream_refused(mirror=origin, code=code, err_code=err_code, text=text)
        await b.stream_refused(sources=[origin], code=code, err_code=err_code, text=text)

    rows(name, title)(run)


_refused(
    "deliver-wildcard",
    "a delivery prefix with wildcards is refused",
    {"api": "JS.A", "deliver": "a.*"},
    400,
    10024,
    "stream external delivery prefix a.* must not contain wildcards",
)
_refused(
    "deliver-space",
    "a delivery prefix that is no subject is refused",
    {"api": "JS.A", "deliver": "a b"},
    400,
    10024,
    "stream external delivery prefix a b must not contain wildcards",
)
_refused(
    "api-no-subject",
    "an API prefix that is no subject is refused",
    {"api": "a..b", "deliver": "d"},
    500,
    10052,
    'stream external api prefix "a..b" must be a valid subject without wildcards',
)
_refused(
    "api-own",
    "the own API's prefix is refused",
    {"api": "$JS.API", "deliver": "d"},
    400,
    10021,
    "stream external api prefix $JS.API must not overlap with $JS.API",
)


@rows("deliver-overlap", "a delivery prefix that meets the subjects of a local origin is refused")
async def deliver_overlap(b: Bench) -> None:
    name = b.name("d")
    local = await b.stream(subjects=[f"{name}.>"])
    await b.stream_refused(
        sources=[{"name": local.name}, _of("O", deliver=name)],
        code=400,
        err_code=10022,
        text=f"stream external delivery prefix {name} overlaps with stream subject {name}.>",
    )


@rows("unknown-field", "an unknown field of external is refused")
async def unknown_field(b: Bench) -> None:
    answer = await b.api(
        "STREAM.CREATE.X", {"name": "X", "mirror": {"name": "O", "external": {"api": "JS.A", "x": 1}}}
    )
    assert answer["error"]["err_code"] == 10025
