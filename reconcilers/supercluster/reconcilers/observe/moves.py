"""Observes a move: the answers of the brokers' admin calls, in the form for the planner. All input is treated
as untrusted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from supercluster.api import Cluster, ReplicaPolicy, Stream, StreamMove, SuperCluster
from supercluster.api.stream import NodeFinding
from supercluster.api.stream_move import (
    FINDINGS_MAX,
    HeadRoom,
    MemberAudit,
    MoveAudit,
    MovePlan,
    MoveProgress,
    MoveStage,
    Quorum,
    StageTime,
)
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.context import Attempt, Context
from supercluster.reconcilers.observe.look import ask_for_stream
from supercluster.reconcilers.observe.targets import broker_target
from supercluster.reconcilers.observe.waiting_moves import Answer, depends_on
from supercluster.reconcilers.planners.move.stream_move import needs_plan
from supercluster.reconcilers.planners.move.views import (
    EndedMove,
    MoveObserved,
    MoveView,
    RunningMove,
    goal_of,
    is_ended,
    rate_bytes_per_s,
)
from supercluster.reconcilers.planners.replica.rules import rule_for
from supercluster.reconcilers.planners.status import timestamp
from supercluster.reconcilers.planners.stream.config import mark_of
from supercluster.reconcilers.planners.stream.stream import BrokersView
from supercluster.reconcilers.planners.window import Window, WindowError, window_at
from supercluster.reconcilers.ports import (
    Brokers,
    BrokersError,
    BrokersRefusedError,
    BrokersUnreachableError,
    BrokerTarget,
    mapping,
)

NS_PER_S = 1_000_000_000
# The year 2200: what is beyond it is no time at which a move began.
INSTANT_MAX_NS = 7_258_118_400 * NS_PER_S
REASON_CHARACTERS_MAX = 1_000
EARLIER_MAX = 64
STAGES_MAX = 32


async def look_at_move(
    context: Context, desired: StreamMove, attempt: Attempt, now: datetime
) -> MoveObserved:
    cache, brokers, waiting = context.cache, context.brokers, context.waiting
    namespace, spec = desired.metadata.namespace, desired.spec
    super_cluster = cache.model(SuperCluster, namespace, spec.super_cluster)
    stream = cache.model(Stream, namespace, spec.stream_ref) if spec.stream_ref else None
    if stream is not None and stream.spec.super_cluster != spec.super_cluster:
        stream = None
    # A Stream that was deleted meanwhile leaves the name that the move was planned with: the brokers may still carry it out.
    name = spec.stream or (stream.stream_name if stream else desired.status.stream_name)
    has_stream = spec.stream_ref is None or stream is not None
    window, window_error = _window(desired, now)
    view, plan, plan_error = MoveView(), None, ""
    minimum, minimum_by = 0, ""
    # Where it is ended, and nobody asks for its deletion, the brokers need not be asked.
    if name is not None and not (is_ended(desired) and desired.metadata.deletion_timestamp is None):
        rate = rate_bytes_per_s(desired, super_cluster.spec.moves) if super_cluster is not None else 0
        others = cache.moves_of(stream) if stream is not None else ()
        of = depends_on(desired, stream, others, rate)
        kept = waiting.answer(desired, of, window, now)
        target = broker_target(cache, namespace, spec.super_cluster)
        if kept is not None:
            view = kept.view
        else:
            view = await _ask(brokers, target, name)
            handed = (await context.handed.of(target)).get(name)
            view = replace(view, handed=handed.text if handed is not None else "")
        minimum, minimum_by = _minimum(cache, desired, stream, super_cluster, name, view)
        if kept is not None:
            plan, plan_error = kept.plan, kept.plan_error
        elif (
            view.exists
            and has_stream
            and super_cluster is not None
            and needs_plan(desired, now)
            and not isinstance(target, str)
        ):
            goal = goal_of(desired, stream, minimum)
            plan, plan_error = await _plan(brokers, target, desired, goal, rate, name, view, now)
        if kept is None:
            waiting.note(desired, Answer(now, of, view, plan, plan_error))
    return MoveObserved(
        super_cluster=super_cluster,
        clusters=cache.of_super_cluster(Cluster, namespace, spec.super_cluster),
        stream=stream,
        stream_name=name,
        brokers=view,
        plan=plan,
        plan_error=plan_error,
        window=window,
        window_error=window_error,
        minimum=minimum,
        minimum_by=minimum_by,
        refusal=attempt.refusal,
        refusal_code=attempt.refusal_code,
    )


def _minimum(
    cache: ObjectCache,
    desired: StreamMove,
    stream: Stream | None,
    super_cluster: SuperCluster | None,
    name: str,
    view: MoveView,
) -> tuple[int, str]:
    """How many usable replicas have to be left where some are taken away, and by whose word."""
    members = desired.spec.members
    if members is None or not members.remove or super_cluster is None or view.replicas is None:
        return 0, ""
    policies = cache.of_super_cluster(ReplicaPolicy, desired.metadata.namespace, desired.spec.super_cluster)
    rule = rule_for(stream, name, view.replicas, policies, super_cluster)
    return (rule.minimum, rule.decided_by) if rule is not None else (0, "")


def _window(desired: StreamMove, now: datetime) -> tuple[Window | None, str]:
    if desired.spec.maintenance_window is None or is_ended(desired):
        return None, ""
    try:
        return window_at(desired.spec.maintenance_window, now), ""
    except WindowError as error:
        return None, str(error)


async def _ask(brokers: Brokers, target: BrokerTarget | str, name: str) -> MoveView:
    stream, answer = await asyncio.gather(
        ask_for_stream(brokers, target, name), _ask_for_move(brokers, target, name)
    )
    if not stream.reachable or stream.info is None:
        return MoveView(reachable=stream.reachable, error=stream.error)
    return MoveView(error=answer) if isinstance(answer, str) else move_view(answer, stream)


async def _ask_for_move(brokers: Brokers, target: BrokerTarget | str, name: str) -> Mapping[str, Any] | str:
    """What the brokers say of the stream's move, or why nothing."""
    if isinstance(target, str):
        return target
    try:
        return await brokers.move_state(target, name)
    except BrokersError as error:
        return str(error)


async def _plan(
    brokers: Brokers,
    target: BrokerTarget,
    desired: StreamMove,
    goal: Mapping[str, object],
    rate: int,
    name: str,
    view: MoveView,
    now: datetime,
) -> tuple[MovePlan | None, str]:
    try:
        answer = await brokers.plan_move(target, name, goal, rate)
    except BrokersRefusedError as error:
        if error.is_passing:
            return None, str(error)
        return MovePlan(planned_at=timestamp(now), refusal=str(error), origin=view.members), ""
    except BrokersUnreachableError as error:
        return None, str(error)
    return move_plan(answer, view, desired, rate, now), ""


def move_view(answer: Mapping[str, Any], stream: BrokersView) -> MoveView:
    """The answer to GET /admin/streams/<account>/<name>/move, beside STREAM.INFO's."""
    info = stream.info
    assert info is not None
    running, last = mapping(answer.get("move")), mapping(answer.get("lastMove"))
    members = tuple(sorted(_node(member) for member in answer.get("members") or ())) or info.members
    return MoveView(
        reachable=True,
        error="",
        exists=True,
        running=_running(running) if running.get("id") else None,
        last=_ended(last) if last.get("id") else None,
        earlier=tuple(_earlier(last.get("earlier"))),
        members=members,
        replicas=info.replicas_configured,
        declared_by=mark_of(info.config) or "",
        consumers=info.consumers,
        leader=info.leader,
    )


def _node(member: Any) -> str:
    """The broker of a member, which is a name with the incarnation of its copy."""
    return str(member).partition("@")[0]


def _running(move: Mapping[str, Any]) -> RunningMove:
    # What the stream's leader says; while it can't be asked, only the map's record is there.
    told = mapping(move.get("progress"))
    eta_ns = told.get("eta_ns")
    progress = MoveProgress(
        stage=MoveStage(told["stage"]) if told.get("stage") else None,
        targets=tuple(_node(target) for target in move.get("targets") or ()),
        bytes_left=_count(told.get("bytes_left")),
        lag_entries=_count(told.get("lag")),
        eta_seconds=-(-_count(eta_ns) // NS_PER_S) if eta_ns is not None else None,
        bytes_per_s=_count(move["bytes_per_s"]) if "bytes_per_s" in move else None,
        trouble=str(told.get("trouble") or "")[:REASON_CHARACTERS_MAX],
    )
    is_slow = bool(told.get("below_ingest_rate"))
    return RunningMove(str(move["id"]), progress, bool(move.get("cancelled", False)), is_slow)


def _ended(report: Mapping[str, Any]) -> EndedMove:
    audit = mapping(report.get("audit"))
    results = mapping(audit.get("results"))
    members = [MemberAudit(name=str(name), result=str(result)) for name, result in sorted(results.items())]
    return EndedMove(
        id=str(report["id"]),
        is_done=report.get("outcome") == "done",
        started=_instant(report.get("started_ns")),
        reason=str(report.get("reason") or "")[:REASON_CHARACTERS_MAX],
        bytes_copied=_count(report.get("bytes_copied")),
        audit=MoveAudit(
            ranges=_count(audit.get("ranges")),
            sequences=_count(audit.get("sequences")),
            messages=_count(audit.get("messages")),
            first_sequence=_count(audit.get("first_seq")),
            last_sequence=_count(audit.get("last_seq")),
            digest=str(audit.get("digest") or ""),
            members=tuple(members),
        ),
        stages=tuple(_stages(mapping(report.get("stage_ms")))),
    )


def _stages(told: Mapping[str, Any]) -> Iterable[StageTime]:
    order = list(MoveStage)
    found = [StageTime(stage=MoveStage(stage), milliseconds=_count(ms)) for stage, ms in told.items()]
    return sorted(found, key=lambda time: order.index(time.stage))[:STAGES_MAX]


def _earlier(entries: Any) -> Iterable[EndedMove]:
    """Moves before the last one: [id, outcome, reason, …]."""
    for entry in list(entries)[:EARLIER_MAX] if isinstance(entries, list | tuple) else ():
        if isinstance(entry, list | tuple) and len(entry) >= 3:
            yield EndedMove(str(entry[0]), entry[1] == "done", str(entry[2])[:REASON_CHARACTERS_MAX])


def move_plan(
    answer: Mapping[str, Any], view: MoveView, desired: StreamMove, rate: int, now: datetime
) -> MovePlan:
    """The answer to a dry run of POST, and what it means for whom."""
    targets = tuple(_findings(answer.get("targets")))
    names = {found.name for found in targets}
    joining = [found.name for found in targets if found.name not in view.members]
    refusal = str(answer.get("refusal") or "")[:REASON_CHARACTERS_MAX]
    return MovePlan(
        planned_at=timestamp(now),
        origin=view.members,
        targets=targets,
        rejected=tuple(_findings(answer.get("rejected"))),
        bytes=_count(answer.get("bytesToSend")),
        messages=_count(answer.get("messages")),
        bytes_per_s=rate,
        estimated_seconds=-(-int(_number(answer.get("estimatedS")) * 1000) // 1000),
        quorum_before=_quorum(answer.get("quorumBefore")),
        quorum_after=_quorum(answer.get("quorumAfter")),
        head_room=tuple(_head_room(answer.get("headRoom"))),
        disturbs=() if refusal else tuple(_disturbs(view, names, joining, desired.destination_text, rate)),
        refusal=refusal,
    )


def _disturbs(
    view: MoveView, targets: set[str], joining: list[str], destination: str, rate: int
) -> Iterable[str]:
    leaving = sorted(set(view.members) - targets)
    hands_over = view.leader not in targets
    if hands_over and leaving:
        leader = view.leader or "the present leader"
        yield f"{leader} hands leadership over to a broker of {destination}: publishers wait for it once"
    if joining:
        limit = f"at most {rate} bytes per second together" if rate else "as fast as they can"
        yield f"{', '.join(view.members) or 'the present replicas'} send copies to {', '.join(joining)}, {limit}"
    elif leaving:
        yield f"{', '.join(leaving)} drop their copies, after a grace time"
    if view.consumers and hands_over and leaving:
        count = f"{view.consumers} consumer" + ("s" if view.consumers != 1 else "")
        yield f"{count} go on from the new leader, at their positions"


def _findings(entries: Any) -> Iterable[NodeFinding]:
    for entry in list(entries or ())[:FINDINGS_MAX]:
        found = mapping(entry)
        if found.get("node"):
            yield NodeFinding(
                name=str(found["node"]), reason=str(found.get("why", ""))[:REASON_CHARACTERS_MAX]
            )


def _head_room(entries: Any) -> Iterable[HeadRoom]:
    for entry in list(entries or ())[:FINDINGS_MAX]:
        found = mapping(entry)
        if found.get("node"):
            yield HeadRoom(
                name=str(found["node"]),
                before_bytes=_count(found.get("roomBytes")),
                after_bytes=_count(found.get("afterBytes")),
            )


def _quorum(value: Any) -> Quorum:
    found = mapping(value)
    return Quorum(
        voters=_count(found.get("voters")),
        majority=_count(found.get("majority")),
        well=_count(found.get("well")),
    )


def _instant(value: Any) -> datetime | None:
    ns = _count(value)
    return datetime.fromtimestamp(ns / NS_PER_S, UTC) if 0 < ns < INSTANT_MAX_NS else None


def _count(value: Any) -> int:
    """A figure of the brokers'; what is none counts as nothing, and a debt too."""
    return max(0, int(_number(value)))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
