"""Who votes about the map of streams while a cluster that is alone grows and shrinks: stories of whole brokers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.jetstream.recovery.test_map_lineages import Story

from supercluster.broker.raft.confchange import node_of


class Growing(Story):
    """A map that one broker founded."""

    def nodes(self) -> list[str]:
        """Who votes, by what every replica has committed."""
        told = {
            tuple(sorted(map(node_of, core.meta.raft.committed_membership.all_voters)))
            for core in self.up()
            if core.meta is not None
        }
        return list(told.pop()) if len(told) == 1 else []

    def leaves(self, node: str) -> None:
        answers: list[int] = []
        leader = self.meta_leader()
        assert leader is not None
        leader.calls.broker("DELETE", node, lambda status, told: answers.append(status))
        self.world.want_turn(leader.node)
        self.until(lambda: bool(answers))
        assert answers == [200]

    def is_quiet(self) -> bool:
        leader = self.meta_leader()
        assert leader is not None
        assert leader.meta is not None
        upkeep: Any = leader.meta.upkeep
        return upkeep.deadline_ms() is None


@pytest.mark.covers("OP-3")
def test_a_map_that_one_broker_founded_survives_it_once_there_are_three() -> None:
    story = Growing(3, voters=1)
    story.until(lambda: story.nodes() == ["n0", "n1", "n2"])
    story.until(story.is_quiet)
    story.world.stop("n0", power=False)
    story.until(lambda: story.meta_leader() is not None)
    story.create("n1", replicas=2)
    assert story.publish("n2", 3)[-1] == 3


@pytest.mark.covers("OP-3", "SF-8")
def test_the_founders_go_one_after_the_other_and_others_have_their_votes() -> None:
    story = Growing(4, voters=3)
    story.until(story.is_quiet)
    story.leaves("n0")
    story.until(lambda: story.nodes() == ["n1", "n2", "n3"])
    story.world.stop("n0", power=False)
    story.leaves("n1")
    story.until(lambda: len(story.nodes()) == 1)
    assert story.nodes()[0] in ("n2", "n3"), "of two that stay one votes"
    story.world.stop("n1", power=False)
    story.until(lambda: story.meta_leader() is not None)
    story.create("n2", replicas=2)


@pytest.mark.covers("SF-8")
def test_a_founder_that_does_not_come_back_loses_its_vote_to_another() -> None:
    story = Growing(4, voters=3)
    story.until(story.is_quiet)
    story.world.stop("n1", power=False)
    story.pass_time(50_000)
    assert story.nodes() == ["n0", "n1", "n2"], "a restart changes nothing"
    story.until(lambda: story.nodes() == ["n0", "n2", "n3"], 30_000)
    story.world.start("n1")
    story.until(story.all_have_the_map)
    story.pass_time(20_000)
    assert story.nodes() == ["n0", "n2", "n3"], "four would bear no more"
