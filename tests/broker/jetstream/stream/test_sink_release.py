"""Rows of a committed batch become messages: in bounded entries, once each, in the order of the commit."""

from __future__ import annotations

import pytest
from tests.broker.jetstream.sink.sink_story import SinkStory, names

from supercluster.broker.jetstream.encoding.sections import Verdict
from supercluster.broker.jetstream.sink import sink as sink_state
from supercluster.broker.jetstream.sink.sink import Outcome
from supercluster.broker.jetstream.stream import sink_release


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_release, "PART_ROWS_MAX", 2)
    monkeypatch.setattr(sink_release, "WHOLE_ROWS_MAX", 2)


def test_staged_rows_are_unseen_until_the_commit_entry() -> None:
    story = SinkStory()
    assert story.stage("t1", "a", "b") is Outcome.TAKEN
    story.release_all()
    assert (story.state.messages, story.state.last_seq) == (0, 0)
    assert story.commit_batch("t1") is Outcome.TAKEN
    story.release_all()
    assert story.payloads() == ["a", "b"]


@pytest.mark.usefixtures("small_parts")
def test_rows_are_released_in_the_order_that_the_commit_names() -> None:
    story = SinkStory()
    story.stage("t2", "d", "e", "f")
    story.stage("t1", "a", "b")
    story.stage("t1", "c", number=2)
    story.commit_batch("t1", "t2")
    story.release_all()
    assert story.payloads() == list("abcdef")
    assert story.sink.writers["q"].released == 6
    assert not story.sink.staged_bytes


@pytest.mark.usefixtures("small_parts")
def test_other_messages_may_stand_between() -> None:
    story = SinkStory()
    story.stage("t", *"abcd")
    story.commit_batch("t")
    assert story.put_release()
    story.publish((b"s.b", b"", b"x"))
    story.commit()
    story.taken()
    story.release_all()
    assert story.payloads() == ["a", "b", "x", "c", "d"]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("by_snapshot", [False, True])
def test_a_new_leader_goes_on_at_the_position(by_snapshot: bool) -> None:
    story = SinkStory()
    story.stage("t", *names(0, 9))
    story.commit_batch("t")
    while len(story.payloads()) < 9:
        story.put_release()
        story.commit()
        if by_snapshot:
            story.restore()
        else:
            story.another_leads()
    assert story.payloads() == names(0, 9)
    assert story.sink.writers["q"].stages == []


@pytest.mark.usefixtures("small_parts")
def test_nothing_is_released_while_an_entry_is_not_applied() -> None:
    story = SinkStory()
    story.stage("t", *"abc")
    story.commit_batch("t")
    assert story.put_release()
    assert not story.put_release()
    story.commit()
    story.taken()
    story.release_all()
    assert story.payloads() == list("abc")


def test_a_row_that_the_stream_does_not_take_any_more_stops_its_batch_alone() -> None:
    story = SinkStory()
    story.stage("t", *"ab")
    story.stage("u", *"cd", writer="other")
    story.commit_batch("t")
    story.commit_batch("u", writer="other")
    story.state.config = story.config.__class__.from_json({**story.config.to_json(), "subjects": ["x.>"]})
    story.another_leads()
    assert not story.put_release()
    assert story.release.stopped["q"].verdict == Verdict.REROUTE
    story.state.config = story.config
    story.another_leads()
    story.release_all()
    assert story.payloads() == list("abcd")
    assert not story.release.stopped


def test_a_full_stream_goes_on_when_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    story = SinkStory(max_msgs=2, discard="new")
    story.store((b"s.a", b"", b"x"))
    story.stage("t", *"ab")
    story.commit_batch("t")
    story.release_all()
    assert story.payloads() == ["x", "a"]
    story.state.remove(1)
    story.now_ns += 2 * sink_release.STOPPED_MS * 1_000_000
    story.release_all()
    assert story.payloads() == ["a", "b"]


def test_an_idle_stage_does_not_keep_the_log_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_release, "PINNED_BYTES_MAX", 1)
    story = SinkStory()
    story.stage("t", "a")
    story.stage("u", "b")
    story.commit_batch("u", batch=0, writer="nobody")
    assert not story.put_release()
    story.now_ns += sink_state.IDLE_NS
    story.release.begin()
    story.release_all()
    story.release.begin()
    story.release_all()
    assert not story.sink.stages
