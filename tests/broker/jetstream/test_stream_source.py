"""What consumers read of a stream: batches within bounds, and exact counts of what is left for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.jetstream.stream_story import StreamStory, message

from supercluster.broker.jetstream.deleted import STRETCH_BITS, DeletedSeqs
from supercluster.broker.jetstream.sections import Section
from supercluster.broker.jetstream.source import StreamSource
from supercluster.broker.jetstream.wire import u64
from supercluster.broker.protocol.subjects import matches

SUBJECTS = (b"s.a", b"s.b", b"s.c.d")
FILTERS = ((), (">",), ("s.*",), ("s.a",), ("s.a", "s.c.>"), ("t",))


def story_of(blocks: list[list[int]], deleted: set[int]) -> StreamStory:
    story = StreamStory()
    for numbers in blocks:
        story.now_ns += 1
        story.store(*[message(SUBJECTS[number % 3], b"x" * number) for number in numbers])
    for seq in sorted(deleted):
        story.append((Section.DELETE_MESSAGE, [u64(seq)]))
    story.commit()
    return story


BLOCKS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=6)


@given(BLOCKS, st.sets(st.integers(1, 30)), st.integers(0, 32), st.integers(1, 10), st.integers(1, 200))
def test_a_batch_is_a_stretch_of_what_is_stored(
    blocks: list[list[int]], deleted: set[int], start: int, count_max: int, bytes_max: int
) -> None:
    story = story_of(blocks, deleted)
    source = StreamSource(story.state)
    batch = source.read(start, count_max, bytes_max)
    wanted = [seq for seq in story.held() if seq >= start]
    got = list(batch.seqs)
    assert got == wanted[: len(got)]
    assert len(got) <= count_max
    assert bool(got) == bool(wanted)
    rows = zip(batch.seqs, batch.subjects, batch.headers, batch.payloads, batch.times, strict=True)
    for seq, subject, header, payload, time_ns in rows:
        found = story.state.message(seq)
        assert found is not None
        assert (found.subject, found.header, found.payload, found.time_ns) == (
            subject,
            header,
            payload,
            time_ns,
        )
    # Every byte but the first message's is within the bound: whole entries are never read beyond it.
    sizes = [
        len(s) + len(h) + len(p)
        for s, h, p in zip(batch.subjects, batch.headers, batch.payloads, strict=True)
    ]
    assert sum(sizes[:-1]) <= bytes_max
    seen, at = [], start
    while len(batch := source.read(at, count_max, bytes_max)):
        seen += list(batch.seqs)
        at = seen[-1] + 1
    assert seen == wanted


@given(BLOCKS, st.sets(st.integers(1, 30)), st.integers(0, 32), st.sampled_from(FILTERS))
def test_what_is_pending_is_counted_exactly(
    blocks: list[list[int]], deleted: set[int], after: int, filters: tuple[str, ...]
) -> None:
    story = story_of(blocks, deleted)
    source = StreamSource(story.state)
    found = [story.state.message(seq) for seq in story.held() if seq > after]
    patterns = [item.encode() for item in filters] or [b">"]
    wanted = sum(1 for one in found if one and any(matches(one.subject, pattern) for pattern in patterns))
    assert source.pending_count(filters, after) == wanted
    following = source.next_matching(filters, after + 1)
    firsts = [one.seq for one in found if one and any(matches(one.subject, pattern) for pattern in patterns)]
    if firsts:
        assert following is not None
        assert after < following <= firsts[0]


EDGE = 1 << STRETCH_BITS


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3 * EDGE)), max_size=40), st.integers(0, 3 * EDGE))
def test_deleted_sequences_are_a_set_that_counts(steps: list[tuple[bool, int]], place: int) -> None:
    found, model = DeletedSeqs(), set[int]()
    for add, seq in steps:
        (found.add if add else found.discard)(seq)
        (model.add if add else model.discard)(seq)
    assert found == model
    for at in (place, *model, EDGE - 1, EDGE, 0):
        assert found.count_behind(at) == sum(1 for seq in model if seq > at)
    assert DeletedSeqs(model).count_behind(place) == found.count_behind(place)
    found.clear()
    assert (len(found), found.count_behind(0)) == (0, 0)


@pytest.mark.parametrize("after", [0, 4, 8])
def test_an_empty_stream_has_nothing(after: int) -> None:
    source = StreamSource(StreamStory().state)
    assert source.pending_count((), after) == 0
    assert len(source.read(after, 10, 100)) == 0
