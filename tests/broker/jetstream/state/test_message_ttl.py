"""Messages with a time to live of their own, and the markers that tell of subjects that are empty since.

Values, orders and texts were compared with nats-server 2.15.1.
"""

from __future__ import annotations

import pytest
from tests.broker.jetstream.publish.stream_story import SECOND, StreamStory, config, message

from supercluster.broker.jetstream.encoding.codec import u64
from supercluster.broker.jetstream.encoding.sections import Section, Verdict
from supercluster.broker.jetstream.publish.expiry import EXPIRY_CHECK_MS, Expiry
from supercluster.broker.jetstream.state.digest import digesting
from supercluster.broker.jetstream.state.message_ttl import NEVER, MessageTtls, read_ttl
from supercluster.broker.jetstream.state.snapshot import snapshot_of
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.turn.slices import at_once
from supercluster.broker.protocol.durations import format_seconds, parse_duration_ns

MARKER = b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 3s\r\nNats-Rollup: sub\r\n\r\n"


def ttl(subject: bytes, value: str, **more: str) -> tuple[bytes, bytes, bytes]:
    return message(subject, b"payload", **more, Nats_TTL=value)


def with_ttl(**fields: object) -> StreamStory:
    return StreamStory(config(allow_msg_ttl=True, **fields))


def later(story: StreamStory, seconds: float) -> list[bytes]:
    """So much later the leader looks, and its entry is applied."""
    story.now_ns += int(seconds * SECOND)
    return story.expired()


def digest(state: StreamState) -> bytes:
    return at_once(digesting(state))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"1", 1),
        (b"1s", 1),
        (b"1500ms", 1),
        (b"1.5s", 1),
        (b"1m", 60),
        (b"1h30m", 5400),
        (b"9223372036854775807", 2**63 - 1),
        (b"never", NEVER),
        (b"Never", NEVER),
        *(
            (text, None)
            for text in (b"0", b"0s", b"+7", b"-1", b"-5s", b"100ms", b"999ms", b"banana", b"1d", b"5 s")
        ),
        *(
            (text, None)
            for text in (b"9223372036854775808", b"1" * 30, b"s", b".s", b"1" * 70 + b"s", b"\xff")
        ),
    ],
)
def test_a_ttl_is_whole_seconds_a_duration_or_never(text: bytes, seconds: int | None) -> None:
    assert read_ttl(text) == seconds


def test_durations_as_go_has_them() -> None:
    assert parse_duration_ns(b"1h0.5m3ms2us7ns") == 3_630_003_002_007
    assert parse_duration_ns("-2\u00b5s".encode()) == -2000
    assert [parse_duration_ns(text) for text in (b"", b"-", b"1", b"1x", b"1s ", b"99999999h")] == [None] * 6
    assert parse_duration_ns(b"0") == parse_duration_ns(b"+0s") == 0
    assert [format_seconds(each) for each in (3, 90, 3600)] == ["3s", "1m30s", "1h0m0s"]


def test_a_stream_that_does_not_allow_ttls_refuses_them_and_every_stream_wrong_ones() -> None:
    plain, story = StreamStory(), with_ttl()
    assert plain.publish(ttl(b"s.a", "1"), ttl(b"s.a", "0"), ttl(b"s.a", "")) == [
        (Verdict.REFUSED, 10166, 0),
        (Verdict.REFUSED, 10165, 0),
        (1,),
    ]
    assert story.publish(ttl(b"s.a", "1"), ttl(b"s.a", "bad"), ttl(b"s.a", "never")) == [
        (1,),
        (Verdict.REFUSED, 10165, 0),
        (2,),
    ]


@pytest.mark.covers("SF-13")
def test_a_message_goes_when_its_own_time_is_over_whatever_its_place() -> None:
    story = with_ttl()
    story.store(message(), ttl(b"s.a", "2"), ttl(b"s.b", "1"), message(b"s.c"))
    assert later(story, 0.7) == []
    assert story.held() == [1, 2, 3, 4]
    later(story, 0.4)
    assert story.held() == [1, 2, 4]
    assert story.state.ttls.next_ns() == 3 * SECOND
    later(story, 1)
    assert story.held() == [1, 4]
    assert story.state.first_seq == 1
    assert story.expiry.deadline_ms(story.state, story.now_ns // 10**6, story.now_ns) is None


def test_max_age_takes_messages_with_a_longer_ttl_too_but_not_those_that_never_expire() -> None:
    story = with_ttl(max_age=2 * SECOND)
    story.store(ttl(b"s.never", "never"), ttl(b"s.long", "10"), message(b"s.none"), ttl(b"s.short", "1"))
    later(story, 1)
    assert story.held() == [1, 2, 3]
    later(story, 1)
    assert story.held() == [1]
    now_ms = story.now_ns // 10**6
    assert story.expiry.deadline_ms(story.state, now_ms, story.now_ns) is None
    story.store(message(b"s.late"))
    assert story.expiry.deadline_ms(story.state, now_ms, story.now_ns) == now_ms + 2000
    later(story, 2)
    assert story.held() == [1]
    assert story.state.ttls.never == {1}


def test_an_expiry_that_was_not_appended_is_looked_for_again() -> None:
    story = with_ttl(max_age=2 * SECOND)
    story.store(message(b"s.a"), ttl(b"s.b", "never"), message(b"s.c"))
    story.now_ns += 2 * SECOND
    story.expire()
    story.uncommitted.clear()
    assert story.expiry.deadline_ms(story.state, 0, story.now_ns) is None  # One entry at a time.
    [lost] = story.proposals.pop().commands
    lost(None)
    later(story, EXPIRY_CHECK_MS / 1000)
    assert story.held() == [2]


def test_a_subject_whose_last_message_ran_out_of_time_gets_a_marker_with_a_ttl_of_its_own() -> None:
    story = with_ttl(subject_delete_marker_ttl=3 * SECOND, max_age=60 * SECOND)
    story.store(message(b"s.x"), ttl(b"s.x", "4"), ttl(b"s.y", "4"), ttl(b"s.z", "4"), message(b"s.z"))
    assert later(story, 4) == [b"s.y"]
    assert story.held() == [1, 5, 6]
    marker = story.state.message(6)
    assert marker is not None
    assert (marker.subject, marker.header, marker.payload) == (b"s.y", MARKER, b"")
    assert story.state.subjects.subjects() == {"s.x": 1, "s.z": 1, "s.y": 1}
    assert later(story, 3) == []
    assert story.held() == [1, 5]
    assert later(story, 53) == [b"s.x", b"s.z"]
    assert later(story, 3) == []
    assert story.held() == []


@pytest.mark.parametrize(
    "header", [{"KV_Operation": "PURGE"}, {"Nats_Marker_Reason": "Purge"}, {"KV_Operation": "DEL"}]
)
def test_a_marker_leaves_no_marker_behind(header: dict[str, str]) -> None:
    story = with_ttl(subject_delete_marker_ttl=SECOND)
    story.store(ttl(b"s.a", "1", **header))
    assert later(story, 1) == ([b"s.a"] if header == {"KV_Operation": "DEL"} else [])


def test_a_ttl_below_the_markers_is_raised_to_it() -> None:
    story = with_ttl(subject_delete_marker_ttl=3 * SECOND)
    story.store(ttl(b"s.a", "1s"), ttl(b"s.b", "5s"), ttl(b"s.c", "never"))
    stored = [story.state.message(seq) for seq in (1, 2, 3)]
    assert [found.header for found in stored if found] == [
        b"NATS/1.0\r\nNats-TTL: %s\r\n\r\n" % text for text in (b"3", b"5s", b"never")
    ]
    assert later(story, 2) == []
    assert later(story, 1) == [b"s.a"]


@pytest.mark.covers("SF-12")
def test_no_marker_follows_a_message_that_is_in_the_log_and_not_applied_yet() -> None:
    story = with_ttl(subject_delete_marker_ttl=SECOND)
    story.store(ttl(b"s.a", "1"), ttl(b"s.b", "1"))
    story.now_ns += SECOND
    story.publish(message(b"s.a", b"newer"))
    assert story.expire() == [b"s.b"]
    assert story.publish(message(b"s.b", b"behind the marker")) == [(5,)]
    story.commit()
    assert story.held() == [3, 4, 5]


@pytest.mark.covers("SF-13")
def test_ttls_are_in_snapshots_and_digests_and_leave_with_their_messages() -> None:
    story = with_ttl(max_msgs_per_subject=1)
    story.store(ttl(b"s.a", "5"), ttl(b"s.b", "never"), message(b"s.c"), ttl(b"s.d", "9"))
    copy = story.restored()
    assert digest(copy) == digest(story.state)
    copy.ttls = MessageTtls()
    assert digest(copy) != digest(story.state)
    for state in (story.state, story.restored()):
        assert state.ttls.due(10 * SECOND, 9) == [1, 4]
        assert state.ttls.never == {2}
    story.store(message(b"s.a"), message(b"s.b"))
    assert story.state.ttls.due(10 * SECOND, 9) == [4]
    assert not story.state.ttls.never
    story.command(Section.PURGE, b"{}")
    assert not story.state.ttls
    assert digest(story.restored()) == digest(story.state)


def test_replicas_apply_the_same_expiry_whatever_their_clocks_say() -> None:
    story = with_ttl(subject_delete_marker_ttl=2 * SECOND, max_age=5 * SECOND)
    other = StreamState(story.config, 0, story.log)
    for round_ in range(12):
        story.store(ttl(b"s.%d" % (round_ % 3), str(2 + round_ % 4)), message(b"s.m"), ttl(b"s.n", "never"))
        later(story, 0.7)
    for entry in story.log.entries(1, story.log.last_index, 1 << 30):
        other.apply(entry)
    assert digest(other) == digest(story.state)
    assert snapshot_of(other) == snapshot_of(story.state)


def test_a_heap_of_ttls_does_not_outgrow_its_messages() -> None:
    found = MessageTtls()
    for seq in range(1, 10_000):
        found.add(seq, 60, seq)
        found.discard(seq - 1)
    assert len(found._heap) < 2000
    assert len(found) == 1
    assert found.due(10**12, 5) == [9999]


def test_an_empty_stretch_removes_nothing() -> None:
    story = with_ttl()
    story.store(message())
    assert story.command(Section.EXPIRE_MESSAGES, u64(1) + u64(0) + u64(7)) == [0]
    assert story.held() == [1]
    assert not Expiry().is_due(story.state, 10**9)
