"""Message schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.compat.bench import Bench, StreamOfRow, eventually
from tests.compat.table import Group

rows = Group("schedules")


def _at(seconds: float) -> str:
    return "@at " + (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


async def _scheduled(b: Bench, **config: Any) -> StreamOfRow:
    return await b.stream(allow_msg_schedules=True, allow_msg_ttl=True, **config)


async def _put(
    stream: StreamOfRow,
    pattern: str,
    suffix: str = "x",
    target: str | None = "t",
    data: bytes = b"tick",
    **more: Any,
) -> Any:
    """The sequence; or err_code and text of the refusal."""
    headers = {"Nats-Schedule": pattern}
    if target is not None:
        headers["Nats-Schedule-Target"] = f"{stream.name}.{target}"
    headers |= {k.replace("_", "-"): str(v) for k, v in more.items()}
    answer = await stream.publish(suffix, data, headers)
    if "error" in answer:
        return answer["error"]["err_code"], answer["error"]["description"]
    return answer["seq"]


async def _sent(stream: StreamOfRow, suffix: str = "t") -> tuple[bytes, dict[str, str]]:
    """What came to a target: payload and headers."""

    async def come() -> Any:
        call, subject = f"STREAM.INFO.{stream.name}", f"{stream.name}.{suffix}"
        found = await stream.bench.ok(call, {"subjects_filter": subject}, nc=stream.nc)
        return found["state"].get("subjects")

    await eventually(come, f"a message on {suffix}", 10)
    found = await stream.nc.jetstream().get_last_msg(stream.name, f"{stream.name}.{suffix}")
    return found.data or b"", dict(found.headers or {})


@rows("config", "schedules allow roll-ups and purging")
async def config(b: Bench) -> None:
    stream = await b.stream(allow_msg_schedules=True, deny_purge=True)
    found = stream.config
    assert (found["allow_msg_schedules"], found["allow_rollup_hdrs"], found["deny_purge"]) == (
        True,
        True,
        False,
    )


@rows("config.update", "an update may allow schedules, and none takes them back")
async def config_update(b: Bench) -> None:
    stream = await b.stream()
    assert "allow_msg_schedules" not in stream.config
    assert (await stream.update(allow_msg_schedules=True))["config"]["allow_msg_schedules"] is True
    await stream.update_refused(
        code=500, err_code=10052, text="message schedules can not be disabled", allow_msg_schedules=False
    )


@rows("config.counter", "counters do not go with schedules")
async def config_counter(b: Bench) -> None:
    await b.stream_refused(
        code=500,
        err_code=10052,
        text="counter stream cannot use message schedules",
        allow_msg_counter=True,
        allow_msg_schedules=True,
    )


@rows("off", "a schedule, or the end of one, has to be allowed")
async def off(b: Bench) -> None:
    stream = await b.stream()
    told = (10188, "message schedules is disabled")
    assert await _put(stream, "@daily") == told
    assert await _put(stream, "bad") == told
    found = await stream.publish(
        headers={"Nats-Scheduler": f"{stream.name}.x", "Nats-Schedule-Next": "purge"}
    )
    assert found["error"]["err_code"] == 10188


@rows("patterns", "a moment, an interval, or cron with seconds")
async def patterns(b: Bench) -> None:
    stream = await _scheduled(b)
    for pattern in (
        *(
            "@at 2030-01-01T00:00:00Z",
            "@at 2030-01-01T00:00:00+02:00",
            "@every 1h",
            "@every 1s",
            "@hourly",
            "@daily",
        ),
        *("@midnight", "@weekly", "@monthly", "@yearly", "@annually", "0 0 9 * * MON-FRI", "0 */5 * * * *"),
        *(
            "0 0 0 1 JAN *",
            "0 0 0 ? * *",
            "0 0 0 * * 0",
            "0 0 0 29 2 *",
            "1,2,5-9/2 0 0 1 1 *",
            "0 0 0 * * */7",
        ),
    ):
        found = await _put(stream, pattern)
        assert isinstance(found, int), (pattern, found)


@rows("patterns.wrong", "anything else is refused with 10189")
async def patterns_wrong(b: Bench) -> None:
    stream = await _scheduled(b)
    for pattern in (
        *(
            "bad",
            "@at bad",
            "@at 2030-01-01",
            "@every 500ms",
            "@every bad",
            "@every 0s",
            "@reboot",
            "* * * * *",
        ),
        *("60 * * * * *", "0 0 0 31 2 *", "0 0 0 L * *", "0 0 0 * * 7", "5-3 * * * * *", "*/0 * * * * *"),
        "@AT 2030-01-01T00:00:00Z",
    ):
        assert await _put(stream, pattern) == (10189, "message schedules pattern is invalid"), pattern


@rows("zone", "cron may have a time zone")
async def zone(b: Bench) -> None:
    stream = await _scheduled(b)
    for name in ("Europe/Amsterdam", "UTC", "Local"):
        assert isinstance(await _put(stream, "0 0 9 * * *", Nats_Schedule_Time_Zone=name), int), name
    assert isinstance(await _put(stream, "@daily", Nats_Schedule_Time_Zone="UTC"), int)
    for name in ("bad", "+02:00", ""):
        told = (10223, "message schedules time zone is invalid")
        assert await _put(stream, "0 0 9 * * *", Nats_Schedule_Time_Zone=name) == told, name
    for pattern in ("@every 1h", "@at 2030-01-01T00:00:00Z"):
        told = (10189, "message schedules pattern is invalid")
        assert await _put(stream, pattern, Nats_Schedule_Time_Zone="UTC") == told, pattern


@rows("zone.first", "a time zone that is none is told before all else, of messages that are no schedule too")
async def zone_first(b: Bench) -> None:
    stream = await _scheduled(b)
    told = (10223, "message schedules time zone is invalid")
    for name in ("bad", "", "utc", "x" * 300):
        for pattern in ("@at 2030-01-01T00:00:00Z", "@every 1h", "@at bad", "bad"):
            assert await _put(stream, pattern, Nats_Schedule_Time_Zone=name) == told, (pattern, name)
        assert await _put(stream, "@daily", Nats_Schedule_Time_Zone=name, Nats_Schedule_TTL="bad") == told
        found = await stream.publish(headers={"Nats-Schedule-Time-Zone": name})
        assert found["error"]["err_code"] == 10223
    assert "error" not in await stream.publish(headers={"Nats-Schedule-Time-Zone": "Europe/Amsterdam"})
    other = await b.stream()
    found = await other.publish(headers={"Nats-Schedule-Time-Zone": "bad"})
    assert found["error"]["err_code"] == 10188


@rows("target", "the target is another subject of the stream")
async def target_(b: Bench) -> None:
    stream = await _scheduled(b)
    told = (10190, "message schedules target is invalid")
    assert await _put(stream, "@daily", target=None) == told
    assert await _put(stream, "@daily", target="*") == told
    assert await _put(stream, "@daily", target="x") == told
    assert await _put(stream, "@daily", target=None, Nats_Schedule_Target="elsewhere.x") == told


@rows("source", "the source is a third subject of the stream")
async def source(b: Bench) -> None:
    stream = await _scheduled(b)
    told = (10203, "message schedules source is invalid")
    for name in ("*", "x", "t"):
        assert await _put(stream, "@daily", Nats_Schedule_Source=f"{stream.name}.{name}") == told, name
    assert await _put(stream, "@daily", Nats_Schedule_Source="elsewhere.x") == told
    assert isinstance(await _put(stream, "@daily", Nats_Schedule_Source=f"{stream.name}.s"), int)


@rows("ttl", "the TTL of what is sent on has to be one, and to be allowed")
async def ttl(b: Bench) -> None:
    stream = await _scheduled(b)
    for text in ("bad", "0", "100ms"):
        told = (10191, "message schedules invalid per-message TTL")
        assert await _put(stream, "@daily", Nats_Schedule_TTL=text) == told, text
    for text in ("5", "5m", "never", ""):
        assert isinstance(await _put(stream, "@daily", Nats_Schedule_TTL=text), int), text
    other = await b.stream(allow_msg_schedules=True)
    assert await _put(other, "@daily", Nats_Schedule_TTL="5m") == (10166, "per-message TTL is disabled")


@rows("rollup", "roll-ups are of the subject")
async def rollup(b: Bench) -> None:
    stream = await _scheduled(b)
    told = (10192, "message schedules invalid rollup")
    for header in ("Nats_Schedule_Rollup", "Nats_Rollup"):
        assert await _put(stream, "@daily", **dict[str, Any]({header: "all"})) == told, header
        assert isinstance(await _put(stream, "@daily", **dict[str, Any]({header: "sub"})), int), header


@rows("scheduler", "a scheduler and its next time go together")
async def scheduler(b: Bench) -> None:
    stream = await _scheduled(b)
    for headers in ({"Nats-Scheduler": "x"}, {"Nats-Schedule-Next": "purge"}):
        found = await stream.publish(headers=headers)
        error = {"code": 400, "err_code": 10212, "description": "message schedules invalid scheduler"}
        assert found["error"] == error


@rows("scheduler.next", "a client says of a schedule that it ends, and of no other time when it is next")
async def scheduler_next(b: Bench) -> None:
    stream, without = await _scheduled(b), await b.stream()
    error = {"code": 400, "err_code": 10212, "description": "message schedules invalid scheduler"}
    for scheduler, told in (
        (f"{stream.name}.x", "2030-01-01T00:00:00Z"),
        (f"{stream.name}.x", "tomorrow"),
        (f"{stream.name}.*", "purge"),
        (f"{stream.name}..x", "purge"),
    ):
        headers = {"Nats-Scheduler": scheduler, "Nats-Schedule-Next": told}
        for where in (stream, without):
            assert (await where.publish(headers=headers))["error"] == error, headers
    headers = {"Nats-Scheduler": f"{stream.name}.x", "Nats-Schedule-Next": "purge"}
    assert "error" not in await stream.publish(headers=headers)
    assert (await without.publish(headers=headers))["error"]["err_code"] == 10188


@rows(
    "rollup-and-source",
    "a schedule's roll-up is looked at before its source, and the message's own behind that",
)
async def rollup_and_source(b: Bench) -> None:
    stream = await _scheduled(b)
    for header, told in (
        ("Nats_Schedule_Rollup", (10192, "message schedules invalid rollup")),
        ("Nats_Rollup", (10203, "message schedules source is invalid")),
    ):
        wrong: dict[str, Any] = {header: "all", "Nats_Schedule_Source": "*"}
        assert await _put(stream, "@daily", **wrong) == told


@rows("stored", "a schedule rolls up its subject")
async def stored(b: Bench) -> None:
    stream = await _scheduled(b)
    await _put(stream, "@daily")
    await _put(stream, "@hourly", Foo="bar")
    assert (await stream.state())["messages"] == 1
    found = await stream.nc.jetstream().get_msg(stream.name, 2)
    assert found.headers == {
        "Nats-Schedule": "@hourly",
        "Nats-Schedule-Target": f"{stream.name}.t",
        "Foo": "bar",
        "Nats-Rollup": "sub",
    }


@rows("at", "a message is sent on at its moment, and goes")
async def at(b: Bench) -> None:
    stream = await _scheduled(b)
    await _put(stream, _at(1), Foo="bar")
    assert await _sent(stream) == (
        b"tick",
        {"Foo": "bar", "Nats-Scheduler": f"{stream.name}.x", "Nats-Schedule-Next": "purge"},
    )
    state = await stream.state()
    assert (state["messages"], state["first_seq"]) == (1, 2)


@rows("at.past", "one whose moment is over is sent on at once")
async def at_past(b: Bench) -> None:
    stream = await _scheduled(b)
    await _put(stream, _at(-60), Nats_Msg_Id="m", Nats_Expected_Stream=stream.name)
    _, headers = await _sent(stream)
    assert headers == {"Nats-Scheduler": f"{stream.name}.x", "Nats-Schedule-Next": "purge"}


@rows("every", "an interval goes on, and says when it comes again")
async def every(b: Bench) -> None:
    stream = await _scheduled(b)
    await _put(stream, "@every 1s", Nats_Schedule_TTL="5m", Nats_Schedule_Rollup="sub")
    _, headers = await _sent(stream)
    assert datetime.fromisoformat(headers.pop("Nats-Schedule-Next")) > datetime.now(UTC) - timedelta(
        seconds=2
    )
    assert headers == {"Nats-Scheduler": f"{stream.name}.x", "Nats-TTL": "5m", "Nats-Rollup": "sub"}

    async def again() -> bool:
        return bool((await stream.state())["last_seq"] >= 3)

    await eventually(again, "the second one", 10)
    assert (await stream.state())["messages"] == 2


@rows("cron", "cron is due at the next moment that fits")
async def cron(b: Bench) -> None:
    stream = await _scheduled(b)
    await _put(stream, "* * * * * *")
    _, headers = await _sent(stream)
    assert datetime.fromisoformat(headers["Nats-Schedule-Next"]).microsecond == 0


@rows("source.sent", "the last message of the source is sent on, without what it said to the stream")
async def source_sent(b: Bench) -> None:
    stream = await _scheduled(b)
    await stream.publish("s", b"old")
    await stream.publish("s", b"data", {"Bar": "baz", "Nats-TTL": "1h"})
    await _put(stream, _at(1), Nats_Schedule_Source=f"{stream.name}.s")
    assert await _sent(stream) == (
        b"data",
        {"Bar": "baz", "Nats-Scheduler": f"{stream.name}.x", "Nats-Schedule-Next": "purge"},
    )


@rows("source.empty", "a source without messages stands back for the schedule's own")
async def source_empty(b: Bench) -> None:
    stream = await _scheduled(b)
    await _put(stream, _at(1), Nats_Schedule_Source=f"{stream.name}.s")
    assert (await _sent(stream))[0] == b"tick"


@rows("purge", "a schedule ends when its message is purged, and when another one takes its place")
async def purge(b: Bench) -> None:
    stream = await _scheduled(b)
    await _put(stream, "@every 1s", "x", "t")
    await _put(stream, "@every 1s", "y", "t")
    await b.ok(f"STREAM.PURGE.{stream.name}", {"filter": f"{stream.name}.x"})
    await stream.publish("y", b"plain")
    await _put(stream, _at(3), "z", "u")
    await _sent(stream, "u")
    found = (await stream.info({"subjects_filter": f"{stream.name}.t"}))["state"]
    assert not found.get("subjects"), found


@rows("cancel", "a message that names the scheduler and says purge ends it")
async def cancel(b: Bench) -> None:
    stream = await _scheduled(b)
    await _put(stream, "@every 1h")
    headers = {"Nats-Scheduler": f"{stream.name}.x", "Nats-Schedule-Next": "purge"}
    assert (await stream.publish("t", b"", headers))["seq"] == 2
    state = await stream.state()
    assert (state["messages"], state["first_seq"]) == (1, 2)


@rows("consumer", "consumers get what is sent on")
async def consumer(b: Bench) -> None:
    stream = await _scheduled(b)
    found = await stream.consumer(filter_subject=f"{stream.name}.t")
    await _put(stream, _at(1))
    message = await found.next()
    assert (message.subject, message.data) == (f"{stream.name}.t", b"tick")
