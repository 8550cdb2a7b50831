"""Which nodes hold a stream's copies, and what a refusal says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.jetstream.placement.choice import (
    NodeFacts,
    Wanted,
    choose,
    is_satisfied,
    room_needed,
)


def cluster(name: str, size: int, **facts: object) -> list[NodeFacts]:
    told = {"room_bytes": 1 << 30, **facts}
    return [NodeFacts(f"{name}-{i}", name, **told) for i in range(size)]  # type: ignore[arg-type]


ALL = [*cluster("east", 3), *cluster("west", 3), *cluster("north", 5)]


@pytest.mark.covers("MV-6")
def test_exactly_as_many_nodes_as_replicas_are_chosen_however_large_the_cluster() -> None:
    found = choose(ALL, Wanted(3, "north", bytes_needed=1000), frozenset({"east-0", "east-1", "east-2"}))
    assert found.nodes == ("north-0", "north-1", "north-2")
    assert [reason.why for reason in found.rejected if reason.node in ("north-3", "north-4")] == [
        "fits, but others come first: holds 0 copies of streams"
    ] * 2
    assert found.refusal == ""


def test_the_least_loaded_come_first_then_by_name() -> None:
    known = [
        NodeFacts("b", "c", replicas=1),
        NodeFacts("a", "c", replicas=2),
        NodeFacts("d", "c", replicas=1),
    ]
    assert choose(known, Wanted(2)).nodes == ("b", "d")
    assert choose(known, Wanted(2, preferred="a")).nodes == ("a", "b"), "the preferred one first"


def test_members_that_fit_stay_whatever_they_hold() -> None:
    known = [
        NodeFacts("a", "c", ("ssd",), replicas=9, room_bytes=0),
        NodeFacts("b", "c", (), replicas=9),
        NodeFacts("d", "c", ("ssd",), replicas=0),
        NodeFacts("e", "c", ("ssd",), replicas=1),
    ]
    found = choose(known, Wanted(2, tags=("ssd",)), frozenset({"a", "b"}))
    assert found.nodes == ("a", "d")
    assert found.chosen[0].why == "holds a copy already"
    assert found.rejected[0].why == "lacks tag ssd (has none)"


@pytest.mark.covers("MV-2")
def test_a_refusal_names_every_node_and_its_reason() -> None:
    known = [
        NodeFacts("east-0", "east"),
        NodeFacts("west-0", "west", ("ssd",), room_bytes=1 << 30),
        NodeFacts("west-1", "west", ("ssd",), in_contact=False),
        NodeFacts("west-2", "west", ("hdd",)),
        NodeFacts("west-3", "west", ("ssd",), room_bytes=999),
        NodeFacts("west-4", "west", ("ssd",), room_bytes=None),
        NodeFacts("west-5", "west", ("ssd",), room_bytes=1 << 30),
    ]
    wanted = Wanted(2, "west", ("ssd",), 1000, not_on={"west-5": "is to be removed"})
    found = choose(known, wanted)
    assert found.chosen == ()
    assert found.refusal == (
        "2 replicas wanted in cluster west with ssd, 1 of 7 nodes can be used: west-0; "
        "east-0 is in cluster east, not west; "
        "west-1 is not in contact; "
        "west-2 lacks tag ssd (has hdd); "
        "west-3 has not enough room: 999 bytes, 1000 are needed; "
        "west-4 has not said yet how much room it has; "
        "west-5 is to be removed"
    )


def test_a_new_stream_needs_a_disk_that_is_not_full() -> None:
    known = [NodeFacts("a", "c", room_bytes=0), NodeFacts("b", "c", room_bytes=None)]
    found = choose(known, Wanted(1, bytes_needed=room_needed(0)))
    assert found.nodes == ("b",)
    assert "has not enough room" in found.rejected[0].why


def test_a_placement_that_the_members_satisfy_moves_nothing() -> None:
    known = {facts.node: facts for facts in ALL} | {"east-0": NodeFacts("east-0", "east", in_contact=False)}
    members = ("east-0", "east-1", "east-2")
    assert is_satisfied(members, known, Wanted(3, "east"))
    assert is_satisfied(members, known, Wanted(3))
    assert not is_satisfied(members, known, Wanted(3, "west"))
    assert not is_satisfied(members, known, Wanted(3, "east", ("ssd",)))
    assert not is_satisfied((*members, "gone-0"), known, Wanted(3, "east"))


facts = st.builds(
    NodeFacts,
    st.sampled_from([f"n{i}" for i in range(8)]),
    st.sampled_from(["a", "b"]),
    st.sets(st.sampled_from(["x", "y"])).map(lambda tags: tuple(sorted(tags))),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 100)),
    st.integers(0, 5),
)
wants = st.builds(
    Wanted,
    st.integers(1, 5),
    st.sampled_from(["", "a", "b"]),
    st.sampled_from([(), ("x",), ("x", "y")]),
    st.integers(0, 100),
)


@given(
    st.lists(facts, unique_by=lambda found: found.node),
    wants,
    st.frozensets(st.sampled_from([f"n{i}" for i in range(8)])),
)
def test_a_choice_is_complete_and_keeps_to_what_was_asked(
    known: list[NodeFacts], wanted: Wanted, members: frozenset[str]
) -> None:
    found = choose(known, wanted, members)
    by_name = {one.node: one for one in known}
    told = [*found.nodes, *(reason.node for reason in found.rejected)]
    assert len(set(told)) == len(told)
    if found.refusal:
        assert found.chosen == ()
        assert all(node in found.refusal for node in by_name)
        return
    assert sorted(told) == sorted(by_name), "every node has a reason"
    assert len(found.nodes) == wanted.replicas
    for node in found.nodes:
        one = by_name[node]
        assert one.in_contact
        assert wanted.cluster in ("", one.cluster)
        assert set(wanted.tags) <= set(one.tags)
        assert node in members or one.room_bytes is None or one.room_bytes >= wanted.bytes_needed
    assert choose(list(reversed(known)), wanted, members) == found, "the order of the facts is of no account"
    if set(found.nodes) <= members:
        assert is_satisfied(found.nodes, by_name, wanted)
