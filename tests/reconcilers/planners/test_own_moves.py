"""Names of the StreamMoves that the operator makes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.reconcilers.builders import stream, super_cluster

from supercluster.api import StreamMove
from supercluster.reconcilers.planners.move.generated import base_name, next_name, slug, tries_of


def move(name: str) -> StreamMove:
    body: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "ns", "uid": "u"},
        "spec": {"superCluster": "demo"},
    }
    return StreamMove.model_validate(body)


@pytest.mark.covers("OP-4", "OP-5")
def test_whoever_looks_twice_makes_one_and_super_clusters_of_a_namespace_make_their_own() -> None:
    demo, other = super_cluster(), super_cluster("other")
    first = base_name(demo, "trim", "orders", None, ["east-3"])
    assert first == base_name(demo, "trim", "orders", None, ["east-3"])
    assert first.startswith("orders-trim-")
    assert first != base_name(other, "trim", "orders", None, ["east-3"])
    assert first != base_name(demo, "trim", "orders", None, ["east-2"])


@pytest.mark.covers("MR-1")
def test_a_name_is_behind_all_that_there_are() -> None:
    assert next_name("a-repair-1", {}) == "a-repair-1"
    there = tries_of(
        "a-repair-1", map(move, ("a-repair-1-2", "a-repair-1-9", "a-repair-10", "a-repair-1-x", "b"))
    )
    assert sorted(there) == [2, 9]
    assert next_name("a-repair-1", there) == "a-repair-1-10"
    assert next_name("a", tries_of("a", [move("a")])) == "a-2"


def test_a_name_is_one_that_kubernetes_takes() -> None:
    assert slug("A+B", None) == "a-b"
    assert slug("+", None) == "stream"
    assert slug("x" * 199 + "+" + "y" * 50, None) == "x" * 199
    assert slug("Orders", stream("flights")) == "flights"
