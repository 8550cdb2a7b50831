"""Purges and lowered limits in stretches: the same messages go as in one entry, and no entry carries out more than its share."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.jetstream.publish.stream_story import StreamStory, check_whole, config, message
from tests.support.tiers import examples

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.codec import u64
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.publish import trimming
from supercluster.broker.jetstream.publish.trimming import Trimming

STRETCH, LOOKED_AT = 4, 8
SUBJECTS = (b"s.a", b"s.b", b"s.c")


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_MAX", "CHOSEN_MAX"):
        monkeypatch.setattr(trimming, name, STRETCH)
    monkeypatch.setattr(trimming, "LOOKED_AT_MAX", LOOKED_AT)


class Trimmed(StreamStory):
    """A leader that trims, an entry after the other."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(config(**fields))
        self.turns = 0
        self.results: list[int | None] = []
        self.entries: list[int] = []
        """Messages that went with each entry."""
        self.trimming = Trimming(self._more)
        self._wants_turn = False

    def _more(self) -> None:
        self._wants_turn = True

    def fill(self, subjects: list[int], deleted: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        for at in range(0, len(subjects), 3):
            self.store(*(message(SUBJECTS[number], b"x" * number) for number in subjects[at : at + 3]))
        for seq in sorted(deleted):
            self.command(Section.DELETE_MESSAGE, u64(seq))

    def purge(self, pattern: str = "", seq: int = 0, keep: int = 0) -> None:
        if not self.trimming.takes(pattern, seq, keep, self.admission.end, self.results.append):
            body = json.dumps({"filter": pattern, "seq": seq, "keep": keep}).encode()
            before = self.state.messages
            self.results += self.command(Section.PURGE, body)
            is_all = pattern in ("", ">") and not self.state.messages
            self.entries += [] if is_all else [before - self.state.messages]

    def trim(self, wanted: StreamConfig | None = None) -> bool:
        """True: the configuration may be written."""
        turn = self.turn()
        proposal = turn.proposal
        self._wants_turn = may_be = False
        if wanted is not None:
            may_be = self.trimming.made_way(turn, wanted)
        else:
            self.trimming.put(turn)
        if proposal.payload:
            before = self.state.messages
            self.append_proposal(proposal)
            results = self.commit()[-1].results
            self.entries.append(before - self.state.messages)
            for done, result in zip(proposal.commands, results, strict=True):
                done(result)
        return may_be

    def work_off(self) -> None:
        for _ in range(1_000):
            if not self._wants_turn:
                return
            self.trim()
        raise AssertionError("it does not end")

    def lower(self, **fields: Any) -> None:
        wanted = config(**fields)
        for _ in range(1_000):
            if self.trim(wanted):
                break
        body = u64(2) + u64(0) + json.dumps(wanted.to_json()).encode()
        before = self.state.messages
        self.command(Section.CONFIG_PUT, body)
        self.entries.append(before - self.state.messages)


PURGES = st.fixed_dictionaries(
    {},
    optional={
        "pattern": st.sampled_from(["s.a", "s.*", "s.b", "x.y", ">"]),
        "seq": st.integers(1, 70),
        "keep": st.integers(1, 30),
    },
).filter(lambda asked: not ("seq" in asked and "keep" in asked))
FILLED = st.lists(st.integers(0, 2), min_size=12, max_size=60)


@pytest.mark.covers("SF-13", "SF-29")
@settings(max_examples=examples(60, 1_000), deadline=None)
@given(FILLED, st.sets(st.integers(1, 60)), PURGES)
def test_a_purge_in_stretches_removes_what_a_purge_in_one_entry_removes(
    subjects: list[int], deleted: set[int], asked: dict[str, Any]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        story = Trimmed()
        story.fill(subjects, deleted)
        story.purge(**asked)
        story.work_off()
    at_once = Trimmed()
    at_once.fill(subjects, deleted)
    body = {"filter": asked.get("pattern", ""), "seq": asked.get("seq", 0), "keep": asked.get("keep", 0)}
    assert at_once.command(Section.PURGE, json.dumps(body).encode()) == story.results
    assert story.held() == at_once.held()
    assert story.state.first_seq == at_once.state.first_seq
    check_whole(story.state)
    assert all(count <= STRETCH for count in story.entries)


@pytest.mark.covers("SF-13", "SF-29")
@settings(max_examples=examples(60, 1_000), deadline=None)
@given(
    FILLED,
    st.sets(st.integers(1, 60)),
    st.fixed_dictionaries(
        {},
        optional={
            "max_msgs": st.integers(1, 30),
            "max_bytes": st.integers(100, 3_000),
            "max_msgs_per_subject": st.integers(1, 20),
        },
    ),
)
def test_lowered_limits_leave_what_they_leave_in_one_entry(
    subjects: list[int], deleted: set[int], limits: dict[str, int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        story = Trimmed()
        story.fill(subjects, deleted)
        story.lower(**limits)
    check_whole(story.state)
    state = story.state
    assert state.messages <= limits.get("max_msgs", 1 << 30)
    assert state.bytes <= limits.get("max_bytes", 1 << 30)
    most = limits.get("max_msgs_per_subject", 1 << 30)
    assert all(state.subjects.count(subject) <= most for subject in SUBJECTS)
    if len(limits) == 1:
        at_once = Trimmed()
        at_once.fill(subjects, deleted)
        at_once.command(Section.CONFIG_PUT, u64(2) + u64(0) + json.dumps(config(**limits).to_json()).encode())
        assert story.held() == at_once.held()
    # What is left for the configuration's own entry is little, of each of three limits.
    assert all(count <= 3 * STRETCH for count in story.entries)


def test_a_purge_takes_what_was_published_before_it_and_nothing_behind() -> None:
    story = Trimmed()
    story.fill([0] * 20)
    story.publish(message(SUBJECTS[0]), message(SUBJECTS[0]))
    story.purge("s.a")
    story.trim()
    assert story.entries == [], "what was published before is not applied yet"
    story.commit()
    story.publish(message(SUBJECTS[0]))
    story.commit()
    story.trimming.applied()
    story.work_off()
    assert story.held() == [23]
    assert story.results == [22]


def test_a_purge_of_a_subject_begins_at_its_first_message_and_ends_with_its_last() -> None:
    story = Trimmed()
    story.fill([0] * 40 + [1, 1] + [0] * 40)
    story.purge("s.b")
    story.work_off()
    assert story.results == [2]
    assert story.state.subjects.count(b"s.b") == 0
    assert story.entries == [2], "one look, and one that finds nothing left"


@pytest.mark.covers("SF-29")
def test_purges_of_a_deposed_leader_are_for_the_next_one() -> None:
    story = Trimmed()
    story.fill([0] * 20)
    story.purge("s.a")
    story.purge("s.a", keep=2)
    story.trim()
    story.trimming.give_up()
    assert story.results == [None, None]
    assert story.state.messages == 20 - STRETCH


def test_too_many_purges_are_for_another_try() -> None:
    story = Trimmed()
    story.fill([0] * 20)
    for _ in range(trimming.PURGES_MAX + 1):
        story.purge("s.a")
    assert story.results == [None]
