"""A stream that was recovered by force is given its replicas again: all of them, or as many as can be had (SF-9)."""

from __future__ import annotations

import pytest
from tests.broker.jetstream.meta_leader.meta_story import OPERATOR, Meta, facts_of
from tests.broker.jetstream.meta_leader.test_dead_members import MINUTE_MS, five, nodes, pass_time
from tests.broker.jetstream.meta_leader.test_named_replicas import finish

from supercluster.broker.jetstream.meta.operations import recover_stream
from supercluster.broker.jetstream.meta.stream_recovery import Recovery
from supercluster.broker.jetstream.placement.stream_facts import MemberFacts
from supercluster.broker.raft.confchange import node_of


def recovered(replicas: int, *left: str) -> Meta:
    """A stream of so many replicas goes on from its copy on east-0, and of the brokers so many are left."""
    leader = five()
    leader.done("create", OPERATOR, name="R", num_replicas=replicas)
    for node in leader.host.contact.keys() - {"east-0", *left}:
        del leader.host.contact[node]
    found = leader.stream("R")
    told = Recovery("one", "east-0@vol-0.t", found.group, 0, 10, 9, 13, "some")
    leader.replica.tail.propose(recover_stream(found, f"{found.group}~1", told))
    pass_time(leader, 2000)
    return leader


def grow(leader: Meta) -> list[str]:
    """Where the move goes that runs, which then ends."""
    move = leader.stream("R").move
    assert move is not None
    targets = sorted(nodes(move.targets))
    finish(leader, name="R")
    return targets


@pytest.mark.covers("SF-9")
def test_all_replicas_come_back_when_there_are_brokers_for_them() -> None:
    leader = recovered(3, "east-1", "east-2")
    assert grow(leader) == ["east-0", "east-1", "east-2"]
    pass_time(leader, 3000)
    assert leader.stream("R").move is None


@pytest.mark.covers("SF-9")
def test_where_there_are_fewer_brokers_it_grows_to_the_next_odd_number_and_later_to_all() -> None:
    leader = recovered(5, "east-1", "east-2", "east-3")
    assert grow(leader) == ["east-0", "east-1", "east-3"], "stream S is on east-2"
    pass_time(leader, 3000)
    assert leader.stream("R").move is None, "four tolerate no more than three"
    assert leader.stream("R").config.num_replicas == 5
    assert "3 of 5 replicas" in next(text for text in leader.host.texts if "since it was recovered" in text)
    leader.host.contact["east-4"] = ("east", "vol-east_4")
    pass_time(leader, 3000)
    assert len(grow(leader)) == 5


@pytest.mark.covers("SF-9", "MR-7")
def test_a_member_that_dies_while_it_is_short_is_exchanged_with_the_one_spare_broker() -> None:
    """It used to be refused, as if somebody was just taking another one's place: one more loss, and the majority was gone."""
    leader = recovered(5, "east-1", "east-2", "east-3")
    grow(leader)
    gone = "east-3"
    del leader.host.contact[gone]
    found = leader.stream("R")
    members = tuple(MemberFacts(member, True, node_of(member) != gone, 0) for member in found.members)
    leader.host.facts["R"] = facts_of(found, members=members)
    pass_time(leader, 10 * MINUTE_MS)
    assert leader.stream("R").move is None, "by itself it grows by two or not at all"
    leader.done("move", OPERATOR, name="R", replace=(gone,), away_ms=MINUTE_MS, move_id="m1")
    move = leader.stream("R").move
    assert move is not None
    assert sorted(nodes(move.targets)) == ["east-0", "east-1", "east-2"]


@pytest.mark.covers("SF-9", "MV-1")
def test_a_stream_that_is_short_may_be_given_another_count_or_have_a_peer_removed() -> None:
    leader = recovered(5, "east-1", "east-2", "east-3")
    grow(leader)
    leader.done("remove_peer", OPERATOR, name="R", peer="east-3")
    assert leader.stream("R").move is not None
    finish(leader, name="R")
    leader.done("move", OPERATOR, name="R", replicas=3, move_id="m2")


@pytest.mark.covers("SF-9")
def test_with_one_broker_more_it_stays_as_it_is_for_two_need_each_other() -> None:
    leader = recovered(3, "east-1")
    assert leader.stream("R").move is None
    assert "ReplicasWait" in leader.host.events
