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

from supercluster.api import Cluster, SuperCluster
from supercluster.api.recovery import BEGIN_MAP_ANEW
from supercluster.api.super_cluster import FounderStatus
from supercluster.reconcilers.planners.cluster.cluster import plan_cluster
from supercluster.reconcilers.planners.founding import Traces, choose_meta_voters, founder
from supercluster.reconcilers.planners.plan import Apply, Plan
from supercluster.reconcilers.planners.super_cluster.super_cluster import (
    SuperClusterObserved,
    plan_super_cluster,
)

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


# ---- a map is begun once (SF-26) ------------------------------------------------------------------------------------

BEGUN: dict[str, Any] = {"observedGeneration": 1, "founder": {**EAST, "begun": True}}


def looked(resource: SuperCluster, *, holds_map: bool = False, traces: Traces | None = None) -> SuperCluster:
    """The super-cluster after one look of its worker."""
    observed = SuperClusterObserved(
        clusters=(cluster(),), credentials=credentials(), traces=traces or Traces(), holds_map=holds_map
    )
    after: SuperCluster = with_status(resource, plan_super_cluster(resource, observed, NOW))
    return after


def begun(resource: SuperCluster) -> bool:
    assert resource.status.founder is not None
    return resource.status.founder.begun


def written(home: SuperCluster, *, told_before: bool = False) -> bool:
    """joinOnly of the settings file that east's brokers get."""
    east = cluster()
    before = {"data": {"broker.json": json.dumps({"metaVoters": EAST["brokers"], "joinOnly": told_before})}}
    config = told(east, super_cluster=home, objects={("ConfigMap", "east-config"): before})
    assert "joinOnly" not in config or config["joinOnly"] is True
    return "joinOnly" in config


@pytest.mark.covers("SF-26")
def test_once_brokers_hold_the_map_none_may_begin_one() -> None:
    home = super_cluster(status={"observedGeneration": 1, "founder": EAST})
    assert not begun(looked(home))
    assert not written(home)
    after = looked(home, holds_map=True)
    assert begun(after)
    assert written(after)
    assert begun(looked(after)), "nobody says so any more, and it was begun all the same"


@pytest.mark.covers("SF-26")
def test_the_only_broker_there_is_may_begin_again() -> None:
    home = super_cluster(status={"observedGeneration": 1, "founder": EAST})
    alone = SuperClusterObserved(clusters=(cluster(replicas=1),), credentials=credentials(), holds_map=True)
    assert not begun(with_status(home, plan_super_cluster(home, alone, NOW)))


@pytest.mark.covers("SF-26")
@pytest.mark.parametrize("traces", [Traces(join_only=True), Traces(has_volumes=True)])
def test_a_lost_status_permits_no_second_map_while_volumes_or_settings_tell_of_one(traces: Traces) -> None:
    lost = super_cluster(status={"streams": 0})
    assert begun(looked(lost, traces=traces))
    assert written(lost, told_before=True), "whoever comes first, the record or the settings"


@pytest.mark.covers("SF-26")
def test_a_status_of_before_the_beginning_permits_no_second_map() -> None:
    stale = super_cluster(status={"observedGeneration": 1, "founder": EAST})
    assert written(stale, told_before=True)
    assert begun(looked(stale, traces=Traces(join_only=True)))


@pytest.mark.covers("SF-26")
def test_a_person_may_have_the_map_begun_once_more() -> None:
    asked = super_cluster(meta={"annotations": {BEGIN_MAP_ANEW: "1"}}, status=BEGUN)
    observed = SuperClusterObserved(
        clusters=(cluster(),), credentials=credentials(), traces=Traces(join_only=True, has_volumes=True)
    )
    planned = plan_super_cluster(asked, observed, NOW)
    assert [note.message for note in planned.notes if note.reason == "StreamMapRecreated"] == [
        "annotation supercluster.dev/begin-map-anew: brokers may begin another map of streams: all that the former one had is given up"
    ]
    free = with_status(asked, planned)
    assert not begun(free)
    assert not written(free, told_before=True)
    done = looked(free, holds_map=True)
    assert begun(done)
    assert done.status.founder is not None
    assert done.status.founder.anew == "1"
    assert begun(looked(done)), "one value permits one beginning"
    assert written(done)


@pytest.mark.covers("SF-26")
def test_no_other_map_is_begun_while_brokers_hold_one() -> None:
    asked = super_cluster(meta={"annotations": {BEGIN_MAP_ANEW: "1"}}, status=BEGUN)
    refused = looked(asked, holds_map=True)
    assert begun(refused)
    assert begun(looked(refused)), "nor later, when those brokers are out of contact"


@pytest.mark.covers("SF-26")
def test_an_annotation_out_of_a_backup_permits_nothing() -> None:
    restored = super_cluster(meta={"annotations": {BEGIN_MAP_ANEW: "1"}}, status={"streams": 0})
    after = looked(restored, traces=Traces(has_volumes=True))
    assert begun(after)
    assert begun(looked(after))
