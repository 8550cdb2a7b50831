"""What stays of a stream's messages for consumers: interest, work queues, and where consumers stand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.jetstream.publish.stream_story import SECOND, StreamStory, check_whole, config, message
from tests.support.tiers import examples

from supercluster.broker.jetstream.encoding.codec import text, u64
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.meta.restoring import bare
from supercluster.broker.jetstream.publish.config_change import put_interest
from supercluster.broker.jetstream.publish.proposal import Proposal
from supercluster.broker.jetstream.state.consumer import ConsumerState
from supercluster.broker.jetstream.state.consumer_ops import Op, OpKind, encode_ops
from supercluster.broker.jetstream.state.snapshot import restore, snapshot_of
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.turn.slices import Job


def put_consumer(story: StreamStory, name: str, *filters: str) -> ConsumerState:
    body = {"durable_name": name, "ack_policy": "explicit", "filter_subjects": list(filters)}
    request = {"name": name, "config": body, "start_seq": story.state.last_seq + 1, "last_seqs": []}
    story.command(Section.CONSUMER_PUT, json.dumps(request).encode())
    return story.state.consumers[name]


@pytest.mark.covers("SF-13", "MV-10")
def test_no_entry_leaves_a_consumer_in_front_of_its_stream() -> None:
    """The leader looked before an entry that was not applied yet removed what it saw."""
    story = StreamStory(config(max_msgs=2))
    story.store(*[message()] * 5)
    body = {"durable_name": "late", "ack_policy": "explicit"}
    request = {"name": "late", "config": body, "start_seq": 1, "last_seqs": []}
    story.command(Section.CONSUMER_PUT, json.dumps(request).encode())
    late = story.state.consumers["late"]
    assert (late.delivered_sseq, late.ack_floor_sseq) == (3, 3)
    ops = encode_ops([Op(OpKind.DELIVERED, (2, 3, 4), SECOND)])
    story.append((Section.CONSUMER_OPS, [text("late"), ops]))
    story.commit()
    assert list(late.pending) == [4]
    # Whoever begins with a snapshot of this goes on as everybody else.
    restored = restore(memoryview(snapshot_of(story.state)), story.log)
    entry = story.append((Section.DELETE_MESSAGE, [u64(99)]))
    story.commit()
    restored.apply(entry)
    assert snapshot_of(restored) == snapshot_of(story.state)


def test_interest_keeps_only_what_somebody_waits_for() -> None:
    story = StreamStory(config(retention="interest"))
    story.store(message(b"s.a"))
    assert (story.held(), story.state.last_seq) == ([], 1)
    put_consumer(story, "a", "s.a")
    put_consumer(story, "b", "s.b", "s.both")
    story.store(message(b"s.a"), message(b"s.b"), message(b"s.c"), message(b"s.b", Any="header"))
    assert story.held() == [2, 3, 5]
    assert story.command(Section.CONSUMER_DELETE, text("b")) == [1]
    assert story.held() == [2]
    assert story.command(Section.CONSUMER_DELETE, text("b")) == [0]
    assert story.command(Section.CONSUMER_DELETE, text("a")) == [1]
    assert story.held() == []
    assert story.state.last_seq == 5


class EveryMessage(StreamState):
    """Asks of each message whether anybody waits for it."""

    def _removing_unwanted(self) -> Job:
        yield from ()
        self._remove_unwanted(self.first_seq, self.last_seq)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([(), ("s.a",), ("s.b", "s.c")]), st.integers(0, 10), st.sets(st.integers(1, 10))
        ),
        max_size=4,
    ),
    st.integers(1, 4),
)
def test_a_stream_whose_retention_becomes_interest_has_what_somebody_waits_for(
    consumers: list[tuple[tuple[str, ...], int, set[int]]], first_seq: int
) -> None:
    story = StreamStory()
    story.store(*[message(b"s." + b"abcd"[n % 4 : n % 4 + 1]) for n in range(10)])
    story.command(Section.EXPIRE, u64(first_seq - 1))
    wanted: set[int] = set()
    for number, (filters, up_to, acknowledged) in enumerate(consumers):
        name = f"c{number}"
        body = {"name": name, "ack_policy": "explicit", "filter_subjects": list(filters)}
        request = {"name": name, "config": body, "start_seq": 1}
        story.command(Section.CONSUMER_PUT, json.dumps(request).encode())
        state = story.state.consumers[name]
        fits = {
            seq for seq in story.held() if state.matches(b"s." + b"abcd"[(seq - 1) % 4 : (seq - 1) % 4 + 1])
        }
        given_out = sorted(seq for seq in fits if seq <= up_to)
        done = sorted(acknowledged & set(given_out))
        ops = encode_ops([Op(OpKind.DELIVERED, given_out, SECOND), Op(OpKind.ACK, done, SECOND)])
        if ops:
            story.append((Section.CONSUMER_OPS, [text(name), ops]))
            story.commit()
        wanted |= fits - set(done)
    proposal = Proposal()
    interest = config(retention="interest")
    proposal.add(Section.CONFIG_PUT, [u64(9) + u64(7) + json.dumps(interest.to_json()).encode()])
    put_interest(story.state.config, interest, proposal)
    before = restore(snapshot_of(story.state), story.log)
    before.__class__ = EveryMessage
    story.append_proposal(proposal)
    before.apply(story.uncommitted[-1])
    story.commit()
    assert set(story.held()) == wanted
    assert snapshot_of(before) == snapshot_of(story.state)
    assert sorted(story.state.consumers) == [f"c{number}" for number in range(len(consumers))]
    check_whole(story.state)


def test_a_restored_stream_keeps_what_its_backup_had_when_it_is_shown() -> None:
    proposal = Proposal()
    put_interest(bare(config(retention="interest"), "1"), config(retention="interest"), proposal)
    assert not proposal.payload


@settings(max_examples=examples(80, 1_000), deadline=None)
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=25),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)), max_size=6),
    st.sampled_from([(), ("s.a",), ("s.b", "s.c")]),
    st.integers(0, 3),
)
def test_what_nobody_waits_for_goes_with_a_consumer_and_nothing_else(
    numbers: list[int],
    steps: list[tuple[int, int, int]],
    changed: tuple[str, ...],
    gone: int,
) -> None:
    """As each message is asked about by itself."""
    story = StreamStory(config(retention="interest"))
    names = ["all", "a", "bc", "b"]
    for name, filters in zip(names, ((), ("s.a",), ("s.b", "s.c"), ("s.b",)), strict=True):
        put_consumer(story, name, *filters)
    for at in range(0, len(numbers), 4):
        story.store(*(message(b"s." + b"abc"[number : number + 1]) for number in numbers[at : at + 4]))
    for which, delivered, acknowledged in steps:
        consumer = story.state.consumers[names[which]]
        seqs = [seq for seq in story.held() if seq >= consumer.next_sseq][:delivered]
        seqs = [
            seq for seq in seqs if (found := story.state.message(seq)) and consumer.matches(found.subject)
        ]
        ops = [Op(OpKind.DELIVERED, seqs, SECOND)] if seqs else []
        pending = sorted({*consumer.pending, *seqs})[:acknowledged]
        ops += [Op(OpKind.ACK, pending, SECOND)] if pending else []
        if ops:
            story.command(Section.CONSUMER_OPS, text(names[which]) + encode_ops(ops))
    body = {"durable_name": "a", "ack_policy": "explicit", "filter_subjects": list(changed)}
    put = {"name": "a", "config": body, "start_seq": 0, "update": True}
    story.command(Section.CONSUMER_PUT, json.dumps(put).encode())
    singly = story.restored()
    singly.consumers.pop(names[gone])
    for seq in range(singly.first_seq, singly.last_seq + 1):
        if singly.has(seq) and not singly._wanted(seq):
            singly.remove(seq)
    story.command(Section.CONSUMER_DELETE, text(names[gone]))
    assert story.held() == [seq for seq in range(1, singly.last_seq + 1) if singly.has(seq)]
    assert story.state.first_seq == singly.first_seq
    assert all(story.state._wanted(seq) for seq in story.held())
