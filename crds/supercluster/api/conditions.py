"""Every condition type and reason, declared once: planners use them, and `docs/api.md` is generated from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Entry:
    """A word that programs may rely on, and what it means."""

    kinds: str
    meaning: str


class ConditionType(StrEnum):
    """What a condition is about."""

    READY = "Ready"
    ACCEPTED = "Accepted"
    SYNCED = "Synced"
    UNWISE = "Unwise"
    DEFERRED = "Deferred"


class Reason(StrEnum):
    """Why a condition has its status."""

    AS_DECLARED = "AsDeclared"
    ALL_CURRENT = "AllCurrent"
    BROKERS_READY = "BrokersReady"
    MEMBERS_READY = "MembersReady"
    NOTHING_TO_SAY = "NothingToSay"

    BROKERS_STARTING = "BrokersStarting"
    MEMBERS_STARTING = "MembersStarting"
    NO_CLUSTER = "NoCluster"
    NO_LEADER = "NoLeader"
    REPLICAS_CATCHING_UP = "ReplicasCatchingUp"
    BROKERS_UNREACHABLE = "BrokersUnreachable"
    APPLYING = "Applying"
    ROLLING_OUT = "RollingOut"
    DELETING = "Deleting"
    CLUSTERS_REMAIN = "ClustersRemain"
    STREAMS_REMAIN = "StreamsRemain"

    NOT_ACCEPTED = "NotAccepted"
    SUPER_CLUSTER_NOT_FOUND = "SuperClusterNotFound"
    CLUSTER_NOT_FOUND = "ClusterNotFound"
    PLACEMENT_UNMATCHED = "PlacementUnmatched"
    TOO_MANY_REPLICAS = "TooManyReplicas"
    LIMITS_CONTRADICT = "LimitsContradict"
    SUBJECTS_OVERLAP = "SubjectsOverlap"
    OUT_OF_RANGE = "OutOfRange"
    NAME_CLAIMED = "NameClaimed"
    NOT_ADOPTED = "NotAdopted"
    REFUSED_BY_BROKERS = "RefusedByBrokers"
    ONE_CLUSTER_ONLY = "OneClusterOnly"
    INVALID_OBJECT = "InvalidObject"

    EVEN_REPLICAS = "EvenReplicas"
    VOLATILE_STORAGE = "VolatileStorage"
    PREFERRED_LEADER_UNKNOWN = "PreferredLeaderUnknown"

    MOVE_NOT_AVAILABLE = "MoveNotAvailable"
    REPAIR_NOT_AVAILABLE = "RepairNotAvailable"
    SCALE_IN_NOT_AVAILABLE = "ScaleInNotAvailable"
    REPLICA_CHANGE_NOT_AVAILABLE = "ReplicaChangeNotAvailable"


class EventReason(StrEnum):
    """What an event tells of."""

    CREATED = "Created"
    UPDATED = "Updated"
    ADOPTED = "Adopted"
    RELEASED = "Released"
    DELETED = "Deleted"
    DRIFT_REPAIRED = "DriftRepaired"
    STREAM_LOST = "StreamLost"
    RESTARTING_BROKER = "RestartingBroker"
    CREDENTIALS_GENERATED = "CredentialsGenerated"
    STEP_FAILED = "StepFailed"


TYPES: dict[ConditionType, Entry] = {
    ConditionType.READY: Entry(
        "all", "The resource serves: brokers take clients, every replica has what is committed."
    ),
    ConditionType.ACCEPTED: Entry(
        "all", "The spec can be carried out as it stands beside the other resources."
    ),
    ConditionType.SYNCED: Entry(
        "all", "What runs is what the spec says; False while drift is being repaired."
    ),
    ConditionType.UNWISE: Entry(
        "Cluster, Stream", "True: the spec is carried out, but something about it is ill-advised."
    ),
    ConditionType.DEFERRED: Entry(
        "Cluster, Stream",
        "True: a field asks for something whose mechanism is not there yet, and it is not carried out.",
    ),
}

REASONS: dict[Reason, Entry] = {
    Reason.AS_DECLARED: Entry("Accepted, Synced", "Nothing is wanting."),
    Reason.ALL_CURRENT: Entry(
        "Ready", "The stream has a leader and all its replicas have what is committed."
    ),
    Reason.BROKERS_READY: Entry("Ready", "All brokers take clients."),
    Reason.MEMBERS_READY: Entry("Ready", "All clusters are ready."),
    Reason.NOTHING_TO_SAY: Entry("Unwise, Deferred", "There is nothing to point out."),
    Reason.BROKERS_STARTING: Entry("Ready", "Some brokers do not take clients yet; the message counts them."),
    Reason.MEMBERS_STARTING: Entry("Ready", "Some clusters are not ready yet; the message names them."),
    Reason.NO_CLUSTER: Entry("Ready", "No Cluster names this SuperCluster."),
    Reason.NO_LEADER: Entry("Ready", "The stream's replicas have no leader; it takes no messages meanwhile."),
    Reason.REPLICAS_CATCHING_UP: Entry("Ready", "Some replicas lag or are offline; the message names them."),
    Reason.BROKERS_UNREACHABLE: Entry(
        "Ready, Synced", "No broker answers, so nothing can be said or done now."
    ),
    Reason.APPLYING: Entry("Ready, Synced", "A step is being carried out; the message says which."),
    Reason.ROLLING_OUT: Entry("Synced", "Brokers are restarted one by one to take over a change."),
    Reason.DELETING: Entry("Ready", "The resource is being deleted as its deletion policy says."),
    Reason.CLUSTERS_REMAIN: Entry("Ready", "Deletion waits until no Cluster names this SuperCluster."),
    Reason.STREAMS_REMAIN: Entry(
        "Ready", "Deletion waits for Streams of this Cluster that are being deleted too."
    ),
    Reason.NOT_ACCEPTED: Entry("Ready, Synced", "See the condition Accepted."),
    Reason.SUPER_CLUSTER_NOT_FOUND: Entry("Accepted", "spec.superCluster names nothing in this namespace."),
    Reason.CLUSTER_NOT_FOUND: Entry(
        "Accepted", "spec.placement.cluster names no Cluster of the super-cluster."
    ),
    Reason.PLACEMENT_UNMATCHED: Entry(
        "Accepted", "No Cluster of the super-cluster has all of spec.placement.tags."
    ),
    Reason.TOO_MANY_REPLICAS: Entry("Accepted", "The cluster has fewer brokers than spec.replicas asks for."),
    Reason.LIMITS_CONTRADICT: Entry("Accepted", "Two limits can't both hold; the message names them."),
    Reason.SUBJECTS_OVERLAP: Entry(
        "Accepted",
        "Two of spec.subjects overlap, or one overlaps with the brokers' own; the message names them.",
    ),
    Reason.OUT_OF_RANGE: Entry(
        "Accepted", "Brokers would not start with a value; the message has it and its bounds."
    ),
    Reason.NAME_CLAIMED: Entry("Accepted", "An older Stream resource declares the same stream."),
    Reason.NOT_ADOPTED: Entry(
        "Accepted",
        "A stream of this name exists and no resource declares it; spec.adopt: true takes it over.",
    ),
    Reason.REFUSED_BY_BROKERS: Entry(
        "Accepted", "The brokers refused the configuration; the message has their words."
    ),
    Reason.ONE_CLUSTER_ONLY: Entry(
        "Accepted",
        "The super-cluster has an older Cluster; joining clusters through gateways is not there yet.",
    ),
    Reason.INVALID_OBJECT: Entry(
        "Accepted", "The stored object does not fit the schema that the operator knows."
    ),
    Reason.EVEN_REPLICAS: Entry("Unwise", "An even count tolerates no more failures than one less."),
    Reason.VOLATILE_STORAGE: Entry("Unwise", "Data is lost when pods are, in memory or in an EmptyDir."),
    Reason.PREFERRED_LEADER_UNKNOWN: Entry(
        "Unwise", "spec.placement.preferredLeader names no broker of the cluster."
    ),
    Reason.MOVE_NOT_AVAILABLE: Entry(
        "Deferred", "The placement was changed; moving streams is not there yet."
    ),
    Reason.REPAIR_NOT_AVAILABLE: Entry(
        "Deferred", "minReplicas is set; replacing lost replicas is not there yet."
    ),
    Reason.REPLICA_CHANGE_NOT_AVAILABLE: Entry(
        "Deferred",
        "replicas of an existing stream was changed; adding and removing replicas is not there yet.",
    ),
    Reason.SCALE_IN_NOT_AVAILABLE: Entry(
        "Deferred", "replicas was lowered; taking brokers away is not there yet."
    ),
}

EVENTS: dict[EventReason, Entry] = {
    EventReason.CREATED: Entry("Normal", "Something was created for the resource."),
    EventReason.UPDATED: Entry("Normal", "Something was brought in line with a changed spec."),
    EventReason.ADOPTED: Entry("Normal", "An undeclared stream was taken over, as spec.adopt asks."),
    EventReason.RELEASED: Entry("Normal", "The resource was deleted and its data was left (Retain)."),
    EventReason.DELETED: Entry("Normal", "The resource was deleted and its data with it (Delete)."),
    EventReason.DRIFT_REPAIRED: Entry(
        "Warning", "Something was changed behind the operator's back and was set back."
    ),
    EventReason.STREAM_LOST: Entry(
        "Warning",
        "The stream had been there and was gone; it was created again, empty: its messages are lost.",
    ),
    EventReason.RESTARTING_BROKER: Entry("Normal", "A broker is restarted to take over a change."),
    EventReason.CREDENTIALS_GENERATED: Entry("Normal", "Users and passwords were made; the Secret is named."),
    EventReason.STEP_FAILED: Entry("Warning", "A step failed and is tried again; the message has the error."),
}


def is_warning(reason: EventReason) -> bool:
    return EVENTS[reason].kinds == "Warning"
