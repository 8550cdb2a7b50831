"""What is left of a move that the map does not know, and where its group goes from there."""

from __future__ import annotations

import pytest

from supercluster.broker.jetstream.config.stream import Placement, StreamConfig
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.move_record import Move
from supercluster.broker.jetstream.moves.leftover import LEFTOVER_MS, Leftovers, left_over
from supercluster.broker.raft.confchange import Membership

OLD, NEW = ("a@1", "b@1", "c@1"), ("d@1.x", "e@1.x", "f@1.x")
FOUND = Assignment("$G", "S", "S.1", StreamConfig(name="S", subjects=("s",)), 1, OLD, 5)
JOINT = Membership(7, NEW, OLD, auto_leave=False)


def mapped(*members: str, move: Move | None = None) -> Assignment:
    return Assignment("$G", "S", "S.1", FOUND.config, 1, members, 5, move)


@pytest.mark.covers("SF-6", "MV-9")
@pytest.mark.parametrize(("members", "back"), [(OLD, True), (NEW, False), (("x@1", "y@1", "z@1"), True)])
def test_a_joint_membership_goes_back_unless_the_map_names_the_new_voters(
    members: tuple[str, ...], back: bool
) -> None:
    found = left_over(JOINT, mapped(*members))
    assert found is not None
    assert (found.targets, found.origin, found.cancelled) == (NEW, OLD, back)


def test_learners_of_no_voters_node_are_left_over_and_a_members_new_identity_is_not() -> None:
    found = left_over(Membership(7, OLD, (), ("a@2", "d@1.x")), FOUND)
    assert found is not None
    assert found.joining == ("d@1.x",)
    assert found.cancelled
    assert left_over(Membership(7, OLD, (), ("a@2",)), FOUND) is None


@pytest.mark.parametrize(
    ("membership", "assignment"),
    [
        (Membership(7, OLD), FOUND),
        (JOINT, mapped(*OLD, move=Move("m", NEW, OLD, Placement(), 1))),
        (Membership(7, ("a@2", "b@1", "c@1"), OLD), FOUND),
    ],
    ids=["nothing is left", "the map knows the move", "a member's new identity takes its place"],
)
def test_nothing_is_left_over(membership: Membership, assignment: Assignment) -> None:
    assert left_over(membership, assignment) is None


def test_it_is_taken_up_after_its_time_by_a_map_that_was_read_and_dropped_when_the_map_knows_a_move() -> None:
    found = Leftovers()
    assert not found.look(JOINT, FOUND, 0, is_fresh=True)
    assert found.deadline_ms() == LEFTOVER_MS
    assert not found.look(JOINT, FOUND, LEFTOVER_MS, is_fresh=False), "the map may be the one that is old"
    assert not found.look(JOINT, FOUND, 2 * LEFTOVER_MS - 1, is_fresh=True)
    assert found.look(JOINT, FOUND, 2 * LEFTOVER_MS, is_fresh=True)
    assert found.move is not None
    assert found.deadline_ms() is None
    known = mapped(*OLD, move=Move("m", NEW, OLD, Placement(), 1))
    assert found.look(JOINT, known, 2 * LEFTOVER_MS + 1, is_fresh=True)
    assert found.move is None
