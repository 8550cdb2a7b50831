"""Cluster: brokers that run together, in one place, as one StatefulSet."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from supercluster.api.common import (
    ApiModel,
    CelRule,
    Conditions,
    DeletionPolicy,
    Resource,
    ShortText,
    Status,
    Time,
    between,
    immutable,
)
from supercluster.api.names import LabelName
from supercluster.api.units import Duration, Quantity, Size

BROKERS_MAX = 64
MIGRATION_PORT = 7223
CLUSTER_NAME_LENGTH_MAX = 40
"""Names of pods and Services are made from a Cluster's name; each of them is a DNS label of at most 63 characters."""
Port = Annotated[int, Field(ge=1, le=65535)]
LabelText = Annotated[str, StringConstraints(max_length=63)]


# Annotation of a Cluster whose rollout.mode is Supervised: approvals, separated by commas. A revision approves all restarts for
# it, <revision>/<broker> the one of that broker.
APPROVE_RESTART = "supercluster.dev/approve-restart"
# Annotation of a Cluster: `<revision>:<stream>,<stream>…`. The roll-out to that revision goes on without waiting until these
# streams are whole. It names the revision, so one that was left there releases nothing of the next.
RELEASE_RESTART = "supercluster.dev/release-restart"


class ResourceList(ApiModel):
    cpu: Quantity | None = Field(default=None, description="Processor time, such as 500m or 2.")
    memory: Quantity | None = Field(default=None, description="Memory, such as 512Mi.")


class Resources(ApiModel):
    """Kubernetes' requests and limits of the broker's container."""

    requests: ResourceList = Field(
        default=ResourceList(cpu="100m", memory="128Mi"),
        description="Resources that are reserved for a broker. Where neither request nor limit names processor time, 100m of it.",
    )
    limits: ResourceList | None = Field(default=None, description="The most that a broker may use.")


class VolumeSpec(ApiModel):
    """Where a broker keeps its streams."""

    type: Literal["PersistentVolumeClaim", "EmptyDir"] = Field(
        default="PersistentVolumeClaim",
        description="PersistentVolumeClaim survives the pod; EmptyDir is lost with it, and the broker that comes back is a "
        "new member that copies everything again.",
    )
    size: Size = Field(
        default="10Gi",
        description="Size of the volume claims. It can be raised where the storage class allows that; volumes never shrink.",
    )
    class_name: ShortText | None = Field(
        default=None, description="Storage class of the claim; unset is the default class."
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="self.type == 'PersistentVolumeClaim' || !has(self.className)",
            message="storage.className is for storage.type PersistentVolumeClaim; remove it or change the type",
            field_path=".className",
        ),
    )


class Ports(ApiModel):
    """Ports of a broker."""

    client: Port = Field(default=4222, description="NATS clients.")
    cluster: Port = Field(default=6222, description="Other brokers of the cluster.")
    gateway: Port = Field(default=7222, description="Brokers of the super-cluster's other clusters.")
    monitor: Port = Field(default=8222, description="Health, metrics, administration.")
    migration: Port | None = Field(
        default=None,
        description="Brokers of another super-cluster, which is migrated to this one. It is open while the SuperCluster's spec.migration says "
        "so. Unset is 7223, or the next number that is free.",
    )
    bulk: Port | None = Field(
        default=None,
        description="Spark, which reads streams here as columns. Unset: no such port, and Spark reads them over the clients' port. To set it "
        "or to take it away restarts the brokers, one at a time.",
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="[self.client, self.cluster, self.gateway, self.monitor].all(port, "
            "[self.client, self.cluster, self.gateway, self.monitor].exists_one(other, other == port))",
            message="ports.client, ports.cluster, ports.gateway and ports.monitor must be four different numbers",
        ),
        CelRule(
            rule="!has(self.migration) || ![self.client, self.cluster, self.gateway, self.monitor].exists(port, port == self.migration)",
            message="ports.migration must be another number than the other ports",
            field_path=".migration",
        ),
        CelRule(
            rule="!has(self.bulk) || (![self.client, self.cluster, self.gateway, self.monitor].exists(port, port == self.bulk) && "
            "(!has(self.migration) || self.migration != self.bulk))",
            message="ports.bulk must be another number than the other ports",
            field_path=".bulk",
        ),
    )

    @property
    def migration_port(self) -> int:
        taken = (self.client, self.cluster, self.gateway, self.monitor, self.bulk)
        return self.migration or next(
            port for port in range(MIGRATION_PORT, MIGRATION_PORT + 6) if port not in taken
        )


class ClientLimits(ApiModel):
    """Limits that brokers hold clients to."""

    max_payload: Size = Field(default="1Mi", description="Largest message.")
    max_connections: int = Field(
        default=65536, ge=1, le=1_000_000, description="Client connections per broker."
    )
    max_pending: Size = Field(
        default="64Mi", description="Bytes waiting for one client before it is cut off as a slow consumer."
    )
    ping_interval: Duration = Field(
        default="2m", description="How often an idle client is asked for a sign of life."
    )
    pings_out_max: int = Field(
        default=2, ge=1, le=10, description="Unanswered pings before a client is cut off."
    )
    stream_window: Size = Field(
        default="8Mi",
        description="Bytes of one stream that a broker holds until they are committed; when it is full the broker reads no "
        "more from that stream's publishers.",
    )
    stream_window_wait: Duration = Field(
        default="10s",
        description="How long a publish waits for a stream without a leader before it is refused.",
    )


class DiskLimits(ApiModel):
    """Limits of a broker's store."""

    max_file: Size = Field(
        default="0", description="Bytes of streams on disk; 0 is no limit but the volume's."
    )
    max_memory: Size = Field(default="0", description="Bytes of streams in memory; 0 is no limit.")
    segment: Size = Field(default="64Mi", description="Size at which a log segment is sealed.")
    bulk_cache: Size = Field(
        default="1Gi",
        description="Bytes on the volume for columns that ports.bulk has sent. They are made again where they are missing. "
        "Less than 32Mi counts as 32Mi.",
    )


class RaftTimings(ApiModel):
    """Timings of the replicated logs."""

    heartbeat: Duration = Field(default="100ms", description="Interval of heartbeats between two brokers.")
    election_timeout: Duration = Field(
        default="500ms", description="Silence after which followers elect another leader."
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="duration(self.electionTimeout) >= duration(self.heartbeat) + duration(self.heartbeat) + "
            "duration(self.heartbeat)",
            message="raft.electionTimeout must be at least three times raft.heartbeat, or one late heartbeat elects a leader",
            field_path=".electionTimeout",
        ),
        CelRule(
            rule="duration(self.heartbeat) >= duration('10ms') && duration(self.electionTimeout) <= duration('60s')",
            message="raft.heartbeat must be at least 10ms and raft.electionTimeout at most 60s",
        ),
    )


class Toleration(ApiModel):
    """A taint that the pods put up with, in Kubernetes' own form."""

    key: ShortText | None = Field(default=None, description="Key of the taint; unset matches all.")
    operator: Literal["Exists", "Equal"] = Field(default="Equal", description="How the value is compared.")
    value: LabelText | None = Field(default=None, description="Value of the taint.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the taint; unset matches all."
    )
    toleration_seconds: int | None = Field(default=None, ge=0, description="How long, for NoExecute.")


class PodSettings(ApiModel):
    """Where and how the pods run."""

    node_selector: dict[str, LabelText] | None = Field(
        default=None, description="Labels that a node must have.", max_length=16
    )
    tolerations: tuple[Toleration, ...] = Field(
        default=(), description="Taints to put up with.", max_length=16
    )
    labels: dict[str, LabelText] | None = Field(
        default=None, description="Further labels of the pods.", max_length=16
    )
    spread_key: ShortText = Field(
        default="topology.kubernetes.io/zone",
        description="Node label over whose values the brokers are spread as evenly as can be.",
    )
    priority_class_name: ShortText | None = Field(default=None, description="Priority class of the pods.")
    termination_grace_period_seconds: int = Field(
        default=60, ge=5, le=3600, description="Time to hand leaderships over and drain clients."
    )


class RolloutSpec(ApiModel):
    """How brokers are restarted to take over a change: one at a time over all Clusters of a super-cluster, those that lead the
    fewest streams first, each after its leaderships were handed over, and the next when all streams are whole again."""

    mode: Literal["Automatic", "Supervised"] = Field(
        default="Automatic",
        description="Supervised: every restart waits for a person, who approves it with the annotation "
        "supercluster.dev/approve-restart on the Cluster; the condition Synced has the words.",
    )
    restart_timeout: Duration = Field(
        default="10m",
        description="How long a restarted broker may take to come back (pulling an image, reading its volume) before the "
        "roll-out counts as stopped and its replicas as lost.",
    )
    wait_timeout: Duration = Field(
        default="15m",
        description="How long a roll-out waits for streams that are not whole, or for brokers that are away, before the condition "
        "Blocked names them, and what a person may do. It goes on waiting: only the annotation supercluster.dev/release-restart has "
        "it go on without streams, and nothing has it go on without a broker.",
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        between("restartTimeout", "10s", "24h", "rollout."),
        between("waitTimeout", "10s", "24h", "rollout."),
    )


# A Cluster of the same name would find the volumes of the former one.
_SECOND_CLUSTER = "create another Cluster with the new value, move the streams there (spec.placement.cluster of each Stream), and delete this one"


class ClusterSpec(ApiModel):
    """The desired state of a cluster."""

    super_cluster: LabelName = Field(description="Name of the SuperCluster, in the same namespace.")
    replicas: int = Field(
        default=3,
        ge=1,
        le=BROKERS_MAX,
        description="Number of brokers. With fewer than there are, those with the highest numbers hand their copies and votes "
        "over first and go then; where their copies would not fit elsewhere, nothing is begun and a condition says why.",
    )
    image: ShortText | None = Field(
        default=None, description="Image of the brokers; unset is the one of the operator's version."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        default="IfNotPresent", description="When the image is pulled."
    )
    resources: Resources = Field(default=Resources(), description="Requests and limits of a broker.")
    storage: VolumeSpec = Field(default=VolumeSpec(), description="Where a broker keeps its streams.")
    fsync_interval: Duration = Field(
        default="1s", description="How often streams with fsync Interval are made durable on each broker."
    )
    ports: Ports = Field(default=Ports(), description="Ports of a broker.")
    limits: ClientLimits = Field(default=ClientLimits(), description="Limits that clients are held to.")
    disk_limits: DiskLimits = Field(default=DiskLimits(), description="Limits of a broker's store.")
    raft: RaftTimings = Field(default=RaftTimings(), description="Timings of the replicated logs.")
    tags: tuple[LabelText, ...] = Field(
        default=(),
        max_length=16,
        description="Tags that a stream's placement can ask for.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    cordoned: tuple[LabelText, ...] = Field(
        default=(),
        max_length=BROKERS_MAX,
        description="Names of brokers that get no new copies of streams from any source; copies that they hold stay. The same applies to "
        "brokers whose Kubernetes node is cordoned.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    pod: PodSettings = Field(default=PodSettings(), description="Where and how the pods run.")
    rollout: RolloutSpec = Field(default=RolloutSpec(), description="How brokers are restarted.")
    deletion_policy: DeletionPolicy = Field(
        default="Retain",
        description="The fate of the volume claims when the Cluster is deleted, and of claims of brokers that were removed "
        "when replicas was lowered: Retain keeps them, Delete deletes them and every message on them.",
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        immutable(
            "superCluster", "create another Cluster there, and delete this one when no stream is left in it"
        ),
        CelRule(
            rule="self.storage.type == oldSelf.storage.type && has(self.storage.className) == has(oldSelf.storage.className) "
            "&& (!has(self.storage.className) || self.storage.className == oldSelf.storage.className)",
            message=f"spec.storage can't be changed, but for its size; {_SECOND_CLUSTER}",
            field_path=".storage",
        ),
        CelRule(
            rule="self.ports.client == oldSelf.ports.client && self.ports.cluster == oldSelf.ports.cluster && "
            "self.ports.gateway == oldSelf.ports.gateway && self.ports.monitor == oldSelf.ports.monitor",
            message=f"spec.ports can't be changed, but for ports.migration and ports.bulk; {_SECOND_CLUSTER}",
            field_path=".ports",
        ),
        between("fsyncInterval", "10ms", "60s", "spec."),
    )


class BrokerStatus(ApiModel):
    """One broker as it was last seen."""

    name: str = Field(description="Name of the pod.")
    node: str = Field(default="", description="Node that it runs on.")
    ready: bool = Field(default=False, description="Whether it takes clients.")
    restarts: int = Field(default=0, description="How often its container was started again.")
    settings: str | None = Field(
        default=None,
        description="Digest of the settings that it has taken over; null while it does not say.",
    )


class RolloutStatus(ApiModel):
    """A roll-out that is under way."""

    revision: str = Field(description="Revision of the StatefulSet that all brokers are to have.")
    updated: int = Field(default=0, description="Brokers that have it.")
    broker: str | None = Field(default=None, description="The broker whose turn it is or was last.")
    since: Time | None = Field(default=None, description="When its turn came.")
    waiting_since: Time | None = Field(
        default=None,
        description="Since when it has been waiting for streams that are not whole, or brokers that are away.",
    )


class DrainingBroker(ApiModel):
    """A broker that is to go."""

    name: str = Field(description="Name of the pod.")
    copies: int = Field(default=0, description="Copies of streams that it holds, or is to hold.")
    votes: bool = Field(default=False, description="Whether it votes in the map of streams.")


class DrainStatus(ApiModel):
    """Brokers that were told that they go for good."""

    since: Time = Field(description="When it began.")
    brokers: tuple[DrainingBroker, ...] = Field(
        default=(),
        max_length=BROKERS_MAX,
        description="Those that are not forgotten yet. The operator does not take back a departure that a person ordered.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


class RetiredClaim(ApiModel):
    """The volume claim of a broker that went."""

    name: str = Field(description="Name of the claim.")
    since: Time = Field(description="Since when no broker has it.")
    drained: bool = Field(
        default=False,
        description="Its broker was drained by this Cluster; others are kept whatever the deletion policy says.",
    )


class ClusterStatus(Status):
    """The observed state of a cluster."""

    replicas: int = Field(default=0, description="Brokers that the StatefulSet was told to run.")
    ready_replicas: int = Field(default=0, description="Brokers that are ready.")
    selector: str | None = Field(
        default=None, description="Labels of the brokers' pods, as kubectl's --selector takes them."
    )
    meta_voters: tuple[str, ...] = Field(
        default=(),
        description="Brokers that start the super-cluster's map of streams, as this cluster's brokers are told; chosen once.",
    )
    url: str | None = Field(default=None, description="Address for clients inside Kubernetes.")
    brokers: tuple[BrokerStatus, ...] = Field(
        default=(),
        description="The brokers.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    settings: str | None = Field(
        default=None, description="Digest of the settings that all brokers are to have."
    )
    rollout: RolloutStatus | None = Field(
        default=None, description="The roll-out that is under way; null when all brokers are as declared."
    )
    parting_since: Time | None = Field(
        default=None,
        description="When the brokers began to part from the others, before the cluster is deleted.",
    )
    drain: DrainStatus | None = Field(
        default=None, description="Brokers that go since replicas was lowered; absent while there are none."
    )
    retired_claims: tuple[RetiredClaim, ...] = Field(
        default=(),
        max_length=BROKERS_MAX,
        description="Volume claims of brokers that went. With deletionPolicy Delete they are deleted after a grace time.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    conditions: Conditions = ()


class Cluster(Resource):
    """Brokers that run together as one StatefulSet."""

    spec: ClusterSpec
    status: ClusterStatus = ClusterStatus()

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule=f"size(self.metadata.name) <= {CLUSTER_NAME_LENGTH_MAX} && !self.metadata.name.contains('.')",
            message="metadata.name must be a DNS label of at most 40 characters: names of pods and Services are made from it",
        ),
        CelRule(
            rule="!has(self.spec.cordoned) || self.spec.cordoned.all(name, name.startsWith(self.metadata.name + '-'))",
            message="spec.cordoned names brokers of this Cluster: <metadata.name>-<number>",
        ),
        CelRule(
            rule="!self.metadata.name.endsWith('-brokers')",
            message="metadata.name must not end in -brokers: a Cluster without that ending has a Service of this name",
        ),
    )
