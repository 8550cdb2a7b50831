"""Resources and looks at the world for planner tests, as short as a test wants to read them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from supercluster.api import Cluster, Stream, StreamMove, SuperCluster
from supercluster.api.stream import ReplicaStatus
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.cluster.certificates import MarksView
from supercluster.reconcilers.planners.cluster.cluster_observed import ClusterObserved
from supercluster.reconcilers.planners.cluster.manifests import OperatorDefaults
from supercluster.reconcilers.planners.cluster.restart_order import BrokerReport, PodView, Reports
from supercluster.reconcilers.planners.founding import choose_meta_voters
from supercluster.reconcilers.planners.plan import FINALIZER, Plan
from supercluster.reconcilers.planners.stream.config import create_config
from supercluster.reconcilers.planners.stream.stream import BrokersView, StreamInfo, StreamObserved
from supercluster.reconcilers.planners.super_cluster.credentials import CredentialsView

_Json = TypeVar("_Json")
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DEFAULTS = OperatorDefaults(broker_image="supercluster/broker:test")
NAMESPACE = "demo-ns"
EAST = {"cluster": "east", "uid": "uid-east", "brokers": ["east-0", "east-1", "east-2"]}


def metadata(name: str, *, finalizer: bool = True, age: int = 0, **extra: Any) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-{name}",
        "generation": 1,
        "resourceVersion": "7",
        "creationTimestamp": f"2026-01-01T00:00:{59 - age:02d}Z",
        "finalizers": [FINALIZER] if finalizer else [],
        **extra,
    }


def super_cluster(
    name: str = "demo",
    /,
    meta: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> SuperCluster:
    stage = "Required" if "tls" in spec else "Off"
    known = {"tls": {"stage": stage, "previous": stage}, **(status or {"founder": EAST})}
    body = {"metadata": metadata(name, **(meta or {})), "spec": spec, "status": known}
    return SuperCluster.model_validate(body)


def cluster(
    name: str = "east",
    /,
    meta: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Cluster:
    return Cluster.model_validate(
        {
            "metadata": metadata(name, **(meta or {})),
            "spec": {"superCluster": "demo", **spec},
            "status": {"metaVoters": choose_meta_voters(name, spec.get("replicas", 3)), **(status or {})},
        }
    )


def stream(
    name: str = "flights",
    /,
    meta: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Stream:
    return Stream.model_validate(
        {
            "metadata": metadata(name, **(meta or {})),
            "spec": {"superCluster": "demo", "subjects": ["flights.>"], **spec},
            "status": status or {},
        }
    )


def stream_move(
    name: str = "move",
    /,
    meta: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    owned: bool = False,
    **spec: Any,
) -> StreamMove:
    """A move of Stream flights to west, or to so many `replicas`; `owned`: the Stream has made it for itself."""
    owners = [{"kind": "Stream", "name": "flights", "uid": "uid-flights"}] if owned else []
    whom = {} if "stream" in spec else {"streamRef": "flights"}
    goal = {} if "replicas" in spec else {"destination": {"cluster": "west"}}
    return StreamMove.model_validate(
        {
            "metadata": metadata(name, finalizer=False, ownerReferences=owners) | dict(meta or {}),
            "spec": {"superCluster": "demo", **goal, **whom, **spec},
            "status": status or {},
        }
    )


def credentials(user: str = "app") -> CredentialsView:
    return CredentialsView(
        {user: "one", "operator": "two"},
        frozenset({"operator"}),
        has_route=True,
        has_gateway=True,
        marks=MarksView(naming.labels("demo"), "uid-demo", uid="uid-demo-credentials"),
    )


def pods(cluster_name: str = "east", count: int = 3, **changes: Any) -> tuple[PodView, ...]:
    return tuple(
        PodView(
            **{
                "name": name,
                "uid": f"uid-{name}",
                "ready": True,
                "running": True,
                "revision": "r1",
                "ip": "127.77.0.1",
                **changes,
            }
        )
        for name in naming.brokers(cluster_name, count)
    )


def replicas(count: int = 3, leader: str = "east-0") -> tuple[ReplicaStatus, ...]:
    names = naming.brokers("east", count)
    return tuple(ReplicaStatus(name=name, leader=name == leader, current=True) for name in names)


def info_for(resource: Stream, **changes: Any) -> StreamInfo:
    """A healthy stream that is exactly as the resource wants it."""
    config = {**create_config(resource, "east"), **changes.pop("config", {})}
    count = resource.spec.replicas
    return StreamInfo(
        config=config, **{"leader": "east-0", "replicas": replicas(count), "last_sequence": 9, **changes}
    )


def stream_observed(info: StreamInfo | None = None, **changes: Any) -> StreamObserved:
    found: dict[str, Any] = {
        "super_cluster": super_cluster(),
        "clusters": (cluster(status={"replicas": 3}),),
        "brokers": BrokersView(reachable=True, error="", info=info),
    }
    return StreamObserved(**{**found, **changes})


def applied(objects: Any, *, revision: str = "r1") -> dict[tuple[str, str], dict[str, Any]]:
    """Manifests as Kubernetes shows them after they were applied, with a few defaults filled in."""
    there = {}
    for manifest in objects:
        body = clone(dict(manifest))
        body["metadata"] |= {"uid": f"uid-{body['metadata']['name']}", "generation": 1}
        if body["kind"] == "StatefulSet":
            body["status"] = {"updateRevision": revision, "observedGeneration": 1}
            body["spec"]["template"]["spec"]["restartPolicy"] = "Always"
            body["spec"]["revisionHistoryLimit"] = 10
        there[(body["kind"], body["metadata"]["name"])] = body
    return there


def reports(cluster_name: str = "east", count: int = 3, **leads: int) -> Reports:
    """Brokers that are well, and how many groups each of them leads (`east_0=2`); all of these could be led by others."""
    led = {name.replace("_", "-"): count for name, count in leads.items()}
    names = naming.brokers(cluster_name, count)
    return Reports({name: BrokerReport(led.get(name, 0), led.get(name, 0)) for name in names})


def cluster_observed(resource: Cluster, **changes: Any) -> ClusterObserved:
    found: dict[str, Any] = {
        "reports": reports(resource.metadata.name, resource.spec.replicas),
        "super_cluster": super_cluster(),
        "siblings": (resource,),
        "credentials_ready": True,
        "pods": pods(resource.metadata.name, resource.spec.replicas),
    }
    return ClusterObserved(**{**found, **changes})


def with_status(resource: Any, plan: Plan) -> Any:
    """The resource after the plan's status patch was written."""
    body = resource.to_object()
    body["status"] = merge(body.get("status", {}), plan.status_patch or {})
    return type(resource).model_validate(body)


def clone(value: _Json) -> _Json:
    """A deep copy of JSON data; `copy.deepcopy` takes several times as long."""
    if isinstance(value, dict):
        return cast("_Json", {key: clone(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return cast("_Json", type(value)(clone(item) for item in value))
    return value


def merge(old: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """JSON merge patch."""
    merged = dict(old)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def condition(status: Mapping[str, Any] | None, type_: str) -> Mapping[str, Any]:
    found = [c for c in (status or {}).get("conditions", []) if c["type"] == type_]
    assert len(found) == 1, f"{type_} should be said once: {status}"
    entry: Mapping[str, Any] = found[0]
    return entry
