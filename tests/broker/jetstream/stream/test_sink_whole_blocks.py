"""Rows that are released by the block leave the same stream as rows that are judged one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.broker.jetstream.publish.stream_story import Triple, check_whole, message, result_of
from tests.broker.jetstream.sink.sink_story import SinkStory
from tests.support.tiers import examples

from supercluster.broker.jetstream.encoding.sections import Block
from supercluster.broker.jetstream.publish.message_admission import MessageAdmission
from supercluster.broker.jetstream.sink.sink import Outcome
from supercluster.broker.jetstream.state.digest import digesting
from supercluster.broker.jetstream.state.snapshot import snapshot_of
from supercluster.broker.jetstream.stream import sink_release

CONFIGS: tuple[dict[str, Any], ...] = (
    {},
    {"max_msgs": 5},
    {"max_bytes": 300},
    {"max_msgs_per_subject": 2},
    {"max_msgs": 9, "discard": "new"},
    {"max_msgs_per_subject": 2, "discard": "new", "discard_new_per_subject": True},
    {"max_msg_size": 4},
    {"retention": "interest"},
    {"retention": "workqueue"},
    {"allow_msg_schedules": True},
    {"allow_rollup_hdrs": True},
    {"subject_transform": {"src": "s.a", "dest": "s.b"}},
    {"subjects": ["s.a", "s.c"]},
)
rows = st.builds(
    lambda subject, size, header: message(subject, b"x" * size, **({"Row": header} if header else {})),
    st.sampled_from((b"s.a", b"s.b", b"s.c")),
    st.integers(0, 6),
    st.sampled_from(("", "", "", "", "1")),
)
plain = st.lists(st.sampled_from((message(b"s.a", b"1"), message(b"s.b", b"22"))), min_size=1, max_size=9)
blocks = st.lists(st.one_of(st.lists(rows, min_size=1, max_size=9), plain), min_size=1, max_size=5)


def released(
    config: dict[str, Any], found: list[list[Triple]], rows_max: int, *, is_whole: bool
) -> SinkStory:
    """The stream behind the release, another message between two entries of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink_release, "PART_ROWS_MAX", rows_max)
        patch.setattr(sink_release, "WHOLE_ROWS_MAX", rows_max)
        if not is_whole:
            patch.setattr(MessageAdmission, "takes_whole", lambda self, block: False)
            patch.setattr(Block, "has_headers", True)
        story = SinkStory(**config)
        for number, block in enumerate(found, 1):
            assert story.stage_rows("t", *block, number=number) is Outcome.TAKEN
        assert story.commit_batch("t") is Outcome.TAKEN
        while story.put_release():
            story.commit()
            story.taken()
            check_whole(story.state)
        return story


def seen(story: SinkStory) -> tuple[Any, ...]:
    state = story.state
    messages = [state.message(seq) for seq in story.held()]
    # Times and indexes of entries are others: the same rows stand in another number of entries.
    contents = [found and found[:4] for found in messages]
    writer = story.sink.writers["q"]
    subjects = {name: story.admission.end.last_of_subject(name) for name in (b"s.a", b"s.b", b"s.c")}
    end = (story.admission.end.next_seq, story.admission.end.last_message_id, subjects)
    return contents, state.last_seq, writer.released, writer.rows, story.release.stopped, end


@pytest.mark.covers("SF-13")
@settings(max_examples=examples(150, 3000), deadline=None)
@given(config=st.sampled_from(CONFIGS), found=blocks, rows_max=st.integers(1, 12))
@example(config={}, found=[[message(b"s.a", b"1")] * 3] * 2, rows_max=4)
def test_whole_blocks_leave_the_stream_that_single_rows_leave(
    config: dict[str, Any], found: list[list[Triple]], rows_max: int
) -> None:
    whole = released(config, found, rows_max, is_whole=True)
    single = released(config, found, rows_max, is_whole=False)
    assert seen(whole) == seen(single)
    assert result_of(digesting(whole.state)) == result_of(digesting(whole.restored()))


@pytest.mark.covers("SF-13")
@settings(max_examples=examples(100, 2000), deadline=None)
@given(config=st.sampled_from(CONFIGS), found=blocks)
def test_an_entry_is_applied_alike_by_the_block_and_by_the_row(
    config: dict[str, Any], found: list[list[Triple]]
) -> None:
    story = released(config, found, 8192, is_whole=True)
    replayed = []
    for by_row in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if by_row:
                patch.setattr(Block, "has_headers", True)
            replica = SinkStory(**config)
            replica.log, replica.state.reader = story.log, story.state.reader
            for index in range(replica.state.applied_index + 1, story.log.last_index + 1):
                entry = story.log.entry(index)
                assert entry is not None
                replica.state.apply(entry)
        replayed.append((snapshot_of(replica.state), result_of(digesting(replica.state))))
    assert replayed[0] == replayed[1] == (snapshot_of(story.state), result_of(digesting(story.state)))


def test_a_block_goes_into_the_log_as_it_came() -> None:
    story = SinkStory()
    staged = [message(b"s.a", b"1"), message(b"s.b", b"22")]
    story.stage_rows("t", *staged)
    story.commit_batch("t")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MessageAdmission, "judge_taken", None)
        story.release_all()
    assert story.payloads() == ["1", "22"]
