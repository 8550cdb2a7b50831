"""Plans for a StreamMove: planned, approved, queued, started once, watched, cancelled, and reported (MV-13).

The brokers carry the move out; its identity there is this resource's uid. So their answers tell whether it
was started, runs or has ended, and an operator that is killed at any point finds it again (OP-4). A second
start has no effect. The move starts only with a place in the budget of its SuperCluster
(`move_views.grants`).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from supercluster.api import StreamMove, SuperCluster
from supercluster.api.conditions import EventReason, Reason
from supercluster.api.stream_move import MoveStage
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.move import problems
from supercluster.reconcilers.planners.move.draft import UNKNOWN_MIN, Draft
from supercluster.reconcilers.planners.move.problems import PLAN_OUTDATED
from supercluster.reconcilers.planners.move.views import (
    EndedMove,
    MoveObserved,
    RunningMove,
    goal_of,
    has_grant,
    is_ended,
    is_in_flight,
    owner_uid,
    rate_bytes_per_s,
    wanted_placement,
)
from supercluster.reconcilers.planners.plan import (
    FINALIZER,
    CancelMove,
    Note,
    Plan,
    SetFinalizers,
    StartMove,
    Step,
)
from supercluster.reconcilers.planners.status import is_within, parse_timestamp
from supercluster.reconcilers.planners.window import Window

RUNNING_RECHECK_MS = 500
# A small stream's move is over within a second, and its place is waited for: it is looked at more often while it is young.
YOUNG_RECHECK_MS = 150
YOUNG = timedelta(seconds=3)
WAITING_RECHECK_MS = 1_000
STARTED_RECHECK_MS = 50
# A refused move of a Stream is looked at again after this; a plan that waits for a person is made anew.
REPLAN = timedelta(seconds=30)
# Ours for "the replica that is to be replaced is there".
NOT_DEAD = 19005


def needs_plan(desired: StreamMove, now: datetime) -> bool:
    """Should the brokers be asked what the move would do?"""
    status = desired.status
    if is_ended(desired) or is_in_flight(status) or desired.metadata.deletion_timestamp is not None:
        return False
    if status.plan is None:
        return True
    if desired.spec.approval == "Manual" and desired.spec.approved and not status.approval_void:
        return bool(status.plan.refusal)  # What was approved is what is done.
    made = parse_timestamp(status.plan.planned_at)
    # In the queue it stands: the places that others have were given by it.
    return status.phase != "Queued" and not is_within(made, REPLAN, now)


def plan_stream_move(desired: StreamMove, observed: MoveObserved, now: datetime) -> Plan:
    draft = Draft(desired, observed, now)
    uid, brokers = desired.metadata.uid, observed.brokers
    if desired.metadata.deletion_timestamp is not None:
        return _deletion(desired, observed, draft, now)
    if is_ended(desired):
        return _at_rest(desired, draft)
    if brokers.running is not None and brokers.running.id == uid:
        return _running(desired, observed, brokers.running, draft, now)
    if brokers.last is not None and brokers.last.id == uid:
        return _over(desired, brokers.last, draft)
    earlier = next((found for found in brokers.earlier if found.id == uid), None)
    if earlier is not None:
        return _over_long_ago(desired, earlier, draft)
    if is_in_flight(desired.status):
        return _unknown(desired, observed, draft)
    return _before_the_start(desired, observed, draft, now)


def _at_rest(desired: StreamMove, draft: Draft) -> Plan:
    """Ended: only the finalizer goes, and a change of the spec is taken note of."""
    steps = (_let_go(desired),) if FINALIZER in desired.metadata.finalizers else ()
    return Plan(steps, draft.noted())


def _let_go(desired: StreamMove) -> SetFinalizers:
    rest = tuple(name for name in desired.metadata.finalizers if name != FINALIZER)
    return SetFinalizers(rest, desired.metadata.resource_version)


def _deletion(desired: StreamMove, observed: MoveObserved, draft: Draft, now: datetime) -> Plan:
    """Deleting a move that runs calls it off; the resource stays until it has ended, because it holds a place."""
    if FINALIZER not in desired.metadata.finalizers:
        return Plan()
    brokers, uid = observed.brokers, desired.metadata.uid
    if not observed.clusters or observed.super_cluster is None or observed.stream_name is None:
        # Nobody to call it off with; or nobody knows the stream's name: it was never planned, so it can't have started.
        return Plan((_let_go(desired),))
    if not brokers.reachable:
        draft.say(desired.status.phase or "Pending", Reason.BROKERS_UNREACHABLE, brokers.error)
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    if brokers.running is None or brokers.running.id != uid:
        asked_at = parse_timestamp(desired.metadata.deletion_timestamp or "")
        is_long = asked_at is None or now - asked_at >= UNKNOWN_MIN
        if is_long or is_ended(desired) or _has_ended(observed, uid):
            return Plan((_let_go(desired),))
        draft.mark_unknown(desired.status.phase or "Pending")
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    return _running(desired, observed, brokers.running, draft, now, called_off=True)


def _has_ended(observed: MoveObserved, uid: str) -> bool:
    """Do the brokers tell of its end?"""
    brokers = observed.brokers
    return any(found.id == uid for found in (*brokers.earlier, *([brokers.last] if brokers.last else [])))


def _running(
    desired: StreamMove,
    observed: MoveObserved,
    running: RunningMove,
    draft: Draft,
    now: datetime,
    *,
    called_off: bool = False,
) -> Plan:
    recheck_ms = _running_recheck_ms(desired, now)
    draft.accept()
    draft.follow(running.progress)
    wants_cancel = called_off or desired.spec.cancel
    if running.cancelled:
        trouble = f"; {running.progress.trouble}" if running.progress.trouble else ""
        message = f"{running.progress.stage or MoveStage.UNKNOWN}: going back to where it was{trouble}"
        draft.say("Cancelling", Reason.CANCELLING, message)
    elif wants_cancel and observed.refusal is not None:
        message = f"too late to cancel ({observed.refusal}); {draft.how_far(running.progress)}"
        draft.say("Running", Reason.TOO_LATE, message, holds=True)
    elif wants_cancel:
        draft.say("Running", Reason.MOVING, "next: call the move off", holds=True)
        step = CancelMove(observed.stream_name or "", desired.metadata.uid)
        return draft.plan((step,), recheck_after_ms=recheck_ms, wait_after_step=True)
    else:
        if _goes_without_saying(desired, running, recheck_ms):
            steps = _pace(desired, observed, running)
            return Plan(steps, recheck_after_ms=recheck_ms, wait_after_step=True)
        if running.progress.trouble:
            draft.stall(running)
        else:
            draft.say("Running", Reason.MOVING, draft.how_far(running.progress), holds=True)
        return draft.plan(
            _pace(desired, observed, running), recheck_after_ms=recheck_ms, wait_after_step=True
        )
    return draft.plan(recheck_after_ms=recheck_ms)


def _goes_without_saying(desired: StreamMove, running: RunningMove, recheck_ms: int) -> bool:
    """Most repairs are over while they are young. Thousands of them need not tell of each stage."""
    is_young = recheck_ms == YOUNG_RECHECK_MS and desired.status.phase == "Running"
    return is_young and desired.spec.repair is not None and not running.progress.trouble


def _running_recheck_ms(desired: StreamMove, now: datetime) -> int:
    began = parse_timestamp(desired.status.started_at or "")
    is_young = began is None or now - began < YOUNG
    return YOUNG_RECHECK_MS if is_young else RUNNING_RECHECK_MS


def _pace(desired: StreamMove, observed: MoveObserved, running: RunningMove) -> tuple[Step, ...]:
    """The limit was changed, in the spec or by the budget: the same move, told again with another one."""
    told, super_cluster = running.progress.bytes_per_s, observed.super_cluster
    if told is None or super_cluster is None:
        return ()
    rate = rate_bytes_per_s(desired, super_cluster.spec.moves)
    if rate == told:
        return ()
    goal = goal_of(desired, observed.stream, observed.minimum)
    return (StartMove(observed.stream_name or "", desired.metadata.uid, goal, rate),)


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


def _over_long_ago(desired: StreamMove, ended: EndedMove, draft: Draft) -> Plan:
    """It ended, and another move of the stream since, by whose report its own was replaced."""
    draft.accept()
    since = "another move of the stream ended since, so this one's audit is not kept any more"
    if ended.is_done:
        draft.end("Succeeded", Reason.MOVED, f"the stream was moved to where it was to go; {since}")
    elif desired.spec.cancel:
        draft.end("Cancelled", Reason.CANCELLED, ended.reason or "called off by spec.cancel")
    else:
        draft.end("Failed", Reason.FAILED, ended.reason or "it was called off on the brokers")
    return draft.plan()


def _unknown(desired: StreamMove, observed: MoveObserved, draft: Draft) -> Plan:
    """It was started, and the brokers do not tell of it."""
    brokers = observed.brokers
    if observed.stream_name is None:
        message = f"Stream {desired.spec.stream_ref} is gone, and nobody knows its name on the brokers"
        draft.end("Failed", Reason.FAILED, message)
        return draft.plan()
    if not brokers.reachable:
        draft.say(desired.status.phase or "Running", Reason.BROKERS_UNREACHABLE, brokers.error, holds=None)
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    if brokers.exists and _is_there(desired, observed):
        message = "the stream is as it was to be; another move ended since, so this one's audit is not kept any more"
        draft.end("Succeeded", Reason.MOVED, message)
    elif not draft.is_long_unknown:
        draft.mark_unknown(desired.status.phase or "Running")
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    elif not brokers.exists:
        draft.end("Failed", Reason.FAILED, f"stream {observed.stream_name} was deleted meanwhile")
    elif desired.spec.cancel:
        draft.end(
            "Cancelled", Reason.CANCELLED, "the stream is not as the move wanted it, and no move of it runs"
        )
    else:
        message = "the brokers know nothing of the move any more, and the stream is not as it wanted it"
        draft.end("Failed", Reason.FAILED, message)
    return draft.plan()


def _is_there(desired: StreamMove, observed: MoveObserved) -> bool:
    """Are all replicas in force where the move was to bring them, or as many as it was to make them?"""
    destination, replicas, repair = desired.spec.destination, desired.spec.replicas, desired.spec.repair
    if repair is not None:
        return not set(repair.replace) & set(observed.brokers.members)
    members, change = set(observed.brokers.members), desired.spec.members
    if change is not None:
        return set(change.add) <= members and not set(change.remove) & members
    if destination is None:
        # With replicas beyond it there may be as many already: then it is the count that is to become another.
        return len(members) == replicas and observed.brokers.replicas in (None, replicas)
    wanted = wanted_placement(destination, observed.stream)
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
    if desired.spec.repair is not None and observed.refusal_code == NOT_DEAD:
        draft.accept()
        draft.end("Cancelled", Reason.CANCELLED, f"{observed.refusal}: nothing is to be repaired")
        return draft.plan()
    waits = problems.missing(desired, observed)
    if waits is not None:
        draft.wait_for(*waits)
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    problem = problems.problem(desired, observed)
    if problem is not None:
        draft.refuse(*problem, is_retried=_is_retried(desired))
        return draft.plan()
    draft.accept()
    if _is_there(desired, observed) and not desired.spec.dry_run:
        draft.end("Succeeded", Reason.NOTHING_TO_MOVE, _as_it_is(desired, observed))
        return draft.plan()
    if observed.brokers.running is not None:
        other = observed.brokers.running
        message = (
            f"move {other.id} of the stream runs ({other.progress.stage or MoveStage.UNKNOWN}); one at a time"
        )
        draft.say("Pending", Reason.OTHER_MOVE_RUNNING, message)
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    if draft.made_plan is None:
        draft.say("Pending", Reason.PLANNING, observed.plan_error or "no broker has made a plan yet")
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    return _by_the_plan(desired, observed, draft, now)


def _as_it_is(desired: StreamMove, observed: MoveObserved) -> str:
    if desired.spec.repair is not None:
        return f"{', '.join(desired.spec.repair.replace)} holds none of the stream any more"
    if desired.spec.members is not None:
        return "the replicas that are named are there already, or gone"
    if desired.spec.destination is None:
        return f"the stream has {desired.destination_text} already"
    homes = ", ".join(sorted({naming.cluster_of(member) for member in observed.brokers.members}))
    return f"the stream lives in Cluster {homes} already"


def _by_the_plan(desired: StreamMove, observed: MoveObserved, draft: Draft, now: datetime) -> Plan:
    """There is a plan: what else has to be so before the move starts?"""
    spec, made = desired.spec, draft.made_plan
    assert made is not None
    assert observed.super_cluster is not None
    # A changed spec wakes it.
    recheck_after_ms: int | None = None
    if made.refusal:
        draft.refuse(Reason.NO_SUITABLE_BROKERS, made.refusal, is_retried=_is_retried(desired))
    elif spec.dry_run:
        draft.end("Planned", Reason.DRY_RUN, draft.what_it_takes())
    elif observed.refusal_code == PLAN_OUTDATED:
        draft.plan_anew(observed.refusal or "")
        recheck_after_ms = WAITING_RECHECK_MS
    elif spec.approval == "Manual" and spec.approved and draft.approval_is_void:
        message = (
            "the plan that was approved cannot be carried out any more, and this is another one: set spec.approved to "
            f"false, and then to true to start it; {draft.what_it_takes()}"
        )
        draft.say("AwaitingApproval", Reason.AWAITING_APPROVAL, message)
    elif spec.approval == "Manual" and not spec.approved:
        message = f"set spec.approved to true to start it; {draft.what_it_takes()}"
        draft.say("AwaitingApproval", Reason.AWAITING_APPROVAL, message)
    elif spec.suspend:
        draft.say("Planned", Reason.SUSPENDED, "set spec.suspend to false to go on")
    elif observed.window is not None and not observed.window.is_open:
        draft.say("AwaitingWindow", Reason.AWAITING_WINDOW, draft.when_it_opens())
        recheck_after_ms = _until_it_opens_ms(observed.window, now)
    elif observed.refusal is not None:
        # Somebody else's move of the stream was a moment earlier: it is waited for.
        draft.say("Pending", Reason.OTHER_MOVE_RUNNING, observed.refusal)
        recheck_after_ms = WAITING_RECHECK_MS
    elif has_grant(desired, observed.super_cluster):
        return _start(desired, observed, observed.super_cluster, draft)
    else:
        draft.queue(_who_is_before(desired, observed.super_cluster))
        recheck_after_ms = WAITING_RECHECK_MS
    return draft.plan(recheck_after_ms=recheck_after_ms)


def _until_it_opens_ms(window: Window, now: datetime) -> int | None:
    if window.opens_at is None:
        return None
    return max(WAITING_RECHECK_MS, int((window.opens_at - now).total_seconds() * 1000))


def _is_retried(desired: StreamMove) -> bool:
    spec = desired.spec
    return owner_uid(desired) is not None and spec.repair is None and spec.members is None


def _who_is_before(desired: StreamMove, super_cluster: SuperCluster) -> str:
    budget, others = super_cluster.spec.moves, super_cluster.status.moves
    under_way = [grant.name for grant in others if grant.uid != desired.metadata.uid]
    under_way += [f"{name} (started outside the queue)" for name in super_cluster.status.other_moves]
    name = super_cluster.metadata.name
    if not under_way:
        return f"waiting for a place, which SuperCluster {name} gives at its next look: no other move is under way"
    return (
        f"waiting for a place: spec.moves of SuperCluster {name} allows {budget.concurrent_max} at a time and "
        f"{budget.concurrent_per_node_max} per broker; under way: {', '.join(under_way)}"
    )


def _what(desired: StreamMove, name: str) -> str:
    """What begins, for people."""
    spec, text = desired.spec, desired.destination_text
    if spec.repair is not None or (spec.members is not None and spec.members.add):
        return f"giving stream {name} {text}"
    if spec.members is not None:
        return f"leaving stream {name} {text}"
    return f"{'moving' if spec.destination is not None else 'bringing'} stream {name} to {text}"


def _start(desired: StreamMove, observed: MoveObserved, super_cluster: SuperCluster, draft: Draft) -> Plan:
    metadata = desired.metadata
    draft.say("Queued", Reason.QUEUED, "it has a place in the budget and is being started")
    name = observed.stream_name or ""
    note = Note.done(
        EventReason.MOVE_STARTED,
        f"{_what(desired, name)}: {draft.what_it_takes()}",
    )
    start = StartMove(
        name,
        metadata.uid,
        goal_of(desired, observed.stream, observed.minimum),
        rate_bytes_per_s(desired, super_cluster.spec.moves),
        note=note,
        nodes=tuple(found.name for found in draft.made_plan.targets) if draft.made_plan is not None else (),
    )
    steps: tuple[Step, ...] = (start,)
    if FINALIZER not in metadata.finalizers:
        steps = (SetFinalizers((*metadata.finalizers, FINALIZER), metadata.resource_version), start)
    return draft.plan(steps, recheck_after_ms=STARTED_RECHECK_MS, wait_after_step=True, in_a_row=len(steps))
