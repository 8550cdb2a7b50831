"""What is left for consumers with filters: one pass for all of them, exact whatever happens meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from benchmarks.one_broker import CLIENT, BenchClock, CallMeter, OneBroker
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.jetstream.publish.stream_story import StreamStory, message, result_of
from tests.support.tiers import examples

from supercluster.broker.jetstream.config.consumer_checks import read_consumer
from supercluster.broker.jetstream.consumer import pending_counts
from supercluster.broker.jetstream.consumer.leader import ConsumerLeader
from supercluster.broker.jetstream.consumer.pending_counts import PendingCount, PendingCounts
from supercluster.broker.jetstream.encoding.codec import u64
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.state import stream_reader
from supercluster.broker.jetstream.state.consumer import ConsumerState
from supercluster.broker.jetstream.state.stream_reader import StreamReader
from supercluster.broker.protocol.subjects import matches

SUBJECTS = (b"s.a", b"s.b", b"s.c.d", b"s.e")
FILTERS = (("s.a",), ("s.*",), ("s.c.>", "s.a"), ("s.b", "s.e"), ("t",))
STORED = st.lists(st.integers(0, 3), min_size=1, max_size=20)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.integers(1, 25)),
        st.tuples(st.just("first"), st.just(0)),
    ),
    max_size=15,
)


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_counts, "LOOKED_AT_MAX", 1)
    monkeypatch.setattr(pending_counts, "SLICE_UNITS", 1)
    for name in ("INDEX_ASKED_MAX", "COUNTED_MAX"):
        monkeypatch.setattr(stream_reader, name, 1)
    monkeypatch.setattr(stream_reader, "GONE_MAX", 4)


def story_of(numbers: list[int]) -> StreamStory:
    story = StreamStory()
    for at in range(0, len(numbers), 3):
        story.store(*(message(SUBJECTS[number]) for number in numbers[at : at + 3]))
    return story


def left(story: StreamStory, filters: tuple[str, ...], after: int) -> int:
    found = [story.state.message(seq) for seq in story.held() if seq > after]
    return sum(any(matches(m.subject, item.encode()) for item in filters) for m in found if m)


def change(story: StreamStory, what: str, number: int) -> None:
    if what == "store":
        story.store(message(SUBJECTS[number]))
    else:
        seq = story.state.first_seq if what == "first" else number
        story.command(Section.DELETE_MESSAGE, u64(seq))


@pytest.mark.covers("SF-29")
@settings(max_examples=examples(100, 1_000), deadline=None)
@given(STORED, CHANGES, st.lists(st.tuples(st.sampled_from(FILTERS), st.integers(0, 22)), max_size=5))
def test_one_pass_counts_for_all_whatever_changes_meanwhile(
    numbers: list[int], changes: list[tuple[str, int]], asked: list[tuple[tuple[str, ...], int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        story = story_of(numbers)
        wanted = [PendingCount(f"c{at}", *each) for at, each in enumerate(asked)]
        counts = PendingCounts(story.state, wanted)

        def removed(seq: int, subject: bytes, *, is_first: bool) -> None:
            counts.removed(seq, subject)

        story.state.on_removed = removed
        coming = iter(changes)

        def between() -> None:
            step = next(coming, None)
            if step is not None:
                change(story, *step)

        result_of(counts.run(), between)
    assert counts.up_to == story.state.last_seq
    for count in wanted:
        assert count.found == left(story, count.filters, count.after), count


@pytest.mark.covers("SF-29")
@settings(max_examples=examples(80, 1_000), deadline=None)
@given(STORED, CHANGES, st.sampled_from(FILTERS), st.integers(0, 12))
def test_a_count_follows_the_stream_and_its_beginning(
    numbers: list[int], changes: list[tuple[str, int]], filters: tuple[str, ...], start: int
) -> None:
    """Where it says that it cannot, a pass is needed."""
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        story = story_of(numbers)
        config = read_consumer({"name": "c", "filter_subjects": list(filters)})
        state = ConsumerState(name="c", config=config, created_ns=1, start_seq=start)
        leader, reader = ConsumerLeader("S", state, 0), StreamReader(story.state)

        def removed(seq: int, subject: bytes, *, is_first: bool) -> None:
            if is_first:
                reader.note_gone(seq, subject)
            else:
                leader.uncount(seq, subject)

        story.state.on_removed = removed
        for step in [*changes, ("store", 0)]:
            if not leader.count_up(reader):
                count = leader.to_count()
                assert count is not None
                counts = PendingCounts(story.state, [count])
                result_of(counts.run())
                leader.counted(count, counts.up_to, reader.first_seq)
                assert leader.count_up(reader)
            assert leader.num_pending(reader) == left(story, filters, max(start, 1) - 1)
            change(story, *step)


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OneBroker]:
    shorten(monkeypatch)
    found = OneBroker(tmp_path, CallMeter(), BenchClock(stands_still=True))
    found.create("S")
    found.publish([b"S.%d.%d" % (at % 10, at % 3) for at in range(60)])
    yield found
    found.core.close(clean=False)


def consume(broker: OneBroker, name: str, filter_subject: str) -> None:
    config = {"durable_name": name, "ack_policy": "explicit", "filter_subject": filter_subject}
    broker.step(
        lambda: broker.core.on_api(
            CLIENT,
            f"$JS.API.CONSUMER.CREATE.S.{name}".encode(),
            b"_R.c",
            b"",
            json.dumps({"stream_name": "S", "config": config}).encode(),
        )
    )
    broker.until(lambda: b"_R.c" in broker.network.answers)
    broker.network.answers.clear()


def pending_told(broker: OneBroker) -> list[int]:
    found = [int(reply.split(b".")[-1]) for reply in broker.network.to_acknowledge]
    broker.network.to_acknowledge.clear()
    return found


@pytest.mark.covers("SF-29")
def test_nothing_is_handed_out_before_it_is_known_what_is_left(broker: OneBroker) -> None:
    consume(broker, "c", "S.*.1")
    leader = broker.stream("S").consumers.get("c")
    assert leader is not None
    asked = json.dumps({"batch": 3, "no_wait": True}).encode()
    broker.step(lambda: broker.core.on_api(CLIENT, b"$JS.API.CONSUMER.MSG.NEXT.S.c", b"_I.c", b"", asked))
    assert pending_told(broker) == []
    assert leader.num_waiting == 1, "it is not told that there is nothing"
    broker.settle()
    assert pending_told(broker) == [19, 18, 17]
    broker.change_leader("S")
    broker.pull_all("S", ["c"], 2)
    assert pending_told(broker) == [16, 15]


@pytest.mark.covers("SF-29")
def test_consumers_are_told_about_when_all_is_counted_a_page_at_a_time(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supercluster.broker.jetstream.api.answers.LIST_PAGE", 2)
    for number in range(3):
        consume(broker, f"c{number}", f"S.*.{number}")
    broker.change_leader("S")
    assert broker.call("CONSUMER.INFO.S.c1")["num_pending"] == 20
    first = broker.call("CONSUMER.LIST.S", {"offset": 0})
    second = broker.call("CONSUMER.LIST.S", {"offset": 2})
    assert [found["name"] for page in (first, second) for found in page["consumers"]] == ["c0", "c1", "c2"]
    assert [found["num_pending"] for page in (first, second) for found in page["consumers"]] == [20] * 3
    assert (first["total"], first["offset"], second["offset"], second["limit"]) == (3, 0, 2, 2)


def test_the_consumers_of_a_leader_that_is_deposed_while_it_counts_are_counted_by_the_next(
    broker: OneBroker,
) -> None:
    consume(broker, "c", "S.*.1")
    group = broker.stream("S")
    broker.core.copies.slices.units_per_turn = 1
    broker.step(partial(broker.pull, "S", "c", 1))
    assert group.consumers.is_counting
    broker.change_leader("S")
    broker.settle()
    assert pending_told(broker) == [19]
