"""Transactions of writers as replicated state: one commit for each batch, and nothing that only an attempt knows."""

from __future__ import annotations

import pytest
from tests.broker.jetstream.sink.sink_story import SinkStory

from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.sink import sink as sink_state
from supercluster.broker.jetstream.sink.records import BatchKey, Release
from supercluster.broker.jetstream.sink.sink import Outcome, Sink
from supercluster.broker.jetstream.state.digest import digesting
from supercluster.broker.jetstream.turn.slices import at_once


def test_the_same_batch_again_gets_the_first_answer_whatever_its_stages_are_called() -> None:
    story = SinkStory()
    story.stage("t", "a")
    assert story.commit_batch("t") is Outcome.TAKEN
    story.stage("zombie", "b")
    assert story.commit_batch("u", "v") is Outcome.KNOWN
    story.release_all()
    assert story.payloads() == ["a"]
    assert not story.sink.stages


def test_a_batch_with_other_offsets_is_refused() -> None:
    story = SinkStory()
    story.stage("t", "a")
    story.commit_batch("t", offsets="one")
    assert story.commit_batch("t", offsets="two") is Outcome.OFFSETS_DIFFER


def test_another_run_repeats_a_batch_and_a_second_write_of_a_run_does_not() -> None:
    """Two writes to one stream within one foreachBatch have other rows, and the same writer and batch."""
    story = SinkStory()
    story.stage("t", "a")
    assert story.commit_batch("t", run="1", write="4") is Outcome.TAKEN
    assert story.commit_batch("t", run="1", write="4") is Outcome.KNOWN
    assert story.commit_batch("u", run="1", write="5") is Outcome.OTHER_WRITE
    # The query goes on from its checkpoint, and does the same again.
    assert story.commit_batch("v", run="2", write="6") is Outcome.KNOWN
    story.state.sink = Sink.decode(Reader(story.sink.encode()))
    # The first run's commit was long on its way.
    assert story.commit_batch("t", run="1", write="4") is Outcome.KNOWN
    assert story.commit_batch("w", run="2", write="7") is Outcome.OTHER_WRITE
    assert story.commit_batch("x") is Outcome.KNOWN, "who has no runs"


def test_a_batch_below_the_last_is_refused() -> None:
    story = SinkStory()
    story.stage("t", "a", batch=3)
    story.commit_batch("t", batch=3)
    story.release_all()
    assert story.commit_batch(batch=2) is Outcome.BATCH_OLD
    assert story.stage("u", "b", batch=3) is Outcome.BATCH_OLD


def test_batches_may_be_left_out_and_may_be_empty() -> None:
    story = SinkStory()
    assert story.commit_batch(batch=1) is Outcome.TAKEN
    assert not story.sink.unreleased
    assert story.commit_batch(batch=4) is Outcome.TAKEN


def test_a_commit_waits_for_the_release_of_the_one_before() -> None:
    story = SinkStory()
    story.stage("t", "a")
    story.commit_batch("t")
    assert story.commit_batch(batch=1) is Outcome.UNRELEASED
    story.release_all()
    assert story.commit_batch(batch=1) is Outcome.TAKEN


def test_a_commit_that_names_what_is_not_staged_takes_nothing() -> None:
    story = SinkStory()
    story.stage("t", "a")
    assert story.commit_batch("t", "gone") is Outcome.STAGE_MISSING
    assert story.commit_batch("t", "t") is Outcome.STAGE_DIFFERS
    story.stage("other", "a", writer="w")
    assert story.commit_batch("other") is Outcome.STAGE_DIFFERS
    story._crcs["t"] = (1, 7)
    assert story.commit_batch("t") is Outcome.STAGE_DIFFERS
    assert list(story.sink.stages) == ["t", "other"]
    assert not story.sink.writers


def test_a_repeated_block_counts_once_and_a_gap_is_refused() -> None:
    story = SinkStory()
    assert story.stage("t", "a", number=2) is Outcome.STAGE_MISSING
    story.stage("t", "a")
    assert story.stage("t", "a") is Outcome.KNOWN
    assert story.stage("t", "other") is Outcome.STAGE_DIFFERS
    assert story.stage("t", "c", number=3) is Outcome.OUT_OF_ORDER
    assert story.sink.stages["t"].rows == 1


def test_an_abort_drops_named_stages_of_its_batch_that_are_not_committed() -> None:
    story = SinkStory()
    story.stage("t", "a")
    story.stage("u", "b")
    story.stage("v", "c", batch=1)
    assert story.abort("u", "v", "nothing") == 1
    assert story.commit_batch("t") is Outcome.TAKEN
    assert story.abort("t") == 0
    story.release_all()
    assert story.payloads() == ["a"]
    assert "v" in story.sink.stages


def test_a_commit_drops_what_else_its_writer_staged_so_far_and_nothing_of_others() -> None:
    story = SinkStory()
    for token, batch, writer in (("t", 1, "q"), ("old", 0, "q"), ("new", 2, "q"), ("x", 1, "w")):
        story.stage(token, "a", batch=batch, writer=writer)
    story.commit_batch("t", batch=1)
    assert sorted(story.sink.stages) == ["new", "x"]


def test_stages_have_a_quota_that_idle_ones_give_way_to(monkeypatch: pytest.MonkeyPatch) -> None:
    story = SinkStory()
    story.stage("t", "a")
    monkeypatch.setattr(sink_state, "STAGED_BYTES_MAX", story.sink.staged_bytes + 5)
    assert story.stage("u", "b") is Outcome.STAGES_FULL
    story.now_ns += sink_state.IDLE_NS
    assert story.stage("u", "b") is Outcome.TAKEN
    assert list(story.sink.stages) == ["u"]


def test_committed_rows_never_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_state, "BLOCKS_MAX", 1)
    story = SinkStory()
    story.stage("t", "a")
    story.commit_batch("t")
    story.now_ns += 2 * sink_state.IDLE_NS
    assert story.stage("u", "b", batch=1) is Outcome.STAGES_FULL
    story.release_all()
    assert story.stage("u", "b", batch=1) is Outcome.TAKEN


def test_a_full_table_refuses_new_writers_until_one_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_state, "WRITERS_MAX", 1)
    story = SinkStory()
    story.stage("t", "a")
    story.commit_batch("t")
    assert story.stage("u", "b", writer="w") is Outcome.WRITERS_FULL
    assert story.commit_batch(writer="w") is Outcome.WRITERS_FULL
    assert story.forget() is Outcome.UNRELEASED
    story.release_all()
    assert story.commit_batch(batch=1) is Outcome.TAKEN
    assert story.forget() is Outcome.TAKEN
    assert story.forget() is Outcome.WRITER_MISSING
    assert story.commit_batch(writer="w") is Outcome.TAKEN


def test_a_release_that_does_not_follow_the_position_is_no_entry_of_a_leader() -> None:
    story = SinkStory()
    story.stage("t", "a", "b")
    story.commit_batch("t")
    for first, end in ((1, 2), (0, 3), (0, 0)):
        with pytest.raises(AssertionError):
            story.sink.release(Release(BatchKey("q", 0), first, end))


def test_a_snapshot_has_all_of_it_and_equal_states_give_equal_bytes() -> None:
    story = SinkStory()
    story.stage("t", "a", "b")
    story.stage("z", "c", writer="w", batch=7)
    story.commit_batch("t")
    story.stage("y", "d", writer="w", batch=7)
    again = story.restored().sink
    assert again.encode() == story.sink.encode()
    assert (again.staged_bytes, again._blocks) == (story.sink.staged_bytes, story.sink._blocks)
    assert list(again.unreleased) == ["q"]
    assert again.first_index() == story.sink.first_index()


def test_a_layout_of_a_newer_broker_is_refused() -> None:
    with pytest.raises(ValueError, match="layout 1"):
        Sink.decode(Reader(b"\x01"))


def test_copies_that_differ_in_what_is_staged_are_told_apart() -> None:
    story, other = SinkStory(), SinkStory()
    assert at_once(digesting(story.state)) == at_once(digesting(other.state))
    story.stage("t", "a")
    assert at_once(digesting(story.state)) != at_once(digesting(other.state))


def test_the_log_is_kept_from_the_first_entry_that_has_rows_to_release() -> None:
    story = SinkStory()
    assert story.sink.first_index() is None
    story.stage("t", "a")
    first = story.log.last_index
    story.stage("u", "b")
    story.commit_batch("u", "t")
    assert story.sink.first_index() == first
    story.release_all()
    assert story.sink.first_index() is None
