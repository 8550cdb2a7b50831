"""Who starts the map of streams: exactly one cluster, for ever; whoever comes later is told its names and joins."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.reconcilers.builders import (
    DEFAULTS,
    EAST,
    NOW,
    cluster,
    cluster_observed,
    condition,
    credentials,
    super_cluster,
    with_status,
)

from supercluster.api import Cluster
from supercluster.api.super_cluster import FounderStatus
from supercluster.reconcilers.planners.cluster import plan_cluster
from supercluster.reconcilers.planners.founding import Traces, choose_meta_voters, founder
from supercluster.reconcilers.planners.plan import Apply, Plan
from supercluster.reconcilers.planners.super_cluster import SuperClusterObserved, plan_super_cluster

RECORD = FounderStatus.model_validate(EAST)
FRESH: dict[str, Any] = {"metaVoters": []}


def plan(resource: Cluster, **changes: Any) -> Plan:
    observed = cluster_observed(resource, **{"objects": {}, "pods": (), **changes})
    return plan_cluster(resource, observed, DEFAULTS, NOW)


def told(resource: Cluster, **changes: Any) -> dict[str, Any]:
    """broker.json of a cluster that is about to begin."""
    recorded = with_status(resource, plan(resource, **changes))
    (config,) = [
        step.manifest["data"]["broker.json"]
        for step in plan(recorded, **changes).steps
        if isinstance(step, Apply) and step.manifest["kind"] == "ConfigMap"
    ]
    found: dict[str, Any] = json.loads(config)
    return found


def test_the_founder_is_recorded_before_any_cluster_begins_and_then_kept() -> None:
    east, west = cluster(status=FRESH, meta={"age": 9}), cluster("west", status=FRESH)
    fresh = super_cluster(status={"streams": 0})
    waiting = plan(east, super_cluster=fresh, siblings=(east, west))
    assert waiting.steps == ()
    assert "metaVoters" not in (waiting.status_patch or {})
    assert "waiting until SuperCluster demo" in condition(waiting.status_patch, "Synced")["message"]
    observed = SuperClusterObserved(clusters=(east, west), credentials=credentials())
    recorded = with_status(fresh, plan_super_cluster(fresh, observed, NOW))
    assert recorded.status.founder == RECORD
    older = cluster("alpha", status=FRESH, meta={"age": 50})
    observed = SuperClusterObserved(clusters=(older, east, west), credentials=credentials())
    assert "founder" not in (plan_super_cluster(recorded, observed, NOW).status_patch or {})


def test_of_two_clusters_of_one_second_one_begins_and_the_other_joins() -> None:
    one, two = cluster("alpha", status=FRESH), cluster("beta", status=FRESH)
    assert one.metadata.creation_timestamp == two.metadata.creation_timestamp
    record = founder(None, (two, one), Traces())
    assert record is not None
    assert record.cluster == "alpha"
    home = super_cluster(status={"founder": record.to_object()})
    voters = {each.metadata.name: told(each, super_cluster=home, siblings=(one, two)) for each in (one, two)}
    assert voters["alpha"]["metaVoters"] == voters["beta"]["metaVoters"] == ["alpha-0", "alpha-1", "alpha-2"]


def test_a_cluster_that_joins_is_told_the_founders_and_seeds_of_all_others() -> None:
    east, west = cluster(), cluster("west", status=FRESH, replicas=5, tags=["ssd"], ports={"gateway": 7333})
    config = told(west, siblings=(east, west))
    assert config["metaVoters"] == ["east-0", "east-1", "east-2"]
    assert config["tags"] == ["ssd"]
    assert config["ports"]["gateway"] == 7333
    assert config["gateways"] == {
        "east": [f"east-{n}.east-brokers.demo-ns.svc:7222" for n in range(3)],
    }
    others = told(cluster(status=FRESH), siblings=(east, west))["gateways"]
    assert others == {"west": [f"west-{n}.west-brokers.demo-ns.svc:7333" for n in range(3)]}


def test_the_founders_never_change_when_the_founder_grows_or_goes() -> None:
    grown = cluster(replicas=5)
    assert founder(RECORD, (grown,), Traces()) == RECORD
    west = cluster("west", status={"metaVoters": EAST["brokers"]})
    assert founder(RECORD, (west,), Traces()) == RECORD
    third = cluster("south", status=FRESH)
    assert told(third, siblings=(west, third))["metaVoters"] == EAST["brokers"]


def test_a_founder_made_anew_joins_those_that_live_and_does_not_begin_again() -> None:
    """With empty volumes its brokers would start a second map of streams beside the one that west has."""
    west = cluster("west", status={"metaVoters": EAST["brokers"], "replicas": 3})
    again = cluster(status=FRESH, meta={"uid": "uid-of-another"})
    assert told(again, siblings=(west, again))["metaVoters"] == ["west-0", "west-1", "west-2"]


def test_a_founder_made_anew_alone_goes_on_with_its_own_names() -> None:
    again = cluster(status=FRESH, meta={"uid": "uid-of-another"}, replicas=5)
    assert told(again, siblings=(again,))["metaVoters"] == EAST["brokers"]


def test_a_cluster_without_anybody_to_join_is_refused_while_the_founders_volumes_are_kept() -> None:
    west = cluster("west", status=FRESH)
    traces = Traces(claimed=frozenset({"east"}))
    assert founder(RECORD, (west,), traces) == RECORD
    refused = plan(west, siblings=(west,))
    accepted = condition(refused.status_patch, "Accepted")
    assert refused.steps == ()
    assert (accepted["status"], accepted["reason"]) == ("False", "FounderMissing")
    assert "create Cluster east again" in accepted["message"]


def test_when_nothing_is_left_of_the_founder_another_cluster_begins() -> None:
    west = cluster("west", status=FRESH)
    record = founder(RECORD, (west,), Traces())
    assert record is not None
    assert (record.cluster, record.uid) == ("west", "uid-west")
    assert founder(RECORD, (), Traces()) is None


@pytest.mark.parametrize("lost", ["of the super-cluster", "of all"])
def test_a_lost_record_is_read_off_the_clusters_that_began(lost: str) -> None:
    older = cluster("alpha", status=FRESH, meta={"age": 50})
    east = cluster(status={} if lost == "of the super-cluster" else FRESH)
    west = cluster("west", status={"metaVoters": EAST["brokers"]})
    traces = Traces(told={"east": tuple(EAST["brokers"])})
    assert founder(None, (older, east, west), traces) == RECORD
    gone = founder(None, (older, west), Traces())
    assert gone is not None
    assert (gone.cluster, gone.uid, list(gone.brokers)) == ("east", "", EAST["brokers"])


def test_a_cluster_that_is_about_to_go_founds_nothing() -> None:
    going = cluster(status=FRESH, meta={"deletionTimestamp": "2026-01-02T00:00:00Z"})
    assert founder(None, (going,), Traces()) is None


@pytest.mark.parametrize(("count", "voters"), [(1, 1), (2, 1), (3, 3), (4, 3), (5, 5), (9, 5)])
def test_the_meta_group_starts_with_an_odd_bounded_number(count: int, voters: int) -> None:
    assert len(choose_meta_voters("east", count)) == voters
