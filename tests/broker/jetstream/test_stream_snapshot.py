"""Snapshots of streams: older ones are read, and those of a newer broker refused rather than read in part."""

from __future__ import annotations

import pytest
from isal import isal_zlib
from tests.broker.jetstream.stream_story import StreamStory, message

from supercluster.broker.jetstream.stream import StreamState
from supercluster.broker.jetstream.wire import blob, text, u32, u64


def stored() -> StreamStory:
    story = StreamStory()
    story.store(message(), message(b"s.b"))
    return story


def test_a_snapshot_without_any_later_part_is_read() -> None:
    story = stored()
    assert story.restored().snapshot() == story.state.snapshot()


def test_many_deleted_sequences_take_few_bytes_and_few_stand_where_older_brokers_look() -> None:
    story = stored()
    for few in (True, False):
        end = 60_000 if few else 700_000
        story.state.last_seq = end + 1
        for seq in range(len(story.state.deleted) + 2, end):
            story.state.deleted.add(seq)
        data = story.state.snapshot()
        listed = isal_zlib.decompress(data[1:]).count((59_000).to_bytes(8, "little"))
        assert bool(listed) is few
        restored = story.restored()
        assert restored.snapshot() == data
        assert list(restored.deleted) == list(range(2, end))
    assert len(data) < 2000


def test_message_ids_are_read_behind_the_body_and_where_version_1_had_them() -> None:
    story = stored()
    body = isal_zlib.decompress(story.state.snapshot()[1:])
    subjects = blob(story.state.subjects.snapshot())
    story.store(message(Nats_Msg_Id="x"))
    restored = story.restored()
    assert restored.snapshot() == story.state.snapshot()
    assert restored.known_message_id(b"x", story.now_ns) == 3
    at = body.index(subjects) + len(subjects)
    # An id that came again after its window stood in its first place there, before ids of older messages.
    rows = [(b"x", 5000), (b"y", 2), (b"z", 1500)]
    ids = b"".join(blob(message_id) + u64(seq) + u64(story.now_ns) for message_id, seq in rows)
    older = body[:at] + u32(3) + ids + body[at + 4 :]
    restored = StreamState.restore(b"\x01" + isal_zlib.compress(older, 1), story.log)
    for message_id, seq in rows:
        assert restored.known_message_id(message_id, story.now_ns) == seq
    assert list(restored.message_ids) == [b"y", b"z", b"x"]


def test_one_with_a_part_of_a_newer_broker_is_refused() -> None:
    story = stored()
    version, body = story.state.snapshot()[:1], isal_zlib.decompress(story.state.snapshot()[1:])
    newer = version + isal_zlib.compress(body + text("zzz") + blob(b""), 1)
    with pytest.raises(ValueError, match="the part 'zzz'"):
        StreamState.restore(newer, story.log)


def test_one_of_another_version_is_refused() -> None:
    story = stored()
    with pytest.raises(ValueError, match="of version 3, this broker reads 1 and 2"):
        StreamState.restore(b"\x03" + story.state.snapshot()[1:], story.log)
