"""Names of brokers and members over two super-clusters (BG-4)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.migration.worlds import (
    far_member,
    far_name,
    near_member,
    near_name,
    world_id,
    world_of,
)
from supercluster.broker.raft.confchange import node_of

NODES = st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True)


def test_a_world_is_eight_digits_of_the_identity() -> None:
    """They are written into logs: another algorithm would make members strangers."""
    assert world_id("blue-5f2c") == "5d49f3a6"
    assert world_id("blue") == world_id("blue") != world_id("green")
    assert len(world_id("blue")) == 8


@given(NODES, st.text(min_size=1))
def test_a_far_name_gives_back_its_parts(node: str, identity: str) -> None:
    world = world_id(identity)
    far = far_name(node, world)
    assert (near_name(far), world_of(far)) == (node, world)
    assert (near_name(node), world_of(node)) == (node, "")


@given(NODES)
def test_a_member_has_the_far_name_of_its_broker(node: str) -> None:
    member, world = f"{node}@1a2b.3", world_id("green")
    far = far_member(member, world)
    assert node_of(far) == far_name(node, world)
    assert (near_member(far), near_member(member)) == (member, member)
    assert (world_of(far), world_of(member)) == (world, "")
