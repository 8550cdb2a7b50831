"""Snapshots of streams: read in slices, as of one entry; those of another version are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib
from tests.broker.jetstream.publish.stream_story import StreamStory, config, message

from supercluster.broker.jetstream.encoding.codec import blob, text, u64
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.state import consumer_states, interior_deletes, message_ttl, subject_index
from supercluster.broker.jetstream.state.consumer_ops import Op, OpKind, encode_ops
from supercluster.broker.jetstream.state.snapshot import StreamView, read, restore, snapshot_of
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.turn.slices import SLICE_UNITS, at_once


def stored() -> StreamStory:
    story = StreamStory()
    story.store(message(), message(b"s.b"))
    return story


def put_consumer(story: StreamStory, name: str) -> None:
    body: dict[str, Any] = {"durable_name": name, "ack_policy": "explicit"}
    story.command(Section.CONSUMER_PUT, json.dumps({"name": name, "start_seq": 1, "config": body}).encode())


def test_a_snapshot_gives_an_equal_state() -> None:
    story = stored()
    assert snapshot_of(story.restored()) == snapshot_of(story.state)


@pytest.mark.parametrize(
    "wrong", [b"\x04", b"\x03" + text("stranger") + blob(b"")], ids=["version", "first-part"]
)
def test_one_of_another_version_is_refused(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="snapshot"):
        restore(wrong + snapshot_of(stored().state)[1:], stored().log)


def test_one_with_a_part_of_a_newer_broker_is_refused() -> None:
    story = stored()
    newer = snapshot_of(story.state) + text("zzz") + blob(isal_zlib.compress(b"", 1))
    with pytest.raises(ValueError, match="the part 'zzz'"):
        restore(newer, story.log)


def test_many_deleted_sequences_take_few_bytes() -> None:
    story = stored()
    story.state.last_seq = 700_001
    for seq in range(2, 700_000):
        story.state.deleted.add(seq)
    data = snapshot_of(story.state)
    assert len(data) < 2000
    restored = story.restored()
    assert snapshot_of(restored) == data
    assert list(restored.deleted) == list(range(2, 700_000))


class Busy:
    """A stream to which everything happens."""

    def __init__(self) -> None:
        self.story = StreamStory(config(allow_msg_ttl=True, max_msgs_per_subject=4))
        for name in ("A", "B"):
            put_consumer(self.story, name)

    @property
    def state(self) -> StreamState:
        return self.story.state

    def step(self, what: str, number: int) -> None:
        story, name = self.story, "ABC"[number % 3]
        story.now_ns += 1000
        if what == "store":
            story.store(*[message(b"s.%d" % (number + at)) for at in range(3)])
        elif what == "id":
            story.store(message(b"s.%d" % number, Nats_Msg_Id=f"{number}-{story.state.last_seq}"))
        elif what == "ttl":
            story.store(message(b"s.%d" % number, Nats_TTL="never" if number == 5 else str(number + 1)))
        elif what == "delete":
            story.command(Section.DELETE_MESSAGE, u64(story.state.first_seq + number))
        elif what == "put":
            put_consumer(story, name)
        elif what == "drop":
            story.command(Section.CONSUMER_DELETE, text(name))
        elif what == "purge":
            story.command(Section.PURGE, json.dumps({"seq": story.state.first_seq + number}).encode())
        else:
            self.consume(what, name, number)

    def consume(self, what: str, name: str, number: int) -> None:
        state = self.story.state.consumers.get(name)
        if state is None:
            return
        if what == "deliver":
            seqs = list(range(state.next_sseq, min(state.next_sseq + number, self.state.last_seq) + 1))
            op = Op(OpKind.DELIVERED, seqs, self.story.now_ns)
        else:
            kind = OpKind.ACK if what == "ack" else OpKind.REDELIVERED
            op = Op(kind, list(state.pending)[: number + 1], self.story.now_ns)
        self.story.command(Section.CONSUMER_OPS, text(name), encode_ops([op]))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "store",
                "store",
                "id",
                "ttl",
                "delete",
                "deliver",
                "deliver",
                "again",
                "ack",
                "put",
                "drop",
                "purge",
            ]
        ),
        st.integers(0, 5),
    ),
    max_size=24,
)


@pytest.mark.covers("SF-13", "SF-17", "SF-29")
@given(STEPS, STEPS, st.integers(1, 3))
def test_a_view_gives_the_state_as_of_its_entry_whatever_is_applied_while_it_is_read(
    before: list[tuple[str, int]], after: list[tuple[str, int]], rows: int
) -> None:
    busy, left = Busy(), list(after)
    for step in before:
        busy.step(*step)
    with pytest.MonkeyPatch.context() as patch:
        for module in (subject_index, consumer_states, message_ttl):
            patch.setattr(module, "PART_ROWS", rows)
        patch.setattr(interior_deletes, "PIECE_STRETCHES", rows)
        expected, view = snapshot_of(busy.state), StreamView(busy.state)
        found = []
        for piece in view.pieces():
            found.append(piece.data)
            for step in left[:2]:
                busy.step(*step)
            del left[:2]
        view.close()
        for step in left:
            busy.step(*step)
        assert b"".join(found) == expected
        then, now = restore(expected, busy.story.log), snapshot_of(busy.state)
        assert snapshot_of(then) == expected
        # It goes on as the one that was never saved.
        for entry in busy.story.log.entries(then.applied_index + 1, busy.story.log.last_index, 1 << 30):
            then.apply(entry)
        assert snapshot_of(then) == now


@pytest.mark.covers("SF-29")
def test_no_slice_of_a_snapshot_grows_with_the_state() -> None:
    longest = {}
    for size in (1, 8):
        story = StreamStory()
        for first in range(0, 4000 * size, 1000):
            story.store(*[message(b"s.%d" % number) for number in range(first, first + 1000)])
        for number in range(100 * size):
            put_consumer(story, f"c{number}")
        waiting = Op(OpKind.DELIVERED, range(1, 4000 * size + 1), story.now_ns)
        story.command(Section.CONSUMER_OPS, text("c7"), encode_ops([waiting]))
        view = StreamView(story.state)
        pieces = list(view.pieces())
        view.close()
        data = b"".join(piece.data for piece in pieces)
        reading = list(read(data, story.log))
        longest[size] = max(len(piece.data) for piece in pieces), max(reading)
        assert max(piece.units for piece in pieces) <= 2 * SLICE_UNITS
    assert longest[8][0] < 2 * longest[1][0]
    assert longest[8][1] < 2 * longest[1][1]


def test_a_state_without_messages_is_read_without_the_parts_about_messages() -> None:
    busy = Busy()
    for step in [("store", 1), ("ttl", 2), ("id", 3), ("delete", 1), ("deliver", 4), ("store", 5)]:
        busy.step(*step)
    whole = busy.story.restored()
    at_once(whole.empty())
    emptied = at_once(read(snapshot_of(busy.state), busy.story.log, without_messages=True))
    assert snapshot_of(emptied) == snapshot_of(whole)
    assert (emptied.messages, len(emptied.message_ids), list(emptied.consumers)) == (0, 1, ["A", "B"])
