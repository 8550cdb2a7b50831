"""A stream changes hands between two super-clusters: fenced, handed, open, and back (SF-19 to SF-22, BG-4)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.broker.jetstream.migration.two_worlds import (
    BLUE_SESSION,
    FAR,
    GREEN_NODE,
    TwoWorlds,
    changed,
    started,
)
from tests.broker.jetstream.publish.stream_story import block, message
from tests.broker.jetstream.stream.test_replica import ASSIGNMENT, NEXT, ORIGIN, with_consumer

from supercluster.broker.jetstream.encoding.sections import Section, sections
from supercluster.broker.jetstream.links.frames import Forward, Frame
from supercluster.broker.jetstream.links.migration_frames import Prepared
from supercluster.broker.jetstream.meta.migration_changes import unhand_stream
from supercluster.broker.jetstream.meta.migration_steps import MigrationStep
from supercluster.broker.jetstream.migration.green_copies import far_learners
from supercluster.broker.jetstream.migration.migrator import AGAIN_MS, PREPARE_AGAIN_MS
from supercluster.broker.jetstream.state.cut import CUT_SECTIONS, CutStage
from supercluster.broker.raft.entry import EntryKind


def at_the_fence(worlds: TwoWorlds) -> None:
    """The stream is fenced, and HANDED does not come: green's link is cut in the same moment."""
    worlds.begin_migration()
    worlds.cuts_link_when = lambda: worlds.leader().group.copy.appender.is_closed
    worlds.until(lambda: not worlds.is_linked)
    worlds.cuts_link_when = lambda: False
    worlds.until(lambda: worlds.stage is CutStage.FENCED)


def handed(worlds: TwoWorlds) -> None:
    """HANDED is committed, and green hears nothing of it."""

    def is_handing() -> bool:
        return worlds.stage is CutStage.FENCED and worlds.leader().group.copy.appender.is_cut_pending

    worlds.begin_migration()
    worlds.cuts_link_when = is_handing
    worlds.until(lambda: worlds.stage is CutStage.HANDED)
    worlds.cuts_link_when = lambda: False
    assert not worlds.is_linked


@pytest.mark.covers("SF-19", "SF-20")
def test_a_stream_goes_to_green_with_all_that_it_has() -> None:
    worlds = started()
    with_consumer(worlds)
    worlds.begin_migration()
    worlds.until(lambda: bool(worlds.blue_map.far_world))
    worlds.until(lambda: worlds.green_map is not None and worlds.green_map.following is None)
    assert worlds.closed_ms is not None
    assert worlds.now_ms - worlds.closed_ms < 250
    assert worlds.green is not None
    blue, green = worlds.leader().group.state, worlds.green.group.state
    assert (green.last_seq, green.messages, green.bytes) == (blue.last_seq, blue.messages, blue.bytes)
    assert list(green.consumers) == ["c"]
    assert [state.key.node for state in green.sessions.states()] == [BLUE_SESSION]
    assert blue.cut.digest == green.cut.digest
    assert worlds.blue_map.migration is not None
    assert worlds.blue_map.migration.digest == green.cut.digest.hex()
    assert worlds.steps == ["handing", "arrived", "opened"]


@pytest.mark.covers("SF-4", "SF-20")
def test_no_entry_of_a_cut_counts_before_it_is_durable() -> None:
    worlds = started()
    worlds.begin_migration()
    worlds.until(lambda: worlds.green_map is not None and worlds.green_map.following is None)
    assert worlds.green is not None
    log = worlds.green.group.log
    found = {
        kind: entry.kind
        for entry in log.entries(log.base_index + 1, log.last_index, 1 << 30)
        if entry.has_sections
        for kind, _ in sections(entry.payload)
        if kind in CUT_SECTIONS
    }
    assert found == dict.fromkeys((Section.FENCED, Section.HANDED, Section.OPENED), EntryKind.DURABLE)


@pytest.mark.covers("SF-13", "SF-20")
def test_a_configuration_that_green_s_map_has_from_before_the_cut_takes_no_message_away() -> None:
    """The one in the stream's log is in force; green's map takes it over with *arrived*."""
    worlds = started()
    with_consumer(worlds)
    worlds.begin_migration()
    worlds.until(lambda: worlds.green_map is not None)
    assert worlds.green_map is not None
    before = replace(worlds.green_map.config, max_msgs=1)
    worlds.green_map = replace(worlds.green_map, config=before, version=ASSIGNMENT.version + 100)
    worlds.until(lambda: worlds.green is not None and worlds.green.group.state.cut.stage is CutStage.HANDED)
    worlds.map_answers = False
    worlds.until(lambda: worlds.green is not None and worlds.green.group.state.cut.stage is CutStage.OPEN)
    assert worlds.green is not None
    worlds.settle(300)
    state = worlds.green.group.state
    assert (state.messages, state.config.max_msgs) == (2, -1)


@pytest.mark.covers("SF-19")
def test_a_stream_that_is_open_on_green_is_written_and_read_there() -> None:
    worlds = started()
    with_consumer(worlds)
    worlds.begin_migration()
    worlds.until(lambda: worlds.green_map is not None and worlds.green_map.following is None)
    green = worlds.green
    assert green is not None
    far = Forward(
        type(ORIGIN)(BLUE_SESSION, ORIGIN.incarnation, ORIGIN.counter),
        3,
        0,
        ASSIGNMENT.version,
        block(message()),
    )
    green.group.copy.inbox.offer(far, early=False)
    green.ask(NEXT, {"batch": 5}, b"in")
    worlds.settle(100)
    assert (green.group.state.last_seq, green.delivered) == (3, [1, 2, 3])


@pytest.mark.covers("SF-19")
def test_a_fenced_stream_takes_nothing_in_and_answers_what_it_has_judged() -> None:
    worlds = started()
    with_consumer(worlds)
    at_the_fence(worlds)
    leader = worlds.leader()
    last, stored = leader.group.log.last_index, len(leader.stored)
    worlds.publish(3, b"z")
    worlds.publish(1, b"x", b"y")
    leader.ask(NEXT, {"batch": 1}, b"in")
    answers: list[bytes | None] = []
    leader.ask("$JS.API.STREAM.PURGE.S", {}, respond=answers.append)
    worlds.settle(100)
    assert leader.group.log.last_index == last
    assert (leader.delivered, answers) == ([], [])
    assert [(run.first_number, run.count) for run in leader.stored[stored:]] == [(1, 2)]
    worlds.until(lambda: worlds.stage is CutStage.NONE)
    worlds.settle(50)
    assert len(answers) == 1, "whoever waited is answered when blue has the stream again"
    assert leader.group.state.last_seq == 3, "what waited in line is taken"
    assert json.loads(answers[0] or b"")["purged"] == 3
    assert leader.delivered == [1]


@pytest.mark.covers("SF-20")
def test_a_fence_is_taken_back_after_two_seconds_and_the_attempt_is_over() -> None:
    worlds = started()
    at_the_fence(worlds)
    assert 1500 <= worlds.until(lambda: worlds.stage is CutStage.NONE) <= 2100
    worlds.until(lambda: worlds.blue_map.migration is not None and worlds.blue_map.migration.attempt == 2)
    worlds.is_linked = True
    worlds.until(lambda: bool(worlds.blue_map.far_world))
    assert worlds.green is not None
    assert worlds.green.group.state.cut.attempt == 2


@pytest.mark.covers("SF-20")
def test_what_green_says_of_its_copies_behind_the_fence_hands_nothing_over() -> None:
    """An answer of green's map that comes late names other copies, or none."""
    worlds = started()
    worlds.begin_migration()
    worlds.cuts_link_when = lambda: worlds.leader().group.copy.appender.is_closed
    worlds.until(lambda: not worlds.is_linked)
    group = worlds.leader().group
    group.copy.migration.on_prepared(Prepared(group.id, 1, group.state.config_version, refusal="no room"))
    worlds.until(lambda: group.state.cut.stage is CutStage.FENCED)
    worlds.settle(1000)
    assert group.state.cut.stage is CutStage.FENCED


@pytest.mark.covers("SF-20")
def test_copies_that_green_names_behind_the_mark_begin_the_next_attempt() -> None:
    """Only those that the mark names may get the stream: a later leader asks no others."""
    worlds = started()
    worlds.cuts_link_when = lambda: "handing" in worlds.steps
    worlds.begin_migration()
    worlds.until(lambda: "handing" in worlds.steps)
    found = worlds.blue_map.migration
    assert found is not None
    assert found.members == (FAR,)
    group = worlds.leader().group
    group.copy.migration.on_prepared(Prepared(group.id, 1, group.state.config_version, ("g@2",)))
    worlds.settle(100)
    assert worlds.steps[:2] == ["handing", "unhanded"]
    assert group.state.cut.stage is CutStage.NONE


@pytest.mark.covers("BG-2")
def test_green_is_asked_for_a_configuration_that_changed_while_the_mark_was_under_way() -> None:
    """Marks wait for their turn, and green has to check the stream's subjects."""
    worlds, marks = started(), list[MigrationStep]()
    for broker in worlds.brokers.values():
        broker.migration_step = marks.append  # type: ignore[method-assign, assignment]
    worlds.begin_migration()
    worlds.until(lambda: bool(marks))
    for broker in worlds.brokers.values():
        broker.migration_step = worlds.blue_step  # type: ignore[method-assign]
    before = worlds.blue_map
    wider = replace(before.config, subjects=(*before.config.subjects, "more"))
    worlds.blue_map = replace(before, config=wider, version=before.version + 1)
    worlds.blue_step(marks[0])
    worlds.assign()
    worlds.until(lambda: bool(worlds.blue_map.far_world))
    assert worlds.steps[:2] == ["handing", "unhanded"]
    assert worlds.green_map is not None
    assert worlds.green_map.config == wider


@pytest.mark.covers("BG-2")
def test_a_late_answer_about_an_earlier_configuration_hides_no_refusal_of_the_present_one() -> None:
    worlds, marks = started(), list[MigrationStep]()
    for broker in worlds.brokers.values():
        broker.migration_step = marks.append  # type: ignore[method-assign, assignment]
    worlds.begin_migration()
    worlds.until(lambda: bool(marks))
    group = worlds.leader().group
    late = Prepared(group.id, 1, group.state.config_version, (FAR,))
    worlds.refusal = "the subjects are taken"
    before = worlds.blue_map
    wider = replace(before.config, subjects=(*before.config.subjects, "more"))
    worlds.blue_map = replace(before, config=wider, version=before.version + 1)
    worlds.assign()

    def is_refused() -> bool:
        return bool((group.copy.migration.info() or {})["refused"])

    worlds.until(is_refused)
    marks.clear()
    group.copy.migration.on_prepared(late)
    worlds.settle(100)
    assert not marks
    assert is_refused()


@pytest.mark.covers("SF-20")
def test_behind_handed_blue_waits_for_green_however_long_that_takes() -> None:
    worlds = started()
    handed(worlds)
    worlds.settle(10_000)
    assert worlds.stage is CutStage.HANDED
    leader = worlds.leader()
    worlds.publish(1, b"x")
    worlds.settle(100)
    assert leader.group.state.last_seq == 0
    worlds.is_linked = True
    worlds.until(lambda: bool(worlds.blue_map.far_world))


@pytest.mark.covers("SF-20")
@pytest.mark.parametrize("stage", [CutStage.HANDED, CutStage.FENCED, CutStage.NONE])
def test_a_stream_that_a_person_takes_back_is_blue_s_wherever_green_s_silence_found_it(
    stage: CutStage,
) -> None:
    """Green is gone for good: behind HANDED, and behind a fence or a mark of a leader that died."""
    worlds = started()
    if stage is CutStage.HANDED:
        handed(worlds)
    elif stage is CutStage.FENCED:
        at_the_fence(worlds)
    else:
        worlds.cuts_link_when = lambda: "handing" in worlds.steps
        worlds.begin_migration()
        worlds.until(lambda: "handing" in worlds.steps)
    if stage is not CutStage.HANDED:
        worlds.lost = {worlds.leader().node}
        worlds.settle(2000)
    worlds.settle(5000)
    leader = worlds.leader()
    assert leader.group.copy.appender.is_closed
    assert leader.group.state.cut.stage is stage
    worlds.blue_map = changed(worlds.blue_map, unhand_stream(worlds.blue_map, "m", 1))
    worlds.until(lambda: not leader.group.copy.appender.is_closed, 1000)
    leader.group.copy.inbox.open_session(ORIGIN)
    worlds.settle(50)
    worlds.publish(1, b"x")
    worlds.until(lambda: leader.group.state.last_seq == 1, 1000)


@pytest.mark.covers("SF-20")
def test_a_new_leader_goes_on_behind_handed() -> None:
    worlds = started()
    handed(worlds)
    old = worlds.leader()
    worlds.lost = {old.node}
    worlds.settle(2000)
    assert worlds.leader() is not old
    assert worlds.stage is CutStage.HANDED
    worlds.is_linked = True
    worlds.until(lambda: bool(worlds.blue_map.far_world))


@pytest.mark.covers("SF-20")
def test_a_new_leader_takes_back_a_fence_that_it_finds_and_begins_the_next_attempt() -> None:
    worlds = started()
    at_the_fence(worlds)
    old = worlds.leader()
    worlds.lost = {old.node}
    worlds.settle(2000)
    new = worlds.leader()
    assert new is not old
    assert worlds.stage is CutStage.FENCED, "a log that has lost HANDED would look like this"
    worlds.is_linked = True
    worlds.until(lambda: new.group.state.cut.stage is CutStage.NONE, 1000)
    worlds.until(lambda: bool(worlds.blue_map.far_world))
    assert worlds.blue_map.migration is not None
    assert worlds.blue_map.migration.attempt == 2


@pytest.mark.covers("SF-20", "SF-22")
def test_a_leader_with_an_earlier_leader_s_mark_takes_nothing_before_green_has_shown_what_became_of_it() -> (
    None
):
    worlds = started()
    worlds.cuts_link_when = lambda: "handing" in worlds.steps
    worlds.begin_migration()
    worlds.until(
        lambda: worlds.blue_map.migration is not None and worlds.blue_map.migration.stage == "handing"
    )
    worlds.lost = {worlds.leader().node}
    worlds.settle(2000)
    leader = worlds.leader()
    leader.group.copy.inbox.open_session(ORIGIN)
    worlds.publish(1, b"x")
    answers: list[bytes | None] = []
    leader.ask("$JS.API.STREAM.INFO.S", {}, respond=answers.append)
    worlds.settle(3000)
    assert (worlds.stage, leader.group.state.last_seq, answers) == (CutStage.NONE, 0, [])
    worlds.cuts_link_when = lambda: False
    worlds.is_linked = True
    worlds.until(lambda: leader.group.state.last_seq == 1, 1500)
    assert len(answers) == 1
    worlds.until(lambda: bool(worlds.blue_map.far_world))


@pytest.mark.covers("SF-21")
def test_an_abort_behind_handed_needs_green_s_refusal() -> None:
    worlds = started()
    handed(worlds)
    worlds.migration = type(worlds.migration)(
        "m", worlds.migration.green, worlds.migration.world, cancelled=True
    )
    worlds.settle(3000)
    assert worlds.stage is CutStage.HANDED
    worlds.keeps_green = lambda frame: frame is not Frame.CUT_TOLD
    # Green opens as soon as it hears of HANDED: whichever it commits first holds.
    worlds.is_linked = True
    worlds.until(lambda: worlds.green is not None and worlds.green.group.state.cut.stage is CutStage.OPEN)
    assert worlds.stage is CutStage.HANDED
    worlds.keeps_green = lambda frame: True
    worlds.until(lambda: bool(worlds.blue_map.far_world))


@pytest.mark.covers("SF-21")
def test_an_abort_before_handed_leaves_blue_alone() -> None:
    worlds = started()
    worlds.begin_migration()
    worlds.until(lambda: bool(worlds.leader().group.raft.membership.learners))
    worlds.migration = type(worlds.migration)(
        "m", worlds.migration.green, worlds.migration.world, cancelled=True
    )
    worlds.until(lambda: worlds.blue_map.migration is None)
    leader = worlds.leader()
    assert leader.group.raft.membership.learners == ()
    assert leader.group.state.cut.stage is CutStage.NONE


@pytest.mark.covers("SF-20")
def test_green_refuses_a_copy_that_differs_and_blue_has_its_stream_again() -> None:
    worlds = started()
    with_consumer(worlds)
    worlds.begin_migration()
    worlds.until(lambda: worlds.green is not None and worlds.green.group.state.last_seq == 2)
    assert worlds.green is not None
    worlds.green.group.state.bytes += 1
    worlds.until(lambda: worlds.green is not None and worlds.green.group.state.cut.stage is CutStage.REFUSED)
    assert "CutDiffers" in worlds.green.events
    told = worlds.green.group.copy.migration.info()
    assert told is not None
    assert (told["stage"], told["why"]) == ("refused", "green's copy differs from blue's in bounds")
    worlds.until(lambda: worlds.stage is CutStage.NONE)
    told = worlds.leader().group.copy.migration.info()
    assert told is not None
    assert (
        "green has refused the attempt: green's copy differs from blue's in bounds; if green goes on to refuse, abort"
        in told["why"]
    )
    assert (told["refused"], told["copies_refused"]) == (True, False)
    worlds.publish(3, b"z")
    worlds.settle(100)
    assert worlds.leader().group.state.last_seq == 3
    worlds.until(lambda: worlds.blue_map.migration is not None and worlds.blue_map.migration.attempt == 2)


@pytest.mark.covers("SF-19")
def test_a_copy_that_follows_applies_nothing_behind_handed() -> None:
    worlds = started()
    worlds.converts = False
    worlds.begin_migration()
    worlds.until(lambda: worlds.green is not None and worlds.green.group.is_at_its_end)
    assert worlds.green is not None
    group = worlds.green.group
    worlds.lost = {worlds.leader().node}
    worlds.settle(2000)
    assert group.log.last_index > group.applied_index == group.state.cut.handed_index


@pytest.mark.covers("MV-8")
def test_learners_of_another_super_cluster_without_a_migration_are_dropped() -> None:
    worlds = started()
    worlds.begin_migration()
    worlds.until(lambda: bool(worlds.leader().group.raft.membership.learners))
    worlds.is_linked = False
    worlds.blue_map = ASSIGNMENT
    worlds.assign()
    worlds.settle(5000)
    assert worlds.leader().group.raft.membership.learners
    worlds.until(lambda: not worlds.leader().group.raft.membership.learners, 20_000)
    assert "MigrationLost" in worlds.leader().events


@pytest.mark.covers("SF-19")
def test_an_idle_stream_changes_hands_as_fast_as_a_busy_one() -> None:
    """Green learns of HANDED at once, though nothing else happens in the group."""
    worlds = started()
    worlds.settle(6000)
    assert worlds.leader().group.raft.quiesced
    worlds.begin_migration()
    worlds.until(lambda: bool(worlds.blue_map.far_world))
    assert worlds.closed_ms is not None
    assert worlds.now_ms - worlds.closed_ms < 250


def part(sequence: int, *, commit: bool = False) -> tuple[bytes, bytes, bytes]:
    headers = {"Nats_Batch_Id": "b", "Nats_Batch_Sequence": str(sequence)}
    if commit:
        headers["Nats_Batch_Commit"] = "1"
    return message(b"s.a", b"p", **headers)


@pytest.mark.covers("SF-19")
def test_an_atomic_batch_that_is_open_at_the_fence_ends_whole() -> None:
    """Rule 9 of the cutover."""
    config = replace(ASSIGNMENT.config, allow_atomic=True)
    worlds = started(replace(ASSIGNMENT, config=config))
    leader = worlds.leader()
    leader.group.copy.inbox.offer(Forward(ORIGIN, 1, 0, ASSIGNMENT.version, block(part(1))), early=False)
    worlds.settle()
    at_the_fence(worlds)
    worlds.until(lambda: worlds.stage is CutStage.NONE)
    leader.stored.clear()
    end = block(part(2, commit=True))
    leader.group.copy.inbox.offer(Forward(ORIGIN, 2, 0, ASSIGNMENT.version, end), early=False)
    worlds.settle(50)
    ((run,),) = [found.exceptions for found in leader.stored]
    assert run.code == 10176
    assert leader.group.state.messages == 0


@pytest.mark.covers("SF-19")
def test_acknowledgements_behind_the_fence_are_for_whoever_has_the_stream_then() -> None:
    worlds = started()
    leader = with_consumer(worlds)
    leader.ask(NEXT, {"batch": 1}, b"in")
    worlds.settle(100)
    handed(worlds)
    acks = [(b"$JS.ACK.S.c.1.1.1.0.1", b"", b"+ACK")]
    leader.group.copy.appender.acknowledge("d", acks)
    worlds.settle(500)
    assert list(leader.group.state.consumers["c"].pending) == [1]
    leader.group.stop()
    assert leader.acks_given_back == [("d", acks)]


@pytest.mark.covers("SF-19")
def test_the_log_keeps_its_fence_while_the_stream_is_closed() -> None:
    """A learner gets HANDED as an entry: within a state it could not go on behind it."""
    worlds = started()
    with_consumer(worlds)
    handed(worlds)
    group = worlds.leader().group
    assert group.keep_from_index() <= group.state.cut.fenced_index
    body = json.dumps({"filter": "", "seq": 0, "keep": 0}).encode()
    group.copy.waiters.command(Section.PURGE, [body], lambda result: None)
    worlds.settle(100)
    assert group.state.messages == 2


@pytest.mark.covers("SF-20")
def test_a_map_that_has_lost_the_mark_gets_it_again_from_the_log() -> None:
    worlds = started()
    handed(worlds)
    worlds.blue_map = ASSIGNMENT
    worlds.assign()
    worlds.until(lambda: worlds.blue_map.migration is not None)
    found = worlds.blue_map.migration
    assert found is not None
    assert (found.id, found.attempt, found.stage) == ("m", 1, "handing")
    worlds.is_linked = True
    worlds.until(lambda: bool(worlds.blue_map.far_world))


def test_people_see_where_it_is() -> None:
    worlds = started()
    handed(worlds)
    told = worlds.leader().group.copy.migration.info()
    assert told is not None
    assert (told["id"], told["attempt"], told["stage"]) == ("m", 1, "handed")
    assert told["why"] == "green has not answered yet"


def why(worlds: TwoWorlds) -> str:
    told = worlds.leader().group.copy.migration.info()
    assert told is not None
    return str(told["why"])


@pytest.mark.covers("BG-9")
def test_people_see_why_the_last_attempt_failed_and_what_the_next_one_waits_for() -> None:
    worlds = started()
    at_the_fence(worlds)
    assert why(worlds) == f"green's copies do not have the fence yet: {GREEN_NODE}"
    worlds.until(lambda: worlds.blue_map.migration is not None and worlds.blue_map.migration.attempt == 2)
    failed = (
        f"the stream could not be handed over in time: green's copies do not have the fence yet: {GREEN_NODE}"
    )
    worlds.settle(100)
    assert why(worlds) == (f"green has not named its copies yet; the last attempt failed: {failed}")
    worlds.is_linked = True
    rests = f"publishers have their way for a while before the next try; the last attempt failed: {failed}"
    worlds.until(lambda: why(worlds) == rests, 1000)
    worlds.until(lambda: worlds.stage is CutStage.HANDED)
    assert "failed" not in why(worlds)


@pytest.mark.covers("BG-9")
def test_people_see_which_copies_are_out_of_contact() -> None:
    worlds = started()
    worlds.begin_migration()
    worlds.cuts_link_when = lambda: bool(far_learners(worlds.leader().group))
    worlds.until(lambda: not worlds.is_linked)
    worlds.settle(300)
    assert why(worlds) == f"green's copies are out of contact: {GREEN_NODE}"


@pytest.mark.covers("SF-20")
def test_green_hears_of_a_configuration_that_changes_while_it_learns() -> None:
    """It has to take subjects for it, which another stream of green's may have."""
    worlds = started()
    worlds.cuts_link_when = lambda: worlds.green is not None
    worlds.begin_migration()
    worlds.until(lambda: worlds.green is not None)
    worlds.settle(500)
    config = replace(ASSIGNMENT.config, subjects=("s.>", "more"))
    worlds.blue_map = replace(worlds.blue_map, config=config, version=ASSIGNMENT.version + 1)
    worlds.until(lambda: worlds.leader().group.state.config == config)
    worlds.cuts_link_when = lambda: False
    worlds.is_linked = True
    worlds.until(lambda: bool(worlds.blue_map.far_world))
    assert worlds.green_map is not None
    assert worlds.green_map.config == config


@pytest.mark.covers("BG-9")
def test_a_refused_stream_asks_green_every_few_seconds_and_at_once_for_another_configuration() -> None:
    """Each call costs green's map leader a placement, and up to 64 streams of a migration are refused at a time."""
    worlds = started()
    worlds.refusal = "the subjects are taken"
    worlds.begin_migration()
    worlds.until(lambda: bool(worlds.prepares))
    worlds.settle(2 * PREPARE_AGAIN_MS)
    assert len(worlds.prepares) == 3
    assert (worlds.leader().group.copy.migration.info() or {})["copies_refused"] is True
    worlds.is_green_silent = True
    config = replace(ASSIGNMENT.config, subjects=("other",))
    worlds.blue_map = replace(worlds.blue_map, config=config, version=ASSIGNMENT.version + 1)
    worlds.until(lambda: len(worlds.prepares) > 3, PREPARE_AGAIN_MS // 10)
    assert worlds.prepares[3].config == config
    assert "taken" not in (worlds.leader().group.copy.migration.info() or {})["why"], (
        "that was about another one"
    )
    # The question may be lost.
    worlds.until(lambda: len(worlds.prepares) > 4, 2 * AGAIN_MS)
