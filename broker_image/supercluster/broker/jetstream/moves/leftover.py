"""The remains of a move that the map does not know (any more): learners, or a joint membership.

A leader adds learners and enters a joint membership only by a move in its map, and the map forgets a move
only when the group has reported its end. But a map can be older than a group's last change, for instance
after a forced recovery. Without a move no leader would ever take the next step. So after a while the group's
leader treats the remains as a cancelled move and follows the same table (`moves.plan`). Learners are dropped.
A joint membership returns to the old voters, or goes on to the new ones if the map names these.
"""

from __future__ import annotations

from dataclasses import replace

from supercluster.broker.jetstream.config.stream import Placement
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.move_record import Move
from supercluster.broker.migration.worlds import world_of
from supercluster.broker.raft.confchange import Membership, node_of

# A map that was read may still lack what happened a moment ago; only what stays so for this long is left over.
LEFTOVER_MS = 10_000
PREFIX = "leftover-"


def left_over(membership: Membership, assignment: Assignment) -> Move | None:
    """The move that would bring the membership to an end; None when nothing is left of one, or the map has one."""
    if assignment.move is not None:
        return None
    if membership.is_joint and not membership.auto_leave:
        named = {node_of(member) for member in assignment.members}
        new = {node_of(member) for member in membership.voters}
        old = {node_of(member) for member in membership.voters_outgoing}
        return _move(
            membership, membership.voters, membership.voters_outgoing, back=named != new or new == old
        )
    # A learner on a voter's node is that member under a new identity, which takes its place by itself (SF-4).
    voting = {node_of(voter) for voter in membership.all_voters}
    # One of another super-cluster is the migration's.
    learners = tuple(
        member
        for member in membership.learners
        if node_of(member) not in voting and not world_of(node_of(member))
    )
    if membership.is_joint or not learners:
        return None
    return _move(membership, (*membership.voters, *learners), membership.voters, back=True)


def _move(membership: Membership, targets: tuple[str, ...], origin: tuple[str, ...], *, back: bool) -> Move:
    record = Move(f"{PREFIX}{membership.index}", targets, origin, Placement(), 0, cancelled=back)
    return replace(record, cancel_reason="the map does not know the move") if back else record


class Leftovers:
    """Watches for one, on the leader."""

    def __init__(self) -> None:
        self.since_ms: int | None = None
        """Since when there is something, as far as is known; None: there is nothing."""
        self.move: Move | None = None
        """To be brought to an end."""

    def look(self, membership: Membership, assignment: Assignment, now_ms: int, *, is_fresh: bool) -> bool:
        """True when something else is to be done than before."""
        before, found = self.move, left_over(membership, assignment)
        if found is None:
            self.since_ms = self.move = None
        elif self.since_ms is None or not is_fresh:
            self.since_ms = now_ms
        elif now_ms - self.since_ms >= LEFTOVER_MS and before is None:
            self.move = found
        return (self.move is None) != (before is None)

    def deadline_ms(self) -> int | None:
        """When to look again."""
        return self.since_ms + LEFTOVER_MS if self.since_ms is not None and self.move is None else None
