"""What a stream removes is taken off its consumers when they are looked at, and who wants a message is found by its subject:
both come out as if every consumer had been told and asked each time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.jetstream.publish.stream_story import SECOND, StreamStory, config, message
from tests.support.tiers import examples

from supercluster.broker.jetstream.config.consumer_checks import read_consumer
from supercluster.broker.jetstream.encoding.codec import text, u64
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.state.consumer import ConsumerState
from supercluster.broker.jetstream.state.consumer_ops import Op, OpKind, encode_ops
from supercluster.broker.jetstream.state.consumer_states import ConsumerStates, ConsumersView, keep_up
from supercluster.broker.jetstream.state.interest_retention import InterestRetention
from supercluster.broker.jetstream.state.snapshot import snapshot_of
from supercluster.broker.jetstream.state.stream import StreamState

pytestmark = [pytest.mark.covers("SF-13"), pytest.mark.covers("RP-3")]

CONSUMERS = 10_000


class ToldAtOnce(dict[str, ConsumerState]):
    """Every consumer is told of every removal when it happens."""

    def removed(self, seq: int, *, is_first: bool) -> None:
        for state in self.values():
            state.drop_gone([seq] if seq in state.pending else [])

    def to_change(self, name: str) -> ConsumerState | None:
        return self.get(name)

    def view(self) -> ConsumersView:
        states = ConsumerStates()
        for name, state in self.items():
            states[name] = state
        return states.view()

    def begins_at(self, first_seq: int) -> None:
        for state in self.values():
            keep_up(state, first_seq)


class AskedEach(StreamState):
    """Who wants a message is asked one by one."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.consumers: Any = ToldAtOnce()

    def _wanted(self, seq: int) -> bool:
        found = self.message(seq)
        return found is not None and any(state.wants(seq, found.subject) for state in self.consumers.values())


SUBJECTS = (b"s.a", b"s.b", b"s.b.c", b"s.\xff")
FILTERS = ((), ("s.a",), ("s.*",), ("s.a", "s.b.>"), ("s.b.>", "s.b"))
NAMES = ("c0", "c1")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=5)),
        st.tuples(
            st.just("put"), st.tuples(st.sampled_from(NAMES), st.sampled_from(FILTERS), st.integers(0, 12))
        ),
        st.tuples(st.just("drop"), st.sampled_from(NAMES)),
        st.tuples(
            st.sampled_from(["deliver", "ack", "again", "lose", "reset"]),
            st.tuples(st.sampled_from(NAMES), st.integers(0, 6)),
        ),
        st.tuples(st.sampled_from(["delete", "expire", "purge", "purge_all"]), st.integers(0, 20)),
        st.tuples(st.sampled_from(["together", "look"]), st.integers(0, 2)),
    ),
    max_size=40,
)


class Pair:
    """The same entries, applied in both ways."""

    def __init__(self, **fields: Any) -> None:
        self.story = StreamStory(config(**fields))
        self.plain = AskedEach(self.story.config, 0, self.story.log)
        self.sections: list[tuple[int, list[bytes | memoryview]]] = []
        self.together = 0
        self.follow()

    def follow(self) -> None:
        self.story.commit()
        for entry in self.story.log.entries(self.plain.applied_index + 1, self.story.log.last_index, 1 << 40):
            self.plain.apply(entry)

    def put(self, kind: int, *body: bytes) -> None:
        """In one entry with those before, while there are to be more."""
        self.sections.append((kind, list(body)))
        self.together -= 1
        if self.together <= 0:
            self.flush()

    def flush(self) -> None:
        if self.sections:
            self.story.append(*self.sections)
            self.sections = []
        self.follow()

    def ops(self, name: str, *ops: Op) -> None:
        self.put(Section.CONSUMER_OPS, text(name), encode_ops(ops))

    def step(self, kind: str, value: Any) -> None:
        last_seq = self.plain.last_seq
        if kind == "publish":
            self.flush()
            self.story.publish(*map(message, value))
            self.follow()
        elif kind == "put":
            name, filters, start_seq = value
            body = {"durable_name": name, "ack_policy": "explicit", "filter_subjects": list(filters)}
            request = {"name": name, "config": body, "start_seq": start_seq, "last_seqs": []}
            self.put(Section.CONSUMER_PUT, json.dumps(request).encode())
        elif kind == "drop":
            self.put(Section.CONSUMER_DELETE, text(value))
        elif kind in ("deliver", "ack", "again", "lose", "reset"):
            name, number = value
            state = self.plain.consumers.get(name)
            if state is None:
                return
            pending = list(state.pending)
            if kind == "deliver":
                first = state.next_sseq
                seqs = [seq for seq in range(first, min(first + number, last_seq) + 1) if number]
                if seqs:
                    self.ops(name, Op(OpKind.DELIVERED, seqs, SECOND))
            elif kind == "reset":
                self.ops(name, Op(OpKind.RESET, (number + 1,), SECOND))
            elif kind == "lose" and pending:
                self.put(Section.DELETE_MESSAGE, u64(pending[number % len(pending)]))
            elif pending:
                seqs = pending[number % len(pending) :]
                which = OpKind.ACK if kind == "ack" else OpKind.REDELIVERED
                self.ops(name, Op(which, seqs[:2], SECOND))
        elif kind == "delete":
            self.put(Section.DELETE_MESSAGE, u64(value))
        elif kind == "expire":
            self.put(Section.EXPIRE, u64(min(value, last_seq)))
        elif kind.startswith("purge"):
            self.put(Section.PURGE, json.dumps({} if kind == "purge_all" else {"seq": value}).encode())
        elif kind == "together":
            self.together = value + 1
        else:
            list(self.story.state.consumers.values()) if value else self.story.state.consumers.get("c0")


@settings(max_examples=examples(60, 400))
@given(
    st.sampled_from(["limits", "interest", "workqueue"]),
    st.sampled_from([{}, {"max_msgs": 4}, {"max_msgs_per_subject": 2}]),
    STEPS,
)
def test_late_is_not_different(retention: str, limits: dict[str, Any], steps: list[tuple[str, Any]]) -> None:
    pair = Pair(retention=retention, **limits)
    for name, filters in zip(NAMES, ((), ("s.a",)), strict=True):
        pair.step("put", (name, filters, 1))
    pair.step("publish", SUBJECTS)
    pair.step("deliver", ("c0", 2))
    for kind, value in steps:
        pair.step(kind, value)
    pair.flush()
    assert snapshot_of(pair.story.state) == snapshot_of(pair.plain)


class CountedState(ConsumerState):
    """Counts how often any is told or asked."""

    __slots__ = ()
    calls = 0

    def wants(self, seq: int, subject: bytes) -> bool:
        CountedState.calls += 1
        return super().wants(seq, subject)

    def drop_below(self, first_seq: int) -> None:
        CountedState.calls += 1
        super().drop_below(first_seq)

    def drop_gone(self, gone: Any) -> None:
        CountedState.calls += 1
        super().drop_gone(gone)


def many(filters: str, *, retention: str) -> StreamStory:
    """A stream with ten thousand consumers."""
    story = StreamStory(config(retention=retention, max_msgs=50))
    for number in range(CONSUMERS):
        name = f"c{number}"
        body = {"durable_name": name, "ack_policy": "explicit", "filter_subject": filters.format(number)}
        request: dict[str, Any] = {"name": name, "config": body, "start_seq": 1, "last_seqs": []}
        story.append((Section.CONSUMER_PUT, [json.dumps(request).encode()]))
    story.commit()
    for state in dict.values(story.state.consumers):
        state.__class__ = CountedState
    CountedState.calls = 0
    return story


@pytest.mark.parametrize("retention", ["limits", "interest", "workqueue"])
def test_a_message_and_its_removal_concern_few_of_ten_thousand(retention: str) -> None:
    story = many("s.{}", retention=retention)
    for number in range(60):
        story.store(message(b"s.%d" % number))
    assert story.held() == list(range(11, 61)), "the limit took ten"
    seqs = range(11, 61)
    for seq in (*seqs[:10], *reversed(seqs[10:20])):
        ops = encode_ops([Op(OpKind.DELIVERED, (seq,), SECOND), Op(OpKind.ACK, (seq,), SECOND)])
        story.append((Section.CONSUMER_OPS, [text(f"c{seq - 1}"), ops]))
        story.commit()
    assert len(story.held()) == (50 if retention == "limits" else 30)
    assert CountedState.calls < 400


@pytest.mark.parametrize("order", ["forth", "back"])
def test_a_thousand_that_acknowledge_the_same_message_do_not_ask_each_other_every_time(order: str) -> None:
    story = StreamStory(config(retention="interest"))
    names = [f"c{number}" for number in range(1000)]
    for name in names:
        body = {"durable_name": name, "ack_policy": "explicit"}
        request: dict[str, Any] = {"name": name, "config": body, "start_seq": 1, "last_seqs": []}
        story.append((Section.CONSUMER_PUT, [json.dumps(request).encode()]))
    story.commit()
    for state in dict.values(story.state.consumers):
        state.__class__ = CountedState
    story.store(message(), message())
    CountedState.calls = 0
    for name in names if order == "forth" else reversed(names):
        assert story.held() == [1, 2]
        for seq in (1, 2):
            ops = encode_ops([Op(OpKind.DELIVERED, (seq,), SECOND), Op(OpKind.ACK, (seq,), SECOND)])
            story.append((Section.CONSUMER_OPS, [text(name), ops]))
        story.commit()
    assert story.held() == []
    assert CountedState.calls < 100_000, "each asking all is two million"


def test_removals_that_nobody_looks_at_are_not_kept_for_ever() -> None:
    story = StreamStory(config(max_msgs_per_subject=1))
    for name in ("a", "b"):
        body = {"durable_name": name, "ack_policy": "explicit"}
        request: dict[str, Any] = {"name": name, "config": body, "start_seq": 1, "last_seqs": []}
        story.append((Section.CONSUMER_PUT, [json.dumps(request).encode()]))
    story.commit()
    story.store(message(b"s.first"))
    for _ in range(3000):
        story.store(message(b"s.a"))
    assert len(story.state.consumers._gone) <= 1024


def test_a_witness_that_went_is_not_believed() -> None:
    states = ConsumerStates()
    for number in range(20):
        story_config = {"durable_name": f"c{number}", "ack_policy": "explicit"}
        states[f"c{number}"] = ConsumerState(
            name=f"c{number}", config=read_consumer(story_config), created_ns=0, start_seq=1
        )
    wanted = InterestRetention(states)
    for number in range(9):
        states[f"c{number}"].delivered_sseq = 5
    assert wanted.wants(3, b"s")
    (witness,) = wanted._witnesses.values()
    for name in [name for name in states if name != witness.name]:
        states[name].delivered_sseq = 5
    assert wanted.wants(3, b"s")
    wanted.drop(witness.name)
    del states[witness.name]
    assert not wanted.wants(3, b"s")
