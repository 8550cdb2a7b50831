"""Answers as tables, which `kubectl get` prints: columns of built-in kinds and of custom resources."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from supercluster.localplane.apiserver.storage.registry import Resource
from supercluster.localplane.apiserver.storage.selectors import at
from supercluster.localplane.json_data import Json

Cell = Callable[[Json], Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, how a cell is made, and whether only `-o wide` shows it."""

    name: str
    cell: Cell
    kind: str = "string"
    wide: bool = False
    description: str = ""

    def definition(self) -> Json:
        return {
            "name": self.name,
            "type": self.kind,
            "format": "name" if self.name == "Name" else "",
            "description": self.description,
            "priority": 1 if self.wide else 0,
        }


def age(moment: str | None, now: dt.datetime) -> str:
    """How long ago, as kubectl says it: 5s, 3m20s, 2h5m, 4d, 2y30d."""
    if not moment:
        return "<unknown>"
    try:
        then = dt.datetime.fromisoformat(moment)
    except ValueError:
        return "<invalid>"
    seconds = int((now - then).total_seconds())
    if seconds < 0:
        return "0s"
    return _duration(seconds)


def _duration(seconds: int) -> str:
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        rest = seconds % 60
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        rest = hours % 24
        return f"{days}d{rest}h" if rest else f"{days}d"
    if days < 730:
        return f"{days}d"
    return f"{days // 365}y{days % 365}d"


def _shown(path: str, default: Any = "<none>") -> Cell:
    return lambda obj: at(obj, path, default)


def _joined(values: list[Any]) -> str:
    return ",".join(str(value) for value in values) or "<none>"


def _labels(path: str) -> Cell:
    return lambda obj: _joined([f"{key}={value}" for key, value in sorted(at(obj, path, {}).items())])


def _containers(path: str, field: str) -> Cell:
    return lambda obj: _joined([item.get(field) for item in at(obj, path, [])])


def _pod_ready(obj: Json) -> str:
    statuses = at(obj, "status.containerStatuses", [])
    ready = sum(1 for item in statuses if item.get("ready"))
    return f"{ready}/{len(at(obj, 'spec.containers', []))}"


def _pod_status(obj: Json) -> str:
    shown = at(obj, "status.reason") or at(obj, "status.phase", "Unknown")
    for item in at(obj, "status.containerStatuses", []):
        state = item.get("state") or {}
        for name in ("waiting", "terminated"):
            inner = state.get(name)
            if isinstance(inner, dict):
                reason = inner.get("reason")
                shown = reason or (f"ExitCode:{inner.get('exitCode')}" if name == "terminated" else shown)
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str(shown)


def _pod_restarts(obj: Json) -> str:
    return str(sum(item.get("restartCount", 0) for item in at(obj, "status.containerStatuses", [])))


def _node_status(obj: Json) -> str:
    ready = next((item for item in at(obj, "status.conditions", []) if item.get("type") == "Ready"), None)
    shown = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return shown + (",SchedulingDisabled" if at(obj, "spec.unschedulable") else "")


def _node_roles(obj: Json) -> str:
    prefix = "node-role.kubernetes.io/"
    return _joined(
        [key[len(prefix) :] for key in sorted(at(obj, "metadata.labels", {})) if key.startswith(prefix)]
    )


def _node_address(kind: str) -> Cell:
    return lambda obj: next(
        (item["address"] for item in at(obj, "status.addresses", []) if item.get("type") == kind), "<none>"
    )


def _ports(obj: Json) -> str:
    told = []
    for port in at(obj, "spec.ports", []):
        outside = f":{port['nodePort']}" if port.get("nodePort") else ""
        told.append(f"{port.get('port')}{outside}/{port.get('protocol')}")
    return _joined(told)


def _endpoints(obj: Json) -> str:
    told = [
        f"{address.get('ip')}:{port.get('port')}"
        for subset in obj.get("subsets") or []
        for address in subset.get("addresses") or []
        for port in subset.get("ports") or [{}]
    ]
    return _joined(told[:3]) + (f" + {len(told) - 3} more..." if len(told) > 3 else "")


def _ready(obj: Json) -> str:
    return f"{at(obj, 'status.readyReplicas', 0)}/{at(obj, 'spec.replicas', 0)}"


def _completions(obj: Json) -> str:
    return f"{at(obj, 'status.succeeded', 0)}/{at(obj, 'spec.completions', 1)}"


def _job_status(obj: Json) -> str:
    for item in at(obj, "status.conditions", []):
        if item.get("status") == "True" and item.get("type") in ("Complete", "Failed", "Suspended"):
            return str(item["type"])
    return "Running"


def _data_count(obj: Json) -> int:
    return len(obj.get("data") or {}) + len(obj.get("binaryData") or {})


def _event_object(obj: Json) -> str:
    return f"{str(at(obj, 'involvedObject.kind', '')).lower()}/{at(obj, 'involvedObject.name', '')}"


_SELECTOR = Column("Selector", _labels("spec.selector.matchLabels"), wide=True)
_CONTAINERS = "spec.template.spec.containers"
_IMAGES = [
    Column("Containers", _containers(_CONTAINERS, "name"), wide=True),
    Column("Images", _containers(_CONTAINERS, "image"), wide=True),
]
# The columns of built-in kinds; those for -o wide come after the age.
_BUILT_IN: dict[tuple[str, str], list[Column]] = {
    ("", "pods"): [
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _pod_restarts),
        Column("IP", _shown("status.podIP"), wide=True),
        Column("Node", _shown("spec.nodeName"), wide=True),
    ],
    ("", "services"): [
        Column("Type", _shown("spec.type")),
        Column("Cluster-IP", _shown("spec.clusterIP")),
        Column("External-IP", lambda obj: at(obj, "spec.externalName", "<none>")),
        Column("Port(s)", _ports),
        Column("Selector", _labels("spec.selector"), wide=True),
    ],
    ("", "endpoints"): [Column("Endpoints", _endpoints)],
    ("", "namespaces"): [Column("Status", _shown("status.phase"))],
    ("", "nodes"): [
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        Column("Version", _shown("status.nodeInfo.kubeletVersion")),
        Column("Internal-IP", _node_address("InternalIP"), wide=True),
        Column(
            "Zone",
            lambda obj: at(obj, "metadata.labels", {}).get("topology.kubernetes.io/zone", ""),
            wide=True,
        ),
    ],
    ("", "configmaps"): [Column("Data", _data_count)],
    ("", "secrets"): [Column("Type", _shown("type")), Column("Data", _data_count)],
    ("", "persistentvolumeclaims"): [
        Column("Status", _shown("status.phase")),
        Column("Volume", _shown("spec.volumeName", "")),
        Column("Capacity", _shown("status.capacity.storage", "")),
        Column("Access Modes", lambda obj: _joined(at(obj, "status.accessModes", []))),
        Column("StorageClass", _shown("spec.storageClassName", "")),
    ],
    ("", "persistentvolumes"): [
        Column("Capacity", _shown("spec.capacity.storage", "")),
        Column("Reclaim Policy", _shown("spec.persistentVolumeReclaimPolicy")),
        Column("Status", _shown("status.phase")),
        Column(
            "Claim",
            lambda obj: f"{at(obj, 'spec.claimRef.namespace', '')}/{at(obj, 'spec.claimRef.name', '')}",
        ),
    ],
    ("apps", "statefulsets"): [Column("Ready", _ready), *_IMAGES],
    ("apps", "deployments"): [
        Column("Ready", _ready),
        Column("Up-to-date", _shown("status.updatedReplicas", 0), kind="integer"),
        Column("Available", _shown("status.availableReplicas", 0), kind="integer"),
        *_IMAGES,
        _SELECTOR,
    ],
    ("apps", "replicasets"): [
        Column("Desired", _shown("spec.replicas", 0), kind="integer"),
        Column("Current", _shown("status.replicas", 0), kind="integer"),
        Column("Ready", _shown("status.readyReplicas", 0), kind="integer"),
        *_IMAGES,
        _SELECTOR,
    ],
    ("apps", "controllerrevisions"): [
        Column(
            "Controller",
            lambda obj: _joined([item["name"] for item in at(obj, "metadata.ownerReferences", [])]),
        ),
        Column("Revision", _shown("revision", 0), kind="integer"),
    ],
    ("batch", "jobs"): [Column("Status", _job_status), Column("Completions", _completions), *_IMAGES],
    ("batch", "cronjobs"): [
        Column("Schedule", _shown("spec.schedule")),
        Column("Suspend", lambda obj: str(at(obj, "spec.suspend", False)).title()),
        Column("Active", lambda obj: len(at(obj, "status.active", [])), kind="integer"),
    ],
    ("policy", "poddisruptionbudgets"): [
        Column("Min Available", _shown("spec.minAvailable", "N/A")),
        Column("Max Unavailable", _shown("spec.maxUnavailable", "N/A")),
        Column("Allowed Disruptions", _shown("status.disruptionsAllowed", 0), kind="integer"),
    ],
    ("coordination.k8s.io", "leases"): [Column("Holder", _shown("spec.holderIdentity", ""))],
    ("apiextensions.k8s.io", "customresourcedefinitions"): [],
}


def _event_columns(now: dt.datetime) -> list[Column]:
    return [
        Column("Last Seen", lambda obj: age(obj.get("lastTimestamp") or obj.get("eventTime"), now)),
        Column("Type", _shown("type", "")),
        Column("Reason", _shown("reason", "")),
        Column("Object", _event_object),
        Column("Message", lambda obj: str(at(obj, "message", "")).strip()),
    ]


_STEP = re.compile(
    r"\.([^.\[\]]+)|\['([^']*)'\]|\[(\d+)\]|\[\?\(@\.([A-Za-z0-9_.]+)\s*==\s*['\"]([^'\"]*)['\"]\)\]|\[(\*)\]"
)


def json_path(obj: Json, path: str) -> Any:
    """The first value at a printer column's JSON path (fields, indices, `[*]` and filters by equality)."""
    values: list[Any] = [obj]
    for field, quoted, index, key, wanted, star in _STEP.findall(path):
        name = field or quoted
        following: list[Any] = []
        for value in values:
            if name and isinstance(value, dict) and value.get(name) is not None:
                following.append(value[name])
            elif index and isinstance(value, list) and int(index) < len(value):
                following.append(value[int(index)])
            elif key and isinstance(value, list):
                following += [item for item in value if str(at(item, key)) == wanted]
            elif star and isinstance(value, list):
                following += value
        values = following
    if not values:
        return None
    return values[0] if len(values) == 1 else ",".join(str(value) for value in values)


def _custom_column(declared: Json, now: dt.datetime) -> Column:
    path, kind = declared["jsonPath"], declared["type"]

    def cell(obj: Json) -> Any:
        value = json_path(obj, path)
        if kind == "date":
            return age(value, now)
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if kind in ("integer", "number") and isinstance(value, int | float):
            return value
        return value if isinstance(value, str | int | float) else str(value)

    return Column(
        declared["name"],
        cell,
        kind=kind,
        wide=bool(declared.get("priority")),
        description=declared.get("description", ""),
    )


def columns_of(resource: Resource, now: dt.datetime) -> list[Column]:
    name = Column("Name", _shown("metadata.name"), description="Name must be unique within a namespace.")
    created = Column("Age", lambda obj: age(at(obj, "metadata.creationTimestamp"), now))
    if resource.crd_version is not None:
        declared = resource.crd_version.get("additionalPrinterColumns")
        if declared:
            return [name, *(_custom_column(item, now) for item in declared)]
        return [name, created]
    if resource.storage == ("", "events"):
        return _event_columns(now)
    if resource.storage == ("apiextensions.k8s.io", "customresourcedefinitions"):
        return [name, Column("Created At", _shown("metadata.creationTimestamp"), kind="date")]
    own = _BUILT_IN.get(resource.storage, [])
    shown = [column for column in own if not column.wide]
    wide = [column for column in own if column.wide]
    return [name, *shown, created, *wide]


def table(
    resource: Resource,
    items: list[Json],
    metadata: Json,
    now: dt.datetime,
    include: str,
    headers: bool = True,
) -> Json:
    """A Table of these objects; `include` is None, Metadata or Object."""
    columns = columns_of(resource, now)
    rows = []
    for item in items:
        row: Json = {"cells": [column.cell(item) for column in columns]}
        if include == "Object":
            row["object"] = item
        elif include != "None":
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": item["metadata"],
            }
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [column.definition() for column in columns] if headers else None,
        "rows": rows,
    }
