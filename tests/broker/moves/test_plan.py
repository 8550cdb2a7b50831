"""What the leader of a moving stream does next, row by row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.moves.plan import (
    HAND_OVER_ENTRIES,
    NEAR_BYTES,
    TAIL_BYTES,
    Do,
    ReplicaProgress,
    Stage,
    View,
    next_step,
    resolve_targets,
)
from supercluster.broker.raft.confchange import (
    Membership,
    MembershipChange,
    leave_joint,
    node_of,
    plan_change,
)

OLD = ("a@1", "b@1", "c@1")
NEW = ("d@1", "e@1", "f@1")
NEAR = ReplicaProgress(0, 0, in_contact=True)


def view(membership: Membership, **fields: object) -> View:
    members = [member for member in membership.members if member != fields.get("me", "a@1")]
    plain = View(
        me="a@1",
        membership=membership,
        settled=True,
        targets=NEW,
        origin=OLD,
        replicas=dict.fromkeys(members, NEAR),
    )
    return replace(plain, **fields)  # type: ignore[arg-type]


def plain(voters: Iterable[str] = OLD, learners: Iterable[str] = ()) -> Membership:
    return Membership(7, tuple(sorted(voters)), (), tuple(sorted(learners)))


JOINT = Membership(9, NEW, OLD, auto_leave=False)


def test_nothing_is_done_before_the_membership_is_committed() -> None:
    for membership in (plain(), plain(learners=NEW), JOINT, plain(NEW)):
        for cancelled in (False, True):
            assert next_step(view(membership, settled=False, cancelled=cancelled)).do is Do.WAIT


@pytest.mark.covers("MV-6")
def test_only_targets_that_asked_are_added_and_never_anybody_else() -> None:
    step = next_step(view(plain(), waiting=frozenset({"e@1", "x@1"})))
    assert (step.do, step.members) == (Do.ADD, ("e@1",))
    assert next_step(view(plain())).stage is Stage.PLANNED


@pytest.mark.covers("MV-6")
def test_the_joint_membership_waits_for_everybody_who_joins() -> None:
    learning = plain(learners=NEW)
    for lag, stage in ((TAIL_BYTES + 1, Stage.LEARNING), (NEAR_BYTES + 1, Stage.TAIL)):
        behind = {**dict.fromkeys([*OLD, *NEW], NEAR), "f@1": ReplicaProgress(9, lag, in_contact=True)}
        step = next_step(view(learning, replicas=behind, compared=frozenset(NEW)))
        assert (step.do, step.stage, step.members) == (Do.WAIT, stage, ("f@1",))


@pytest.mark.covers("SF-6")
def test_ranges_are_compared_before_anybody_votes() -> None:
    learning = plain(learners=NEW)
    assert next_step(view(learning, compared=frozenset(NEW[:2]))).do is Do.COMPARE
    assert next_step(view(learning, compared=frozenset(NEW))).do is Do.JOIN


def test_nothing_is_joined_that_could_not_commit() -> None:
    away = {**dict.fromkeys([*OLD, *NEW], NEAR), "f@1": ReplicaProgress(0, 0, in_contact=False)}
    step = next_step(view(plain(learners=NEW), replicas=away, compared=frozenset(NEW)))
    assert step.do is Do.WAIT
    unsure = {**away, "f@1": ReplicaProgress(0, 0, in_contact=True, sure=False)}
    assert next_step(view(plain(learners=NEW), replicas=unsure, compared=frozenset(NEW))).do is Do.WAIT


@pytest.mark.covers("MV-7")
def test_leadership_goes_to_the_new_voter_that_lacks_least_and_took_it_when_asked() -> None:
    replicas = {
        "d@1": ReplicaProgress(3, 0, in_contact=True),
        "e@1": ReplicaProgress(1, 0, in_contact=True),
        "f@1": ReplicaProgress(HAND_OVER_ENTRIES + 1, 0, in_contact=True),
        **dict.fromkeys(OLD[1:], NEAR),
    }
    step = next_step(view(JOINT, replicas=replicas))
    assert (step.do, step.members) == (Do.HAND_OVER, ("e@1", "d@1"))
    assert next_step(view(JOINT, replicas=replicas, preferred="d")).members[0] == "d@1"
    assert next_step(view(JOINT, replicas=replicas, refused_lead=frozenset({"d@1", "e@1"}))).do is Do.WAIT


@pytest.mark.covers("SF-6", "MV-9")
def test_the_old_voters_are_left_only_when_a_majority_of_both_halves_compared_equal() -> None:
    led = view(JOINT, me="d@1")
    assert next_step(led).do is Do.COMPARE
    for equal in (OLD, NEW, ("e@1", "a@1")):
        assert next_step(replace(led, compared=frozenset(equal))).do is Do.COMPARE, equal
    assert next_step(replace(led, compared=frozenset({"e@1", "a@1", "c@1"}))).do is Do.LEAVE


@pytest.mark.covers("MV-9")
def test_turning_back_drops_learners_and_leaves_the_joint_membership_backwards() -> None:
    for reason in ({"cancelled": True}, {"difference": "f@1 differs"}):
        step = next_step(view(plain(learners=NEW), **reason))
        assert (step.do, step.members) == (Do.DROP, NEW)
        assert next_step(view(plain(), **reason)).do is Do.END_CANCELLED
        assert next_step(view(JOINT, **reason)).do is Do.GO_BACK
        back = next_step(view(JOINT, me="d@1", **reason))
        assert (back.do, back.members) == (Do.HAND_OVER, OLD)
        assert next_step(view(plain(NEW), me="d@1", **reason)).do is Do.END, "leaving is not taken back"


def test_a_learner_that_is_no_target_any_more_is_dropped_but_a_repair_is_left_alone() -> None:
    step = next_step(view(plain(learners=(*NEW, "x@1", "b@2"))))
    assert (step.do, step.members) == (Do.DROP, ("x@1",))


def test_a_target_replaced_after_leaving_still_joins_and_a_cancel_then_ends_as_done() -> None:
    left = view(plain(("d@1", "e@1", "x@1")), me="d@1", waiting=frozenset({"f@1"}))
    assert next_step(left).do is Do.ADD
    assert next_step(replace(left, cancelled=True)).do is Do.END


@pytest.mark.covers("SF-8", "MV-7")
def test_a_leader_that_stays_needs_no_hand_over() -> None:
    joint = Membership(9, ("a@1", "b@1", "d@1"), OLD, auto_leave=False)
    assert next_step(view(joint, targets=("a@1", "b@1", "d@1"))).stage is Stage.LEAVING


@pytest.mark.covers("SF-4")
def test_a_member_that_came_back_under_a_new_identity_is_the_place_that_the_move_means() -> None:
    force = plain(("a@1", "b@2", "c@1"))
    targets = ("a@1", "b@1", "d@1")
    assert resolve_targets(targets, OLD, force, lambda member: False) == ("a@1", "b@2", "d@1")
    assert resolve_targets(("b@9",), OLD, force, lambda member: True) == ("b@2",)
    assert resolve_targets(("b@9",), OLD, force, lambda member: False) == ("b@9",)


members = st.sampled_from(["a@1", "b@1", "c@1", "d@1", "e@1", "f@1"])
some = st.frozensets(members, min_size=1, max_size=4)


@given(some, some, st.booleans(), some, some, some, st.sampled_from(["", "differs"]), st.data())
@pytest.mark.covers("SF-5", "SF-6", "MV-6")
def test_every_step_is_one_that_raft_takes_and_none_skips_the_joint_membership(
    voters: frozenset[str],
    learners: frozenset[str],
    cancelled: bool,
    targets: frozenset[str],
    waiting: frozenset[str],
    compared: frozenset[str],
    difference: str,
    data: st.DataObject,
) -> None:
    membership = plain(voters, learners - voters)
    if data.draw(st.booleans()):
        membership = Membership(9, tuple(sorted(targets)), tuple(sorted(voters)), auto_leave=False)
    me = data.draw(st.sampled_from(membership.all_voters))
    lag = data.draw(st.sampled_from([0, NEAR_BYTES + 1, TAIL_BYTES + 1]))
    seen = view(
        membership,
        me=me,
        targets=tuple(sorted(targets)),
        cancelled=cancelled,
        difference=difference,
        waiting=waiting,
        compared=compared,
        replicas={
            member: ReplicaProgress(0, lag, in_contact=True) for member in membership.members if member != me
        },
    )
    step = next_step(seen)
    if step.do is Do.ADD:
        assert set(step.members) <= targets & waiting
        change = MembershipChange(
            membership.index, membership.voters, (*membership.learners, *step.members), auto_leave=False
        )
    elif step.do is Do.JOIN:
        assert (targets - set(membership.voters)) <= compared
        change = MembershipChange(membership.index, seen.targets, (), joint=True, auto_leave=False)
    elif step.do in (Do.LEAVE, Do.GO_BACK):
        assert membership.is_joint
        assert (step.do is Do.GO_BACK) == seen.turns_back
        half = membership.voters if step.do is Do.LEAVE else membership.voters_outgoing
        assert me in half
        change = MembershipChange(membership.index, half)
    else:
        return
    planned = plan_change(membership, change)
    assert isinstance(planned, Membership), planned
    assert planned.is_joint == (step.do is Do.JOIN)
    if step.do is Do.JOIN:
        assert not planned.auto_leave
        assert leave_joint(planned).voters == seen.targets
    assert all(node_of(member) for member in planned.members)


@pytest.mark.covers("SF-29", "MV-8")
def test_a_leadership_that_nobody_takes_sends_the_targets_back_to_learning_for_a_while() -> None:
    step = next_step(view(JOINT, is_late=True))
    assert (step.do, step.stage, step.members) == (Do.STEP_BACK, Stage.LEARNING, NEW)
    assert next_step(view(JOINT, is_late=True, me="d@1")).do is not Do.STEP_BACK, (
        "it leads, and leaves forwards"
    )
    assert next_step(view(JOINT, is_late=True, cancelled=True)).do is Do.GO_BACK
    learning = view(plain(learners=NEW), compared=frozenset(NEW), rests=True)
    assert next_step(learning).do is Do.WAIT
    assert next_step(replace(learning, rests=False)).do is Do.JOIN


@pytest.mark.covers("MV-6", "MV-9")
def test_a_cancel_behind_the_origin_leaves_no_learner_behind() -> None:
    """A target was replaced while the origin was being left: its successor learns when the cancel comes."""
    targets = ("d@1", "e@1", "g@1")
    late = view(plain(NEW, learners=["g@1"]), me="d@1", targets=targets, cancelled=True)
    assert (next_step(late).do, next_step(late).members) == (Do.DROP, ("g@1",))
    assert next_step(view(plain(NEW), me="d@1", targets=targets, cancelled=True)).do is Do.END
