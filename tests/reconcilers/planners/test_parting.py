"""Brokers of a Cluster that is deleted part from the others before they go."""

from __future__ import annotations

from typing import Any

import pytest
from tests.reconcilers.builders import NOW, applied, cluster, condition, pods, stream, super_cluster
from tests.reconcilers.planners.test_cluster_planner import manifests_of

from supercluster.api import Cluster
from supercluster.reconcilers.planners.cluster.cluster import plan_cluster
from supercluster.reconcilers.planners.cluster.cluster_observed import ClusterObserved
from supercluster.reconcilers.planners.cluster.departure import PartingBroker, needs_parting, others_stay
from supercluster.reconcilers.planners.cluster.manifests import OperatorDefaults
from supercluster.reconcilers.planners.plan import DeleteObject, LeaveBrokers, Plan
from supercluster.reconcilers.planners.status import timestamp

DELETED = {"deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["supercluster.dev/deletion-policy"]}
HERE = tuple(PartingBroker(f"east-{n}", votes=True) for n in range(2))
LEAVING = tuple(PartingBroker(broker.name, leaves=True, votes=True) for broker in HERE)
PARTED = tuple(PartingBroker(broker.name, leaves=True) for broker in HERE)
LONG_AGO = "2026-01-01T00:00:00Z"


def plan(brokers: tuple[PartingBroker, ...] | None, since: str | None = None, **changes: Any) -> Plan:
    status = {"partingSince": since} if since else {}
    resource = cluster(meta=DELETED, status=status)
    found: dict[str, Any] = {
        "super_cluster": super_cluster(),
        "siblings": (resource, cluster("west")),
        "objects": applied(manifests_of(cluster())),
        "pods": pods(),
        "parting": brokers,
    }
    return plan_cluster(resource, ClusterObserved(**{**found, **changes}), OperatorDefaults("broker:1"), NOW)


@pytest.mark.covers("OP-3", "OP-5", "SF-35")
def test_brokers_say_that_they_leave_and_go_when_others_vote_for_them() -> None:
    first = plan(HERE)
    (step,) = first.steps
    assert step == LeaveBrokers(("east-0", "east-1"))
    assert first.status_patch is not None
    assert first.status_patch["partingSince"] == timestamp(NOW)
    waits = plan(LEAVING, timestamp(NOW))
    assert waits.steps == ()
    assert "in place of east-0, east-1" in condition(waits.status_patch, "Ready")["message"]
    assert waits.recheck_after_ms
    (last,) = plan(PARTED, timestamp(NOW)).steps
    assert isinstance(last, DeleteObject)
    assert last.kind == "StatefulSet"


@pytest.mark.covers("SF-35", "OP-6")
@pytest.mark.parametrize("brokers", [LEAVING, None])
def test_brokers_stay_however_long_the_others_take(brokers: tuple[PartingBroker, ...] | None) -> None:
    waits = plan(brokers, LONG_AGO)
    assert waits.steps == ()
    assert "deletion waits until" in condition(waits.status_patch, "Ready")["message"]
    assert waits.recheck_after_ms


@pytest.mark.covers("OP-6")
def test_a_map_without_majority_is_told_with_what_to_do() -> None:
    told = condition(plan(None).status_patch, "Ready")["message"]
    assert "supercluster recover meta" in told
    assert "StatefulSet east" in told


@pytest.mark.covers("SF-35")
def test_brokers_without_a_stateful_set_part_too_and_those_that_end_are_past_it() -> None:
    """Somebody deleted it and left its pods, or gives the map up."""
    (step,) = plan(HERE, objects={}).steps
    assert isinstance(step, LeaveBrokers)
    ending = plan(None, objects={}, pods=pods(terminating=True))
    assert ending.steps == ()
    assert "have ended: east-0, east-1, east-2" in condition(ending.status_patch, "Ready")["message"]


def test_a_refusal_is_told() -> None:
    refused = plan(HERE, refusal="at least one has to stay")
    assert condition(refused.status_patch, "Ready")["message"] == "at least one has to stay"
    assert refused.status_patch is not None
    assert refused.status_patch["partingSince"] == timestamp(NOW)


@pytest.mark.covers("OP-6")
def test_nobody_is_told_where_nobody_stays() -> None:
    def stays(*siblings: Cluster) -> bool:
        return others_stay(cluster(meta=DELETED), siblings)

    assert stays(cluster(meta=DELETED), cluster("west"))
    assert not stays(cluster(meta=DELETED))
    assert not stays(cluster(meta=DELETED), cluster("west", meta=DELETED))
    assert isinstance(plan(()).steps[0], DeleteObject)


@pytest.mark.covers("SF-35")
def test_where_all_are_deleted_and_held_by_streams_nobody_parts() -> None:
    east, west = (cluster(name, meta=DELETED, deletionPolicy="Delete") for name in ("east", "west"))
    in_east, in_west = (stream(name, status={"cluster": name}) for name in ("east", "west"))
    assert needs_parting(west, (east, west), (in_east,))
    assert not needs_parting(east, (east, west), (in_east,))
    assert not needs_parting(east, (east, west), (in_east, in_west))
    assert not needs_parting(west, (cluster(meta=DELETED), west), (in_east,)), "its volumes stay"


@pytest.mark.covers("SF-35")
def test_brokers_part_though_their_super_cluster_is_being_deleted_too() -> None:
    (step,) = plan(HERE, super_cluster=super_cluster(meta=DELETED)).steps
    assert isinstance(step, LeaveBrokers)
