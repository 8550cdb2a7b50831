"""Plans for clusters and super-clusters: their objects, drift, roll-outs, deletion."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from datetime import datetime, timedelta
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
    reports,
    stream,
    super_cluster,
    with_status,
)

from supercluster.api import Cluster, SuperCluster
from supercluster.api.conditions import EventReason, Reason
from supercluster.broker.settings import reload, settings
from supercluster.reconcilers.observe.views import pod_view
from supercluster.reconcilers.planners.cluster.broker_config import BOUNDS, HOT, HOT_IN, broker_config
from supercluster.reconcilers.planners.cluster.cluster import OPEN_AFTER, plan_cluster
from supercluster.reconcilers.planners.cluster.cluster_observed import ClusterObserved
from supercluster.reconcilers.planners.cluster.restart_order import BrokerReport, GroupTrouble, Reports
from supercluster.reconcilers.planners.cluster.rollout_plan import HAND_OVER_RECHECK_MS
from supercluster.reconcilers.planners.cluster.volumes import ClaimView
from supercluster.reconcilers.planners.move.views import BrokersMove
from supercluster.reconcilers.planners.plan import (
    CLUSTER_ANNOTATION,
    FINALIZER,
    Apply,
    DeleteObject,
    Ground,
    HandOverLeaderships,
    Plan,
    SetFinalizers,
)
from supercluster.reconcilers.planners.super_cluster.super_cluster import (
    SuperClusterObserved,
    plan_super_cluster,
)

DELETED = {"deletionTimestamp": "2026-01-02T00:00:00Z"}


def plan(resource: Cluster, observed: ClusterObserved, now: datetime = NOW) -> Plan:
    return plan_cluster(resource, observed, DEFAULTS, now)


def manifests_of(resource: Cluster, **changes: Any) -> list[Any]:
    """Everything that is applied for a cluster that has nothing yet."""
    planned = plan(resource, cluster_observed(resource, objects={}, pods=(), **changes))
    return [step.manifest for step in planned.steps if isinstance(step, Apply)]


def running(resource: Cluster, **changes: Any) -> tuple[Cluster, ClusterObserved]:
    """A cluster that runs as it should, and what is seen of it."""
    objects = applied(manifests_of(resource))
    long_whole = with_status(resource, plan(resource, cluster_observed(resource, objects=objects, **changes)))
    assert isinstance(long_whole, Cluster)
    later = NOW + OPEN_AFTER
    opened = plan(long_whole, cluster_observed(long_whole, objects=objects, **changes), later).steps
    objects |= applied([step.manifest for step in opened if isinstance(step, Apply)])
    there = cluster_observed(resource, objects=objects, **changes)
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
    assert found["PodDisruptionBudget/east"]["spec"]["maxUnavailable"] == 0, "nothing is whole yet"
    assert found["StatefulSet/east"]["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert all(m["metadata"]["ownerReferences"] == [] for m in found.values()), (
        "nothing goes before its brokers"
    )
    assert all(m["metadata"]["annotations"][CLUSTER_ANNOTATION] == "uid-east" for m in found.values())
    assert all(
        port["protocol"] == "TCP"
        for name in ("east", "east-brokers")
        for port in found[f"Service/{name}"]["spec"]["ports"]
    )


@pytest.mark.parametrize(("cache", "quota_bytes"), [("2Gi", 2 << 30), ("1Mi", 32 << 20)])
def test_a_bulk_port_is_a_port_of_brokers_and_of_both_services(cache: str, quota_bytes: int) -> None:
    found = by_kind(manifests_of(cluster(ports={"bulk": 8333}, disk_limits={"bulkCache": cache})))
    config = json.loads(found["ConfigMap/east-config"]["data"]["broker.json"])
    assert config["bulk"] == {"port": 8333, "quotaBytes": quota_bytes}
    settings.parse(config)
    for name in ("east", "east-brokers"):
        ports = {port["name"]: port["port"] for port in found[f"Service/{name}"]["spec"]["ports"]}
        assert ports["bulk"] == 8333
    (container,) = found["StatefulSet/east"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "bulk", "containerPort": 8333, "protocol": "TCP"} in container["ports"]
    without = by_kind(manifests_of(cluster()))
    assert "bulk" not in json.loads(without["ConfigMap/east-config"]["data"]["broker.json"])


def test_brokers_are_told_who_they_are_with_and_where() -> None:
    config = json.loads(by_kind(manifests_of(cluster()))["ConfigMap/east-config"]["data"]["broker.json"])
    assert config["identity"] == "uid-demo"
    assert (config["superCluster"], config["cluster"]) == ("demo", "east")
    assert config["peers"]["east-1"] == "east-1.east-brokers.demo-ns.svc:6222"
    assert config["metaVoters"] == ["east-0", "east-1", "east-2"]
    assert config["limits"]["maxPayloadBytes"] == 1_048_576
    assert config["storage"]["syncIntervalMs"] == 1000
    assert config["raft"] == {"heartbeatMs": 100, "electionTimeoutMs": 500}


@pytest.mark.covers("SF-29")
@pytest.mark.parametrize(
    ("declared", "cpu"),
    [
        (None, "100m"),
        ({"requests": {"memory": "1Gi"}}, "100m"),
        ({"limits": {"memory": "1Gi"}}, "100m"),
        ({"requests": {"cpu": "2"}}, "2"),
        ({"requests": {"memory": "1Gi"}, "limits": {"cpu": "4"}}, None),
    ],
)
def test_no_broker_runs_at_the_lowest_share_of_processor_time(declared: Any, cpu: str | None) -> None:
    resource = cluster(**({"resources": declared} if declared else {}))
    (container,) = by_kind(manifests_of(resource))["StatefulSet/east"]["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["resources"]["requests"].get("cpu") == cpu


def test_where_the_platform_assigns_users_and_groups_pods_name_none() -> None:
    seen = cluster_observed(cluster(), objects={}, pods=())
    planned = plan_cluster(cluster(), seen, replace(DEFAULTS, fixed_ids=False), NOW)
    made = by_kind([step.manifest for step in planned.steps if isinstance(step, Apply)])
    security = made["StatefulSet/east"]["spec"]["template"]["spec"]["securityContext"]
    assert security["runAsNonRoot"] is True
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & security.keys()


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
        ({"diskLimits": {"segment": "1k"}}, "diskLimits.segment is 1k; it has to be from 64Ki to 2Gi"),
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


@pytest.mark.covers("BG-5")
def test_brokers_that_take_plain_clients_alone_tell_addresses() -> None:
    """Who uses TLS at blue is redirected to names, and to these with TLS. A green without TLS that told a name would be sent such clients,
    and refuse them: they stay at blue."""
    found = by_kind(manifests_of(cluster(), super_cluster=super_cluster()))
    among_brokers = by_kind(manifests_of(cluster(), super_cluster=super_cluster(tls={"issuer": "Secrets"})))
    for each in (found, among_brokers):
        assert "clientTls" not in json.loads(each["ConfigMap/east-config"]["data"]["broker.json"])
    (container,) = found["StatefulSet/east"]["spec"]["template"]["spec"]["containers"]
    environment = {each["name"]: each.get("valueFrom") for each in container["env"]}
    assert environment["POD_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert not {"--advertise", "--host"} & {*container["args"]}


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


LED = reports(east_0=2, east_2=1)
HANDED = Reports({name: BrokerReport(report.leads) for name, report in LED.brokers.items()})
SINCE = "2026-01-02T03:04:00Z"


def in_turn(broker: str, since: str = SINCE, revision: str = "r2") -> dict[str, Any]:
    return {"rollout": {"revision": revision, "updated": 0, "broker": broker, "since": since}}


def rolled(
    pods_now: Any,
    told: Reports | None = HANDED,
    moving: tuple[BrokersMove, ...] = (),
    status: dict[str, Any] | None = None,
    resource: Cluster | None = None,
    **changes: Any,
) -> Plan:
    """The next of a roll-out to revision r2, whose budget for evictions is closed already."""
    found, observed = running(resource or cluster())
    body = found.to_object()
    body["status"] |= status or {}
    found = Cluster.model_validate(body)
    stateful_set: Any = observed.objects[("StatefulSet", "east")]
    stateful_set["status"]["updateRevision"] = "r2"
    seen = cluster_observed(
        found, objects=observed.objects, pods=pods_now, reports=told, moving=moving, **changes
    )
    return beyond_the_budget(found, seen)


def beyond_the_budget(resource: Cluster, seen: ClusterObserved) -> Plan:
    """The plan once the budget for evictions is closed: that comes first, without a word."""
    planned = plan(resource, seen)
    first = planned.steps[0] if planned.steps else None
    if not isinstance(first, Apply):
        return planned
    assert first.manifest["kind"] == "PodDisruptionBudget"
    assert (first.manifest["spec"]["maxUnavailable"], first.note) == (0, None)
    return plan(resource, replace(seen, objects={**seen.objects, **applied([first.manifest])}))


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
def test_a_broker_hands_its_leaderships_over_before_it_is_restarted() -> None:
    there = (pods()[0], pods(revision="r2")[1], pods()[2])
    first = rolled(there, LED)
    (step,) = first.steps
    assert isinstance(step, HandOverLeaderships)
    assert (step.broker, step.avoid) == ("east-2", ("east-0",)), "east-0 is to be restarted itself"
    told = (first.status_patch or {})["rollout"]
    assert (told["broker"], told["revision"], told["updated"]) == ("east-2", "r2", 1)
    assert first.recheck_after_ms == HAND_OVER_RECHECK_MS
    leaving = replace(LED, brokers={**LED.brokers, "east-2": BrokerReport(1, 1, steps_aside=True)})
    waiting = rolled(there, leaving, status=in_turn("east-2"))
    assert waiting.steps == ()
    assert "on their way" in condition(waiting.status_patch, "Synced")["message"]
    (step,) = rolled(there, leaving, status=in_turn("east-2", "2026-01-02T03:03:35Z")).steps
    assert isinstance(step, DeleteObject), "not for ever: a lame duck hands over as well"
    assert "1 leaderships could not be handed over" in step.note.message if step.note else False
    (step,) = rolled(there, leaving, status=in_turn("east-0")).steps
    assert isinstance(step, HandOverLeaderships), "whoever asked it died before it was its turn"
    gone = replace(LED, brokers={**LED.brokers, "east-2": BrokerReport(0, 0, steps_aside=True)})
    (step,) = rolled(there, gone, status=in_turn("east-2")).steps
    assert isinstance(step, DeleteObject)


@pytest.mark.covers("OP-3")
def test_the_order_holds_while_leaders_move() -> None:
    """Whoever gets what others handed over, each broker is restarted once, as one that leads nothing, and what the last one
    leads goes to brokers that stay."""
    led = {"east-0": 4, "east-1": 4, "east-2": 4}
    revisions = dict.fromkeys(led, "r1")
    restarted: list[str] = []
    turn = ""
    for _ in range(20):
        there = tuple(replace(pod, revision=revisions[pod.name]) for pod in pods())
        told = Reports({name: BrokerReport(count, count) for name, count in led.items()})
        planned = rolled(there, told, status=in_turn(turn) if turn else None)
        if not planned.steps:
            break
        (step,) = planned.steps
        turn = step.broker if isinstance(step, HandOverLeaderships) else turn
        if isinstance(step, DeleteObject):
            assert led[step.name] == 0
            revisions[step.name] = "r2"
            restarted.append(step.name)
            continue
        assert isinstance(step, HandOverLeaderships)
        heirs = [name for name in led if name not in (step.broker, *step.avoid)] or list(step.avoid)
        for number in range(led[step.broker]):
            led[heirs[number % len(heirs)]] += 1
        led[step.broker] = 0
    assert sorted(restarted) == ["east-0", "east-1", "east-2"]
    assert sum(led.values()) == 12


def lacking(of: dict[str, str], leaderless: dict[str, int] | None = None) -> Reports:
    """What brokers say whose groups lack another one: `of` has leader → whom it lacks."""
    alone = leaderless or {}
    return Reports(
        {
            pod.name: BrokerReport(
                lacking=frozenset({of[pod.name]} if pod.name in of else ()), leaderless=alone.get(pod.name, 0)
            )
            for pod in pods()
        },
        behind=tuple(GroupTrouble("a", (whom,)) for whom in of.values()),
        leaderless=tuple(GroupTrouble("a") for _ in alone),
        unnamed=30,
    )


@pytest.mark.covers("OP-3", "OP-4")
def test_a_broker_that_is_all_that_anything_lacks_is_put_right_after_a_while() -> None:
    """Others refuse it for its version, say: it never catches up, and what would put it right is a restart."""
    since, lately = "2026-01-02T03:03:35Z", "2026-01-02T03:03:36Z"

    def next_of(told: Reports, waits: str = since, there: Any = None) -> list[str]:
        status = {"rollout": {"revision": "r2", "waitingSince": waits}}
        found = rolled(there or (pods()[0], *pods(revision="r2")[1:]), told, status=status)
        return [step.name for step in found.steps if isinstance(step, DeleteObject)]

    cut_off = lacking({"east-1": "east-0", "east-2": "east-0"}, {"east-0": 25})
    assert next_of(cut_off) == ["east-0"]
    assert next_of(cut_off, lately) == [], "it may only be catching up"
    assert next_of(cut_off, there=pods()) == ["east-0"], "before all others"
    assert next_of(lacking({"east-1": "east-2"})) == [], "that one has the new revision, and catches up"
    assert next_of(lacking({"east-1": "east-0", "east-2": "east-1"})) == [], "two lack something"
    assert next_of(lacking({"east-1": "east-0"}, {"east-2": 1})) == [], "another one misses a leader, too"
    silent = replace(cut_off, brokers={**cut_off.brokers, "east-1": BrokerReport()})
    assert next_of(silent) == [], "one of an older version does not say"


@pytest.mark.covers("OP-3")
@pytest.mark.parametrize(
    ("there", "told", "why"),
    [
        ((*pods()[:2], pods(ready=False, revision="r2")[2]), LED, "east-2 must be ready first"),
        ((*pods()[:2], pods(terminating=True)[2]), LED, "is being restarted"),
        (pods()[:2], LED, "is being restarted"),
        (pods(), None, "no broker tells"),
        (pods(), replace(LED, behind=(GroupTrouble("a", ("east-1",)),)), "a (east-1)"),
        (
            pods(),
            replace(LED, behind=(GroupTrouble("the map of streams", ("west-0",)),)),
            "the map of streams (west-0)",
        ),
        (pods(), replace(LED, leaderless=(GroupTrouble("a"),)), "without a leader: a"),
        (pods(), Reports({"east-0": BrokerReport()}), "no broker tells"),
    ],
)
def test_a_restart_waits_while_it_could_cost_a_majority(there: Any, told: Any, why: str) -> None:
    planned = rolled(there, told)
    assert planned.steps == ()
    assert why in condition(planned.status_patch, "Synced")["message"]
    assert planned.recheck_after_ms == 1_000


@pytest.mark.covers("OP-3")
def test_a_roll_out_ends_at_the_first_broker_that_does_not_come_up() -> None:
    broken = pods(ready=False, running=False, revision="r2", trouble="ErrImagePull: no such image")[1]
    there = (pods()[0], broken, pods()[2])
    stopped = rolled(there, status=in_turn("east-1"))
    assert stopped.steps == ()
    synced = condition(stopped.status_patch, "Synced")
    assert (synced["status"], synced["reason"]) == ("False", "RolloutStopped")
    assert "east-1 was restarted and does not come up: ErrImagePull: no such image" in synced["message"]
    assert "no other broker is restarted" in synced["message"]
    assert [note.warning for note in stopped.notes if note.reason == Reason.ROLLOUT_STOPPED] == [True]
    slow = (pods()[0], replace(broken, trouble=""), pods()[2])
    assert condition(rolled(slow, status=in_turn("east-1")).status_patch, "Synced")["reason"] == "RollingOut"
    late = rolled(slow, status=in_turn("east-1", "2026-01-02T02:54:00Z"))
    assert "it is not ready 10 min after its turn" in condition(late.status_patch, "Synced")["message"]
    # The spec is put right: another revision, of which the broken one is the first.
    (step,) = rolled((pods()[0], replace(broken, revision="bad"), pods()[2]), status=in_turn("east-1")).steps
    assert isinstance(step, DeleteObject)
    assert step.name == "east-1"


@pytest.mark.covers("OP-3")
def test_a_broker_that_runs_and_is_never_ready_is_put_right_by_another_revision() -> None:
    never = pods(ready=False, revision="bad")[1]
    (step,) = rolled((pods()[0], never, pods()[2]), status=in_turn("east-1")).steps
    assert isinstance(step, DeleteObject)
    assert step.name == "east-1"
    others = rolled((pods(ready=False)[0], never, pods()[2]), status=in_turn("east-1"))
    assert others.steps == (), "two that may be voting are not restarted"


@pytest.mark.covers("OP-3")
def test_a_supervised_restart_waits_for_approval_of_its_revision() -> None:
    supervised = cluster(rollout={"mode": "Supervised"})
    waiting = rolled(pods(), resource=supervised)
    assert waiting.steps == ()
    synced = condition(waiting.status_patch, "Synced")
    assert synced["reason"] == "AwaitingRestartApproval"
    assert "supercluster.dev/approve-restart=r2 to approve all" in synced["message"]
    assert "r2/east-1 to approve this one" in synced["message"]
    assert condition(waiting.status_patch, "Drainable")["status"] == "True"
    for approval, expected in (
        ("r2", "east-1"),
        ("r1, r2", "east-1"),
        ("r2/east-2", "east-2"),
        ("r1", ""),
        ("r1/east-1", ""),
    ):
        approved = cluster(
            meta={"annotations": {"supercluster.dev/approve-restart": approval}},
            rollout={"mode": "Supervised"},
        )
        steps = rolled(pods(), resource=approved).steps
        assert [step.name for step in steps if isinstance(step, DeleteObject)] == [expected] * bool(expected)
    broken = (pods()[0], pods(ready=False, running=False)[1], pods()[2])
    assert rolled(broken, resource=supervised).steps != (), "what does not run is put right without asking"


@pytest.mark.covers("OP-3")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"pods": (*pods()[:2], pods(ready=False)[2])}, "BrokersStarting"),
        ({"pods": pods()[:2]}, "BrokersStarting"),
        ({"reports": None}, "BrokersUnreachable"),
        (
            {"reports": replace(LED, behind=(GroupTrouble("a", ("east-1",), ("east-1",)),))},
            "ReplicasCatchingUp",
        ),
        ({"reports": replace(LED, leaderless=(GroupTrouble("a", (), ("east-1",)),))}, "ReplicasCatchingUp"),
        ({"reports": replace(LED, unnamed=1)}, "ReplicasCatchingUp"),
    ],
)
def test_no_broker_may_be_evicted_while_something_is_not_whole(changes: dict[str, Any], reason: str) -> None:
    resource, observed = running(cluster())
    closed = plan(resource, replace(observed, **changes))
    (step,) = closed.steps
    assert isinstance(step, Apply)
    assert (step.manifest["kind"], step.manifest["spec"]["maxUnavailable"]) == ("PodDisruptionBudget", 0)
    drainable = condition(closed.status_patch, "Drainable")
    assert (drainable["status"], drainable["reason"]) == ("False", reason)
    elsewhere = replace(LED, behind=(GroupTrouble("b", ("west-1",), ("west-0", "west-1")),))
    assert plan(resource, replace(observed, reports=elsewhere)).steps == ()


def test_brokers_are_fetched_with_the_operators_secrets() -> None:
    resource = cluster()
    observed = cluster_observed(resource, objects={}, pods=())
    for names in ((), ("one", "two")):
        steps = plan_cluster(resource, observed, replace(DEFAULTS, pull_secrets=names), NOW).steps
        (pod,) = [
            step.manifest["spec"]["template"]["spec"]
            for step in steps
            if isinstance(step, Apply) and step.manifest["kind"] == "StatefulSet"
        ]
        assert pod.get("imagePullSecrets", []) == [{"name": each} for each in names]
        assert ("imagePullSecrets" in pod) is bool(names), "pods of before stay as they are"


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "message": "pod has unbound claims"}
                ]
            },
            "BrokersUnschedulable",
            "east-2: pod has unbound claims",
        ),
        (
            {"containerStatuses": [{"restartCount": 3, "lastState": {"terminated": {"exitCode": 1}}}]},
            "BrokersCrashing",
            "east-2: ended with exit code 1",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "restartCount": 1,
                        "state": {"running": {}},
                        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                    }
                ]
            },
            "OutOfMemory",
            "east-2: ended with exit code 137 (OOMKilled)",
        ),
    ],
)
def test_a_broker_that_does_not_come_up_is_told_with_the_reason(
    status: dict[str, Any], reason: str, words: str
) -> None:
    """O21."""
    resource, observed = running(cluster())
    pod = pod_view({"metadata": {"name": "east-2", "uid": "u"}, "status": status})
    told = condition(plan(resource, replace(observed, pods=(*pods()[:2], pod))).status_patch, "Whole")
    assert (told["status"], told["reason"]) == ("False", reason)
    assert words in told["message"]


def test_a_cluster_serves_while_a_majority_of_its_brokers_does() -> None:
    resource, observed = running(cluster())
    for there, is_ready in ((pods(), "True"), (pods()[:2], "True"), (pods()[:1], "False")):
        patch = plan(resource, replace(observed, pods=there)).status_patch
        status = {**resource.status.to_object(), **(patch or {})}
        assert condition(status, "Ready")["status"] == is_ready
        assert condition(status, "Whole")["status"] == str(len(there) == 3)


def test_the_budget_is_closed_at_once_and_opened_when_all_was_whole_for_a_while() -> None:
    """O32: in a roll-out all is whole for moments, and each would be two writes."""
    resource, observed = running(cluster())
    away = replace(observed, pods=(*pods()[:2], pods(ready=False)[2]))
    broken = plan(resource, away)
    objects = {
        **observed.objects,
        **applied([step.manifest for step in broken.steps if isinstance(step, Apply)]),
    }
    resource = with_status(resource, broken)
    observed = replace(observed, objects=objects)
    for after in (timedelta(0), OPEN_AFTER / 2):
        whole = plan(resource, observed, NOW + after)
        assert whole.steps == ()
        assert whole.recheck_after_ms is not None, "nothing else wakes it"
        if whole.status_patch is not None:
            resource = with_status(resource, whole)
    (step,) = plan(resource, observed, NOW + OPEN_AFTER).steps
    assert isinstance(step, Apply)
    assert step.manifest["spec"]["maxUnavailable"] == 1


@pytest.mark.covers("OP-3")
def test_settings_that_brokers_take_over_while_running_restart_nobody() -> None:
    before = by_kind(manifests_of(cluster()))["StatefulSet/east"]
    hot = cluster(
        tags=["ssd"],
        limits={"maxPayload": "2Mi", "maxConnections": 9, "maxPending": "1Mi", "pingInterval": "1m"},
        diskLimits={"maxFile": "1Gi", "maxMemory": "1Gi"},
    )
    assert by_kind(manifests_of(hot))["StatefulSet/east"] == before
    cold = cluster(limits={"streamWindow": "2Mi"})
    assert by_kind(manifests_of(cold))["StatefulSet/east"] != before


@pytest.mark.covers("OP-3")
def test_what_restarts_nobody_is_what_brokers_take_over() -> None:
    """Both sides have the list; a field on ours alone would never come into force."""
    assert {settings.camel(name) for name in reload.HOT} == HOT
    taken = {settings.camel(section): names for section, names in reload.HOT_IN.items()}
    for section, names in HOT_IN.items():
        assert names <= {settings.camel(name) for name in taken[section]}


def test_the_status_has_the_labels_that_the_stateful_set_finds_its_brokers_by() -> None:
    """A HorizontalPodAutoscaler reads them from the scale subresource."""
    resource, observed = running(cluster())
    (broker_set,) = (found for (kind, _), found in observed.objects.items() if kind == "StatefulSet")
    labels: Any = broker_set["spec"]["selector"]["matchLabels"]
    assert resource.status.selector == ",".join(f"{key}={value}" for key, value in labels.items())


@pytest.mark.covers("OP-3")
def test_the_status_says_when_every_broker_has_taken_the_settings_over() -> None:
    resource, observed = running(cluster())
    digest = resource.status.settings
    assert digest is not None
    config: Any = observed.objects[("ConfigMap", "east-config")]
    assert digest == reload.digest_of(config["data"]["broker.json"].encode())
    taken = {name: BrokerReport(settings=digest) for name in LED.brokers}
    resource, observed = running(cluster(), reports=Reports(taken))
    assert condition(resource.to_object()["status"], "Synced")["status"] == "True"
    assert {broker.settings for broker in resource.status.brokers} == {digest}
    late = Reports({**taken, "east-1": BrokerReport(settings="older")})
    waiting = plan(resource, replace(observed, reports=late))
    synced = condition(waiting.status_patch, "Synced")
    assert (synced["reason"], waiting.recheck_after_ms) == ("SettingsPending", 1_000)
    assert "2 of 3 brokers have taken over the changed settings; not yet east-1" in synced["message"]
    bad = Reports({**taken, "east-1": BrokerReport(settings="older", refused="limits.maxPayloadBytes is 0")})
    synced = condition(plan(resource, replace(observed, reports=bad)).status_patch, "Synced")
    assert synced["reason"] == "SettingsRefused"
    assert "east-1 goes on with the settings of before: limits.maxPayloadBytes is 0" in synced["message"]


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
    planned = beyond_the_budget(resource, observed)
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


@pytest.mark.covers("OP-3", "CL-7")
def test_an_evicted_broker_is_no_roll_out() -> None:
    current = pods(revision="r2")
    evicted = rolled((*current[:2], pods(terminating=True, revision="r2")[2]))
    assert condition(evicted.status_patch, "Synced")["reason"] == "AsDeclared"
    drainable = condition(evicted.status_patch, "Drainable")
    assert (drainable["reason"], drainable["message"]) == ("BrokersStarting", "not ready: east-2")
    turn = rolled((*current[:2], pods(terminating=True, revision="r2")[2]), status=in_turn("east-2"))
    assert condition(turn.status_patch, "Synced")["reason"] == "RollingOut"


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
    waiting = rolled(pods(), rolling=("central",))
    assert waiting.steps == ()
    assert "Cluster central restarts" in condition(waiting.status_patch, "Synced")["message"]
    assert waiting.recheck_after_ms == 1_000
    assert rolled(pods(ready=False, running=False), rolling=("central",)).steps != ()


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
    claims = (ClaimView("data-east-0", "u0", super_cluster="demo", identity="uid-demo"),)
    objects = applied(manifests_of(cluster()))
    (first,) = plan(resource, cluster_observed(resource, objects=objects, claims=claims)).steps
    assert isinstance(first, DeleteObject)
    assert (first.kind, first.ground) == ("StatefulSet", Ground.BROKERS_PARTED)
    del objects["StatefulSet", "east"]
    ending = pods(terminating=True)
    waits = plan(resource, cluster_observed(resource, objects=objects, claims=claims, pods=ending))
    assert waits.steps == ()
    assert "east-0, east-1, east-2" in condition(waits.status_patch, "Ready")["message"]
    rest = plan(resource, cluster_observed(resource, objects=objects, claims=claims, pods=()))
    assert [(step.kind, step.ground) for step in rest.steps if isinstance(step, DeleteObject)] == [
        ("ConfigMap", Ground.BROKERS_GONE),
        ("PodDisruptionBudget", Ground.BROKERS_GONE),
        ("Service", Ground.BROKERS_GONE),
        ("Service", Ground.BROKERS_GONE),
    ]
    assert rest.in_a_row == 4
    (step,) = plan(resource, cluster_observed(resource, claims=claims, pods=())).steps
    assert isinstance(step, SetFinalizers)
    assert step.finalizers == ()
    assert step.note is not None
    assert "data-east-0" in step.note.message


@pytest.mark.covers("OP-5")
def test_delete_removes_brokers_then_volumes_then_the_resource() -> None:
    resource = cluster(meta=DELETED, deletionPolicy="Delete")
    objects = applied(manifests_of(cluster()))
    claims = (ClaimView("data-east-0", "u0", super_cluster="demo", identity="uid-demo"),)
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
    objects = applied(manifests_of(cluster()))
    assert plan(resource, cluster_observed(resource, objects=objects, streams=(stream(),))).steps != ()


@pytest.mark.covers("OP-5", "OP-6")
def test_the_last_clusters_wait_for_all_streams_that_are_being_deleted() -> None:
    """Streams are deleted by the map of streams, whose voters may be in another cluster than theirs."""
    resource, objects = cluster(meta=DELETED), applied(manifests_of(cluster()))
    elsewhere = stream(meta=DELETED, status={"cluster": "west"})

    def planned(west: Cluster) -> Plan:
        seen = cluster_observed(resource, objects=objects, streams=(elsewhere,), siblings=(resource, west))
        return plan(resource, seen)

    waits = planned(cluster("west", meta=DELETED))
    assert waits.steps == ()
    assert "flights" in condition(waits.status_patch, "Ready")["message"]
    assert planned(cluster("west")).steps != ()


def look(resource: SuperCluster, **changes: Any) -> Plan:
    found: dict[str, Any] = {"credentials": credentials(), "clusters": (cluster(),), **changes}
    return plan_super_cluster(resource, SuperClusterObserved(**found), NOW)


def test_a_super_cluster_is_ready_when_all_its_clusters_are() -> None:
    conditions = [{"type": type_, "status": "True", "reason": "x"} for type_ in ("Ready", "Whole")]
    ready: Any = {"readyReplicas": 3, "conditions": conditions}
    served: Any = {"readyReplicas": 2, "conditions": conditions[:1]}
    east, west = cluster(status=ready), cluster("west", status={"readyReplicas": 1})
    half = look(super_cluster(), clusters=(east, west))
    told = condition(half.status_patch, "Ready")
    assert (told["status"], told["reason"]) == ("False", "MembersStarting")
    assert told["message"] == "Cluster west has 1 of 3 brokers ready"
    half = look(super_cluster(), clusters=(east, cluster("west", status=served)))
    assert condition(half.status_patch, "Ready")["status"] == "True"
    told = condition(half.status_patch, "Whole")
    assert (told["status"], told["message"]) == ("False", "Cluster west has 2 of 3 brokers ready")
    whole = look(super_cluster(), clusters=(east, cluster("west", status=ready)))
    assert condition(whole.status_patch, "Whole")["status"] == "True"
    assert condition(whole.status_patch, "Ready")["message"] == "Clusters east, west are ready"
    (step,) = whole.steps
    assert isinstance(step, Apply)
    urls = b64decode(step.manifest["data"]["urls"])
    assert urls == b"nats://east.demo-ns.svc:4222,nats://west.demo-ns.svc:4222"
    assert b64decode(step.manifest["data"]["url"]) == b"nats://east.demo-ns.svc:4222"


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
    (secret,) = look(resource, clusters=()).steps
    assert isinstance(secret, DeleteObject)
    assert (secret.kind, secret.ground) == ("Secret", Ground.CREDENTIALS_UNUSED)
    ours = credentials()
    foreign = replace(ours, marks=replace(ours.marks, identity="another"))
    owned = replace(ours, marks=replace(ours.marks, owners=frozenset({"uid-demo"})))
    for there in (None, foreign, owned):
        assert look(resource, clusters=(), credentials=there).steps == (SetFinalizers((), "7"),)
    assert FINALIZER in resource.metadata.finalizers


def test_a_broker_that_does_not_start_is_told_with_its_last_words() -> None:
    first, *rest = pods(ready=False)
    first = replace(first, trouble="ended with exit code 4: the disk is another's")
    desired = cluster()
    plan = plan_cluster(desired, cluster_observed(desired, pods=(first, *rest)), DEFAULTS, NOW)
    message = condition(plan.status_patch, "Ready")["message"]
    assert message == "0 of 3 brokers ready; east-0: ended with exit code 4: the disk is another's"
