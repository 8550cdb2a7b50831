"""Any order of requests, acknowledgements, removals, commits and changes of leader keeps a consumer's promises."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.broker.jetstream.consumer.consumer_story import SECOND, Source, Story
from tests.support.tiers import examples

from supercluster.broker.jetstream.consumer.pull import Delivery
from supercluster.broker.jetstream.encoding.ack_subjects import parse_ack_subject

ACK_PENDING_MAX = 5
SUBJECTS = ("a.x", "a.y", "b")
CONFIGS: tuple[dict[str, Any], ...] = (
    {"ack_policy": "none"},
    {"ack_policy": "explicit", "ack_wait": SECOND, "max_ack_pending": ACK_PENDING_MAX},
    {"ack_policy": "all", "ack_wait": SECOND, "max_ack_pending": ACK_PENDING_MAX},
    {
        "ack_policy": "explicit",
        "ack_wait": SECOND,
        "max_ack_pending": ACK_PENDING_MAX,
        "filter_subject": "a.*",
    },
    {
        "ack_policy": "explicit",
        "ack_wait": SECOND,
        "max_ack_pending": ACK_PENDING_MAX,
        "filter_subject": "a.y",
    },
    {"ack_policy": "explicit", "backoff": [SECOND, 2 * SECOND], "max_ack_pending": ACK_PENDING_MAX},
)
NUMBER = st.integers(min_value=0, max_value=50)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("store"), NUMBER),
        st.tuples(st.just("pull"), st.integers(min_value=1, max_value=8)),
        st.tuples(st.just("wait"), st.integers(min_value=1, max_value=4)),
        st.tuples(st.sampled_from(["ack", "nak", "progress", "term", "confirm"]), NUMBER),
        st.tuples(st.sampled_from(["remove", "purge"]), NUMBER),
        st.tuples(st.sampled_from(["commit", "new_leader", "commit_and_new_leader", "rewind"]), st.just(0)),
    ),
    max_size=60,
)


@dataclass
class Run:
    """One consumer, what its client has seen, and what it may rely on."""

    config: dict[str, Any]
    source: Source = field(default_factory=Source)
    delivered: dict[int, int] = field(default_factory=dict)
    confirmed: set[int] = field(default_factory=set)
    promised: list[int] = field(default_factory=list)
    last_new: int = 0
    last_cseq: int = 0
    floor: int = 0

    def __post_init__(self) -> None:
        for _ in range(3):
            self.source.store(SUBJECTS[_ % 3])
        self.story = Story(self.source, **self.config)

    def matching(self) -> list[int]:
        return [seq for seq, m in sorted(self.source.messages.items()) if self.story.committed.matches(m[0])]

    def see(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            for _, reply, _, _ in delivery.items:
                ref = parse_ack_subject(reply) if reply else None
                if ref is None:
                    continue
                assert ref.stream_seq in self.source.messages, "a message that was removed was delivered"
                assert ref.stream_seq not in self.confirmed, (
                    "a message whose acknowledgement was confirmed came again"
                )
                assert ref.consumer_seq == self.last_cseq + 1, "consumer sequences have a gap"
                self.last_cseq = ref.consumer_seq
                if ref.delivered == 1:
                    assert ref.stream_seq > self.last_new, "new messages came out of order"
                    self.last_new = ref.stream_seq
                self.delivered[ref.stream_seq] = ref.delivered

    def pump(self) -> None:
        self.see(self.story.leader.pump(self.source, self.story.now_ns, self.story.has_interest))

    def ask(self, batch: int) -> None:
        spec = b'{"batch":%d,"no_wait":true}' % batch
        self.see(self.story.leader.on_pull(spec, b"in", self.story.now_ns, self.story.has_interest))
        self.pump()

    def answer(self, kind: str, number: int) -> None:
        if not self.delivered:
            return
        seq = sorted(self.delivered)[number % len(self.delivered)]
        payload = {"ack": b"", "nak": b"-NAK", "progress": b"+WPI", "term": b"+TERM", "confirm": b"+ACK"}[
            kind
        ]
        reply = str(seq) if kind == "confirm" else ""
        self.story.ack(seq, payload, reply)

    def commit(self) -> None:
        for reply in self.story.commit():
            seq = int(reply)
            if self.config["ack_policy"] == "all":
                self.confirmed |= {known for known in self.delivered if known <= seq}
            else:
                self.confirmed.add(seq)

    def lead_anew(self) -> None:
        self.story.new_leader()
        self.last_cseq = self.story.committed.delivered_cseq
        self.last_new = self.story.committed.delivered_sseq

    def remove(self, number: int) -> None:
        if self.source.messages:
            seq = sorted(self.source.messages)[number % len(self.source.messages)]
            self.story.removed(seq)
            self.story.committed.drop_below(self.source.first_seq)

    def purge(self, number: int) -> None:
        first = self.source.first_seq + number % 4
        for seq in [seq for seq in self.source.messages if seq < first]:
            self.source.remove(seq)
        self.story.committed.drop_below(self.source.first_seq)
        if number % 2:
            self.story.leader.num_pending(self.source)  # Follows the purge.
        self.last_new = max(self.last_new, self.source.first_seq - 1)

    def check(self) -> None:
        tail, committed = self.story.leader.state, self.story.committed
        if self.config["ack_policy"] != "none":
            assert len(tail.pending) <= ACK_PENDING_MAX
        assert committed.ack_floor_sseq >= self.floor, "the floor went back"
        self.floor = committed.ack_floor_sseq
        for state in (tail, committed):
            assert state.ack_floor_sseq <= state.delivered_sseq <= self.source.last_seq
        behind = [seq for seq in self.matching() if seq >= tail.next_sseq]
        assert self.story.leader.num_pending(self.source) == len(behind)

    def step(self, kind: str, number: int) -> None:
        story = self.story
        if kind == "store":
            self.source.store(SUBJECTS[number % 3])
        elif kind == "pull":
            self.ask(number)
        elif kind == "wait":
            story.at(story.now_ns + number * SECOND // 2)
            self.pump()
        elif kind == "remove":
            self.remove(number)
        elif kind == "purge":
            self.purge(number)
        elif kind == "commit":
            self.commit()
        elif kind == "new_leader":
            self.lead_anew()
        elif kind == "commit_and_new_leader":
            self.commit()
            self.lead_anew()
        elif kind == "rewind":
            story.leader.rewind(story.committed, last_seq=self.source.last_seq)
            self.last_cseq, self.last_new = story.committed.delivered_cseq, story.committed.delivered_sseq
        else:
            self.answer(kind, number)


@pytest.mark.covers("MV-10", "SF-2")
@settings(max_examples=examples(50, 300), deadline=None)
@example(CONFIGS[1], [("pull", 2), ("purge", 1), ("commit", 0)])
@example(CONFIGS[1], [("pull", 1), ("remove", 0)])
@example(CONFIGS[0], [("pull", 1), ("purge", 1)])
@example(CONFIGS[3], [("pull", 1), ("wait", 1), ("ack", 0), ("purge", 2)])
@example(CONFIGS[4], [("pull", 1), ("remove", 0), ("purge", 0), ("commit", 0)])
@example(CONFIGS[1], [("pull", 3), ("wait", 2), ("purge", 2), ("pull", 1), ("purge", 1)])
@given(st.sampled_from(CONFIGS), STEPS)
def test_a_consumer_keeps_its_promises(config: dict[str, Any], steps: list[tuple[str, int]]) -> None:
    run = Run(config)
    for kind, number in steps:
        run.step(kind, number)
        run.check()
    # In the end, a client that goes on asking and acknowledging sees all that is left, and nothing is pending.
    for _ in range(100):
        run.story.at(run.story.now_ns + 3 * SECOND)
        run.ask(8)
        for seq in list(run.story.leader.state.pending):
            run.story.ack(seq)
        run.commit()
        run.check()
        if not run.story.leader.num_pending(run.source):
            break
    assert run.story.committed.num_ack_pending == 0
    assert set(run.matching()) <= set(run.delivered)
    assert run.story.committed.snapshot() == run.story.leader.state.snapshot()
