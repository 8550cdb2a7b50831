"""Sources: what is taken of them, in what order, and with what headers."""

from __future__ import annotations

from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError
from tests.compat.bench import Bench, StreamOfRow, eventually
from tests.compat.stored import headers_of, messages_of, until
from tests.compat.table import CLUSTERS, Group

rows = Group("origins")


@rows("source", "a source's messages are appended, with where they come from")
async def source(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    stream = await b.stream(sources=[{"name": origin.name}])
    await until(stream, 2, 2)
    assert [found[1:] for found in await messages_of(stream)] == [
        found[1:] for found in await messages_of(origin)
    ]
    header = (await headers_of(stream, 2))["Nats-Stream-Source"].split(" ")
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
    await until(stream, 1)
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
    await until(stream, 3, 3)
    found = {payload for _, _, payload in await messages_of(stream)}
    assert found == {b"a", b"b", b"c"}


@rows("source.order", "a source's messages come in their order")
async def source_order(b: Bench) -> None:
    origin = await b.stream()
    stream = await b.stream(sources=[{"name": origin.name}])
    wanted = [str(number) for number in range(40)]
    await origin.fill(*wanted)
    await until(stream, 40, 40)
    assert [payload.decode() for _, _, payload in await messages_of(stream)] == wanted


@rows("source.filters", "one origin twice, by two filters")
async def source_filters(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b", "c")
    stream = await b.stream(
        sources=[{"name": origin.name, "filter_subject": f"{origin.name}.{suffix}"} for suffix in "ab"]
    )
    await until(stream, 2)
    assert {payload for _, _, payload in await messages_of(stream)} == {b"a", b"b"}


@rows("source.transforms", "a source's transforms say what is taken and under which subject")
async def source_transforms(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b", "c")
    transforms = [
        {"src": f"{origin.name}.a", "dest": "moved.a"},
        {"src": f"{origin.name}.b", "dest": ""},
    ]
    stream = await b.stream(sources=[{"name": origin.name, "subject_transforms": transforms}])
    await until(stream, 2)
    assert [subject for _, subject, _ in await messages_of(stream)] == ["moved.a", f"{origin.name}.b"]
    value = (await headers_of(stream, 1))["Nats-Stream-Source"]
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
    await until(stream, 1)
    assert [subject for _, subject, _ in await messages_of(stream)] == ["t.a"]


@rows("source.headers", "headers stay, but for what was expected of the origin")
async def source_headers(b: Bench) -> None:
    origin = await b.stream()
    await origin.publish("a", headers={"K": "v", "Nats-Msg-Id": "1", "Nats-Expected-Stream": origin.name})
    stream = await b.stream(sources=[{"name": origin.name}])
    await until(stream, 1)
    found = await headers_of(stream, 1)
    assert found.pop("Nats-Stream-Source")
    assert found == {"K": "v", "Nats-Msg-Id": "1"}


@rows("source.chain", "over a chain of streams the header names the last one")
async def source_chain(b: Bench) -> None:
    origin = await b.stream()
    one = await b.stream(sources=[{"name": origin.name}])
    two = await b.stream(sources=[{"name": one.name}])
    await origin.fill("a")
    await until(two, 1)
    assert (await headers_of(two, 1))["Nats-Stream-Source"].startswith(f"{one.name} 1 ")


@rows("source.start-seq", "opt_start_seq says where a source begins")
async def source_start_seq(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b", "c")
    stream = await b.stream(sources=[{"name": origin.name, "opt_start_seq": 2}])
    await until(stream, 2)
    assert [payload for _, _, payload in await messages_of(stream)] == [b"b", b"c"]


@rows("source.start-time", "opt_start_time says from which time on a source is taken")
async def source_start_time(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    at = (await origin.state())["last_ts"]
    stream = await b.stream(sources=[{"name": origin.name, "opt_start_time": at}])
    await until(stream, 1)
    assert [payload for _, _, payload in await messages_of(stream)] == [b"b"]


@rows("source.duplicates", "without a duplicate window of its own a stream takes the same Nats-Msg-Id twice")
async def source_duplicates(b: Bench) -> None:
    one, two = await b.stream(), await b.stream()
    await one.publish("a", headers={"Nats-Msg-Id": "x"})
    await two.publish("a", headers={"Nats-Msg-Id": "x"})
    stream = await b.stream(sources=[{"name": one.name}, {"name": two.name}])
    await until(stream, 2)


@rows("source.window", "with a duplicate window it takes it once")
async def source_window(b: Bench) -> None:
    one, two = await b.stream(), await b.stream()
    await one.publish("a", headers={"Nats-Msg-Id": "x"})
    await two.publish("a", headers={"Nats-Msg-Id": "x"})
    stream = await b.stream(sources=[{"name": one.name}, {"name": two.name}], duplicate_window=10_000_000_000)
    await one.fill("z")
    await two.fill("z")
    await until(stream, 3)


@rows("source.rollup", "a roll-up of the origin is one here where that is allowed")
async def source_rollup(b: Bench) -> None:
    origin = await b.stream(allow_rollup_hdrs=True)
    stream = await b.stream(sources=[{"name": origin.name}], allow_rollup_hdrs=True)
    await origin.fill("a", "b")
    await until(stream, 2)
    await origin.publish("a", headers={"Nats-Rollup": "sub"})
    await until(stream, 2, 3)


@rows("source.full", "a stream that discards new messages waits while it is full, and goes on")
async def source_full(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    stream = await b.stream(sources=[{"name": origin.name}], max_msgs=1, discard="new")
    await until(stream, 1, 1)
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
    await until(stream, 1)
    assert "error" not in await stream.update(sources=[{"name": one.name}, {"name": two.name}])
    await until(stream, 2)
    assert "error" not in await stream.update(sources=[{"name": two.name}])
    await two.fill("c")
    await until(stream, 3)
    assert [found["name"] for found in (await stream.info())["sources"]] == [two.name]


@rows("source.update.again", "a source that is taken back goes on where it was")
async def source_update_again(b: Bench) -> None:
    one, two = await b.stream(), await b.stream()
    await one.fill("a")
    stream = await b.stream(sources=[{"name": one.name}, {"name": two.name}])
    await until(stream, 1)
    assert "error" not in await stream.update(sources=[{"name": two.name}])
    await one.fill("b")
    assert "error" not in await stream.update(sources=[{"name": one.name}, {"name": two.name}])
    await until(stream, 2, 2)
    assert [payload for _, _, payload in await messages_of(stream)] == [b"a", b"b"]


@rows("source.purge", "a purge of the stream itself does not bring messages back")
async def source_purge(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    stream = await b.stream(sources=[{"name": origin.name}])
    await until(stream, 2)
    await b.ok(f"STREAM.PURGE.{stream.name}")
    await origin.fill("c")
    await until(stream, 1, 3)


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
    await until(stream, 1)
    assert (await origin.state())["consumer_count"] == 0
    assert (await b.ok(f"CONSUMER.NAMES.{origin.name}"))["total"] == 0


@rows("source.work-queue", "what a source takes of a work queue goes from there")
async def source_work_queue(b: Bench) -> None:
    origin = await b.stream(retention="workqueue")
    await origin.fill("a", "b", "a")
    stream = await b.stream(sources=[{"name": origin.name, "filter_subject": f"{origin.name}.a"}])
    await until(stream, 2)
    await origin.fill("a")
    await until(stream, 3)

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
    assert (await messages_of(stream))[0][2] == b"a"

    async def gone() -> bool:
        return bool((await origin.state())["messages"] == 0)

    await eventually(gone, "the origin to hold nothing", 20)


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
        await _step_down(stepping)
    for taking in (copy, stream):
        await until(taking, len(wanted), len(wanted))
        assert [payload.decode() for _, _, payload in await messages_of(taking)] == wanted


async def _step_down(stream: StreamOfRow) -> None:
    """Asked again where nobody can take over at the moment, as a person would."""

    async def stepped() -> bool:
        answer = await stream.bench.api(f"STREAM.LEADER.STEPDOWN.{stream.name}")
        assert answer.get("error", {}).get("err_code", 10005) == 10005, answer
        return "error" not in answer

    await eventually(stepped, "a leader that steps down", 20)


async def _publish_until_stored(stream: StreamOfRow, payload: str) -> None:
    """Again and again, as publishers do while there is no leader; stored once by its id."""

    async def stored() -> bool:
        try:
            answer = await stream.publish("a", payload.encode(), headers={"Nats-Msg-Id": payload})
        except (NoRespondersError, NatsTimeoutError):
            return False
        return "error" not in answer

    await eventually(stored, f"an acknowledgement of {payload}", 20)
