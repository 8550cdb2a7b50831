"""When limits of a stream remove messages that were not read: what is said of it, and how it is found out."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from typing import Any

import pytest
from benchmarks.servers import Fleet
from nats.js import JetStreamContext
from pyspark.sql.streaming.datasource import ReadAllAvailable

from supercluster.spark.datasource.options import read_options
from supercluster.spark.datasource.plan import offsets_from_json
from supercluster.spark.datasource.source import StreamReader
from supercluster.spark.jetstream import JetStreamSession, UnansweredError
from supercluster.spark.retention import OVERTAKEN, Left, Limits, RetentionWatch, left_of

pytestmark = pytest.mark.covers("SP-3")

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
HOUR_NS = 3_600_000_000_000


def test_limits_are_those_that_remove_messages() -> None:
    config = {"max_msgs": 10, "max_bytes": -1, "max_age": HOUR_NS, "discard": "old"}
    assert Limits.of(config) == Limits(10, None, 3_600.0)
    assert Limits.of({**config, "discard": "new"}) == Limits(age_seconds=3_600.0), "it refuses new ones"
    assert Limits.of({"max_msgs": 0, "max_age": 0}) == Limits()


def test_what_is_left_of_each_limit() -> None:
    limits = Limits(100, 1_000, 60.0)
    oldest = NOW - dt.timedelta(seconds=45)
    found = left_of(limits, unread=20, mean_bytes=10.0, oldest=oldest, now=NOW)
    assert found == {"messages": (80, 100), "bytes": (800.0, 1_000), "age": (15.0, 60.0)}
    assert "age" not in left_of(limits, unread=20, mean_bytes=10.0, oldest=None, now=NOW)


def watched(*looks: tuple[float, float]) -> RetentionWatch:
    """Of a limit of 100 messages: seconds, and how many are left."""
    found = RetentionWatch()
    for now_s, left in looks:
        found.take({"messages": (left, 100.0)}, now_s)
    return found


@pytest.mark.parametrize(
    ("looks", "now_s", "seconds"),
    [
        (((0, 50), (100, 40)), 100, 400),
        (((0, 50), (100, 40)), 150, 350),
        (((0, 50), (100, 40)), 900, 0),
        (((0, 99), (100, 60)), 100, None),  # more than half is left
        (((0, 40), (100, 40)), 100, None),  # it keeps pace
        (((0, 30), (100, 40)), 100, None),
        (((0, 50), (59, 40)), 59, None),  # too short a look
        (((0, 90), (250, 50), (350, 40)), 350, 400),  # the last five minutes count
        ((), 0, None),
    ],
)
def test_a_line_through_the_last_minutes_says_when_a_limit_is_used_up(
    looks: tuple[tuple[float, float], ...], now_s: float, seconds: int | None
) -> None:
    assert watched(*looks).seconds(now_s) == seconds


def test_the_limit_that_is_used_up_first_counts() -> None:
    watch = RetentionWatch()
    watch.take({"age": (30.0, 100.0), "bytes": (45.0, 100.0)}, 0)
    watch.take({"age": (20.0, 100.0), "bytes": (5.0, 100.0)}, 100)
    assert watch.seconds(100) == 12
    assert watch.overtaken_s(NOW, 100) == int(NOW.timestamp()) + 12


def test_times_of_messages_that_are_not_to_be_had_are_asked_for_seldom() -> None:
    asked: list[bool] = []

    def ask(asks_time: bool) -> Left:
        asked.append(asks_time)
        if asks_time:
            raise UnansweredError("nobody")
        return {"messages": (1.0, 2.0)}

    watch = RetentionWatch()
    for now_s in (0.0, 5.0, 10.0, 290.0, 301.0):
        watch.look(ask, now_s)
    assert asked == [True, False, False, False, True, False]


async def test_a_reader_that_falls_behind_says_when_it_is_overtaken(
    fleet: Fleet, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await js.add_stream(name="S", subjects=["a"], max_age=3_600, max_msgs=100)
    for _ in range(60):
        await js.publish("a", b"x")
    options = read_options({"url": fleet.urls[0], "stream": "S"}, streaming=True)
    reader = StreamReader(options, ("sequence",))
    clock_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock_s[0])
    limits: list[Left] = []
    whole = JetStreamSession.left

    def spied(*words: Any) -> Left:
        limits.append(whole(*words))
        return limits[-1]

    monkeypatch.setattr(JetStreamSession, "left", spied)

    def report() -> dict[str, Any]:
        start = {**reader.initialOffset(), "next": 1}
        assert reader.latestOffset(start, ReadAllAvailable())["next"] > 1
        reader._position = offsets_from_json(start)  # as if it had read nothing
        return dict(reader.reportLatestOffset() or {})

    first = await asyncio.to_thread(report)
    assert (first["next"], OVERTAKEN in first) == (61, False)
    for _ in range(20):
        await js.publish("a", b"x")
    clock_s[0] = 100.0
    moment = (await asyncio.to_thread(report))[OVERTAKEN]
    assert [found["messages"] for found in limits] == [(40, 100), (20, 100)]
    assert all(3_500 < found["age"][0] < 3_600 for found in limits)
    # 20 messages in 100 s.
    assert abs(moment - (dt.datetime.now(dt.UTC).timestamp() + 100)) < 20
