"""Majorities. In a joint membership both of its halves must agree, for every decision (SF-6)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from supercluster.broker.raft.confchange import Membership


def majority_count(voters: Collection[str]) -> int:
    """How many of these voters are a majority."""
    return len(voters) // 2 + 1


def has_quorum(membership: Membership, present: Collection[str]) -> bool:
    """Are those present a majority, of both halves when joint? Without voters nothing is ever decided."""
    if not membership.voters:
        return False
    return all(
        sum(1 for voter in half if voter in present) >= majority_count(half)
        for half in (membership.voters, membership.voters_outgoing)
        if half
    )


def has_all(membership: Membership, present: Collection[str]) -> bool:
    """Is every voter of both halves present?"""
    return bool(membership.voters) and all(voter in present for voter in membership.all_voters)


def majority_index(voters: Sequence[str], match: Callable[[str], int]) -> int:
    """The highest index that a majority of `voters` has reached."""
    reached = sorted(map(match, voters), reverse=True)
    return reached[len(voters) // 2]


def quorum_index(membership: Membership, match: Callable[[str], int]) -> int:
    """The highest index that may be counted as replicated; 0 when there are no voters."""
    if not membership.voters:
        return 0
    index = majority_index(membership.voters, match)
    if membership.voters_outgoing:
        index = min(index, majority_index(membership.voters_outgoing, match))
    return index
