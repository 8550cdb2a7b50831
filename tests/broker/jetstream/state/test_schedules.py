"""Messages that are sent on when they are due. Patterns, headers and codes were compared with nats-server 2.15.1."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfoNotFoundError

import pytest
from tests.broker.jetstream.publish.stream_story import SECOND, StreamStory, config, message

from supercluster.broker.jetstream.encoding import cron
from supercluster.broker.jetstream.encoding.cron import PatternError, ZoneError, check_zone, parse_schedule
from supercluster.broker.jetstream.encoding.sections import Section, Verdict
from supercluster.broker.jetstream.encoding.timestamps import format_time, parse_time
from supercluster.broker.jetstream.publish.proposal import ENTRY_BYTES_MAX
from supercluster.broker.jetstream.state.digest import digesting
from supercluster.broker.jetstream.state.schedules import Schedules
from supercluster.broker.jetstream.state.snapshot import snapshot_of
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.turn.slices import at_once

REFUSED = Verdict.REFUSED


def story_of(**fields: Any) -> StreamStory:
    found = StreamStory(config(allow_msg_schedules=True, **fields))
    found.now_ns = parse_time("2026-01-31T12:00:00Z")
    return found


def schedule(
    pattern: str, subject: bytes = b"s.x", payload: bytes = b"tick", target: str = "s.t", **more: Any
) -> Any:
    return message(subject, payload, Nats_Schedule=pattern, Nats_Schedule_Target=target, **more)


def later(story: StreamStory, seconds: float) -> list[bytes]:
    story.now_ns += int(seconds * SECOND)
    return story.send_on()


def digest(state: StreamState) -> bytes:
    return at_once(digesting(state))


# ---- patterns -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "after", "due"),
    [
        ("@at 2030-01-01T00:00:00+02:00", "2026-01-01T00:00:00Z", "2029-12-31T22:00:00Z"),
        ("@at 2020-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
        ("@every 1m30s", "2026-01-01T00:00:00.4Z", "2026-01-01T00:01:30Z"),
        ("@every 1s", "2026-01-01T00:00:00.6Z", "2026-01-01T00:00:02Z"),
        ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
        ("@weekly", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
        ("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("* * * * * *", "2026-01-01T00:00:00.9Z", "2026-01-01T00:00:01Z"),
        ("*/20 * * * * *", "2026-01-01T00:00:41Z", "2026-01-01T00:01:00Z"),
        ("0 0 9 * * MON-FRI", "2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z"),
        ("0 0 0 1 jan ?", "2026-06-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("0 0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("0 0 0 13 * 5", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
        ("5,7-9/2,30 0 0 * * *", "2026-01-01T00:00:07Z", "2026-01-01T00:00:09Z"),
        ("50/5 59 23 31 12 *", "2026-12-31T23:59:55Z", "2027-12-31T23:59:50Z"),
    ],
)
def test_when_a_pattern_is_due(pattern: str, after: str, due: str) -> None:
    assert format_time(parse_schedule(pattern).after(parse_time(after))) == due


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "bad",
            "",
            "@at bad",
            "@at 2030-01-01",
            "@every 500ms",
            "@every bad",
            "@every 0s",
            "@reboot",
            "* * * * *",
        ),
        *("60 * * * * *", "0 0 0 31 2 *", "0 0 0 L * *", "0 0 0 * * 7", "5-3 * * * * *", "*/0 * * * * *"),
        *(
            "@AT 2030-01-01T00:00:00Z",
            "0 0 0 * * X",
            "1,, * * * * *",
            "* * * * * * *",
            "x" * 2000,
            "-1 * * * * *",
        ),
    ],
)
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(PatternError):
        parse_schedule(pattern)


def test_cron_expressions_may_have_a_time_zone_and_nothing_else() -> None:
    def next_of(pattern: str, zone: str, after: str) -> str:
        return format_time(parse_schedule(pattern, zone).after(parse_time(after)))

    assert next_of("0 0 9 * * *", "Europe/Amsterdam", "2026-01-01T00:00:00Z") == "2026-01-01T08:00:00Z"
    assert next_of("0 0 9 * * *", "Europe/Amsterdam", "2026-07-01T00:00:00Z") == "2026-07-01T07:00:00Z"
    assert next_of("0 0 9 * * *", "UTC", "2026-07-01T00:00:00Z") == "2026-07-01T09:00:00Z"
    # Half past two does not come in the night in which clocks go forward.
    assert next_of("0 30 2 * * *", "Europe/Amsterdam", "2026-03-29T00:00:00Z") == "2026-03-30T00:30:00Z"
    for zone in ("bad", "+02:00", "../etc/passwd"):
        with pytest.raises(ZoneError):
            check_zone(zone)
    for zone in ("", "x" * 99):
        with pytest.raises(ZoneError):
            parse_schedule("@daily", zone)
    for pattern in ("@every 1h", "@at 2030-01-01T00:00:00Z"):
        with pytest.raises(PatternError):
            parse_schedule(pattern, "UTC")


def test_cron_is_due_at_the_first_moment_that_fits() -> None:
    rng = random.Random(7)

    def field(least: int, most: int) -> str:
        low, high = sorted((rng.randint(least, most), rng.randint(least, most)))
        return rng.choice(("*", str(low), f"{low}-{high}", f"*/{rng.randint(1, 9)}", f"{low},{high}"))

    for _ in range(60):
        pattern = f"{field(0, 59)} {field(0, 59)} {field(0, 23)} * * {field(0, 6)}"
        found, after = parse_schedule(pattern), parse_time("2026-02-27T22:58:17Z") + rng.randrange(10**14)
        due = found.after(after)
        seconds, minutes, hours, _, _, days = found.fields
        at_s, wanted_s = after // SECOND + 1, due // SECOND
        fits = 0
        while at_s < wanted_s and fits == 0:
            moment = datetime.fromtimestamp(at_s, UTC)
            if (moment.weekday() + 1) % 7 not in days or moment.hour not in hours:
                at_s += 3600 - at_s % 3600
                continue
            fits += moment.minute in minutes and moment.second in seconds
            at_s += fits == 0
        assert (at_s, fits) == (wanted_s, 0), pattern
        last = datetime.fromtimestamp(wanted_s, UTC)
        assert last.second in seconds
        assert last.minute in minutes
        assert last.hour in hours


# ---- judging --------------------------------------------------------------------------------------------------------


def test_what_a_schedule_may_say() -> None:
    story = story_of(allow_msg_ttl=True)
    cases: tuple[tuple[dict[str, Any], int], ...] = (
        ({"Nats_Schedule_TTL": "bad"}, 10191),
        ({"Nats_Schedule_Source": "s.*"}, 10203),
        ({"Nats_Schedule_Source": "s.t"}, 10203),
        ({"Nats_Schedule_Source": "s.x"}, 10203),
        ({"Nats_Schedule_Source": "other"}, 10203),
        ({"Nats_Schedule_Rollup": "all"}, 10192),
        ({"Nats_Rollup": "all"}, 10192),
        ({"Nats_Schedule_Time_Zone": "bad"}, 10223),
        ({"Nats_Schedule_Time_Zone": ""}, 10223),
        ({"Nats_Scheduler": "s.y"}, 10212),
        ({"Nats_Schedule_Next": "purge"}, 10212),
        ({"Nats_Scheduler": "s.y", "Nats_Schedule_Next": "2030-01-01T00:00:00Z"}, 10212),
    )
    for headers, code in cases:
        assert story.publish(schedule("@daily", **headers)) == [(REFUSED, code, 0)], headers
    for target in ("", "s.*", "s.x", "other", "a..b"):
        assert story.publish(schedule("@daily", target=target)) == [(REFUSED, 10190, 0)], target
    assert story.publish(schedule("bad")) == [(REFUSED, 10189, 0)]
    assert story.publish(schedule("bad", Nats_Schedule_Time_Zone="bad")) == [(REFUSED, 10223, 0)]
    assert story.publish(message(Nats_Schedule_Time_Zone="bad")) == [(REFUSED, 10223, 0)]
    assert story_of().publish(schedule("@daily", Nats_Schedule_TTL="5m")) == [(REFUSED, 10166, 0)]
    plain = StreamStory()
    assert (
        plain.publish(schedule("bad"), message(Nats_Scheduler="s.x", Nats_Schedule_Next="purge"))
        == [(REFUSED, 10188, 0)] * 2
    )
    good: dict[str, Any] = {
        "Nats_Schedule_TTL": "never",
        "Nats_Schedule_Source": "s.s",
        "Nats_Schedule_Rollup": "sub",
    }
    assert story.publish(
        schedule("@daily", Nats_Rollup="sub", **good), message(Nats_Schedule="", Nats_Schedule_Target="x")
    ) == [
        (1,),
        (2,),
    ]


# ---- sending on -----------------------------------------------------------------------------------------------------


@pytest.mark.covers("SF-13")
def test_a_message_is_sent_on_once_at_its_moment_and_leaves() -> None:
    story = story_of()
    story.store(schedule("@at 2026-01-31T12:00:05Z", Foo="bar", Nats_Msg_Id="m", Nats_Expected_Stream="S"))
    held = story.state.message(1)
    assert held is not None
    assert held.header.endswith(b"\r\nNats-Rollup: sub\r\n\r\n")
    assert story.scheduling.deadline_ms(story.state, 0, story.now_ns) == 5000
    assert later(story, 4.9) == []
    assert later(story, 0.1) == [b"s.t"]
    sent = story.state.message(2)
    assert sent is not None
    assert (sent.subject, sent.payload) == (b"s.t", b"tick")
    assert sent.header == b"NATS/1.0\r\nFoo: bar\r\nNats-Scheduler: s.x\r\nNats-Schedule-Next: purge\r\n\r\n"
    assert story.held() == [2]
    assert not story.state.schedules
    assert story.scheduling.deadline_ms(story.state, 0, story.now_ns) is None


def test_a_schedule_that_repeats_says_when_the_next_one_comes_and_makes_up_for_nothing() -> None:
    story = story_of(allow_msg_ttl=True)
    story.store(schedule("@every 10s", Nats_Schedule_TTL="5m", Nats_Schedule_Rollup="sub", Nats_TTL="1h"))
    assert later(story, 10) == [b"s.t"]
    assert story.held() == [1, 2]
    sent = story.state.message(2)
    assert sent is not None
    assert sent.header == (
        b"NATS/1.0\r\nNats-Scheduler: s.x\r\nNats-Schedule-Next: 2026-01-31T12:00:20Z\r\nNats-TTL: 5m\r\n"
        b"Nats-Rollup: sub\r\n\r\n"
    )
    assert later(story, 35) == [b"s.t"]
    assert story.held() == [1, 3]
    found = story.state.schedules.next_ns()
    assert found is not None
    assert format_time(found) == "2026-01-31T12:00:55Z"


def test_a_schedule_sends_the_last_message_of_its_source_or_its_own() -> None:
    story = story_of(allow_msg_ttl=True)
    at = "@at 2026-01-31T12:00:01Z"
    story.store(
        schedule(at, b"s.x", Nats_Schedule_Source="s.src"),
        schedule(at, b"s.y", target="s.u", Nats_Schedule_Source="s.none"),
        message(b"s.src", b"old"),
        message(b"s.src", b"data", Bar="baz", Nats_TTL="1h"),
    )
    assert later(story, 1) == [b"s.t", b"s.u"]
    one, other = story.state.message(5), story.state.message(6)
    assert one is not None
    assert other is not None
    assert (one.payload, other.payload) == (b"data", b"tick")
    assert one.header == b"NATS/1.0\r\nBar: baz\r\nNats-Scheduler: s.x\r\nNats-Schedule-Next: purge\r\n\r\n"


@pytest.mark.parametrize("how", ["purge", "delete", "plain", "header", "newer", "cancel", "ttl"])
def test_a_schedule_ends_with_its_message_and_with_the_next_of_its_subject(how: str) -> None:
    story = story_of(allow_msg_ttl=True)
    story.store(schedule("@every 1s", Nats_TTL="1s" if how == "ttl" else "1h"), message(b"s.other"))
    if how == "purge":
        story.command(Section.PURGE, b'{"filter": "s.x"}')
    elif how == "delete":
        story.state.remove(1)
    elif how == "plain":
        story.store(message(b"s.x", b"plain"))
    elif how == "header":
        story.store(message(b"s.x", b"plain", Foo="bar"))
    elif how == "cancel":
        story.store(message(b"s.other", Nats_Scheduler="s.x", Nats_Schedule_Next="purge"))
        assert not story.state.has(1)
    elif how == "newer":
        story.store(schedule("@at 2026-01-31T12:00:09Z"))
        assert not story.state.has(1)
    elif how == "ttl":
        story.now_ns += SECOND
        story.expired()
    assert later(story, 5) == []
    assert later(story, 5) == ([b"s.t"] if how == "newer" else [])


def test_nothing_is_sent_on_while_a_newer_message_of_the_subject_is_in_the_log() -> None:
    story = story_of()
    story.store(schedule("@every 1s"))
    story.publish(message(b"s.x", b"plain"))
    story.now_ns += 2 * SECOND
    assert story.send_on() == []
    story.commit()
    assert story.send_on() == []


def test_one_entry_at_a_time_and_not_at_once_again_when_it_was_not_appended() -> None:
    story = story_of()
    story.store(schedule("@every 1s"))
    story.now_ns += SECOND
    now_ms = story.now_ns // 10**6
    turn = story.turn()
    story.scheduling.put(turn)
    assert not story.scheduling.is_due(story.state, story.now_ns, now_ms + 99_999)
    [done] = turn.proposal.commands
    done(None)
    assert not story.scheduling.is_due(story.state, story.now_ns, now_ms + 999)
    assert story.scheduling.is_due(story.state, story.now_ns, now_ms + 1000)


def test_a_full_stream_that_refuses_new_messages_waits_with_what_is_due() -> None:
    story = story_of(discard="new", max_msgs=2)
    story.store(schedule("@every 1s"), message(b"s.other"))
    assert later(story, 2) == []
    assert later(story, 0.5) == []
    story.state.remove(2)
    assert later(story, 0.6) == [b"s.t"]
    assert story.held() == [1, 3]


@pytest.mark.covers("SF-13")
def test_time_zones_are_the_leaders_and_the_log_says_when_a_schedule_is_due() -> None:
    story = story_of()
    story.store(schedule("0 0 14 * * *", Nats_Schedule_Time_Zone="Europe/Amsterdam"))
    assert story.state.schedules.next_ns() == 0
    assert story.send_on() == []
    found = story.state.schedules.next_ns()
    assert found is not None
    assert format_time(found) == "2026-01-31T13:00:00Z"
    assert later(story, 3600) == [b"s.t"]
    sent = story.state.message(2)
    assert sent is not None
    assert b"Nats-Schedule-Next: 2026-02-01T13:00:00Z" in sent.header


@pytest.mark.covers("SF-13")
def test_a_replica_without_a_time_zone_has_the_same_state_and_as_the_leader_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = story_of()
    story.store(
        schedule("0 0 14 * * *", Nats_Schedule_Time_Zone="Europe/Amsterdam"), schedule("@every 5s", b"s.y")
    )

    def unknown(name: str) -> None:
        raise ZoneInfoNotFoundError(name)

    monkeypatch.setattr(cron, "ZoneInfo", unknown)
    other = StreamState(story.config, 0, story.log)
    for entry in story.log.entries(1, story.log.last_index, 1 << 30):
        other.apply(entry)
    assert snapshot_of(other) == snapshot_of(story.state)
    assert digest(other) == digest(story.state)
    # It leads: what it can't judge stays, what it can goes on, and it looks again only after a while.
    assert later(story, 6) == [b"s.t"]
    assert len(story.state.schedules) == 2
    assert not story.scheduling.is_due(story.state, story.now_ns, story.now_ns // 1_000_000 + 500)
    monkeypatch.undo()
    assert later(story, 2) == []
    assert story.state.schedules.get(b"s.x") == (1, parse_time("2026-01-31T13:00:00Z"))


@pytest.mark.covers("SF-13")
def test_schedules_are_in_snapshots_and_digests_and_alike_on_every_replica() -> None:
    story = story_of()
    story.store(
        schedule("@every 7s"), schedule("@at 2026-01-31T12:00:09Z", b"s.y"), schedule("@daily", b"s.z")
    )
    assert story.publish(message(b"s.q", Nats_Scheduler="s.z", Nats_Schedule_Next="nonsense")) == [
        (REFUSED, 10212, 0)
    ]
    for _ in range(4):
        later(story, 5)
    other = StreamState(story.config, 0, story.log)
    for entry in story.log.entries(1, story.log.last_index, 1 << 30):
        other.apply(entry)
    assert snapshot_of(other) == snapshot_of(story.state)
    restored = story.restored()
    assert digest(restored) == digest(story.state) == digest(other)
    assert restored.schedules.next_ns() == story.state.schedules.next_ns()
    restored.schedules = Schedules()
    assert digest(restored) != digest(story.state)
    story.command(Section.PURGE, b"{}")
    assert not story.state.schedules


def test_a_new_leader_sends_nothing_twice() -> None:
    story = story_of()
    story.store(schedule("@at 2026-01-31T12:00:01Z"))
    assert later(story, 1) == [b"s.t"]
    story.new_leader()
    assert later(story, 1) == []
    assert story.held() == [2]


def test_a_heap_of_schedules_does_not_outgrow_them() -> None:
    found = Schedules()
    header = message(Nats_Schedule="@every 1s")[1]
    for seq in range(1, 5000):
        found.stored(b"s.x", header, seq, seq * SECOND)
    assert len(found._heap) < 2000
    assert found.due(10**15, 9) == [(5000 * SECOND, b"s.x")]


@pytest.mark.covers("SF-24", "SF-25")
def test_large_schedules_that_are_due_at_once_go_in_several_entries() -> None:
    """Of 1 MiB each, 65 were more than an entry may have: each leader of the stream failed over them."""
    story, payload = story_of(), b"x" * 300_000
    story.store(
        *[schedule("@at 2026-01-31T12:00:01Z", b"s.x%d" % number, payload, "s.t") for number in range(20)]
    )
    story.now_ns += 2 * SECOND
    sizes: list[int] = []
    while sent := story.send_on():
        sizes.append(len(sent))
        story.now_ns += SECOND
    assert sum(sizes) == 20
    assert max(sizes) * len(payload) < 2 * ENTRY_BYTES_MAX
    assert story.state.messages == 20
