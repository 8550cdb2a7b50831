"""Plans for moves: from the plan to the proof, what each phase waits for, and how a move ends (MV-13)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.reconcilers.builders import (
    NOW,
    cluster,
    condition,
    stream,
    stream_move,
    super_cluster,
    with_status,
)

from supercluster.api import StreamMove, SuperCluster
from supercluster.api.conditions import EventReason
from supercluster.api.moves import MoveBudget
from supercluster.api.stream import NodeFinding
from supercluster.api.stream_move import MoveAudit, MovePlan, MoveProgress, MoveStage
from supercluster.reconcilers.planners.move.stream_move import needs_plan, plan_stream_move
from supercluster.reconcilers.planners.move.views import (
    EndedMove,
    MoveObserved,
    MoveView,
    RunningMove,
    rate_bytes_per_s,
)
from supercluster.reconcilers.planners.plan import FINALIZER, CancelMove, Plan, SetFinalizers, StartMove
from supercluster.reconcilers.planners.status import timestamp
from supercluster.reconcilers.planners.window import Window

EAST, WEST = (tuple(f"{name}-{n}" for n in range(3)) for name in ("east", "west"))
MADE = MovePlan(
    planned_at=timestamp(NOW),
    origin=EAST,
    targets=tuple(NodeFinding(name=name, reason="holds 0 copies") for name in WEST),
    bytes=4096,
    messages=4,
    estimated_seconds=2,
)
VIEW = MoveView(reachable=True, error="", exists=True, members=EAST, leader="east-0")
PROGRESS = MoveProgress(stage=MoveStage.LEARNING, targets=WEST, bytes_left=1024, lag_entries=7, eta_seconds=3)
RUNNING = RunningMove("uid-move", PROGRESS)
AUDIT = MoveAudit(ranges=1, sequences=6, messages=4, first_sequence=1, last_sequence=6, digest="ab")
DELETED = {"deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["supercluster.dev/deletion-policy"]}


def look(**changes: Any) -> MoveObserved:
    found: dict[str, Any] = {
        "super_cluster": super_cluster(),
        "clusters": (cluster(), cluster("west", tags=["ssd"])),
        "stream": stream(),
        "stream_name": "flights",
        "brokers": VIEW,
        "plan": MADE,
        **changes,
    }
    return MoveObserved(**found)


def plan(resource: StreamMove, **changes: Any) -> Plan:
    return plan_stream_move(resource, look(**changes), NOW)


def after(resource: StreamMove, **changes: Any) -> StreamMove:
    """The resource after one plan was told."""
    told = with_status(resource, plan(resource, **changes))
    assert isinstance(told, StreamMove)
    return told


def granted(resource: StreamMove) -> SuperCluster:
    """The SuperCluster that has given this move a place."""
    grant = {"name": "move", "uid": "uid-move", "ticket": resource.status.ticket}
    return super_cluster(status={"moves": [grant]})


def queued(**spec: Any) -> StreamMove:
    return after(stream_move(**spec))


def started(**changed: Any) -> StreamMove:
    """A move that runs, and what was changed of its spec since."""
    running = after(queued(), brokers=replace(VIEW, running=RUNNING)).to_object()
    return StreamMove.model_validate({**running, "spec": {**running["spec"], **changed}})


def out_of_sight(resource: StreamMove, **changes: Any) -> StreamMove:
    """The resource, whose move the brokers have not told of for long."""
    told = with_status(resource, plan_stream_move(resource, look(**changes), NOW - timedelta(seconds=10)))
    assert isinstance(told, StreamMove)
    return told


@pytest.mark.covers("MV-13", "OP-4")
def test_a_move_is_planned_queued_started_watched_and_proven() -> None:
    waiting = queued()
    assert (waiting.status.phase, waiting.status.ticket) == ("Queued", 1)
    assert waiting.status.plan == MADE
    assert waiting.status.source == "east"
    given = granted(waiting)
    both = plan(waiting, super_cluster=given)
    first, then = both.steps
    assert isinstance(first, SetFinalizers)
    assert isinstance(then, StartMove), "nothing is started that has no finalizer"
    assert both.in_a_row == 2
    kept = StreamMove.model_validate(
        {
            **waiting.to_object(),
            "metadata": {**waiting.metadata.to_object(), "finalizers": list(first.finalizers)},
        }
    )
    planned = plan(kept, super_cluster=given)
    (start,) = planned.steps
    assert isinstance(start, StartMove)
    assert (start.stream, start.id, start.goal) == ("flights", "uid-move", {"placement": {"cluster": "west"}})
    assert start.nodes == WEST, "what was planned, and perhaps approved, is what is done"
    assert planned.wait_after_step
    running = after(kept, brokers=replace(VIEW, running=RUNNING))
    assert (running.status.phase, running.status.percent) == ("Running", "75%")
    assert running.status.progress == PROGRESS
    assert condition(running.to_object()["status"], "Progressing")["status"] == "True"
    ended = EndedMove("uid-move", is_done=True, bytes_copied=4096, audit=AUDIT)
    done = after(running, brokers=replace(VIEW, last=ended, members=WEST))
    assert (done.status.phase, done.status.percent, done.status.audit) == ("Succeeded", "100%", AUDIT)
    assert "6 sequences from 1 to 6, with 4 messages, compared equal in 1 ranges" in str(done.status.message)
    assert done.status.progress is None
    assert done.status.ended_at is not None
    assert condition(done.to_object()["status"], "Complete")["status"] == "True"
    (last,) = plan(done, brokers=MoveView()).steps
    assert last == SetFinalizers((), "7")


@pytest.mark.covers("MR-4", "MV-13")
def test_a_repair_that_is_young_is_looked_at_often_and_does_not_tell_of_each_stage() -> None:
    repair = {"replace": ["east-2"], "nodes": ["east-0", "east-1", "east-3"], "away": "60s", "reason": "lost"}
    resource = StreamMove.model_validate(
        {
            **stream_move().to_object(),
            "spec": {"superCluster": "demo", "streamRef": "flights", "repair": repair},
        }
    )
    comparing = replace(RUNNING, progress=PROGRESS.model_copy(update={"stage": MoveStage.COMPARING}))
    seen, later = replace(VIEW, running=RUNNING), replace(VIEW, running=comparing)
    running = after(resource, brokers=seen)
    assert (running.status.phase, running.status.progress) == ("Running", PROGRESS), "that it runs is told"
    young = plan(running, brokers=later)
    assert (young.status_patch, young.steps) == (None, ())
    assert young.recheck_after_ms is not None
    old = plan_stream_move(running, look(brokers=later), NOW + timedelta(seconds=3))
    assert old.status_patch is not None
    assert old.status_patch["progress"]["stage"] == "comparing"
    assert young.recheck_after_ms < (old.recheck_after_ms or 0)
    stuck = replace(RUNNING, progress=PROGRESS.model_copy(update={"trouble": "a copy does not open"}))
    told = after(running, brokers=replace(VIEW, running=stuck)).to_object()["status"]
    assert condition(told, "Progressing")["reason"] == "MoveStalled", "trouble is told at once"
    called_off = StreamMove.model_validate(
        {**running.to_object(), "spec": {**running.spec.to_object(), "cancel": True}}
    )
    assert [type(step) for step in plan(called_off, brokers=later).steps] == [CancelMove]


@pytest.mark.covers("OP-2")
@pytest.mark.parametrize(
    "phase", ["Queued", "Running", "Succeeded", "AwaitingApproval", "Planned", "Refused"]
)
def test_what_is_converged_gives_an_empty_plan(phase: str) -> None:
    ended = EndedMove("uid-move", is_done=True, audit=AUDIT)
    refused = MADE.model_copy(update={"refusal": "3 replicas wanted, 1 of 6 nodes can be used"})
    situations: dict[str, tuple[StreamMove, dict[str, Any]]] = {
        "Queued": (stream_move(), {}),
        "Running": (stream_move(), {"brokers": replace(VIEW, running=RUNNING)}),
        "Succeeded": (stream_move(), {"brokers": replace(VIEW, last=ended, members=WEST)}),
        "AwaitingApproval": (stream_move(approval="Manual"), {}),
        "Planned": (stream_move(dryRun=True), {}),
        "Refused": (stream_move(), {"plan": refused}),
    }
    resource, changes = situations[phase]
    settled = after(resource, **changes)
    assert settled.status.phase == phase
    assert plan(settled, **changes).is_empty


@pytest.mark.covers("MV-13")
@pytest.mark.parametrize(
    ("spec", "changes", "phase", "words"),
    [
        ({"approval": "Manual"}, {}, "AwaitingApproval", "spec.approved to true"),
        ({"approval": "Manual", "approved": True}, {}, "Queued", "waiting for a place"),
        ({"suspend": True}, {}, "Planned", "spec.suspend"),
        (
            {},
            {"window": Window(False, NOW + timedelta(hours=1))},
            "AwaitingWindow",
            "opens at 2026-01-02T04:04:05Z",
        ),
        ({}, {"window": Window(False)}, "AwaitingWindow", "never opens"),
        ({}, {"window": Window(True, NOW)}, "Queued", "waiting for a place"),
        ({"dryRun": True}, {}, "Planned", "4.0 KiB (4 messages) to copy in about 2 s"),
        (
            {},
            {"brokers": replace(VIEW, running=RunningMove("other", PROGRESS))},
            "Pending",
            "move other of the stream",
        ),
        ({}, {"plan": None, "plan_error": "time-out"}, "Pending", "time-out"),
        ({}, {"brokers": MoveView(error="no broker is ready")}, "Pending", "no broker is ready"),
        ({}, {"brokers": MoveView(reachable=True)}, "Pending", "no stream flights on the brokers"),
        ({}, {"stream": None, "stream_name": None}, "Pending", "there is no such Stream"),
        ({}, {"super_cluster": None}, "Pending", "no such SuperCluster"),
    ],
)
def test_what_a_move_waits_for_is_its_phase_and_its_message(
    spec: dict[str, Any], changes: dict[str, Any], phase: str, words: str
) -> None:
    planned = plan(stream_move(**spec), **changes)
    assert planned.steps == ()
    patch = planned.status_patch or {}
    assert patch["phase"] == phase
    assert words in patch["message"]
    assert condition(patch, "Progressing")["status"] == "False"


@pytest.mark.covers("MV-2", "SF-23")
@pytest.mark.parametrize(
    ("spec", "changes", "reason"),
    [
        ({}, {"plan": MADE.model_copy(update={"refusal": "west-0 is not in contact"})}, "NoSuitableBrokers"),
        ({}, {"refusal": "no suitable peers", "refusal_code": 10005}, "NoSuitableBrokers"),
        ({}, {"refusal": "move and scale in one", "refusal_code": 10123}, "RefusedByBrokers"),
        ({"destination": {"cluster": "south"}}, {}, "ClusterNotFound"),
        ({}, {"stream": stream(placement={"cluster": "east"})}, "PlacementConflict"),
        ({"replicas": 5}, {}, "PlacementConflict"),
        ({"stream": "flights"}, {"brokers": replace(VIEW, declared_by="demo-ns/flights")}, "StreamDeclared"),
        ({}, {"window_error": "spec.maintenanceWindow.cron is 'x'"}, "InvalidWindow"),
    ],
)
def test_a_move_that_can_not_be_made_is_refused_and_says_why(
    spec: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    refused = after(stream_move(**spec), **changes)
    assert refused.status.phase == "Refused"
    accepted = condition(refused.to_object()["status"], "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", reason)
    assert plan(refused, brokers=replace(VIEW)).is_empty


@pytest.mark.covers("SF-23")
def test_an_undeclared_stream_is_moved_only_when_its_name_says_so() -> None:
    assert after(stream_move(stream="mine"), stream=None, stream_name="mine").status.phase == "Queued"


def test_a_dry_run_may_look_anywhere() -> None:
    pinned = stream(placement={"cluster": "east"})
    assert after(stream_move(dryRun=True), stream=pinned).status.phase == "Planned"


def test_a_refused_move_of_a_stream_is_looked_at_again_and_one_of_a_person_is_not() -> None:
    refusing = MADE.model_copy(update={"refusal": "west-0 is not in contact"})
    own, theirs = after(stream_move(owned=True), plan=refusing), after(stream_move(), plan=refusing)
    later = NOW + timedelta(seconds=31)
    assert (needs_plan(own, later), needs_plan(theirs, later)) == (True, False)
    assert not needs_plan(own, NOW + timedelta(seconds=29))
    assert after(own).status.phase == "Queued"


@pytest.mark.covers("MV-3")
def test_a_move_that_somebody_else_started_a_moment_earlier_is_waited_for() -> None:
    waiting = queued()
    changes: dict[str, Any] = {
        "super_cluster": granted(waiting),
        "refusal": "in progress",
        "refusal_code": 10124,
    }
    planned = plan(waiting, **changes)
    assert planned.steps == ()
    assert (planned.status_patch or {})["phase"] == "Pending"
    again = after(after(waiting, **changes))
    assert (again.status.phase, again.status.ticket) == ("Queued", 2)


OUTDATED: dict[str, Any] = {"refusal": "west-1 is not in contact", "refusal_code": 19004}


@pytest.mark.covers("MV-13")
def test_a_plan_that_can_not_be_carried_out_any_more_is_made_anew() -> None:
    waiting = queued()
    again = after(waiting, plan=None, super_cluster=granted(waiting), **OUTDATED)
    assert (again.status.phase, again.status.message) == ("Pending", "west-1 is not in contact")
    assert again.status.plan is None
    assert needs_plan(again, NOW)
    assert (after(again).status.phase, after(again).status.ticket) == ("Queued", 2)


@pytest.mark.covers("MV-13")
def test_an_approval_is_of_one_plan_and_of_no_other() -> None:
    waiting = queued(approval="Manual", approved=True)
    later = NOW + timedelta(hours=1)
    assert not needs_plan(after(waiting, window=Window(False, later)), later), "it waits as it was approved"
    voided = after(waiting, plan=None, super_cluster=granted(waiting), **OUTDATED)
    assert voided.status.plan is None
    other = after(voided)
    assert (other.status.phase, other.status.plan) == ("AwaitingApproval", MADE)
    assert "set spec.approved to false" in str(other.status.message)
    assert needs_plan(other, later)

    def told(resource: StreamMove, approved: bool) -> StreamMove:
        body = resource.to_object()
        return after(
            StreamMove.model_validate({**body, "spec": {**body["spec"], "approved": approved}}), plan=None
        )

    assert told(other, True).status.phase == "AwaitingApproval"
    withdrawn = told(other, False)
    assert withdrawn.status.phase == "AwaitingApproval"
    assert told(withdrawn, True).status.phase == "Queued"


@pytest.mark.covers("MV-13")
def test_the_plan_of_a_move_that_runs_names_the_brokers_that_it_goes_to() -> None:
    replaced = PROGRESS.model_copy(update={"targets": ("west-0", "west-3", "west-2")})
    running = after(started(), plan=None, brokers=replace(VIEW, running=RunningMove("uid-move", replaced)))
    assert running.status.plan is not None
    assert [(found.name, found.reason) for found in running.status.plan.targets] == [
        ("west-0", "holds 0 copies"),
        ("west-3", "was taken while the move ran, instead of west-1"),
        ("west-2", "holds 0 copies"),
    ]
    assert running.status.percent == "75%"


@pytest.mark.covers("MV-13")
def test_a_place_that_was_given_to_an_earlier_ticket_does_not_count() -> None:
    first = queued()
    shut = after(first, window=Window(False, NOW + timedelta(hours=1)))
    again = after(shut, window=Window(True, NOW))
    assert again.status.ticket == 2
    assert plan(again, super_cluster=granted(first), window=Window(True, NOW)).steps == ()
    assert plan(again, super_cluster=granted(again), window=Window(True, NOW)).steps != ()


@pytest.mark.covers("MV-13", "OP-4")
def test_a_change_of_the_count_goes_the_way_of_a_move() -> None:
    resource, own = stream_move(replicas=5), stream(replicas=5)
    waiting = after(resource, stream=own)
    assert (waiting.status.phase, waiting.status.destination) == ("Queued", "5 replicas")
    kept = StreamMove.model_validate(
        {**waiting.to_object(), "metadata": {**waiting.metadata.to_object(), "finalizers": [FINALIZER]}}
    )
    (start,) = plan(kept, stream=own, super_cluster=granted(waiting)).steps
    assert isinstance(start, StartMove)
    assert start.goal == {"replicas": 5}
    assert start.note is not None
    assert "bringing stream flights to 5 replicas" in start.note.message
    running = after(kept, stream=own, brokers=replace(VIEW, running=RUNNING))
    five = tuple(f"east-{n}" for n in range(5))
    ended = EndedMove("uid-move", is_done=True, bytes_copied=4096, audit=AUDIT)
    done = after(running, stream=own, brokers=replace(VIEW, last=ended, members=five))
    assert done.status.phase == "Succeeded"
    assert str(done.status.message).startswith("the stream has 5 replicas: ")
    nothing_new = replace(ended, audit=MoveAudit())
    fewer = after(running, stream=own, brokers=replace(VIEW, last=nothing_new))
    assert fewer.status.message == "the stream has 5 replicas: there was nothing new to compare"
    already = after(resource, stream=own, brokers=replace(VIEW, members=five))
    assert (already.status.phase, already.status.message) == (
        "Succeeded",
        "the stream has 5 replicas already",
    )
    forgotten = after(running, stream=own, brokers=replace(VIEW, members=five))
    assert forgotten.status.phase == "Succeeded"
    lost = out_of_sight(running, stream=own, brokers=VIEW)
    assert after(lost, stream=own, brokers=VIEW).status.phase == "Failed"


@pytest.mark.covers("MV-12")
def test_a_stream_that_is_there_already_is_not_moved() -> None:
    done = after(stream_move(), brokers=replace(VIEW, members=WEST))
    assert done.status.phase == "Succeeded"
    assert "lives in Cluster west already" in str(done.status.message)
    tagged = after(stream_move(destination={"tags": ["ssd"]}), brokers=replace(VIEW, members=WEST))
    assert tagged.status.phase == "Succeeded"


def test_a_move_that_was_over_before_it_was_seen_to_run_has_its_beginning_from_the_brokers() -> None:
    ended = EndedMove("uid-move", is_done=True, audit=AUDIT, started=NOW - timedelta(seconds=2))
    done = after(queued(), brokers=replace(VIEW, last=ended, members=WEST))
    assert (done.status.phase, done.status.started_at) == ("Succeeded", timestamp(NOW - timedelta(seconds=2)))


def test_a_stream_with_one_replica_elsewhere_is_not_there() -> None:
    mixed = replace(VIEW, members=(*WEST[:2], "east-0"))
    assert after(stream_move(), brokers=mixed).status.phase == "Queued"


@pytest.mark.covers("MV-9")
def test_a_move_is_called_off_before_it_started_without_asking_the_brokers() -> None:
    assert after(stream_move(cancel=True), brokers=MoveView()).status.phase == "Cancelled"


@pytest.mark.covers("MV-9")
def test_a_move_that_runs_is_called_off_and_goes_back() -> None:
    resource = started(cancel=True)
    (step,) = plan(resource, brokers=replace(VIEW, running=RUNNING)).steps
    assert step == CancelMove("flights", "uid-move")
    returning = after(resource, brokers=replace(VIEW, running=replace(RUNNING, cancelled=True)))
    assert returning.status.phase == "Cancelling"
    back = after(returning, brokers=replace(VIEW, last=EndedMove("uid-move", is_done=False)))
    assert back.status.phase == "Cancelled"


@pytest.mark.covers("MV-9")
def test_a_cancel_that_comes_too_late_is_said_and_the_move_goes_on() -> None:
    changes: dict[str, Any] = {
        "brokers": replace(VIEW, running=RUNNING),
        "refusal": "leaving was appended",
        "refusal_code": 19010,
    }
    planned = plan(started(cancel=True), **changes)
    assert planned.steps == ()
    told = condition(planned.status_patch, "Progressing")
    assert (told["status"], told["reason"]) == ("True", "TooLateToCancel")


@pytest.mark.covers("SF-6")
def test_a_move_that_the_brokers_gave_up_has_failed_with_their_words() -> None:
    ended = EndedMove("uid-move", is_done=False, reason="west-1 differs in 1 to 10000", audit=AUDIT)
    planned = plan(started(), brokers=replace(VIEW, last=ended))
    patch = planned.status_patch or {}
    assert (patch["phase"], patch["message"]) == ("Failed", "west-1 differs in 1 to 10000")
    assert [note.reason for note in planned.notes] == [EventReason.MOVE_FAILED]
    assert planned.notes[0].warning


@pytest.mark.covers("OP-4")
@pytest.mark.parametrize(
    ("view", "phase"),
    [
        (MoveView(error="no broker is ready"), "Running"),
        (MoveView(reachable=True), "Failed"),
        (replace(VIEW, members=WEST, last=EndedMove("later", is_done=True)), "Succeeded"),
        (replace(VIEW, last=EndedMove("later", is_done=True)), "Failed"),
    ],
)
def test_a_move_that_the_brokers_do_not_tell_of_is_judged_by_where_the_stream_is(
    view: MoveView, phase: str
) -> None:
    assert after(out_of_sight(started(), brokers=view), brokers=view).status.phase == phase


@pytest.mark.covers("MV-9", "OP-4")
def test_a_move_that_one_broker_does_not_know_is_not_over_before_others_had_time_to_tell() -> None:
    """The one that answered may be cut off and not have noticed."""
    first = after(started(), brokers=VIEW)
    told = condition(first.to_object()["status"], "Progressing")
    assert (first.status.phase, told["status"], told["reason"]) == ("Running", "Unknown", "MoveUnknown")
    assert plan_stream_move(first, look(), NOW + timedelta(seconds=9)).steps == ()
    soon = with_status(first, plan_stream_move(first, look(), NOW + timedelta(seconds=9)))
    assert isinstance(soon, StreamMove)
    assert soon.status.phase == "Running"
    again = after(soon, brokers=replace(VIEW, running=RUNNING))
    assert again.status.phase == "Running"
    assert condition(again.to_object()["status"], "Progressing")["reason"] == "Moving"
    over = with_status(first, plan_stream_move(first, look(), NOW + timedelta(seconds=10)))
    assert isinstance(over, StreamMove)
    assert over.status.phase == "Failed"


@pytest.mark.covers("MV-9", "OP-5")
def test_a_deleted_move_stays_while_a_broker_that_does_not_know_it_may_be_cut_off() -> None:
    just_now = {**DELETED, "deletionTimestamp": timestamp(NOW - timedelta(seconds=5))}
    going = stream_move(meta=just_now, status={"phase": "Running"})
    assert plan(going).steps == ()
    assert plan(going).recheck_after_ms is not None
    let_go = (SetFinalizers((), "7"),)
    later = plan_stream_move(going, look(), NOW + timedelta(seconds=5))
    assert later.steps == let_go
    ended = EndedMove("uid-move", is_done=False)
    assert plan(going, brokers=replace(VIEW, last=ended)).steps == let_go
    assert plan(stream_move(meta=just_now, status={"phase": "Failed"})).steps == let_go


@pytest.mark.covers("OP-4", "OP-5")
def test_a_deleted_move_is_called_off_before_it_goes() -> None:
    going = stream_move(meta=DELETED, status={"phase": "Running"})
    (step,) = plan(going, brokers=replace(VIEW, running=RUNNING)).steps
    assert isinstance(step, CancelMove)
    assert plan(going, brokers=replace(VIEW, running=replace(RUNNING, cancelled=True))).steps == ()
    assert plan(going, brokers=MoveView()).steps == ()
    assert plan(going).steps == (SetFinalizers((), "7"),)
    assert plan(going, brokers=MoveView(), clusters=()).steps == (SetFinalizers((), "7"),)
    assert plan(stream_move(meta={"deletionTimestamp": "2026-01-02T00:00:00Z"})).is_empty


@pytest.mark.covers("MV-9", "OP-5")
def test_a_move_whose_stream_resource_is_gone_is_called_off_and_let_go() -> None:
    body = started().to_object()
    going = StreamMove.model_validate({**body, "metadata": {**body["metadata"], **DELETED}})
    assert going.status.stream_name == "flights"
    gone: dict[str, Any] = {"stream": None, "plan": None}
    runs = plan(going, **gone, brokers=replace(VIEW, running=RUNNING))
    assert runs.steps == (CancelMove("flights", "uid-move"),)
    let_go = (SetFinalizers((), "7"),)
    assert plan(going, **gone).steps == let_go, "the brokers carry nothing out"
    assert plan(going, **gone, brokers=MoveView(reachable=True, error="")).steps == let_go, "no such stream"
    assert plan(going, **gone, stream_name=None, brokers=MoveView()).steps == let_go, "nobody knows its name"
    assert plan(going, **gone, brokers=MoveView()).steps == (), "silent brokers may carry it out"


@pytest.mark.covers("MV-9")
def test_a_move_of_a_persons_ends_when_nobody_knows_its_stream_any_more() -> None:
    running, gone = started(), {"stream": None, "plan": None}
    lost = after(running, **gone, stream_name=None, brokers=MoveView())
    assert (lost.status.phase, lost.status.message) == (
        "Failed",
        "Stream flights is gone, and nobody knows its name on the brokers",
    )
    nowhere = MoveView(reachable=True, error="")
    deleted = after(out_of_sight(running, **gone, brokers=nowhere), **gone, brokers=nowhere)
    assert (deleted.status.phase, deleted.status.message) == (
        "Failed",
        "stream flights was deleted meanwhile",
    )
    waits = after(queued(), **gone)
    assert condition(waits.to_object()["status"], "Accepted")["reason"] == "StreamNotFound"


@pytest.mark.covers("MV-13")
@pytest.mark.parametrize(
    ("own", "whole", "expected"),
    [
        (None, None, 0),
        ("1Mi", None, 2**20),
        (None, "8Mi", 4 * 2**20),
        ("1Mi", "8Mi", 2**20),
        ("9Mi", "8Mi", 4 * 2**20),
    ],
)
def test_a_move_gets_its_share_of_the_bandwidth_and_no_more(
    own: str | None, whole: str | None, expected: int
) -> None:
    move = stream_move(bandwidth={"bytesPerS": own} if own else {})
    assert rate_bytes_per_s(move, MoveBudget(concurrent_max=2, bytes_per_s=whole)) == expected


def test_the_words_of_every_ended_move_are_kept_when_its_spec_is_touched() -> None:
    done = after(stream_move(), brokers=replace(VIEW, members=WEST))
    body = done.to_object()
    body["metadata"]["generation"] = 2
    assert plan(StreamMove.model_validate(body)).status_patch == {"observedGeneration": 2}


@pytest.mark.covers("MV-13")
def test_a_move_that_does_not_come_on_says_why_in_its_condition_and_in_one_event() -> None:
    trouble = "the new copies do not catch up: raise the bandwidth of the move well above 9000 bytes/s"
    slow = RunningMove(
        "uid-move",
        PROGRESS.model_copy(update={"trouble": trouble, "eta_seconds": None}),
        is_below_ingest_rate=True,
    )
    first = plan(started(), brokers=replace(VIEW, running=slow))
    stalled = after(started(), brokers=replace(VIEW, running=slow))
    told = condition(stalled.to_object()["status"], "Progressing")
    assert (told["status"], told["reason"], told["message"]) == ("True", "BelowIngestRate", trouble)
    assert stalled.status.message == trouble
    assert [note.reason for note in first.notes] == [EventReason.MOVE_STALLED]
    assert first.notes[0].warning
    assert plan(stalled, brokers=replace(VIEW, running=slow)).notes == ()
    assert after(stalled, brokers=replace(VIEW, running=RUNNING)).status.message != trouble


@pytest.mark.covers("MV-9", "SF-6")
def test_a_move_whose_stream_has_no_leader_says_for_whom_it_waits_and_forgets_nothing() -> None:
    trouble = "stream flights has had no leader for 12 s: bring back west-1, west-2, which are out of contact"
    before = after(started(), brokers=replace(VIEW, running=RUNNING))
    unknown = MoveProgress(targets=PROGRESS.targets)
    waits = after(before, brokers=replace(VIEW, running=RunningMove("uid-move", unknown)))
    assert (waits.status.percent, waits.status.message) == (
        before.status.percent,
        "the stream's leader does not answer",
    )
    told = after(
        waits,
        brokers=replace(
            VIEW, running=RunningMove("uid-move", unknown.model_copy(update={"trouble": trouble}))
        ),
    )
    found = condition(told.to_object()["status"], "Progressing")
    assert (found["status"], found["reason"], found["message"]) == ("True", "MoveStalled", trouble)
    assert told.status.percent == before.status.percent


@pytest.mark.covers("MV-9", "MV-13")
def test_a_cancelled_move_that_does_not_get_back_says_why() -> None:
    trouble = "east-1 has been out of contact for 12 s: bring its broker back"
    stage = PROGRESS.model_copy(update={"trouble": trouble, "stage": MoveStage.CANCELLING})
    view = replace(VIEW, running=RunningMove("uid-move", stage, cancelled=True))
    told = after(started(cancel=True), brokers=view)
    assert (told.status.phase, told.status.message) == (
        "Cancelling",
        f"cancelling: going back to where it was; {trouble}",
    )


@pytest.mark.covers("MV-13", "OP-4")
def test_another_bandwidth_is_told_to_the_move_that_runs() -> None:
    def running(bytes_per_s: int) -> MoveView:
        progress = PROGRESS.model_copy(update={"bytes_per_s": bytes_per_s})
        return replace(VIEW, running=RunningMove("uid-move", progress))

    move = started(bandwidth={"bytesPerS": "2Ki"})
    (step,) = plan(move, brokers=running(1024)).steps
    assert isinstance(step, StartMove)
    assert (step.id, step.bytes_per_s) == ("uid-move", 2048)
    assert plan(move, brokers=running(2048)).steps == ()
    assert plan(move, brokers=replace(VIEW, running=RUNNING)).steps == (), "brokers that do not say"
    called_off = started(bandwidth={"bytesPerS": "2Ki"}, cancel=True)
    assert not any(isinstance(s, StartMove) for s in plan(called_off, brokers=running(1024)).steps)


@pytest.mark.covers("OP-4")
@pytest.mark.parametrize(("is_done", "phase"), [(True, "Succeeded"), (False, "Failed")])
@pytest.mark.parametrize("was", ["queued", "running"])
def test_a_move_that_ended_before_the_last_one_is_not_started_again(
    is_done: bool, phase: str, was: str
) -> None:
    """The operator was away from before its end, or from just after its start, until another move had ended too."""
    view = replace(
        VIEW,
        members=EAST,
        last=EndedMove("later", is_done=True),
        earlier=(
            EndedMove("between", is_done=True),
            EndedMove("uid-move", is_done=is_done, reason="no disk"),
        ),
    )
    resource = queued() if was == "queued" else started()
    found = plan(resource, brokers=view, super_cluster=granted(resource))
    assert found.steps == ()
    told = after(resource, brokers=view, super_cluster=granted(resource))
    assert told.status.phase == phase
    assert ("no disk" in (told.status.message or "")) is not is_done
