"""Which copy a broker holds of a stream that moved more than once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supercluster.broker.jetstream.config.stream import Placement, StreamConfig
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.move_record import EARLIER_MAX, Move, MoveReport, Outcome
from supercluster.broker.jetstream.node.copy_rules import Hold, copy_of

GRACE_NS = 1000
FIRST = Assignment("$G", "S", "S.1", StreamConfig(name="S", subjects=("s",)), 1, ("a@1", "b@1", "c@1"), 5)


def moved(
    found: Assignment, to: tuple[str, ...], ended_ns: int, outcome: Outcome = Outcome.DONE
) -> Assignment:
    move = Move(f"to-{to[0]}-{ended_ns}", to, found.members, Placement(), ended_ns - 1)
    report = MoveReport(move.id, outcome, "no disk" if outcome is Outcome.CANCELLED else "")
    members = to if outcome is Outcome.DONE else found.members
    return replace(found, members=members, last_move=report.of_move(move, ended_ns, found.last_move))


@pytest.mark.covers("SF-5", "MV-9")
def test_the_grace_time_counts_from_the_move_by_which_a_node_left_whatever_moves_come_after() -> None:
    found = moved(FIRST, ("d@1.x", "e@1.x", "f@1.x"), 100)
    found = moved(found, ("g@1.y", "h@1.y", "i@1.y"), 200)
    found = moved(found, ("j@1.z", "k@1.z", "l@1.z"), 300, Outcome.CANCELLED)
    copies = {node: copy_of(found, f"{node}@1", f"{node}@1", GRACE_NS) for node in ("a", "d")}
    assert {node: (copy.hold, copy.until_ns) for node, copy in copies.items()} == {
        "a": (Hold.RETIRED, 100 + GRACE_NS),
        "d": (Hold.RETIRED, 200 + GRACE_NS),
    }


def test_a_node_that_came_back_and_left_again_counts_from_the_second_time() -> None:
    found = moved(FIRST, ("d@1.x", "e@1.x", "f@1.x"), 100)
    found = moved(found, ("a@1.y", "e@1.x", "f@1.x"), 200)
    found = moved(found, ("b@1.z", "e@1.x", "f@1.x"), 300)
    assert copy_of(found, "a@1", "a@1.y", GRACE_NS).until_ns == 300 + GRACE_NS


def test_what_is_remembered_of_earlier_moves_is_bounded_and_survives_a_snapshot() -> None:
    found = FIRST
    for number in range(EARLIER_MAX + 20):
        found = moved(found, ("d@1.x",) if number % 2 else ("a@1.x",), 100 + number)
    last = found.last_move
    assert last is not None
    assert len(last.earlier) == EARLIER_MAX
    assert [m.ended_ns for m in last.known[:3]] == [100 + EARLIER_MAX + 19 - n for n in range(3)]
    assert MoveReport.from_json(last.to_json()) == last
