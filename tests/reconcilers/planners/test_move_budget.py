"""Places in the budget: given by one worker, kept to the end, never more than the budget has."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reconcilers.builders import NOW, cluster, credentials, stream_move, super_cluster, with_status

from supercluster.api import StreamMove, SuperCluster
from supercluster.api.moves import MoveBudget
from supercluster.api.stream_move import Repair
from supercluster.api.super_cluster import MoveGrant
from supercluster.reconcilers.planners.move.views import BrokersMove, grants, has_grant
from supercluster.reconcilers.planners.plan import Plan
from supercluster.reconcilers.planners.super_cluster.super_cluster import (
    SuperClusterObserved,
    plan_super_cluster,
)


def move(name: str, nodes: str = "", phase: str = "Queued", age: int = 0, ticket: int = 1) -> StreamMove:
    """`nodes`: brokers that have a part in it, by letter."""
    plan = {"origin": list(nodes), "targets": []}
    status: dict[str, Any] = {"phase": phase, "ticket": ticket, "plan": plan}
    return stream_move(name, meta={"creationTimestamp": f"2026-01-01T00:00:{30 - age:02d}Z"}, status=status)


def theirs(stream: str, nodes: str) -> BrokersMove:
    """A move that no StreamMove here asked for."""
    return BrokersMove(f"id-{stream}", stream, frozenset(nodes), NOW)


def names(found: tuple[MoveGrant, ...]) -> list[str]:
    return [grant.name for grant in found]


def give(
    moves: list[StreamMove],
    given: tuple[MoveGrant, ...] = (),
    hold: bool = False,
    running: tuple[BrokersMove, ...] = (),
    **budget: int,
) -> tuple[MoveGrant, ...]:
    return grants(given, tuple(moves), MoveBudget.model_validate(budget), running, hold=hold)


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


@pytest.mark.covers("MV-13")
def test_moves_that_a_client_began_take_places_too() -> None:
    waiting = [move("one", "ab", age=9), move("two", "cd", age=8)]
    budget: dict[str, Any] = {"concurrentMax": 2, "concurrentPerNodeMax": 1}
    assert names(give(waiting, running=(theirs("x", "ef"),), **budget)) == ["one"]
    assert names(give(waiting, running=(theirs("x", "bf"),), **budget)) == ["two"], "b is busy"
    assert give(waiting, running=(theirs("x", "e"), theirs("y", "f")), **budget) == ()
    assert names(give(waiting, running=(theirs("x", "e"),), concurrentMax=3, concurrentPerNodeMax=1)) == [
        "one",
        "two",
    ]


def test_a_move_with_a_place_is_counted_once_though_the_brokers_tell_of_it_too() -> None:
    moves = [move("busy", "a", "Running"), move("next", "b")]
    told = BrokersMove("uid-busy", "busy", frozenset("a"), NOW)
    assert names(give(moves, running=(told,), concurrentMax=2)) == ["busy", "next"]


@pytest.mark.covers("MV-13")
def test_nobody_new_comes_while_the_brokers_do_not_say_what_moves_and_others_are_named() -> None:
    def told(running: tuple[BrokersMove, ...] | None) -> tuple[Plan, SuperCluster]:
        observed = SuperClusterObserved(
            clusters=(cluster(),), credentials=credentials(), moves=(move("waits", "a"),), running=running
        )
        planned = plan_super_cluster(super_cluster(), observed, NOW)
        found = with_status(super_cluster(), planned)
        assert isinstance(found, SuperCluster)
        return planned, found

    planned, silent = told(None)
    assert (names(silent.status.moves), planned.recheck_after_ms) == ([], 1000)
    _, full = told((theirs("x", "b"), theirs("y", "c")))
    assert (names(full.status.moves), full.status.other_moves) == ([], ("x", "y"))
    _, free = told(())
    assert (names(free.status.moves), free.status.other_moves) == (["waits"], ())


@pytest.mark.covers("MV-13")
def test_which_brokers_a_running_move_keeps_busy_the_brokers_say_and_not_its_plan() -> None:
    moves = [move("busy", "ab", "Running", age=9), move("one", "b", age=8), move("two", "c", age=7)]
    real = (BrokersMove("uid-busy", "busy", frozenset("ac"), NOW),)
    assert names(give(moves, running=real, concurrentMax=2, concurrentPerNodeMax=1)) == ["busy", "one"]
    assert names(give(moves, concurrentMax=2, concurrentPerNodeMax=1)) == ["busy", "two"]


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


@pytest.mark.covers("OP-3", "MR-2")
def test_a_repair_does_not_wait_for_the_roll_out_that_waits_for_it() -> None:
    repair = move("repair", "c")
    repair = repair.model_copy(
        update={
            "spec": repair.spec.model_copy(
                update={"repair": Repair.model_validate({"replace": ["a"], "nodes": ["c"], "away": "60s"})}
            )
        }
    )
    waiting = [move("waits", "a", age=9), repair]
    assert names(give(waiting, hold=True, concurrentMax=4)) == ["repair"]
    assert names(give(waiting, concurrentMax=4)) == ["repair", "waits"]
    assert grants((), tuple(waiting), MoveBudget(), hold=False, hold_repairs=True) == ()


@pytest.mark.covers("MV-13")
def test_whatever_happens_no_two_moves_are_beyond_the_budget() -> None:
    """Moves come, queue, start, leave the queue and end in any order, and the record is read a little late at times."""
    for seed in range(200):
        dice = random.Random(seed)
        phases: dict[str, tuple[str, int]] = {f"m{n}": ("Planned", 0) for n in range(8)}
        nodes = {name: "".join(dice.sample("abcdef", 3)) for name in phases}
        most, per_node = dice.randint(1, 4), dice.randint(1, 2)
        budget: dict[str, Any] = {"concurrentMax": most, "concurrentPerNodeMax": min(most, per_node)}
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


@pytest.mark.covers("MV-13")
def test_brokers_are_kept_free_for_a_move_that_a_later_one_was_let_past() -> None:
    old, early = move("old", "eb", age=20), move("early", "es", "Running", age=25)
    free: dict[str, Any] = {"concurrentMax": 2, "concurrentPerNodeMax": 1}
    first = give([old, early, move("one", "bt", age=9)], **free)
    assert names(first) == ["early", "one"], "e is busy for longer anyway: b need not be idle"
    runs = move("one", "bt", "Running", age=9)
    assert names(give([old, runs, move("two", "es", age=8)], first, **free)) == ["one"], "e is kept for old"
    assert names(give([old, runs, move("two", "xy", age=8)], first, **free)) == ["one", "two"]
    assert names(give([old, move("two", "es", age=8)], **free)) == ["old"]


@pytest.mark.covers("MV-13")
@given(st.data())
def test_every_move_gets_a_place_whatever_comes_behind_it_and_never_more_than_there_are(
    data: st.DataObject,
) -> None:
    """Younger moves come all the time, and any that runs may be the next to end. Once no older one is before it, a move
    waits for no more ends than there are places."""
    most = data.draw(st.integers(1, 4))
    per_node = data.draw(st.integers(1, min(2, most)))
    budget: dict[str, Any] = {"concurrentMax": most, "concurrentPerNodeMax": per_node}
    some_nodes = st.lists(st.sampled_from("abcde"), min_size=1, max_size=3, unique=True).map("".join)
    nodes = {f"m{number:03}": data.draw(some_nodes) for number in range(3)}
    phases = dict.fromkeys(nodes, "Queued")
    ends_seen = dict.fromkeys(nodes, 0)
    granted: tuple[MoveGrant, ...] = ()
    for number in range(3, 25):
        name = f"m{number:03}"
        nodes[name], phases[name], ends_seen[name] = data.draw(some_nodes), "Queued", 0
        # By name: all are of one second.
        granted = give([move(each, nodes[each], phases[each]) for each in phases], granted, **budget)
        phases |= {grant.name: "Running" for grant in granted}
        running = [each for each, phase in phases.items() if phase == "Running"]
        assert len(running) <= most
        assert all(sum(node in nodes[each] for each in running) <= per_node for node in "abcde")
        oldest = min(phases)
        if phases[oldest] == "Queued":
            ends_seen[oldest] += 1
            assert ends_seen[oldest] <= most, f"{oldest} starves"
        ended = data.draw(st.sampled_from(running))
        del phases[ended]
