"""Who votes in the meta group as clusters come, break and go."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.jetstream.meta_leader.voters import (
    VoterPlan,
    VoterView,
    lost_clusters,
    per_cluster,
    plan_voters,
)
from supercluster.broker.raft.confchange import (
    Membership,
    MembershipChange,
    leave_joint,
    membership_of,
    node_of,
    plan_change,
)


def of(node: str) -> str:
    return f"{node}@v"


@dataclass
class Group:
    """A meta group whose leader looks, and carries out what it plans."""

    clusters: dict[str, str]
    voters: tuple[str, ...]
    leader: str = ""
    away: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)
    behind: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)
    history: list[tuple[str, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        learners = [of(node) for node in self.clusters if node not in self.voters]
        self.membership = membership_of([of(node) for node in self.voters], learners, index=1)
        self.leader = self.leader or self.voters[0]

    def join(self, cluster: str, *numbers: int) -> None:
        """Brokers of a cluster come as learners."""
        nodes = [f"{cluster}-{number}" for number in numbers]
        self.clusters |= dict.fromkeys(nodes, cluster)
        held = self.membership
        self.membership = membership_of(held.voters, [*held.learners, *map(of, nodes)], index=held.index + 1)

    def plan(self) -> VoterPlan | None:
        here = set(self.clusters) - self.away
        return plan_voters(
            VoterView(
                self.membership,
                of(self.leader),
                self.clusters,
                here,
                self.given_up,
                {member for member in self.membership.members if node_of(member) in here - self.behind},
                self.leaving,
            )
        )

    def step(self) -> bool:
        """Carry out the next change, by Raft's own rules."""
        plan = self.plan()
        if plan is None:
            return False
        well = {m for m in self.membership.members if node_of(m) not in self.away | self.behind}
        change = MembershipChange(self.membership.index, plan.voters, plan.learners)
        planned = plan_change(self.membership, change)
        assert isinstance(planned, Membership), planned
        for half in (planned.voters, planned.voters_outgoing):
            assert len(set(half) & well) > len(half) // 2 or not half, "a majority of each half is well"
        if planned.is_joint:
            planned = leave_joint(planned)
        self.membership = Membership(
            self.membership.index + 1, planned.voters, (), planned.learners, (), planned.auto_leave
        )
        self.history.append(self.nodes)
        return True

    def settle(self) -> tuple[str, ...]:
        """Until nothing has to change any more."""
        for _ in range(20):
            if not self.step():
                return self.nodes
        raise AssertionError(f"the voters never come to rest: {self.history}")

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node_of(voter) for voter in self.membership.voters)

    def count(self) -> dict[str, int]:
        names = [self.clusters[node] for node in self.nodes]
        return {name: names.count(name) for name in sorted(set(names))}


def east(size: int, voters: int = 3) -> Group:
    nodes = [f"east-{number}" for number in range(size)]
    return Group(dict.fromkeys(nodes, "east"), tuple(nodes[:voters]))


def test_the_number_per_cluster_is_equal_and_bounded() -> None:
    assert per_cluster([3, 3]) == 3
    assert per_cluster([3, 3, 5]) == 3
    assert per_cluster([5, 5, 5, 5]) == 2
    assert per_cluster([3] * 5) == 1
    assert per_cluster([3] * 40) == 1
    assert per_cluster([1, 3, 5]) == 1
    assert per_cluster([5, 5]) == 3


@pytest.mark.parametrize(
    ("nodes", "founded", "voters"),
    [
        (1, 1, 1),
        (2, 1, 1),
        (3, 1, 3),
        (4, 3, 3),
        (5, 3, 5),
        (5, 5, 5),
        (6, 5, 5),
        (9, 7, 7),
        (9, 3, 5),
        (4, 4, 3),
    ],
)
def test_in_one_cluster_an_odd_number_votes_as_far_as_there_are_nodes(
    nodes: int, founded: int, voters: int
) -> None:
    group = east(nodes, founded)
    assert len(group.settle()) == voters
    assert len(group.history) == (voters != founded), "in one change"
    assert group.leader in group.nodes


@pytest.mark.covers("OP-3")
def test_a_cluster_that_was_founded_with_one_broker_gets_three_voters_when_it_has_three() -> None:
    group = east(1, 1)
    group.join("east", 1)
    assert group.plan() is None, (
        "a second voter would have to be well for every decision, and bear nobody's loss"
    )
    group.join("east", 2)
    group.behind = {"east-2"}
    assert group.plan() is None
    group.behind = set()
    assert group.settle() == ("east-0", "east-1", "east-2")
    group.join("east", 3, 4)
    group.behind = {"east-4"}
    assert group.plan() is None, "four would bear no more than three"
    group.behind = set()
    assert len(group.settle()) == 5


@pytest.mark.covers("OP-3", "SF-8")
def test_votes_of_brokers_that_go_leave_an_odd_number() -> None:
    group = east(5, 5)
    group.leaving = {"east-3", "east-4"}
    assert group.settle() == ("east-0", "east-1", "east-2")
    group.leaving |= {"east-2"}
    assert group.settle() == ("east-0",), "of two that stay, one votes"
    group.leaving = set()
    assert len(group.settle()) == 5, "they stay after all"


@pytest.mark.covers("SF-8")
def test_the_place_of_a_founder_that_is_gone_is_given_to_another_after_the_patience() -> None:
    group = east(5)
    group.behind = {"east-4"}
    group.away = {"east-1"}
    assert group.plan() is None, "it may come back"
    group.given_up = {"east-1"}
    assert group.settle() == ("east-0", "east-2", "east-3"), "instead of it, not beside it"
    assert len(group.history) == 1
    group.behind = set()
    assert group.plan() is None
    group.away, group.given_up = set(), set()
    assert len(group.settle()) == 5
    hurt = east(5)
    hurt.away, hurt.given_up = {"east-1"}, {"east-1"}
    assert len(hurt.settle()) == 3, "the group does not grow around a dead voter"
    assert "east-1" not in hurt.nodes


def test_who_founds_a_group_votes_before_the_map_knows_all_of_them() -> None:
    group = east(5, 5)
    group.clusters = {"east-0": "east", "east-1": "east"}
    assert group.plan() is None


def test_from_one_cluster_to_two_and_three() -> None:
    group = east(3)
    group.join("west", 0, 1, 2)
    assert group.settle() == ("east-0", "east-1", "east-2", "west-0", "west-1", "west-2")
    assert len(group.history) == 1, "one joint change, not one per node"
    group.join("north", 0, 1, 2, 3, 4)
    assert len(group.settle()) == 9
    assert group.count() == {"east": 3, "north": 3, "west": 3}
    for name in ("east", "north", "west"):
        left = [node for node in group.nodes if group.clusters[node] != name]
        assert len(left) > len(group.nodes) // 2, "any one cluster may be gone"
    group.join("south", 0, 1, 2)
    group.settle()
    assert group.count() == dict.fromkeys(("east", "north", "south", "west"), 2)


def test_clusters_of_one_three_and_five() -> None:
    group = east(5)
    group.join("west", 0, 1, 2)
    group.settle()
    assert group.count() == {"east": 3, "west": 3}
    group.join("tiny", 0)
    group.settle()
    assert group.count() == {"east": 1, "tiny": 1, "west": 1}
    assert group.leader in group.nodes, "the leader is not demoted without need"


def test_a_cluster_of_one_beside_a_larger_one_does_not_cost_the_last_spare_voter() -> None:
    group = east(3)
    group.join("tiny", 0)
    assert group.settle() == ("east-0", "east-1", "east-2", "tiny-0")
    alone = east(1, 1)
    alone.join("tiny", 0)
    assert alone.settle() == ("east-0", "tiny-0"), "there was none to spare before"


def test_nobody_votes_who_has_not_caught_up() -> None:
    group = east(3)
    group.join("west", 0, 1, 2)
    group.behind = {"west-0", "west-1", "west-2"}
    assert group.plan() is None
    group.behind = {"west-2"}
    assert group.settle() == ("east-0", "east-1", "east-2", "west-0", "west-1")
    group.behind = set()
    assert len(group.settle()) == 6


def test_five_founders_stay_until_the_second_cluster_votes() -> None:
    group = east(5, 5)
    group.join("west", 0, 1, 2)
    group.behind = {"west-0", "west-1", "west-2"}
    assert group.plan() is None
    group.behind = set()
    group.settle()
    assert group.count() == {"east": 3, "west": 3}
    assert len(group.history) == 1


@pytest.mark.covers("SF-8")
def test_a_dead_voter_is_swapped_in_one_change_and_only_after_the_patience() -> None:
    group = east(5)
    group.join("west", 0, 1, 2)
    group.settle()
    group.away = {"east-1"}
    assert group.plan() is None, "it may come back"
    group.given_up = {"east-1"}
    before = len(group.nodes)
    assert group.step()
    assert len(group.nodes) == before
    assert "east-1" not in group.nodes
    assert "east-3" in group.nodes
    assert not group.step()
    group.away, group.given_up = set(), set()
    assert group.plan() is None, "one that comes back learns; nobody has to go for it"


def test_a_dead_voter_without_anybody_in_its_place_stays() -> None:
    group = east(3)
    group.join("west", 0, 1, 2)
    group.settle()
    group.away = group.given_up = {"west-2"}
    assert group.plan() is None


def test_a_dead_cluster_does_not_keep_another_one_out() -> None:
    group = east(3)
    group.join("west", 0, 1, 2)
    group.join("north", 0, 1, 2)
    group.settle()
    group.away = group.given_up = {"west-0", "west-1", "west-2"}
    assert group.plan() is None
    group.join("south", 0, 1, 2)
    group.settle()
    assert group.count() == dict.fromkeys(("east", "north", "south", "west"), 2)


def test_without_a_majority_nothing_is_planned() -> None:
    group = east(3)
    group.join("west", 0, 1, 2)
    group.settle()
    group.away = group.given_up = {"west-0", "west-1", "west-2"}
    group.join("north", 0, 1, 2)
    assert group.plan() is None


def test_a_joint_membership_is_left_alone() -> None:
    view = VoterView(
        Membership(3, (of("a"), of("b")), (of("a"),)),
        of("a"),
        {"a": "x", "b": "y"},
        {"a", "b"},
        (),
        {of("a"), of("b")},
    )
    assert plan_voters(view) is None


def test_lost_clusters_with_a_cluster_is_said() -> None:
    group = east(3)
    group.join("west", 0, 1, 2)
    group.settle()
    here = {"east-0", "east-1", "east-2"}
    (told,) = lost_clusters(group.membership, group.clusters, here)
    assert not told.has_majority
    assert told.text == (
        "cluster west is out of contact (3 brokers): it holds 3 of the meta group's 6 voters, 3 are in contact and 4 "
        "must agree: until it is back no stream can be created, changed, deleted or moved, and streams with most of "
        "their copies there take no messages"
    )
    assert lost_clusters(group.membership, group.clusters, {*here, "west-1"}) == []
    group.join("north", 0, 1, 2)
    group.settle()
    (told,) = lost_clusters(group.membership, group.clusters, {*here, "north-0", "north-1", "north-2"})
    assert told.has_majority
    assert told.text.endswith("6 are in contact and 5 must agree: the meta group goes on")


@given(st.data())
def test_whatever_happens_every_step_has_its_majorities_and_the_voters_come_to_rest(
    data: st.DataObject,
) -> None:
    group = east(data.draw(st.integers(1, 5), "east"), 1)
    group = east(len(group.clusters), data.draw(st.sampled_from([1, min(3, len(group.clusters))])))
    names = ["west", "north", "south"]
    for _ in range(data.draw(st.integers(1, 6), "events")):
        event = data.draw(st.sampled_from(["join", "away", "back", "give up", "behind"]))
        nodes = st.sampled_from(sorted(group.clusters))
        if event == "join" and names:
            group.join(names.pop(), *range(data.draw(st.integers(1, 5))))
        elif event == "away":
            group.away |= {data.draw(nodes)} - {group.leader}
        elif event == "back":
            group.away -= {data.draw(nodes)}
        elif event == "give up":
            group.given_up = set(group.away)
        elif event == "behind":
            group.behind = {data.draw(nodes)} - {group.leader}
        group.given_up &= group.away
        group.settle()
        assert len(group.nodes) <= 12
        assert group.leader in group.nodes
    group.away, group.given_up, group.behind = set(), set(), set()
    group.settle()
    assert group.plan() is None
    sizes = [list(group.clusters.values()).count(name) for name in group.count()]
    if len(sizes) > 2:
        assert set(group.count().values()) == {per_cluster(sizes)}, "equal when all is well"


@pytest.mark.covers("SF-8")
def test_a_cluster_that_leaves_votes_no_more_while_it_is_still_there() -> None:
    group = east(3)
    group.join("west", 0, 1, 2)
    group.settle()
    group.leaving = {"west-0", "west-1", "west-2"}
    assert group.settle() == ("east-0", "east-1", "east-2")
    assert len(group.history) == 2, "one joint change"
    assert {node_of(m) for m in group.membership.learners} == group.leaving
    assert group.plan() is None


def test_who_stays_alone_votes_alone() -> None:
    group = east(1, 1)
    group.join("west", 0, 1, 2)
    group.settle()
    group.leaving = {"west-0", "west-1", "west-2"}
    assert group.settle() == ("east-0",)


def test_others_of_the_cluster_vote_instead_of_those_that_leave() -> None:
    group = east(5)
    group.leaving = {"east-0", "east-1"}
    assert group.settle() == ("east-2", "east-3", "east-4")
    founded = east(5, 5)
    founded.leaving = {"east-4"}
    assert founded.settle() == ("east-0", "east-1", "east-2")


@pytest.mark.covers("SF-8")
def test_a_cluster_that_is_gone_and_left_votes_no_more_where_the_others_are_a_majority() -> None:
    group = east(3)
    group.join("west", 0, 1, 2)
    group.join("north", 0, 1, 2)
    group.settle()
    group.away = group.leaving = {"west-0", "west-1", "west-2"}
    group.given_up = set(group.away)
    group.settle()
    assert group.count() == {"east": 3, "north": 3}


def test_without_a_majority_nothing_is_planned_for_those_that_leave() -> None:
    group = east(3)
    group.join("west", 0, 1, 2)
    group.settle()
    group.away = group.leaving = {"west-0", "west-1", "west-2"}
    group.given_up = set(group.away)
    assert group.plan() is None


def test_nobody_who_leaves_goes_before_somebody_else_has_caught_up() -> None:
    group = east(5)
    group.leaving, group.behind = {"east-0"}, {"east-3", "east-4"}
    group.leader = "east-1"
    assert group.plan() is None
    group.behind = set()
    assert group.settle() == ("east-1", "east-2", "east-3")
