"""What consumers read of a stream: batches within bounds, and exact counts of what is left for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.jetstream.publish.stream_story import StreamStory, config, message, result_of

from supercluster.broker.jetstream.encoding.codec import u64
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.state import log_reader, lookup, stream_reader
from supercluster.broker.jetstream.state.stream_reader import StreamReader, Stretches
from supercluster.broker.protocol.subjects import matches
from supercluster.broker.raft.entry import Entry
from supercluster.broker.storage.log.memory_log import MemoryLog

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


# Stretches of entries with one message each are read at once: many of them, with others between.
MANY = st.lists(st.sampled_from([(1,)] * 8 + [(2, 3), ()]), min_size=1, max_size=120)


@given(MANY, st.sets(st.integers(1, 120), max_size=5), st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_entries_with_a_message_each_are_read_as_they_are(
    entries: list[tuple[int, ...]], deleted: set[int], counts: list[int]
) -> None:
    story = StreamStory()
    for number, numbers in enumerate(entries):
        story.now_ns += 1
        if numbers:
            story.store(*[message(SUBJECTS[number % 3], b"%d" % number * each, A="1") for each in numbers])
        else:
            story.command(Section.DELETE_MESSAGE, u64(1 << 40))
    for seq in sorted(deleted):
        story.command(Section.DELETE_MESSAGE, u64(seq))
    source, seq, at = StreamReader(story.state), 1, 0
    found: list[tuple[int, bytes, bytes, bytes | memoryview, int]] = []
    while (batch := source.read(seq, counts[at % len(counts)], 1 << 20)).seqs:
        found += zip(batch.seqs, batch.subjects, batch.headers, batch.payloads, batch.times, strict=True)
        seq, at = batch.seqs[-1] + 1, at + 1
    assert found == [story.state.message(seq) for seq in story.held()]


def test_entries_with_a_message_each_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    story = StreamStory()
    for number in range(1000):
        story.store(message(payload=b"%d" % number))
        story.command(
            Section.DELETE_MESSAGE, u64(1 << 40)
        )  # Others stand between them, such as acknowledgements.
    one_by_one: list[Entry] = []

    def decoding(entry: Entry) -> log_reader.DecodedEntry:
        one_by_one.append(entry)
        return log_reader_decode(entry)

    log_reader_decode = log_reader.decode_stored
    monkeypatch.setattr(log_reader, "decode_stored", decoding)
    source, seq = StreamReader(story.state), 1
    while (batch := source.read(seq, 256, 1 << 20)).seqs:
        seq = batch.seqs[-1] + 1
    assert seq == 1001
    assert len(one_by_one) <= 40


def test_what_is_not_applied_is_in_no_stretch() -> None:
    """The log may lose it again, and get others with the same sequences."""
    story = StreamStory()
    for number in range(20):
        story.store(message(payload=b"%d" % number))
    for number in range(20, 40):
        story.publish(message(payload=b"%d" % number))
    found = Stretches(story.state)
    for seq in range(1, 20):
        stretch = found.entry_of(seq, 100)
        assert stretch is not None
        assert stretch.first_seq + stretch.count - 1 <= 20


def test_where_entries_are_not_so_simple_the_next_ones_are_not_read_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = StreamStory()
    for _ in range(600):
        story.store(message(), message())
    asked: list[int] = []
    entries = story.log.entries

    def asking(first: int, last: int, bytes_max: int) -> list[Entry]:
        asked.append(last - first)
        return entries(first, last, bytes_max)

    monkeypatch.setattr(story.log, "entries", asking)
    monkeypatch.setattr(stream_reader, "only_message", lambda record: None)
    assert len(StreamReader(story.state).read(1, 5000, 1 << 30).seqs) == 1200
    assert asked == []
    single = StreamStory()
    for _ in range(600):
        single.store(message())
    entries = single.log.entries
    monkeypatch.setattr(single.log, "entries", asking)
    assert len(StreamReader(single.state).read(1, 5000, 1 << 30).seqs) == 600
    assert len(asked) <= 3


def decoded_by(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Records that are decoded for stretches from now on."""
    found: list[bytes] = []
    decode = stream_reader.only_message

    def decoding(record: bytes) -> tuple[bytes, bytes, bytes] | None:
        found.append(record)
        return decode(record)

    monkeypatch.setattr(stream_reader, "only_message", decoding)
    return found


def test_a_reader_at_the_end_does_not_keep_others_from_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    story = StreamStory()
    for _ in range(500):
        story.store(message())
    for _ in range(40):
        story.command(Section.DELETE_MESSAGE, u64(1 << 40))
    source, decoded = StreamReader(story.state), decoded_by(monkeypatch)
    assert [len(source.read(seq, 1, 1000).seqs) for seq in (499, 500)] == [1, 1]
    decoded.clear()
    assert len(source.read(1, 400, 1 << 20).seqs) == 400
    assert len(decoded) > 380


def test_who_wants_few_has_few_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    story = StreamStory()
    for _ in range(5000):
        story.store(message())
    source, decoded = StreamReader(story.state), decoded_by(monkeypatch)
    places = [1, 1000, 2000, 3000, 4000, 4500]
    for _ in range(100):
        places = [source.read(place, 2, 1 << 20).seqs[-1] + 1 for place in places]
    assert places == [201, 1200, 2200, 3200, 4200, 4700]
    assert len(decoded) <= 6 * 100 * stream_reader.STRETCH_ENTRIES_MIN


BLOCKS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=6)


@given(BLOCKS, st.sets(st.integers(1, 30)), st.integers(0, 32), st.integers(1, 10), st.integers(1, 200))
def test_a_batch_is_a_stretch_of_what_is_stored(
    blocks: list[list[int]], deleted: set[int], start: int, count_max: int, bytes_max: int
) -> None:
    story = story_of(blocks, deleted)
    source = StreamReader(story.state)
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


def test_what_was_deleted_is_passed_without_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    story = StreamStory(config(max_msgs_per_subject=1))
    story.store(message(b"s.old"))
    for _ in range(100):
        story.store(message(b"s.new"))
    story.commit()
    source, reads = StreamReader(story.state), [0]
    entry = MemoryLog.entry

    def counted(log: MemoryLog, index: int) -> Entry | None:
        reads[0] += 1
        return entry(log, index)

    monkeypatch.setattr(MemoryLog, "entry", counted)
    story.state.reader.forget()
    assert list(source.read(1, 10, 10_000).seqs) == [1, 101]
    assert list(source.read(2, 10, 10_000).seqs) == [101]
    found = result_of(lookup.next_from(story.state, 2))
    assert found is not None
    assert found.seq == 101
    assert reads[0] <= 4
    story.append((Section.DELETE_MESSAGE, [u64(1)]))
    story.commit()
    assert (story.state.first_seq, len(story.state.deleted)) == (101, 0)


@given(BLOCKS, st.sets(st.integers(1, 30)), st.integers(0, 32), st.sampled_from(FILTERS))
def test_what_is_pending_is_counted_exactly(
    blocks: list[list[int]], deleted: set[int], after: int, filters: tuple[str, ...]
) -> None:
    story = story_of(blocks, deleted)
    source = StreamReader(story.state)
    found = [story.state.message(seq) for seq in story.held() if seq > after]
    patterns = [item.encode() for item in filters] or [b">"]
    wanted = sum(1 for one in found if one and any(matches(one.subject, pattern) for pattern in patterns))
    assert source.pending_count(filters, after) == wanted
    following = source.next_matching(filters, after + 1)
    firsts = [one.seq for one in found if one and any(matches(one.subject, pattern) for pattern in patterns)]
    if firsts:
        assert following is not None
        assert after < following <= firsts[0]


@pytest.mark.parametrize("after", [0, 4, 8])
def test_an_empty_stream_has_nothing(after: int) -> None:
    source = StreamReader(StreamStory().state)
    assert source.pending_count((), after) == 0
    assert len(source.read(after, 10, 100)) == 0
