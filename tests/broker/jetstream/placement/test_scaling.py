"""Which nodes hold a stream when its count of replicas changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.jetstream.placement.choice import NodeFacts, Wanted
from supercluster.broker.jetstream.placement.scaling import choose_scaled
from supercluster.broker.jetstream.placement.stream_facts import MemberFacts, StreamFacts


def cluster(name: str, size: int) -> dict[str, NodeFacts]:
    return {f"{name}-{i}": NodeFacts(f"{name}-{i}", name, room_bytes=1 << 30) for i in range(size)}


KNOWN = cluster("east", 6) | cluster("west", 3)


def stream(*nodes: str, leader: str = "", behind: dict[str, int] | None = None) -> StreamFacts:
    lag = behind or {}
    members = tuple(MemberFacts(f"{n}@vol", True, n not in lag, lag.get(n, 0)) for n in nodes)
    return StreamFacts(10, 1000, 1000, members, leader=leader or nodes[0])


@pytest.mark.covers("MV-6")
def test_more_replicas_leave_every_copy_where_it_is_and_stay_in_the_cluster() -> None:
    found = choose_scaled(Wanted(5, "east"), stream("east-3", "east-4", "east-5"), KNOWN, {})
    assert found.nodes == ("east-3", "east-4", "east-5", "east-0", "east-1")
    assert {reason.node for reason in found.rejected} == {"east-2", "west-0", "west-1", "west-2"}


def test_more_replicas_exchange_no_copy_on_that_occasion_not_even_one_that_is_away_or_out_of_place() -> None:
    known = KNOWN | {"east-1": replace(KNOWN["east-1"], in_contact=False, room_bytes=0)}
    facts = stream("east-0", "east-1", "west-0")
    found = choose_scaled(Wanted(4, "east"), facts, known, {"east-0": "lost its volume"})
    assert found.nodes == ("east-0", "east-1", "west-0", "east-2")


@pytest.mark.covers("MV-2")
def test_more_replicas_than_there_are_nodes_for_are_refused_with_every_node_and_its_reason() -> None:
    known = KNOWN | {"east-4": replace(KNOWN["east-4"], in_contact=False)}
    known["east-5"] = replace(known["east-5"], room_bytes=10)
    wanted = Wanted(5, "east", bytes_needed=1000, cluster_why=", where the stream is")
    found = choose_scaled(wanted, stream("east-0", "east-1", "east-2"), known, {})
    assert found.chosen == ()
    assert found.refusal == (
        "5 replicas wanted in cluster east, 4 of 9 nodes can be used: east-0, east-1, east-2, east-3; east-4 is not in "
        "contact; east-5 has not enough room: 10 bytes, 1000 are needed; west-0 is in cluster west, not east, where the "
        "stream is; west-1 is in cluster west, not east, where the stream is; west-2 is in cluster west, not east, where "
        "the stream is"
    )


def test_of_fewer_replicas_the_leader_is_kept_then_the_preferred_one_then_the_least_loaded() -> None:
    known = KNOWN | {"east-1": replace(KNOWN["east-1"], replicas=9)}
    facts = stream("east-0", "east-1", "east-2", "east-3", leader="east-3")
    assert choose_scaled(Wanted(1), facts, known, {}).nodes == ("east-3",)
    found = choose_scaled(Wanted(3, preferred="east-2"), facts, known, {})
    assert [(reason.node, reason.why) for reason in (*found.chosen, *found.rejected)] == [
        ("east-3", "leads the stream"),
        ("east-2", "holds a copy and is the preferred leader"),
        ("east-0", "holds a copy already"),
        ("east-1", "holds a copy, but others come first: holds 9 copies of streams"),
    ]


def test_of_fewer_replicas_those_go_first_that_are_worth_least() -> None:
    known = KNOWN | {"east-1": replace(KNOWN["east-1"], in_contact=False)}
    del known["east-5"]
    facts = stream("east-5", "east-1", "east-2", "west-0", "east-4", leader="east-4", behind={"east-2": 7})
    lost = {"east-0": "lost its volume"}
    found = choose_scaled(Wanted(2, "east"), facts, known, lost)
    assert found.nodes == ("east-4", "west-0")
    assert {reason.node: reason.why for reason in found.rejected} == {
        "east-1": "is not in contact",
        "east-2": "is behind by 7 entries",
        "east-5": "is no broker of the super-cluster any more",
    }
    assert found.chosen[1].why == "is in cluster west, not east", (
        "well, and out of place: still better than none"
    )


def test_a_broker_that_leaves_loses_its_copy_first_and_gets_none() -> None:
    known = KNOWN | {node: replace(KNOWN[node], leaves=True) for node in ("east-0", "east-3")}
    facts = stream("east-0", "east-1", "east-2")
    assert choose_scaled(Wanted(2, "east"), facts, known, {}).nodes == ("east-1", "east-2")
    more = choose_scaled(Wanted(4, "east"), facts, known, {})
    assert more.nodes == ("east-0", "east-1", "east-2", "east-4"), (
        "it is moved off by itself, not on this occasion"
    )


@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.sets(st.sampled_from(sorted(KNOWN))),
    st.sets(st.sampled_from(sorted(KNOWN))),
)
def test_the_count_is_exact_and_one_set_holds_the_other(
    before: int, after: int, away: set[str], lagging: set[str]
) -> None:
    nodes = sorted(KNOWN)[:before]
    known = {name: replace(facts, in_contact=name not in away) for name, facts in KNOWN.items()}
    facts = stream(*nodes, behind=dict.fromkeys(lagging, 1))
    found = choose_scaled(Wanted(after), facts, known, {})
    if found.refusal:
        assert after > before
        return
    chosen = set(found.nodes)
    assert len(found.nodes) == len(chosen) == after
    assert chosen <= set(nodes) if after <= before else chosen > set(nodes)
    assert not {reason.node for reason in found.rejected} & chosen
