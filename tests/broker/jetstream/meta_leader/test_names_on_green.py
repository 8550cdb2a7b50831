"""What green has in the place of names that a stream of blue's has in its configuration (BG-1, BG-4)."""

from __future__ import annotations

from typing import Any

import pytest

from supercluster.broker.jetstream.config.metadata_keys import FSYNC_KEY, PREFERRED_LEADER_KEY, RESOURCE_KEY
from supercluster.broker.jetstream.config.stream import Placement, StreamConfig
from supercluster.broker.jetstream.meta_leader.names_on_green import Unknown, as_on_green, cluster_on_green
from supercluster.broker.jetstream.placement.choice import NodeFacts


def brokers(*clusters: str, tags: tuple[str, ...] = ()) -> list[NodeFacts]:
    return [NodeFacts(f"{cluster}-{i}", cluster, tags) for cluster in clusters for i in range(3)]


def placed(cluster: str, **fields: Any) -> StreamConfig:
    return StreamConfig(name="S", subjects=("s",), placement=Placement(cluster, **fields))


@pytest.mark.parametrize(
    ("wanted", "told", "clusters", "found"),
    [
        ("west", "east", ("east", "north"), "east"),
        ("west", "east", ("east", "west"), "east"),
        ("west", "", ("east", "west"), "west"),
        ("west", "", ("east",), "east"),
        ("", "", ("east", "north"), ""),
    ],
)
def test_a_cluster_is_called_as_the_migration_says_else_stays_else_is_the_only_one(
    wanted: str, told: str, clusters: tuple[str, ...], found: str
) -> None:
    assert cluster_on_green(placed(wanted), told, brokers(*clusters)) == found


@pytest.mark.parametrize(
    ("told", "clusters", "words"),
    [
        ("", ("east", "north"), ("cluster west", "green has east, north", "takes the place of west")),
        ("south", ("east",), ("calls south on green", "green has east", "name one of green's clusters for west")),
        ("", (), ("cluster west", "green has none")),
    ],
)  # fmt: skip
def test_a_cluster_that_green_does_not_have_is_unknown_with_a_remedy(
    told: str, clusters: tuple[str, ...], words: tuple[str, ...]
) -> None:
    found = cluster_on_green(placed("west"), told, brokers(*clusters))
    assert isinstance(found, Unknown)
    assert found.code == "ClusterUnknown"
    for word in words:
        assert word in found.text


def test_a_cluster_whose_brokers_all_leave_is_none() -> None:
    going = [NodeFacts("east-0", "east", leaves=True)]
    assert cluster_on_green(placed("west"), "", [*going, *brokers("north")]) == "north"


def test_a_tag_is_a_promise_that_green_has_to_keep_in_that_very_cluster() -> None:
    known = [*brokers("east"), *brokers("north", tags=("ssd",))]
    assert cluster_on_green(placed("west", tags=("ssd",)), "north", known) == "north"
    found = cluster_on_green(placed("west", tags=("ssd",)), "east", known)
    assert isinstance(found, Unknown)
    assert (found.code, "tag ssd" in found.message, "in cluster east" in found.message) == (
        "TagUnknown",
        True,
        True,
    )
    assert cluster_on_green(placed("", tags=("ssd",)), "", known) == ""


def test_a_preferred_leader_that_green_does_not_have_is_dropped_and_the_rest_stays() -> None:
    """SF-23: the resource that declares the stream stays in it, so it goes on being protected."""
    metadata = {
        PREFERRED_LEADER_KEY: "west-0",
        RESOURCE_KEY: "shop/orders",
        FSYNC_KEY: "always",
        "team": "a",
    }
    config = StreamConfig(
        name="S",
        subjects=("s",),
        placement=Placement("west", ("ssd",), "west-1"),
        metadata=metadata,
        max_msgs=7,
    )
    near = as_on_green(config, "east", {"east-0", "east-1"})
    assert near.placement == Placement("east", ("ssd",))
    assert near.metadata == {RESOURCE_KEY: "shop/orders", FSYNC_KEY: "always", "team": "a"}
    assert (near.max_msgs, near.subjects) == (7, ("s",))
    alike = as_on_green(config, "west", {"west-0", "west-1"})
    assert alike == config
    assert as_on_green(placed(""), "", {"east-0"}) == placed("")
