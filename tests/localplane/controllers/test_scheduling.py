"""Where pods go, and which endpoints services have."""

from __future__ import annotations

from typing import Any

import pytest

from supercluster.localplane.client import Json
from supercluster.localplane.controllers import endpoints
from supercluster.localplane.controllers.base import selects
from supercluster.localplane.controllers.scheduler import SELECTED_NODE, choose


def node(number: int, **spec: Any) -> Json:
    name = f"node-{number}"
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": "ab"[number % 2]}},
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


NODES = [node(1), node(2), node(3)]


def pod(name: str, on: int = 0, owner: str = "", **spec: Any) -> Json:
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": name,
            "labels": {"app": "x"},
            "ownerReferences": [{"uid": owner}] if owner else [],
        },
        "spec": {**({"nodeName": f"node-{on}"} if on else {}), **spec},
    }


def test_pods_of_one_owner_are_spread_by_default() -> None:
    placed = [pod("other", 2), pod("a", 1, owner="set")]
    assert choose(pod("b", owner="set"), NODES, placed, {}).node == "node-3"


def test_cordoned_unready_and_tainted_nodes_are_passed_over() -> None:
    unready = node(3)
    unready["status"]["conditions"][0]["status"] = "Unknown"
    tainted = node(4, taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    choice = choose(pod("p"), [node(2, unschedulable=True), unready, tainted], [], {})
    assert choice.node == ""
    assert choice.reason == (
        "0/3 nodes are available: 1 node(s) had untolerated taint {k: v}, 1 node(s) were not ready, "
        "1 node(s) were unschedulable."
    )
    tolerant = pod("p", tolerations=[{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}])
    assert choose(tolerant, [tainted], [], {}).node == "node-4"


def test_selectors_and_affinity_are_kept() -> None:
    assert choose(pod("p", nodeSelector={"kubernetes.io/hostname": "node-2"}), NODES, [], {}).node == "node-2"
    terms = {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["b"]}]}]
    }
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert choose(pod("p", affinity=required), NODES, [], {}).node == "node-2"


def test_a_claim_keeps_its_pod_on_its_node() -> None:
    volumes = [{"persistentVolumeClaim": {"claimName": "data"}}]
    claim = {"metadata": {"annotations": {SELECTED_NODE: "node-3"}}}
    assert choose(pod("p", volumes=volumes), NODES, [], {"data": claim}).node == "node-3"
    gone = choose(pod("p", volumes=volumes), NODES[:2], [], {"data": claim})
    assert "2 node(s) had volume node affinity conflict" in gone.reason
    assert choose(pod("p", volumes=volumes), NODES, [], {}).reason == 'persistentvolumeclaim "data" not found'


def test_required_anti_affinity_refuses_and_preferred_only_avoids() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}
    placed = [pod("a", 1), pod("b", 2)]
    required = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert choose(pod("p", affinity=required), NODES, placed, {}).node == ""
    wish = {"weight": 100, "podAffinityTerm": term}
    preferred = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
    assert choose(pod("p", affinity=preferred), NODES, [pod("a", 1)], {}).node == "node-2"


@pytest.mark.parametrize(("rule", "expected"), [("DoNotSchedule", ""), ("ScheduleAnyway", "node-2")])
def test_spread_constraints_count_domains(rule: str, expected: str) -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": rule,
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    placed = [pod("a", 1), pod("b", 3)]
    nodes = NODES if rule == "ScheduleAnyway" else [node(1), node(2, unschedulable=True), node(3)]
    assert choose(pod("p", topologySpreadConstraints=[spread]), nodes, placed, {}).node == expected


def test_label_selectors() -> None:
    labels = {"a": "1"}
    assert selects({}, labels)
    assert not selects(None, labels)
    assert selects({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}, labels)
    assert not selects({"matchLabels": {"a": "2"}}, labels)
    with pytest.raises(ValueError, match="'Near'"):
        selects({"matchExpressions": [{"key": "b", "operator": "Near"}]}, labels)


def running(name: str, address: str, *, ready: bool) -> Json:
    found = pod(name, 1)
    found["spec"]["containers"] = [{"ports": [{"name": "http", "containerPort": 8080}]}]
    state = "True" if ready else "False"
    found["status"] = {
        "phase": "Running",
        "podIP": address,
        "conditions": [{"type": "Ready", "status": state}],
    }
    return found


def test_endpoints_tell_ready_pods_from_others_and_resolve_named_ports() -> None:
    service = {
        "metadata": {"name": "s", "namespace": "ns"},
        "spec": {"selector": {"app": "x"}, "ports": [{"name": "web", "port": 80, "targetPort": "http"}]},
    }
    pods = endpoints.selected_pods(
        service,
        [running("b", "10.0.0.2", ready=False), running("a", "10.0.0.1", ready=True), pod("no-address")],
    )
    (subset,) = endpoints.subsets(service, pods)
    assert [one["ip"] for one in subset["addresses"]] == ["10.0.0.1"]
    assert [one["ip"] for one in subset["notReadyAddresses"]] == ["10.0.0.2"]
    assert subset["ports"] == [{"name": "web", "port": 8080, "protocol": "TCP"}]
    found, ports = endpoints.endpoints(service, pods)
    assert [one["conditions"]["ready"] for one in found] == [True, False]
    assert ports == [{"name": "web", "port": 8080, "protocol": "TCP"}]


def test_a_service_without_a_selector_has_no_pods_of_its_own() -> None:
    assert endpoints.selected_pods({"spec": {}}, [running("a", "10.0.0.1", ready=True)]) == []
