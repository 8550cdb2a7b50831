"""Mirrors: what they have of their origin, and what they are themselves."""

from __future__ import annotations

from typing import Any

from nats.errors import NoRespondersError
from tests.compat.bench import Bench, eventually
from tests.compat.stored import headers_of, messages_of, until
from tests.compat.table import Group

rows = Group("origins")


@rows("mirror", "a mirror has the messages of its origin, under their sequences, subjects and times")
async def mirror(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    copy = await b.stream(mirror={"name": origin.name})
    await origin.fill("c")
    state = await until(copy, 3, 3)
    assert await messages_of(copy) == await messages_of(origin)
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
    await until(copy, 1)
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
    await until(copy, 4, 105)
    info = await copy.info({"deleted_details": True})
    assert (info["state"]["first_seq"], info["state"]["num_deleted"]) == (100, 2)
    assert info["state"]["deleted"] == [102, 103]
    assert [seq for seq, _, _ in await messages_of(copy)] == [100, 101, 104, 105]


@rows("mirror.long-gap", "a long stretch that the origin purged is skipped")
async def mirror_long_gap(b: Bench) -> None:
    origin = await b.stream()
    copy = await b.stream(mirror={"name": origin.name, "filter_subject": f"{origin.name}.keep"})
    await origin.fill("keep", *["other"] * 150, "keep", *["other"] * 3, "keep")
    state = await until(copy, 3, 156)
    assert state["num_deleted"] == 153
    assert [seq for seq, _, _ in await messages_of(copy)] == [1, 152, 156]
    reader = await copy.consumer()
    assert [int(found.metadata.sequence.stream) for found in await reader.fetch(5)] == [1, 152, 156]


@rows("mirror.purge", "a purge of the origin leaves the mirror's messages")
async def mirror_purge(b: Bench) -> None:
    origin = await b.stream()
    copy = await b.stream(mirror={"name": origin.name})
    await origin.fill("a", "b")
    await until(copy, 2)
    await b.ok(f"STREAM.PURGE.{origin.name}")
    await origin.fill("c")
    await until(copy, 3, 3)


@rows("mirror.empty-origin", "a mirror of a purged origin begins where the origin goes on")
async def mirror_empty_origin(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    await b.ok(f"STREAM.PURGE.{origin.name}")
    copy = await b.stream(mirror={"name": origin.name})
    await origin.fill("c")
    state = await until(copy, 1, 3)
    assert state["first_seq"] == 3


@rows("mirror.start-seq", "opt_start_seq says where a mirror begins")
async def mirror_start_seq(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b", "c")
    copy = await b.stream(mirror={"name": origin.name, "opt_start_seq": 2})
    state = await until(copy, 2, 3)
    assert state["first_seq"] == 2
    assert copy.config["mirror"]["opt_start_seq"] == 2


@rows("mirror.start-time", "opt_start_time says from which time on a mirror takes messages")
async def mirror_start_time(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    await origin.fill("c")
    at = (await origin.state())["last_ts"]
    copy = await b.stream(mirror={"name": origin.name, "opt_start_time": at})
    await until(copy, 1, 3)


@rows("mirror.filter", "a mirror's filter says which messages are taken")
async def mirror_filter(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b", "a", "b")
    copy = await b.stream(mirror={"name": origin.name, "filter_subject": f"{origin.name}.b"})
    await until(copy, 2, 4)
    assert [seq for seq, _, _ in await messages_of(copy)] == [2, 4]
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
    await until(copy, 2, 2)
    assert [subject for _, subject, _ in await messages_of(copy)] == ["moved.a", f"{origin.name}.b"]
    assert (await copy.info())["mirror"]["subject_transforms"] == transforms


@rows("mirror.subject-transform", "the stream's own transform is about mirrored messages as well")
async def mirror_subject_transform(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a")
    copy = await b.stream(
        mirror={"name": origin.name}, subject_transform={"src": f"{origin.name}.>", "dest": "t.>"}
    )
    await until(copy, 1)
    assert [subject for _, subject, _ in await messages_of(copy)] == ["t.a"]


@rows("mirror.headers", "a mirrored message keeps its headers, but not what was expected of the origin")
async def mirror_headers(b: Bench) -> None:
    origin = await b.stream()
    await origin.publish("a", headers={"K": "v", "Nats-Msg-Id": "1", "Nats-Expected-Stream": origin.name})
    copy = await b.stream(mirror={"name": origin.name})
    await until(copy, 1)
    assert await headers_of(copy, 1) == {"K": "v", "Nats-Msg-Id": "1"}


@rows("mirror.rollup", "a roll-up of the origin is one in the mirror where that allows it")
async def mirror_rollup(b: Bench) -> None:
    origin = await b.stream(allow_rollup_hdrs=True)
    copy = await b.stream(mirror={"name": origin.name}, allow_rollup_hdrs=True)
    other = await b.stream(mirror={"name": origin.name})
    await origin.fill("a", "b")
    await until(copy, 2)
    await until(other, 2)
    await origin.publish("a", headers={"Nats-Rollup": "sub"})
    await until(copy, 2, 3)
    await until(other, 3, 3)


@rows("mirror.limits", "a mirror's own limits count")
async def mirror_limits(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill(*"abcde")
    copy = await b.stream(mirror={"name": origin.name}, max_msgs=2)
    state = await until(copy, 2, 5)
    assert state["first_seq"] == 4


@rows("mirror.full", "a mirror that discards new messages waits while it is full")
async def mirror_full(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    copy = await b.stream(mirror={"name": origin.name}, max_msgs=1, discard="new")
    state = await until(copy, 1, 1)
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
    await until(copy, 2)
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
    await until(two, 2, 2)
    assert await messages_of(two) == await messages_of(origin)


@rows("mirror.consumer", "consumers read a mirror as any stream, and what they do leaves the origin alone")
async def mirror_consumer(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    copy = await b.stream(mirror={"name": origin.name}, retention="workqueue")
    await until(copy, 2)
    reader = await copy.consumer()
    assert len(await reader.fetch(2)) == 2
    await until(copy, 0)
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


@rows("mirror.work-queue", "a work queue may have a mirror")
async def mirror_work_queue(b: Bench) -> None:
    origin = await b.stream(retention="workqueue")
    await origin.fill("a", "b")
    copy = await b.stream(mirror={"name": origin.name})
    await until(copy, 2, 2)
    assert [payload for _, _, payload in await messages_of(copy)] == [b"a", b"b"]


@rows("sources.both-ways", "two streams source each other where filters let nothing come back")
async def both_ways(b: Bench) -> None:
    names = b.name(), b.name()
    for mine, other in (names, names[::-1]):
        await b.stream(
            name=mine, subjects=[f"{mine}.>"], sources=[{"name": other, "filter_subject": f"{other}.>"}]
        )
    for name in names:
        await b.publish(f"{name}.a")

    async def all_there() -> bool:
        return [(await b.ok(f"STREAM.INFO.{name}"))["state"]["messages"] for name in names] == [2, 2]

    await eventually(all_there, "each has both messages")


@rows("consumer.invalid", "a consumer to read an origin by that could be none is refused")
async def origin_consumer(b: Bench) -> None:
    asked: list[dict[str, Any]] = [
        {"consumer": {}},
        {"consumer": {"name": "a.b", "deliver_subject": "d"}},
        {"consumer": {"name": "c", "deliver_subject": "d.*"}},
        {"consumer": {"name": "c"}},
        {"consumer": {"name": "c", "deliver_subject": "d"}, "opt_start_seq": 1},
        {"consumer": {"name": "c", "deliver_subject": "d"}, "filter_subject": "a"},
    ]
    for fields in asked:
        origin = {"name": b.name(), **fields}
        text = "stream mirror consumer config is invalid"
        await b.stream_refused(mirror=origin, code=400, err_code=10213, text=text)
        text = "stream source consumer config is invalid"
        await b.stream_refused(sources=[origin], code=400, err_code=10215, text=text)
