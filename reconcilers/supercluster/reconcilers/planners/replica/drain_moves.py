"""StreamMoves that move copies off brokers that leave for good.

They are created a few at a time, withdrawn if the brokers stay after all, and kept for a while after their
end. The brokers' own map records that a broker leaves, whether the operator or an administrator ordered it.
So an operator that was killed finds it there (OP-4), and both orders are treated alike (MR-2). Each
StreamMove waits for its place in the one budget, after repairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from supercluster.api import Cluster, Stream, StreamMove, SuperCluster
from supercluster.api.conditions import EventReason, Reason
from supercluster.api.super_cluster import OTHER_MOVES_MAX, LeavingStatus, WaitingRepair
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.move import generated
from supercluster.reconcilers.planners.move.generated import REASON_CHARACTERS_MAX, delete, stream_of
from supercluster.reconcilers.planners.move.views import is_ended, is_in_flight
from supercluster.reconcilers.planners.plan import CreateObject, Note, Step
from supercluster.reconcilers.planners.replica.drains import Drain, DrainPlan, Obstacle, plan_drains
from supercluster.reconcilers.planners.replica.repair_moves import (
    LivingStream,
    RepairObserved,
    is_about_to_run,
    state_of,
)
from supercluster.reconcilers.planners.replica.repairs import StreamState
from supercluster.reconcilers.planners.replica.rules import Rule, rule_for
from supercluster.reconcilers.planners.status import is_within, parse_timestamp
from supercluster.reconcilers.planners.strategies import Strategy

# The queue of moves is kept filled, and no fuller: of a broker with thousands of copies a few are planned at a time.
OPEN_PER_PLACE = 2
# StreamMoves that wait for people's approval at a time: a person can look through so many.
HELD_MAX = 64
# Of these so many are named in a sentence.
NAMED_MAX = 5
HISTORY_MAX = 20
# One that the brokers refused, or that failed, is planned anew after this, with what is known then.
AGAIN_AFTER = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class DrainMoves:
    """What is to be done and said about brokers that go."""

    steps: tuple[Step, ...] = ()
    status: LeavingStatus | None = None
    is_watching: bool = False
    """Copies are still to be moved off: look again soon."""
    blocked: tuple[Reason, str] | None = None
    """What does not go on without a person. All else does."""


def consider(
    super_cluster: SuperCluster,
    observed: RepairObserved | None,
    clusters: Sequence[Cluster],
    streams: Sequence[Stream],
    moves: Sequence[StreamMove],
    strategies: Mapping[str, Strategy],
    now: datetime,
    refused: Mapping[str, str] | None = None,
) -> DrainMoves:
    """`observed` is None while the brokers do not say: then nothing is done, and what was said stays. `refused`: names of
    StreamMoves that Kubernetes did not take a moment ago, and why."""
    mine = [move for move in moves if move.spec.drains]
    open_ones = [move for move in mine if not is_ended(move)]
    if observed is None:
        return DrainMoves((), super_cluster.status.leaving, is_watching=bool(open_ones))
    going = leaving(observed, clusters)
    withdrawn = [(move, why) for move in open_ones if (why := _why_withdrawn(move, going, now))]
    steps: list[Step] = [
        delete(move, Note.done(EventReason.DRAIN_MOVE_WITHDRAWN, why)) for move, why in withdrawn
    ]
    plan = DrainPlan()
    by_ref = {each.metadata.name: each for each in streams}
    # Those that wait for a person take no place of the others, however many there are.
    held = {stream_of(move, by_ref): _what_to_do(move) for move in open_ones if _waits_for_a_person(move)}
    not_made: dict[str, str] = {}
    if going:
        states, unknown = stream_states(super_cluster, observed, clusters, streams, moves)
        by_name = {stream.stream_name: stream for stream in streams}
        free = OPEN_PER_PLACE * super_cluster.spec.moves.concurrent_max - (len(open_ones) - len(held))
        held_free = HELD_MAX - len(held)
        plan = plan_drains(observed.nodes, states, going, len(states), strategies)
        plan = DrainPlan(plan.drains, (*plan.obstacles, *of_others(unknown, going)), plan.streams)
        for drain in plan.drains:
            declared = by_name.get(drain.stream)
            waits = bool(drain.cluster) and declared is not None and declared.spec.move.approval == "Manual"
            if (held_free if waits else free) <= 0:
                continue
            step = _create(super_cluster, drain, declared, mine, now)
            why_refused = generated.why_refused(step, refused)
            if why_refused:
                not_made[drain.stream] = why_refused
            elif step is not None:
                steps.append(step)
                held_free, free = (held_free - 1, free) if waits else (held_free, free - 1)
    steps += generated.beyond_history(mine, HISTORY_MAX)
    holding = tuple(name for name in sorted(going) if observed.nodes[name].copies)
    if not holding and not open_ones:
        return DrainMoves(tuple(steps))
    busy = {stream_of(move, by_ref) for move in open_ones}
    status = LeavingStatus(
        brokers=holding[:OTHER_MOVES_MAX],
        streams=plan.streams,
        moving=len(open_ones),
        waiting=(
            *(WaitingRepair(stream=name, reason=what) for name, what in sorted(held.items())),
            *(WaitingRepair(stream=name, reason=why[:1000]) for name, why in sorted(not_made.items())),
            *(
                WaitingRepair(stream=found.stream, reason=found.reason[:1000])
                for found in plan.obstacles
                if found.stream not in busy
            ),
        )[:OTHER_MOVES_MAX],
    )
    return DrainMoves(tuple(steps), status, is_watching=True, blocked=_blocked(held, going))


def _waits_for_a_person(move: StreamMove) -> bool:
    is_suspended = move.spec.suspend and move.status.phase == "Planned"
    return move.status.phase == "AwaitingApproval" or is_suspended


def _what_to_do(move: StreamMove) -> str:
    name = move.metadata.name
    if move.spec.suspend:
        return f"StreamMove {name} is suspended: set its spec.suspend to false"
    again = "to false and to " if move.spec.approved else ""
    return f"StreamMove {name} awaits approval: set its spec.approved {again}to true"


def _blocked(held: Mapping[str, str], going: frozenset[str]) -> tuple[Reason, str] | None:
    if not held:
        return None
    told = [f"stream {name}: {what}" for name, what in sorted(held.items())[:NAMED_MAX]]
    if len(held) > NAMED_MAX:
        told.append(f"and {len(held) - NAMED_MAX} more streams (status.leaving names them)")
    text = (
        f"{', '.join(sorted(going))} can't go before a person acts: {'; '.join(told)}; or let the spec.placement of the stream "
        "have room elsewhere, or keep more brokers"
    )
    return Reason.AWAITING_APPROVAL, text


def leaving(observed: RepairObserved, clusters: Sequence[Cluster]) -> frozenset[str]:
    """Brokers that go, of clusters that stay: what is to become of a Cluster's streams when it is deleted, its deletion
    policy says. Those that are about to be told so are no place for a copy any more, and count."""
    staying = {each.metadata.name: each for each in clusters if each.metadata.deletion_timestamp is None}
    told = {name for each in staying.values() for name in about_to_go(each)}
    return frozenset(
        name
        for name, node in observed.nodes.items()
        if node.cluster in staying and (node.leaves or name in told)
    )


def about_to_go(cluster: Cluster) -> frozenset[str]:
    """Brokers that it was decided of that they go, whether or not the map has it already."""
    drain, kept = cluster.status.drain, naming.brokers(cluster.metadata.name, cluster.spec.replicas)
    return frozenset(each.name for each in drain.brokers) - set(kept) if drain is not None else frozenset()


def stream_states(
    super_cluster: SuperCluster,
    observed: RepairObserved,
    clusters: Sequence[Cluster],
    streams: Sequence[Stream],
    moves: Sequence[StreamMove],
) -> tuple[list[StreamState], list[LivingStream]]:
    """The streams as they are planned with, and those that nobody here may move: a resource that is not here declares them."""
    by_mark = {f"{each.metadata.namespace}/{each.metadata.name}": each for each in streams}
    by_ref = {each.metadata.name: each for each in streams}
    busy = {
        stream_of(move, by_ref)
        for move in moves
        if is_about_to_run(move) or (move.spec.drains and not is_ended(move))
    }
    states, unknown = [], []
    for living in observed.streams:
        declared = by_mark.get(living.declared_by)
        if living.declared_by and declared is None:
            unknown.append(living)
            continue
        if declared is not None and declared.metadata.deletion_timestamp is not None:
            continue
        rule = rule_for(declared, living.name, living.replicas, observed.policies, super_cluster)
        tags = frozenset(living.tags) | frozenset(
            declared.spec.placement.tags if declared is not None else ()
        )
        rule = rule or Rule(0, super_cluster.spec.repair, "nobody", "no resource declares the stream")
        states.append(state_of(living, rule, observed, busy, tags, _elsewhere(declared, living, clusters)))
    return states, unknown


def _elsewhere(declared: Stream | None, living: LivingStream, clusters: Sequence[Cluster]) -> frozenset[str]:
    """Only of a declared stream it is known that nobody named the cluster that it is in."""
    if declared is None or declared.spec.placement.cluster is not None:
        return frozenset()
    home = {member.rpartition("-")[0] for member in living.members}
    return frozenset(
        each.metadata.name
        for each in clusters
        if each.metadata.deletion_timestamp is None
        and each.metadata.name not in home
        and set(declared.spec.placement.tags) <= set(each.spec.tags)
    )


def of_others(unknown: Sequence[LivingStream], going: frozenset[str]) -> tuple[Obstacle, ...]:
    return tuple(
        Obstacle(
            living.name,
            f"Stream {living.declared_by} declares it, and is not here: create that resource again, or delete the stream",
            is_passing=False,
        )
        for living in unknown
        if going & set(living.members)
    )


def _why_withdrawn(move: StreamMove, going: frozenset[str], now: datetime) -> str:
    """Empty: it stays. What the brokers have begun goes on to its end."""
    metadata, status = move.metadata, move.status
    if is_in_flight(status) or metadata.deletion_timestamp is not None:
        return ""
    drained = move.spec.drains or ()
    if not going & set(drained):
        return f"{', '.join(drained)} stays after all: deleted StreamMove {metadata.name}"
    return generated.why_planned_anew(move, AGAIN_AFTER, now)


def _create(
    super_cluster: SuperCluster,
    drain: Drain,
    declared: Stream | None,
    mine: Sequence[StreamMove],
    now: datetime,
) -> CreateObject | None:
    """None: an earlier try ended a moment ago."""
    base = generated.base_name(super_cluster, "drain", drain.stream, declared, drain.leaving)
    tries = generated.tries_of(base, mine)
    ends = (
        parse_timestamp(move.status.ended_at or "")
        for move in tries.values()
        if move.status.phase != "Succeeded"
    )
    if any(is_within(ended, AGAIN_AFTER, now) for ended in ends):
        return None
    name = generated.next_name(base, tries)
    goal: dict[str, object] = {"drains": list(drain.leaving)}
    if drain.cluster:
        goal["destination"] = {"cluster": drain.cluster}
        if declared is not None:
            goal |= declared.spec.move.to_object()
    else:
        goal["repair"] = {
            "replace": list(drain.leaving),
            "nodes": list(drain.nodes),
            "away": "0s",
            "reason": drain.why[:REASON_CHARACTERS_MAX],
        }
    # A Stream takes back moves of its own that its spec does not ask for: one to another cluster is not its own.
    manifest = generated.manifest(
        super_cluster, name, drain.stream, declared, goal, is_owned=not drain.cluster
    )
    note = Note.done(
        EventReason.DRAIN_MOVE_CREATED, f"stream {drain.stream}: {drain.why}: made StreamMove {name}"
    )
    return CreateObject(manifest, note=note)
