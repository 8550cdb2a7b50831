"""A member that lost its volume or its copy comes back under another identity: it learns, then takes its old place (SF-4)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from supercluster.broker.jetstream.replica.newcomers import LOOK_MS, WAITING_MAX, Newcomers
from supercluster.broker.raft.confchange import Membership, MembershipChange

pytestmark = pytest.mark.covers("SF-4")


class Group:
    """A leader's group whose membership is what was last proposed, committed at once."""

    def __init__(self, *voters: str, takes_learners: bool = False) -> None:
        self.id = "g"
        self.takes_learners = takes_learners
        self.host = self
        self.raft = self
        self.commit_index = 10
        self.membership = Membership(1, voters)
        self.progress: dict[str, Any] = {}
        self.proposed: list[MembershipChange] = []
        self.events: list[str] = []
        self.refusal: str | None = None
        found: Any = self
        self.newcomers = Newcomers(found)
        self.now_ms = 0

    def leader_time_ns(self) -> int:
        return 1

    def event(self, group: str, reason: str, text: str) -> None:
        self.events.append(reason)

    def propose_membership(self, change: MembershipChange, time_ns: int) -> str | None:
        self.proposed.append(change)
        if self.refusal is None:
            self.membership = Membership(self.membership.index + 1, change.voters, (), change.learners)
        return self.refusal

    def learned(self, member: str, match: int) -> None:
        self.progress[member] = SimpleNamespace(match=match)

    def look(self) -> None:
        self.now_ms += LOOK_MS
        self.newcomers.advance(self.now_ms)


def test_it_learns_first_and_takes_the_place_when_it_has_all_that_is_committed() -> None:
    group = Group("a@1", "b@1", "c@1")
    group.newcomers.asked("c@2")
    group.look()
    assert (group.membership.voters, group.membership.learners) == (("a@1", "b@1", "c@1"), ("c@2",))
    group.learned("c@2", group.commit_index - 1)
    group.look()
    assert len(group.proposed) == 1, "it lacks an entry"
    group.learned("c@2", group.commit_index)
    group.look()
    assert group.proposed[-1].joint
    assert (group.membership.voters, group.membership.learners) == (("a@1", "b@1", "c@2"), ())
    assert group.events == ["MemberReplaced", "MemberReplaced"]
    group.look()
    assert not group.newcomers.waiting


def test_one_change_at_a_time_and_none_before_the_last_is_committed() -> None:
    group = Group("a@1", "b@1", "c@1")
    group.newcomers.asked("b@2")
    group.newcomers.asked("c@2")
    group.look()
    assert len(group.proposed) == 1
    group.commit_index = 1
    group.look()
    assert len(group.proposed) == 1, "the change is not committed"
    group.commit_index = 10
    group.look()
    assert group.membership.learners == ("b@2", "c@2")


def test_nothing_is_looked_at_before_its_time() -> None:
    group = Group("a@1", "b@1", "c@1")
    group.newcomers.asked("c@2")
    group.look()
    group.learned("c@2", group.commit_index)
    group.newcomers.advance(group.now_ms + LOOK_MS - 1)
    assert len(group.proposed) == 1
    assert group.newcomers.look_ms == group.now_ms + LOOK_MS


def test_an_identity_that_was_lost_again_is_given_up_for_the_newest() -> None:
    group = Group("a@1", "b@1", "c@1")
    group.newcomers.asked("c@2")
    group.look()
    group.newcomers.asked("c@3")
    group.look()
    assert group.membership.learners == ("c@3",)


@pytest.mark.parametrize("takes_learners", [True, False])
def test_a_broker_without_a_place_learns_only_where_all_brokers_follow_the_group(
    takes_learners: bool,
) -> None:
    group = Group("a@1", "b@1", "c@1", takes_learners=takes_learners)
    group.newcomers.asked("d@1")
    group.look()
    assert group.membership.learners == (("d@1",) if takes_learners else ())
    assert group.events == (["LearnerAdded"] if takes_learners else [])
    group.look()
    assert not group.newcomers.waiting


def test_what_is_refused_is_tried_again_and_told_by_nobody() -> None:
    group = Group("a@1", "b@1", "c@1")
    group.refusal = "StalePlan"
    group.newcomers.asked("c@2")
    group.look()
    group.look()
    assert len(group.proposed) == 2
    assert not group.events


def test_who_asks_beyond_the_bound_is_not_noticed() -> None:
    group = Group("a@1")
    for number in range(WAITING_MAX + 1):
        group.newcomers.asked(f"n{number}@1")
    assert len(group.newcomers.waiting) == WAITING_MAX
