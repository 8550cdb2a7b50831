"""Places in the budget: given by one worker, kept to the end, never more than the budget has."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.reconcilers.builders import NOW, cluster, credentials, stream_move, super_cluster, with_status

from supercluster.api import StreamMove
from supercluster.api.moves import MoveBudget
from supercluster.api.super_cluster import MoveGrant
from supercluster.reconcilers.planners.move_views import grants, has_grant
from supercluster.reconcilers.planners.super_cluster import SuperClusterObserved, plan_super_cluster


def move(name: str, nodes: str = "", phase: str = "Queued", age: int = 0, ticket: int = 1) -> StreamMove:
    """`nodes`: brokers that have a part in it, by letter."""
    plan = {"origin": list(nodes), "targets": []}
    status: dict[str, Any] = {"phase": phase, "ticket": ticket, "plan": plan}
    return stream_move(name, meta={"creationTimestamp": f"2026-01-01T00:00:{30 - age:02d}Z"}, status=status)


def names(found: tuple[MoveGrant, ...]) -> list[str]:
    return [grant.name for grant in found]


def give(
    moves: list[StreamMove], given: tuple[MoveGrant, ...] = (), hold: bool = False, **budget: int
) -> tuple[MoveGrant, ...]:
    return grants(given, tuple(moves), MoveBudget.model_validate(budget), hold=hold)


@pytest.mark.covers("MV-13")
def test_the_longest_waiting_come_first_and_no_more_than_there_are_places() -> None:
    waiting = [move("young", "a"), move("old", "b", age=9), move("older", "c", age=20)]
    first = give(waiting, concurrentMax=2, concurrentPerNodeMax=1)
    assert names(first) == ["old", "older"]
    assert give(waiting, first, concurrentMax=2, concurrentPerNodeMax=1) == first


@pytest.mark.covers("MV-13")
def test_a_broker_has_a_part_in_so_many_moves_and_others_do_not_wait_for_it() -> None:
    waiting = [move("one", "ab", age=9), move("two", "bc", age=8), move("three", "cd", age=7)]
    assert names(give(waiting, concurrentMax=3, concurrentPerNodeMax=1)) == ["one", "three"]
    assert names(give(waiting, concurrentMax=3, concurrentPerNodeMax=2)) == ["one", "three", "two"]


@pytest.mark.parametrize("phase", ["Running", "Cancelling"])
def test_a_move_that_runs_keeps_its_place_even_if_the_record_was_lost(phase: str) -> None:
    moves = [move("busy", "a", phase), move("next", "b", age=9)]
    assert names(give(moves, concurrentMax=1)) == ["busy"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Cancelled", "AwaitingWindow", "Refused"])
def test_a_place_is_free_when_its_move_has_ended_or_left_the_queue(phase: str) -> None:
    given = (MoveGrant(name="busy", uid="uid-busy", ticket=1),)
    assert names(give([move("busy", "a", phase), move("next", "a")], given, concurrentMax=1)) == ["next"]
    assert names(give([move("next", "a")], given, concurrentMax=1)) == ["next"]


def test_a_move_that_queued_again_gets_a_place_for_its_new_ticket_only() -> None:
    given = (MoveGrant(name="busy", uid="uid-busy", ticket=1),)
    again = move("busy", "a", ticket=2)
    assert not has_grant(again, super_cluster(status={"moves": [given[0].to_object()]}))
    assert give([again], given, concurrentMax=1) == (MoveGrant(name="busy", uid="uid-busy", ticket=2),)


def test_nobody_new_comes_while_brokers_are_restarted() -> None:
    rolling = {"type": "Synced", "status": "False", "reason": "RollingOut"}
    observed = SuperClusterObserved(
        clusters=(cluster(status={"conditions": [rolling]}),),
        credentials=credentials(),
        moves=(move("waits", "a"), move("busy", "b", "Running")),
    )
    told = with_status(super_cluster(), plan_super_cluster(super_cluster(), observed, NOW))
    assert names(told.status.moves) == ["busy"]


@pytest.mark.covers("MV-13")
def test_whatever_happens_no_two_moves_are_beyond_the_budget() -> None:
    """Moves come, queue, start, leave the queue and end in any order, and the record is read a little late at times."""
    for seed in range(200):
        dice = random.Random(seed)
        phases: dict[str, tuple[str, int]] = {f"m{n}": ("Planned", 0) for n in range(8)}
        nodes = {name: "".join(dice.sample("abcdef", 3)) for name in phases}
        most, per_node = dice.randint(1, 4), dice.randint(1, 2)
        budget = {"concurrentMax": most, "concurrentPerNodeMax": min(most, per_node)}
        given: tuple[MoveGrant, ...] = ()
        for _ in range(60):
            moves = [move(name, nodes[name], phase, ticket=t) for name, (phase, t) in phases.items()]
            decided = give(moves, given, False, **budget)
            # While the decision is on its way, any of them may go on by the record as it was, or change its mind.
            for name, (phase, ticket) in dice.sample(sorted(phases.items()), 2):
                placed = MoveGrant(name=name, uid=f"uid-{name}", ticket=ticket) in given
                options = {
                    "Planned": [("Queued", ticket + 1)],
                    "Queued": [("Running", ticket)] if placed else [("Planned", ticket)],
                    "Running": [("Cancelling", ticket), ("Succeeded", ticket)],
                    "Cancelling": [("Cancelled", ticket)],
                }.get(phase, [("Planned", ticket)])
                phases[name] = dice.choice(options)
            given = decided
            busy = [name for name, (phase, _) in phases.items() if phase in ("Running", "Cancelling")]
            assert len(busy) <= most, f"seed {seed}"
            for node in "abcdef":
                assert sum(node in nodes[name] for name in busy) <= budget["concurrentPerNodeMax"], (
                    f"seed {seed}"
                )
