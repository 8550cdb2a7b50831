"""The custom resource definitions: names, columns and versions around the models' schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from supercluster.api.cluster import CLUSTER_NAME_LENGTH_MAX, Cluster
from supercluster.api.common import GROUP, VERSION, Resource
from supercluster.api.migration import MIGRATION_NAME_LENGTH_MAX, Migration
from supercluster.api.replica_policy import ReplicaPolicy
from supercluster.api.schema import structural_schema
from supercluster.api.stream import Stream
from supercluster.api.stream_move import StreamMove
from supercluster.api.stream_pipeline import PIPELINE_NAME_LENGTH_MAX, StreamPipeline
from supercluster.api.super_cluster import SuperCluster
from supercluster.api.user import User

ResourceT = TypeVar("ResourceT", bound=Resource)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`; priority 1 shows with -o wide only."""

    name: str
    type: str
    json_path: str
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Scale:
    """Where `kubectl scale` finds and changes a resource's number."""

    wanted: str
    present: str
    selector: str = ""
    """Of the pods that it counts, as a HorizontalPodAutoscaler wants to know."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[ResourceT]):
    """A kind of custom resource, as its definition has it."""

    model: type[ResourceT]
    plural: str
    short_name: str
    columns: tuple[Column, ...]
    scale: Scale | None = None
    name_length_max: int | None = None
    """Bound of metadata.name below Kubernetes' own. Rules that read the name need one: their cost grows with its length."""
    child_label: str = ""
    """Names the resource that an object was made for. The operator watches only objects that also bear the super-cluster's label."""

    @property
    def name(self) -> str:
        return self.model.__name__

    @property
    def crd_name(self) -> str:
        return f"{self.plural}.{GROUP}"


def _condition(name: str, type_: str, field: str = "status", priority: int = 0) -> Column:
    return Column(name, "string", f'.status.conditions[?(@.type=="{type_}")].{field}', priority)


_AGE = Column("Age", "date", ".metadata.creationTimestamp")

# Not "all": `kubectl delete all --all` must not reach data.
CATEGORIES = ("streaming",)

SUPER_CLUSTER = Kind(
    SuperCluster,
    "superclusters",
    "scl",
    (
        _condition("Ready", "Ready"),
        _condition("Whole", "Whole"),
        _condition("Reason", "Whole", "reason"),
        Column("Streams", "integer", ".status.streams"),
        Column("Identity", "string", ".status.identity", 1),
        _AGE,
    ),
)

CLUSTER = Kind(
    Cluster,
    "clusters",
    "ncl",
    (
        Column("SuperCluster", "string", ".spec.superCluster"),
        Column("Brokers", "integer", ".spec.replicas"),
        Column("Available", "integer", ".status.readyReplicas"),
        _condition("Ready", "Ready"),
        _condition("Whole", "Whole"),
        _condition("Reason", "Whole", "reason"),
        _condition("Accepted", "Accepted", priority=1),
        Column("URL", "string", ".status.url", 1),
        _AGE,
    ),
    Scale(".spec.replicas", ".status.replicas", ".status.selector"),
    name_length_max=CLUSTER_NAME_LENGTH_MAX,
    child_label=f"{GROUP}/cluster",
)

STREAM = Kind(
    Stream,
    "streams",
    "str",
    (
        Column("Cluster", "string", ".status.cluster"),
        Column("Replicas", "integer", ".spec.replicas"),
        Column("Current", "integer", ".status.readyReplicas"),
        Column("Leader", "string", ".status.leader"),
        Column("Messages", "integer", ".status.messages"),
        Column("Counted", "date", ".status.figuresAt"),
        _condition("Ready", "Ready"),
        _condition("Whole", "Whole"),
        _condition("Reason", "Whole", "reason"),
        _condition("Accepted", "Accepted", priority=1),
        _condition("Synced", "Synced", priority=1),
        Column("LastSeq", "integer", ".status.lastSequence", 1),
        Column("Move", "string", ".status.move.phase", 1),
        _AGE,
    ),
    # status.replicas is the list of them.
    Scale(".spec.replicas", ".status.replication.desired"),
)

STREAM_MOVE = Kind(
    StreamMove,
    "streammoves",
    "smv",
    (
        Column("Stream", "string", ".status.streamName"),
        Column("From", "string", ".status.source"),
        Column("To", "string", ".status.destination"),
        Column("Phase", "string", ".status.phase"),
        Column("Copied", "string", ".status.percent"),
        Column("ETA", "integer", ".status.progress.etaSeconds"),
        Column("Stage", "string", ".status.progress.stage", 1),
        Column("Message", "string", ".status.message", 1),
        _AGE,
    ),
)

REPLICA_POLICY = Kind(
    ReplicaPolicy,
    "replicapolicies",
    "rpp",
    (
        Column("SuperCluster", "string", ".spec.superCluster"),
        Column("Weight", "integer", ".spec.weight"),
        Column("Minimum", "integer", ".spec.minReplicas"),
        Column("InForce", "integer", ".status.inForce"),
        Column("Below", "integer", ".status.belowMinimum"),
        Column("Repairing", "integer", ".status.repairing"),
        _condition("Accepted", "Accepted"),
        _condition("Ready", "Ready"),
        _condition("Whole", "Whole"),
        _AGE,
    ),
)

STREAM_PIPELINE = Kind(
    StreamPipeline,
    "streampipelines",
    "spl",
    (
        Column("SuperCluster", "string", ".spec.superCluster"),
        Column("Executors", "integer", ".status.executors"),
        Column("Failures", "integer", ".status.failures"),
        Column("Lag", "integer", ".status.progress.lag"),
        _condition("Ready", "Ready"),
        _condition("Whole", "Whole"),
        _condition("Reason", "Whole", "reason"),
        _condition("Accepted", "Accepted", priority=1),
        Column("Driver", "string", ".status.driver", 1),
        Column("Batch", "integer", ".status.progress.batch", 1),
        Column("Rows/s", "integer", ".status.progress.rowsPerSecond", 1),
        Column("Retention", "integer", ".status.progress.retentionSeconds", 1),
        Column("LastProgress", "date", ".status.progress.lastProgressTime", 1),
        Column("Schedule", "string", ".spec.schedule", 1),
        Column("LastRun", "date", ".status.lastScheduleTime", 1),
        _AGE,
    ),
    Scale(".spec.executors.count", ".status.executors"),
    name_length_max=PIPELINE_NAME_LENGTH_MAX,
    child_label=f"{GROUP}/stream-pipeline",
)

MIGRATION = Kind(
    Migration,
    "migrations",
    "mig",
    (
        Column("Phase", "string", ".status.phase"),
        Column("Streams", "integer", ".status.streams"),
        Column("OnGreen", "integer", ".status.onGreen"),
        Column("Stalled", "integer", ".status.stalledTotal"),
        Column("OnBlue", "integer", ".status.clients.stillOnBlue"),
        _condition("Ready", "Ready"),
        _condition("Reason", "Whole", "reason"),
        Column("LagMs", "integer", ".status.worstLag.milliseconds", 1),
        Column("Blue", "string", ".status.blue.name", 1),
        Column("Green", "string", ".status.green.name", 1),
        Column("Account", "string", ".spec.scope.account", 1),
        Column("Message", "string", ".status.message", 1),
        _AGE,
    ),
    name_length_max=MIGRATION_NAME_LENGTH_MAX,
)

USER = Kind(
    User,
    "users",
    "nu",
    (
        Column("SuperCluster", "string", ".spec.superCluster"),
        Column("Account", "string", ".spec.account"),
        Column("User", "string", ".status.user"),
        _condition("Ready", "Ready"),
        _condition("Reason", "Ready", "reason"),
        Column("Rotation", "string", ".status.rotation.stage"),
        Column("Former", "integer", ".status.rotation.connections"),
        Column("Connections", "integer", ".status.connections", 1),
        Column("Credential", "integer", ".status.credential", 1),
        Column("Since", "date", ".status.since", 1),
        Column("Secret", "string", ".status.secret", 1),
        _condition("Accepted", "Accepted", priority=1),
        _AGE,
    ),
    # It is the value of a label.
    name_length_max=63,
    child_label=f"{GROUP}/user",
)

KINDS: tuple[Kind[Any], ...] = (
    SUPER_CLUSTER,
    CLUSTER,
    STREAM,
    STREAM_MOVE,
    REPLICA_POLICY,
    STREAM_PIPELINE,
    MIGRATION,
    USER,
)


def definition(kind: Kind[Any]) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    schema = structural_schema(kind.model)
    properties = schema["properties"]
    # Kubernetes defines metadata itself; status carries no default, so that it is absent until observed.
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": _metadata(kind),
        "spec": properties["spec"],
        "status": {k: v for k, v in properties["status"].items() if k != "default"},
    }
    root = {
        "type": "object",
        "description": schema.get("description", ""),
        "required": ["spec"],
        "properties": properties,
    }
    if "x-kubernetes-validations" in schema:
        root["x-kubernetes-validations"] = schema["x-kubernetes-validations"]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.crd_name, "labels": {"app.kubernetes.io/part-of": "supercluster"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short_name],
                "categories": list(CATEGORIES),
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": _subresources(kind),
                    "additionalPrinterColumns": [_column(column) for column in kind.columns],
                    "schema": {"openAPIV3Schema": root},
                }
            ],
        },
    }


def _subresources(kind: Kind[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"status": {}}
    if kind.scale is not None:
        found["scale"] = {"specReplicasPath": kind.scale.wanted, "statusReplicasPath": kind.scale.present}
        if kind.scale.selector:
            found["scale"]["labelSelectorPath"] = kind.scale.selector
    return found


def _metadata(kind: Kind[Any]) -> dict[str, Any]:
    """The schema of metadata: bounds of the name.

    Kubernetes takes a declared length into its estimate of a rule's cost only where both names are declared.
    """
    if kind.name_length_max is None:
        return {"type": "object"}
    name = {"type": "string", "maxLength": kind.name_length_max}
    return {"type": "object", "properties": {"generateName": name, "name": dict(name)}}


def _column(column: Column) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.json_path}
    if column.priority:
        entry["priority"] = column.priority
    return entry


def definitions() -> list[dict[str, Any]]:
    """All definitions, as `kubectl apply` takes them."""
    return [definition(kind) for kind in KINDS]
