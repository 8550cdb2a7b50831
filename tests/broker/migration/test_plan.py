"""What blue does next with a stream that goes to green, row by row, and what no order of crashes may lead to (SF-19 to SF-22)."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tiers import examples

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import StreamMigration, StreamStage, next_group
from supercluster.broker.jetstream.meta.migration_changes import MIGRATION_CHANGES, far_stream
from supercluster.broker.jetstream.meta.migration_steps import MigrationStep, StepKind
from supercluster.broker.jetstream.state.cut import (
    NO_CUT,
    At,
    Cut,
    CutStage,
    Fence,
    Handed,
    Unfenced,
    after,
)
from supercluster.broker.migration.plan import (
    FENCED_MS_MAX,
    LAG_MS_MAX,
    ROUND_TRIP_MS_MAX,
    TABLE,
    Copy,
    Do,
    Log,
    Mark,
    Stage,
    View,
    Word,
    next_step,
)
from supercluster.broker.raft.entry import EntryKind, make_entry

GREEN = ("g0%9c21b3fa@a.1", "g1%9c21b3fa@b.1")
NEAR = Copy(0, 0, in_contact=True)
FENCED_COPY = replace(NEAR, has_fence=True)
LEARNING = View(attempt=1, members=GREEN, learners=GREEN, copies=dict.fromkeys(GREEN, NEAR))
MARKED = replace(LEARNING, mark=Mark.OWN)
FENCED = replace(
    MARKED, log=Log.FENCED, owns_fence=True, digested=True, copies=dict.fromkeys(GREEN, FENCED_COPY)
)
HANDED = replace(FENCED, log=Log.HANDED)
OPEN = replace(HANDED, is_open=True)


def one_like(copy: Copy) -> dict[str, Copy]:
    return {GREEN[0]: NEAR, GREEN[1]: copy}


CASES = [
    (View(), Stage.PENDING, Do.BEGIN),
    (View(cancelled=True), Stage.PENDING, Do.WAIT),
    (View(attempt=1), Stage.LEARNING, Do.PREPARE),
    (View(attempt=1, refusal="no room"), Stage.LEARNING, Do.PREPARE),
    (replace(LEARNING, settled=False), Stage.LEARNING, Do.WAIT),
    (replace(LEARNING, learners=(*GREEN, "g9%9c21b3fa@x.1")), Stage.LEARNING, Do.DROP),
    (replace(LEARNING, learners=GREEN[:1], waiting=frozenset(GREEN)), Stage.LEARNING, Do.ADD),
    (replace(LEARNING, learners=GREEN[:1]), Stage.LEARNING, Do.WAIT),
    (replace(LEARNING, copies=one_like(replace(NEAR, in_contact=False))), Stage.LEARNING, Do.WAIT),
    (
        replace(LEARNING, copies=one_like(replace(NEAR, round_trip_ms=ROUND_TRIP_MS_MAX + 1))),
        Stage.LEARNING,
        Do.WAIT,
    ),
    (replace(LEARNING, copies=one_like(replace(NEAR, lag_entries=1000))), Stage.LEARNING, Do.MARK),
    (replace(LEARNING, copies=one_like(replace(NEAR, lag_ms=LAG_MS_MAX))), Stage.LEARNING, Do.WAIT),
    (replace(LEARNING, rests=True), Stage.LEARNING, Do.WAIT),
    (replace(LEARNING, applied=False), Stage.LEARNING, Do.WAIT),
    (LEARNING, Stage.LEARNING, Do.MARK),
    (replace(LEARNING, mark=Mark.ENDED), Stage.LEARNING, Do.UNMARK),
    (replace(LEARNING, mark=Mark.OTHER), Stage.LEARNING, Do.ASK),
    (replace(LEARNING, mark=Mark.OTHER, word=Word.OPEN), Stage.LEARNING, Do.NOTE_OPEN),
    (replace(LEARNING, mark=Mark.OTHER, word=Word.REFUSED), Stage.LEARNING, Do.UNMARK),
    (replace(LEARNING, mark=Mark.OTHER, cleared=True), Stage.LEARNING, Do.UNMARK),
    (replace(MARKED, marked_ms=FENCED_MS_MAX), Stage.LEARNING, Do.UNMARK),
    (replace(MARKED, renamed=True), Stage.LEARNING, Do.UNMARK),
    (replace(MARKED, reconfigured=True), Stage.LEARNING, Do.UNMARK),
    (replace(MARKED, copies={}), Stage.LEARNING, Do.WAIT),
    (replace(LEARNING, learners=(), cancelled=True), Stage.LEARNING, Do.END),
    (MARKED, Stage.LEARNING, Do.FENCE),
    (replace(FENCED, applied=False), Stage.FENCED, Do.WAIT),
    (replace(FENCED, copies=dict.fromkeys(GREEN, NEAR)), Stage.FENCED, Do.WAIT),
    (replace(FENCED, digested=False), Stage.FENCED, Do.WAIT),
    (replace(FENCED, owns_fence=False), Stage.FENCED, Do.ASK),
    (replace(FENCED, owns_fence=False, word=Word.OPEN), Stage.FENCED, Do.NOTE_OPEN),
    (replace(FENCED, owns_fence=False, cleared=True), Stage.FENCED, Do.UNFENCE),
    (replace(FENCED, fenced_ms=FENCED_MS_MAX), Stage.FENCED, Do.UNFENCE),
    (replace(FENCED, mark=Mark.OTHER), Stage.FENCED, Do.UNFENCE),
    (FENCED, Stage.FENCED, Do.HAND),
    (HANDED, Stage.HANDED, Do.ASK),
    (replace(HANDED, superseded=True), Stage.HANDED, Do.TAKE_BACK),
    (replace(HANDED, applied=False), Stage.HANDED, Do.WAIT),
    (replace(HANDED, mark=Mark.NONE), Stage.HANDED, Do.MARK),
    (replace(HANDED, word=Word.OPEN, cancelled=True), Stage.HANDED, Do.NOTE_OPEN),
    (replace(HANDED, word=Word.REFUSED), Stage.HANDED, Do.TAKE_BACK),
    (OPEN, Stage.OPEN, Do.WAIT),
    (replace(OPEN, clients_left=False), Stage.REDIRECTED, Do.WAIT),
    (replace(OPEN, clients_left=False, final=True), Stage.FINAL, Do.WAIT),
    (replace(OPEN, clients_left=False, final=True, proven=True), Stage.FINAL, Do.CLEAN),
    (replace(OPEN, cleaned=True), Stage.CLEANED, Do.WAIT),
]


@pytest.mark.parametrize(("view", "stage", "do"), CASES)
def test_the_first_row_that_holds_says_what_to_do(view: View, stage: Stage, do: Do) -> None:
    step = next_step(view)
    assert (step.stage, step.do) == (stage, do), step.why


STRANGER = "g9%9c21b3fa@x.1"
"""A copy that green named once, or will: it is no member of this attempt."""


@pytest.mark.covers("BG-4")
@pytest.mark.parametrize(
    "copy",
    [
        replace(NEAR, round_trip_ms=ROUND_TRIP_MS_MAX + 1),
        replace(NEAR, in_contact=False),
        replace(NEAR, lag_ms=LAG_MS_MAX),
        FENCED_COPY,
    ],
)
def test_a_copy_that_is_no_member_neither_holds_up_the_fence_nor_permits_it(copy: Copy) -> None:
    for view in (LEARNING, MARKED, FENCED, HANDED):
        beside = replace(view, copies={**view.copies, STRANGER: copy})
        assert next_step(beside) == next_step(view)
        alone = replace(view, copies={STRANGER: copy})
        assert next_step(alone) == next_step(replace(view, copies={}))


@pytest.mark.parametrize(
    ("view", "do"),
    [
        (MARKED, Do.UNMARK),
        (LEARNING, Do.DROP),
        (replace(LEARNING, learners=()), Do.END),
        (FENCED, Do.UNFENCE),
        (HANDED, Do.ASK_REFUSAL),
    ],
)
def test_an_abort_goes_back_up_to_handed_and_asks_green_behind_it(view: View, do: Do) -> None:
    """SF-21: before HANDED blue takes the stream back by itself, and behind it only with green's refusal."""
    assert next_step(replace(view, cancelled=True)).do is do


COPIES = st.builds(Copy, st.integers(0, 128), st.integers(0, 200), st.booleans(), st.booleans())
VIEWS = st.builds(
    View,
    attempt=st.integers(0, 2),
    log=st.sampled_from(Log),
    applied=st.booleans(),
    settled=st.booleans(),
    mark=st.sampled_from(Mark),
    marked_ms=st.integers(0, 2 * FENCED_MS_MAX),
    cleared=st.booleans(),
    renamed=st.booleans(),
    reconfigured=st.booleans(),
    superseded=st.booleans(),
    owns_fence=st.booleans(),
    fenced_ms=st.integers(0, 2 * FENCED_MS_MAX),
    cancelled=st.booleans(),
    members=st.sampled_from([(), GREEN[:1], GREEN]),
    refusal=st.sampled_from(["", "no room"]),
    waiting=st.frozensets(st.sampled_from(GREEN)),
    learners=st.sampled_from([(), GREEN[:1], GREEN]),
    copies=st.dictionaries(st.sampled_from(GREEN), COPIES),
    digested=st.booleans(),
    rests=st.booleans(),
    word=st.sampled_from(Word),
    is_open=st.booleans(),
    clients_left=st.booleans(),
    final=st.booleans(),
    proven=st.booleans(),
    cleaned=st.booleans(),
)


@given(VIEWS)
def test_whatever_is_seen_the_steps_that_matter_have_their_conditions(view: View) -> None:
    step = next_step(view)
    fresh = view.applied and not view.is_open
    if step.do is Do.HAND:
        assert fresh
        assert view.log is Log.FENCED
        assert view.owns_fence
        assert view.mark is Mark.OWN
        assert view.digested
        assert not view.unfenced
        assert not view.cancelled
        assert view.fenced_ms < FENCED_MS_MAX
    if step.do is Do.FENCE:
        assert fresh
        assert view.log is Log.FREE
        assert view.mark is Mark.OWN
        assert view.settled
        assert view.members
        assert not view.behind
        assert not view.cancelled
        assert not view.renamed, "the copies of the fence are those of the mark"
        assert not view.reconfigured, "green has room and subjects for what it gets"
    if step.do is Do.UNFENCE:
        assert view.log is Log.FENCED
        assert view.owns_fence or view.cleared or view.superseded or view.word is Word.REFUSED
    if step.do is Do.UNMARK and view.mark is Mark.OTHER:
        assert view.cleared or view.word is Word.REFUSED
    if step.do is Do.TAKE_BACK:
        assert view.log is Log.HANDED
        assert view.word is Word.REFUSED or view.superseded
    if step.do is Do.CLEAN:
        assert view.is_open
        assert view.final
        assert view.proven
    if step.do in (Do.MARK, Do.BEGIN, Do.FENCE) and view.log is not Log.HANDED:
        assert not view.cancelled


def test_each_row_is_the_first_one_for_some_view() -> None:
    """A row that no view reaches says nothing."""
    views = [case[0] for case in CASES] + [replace(case[0], cancelled=True) for case in CASES]
    found = {(step.stage, step.why) for step in map(next_step, views)}
    assert {(stage, row.why) for stage, rows in TABLE.items() for row in rows} <= found


class Worlds:
    """Blue's leaders one after the other, its log and its map, with steps that are asked of the map on their way; and green. Everything
    may be late. A deposed leader never appends again, which is Raft's part of it."""

    def __init__(self) -> None:
        found = Assignment("$G", "S", "S.1", StreamConfig(name="S", subjects=("s",)), 1, ("a@1",), 0)
        op = {"op": "migrate", "id": "m", "world": "9c21b3fa"}
        self.map = self._changed(found, op)
        self.seen = self.map
        """The map as blue's leader has it."""
        self.on_their_way: list[MigrationStep] = []
        self.cut: Cut = NO_CUT
        self.before: Cut = NO_CUT
        """One entry ago."""
        self.index = self.term = 0
        self.refused: set[int] = set()
        self.opened: set[int] = set()
        self.on_green: set[int] = set()
        """Attempts of which green has HANDED."""
        self.elect()

    @staticmethod
    def _changed(found: Assignment, op: dict[str, Any]) -> Assignment:
        entry = make_entry(
            index=9, term=1, kind=EntryKind.BATCH, time_ns=0, first_seq=0, count=0, payload=b""
        )
        return MIGRATION_CHANGES[op["op"]](found, op, entry) or found

    @property
    def record(self) -> StreamMigration:
        assert self.seen.migration is not None
        return self.seen.migration

    def elect(self) -> None:
        """Another leader, or the same broker's again: it knows what is in the log, and of the map what has come to it."""
        self.term += 1
        self.gave_up: set[int] = set()
        self.fenced: set[int] = set()
        self.words: dict[int, Word] = {}

    def view(self, cancelled: bool, late: bool) -> View:
        record = self.record
        mark = Mark.NONE
        if record.stage is StreamStage.HANDING:
            mark = Mark.ENDED if record.attempt in self.gave_up else Mark.OWN
            mark = mark if record.term == self.term else Mark.OTHER
        attempt = self.cut.attempt if self.cut.is_closed else record.attempt
        if attempt != record.attempt:
            mark = Mark.NONE
        log = {CutStage.FENCED: Log.FENCED, CutStage.HANDED: Log.HANDED}.get(self.cut.stage, Log.FREE)
        return View(
            attempt=attempt,
            log=log,
            mark=mark,
            cleared=attempt not in self.on_green,
            superseded=self.cut.is_closed and record.attempt > self.cut.attempt,
            owns_fence=self.cut.attempt in self.fenced,
            fenced_ms=FENCED_MS_MAX if late else 0,
            marked_ms=FENCED_MS_MAX if late else 0,
            cancelled=cancelled,
            members=GREEN,
            learners=GREEN if not cancelled else (),
            copies=dict.fromkeys(GREEN, FENCED_COPY),
            digested=True,
            word=self.words.get(attempt, Word.NONE),
        )

    def put(self, kind: Section, body: bytes) -> None:
        self.index += 1
        self.before = self.cut
        self.cut = after(self.cut, kind, body, At(self.index, self.term, 0, 0))

    def act(self, *, cancelled: bool, late: bool) -> None:
        record = self.record
        if record.is_far:
            return
        step = next_step(self.view(cancelled, late))
        told = MigrationStep(StepKind.UNHANDED, "S.1", "m", record.attempt)
        if step.do is Do.MARK:
            mark = replace(record, term=self.term)
            self.on_their_way.append(replace(told, kind=StepKind.HANDING, mark=mark))
        elif step.do is Do.UNMARK:
            self.gave_up.add(record.attempt)
            self.on_their_way.append(told)
        elif step.do is Do.FENCE:
            self.fenced.add(record.attempt)
            self.put(Section.FENCED, Fence("m", record.attempt, "9c21b3fa", GREEN).encode())
        elif step.do is Do.HAND:
            self.put(Section.HANDED, Handed(record.attempt, b"d").encode())
        elif step.do in (Do.UNFENCE, Do.TAKE_BACK):
            self.gave_up.add(self.cut.attempt)
            self.put(Section.UNFENCED, Unfenced(self.cut.attempt, step.do is Do.TAKE_BACK).encode())
        elif step.do is Do.NOTE_OPEN:
            self.on_their_way.append(replace(told, kind=StepKind.OPENED, digest="64", last_seq=1))

    def arrive(self, number: int, *, again: bool) -> None:
        """Some step comes to the map; `again`: and once more, later."""
        if not self.on_their_way:
            return
        number %= len(self.on_their_way)
        step = self.on_their_way[number] if again else self.on_their_way.pop(number)
        entry = make_entry(
            index=9, term=1, kind=EntryKind.BATCH, time_ns=0, first_seq=0, count=0, payload=b""
        )
        body = step.operation(self.map, entry) if self.map.group == step.group else None
        if body is not None:
            self.map = self._changed(self.map, json.loads(body))

    def green(self, *, opens: bool) -> None:
        if self.cut.stage is CutStage.HANDED:
            self.on_green.add(self.cut.attempt)
        for attempt in self.on_green - self.refused - self.opened:
            (self.opened if opens else self.refused).add(attempt)
        self.words |= dict.fromkeys(self.refused, Word.REFUSED)
        self.words |= dict.fromkeys(self.opened, Word.OPEN)

    def lose(self) -> None:
        """Blue's volumes are put back, or lost what was written last. Its map was not."""
        self.cut, self.seen = NO_CUT if self.index % 2 else self.before, self.map
        self.before = NO_CUT
        self.elect()

    @property
    def is_written(self) -> bool:
        """Does blue take publishes?"""
        record, view = self.record, self.view(cancelled=False, late=False)
        is_held = view.mark is Mark.OTHER and not view.cleared and view.word is not Word.REFUSED
        return view.log is Log.FREE and not record.is_far and not is_held

    def check(self) -> None:
        found = self.map.migration
        assert found is not None
        if self.cut.stage is CutStage.HANDED:
            is_marked = found.stage in (StreamStage.HANDING, StreamStage.OPEN)
            is_over = self.cut.attempt in self.refused
            assert is_over or (is_marked and found.attempt == self.cut.attempt), "HANDED has the map's mark"
        assert not (self.opened and self.is_written), "blue never takes back what green has opened"
        assert len(self.opened) <= 1


def walk(seed: int, *, volumes_are_lost: bool = False) -> Worlds:
    """Mostly blue's leader acts and hears of its map; now and then a word is late, or there is another leader."""
    rng, worlds = random.Random(seed), Worlds()
    for _ in range(300):
        chance = rng.random()
        if chance < 0.5:
            worlds.act(cancelled=rng.random() < 0.02, late=rng.random() < 0.1)
        elif chance < 0.7:
            worlds.arrive(rng.randrange(8), again=rng.random() < 0.4)
        elif chance < 0.9:
            worlds.seen = worlds.map
        elif chance < 0.93:
            worlds.green(opens=rng.random() < 0.2)
        elif chance < 0.98 or not volumes_are_lost:
            worlds.elect()
        else:
            worlds.lose()
        worlds.check()
    return worlds


def test_no_order_of_late_words_and_new_leaders_lets_both_sides_write() -> None:
    """Rule 3 of the cutover, SF-20: whatever is late, HANDED stands under the map's mark of its attempt until green has refused."""
    ended = [walk(seed) for seed in range(examples(150, 1000))]
    assert any(found.opened for found in ended)
    assert any(found.refused for found in ended)


def test_volumes_that_lost_the_hand_over_do_not_make_blue_write_what_green_has_opened() -> None:
    """SF-22: the mark in blue's map outlives the log that it is about."""
    ended = [walk(seed, volumes_are_lost=True) for seed in range(examples(150, 1000))]
    assert any(found.opened for found in ended)


def test_undisturbed_a_stream_is_open_after_a_few_steps() -> None:
    worlds = Worlds()
    for _ in range(8):
        worlds.act(cancelled=False, late=False)
        worlds.arrive(0, again=False)
        worlds.seen = worlds.map
        worlds.green(opens=True)
        worlds.check()
    assert worlds.map.group == next_group("S.1", "m", 1)
    assert worlds.map.far_world == "9c21b3fa"


def test_a_step_of_an_earlier_attempt_is_void() -> None:
    worlds = Worlds()
    late = far_stream(worlds.map, "m", 1, "64", 1)
    for _ in range(2):
        worlds.act(cancelled=False, late=False)
        worlds.arrive(0, again=False)
        worlds.seen = worlds.map
    worlds.elect()
    for _ in range(3):
        worlds.act(cancelled=False, late=False)
        worlds.arrive(0, again=False)
        worlds.seen = worlds.map
    assert worlds.record.attempt == 2
    assert worlds._changed(worlds.map, json.loads(late)) == worlds.map
