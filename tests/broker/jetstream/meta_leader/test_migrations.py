"""Migrations at the leader of the map of streams: in blue, which streams green learns and what may be ended; in green, hidden streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.broker.jetstream.meta_leader.meta_story import OPERATOR, Meta, facts_of, meta

from supercluster.broker.jetstream.admin.migration_status import (
    CLEANED_WITHIN_NS,
    STALLED_MS,
    Clients,
    blue_streams,
    handed,
    shown,
)
from supercluster.broker.jetstream.config.limits import ServerLimits
from supercluster.broker.jetstream.config.metadata_keys import PREFERRED_LEADER_KEY, RESOURCE_KEY
from supercluster.broker.jetstream.config.stream import Placement
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta import migration_changes
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.hand_turns import TURN_MS_MAX
from supercluster.broker.jetstream.meta.learning_slots import AT_ONCE_MAX, UNDER_WAY_MAX
from supercluster.broker.jetstream.meta.map_recovery import MapRecovery, Standing
from supercluster.broker.jetstream.meta.migration import (
    ENDED_MAX,
    Following,
    Green,
    Migration,
    StreamStage,
    next_group,
)
from supercluster.broker.jetstream.meta.migration_steps import MigrationStep, StepKind
from supercluster.broker.jetstream.meta.move_record import Move
from supercluster.broker.jetstream.meta.redirect_orders import is_all_open
from supercluster.broker.jetstream.meta_leader.migrations import TELL_MS, OpenWord, scope_of
from supercluster.broker.jetstream.meta_leader.recoveries import RecoverCall
from supercluster.broker.jetstream.meta_leader.stream_request import Decided, Fallen
from supercluster.broker.jetstream.placement.stream_facts import StreamFacts
from supercluster.broker.protocol.client_reports import AccountClients

GREEN, BLUE = "94ee94ee", "0b1e0b1e"
TO_GREEN = Migration("shop/move/1", Green("green", "green", ("green-0:7422",)), GREEN)
SOURCE = "S.$G.S.7"


def ask(story: Meta, act: Callable[..., None], *args: Any) -> ApiError | None:
    answers: list[ApiError | None] = []
    act(*args, answers.append, lambda: pytest.fail("the leader fell"))
    story.turn()
    (answer,) = answers
    return answer


def blue(*names: str) -> Meta:
    story = meta()
    for name in names:
        story.done("create", name=name)
    assert ask(story, story.replica.migrations.start, TO_GREEN) is None
    story.turn()
    return story


def step(story: Meta, name: str, kind: StepKind, **fields: Any) -> None:
    found = story.stream(name)
    way = found.migration
    assert way is not None
    mark = way if kind is StepKind.HANDING else None
    told = MigrationStep(kind, found.group, way.id, way.attempt, mark, **fields)
    assert MigrationStep.decode(told.encode()) == told
    story.replica.migrations.on_step(told)
    story.turn()


def hear(story: Meta, word: OpenWord) -> None:
    story.replica.migrations.on_open(word)
    story.turn()


def go(story: Meta, name: str) -> None:
    step(story, name, StepKind.HANDING)
    step(story, name, StepKind.OPENED, digest="d1", last_seq=41)


def stages(story: Meta) -> list[StreamStage | None]:
    found = sorted(story.replica.state.streams.items())
    return [stream.migration.stage if stream.migration is not None else None for _, stream in found]


# ---- blue ------------------------------------------------------------------------------------------------------------


def test_a_few_streams_are_learned_at_a_time_and_the_next_ones_follow() -> None:
    """BG-1: streams that are made in the meantime come too (rule 14)."""
    story = blue(*(f"S{number:02}" for number in range(AT_ONCE_MAX + 2)))
    assert stages(story) == [StreamStage.LEARNING] * AT_ONCE_MAX + [None] * 2
    go(story, "S00")
    assert stages(story)[: AT_ONCE_MAX + 1].count(StreamStage.LEARNING) == AT_ONCE_MAX
    go(story, "S01")
    story.done("create", name="T")
    assert stages(story)[-1] is None
    go(story, "S02")
    assert stages(story)[-1] is StreamStage.LEARNING


def say_refused(story: Meta, *names: str, refused: bool = True) -> None:
    """What these streams' leaders say when the map's leader asks the next time, which it does now."""
    told = {"stage": "learning", "copies_refused": refused}
    story.host.facts |= {name: facts_of(story.stream(name), migrating=told) for name in names}
    story.turn(TELL_MS)


@pytest.mark.covers("BG-1")
def test_streams_that_green_refuses_keep_no_others() -> None:
    story = blue(*(f"S{number:02}" for number in range(AT_ONCE_MAX + 2)))
    first = [f"S{number:02}" for number in range(AT_ONCE_MAX)]
    say_refused(story, first[0])
    assert stages(story).count(StreamStage.LEARNING) == AT_ONCE_MAX + 1
    say_refused(story, *first)
    assert stages(story) == [StreamStage.LEARNING] * (AT_ONCE_MAX + 2)


def test_a_stream_whose_copies_differed_keeps_its_slot_as_it_is_copied_anew() -> None:
    story = blue(*(f"S{number:02}" for number in range(AT_ONCE_MAX + 1)))
    told = {"stage": "learning", "refused": True, "copies_refused": False}
    story.host.facts |= {"S00": facts_of(story.stream("S00"), migrating=told)}
    story.turn(TELL_MS)
    assert stages(story)[-1] is None


def test_a_stream_that_green_takes_again_counts_again() -> None:
    names = [f"S{number:02}" for number in range(2 * AT_ONCE_MAX + 1)]
    story = blue(*names)
    say_refused(story, *names[:AT_ONCE_MAX])
    assert stages(story) == [StreamStage.LEARNING] * (2 * AT_ONCE_MAX) + [None]
    say_refused(story, *names[:AT_ONCE_MAX], refused=False)
    go(story, names[-2])
    assert stages(story)[-1] is None


def test_streams_that_green_refuses_are_bounded_as_green_may_take_all_of_them_at_once() -> None:
    names = [f"S{number:02}" for number in range(UNDER_WAY_MAX + 2)]
    story = blue(*names)
    for _ in range(UNDER_WAY_MAX // AT_ONCE_MAX + 1):
        say_refused(story, *names)
    assert stages(story) == [StreamStage.LEARNING] * UNDER_WAY_MAX + [None] * 2


def test_a_new_leader_of_the_map_asks_anew_which_streams_green_refuses() -> None:
    story = blue(*(f"S{number:02}" for number in range(AT_ONCE_MAX + 1)))
    say_refused(story, "S00", "S01")
    story.replica.migrations.clear()
    story.done("create", name="T")
    assert stages(story)[-1] is None


@pytest.mark.covers("BG-4")
def test_streams_are_marked_one_after_another() -> None:
    """Publishers of a fenced stream wait for the work on every other one that is between its mark and open."""
    story = blue("A", "B", "C")
    marked, learning = StreamStage.HANDING, StreamStage.LEARNING
    for name in "ABC":
        step(story, name, StepKind.HANDING)
    assert stages(story) == [marked, learning, learning]
    step(story, "A", StepKind.OPENED, digest="d1", last_seq=41)
    story.turn()
    assert stages(story) == [StreamStage.OPEN, marked, learning]
    step(story, "B", StepKind.UNHANDED)
    story.turn()
    assert stages(story) == [StreamStage.OPEN, learning, marked]


@pytest.mark.covers("BG-4")
def test_a_stream_that_does_not_open_keeps_others_for_a_second_at_most() -> None:
    story = blue("A", "B")
    step(story, "A", StepKind.HANDING)
    step(story, "B", StepKind.HANDING)
    assert story.replica.migrations.deadline_ms() == story.host.now_ms + TURN_MS_MAX
    story.turn(TURN_MS_MAX - 1)
    assert stages(story)[1] is StreamStage.LEARNING
    story.turn(1)
    assert stages(story) == [StreamStage.HANDING] * 2


def test_a_stream_that_is_handed_over_gets_a_mark_that_the_map_has_lost_at_once() -> None:
    story = blue("A", "B")
    step(story, "A", StepKind.HANDING)
    way = story.stream("B").migration
    assert way is not None
    mark = replace(way, digest="d1")
    story.replica.migrations.on_step(
        MigrationStep(StepKind.HANDING, story.stream("B").group, TO_GREEN.id, way.attempt, mark)
    )
    story.turn()
    assert stages(story) == [StreamStage.HANDING] * 2


def test_a_mark_that_was_under_way_at_the_abort_holds_no_stream() -> None:
    """SF-20: its leader may be gone, and green silent, which would have to show what became of it."""
    story = blue("S")
    assert ask(story, story.replica.migrations.abort, TO_GREEN.id) is None
    step(story, "S", StepKind.HANDING)
    assert stages(story) == [StreamStage.LEARNING]


@pytest.mark.covers("BG-9")
def test_a_stream_that_has_not_begun_says_what_it_waits_for() -> None:
    story = blue(*(f"S{number:02}" for number in range(AT_ONCE_MAX + 1)))
    state = story.replica.state
    migration, last = state.migrations[TO_GREEN.id], ("$G", f"S{AT_ONCE_MAX:02}")

    def why() -> str:
        rows = blue_streams(state, migration, {}, Clients(AccountClients(), ""))["streams"]
        return str(rows[-1]["why"])

    assert f"fewer than {AT_ONCE_MAX} streams that green takes" in why()
    found = state.streams[last]
    state.streams[last] = replace(found, move=Move("m7", found.members, found.members, Placement(), 0))
    assert why() == "move m7 of the stream has not ended"
    assert shown(state, migration, {})["stalled"][-1]["why"] == why()
    state.streams[last] = replace(found, standing=Standing.UNCONFIRMED)
    assert "recovered by force" in why()


@pytest.mark.covers("BG-9")
@pytest.mark.parametrize(
    ("migrating", "is_stalled"),
    [
        ({"no_headway_ms": STALLED_MS - 1, "why": "w"}, False),
        ({"no_headway_ms": STALLED_MS, "why": "w"}, True),
        ({"no_headway_ms": 0, "refused": True, "why": "w"}, True),
        (None, True),
    ],
)
def test_a_stream_without_headway_or_refused_by_green_is_stalled(
    migrating: dict[str, Any] | None, is_stalled: bool
) -> None:
    state = blue("S").replica.state
    (found,) = state.streams.values()
    facts = StreamFacts(0, 0, 0, (), migrating=migrating) if migrating is not None else None
    assert shown(state, state.migrations[TO_GREEN.id], {found.group: facts})["stalledTotal"] == is_stalled


def test_a_stream_that_cannot_be_handed_over_is_not_learned_however_it_came_about() -> None:
    """Rule 23, SF-20: the preflight saw neither streams that are made behind it nor what becomes of others. One in memory would
    lose all that it has when green's copies convert."""
    story = blue("S")
    story.done("create", name="T", storage="memory")
    story.turn()
    assert stages(story) == [StreamStage.LEARNING, None]
    (told,) = shown(story.replica.state, story.replica.state.migrations[TO_GREEN.id], {})["stalled"][1:]
    assert (told["name"], told["stage"]) == ("T", "pending")
    assert "is in memory" in told["why"]
    refused = story.refused("update", OPERATOR, sources=[{"name": "T"}])
    assert refused.err_code == 19027
    assert "has sources" in refused.description
    story.done("update", OPERATOR, max_msgs=7)


def test_a_stream_is_taken_back_by_force_only_behind_an_abort_and_at_its_attempt() -> None:
    """SF-20: rule 3 of the cutover; the event says what it means."""
    story = blue("S")
    key = "$G", "S"

    def take_back(migration: str, attempt: int) -> ApiError | None:
        return ask(story, story.replica.migrations.take_back, migration, key, attempt)

    step(story, "S", StepKind.HANDING)
    refused = take_back(TO_GREEN.id, 1)
    assert refused is not None
    assert (refused.err_code, "abort" in refused.description) == (19028, True)
    assert ask(story, story.replica.migrations.abort, TO_GREEN.id) is None
    for migration, attempt, code in (("other", 1, 19023), (TO_GREEN.id, 2, 19028)):
        refused = take_back(migration, attempt)
        assert refused is not None
        assert refused.err_code == code
    assert take_back(TO_GREEN.id, 1) is None
    way = story.stream().migration
    assert way is not None
    assert (way.stage, way.attempt) == (StreamStage.LEARNING, 2)
    refused = take_back(TO_GREEN.id, 2)
    assert refused is not None, "it is blue's already"


def test_what_green_has_lost_since_is_discarded_by_force_at_its_attempt_alone() -> None:
    """BG-12: a person says that the evidence for blue's copies will never come."""
    story = blue("S", "T")
    key = "$G", "S"

    def discard(migration: str, attempt: int) -> ApiError | None:
        return ask(story, story.replica.migrations.discard, migration, key, attempt)

    def refusal(migration: str, attempt: int) -> int:
        refused = discard(migration, attempt)
        assert refused is not None
        return refused.err_code

    assert refusal(TO_GREEN.id, 1) == 19029, "blue has it"
    go(story, "S")
    go(story, "T")
    assert (refusal("other", 1), refusal(TO_GREEN.id, 2)) == (19023, 19029)
    assert discard(TO_GREEN.id, 1) is None
    assert refusal(TO_GREEN.id, 1) == 19029
    state = story.replica.state
    assert [found.name for found in scope_of(state, state.migrations[TO_GREEN.id])] == ["T"]
    assert story.ask("create", name="S") is Fallen.NOT_BEGUN, (
        "rule 18: its name is green's still, so nobody makes it again"
    )
    assert [(told["name"], told["stage"]) for told in handed(state)["streams"]] == [
        ("S", "cleaned"),
        ("T", "open"),
    ]


@pytest.mark.covers("BG-9", "BG-12")
def test_a_stream_that_is_made_behind_finalize_stays_on_blue() -> None:
    story = blue("S")
    go(story, "S")
    assert ask(story, story.replica.migrations.finalize, TO_GREEN.id) is None
    story.done("create", name="T")
    story.turn(TELL_MS)
    state = story.replica.state
    assert stages(story) == [StreamStage.OPEN, None]
    assert is_all_open(state, state.migrations[TO_GREEN.id]), "clients of S are asked on"
    way = story.stream("S").migration
    assert way is not None
    hear(story, OpenWord(way.next_group, way.id, 1, "d1", 41))
    assert shown(state, state.migrations[TO_GREEN.id], {})["done"]
    for _ in range(3):
        story.turn(TELL_MS)
    assert not state.migrations[TO_GREEN.id].runs


@pytest.mark.covers("BG-9", "BG-12")
def test_a_stream_that_green_does_not_show_behind_finalize_is_stalled_and_says_what_to_do() -> None:
    story = blue("S")
    go(story, "S")
    assert ask(story, story.replica.migrations.finalize, TO_GREEN.id) is None
    state = story.replica.state
    final_ns = state.migrations[TO_GREEN.id].final_ns

    def stalled(after_ns: int) -> list[dict[str, Any]]:
        told = shown(state, state.migrations[TO_GREEN.id], {}, None, final_ns + after_ns)
        return list(told["stalled"])

    assert stalled(CLEANED_WITHIN_NS - 1) == []
    (found,) = stalled(CLEANED_WITHIN_NS)
    assert f"POST /admin/migrations/{TO_GREEN.id}/discard on blue" in found["why"]
    assert ask(story, story.replica.migrations.discard, TO_GREEN.id, ("$G", "S"), 1) is None
    assert shown(state, state.migrations[TO_GREEN.id], {})["done"]


def test_an_account_alone_goes() -> None:
    story = meta()
    story.done("create", name="S")
    assert ask(story, story.replica.migrations.start, replace(TO_GREEN, account="OTHER")) is None
    story.turn()
    assert stages(story) == [None]


def test_a_stream_that_goes_does_not_move_and_one_that_went_is_not_touched() -> None:
    """SF-19, rules 14 and 18."""
    story = blue("S")
    refused = story.refused("move", OPERATOR, placement={"cluster": "west"})
    assert refused.err_code == 19027
    assert TO_GREEN.id in refused.description
    assert story.refused("plan_move", OPERATOR, replicas=3).err_code == 19027
    step(story, "S", StepKind.HANDING)
    assert story.ask("delete", OPERATOR) is Fallen.NOT_BEGUN, "nobody knows yet whose it is"
    step(story, "S", StepKind.OPENED, digest="d1", last_seq=41)
    for verb in ("create", "update", "delete"):
        assert story.ask(verb, OPERATOR) is Fallen.NOT_BEGUN, (
            "asked again, it is for green: the broker's map shows that by then"
        )
    assert story.refused("move", OPERATOR).err_code == 19026
    assert story.stream().far_world == GREEN


def test_a_step_that_is_said_again_changes_nothing() -> None:
    story = blue("S")
    step(story, "S", StepKind.HANDING)
    before = story.replica.log.last_index
    step(story, "S", StepKind.HANDING)
    assert story.replica.log.last_index == before
    way = story.stream().migration
    assert way is not None
    late = MigrationStep(StepKind.UNHANDED, story.stream().group, way.id, way.attempt + 1)
    story.replica.migrations.on_step(late)
    story.turn()
    assert story.stream().migration == way


def test_green_hears_again_and_again_what_it_is_to_follow_no_more() -> None:
    """A stream that was deleted, or that goes no more: its hidden copy is dropped, however long the link is cut before."""
    story = blue("S", "T")
    gone = story.stream("S")
    story.done("delete", name="S")
    assert ask(story, story.replica.migrations.abort, TO_GREEN.id) is None
    kept = story.stream("T")
    step(story, "T", StepKind.UNMIGRATED)
    told = [(GREEN, gone.group, 1, TO_GREEN.id), (GREEN, kept.group, 1, TO_GREEN.id)]
    for _ in range(20):
        story.host.dropped.clear()
        story.turn(TELL_MS)
        assert story.host.dropped == told
    for world, group in ((GREEN, gone.group), (BLUE, kept.group), (GREEN, "S.$G.T.none")):
        story.replica.migrations.on_dropped(world, group, 1)
    story.turn(TELL_MS)
    assert story.replica.state.migrations[TO_GREEN.id].runs, "of T green has said nothing"
    story.replica.migrations.on_dropped(GREEN, kept.group, 1)
    story.turn(TELL_MS)
    assert not story.replica.state.migrations[TO_GREEN.id].runs
    assert story.host.texts[-1] == f"migration {TO_GREEN.id} has ended", "that T stays is what was asked for"
    story.host.dropped.clear()
    story.turn(TELL_MS)
    assert story.host.dropped == []


def test_a_word_for_green_that_the_map_has_no_room_for_is_not_lost_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """BG-9: green's hidden copy keeps the stream's name and subjects until a person looks for it."""
    monkeypatch.setattr(migration_changes, "DROPPED_MAX", 2)
    story = blue("A", "B", "C", "D")
    groups = [story.stream(name).group for name in "ABCD"]
    for name in "AB":
        story.done("delete", name=name)
    story.turn(TELL_MS)
    story.replica.migrations.on_dropped(GREEN, groups[1], 1)
    for name in "CD":
        story.done("delete", name=name)
    story.turn(TELL_MS)
    assert story.host.events.count("DropForgotten") == 1
    assert f"copies of {groups[0]} (1 in all)" in story.host.texts[-1], (
        "green has answered about the other one"
    )
    story.turn(TELL_MS)
    assert story.host.events.count("DropForgotten") == 1


def test_of_many_greens_that_never_answer_the_last_ones_are_told_on() -> None:
    story = blue("S")
    group = story.stream().group
    for number in range(2, ENDED_MAX + 3):
        assert ask(story, story.replica.migrations.abort, f"shop/move/{number - 1}") is None
        step(story, "S", StepKind.UNMIGRATED)
        assert ask(story, story.replica.migrations.start, replace(TO_GREEN, id=f"shop/move/{number}")) is None
        story.turn(TELL_MS)
    for _ in range(20):
        story.turn(TELL_MS)
    running = [found.id for found in story.replica.state.migrations.values() if found.runs]
    assert running == [f"shop/move/{number}" for number in range(2, ENDED_MAX + 3)]
    assert (
        f"migration shop/move/1 has ended; green was not told to drop its copies of {group}"
        in story.host.texts[-1]
    )


def test_an_aborted_migration_begins_no_stream() -> None:
    """BG-8: what is open stays open, and can still be finalized."""
    story = blue("S")
    go(story, "S")
    refused = ask(story, story.replica.migrations.abort, TO_GREEN.id)
    assert refused is not None
    assert refused.err_code == 19024
    story.done("create", name="T")
    step(story, "T", StepKind.UNMIGRATED)
    assert ask(story, story.replica.migrations.abort, TO_GREEN.id) is None
    assert ask(story, story.replica.migrations.abort, TO_GREEN.id) is None
    story.done("create", name="U")
    assert stages(story) == [StreamStage.OPEN, StreamStage.LEARNING, None]


def test_a_migration_whose_streams_were_all_deleted_can_be_aborted() -> None:
    """BG-2: nothing of it would ever be open."""
    story = blue("S")
    story.done("delete", name="S")
    state = story.replica.state

    def told() -> dict[str, Any]:
        return shown(state, state.migrations[TO_GREEN.id], {})

    assert (sum(told()["stages"].values()), told()["done"], told()["aborted"]) == (0, False, False)
    assert ask(story, story.replica.migrations.abort, TO_GREEN.id) is None
    assert told()["aborted"] is True


def test_blues_copies_go_by_the_evidence_of_both_sides_alone() -> None:
    """BG-12, SF-22: finalize is refused while a stream is not open; then green is asked, and its word has to agree."""
    story = blue("S")
    refused = ask(story, story.replica.migrations.finalize, TO_GREEN.id)
    assert refused is not None
    assert refused.err_code == 19025
    assert "S" in refused.description
    go(story, "S")
    way = story.stream().migration
    assert way is not None
    right = OpenWord(way.next_group, way.id, 1, "d1", 41)
    hear(story, right)
    assert stages(story) == [StreamStage.OPEN], "not before it is final"
    assert ask(story, story.replica.migrations.finalize, TO_GREEN.id) is None
    story.turn(TELL_MS)
    assert (GREEN, way.next_group, 1) in story.host.cuts_asked
    for wrong in ({"digest": "d2"}, {"last_seq": 40}, {"attempt": 2}, {"migration": "shop/move/0"}):
        hear(story, replace(right, **wrong))
        assert stages(story) == [StreamStage.OPEN]
    assert story.host.events.count("EvidenceDiffers") == 1
    hear(story, right)
    assert stages(story) == [StreamStage.CLEANED]
    story.done("create", name="T")
    for _ in range(3):
        story.turn(TELL_MS)
    assert not story.replica.state.migrations[TO_GREEN.id].runs
    assert "made here behind finalize, and not handed over: $G/T (1 in all)" in story.host.texts[-1]


def test_finalize_waits_for_a_stream_that_is_being_restored() -> None:
    """BG-1, BG-12: it comes after that, and would stay on blue without a word."""
    story = blue("S")
    go(story, "S")
    config = read_stream({"name": "T", "subjects": ["t.>"]})
    (begun,) = story.call("restore", OPERATOR, "T", config=config, restore_id="r1")
    assert isinstance(begun, Decided)
    migration = story.replica.state.migrations[TO_GREEN.id]
    assert not is_all_open(story.replica.state, migration)
    told = blue_streams(story.replica.state, migration, {}, Clients(AccountClients(), ""))["streams"]
    assert [(found["name"], found["why"]) for found in told][1:] == [("T", "it is being restored")]
    refused = ask(story, story.replica.migrations.finalize, TO_GREEN.id)
    assert refused is not None
    assert (refused.err_code, "T" in refused.description) == (19025, True)
    (shown_now,) = story.call("restored", OPERATOR, "T", restore_id="r1", group=begun.assignment.group)
    assert isinstance(shown_now, Decided)
    story.turn()
    assert stages(story) == [StreamStage.OPEN, StreamStage.LEARNING]


def test_two_migrations_that_overlap_are_refused_by_name() -> None:
    """BG-2."""
    story = blue("S")
    start = story.replica.migrations.start
    assert ask(story, start, TO_GREEN) is None
    other = ask(story, start, replace(TO_GREEN, account="A"))
    assert other is not None
    assert (other.err_code, "account" in other.description) == (19020, True)
    overlaps = ask(story, start, replace(TO_GREEN, id="shop/move/2", account="A"))
    assert overlaps is not None
    assert (overlaps.err_code, TO_GREEN.id in overlaps.description) == (19021, True)
    unknown = ask(story, story.replica.migrations.abort, "nobody")
    assert unknown is not None
    assert unknown.err_code == 19023


def test_the_next_migration_begins_as_soon_as_the_streams_of_one_that_is_called_off_are_back() -> None:
    """BG-8: it does not wait until green, which may be silent, has heard what it is to follow no more."""
    story = blue("S")
    migrations = story.replica.migrations
    second = replace(TO_GREEN, id="shop/move/2")
    assert ask(story, migrations.abort, TO_GREEN.id) is None
    refused = ask(story, migrations.start, second)
    assert refused is not None, "S is still on its way"
    assert (refused.err_code, "going back" in refused.description) == (19021, True)
    step(story, "S", StepKind.UNMIGRATED)
    assert ask(story, migrations.start, second) is None
    story.turn()
    way = story.stream("S").migration
    assert way is not None
    assert (way.id, way.attempt) == (second.id, 2)
    story.host.dropped.clear()
    story.turn(TELL_MS)
    assert [told[2:] for told in story.host.dropped] == [(1, TO_GREEN.id)], "green still hears of the first"


# ---- green -----------------------------------------------------------------------------------------------------------


def follow(
    story: Meta, verb: str = "follow", attempt: int = 1, called: str = "", version: int = 0, **fields: Any
) -> Any:
    config = read_stream({"name": "S", "subjects": ["s"], "num_replicas": 1, **fields})
    (answer,) = story.call(
        verb,
        OPERATOR,
        "S",
        config=config if verb == "follow" else None,
        asked_at=story.host.node,
        group=next_group(SOURCE, TO_GREEN.id, attempt),
        following=Following(TO_GREEN.id, attempt, SOURCE, "b1b1b1b1", (), called, version),
        created_ns=77,
    )
    return answer


def test_a_hidden_stream_is_placed_like_a_new_one_and_answered_alike_when_it_is_asked_for_again() -> None:
    story = meta(east_1="east", east_2="east")
    first = follow(story, num_replicas=3)
    assert isinstance(first, Decided)
    found = story.stream()
    assert found.following is not None
    assert sorted(member.partition("@")[0] for member in found.members) == ["east-0", "east-1", "east-2"]
    assert all(member.partition("@")[0].endswith(f"%{BLUE}") for member in found.following.members)
    assert (found.created_ns, story.replica.state.shown()) == (77, [])
    before = story.replica.log.last_index
    assert follow(story, num_replicas=3).assignment == first.assignment
    assert story.replica.log.last_index == before
    wider = follow(story, num_replicas=3, subjects=["s", "t"])
    assert wider.assignment.members == found.members
    assert wider.assignment.config.subjects == ("s", "t")


@pytest.mark.covers("BG-2")
def test_a_late_call_brings_no_earlier_configuration_back() -> None:
    """A leader of blue that stood still sends one behind its successor's. The subjects in between could go to another stream here."""
    story = meta()
    follow(story, version=4)
    follow(story, version=5, subjects=["s", "t"])
    late = follow(story, version=4)
    assert "version 4 of the configuration is older than version 5" in late.description
    assert story.stream().config.subjects == ("s", "t")
    follow(story, version=6, subjects=["s", "t"])
    assert isinstance(follow(story, version=5), ApiError), "the same configuration, taken back and put again"
    assert isinstance(follow(story, attempt=2, version=3), Decided), (
        "of a lineage that was recovered by force"
    )


def nodes_of(found: Assignment) -> list[str]:
    return sorted(member.partition("@")[0] for member in found.members)


def test_a_hidden_stream_is_placed_by_the_name_that_its_cluster_has_here() -> None:
    """BG-1: its configuration stays blue's, for the digest compares it. A cluster that is added meanwhile changes nothing."""
    story = meta(west_0="west")
    placement = {"cluster": "blue"}
    refused = follow(story, placement=placement)
    assert refused.err_code == 10005
    assert "green has east, west: say in the migration's clusters" in refused.description
    assert "calls south on green" in follow(story, placement=placement, called="south").description
    follow(story, placement=placement, called="west")
    found = story.stream()
    assert found.following is not None
    assert (nodes_of(found), found.following.cluster) == (["west-0"], "west")
    assert found.config.placement.cluster == "blue"
    alone = meta()
    follow(alone, placement=placement)
    alone.host.contact["west-0"] = ("west", "vol-west-0")
    beats(alone, 3000)
    assert isinstance(follow(alone, attempt=2, placement=placement), Decided)
    assert nodes_of(alone.stream()) == ["east-0"]


def test_a_copy_is_replaced_in_the_cluster_that_takes_the_place_of_blues() -> None:
    story = meta(west_0="west", west_1="west")
    follow(story, placement={"cluster": "east", "preferred": "east-0"}, called="west")
    [gone] = nodes_of(story.stream())
    del story.host.contact[gone]
    beats(story, 65_000)
    assert [gone, *nodes_of(story.stream())] in (["west-0", "west-1"], ["west-1", "west-0"])


def test_another_migration_that_names_another_cluster_places_anew() -> None:
    story = meta(west_0="west")
    follow(story, placement={"cluster": "blue"}, called="west")
    config = read_stream(
        {"name": "S", "subjects": ["s"], "num_replicas": 1, "placement": {"cluster": "blue"}}
    )
    story.call(
        "follow",
        OPERATOR,
        "S",
        config=config,
        asked_at=story.host.node,
        group=next_group(SOURCE, "shop/move/2", 2),
        following=Following("shop/move/2", 2, SOURCE, "b1b1b1b1", (), "east"),
        created_ns=77,
    )
    assert nodes_of(story.stream()) == ["east-0"]


def test_a_stream_that_came_has_its_clusters_name_here_and_takes_updates() -> None:
    """BG-4: its log came with a version of blue's map, which may be far beyond this one's: each later version is beyond that."""
    story = meta(west_0="west")
    metadata = {PREFERRED_LEADER_KEY: "blue-0", RESOURCE_KEY: "shop/orders"}
    fields: dict[str, Any] = {"placement": {"cluster": "blue"}, "metadata": metadata}
    follow(story, called="west", **fields)
    found = story.stream()
    told: dict[str, Any] = {
        "digest": "d1",
        "last_seq": 41,
        "config": found.config,
        "version": 5000,
        "members": found.members,
    }
    story.replica.migrations.on_step(MigrationStep(StepKind.ARRIVED, found.group, TO_GREEN.id, 1, **told))
    story.turn()
    came = story.stream()
    assert came.is_shown
    assert came.config.placement.cluster == "west"
    assert (came.config.metadata, came.declared_by) == ({RESOURCE_KEY: "shop/orders"}, "shop/orders")
    assert came.version == 5001
    shown: dict[str, Any] = {
        "subjects": ["s"],
        "placement": {"cluster": "west"},
        "metadata": {RESOURCE_KEY: "shop/orders"},
    }
    assert story.done("update", OPERATOR, max_msgs=9, **shown).version == 5002
    assert story.refused("update", max_msgs=8, **shown).err_code == 19001


def test_what_is_taken_or_smaller_on_green_is_refused_by_name() -> None:
    """Rules 7 and 23."""
    story = meta()
    story.done("create", name="OTHER", subjects=["s"])
    assert follow(story).err_code == 10065
    story.done("create", name="S", subjects=["x"])
    taken = follow(story)
    assert (taken.err_code, "stream S is there" in taken.description) == (10058, True)
    story.done("delete", name="S")
    story.done("delete", name="OTHER")
    assert follow(story, num_replicas=3).err_code in (10005, 10074)
    story.host.server_limits = ServerLimits(duplicate_window_ms=1000)
    assert "duplicate" in follow(story).description
    story.host.server_limits = ServerLimits()
    assert isinstance(follow(story), Decided)


def test_a_name_that_comes_is_taken() -> None:
    story = meta()
    follow(story)
    refused = story.refused("create")
    assert (refused.err_code, "comes from super-cluster b1b1b1b1" in refused.description) == (10058, True)
    assert story.refused("create", name="T", subjects=["s"]).err_code == 10065
    for verb in ("delete", "update", "move"):
        assert story.refused(verb, OPERATOR).err_code == 10059


def test_a_hidden_stream_goes_when_blue_keeps_it_and_not_by_a_late_word() -> None:
    story = meta()
    follow(story, attempt=2)
    follow(story, verb="unfollow", attempt=1)
    assert story.stream().following is not None
    assert follow(story, attempt=1).err_code == 10058
    second = story.stream()
    follow(story, attempt=3)
    third = story.stream()
    assert third.members == second.members, "a fence that was taken back costs no copy"
    assert third.group != second.group
    follow(story, verb="unfollow", attempt=3)
    assert story.replica.state.streams == {}
    assert follow(story, verb="unfollow", attempt=3).err_code == 10059, "said again, it finds nothing"


def test_a_stream_is_shown_when_its_own_group_says_that_it_is_open() -> None:
    story = meta()
    follow(story)
    found = story.stream()
    config = read_stream({"name": "S", "subjects": ["s", "u"]})
    for attempt in (2, 1):
        arrived = MigrationStep(
            StepKind.ARRIVED,
            found.group,
            TO_GREEN.id,
            attempt,
            digest="d1",
            last_seq=41,
            config=config,
            members=found.members,
        )
        assert MigrationStep.decode(arrived.encode()) == arrived
        story.replica.migrations.on_step(arrived)
        story.turn()
        assert bool(story.replica.state.shown()) == (attempt == 1)
    assert story.stream().config == config
    assert story.done("delete").assignment.name == "S"


def beats(story: Meta, ms: int) -> None:
    for _ in range(ms // 1000):
        story.turn(1000)


def test_a_copy_that_lost_its_data_follows_again_under_a_name_that_never_was() -> None:
    """SF-4: what it had acknowledged to blue is not there any more."""
    story = meta(east_1="east", east_2="east")
    follow(story, num_replicas=3)
    before = story.stream()
    assert before.following is not None
    lost = before.following.members[1]
    story.replica.copy_lost("east-1", SOURCE, lost, story.host.now_ms)
    beats(story, 3000)
    after = story.stream()
    assert after.following is not None
    changed = [(a, b) for a, b in zip(before.members, after.members, strict=True) if a != b]
    [(old, new)] = changed
    assert old.partition("@")[0] == new.partition("@")[0]
    assert lost not in after.following.members
    assert (after.group, after.following.attempt) == (before.group, before.following.attempt)
    story.replica.copy_lost("east-1", SOURCE, lost, story.host.now_ms)
    beats(story, 3000)
    assert story.stream() == after, "what is said late of one that was replaced changes nothing"


def test_a_copy_whose_broker_is_gone_follows_on_another_one() -> None:
    story = meta(east_1="east", east_2="east", east_3="east")
    follow(story, num_replicas=3)
    gone = next(m for m in story.stream().members if not m.startswith("east-0")).partition("@")[0]
    del story.host.contact[gone]
    beats(story, 50_000)
    assert any(member.startswith(gone) for member in story.stream().members)
    beats(story, 15_000)
    assert not any(member.startswith(gone) for member in story.stream().members)
    assert "FollowerReplaced" in story.host.events


def test_nothing_of_a_stream_that_is_about_to_go_is_recovered_by_force() -> None:
    """SF-20: what another copy would take is lost where green opens the stream."""
    story = blue("S")
    answers: list[tuple[int, Any]] = []

    def recover() -> tuple[int, Any]:
        call = RecoverCall("$G", "S", "east-0", 0, "r1", dry_run=False)
        story.replica.recoveries.ask(call, lambda status, told: answers.append((status, told)), lambda: None)
        story.turn()
        return answers.pop()

    assert "migration" not in recover()[1]["error"]
    step(story, "S", StepKind.HANDING)
    status, told = recover()
    assert (status, TO_GREEN.id in told["error"]) == (409, True)
    step(story, "S", StepKind.OPENED, digest="d1", last_seq=41)
    assert TO_GREEN.id in recover()[1]["error"]


def test_a_map_that_lost_the_mark_has_it_again_before_the_stream_is_confirmed() -> None:
    """SF-20: the stream's leader says that it is handed; the map does not take it for one of its own."""
    story = blue("S")
    group = story.replica.state
    for state in (group, story.replica.tail.state):
        state.recovered(MapRecovery("r", "meta~1", "m", "meta", 0, 9, 9, 3, "", 0), state.applied_index)
    story.host.facts["S"] = facts_of(story.stream(), migrating={"stage": "handed"}, is_settled=True)
    beats(story, 3000)
    assert story.stream().is_unconfirmed
    step(story, "S", StepKind.HANDING)
    beats(story, 3000)
    assert not story.stream().is_unconfirmed
    assert stages(story) == [StreamStage.HANDING]
