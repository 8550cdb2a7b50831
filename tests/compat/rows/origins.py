"""Mirrors and sources: streams whose messages come from other streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError
from tests.compat.bench import Bench, StreamOfRow, eventually
from tests.compat.table import CLUSTERS, Group

rows = Group("origins")


async def _messages(stream: StreamOfRow) -> list[tuple[int, str, bytes]]:
    """(sequence, subject, payload) of all that a stream has."""
    state = await stream.state()
    found: list[tuple[int, str, bytes]] = []
    for seq in range(max(state["first_seq"], 1), state["last_seq"] + 1):
        answer = await stream.bench.api(f"STREAM.MSG.GET.{stream.name}", {"seq": seq})
        if "message" in answer:
            message = await stream.bench.js.get_msg(stream.name, seq)
            found.append((seq, message.subject or "", message.data or b""))
    return found


async def _until(stream: StreamOfRow, messages: int, last_seq: int = 0) -> dict[str, Any]:
    """Its state, once it has that many messages (and that last sequence)."""

    async def there() -> dict[str, Any] | None:
        state = await stream.state()
        is_there = state["messages"] == messages and last_seq in (0, state["last_seq"])
        return state if is_there else None

    found: dict[str, Any] = await eventually(there, f"{messages} messages in {stream.name}", 10)
    return found


async def _headers(stream: StreamOfRow, seq: int) -> dict[str, str]:
    return dict((await stream.bench.js.get_msg(stream.name, seq)).headers or {})


# ---- mirrors ---------------------------------------------------------------------------------------------------------


@rows("mirror", "a mirror has the messages of its origin, under their sequences, subjects and times")
async def mirror(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    copy = await b.stream(mirror={"name": origin.name})
    await origin.fill("c")
    state = await _until(copy, 3, 3)
    assert await _messages(copy) == await _messages(origin)
    theirs = await origin.state()
    assert (state["first_ts"], state["last_ts"]) == (theirs["first_ts"], theirs["last_ts"])


@rows("mirror.config", "a mirror's configuration has neither subjects nor a duplicate window")
async def mirror_config(b: Bench) -> None:
    origin = await b.stream()
    copy = await b.stream(mirror={"name": origin.name})
    assert copy.config["mirror"] == {"name": origin.name}
    assert "subjects" not in copy.config
    assert "duplicate_window" not in copy.config
    assert copy.created["mirror"] == {"name": origin.name, "lag": 0, "active": -1}


@rows("mirror.info", "STREAM.INFO tells the origin, the lag and how long ago it was heard")
async def mirror_info(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a")
    copy = await b.stream(mirror={"name": origin.name})
    await _until(copy, 1)
    found = (await copy.info())["mirror"]
    assert (found["name"], found["lag"]) == (origin.name, 0)
    assert 0 <= found["active"] < 10_000_000_000


@rows("mirror.gaps", "what the origin deleted is not there in the mirror either, and sequences stay")
async def mirror_gaps(b: Bench) -> None:
    origin = await b.stream(first_seq=100)
    await origin.fill(*"abcdef")
    for seq in (102, 103):
        await b.ok(f"STREAM.MSG.DELETE.{origin.name}", {"seq": seq})
    copy = await b.stream(mirror={"name": origin.name})
    await _until(copy, 4, 105)
    info = await copy.info({"deleted_details": True})
    assert (info["state"]["first_seq"], info["state"]["num_deleted"]) == (100, 2)
    assert info["state"]["deleted"] == [102, 103]
    assert [seq for seq, _, _ in await _messages(copy)] == [100, 101, 104, 105]


@rows("mirror.long-gap", "a long stretch that the origin purged is skipped")
async def mirror_long_gap(b: Bench) -> None:
    origin = await b.stream()
    copy = await b.stream(mirror={"name": origin.name, "filter_subject": f"{origin.name}.keep"})
    await origin.fill("keep", *["other"] * 150, "keep", *["other"] * 3, "keep")
    state = await _until(copy, 3, 156)
    assert state["num_deleted"] == 153
    assert [seq for seq, _, _ in await _messages(copy)] == [1, 152, 156]
    reader = await copy.consumer()
    assert [int(found.metadata.sequence.stream) for found in await reader.fetch(5)] == [1, 152, 156]


@rows("mirror.purge", "a purge of the origin leaves the mirror's messages")
async def mirror_purge(b: Bench) -> None:
    origin = await b.stream()
    copy = await b.stream(mirror={"name": origin.name})
    await origin.fill("a", "b")
    await _until(copy, 2)
    await b.ok(f"STREAM.PURGE.{origin.name}")
    await origin.fill("c")
    await _until(copy, 3, 3)


@rows("mirror.empty-origin", "a mirror of a purged origin begins where the origin goes on")
async def mirror_empty_origin(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    await b.ok(f"STREAM.PURGE.{origin.name}")
    copy = await b.stream(mirror={"name": origin.name})
    await origin.fill("c")
    state = await _until(copy, 1, 3)
    assert state["first_seq"] == 3


@rows("mirror.start-seq", "opt_start_seq says where a mirror begins")
async def mirror_start_seq(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b", "c")
    copy = await b.stream(mirror={"name": origin.name, "opt_start_seq": 2})
    state = await _until(copy, 2, 3)
    assert state["first_seq"] == 2
    assert copy.config["mirror"]["opt_start_seq"] == 2


@rows("mirror.start-time", "opt_start_time says from which time on a mirror takes messages")
async def mirror_start_time(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    await origin.fill("c")
    at = (await origin.state())["last_ts"]
    copy = await b.stream(mirror={"name": origin.name, "opt_start_time": at})
    await _until(copy, 1, 3)


@rows("mirror.filter", "a mirror's filter says which messages are taken")
async def mirror_filter(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b", "a", "b")
    copy = await b.stream(mirror={"name": origin.name, "filter_subject": f"{origin.name}.b"})
    await _until(copy, 2, 4)
    assert [seq for seq, _, _ in await _messages(copy)] == [2, 4]
    assert (await copy.info())["mirror"]["filter_subject"] == f"{origin.name}.b"


@rows("mirror.transforms", "a mirror's transforms say what is taken and under which subject")
async def mirror_transforms(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b", "c")
    transforms = [
        {"src": f"{origin.name}.a", "dest": "moved.a"},
        {"src": f"{origin.name}.b", "dest": ""},
    ]
    copy = await b.stream(mirror={"name": origin.name, "subject_transforms": transforms})
    await _until(copy, 2, 2)
    assert [subject for _, subject, _ in await _messages(copy)] == ["moved.a", f"{origin.name}.b"]
    assert (await copy.info())["mirror"]["subject_transforms"] == transforms


@rows("mirror.subject-transform", "the stream's own transform is about mirrored messages as well")
async def mirror_subject_transform(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a")
    copy = await b.stream(
        mirror={"name": origin.name}, subject_transform={"src": f"{origin.name}.>", "dest": "t.>"}
    )
    await _until(copy, 1)
    assert [subject for _, subject, _ in await _messages(copy)] == ["t.a"]


@rows("mirror.headers", "a mirrored message keeps its headers, but not what was expected of the origin")
async def mirror_headers(b: Bench) -> None:
    origin = await b.stream()
    await origin.publish("a", headers={"K": "v", "Nats-Msg-Id": "1", "Nats-Expected-Stream": origin.name})
    copy = await b.stream(mirror={"name": origin.name})
    await _until(copy, 1)
    assert await _headers(copy, 1) == {"K": "v", "Nats-Msg-Id": "1"}


@rows("mirror.rollup", "a roll-up of the origin is one in the mirror where that allows it")
async def mirror_rollup(b: Bench) -> None:
    origin = await b.stream(allow_rollup_hdrs=True)
    copy = await b.stream(mirror={"name": origin.name}, allow_rollup_hdrs=True)
    other = await b.stream(mirror={"name": origin.name})
    await origin.fill("a", "b")
    await _until(copy, 2)
    await _until(other, 2)
    await origin.publish("a", headers={"Nats-Rollup": "sub"})
    await _until(copy, 2, 3)
    await _until(other, 3, 3)


@rows("mirror.limits", "a mirror's own limits count")
async def mirror_limits(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill(*"abcde")
    copy = await b.stream(mirror={"name": origin.name}, max_msgs=2)
    state = await _until(copy, 2, 5)
    assert state["first_seq"] == 4


@rows("mirror.full", "a mirror that discards new messages waits while it is full")
async def mirror_full(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    copy = await b.stream(mirror={"name": origin.name}, max_msgs=1, discard="new")
    state = await _until(copy, 1, 1)
    assert state["messages"] == 1


@rows("mirror.missing", "a mirror of a stream that is not there says so, and takes its messages once it is")
async def mirror_missing(b: Bench) -> None:
    name = b.name()
    copy = await b.stream(mirror={"name": name})

    async def failed() -> Any:
        return (await copy.info())["mirror"].get("error")

    error = await eventually(failed, "an error in the mirror's information")
    assert error == {"code": 404, "err_code": 10059, "description": "stream not found"}


@rows("mirror.late", "a mirror takes the messages of an origin that is made later")
async def mirror_late(b: Bench) -> None:
    name = b.name()
    copy = await b.stream(mirror={"name": name})
    origin = await b.stream(name=name)
    await origin.fill("a")

    async def there() -> bool:
        return bool((await copy.state())["messages"] == 1)

    await eventually(there, "the message in the mirror", 25)


@rows("mirror.no-publish", "nobody publishes to a mirror")
async def mirror_no_publish(b: Bench) -> None:
    origin = await b.stream()
    copy = await b.stream(mirror={"name": origin.name})
    try:
        await b.publish(copy.name)
    except NoRespondersError:
        return
    raise AssertionError("somebody answered")


@rows("mirror.promote", "an update that leaves the mirror out makes it a stream of its own, which goes on")
async def mirror_promote(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    copy = await b.stream(mirror={"name": origin.name})
    await _until(copy, 2)
    config = (await copy.info())["config"]
    del config["mirror"]
    changed = await b.ok(f"STREAM.UPDATE.{copy.name}", {**config, "subjects": [f"{copy.name}.>"]})
    assert "mirror" not in changed["config"]
    assert "mirror" not in changed
    assert (await copy.publish("c"))["seq"] == 3
    await origin.fill("d")
    assert (await copy.state())["last_seq"] == 3


@rows("mirror.promote.window", "a promoted mirror has the default duplicate window")
async def mirror_promote_window(b: Bench) -> None:
    origin = await b.stream()
    copy = await b.stream(mirror={"name": origin.name})
    config = (await copy.info())["config"]
    del config["mirror"]
    changed = await b.ok(f"STREAM.UPDATE.{copy.name}", {**config, "subjects": [f"{copy.name}.>"]})
    assert changed["config"]["duplicate_window"] == 120_000_000_000


@rows("mirror.update", "a mirror's origin can not be changed")
async def mirror_update(b: Bench) -> None:
    origin = await b.stream()
    copy = await b.stream(mirror={"name": origin.name})
    await copy.update_refused(
        mirror={"name": origin.name, "filter_subject": "x"},
        code=400,
        err_code=10055,
        text="stream mirror configuration can not be updated",
    )


@rows("mirror.update.late", "a stream can not become a mirror")
async def mirror_update_late(b: Bench) -> None:
    origin, stream = await b.stream(), await b.stream()
    config = (await stream.info())["config"]
    del config["subjects"]
    await b.refused(
        f"STREAM.UPDATE.{stream.name}",
        {**config, "mirror": {"name": origin.name}},
        code=400,
        err_code=10055,
        text="stream mirror configuration can not be updated",
    )


@rows("mirror.direct", "mirror_direct is what the origin allows")
async def mirror_direct(b: Bench) -> None:
    origin, other = await b.stream(allow_direct=True), await b.stream()
    one = await b.stream(mirror={"name": origin.name})
    two = await b.stream(mirror={"name": other.name}, mirror_direct=True)
    assert (one.config["mirror_direct"], two.config["mirror_direct"]) == (True, False)


@rows("mirror.of-mirror", "a mirror may have a mirror")
async def mirror_of_mirror(b: Bench) -> None:
    origin = await b.stream()
    one = await b.stream(mirror={"name": origin.name})
    two = await b.stream(mirror={"name": one.name})
    await origin.fill("a", "b")
    await _until(two, 2, 2)
    assert await _messages(two) == await _messages(origin)


@rows("mirror.consumer", "consumers read a mirror as any stream, and what they do leaves the origin alone")
async def mirror_consumer(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    copy = await b.stream(mirror={"name": origin.name}, retention="workqueue")
    await _until(copy, 2)
    reader = await copy.consumer()
    assert len(await reader.fetch(2)) == 2
    await _until(copy, 0)
    assert (await origin.state())["messages"] == 2


@rows("mirror.republish", "what is mirrored is republished")
async def mirror_republish(b: Bench) -> None:
    origin = await b.stream()
    copy = await b.stream(mirror={"name": origin.name}, republish={"src": ">", "dest": f"R{origin.name}.>"})
    again = await b.subscribe(f"R{origin.name}.>")
    await origin.fill("a")
    message = await again.next_msg(timeout=5)
    headers = message.headers or {}
    assert (headers["Nats-Stream"], headers["Nats-Sequence"]) == (copy.name, "1")


def _refused(name: str, what: str, code: int, err_code: int, text: str, config: Callable[[str], Any]) -> None:
    @rows(f"refused.{name}", f"refused: {what}")
    async def run(b: Bench) -> None:
        origin = await b.stream(max_msg_size=100)
        await b.stream_refused(code=code, err_code=err_code, text=text, **config(origin.name))


_refused(
    "mirror-subjects",
    "a mirror with subjects",
    400,
    10034,
    "stream mirrors can not contain subjects",
    lambda o: {"mirror": {"name": o}, "subjects": ["x.y"]},
)
_refused(
    "mirror-sources",
    "a mirror with sources",
    400,
    10031,
    "stream mirrors can not also contain other sources",
    lambda o: {"mirror": {"name": o}, "sources": [{"name": o}]},
)
_refused(
    "mirror-first",
    "a mirror with a first sequence",
    400,
    10143,
    "stream mirrors can not have first sequence configured",
    lambda o: {"mirror": {"name": o}, "first_seq": 5},
)
_refused(
    "mirror-name",
    "a mirror of no name",
    400,
    10142,
    "mirrored stream name is invalid",
    lambda o: {"mirror": {"name": ""}},
)
_refused(
    "mirror-self",
    "a mirror of itself",
    500,
    10052,
    "detected cycle",
    lambda o: {"name": f"{o}self", "mirror": {"name": f"{o}self"}},
)
_refused(
    "mirror-filter",
    "a mirror's filter that is none",
    500,
    10049,
    "subject filter 'o..1' for the mirror invalid subject",
    lambda o: {"mirror": {"name": o, "filter_subject": "o..1"}},
)
_refused(
    "mirror-both",
    "a mirror's filter beside transforms",
    400,
    10150,
    "mirror with multiple subject transforms cannot also have a single subject filter",
    lambda o: {
        "mirror": {"name": o, "filter_subject": "a", "subject_transforms": [{"src": "a", "dest": "b"}]}
    },
)
_refused(
    "mirror-overlap",
    "a mirror's transforms that overlap",
    400,
    10152,
    "mirror subject filters can not overlap",
    lambda o: {
        "mirror": {"name": o, "subject_transforms": [{"src": "a", "dest": "b"}, {"src": "*", "dest": "c"}]}
    },
)
_refused(
    "mirror-transform",
    "a mirror's transform that is none",
    400,
    10154,
    "mirror transform: invalid subject",
    lambda o: {"mirror": {"name": o, "subject_transforms": [{"src": "a", "dest": "b.*"}]}},
)
_refused(
    "mirror-transform-source",
    "a mirror's transform of no subject",
    400,
    10151,
    "mirror transform source: invalid subject a..b",
    lambda o: {"mirror": {"name": o, "subject_transforms": [{"src": "a..b", "dest": "b"}]}},
)
_refused(
    "mirror-size",
    "a mirror that takes only smaller messages",
    400,
    10030,
    "stream mirror must have max message size >= source",
    lambda o: {"mirror": {"name": o}, "max_msg_size": 10},
)
_refused(
    "mirror-direct",
    "mirror_direct without a mirror",
    500,
    10052,
    "stream has no mirror but does have mirror direct",
    lambda o: {"subjects": [f"{o}x"], "mirror_direct": True},
)
_refused(
    "external-api",
    "an external prefix with wildcards",
    500,
    10052,
    'stream external api prefix "foo.>" must be a valid subject without wildcards',
    lambda o: {"mirror": {"name": o, "external": {"api": "foo.>"}}},
)
_refused(
    "external-own",
    "an external prefix that is the own one",
    400,
    10021,
    "stream external api prefix $JS.API must not overlap with $JS.API",
    lambda o: {"mirror": {"name": o, "external": {"api": "$JS.API"}}},
)
_refused(
    "source-name",
    "a source of no name",
    400,
    10141,
    "sourced stream name is invalid",
    lambda o: {"sources": [{"name": "a.b"}]},
)
_refused(
    "source-self",
    "a source that is the stream itself",
    500,
    10052,
    "detected cycle",
    lambda o: {"name": f"{o}self", "sources": [{"name": f"{o}self"}]},
)
_refused(
    "source-twice",
    "the same source twice",
    400,
    10140,
    "duplicate source configuration detected",
    lambda o: {"sources": [{"name": o}, {"name": o}]},
)
_refused(
    "source-filter",
    "a source's filter that is none",
    500,
    10049,
    "subject filter 'o..1' for the source: invalid subject",
    lambda o: {"sources": [{"name": o, "filter_subject": "o..1"}]},
)
_refused(
    "source-both",
    "a source's filter beside transforms",
    400,
    10144,
    "source with multiple subject transforms cannot also have a single subject filter",
    lambda o: {
        "sources": [{"name": o, "filter_subject": "a", "subject_transforms": [{"src": "a", "dest": "b"}]}]
    },
)
_refused(
    "source-transform",
    "a source's transform that is none",
    400,
    10146,
    "source transform: invalid subject",
    lambda o: {"sources": [{"name": o, "subject_transforms": [{"src": "a", "dest": "b.*"}]}]},
)
_refused(
    "source-transform-source",
    "a source's transform of no subject",
    400,
    10145,
    "source transform source: invalid subject a..b",
    lambda o: {"sources": [{"name": o, "subject_transforms": [{"src": "a..b", "dest": "b"}]}]},
)
_refused(
    "source-overlap",
    "a source's transforms that overlap",
    400,
    10147,
    "source filters can not overlap",
    lambda o: {
        "sources": [{"name": o, "subject_transforms": [{"src": "a", "dest": "b"}, {"src": "*", "dest": "c"}]}]
    },
)
_refused(
    "source-size",
    "a source of larger messages",
    400,
    10046,
    "stream source must have max message size >= target",
    lambda o: {"sources": [{"name": o}], "max_msg_size": 10},
)


_refused(
    "mirror-counter",
    "a mirror that counts",
    400,
    10173,
    "stream mirrors can not also calculate counters",
    lambda o: {"mirror": {"name": o}, "allow_msg_counter": True},
)
_refused(
    "mirror-schedules",
    "a mirror with schedules",
    400,
    10186,
    "stream mirrors can not also schedule messages",
    lambda o: {"mirror": {"name": o}, "allow_msg_schedules": True},
)
_refused(
    "mirror-atomic",
    "a mirror with batches",
    400,
    10198,
    "stream mirrors can not also use atomic publishing",
    lambda o: {"mirror": {"name": o}, "allow_atomic": True},
)
_refused(
    "source-schedules",
    "sources beside schedules",
    400,
    10187,
    "stream source can not also schedule messages",
    lambda o: {"sources": [{"name": o}], "allow_msg_schedules": True},
)


@rows("refused.loop", "refused: streams that are each other's sources")
async def loop(b: Bench) -> None:
    one, two = b.name(), b.name()
    await b.stream(name=one, subjects=[f"{one}.x"], sources=[{"name": two}])
    await b.stream_refused(
        name=two,
        subjects=[f"{two}.x"],
        sources=[{"name": one}],
        code=500,
        err_code=10052,
        text="detected cycle",
    )


# ---- sources ---------------------------------------------------------------------------------------------------------


@rows("source", "a source's messages are appended, with where they come from")
async def source(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    stream = await b.stream(sources=[{"name": origin.name}])
    await _until(stream, 2, 2)
    assert [found[1:] for found in await _messages(stream)] == [
        found[1:] for found in await _messages(origin)
    ]
    header = (await _headers(stream, 2))["Nats-Stream-Source"].split(" ")
    assert header[:5] == [origin.name, "2", ">", ">", f"{origin.name}.b"]
    assert len(header) == 6
    assert len(header[5]) == 8


@rows("source.config", "a stream that has sources and no subjects has no duplicate window")
async def source_config(b: Bench) -> None:
    origin = await b.stream()
    stream = await b.stream(sources=[{"name": origin.name}])
    assert stream.config["sources"] == [{"name": origin.name}]
    assert "subjects" not in stream.config
    assert "duplicate_window" not in stream.config


@rows("source.info", "STREAM.INFO tells each source, its lag and the last sequence that was taken")
async def source_info(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b", "a")
    stream = await b.stream(sources=[{"name": origin.name, "filter_subject": f"{origin.name}.b"}])
    await _until(stream, 1)
    (found,) = (await stream.info())["sources"]
    assert (found["name"], found["lag"], found["seq"]) == (origin.name, 0, 2)
    assert found["filter_subject"] == f"{origin.name}.b"


@rows("source.several", "several sources, and what is published to the stream itself")
async def source_several(b: Bench) -> None:
    one, two = await b.stream(), await b.stream()
    name = b.name()
    stream = await b.stream(
        name=name, subjects=[f"{name}.>"], sources=[{"name": one.name}, {"name": two.name}]
    )
    await one.fill("a")
    await two.fill("b")
    await stream.fill("c")
    await _until(stream, 3, 3)
    found = {payload for _, _, payload in await _messages(stream)}
    assert found == {b"a", b"b", b"c"}


@rows("source.order", "a source's messages come in their order")
async def source_order(b: Bench) -> None:
    origin = await b.stream()
    stream = await b.stream(sources=[{"name": origin.name}])
    wanted = [str(number) for number in range(40)]
    await origin.fill(*wanted)
    await _until(stream, 40, 40)
    assert [payload.decode() for _, _, payload in await _messages(stream)] == wanted


@rows("source.filters", "one origin twice, by two filters")
async def source_filters(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b", "c")
    stream = await b.stream(
        sources=[{"name": origin.name, "filter_subject": f"{origin.name}.{suffix}"} for suffix in "ab"]
    )
    await _until(stream, 2)
    assert {payload for _, _, payload in await _messages(stream)} == {b"a", b"b"}


@rows("source.transforms", "a source's transforms say what is taken and under which subject")
async def source_transforms(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b", "c")
    transforms = [
        {"src": f"{origin.name}.a", "dest": "moved.a"},
        {"src": f"{origin.name}.b", "dest": ""},
    ]
    stream = await b.stream(sources=[{"name": origin.name, "subject_transforms": transforms}])
    await _until(stream, 2)
    assert [subject for _, subject, _ in await _messages(stream)] == ["moved.a", f"{origin.name}.b"]
    value = (await _headers(stream, 1))["Nats-Stream-Source"]
    assert value.startswith(
        f"{origin.name} 1 {origin.name}.a\f{origin.name}.b moved.a\f> {origin.name}.a "
    ), value


@rows("source.subject-transform", "the stream's own transform is about sourced messages as well")
async def source_subject_transform(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a")
    stream = await b.stream(
        sources=[{"name": origin.name}], subject_transform={"src": f"{origin.name}.>", "dest": "t.>"}
    )
    await _until(stream, 1)
    assert [subject for _, subject, _ in await _messages(stream)] == ["t.a"]


@rows("source.headers", "headers stay, but for what was expected of the origin")
async def source_headers(b: Bench) -> None:
    origin = await b.stream()
    await origin.publish("a", headers={"K": "v", "Nats-Msg-Id": "1", "Nats-Expected-Stream": origin.name})
    stream = await b.stream(sources=[{"name": origin.name}])
    await _until(stream, 1)
    found = await _headers(stream, 1)
    assert found.pop("Nats-Stream-Source")
    assert found == {"K": "v", "Nats-Msg-Id": "1"}


@rows("source.chain", "over a chain of streams the header names the last one")
async def source_chain(b: Bench) -> None:
    origin = await b.stream()
    one = await b.stream(sources=[{"name": origin.name}])
    two = await b.stream(sources=[{"name": one.name}])
    await origin.fill("a")
    await _until(two, 1)
    assert (await _headers(two, 1))["Nats-Stream-Source"].startswith(f"{one.name} 1 ")


@rows("source.start-seq", "opt_start_seq says where a source begins")
async def source_start_seq(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b", "c")
    stream = await b.stream(sources=[{"name": origin.name, "opt_start_seq": 2}])
    await _until(stream, 2)
    assert [payload for _, _, payload in await _messages(stream)] == [b"b", b"c"]


@rows("source.start-time", "opt_start_time says from which time on a source is taken")
async def source_start_time(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    at = (await origin.state())["last_ts"]
    stream = await b.stream(sources=[{"name": origin.name, "opt_start_time": at}])
    await _until(stream, 1)
    assert [payload for _, _, payload in await _messages(stream)] == [b"b"]


@rows("source.duplicates", "without a duplicate window of its own a stream takes the same Nats-Msg-Id twice")
async def source_duplicates(b: Bench) -> None:
    one, two = await b.stream(), await b.stream()
    await one.publish("a", headers={"Nats-Msg-Id": "x"})
    await two.publish("a", headers={"Nats-Msg-Id": "x"})
    stream = await b.stream(sources=[{"name": one.name}, {"name": two.name}])
    await _until(stream, 2)


@rows("source.window", "with a duplicate window it takes it once")
async def source_window(b: Bench) -> None:
    one, two = await b.stream(), await b.stream()
    await one.publish("a", headers={"Nats-Msg-Id": "x"})
    await two.publish("a", headers={"Nats-Msg-Id": "x"})
    stream = await b.stream(sources=[{"name": one.name}, {"name": two.name}], duplicate_window=10_000_000_000)
    await one.fill("z")
    await two.fill("z")
    await _until(stream, 3)


@rows("source.rollup", "a roll-up of the origin is one here where that is allowed")
async def source_rollup(b: Bench) -> None:
    origin = await b.stream(allow_rollup_hdrs=True)
    stream = await b.stream(sources=[{"name": origin.name}], allow_rollup_hdrs=True)
    await origin.fill("a", "b")
    await _until(stream, 2)
    await origin.publish("a", headers={"Nats-Rollup": "sub"})
    await _until(stream, 2, 3)


@rows("source.full", "a stream that discards new messages waits while it is full, and goes on")
async def source_full(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    stream = await b.stream(sources=[{"name": origin.name}], max_msgs=1, discard="new")
    await _until(stream, 1, 1)
    await b.ok(f"STREAM.PURGE.{stream.name}")

    async def there() -> bool:
        return bool((await stream.state())["last_seq"] == 2)

    await eventually(there, "the next message", 20)


@rows("source.too-large", "messages that are too large are passed over")
async def source_too_large(b: Bench) -> None:
    origin = await b.stream()
    await origin.publish("a", b"far too large a payload " * 20)
    stream = await b.stream(sources=[{"name": origin.name}], max_msg_size=250)
    assert (await stream.state())["messages"] == 0


@rows("source.update", "sources can be added and taken away")
async def source_update(b: Bench) -> None:
    one, two = await b.stream(), await b.stream()
    await one.fill("a")
    await two.fill("b")
    stream = await b.stream(sources=[{"name": one.name}])
    await _until(stream, 1)
    assert "error" not in await stream.update(sources=[{"name": one.name}, {"name": two.name}])
    await _until(stream, 2)
    assert "error" not in await stream.update(sources=[{"name": two.name}])
    await two.fill("c")
    await _until(stream, 3)
    assert [found["name"] for found in (await stream.info())["sources"]] == [two.name]


@rows("source.update.again", "a source that is taken back goes on where it was")
async def source_update_again(b: Bench) -> None:
    one, two = await b.stream(), await b.stream()
    await one.fill("a")
    stream = await b.stream(sources=[{"name": one.name}, {"name": two.name}])
    await _until(stream, 1)
    assert "error" not in await stream.update(sources=[{"name": two.name}])
    await one.fill("b")
    assert "error" not in await stream.update(sources=[{"name": one.name}, {"name": two.name}])
    await _until(stream, 2, 2)
    assert [payload for _, _, payload in await _messages(stream)] == [b"a", b"b"]


@rows("source.purge", "a purge of the stream itself does not bring messages back")
async def source_purge(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    stream = await b.stream(sources=[{"name": origin.name}])
    await _until(stream, 2)
    await b.ok(f"STREAM.PURGE.{stream.name}")
    await origin.fill("c")
    await _until(stream, 1, 3)


@rows("source.list", "STREAM.LIST shows sources and mirrors too")
async def source_list(b: Bench) -> None:
    origin = await b.stream()
    stream = await b.stream(sources=[{"name": origin.name}])
    copy = await b.stream(mirror={"name": origin.name})
    found = {one["config"]["name"]: one for one in (await b.ok("STREAM.LIST"))["streams"]}
    assert found[stream.name]["sources"][0]["name"] == origin.name
    assert found[copy.name]["mirror"]["name"] == origin.name


@rows("source.counts", "an origin shows nothing of who takes its messages")
async def source_counts(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a")
    stream = await b.stream(sources=[{"name": origin.name}])
    await _until(stream, 1)
    assert (await origin.state())["consumer_count"] == 0
    assert (await b.ok(f"CONSUMER.NAMES.{origin.name}"))["total"] == 0


@rows("source.work-queue", "what a source takes of a work queue goes from there")
async def source_work_queue(b: Bench) -> None:
    origin = await b.stream(retention="workqueue")
    await origin.fill("a", "b", "a")
    stream = await b.stream(sources=[{"name": origin.name, "filter_subject": f"{origin.name}.a"}])
    await _until(stream, 2)
    await origin.fill("a")
    await _until(stream, 3)

    async def gone() -> bool:
        return bool((await origin.state())["messages"] == 1)

    await eventually(gone, "the queue to hold only what nobody took", 20)


@rows("source.interest", "a stream with interest keeps what a source has not taken, and nothing else")
async def source_interest(b: Bench) -> None:
    origin = await b.stream(retention="interest")
    await origin.fill("before")
    stream = await b.stream(sources=[{"name": origin.name}])

    async def arrives() -> bool:
        await origin.fill("a")
        return bool((await stream.state())["messages"])

    await eventually(arrives, "a message that the source takes", 20)
    assert (await _messages(stream))[0][2] == b"a"

    async def gone() -> bool:
        return bool((await origin.state())["messages"] == 0)

    await eventually(gone, "the origin to hold nothing", 20)


@rows("mirror.work-queue", "a work queue may have a mirror")
async def mirror_work_queue(b: Bench) -> None:
    origin = await b.stream(retention="workqueue")
    await origin.fill("a", "b")
    copy = await b.stream(mirror={"name": origin.name})
    await _until(copy, 2, 2)
    assert [payload for _, _, payload in await _messages(copy)] == [b"a", b"b"]


@rows("mirror.leaders", "a mirror and a source go on while leaders step down", on=CLUSTERS)
async def mirror_leaders(b: Bench) -> None:
    origin = await b.stream()
    copy = await b.stream(mirror={"name": origin.name})
    stream = await b.stream(sources=[{"name": origin.name}])
    wanted: list[str] = []
    for round_number, stepping in enumerate((origin, copy, stream, origin)):
        for number in range(10):
            wanted.append(f"{round_number}-{number}")
            await _publish_until_stored(origin, wanted[-1])
        await b.ok(f"STREAM.LEADER.STEPDOWN.{stepping.name}")
    for taking in (copy, stream):
        await _until(taking, len(wanted), len(wanted))
        assert [payload.decode() for _, _, payload in await _messages(taking)] == wanted


async def _publish_until_stored(stream: StreamOfRow, payload: str) -> None:
    """Again and again, as publishers do while there is no leader; stored once by its id."""

    async def stored() -> bool:
        try:
            answer = await stream.publish("a", payload.encode(), headers={"Nats-Msg-Id": payload})
        except (NoRespondersError, NatsTimeoutError):
            return False
        return "error" not in answer

    await eventually(stored, f"an acknowledgement of {payload}", 20)
