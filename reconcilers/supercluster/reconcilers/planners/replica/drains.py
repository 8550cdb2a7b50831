"""The copies to move off leaving brokers, their targets, and the copies that can't be moved. Pure.

A copy is replaced by one on another broker of the cluster in one joint change, as lost ones are (SF-8): a
group never has fewer members than configured, nor more. All leaving copies of a stream are moved in the same
change. A stream that would not fit on the rest of its cluster goes to another cluster as a whole, if its
placement allows that; it is never spread over two.

The same question is asked before a broker is marked as leaving: a copy without a place is then the reason not
to begin.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from supercluster.reconcilers.planners.replica.repairs import StreamState, is_usable, why_no_place
from supercluster.reconcilers.planners.room import with_copy
from supercluster.reconcilers.planners.strategies import (
    BUILT_IN,
    Node,
    Strategy,
    StrategyError,
    judging,
    strategy_of,
)


@dataclass(frozen=True, slots=True)
class Drain:
    """One stream's way off the brokers that go."""

    stream: str
    leaving: tuple[str, ...]
    """Brokers whose copies go."""
    nodes: tuple[str, ...] = ()
    """All that are to hold the stream; empty: it goes to another cluster."""
    cluster: str = ""
    """Where it goes to as a whole; empty: it stays in its cluster."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a stream's copies stay for the time being."""

    stream: str
    reason: str
    is_passing: bool
    """It goes by with time: something else is under way, or has to be repaired first."""


@dataclass(frozen=True, slots=True)
class DrainPlan:
    drains: tuple[Drain, ...] = ()
    """To be begun now, in this order."""
    obstacles: tuple[Obstacle, ...] = ()
    streams: int = 0
    """Streams with copies on brokers that go."""

    @property
    def impossible(self) -> tuple[Obstacle, ...]:
        return tuple(found for found in self.obstacles if not found.is_passing)


def plan_drains(
    nodes: Mapping[str, Node],
    streams: Iterable[StreamState],
    leaving: Collection[str],
    begun_max: int,
    strategies: Mapping[str, Strategy] = BUILT_IN,
) -> DrainPlan:
    """`leaving`: of `nodes`, those that go. `begun_max`: as many may be begun now."""
    gone = frozenset(leaving)
    known = {name: replace(node, leaves=node.leaves or name in gone) for name, node in nodes.items()}
    drains: list[Drain] = []
    obstacles: list[Obstacle] = []
    # The largest find their places first; where these are short, that fits more of them.
    concerned = sorted(
        (stream for stream in streams if gone & set(stream.members)),
        key=lambda stream: (-stream.bytes, stream.name),
    )
    for stream in concerned:
        wait = _why_not_yet(stream, known)
        found = (
            Obstacle(stream.name, wait, is_passing=True) if wait else _drain(stream, gone, known, strategies)
        )
        if isinstance(found, Obstacle):
            obstacles.append(found)
            continue
        _take(known, found, stream)
        if len(drains) < begun_max:
            drains.append(found)
    return DrainPlan(tuple(drains), tuple(sorted(obstacles, key=lambda found: found.stream)), len(concerned))


def _why_not_yet(stream: StreamState, nodes: Mapping[str, Node]) -> str:
    if stream.is_moving:
        return "a move of the stream, or a repair, is under way; one at a time"
    away = sorted(name for name in stream.members if not is_usable(nodes, stream.unusable, name))
    usable = len(stream.members) - len(away)
    if not stream.leader or usable < len(stream.members) // 2 + 1:
        return (
            f"{usable} of {len(stream.members)} replicas are usable, which is no majority (lost: {', '.join(away) or 'none'}): "
            "nothing is done by itself, since that could lose messages"
        )
    staying = [name for name in away if name not in nodes or not nodes[name].leaves]
    if staying and usable < stream.rule.minimum:
        return f"{', '.join(staying)} can't be used, and is replaced or comes back first"
    return ""


def _drain(
    stream: StreamState, gone: frozenset[str], nodes: Mapping[str, Node], strategies: Mapping[str, Strategy]
) -> Drain | Obstacle:
    leaving = tuple(sorted(gone & set(stream.members)))
    home = {nodes[name].cluster for name in stream.members if name in nodes}
    reasons = {name: why_no_place(node, stream, home) for name, node in sorted(nodes.items())}
    free = [nodes[name] for name, why in reasons.items() if not why]
    kept = tuple(name for name in stream.members if name not in gone)
    if len(free) >= len(leaving):
        try:
            strategy = strategy_of(strategies, stream.rule.rules.placement_strategy)
        except StrategyError as error:
            return Obstacle(stream.name, str(error), is_passing=False)
        taken: list[Node] = []
        for _ in leaving:
            holders = [*(nodes[name] for name in kept if name in nodes), *taken]
            rest = [node for node in free if node not in taken]
            try:
                with judging(stream.rule.rules.placement_strategy):
                    taken.append(min(rest, key=lambda node: (strategy(node, holders), node.name)))
            except StrategyError as error:
                return Obstacle(stream.name, str(error), is_passing=False)
        names = tuple(node.name for node in taken)
        why = f"{', '.join(leaving)} goes for good; {', '.join(names)} by {stream.rule.rules.placement_strategy}"
        return Drain(stream.name, leaving, (*kept, *names), why=why)
    other = _other_cluster(stream, nodes)
    if other:
        why = f"{', '.join(leaving)} goes for good, and what is left of its cluster does not do; Cluster {other} does"
        return Drain(stream.name, leaving, cluster=other, why=why)
    told = "; ".join(
        f"{name} {why}" for name, why in reasons.items() if why and name not in gone and name not in kept
    )
    most = len(kept) + len(free)
    reason = (
        f"{len(stream.members)} replicas, and {most or 'no'} broker{'s' if most != 1 else ''} would be left for them"
        f"{f' ({told})' if told else ''}: "
        + (
            f"set its replicas to {most} or fewer, or "
            if most
            else "delete it or let its placement allow others, or "
        )
        + "keep more brokers"
    )
    return Obstacle(stream.name, reason, is_passing=False)


def _other_cluster(stream: StreamState, nodes: Mapping[str, Node]) -> str:
    """The one with the most brokers that fit, if all replicas fit there; empty: none."""
    counts = {
        cluster: sum(not why_no_place(node, stream, {cluster}) for node in nodes.values())
        for cluster in sorted(stream.elsewhere)
    }
    fitting = [cluster for cluster, count in counts.items() if count >= len(stream.members)]
    return max(fitting, key=lambda cluster: counts[cluster], default="")


def _take(nodes: dict[str, Node], drain: Drain, stream: StreamState) -> None:
    """What is planned for one stream is not there for the next."""
    if drain.cluster:
        fitting = [node for node in nodes.values() if not why_no_place(node, stream, {drain.cluster})]
        names = [
            node.name
            for node in sorted(fitting, key=lambda node: (node.copies, node.name))[: len(stream.members)]
        ]
    else:
        names = [name for name in drain.nodes if name not in stream.members]
    for name in names:
        nodes[name] = with_copy(nodes[name], stream.bytes, in_memory=stream.in_memory)
