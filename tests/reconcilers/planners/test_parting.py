"""Brokers of a Cluster that is deleted part from the others before they go."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.reconcilers.builders import NOW, cluster, condition, super_cluster

from supercluster.api import Cluster
from supercluster.reconcilers.planners.cluster.cluster import plan_cluster
from supercluster.reconcilers.planners.cluster.cluster_observed import ClusterObserved
from supercluster.reconcilers.planners.cluster.departure import PATIENCE, PartingBroker, others_stay
from supercluster.reconcilers.planners.cluster.manifests import OperatorDefaults
from supercluster.reconcilers.planners.plan import LeaveBrokers, Plan, SetFinalizers
from supercluster.reconcilers.planners.status import timestamp

DELETED = {"deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["supercluster.dev/deletion-policy"]}
HERE = tuple(PartingBroker(f"east-{n}", votes=True) for n in range(2))
LEAVING = tuple(PartingBroker(broker.name, leaves=True, votes=True) for broker in HERE)
PARTED = tuple(PartingBroker(broker.name, leaves=True) for broker in HERE)


def plan(brokers: tuple[PartingBroker, ...], since: str | None = None, **observed: Any) -> Plan:
    status = {"partingSince": since} if since else {}
    resource = cluster(meta=DELETED, status=status)
    found = ClusterObserved(
        super_cluster=super_cluster(),
        siblings=(resource, cluster("west")),
        parting=brokers,
        **observed,
    )
    return plan_cluster(resource, found, OperatorDefaults("broker:1"), NOW)


@pytest.mark.covers("OP-3", "OP-5")
def test_brokers_say_that_they_leave_and_go_when_others_vote_for_them() -> None:
    first = plan(HERE)
    (step,) = first.steps
    assert step == LeaveBrokers(("east-0", "east-1"))
    assert first.status_patch is not None
    assert first.status_patch["partingSince"] == timestamp(NOW)
    waits = plan(LEAVING, timestamp(NOW - timedelta(seconds=5)))
    assert waits.steps == ()
    assert "in place of east-0, east-1" in condition(waits.status_patch, "Ready")["message"]
    assert waits.recheck_after_ms
    (last,) = plan(PARTED, timestamp(NOW - timedelta(seconds=9))).steps
    assert isinstance(last, SetFinalizers)


@pytest.mark.covers("OP-5")
@pytest.mark.parametrize("brokers", [HERE, LEAVING])
def test_a_deletion_does_not_wait_for_ever_for_others_that_can_not_decide(
    brokers: tuple[PartingBroker, ...],
) -> None:
    (step,) = plan(brokers, timestamp(NOW - PATIENCE)).steps
    assert isinstance(step, SetFinalizers)


def test_a_refusal_is_told_and_the_time_counts_all_the_same() -> None:
    refused = plan(HERE, refusal="at least one has to stay")
    assert condition(refused.status_patch, "Ready")["message"] == "at least one has to stay"
    assert refused.status_patch is not None
    assert refused.status_patch["partingSince"] == timestamp(NOW)


def test_nobody_is_told_where_nobody_stays() -> None:
    def stays(*siblings: Cluster, gone: bool = False) -> bool:
        owner = super_cluster(meta=DELETED) if gone else super_cluster()
        return others_stay(cluster(meta=DELETED), owner, siblings)

    assert stays(cluster(meta=DELETED), cluster("west"))
    assert not stays(cluster(meta=DELETED))
    assert not stays(cluster(meta=DELETED), cluster("west", meta=DELETED))
    assert not stays(cluster(meta=DELETED), cluster("west"), gone=True)
    assert isinstance(plan(()).steps[0], SetFinalizers)
