"""The lost replicas to replace, their replacements, the order and the number at a time (MR-2, MR-4, MR-7).
Pure.

A member is lost when its broker has been out of contact for the recovery interval, or its copy has been
unusable for so long. The brokers' own map records since when. Repair exchanges lost members for others in one
joint change (SF-8), so a group never grows around a dead member, and its configured count stays. It keeps up
the minimum, and one more than a majority if there are as many. A repair that is impossible is reported with
the reason.

Streams that can lose the fewest further replicas come first. Each stream is checked at its own moment of the
check interval, so that thousands of simultaneous losses spread over it; the budget then bounds the number of
concurrent repairs.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache

from supercluster.api.units import duration_ns
from supercluster.reconcilers.planners.move.views import counted
from supercluster.reconcilers.planners.replica.rules import Rule
from supercluster.reconcilers.planners.room import why_no_room, with_copy
from supercluster.reconcilers.planners.strategies import Node, Strategy, StrategyError, judging, strategy_of


@dataclass(frozen=True, slots=True)
class StreamState:
    """One stream as the brokers tell of it, and what counts for it."""

    name: str
    members: tuple[str, ...]
    """Brokers whose replicas are in force, lost ones too."""
    leader: str
    rule: Rule
    tags: frozenset[str] = frozenset()
    bytes: int = 0
    """What a copy takes."""
    is_moving: bool = False
    """A move, a repair or another count of replicas is under way or planned: one at a time (MV-3)."""
    elsewhere: frozenset[str] = frozenset()
    """Other clusters that its placement allows."""
    unusable: Mapping[str, datetime] = field(default_factory=dict)
    """Brokers that are there and can do nothing with their copies, and since when."""
    count: int = 0
    """Replicas that it is configured with; 0: as many as there are."""
    in_memory: bool = False
    why_unusable: Mapping[str, str] = field(default_factory=dict)
    """What brokers say of copies that they can do nothing with."""

    @property
    def extra(self) -> int:
        """Replicas beyond the count, which people have added by name."""
        return max(0, len(self.members) - self.count) if self.count else 0

    @property
    def required(self) -> int:
        """Usable replicas that repair restores. Who added some beyond the count wants so many more: a lost one among all of
        them leaves for another one, or the group would be worse off than without the addition (SF-8, MR-7). However low the
        minimum is, one more than a majority is kept up where there are as many: once only a majority is left, the next loss
        leaves nobody who could repair."""
        stay = self.rule.rules.auto_remove == "Never"
        size = len(self.members) if stay else len(self.members) - self.extra
        return max(self.rule.minimum + (self.extra if stay else 0), min(size, size // 2 + 2))


@dataclass(frozen=True, slots=True)
class RunningRepair:
    """A repair that was begun, or waits in the queue of moves."""

    stream: str
    policy: str
    joining: frozenset[str]
    """Brokers that get a replica."""
    is_led: bool = True
    """False: it runs, and nobody leads the stream; so it copies nothing (`leaderless_moves`)."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One exchange of lost members."""

    stream: str
    replaced: tuple[str, ...]
    nodes: tuple[str, ...]
    """All that are to hold the stream."""
    why: str
    rule: Rule
    since: tuple[tuple[str, datetime | None], ...] = ()
    """Since when each of those that are replaced has been lost; None: its broker is gone for good."""

    @property
    def joining(self) -> frozenset[str]:
        return frozenset(self.nodes)


@dataclass(frozen=True, slots=True)
class RepairPlan:
    repairs: tuple[Repair, ...] = ()
    """To be begun now, in this order."""
    waiting: tuple[tuple[str, str], ...] = ()
    """Streams with lost replicas that are not begun now, and why."""
    below: tuple[str, ...] = ()
    """Streams with fewer usable replicas than their minimum."""
    queued: tuple[str, ...] = ()
    """Of those that wait, the ones that nothing is in the way of but the budget."""
    next_at: datetime | None = None
    """When the next one becomes due for which the budget has a place now."""


@dataclass(frozen=True, slots=True)
class _Early:
    """A stream whose lost replicas may still come back."""

    why: str
    until: datetime


@dataclass(frozen=True, slots=True)
class _Full:
    """The budget has no place for a repair."""

    why: str


@dataclass(frozen=True, slots=True)
class _Case:
    """A stream with lost replicas."""

    stream: StreamState
    lost: tuple[str, ...]
    """Of those that are to be replaced, the longest away first."""
    usable: int
    since_of: Mapping[str, datetime | None]

    @property
    def since(self) -> datetime | None:
        return self.since_of[self.lost[0]]

    @property
    def margin(self) -> int:
        """How many more replicas may go before nothing can be committed any more."""
        return self.usable - (len(self.stream.members) // 2 + 1)


def plan_repairs(
    nodes: Mapping[str, Node],
    streams: Iterable[StreamState],
    running: Sequence[RunningRepair],
    strategies: Mapping[str, Strategy],
    now: datetime,
    budget: Budget | None = None,
    paused: Collection[str] = (),
) -> RepairPlan:
    """What the repairs take is taken from the budget, which is that of the running ones unless one is given. `paused`: streams
    whose last repair failed a moment ago; the others do not wait for them."""
    waiting: list[tuple[str, str]] = []
    below: list[str] = []
    cases: list[_Case] = []
    early: list[tuple[datetime, Rule]] = []
    for stream in streams:
        usable = sum(is_usable(nodes, stream.unusable, member) for member in stream.members)
        if usable < stream.rule.minimum:
            below.append(stream.name)
        elif usable == len(stream.members):
            continue
        found = _case(nodes, stream, usable, now)
        if isinstance(found, str):
            waiting.append((stream.name, found))
        elif isinstance(found, _Early):
            waiting.append((stream.name, found.why))
            early.append((found.until, stream.rule))
        elif found is not None and stream.name in paused:
            waiting.append(
                (stream.name, "its last repair ended without success a moment ago; it is tried again")
            )
        elif found is not None:
            cases.append(found)
    said = {stream.name: stream.why_unusable for stream in streams if stream.why_unusable}
    repairs: list[Repair] = []
    queued: list[str] = []
    budget = budget or Budget(running)
    load = dict(nodes)
    for case in sorted(cases, key=_order):
        why = budget.why_not(case.stream.rule)
        made = _Full(why) if why else _repair(case, load, strategies, budget)
        if isinstance(made, _Full):
            queued.append(case.stream.name)
            made = made.why
        if isinstance(made, str):
            waiting.append((case.stream.name, made))
            continue
        repairs.append(made)
        joining = made.joining - set(case.stream.members)
        budget.take(case.stream.rule, joining)
        for name in joining:
            load[name] = with_copy(load[name], case.stream.bytes, in_memory=case.stream.in_memory)
    next_at = min((until for until, rule in early if not budget.why_not(rule)), default=None)
    waiting = [(name, _with_reasons(text, said.get(name, {}))) for name, text in waiting]
    return RepairPlan(
        tuple(repairs), tuple(sorted(waiting)), tuple(sorted(below)), tuple(sorted(queued)), next_at
    )


def _with_reasons(text: str, said: Mapping[str, str]) -> str:
    """Beside why a repair waits: what brokers say of copies that are of no use. Replicas that halted at one entry say the same."""
    by_reason: dict[str, list[str]] = {}
    for broker, why in sorted(said.items()):
        by_reason.setdefault(why, []).append(broker)
    return "; ".join([text, *(f"{', '.join(brokers)}: {why}" for why, brokers in by_reason.items())])


def due_at(stream: str, rule: Rule, away_since: datetime) -> datetime:
    """When a member is lost: after the interval, at the stream's own moment of the check interval. The moment comes from
    the name, so it is another for every stream and the same at every look."""
    check_us = _microseconds(rule.rules.check_interval)
    phase_us = zlib.crc32(stream.encode()) % max(1, check_us)
    return away_since + timedelta(microseconds=_microseconds(rule.rules.failure_recovery_interval) + phase_us)


@lru_cache(maxsize=256)
def _microseconds(duration: str) -> int:
    """Thousands of streams have the same few durations."""
    return duration_ns(duration) // 1000


def is_usable(nodes: Mapping[str, Node], unusable: Mapping[str, datetime], member: str) -> bool:
    """Is the broker there, and can it do something with its copy?"""
    node = nodes.get(member)
    return node is not None and node.away_since is None and member not in unusable


def _order(case: _Case) -> tuple[int, int, float, str]:
    since = case.since.timestamp() if case.since is not None else 0.0
    return (case.margin, -len(case.lost), since, case.stream.name)


def _case(
    nodes: Mapping[str, Node], stream: StreamState, usable: int, now: datetime
) -> _Case | _Early | str | None:
    """A stream that is to be repaired; until when, or why, it is not yet; None when its minimum holds."""
    if usable >= stream.required:
        return None
    if not stream.leader or usable < len(stream.members) // 2 + 1:
        names = ", ".join(m for m in sorted(stream.members) if not is_usable(nodes, stream.unusable, m))
        return (
            f"{usable} of {len(stream.members)} replicas are usable, which is no majority (lost: {names}): nothing is done "
            "by itself, since that could lose messages"
        )
    if stream.is_moving:
        return "a move of the stream, or another repair, is under way; one at a time"
    away = {
        member: lost_since(nodes, stream.unusable, member)
        for member in stream.members
        if not is_usable(nodes, stream.unusable, member)
    }
    due = {
        member: since
        for member, since in away.items()
        if since is None or _lost_at(nodes[member], stream, since) <= now
    }
    # One that may still come back in time counts as if it were there.
    needed = stream.required - (len(stream.members) - len(due))
    if not away:
        return f"{usable} of at least {stream.required} replicas are there; others are still being made"
    if needed <= 0 or not due:
        first = min(
            _lost_at(nodes[member], stream, since) for member, since in away.items() if since is not None
        )
        names = ", ".join(sorted(away))
        # A time and not what is left of it: a text that changes at every look is a write for every look.
        return _Early(f"{names} may come back: replaced at {first:%Y-%m-%dT%H:%M:%SZ} if not", first)
    order = sorted(due, key=lambda member: (due[member] is not None, due[member] or now, member))
    lost = tuple(order[:needed])
    return _Case(stream, lost, usable, {member: due[member] for member in lost})


def _lost_at(node: Node, stream: StreamState, since: datetime) -> datetime:
    """Later for a broker that is being restarted on purpose: copies that are made meanwhile would be for nothing."""
    due = due_at(stream.name, stream.rule, since)
    if node.expected_until is None or node.away_since is None:
        return due
    return max(due, node.expected_until)


def lost_since(nodes: Mapping[str, Node], unusable: Mapping[str, datetime], member: str) -> datetime | None:
    """None: the brokers' map has no such broker any more."""
    node = nodes.get(member)
    if node is None:
        return None
    return min((at for at in (node.away_since, unusable.get(member)) if at is not None), default=None)


def _repair(
    case: _Case, nodes: Mapping[str, Node], strategies: Mapping[str, Strategy], budget: Budget
) -> Repair | _Full | str:
    stream, rule = case.stream, case.stream.rule
    try:
        strategy = strategy_of(strategies, rule.rules.placement_strategy)
    except StrategyError as error:
        return str(error)
    staying = [nodes[member] for member in stream.members if member not in case.lost and member in nodes]
    home = {node.cluster for node in staying}
    reasons = {name: why_no_place(node, stream, home) for name, node in sorted(nodes.items())}
    fitting = [node for name, node in nodes.items() if not reasons[name]]
    free = [node for node in fitting if budget.has_room_on(node.name, rule)]
    taken: list[Node] = []
    for _ in case.lost:
        rest = [node for node in free if node not in taken]
        if not rest:
            break
        holders = [*staying, *taken]
        try:
            with judging(rule.rules.placement_strategy):
                taken.append(min(rest, key=lambda node: (strategy(node, holders), node.name)))
        except StrategyError as error:
            return str(error)
    if not taken:
        if fitting:
            names = ", ".join(sorted(node.name for node in fitting))
            return _Full(f"brokers that fit take as many new replicas as the budget allows already: {names}")
        told = "; ".join(f"{name} {why}" for name, why in reasons.items() if name not in stream.members)
        return f"no broker can take a replica in the place of {', '.join(case.lost)}: {told or 'there is no other'}"
    replaced = case.lost[: len(taken)]
    keep = tuple(member for member in stream.members if member not in replaced)
    gone = ", ".join(replaced)
    since = f" since {case.since:%Y-%m-%dT%H:%M:%SZ}" if case.since is not None else ""
    is_there = all((node := nodes.get(name)) is not None and node.away_since is None for name in replaced)
    what = "in contact and without a usable copy" if is_there else "out of contact"
    own = rule.minimum + (stream.extra if rule.rules.auto_remove == "Never" else 0)
    spare = "; one more than a majority is kept up" if stream.required > own else ""
    why = (
        f"{gone} {what}{since}: {case.usable} of at least {stream.required} replicas usable "
        f"(minimum {rule.minimum} by {rule.decided_by}{spare}); "
        f"{', '.join(node.name for node in taken)} by {rule.rules.placement_strategy}"
    )
    times = tuple((name, case.since_of[name]) for name in replaced)
    return Repair(stream.name, replaced, (*keep, *(node.name for node in taken)), why, rule, times)


def why_no_place(node: Node, stream: StreamState, home: set[str]) -> str:
    """Empty: the broker can take a replica."""
    if node.name in stream.members:
        return "holds a replica already"
    if home and node.cluster not in home:
        return f"is in Cluster {node.cluster}"
    if not stream.tags <= node.tags:
        return f"lacks {', '.join(sorted(stream.tags - node.tags))}"
    if node.leaves:
        return "goes for good"
    if node.cordoned:
        return f"is cordoned ({node.cordon})" if node.cordon else "runs on a Kubernetes node that is cordoned"
    if node.away_since is not None or not node.in_contact:
        return "is out of contact"
    return why_no_room(node, stream.bytes, in_memory=stream.in_memory)


class Budget:
    """What repairs take of the budgets of their policies."""

    def __init__(self, running: Sequence[RunningRepair]) -> None:
        led = [repair for repair in running if repair.is_led]
        others = [repair for repair in running if not repair.is_led]
        self._of_policy = Counter(repair.policy for repair in led)
        self._on_node = Counter(node for repair in led for node in repair.joining)
        self._leaderless_of_policy = Counter(repair.policy for repair in others)
        self._leaderless_on_node = Counter(node for repair in others for node in repair.joining)

    def why_not(self, rule: Rule) -> str:
        most, leaderless = rule.rules.budget.concurrent_max, self._leaderless_of_policy[rule.policy]
        taken = counted(self._of_policy[rule.policy], leaderless, most)
        if taken < most:
            return ""
        more = f", {leaderless} more have nobody who leads their streams" if leaderless else ""
        return (
            f"{self._of_policy[rule.policy]} repairs are under way{more}, and budget.concurrentMax is {most}"
        )

    def has_room_on(self, node: str, rule: Rule) -> bool:
        most = rule.rules.budget.concurrent_per_node_max
        return counted(self._on_node[node], self._leaderless_on_node[node], most) < most

    def take(self, rule: Rule, joining: frozenset[str]) -> None:
        self._of_policy[rule.policy] += 1
        self._on_node.update(joining)
