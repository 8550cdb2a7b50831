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
    """The types of conditions."""

    READY = "Ready"
    WHOLE = "Whole"
    ACCEPTED = "Accepted"
    SYNCED = "Synced"
    WARNING = "Warning"
    DEFERRED = "Deferred"
    PROGRESSING = "Progressing"
    COMPLETE = "Complete"
    RECOVERED = "Recovered"
    DRAINABLE = "Drainable"
    BLOCKED = "Blocked"
    MESSAGES_LOST = "MessagesLost"
    HANDED = "Handed"
    PREFLIGHT_PASSED = "PreflightPassed"
    ABORTED = "Aborted"
    POINT_OF_NO_RETURN = "PointOfNoReturn"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class Reason(StrEnum):
    """Why a condition has its status."""

    AS_DECLARED = "AsDeclared"
    SERVING = "Serving"
    ALL_CURRENT = "AllCurrent"
    BROKERS_READY = "BrokersReady"
    MEMBERS_READY = "MembersReady"
    NO_ISSUES = "NoIssues"

    BROKERS_STARTING = "BrokersStarting"
    BROKERS_UNSCHEDULABLE = "BrokersUnschedulable"
    BROKERS_CRASHING = "BrokersCrashing"
    OUT_OF_MEMORY = "OutOfMemory"
    MEMBERS_STARTING = "MembersStarting"
    CLUSTER_UNREACHABLE = "ClusterUnreachable"
    MAP_WITHOUT_MAJORITY = "MapWithoutMajority"
    NO_CLUSTER = "NoCluster"
    NO_LEADER = "NoLeader"
    REPLICAS_CATCHING_UP = "ReplicasCatchingUp"
    BROKERS_UNREACHABLE = "BrokersUnreachable"
    APPLYING = "Applying"
    ROLLING_OUT = "RollingOut"
    AWAITING_RESTART = "AwaitingRestartApproval"
    ROLLOUT_STOPPED = "RolloutStopped"
    SETTINGS_PENDING = "SettingsPending"
    SETTINGS_REFUSED = "SettingsRefused"
    DELETING = "Deleting"
    CLUSTERS_REMAIN = "ClustersRemain"
    STREAMS_REMAIN = "StreamsRemain"
    NOT_PROVEN_SAFE = "NotProvenSafe"
    CREDENTIALS_UNREADABLE = "CredentialsUnreadable"

    NOT_ACCEPTED = "NotAccepted"
    SUPER_CLUSTER_NOT_FOUND = "SuperClusterNotFound"
    CLUSTER_NOT_FOUND = "ClusterNotFound"
    PLACEMENT_UNMATCHED = "PlacementUnmatched"
    TOO_MANY_REPLICAS = "TooManyReplicas"
    LIMITS_CONFLICT = "LimitsConflict"
    NO_SUITABLE_BROKERS = "NoSuitableBrokers"
    SUBJECTS_OVERLAP = "SubjectsOverlap"
    OUT_OF_RANGE = "OutOfRange"
    NAME_CONFLICT = "NameConflict"
    NOT_ADOPTED = "NotAdopted"
    REFUSED_BY_BROKERS = "RefusedByBrokers"
    FOUNDER_MISSING = "FounderMissing"
    INVALID_OBJECT = "InvalidObject"

    STREAM_NOT_FOUND = "StreamNotFound"
    STREAM_DECLARED = "StreamDeclared"
    PLACEMENT_CONFLICT = "PlacementConflict"
    INVALID_WINDOW = "InvalidWindow"

    MOVING = "Moving"
    BELOW_INGEST_RATE = "BelowIngestRate"
    MOVE_STALLED = "MoveStalled"
    MOVE_UNKNOWN = "MoveUnknown"
    SCALING = "Scaling"
    MOVE_ENDED = "MoveEnded"
    PLANNING = "Planning"
    AWAITING_APPROVAL = "AwaitingApproval"
    AWAITING_WINDOW = "AwaitingWindow"
    QUEUED = "Queued"
    SUSPENDED = "Suspended"
    OTHER_MOVE_RUNNING = "OtherMoveRunning"
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

    STREAM_RECREATED = "StreamRecreated"
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
    VOLUME_TERMINATING = "VolumeTerminating"

    BESIDE_BROKERS = "BesideBrokers"
    CREDENTIALS_NOT_FOUND = "CredentialsNotFound"
    PROGRAM_NOT_FOUND = "ProgramNotFound"
    RESERVED_PROPERTY = "ReservedProperty"
    CHECKPOINT_CLAIMED = "CheckpointClaimed"
    CHECKPOINT_NOT_SHARED = "CheckpointNotShared"
    DRIVER_STARTING = "DriverStarting"
    DRIVER_FAILING = "DriverFailing"
    DRIVER_GAVE_UP = "DriverGaveUp"
    EXECUTORS_STARTING = "ExecutorsStarting"
    PROGRAM_ENDED = "ProgramEnded"
    PROGRAM_REFUSED = "ProgramRefused"
    FINDINGS_REPORTED = "FindingsReported"
    INVALID_SCHEDULE = "InvalidSchedule"
    SCHEDULED = "Scheduled"
    RUN_FAILED = "RunFailed"
    IMAGE_UNSUITABLE = "ImageUnsuitable"
    QUERY_STALLED = "QueryStalled"
    RETENTION_NEAR = "RetentionNear"
    DRIVER_NODE_LOST = "DriverNodeLost"

    ACCEPTED_BY_BROKERS = "AcceptedByBrokers"
    CREDENTIAL_INTRODUCING = "CredentialIntroducing"
    CLIENTS_ROLLING = "ClientsRolling"
    CREDENTIAL_WITHDRAWING = "CredentialWithdrawing"
    ROTATED = "Rotated"
    DEADLINE_NEAR = "DeadlineNear"
    ROTATION_DUE = "RotationDue"
    SECRET_INVALID = "SecretInvalid"
    INVALID_KEY = "InvalidKey"
    INVALID_SUBJECT = "InvalidSubject"
    INVALID_DEADLINE = "InvalidDeadline"
    ACCOUNT_NOT_DECLARED = "AccountNotDeclared"
    IMPORT_NOT_EXPORTED = "ImportNotExported"
    IMPORT_CYCLE = "ImportCycle"
    USER_IN_USE = "UserInUse"
    USERS_BY_HAND = "UsersByHand"

    CHECKING = "Checking"
    PREFLIGHT_CLEAN = "PreflightClean"
    PREFLIGHT_REFUSED = "PreflightRefused"
    GREEN_UNREACHABLE = "GreenUnreachable"
    SAME_SUPER_CLUSTER = "SameSuperCluster"
    OTHER_IDENTITY = "OtherIdentity"
    OTHER_VERSION = "OtherVersion"
    CLOCKS_APART = "ClocksApart"
    SCOPE_EMPTY = "ScopeEmpty"
    MIGRATION_OVERLAPS = "MigrationOverlaps"
    MIGRATION_UNKNOWN = "MigrationUnknown"
    MIGRATION_UNDER_WAY = "MigrationUnderWay"
    SUPER_CLUSTER_DELETED = "SuperClusterDeleted"
    MIGRATION_PORT_CLOSED = "MigrationPortClosed"
    MIGRATING = "Migrating"
    STREAMS_STALLED = "StreamsStalled"
    STREAM_HANDED = "StreamHanded"
    OPEN_ON_GREEN = "OpenOnGreen"
    PUBLISHERS_ON_BLUE = "PublishersOnBlue"
    GREEN_DISAGREES = "GreenDisagrees"
    ABORT_ASKED = "AbortAsked"
    NOT_ABORTED = "NotAborted"
    CALLED_OFF = "CalledOff"
    NOT_REACHED = "NotReached"
    AWAITING_FINALIZE = "AwaitingFinalize"
    FINALIZED = "Finalized"
    CLEANING_UP = "CleaningUp"
    MIGRATED = "Migrated"


class EventReason(StrEnum):
    """The reasons of events."""

    CREATED = "Created"
    UPDATED = "Updated"
    ADOPTED = "Adopted"
    RELEASED = "Released"
    DELETED = "Deleted"
    DRIFT_REPAIRED = "DriftRepaired"
    STREAM_LOST = "StreamLost"
    RECOVERY_STARTED = "RecoveryStarted"
    STREAM_MAP_RECREATED = "StreamMapRecreated"
    HANDING_OVER_LEADERSHIPS = "HandingOverLeaderships"
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
    DRAIN_STARTED = "DrainStarted"
    DRAIN_CANCELLED = "DrainCancelled"
    DRAIN_MOVE_CREATED = "DrainMoveCreated"
    DRAIN_MOVE_WITHDRAWN = "DrainMoveWithdrawn"
    EXTRA_REPLICAS = "ExtraReplicas"
    BROKER_CORDONED = "BrokerCordoned"
    BROKER_UNCORDONED = "BrokerUncordoned"
    CREDENTIALS_GENERATED = "CredentialsGenerated"
    AUTHORITY_EXCHANGED = "AuthorityExchanged"
    LINK_ENCRYPTION_CHANGED = "LinkEncryptionChanged"
    CLIENT_ENCRYPTION_CHANGED = "ClientEncryptionChanged"
    MIGRATION_STARTED = "MigrationStarted"
    MIGRATION_STALLED = "MigrationStalled"
    MIGRATION_ABORTING = "MigrationAborting"
    MIGRATION_ABORTED = "MigrationAborted"
    MIGRATION_OPEN = "MigrationOpen"
    POINT_OF_NO_RETURN_STATED = "PointOfNoReturnStated"
    POINT_OF_NO_RETURN_PASSED = "PointOfNoReturnPassed"
    MIGRATION_SUCCEEDED = "MigrationSucceeded"
    MIGRATION_RELEASED = "MigrationReleased"
    ROTATION_STARTED = "RotationStarted"
    CREDENTIAL_PUBLISHED = "CredentialPublished"
    CREDENTIAL_WITHDRAWN = "CredentialWithdrawn"
    CLIENTS_CUT_OFF = "ClientsCutOff"
    ROTATION_CANCELLED = "RotationCancelled"
    USER_RELEASED = "UserReleased"
    STEP_FAILED = "StepFailed"


TYPES: dict[ConditionType, Entry] = {
    ConditionType.READY: Entry(
        "all but StreamMove",
        "The resource serves. A stream has a leader, a majority of a cluster's brokers take clients, every Cluster of a "
        "SuperCluster is ready, a ReplicaPolicy is in force. A restart or a lagging replica leaves it True.",
    ),
    ConditionType.WHOLE: Entry(
        "all but StreamMove",
        "Nothing is missing. Every broker takes clients, every replica has all committed entries, every stream of a "
        "ReplicaPolicy has its minimum. It is never True without Ready.",
    ),
    ConditionType.RECONCILING: Entry(
        "all",
        "True while the operator or the brokers are at work, or wait for something that comes by itself. Argo CD, Flux "
        "and others that follow kstatus read it and Stalled.",
    ),
    ConditionType.STALLED: Entry(
        "all", "True: nothing goes on until a person acts. The message says why, and what to do."
    ),
    ConditionType.ACCEPTED: Entry("all", "The spec can be carried out beside the other resources."),
    ConditionType.SYNCED: Entry(
        "all", "The running state matches the spec. It is False while drift is repaired."
    ),
    ConditionType.WARNING: Entry(
        "Cluster, Stream, ReplicaPolicy, Migration, SuperCluster, User",
        "True: the spec is carried out, but part of it is ill-advised, or something beside it needs attention.",
    ),
    ConditionType.PROGRESSING: Entry(
        "StreamMove, User, SuperCluster",
        "True while the move, or the rotation, runs. Otherwise the reason says what it waits for, or how it ended.",
    ),
    ConditionType.COMPLETE: Entry("StreamMove", "True: the move is done. For a dry run: its plan is made."),
    ConditionType.DRAINABLE: Entry(
        "Cluster",
        "True: one broker may be evicted (kubectl drain) once this has held for two seconds. False: the "
        "PodDisruptionBudget allows no eviction, and the message says what it waits for.",
    ),
    ConditionType.RECOVERED: Entry(
        "Stream, SuperCluster",
        "Whether a forced recovery was carried out. The annotation supercluster.dev/force-recover asks for one of a "
        "stream, supercluster.dev/force-recover-meta for one of the map of streams.",
    ),
    ConditionType.BLOCKED: Entry(
        "all",
        "True: one operation cannot continue until a person acts. The message names it, and what to do. All others go on.",
    ),
    ConditionType.MESSAGES_LOST: Entry(
        "Stream",
        "True: the brokers lost the stream, and it was created again, empty. It stays True, whatever Ready says, until "
        "the resource is replaced (spec.adopt).",
    ),
    ConditionType.HANDED: Entry(
        "Stream",
        "True: a Migration handed the stream to another super-cluster, which serves it. The operator neither makes, changes, moves, "
        "repairs nor deletes it here any more.",
    ),
    ConditionType.PREFLIGHT_PASSED: Entry(
        "Migration",
        "True: nothing speaks against the start. status.preflight has all findings with their remedies.",
    ),
    ConditionType.ABORTED: Entry(
        "Migration",
        "True: the migration was called off. The message says which streams green had opened by then, if any.",
    ),
    ConditionType.POINT_OF_NO_RETURN: Entry(
        "Migration",
        "True: spec.finalize was carried out, and blue's copies are being deleted or are gone. False with AwaitingFinalize: the message "
        "states what passing it means.",
    ),
    ConditionType.DEFERRED: Entry(
        "Cluster",
        "True: a field asks for something that cannot be carried out at present. None of it is started.",
    ),
}

REASONS: dict[Reason, Entry] = {
    Reason.AS_DECLARED: Entry("Accepted, Synced", "Everything is as declared."),
    Reason.SERVING: Entry(
        "Ready", "The stream has a leader, a majority of brokers is ready, or the ReplicaPolicy is in force."
    ),
    Reason.ALL_CURRENT: Entry(
        "Whole",
        "The stream has a leader and all its replicas have all committed entries, or every selected stream has its "
        "minimum.",
    ),
    Reason.BROKERS_READY: Entry("Whole", "All brokers take clients."),
    Reason.MEMBERS_READY: Entry("Ready, Whole", "All clusters are ready, or whole."),
    Reason.NO_ISSUES: Entry(
        "Warning, Deferred, Blocked, Reconciling, Stalled", "There is nothing to report."
    ),
    Reason.BROKERS_UNSCHEDULABLE: Entry(
        "Ready, Whole",
        "A broker has no Kubernetes node, or its volume claim cannot be bound. The message quotes the scheduler.",
    ),
    Reason.BROKERS_CRASHING: Entry(
        "Ready, Whole", "A broker's container exited and was restarted. The message says how it exited."
    ),
    Reason.OUT_OF_MEMORY: Entry(
        "Ready, Whole", "A broker's container was killed at its memory limit. Raise spec.resources.limits."
    ),
    Reason.BROKERS_STARTING: Entry(
        "Ready, Whole, Drainable", "Some brokers do not take clients yet. The message counts them."
    ),
    Reason.MEMBERS_STARTING: Entry(
        "Ready, Whole", "Some clusters are not ready yet. The message names them."
    ),
    Reason.CLUSTER_UNREACHABLE: Entry(
        "Ready, Whole",
        "All brokers of a cluster are out of contact. The message quotes the other brokers on what is lost meanwhile.",
    ),
    Reason.MAP_WITHOUT_MAJORITY: Entry(
        "Ready, Whole",
        "The map of streams has lost its majority, so no stream can be created, moved or deleted. The message names the voters that are "
        "out of contact, and what to do.",
    ),
    Reason.NO_CLUSTER: Entry("Ready, Whole", "No Cluster names this SuperCluster."),
    Reason.NO_LEADER: Entry(
        "Ready, Whole", "The stream's replicas have no leader, and it takes no messages."
    ),
    Reason.REPLICAS_CATCHING_UP: Entry(
        "Ready, Whole, Drainable", "Some replicas lag or are offline. The message names them."
    ),
    Reason.BROKERS_UNREACHABLE: Entry(
        "Ready, Whole, Synced, Drainable",
        "No broker answers, so the state is unknown and nothing can be changed.",
    ),
    Reason.APPLYING: Entry("Ready, Whole, Synced", "A step is being carried out. The message names it."),
    Reason.ROLLING_OUT: Entry("Synced, Drainable", "Brokers restart one by one to apply a change."),
    Reason.AWAITING_RESTART: Entry(
        "Synced", "The next restart waits for a person's approval. The message has the command for it."
    ),
    Reason.ROLLOUT_STOPPED: Entry(
        "Synced",
        "A restarted broker fails to start, so no other one is restarted. The message says why, and what to do.",
    ),
    Reason.SETTINGS_PENDING: Entry(
        "Synced",
        "Some brokers have not loaded the changed settings yet. They need no restart for it. The message names them.",
    ),
    Reason.SETTINGS_REFUSED: Entry(
        "Synced", "A broker rejects the changed settings. The message names the field."
    ),
    Reason.DELETING: Entry("Ready, Whole", "The resource is being deleted as its deletion policy says."),
    Reason.CLUSTERS_REMAIN: Entry("Ready, Whole", "Deletion waits until no Cluster names this SuperCluster."),
    Reason.STREAMS_REMAIN: Entry(
        "Ready, Whole",
        "Deletion waits for Streams of this Cluster that are being deleted too, or that are retained.",
    ),
    Reason.NOT_PROVEN_SAFE: Entry(
        "Blocked",
        "A step that deletes something, or removes members from a list, waits until it is known to lose nothing. The "
        "message names the step, and what is not known.",
    ),
    Reason.CREDENTIALS_UNREADABLE: Entry(
        "Synced", "A file in the credentials Secret is not JSON. The operator leaves the Secret unchanged."
    ),
    Reason.NOT_ACCEPTED: Entry("Ready, Synced", "See the condition Accepted."),
    Reason.SUPER_CLUSTER_NOT_FOUND: Entry(
        "Accepted", "No SuperCluster in this namespace has the name in spec.superCluster."
    ),
    Reason.CLUSTER_NOT_FOUND: Entry(
        "Accepted", "spec.placement.cluster names no Cluster of the super-cluster."
    ),
    Reason.PLACEMENT_UNMATCHED: Entry(
        "Accepted", "No Cluster of the super-cluster has all of spec.placement.tags."
    ),
    Reason.TOO_MANY_REPLICAS: Entry("Accepted", "The cluster has fewer brokers than spec.replicas asks for."),
    Reason.LIMITS_CONFLICT: Entry("Accepted", "Two limits cannot both hold. The message names them."),
    Reason.NO_SUITABLE_BROKERS: Entry(
        "Accepted", "Too few brokers can take a replica. status.rejected names each with its reason."
    ),
    Reason.SUBJECTS_OVERLAP: Entry(
        "Accepted",
        "Two of spec.subjects overlap, or one overlaps with the brokers' own. The message names them.",
    ),
    Reason.OUT_OF_RANGE: Entry(
        "Accepted", "Brokers would reject a value. The message has it and its bounds."
    ),
    Reason.NAME_CONFLICT: Entry(
        "Accepted", "An older resource declares the same stream, or the same user of an account."
    ),
    Reason.NOT_ADOPTED: Entry(
        "Accepted",
        "A stream of this name exists and no resource declares it, or a user or an account of users.json is there by hand. The message "
        "says how it is taken over.",
    ),
    Reason.REFUSED_BY_BROKERS: Entry(
        "Accepted, Aborted", "The brokers rejected the configuration, or the call. The message quotes them."
    ),
    Reason.FOUNDER_MISSING: Entry(
        "Accepted",
        "The Cluster that started the super-cluster is gone, its volumes are retained, and there is no other Cluster to "
        "join.",
    ),
    Reason.STREAM_NOT_FOUND: Entry("Accepted", "The stream does not exist, or not yet."),
    Reason.STREAM_DECLARED: Entry(
        "Accepted", "A Stream resource declares the stream. Change its spec.placement to move the stream."
    ),
    Reason.PLACEMENT_CONFLICT: Entry(
        "Accepted", "The Stream declares another placement or count of replicas, and would undo the move."
    ),
    Reason.INVALID_WINDOW: Entry(
        "Accepted", "The maintenance window is invalid. The message names the field."
    ),
    Reason.MOVING: Entry(
        "Synced, Progressing", "A move is running. The message says how far it is, and what comes next."
    ),
    Reason.SCALING: Entry(
        "Synced", "The count of replicas is changing. The message says how far it is, and what comes next."
    ),
    Reason.BELOW_INGEST_RATE: Entry(
        "Progressing",
        "The new copies receive data more slowly than the stream does. The message names a sufficient bandwidth.",
    ),
    Reason.MOVE_STALLED: Entry(
        "Progressing", "A running move makes no progress. The message says why, and what to do about it."
    ),
    Reason.MOVE_UNKNOWN: Entry(
        "Progressing",
        "The broker that answered does not know the move, which was started. Others are asked before it counts as ended.",
    ),
    Reason.MOVE_ENDED: Entry(
        "Synced",
        "The move that the placement or the count of replicas asks for did not succeed. The message says how to go on.",
    ),
    Reason.PLANNING: Entry("Progressing, Complete", "The move is being planned."),
    Reason.AWAITING_APPROVAL: Entry(
        "Progressing, Complete, Blocked, Ready, Whole", "spec.approval is Manual; set spec.approved to true."
    ),
    Reason.AWAITING_WINDOW: Entry("Progressing, Complete", "The maintenance window is closed."),
    Reason.QUEUED: Entry("Progressing, Complete", "The budget of the super-cluster has no free place."),
    Reason.SUSPENDED: Entry("Progressing, Complete", "spec.suspend is true."),
    Reason.OTHER_MOVE_RUNNING: Entry(
        "Progressing, Complete", "Another move of the stream is running. A stream has one at a time."
    ),
    Reason.CANCELLING: Entry("Progressing, Complete", "The stream returns to its former brokers."),
    Reason.TOO_LATE: Entry(
        "Progressing, Aborted",
        "It was called off after the hand-over, and goes on: a move to its end, a migration as if it had not been called off.",
    ),
    Reason.DRY_RUN: Entry(
        "Progressing, Complete", "spec.dryRun is true. The plan is made, and the move is not started."
    ),
    Reason.MOVED: Entry(
        "Progressing, Complete", "The stream is at its destination, and the new copies compared equal."
    ),
    Reason.NOTHING_TO_MOVE: Entry("Progressing, Complete", "The stream is at its destination already."),
    Reason.CANCELLED: Entry(
        "Progressing, Complete", "The move was cancelled. The stream is on its former brokers."
    ),
    Reason.FAILED: Entry("Progressing, Complete", "The move failed. The message says why."),
    Reason.REFUSED: Entry("Progressing, Complete", "The move is not possible. See the condition Accepted."),
    Reason.INVALID_OBJECT: Entry(
        "Accepted", "The stored object does not fit the schema that the operator knows."
    ),
    Reason.REPAIRING: Entry(
        "Ready, Whole, Synced", "Lost replicas are being replaced. The message says how far it is."
    ),
    Reason.LOST_REPLICAS: Entry(
        "Ready, Whole",
        "Streams have fewer usable replicas than their minimum. The message names them, and what is waited for.",
    ),
    Reason.BELOW_MINIMUM: Entry(
        "Synced, Accepted",
        "The requested count of replicas is below the minimum, or fewer replicas are named than the count. The stream "
        "stays unchanged.",
    ),
    Reason.POLICY_CONFLICT: Entry(
        "Warning",
        "A ReplicaPolicy of the same weight selects the same declared streams, or its name pattern can match the same "
        "names. The older policy applies.",
    ),
    Reason.UNKNOWN_STRATEGY: Entry(
        "Accepted",
        "No installed package has that placement strategy. Lost replicas of its streams are not replaced until one does. "
        "All else goes on.",
    ),
    Reason.STREAM_RECREATED: Entry(
        "MessagesLost",
        "The brokers did not have the stream any more. The message says what it had contained.",
    ),
    Reason.RECOVERING: Entry(
        "Recovered", "The brokers were asked, and have not answered yet. The message says what is waited for."
    ),
    Reason.RECOVERY_FORCED: Entry(
        "Recovered",
        "The stream, or the map of streams, continues from one copy, as a new lineage. The message says what may be lost.",
    ),
    Reason.RECOVERY_REFUSED: Entry(
        "Recovered",
        "The recovery is not needed or not possible. The message says why. Change the value of the annotation to try "
        "again.",
    ),
    Reason.STREAMS_NOT_WHOLE: Entry(
        "Blocked",
        "A rollout has waited longer than rollout.waitTimeout for streams that are not whole. The message names them, "
        "why, and how to continue.",
    ),
    Reason.BROKERS_MISSING: Entry(
        "Blocked",
        "A rollout has waited longer than rollout.waitTimeout for brokers that went away without being restarted by it. "
        "The message names them, why, and what to do.",
    ),
    Reason.EVEN_REPLICAS: Entry("Warning", "An even count tolerates no more failures than one replica less."),
    Reason.VOLATILE_STORAGE: Entry("Warning", "Data in memory or in an EmptyDir is lost with its pods."),
    Reason.PREFERRED_LEADER_UNKNOWN: Entry(
        "Warning", "spec.placement.preferredLeader names no broker of the cluster."
    ),
    Reason.DRAINING: Entry(
        "Synced", "Brokers hand over their copies before they are removed. The message says what is left."
    ),
    Reason.SCALE_DOWN_REFUSED: Entry(
        "Deferred, Synced",
        "replicas was lowered, and some streams would not fit on the remaining brokers. The message names them, and what "
        "to do.",
    ),
    Reason.VOLUME_NOT_RESIZED: Entry(
        "Deferred", "Volume claims cannot be resized to spec.storage.size. The message says which, and why."
    ),
    Reason.VOLUME_TERMINATING: Entry(
        "Warning",
        "A broker's volume claim is being deleted, or has lost its volume. The message says what follows.",
    ),
    Reason.BESIDE_BROKERS: Entry(
        "Accepted", "The namespace of a StreamPipeline has brokers, and spec.allowBesideBrokers is not set."
    ),
    Reason.CREDENTIALS_NOT_FOUND: Entry(
        "Accepted", "The Secret that driver and executors log in with is not there; the message names it."
    ),
    Reason.PROGRAM_NOT_FOUND: Entry(
        "Accepted", "The ConfigMap with the Python file, or the key, is not there; the message names it."
    ),
    Reason.RESERVED_PROPERTY: Entry(
        "Accepted",
        "spec.sparkConf or spec.podTemplate has something that the operator sets. The message names it.",
    ),
    Reason.CHECKPOINT_CLAIMED: Entry(
        "Accepted", "An older StreamPipeline has the same checkpoint; the message names both."
    ),
    Reason.CHECKPOINT_NOT_SHARED: Entry(
        "Accepted",
        "Executors are to mount the checkpoint's claim, which was made for one node. The message says what to do.",
    ),
    Reason.DRIVER_STARTING: Entry(
        "Ready, Whole", "The driver's container does not run yet; the message has the node's words."
    ),
    Reason.DRIVER_FAILING: Entry(
        "Ready, Whole", "The driver failed and is started again; the message has its last line."
    ),
    Reason.DRIVER_GAVE_UP: Entry(
        "Ready, Whole",
        "So many drivers failed as spec.backoffLimit allows, and no further one is started; the message says what to do.",
    ),
    Reason.EXECUTORS_STARTING: Entry("Ready, Whole", "The driver runs, and executors are missing."),
    Reason.PROGRAM_ENDED: Entry("Ready, Whole", "The program and its queries have ended by themselves."),
    Reason.PROGRAM_REFUSED: Entry(
        "Ready, Whole",
        "The driver ended at once: there is no such pipeline, a parameter or an argument is wrong, or the image lacks something. "
        "It is not started again; the message says what to do.",
    ),
    Reason.FINDINGS_REPORTED: Entry(
        "Ready, Whole",
        "The pipeline has found something wrong with the messages, and was not started again. The message has its last line.",
    ),
    Reason.INVALID_SCHEDULE: Entry(
        "Accepted", "spec.schedule or spec.timeZone cannot be interpreted. The message names the field."
    ),
    Reason.SCHEDULED: Entry("Ready, Whole", "No run is under way. The message has the time of the next one."),
    Reason.RUN_FAILED: Entry(
        "Ready, Whole",
        "The last run of the schedule failed as often as spec.backoffLimit allows. The message has its last line and the next run.",
    ),
    Reason.IMAGE_UNSUITABLE: Entry(
        "Ready, Whole",
        "The image has no entry point for drivers, or lacks the package. The message has the node's words.",
    ),
    Reason.QUERY_STALLED: Entry(
        "Ready, Whole",
        "A query has ended no batch for ten minutes, though there are messages. The message says what to do.",
    ),
    Reason.RETENTION_NEAR: Entry(
        "Warning",
        "A StreamPipeline reads so slowly that its stream removes messages within fifteen minutes that it has not read. The message names the "
        "stream and what to do.",
    ),
    Reason.DRIVER_NODE_LOST: Entry(
        "Ready, Whole",
        "The driver's pod was to end and does not: its node is out of contact. No other driver starts until a person removes the pod or the "
        "node; the message has the command.",
    ),
    Reason.ACCEPTED_BY_BROKERS: Entry(
        "Ready, Whole", "The brokers that answer accept the credential in the Secret of the User."
    ),
    Reason.CREDENTIAL_INTRODUCING: Entry(
        "Ready, Whole, Progressing",
        "Brokers take a credential over. The message names those that have not said that they accept it.",
    ),
    Reason.CLIENTS_ROLLING: Entry(
        "Progressing",
        "The new credential is in the Secret and the former one is accepted too. The message counts the connections that show it.",
    ),
    Reason.CREDENTIAL_WITHDRAWING: Entry(
        "Progressing", "Brokers drop the former credential. The message names those that still accept it."
    ),
    Reason.ROTATED: Entry("Progressing", "No rotation is under way."),
    Reason.DEADLINE_NEAR: Entry(
        "Warning",
        "The former credential has a deadline. The message names the connections that it cuts off.",
    ),
    Reason.ROTATION_DUE: Entry(
        "Warning",
        "A rotation is asked for, and a person gives the credential. The message says what to change.",
    ),
    Reason.SECRET_INVALID: Entry(
        "Accepted",
        "The Secret that spec.authentication.passwordFrom names is missing, or its value cannot be a password. The message says what to do.",
    ),
    Reason.INVALID_KEY: Entry(
        "Accepted", "spec.authentication.publicKey is no public key of a user. The message says why."
    ),
    Reason.INVALID_SUBJECT: Entry(
        "Accepted",
        "A subject of spec.permissions, or of spec.accounts, is invalid. The message has the field and the value.",
    ),
    Reason.INVALID_DEADLINE: Entry(
        "Accepted",
        "spec.rotation.deadline was over before the rotation began. The rotation does not begin.",
    ),
    Reason.ACCOUNT_NOT_DECLARED: Entry(
        "Accepted",
        "spec.account is neither $G nor one of spec.accounts of the SuperCluster, or an export is for an account that nobody declares.",
    ),
    Reason.IMPORT_NOT_EXPORTED: Entry(
        "Accepted",
        "An import of spec.accounts has no export in the account that it names, or none for this account. No account of users.json "
        "is changed; the message has the field and what to do.",
    ),
    Reason.IMPORT_CYCLE: Entry(
        "Accepted",
        "Imports of spec.accounts come back to where they began. No account of users.json is changed; the message names them.",
    ),
    Reason.USER_IN_USE: Entry(
        "Ready, Whole",
        "The User is being deleted, and clients still show its credential. The message names them.",
    ),
    Reason.USERS_BY_HAND: Entry(
        "Warning",
        "users.json has users that no User declares. They stay in force. `supercluster users adopt` prints the manifests that take them over.",
    ),
    Reason.CHECKING: Entry(
        "Ready, Whole, PreflightPassed", "Preflight is being made, or waits for blue or green to answer."
    ),
    Reason.PREFLIGHT_CLEAN: Entry("PreflightPassed", "No finding refuses the start."),
    Reason.PREFLIGHT_REFUSED: Entry(
        "Ready, Whole, PreflightPassed",
        "Findings refuse the start. The message has the first of them with what to do; preflight is repeated.",
    ),
    Reason.GREEN_UNREACHABLE: Entry(
        "Ready, Whole, PreflightPassed, Blocked",
        "Green does not answer. The message has its address and the error, or what waits for its word.",
    ),
    Reason.SAME_SUPER_CLUSTER: Entry("PreflightPassed", "Blue and green have one identity."),
    Reason.OTHER_IDENTITY: Entry(
        "Blocked",
        "Green answers with another identity than the migration was started with. The message says what to do.",
    ),
    Reason.OTHER_VERSION: Entry(
        "PreflightPassed", "Green's brokers have another version than blue's. Roll one of them out first."
    ),
    Reason.CLOCKS_APART: Entry(
        "PreflightPassed", "The clocks of blue and green differ by more than a second. Mend the time service."
    ),
    Reason.SCOPE_EMPTY: Entry(
        "Blocked", "No stream is left in the scope of a migration under way. The message says what to do."
    ),
    Reason.MIGRATION_OVERLAPS: Entry(
        "Ready, Whole, PreflightPassed",
        "An older Migration has the same streams, or blue forwards to another green. The message names it.",
    ),
    Reason.MIGRATION_UNKNOWN: Entry(
        "Blocked", "Blue's brokers do not know a migration that was started. The message says what to do."
    ),
    Reason.MIGRATION_UNDER_WAY: Entry(
        "Ready, Whole",
        "Deletion waits for a Migration that needs this super-cluster. The message says how it ends.",
    ),
    Reason.SUPER_CLUSTER_DELETED: Entry(
        "Blocked, Ready, Whole",
        "Blue or green is being deleted, or is gone, while the migration needs it. The message says what to do.",
    ),
    Reason.MIGRATION_PORT_CLOSED: Entry(
        "Ready, Whole, PreflightPassed", "Green's brokers do not listen on a migration port yet."
    ),
    Reason.MIGRATING: Entry(
        "Ready, Whole, Handed, Synced",
        "Streams go over. The message counts them by stage, or names where one goes.",
    ),
    Reason.STREAMS_STALLED: Entry(
        "Ready, Whole", "Some streams make no progress. status.stalled names them, and why."
    ),
    Reason.STREAM_HANDED: Entry(
        "Handed, Ready, Whole, Synced, Accepted", "Another super-cluster serves the stream."
    ),
    Reason.OPEN_ON_GREEN: Entry(
        "Ready, Whole", "Green serves all streams, by its own answer. Whole follows when blue is cleaned up."
    ),
    Reason.PUBLISHERS_ON_BLUE: Entry(
        "Warning",
        "Clients still publish through blue to streams that green has. The message names them, and says what to do.",
    ),
    Reason.GREEN_DISAGREES: Entry(
        "Ready, Whole",
        "Blue says that a stream is open on green, and green's own answer is another one, or none. The message names it.",
    ),
    Reason.ABORT_ASKED: Entry("Ready, Whole, Aborted", "spec.abort is true, and streams are going back."),
    Reason.CALLED_OFF: Entry("Ready, Whole, Aborted", "The migration was called off."),
    Reason.NOT_ABORTED: Entry("Aborted", "The migration was not called off."),
    Reason.NOT_REACHED: Entry("PointOfNoReturn", "Blue keeps its copies."),
    Reason.AWAITING_FINALIZE: Entry(
        "PointOfNoReturn, Whole",
        "Everything is on green. Set spec.finalize to true to delete blue's copies; the message says what that means.",
    ),
    Reason.FINALIZED: Entry("PointOfNoReturn", "The point of no return is passed."),
    Reason.CLEANING_UP: Entry("Whole, PointOfNoReturn", "Blue's copies are being deleted."),
    Reason.MIGRATED: Entry(
        "Ready, Whole, PointOfNoReturn", "Green serves everything, and blue is cleaned up."
    ),
}

EVENTS: dict[EventReason, Entry] = {
    EventReason.CREATED: Entry("Normal", "An object was created for the resource."),
    EventReason.UPDATED: Entry("Normal", "An object was updated to a changed spec."),
    EventReason.ADOPTED: Entry("Normal", "An undeclared stream was adopted, as spec.adopt asks."),
    EventReason.RELEASED: Entry("Normal", "The resource was deleted and its data was retained (Retain)."),
    EventReason.DELETED: Entry("Normal", "The resource was deleted with its data (Delete)."),
    EventReason.DRIFT_REPAIRED: Entry("Warning", "A change that bypassed the resource was reverted."),
    EventReason.STREAM_LOST: Entry(
        "Warning", "The stream was gone from the brokers and was created again, empty. Its messages are lost."
    ),
    EventReason.RECOVERY_STARTED: Entry(
        "Warning",
        "A person started a forced recovery of a stream (supercluster.dev/force-recover) or of the map of streams "
        "(supercluster.dev/force-recover-meta). The next event says what may be lost.",
    ),
    EventReason.STREAM_MAP_RECREATED: Entry(
        "Warning",
        "A person allowed brokers without volumes to create a new map of streams (supercluster.dev/begin-map-anew). The "
        "message says whether it was refused.",
    ),
    EventReason.VOLUME_LOST: Entry(
        "Warning",
        "A broker could not start, since its volume claim is gone. Its pod was deleted, and restarts with an empty "
        "volume.",
    ),
    EventReason.VOLUME_EXPANDED: Entry(
        "Normal", "The expansion of a volume claim to spec.storage.size was requested."
    ),
    EventReason.HANDING_OVER_LEADERSHIPS: Entry(
        "Normal", "A broker hands over its leaderships before it restarts."
    ),
    EventReason.RESTARTING_BROKER: Entry("Normal", "A broker restarts to apply a change."),
    EventReason.MOVE_CREATED: Entry(
        "Normal", "The placement or the count of replicas was changed, and a StreamMove was created for it."
    ),
    EventReason.MOVE_WITHDRAWN: Entry(
        "Normal", "The spec was changed again, and the StreamMove of the earlier change was deleted."
    ),
    EventReason.MOVE_PLANNED: Entry("Normal", "The move was planned."),
    EventReason.MOVE_STARTED: Entry("Normal", "A move was started."),
    EventReason.MOVE_STALLED: Entry(
        "Warning", "A running move makes no progress. The message says why, and what to do about it."
    ),
    EventReason.MOVE_SUCCEEDED: Entry("Normal", "A move is done. The status has its audit."),
    EventReason.MOVE_CANCELLED: Entry("Normal", "A move was cancelled. The stream is on its former brokers."),
    EventReason.MOVE_FAILED: Entry("Warning", "A move failed. The message says why."),
    EventReason.REPAIR_CREATED: Entry(
        "Warning", "A stream's replica was lost for too long, and a StreamMove was created to replace it."
    ),
    EventReason.REPAIR_WITHDRAWN: Entry(
        "Normal",
        "A replica returned before it was replaced, or is needed after all. The StreamMove was deleted.",
    ),
    EventReason.EXTRA_REPLICAS: Entry(
        "Normal",
        "A stream has more replicas than its count, and autoRemove created a StreamMove that removes the surplus.",
    ),
    EventReason.BROKER_CORDONED: Entry(
        "Normal", "A broker gets no new copies. Its Kubernetes node is cordoned, or spec.cordoned names it."
    ),
    EventReason.BROKER_UNCORDONED: Entry("Normal", "A broker gets new copies again."),
    EventReason.DRAIN_STARTED: Entry(
        "Normal", "replicas was lowered. The brokers to be removed are being drained."
    ),
    EventReason.DRAIN_CANCELLED: Entry(
        "Normal", "replicas was raised before the drained brokers were removed. They stay."
    ),
    EventReason.DRAIN_MOVE_CREATED: Entry(
        "Normal",
        "A stream has copies on brokers that are being drained, and a StreamMove was created to move them.",
    ),
    EventReason.DRAIN_MOVE_WITHDRAWN: Entry(
        "Normal", "The brokers stay, or refused the StreamMove. It was deleted."
    ),
    EventReason.CREDENTIALS_GENERATED: Entry(
        "Normal", "Users and passwords were generated. The message names the Secret."
    ),
    EventReason.AUTHORITY_EXCHANGED: Entry(
        "Normal", "The exchange of the authority that signs brokers' certificates advanced by one stage."
    ),
    EventReason.LINK_ENCRYPTION_CHANGED: Entry(
        "Normal", "Turning TLS between brokers on or off advanced by one stage."
    ),
    EventReason.CLIENT_ENCRYPTION_CHANGED: Entry(
        "Normal", "Turning TLS for clients or for monitoring on or off advanced by one stage."
    ),
    EventReason.MIGRATION_STARTED: Entry("Normal", "A migration was started."),
    EventReason.MIGRATION_STALLED: Entry(
        "Warning", "Streams of a migration make no progress. The message names them, and why."
    ),
    EventReason.MIGRATION_ABORTING: Entry("Normal", "A migration is being called off."),
    EventReason.MIGRATION_ABORTED: Entry("Normal", "A migration was called off. Blue serves its streams."),
    EventReason.MIGRATION_OPEN: Entry(
        "Normal", "Green serves all streams of a migration, by its own answer."
    ),
    EventReason.POINT_OF_NO_RETURN_STATED: Entry(
        "Warning", "A migration waits for spec.finalize. The message says what that deletes."
    ),
    EventReason.POINT_OF_NO_RETURN_PASSED: Entry(
        "Warning", "spec.finalize was carried out. Blue's copies are being deleted."
    ),
    EventReason.MIGRATION_SUCCEEDED: Entry(
        "Normal", "Green serves everything of a migration, and blue is cleaned up."
    ),
    EventReason.MIGRATION_RELEASED: Entry(
        "Warning",
        "A Migration was deleted after streams were handed over. Nothing was stopped on the brokers.",
    ),
    EventReason.ROTATION_STARTED: Entry(
        "Normal", "A rotation began: brokers take the new credential over. The message says why it began."
    ),
    EventReason.CREDENTIAL_PUBLISHED: Entry(
        "Normal", "Every broker accepts the new credential, and clients can read it."
    ),
    EventReason.CREDENTIAL_WITHDRAWN: Entry(
        "Normal", "No client showed the former credential any more, and it was withdrawn."
    ),
    EventReason.CLIENTS_CUT_OFF: Entry(
        "Warning",
        "The deadline passed, and the former credential was withdrawn. The message names the connections that showed it.",
    ),
    EventReason.ROTATION_CANCELLED: Entry("Normal", "spec.rotation.cancel took a rotation back."),
    EventReason.USER_RELEASED: Entry("Normal", "A deleted User's credentials are withdrawn from brokers."),
    EventReason.STEP_FAILED: Entry(
        "Warning", "A step failed and will be retried. The message has the error."
    ),
}


def is_warning(reason: EventReason) -> bool:
    return EVENTS[reason].kinds == "Warning"
