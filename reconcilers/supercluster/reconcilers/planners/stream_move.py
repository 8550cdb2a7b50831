"""Plans for a StreamMove: planned, approved, waited for, started once, watched, called off, and told how it ended (MV-13).

The brokers carry the move out; its identity there is this resource's uid. So what they answer says whether it was
started, runs or has ended, and an operator that is killed anywhere finds it again (OP-4): starting twice is starting
once. It starts only with a place in the budget of its SuperCluster (`move_views.grants`).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from supercluster.api import StreamMove, SuperCluster
from supercluster.api.conditions import EventReason, Reason
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.move_status import Draft
from supercluster.reconcilers.planners.move_views import (
    IN_FLIGHT,
    EndedMove,
    MoveObserved,
    RunningMove,
    has_grant,
    is_ended,
    owner_uid,
    rate_bytes_per_s,
    wanted_placement,
)
from supercluster.reconcilers.planners.plan import FINALIZER, CancelMove, Note, Plan, SetFinalizers, StartMove
from supercluster.reconcilers.planners.status import parse_timestamp

RUNNING_RECHECK_MS = 500
WAITING_RECHECK_MS = 1_000
STARTED_RECHECK_MS = 50
# A refused move of a Stream is looked at again after this; a plan that waits for a person is made anew.
REPLAN = timedelta(seconds=30)
# JetStream's numbers for "no suitable peers" and "a move is in progress".
NO_SUITABLE_PEERS = 10005
MOVE_IN_PROGRESS = 10124


def needs_plan(desired: StreamMove, now: datetime) -> bool:
    """Should the brokers be asked what the move would do?"""
    status = desired.status
    if is_ended(desired) or status.phase in IN_FLIGHT or desired.metadata.deletion_timestamp is not None:
        return False
    if status.plan is None:
        return True
    made = parse_timestamp(status.plan.planned_at)
    # In the queue it stands: the places that others have were given by it.
    return status.phase != "Queued" and (made is None or now - made >= REPLAN)


def plan_stream_move(desired: StreamMove, observed: MoveObserved, now: datetime) -> Plan:
    draft = Draft(desired, observed, now)
    uid, brokers = desired.metadata.uid, observed.brokers
    if desired.metadata.deletion_timestamp is not None:
        return _deletion(desired, observed, draft)
    if is_ended(desired):
        return _at_rest(desired, draft)
    if brokers.running is not None and brokers.running.id == uid:
        return _running(desired, observed, brokers.running, draft)
    if brokers.last is not None and brokers.last.id == uid:
        return _over(desired, brokers.last, draft)
    if desired.status.phase in IN_FLIGHT:
        return _out_of_sight(desired, observed, draft)
    return _before_the_start(desired, observed, draft, now)


def _at_rest(desired: StreamMove, draft: Draft) -> Plan:
    """Ended: only the finalizer goes, and a change of the spec is taken note of."""
    steps = (_let_go(desired),) if FINALIZER in desired.metadata.finalizers else ()
    return Plan(steps, draft.noted())


def _let_go(desired: StreamMove) -> SetFinalizers:
    rest = tuple(name for name in desired.metadata.finalizers if name != FINALIZER)
    return SetFinalizers(rest, desired.metadata.resource_version)


def _deletion(desired: StreamMove, observed: MoveObserved, draft: Draft) -> Plan:
    """Deleting a move that runs calls it off; the resource stays until it has ended, because it holds a place."""
    if FINALIZER not in desired.metadata.finalizers:
        return Plan()
    brokers, uid = observed.brokers, desired.metadata.uid
    if not observed.clusters or observed.super_cluster is None:
        return Plan((_let_go(desired),))
    if not brokers.reachable:
        draft.say(desired.status.phase or "Pending", Reason.BROKERS_UNREACHABLE, brokers.error)
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    if brokers.running is None or brokers.running.id != uid:
        return Plan((_let_go(desired),))
    return _running(desired, observed, brokers.running, draft, called_off=True)


def _running(
    desired: StreamMove,
    observed: MoveObserved,
    running: RunningMove,
    draft: Draft,
    *,
    called_off: bool = False,
) -> Plan:
    draft.accept()
    draft.follow(running.progress)
    wants_cancel = called_off or desired.spec.cancel
    if running.cancelled:
        draft.say("Cancelling", Reason.CANCELLING, f"{running.progress.stage}: going back to where it was")
    elif wants_cancel and observed.refusal is not None:
        message = f"too late to cancel ({observed.refusal}); {draft.how_far(running.progress)}"
        draft.say("Running", Reason.TOO_LATE, message, holds=True)
    elif wants_cancel:
        draft.say("Running", Reason.MOVING, "next: call the move off", holds=True)
        step = CancelMove(observed.stream_name or "", desired.metadata.uid)
        return draft.plan((step,), recheck_after_ms=RUNNING_RECHECK_MS, wait_after_step=True)
    else:
        draft.say("Running", Reason.MOVING, draft.how_far(running.progress), holds=True)
    return draft.plan(recheck_after_ms=RUNNING_RECHECK_MS)


def _over(desired: StreamMove, ended: EndedMove, draft: Draft) -> Plan:
    draft.accept()
    if ended.is_done:
        draft.prove(ended)
        draft.end("Succeeded", Reason.MOVED, draft.proof(ended))
    elif desired.spec.cancel:
        draft.end("Cancelled", Reason.CANCELLED, ended.reason or "called off by spec.cancel")
    else:
        draft.prove(ended)
        draft.end("Failed", Reason.FAILED, ended.reason or "it was called off on the brokers")
    return draft.plan()


def _out_of_sight(desired: StreamMove, observed: MoveObserved, draft: Draft) -> Plan:
    """It was started, and the brokers do not tell of it."""
    brokers = observed.brokers
    if not brokers.reachable:
        draft.say(desired.status.phase or "Running", Reason.BROKERS_UNREACHABLE, brokers.error, holds=None)
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    if not brokers.exists:
        draft.end("Failed", Reason.FAILED, f"stream {observed.stream_name} was deleted meanwhile")
    elif _is_there(desired, observed):
        message = "the stream is where it was to go; another move ended since, so this one's audit is not kept any more"
        draft.end("Succeeded", Reason.MOVED, message)
    elif desired.spec.cancel:
        draft.end(
            "Cancelled", Reason.CANCELLED, "the stream is not at the destination, and no move of it runs"
        )
    else:
        message = "the brokers know nothing of the move any more, and the stream is not at the destination"
        draft.end("Failed", Reason.FAILED, message)
    return draft.plan()


def _is_there(desired: StreamMove, observed: MoveObserved) -> bool:
    """Are all replicas in force where the move was to bring them?"""
    wanted = wanted_placement(desired, observed.stream)
    tags = wanted.get("tags", ())
    assert isinstance(tags, list | tuple)
    known = {cluster.metadata.name: cluster for cluster in observed.clusters}
    homes = {naming.cluster_of(member) for member in observed.brokers.members}
    return bool(homes) and all(
        home in known and wanted.get("cluster", home) == home and set(tags) <= set(known[home].spec.tags)
        for home in homes
    )


def _before_the_start(desired: StreamMove, observed: MoveObserved, draft: Draft, now: datetime) -> Plan:
    if desired.spec.cancel:
        draft.accept()
        draft.end("Cancelled", Reason.CANCELLED, "called off before it started")
        return draft.plan()
    waits = _missing(desired, observed)
    if waits is not None:
        draft.wait_for(*waits)
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    problem = _problem(desired, observed)
    if problem is not None:
        draft.refuse(*problem, is_retried=owner_uid(desired) is not None)
        return draft.plan()
    draft.accept()
    if _is_there(desired, observed) and not desired.spec.dry_run:
        homes = ", ".join(sorted({naming.cluster_of(member) for member in observed.brokers.members}))
        draft.end("Succeeded", Reason.NOTHING_TO_MOVE, f"the stream lives in Cluster {homes} already")
        return draft.plan()
    if observed.brokers.running is not None:
        other = observed.brokers.running
        message = f"move {other.id} of the stream runs ({other.progress.stage}); one at a time"
        draft.say("Pending", Reason.OTHER_MOVE, message)
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    if draft.made_plan is None:
        draft.say("Pending", Reason.PLANNING, observed.plan_error or "no broker has made a plan yet")
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    return _by_the_plan(desired, observed, draft, now)


def _missing(desired: StreamMove, observed: MoveObserved) -> tuple[Reason, str] | None:
    """What has to be there before anything can be said of the move."""
    spec, brokers = desired.spec, observed.brokers
    if observed.super_cluster is None or observed.super_cluster.metadata.deletion_timestamp is not None:
        return (
            Reason.SUPER_CLUSTER_NOT_FOUND,
            (
                f"spec.superCluster is {spec.super_cluster}, and there is no such SuperCluster in namespace "
                f"{desired.metadata.namespace}; create it, or correct the name in a new StreamMove"
            ),
        )
    if observed.stream_name is None:
        return (
            Reason.STREAM_NOT_FOUND,
            f"spec.streamRef is {spec.stream_ref}, and there is no such Stream of SuperCluster {spec.super_cluster}",
        )
    if not brokers.reachable:
        return Reason.BROKERS_UNREACHABLE, brokers.error
    if not brokers.exists:
        return Reason.STREAM_NOT_FOUND, f"there is no stream {observed.stream_name} on the brokers"
    return None


def _problem(desired: StreamMove, observed: MoveObserved) -> tuple[Reason, str] | None:
    """Why the move can't be made."""
    spec, stream, clusters = desired.spec, observed.stream, observed.clusters
    if spec.stream is not None and observed.brokers.declared_by and not spec.dry_run:
        return (
            Reason.STREAM_DECLARED,
            (
                f"stream {spec.stream} is declared by Stream {observed.brokers.declared_by}, which would move it back: change "
                "spec.placement there, which makes a StreamMove by itself"
            ),
        )
    own = stream.spec.placement.cluster if stream is not None else None
    if own is not None and spec.destination.cluster not in (None, own) and not spec.dry_run:
        return (
            Reason.PLACEMENT_DISAGREES,
            (
                f"spec.destination.cluster is {spec.destination.cluster}, and spec.placement.cluster of Stream "
                f"{spec.stream_ref} is {own}, which would move it back: change it there, which makes a StreamMove by itself"
            ),
        )
    names = sorted(cluster.metadata.name for cluster in clusters)
    if spec.destination.cluster is not None and spec.destination.cluster not in names:
        return (
            Reason.CLUSTER_NOT_FOUND,
            (
                f"spec.destination.cluster is {spec.destination.cluster}, which is no Cluster of SuperCluster "
                f"{spec.super_cluster}; its Clusters are: {', '.join(names)}"
            ),
        )
    if observed.window_error:
        return Reason.INVALID_WINDOW, observed.window_error
    if observed.refusal is not None and observed.refusal_code != MOVE_IN_PROGRESS:
        unplaced = observed.refusal_code == NO_SUITABLE_PEERS
        return Reason.NO_SUITABLE_BROKERS if unplaced else Reason.REFUSED_BY_BROKERS, observed.refusal
    return None


def _by_the_plan(desired: StreamMove, observed: MoveObserved, draft: Draft, now: datetime) -> Plan:
    """There is a plan: what else has to be so before the move starts?"""
    spec, made = desired.spec, draft.made_plan
    assert made is not None
    assert observed.super_cluster is not None
    if made.refusal:
        draft.refuse(Reason.NO_SUITABLE_BROKERS, made.refusal, is_retried=owner_uid(desired) is not None)
    elif spec.dry_run:
        draft.end("Planned", Reason.DRY_RUN, draft.what_it_takes())
    elif spec.approval == "Manual" and not spec.approved:
        message = f"set spec.approved to true to start it; {draft.what_it_takes()}"
        draft.say("AwaitingApproval", Reason.AWAITING_APPROVAL, message)
    elif spec.suspend:
        draft.say("Planned", Reason.SUSPENDED, "set spec.suspend to false to go on")
    elif observed.window is not None and not observed.window.is_open:
        draft.say("AwaitingWindow", Reason.AWAITING_WINDOW, draft.when_it_opens())
    elif observed.refusal is not None:
        # Somebody else's move of the stream was a moment earlier: it is waited for.
        draft.say("Pending", Reason.OTHER_MOVE, observed.refusal)
    elif has_grant(desired, observed.super_cluster):
        return _start(desired, observed, observed.super_cluster, draft)
    else:
        draft.queue(_who_is_before(desired, observed.super_cluster))
    return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)


def _who_is_before(desired: StreamMove, super_cluster: SuperCluster) -> str:
    budget, others = super_cluster.spec.moves, super_cluster.status.moves
    names = ", ".join(grant.name for grant in others if grant.uid != desired.metadata.uid) or "none"
    return (
        f"waiting for a place: spec.moves of SuperCluster {super_cluster.metadata.name} allows {budget.concurrent_max} at a "
        f"time and {budget.concurrent_per_node_max} per broker; under way: {names}"
    )


def _start(desired: StreamMove, observed: MoveObserved, super_cluster: SuperCluster, draft: Draft) -> Plan:
    metadata = desired.metadata
    draft.say("Queued", Reason.QUEUED, "it has a place in the budget and is being started")
    if FINALIZER not in metadata.finalizers:
        step = SetFinalizers((*metadata.finalizers, FINALIZER), metadata.resource_version)
        return draft.plan((step,))
    name = observed.stream_name or ""
    note = Note.done(
        EventReason.MOVE_STARTED,
        f"moving stream {name} to {desired.destination_text}: {draft.what_it_takes()}",
    )
    start = StartMove(
        name,
        metadata.uid,
        wanted_placement(desired, observed.stream),
        rate_bytes_per_s(desired, super_cluster.spec.moves),
        note,
    )
    return draft.plan((start,), recheck_after_ms=STARTED_RECHECK_MS, wait_after_step=True)
