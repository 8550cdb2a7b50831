"""What the brokers are told of cordons: what Kubernetes and the specs say, and never against a person's own word."""

from __future__ import annotations

from typing import Any

import pytest
from tests.reconcilers.builders import cluster, super_cluster

from supercluster.reconcilers.planners.super_cluster.cordons import CordonTold, CordonView, plan_cordons

OWN = "demo-ns/demo"
NODE = "Kubernetes node node-1 is cordoned"
SPEC = "spec.cordoned of Cluster east"


def planned(
    told: CordonTold | None, host: tuple[str, bool] | None, *named: str
) -> list[tuple[str, str, str]]:
    view = CordonView({"east-0": None, "east-1": told}, {"east-1": host} if host is not None else {})
    steps = plan_cordons(super_cluster(), (cluster("east", cordoned=list(named)),), view)
    return [(step.broker, step.reason, step.declared_by) for step in steps]


@pytest.mark.covers("MR-5", "OP-2")
@pytest.mark.parametrize(
    ("told", "host", "named", "expected"),
    [
        (None, ("node-1", False), (), []),
        (None, ("node-1", True), (), [("east-1", NODE, OWN)]),
        (None, ("node-1", False), ("east-1",), [("east-1", SPEC, OWN)]),
        (None, ("node-1", True), ("east-1",), [("east-1", SPEC, OWN)]),
        (CordonTold(NODE, OWN), ("node-1", True), (), []),
        (CordonTold(SPEC, OWN), ("node-1", True), (), [("east-1", NODE, OWN)]),
        (CordonTold(NODE, OWN), ("node-1", False), (), [("east-1", "", OWN)]),
        # Nobody knows of its node, or it has none just now: a drained node is cordoned still.
        (CordonTold(NODE, OWN), None, (), []),
        (CordonTold(SPEC, OWN), None, (), [("east-1", "", OWN)]),
        # A person said so.
        (CordonTold("a bad disk"), ("node-1", False), (), []),
        (CordonTold("a bad disk"), ("node-1", True), ("east-1",), []),
        (CordonTold("theirs", "demo-ns/other"), ("node-1", False), (), []),
        (None, ("node-1", False), ("east-9",), []),
    ],
)
def test_the_map_is_told_what_is_declared(
    told: CordonTold | None, host: tuple[str, bool] | None, named: tuple[str, ...], expected: Any
) -> None:
    assert planned(told, host, *named) == expected


def test_while_no_broker_says_nothing_is_told() -> None:
    assert plan_cordons(super_cluster(), (cluster("east", cordoned=["east-0"]),), None) == ()
