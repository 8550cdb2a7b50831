"""Plans for clusters and super-clusters: their objects, drift, roll-outs, deletion."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.reconcilers.builders import (
    DEFAULTS,
    NOW,
    applied,
    cluster,
    cluster_observed,
    condition,
    credentials,
    pods,
    stream,
    super_cluster,
    with_status,
)

from supercluster.api import Cluster, SuperCluster
from supercluster.api.conditions import EventReason
from supercluster.broker.runtime import settings
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.broker_config import BOUNDS, broker_config
from supercluster.reconcilers.planners.cluster import ClusterObserved, plan_cluster
from supercluster.reconcilers.planners.move_views import BrokersMove
from supercluster.reconcilers.planners.plan import (
    FINALIZER,
    Apply,
    DeleteObject,
    MakeCredentials,
    Plan,
    SetFinalizers,
)
from supercluster.reconcilers.planners.rollout import GroupView
from supercluster.reconcilers.planners.super_cluster import (
    CredentialsView,
    SuperClusterObserved,
    plan_super_cluster,
)
from supercluster.reconcilers.planners.volumes import ClaimView

DELETED = {"deletionTimestamp": "2026-01-02T00:00:00Z"}


def plan(resource: Cluster, observed: ClusterObserved) -> Plan:
    return plan_cluster(resource, observed, DEFAULTS, NOW)


def manifests_of(resource: Cluster, **changes: Any) -> list[Any]:
    """Everything that is applied for a cluster that has nothing yet."""
    planned = plan(resource, cluster_observed(resource, objects={}, pods=(), **changes))
    return [step.manifest for step in planned.steps if isinstance(step, Apply)]


def running(resource: Cluster, **changes: Any) -> tuple[Cluster, ClusterObserved]:
    """A cluster that runs as it should, and what is seen of it."""
    there = cluster_observed(resource, objects=applied(manifests_of(resource)), **changes)
    settled = with_status(resource, plan(resource, there))
    assert isinstance(settled, Cluster)
    return settled, cluster_observed(settled, objects=there.objects, **changes)


def by_kind(manifests: list[Any]) -> dict[str, Any]:
    return {f"{m['kind']}/{m['metadata']['name']}": m for m in manifests}


def test_a_new_cluster_gets_its_objects_the_stateful_set_last() -> None:
    found = by_kind(manifests_of(cluster()))
    assert list(found) == [
        "ConfigMap/east-config",
        "Service/east-brokers",
        "Service/east",
        "PodDisruptionBudget/east",
        "StatefulSet/east",
    ]
    assert found["Service/east-brokers"]["spec"]["publishNotReadyAddresses"] is True
    assert found["PodDisruptionBudget/east"]["spec"]["maxUnavailable"] == 1
    assert found["StatefulSet/east"]["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert all(m["metadata"]["ownerReferences"][0]["uid"] == "uid-east" for m in found.values())
    assert all(
        port["protocol"] == "TCP"
        for name in ("east", "east-brokers")
        for port in found[f"Service/{name}"]["spec"]["ports"]
    )


def test_brokers_are_told_who_they_are_with_and_where() -> None:
    config = json.loads(by_kind(manifests_of(cluster()))["ConfigMap/east-config"]["data"]["broker.json"])
    assert config["identity"] == "uid-demo"
    assert (config["superCluster"], config["cluster"]) == ("demo", "east")
    assert config["peers"]["east-1"] == "east-1.east-brokers.demo-ns.svc:6222"
    assert config["metaVoters"] == ["east-0", "east-1", "east-2"]
    assert config["limits"]["maxPayloadBytes"] == 1_048_576
    assert config["storage"]["syncIntervalMs"] == 1000
    assert config["raft"] == {"heartbeatMs": 100, "electionTimeoutMs": 500}


def test_pods_are_locked_down() -> None:
    pod = by_kind(manifests_of(cluster()))["StatefulSet/east"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["image"] == "supercluster/broker:test"
    assert {probe for probe in container if probe.endswith("Probe")} == {
        "startupProbe",
        "livenessProbe",
        "readinessProbe",
    }


@pytest.mark.covers("OP-2")
@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"replicas": 5, "storage": {"type": "EmptyDir"}},
        {"pod": {"tolerations": [{"key": "a"}], "nodeSelector": {"disk": "ssd"}}, "tags": ["ssd"]},
    ],
)
def test_a_converged_cluster_gives_an_empty_plan(spec: dict[str, Any]) -> None:
    resource, observed = running(cluster(**spec))
    assert plan(resource, observed).is_empty
    assert condition(resource.to_object()["status"], "Ready")["status"] == "True"


@pytest.mark.covers("OP-2")
def test_defaults_and_other_spellings_of_a_quantity_are_no_drift() -> None:
    resource, observed = running(cluster(storage={"size": "1024Mi"}))
    stateful_set: Any = observed.objects[("StatefulSet", "east")]
    stateful_set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] = "1Gi"
    stateful_set["spec"]["template"]["spec"]["containers"].append({"name": "injected"})
    assert plan(resource, observed).is_empty


@pytest.mark.covers("OP-2")
def test_a_changed_object_is_set_back_and_the_field_is_named() -> None:
    resource, observed = running(cluster())
    service: Any = observed.objects[("Service", "east")]
    service["spec"]["ports"][0]["port"] = 9999
    (step,) = plan(resource, observed).steps
    assert isinstance(step, Apply)
    assert step.manifest["metadata"]["name"] == "east"
    assert step.note is not None
    assert step.note.reason == EventReason.DRIFT_REPAIRED
    assert "spec.ports[client].port" in step.note.message


@pytest.mark.covers("OP-2")
def test_a_deleted_object_is_made_again() -> None:
    resource, observed = running(cluster())
    objects = {key: value for key, value in observed.objects.items() if key != ("Service", "east-brokers")}
    (step,) = plan(resource, cluster_observed(resource, objects=objects)).steps
    assert isinstance(step, Apply)
    assert step.note is not None
    assert step.note.reason == EventReason.DRIFT_REPAIRED


def test_the_stateful_set_waits_for_the_credentials() -> None:
    waiting = by_kind(manifests_of(cluster(), credentials_ready=False))
    assert "StatefulSet/east" not in waiting
    assert "ConfigMap/east-config" in waiting


def test_a_cluster_without_its_super_cluster_is_not_started() -> None:
    planned = plan(cluster(), cluster_observed(cluster(), super_cluster=None))
    assert planned.steps == ()
    assert condition(planned.status_patch, "Accepted")["reason"] == "SuperClusterNotFound"
    assert planned.notes[0].warning


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"limits": {"maxPayload": "2Gi"}}, "spec.limits.maxPayload is 2Gi; it has to be from 1 to 32Mi"),
        ({"limits": {"maxPayload": 0}}, "spec.limits.maxPayload is 0;"),
        ({"limits": {"streamWindowWait": "1ms"}}, "streamWindowWait is 1ms; it has to be from 100ms to 10m"),
        ({"limits": {"pingInterval": "2h"}}, "pingInterval is 2h; it has to be from 100ms to 1h"),
        ({"diskLimits": {"segment": "1k"}}, "diskLimits.segment is 1k; it has to be from 64Ki to 4Gi"),
        (
            {"raft": {"heartbeat": "10ms", "electionTimeout": "30ms"}},
            "raft.electionTimeout is 30ms; it has to be from 50ms to 1m",
        ),
    ],
)
def test_what_no_broker_starts_with_reaches_none(spec: dict[str, Any], words: str) -> None:
    wanted = cluster(**spec)
    refused = plan(wanted, cluster_observed(wanted))
    assert refused.steps == ()
    accepted = condition(refused.status_patch, "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "OutOfRange")
    assert words in accepted["message"]
    assert refused.notes[0].warning


def test_the_bounds_are_those_of_the_broker() -> None:
    document = broker_config(cluster(), "id", 3, ("east-0",))
    by_schema = {"maxConnections", "pingsOutMax", "syncIntervalMs", "heartbeatMs"}
    for section in ("limits", "storage", "raft"):
        for key in document[section].keys() - by_schema:
            _, low, high = BOUNDS[section, key]
            for value, fits in ((low, True), (high, True), (low - 1, False), (high + 1, False)):
                changed = {**document[section], key: value}
                if section == "raft":
                    changed["heartbeatMs"] = 10
                if fits:
                    settings.parse({**document, section: changed})
                else:
                    with pytest.raises(settings.SettingsError, match=key):
                        settings.parse({**document, section: changed})


@pytest.mark.covers("MV-13")
def test_brokers_are_told_the_share_of_a_move_that_a_client_starts_and_not_restarted_for_it() -> None:
    budget = {"bytesPerS": "100Mi", "concurrentMax": 4}
    limited = by_kind(manifests_of(cluster(), super_cluster=super_cluster(moves=budget)))
    told = json.loads(limited["ConfigMap/east-config"]["data"]["broker.json"])
    assert told["moves"] == {"bytesPerS": 25 << 20}
    assert settings.parse(told).moves.bytes_per_s == 25 << 20
    free = by_kind(manifests_of(cluster(), super_cluster=super_cluster()))
    assert "moves" not in json.loads(free["ConfigMap/east-config"]["data"]["broker.json"]), "no limit"
    assert free["StatefulSet/east"] == limited["StatefulSet/east"]
    huge = by_kind(manifests_of(cluster(), super_cluster=super_cluster(moves={"bytesPerS": "9000000Ti"})))
    settings.parse(json.loads(huge["ConfigMap/east-config"]["data"]["broker.json"]))


def test_the_voters_are_chosen_once_and_no_broker_is_taken_away_unasked() -> None:
    resource, observed = running(cluster(replicas=3))
    body = resource.to_object()
    body["spec"]["replicas"] = 5
    grown = Cluster.model_validate(body)
    config = by_kind([s.manifest for s in plan(grown, observed).steps if isinstance(s, Apply)])[
        "ConfigMap/east-config"
    ]
    told = json.loads(config["data"]["broker.json"])
    assert told["metaVoters"] == ["east-0", "east-1", "east-2"]
    assert len(told["peers"]) == 5
    body["spec"]["replicas"] = 1
    shrunk = Cluster.model_validate(body)
    planned = plan(shrunk, observed)
    assert planned.steps == ()
    waits = condition(planned.status_patch, "Synced")
    assert waits["message"] == "spec.replicas is 1, and no broker says what the last of 3 hold"


def test_the_voters_are_recorded_before_anything_is_made() -> None:
    fresh = cluster(status={"metaVoters": []})
    first = plan(fresh, cluster_observed(fresh, pods=()))
    assert first.steps == ()
    assert (first.status_patch or {})["metaVoters"] == ["east-0", "east-1", "east-2"]
    recorded = with_status(fresh, first)
    assert plan(recorded, cluster_observed(recorded, pods=())).steps != ()


GROUPS = (
    GroupView("a", leader="east-0", replicas=3),
    GroupView("b", leader="east-0", replicas=3),
    GroupView("c", leader="east-2", replicas=3),
)


def rolled(pods_now: Any, groups: Any = GROUPS, moving: tuple[BrokersMove, ...] = ()) -> Plan:
    resource, observed = running(cluster())
    stateful_set: Any = observed.objects[("StatefulSet", "east")]
    stateful_set["status"]["updateRevision"] = "r2"
    changes: dict[str, Any] = {"pods": pods_now, "groups": groups, "moving": moving}
    return plan(resource, cluster_observed(resource, objects=observed.objects, **changes))


@pytest.mark.covers("OP-3")
def test_brokers_are_restarted_one_by_one_the_busiest_leader_last() -> None:
    one, two, three = pods()
    new: dict[str, Any] = {"revision": "r2"}
    for there, expected in (
        ((one, two, three), "east-1"),
        ((one, pods(**new)[1], three), "east-2"),
        ((one, *pods(**new)[1:]), "east-0"),
    ):
        (step,) = rolled(there).steps
        assert isinstance(step, DeleteObject)
        assert (step.kind, step.name, step.uid) == ("Pod", expected, f"uid-{expected}")
    assert rolled(pods(revision="r2")).steps == ()


@pytest.mark.covers("OP-3")
@pytest.mark.parametrize(
    ("there", "groups", "why"),
    [
        ((*pods()[:2], pods(ready=False, revision="r2")[2]), GROUPS, "east-2 must be ready first"),
        ((*pods()[:2], pods(terminating=True)[2]), GROUPS, "is being restarted"),
        (pods()[:2], GROUPS, "is being restarted"),
        (pods(), None, "no broker tells"),
        (pods(), (GroupView("a", "east-0", behind=("east-1",)),), "a (east-1)"),
        (pods(), (GroupView("a", ""),), "without a leader: a"),
    ],
)
def test_a_restart_waits_while_it_could_cost_a_majority(there: Any, groups: Any, why: str) -> None:
    planned = rolled(there, groups)
    assert planned.steps == ()
    assert why in condition(planned.status_patch, "Synced")["message"]
    assert planned.recheck_after_ms == 1_000


@pytest.mark.covers("OP-3")
@pytest.mark.parametrize(
    "seen", [{}, {"updateRevision": "r1"}, {"updateRevision": "r1", "observedGeneration": 1}]
)
def test_a_cluster_is_not_synced_before_the_controller_of_its_stateful_set_has_seen_the_change(
    seen: dict[str, Any],
) -> None:
    resource, observed = running(cluster())
    stateful_set: Any = observed.objects[("StatefulSet", "east")]
    stateful_set["metadata"]["generation"] = 2
    stateful_set["status"] = seen
    planned = plan(resource, observed)
    assert planned.steps == ()
    synced = condition(planned.status_patch, "Synced")
    assert (synced["status"], synced["reason"]) == ("False", "RollingOut")
    assert "has yet to take over" in synced["message"]
    assert planned.recheck_after_ms == 1_000


@pytest.mark.covers("OP-3")
def test_a_cluster_is_not_synced_while_the_last_pod_of_an_old_revision_is_going() -> None:
    there = (pods(terminating=True)[0], *pods(revision="r2")[1:])
    planned = rolled(there)
    assert planned.steps == ()
    synced = condition(planned.status_patch, "Synced")
    assert (synced["status"], synced["reason"], synced["message"]) == (
        "False",
        "RollingOut",
        "a broker is being restarted",
    )
    assert rolled(pods(revision="r2")).recheck_after_ms is None


def moving(*nodes: str, minutes: float = 5) -> BrokersMove:
    return BrokersMove("m", "orders", frozenset(nodes), NOW - timedelta(minutes=minutes))


@pytest.mark.covers("OP-3", "MV-13")
def test_a_restart_waits_for_moves_that_its_broker_has_a_part_in_and_not_for_ever() -> None:
    (step,) = rolled(pods(), moving=(moving("east-1", "west-0"),)).steps
    assert isinstance(step, DeleteObject)
    assert step.name == "east-2", "a broker without a part in the move comes first"
    everywhere = ("east-0", "east-1", "east-2", "west-0")
    waiting = rolled(pods(), moving=(moving(*everywhere, minutes=29),))
    assert waiting.steps == ()
    synced = condition(waiting.status_patch, "Synced")
    assert (synced["reason"], waiting.recheck_after_ms) == ("RollingOut", 1_000)
    assert synced["message"] == (
        "streams move and are waited for, 30 minutes at most: orders (east-0), orders (east-1), orders (east-2)"
    )
    assert rolled(pods(), moving=(moving(*everywhere, minutes=30),)).steps != ()
    broken = pods(ready=False, running=False)
    assert rolled(broken, moving=(moving(*everywhere),)).steps != (), (
        "a broker that can't run holds nothing up"
    )


@pytest.mark.covers("OP-3")
def test_clusters_of_one_super_cluster_are_restarted_one_after_the_other() -> None:
    resource, observed = running(cluster())
    stateful_set: Any = observed.objects[("StatefulSet", "east")]
    stateful_set["status"]["updateRevision"] = "r2"
    found: dict[str, Any] = {"objects": observed.objects, "groups": GROUPS, "rolling": ("central",)}
    waiting = plan(resource, cluster_observed(resource, **found))
    assert waiting.steps == ()
    assert "Cluster central restarts" in condition(waiting.status_patch, "Synced")["message"]
    assert waiting.recheck_after_ms == 1_000
    stuck = pods(ready=False, running=False)
    assert plan(resource, cluster_observed(resource, **found, pods=stuck)).steps != ()


@pytest.mark.covers("OP-3")
def test_another_cluster_that_comes_restarts_nobody() -> None:
    resource, observed = running(cluster())
    siblings = (resource, cluster("west"))
    (step,) = plan(resource, cluster_observed(resource, objects=observed.objects, siblings=siblings)).steps
    assert isinstance(step, Apply)
    assert step.manifest["kind"] == "ConfigMap"
    assert "west-0.west-brokers" in step.manifest["data"]["broker.json"]


def test_a_broker_that_can_not_run_is_restarted_at_once() -> None:
    stuck = pods(ready=False, running=False)
    (step,) = rolled(stuck, None).steps
    assert isinstance(step, DeleteObject)


@pytest.mark.covers("OP-5")
def test_a_deleted_cluster_keeps_its_volumes_by_default() -> None:
    resource = cluster(meta=DELETED)
    claims = (ClaimView("data-east-0", "u0"),)
    (step,) = plan(resource, cluster_observed(resource, claims=claims)).steps
    assert isinstance(step, SetFinalizers)
    assert step.finalizers == ()
    assert step.note is not None
    assert "data-east-0" in step.note.message


@pytest.mark.covers("OP-5")
def test_delete_removes_brokers_then_volumes_then_the_resource() -> None:
    resource = cluster(meta=DELETED, deletionPolicy="Delete")
    objects = applied(manifests_of(cluster()))
    claims = (ClaimView("data-east-0", "u0"),)
    (first,) = plan(resource, cluster_observed(resource, objects=objects, claims=claims)).steps
    assert isinstance(first, DeleteObject)
    assert first.kind == "StatefulSet"
    assert plan(resource, cluster_observed(resource, claims=claims)).steps == ()
    (second,) = plan(resource, cluster_observed(resource, claims=claims, pods=())).steps
    assert isinstance(second, DeleteObject)
    assert (second.kind, second.name) == ("PersistentVolumeClaim", "data-east-0")
    (third,) = plan(resource, cluster_observed(resource, pods=())).steps
    assert isinstance(third, SetFinalizers)


@pytest.mark.covers("OP-5")
def test_a_cluster_waits_for_streams_that_leave_with_it() -> None:
    resource = cluster(meta=DELETED)
    leaving = stream(meta=DELETED)
    waiting = plan(resource, cluster_observed(resource, streams=(leaving,)))
    assert waiting.steps == ()
    assert condition(waiting.status_patch, "Ready")["reason"] == "StreamsRemain"
    assert plan(resource, cluster_observed(resource, streams=(stream(),))).steps != ()


def look(resource: SuperCluster, **changes: Any) -> Plan:
    found: dict[str, Any] = {"credentials": credentials(), "clusters": (cluster(),), **changes}
    return plan_super_cluster(resource, SuperClusterObserved(**found), NOW)


def test_credentials_are_made_once_and_repaired_when_a_user_is_missing() -> None:
    (step,) = look(super_cluster(), credentials=None).steps
    assert isinstance(step, MakeCredentials)
    assert step.missing == ("application", "operator", "route", "gateway")
    assert step.manifest["metadata"]["name"] == naming.credentials_secret("demo")
    half = CredentialsView({"app": "one"}, frozenset(), has_route=True, has_gateway=True)
    (repair,) = look(super_cluster(), credentials=half).steps
    assert isinstance(repair, MakeCredentials)
    assert repair.missing == ("operator",)
    assert repair.note is not None
    assert repair.note.reason == EventReason.DRIFT_REPAIRED


@pytest.mark.covers("CL-3")
def test_the_credentials_of_gateways_are_added_to_a_secret_of_an_older_operator() -> None:
    older = CredentialsView({"app": "one", "operator": "two"}, frozenset({"operator"}), has_route=True)
    (step,) = look(super_cluster(), credentials=older).steps
    assert isinstance(step, MakeCredentials)
    assert step.missing == ("gateway",)


def test_a_super_cluster_is_ready_when_all_its_clusters_are() -> None:
    ready: Any = {"readyReplicas": 3, "conditions": [{"type": "Ready", "status": "True", "reason": "x"}]}
    east, west = cluster(status=ready), cluster("west", status={"readyReplicas": 1})
    half = look(super_cluster(), clusters=(east, west))
    told = condition(half.status_patch, "Ready")
    assert (told["status"], told["reason"]) == ("False", "MembersStarting")
    assert told["message"] == "Cluster west has 1 of 3 brokers ready"
    whole = look(super_cluster(), clusters=(east, cluster("west", status=ready)))
    assert condition(whole.status_patch, "Ready")["message"] == "Clusters east, west are ready"
    (step,) = whole.steps
    assert isinstance(step, Apply)
    urls = b64decode(step.manifest["data"]["urls"])
    assert urls == b"nats://east.demo-ns.svc:4222,nats://west.demo-ns.svc:4222"
    assert b64decode(step.manifest["data"]["url"]) == b"nats://east.demo-ns.svc:4222"


def test_applications_get_a_secret_with_user_password_and_url() -> None:
    (step,) = look(super_cluster()).steps
    assert isinstance(step, Apply)
    assert step.manifest["metadata"]["name"] == "demo-client"
    assert sorted(step.manifest["data"]) == ["password", "url", "urls", "user"]


def test_passwords_are_in_no_text_that_could_be_logged() -> None:
    (step,) = look(super_cluster()).steps
    secret = "one"
    assert secret not in str(step)
    assert secret not in repr(credentials())
    planned = look(super_cluster())
    assert f"'{secret}'" not in repr(planned.status_patch)


@pytest.mark.covers("OP-2")
def test_a_converged_super_cluster_gives_an_empty_plan() -> None:
    ready = cluster(
        status={
            "readyReplicas": 3,
            "conditions": [{"type": "Ready", "status": "True", "reason": "BrokersReady"}],
        }
    )
    (step,) = look(super_cluster(), clusters=(ready,)).steps
    assert isinstance(step, Apply)
    there: dict[str, Any] = {"clusters": (ready,), "client_secret": step.manifest}
    resource = with_status(super_cluster(), look(super_cluster(), **there))
    assert look(resource, **there).is_empty
    assert resource.status.identity == "uid-demo"
    assert condition(resource.to_object()["status"], "Ready")["status"] == "True"


@pytest.mark.covers("OP-5")
def test_a_super_cluster_stays_until_its_clusters_are_gone() -> None:
    resource = super_cluster(meta=DELETED)
    waiting = look(resource)
    assert waiting.steps == ()
    assert "east" in condition(waiting.status_patch, "Ready")["message"]
    assert look(resource, clusters=()).steps == (SetFinalizers((), "7"),)
    assert FINALIZER in resource.metadata.finalizers


def test_a_broker_that_does_not_start_is_told_with_its_last_words() -> None:
    first, *rest = pods(ready=False)
    first = replace(first, trouble="ended with exit code 4: the disk is another's")
    desired = cluster()
    plan = plan_cluster(desired, cluster_observed(desired, pods=(first, *rest)), DEFAULTS, NOW)
    message = condition(plan.status_patch, "Ready")["message"]
    assert message == "0 of 3 brokers ready; east-0: ended with exit code 4: the disk is another's"
