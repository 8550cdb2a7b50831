"""Streams that no resource declares and that a ReplicaPolicy selects by its name pattern: their part of the
status. Pure.

Only the brokers know them, and only the SuperCluster's worker lists them, while something is wrong: at rest a
list of all streams for each policy would cost more than it is worth. So that worker counts those below their
minimum, and policies repeat its count. The overlap of two patterns needs no list: it follows from the
patterns themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache

from supercluster.api import ReplicaPolicy, SuperCluster
from supercluster.api.super_cluster import UNDECLARED_NAMED_MAX, UNDECLARED_POLICIES_MAX, UndeclaredStreams
from supercluster.reconcilers.planners.replica.repair_moves import RepairObserved
from supercluster.reconcilers.planners.replica.repairs import is_usable
from supercluster.reconcilers.planners.replica.rules import rule_for

# Stands for any letter that a name may have.
_ANY_LETTER = "x"


def undeclared_below(super_cluster: SuperCluster, observed: RepairObserved) -> tuple[UndeclaredStreams, ...]:
    """Those below their minimum, by the policy that counts for them."""
    found: dict[str, list[str]] = {}
    for living in observed.streams:
        if living.declared_by:
            continue
        unusable = observed.unusable.get(living.name, {})
        usable = sum(is_usable(observed.nodes, unusable, member) for member in living.members)
        if usable >= living.replicas:
            continue  # No minimum is above the count.
        rule = rule_for(None, living.name, living.replicas, observed.policies, super_cluster)
        if rule is not None and usable < rule.minimum:
            found.setdefault(rule.policy, []).append(living.name)
    return tuple(
        UndeclaredStreams(
            policy=policy, below_minimum=len(names), names=tuple(sorted(names)[:UNDECLARED_NAMED_MAX])
        )
        for policy, names in sorted(found.items())[:UNDECLARED_POLICIES_MAX]
    )


def told_of(super_cluster: SuperCluster | None, policy: str) -> UndeclaredStreams | None:
    """What the SuperCluster says of a policy's undeclared streams; None: it is not known."""
    told = super_cluster.status.repair if super_cluster is not None else None
    entries = told.undeclared if told is not None else ()
    found = next((each for each in entries if each.policy == policy), None)
    if found is None and len(entries) >= UNDECLARED_POLICIES_MAX:
        return None
    return found or UndeclaredStreams(policy=policy)


def undeclared_in_common(policies: Sequence[ReplicaPolicy]) -> str:
    """A name that two policies mean, be it declared or not; empty: there is none. Labels are of declared streams alone."""
    one, other = (policy.spec.selector for policy in policies)
    if one.match_labels or other.match_labels or not one.name_pattern or not other.name_pattern:
        return ""
    return common_name(*sorted((one.name_pattern, other.name_pattern)))


@lru_cache(maxsize=1024)
def common_name(one: str, other: str) -> str:
    """A shortest name that both patterns match, with * for any number of letters and ? for one; empty: there is none. Takes
    steps by the product of both lengths at most."""
    ways: dict[tuple[int, int, bool], str] = {(0, 0, False): ""}
    open_ones = deque(ways)
    while open_ones:
        at, by, is_named = open_ones.popleft()
        name = ways[at, by, is_named]
        if at == len(one) and by == len(other) and is_named:
            return name
        here, there = one[at : at + 1], other[by : by + 1]
        # A * that ends takes no letter, so it comes before all that do.
        for end in ((at + 1, by, is_named),) if here == "*" else ():
            if end not in ways:
                ways[end] = name
                open_ones.appendleft(end)
        for end in ((at, by + 1, is_named),) if there == "*" else ():
            if end not in ways:
                ways[end] = name
                open_ones.appendleft(end)
        letter = _shared_letter(here, there)
        step = (at + (here != "*"), by + (there != "*"), True)
        if letter and step not in ways:
            ways[step] = name + letter
            open_ones.append(step)
    return ""


def _shared_letter(one: str, other: str) -> str:
    if not one or not other:
        return ""
    if one in "*?":
        return other if other not in "*?" else _ANY_LETTER
    return one if other in ("*", "?", one) else ""
