"""Stream: a replicated log of messages, its configuration, and its placement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

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
    immutable,
)
from supercluster.api.moves import MovePolicy, Tag
from supercluster.api.names import LabelName, StreamName, Subject
from supercluster.api.recovery import RecoveryStatus
from supercluster.api.units import Duration, Size

REPLICAS_MAX = 5
SUBJECTS_MAX = 64

Count = Annotated[int, Field(ge=1, le=2**53)]


# A stream that is retained keeps its subjects too, so that one of another name could not have them.
_EMPTIED = "if its messages may be deleted, set spec.deletionPolicy to Delete, delete the resource, and create it with the new value"


class StreamLimits(ApiModel):
    """Bounds of a stream; what is unset has none."""

    max_messages: Count | None = Field(default=None, description="Messages kept.")
    max_bytes: Size | None = Field(default=None, description="Bytes kept.")
    max_age: Duration | None = Field(default=None, description="How long a message is kept.")
    max_messages_per_subject: Count | None = Field(default=None, description="Messages kept per subject.")
    max_message_size: Size | None = Field(default=None, description="Largest message taken.")

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="!has(self.maxMessages) || !has(self.maxMessagesPerSubject) || "
            "self.maxMessagesPerSubject <= self.maxMessages",
            message="limits.maxMessagesPerSubject must not be more than limits.maxMessages",
            field_path=".maxMessagesPerSubject",
        ),
        CelRule(
            rule="!has(self.maxAge) || duration(self.maxAge) >= duration('100ms')",
            message="limits.maxAge must be at least 100ms; leave it out to keep messages for ever",
            field_path=".maxAge",
        ),
    )


class Placement(ApiModel):
    """Where the replicas live."""

    cluster: LabelName | None = Field(
        default=None,
        description="Name of the Cluster; unset is one of the super-cluster that has the tags. Changing it moves the stream.",
    )
    tags: tuple[Tag, ...] = Field(
        default=(),
        max_length=16,
        description="Tags that the cluster must have.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    preferred_leader: ShortText | None = Field(
        default=None, description="Broker (pod name) that leads when it can, such as east-0."
    )


class StreamSpec(ApiModel):
    """The desired state of a stream."""

    super_cluster: LabelName = Field(description="Name of the SuperCluster, in the same namespace.")
    name: StreamName | None = Field(
        default=None, description="Name of the stream on the brokers; metadata.name unless set."
    )
    description: Annotated[str, StringConstraints(max_length=4096)] | None = Field(
        default=None, description="For people."
    )
    subjects: tuple[Subject, ...] = Field(
        min_length=1,
        max_length=SUBJECTS_MAX,
        description="Subjects that the stream captures; no other stream may capture one of them.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    retention: Literal["Limits", "Interest", "WorkQueue"] = Field(
        default="Limits",
        description="When a message is removed: by the limits alone, after all consumers have acknowledged it, or after one has.",
    )
    limits: StreamLimits = Field(default=StreamLimits(), description="Bounds of the stream.")
    discard: Literal["Old", "New"] = Field(
        default="Old", description="The message that is dropped at a limit: the oldest or the new one."
    )
    discard_new_per_subject: bool = Field(
        default=False,
        description="Refuse a new message also when its subject is at limits.maxMessagesPerSubject.",
    )
    storage: Literal["File", "Memory"] = Field(default="File", description="Where messages are kept.")
    replicas: int = Field(
        default=3,
        ge=1,
        le=REPLICAS_MAX,
        description="Copies of the stream: the number that people ask for. Changing it makes a StreamMove; changed together "
        "with the placement, one is made after the other.",
    )
    min_replicas: int | None = Field(
        default=None,
        ge=1,
        le=REPLICAS_MAX,
        description="Usable copies below which the stream counts as short; repair keeps them up by replacing lost ones, and never "
        "fewer than one more than a majority where there are as many. That of the ReplicaPolicy in force unless set, else replicas.",
    )
    placement: Placement = Field(
        default=Placement(), description="Where the replicas live. Changing it makes a StreamMove."
    )
    move: MovePolicy = Field(
        default=MovePolicy(),
        description="How the stream is moved when its placement changes, or its count of replicas.",
    )
    duplicate_window: Duration = Field(
        default="2m",
        description="How long a Nats-Msg-Id is remembered; at least 100ms: brokers take 0 for 2m.",
    )
    ack_policy: Literal["Commit", "Append", "None"] = Field(
        default="Commit",
        description="When a publish is acknowledged: committed by a majority, appended by the leader (a change of leader "
        "may lose it), or never.",
    )
    fsync: Literal["Always", "Interval", "Never"] = Field(
        default="Interval",
        description="When a write is made durable: before it counts, at the cluster's fsyncInterval, or when the kernel "
        "likes and when a segment is full. With all but Always, a power failure of a majority at once can take the last writes. "
        "Running brokers follow a change within moments.",
    )
    adopt: bool = Field(
        default=False,
        description="Take over a stream of this name that exists and that no resource declares, or one that a Migration brought here with "
        "the name of blue's resource on it. Without it such a stream is left alone.",
    )
    deletion_policy: DeletionPolicy = Field(
        default="Retain",
        description="The fate of the stream when this resource is deleted: Retain leaves it on the brokers, Delete "
        "deletes it with every message.",
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        immutable(
            "superCluster",
            "a Migration takes the stream there with its messages; another Stream resource declares an empty one",
        ),
        immutable("storage", _EMPTIED),
        immutable("retention", _EMPTIED),
        CelRule(
            rule="!self.discardNewPerSubject || (self.discard == 'New' && has(self.limits.maxMessagesPerSubject))",
            message="spec.discardNewPerSubject needs spec.discard New and spec.limits.maxMessagesPerSubject",
            field_path=".discardNewPerSubject",
        ),
        CelRule(
            rule="!has(self.minReplicas) || self.minReplicas <= self.replicas",
            message="spec.minReplicas must not be more than spec.replicas",
            field_path=".minReplicas",
        ),
        CelRule(
            rule="duration(self.duplicateWindow) >= duration('100ms')",
            message="spec.duplicateWindow must be at least 100ms; a Nats-Msg-Id is always remembered",
            field_path=".duplicateWindow",
        ),
        CelRule(
            rule="!has(self.limits.maxAge) || duration(self.duplicateWindow) <= duration(self.limits.maxAge)",
            message="spec.duplicateWindow (2m unless set) must not be longer than spec.limits.maxAge",
            field_path=".duplicateWindow",
        ),
    )


class ReplicaStatus(ApiModel):
    """One replica as its leader sees it."""

    name: str = Field(description="Broker that holds it.")
    leader: bool = Field(default=False, description="Whether it leads.")
    current: bool = Field(default=False, description="Whether it has all that is committed.")
    offline: bool = Field(default=False, description="Whether the leader has no contact with it.")
    unusable: bool = Field(
        default=False,
        description="Whether its broker runs and cannot use the copy, for example after a disk error.",
    )
    lag: int = Field(default=0, description="Log entries that it lacks.")


class NodeFinding(ApiModel):
    """A broker as a candidate for a copy."""

    name: str = Field(description="The broker.")
    reason: str = Field(default="", description="Why it was chosen, or why it was no use.")


class MoveReference(ApiModel):
    """A StreamMove that a Stream has made."""

    name: str = Field(description="Name of the StreamMove.")
    phase: str = Field(default="", description="How far it is.")


class ReplicationStatus(ApiModel):
    """How many usable replicas are kept up, by whose word, and how it stands."""

    desired: int = Field(
        default=0,
        description="Replicas that the stream has been given on the brokers; spec.replicas, when that is in force.",
    )
    minimum: int = Field(default=0, description="Usable replicas below which it counts as short.")
    usable: int = Field(default=0, description="Replicas that are in contact and of use.")
    decided_by: str = Field(default="", description="Stream, ReplicaPolicy <name>, or SuperCluster <name>.")
    reason: str = Field(default="", description="Why that one counts, and why the others do not.")
    lost: tuple[str, ...] = Field(
        default=(),
        max_length=REPLICAS_MAX,
        description="Brokers whose replicas are out of contact or of no use.",
    )
    extra: int = Field(
        default=0, description="Replicas beyond spec.replicas, which people have added by name."
    )
    since: Time | None = Field(default=None, description="Since when there are fewer than the minimum.")
    repair: MoveReference | None = Field(
        default=None, description="The StreamMove that replaces lost replicas."
    )


class StreamStatus(Status):
    """The observed state of a stream."""

    stream_name: str | None = Field(default=None, description="Name of the stream on the brokers.")
    cluster: str | None = Field(default=None, description="Cluster that it lives in.")
    leader: str | None = Field(default=None, description="Broker that leads.")
    replicas: tuple[ReplicaStatus, ...] = Field(
        default=(),
        description="The replicas.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    ready_replicas: int = Field(default=0, description="Replicas that have all that is committed.")
    messages: int = Field(
        default=0,
        description="Messages held at figuresAt. The operator's /metrics has the figures as they are now.",
    )
    figures_at: Time | None = Field(
        default=None,
        description="When messages, bytes, sequences and consumers were as they stand here. Changed ones are written within 15 seconds "
        "while ten resources or fewer are busy, and in turn, 40 a minute, while more are. Figures that do not change keep their time.",
    )
    bytes: int = Field(default=0, description="Bytes held.")
    first_sequence: int = Field(default=0, description="Sequence of the oldest message held.")
    last_sequence: int = Field(default=0, description="Sequence of the newest message.")
    consumers: int = Field(default=0, description="Consumers of the stream.")
    move: MoveReference | None = Field(
        default=None, description="The StreamMove of the last change of placement."
    )
    replication: ReplicationStatus | None = Field(
        default=None, description="The number of usable replicas to keep, and the current state."
    )
    recovery: RecoveryStatus | None = Field(
        default=None, description="The outcome of the last requested forced recovery."
    )
    rejected: tuple[NodeFinding, ...] = Field(
        default=(),
        description="Every broker of the super-cluster, with the reason why it cannot take the stream. Set while the stream cannot be placed.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    conditions: Conditions = ()


class Stream(Resource):
    """A replicated log of messages."""

    spec: StreamSpec
    status: StreamStatus = StreamStatus()

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="has(self.spec.name) || !self.metadata.name.contains('.')",
            message="metadata.name has a dot, which a stream's name can't have; set spec.name",
        ),
        CelRule(
            rule="(has(self.spec.name) ? self.spec.name : self.metadata.name) == "
            "(has(oldSelf.spec.name) ? oldSelf.spec.name : oldSelf.metadata.name)",
            message=f"spec.name can't be changed; {_EMPTIED}",
        ),
    )

    @staticmethod
    def claimed_name(spec: Mapping[str, Any], name: str) -> str:
        return str(spec.get("name") or name)

    @property
    def stream_name(self) -> str:
        return self.spec.name or self.metadata.name
