"""Determines which copy of a stream a broker is to hold, from the map and from the groups that its volume has
joined.

Pure, and the same for a broker that stayed and for one that comes back. The caller acts on the result only
with a map that was read, except for opening copies that the volume holds already.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.move_record import Outcome
from supercluster.broker.raft.confchange import node_of


class Hold(Enum):
    """What is to be held."""

    NOTHING = auto()
    MEMBER = auto()
    """The copy of a member, under whatever identity it has (SF-4)."""
    TARGET = auto()
    """The copy that a move names: it learns."""
    UNDECIDED = auto()
    """The copy was a target of the move that runs, and is not any more. If its own log says that it votes, it stays."""
    SUPERSEDED = auto()
    """The copy is of before the move that runs, which names another one on this broker. What its own log says of its
    vote is old: the member may have been out of contact when it was voted out."""
    RETIRED = auto()
    """The copy of a former member: closed, until its grace time is over."""
    UNEXPLAINED = auto()
    """The copy is of no member, and of no move that the map remembers: the map may not be the one by which the copy was
    begun. While its own log says that it takes part, its group may not be able to do without it."""
    DROPPED = auto()
    """Nothing of it is needed any more."""


@dataclass(frozen=True, slots=True)
class Copy:
    """See `copy_of`."""

    hold: Hold
    member: str = ""
    """With TARGET, UNDECIDED and SUPERSEDED: the identity that is wanted here, if any."""
    until_ns: int = 0
    """With RETIRED: when it may go."""
    why: str = ""
    """With DROPPED, as the end of a sentence."""


def incarnation_of(member: str) -> str:
    """`<node>@<incarnation>` of a member that may carry a token of its own."""
    node, _, rest = member.partition("@")
    return f"{node}@{rest.partition('.')[0]}"


def copy_of(assignment: Assignment, volume_member: str, registered: str | None, grace_ns: int) -> Copy:
    """What a broker holds of a stream. `volume_member` is `<node>@<incarnation>` of its volume, `registered` the member
    that the volume has joined the group as."""
    node = node_of(volume_member)
    if any(node_of(member) == node for member in assignment.members):
        return Copy(Hold.MEMBER)
    move = assignment.move
    for target in move.targets if move is not None else ():
        if incarnation_of(target) == volume_member:
            if registered in (None, target):
                return Copy(Hold.TARGET, target)
            assert move is not None
            return Copy(Hold.UNDECIDED if registered in move.replaced else Hold.SUPERSEDED, target)
    if registered is None:
        return Copy(Hold.NOTHING)
    if move is not None and registered in move.replaced:
        return Copy(Hold.UNDECIDED)
    last = assignment.last_move
    if last is not None and registered in last.replaced:
        return Copy(Hold.DROPPED, why="another one took its place in the move")
    only_learned = last is not None and last.outcome is Outcome.CANCELLED and registered in last.joining
    if only_learned:
        return Copy(Hold.DROPPED, why="the move that it was for was cancelled")
    if assignment.config.storage == "memory":
        return Copy(Hold.DROPPED, why="the stream moved, and what is in memory is not kept")
    left_ns = last.left_ns(node) if last is not None else None
    if left_ns is None:
        return Copy(Hold.UNEXPLAINED)
    return Copy(Hold.RETIRED, until_ns=left_ns + grace_ns)
