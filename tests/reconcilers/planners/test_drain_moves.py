"""StreamMoves off brokers that go: what waits for a person is said, and holds up nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.reconcilers.builders import NOW, cluster, credentials, stream, stream_move, super_cluster

from supercluster.api import Stream, StreamMove
from supercluster.reconcilers.planners.plan import CreateObject
from supercluster.reconcilers.planners.replica.drain_moves import HELD_MAX, DrainMoves, consider
from supercluster.reconcilers.planners.replica.repair_moves import LivingStream, RepairObserved
from supercluster.reconcilers.planners.strategies import BUILT_IN, Node
from supercluster.reconcilers.planners.super_cluster.super_cluster import (
    SuperClusterObserved,
    plan_super_cluster,
)

NODES = {
    f"{name}-{n}": Node(f"{name}-{n}", name, copies=1, leaves=(name, n) == ("east", 2))
    for name in ("east", "west")
    for n in range(3)
}
CLUSTERS = (cluster("east"), cluster("west"))
OWN = super_cluster(moves={"concurrentMax": 2})


def declared(name: str) -> Stream:
    """A stream whose moves a person approves."""
    return stream(name, subjects=[f"{name}.>"], move={"approval": "Manual"})


def living(name: str, replicas: int) -> LivingStream:
    """Of three replicas it fills its cluster; of two, on the last two brokers, it does not."""
    members = tuple(f"east-{n}" for n in range(3 - replicas, 3))
    return LivingStream(name, members, members[0], replicas, f"demo-ns/{name}")


def held(name: str, phase: str = "AwaitingApproval", **spec: Any) -> StreamMove:
    """What the planner has made to take a stream to the other cluster."""
    status = {"phase": phase, "streamName": name}
    return stream_move(
        f"{name}-drain", streamRef=name, drains=["east-2"], approval="Manual", status=status, **spec
    )


def drained(sizes: dict[str, int], moves: Sequence[StreamMove] = ()) -> tuple[DrainMoves, list[str]]:
    """What is done, and the streams that a StreamMove is made for."""
    observed = RepairObserved(NODES, NOW, tuple(living(name, size) for name, size in sizes.items()), (), {})
    found = consider(OWN, observed, CLUSTERS, [declared(name) for name in sizes], moves, BUILT_IN, NOW)
    made = [step.manifest["spec"] for step in found.steps if isinstance(step, CreateObject)]
    return found, [spec["streamRef"] for spec in made]


@pytest.mark.covers("OP-3", "MV-13")
def test_moves_that_await_approval_hold_up_no_others_and_are_named_with_what_to_do() -> None:
    big = {f"big{n}": 3 for n in range(6)}
    small = {f"small{n}": 2 for n in range(9)}
    waiting = [held(name) for name in big]
    found, made = drained({**big, **small}, waiting)
    assert made == ["small0", "small1", "small2", "small3"], "as many as there are places, twice"
    assert found.blocked is not None
    reason, text = found.blocked
    assert str(reason) == "AwaitingApproval"
    assert "east-2 can't go before a person acts" in text
    assert "stream big0: StreamMove big0-drain awaits approval: set its spec.approved to true" in text
    assert "and 1 more streams" in text
    assert found.status is not None
    told = {each.stream: each.reason for each in found.status.waiting}
    assert told["big5"] == "StreamMove big5-drain awaits approval: set its spec.approved to true"


def test_what_is_under_way_takes_a_place_and_what_is_suspended_does_not() -> None:
    running = [held("big0", "Running"), held("big1", "Queued")]
    sizes = {"big0": 3, "big1": 3, "big2": 3, **{f"small{n}": 2 for n in range(9)}}
    found, made = drained(sizes, [*running, held("big2", "Planned", suspend=True)])
    assert made == ["small0", "small1"]
    assert found.blocked is not None
    assert "StreamMove big2-drain is suspended: set its spec.suspend to false" in found.blocked[1]
    assert "big0" not in found.blocked[1]


def test_no_more_are_laid_before_a_person_than_can_be_looked_through() -> None:
    sizes = {f"big{n:03}": 3 for n in range(HELD_MAX + 9)}
    found, made = drained(sizes)
    assert len(made) == HELD_MAX
    assert found.blocked is None, "nothing waits so far"
    _, more = drained(sizes, [held(name) for name in made])
    assert more == []


@pytest.mark.covers("OP-3")
def test_a_copy_leaves_though_another_move_of_its_stream_awaits_approval() -> None:
    """That one is planned anew behind the exchange, as behind a repair."""
    status = {"phase": "AwaitingApproval", "streamName": "small"}
    other = stream_move("small-g2", streamRef="small", approval="Manual", status=status)
    found, made = drained({"small": 2}, [other])
    assert made == ["small"]
    assert found.blocked is None
    running = stream_move("small-g2", streamRef="small", status={**status, "phase": "Running"})
    assert drained({"small": 2}, [running])[1] == []


def test_the_condition_of_the_super_cluster_says_it_and_takes_it_back() -> None:
    repair = RepairObserved(NODES, NOW, (living("big", 3),), (), {})
    common: dict[str, Any] = {
        "clusters": CLUSTERS,
        "credentials": credentials(),
        "streams": (declared("big"),),
    }
    seen = SuperClusterObserved(moves=(held("big"),), repair=repair, **common)
    plan = plan_super_cluster(OWN, seen, NOW)
    assert plan.status_patch is not None
    (told,) = [each for each in plan.status_patch["conditions"] if each["type"] == "Blocked"]
    assert (told["status"], told["reason"]) == ("True", "AwaitingApproval")
    assert [str(note.reason) for note in plan.notes if note.warning] == ["AwaitingApproval"]
    before = super_cluster(status={"conditions": plan.status_patch["conditions"]})
    quiet = RepairObserved({}, NOW, (), (), {})
    after = plan_super_cluster(before, SuperClusterObserved(repair=quiet, **common), NOW)
    (told,) = [each for each in (after.status_patch or {})["conditions"] if each["type"] == "Blocked"]
    assert told["status"] == "False"
