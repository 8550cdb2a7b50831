"""Repairs as StreamMoves: those to create, those to withdraw because the replica is back, and those to delete
after their end.

A repair is executed like a move. So the brokers plan it once more, it waits for its place in the one budget,
and it is watched and proven in the same way. Its name derives from the lost replica and the time of the loss,
so a repeated round creates only one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from supercluster.api import ReplicaPolicy, Stream, StreamMove, SuperCluster
from supercluster.api.conditions import EventReason
from supercluster.api.super_cluster import OTHER_MOVES_MAX, RepairStatus, WaitingRepair
from supercluster.api.units import duration_ns, size_bytes
from supercluster.reconcilers.planners.move import generated
from supercluster.reconcilers.planners.move.generated import (
    REASON_CHARACTERS_MAX,
    TRIM_LABEL,
    delete,
    stream_of,
)
from supercluster.reconcilers.planners.move.views import (
    RATE_BYTES_PER_S_MAX,
    is_ended,
    is_in_flight,
    is_repair,
)
from supercluster.reconcilers.planners.plan import CreateObject, Note, Step
from supercluster.reconcilers.planners.replica.extra_replicas import Trim, plan_trims
from supercluster.reconcilers.planners.replica.repairs import (
    Budget,
    Repair,
    RepairPlan,
    RunningRepair,
    StreamState,
    is_usable,
    plan_repairs,
)
from supercluster.reconcilers.planners.replica.rules import Rule, policy_for, rule_for
from supercluster.reconcilers.planners.status import is_within, parse_timestamp
from supercluster.reconcilers.planners.strategies import Node, Strategy

# Repairs that have ended and are kept for a look at their audits.
HISTORY_MAX = 20
# A repair that the brokers refuse is planned anew after this, perhaps with another broker.
REFUSED_KEPT = timedelta(seconds=30)
# So often the plan is made again without streams whose pause lasts.
PAUSED_LOOKS_MAX = 16


@dataclass(frozen=True, slots=True)
class LivingStream:
    """A stream as the brokers list it."""

    name: str
    members: tuple[str, ...]
    leader: str
    replicas: int
    """The count that it is configured with."""
    declared_by: str = ""
    tags: tuple[str, ...] = ()
    bytes: int = 0
    """What a copy takes."""
    is_moving: bool = False
    in_memory: bool = False


@dataclass(frozen=True, slots=True)
class RepairObserved:
    """What repair is planned from."""

    nodes: Mapping[str, Node]
    now: datetime
    """By the brokers' clock, as the times in `nodes` are."""
    streams: tuple[LivingStream, ...] = ()
    """Looked at only while a broker is away, or a copy of no use."""
    policies: tuple[ReplicaPolicy, ...] = ()
    unusable: Mapping[str, Mapping[str, datetime]] = field(default_factory=dict)
    """Stream → brokers that are there and can do nothing with their copies, and since when."""
    why_unusable: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Stream → brokers → what they say of those copies."""

    @property
    def lost(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, node in self.nodes.items() if node.away_since is not None))


@dataclass(frozen=True, slots=True)
class RepairMoves:
    """What is to be done and said about lost replicas."""

    steps: tuple[Step, ...] = ()
    status: RepairStatus | None = None
    is_watching: bool = False
    """A repair is under way or waits: look again soon."""
    next_ms: int | None = None
    """In how much time a repair becomes due that could begin then: that is no event, and nothing else would tell of it."""


def is_own(move: StreamMove) -> bool:
    """Was it made here? For lost replicas, or for some beyond the count."""
    return is_repair(move) or TRIM_LABEL in move.metadata.labels


def consider(
    super_cluster: SuperCluster,
    observed: RepairObserved | None,
    streams: Sequence[Stream],
    moves: Sequence[StreamMove],
    strategies: Mapping[str, Strategy],
    now: datetime,
    placed: Collection[str] = (),
    leaderless: Collection[str] = (),
    refused: Mapping[str, str] | None = None,
) -> RepairMoves:
    """`observed` is None while the brokers do not say: then nothing is done, and what was said stays. `placed`: uids of moves
    that have a place in the budget; `leaderless`: of those whose stream nobody leads, which copy nothing; `refused`: names of
    StreamMoves that Kubernetes did not take a moment ago, and why."""
    mine = [move for move in moves if is_own(move)]
    open_ones = [move for move in mine if not is_ended(move)]
    if observed is None:
        return RepairMoves((), super_cluster.status.repair, is_watching=bool(open_ones))
    by_ref = {stream.metadata.name: stream for stream in streams}
    withdrawn = {
        move.metadata.uid: why
        for move in open_ones
        if (why := _why_withdrawn(super_cluster, move, stream_of(move, by_ref), observed, streams, now))
    }
    by_name = {stream.stream_name: stream for stream in streams}
    paused: set[str] = set()
    not_made: dict[str, str] = {}
    for _ in range(PAUSED_LOOKS_MAX):
        plan, trims = _plan(
            super_cluster, observed, streams, moves, open_ones, strategies, paused, placed, leaderless
        )
        made = [
            (repair.stream, _create(super_cluster, repair, by_name.get(repair.stream), mine, now))
            for repair in plan.repairs
        ]
        not_made |= {stream: why for stream, step in made if (why := generated.why_refused(step, refused))}
        late = {stream for stream, step in made if step is None or stream in not_made}
        if not late:
            break
        paused |= late  # What they would have taken of the budget is for others.
    steps: list[Step] = [
        delete(move, Note.done(EventReason.REPAIR_WITHDRAWN, withdrawn[move.metadata.uid]))
        for move in open_ones
        if move.metadata.uid in withdrawn
    ]
    steps += [step for stream, step in made if step is not None and stream not in not_made]
    for trim in trims:
        step = _create_trim(super_cluster, trim, by_name.get(trim.stream), mine, now)
        if step is not None and not generated.why_refused(step, refused):
            steps.append(step)
    steps += generated.beyond_history(mine, HISTORY_MAX)
    waits = (*not_made.items(), *(told for told in plan.waiting if told[0] not in not_made))
    waiting = tuple(WaitingRepair(stream=name, reason=why[:1000]) for name, why in waits[:OTHER_MOVES_MAX])
    status = RepairStatus(
        below_minimum=len(plan.below),
        repairing=sum(move.spec.repair is not None for move in open_ones),
        waiting_for_budget=len(plan.queued),
        waiting=waiting,
        lost_brokers=observed.lost[:OTHER_MOVES_MAX],
    )
    is_quiet = not (observed.lost or open_ones or plan.below)
    next_ms = None
    if plan.next_at is not None:
        next_ms = max(0, -((observed.now - plan.next_at) // timedelta(milliseconds=1)))  # rounded up
    return RepairMoves(tuple(steps), None if is_quiet else status, bool(open_ones), next_ms)


def _plan(
    super_cluster: SuperCluster,
    observed: RepairObserved,
    streams: Sequence[Stream],
    moves: Sequence[StreamMove],
    open_ones: Sequence[StreamMove],
    strategies: Mapping[str, Strategy],
    paused: Collection[str],
    placed: Collection[str],
    leaderless: Collection[str],
) -> tuple[RepairPlan, tuple[Trim, ...]]:
    by_mark = {f"{each.metadata.namespace}/{each.metadata.name}": each for each in streams}
    by_ref = {each.metadata.name: each for each in streams}
    coming = [move for move in moves if is_about_to_run(move)]
    # A roll-out lets no move begin, and waits until the streams are whole: neither is waited for, or none would ever go on.
    passed = {stream_of(move, by_ref) for move in coming if _waits_for_a_place(move, placed)}
    busy = {stream_of(move, by_ref) for move in coming if not _waits_for_a_place(move, placed)}
    states = []
    for living in observed.streams:
        unusable = observed.unusable.get(living.name, {})
        if len(living.members) == living.replicas and all(
            is_usable(observed.nodes, unusable, member) for member in living.members
        ):
            continue  # No minimum is above the count, so there is nothing to be said of it, by whatever rule.
        declared = by_mark.get(living.declared_by)
        if declared is not None and declared.metadata.deletion_timestamp is not None:
            continue
        rule = rule_for(declared, living.name, living.replicas, observed.policies, super_cluster)
        if rule is None or (living.declared_by and declared is None):
            continue
        states.append(state_of(living, rule, observed, busy, frozenset(living.tags)))
    held = {living.name: frozenset(living.members) for living in observed.streams}
    # One that the brokers refuse copies nothing; it is planned anew after a while, and nobody waits for it.
    running = tuple(
        _running(move, by_ref, observed.policies, held, is_led=move.metadata.uid not in leaderless)
        for move in open_ones
        if move.status.phase != "Refused"
    )
    budget = Budget(running)
    plan = plan_repairs(observed.nodes, states, running, strategies, observed.now, budget, paused)
    taken = passed | {repair.stream for repair in plan.repairs}
    trims = plan_trims(observed.nodes, states, taken, strategies, budget, observed.now)
    return plan, trims


def state_of(
    living: LivingStream,
    rule: Rule,
    observed: RepairObserved,
    busy: Collection[str],
    tags: frozenset[str],
    elsewhere: frozenset[str] = frozenset(),
) -> StreamState:
    """A stream as it is planned with. `busy`: streams that a move is under way, or planned, of."""
    return StreamState(
        living.name,
        living.members,
        living.leader,
        rule,
        tags,
        living.bytes,
        living.is_moving or living.name in busy,
        elsewhere,
        observed.unusable.get(living.name, {}),
        living.replicas,
        living.in_memory,
        observed.why_unusable.get(living.name, {}),
    )


def is_about_to_run(move: StreamMove) -> bool:
    """Does a repair, or a drain, wait for it? Not for one that waits for a person or a window itself, which may be days: behind the repair it is
    planned anew."""
    if is_ended(move) or move.spec.dry_run:
        return False
    return move.status.phase not in ("AwaitingApproval", "AwaitingWindow", "Planned", "Refused") or is_own(
        move
    )


def _waits_for_a_place(move: StreamMove, placed: Collection[str]) -> bool:
    """Is it somebody else's, in the queue, and stays there for now? Repairs come before it, and it is planned anew."""
    return move.status.phase == "Queued" and move.metadata.uid not in placed and not is_own(move)


def _running(
    move: StreamMove,
    by_ref: Mapping[str, Stream],
    policies: Sequence[ReplicaPolicy],
    held: Mapping[str, frozenset[str]],
    *,
    is_led: bool,
) -> RunningRepair:
    name, repair = stream_of(move, by_ref), move.spec.repair
    declared = by_ref.get(move.spec.stream_ref or "")
    labels = declared.metadata.labels if declared is not None else None
    policy, _ = policy_for(policies, name, labels)
    joining = frozenset(repair.nodes if repair is not None else ()) - held.get(name, frozenset())
    return RunningRepair(name, policy.metadata.name if policy else "", joining, is_led)


def _why_withdrawn(
    super_cluster: SuperCluster,
    move: StreamMove,
    stream: str,
    observed: RepairObserved,
    streams: Sequence[Stream],
    now: datetime,
) -> str:
    """Empty: the repair stays. What the brokers have begun goes on to its end."""
    repair, metadata = move.spec.repair, move.metadata
    if is_in_flight(move.status) or metadata.deletion_timestamp is not None:
        return ""
    unusable = observed.unusable.get(stream, {})
    if repair is None:
        declared = next((each for each in streams if each.stream_name == stream), None)
        return _why_stays(super_cluster, move, stream, observed, declared)
    back = [name for name in repair.replace if is_usable(observed.nodes, unusable, name)]
    if back:
        return (
            f"{', '.join(back)} is back before its replica was replaced: deleted StreamMove {metadata.name}"
        )
    return generated.why_planned_anew(move, REFUSED_KEPT, now)


def _why_stays(
    super_cluster: SuperCluster,
    move: StreamMove,
    stream: str,
    observed: RepairObserved,
    declared: Stream | None,
) -> str:
    """Why replicas beyond the count are not to be taken away after all; empty: they are."""
    living = next((each for each in observed.streams if each.name == stream), None)
    change = move.spec.members
    if living is None or change is None:
        return ""
    unusable = observed.unusable.get(stream, {})
    rest = set(living.members) - set(change.remove)
    lost = sorted(name for name in rest if not is_usable(observed.nodes, unusable, name))
    is_well = any(is_usable(observed.nodes, unusable, name) for name in change.remove)
    rule = rule_for(declared, stream, living.replicas, observed.policies, super_cluster)
    if rule is None or rule.rules.auto_remove == "Never":
        told = f"{', '.join(change.remove)} stays: nobody asks for its removal any more (autoRemove)"
    elif lost and is_well:
        told = f"{', '.join(change.remove)} stays while {', '.join(lost)} may be lost"
    elif len(rest) < living.replicas:
        told = f"{', '.join(change.remove)} is not beyond the count of {living.replicas} any more"
    else:
        return ""
    return f"{told}: deleted StreamMove {move.metadata.name}"


def _create(
    super_cluster: SuperCluster,
    repair: Repair,
    declared: Stream | None,
    mine: Sequence[StreamMove],
    now: datetime,
) -> CreateObject | None:
    """None: an earlier try of the same repair ended a moment ago."""
    since = [(name, at.isoformat() if at is not None else "gone") for name, at in sorted(repair.since)]
    name = _next_name(super_cluster, "repair", repair.stream, since, declared, repair.rule, mine, now)
    if name is None:
        return None
    rules = repair.rule.rules
    goal: dict[str, object] = {
        "repair": {
            "replace": list(repair.replaced),
            "nodes": list(repair.nodes),
            "away": rules.failure_recovery_interval,
            "reason": repair.why[:REASON_CHARACTERS_MAX],
        },
    }
    whole = size_bytes(rules.budget.bytes_per_s) if rules.budget.bytes_per_s else 0
    if whole:  # 0 is no limit, as it is wherever a bandwidth is told.
        each = min(max(1, whole // rules.budget.concurrent_max), RATE_BYTES_PER_S_MAX)
        goal["bandwidth"] = {"bytesPerS": str(each)}
    note = Note.done(
        EventReason.REPAIR_CREATED, f"stream {repair.stream}: {repair.why}: made StreamMove {name}"
    )
    return CreateObject(generated.manifest(super_cluster, name, repair.stream, declared, goal), note=note)


def _create_trim(
    super_cluster: SuperCluster,
    trim: Trim,
    declared: Stream | None,
    mine: Sequence[StreamMove],
    now: datetime,
) -> CreateObject | None:
    """None: an earlier try of the same ended a moment ago."""
    name = _next_name(
        super_cluster, "trim", trim.stream, sorted(trim.removed), declared, trim.rule, mine, now
    )
    if name is None:
        return None
    goal: dict[str, object] = {
        "members": {"remove": list(trim.removed), "reason": trim.why[:REASON_CHARACTERS_MAX]}
    }
    note = Note.done(EventReason.EXTRA_REPLICAS, f"stream {trim.stream}: {trim.why}: made StreamMove {name}")
    labels = {TRIM_LABEL: "true"}
    made = generated.manifest(super_cluster, name, trim.stream, declared, goal, labels=labels)
    return CreateObject(made, note=note)


def _next_name(
    super_cluster: SuperCluster,
    kind: str,
    stream: str,
    what: object,
    declared: Stream | None,
    rule: Rule,
    mine: Sequence[StreamMove],
    now: datetime,
) -> str | None:
    """The name of the next try, from what it is about; None while the pause after the last one lasts."""
    base = generated.base_name(super_cluster, kind, stream, declared, what)
    tries = generated.tries_of(base, mine)
    pause = timedelta(microseconds=duration_ns(rule.rules.failure_recovery_interval) // 1000)
    # One that the brokers refused has no end, but a beginning.
    ends = (
        parse_timestamp(move.status.ended_at or move.metadata.creation_timestamp) for move in tries.values()
    )
    if any(is_within(ended, pause, now) for ended in ends):
        return None
    return generated.next_name(base, tries)
