"""The next step of a moving stream's leader: a table over the membership in force and the record of the move.

Theory. A membership has one of three shapes::

    OLD    plain, and not (yet) the targets: learners may be among it
    JOINT  two halves; nothing is decided without a majority of both
    NEW    plain, and exactly the targets: the move is complete and only has to be reported

    OLD --join--> JOINT --leave--> NEW
     ^-go/step back--'

Every change of a membership is an entry of the stream's log. So the shape is the same for every leader, and a
new leader goes on where the last one was. Within a shape the first row whose condition holds gives the step.
A row that waits names its reason. Turning back (a cancel, or a difference between copies) is possible until
leaving was appended: then the shape is NEW, which has no row for it.

Two rules prevent harm that no later row could repair: a member is added only if the move names it, and JOINT
is entered only if every joining member has caught up, compared equal, and is in contact (docs/adr/moves.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from supercluster.broker.raft.confchange import Membership, node_of
from supercluster.broker.raft.quorum import has_quorum, majority_count

# A learner that lacks more than this is copied; below, the copy is said to be at its tail.
TAIL_BYTES = 8 * 1024 * 1024
# A learner that lacks no more than this may vote: what is left goes with the entries that are on their way anyhow.
NEAR_BYTES = 1024 * 1024
# Leadership is given to a member that lacks no more entries than this; Raft itself waits until it lacks none.
HAND_OVER_ENTRIES = 64


class Stage(StrEnum):
    """Where a move is, as people are told."""

    PLANNED = "planned"
    LEARNING = "learning"
    TAIL = "tail"
    COMPARING = "comparing"
    JOINT = "joint"
    HANDING_OVER = "handing over"
    LEAVING = "leaving"
    CANCELLING = "cancelling"
    DONE = "done"


class Do(StrEnum):
    """What the leader does."""

    WAIT = "wait"
    ADD = "add learners"
    DROP = "drop learners"
    COMPARE = "compare"
    JOIN = "enter the joint membership"
    HAND_OVER = "hand over"
    LEAVE = "leave"
    GO_BACK = "go back"
    STEP_BACK = "step back"
    """As going back, and those who join learn on."""
    END = "end"
    END_CANCELLED = "end, cancelled"


@dataclass(frozen=True, slots=True)
class Step:
    """What comes next, and why."""

    stage: Stage
    do: Do
    why: str
    members: tuple[str, ...] = ()
    """Whom it is about: learners to add or drop, or the one that is to lead (the best first)."""


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """A member other than the leader, as the leader sees it."""

    lag_entries: int
    lag_bytes: int
    in_contact: bool
    sure: bool = True
    """False: it may have lost what it confirmed (SF-4)."""


@dataclass(frozen=True, slots=True)
class View:
    """All that a step depends on."""

    me: str
    membership: Membership
    settled: bool
    """The membership is committed, an entry of this leader's term is, and leadership is not on its way."""
    targets: tuple[str, ...]
    """As `resolve_targets` understands them."""
    origin: tuple[str, ...]
    cancelled: bool = False
    difference: str = ""
    """What a comparison found; empty: nothing."""
    waiting: frozenset[str] = frozenset()
    """Targets whose copy is open and asks to be taken in."""
    replicas: Mapping[str, ReplicaProgress] = field(default_factory=dict)
    compared: frozenset[str] = frozenset()
    """Members that compared equal up to the mark that belongs to this shape."""
    refused_lead: frozenset[str] = frozenset()
    """Members to which leadership was given lately, in vain."""
    preferred: str = ""
    """The node that should lead, if it can."""
    is_late: bool = False
    """Has nobody of the new half taken the leadership for too long? Both halves have to commit meanwhile."""
    rests: bool = False
    """Is it too early to try again?"""

    @property
    def turns_back(self) -> bool:
        return self.cancelled or bool(self.difference)

    @property
    def is_new(self) -> bool:
        return not self.membership.is_joint and set(self.membership.voters) == set(self.targets)

    @property
    def has_left(self) -> bool:
        """Was the origin left already? A target that was replaced just then is still to join."""
        return {node_of(v) for v in self.membership.voters} != {node_of(m) for m in self.origin}

    @property
    def is_voter(self) -> bool:
        """Joint: is this leader in the new half?"""
        return self.me in self.membership.voters

    @property
    def is_old(self) -> bool:
        """Joint: is it in the old one?"""
        return self.me in self.membership.voters_outgoing

    @property
    def joining(self) -> tuple[str, ...]:
        """Targets that do not vote yet."""
        return tuple(target for target in self.targets if target not in self.membership.voters)

    @property
    def joining_now(self) -> tuple[str, ...]:
        """Joint: those who are in the new half alone."""
        old = self.membership.voters_outgoing
        return tuple(member for member in self.membership.voters if member not in old)

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(target for target in self.joining if target not in self.membership.learners)

    @property
    def opens_none(self) -> bool:
        """Is no target's copy there yet?"""
        return bool(self.missing) and not set(self.joining) & set(self.membership.learners)

    @property
    def to_add(self) -> tuple[str, ...]:
        return tuple(target for target in self.missing if target in self.waiting)

    @property
    def to_drop(self) -> tuple[str, ...]:
        """Learners that are neither targets nor a member's new identity (SF-4). Who turns back drops the targets too."""
        repaired = {node_of(voter) for voter in self.membership.voters}
        return tuple(
            learner
            for learner in self.membership.learners
            if node_of(learner) not in repaired or (learner in self.targets and self.turns_back)
            if learner not in self.targets or self.turns_back
        )

    def behind(self, bytes_max: int) -> tuple[str, ...]:
        """Those who join and lack more than so much."""
        return tuple(
            member
            for member in self.joining
            if (replica := self.replicas.get(member)) is None or replica.lag_bytes > bytes_max
        )

    def in_contact(self, member: str) -> bool:
        replica = self.replicas.get(member)
        return member == self.me or (replica is not None and replica.in_contact and replica.sure)

    def can_join(self) -> bool:
        """Would the new half be able to decide at once, and does everyone who joins hear this leader?"""
        there = sum(1 for target in self.targets if self.in_contact(target))
        return there >= majority_count(self.targets) and all(map(self.in_contact, self.joining))

    def candidates(self, half: tuple[str, ...]) -> tuple[str, ...]:
        """Who of a half could lead at once, the best first."""
        fit = [
            member
            for member in half
            if member != self.me
            and member not in self.refused_lead
            and self.in_contact(member)
            and self.replicas[member].lag_entries <= HAND_OVER_ENTRIES
        ]
        fit.sort(
            key=lambda member: (
                node_of(member) != self.preferred,
                self.replicas[member].lag_entries,
                member,
            )
        )
        return tuple(fit)

    @property
    def takes_in(self) -> bool:
        """Joint: is anybody in the new half who is not in the old one? Fewer replicas take in nobody."""
        return not set(self.membership.voters) <= set(self.membership.voters_outgoing)

    def compared_by_both(self) -> bool:
        return has_quorum(self.membership, self.compared | {self.me})


def resolve_targets(
    targets: Iterable[str], origin: Iterable[str], membership: Membership, alive: Callable[[str], bool]
) -> tuple[str, ...]:
    """The targets by the names that are in force. The meta group does not hear when a member came back under a new
    identity (SF-4): where it names the old one as a member that stays, or where the voter of that node is alive, the
    voter in force is meant. No second copy of a broker that holds one is ever asked for."""
    known = set(origin)
    resolved: list[str] = []
    for target in targets:
        voters = [voter for voter in membership.all_voters if node_of(voter) == node_of(target)]
        same = target in membership or not voters
        resolved.append(target if same or not (target in known or alive(voters[0])) else voters[0])
    return tuple(sorted(set(resolved)))


@dataclass(frozen=True, slots=True)
class _Row:
    when: Callable[[View], bool | tuple[str, ...]]
    """A condition, or whom it is met by."""
    stage: Stage
    do: Do
    why: str
    members: Callable[[View], tuple[str, ...]] | None = None
    """Whom the row is about, where `when` does not name them."""


def _always(view: View) -> bool:
    return True


_OLD = (
    _Row(lambda v: v.turns_back and v.to_drop, Stage.CANCELLING, Do.DROP, "learners of the move are dropped"),
    _Row(
        lambda v: v.turns_back and v.has_left,
        Stage.DONE,
        Do.END,
        "the origin was left before the cancel came",
    ),
    _Row(lambda v: v.turns_back, Stage.CANCELLING, Do.END_CANCELLED, "the origin alone is in force"),
    _Row(
        lambda v: v.to_drop,
        Stage.LEARNING,
        Do.DROP,
        "learners that the move does not name any more are dropped",
    ),
    _Row(lambda v: v.to_add, Stage.LEARNING, Do.ADD, "copies that are open learn, without a vote"),
    _Row(lambda v: v.opens_none, Stage.PLANNED, Do.WAIT, "no target has opened its copy yet"),
    _Row(lambda v: v.missing, Stage.LEARNING, Do.WAIT, "targets have not opened their copies yet"),
    _Row(lambda v: v.behind(TAIL_BYTES), Stage.LEARNING, Do.WAIT, "copies are catching up"),
    _Row(lambda v: v.behind(NEAR_BYTES), Stage.TAIL, Do.WAIT, "copies are at the tail"),
    _Row(
        lambda v: not set(v.joining) <= v.compared,
        Stage.COMPARING,
        Do.COMPARE,
        "ranges are compared",
        lambda v: v.joining,
    ),
    _Row(lambda v: not v.can_join(), Stage.COMPARING, Do.WAIT, "too few of the targets are in contact"),
    _Row(
        lambda v: v.rests,
        Stage.COMPARING,
        Do.WAIT,
        "no new voter could take the leadership, which is tried again in a while",
    ),
    _Row(_always, Stage.JOINT, Do.JOIN, "all who join have caught up and compared equal"),
)

_JOINT = (
    _Row(lambda v: v.turns_back and v.is_old, Stage.CANCELLING, Do.GO_BACK, "back to the old voters"),
    _Row(
        lambda v: v.turns_back and v.candidates(v.membership.voters_outgoing),
        Stage.CANCELLING,
        Do.HAND_OVER,
        "leadership goes back to an old voter",
    ),
    _Row(lambda v: v.turns_back, Stage.CANCELLING, Do.WAIT, "no old voter can take the leadership now"),
    _Row(
        lambda v: v.is_late and not v.is_voter and v.is_old,
        Stage.LEARNING,
        Do.STEP_BACK,
        "no new voter has taken the leadership for too long: the targets learn on",
        lambda v: v.joining_now,
    ),
    _Row(
        lambda v: not v.is_voter and v.candidates(v.membership.voters),
        Stage.HANDING_OVER,
        Do.HAND_OVER,
        "leadership goes to a new voter with an equal log",
    ),
    _Row(lambda v: not v.is_voter, Stage.HANDING_OVER, Do.WAIT, "no new voter can take the leadership now"),
    _Row(
        lambda v: v.takes_in and not v.compared_by_both(),
        Stage.LEAVING,
        Do.COMPARE,
        "the tail is compared with a majority of both halves",
        lambda v: v.membership.all_voters,
    ),
    _Row(_always, Stage.LEAVING, Do.LEAVE, "what is new is equal on a majority of both halves"),
)

_NEW = (_Row(_always, Stage.DONE, Do.END, "the targets are the members in force"),)


def _unsettled(view: View) -> Step:
    if view.turns_back and not view.is_new:
        stage = Stage.CANCELLING
    elif view.membership.is_joint:
        stage = Stage.LEAVING if view.is_voter else Stage.JOINT
    else:
        stage = Stage.DONE if view.is_new else Stage.LEARNING
    return Step(stage, Do.WAIT, "the membership in force is not committed yet, or leadership is on its way")


def next_step(view: View) -> Step:
    """The next step; see the module."""
    if not view.settled:
        return _unsettled(view)
    rows = _JOINT if view.membership.is_joint else _NEW if view.is_new else _OLD
    row, found = next((row, found) for row in rows if (found := row.when(view)))
    if row.members is not None:
        found = row.members(view)
    return Step(row.stage, row.do, row.why, found if isinstance(found, tuple) else ())
