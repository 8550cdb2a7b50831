"""Reading single messages: the same as of the whole entry, without cutting it into its thousands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.jetstream.publish.stream_story import StreamStory, config, message

from supercluster.broker.jetstream.state import log_reader
from supercluster.broker.jetstream.state.carried import Carried
from supercluster.broker.jetstream.state.log_reader import (
    DecodedEntry,
    MessageReader,
    decode_one,
    decode_stored,
)
from supercluster.broker.raft.entry import Entry

PARTS = st.tuples(
    st.sampled_from([b"s.a", b"s.bb", b"s.c.d"]),
    st.sampled_from([b"", b"NATS/1.0\r\n\r\n"]),
    st.binary(max_size=9),
)


@given(st.lists(st.lists(PARTS, min_size=1, max_size=5), min_size=1, max_size=4))
def test_one_message_of_an_entry_is_what_it_is_in_the_whole(
    blocks: list[list[tuple[bytes, bytes, bytes]]],
) -> None:
    story = StreamStory(config())
    for block in blocks:
        story.store(*block)
    log = story.state.reader._log
    for seq in range(1, story.state.last_seq + 1):
        index = log.index_of_seq(seq)
        assert index is not None
        entry = log.entry(index)
        assert entry is not None
        assert decode_one(entry, seq) == decode_stored(entry).message(seq)
        assert decode_one(entry, entry.last_seq + 1) is None


def test_who_asks_at_random_has_no_entry_decoded_and_who_goes_along_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = StreamStory(config())
    for _ in range(3):
        story.store(*[message()] * 10)
    whole: list[int] = []

    def decoding(entry: Entry) -> DecodedEntry:
        whole.append(entry.first_seq)
        return decode_stored(entry)

    monkeypatch.setattr(log_reader, "decode_stored", decoding)
    reader = MessageReader(story.state.reader._log, Carried())
    for seq in (5, 15, 25, 6, 16, 26):
        found = reader.get(seq)
        assert found is not None
        assert found.seq == seq
    assert whole == []
    for seq in range(11, 21):
        assert reader.get(seq) is not None
    assert whole == [11], "the second message of the same entry has it decoded, once"
    assert reader.get(31) is None
