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
    WHOLE = "Whole"
    ACCEPTED = "Accepted"
    SYNCED = "Synced"
    UNWISE = "Unwise"
    DEFERRED = "Deferred"
    PROGRESSING = "Progressing"
    COMPLETE = "Complete"
    RECOVERED = "Recovered"
    DRAINABLE = "Drainable"
    HELD_UP = "HeldUp"
    MESSAGES_LOST = "MessagesLost"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class Reason(StrEnum):
    """Why a condition has its status."""

    AS_DECLARED = "AsDeclared"
    SERVING = "Serving"
    ALL_CURRENT = "AllCurrent"
    BROKERS_READY = "BrokersReady"
    MEMBERS_READY = "MembersReady"
    NOTHING_TO_SAY = "NothingToSay"

    BROKERS_STARTING = "BrokersStarting"
    BROKERS_UNPLACED = "BrokersUnplaced"
    BROKERS_CRASHING = "BrokersCrashing"
    OUT_OF_MEMORY = "OutOfMemory"
    MEMBERS_STARTING = "MembersStarting"
    CLUSTER_OUT_OF_CONTACT = "ClusterOutOfContact"
    NO_CLUSTER = "NoCluster"
    NO_LEADER = "NoLeader"
    REPLICAS_CATCHING_UP = "ReplicasCatchingUp"
    BROKERS_UNREACHABLE = "BrokersUnreachable"
    APPLYING = "Applying"
    ROLLING_OUT = "RollingOut"
    AWAITING_RESTART = "AwaitingRestartApproval"
    ROLL_OUT_STOPPED = "RollOutStopped"
    SETTINGS_ON_THEIR_WAY = "SettingsOnTheirWay"
    SETTINGS_REFUSED = "SettingsRefused"
    DELETING = "Deleting"
    CLUSTERS_REMAIN = "ClustersRemain"
    STREAMS_REMAIN = "StreamsRemain"
    NOT_PROVEN = "NotProven"
    CREDENTIALS_UNREADABLE = "CredentialsUnreadable"

    NOT_ACCEPTED = "NotAccepted"
    SUPER_CLUSTER_NOT_FOUND = "SuperClusterNotFound"
    CLUSTER_NOT_FOUND = "ClusterNotFound"
    PLACEMENT_UNMATCHED = "PlacementUnmatched"
    TOO_MANY_REPLICAS = "TooManyReplicas"
    LIMITS_CONTRADICT = "LimitsContradict"
    NO_SUITABLE_BROKERS = "NoSuitableBrokers"
    SUBJECTS_OVERLAP = "SubjectsOverlap"
    OUT_OF_RANGE = "OutOfRange"
    NAME_CLAIMED = "NameClaimed"
    NOT_ADOPTED = "NotAdopted"
    REFUSED_BY_BROKERS = "RefusedByBrokers"
    FOUNDER_MISSING = "FounderMissing"
    INVALID_OBJECT = "InvalidObject"

    STREAM_NOT_FOUND = "StreamNotFound"
    STREAM_DECLARED = "StreamDeclared"
    PLACEMENT_DISAGREES = "PlacementDisagrees"
    INVALID_WINDOW = "InvalidWindow"

    MOVING = "Moving"
    NO_HEADWAY = "NoHeadway"
    OUT_OF_SIGHT = "OutOfSight"
    SCALING = "Scaling"
    MOVE_ENDED = "MoveEnded"
    PLANNING = "Planning"
    AWAITING_APPROVAL = "AwaitingApproval"
    AWAITING_WINDOW = "AwaitingWindow"
    QUEUED = "Queued"
    SUSPENDED = "Suspended"
    OTHER_MOVE = "OtherMove"
    CANCELLING = "Cancelling"
    TOO_LATE = "TooLateToCancel"
    DRY_RUN = "DryRun"
    MOVED = "Moved"
    NOTHING_TO_MOVE = "NothingToMove"
    CANCELLED = "Cancelled"
    FAILED = "Failed"
    REFUSED = "Refused"

    REPAIRING = "Repairing"
    LOST_REPLICAS = "LostReplicas"
    BELOW_MINIMUM = "BelowMinimum"
    POLICY_CONFLICT = "PolicyConflict"
    UNKNOWN_STRATEGY = "UnknownStrategy"

    STREAM_CREATED_AGAIN = "StreamCreatedAgain"
    RECOVERING = "Recovering"
    RECOVERY_FORCED = "RecoveryForced"
    RECOVERY_REFUSED = "RecoveryRefused"

    EVEN_REPLICAS = "EvenReplicas"
    VOLATILE_STORAGE = "VolatileStorage"
    PREFERRED_LEADER_UNKNOWN = "PreferredLeaderUnknown"

    STREAMS_NOT_WHOLE = "StreamsNotWhole"
    BROKERS_MISSING = "BrokersMissing"

    DRAINING = "Draining"
    SCALE_DOWN_REFUSED = "ScaleDownRefused"
    VOLUME_NOT_RESIZED = "VolumeNotResized"
    VOLUME_GOING = "VolumeGoing"


class EventReason(StrEnum):
    """What an event tells of."""

    CREATED = "Created"
    UPDATED = "Updated"
    ADOPTED = "Adopted"
    RELEASED = "Released"
    DELETED = "Deleted"
    DRIFT_REPAIRED = "DriftRepaired"
    STREAM_LOST = "StreamLost"
    RECOVERY_BEGUN = "RecoveryBegun"
    MAP_ANEW = "MapAnew"
    HANDING_OVER = "HandingOver"
    RESTARTING_BROKER = "RestartingBroker"
    VOLUME_LOST = "VolumeLost"
    VOLUME_EXPANDED = "VolumeExpanded"
    MOVE_CREATED = "MoveCreated"
    MOVE_WITHDRAWN = "MoveWithdrawn"
    MOVE_PLANNED = "MovePlanned"
    MOVE_STARTED = "MoveStarted"
    MOVE_STALLED = "MoveStalled"
    MOVE_SUCCEEDED = "MoveSucceeded"
    MOVE_CANCELLED = "MoveCancelled"
    MOVE_FAILED = "MoveFailed"
    REPAIR_CREATED = "RepairCreated"
    REPAIR_WITHDRAWN = "RepairWithdrawn"
    DRAIN_BEGUN = "DrainBegun"
    DRAIN_TAKEN_BACK = "DrainTakenBack"
    DRAIN_MOVE_CREATED = "DrainMoveCreated"
    DRAIN_MOVE_WITHDRAWN = "DrainMoveWithdrawn"
    EXTRA_REPLICAS = "ExtraReplicas"
    BROKER_CORDONED = "BrokerCordoned"
    BROKER_UNCORDONED = "BrokerUncordoned"
    CREDENTIALS_GENERATED = "CredentialsGenerated"
    AUTHORITY_EXCHANGED = "AuthorityExchanged"
    STEP_FAILED = "StepFailed"


TYPES: dict[ConditionType, Entry] = {
    ConditionType.READY: Entry(
        "all but StreamMove",
        "The resource serves: a stream has a leader, a majority of a cluster's brokers take clients, every Cluster of a SuperCluster "
        "does, a ReplicaPolicy is in force. A restart or a lagging replica leaves it True.",
    ),
    ConditionType.WHOLE: Entry(
        "all but StreamMove",
        "Nothing is missing: every broker takes clients, every replica has what is committed, every stream of a ReplicaPolicy has "
        "its minimum. It is never True without Ready.",
    ),
    ConditionType.RECONCILING: Entry(
        "all",
        "True while the operator or the brokers are at work, or wait for something that comes by itself. Of these two Argo CD, Flux "
        "and others that go by kstatus know whether to wait.",
    ),
    ConditionType.STALLED: Entry(
        "all", "True: it does not go on without a person; the message says why, and what to do."
    ),
    ConditionType.ACCEPTED: Entry(
        "all", "The spec can be carried out as it stands beside the other resources."
    ),
    ConditionType.SYNCED: Entry(
        "all", "What runs is what the spec says; False while drift is being repaired."
    ),
    ConditionType.UNWISE: Entry(
        "Cluster, Stream, ReplicaPolicy",
        "True: the spec is carried out, but something about it is ill-advised.",
    ),
    ConditionType.PROGRESSING: Entry(
        "StreamMove", "True while the move runs; else the reason says what it waits for, or how it ended."
    ),
    ConditionType.COMPLETE: Entry("StreamMove", "True: the move is done, or its plan, if it is a dry run."),
    ConditionType.DRAINABLE: Entry(
        "Cluster",
        "True: one broker may be evicted (kubectl drain), as soon as that holds for two seconds; False: the PodDisruptionBudget allows none, and the message says "
        "what it waits for.",
    ),
    ConditionType.RECOVERED: Entry(
        "Stream, SuperCluster",
        "Whether the forced recovery that the annotation supercluster.dev/force-recover asks for, or of the map of streams "
        "supercluster.dev/force-recover-meta, was carried out.",
    ),
    ConditionType.HELD_UP: Entry(
        "all",
        "True: something that is under way does not go on without a person; the message says what, and what to do. All else goes "
        "on.",
    ),
    ConditionType.MESSAGES_LOST: Entry(
        "Stream",
        "True: the stream was gone from the brokers and was created again, empty. It stays True, whatever Ready says, until the "
        "resource is made anew (spec.adopt).",
    ),
    ConditionType.DEFERRED: Entry(
        "Cluster",
        "True: a field asks for something that can't be carried out as things are, and nothing of it is begun.",
    ),
}

REASONS: dict[Reason, Entry] = {
    Reason.AS_DECLARED: Entry("Accepted, Synced", "Nothing is wanting."),
    Reason.SERVING: Entry(
        "Ready", "A leader, or a majority of brokers, is there; or a ReplicaPolicy is in force."
    ),
    Reason.ALL_CURRENT: Entry(
        "Whole",
        "The stream has a leader and all its replicas have what is committed, or every stream that is meant has its minimum.",
    ),
    Reason.BROKERS_READY: Entry("Whole", "All brokers take clients."),
    Reason.MEMBERS_READY: Entry("Ready, Whole", "All clusters are ready, or whole."),
    Reason.NOTHING_TO_SAY: Entry(
        "Unwise, Deferred, HeldUp, Reconciling, Stalled", "There is nothing to point out."
    ),
    Reason.BROKERS_UNPLACED: Entry(
        "Ready, Whole",
        "A broker has no Kubernetes node, or its volume claim can't be bound; the message has the scheduler's words.",
    ),
    Reason.BROKERS_CRASHING: Entry(
        "Ready, Whole",
        "A broker's container ended by itself and was started again; the message says how it ended.",
    ),
    Reason.OUT_OF_MEMORY: Entry(
        "Ready, Whole",
        "A broker's container was killed because it reached its memory limit; raise spec.resources.limits.",
    ),
    Reason.BROKERS_STARTING: Entry(
        "Ready, Whole, Drainable", "Some brokers do not take clients yet; the message counts them."
    ),
    Reason.MEMBERS_STARTING: Entry(
        "Ready, Whole", "Some clusters are not ready yet; the message names them."
    ),
    Reason.CLUSTER_OUT_OF_CONTACT: Entry(
        "Ready, Whole",
        "The brokers of a whole cluster are out of contact; the message says, in the brokers' words, what is lost meanwhile.",
    ),
    Reason.NO_CLUSTER: Entry("Ready, Whole", "No Cluster names this SuperCluster."),
    Reason.NO_LEADER: Entry(
        "Ready, Whole", "The stream's replicas have no leader; it takes no messages meanwhile."
    ),
    Reason.REPLICAS_CATCHING_UP: Entry(
        "Ready, Whole, Drainable", "Some replicas lag or are offline; the message names them."
    ),
    Reason.BROKERS_UNREACHABLE: Entry(
        "Ready, Whole, Synced, Drainable", "No broker answers, so nothing can be said or done now."
    ),
    Reason.APPLYING: Entry("Ready, Whole, Synced", "A step is being carried out; the message says which."),
    Reason.ROLLING_OUT: Entry("Synced, Drainable", "Brokers are restarted one by one to take over a change."),
    Reason.AWAITING_RESTART: Entry(
        "Synced", "The next restart waits for a person's approval; the message has the command for it."
    ),
    Reason.ROLL_OUT_STOPPED: Entry(
        "Synced",
        "A restarted broker does not come up, so no other one is restarted; the message says why, and what to do.",
    ),
    Reason.SETTINGS_ON_THEIR_WAY: Entry(
        "Synced",
        "Some brokers have not taken over the changed settings yet, which need no restart; the message names them.",
    ),
    Reason.SETTINGS_REFUSED: Entry(
        "Synced", "A broker does not take over the changed settings; the message names the field."
    ),
    Reason.DELETING: Entry("Ready, Whole", "The resource is being deleted as its deletion policy says."),
    Reason.CLUSTERS_REMAIN: Entry("Ready, Whole", "Deletion waits until no Cluster names this SuperCluster."),
    Reason.STREAMS_REMAIN: Entry(
        "Ready, Whole",
        "Deletion waits for Streams of this Cluster that are being deleted too, or that are to be retained.",
    ),
    Reason.NOT_PROVEN: Entry(
        "HeldUp",
        "A step that deletes something, or makes a list of members shorter, waits: it can't be shown that nothing is lost by it. "
        "The message says what, and why.",
    ),
    Reason.CREDENTIALS_UNREADABLE: Entry(
        "Synced",
        "A file of the credentials Secret is not JSON, as a person left it; nothing of it is changed.",
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
    Reason.NO_SUITABLE_BROKERS: Entry(
        "Accepted", "Too few brokers can take a replica now; status.rejected names each with its reason."
    ),
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
    Reason.FOUNDER_MISSING: Entry(
        "Accepted",
        "The Cluster that began the super-cluster is gone, its volumes are kept, and there is no other to join.",
    ),
    Reason.STREAM_NOT_FOUND: Entry("Accepted", "The stream is not there (yet)."),
    Reason.STREAM_DECLARED: Entry(
        "Accepted", "A Stream resource declares the stream; its own placement is what moves it."
    ),
    Reason.PLACEMENT_DISAGREES: Entry(
        "Accepted", "The Stream's own placement or count of replicas is another, and would be set back."
    ),
    Reason.INVALID_WINDOW: Entry(
        "Accepted", "The maintenance window makes no sense; the message names the field."
    ),
    Reason.MOVING: Entry(
        "Synced, Progressing",
        "A move is under way; the message says how far it is, and what comes after it.",
    ),
    Reason.SCALING: Entry(
        "Synced",
        "The count of replicas is being changed; the message says how far it is, and what comes after it.",
    ),
    Reason.NO_HEADWAY: Entry(
        "Progressing",
        "A move is under way and does not come on; the message says why, and what to do about it.",
    ),
    Reason.OUT_OF_SIGHT: Entry(
        "Progressing",
        "The broker that answered does not know of the move, which was started; others are asked before it counts as over.",
    ),
    Reason.MOVE_ENDED: Entry(
        "Synced",
        "What the placement or the count of replicas asks for did not succeed; the message says how to go on.",
    ),
    Reason.PLANNING: Entry("Progressing, Complete", "It is found out what the move would do."),
    Reason.AWAITING_APPROVAL: Entry(
        "Progressing, Complete, HeldUp", "spec.approval is Manual; set spec.approved to true."
    ),
    Reason.AWAITING_WINDOW: Entry("Progressing, Complete", "The maintenance window is closed."),
    Reason.QUEUED: Entry("Progressing, Complete", "The budget of the super-cluster has no place just now."),
    Reason.SUSPENDED: Entry("Progressing, Complete", "spec.suspend is true."),
    Reason.OTHER_MOVE: Entry(
        "Progressing, Complete", "Another move of the stream is under way; one at a time."
    ),
    Reason.CANCELLING: Entry("Progressing, Complete", "The stream goes back to where it was."),
    Reason.TOO_LATE: Entry(
        "Progressing", "Cancelling was asked for after the hand-over; the move goes on to its end."
    ),
    Reason.DRY_RUN: Entry(
        "Progressing, Complete", "spec.dryRun is true: the plan is made, and nothing else is done."
    ),
    Reason.MOVED: Entry(
        "Progressing, Complete", "The stream lives where it was to go, and new copies compared equal."
    ),
    Reason.NOTHING_TO_MOVE: Entry("Progressing, Complete", "The stream is where it was to go."),
    Reason.CANCELLED: Entry("Progressing, Complete", "The move was called off; the stream is where it was."),
    Reason.FAILED: Entry(
        "Progressing, Complete", "The move ended by itself and not at its goal; the message says why."
    ),
    Reason.REFUSED: Entry("Progressing, Complete", "The move can't be made; see the condition Accepted."),
    Reason.INVALID_OBJECT: Entry(
        "Accepted", "The stored object does not fit the schema that the operator knows."
    ),
    Reason.REPAIRING: Entry(
        "Ready, Whole, Synced", "Lost replicas are being replaced; the message says how far it is."
    ),
    Reason.LOST_REPLICAS: Entry(
        "Ready, Whole",
        "Streams have fewer usable replicas than they must have; the message says which, and what is waited for.",
    ),
    Reason.BELOW_MINIMUM: Entry(
        "Synced, Accepted",
        "Fewer replicas are asked for than the minimum that is kept up, or fewer by name than the count; the stream stays as "
        "it is.",
    ),
    Reason.POLICY_CONFLICT: Entry(
        "Unwise",
        "A ReplicaPolicy of the same weight selects the same declared streams, or its name pattern can mean the same names; the "
        "older one counts for them.",
    ),
    Reason.UNKNOWN_STRATEGY: Entry(
        "Accepted",
        "No installed package has that placement strategy; replicas of streams that go by it are not replaced until one does. "
        "All else goes on.",
    ),
    Reason.STREAM_CREATED_AGAIN: Entry(
        "MessagesLost", "The brokers had no such stream any more; the message says what had been in it."
    ),
    Reason.RECOVERING: Entry(
        "Recovered", "The brokers were asked, and have not answered yet; the message says what is waited for."
    ),
    Reason.RECOVERY_FORCED: Entry(
        "Recovered",
        "The stream, or the map of streams, goes on from one copy, as a new lineage; the message says what may be lost.",
    ),
    Reason.RECOVERY_REFUSED: Entry(
        "Recovered",
        "The recovery is not needed or not possible; the message says why. Another value of the annotation is another try.",
    ),
    Reason.STREAMS_NOT_WHOLE: Entry(
        "HeldUp",
        "A roll-out has waited for longer than rollout.waitTimeout for streams that are not whole; the message names them, why, and "
        "how a person has it go on.",
    ),
    Reason.BROKERS_MISSING: Entry(
        "HeldUp",
        "A roll-out has waited for longer than rollout.waitTimeout for brokers that are away and that it has not restarted; the "
        "message names them, why, and what to do.",
    ),
    Reason.EVEN_REPLICAS: Entry("Unwise", "An even count tolerates just as many failures as one less would."),
    Reason.VOLATILE_STORAGE: Entry("Unwise", "Data is lost when pods are, in memory or in an EmptyDir."),
    Reason.PREFERRED_LEADER_UNKNOWN: Entry(
        "Unwise", "spec.placement.preferredLeader names no broker of the cluster."
    ),
    Reason.DRAINING: Entry(
        "Synced", "Brokers are to go, and hand over what they hold first; the message says what is left."
    ),
    Reason.SCALE_DOWN_REFUSED: Entry(
        "Deferred, Synced",
        "replicas was lowered, and streams would not fit on what is left; the message names them, and what to do.",
    ),
    Reason.VOLUME_NOT_RESIZED: Entry(
        "Deferred", "Volume claims can't be brought to spec.storage.size; the message says which, and why."
    ),
    Reason.VOLUME_GOING: Entry(
        "Unwise",
        "The volume claim of a broker is being deleted, or has lost its volume; the message says what becomes of it.",
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
    EventReason.RECOVERY_BEGUN: Entry(
        "Warning",
        "A person has a stream go on from one copy (supercluster.dev/force-recover), or the map of streams "
        "(supercluster.dev/force-recover-meta); what may be lost is said next.",
    ),
    EventReason.MAP_ANEW: Entry(
        "Warning",
        "A person permits brokers without volumes to begin a map of streams again (supercluster.dev/begin-map-anew); the message says "
        "whether it was refused.",
    ),
    EventReason.VOLUME_LOST: Entry(
        "Warning",
        "A broker could not start since its volume claim is gone; its pod was deleted, and comes back with an empty one.",
    ),
    EventReason.VOLUME_EXPANDED: Entry(
        "Normal", "A volume claim was asked to be as large as spec.storage.size."
    ),
    EventReason.HANDING_OVER: Entry(
        "Normal", "A broker hands its leaderships over, because it is restarted next."
    ),
    EventReason.RESTARTING_BROKER: Entry("Normal", "A broker is restarted to take over a change."),
    EventReason.MOVE_CREATED: Entry(
        "Normal", "The placement or the count of replicas was changed, and a StreamMove was made for it."
    ),
    EventReason.MOVE_WITHDRAWN: Entry(
        "Normal", "The spec was changed again, and the StreamMove of the earlier change was deleted."
    ),
    EventReason.MOVE_PLANNED: Entry("Normal", "It is known what the move would do."),
    EventReason.MOVE_STARTED: Entry("Normal", "A move was started."),
    EventReason.MOVE_STALLED: Entry(
        "Warning", "A move runs and does not come on; the message says why, and what to do about it."
    ),
    EventReason.MOVE_SUCCEEDED: Entry("Normal", "A move is done; its audit is in the status."),
    EventReason.MOVE_CANCELLED: Entry("Normal", "A move was called off; the stream is where it was."),
    EventReason.MOVE_FAILED: Entry("Warning", "A move ended and not at its goal; the message says why."),
    EventReason.REPAIR_CREATED: Entry(
        "Warning", "A stream's replica was lost for too long, and a StreamMove was made that replaces it."
    ),
    EventReason.REPAIR_WITHDRAWN: Entry(
        "Normal",
        "A replica came back before it was replaced, or is needed after all; the StreamMove was deleted.",
    ),
    EventReason.EXTRA_REPLICAS: Entry(
        "Normal",
        "A stream has more replicas than its count, and autoRemove has a StreamMove made that takes them away.",
    ),
    EventReason.BROKER_CORDONED: Entry(
        "Normal", "A broker gets no new copies: its Kubernetes node is cordoned, or spec.cordoned names it."
    ),
    EventReason.BROKER_UNCORDONED: Entry("Normal", "It gets copies again."),
    EventReason.DRAIN_BEGUN: Entry(
        "Normal", "replicas was lowered; the brokers that go were told to, and their copies are moved off."
    ),
    EventReason.DRAIN_TAKEN_BACK: Entry(
        "Normal", "replicas was raised before brokers had gone; those that were to go stay."
    ),
    EventReason.DRAIN_MOVE_CREATED: Entry(
        "Normal", "A stream has copies on brokers that go, and a StreamMove was made that takes them away."
    ),
    EventReason.DRAIN_MOVE_WITHDRAWN: Entry(
        "Normal",
        "The brokers stay, or refused the StreamMove that took a copy away from them; it was deleted.",
    ),
    EventReason.CREDENTIALS_GENERATED: Entry("Normal", "Users and passwords were made; the Secret is named."),
    EventReason.AUTHORITY_EXCHANGED: Entry(
        "Normal", "The exchange of the authority that signs brokers' certificates went one stage on."
    ),
    EventReason.STEP_FAILED: Entry("Warning", "A step failed and is tried again; the message has the error."),
}


def is_warning(reason: EventReason) -> bool:
    return EVENTS[reason].kinds == "Warning"
