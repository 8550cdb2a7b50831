"""A Cluster's roll-out: its next step, its status, and whether a broker may be evicted meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from supercluster.api import Cluster
from supercluster.api.cluster import APPROVE_RESTART, RELEASE_RESTART, RolloutStatus
from supercluster.api.conditions import ConditionType, EventReason, Reason
from supercluster.api.super_cluster import RepairStatus
from supercluster.api.units import duration_ms
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.cluster.restart_order import (
    HAND_OVER_HOLD,
    MOVE_PATIENCE,
    NAMED_MAX,
    Choice,
    GroupTrouble,
    HandOver,
    PodView,
    Reports,
    Restart,
    Rules,
    Turn,
    Wait,
    next_restart,
)
from supercluster.reconcilers.planners.move.views import BrokersMove
from supercluster.reconcilers.planners.plan import (
    DeleteObject,
    Ground,
    HandOverLeaderships,
    Manifest,
    Note,
    Step,
)
from supercluster.reconcilers.planners.status import Conditions, parse_timestamp, timestamp

# While a roll-out waits for replicas to catch up, nothing in Kubernetes changes: look at the brokers again.
ROLL_OUT_RECHECK_MS = 1_000
# Hand-overs take less than that, and the next step is a restart.
HAND_OVER_RECHECK_MS = 200


@dataclass(frozen=True, slots=True)
class RolloutView:
    """What a roll-out is planned from."""

    pods: tuple[PodView, ...]
    replicas: int
    stateful_set: Manifest
    reports: Reports | None
    moving: tuple[BrokersMove, ...] = ()
    rolling: tuple[str, ...] = ()
    """Siblings whose turn to restart brokers comes before this cluster's, and that have some to restart."""

    @property
    def revision(self) -> str:
        """Empty while the StatefulSet's controller has not seen the last change."""
        status = self.stateful_set.get("status", {})
        if status.get("observedGeneration", 0) != self.stateful_set.get("metadata", {}).get("generation", -1):
            return ""
        return str(status.get("updateRevision", ""))


@dataclass(frozen=True, slots=True)
class Rollout:
    """What is to be done and said."""

    choice: Choice
    status: RolloutStatus | None
    step: Step | None = None

    @property
    def recheck_after_ms(self) -> int | None:
        if isinstance(self.choice, HandOver) or (isinstance(self.choice, Wait) and self.choice.is_short):
            return HAND_OVER_RECHECK_MS
        return ROLL_OUT_RECHECK_MS if isinstance(self.choice, Wait) else None


def plan_rollout(desired: Cluster, view: RolloutView, now: datetime) -> Rollout:
    before = desired.status.rollout
    turn = Turn()
    if before is not None:
        waits = before.waiting_since if before.revision == view.revision else None
        turn = Turn(
            before.broker or "",
            parse_timestamp(before.since) if before.broker and before.since else None,
            parse_timestamp(waits) if waits else None,
        )
    busy = {
        node: move.stream for move in view.moving if now - move.started < MOVE_PATIENCE for node in move.nodes
    }
    choice = next_restart(
        view.pods,
        view.replicas,
        view.revision,
        view.reports,
        _rules(desired),
        now,
        turn,
        busy,
        view.rolling[0] if view.rolling else "",
    )
    if choice is None:
        return Rollout(None, None)
    return Rollout(choice, _status(view, choice, turn, before, now), _step(desired, choice))


def _rules(desired: Cluster) -> Rules:
    spec = desired.spec.rollout
    approvals = (desired.metadata.annotations or {}).get(APPROVE_RESTART, "")
    revision, _, streams = (desired.metadata.annotations or {}).get(RELEASE_RESTART, "").partition(":")
    return Rules(
        timedelta(milliseconds=duration_ms(spec.restart_timeout)),
        spec.mode == "Supervised",
        _parts(approvals),
        (revision.strip(), _parts(streams)),
    )


def _parts(text: str) -> frozenset[str]:
    return frozenset(filter(None, (part.strip() for part in text.split(","))))


def _status(
    view: RolloutView, choice: Choice, turn: Turn, before: RolloutStatus | None, now: datetime
) -> RolloutStatus | None:
    if not view.revision:
        return None
    if isinstance(choice, Restart | HandOver):
        turn = Turn(choice.pod.name, now)
    waiting_since = None
    if isinstance(choice, Wait) and choice.is_counted:
        was_waiting = before is not None and before.revision == view.revision
        waiting_since = (before.waiting_since if before and was_waiting else None) or timestamp(now)
    return RolloutStatus(
        revision=view.revision,
        updated=sum(pod.revision == view.revision and not pod.terminating for pod in view.pods),
        broker=turn.broker or None,
        since=timestamp(turn.since) if turn.since is not None else None,
        waiting_since=waiting_since,
    )


def _step(desired: Cluster, choice: Choice) -> Step | None:
    namespace = desired.metadata.namespace
    if isinstance(choice, HandOver):
        name = choice.pod.name
        text = f"{name} is restarted next: it hands {choice.leads} leaderships over"
        hold_ms = int(HAND_OVER_HOLD / timedelta(milliseconds=1))
        return HandOverLeaderships(
            name, choice.avoid, hold_ms, note=Note.done(EventReason.HANDING_OVER_LEADERSHIPS, text)
        )
    if isinstance(choice, Restart):
        pod = choice.pod
        left = f"; {choice.left} leaderships could not be handed over before" if choice.left else ""
        text = f"restarting {pod.name} to take over a changed configuration{left}"
        note = Note.done(EventReason.RESTARTING_BROKER, text)
        return DeleteObject("v1", "Pod", namespace, pod.name, pod.uid, Ground.RESTART, note=note)
    return None


def blocked(
    desired: Cluster, rollout: Rollout, repair: RepairStatus | None, now: datetime
) -> tuple[Reason, str] | None:
    """What a roll-out has waited for too long, why it is not whole, and how a person has it go on; None: nothing. By itself it
    never goes on: a restart could take the majority of what is short of a replica already. `repair`: what the SuperCluster
    says of lost replicas."""
    choice, status = rollout.choice, rollout.status
    if not isinstance(choice, Wait) or not choice.is_counted or status is None or not status.waiting_since:
        return None
    since = parse_timestamp(status.waiting_since)
    limit = timedelta(milliseconds=duration_ms(desired.spec.rollout.wait_timeout))
    if since is None or now - since < limit:
        return None
    if not choice.waits_for:
        return Reason.BROKERS_MISSING, _why_missing(desired, choice, status)
    waiting = {each.stream: each.reason for each in repair.waiting} if repair is not None else {}
    groups = sorted(choice.waits_for, key=lambda group: (not group.is_map, group.name))
    told = [_why_not_whole(group, waiting) for group in groups[:NAMED_MAX]]
    if len(groups) > NAMED_MAX:
        told.append(f"and {len(groups) - NAMED_MAX} more")
    streams = ",".join(group.name for group in groups[:NAMED_MAX] if not group.is_map)
    text = f"the roll-out to revision {status.revision} has been waiting since {status.waiting_since}: {'; '.join(told)}."
    if streams:
        text += (
            " It goes on when they are whole. To have it go on without them, though a restart may then stop a stream that is "
            f"short of a replica: annotate this Cluster with {RELEASE_RESTART}={status.revision}:{streams}"
        )
    return Reason.STREAMS_NOT_WHOLE, text


def _why_missing(desired: Cluster, choice: Wait, status: RolloutStatus) -> str:
    told = [_why_away(pod) for pod in choice.brokers[:NAMED_MAX]]
    if len(choice.brokers) > NAMED_MAX:
        told.append(f"and {len(choice.brokers) - NAMED_MAX} more")
    if choice.absent:
        told.append(f"{choice.absent} pods are not there, which the StatefulSet's controller makes")
    text = (
        f"the roll-out to revision {status.revision} has been waiting since {status.waiting_since}: {'; '.join(told)}. It goes on "
        "when all brokers are ready: with one away, a restart could take a stream's majority"
    )
    if not choice.brokers:
        return text
    first = choice.brokers[0].name
    delete = f"kubectl delete pod {first} --force"
    if desired.spec.storage.type == "PersistentVolumeClaim":
        delete = f"kubectl delete pvc {naming.claim(first)} --wait=false, then {delete}"
    return (
        f"{text}. Bring the broker's node back, or mend what keeps it from starting. If the node is gone for good: {delete}; the "
        "broker begins anew on another node, and is given its copies again by the others"
    )


def _why_away(pod: PodView) -> str:
    where = f" on node {pod.node}" if pod.node else ""
    if pod.terminating:
        return f"{pod.name} is being deleted{where}, and does not end"
    why = pod.trouble or pod.unplaced
    return f"{pod.name}{where} is not ready{f' ({why})' if why else ''}"


def _why_not_whole(group: GroupTrouble, waiting: Mapping[str, str]) -> str:
    name = group.name if group.is_map else f"stream {group.name}"
    if group.brokers:
        why = waiting.get(group.name, "it is catching up, or its broker is away")
        text = f"{name} lacks its replica on {', '.join(group.brokers)} ({why})"
        return text if group.is_map else f"{text}: bring the broker back, or make room for another replica"
    recover = "supercluster recover meta" if group.is_map else f"supercluster recover stream {group.name}"
    return f"{name} has no leader: bring its brokers back, or {recover} says what may be lost by going on from one copy"


def tell_rollout(rollout: Rollout, conditions: Conditions) -> tuple[Note, ...]:
    """The condition Synced of a roll-out that is under way, and events for what people have to act on."""
    choice = rollout.choice
    if isinstance(choice, Restart):
        conditions.put(ConditionType.SYNCED, False, Reason.ROLLING_OUT, f"restarting {choice.pod.name}")
    elif isinstance(choice, HandOver):
        text = f"{choice.pod.name} is restarted next, and hands its leaderships over"
        conditions.put(ConditionType.SYNCED, False, Reason.ROLLING_OUT, text)
    elif isinstance(choice, Wait):
        before = conditions.reason_of(ConditionType.SYNCED)
        conditions.put(ConditionType.SYNCED, False, choice.kind, choice.reason)
        if choice.kind is not Reason.ROLLING_OUT and before != choice.kind:
            return (Note(choice.kind, choice.reason, warning=choice.kind is Reason.ROLLOUT_STOPPED),)
    return ()


def settings_trouble(
    pods: tuple[PodView, ...], reports: Reports | None, digest: str
) -> tuple[Reason, str] | None:
    """Brokers that have not taken over the settings as they are now; None when all have, or nobody says."""
    if reports is None:
        return None
    told = {pod.name: reports.brokers[pod.name] for pod in pods if pod.name in reports.brokers}
    late = {
        name: report
        for name, report in sorted(told.items())
        if report.settings is not None and report.settings != digest
    }
    refused = {name: report.refused for name, report in late.items() if report.refused}
    if refused:
        name = next(iter(refused))
        return Reason.SETTINGS_REFUSED, f"{name} goes on with the settings of before: {refused[name]}"
    if late:
        ready = f"{len(told) - len(late)} of {len(told)} brokers have taken over the changed settings"
        return (
            Reason.SETTINGS_PENDING,
            f"{ready}; not yet {', '.join(late)}: Kubernetes brings them within about a minute",
        )
    return None


def is_at_it(stateful_set: Manifest | None, pods: tuple[PodView, ...]) -> bool:
    """Has the cluster a broker that is being restarted?"""
    if any(pod.terminating for pod in pods):
        return True
    return is_rolling(stateful_set, pods) and any(not pod.ready for pod in pods)


def is_rolling(stateful_set: Manifest | None, pods: tuple[PodView, ...]) -> bool:
    """Is some pod of another revision than the StatefulSet's?"""
    revision = (stateful_set or {}).get("status", {}).get("updateRevision", "")
    return bool(revision) and any(pod.revision != revision or pod.terminating for pod in pods)


def settings_of(reports: Reports | None, broker: str) -> str | None:
    """Digest of the settings that a broker has taken over, as far as it says."""
    report = reports.brokers.get(broker) if reports is not None else None
    return report.settings if report is not None else None
