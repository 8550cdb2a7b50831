"""Replicas beyond a stream's count, which were added by name: chooses the ones to remove if autoRemove allows
it (MR-3). Pure.

By default they are left alone. With BeyondTarget a group is reduced to its count in one joint change, so that
it never has an even size on the way: lost ones go first, then the worst placed, and never the leader. No
healthy replica is removed while an absent replica may still come back, or while a lost one is to be replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from supercluster.reconcilers.planners.replica.repairs import (
    Budget,
    StreamState,
    due_at,
    is_usable,
    lost_since,
)
from supercluster.reconcilers.planners.replica.rules import Rule
from supercluster.reconcilers.planners.strategies import Node, Rank, Strategy, StrategyError, judging


@dataclass(frozen=True, slots=True)
class Trim:
    """Replicas that go."""

    stream: str
    removed: tuple[str, ...]
    why: str
    rule: Rule


def plan_trims(
    nodes: Mapping[str, Node],
    streams: Iterable[StreamState],
    busy: Collection[str],
    strategies: Mapping[str, Strategy],
    budget: Budget,
    now: datetime,
) -> tuple[Trim, ...]:
    """`busy`: streams that a repair is planned for. The budget is what repairs have left of it."""
    trims: list[Trim] = []
    for stream in sorted(streams, key=lambda stream: stream.name):
        if stream.rule.rules.auto_remove != "BeyondTarget" or not stream.extra:
            continue
        strategy = strategies.get(stream.rule.rules.placement_strategy)
        if strategy is None or stream.is_moving or not stream.leader or stream.name in busy:
            continue
        removed = _who_goes(nodes, stream, strategy, now)
        if not removed or budget.why_not(stream.rule):
            continue
        budget.take(stream.rule, frozenset())
        count = len(stream.members) - stream.extra
        why = f"{len(stream.members)} replicas, and the count is {count} (autoRemove BeyondTarget): {'; '.join(removed.values())}"
        trims.append(Trim(stream.name, tuple(removed), why, stream.rule))
    return tuple(trims)


def _who_goes(
    nodes: Mapping[str, Node], stream: StreamState, strategy: Strategy, now: datetime
) -> dict[str, str]:
    """Broker → why; empty: nobody, for now."""
    lost = [member for member in stream.members if not is_usable(nodes, stream.unusable, member)]
    if len(stream.members) - len(lost) < len(stream.members) // 2 + 1:
        return {}
    since = {member: lost_since(nodes, stream.unusable, member) for member in lost}
    due = [m for m in sorted(lost) if (at := since[m]) is None or due_at(stream.name, stream.rule, at) <= now]
    going = dict.fromkeys(due[: stream.extra], "")
    for member in going:
        at = since[member]
        going[member] = f"{member} is lost{f' since {at:%Y-%m-%dT%H:%M:%SZ}' if at is not None else ''}"
    if set(lost) - going.keys():
        return going
    while len(going) < stream.extra:
        there = [nodes[m] for m in stream.members if m not in going and m in nodes]
        try:
            with judging(stream.rule.rules.placement_strategy):
                worst = max(
                    (node for node in there if node.name != stream.leader),
                    key=lambda node: (_rank(node, stream, strategy, there), node.name),
                    default=None,
                )
        except StrategyError:
            return {}  # Nobody knows who is the worst placed; all stay.
        if worst is None:
            break
        going[worst.name] = f"{worst.name} is the worst placed by {stream.rule.rules.placement_strategy}"
    return going


def _rank(
    node: Node, stream: StreamState, strategy: Strategy, there: Collection[Node]
) -> tuple[bool, bool, bool, Rank]:
    """The larger, the worse a place."""
    others = [other for other in there if other is not node]
    return (node.leaves, not stream.tags <= node.tags, node.cordoned, strategy(node, others))
