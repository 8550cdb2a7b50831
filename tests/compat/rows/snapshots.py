"""Backups of streams: STREAM.SNAPSHOT and STREAM.RESTORE, and what goes along with them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.errors import KeyNotFoundError
from tests.compat.backups import Backup, restore, take_backup
from tests.compat.bench import Bench, StreamOfRow, eventually
from tests.compat.table import Group

rows = Group("snapshots")


async def _messages(b: Bench, stream: str) -> list[tuple[Any, ...]]:
    """(sequence, subject, payload, headers, time) of all that a stream has."""
    state = (await b.ok(f"STREAM.INFO.{stream}"))["state"]
    found: list[tuple[Any, ...]] = []
    for seq in range(max(state["first_seq"], 1), state["last_seq"] + 1):
        answer = await b.api(f"STREAM.MSG.GET.{stream}", {"seq": seq})
        if "message" in answer:
            message = answer["message"]
            found.append((seq, message["subject"], message.get("data"), message.get("hdrs"), message["time"]))
    return found


async def _state(b: Bench, stream: str) -> dict[str, Any]:
    """Of STREAM.INFO, but for the time of the last message: where that was deleted, it is another one's."""
    state = dict((await b.ok(f"STREAM.INFO.{stream}", {"deleted_details": True}))["state"])
    del state["last_ts"]
    return state


async def _restored(b: Bench, stream: StreamOfRow, backup: Backup, **changes: Any) -> dict[str, Any]:
    """Delete the stream and restore it; the last answer."""
    await b.ok(f"STREAM.DELETE.{stream.name}")
    answer = await restore(b.nc, stream.name, {**backup.config, **changes}, backup.data)
    assert "error" not in answer, answer
    return answer


async def _round_trip(b: Bench, stream: StreamOfRow, **request: Any) -> dict[str, Any]:
    """Whatever the stream has, it has after a backup, a deletion and a restore."""
    before, state = await _messages(b, stream.name), await _state(b, stream.name)
    answer = await _restored(b, stream, await take_backup(b.nc, stream.name, **request))
    assert await _messages(b, stream.name) == before
    assert await _state(b, stream.name) == state
    return answer


# ---- what comes back -------------------------------------------------------------------------------------------------


@rows("round-trip", "a restored stream has the messages it had, under their sequences, subjects and times")
async def round_trip(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b", "a", "c.d")
    answer = await _round_trip(b, stream)
    assert answer["type"] == "io.nats.jetstream.api.v1.stream_create_response"
    assert answer["state"]["messages"] == 4
    assert answer["config"]["subjects"] == [f"{stream.name}.>"]
    assert await stream.publish("next") == {"stream": stream.name, "seq": 5}


@rows("headers", "headers come back as they were, empty payloads too")
async def headers(b: Bench) -> None:
    stream = await b.stream()
    await stream.publish("a", b"x", {"One": "1", "Two": "zwei  2"})
    await stream.publish("b", b"")
    await stream.publish("c", b"", {"Three": "3"})
    await _round_trip(b, stream)


@rows(
    "deleted",
    "sequences that were deleted have no message afterwards, at the beginning, inside and at the end",
)
async def deleted(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill(*"abcdefgh")
    for seq in (1, 4, 5, 8):
        await b.ok(f"STREAM.MSG.DELETE.{stream.name}", {"seq": seq})
    await _round_trip(b, stream)
    state = await stream.state()
    assert (state["first_seq"], state["last_seq"], state["num_deleted"]) == (2, 8, 3)
    assert (await stream.publish("i"))["seq"] == 9


@rows("long-gap", "a long stretch without messages stays one")
async def long_gap(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("keep", *["other"] * 150, "keep")
    await b.ok(f"STREAM.PURGE.{stream.name}", {"filter": f"{stream.name}.other"})
    await _round_trip(b, stream)
    assert (await stream.state())["num_deleted"] == 150


@rows("purged", "a stream whose messages are all gone goes on behind the last of them")
async def purged(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b", "c")
    await b.ok(f"STREAM.PURGE.{stream.name}")
    await _round_trip(b, stream)
    state = await stream.state()
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 4, 3)
    assert (await stream.publish("d"))["seq"] == 4


@rows("empty", "a stream that never had a message can be backed up and restored")
async def empty(b: Bench) -> None:
    stream = await b.stream()
    answer = await _restored(b, stream, await take_backup(b.nc, stream.name))
    assert (answer["state"]["messages"], answer["state"]["last_seq"]) == (0, 0)
    assert (await stream.publish("a"))["seq"] == 1


@rows("first-seq", "a stream that begins at a sequence of its configuration comes back with it")
async def first_seq(b: Bench) -> None:
    stream = await b.stream(first_seq=1000)
    await stream.fill("a", "b")
    await _round_trip(b, stream)
    assert (await stream.publish("c"))["seq"] == 1002


@rows("many-chunks", "a backup of many chunks, restored in chunks of another size")
async def many_chunks(b: Bench) -> None:
    stream = await b.stream()
    for number in range(400):
        await stream.publish(f"n{number % 7}", (f"{number:05d}" * 37).encode()[: 40 + number % 90])
    before = await _messages(b, stream.name)
    backup = await take_backup(b.nc, stream.name, chunk_size=1024)
    assert backup.end == "204"
    await b.ok(f"STREAM.DELETE.{stream.name}")
    answer = await restore(b.nc, stream.name, backup.config, backup.data, chunk_bytes=333)
    assert answer["state"]["messages"] == 400
    assert await _messages(b, stream.name) == before


@rows("last-by-subject", "the last message of a subject is found in a restored stream")
async def last_by_subject(b: Bench) -> None:
    stream = await b.stream(max_msgs_per_subject=2)
    await stream.fill("a", "b", "a", "a", "b")
    await _round_trip(b, stream)
    found = await b.ok(f"STREAM.MSG.GET.{stream.name}", {"last_by_subj": f"{stream.name}.a"})
    assert found["message"]["seq"] == 4
    await stream.fill("a")
    assert (await stream.state())["messages"] == 4


@rows("other-name", "a backup can be restored under another name, beside its stream")
async def other_name(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b")
    backup = await take_backup(b.nc, stream.name)
    other = b.name()
    b.will_delete(other)
    answer = await restore(b.nc, other, {**backup.config, "subjects": [f"{other}.>"]}, backup.data)
    assert (answer["config"]["name"], answer["state"]["messages"]) == (other, 2)
    assert await _messages(b, other) == await _messages(b, stream.name)


@rows("config", "the request's configuration is the stream's: limits that it has are kept to")
async def config(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill(*"abcde")
    backup = await take_backup(b.nc, stream.name)
    answer = await _restored(b, stream, backup, max_msgs=2, subjects=[f"{stream.name}.x.>"])
    assert (answer["config"]["max_msgs"], answer["config"]["subjects"]) == (2, [f"{stream.name}.x.>"])
    state = await stream.state()
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (2, 4, 5)


@rows("max-age", "messages that are too old by the request's configuration go when the stream is back")
async def max_age(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b")
    backup = await take_backup(b.nc, stream.name)
    await asyncio.sleep(0.3)  # Until they are too old.
    await _restored(b, stream, backup, max_age=200_000_000, duplicate_window=200_000_000)

    async def gone() -> bool:
        state = await stream.state()
        return (state["messages"], state["last_seq"]) == (0, 2)

    await eventually(gone, "the old messages to go", 10)


# ---- consumers -------------------------------------------------------------------------------------------------------

_POSITION = ("delivered", "ack_floor", "num_ack_pending", "num_redelivered", "num_pending")


def _position(info: dict[str, Any]) -> dict[str, Any]:
    found = {name: info[name] for name in _POSITION}
    for name in ("delivered", "ack_floor"):
        found[name] = {key: found[name][key] for key in ("consumer_seq", "stream_seq")}
    return found


async def _fetch(b: Bench, stream: StreamOfRow, consumer: str, batch: int) -> list[Any]:
    sub = await b.js.pull_subscribe_bind(consumer, stream.name)
    try:
        return list(await sub.fetch(batch, timeout=2))
    finally:
        await sub.unsubscribe()


@rows("consumers", "consumers come back where they stood, with what waits for an acknowledgement")
async def consumers(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill(*"abcdefgh")
    consumer = await stream.consumer(description="reads", max_ack_pending=10)
    first = await _fetch(b, stream, consumer.name, 5)
    for at in (0, 1, 3):
        await first[at].ack_sync()
    before = await consumer.info()
    await _restored(b, stream, await take_backup(b.nc, stream.name))
    after = await consumer.info()
    assert _position(after) == _position(before)
    assert after["config"]["description"] == "reads"
    assert _position(after)["num_ack_pending"] == 2
    more = await _fetch(b, stream, consumer.name, 3)
    assert [int(found.metadata.sequence.stream) for found in more] == [6, 7, 8]


@rows(
    "consumers.redelivered",
    "what waits for an acknowledgement is delivered again after a restore, and counted on",
)
async def redelivered(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b")
    consumer = await stream.consumer(ack_wait=1_000_000_000)
    await _fetch(b, stream, consumer.name, 2)
    backup = await take_backup(b.nc, stream.name)
    await _restored(b, stream, backup)
    counts: dict[int, int] = {}
    while len(counts) < 2:  # On a slow machine one may be due twice before the other is.
        (found,) = await _fetch(b, stream, consumer.name, 1)
        counts.setdefault(int(found.metadata.sequence.stream), int(found.metadata.num_delivered))
    assert counts == {1: 2, 2: 2}


@rows("consumers.filter", "a consumer's filters and policies come back with it")
async def consumers_filter(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b", "a", "b")
    consumer = await stream.consumer(filter_subject=f"{stream.name}.b", deliver_policy="last")
    before = await consumer.info()
    await _restored(b, stream, await take_backup(b.nc, stream.name))
    after = await consumer.info()
    wanted = ("filter_subject", "deliver_policy", "ack_policy", "durable_name")
    assert [after["config"][name] for name in wanted] == [before["config"][name] for name in wanted]
    assert [int(m.metadata.sequence.stream) for m in await _fetch(b, stream, consumer.name, 1)] == [4]


@rows("consumers.push", "a push consumer goes on to deliver where it stood")
async def consumers_push(b: Bench) -> None:
    stream = await b.stream()
    inbox = await b.subscribe()
    await stream.fill("a", "b")
    await stream.consumer(deliver_subject=inbox.subject, ack_policy="none")
    assert [(await inbox.next_msg(timeout=5)).data for _ in range(2)] == [b"a", b"b"]
    await _restored(b, stream, await take_backup(b.nc, stream.name))
    await stream.fill("c")
    assert (await inbox.next_msg(timeout=5)).data == b"c"


@rows("consumers.none", "no_consumers leaves them out")
async def no_consumers(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    consumer = await stream.consumer()
    await _restored(b, stream, await take_backup(b.nc, stream.name, no_consumers=True))
    assert (await stream.state())["consumer_count"] == 0
    await b.refused(
        f"CONSUMER.INFO.{stream.name}.{consumer.name}", code=404, err_code=10014, text="consumer not found"
    )


# ---- kinds of streams ------------------------------------------------------------------------------------------------


@rows("memory", "a stream in memory is backed up and restored")
async def memory(b: Bench) -> None:
    stream = await b.stream(storage="memory")
    await stream.fill("a", "b", "c")
    await b.ok(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 2})
    await _round_trip(b, stream)


@rows("memory.to-file", "a backup of a stream in memory can become one in files")
async def memory_to_file(b: Bench) -> None:
    stream = await b.stream(storage="memory")
    await stream.fill("a", "b")
    before = await _messages(b, stream.name)
    answer = await _restored(b, stream, await take_backup(b.nc, stream.name), storage="file")
    assert answer["config"]["storage"] == "file"
    assert await _messages(b, stream.name) == before


@rows("workqueue", "a work queue comes back with what nobody has done yet")
async def workqueue(b: Bench) -> None:
    stream = await b.stream(retention="workqueue")
    await stream.fill(*"abcd")
    consumer = await stream.consumer(ack_wait=1_000_000_000)
    taken = await _fetch(b, stream, consumer.name, 3)
    await taken[0].ack_sync()
    await taken[2].ack_sync()
    await _round_trip(b, stream)
    assert [seq for seq, *_ in await _messages(b, stream.name)] == [2, 4]
    done: list[int] = []
    while len(done) < 2:
        for message in await _fetch(b, stream, consumer.name, 2):
            await message.ack_sync()
            done.append(int(message.metadata.sequence.stream))
    assert sorted(done) == [2, 4]
    assert (await stream.state())["messages"] == 0


@rows("interest", "a stream of interest keeps what its consumers wait for")
async def interest(b: Bench) -> None:
    stream = await b.stream(retention="interest")
    consumer = await stream.consumer()
    await stream.fill("a", "b", "c")
    first = await _fetch(b, stream, consumer.name, 1)
    await first[0].ack_sync()
    await _round_trip(b, stream)
    rest = await _fetch(b, stream, consumer.name, 2)
    for message in rest:
        await message.ack_sync()
    assert [message.data for message in rest] == [b"b", b"c"]
    assert (await stream.state())["messages"] == 0


@rows("bucket", "a key-value bucket comes back with its history and its deletions")
async def bucket(b: Bench) -> None:
    name = b.name("KV").replace("_", "-")
    kv = await b.js.create_key_value(bucket=name, history=3, replicas=b.replicas)
    b.will_delete(f"KV_{name}")
    for value in (b"1", b"2", b"3", b"4"):
        await kv.put("k", value)
    await kv.put("gone", b"x")
    await kv.delete("gone")
    backup = await take_backup(b.nc, f"KV_{name}")
    await b.ok(f"STREAM.DELETE.KV_{name}")
    assert "error" not in await restore(b.nc, f"KV_{name}", backup.config, backup.data)
    kv = await b.js.key_value(name)
    assert (await kv.get("k")).value == b"4"
    assert [entry.value for entry in await kv.history("k")] == [b"2", b"3", b"4"]
    try:
        await kv.get("gone")
    except KeyNotFoundError:
        pass
    else:
        raise AssertionError("a deleted key is there again")
    await kv.update("k", b"5", 4)


@rows("objects", "an object store comes back with its objects")
async def objects(b: Bench) -> None:
    name = b.name("OBJ").replace("_", "-")
    store = await b.js.create_object_store(name)
    b.will_delete(f"OBJ_{name}")
    content = bytes(range(256)) * 1200
    await store.put("big", content)
    await store.put("small", b"s")
    await store.delete("small")
    backup = await take_backup(b.nc, f"OBJ_{name}")
    await b.ok(f"STREAM.DELETE.OBJ_{name}")
    assert "error" not in await restore(b.nc, f"OBJ_{name}", backup.config, backup.data)
    store = await b.js.object_store(name)
    assert (await store.get("big")).data == content


@rows("ttl", "times to live go on: a message goes when it is due, one that never expires stays")
async def ttl(b: Bench) -> None:
    stream = await b.stream(allow_msg_ttl=True, max_age=0)
    await stream.publish("a", b"x", {"Nats-TTL": "1"})
    await stream.publish("b", b"y", {"Nats-TTL": "never"})
    await _restored(b, stream, await take_backup(b.nc, stream.name))

    async def gone() -> bool:
        return bool((await stream.state())["messages"] == 1)

    await eventually(gone, "the message to expire", 10)
    assert [subject for _, subject, *_ in await _messages(b, stream.name)] == [f"{stream.name}.b"]


@rows("sources", "a restored stream with sources goes on behind what it had taken")
async def sources(b: Bench) -> None:
    origin = await b.stream()
    await origin.fill("a", "b")
    stream = await b.stream(sources=[{"name": origin.name}])

    async def has(count: int) -> bool:
        return bool((await stream.state())["messages"] == count)

    await eventually(lambda: has(2), "the source's messages", 10)
    await _restored(b, stream, await take_backup(b.nc, stream.name))
    await origin.fill("c")
    await eventually(lambda: has(3), "the source's next message", 10)
    assert [subject.rpartition(".")[2] for _, subject, *_ in await _messages(b, stream.name)] == [
        "a",
        "b",
        "c",
    ]


# ---- how it is sent --------------------------------------------------------------------------------------------------


async def _big(b: Bench) -> StreamOfRow:
    """Whose backup takes some chunks, however well it is packed."""
    stream = await b.stream()
    seed = 1
    for _ in range(20):
        out = bytearray()
        for _ in range(1000):
            seed = seed * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
            out.append(seed >> 56)
        await stream.publish("a", bytes(out))
    return stream


@rows("answer", "STREAM.SNAPSHOT is answered with the configuration and the state")
async def answer(b: Bench) -> None:
    stream = await b.stream(description="kept")
    await stream.fill("a", "b")
    found = (await take_backup(b.nc, stream.name)).answer
    assert found["type"] == "io.nats.jetstream.api.v1.stream_snapshot_response"
    assert found["config"]["description"] == "kept"
    assert (found["state"]["messages"], found["state"]["last_seq"]) == (2, 2)


@rows("small", "what fits into a chunk comes without a reply subject, and ends without a status")
async def small(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    backup = await take_backup(b.nc, stream.name)
    assert (len(backup.chunks), backup.replies, backup.end) == (1, [""], "")


@rows(
    "chunks",
    "full chunks have the size that was asked for, and a reply that says size and number; status 204 ends them",
)
async def chunks(b: Bench) -> None:
    stream = await _big(b)
    backup = await take_backup(b.nc, stream.name, chunk_size=2048)
    assert {len(chunk) for chunk in backup.chunks[:-1]} == {2048}
    assert backup.end == "204"
    assert backup.replies[-1] == ""
    for number, reply in enumerate(backup.replies[:-1], 1):
        tokens = reply.split(".")
        assert tokens[:4] == ["$JS", "SNAPSHOT", "ACK", stream.name]
        assert tokens[5:] == ["2048", str(number)]


@rows("chunks.least", "no chunk is smaller than 1024 bytes, whatever is asked for")
async def chunks_least(b: Bench) -> None:
    stream = await _big(b)
    backup = await take_backup(b.nc, stream.name, chunk_size=10)
    assert {len(chunk) for chunk in backup.chunks[:-1]} == {1024}


@rows("window", "no more chunks come than the window has room for, until one is acknowledged")
async def window(b: Bench) -> None:
    stream = await _big(b)
    inbox = await b.subscribe()
    request = {"deliver_subject": inbox.subject, "chunk_size": 1024, "window_size": 3072}
    await b.ok(f"STREAM.SNAPSHOT.{stream.name}", request)
    got = [await inbox.next_msg(timeout=5) for _ in range(3)]
    try:
        await inbox.next_msg(timeout=0.5)
    except NatsTimeoutError:
        pass
    else:
        raise AssertionError("a fourth chunk came without an acknowledgement")
    await b.nc.publish(got[0].reply)
    assert (await inbox.next_msg(timeout=5)).reply.endswith(".1024.4")


@rows("no-flow", "a receiver that acknowledges nothing for five seconds is told so, and gets no more")
async def no_flow(b: Bench) -> None:
    stream = await _big(b)
    inbox = await b.subscribe()
    request = {"deliver_subject": inbox.subject, "chunk_size": 1024, "window_size": 1024}
    await b.ok(f"STREAM.SNAPSHOT.{stream.name}", request)
    assert len((await inbox.next_msg(timeout=5)).data) == 1024
    end = await inbox.next_msg(timeout=10)
    assert (end.data, dict(end.headers or {})) == (b"", {"Status": "408", "Description": "No Flow Response"})


@rows("no-interest", "when the receiver has gone, the advisory says why the snapshot ended")
async def no_interest(b: Bench) -> None:
    stream = await _big(b)
    events = await b.subscribe(f"$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_COMPLETE.{stream.name}")
    inbox = await b.subscribe()
    request = {"deliver_subject": inbox.subject, "chunk_size": 1024, "window_size": 1024}
    await b.ok(f"STREAM.SNAPSHOT.{stream.name}", request)
    await inbox.next_msg(timeout=5)
    await inbox.unsubscribe()
    assert json.loads((await events.next_msg(timeout=10)).data)["error"] == "no interest"


@rows("advisories", "advisories tell when a snapshot and a restore begin, and when they are over")
async def tells(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b")
    events = await b.subscribe("$JS.EVENT.ADVISORY.STREAM.*." + stream.name)
    backup = await take_backup(b.nc, stream.name)
    await _restored(b, stream, backup)
    wanted = ["snapshot_create", "snapshot_complete", "restore_create", "restore_complete"]
    found: dict[str, dict[str, Any]] = {}
    while len(found) < len(wanted):
        message = await events.next_msg(timeout=5)
        told = json.loads(message.data)
        kind = told["type"].removeprefix("io.nats.jetstream.advisory.v1.")
        if kind in wanted:
            assert message.subject == f"$JS.EVENT.ADVISORY.STREAM.{kind.upper()}.{stream.name}"
            assert told["stream"] == stream.name
            assert told["client"]["acc"]
            found[kind] = told
    assert list(found) == wanted
    assert found["snapshot_create"]["state"]["messages"] == 2
    assert "error" not in found["snapshot_complete"]
    assert found["restore_complete"]["bytes"] == len(backup.data)
    assert found["restore_complete"]["start"] <= found["restore_complete"]["end"]


# ---- what is refused -------------------------------------------------------------------------------------------------


@rows("refused", "STREAM.SNAPSHOT says what is wrong with a request")
async def refused(b: Bench) -> None:
    stream = await b.stream()
    call = f"STREAM.SNAPSHOT.{stream.name}"
    await b.refused(call, code=400, err_code=10003, text="bad request")
    await b.refused(call, {}, code=400, err_code=10003, text="bad request")
    for wrong in ("", "a b", "a.*", "a..b"):
        await b.refused(
            call, {"deliver_subject": wrong}, code=400, err_code=10015, text="deliver subject not valid"
        )
    assert (await b.api(call, b"{no"))["error"]["err_code"] == 10025
    assert (await b.api(call, {"deliver_subject": "a", "more": 1}))["error"]["err_code"] == 10025
    missing = f"STREAM.SNAPSHOT.{b.name()}"
    await b.refused(missing, {"deliver_subject": "a"}, code=404, err_code=10059, text="stream not found")
    await b.refused(missing, {}, code=400, err_code=10003, text="bad request")


@rows("restore.refused", "STREAM.RESTORE says what is wrong with a request")
async def restore_refused(b: Bench) -> None:
    name = b.name()
    call = f"STREAM.RESTORE.{name}"
    await b.refused(call, code=400, err_code=10003, text="bad request")
    await b.refused(call, {}, code=400, err_code=10003, text="bad request")
    await b.refused(
        call,
        {"config": {"name": b.name()}},
        code=400,
        err_code=10056,
        text="stream name in subject does not match request",
    )
    assert (await b.api(call, b"{no"))["error"]["err_code"] == 10025
    assert (await b.api(call, {"config": {"name": name, "retention": "x"}}))["error"]["err_code"] == 10025
    assert (await b.api(call, {"config": {"name": name, "max_age": -1}}))["error"]["err_code"] == 10052


@rows("restore.name-in-use", "a stream that is there is not restored")
async def name_in_use(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    config = {"name": stream.name, "subjects": [f"{stream.name}.>"]}
    await b.refused(
        f"STREAM.RESTORE.{stream.name}",
        {"config": config},
        code=400,
        err_code=10130,
        text="stream name already in use, cannot restore",
    )
    assert (await stream.state())["messages"] == 1


async def _fails(b: Bench, name: str, data: bytes) -> str:
    """The reason why that is not restored."""
    b.will_delete(name)
    answer = await restore(b.nc, name, {"subjects": [f"{name}.>"], "num_replicas": b.replicas}, data)
    assert answer["type"] == "io.nats.jetstream.api.v1.stream_create_response"
    assert (answer["error"]["code"], answer["error"]["err_code"]) == (500, 10062), answer
    found: str = answer["error"]["description"]
    assert found.startswith("restore failed: ")
    return found


@rows("restore.garbage", "what is no backup is refused, and there is no stream afterwards")
async def garbage(b: Bench) -> None:
    name = b.name()
    assert "s2: corrupt input" in await _fails(b, name, b"this is no backup")
    await b.refused(f"STREAM.INFO.{name}", code=404, err_code=10059, text="stream not found")


@rows("restore.nothing", "a restore without any data is refused, and there is no stream afterwards")
async def nothing(b: Bench) -> None:
    name = b.name()
    assert "EOF" in await _fails(b, name, b"")
    await b.refused(f"STREAM.INFO.{name}", code=404, err_code=10059, text="stream not found")


@rows("restore.damaged", "a backup with a changed byte is refused by its check sum")
async def damaged(b: Bench) -> None:
    stream = await b.stream()
    await stream.publish("a", bytes(range(256)))
    data = bytearray((await take_backup(b.nc, stream.name)).data)
    data[15] ^= 0xFF  # In the first frame's check sum.
    assert "crc mismatch" in await _fails(b, b.name(), bytes(data))


@rows("restore.truncated", "a backup that was cut off is refused")
async def truncated(b: Bench) -> None:
    stream = await _big(b)
    data = (await take_backup(b.nc, stream.name)).data
    await _fails(b, b.name(), data[: len(data) - 40])


@rows(
    "restore.consumers-refused",
    "a consumer that could not be created beside those before it ends the restore, which says why",
)
async def consumers_refused(b: Bench) -> None:
    stream = await b.stream()
    for _ in range(2):
        await stream.consumer()
    backup = await take_backup(b.nc, stream.name)
    for changes, why in (
        ({"retention": "workqueue"}, "multiple non-filtered consumers not allowed on workqueue stream"),
        ({"max_consumers": 1}, "maximum consumers limit reached"),
        ({"consumer_limits": {"max_ack_pending": 10}}, "consumer max ack pending exceeds system limit of 10"),
    ):
        name = b.name()
        b.will_delete(name)
        answer = await restore(
            b.nc, name, {**backup.config, "subjects": [f"{name}.>"], **changes}, backup.data
        )
        assert (answer["error"]["code"], answer["error"]["err_code"]) == (500, 10062), answer
        assert answer["error"]["description"].startswith('restore failed: failed to add consumer "'), answer
        assert why in answer["error"]["description"], answer


@rows(
    "restore.two",
    "of two who restore one name one succeeds, and the other is told that the name is in use: at once or at its end",
)
async def two(b: Bench) -> None:
    name, told = b.name(), list[dict[str, Any]]()
    b.will_delete(name)
    stream = await b.stream()
    await stream.fill("a", "b")
    backup = await take_backup(b.nc, stream.name)
    config = {**backup.config, "name": name, "subjects": [f"{name}.>"]}
    begun = [await b.api(f"STREAM.RESTORE.{name}", {"config": config}) for _ in range(2)]
    for part in (backup.data[:20], backup.data[20:], b""):
        for found in begun:
            if "error" in found:
                told.append(found)
            else:
                answer = (await b.nc.request(found["deliver_subject"], part, timeout=10)).data
                told += [json.loads(answer)] if answer else []
    refused = [found["error"] for found in told if "error" in found]
    assert {(found["code"], found["err_code"]) for found in refused} == {(400, 10130)}
    (done,) = [found for found in told if "error" not in found]
    assert (done["config"]["name"], done["state"]["messages"]) == (name, 2)


@rows("restore.again", "after a restore that failed the same stream can be restored at once")
async def again(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b")
    backup = await take_backup(b.nc, stream.name)
    await b.ok(f"STREAM.DELETE.{stream.name}")
    await _fails(b, stream.name, b"no backup")
    answer = await restore(b.nc, stream.name, backup.config, backup.data)
    assert answer["state"]["messages"] == 2


@rows("restore.no-reply", "a chunk without a reply subject ends the restore")
async def no_reply(b: Bench) -> None:
    name = b.name()
    b.will_delete(name)
    config = {"name": name, "subjects": [f"{name}.>"], "num_replicas": b.replicas}
    subject = (await b.ok(f"STREAM.RESTORE.{name}", {"config": config}))["deliver_subject"]
    tokens = subject.split(".")
    assert tokens[:4] == ["$JS", "SNAPSHOT", "RESTORE", name]
    await b.nc.publish(subject, b"chunk")
    await b.nc.flush()

    async def free() -> bool:
        return "error" not in await b.api(f"STREAM.CREATE.{name}", config)

    await eventually(free, "the name to be free", 10)


@rows("restore.stalled", "a restore whose sender says nothing for some seconds ends, and its name is free")
async def stalled(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b")
    backup = await take_backup(b.nc, stream.name)
    name = b.name()
    b.will_delete(name)
    config = {**backup.config, "name": name, "subjects": [f"{name}.>"]}
    subject = (await b.ok(f"STREAM.RESTORE.{name}", {"config": config}))["deliver_subject"]
    await b.nc.request(subject, backup.data[:12], timeout=5)

    async def free() -> bool:
        return "error" not in await b.api(f"STREAM.CREATE.{name}", config)

    await eventually(free, "the name to be free", 15)
    assert (await b.ok(f"STREAM.INFO.{name}"))["state"]["messages"] == 0
