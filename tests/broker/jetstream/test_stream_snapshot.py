"""Snapshots of streams: older ones are read, and those of a newer broker refused rather than read in part."""

from __future__ import annotations

import pytest
from isal import isal_zlib
from tests.broker.jetstream.stream_story import StreamStory, message

from supercluster.broker.jetstream.stream import StreamState
from supercluster.broker.jetstream.wire import blob, text


def stored() -> StreamStory:
    story = StreamStory()
    story.store(message(), message(b"s.b", Nats_Msg_Id="x"))
    return story


def test_a_snapshot_without_any_later_part_is_read() -> None:
    story = stored()
    assert story.restored().snapshot() == story.state.snapshot()


def test_one_with_a_part_of_a_newer_broker_is_refused() -> None:
    story = stored()
    version, body = story.state.snapshot()[:1], isal_zlib.decompress(story.state.snapshot()[1:])
    newer = version + isal_zlib.compress(body + text("zzz") + blob(b""), 1)
    with pytest.raises(ValueError, match="the part 'zzz'"):
        StreamState.restore(newer, story.log)


def test_one_of_another_version_is_refused() -> None:
    story = stored()
    with pytest.raises(ValueError, match="of version 2, this broker reads 1"):
        StreamState.restore(b"\x02" + story.state.snapshot()[1:], story.log)
