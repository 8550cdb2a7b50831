"""Memberships and how one becomes another.

A membership is in force from the moment its CONFIG entry is in a member's log, committed or not. A change that touches
at most one voter is simple; any other goes through a joint membership, in which the old and the new voters must both
agree (SF-6, SF-8). A change names the membership it was planned on and is refused when another is in force (SF-5).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from supercluster.broker.ports import RaftLog
from supercluster.broker.raft.entry import EntryKind
from supercluster.broker.raft.errors import MessageError

_HEAD = struct.Struct("<BQB")
_COUNT = struct.Struct("<H")
_FORMAT = 1
_SCAN_BYTES = 1 << 20
MEMBERS_MAX = 1024
"""Far more than any group has. It bounds what a damaged record can make a reader build."""


def node_of(member: str) -> str:
    """The node of a member `"<node>@<incarnation>"`."""
    return member.partition("@")[0]


@dataclass(frozen=True, slots=True)
class Membership:
    """The members of a group. The tuples are sorted, so that equal memberships are equal bytes."""

    index: int = 0
    """Index of the CONFIG entry that set it; 0 for the one a group is started with."""
    voters: tuple[str, ...] = ()
    voters_outgoing: tuple[str, ...] = ()
    """The old voters while the change is joint, else empty."""
    learners: tuple[str, ...] = ()
    """Receive the log and count for nothing."""
    learners_next: tuple[str, ...] = ()
    """Outgoing voters that become learners when the joint membership is left."""
    auto_leave: bool = True
    """The leader leaves the joint membership by itself once it is committed. False: somebody compares first (SF-6)."""

    @property
    def is_joint(self) -> bool:
        return bool(self.voters_outgoing)

    @property
    def all_voters(self) -> tuple[str, ...]:
        """Voters of both halves, each once."""
        if not self.voters_outgoing:
            return self.voters
        return tuple(sorted({*self.voters, *self.voters_outgoing}))

    @property
    def members(self) -> tuple[str, ...]:
        """Everyone who gets the log, each once."""
        if not self.voters_outgoing and not self.learners:
            return self.voters
        return tuple(sorted({*self.voters, *self.voters_outgoing, *self.learners}))

    def is_voter(self, member: str) -> bool:
        return member in self.voters or member in self.voters_outgoing

    def __contains__(self, member: str) -> bool:
        return self.is_voter(member) or member in self.learners

    def encode(self) -> bytes:
        """The payload of a CONFIG entry, and the membership in a snapshot."""
        parts = [_HEAD.pack(_FORMAT, self.index, self.auto_leave)]
        for names in (self.voters, self.voters_outgoing, self.learners, self.learners_next):
            text = "\n".join(names).encode()
            parts.append(_COUNT.pack(len(text)))
            parts.append(text)
        return b"".join(parts)

    @staticmethod
    def decode(payload: bytes | memoryview) -> Membership:
        """
        Raises:
            MessageError: the bytes are no membership.
        """
        try:
            form, index, auto_leave = _HEAD.unpack_from(payload)
            if form != _FORMAT:
                raise MessageError(f"membership has format {form}, this version reads {_FORMAT}")
            offset = _HEAD.size
            groups: list[tuple[str, ...]] = []
            for _ in range(4):
                (size,) = _COUNT.unpack_from(payload, offset)
                offset += _COUNT.size
                if offset + size > len(payload):
                    raise MessageError(f"membership ends within a list of {size} bytes")
                text = bytes(payload[offset : offset + size]).decode()
                groups.append(tuple(text.split("\n")) if text else ())
                offset += size
        except (struct.error, UnicodeDecodeError) as error:
            raise MessageError(f"membership cannot be read: {error}") from error
        return Membership(index, groups[0], groups[1], groups[2], groups[3], bool(auto_leave))


def membership_of(voters: Iterable[str], learners: Iterable[str] = (), *, index: int = 0) -> Membership:
    """A plain membership from any iterables."""
    return Membership(index, tuple(sorted(set(voters))), (), tuple(sorted(set(learners))))


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """The membership that is asked for. In a joint membership only two targets are possible: the new voters (leave)
    and the old ones (cancel)."""

    planned_on: int
    """`Membership.index` of the membership that the change was planned on (SF-5)."""
    voters: tuple[str, ...]
    learners: tuple[str, ...] = ()
    joint: bool = False
    """Go through a joint membership even where a simple change would do."""
    auto_leave: bool = True


class RefusalReason(StrEnum):
    """Why a change of membership was not taken."""

    NOT_LEADER = "NotLeader"
    NOT_READY = "NotReady"
    """The leader has not yet committed an entry of its own term."""
    TRANSFERRING = "Transferring"
    STALE_PLAN = "StalePlan"
    CHANGE_PENDING = "ChangePending"
    """The membership in force is not yet committed."""
    NO_VOTERS = "NoVoters"
    VOTER_AND_LEARNER = "VoterAndLearner"
    NODE_TWICE = "NodeTwice"
    NOT_CAUGHT_UP = "NotCaughtUp"
    """A new voter has not been a learner, or does not yet know that it is one."""
    NO_CHANGE = "NoChange"
    JOINT = "Joint"
    """In a joint membership only leaving it, either way, is possible."""
    TOO_MANY = "TooMany"
    DISK = "Disk"


@dataclass(frozen=True, slots=True)
class ChangeRefusal:
    """A refused change: the reason as data, and a sentence for people."""

    reason: RefusalReason
    message: str
    in_force: int
    """Index of the membership in force: plan on this one."""


def plan_change(current: Membership, change: MembershipChange) -> Membership | ChangeRefusal:
    """The membership that the next CONFIG entry sets (its index is filled in by the caller), or why there is none."""

    def refuse(reason: RefusalReason, message: str) -> ChangeRefusal:
        return ChangeRefusal(reason, message, current.index)

    if change.planned_on != current.index:
        return refuse(
            RefusalReason.STALE_PLAN,
            f"the change was planned on membership {change.planned_on}, but {current.index} is in force",
        )
    voters, learners = tuple(sorted(set(change.voters))), tuple(sorted(set(change.learners)))
    if not voters:
        return refuse(RefusalReason.NO_VOTERS, "the change leaves no voters; a group needs at least one")
    if len(voters) + len(learners) > MEMBERS_MAX:
        return refuse(RefusalReason.TOO_MANY, f"{len(voters) + len(learners)} members; at most {MEMBERS_MAX}")
    both = sorted(set(voters) & set(learners))
    if both:
        return refuse(RefusalReason.VOTER_AND_LEARNER, f"{both[0]} is named as voter and as learner")
    nodes = [node_of(voter) for voter in voters]
    twice = sorted({node for node in nodes if nodes.count(node) > 1})
    if twice:
        return refuse(RefusalReason.NODE_TWICE, f"node {twice[0]} would vote with two incarnations")
    if current.is_joint:
        if voters not in (current.voters, current.voters_outgoing):
            return refuse(
                RefusalReason.JOINT, "a joint membership can only be left, for its new or its old voters"
            )
        return Membership(0, voters, (), learners)
    if voters == current.voters and learners == current.learners:
        return refuse(RefusalReason.NO_CHANGE, "the membership in force is already the one asked for")
    touched = set(voters) ^ set(current.voters)
    if len(touched) <= 1 and not change.joint:
        return Membership(0, voters, (), learners)
    # A member of the old voters keeps its vote until the joint membership is left; only then can it learn.
    demoted = tuple(member for member in learners if member in current.voters)
    at_once = tuple(member for member in learners if member not in current.voters)
    return Membership(0, voters, current.voters, at_once, demoted, change.auto_leave)


def leave_joint(current: Membership) -> Membership:
    """The membership behind a joint one."""
    learners = tuple(sorted({*current.learners, *current.learners_next}))
    return Membership(0, current.voters, (), learners)


class MembershipTrack:
    """The memberships in a member's log that matter: the newest committed one and those behind it, oldest first."""

    __slots__ = ("_held", "current")

    def __init__(self, committed: Membership) -> None:
        self.reset(committed)

    def reset(self, committed: Membership) -> None:
        self._held = [committed]
        """Never empty; the indexes strictly increase."""
        self.current = committed
        """The one in force: the last in the log, committed or not."""

    def read(self, log: RaftLog, commit_index: int) -> None:
        """Memberships behind the commit index are in force already: find them in the log."""
        index = commit_index + 1
        while index <= log.last_index and (entries := log.entries(index, log.last_index, _SCAN_BYTES)):
            for entry in entries:
                if entry.kind == EntryKind.CONFIG:
                    self.add(Membership.decode(entry.payload), entry.index)
            index = entries[-1].index + 1

    def involves(self, member: str, *, as_voter: bool) -> bool:
        """Is the member in any that may be the committed one? A leader that appended its own removal is still needed
        to elect until that removal is known to be committed: its log is the longest."""
        return any(held.is_voter(member) if as_voter else member in held for held in self._held)

    def add(self, membership: Membership, index: int) -> None:
        """A CONFIG entry is at `index`. A snapshot may have brought a membership newer than its base, and so this one."""
        if index > self.current.index:
            self.current = replace(membership, index=index)
            self._held.append(self.current)

    def truncate_after(self, index: int) -> None:
        while len(self._held) > 1 and self._held[-1].index > index:
            self._held.pop()
        self.current = self._held[-1]

    def committed(self, commit_index: int) -> Membership:
        """The newest committed one; forgets those before it."""
        while len(self._held) > 1 and self._held[1].index <= commit_index:
            self._held.pop(0)
        return self._held[0]
