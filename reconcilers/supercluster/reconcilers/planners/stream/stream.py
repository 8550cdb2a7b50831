"""Plans for a Stream: create, set back, adopt, release or delete the stream on the brokers (SF-23, OP-2,
OP-5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from supercluster.api import Cluster, ReplicaPolicy, Stream, StreamMove, StreamStatus, SuperCluster
from supercluster.api.conditions import ConditionType, EventReason, Reason
from supercluster.api.stream import NodeFinding, ReplicaStatus
from supercluster.reconcilers.planners import founding, map_majority
from supercluster.reconcilers.planners.plan import (
    FINALIZER,
    CreateStream,
    DeleteStream,
    Note,
    Plan,
    SetFinalizers,
    Step,
    UpdateStream,
)
from supercluster.reconcilers.planners.status import Conditions, put_findings, status_patch, timestamp
from supercluster.reconcilers.planners.stream import handed, moves, placement, recovery, replication
from supercluster.reconcilers.planners.stream.config import (
    META_RESOURCE,
    changed_fields,
    create_config,
    desired_config,
    fixed_fields,
    mark_of,
    merged_config,
    released_config,
    resource_mark,
)
from supercluster.reconcilers.planners.stream.handed import HandedOver
from supercluster.reconcilers.planners.stream.moves import Moves
from supercluster.reconcilers.planners.stream.recovery import RecoveryView

# A stream that is about to be ready is looked at often, for a short time; then the usual patience comes back.
HASTE = timedelta(seconds=10)
HASTY_RECHECK_MS = 100
UNREADY_RECHECK_MS = 1_000
# Reasons that are about brokers: every one of them is told with why it is no use.
_UNPLACED = frozenset(
    {
        Reason.CLUSTER_NOT_FOUND,
        Reason.PLACEMENT_UNMATCHED,
        Reason.TOO_MANY_REPLICAS,
        Reason.NO_SUITABLE_BROKERS,
    }
)
# JetStream's "no suitable peers for placement".
NO_SUITABLE_PEERS = 10005


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream as a broker describes it."""

    config: Mapping[str, Any]
    leader: str = ""
    replicas: tuple[ReplicaStatus, ...] = ()
    """The leader's own replica included."""
    messages: int = 0
    bytes: int = 0
    first_sequence: int = 0
    last_sequence: int = 0
    consumers: int = 0
    is_moving: bool = False
    """A move or a change of the count runs: the configuration says already what is to come of it."""

    @property
    def members(self) -> tuple[str, ...]:
        """Brokers that hold a replica."""
        return tuple(replica.name for replica in self.replicas)

    @property
    def replicas_configured(self) -> int:
        return int(self.config.get("num_replicas") or 1)


@dataclass(frozen=True, slots=True)
class BrokersView:
    """What the brokers answered when they were asked for the stream."""

    reachable: bool = False
    error: str = "no broker is ready"
    info: StreamInfo | None = None


@dataclass(frozen=True, slots=True)
class StreamObserved:
    """What one look at Kubernetes and the brokers shows of a stream."""

    super_cluster: SuperCluster | None = None
    clusters: tuple[Cluster, ...] = ()
    rivals: tuple[Stream, ...] = ()
    """Other Stream resources of the super-cluster that claim the same stream."""
    moves: tuple[StreamMove, ...] = ()
    """StreamMoves of this Stream."""
    policies: tuple[ReplicaPolicy, ...] = ()
    """Of the super-cluster."""
    brokers: BrokersView = field(default_factory=BrokersView)
    recovery: RecoveryView = field(default_factory=RecoveryView)
    """Asked for only while a forced recovery is asked for."""
    handed: HandedOver | None = None
    """A Migration hands it to another super-cluster, or has."""
    refusal: str | None = None
    """What the brokers refused the last step of this round with."""
    refusal_code: int = 0
    """JetStream's number for it."""
    failure: str | None = None
    """Why the last step of this round failed, when it may succeed later."""


def plan_stream(desired: Stream, observed: StreamObserved, now: datetime) -> Plan:
    conditions = Conditions(desired.status.conditions, desired.metadata.generation, now)
    info = observed.brokers.info
    there = _there(desired, observed)
    if desired.metadata.deletion_timestamp is not None:
        return _deletion(desired, observed, there, conditions)
    if observed.handed is not None:
        handed.describe(observed.handed, conditions)
        patch = _patch(desired, there, None, conditions)
        return Plan((), patch, conditions.notes(), recheck_after_ms=UNREADY_RECHECK_MS)
    handed.describe_return(conditions)
    if recovery.request_of(desired):
        return _recovery(desired, observed, there, conditions)
    ours = info is not None and mark_of(info.config) == resource_mark(desired)
    first = founding.first_of(observed.super_cluster, observed.clusters)
    wanted = placement.wanted_cluster(desired, observed.clusters, first, there)
    problem = _problem(desired, observed, wanted)
    if problem is not None:
        return _refused(desired, observed, there, conditions, problem, ours)
    assert wanted is not None
    conditions.put(ConditionType.ACCEPTED, True, Reason.AS_DECLARED)
    put_findings(conditions, ConditionType.WARNING, placement.warnings(desired, wanted))
    replicas_there = info.replicas_configured if info is not None and ours else None
    if conditions.was(ConditionType.DEFERRED):  # Said of minReplicas by an operator of before repairs.
        put_findings(conditions, ConditionType.DEFERRED, [])
    held = replication.blocked(desired, replicas_there, observed.policies, observed.super_cluster)
    moving = moves.consider(
        desired,
        observed.moves,
        there if ours else None,
        wanted,
        replicas_there if held is None else desired.spec.replicas,
    )
    if held is not None and moving.finding is None:
        moving = replace(moving, finding=held)
    # The configuration is set first: a move takes it along.
    steps = _steps(desired, observed, wanted, conditions) or moving.steps
    _describe(desired, observed, conditions, steps, moving)
    patch = _patch(desired, there or wanted, info if ours else None, conditions, moving.rejected)
    if moving.reference != desired.status.move:
        patch = {**(patch or {}), "move": moving.reference.to_object() if moving.reference else None}
    if info is not None and ours and observed.super_cluster is not None:
        told = replication.replication_status(
            desired,
            info.replicas,
            info.replicas_configured,
            observed.policies,
            observed.super_cluster,
            observed.moves,
            now,
            is_moving=info.is_moving,
        )
        patch = replication.with_replication(desired, told, patch)
    return Plan(steps, patch, conditions.notes(), recheck_after_ms=_recheck_ms(conditions, now))


def _recovery(
    desired: Stream, observed: StreamObserved, there: Cluster | None, conditions: Conditions
) -> Plan:
    """A person forces a recovery: before all else, since a stream that lost its majority answers nothing else either."""
    rival = _older_rival(desired, observed)
    found = recovery.consider(
        desired,
        observed.recovery,
        observed.refusal,
        rival.metadata.name if rival is not None else "",
        conditions,
    )
    if found.step is not None:
        return Plan((found.step,), _patch(desired, there, None, conditions), conditions.notes())
    patch = dict(_patch(desired, there, None, conditions) or {})
    if found.status is not None:
        patch["recovery"] = found.status.to_object()
    recheck_ms = HASTY_RECHECK_MS if found.status is not None else UNREADY_RECHECK_MS
    return Plan((), patch or None, conditions.notes(), recheck_after_ms=recheck_ms)


def _there(desired: Stream, observed: StreamObserved) -> Cluster | None:
    """The Cluster in which the stream lives; while the brokers are silent, the one in which it was last seen."""
    info, clusters = observed.brokers.info, observed.clusters
    if observed.brokers.reachable:
        return placement.cluster_there(info.members if info else (), clusters, desired.status.cluster)
    return next((each for each in clusters if each.metadata.name == desired.status.cluster), None)


def _problem(desired: Stream, observed: StreamObserved, wanted: Cluster | None) -> placement.Finding | None:
    """Why the spec can't be carried out now."""
    spec = desired.spec
    if observed.super_cluster is None:
        told = (
            f"spec.superCluster is {spec.super_cluster}, and there is no such SuperCluster in namespace "
            f"{desired.metadata.namespace}; create it, or delete this resource and create it with the right name"
        )
        return Reason.SUPER_CLUSTER_NOT_FOUND, told
    first = _older_rival(desired, observed)
    if first is not None:
        told = (
            f"Stream {first.metadata.name} is older and declares stream {desired.stream_name} too; delete this resource, or delete "
            f"Stream {first.metadata.name} and set spec.adopt to true here, which takes over what its deletionPolicy leaves"
        )
        return Reason.NAME_CONFLICT, told
    problem = placement.placement_problem(desired, observed.clusters)
    if problem is not None or wanted is None:
        return problem
    problem = placement.size_problem(desired, wanted) or placement.subjects_problem(desired)
    if problem is not None:
        return problem
    info = observed.brokers.info
    if info is not None and mark_of(info.config) != resource_mark(desired) and not spec.adopt:
        return Reason.NOT_ADOPTED, _not_adopted(desired, info.config)
    if observed.refusal is not None:
        unplaced = observed.refusal_code == NO_SUITABLE_PEERS
        return Reason.NO_SUITABLE_BROKERS if unplaced else Reason.REFUSED_BY_BROKERS, observed.refusal
    return None


def _older_rival(desired: Stream, observed: StreamObserved) -> Stream | None:
    """The resource that has the stream instead of this one: the oldest. Times of creation are whole seconds; of two that
    are equally old, the one that the stream is marked with has it, and before there is a stream, the smaller uid."""
    mark = mark_of(observed.brokers.info.config) if observed.brokers.info is not None else None

    def rank(stream: Stream) -> tuple[str, bool, str]:
        return (stream.metadata.creation_timestamp, resource_mark(stream) != mark, stream.metadata.uid)

    first = min((desired, *observed.rivals), key=rank)
    return None if first is desired else first


def _not_adopted(desired: Stream, there: Mapping[str, Any]) -> str:
    mark = mark_of(there)
    whose = f"it is marked as declared by {mark}" if mark else "no resource declares it"
    told = f"stream {desired.stream_name} exists on the brokers and {whose}; it is left alone. "
    fixed = fixed_fields(desired, there)
    if fixed:
        # Resource and stream both keep them, so spec.adopt alone would be refused.
        values = " and ".join(f"{field} {value}" for field, value in fixed.items())
        return (
            f"{told}It has {values}, which can't be changed: delete this resource and create it with these and spec.adopt true; with "
            "spec.deletionPolicy Delete as well, it can then be deleted with its messages"
        )
    return (
        f"{told}Set spec.adopt to true to take it over with its messages, or delete this resource and create it with another spec.name "
        "and other subjects"
    )


def _refused(
    desired: Stream,
    observed: StreamObserved,
    home: Cluster | None,
    conditions: Conditions,
    problem: placement.Finding,
    ours: bool,
) -> Plan:
    reason, message = problem
    conditions.put(ConditionType.ACCEPTED, False, reason, message)
    conditions.put(ConditionType.SYNCED, False, Reason.NOT_ACCEPTED, message)
    if ours:
        # The stream runs on as it was declared before; its state is told, whatever became of the spec.
        _describe_ready(desired, observed, conditions)
    else:
        conditions.put(ConditionType.READY, False, Reason.NOT_ACCEPTED, message)
    # The column REASON of kubectl shows this condition's.
    conditions.explain(ConditionType.WHOLE, reason, message)
    told = observed.refusal if reason == Reason.NO_SUITABLE_BROKERS and observed.refusal else ""
    rejected = placement.explain(desired, observed.clusters, told) if reason in _UNPLACED else ()
    patch = _patch(desired, home, observed.brokers.info if ours else None, conditions, rejected)
    return Plan((), patch, conditions.notes())


def _steps(
    desired: Stream, observed: StreamObserved, home: Cluster, conditions: Conditions
) -> tuple[Step, ...]:
    metadata = desired.metadata
    if FINALIZER not in metadata.finalizers:
        return (SetFinalizers((*metadata.finalizers, FINALIZER), metadata.resource_version),)
    if not observed.brokers.reachable:
        return ()
    info = observed.brokers.info
    settled = desired.status.observed_generation == metadata.generation and conditions.was(
        ConditionType.SYNCED
    )
    if info is None:
        lost = _lost(desired)
        if lost and not conditions.says(ConditionType.MESSAGES_LOST, lost):
            # Recorded before it is made: afterwards nobody could tell an empty stream from one that was emptied.
            conditions.put(ConditionType.MESSAGES_LOST, True, Reason.STREAM_RECREATED, lost)
            return ()
        return (CreateStream(create_config(desired, home.metadata.name), note=_create_note(desired)),)
    # Another count of replicas is made as a move is (`moves`), never by an update of the configuration.
    wanted = {key: value for key, value in desired_config(desired).items() if key != "num_replicas"}
    fields = changed_fields(wanted, info.config)
    if not fields:
        return ()
    if f"metadata[{META_RESOURCE}]" in fields:
        note = Note.done(
            EventReason.ADOPTED, f"stream {desired.stream_name} is declared by this resource now"
        )
    elif settled:
        note = Note.done(
            EventReason.DRIFT_REPAIRED,
            f"stream {desired.stream_name} was changed on the brokers; set back: {', '.join(fields)}",
        )
    else:
        note = Note.done(EventReason.UPDATED, f"stream {desired.stream_name}: set {', '.join(fields)}")
    return (UpdateStream(merged_config(wanted, info.config), fields, note=note),)


def _create_note(desired: Stream) -> Note:
    lost = _lost(desired)
    if lost:
        return Note.done(EventReason.STREAM_LOST, lost)
    return Note.done(EventReason.CREATED, f"created stream {desired.stream_name}")


def _lost(desired: Stream) -> str:
    """What is lost with a stream that the brokers do not have; empty: it never was there, as far as the status knows."""
    status = desired.status
    if status.leader is None and not status.replicas and not status.last_sequence:
        return ""
    return (
        f"stream {desired.stream_name} was gone from the brokers and was created again, empty: its messages are lost, "
        f"{status.messages} up to sequence {status.last_sequence} when its status was last written"
    )


def _describe(
    desired: Stream,
    observed: StreamObserved,
    conditions: Conditions,
    steps: tuple[Step, ...],
    moving: Moves,
) -> None:
    if steps:
        failed = f"; the last try failed: {observed.failure}" if observed.failure else ""
        conditions.put(ConditionType.SYNCED, False, Reason.APPLYING, f"next: {steps[0]}{failed}")
    elif not observed.brokers.reachable:
        conditions.put(ConditionType.SYNCED, None, Reason.BROKERS_UNREACHABLE, observed.brokers.error)
    elif moving.finding is not None:
        conditions.put(ConditionType.SYNCED, False, *moving.finding)
    else:
        conditions.put(ConditionType.SYNCED, True, Reason.AS_DECLARED)
    _describe_ready(desired, observed, conditions)


def _describe_ready(desired: Stream, observed: StreamObserved, conditions: Conditions) -> None:
    _describe_replicas(desired, observed, conditions)
    map_majority.describe(observed.super_cluster, conditions)


def _describe_replicas(desired: Stream, observed: StreamObserved, conditions: Conditions) -> None:
    info = observed.brokers.info
    if not observed.brokers.reachable:
        conditions.put(ConditionType.READY, False, Reason.BROKERS_UNREACHABLE, observed.brokers.error)
        return
    if info is None:
        conditions.put(
            ConditionType.READY, False, Reason.APPLYING, f"stream {desired.stream_name} is not there yet"
        )
        return
    if not info.leader:
        message = f"the {len(info.replicas)} replicas of stream {desired.stream_name} have no leader"
        waits = replication.repair_text(desired, observed.super_cluster)
        message = f"{message}; {waits}" if waits else message
        conditions.put(ConditionType.READY, False, Reason.NO_LEADER, message)
        return
    conditions.put(ConditionType.READY, True, Reason.SERVING, f"leader {info.leader}")
    current = sum(replica.current for replica in info.replicas)
    behind = [replica.name for replica in info.replicas if not replica.current]
    wanted = len(info.replicas) if info.is_moving else max(info.replicas_configured, len(info.replicas))
    if behind or len(info.replicas) < wanted:
        names = ", ".join(sorted(behind)) or "some that did not join yet"
        message = f"{current} of {wanted} replicas current; behind: {names}"
        waits = replication.repair_text(desired, observed.super_cluster)
        if waits:
            conditions.put(ConditionType.WHOLE, False, Reason.LOST_REPLICAS, f"{message}; {waits}")
            return
        conditions.put(ConditionType.WHOLE, False, Reason.REPLICAS_CATCHING_UP, message)
        return
    message = f"leader {info.leader}, {current} of {wanted} replicas current"
    conditions.put(ConditionType.WHOLE, True, Reason.ALL_CURRENT, message)


def _recheck_ms(conditions: Conditions, now: datetime) -> int | None:
    found = conditions.result()
    if any(c.type == ConditionType.WHOLE and c.status == "True" for c in found):
        return None
    if any(c.type == ConditionType.MESSAGES_LOST and c.last_transition_time == timestamp(now) for c in found):
        return HASTY_RECHECK_MS
    since = conditions.held_since(ConditionType.WHOLE)
    return HASTY_RECHECK_MS if since is not None and now - since < HASTE else UNREADY_RECHECK_MS


def _patch(
    desired: Stream,
    home: Cluster | None,
    info: StreamInfo | None,
    conditions: Conditions,
    rejected: tuple[NodeFinding, ...] = (),
) -> Mapping[str, Any] | None:
    """Figures that can't be had now stay as they were last seen."""
    seen: dict[str, Any] = {}
    if info is not None:
        figures = {
            "messages": info.messages,
            "bytes": info.bytes,
            "first_sequence": info.first_sequence,
            "last_sequence": info.last_sequence,
            "consumers": info.consumers,
        }
        before = desired.status
        stand = before.figures_at is not None and all(
            getattr(before, name) == figure for name, figure in figures.items()
        )
        seen = figures | {
            "figures_at": before.figures_at if stand else conditions.now,
            "leader": info.leader or None,
            "replicas": tuple(sorted(info.replicas, key=lambda replica: replica.name)),
            "ready_replicas": sum(replica.current for replica in info.replicas),
        }
    status: StreamStatus = desired.status.model_copy(
        update={
            "observed_generation": desired.metadata.generation,
            "stream_name": desired.stream_name,
            "cluster": home.metadata.name if home else desired.status.cluster,
            "rejected": rejected,
            "conditions": conditions.result(),
            **seen,
        }
    )
    return status_patch(desired.status.to_object(), status.to_object())


def _deletion(
    desired: Stream, observed: StreamObserved, home: Cluster | None, conditions: Conditions
) -> Plan:
    """Honour the deletion policy; without brokers that could still be asked, or a stream of ours, there is nothing to."""
    metadata, name = desired.metadata, desired.stream_name
    if FINALIZER not in metadata.finalizers:
        return Plan()
    rest = tuple(finalizer for finalizer in metadata.finalizers if finalizer != FINALIZER)

    def let_go(note: Note | None = None) -> Plan:
        return Plan((SetFinalizers(rest, metadata.resource_version, note=note),))

    if not observed.clusters or observed.super_cluster is None:
        return let_go(Note.done(EventReason.RELEASED, f"no Cluster is left; stream {name} was not touched"))
    if observed.handed is not None:
        return let_go(
            Note.done(EventReason.RELEASED, f"stream {name} was not touched: {observed.handed.text}")
        )
    brokers = observed.brokers
    if not brokers.reachable:
        message = f"deletion waits for the brokers, because spec.deletionPolicy is {desired.spec.deletion_policy}: {brokers.error}"
        conditions.put(ConditionType.READY, False, Reason.BROKERS_UNREACHABLE, message)
        patch = _patch(desired, home, None, conditions)
        return Plan((), patch, conditions.notes(), recheck_after_ms=UNREADY_RECHECK_MS)
    if brokers.info is None or mark_of(brokers.info.config) != resource_mark(desired):
        return let_go()
    if observed.refusal is not None:
        conditions.put(ConditionType.READY, False, Reason.REFUSED_BY_BROKERS, observed.refusal)
        return Plan((), _patch(desired, home, None, conditions), conditions.notes())
    if desired.spec.deletion_policy == "Delete":
        note = Note.done(EventReason.DELETED, f"spec.deletionPolicy is Delete: deleted stream {name}")
        return Plan((DeleteStream(name, note=note),))
    note = Note.done(
        EventReason.RELEASED, f"spec.deletionPolicy is Retain: stream {name} stays, declared by nobody"
    )
    config = released_config(brokers.info.config)
    return Plan((UpdateStream(config, (f"metadata[{META_RESOURCE}]",), note=note),))
