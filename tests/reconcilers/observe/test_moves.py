"""What brokers answer about moves, as the planner sees it, whatever they leave out."""

from __future__ import annotations

from typing import Any

import pytest
from tests.reconcilers.builders import NOW, info_for, stream, stream_move

from supercluster.api.stream_move import HeadRoom, MoveStage
from supercluster.broker.moves.plan import Stage
from supercluster.reconcilers.observe.moves import move_plan, move_view
from supercluster.reconcilers.observe.views import stream_info
from supercluster.reconcilers.planners.move.views import MoveView
from supercluster.reconcilers.planners.stream.stream import BrokersView

INFO = BrokersView(reachable=True, error="", info=info_for(stream(), consumers=2))
MOVE = {
    "id": "u1",
    "targets": ["west-0@i1.t1", "west-1@i2.t2"],
    "bytes_per_s": 500,
    "progress": {
        "stage": "tail",
        "bytes_left": 10,
        "lag": 3,
        "eta_ns": 1_500_000_000,
        "trouble": "the new copies come no nearer",
        "below_ingest_rate": True,
    },
    "cancelled": False,
}
REPORT = {
    "id": "u0",
    "outcome": "done",
    "reason": "",
    "bytes_copied": 99,
    "audit": {
        "ranges": 2,
        "sequences": 20_000,
        "messages": 19_000,
        "first_seq": 5,
        "last_seq": 20_004,
        "digest": "beef",
        "results": {"west-0@i1.t1": "equal"},
    },
    "stage_ms": {"leaving": 3, "learning": 40, "planned": 5, "polishing": 1},
    "earlier": [["u-1", "cancelled", "no disk", 7, ["east-0"]], ["u-2", "done", "", 6, []], "garbage"],
}


@pytest.mark.covers("MV-13")
def test_what_the_brokers_say_in_place_of_a_leader_is_read() -> None:
    for told, trouble in ((None, ""), ({"trouble": "bring back west-1"}, "bring back west-1")):
        view = move_view({"move": {**MOVE, "progress": told}, "lastMove": None, "members": []}, INFO)
        assert view.running is not None
        assert (view.running.progress.stage, view.running.progress.trouble) == (None, trouble)


@pytest.mark.covers("MV-7", "MV-13")
def test_a_running_move_and_the_last_one_are_read() -> None:
    members = ["east-0@x", "east-1@y"]
    view = move_view({"move": MOVE, "lastMove": REPORT, "members": members}, INFO)
    assert view.members == ("east-0", "east-1")
    assert view.running is not None
    progress = view.running.progress
    assert (progress.stage, progress.targets, progress.eta_seconds) == ("tail", ("west-0", "west-1"), 2)
    assert (progress.bytes_per_s, progress.trouble) == (500, "the new copies come no nearer")
    assert view.running.is_below_ingest_rate
    assert (progress.bytes_left, progress.lag_entries) == (10, 3)
    assert view.last is not None
    assert (view.last.id, view.last.is_done, view.last.bytes_copied) == ("u0", True, 99)
    stages = [(found.stage, found.milliseconds) for found in view.last.stages]
    assert stages == [("planned", 5), ("learning", 40), ("leaving", 3), ("unknown", 1)]
    assert [(found.id, found.is_done, found.reason) for found in view.earlier] == [
        ("u-1", False, "no disk"),
        ("u-2", True, ""),
    ]
    audit = view.last.audit
    assert (audit.ranges, audit.first_sequence, audit.last_sequence, audit.digest) == (2, 5, 20_004, "beef")
    assert (audit.sequences, audit.messages) == (20_000, 19_000)
    assert [(member.name, member.result) for member in audit.members] == [("west-0@i1.t1", "equal")]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"move": None, "lastMove": None, "members": None},
        {"move": {}, "lastMove": {"outcome": "done"}},
    ],
)
def test_an_answer_without_moves_has_none_and_the_replicas_are_the_members(answer: dict[str, Any]) -> None:
    view = move_view(answer, INFO)
    assert (view.running, view.last) == (None, None)
    assert view.members == ("east-0", "east-1", "east-2")


def test_figures_that_are_none_count_as_nothing() -> None:
    for told in ({"bytes_left": None, "lag": -4, "eta_ns": None}, None):
        view = move_view({"move": {"id": "a", "progress": told}}, INFO)
        assert view.running is not None
        progress = view.running.progress
        assert (progress.bytes_left, progress.lag_entries, progress.eta_seconds) == (0, 0, None)


@pytest.mark.covers("MV-13")
def test_a_plan_says_where_how_much_how_long_and_whom_it_disturbs() -> None:
    answer = {
        "targets": [
            {"node": "west-0", "why": "holds 0 copies"},
            {"node": "east-1", "why": "holds a copy already"},
        ],
        "rejected": [{"node": "west-1", "why": "is not in contact"}],
        "bytes": 2048,
        "bytesToSend": 2048,
        "messages": 8,
        "estimatedS": 1.2,
        "quorumBefore": {"voters": 3, "majority": 2, "well": 2},
        "quorumAfter": {"voters": 3, "majority": 2, "well": 3},
        "headRoom": [{"node": "west-0", "roomBytes": 100, "afterBytes": 40}],
        "refusal": "",
    }
    view = MoveView(reachable=True, exists=True, members=("east-0", "east-1"), leader="east-0", consumers=2)
    plan = move_plan(answer, view, stream_move(), 1024, NOW)
    assert [found.name for found in plan.targets] == ["west-0", "east-1"]
    assert [(found.name, found.reason) for found in plan.rejected] == [("west-1", "is not in contact")]
    assert (plan.bytes, plan.messages, plan.bytes_per_s, plan.estimated_seconds) == (2048, 8, 1024, 2)
    assert plan.head_room == (HeadRoom(name="west-0", before_bytes=100, after_bytes=40),)
    assert (plan.quorum_before.well, plan.quorum_before.majority, plan.quorum_after.voters) == (2, 2, 3)
    assert plan.planned_at == "2026-01-02T03:04:05Z"
    hand_over, copies, consumers = plan.disturbs
    assert hand_over.startswith("east-0 hands leadership over to a broker of west")
    assert copies == "east-0, east-1 send copies to west-0, at most 1024 bytes per second together"
    assert consumers.startswith("2 consumers go on")


def test_a_plan_for_another_count_of_replicas_disturbs_only_whom_it_concerns() -> None:
    view = MoveView(reachable=True, exists=True, members=("a", "b", "c"), leader="a", consumers=2)

    def disturbs(count: int, *targets: str) -> tuple[str, ...]:
        answer = {"targets": [{"node": node, "why": ""} for node in targets]}
        return move_plan(answer, view, stream_move(replicas=count), 0, NOW).disturbs

    assert disturbs(4, "a", "b", "c", "d") == ("a, b, c send copies to d, as fast as they can",)
    assert disturbs(1, "a") == ("b, c drop their copies, after a grace time",)
    hand_over, dropped, consumers = disturbs(1, "b")
    assert hand_over.startswith("a hands leadership over to a broker of 1 replica")
    assert dropped.startswith("a, c drop")
    assert consumers.startswith("2 consumers")


def test_a_refused_plan_disturbs_nobody() -> None:
    plan = move_plan({"refusal": "too few"}, MoveView(), stream_move(), 0, NOW)
    assert (plan.refusal, plan.disturbs) == ("too few", ())


@pytest.mark.covers("MV-6", "MV-7")
def test_learners_of_a_move_are_no_replicas_that_readiness_waits_for() -> None:
    answer = {
        "config": {"name": "a", "num_replicas": 1},
        "cluster": {
            "leader": "east-0",
            "replicas": [{"name": "west-0", "current": False, "observer": True, "lag": 9}],
        },
    }
    assert stream_info(answer).members == ("east-0",)


@pytest.mark.parametrize(
    ("told", "expected"),
    [(1_767_323_045_000_000_000, NOW), (0, None), (None, None), (-5, None), (1 << 70, None)],
)
def test_when_a_move_began_is_told_by_its_report(told: Any, expected: Any) -> None:
    view = move_view({"lastMove": {"id": "a", "outcome": "done", "started_ns": told}}, INFO)
    assert view.last is not None
    assert view.last.started == expected


def test_a_stage_has_one_name_from_the_leader_to_the_resource() -> None:
    """Neither side may import the other: the words on the wire hold the two together."""
    assert [str(stage) for stage in MoveStage] == [*map(str, Stage), "unknown"]
    assert MoveStage("of a newer broker") is MoveStage.UNKNOWN
