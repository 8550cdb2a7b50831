"""A move as observed: the brokers' answers, the related resources, and its place in the budget."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from supercluster.api import Cluster, Stream, StreamMove, SuperCluster
from supercluster.api.moves import Destination, MoveBudget
from supercluster.api.stream_move import MoveAudit, MovePlan, MoveProgress, StageTime, StreamMoveStatus
from supercluster.api.super_cluster import MoveGrant
from supercluster.api.units import duration_ns, size_bytes
from supercluster.reconcilers.planners.window import Window

IN_FLIGHT = frozenset({"Running", "Cancelling"})
# It waits for a person, a time or room.
WAITING = frozenset({"AwaitingApproval", "AwaitingWindow", "Planned", "Refused"})
ENDED = frozenset({"Succeeded", "Failed", "Cancelled"})
# What brokers take as the limit of one move; more is no limit that anybody would notice.
RATE_BYTES_PER_S_MAX = 1 << 40


@dataclass(frozen=True, slots=True)
class RunningMove:
    """A move that the brokers carry out now."""

    id: str
    progress: MoveProgress
    cancelled: bool = False
    is_below_ingest_rate: bool = False
    """Do its copies fall behind what the stream takes in?"""


@dataclass(frozen=True, slots=True)
class BrokersMove:
    """A move that the brokers carry out, whoever asked for it."""

    id: str
    stream: str
    nodes: frozenset[str]
    """Brokers that have a part in it."""
    started: datetime
    halves: tuple[tuple[str, ...], ...] = ()
    """The old members and the new ones; empty where nothing is told of them, or the stream is another account's."""


@dataclass(frozen=True, slots=True)
class EndedMove:
    """The last move of the stream that ended."""

    id: str
    is_done: bool
    """Else it was cancelled, by whomever."""
    reason: str = ""
    bytes_copied: int = 0
    audit: MoveAudit = field(default_factory=MoveAudit)
    stages: tuple[StageTime, ...] = ()
    started: datetime | None = None


@dataclass(frozen=True, slots=True)
class MoveView:
    """What the brokers answered when they were asked for the stream's moves."""

    reachable: bool = False
    error: str = "no broker is ready"
    exists: bool = False
    """Is there such a stream?"""
    running: RunningMove | None = None
    last: EndedMove | None = None
    earlier: tuple[EndedMove, ...] = ()
    """Moves that ended before the last one, without their audits: the youngest first."""
    members: tuple[str, ...] = ()
    """Brokers whose replicas are in force."""
    replicas: int | None = None
    """The count that the stream is configured with; None: not told."""
    declared_by: str = ""
    """The resource that the stream is marked with."""
    consumers: int = 0
    leader: str = ""
    handed: str = ""
    """Why the stream is left alone here: a Migration takes it to another super-cluster. Empty: it is not."""


@dataclass(frozen=True, slots=True)
class MoveObserved:
    """Everything that the plan of one StreamMove is made from."""

    super_cluster: SuperCluster | None = None
    clusters: tuple[Cluster, ...] = ()
    stream: Stream | None = None
    """The resource that spec.streamRef names."""
    stream_name: str | None = None
    brokers: MoveView = field(default_factory=MoveView)
    plan: MovePlan | None = None
    """A plan that was made in this look; None when none was asked for, or none came."""
    plan_error: str = ""
    window: Window | None = None
    """None: the move has none."""
    window_error: str = ""
    minimum: int = 0
    """Usable replicas that are to be kept, asked for only where some are to be taken away."""
    minimum_by: str = ""
    """Whose word that is."""
    refusal: str | None = None
    """What the last step of this round was refused with."""
    refusal_code: int = 0


def is_ended(move: StreamMove) -> bool:
    """Nothing more will come of it. A refused move of a Stream is tried again: its placement still asks for it; and a
    refused repair, or one for a broker that goes, is replaced by another one."""
    phase = move.status.phase
    if phase == "Refused":
        is_own = owner_uid(move) is None and move.spec.repair is None and not move.spec.drains
        return is_own or move.spec.members is not None
    is_over = phase in ENDED or (phase is None and move.status.ended_at is not None)
    return is_over or (phase == "Planned" and move.spec.dry_run)


def is_in_flight(status: StreamMoveStatus) -> bool:
    """Was it started, and has it not ended? A phase of another version can't be read, and the times are there all the same."""
    return status.phase in IN_FLIGHT or (
        status.phase is None and status.started_at is not None and status.ended_at is None
    )


def is_repair(move: StreamMove) -> bool:
    """Does it exchange lost replicas? One that takes copies off a broker that goes is told by spec.drains."""
    return move.spec.repair is not None and not move.spec.drains


def owner_uid(move: StreamMove) -> str | None:
    """The Stream that made the move for itself; None for a move that a person made."""
    return next((owner.uid for owner in move.metadata.owner_references if owner.kind == "Stream"), None)


def rate_bytes_per_s(move: StreamMove, budget: MoveBudget) -> int:
    """What the move may send: its own limit within its share of the budget, and within what brokers take; 0 is no limit."""
    own = size_bytes(move.spec.bandwidth.bytes_per_s) if move.spec.bandwidth.bytes_per_s else 0
    limits = [limit for limit in (own, share_bytes_per_s(budget)) if limit]
    return min(*limits, RATE_BYTES_PER_S_MAX) if limits else 0


def share_bytes_per_s(budget: MoveBudget) -> int:
    """What each move may send of what all of them may; 0 is no limit. Brokers give it to moves that clients start, too."""
    whole = size_bytes(budget.bytes_per_s) if budget.bytes_per_s else 0
    return max(1, whole // budget.concurrent_max) if whole else 0


def goal_of(move: StreamMove, stream: Stream | None, minimum: int = 0) -> dict[str, object]:
    """What to ask the brokers for: a placement, a count of replicas, others in the places of lost ones, or some more or fewer
    by name, of which at least the minimum has to be left."""
    repair = move.spec.repair
    if repair is not None:
        goal: dict[str, object] = {"replace": list(repair.replace)}
        goal["awayMs"] = duration_ns(repair.away) // 1_000_000
        return {**goal, "nodes": list(repair.nodes)} if repair.nodes else goal
    members = move.spec.members
    if members is not None and members.add:
        return {"add": list(members.add)}
    if members is not None:
        return {"remove": list(members.remove), "minUsable": minimum}
    if move.spec.destination is None:
        return {"replicas": move.spec.replicas}
    return {"placement": wanted_placement(move.spec.destination, stream)}


def wanted_placement(destination: Destination, stream: Stream | None) -> dict[str, object]:
    """The placement to ask for: the destination, and what the Stream itself asks for."""
    own = stream.spec.placement if stream is not None else None
    cluster = destination.cluster or (own.cluster if own is not None else None)
    tags = dict.fromkeys((*destination.tags, *(own.tags if own is not None else ())))
    placement: dict[str, object] = {}
    if cluster:
        placement["cluster"] = cluster
    if tags:
        placement["tags"] = list(tags)
    return placement


def nodes_of(move: StreamMove) -> frozenset[str]:
    """Brokers that have a part in the move, as far as its plan tells."""
    plan = move.status.plan
    return frozenset((*plan.origin, *(found.name for found in plan.targets))) if plan else frozenset()


def of_others(running: tuple[BrokersMove, ...], given: tuple[MoveGrant, ...]) -> tuple[BrokersMove, ...]:
    """Moves that no place was given to: a client's STREAM.UPDATE, a peer that is removed, a move whose record was lost."""
    placed = {grant.uid for grant in given}
    return tuple(move for move in running if move.id not in placed)


def counted(led: int, leaderless: int, most: int) -> int:
    """How many of `most` places are taken: those whose stream nobody leads copy nothing, and take none unless there are more of
    them than places, so that no more than twice as many ever run."""
    return led + max(0, leaderless - most)


_Rank: TypeAlias = tuple[bool, tuple[str, str]]


def grants(
    given: tuple[MoveGrant, ...],
    moves: tuple[StreamMove, ...],
    budget: MoveBudget,
    running: tuple[BrokersMove, ...] = (),
    *,
    hold: bool,
    hold_repairs: bool = False,
    leaderless: Collection[str] = (),
) -> tuple[MoveGrant, ...]:
    """Who has a place in the budget. Those that have one keep it until they end or leave the queue; then the longest
    waiting come, repairs first. Nobody has to wait for one that waits for a busy broker, until a move that is to come later
    runs on one of its brokers: from then on these are kept free for it, or it would starve behind others that take turns
    there. `running`: what the brokers carry out, which takes places too when nobody gave it one; which brokers have a part
    in a move that runs, they know better than its plan. `hold`: nobody new comes but repairs, which a roll-out waits for;
    `hold_repairs`: nor they. `leaderless`: moves whose stream nobody leads, by identity:
    they get no place, and keep none from others."""
    placed = {grant.uid: grant for grant in given}
    really = {move.id: move.nodes for move in running}
    kept: list[tuple[MoveGrant, frozenset[str]]] = []
    under_way: list[tuple[_Rank, frozenset[str]]] = []
    waiting = []
    for move in sorted(moves, key=_rank):
        uid, status = move.metadata.uid, move.status
        grant = placed.get(uid)
        is_queued = status.phase == "Queued"
        if is_in_flight(status) or (is_queued and grant is not None and grant.ticket == status.ticket):
            kept.append((grant or _grant(move), really.get(uid) or nodes_of(move)))
            if uid not in leaderless:
                under_way.append((_rank(move), kept[-1][1]))
        elif is_queued:
            waiting.append(move)
    there = [(grant.uid, nodes) for grant, nodes in kept]
    there += [(move.id, move.nodes) for move in of_others(running, tuple(grant for grant, _ in kept))]
    taken = [nodes for found, nodes in there if found not in leaderless]
    idle = [nodes for found, nodes in there if found in leaderless]
    reserved: list[frozenset[str]] = []
    for move in waiting:
        if hold_repairs or (hold and not is_repair(move)) or move.metadata.uid in leaderless:
            continue
        nodes = nodes_of(move)
        busy = any(
            counted(
                sum(node in others for others in (*taken, *reserved)),
                sum(node in others for others in idle),
                budget.concurrent_per_node_max,
            )
            >= budget.concurrent_per_node_max
            for node in nodes
        )
        is_free = counted(len(taken), len(idle), budget.concurrent_max) < budget.concurrent_max
        if is_free and not busy:
            kept.append((_grant(move), nodes))
            taken.append(nodes)
        elif any(rank > _rank(move) and nodes & theirs for rank, theirs in under_way):
            reserved.append(nodes)
    return tuple(sorted((grant for grant, _ in kept), key=lambda grant: grant.name))


def _rank(move: StreamMove) -> _Rank:
    """Sorts by who comes first."""
    return (not is_repair(move), move.metadata.age_key)


def _grant(move: StreamMove) -> MoveGrant:
    return MoveGrant(name=move.metadata.name, uid=move.metadata.uid, ticket=move.status.ticket)


def has_grant(move: StreamMove, super_cluster: SuperCluster) -> bool:
    """Does the move have a place, given to the ticket with which it waits now?"""
    return move.status.phase == "Queued" and _grant(move) in super_cluster.status.moves
