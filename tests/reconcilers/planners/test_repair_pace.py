"""When lost replicas are looked at more often: about the moments at which they become due, and at no other."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.reconcilers.builders import NAMESPACE, NOW, metadata, super_cluster

from supercluster.api import ReplicaPolicy
from supercluster.reconcilers.planners.replica.repair_moves import RepairObserved
from supercluster.reconcilers.planners.strategies import Node
from supercluster.reconcilers.planners.super_cluster.super_cluster import (
    WAITING_RECHECK_MS,
    SuperClusterObserved,
    plan_super_cluster,
)

RULES = {"failureRecoveryInterval": "60s", "checkInterval": "10s"}


def policy(interval: str) -> ReplicaPolicy:
    spec = {"superCluster": "demo", "selector": {"namePattern": "*"}, "failureRecoveryInterval": interval}
    return ReplicaPolicy.model_validate({"metadata": metadata("keep"), "spec": spec})


def recheck_ms(away_s: float | None, *policies: ReplicaPolicy) -> int | None:
    away_since = NOW - timedelta(seconds=away_s) if away_s is not None else None
    node = Node("east-2", "east", away_since=away_since, in_contact=away_since is None)
    observed = SuperClusterObserved(repair=RepairObserved({"east-2": node}, NOW, (), policies))
    wanted = super_cluster(repair=RULES)
    assert wanted.metadata.namespace == NAMESPACE
    return plan_super_cluster(wanted, observed, NOW).recheck_after_ms


@pytest.mark.covers("MR-2", "MR-4")
@pytest.mark.parametrize(
    ("away_s", "soon"),
    [(None, False), (6, False), (54, False), (56, True), (60, True), (74, True), (76, False), (9_000, False)],
)
def test_no_moment_at_which_a_replica_becomes_due_is_between_two_regular_looks(
    away_s: float | None, soon: bool
) -> None:
    plain = recheck_ms(None)
    assert plain != WAITING_RECHECK_MS
    assert recheck_ms(away_s) == (WAITING_RECHECK_MS if soon else plain)


@pytest.mark.covers("MR-4")
def test_a_policy_with_another_interval_has_moments_of_its_own() -> None:
    assert recheck_ms(10, policy("10s")) == WAITING_RECHECK_MS
    assert recheck_ms(40, policy("10s")) == recheck_ms(None)


@pytest.mark.covers("MR-2")
@pytest.mark.parametrize(("unusable_s", "soon"), [(40, False), (58, True)])
def test_a_copy_of_no_use_becomes_due_likewise(unusable_s: float, soon: bool) -> None:
    since = {"s": {"east-2": NOW - timedelta(seconds=unusable_s)}}
    observed = SuperClusterObserved(
        repair=RepairObserved({"east-2": Node("east-2", "east")}, NOW, unusable=since)
    )
    found = plan_super_cluster(super_cluster(repair=RULES), observed, NOW).recheck_after_ms
    assert found == (WAITING_RECHECK_MS if soon else recheck_ms(None))
