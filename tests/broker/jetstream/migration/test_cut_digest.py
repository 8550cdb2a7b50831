"""The digest of a cut: equal where the state is, and it names what differs (SF-20, BG-12)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.broker.jetstream.publish.stream_story import StreamStory, message

from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.migration.cut_digest import DIGEST_BYTES, PARTS, cut_digesting, differences
from supercluster.broker.jetstream.state.cut import Fence
from supercluster.broker.jetstream.state.interior_deletes import InteriorDeletes
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.turn.slices import at_once
from supercluster.broker.migration.plan import FENCED_MS_MAX


def fenced() -> StreamStory:
    story = StreamStory()
    story.store(*[message(Nats_Msg_Id=str(number)) for number in range(5)])
    body = {"durable_name": "c", "ack_policy": "explicit"}
    put = json.dumps({"name": "c", "start_seq": 1, "config": body}).encode()
    story.command(Section.CONSUMER_PUT, put)
    story.state.remove(3)
    story.command(Section.FENCED, Fence("m", 1, "9c21b3fa", ("g@1",)).encode())
    return story


def digest(state: StreamState) -> bytes:
    return at_once(cut_digesting(state))


def test_a_state_that_was_read_again_has_the_same_digest() -> None:
    story = fenced()
    assert digest(story.restored()) == digest(story.state)
    assert len(digest(story.state)) == DIGEST_BYTES


def later(state: StreamState) -> None:
    state.leader_time_ns += 1


def test_time_that_passes_behind_the_fence_changes_nothing() -> None:
    """Green's group has entries of its own before it opens."""
    story = fenced()
    before = digest(story.state)
    later(story.state)
    assert digest(story.state) == before


@pytest.mark.covers("BG-4")
def test_four_million_deleted_messages_cost_the_fence_a_fraction_of_its_two_seconds() -> None:
    """They took four times as long as a fence may stand, so that such a stream was never handed over."""
    story = fenced()
    story.state.deleted = InteriorDeletes(range(7, 8_000_007, 2))
    assert sum(cut_digesting(story.state)) < 1000 * FENCED_MS_MAX // 10, "microseconds, as slices count them"


def _bytes(state: StreamState) -> None:
    state.bytes += 1


def _ids(state: StreamState) -> None:
    state.message_ids.add(b"other", 6, 1)


def _session(state: StreamState) -> None:
    state.sessions.states()[0].last_number += 1


def _consumer(state: StreamState) -> None:
    state.consumers["c"].delivered_sseq += 1


def _config(state: StreamState) -> None:
    state.config_version += 1


@pytest.mark.parametrize(
    ("change", "part"),
    list(zip((_bytes, _ids, _session, _consumer, _config), PARTS, strict=True)),
)
def test_what_differs_is_named(change: Callable[[StreamState], None], part: str) -> None:
    story = fenced()
    before = digest(story.state)
    change(story.state)
    assert differences(digest(story.state), before) == [part]


def test_what_is_no_digest_differs_in_everything() -> None:
    assert differences(b"", digest(fenced().state)) == list(PARTS)
