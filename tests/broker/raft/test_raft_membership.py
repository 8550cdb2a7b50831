"""Majorities, and how memberships become others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.raft.confchange import (
    ChangeRefusal,
    Membership,
    MembershipChange,
    MembershipTrack,
    RefusalReason,
    leave_joint,
    membership_of,
    plan_change,
)
from supercluster.broker.raft.errors import MessageError
from supercluster.broker.raft.quorum import has_all, has_quorum, quorum_index

names = st.lists(st.sampled_from("abcdefg"), unique=True, max_size=5).map(lambda found: tuple(sorted(found)))


@given(names, names, st.dictionaries(st.sampled_from("abcdefg"), st.integers(0, 20)))
def test_the_quorum_index_is_the_highest_that_a_quorum_has(
    voters: tuple[str, ...], outgoing: tuple[str, ...], match: dict[str, int]
) -> None:
    membership = Membership(0, voters, outgoing)
    index = quorum_index(membership, lambda member: match.get(member, 0))
    assert not voters or has_quorum(membership, [m for m in "abcdefg" if match.get(m, 0) >= index])
    assert not has_quorum(membership, [m for m in "abcdefg" if match.get(m, 0) > index])


@pytest.mark.covers("SF-6")
def test_a_joint_membership_needs_both_majorities() -> None:
    joint = Membership(0, ("a", "d", "e"), ("a", "b", "c"))
    assert not has_quorum(joint, "ab")
    assert not has_quorum(joint, "de")
    assert not has_quorum(joint, "ade")
    assert has_quorum(joint, "abd")
    assert not has_all(joint, "abcd")
    assert has_all(joint, "abcde")
    reached = {"a": 7, "d": 7, "e": 7, "b": 2, "c": 1}
    assert quorum_index(joint, reached.__getitem__) == 2


@pytest.mark.covers("SF-4")
def test_a_learner_counts_for_no_majority() -> None:
    learning = Membership(0, ("a", "b", "c"), (), ("d", "e"))
    assert not has_quorum(learning, "ade")
    reached = {"a": 7, "d": 7, "e": 7, "b": 2, "c": 1}
    assert quorum_index(learning, reached.__getitem__) == 2


def test_a_group_without_voters_decides_nothing() -> None:
    assert not has_quorum(Membership(), "abc")
    assert not has_all(Membership(), "abc")
    assert quorum_index(Membership(), lambda _: 9) == 0


@given(st.integers(0, 2**60), names, names, names, names, st.booleans())
def test_a_membership_survives_its_bytes(
    index: int,
    one: tuple[str, ...],
    two: tuple[str, ...],
    three: tuple[str, ...],
    four: tuple[str, ...],
    auto: bool,
) -> None:
    membership = Membership(index, one, two, three, four, auto)
    assert Membership.decode(memoryview(membership.encode())) == membership


@given(st.binary(max_size=60))
def test_garbage_is_no_membership(garbage: bytes) -> None:
    try:
        Membership.decode(garbage)
    except MessageError:
        pass


def change(on: int, voters: str, learners: str = "", *, joint: bool = False) -> MembershipChange:
    return MembershipChange(on, tuple(voters.split()), tuple(learners.split()), joint)


def planned(current: Membership, wanted: MembershipChange) -> Membership:
    outcome = plan_change(current, wanted)
    assert isinstance(outcome, Membership), outcome
    return outcome


def refused(current: Membership, wanted: MembershipChange) -> RefusalReason:
    outcome = plan_change(current, wanted)
    assert isinstance(outcome, ChangeRefusal)
    assert outcome.in_force == current.index
    return outcome.reason


@given(names.filter(bool), names, names.filter(bool), names)
def test_a_simple_change_keeps_majorities_overlapping(
    voters: tuple[str, ...], learners: tuple[str, ...], new: tuple[str, ...], new_learners: tuple[str, ...]
) -> None:
    current = membership_of(voters, set(learners) - set(voters))
    outcome = plan_change(current, MembershipChange(0, new, new_learners))
    if isinstance(outcome, Membership):
        if not outcome.is_joint:
            assert len(set(outcome.voters) ^ set(voters)) <= 1
            assert (outcome.voters, set(outcome.learners)) == (new, set(new_learners))
        else:
            assert (outcome.voters, outcome.voters_outgoing) == (new, voters)
            behind = leave_joint(outcome)
            assert (behind.voters, set(behind.learners)) == (new, set(new_learners))
        assert not set(outcome.all_voters) & set(outcome.learners)


@pytest.mark.covers("SF-8")
def test_a_swap_of_a_dead_member_is_one_joint_change() -> None:
    swap = planned(membership_of("abc", "d"), change(0, "a b d"))
    assert swap == Membership(0, ("a", "b", "d"), ("a", "b", "c"))


@pytest.mark.covers("SF-5")
def test_refusals_carry_their_reason() -> None:
    current = membership_of("abc", index=7)
    assert refused(current, change(6, "a b")) is RefusalReason.STALE_PLAN
    assert refused(current, change(7, "")) is RefusalReason.NO_VOTERS
    assert refused(current, change(7, "a b", "b")) is RefusalReason.VOTER_AND_LEARNER
    assert refused(current, change(7, "n@1 n@2")) is RefusalReason.NODE_TWICE
    assert refused(current, change(7, "a b c")) is RefusalReason.NO_CHANGE
    joint = Membership(8, ("a", "d"), ("a", "b"))
    assert refused(joint, change(8, "a b d")) is RefusalReason.JOINT
    many = change(7, " ".join(f"m{number}" for number in range(1025)))
    assert refused(current, many) is RefusalReason.TOO_MANY


def test_a_joint_membership_can_be_left_both_ways() -> None:
    joint = Membership(8, ("a", "d"), ("a", "b"))
    assert planned(joint, change(8, "a d")).voters == ("a", "d")
    assert planned(joint, change(8, "a b")).voters == ("a", "b")


def test_the_track_follows_appends_truncation_and_commit() -> None:
    first, second, third = (membership_of(voters) for voters in ("abc", "ab", "a"))
    track = MembershipTrack(first)
    track.add(second, 4)
    track.add(third, 9)
    assert track.current.voters == ("a",)
    assert track.involves("c", as_voter=True)
    assert track.committed(8).index == 4
    assert not track.involves("c", as_voter=True)
    track.truncate_after(8)
    assert track.current.index == 4
    track.truncate_after(0)
    assert track.current.index == 4, "what is committed is never dropped"
