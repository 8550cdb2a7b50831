"""Messages with a time to live of their own, and delete markers."""

from __future__ import annotations

from typing import Any

from tests.compat.bench import Bench, StreamOfRow, eventually
from tests.compat.table import Group

rows = Group("ttl")
SECOND = 1_000_000_000


async def _message(stream: StreamOfRow, seq: int) -> dict[str, Any] | None:
    answer = await stream.bench.api(f"STREAM.MSG.GET.{stream.name}", {"seq": seq}, nc=stream.nc)
    return answer.get("message")


async def _gone(stream: StreamOfRow, seq: int) -> None:
    async def gone() -> bool:
        return await _message(stream, seq) is None

    await eventually(gone, f"message {seq} of {stream.name} to go", 10)


async def _put(stream: StreamOfRow, suffix: str, ttl: str, **headers: str) -> int:
    answer = await stream.publish(
        suffix, b"x", {**{k.replace("_", "-"): v for k, v in headers.items()}, "Nats-TTL": ttl}
    )
    assert "error" not in answer, answer
    seq: int = answer["seq"]
    return seq


async def _last(stream: StreamOfRow, suffix: str) -> tuple[int, dict[str, str]]:
    """The last message of a subject, with its headers."""
    js = stream.nc.jetstream()
    found = await js.get_last_msg(stream.name, f"{stream.name}.{suffix}")
    assert found.seq is not None
    return found.seq, dict(found.headers or {})


@rows("off", "a stream does not allow TTLs unless it says so, and shows it")
async def off(b: Bench) -> None:
    stream = await b.stream()
    assert stream.config["allow_msg_ttl"] is False
    assert "subject_delete_marker_ttl" not in stream.config


@rows("disabled", "a TTL on a stream that does not allow it is refused with 10166")
async def disabled(b: Bench) -> None:
    stream = await b.stream()
    answer = await stream.publish(headers={"Nats-TTL": "1"})
    assert answer == {
        "error": {"code": 400, "err_code": 10166, "description": "per-message TTL is disabled"},
        "stream": stream.name,
        "seq": 0,
    }


@rows("valid", "a TTL is whole seconds, a Go duration or never; an empty one is none")
async def valid(b: Bench) -> None:
    stream = await b.stream(allow_msg_ttl=True)
    for text in ("60", "90s", "60.5s", "2m", "1h30m", "1500ms", "never", "Never", ""):
        assert "error" not in await stream.publish(headers={"Nats-TTL": text}), text


@rows("invalid", "anything else, and less than a second, is refused with 10165")
async def invalid(b: Bench) -> None:
    stream = await b.stream(allow_msg_ttl=True)
    for text in ("0", "0s", "+60", "-1", "-1s", "100ms", "999ms", "banana", "1d", "5 s"):
        answer = await stream.publish(headers={"Nats-TTL": text})
        assert answer["error"] == {
            "code": 400,
            "err_code": 10165,
            "description": "invalid per-message TTL",
        }, text


@rows("kept", "the header is stored as it was sent")
async def kept(b: Bench) -> None:
    stream = await b.stream(allow_msg_ttl=True)
    await _put(stream, "a", "90s", Other="x")
    assert await _last(stream, "a") == (1, {"Other": "x", "Nats-TTL": "90s"})


@rows("goes", "a message goes when its time is over, the others stay")
async def goes(b: Bench) -> None:
    stream = await b.stream(allow_msg_ttl=True)
    await _put(stream, "a", "1")
    await _put(stream, "a", "60")
    await stream.publish("a")
    await _gone(stream, 1)
    state = await stream.state()
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (2, 2, 3)


@rows("hole", "one that goes from the middle leaves a hole")
async def hole(b: Bench) -> None:
    stream = await b.stream(allow_msg_ttl=True)
    await stream.publish("a")
    await _put(stream, "a", "1")
    await stream.publish("a")
    await _gone(stream, 2)
    state = await stream.state()
    assert (state["messages"], state["first_seq"], state["num_deleted"]) == (2, 1, 1)


@rows("last-goes", "the last message of a subject goes, and an older one is the last again")
async def last_goes(b: Bench) -> None:
    stream = await b.stream(allow_msg_ttl=True)
    await stream.publish("a")
    await _put(stream, "a", "1")
    await _gone(stream, 2)
    assert (await _last(stream, "a"))[0] == 1
    answer = await stream.publish("a", headers={"Nats-Expected-Last-Subject-Sequence": "1"})
    assert answer["seq"] == 3


@rows("max-age", "max_age takes messages with a longer TTL too")
async def max_age(b: Bench) -> None:
    stream = await b.stream(allow_msg_ttl=True, max_age=SECOND)
    await _put(stream, "a", "60")
    await _gone(stream, 1)


@rows("never", "a message that never expires outlives max_age")
async def never(b: Bench) -> None:
    stream = await b.stream(allow_msg_ttl=True, max_age=SECOND)
    await _put(stream, "a", "never")
    await stream.publish("b")
    await _gone(stream, 2)
    assert await _message(stream, 1) is not None
    await stream.publish("b")
    await _gone(stream, 3)
    assert (await stream.state())["messages"] == 1


@rows("delete-early", "a message with a TTL may be deleted before")
async def delete_early(b: Bench) -> None:
    stream = await b.stream(allow_msg_ttl=True)
    await _put(stream, "a", "1")
    await b.ok(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 1})
    await _put(stream, "a", "1")
    await _gone(stream, 2)
    assert (await stream.state())["messages"] == 0


@rows("enable", "an update may allow TTLs later")
async def enable(b: Bench) -> None:
    stream = await b.stream()
    assert "error" not in await stream.update(allow_msg_ttl=True)
    await _put(stream, "a", "1")
    await _gone(stream, 1)


@rows("no-way-back", "no update takes TTLs back")
async def no_way_back(b: Bench) -> None:
    stream = await b.stream(allow_msg_ttl=True)
    await stream.update_refused(
        code=500, err_code=10052, text="message TTL status can not be disabled", allow_msg_ttl=False
    )


@rows("workqueue", "a message of a work queue goes when its time is over, delivered or not")
async def workqueue(b: Bench) -> None:
    stream = await b.stream(allow_msg_ttl=True, retention="workqueue")
    consumer = await stream.consumer()
    await _put(stream, "a", "1")
    await consumer.next()
    await _gone(stream, 1)
    info = await consumer.info()
    assert (info["num_pending"], info["num_ack_pending"]) == (0, 0)


@rows("marker.config", "delete markers allow TTLs and roll-ups, and purging too")
async def marker_config(b: Bench) -> None:
    stream = await b.stream(subject_delete_marker_ttl=SECOND, deny_purge=True)
    config = stream.config
    assert (config["allow_msg_ttl"], config["allow_rollup_hdrs"], config["deny_purge"]) == (True, True, False)
    assert config["subject_delete_marker_ttl"] == SECOND


@rows("marker.config.negative", "a marker's TTL is not negative")
async def marker_negative(b: Bench) -> None:
    await b.stream_refused(
        code=500,
        err_code=10052,
        text="subject delete marker TTL must not be negative",
        subject_delete_marker_ttl=-1,
    )


@rows("marker.config.short", "a marker's TTL is a second at least")
async def marker_short(b: Bench) -> None:
    await b.stream_refused(
        code=500,
        err_code=10052,
        text="subject delete marker TTL must be at least 1 second",
        subject_delete_marker_ttl=SECOND // 2,
    )


@rows("marker.update", "delete markers may come with an update and go with one")
async def marker_update(b: Bench) -> None:
    stream = await b.stream()
    answer = await stream.update(subject_delete_marker_ttl=SECOND)
    assert answer["config"]["allow_msg_ttl"] is True
    answer = await stream.update(subject_delete_marker_ttl=0)
    assert "subject_delete_marker_ttl" not in answer["config"]
    assert answer["config"]["allow_msg_ttl"] is True


@rows("marker.ttl", "a subject whose only message ran out of its TTL gets a marker, which goes by itself")
async def marker_by_ttl(b: Bench) -> None:
    stream = await b.stream(subject_delete_marker_ttl=SECOND)
    await _put(stream, "a", "1")
    await _gone(stream, 1)
    assert await _last(stream, "a") == (
        2,
        {"Nats-Marker-Reason": "MaxAge", "Nats-TTL": "1s", "Nats-Rollup": "sub"},
    )
    await _gone(stream, 2)
    state = await stream.state()
    assert (state["messages"], state["last_seq"]) == (0, 2)


@rows("marker.max-age", "a subject whose only message was too old gets a marker")
async def marker_by_age(b: Bench) -> None:
    stream = await b.stream(subject_delete_marker_ttl=90 * SECOND, max_age=SECOND)
    await stream.publish("a")
    await _gone(stream, 1)
    assert await _last(stream, "a") == (
        2,
        {"Nats-Marker-Reason": "MaxAge", "Nats-TTL": "1m30s", "Nats-Rollup": "sub"},
    )


@rows("marker.not-empty", "a subject that has older messages gets no marker")
async def marker_not_empty(b: Bench) -> None:
    stream = await b.stream(subject_delete_marker_ttl=SECOND)
    await stream.publish("a")
    await _put(stream, "a", "1")
    await _gone(stream, 2)
    assert (await _last(stream, "a"))[0] == 1
    assert (await stream.state())["last_seq"] == 2


@rows("marker.newer", "a subject that has newer messages gets no marker")
async def marker_newer(b: Bench) -> None:
    stream = await b.stream(subject_delete_marker_ttl=SECOND)
    await _put(stream, "a", "1")
    await stream.publish("a")
    await _gone(stream, 1)
    assert (await stream.state())["last_seq"] == 2


@rows("marker.of-marker", "a marker, or a key-value client's purge, leaves no marker; its delete does")
async def marker_of_marker(b: Bench) -> None:
    stream = await b.stream(subject_delete_marker_ttl=SECOND)
    await _put(stream, "a", "1", KV_Operation="PURGE")
    await _put(stream, "b", "1", Nats_Marker_Reason="Purge")
    await _put(stream, "c", "1", KV_Operation="DEL")
    await _gone(stream, 3)
    await _gone(stream, 1)
    assert (await stream.info({"subjects_filter": ">"}))["state"]["subjects"] == {f"{stream.name}.c": 1}
    assert (await stream.state())["last_seq"] == 4


@rows("marker.raises", "a TTL below the markers' is raised to theirs")
async def marker_raises(b: Bench) -> None:
    stream = await b.stream(subject_delete_marker_ttl=3 * SECOND)
    for suffix, ttl, stored in (("a", "1s", "3"), ("b", "5s", "5s"), ("c", "never", "never")):
        await _put(stream, suffix, ttl, Other="x")
        assert (await _last(stream, suffix))[1] == {"Other": "x", "Nats-TTL": stored}


@rows("marker.purge", "purging and deleting by hand leave no marker")
async def marker_purge(b: Bench) -> None:
    stream = await b.stream(subject_delete_marker_ttl=SECOND)
    await stream.fill("a", "b")
    await b.ok(f"STREAM.PURGE.{stream.name}", {"filter": f"{stream.name}.a"})
    await b.ok(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 2})
    assert (await stream.publish("c"))["seq"] == 3


@rows("marker.consumer", "a consumer gets the marker as a message")
async def marker_consumer(b: Bench) -> None:
    stream = await b.stream(subject_delete_marker_ttl=5 * SECOND, max_age=SECOND)
    consumer = await stream.consumer()
    await stream.publish("a")
    await consumer.fetch()
    found = await consumer.next()
    assert found.subject == f"{stream.name}.a"
    assert (found.headers or {})["Nats-Marker-Reason"] == "MaxAge"
