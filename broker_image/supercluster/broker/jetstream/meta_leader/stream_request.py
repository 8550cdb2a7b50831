"""Requests to the meta group about a stream, and their answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from supercluster.broker.jetstream.config.stream import Placement, StreamConfig
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import Following
from supercluster.broker.jetstream.placement.dry_run import MovePlan
from supercluster.broker.jetstream.placement.stream_facts import StreamFacts
from supercluster.broker.ports import ClientInfo


@dataclass(frozen=True, slots=True)
class Decided:
    """What a request about a stream came to: the group, and the configuration version that it made."""

    assignment: Assignment
    version: int


class Fallen(Enum):
    """This leader fell, and the next one has to be asked."""

    NOT_BEGUN = auto()
    UNDECIDED = auto()
    """An entry is in this leader's log, and nobody knows whether it will be committed."""


Respond = Callable[[Decided | MovePlan | ApiError | Fallen], None]
"""Answers a request."""


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """What a client or the operator asks."""

    verb: str
    """create, update, delete; follow, unfollow (a stream that comes from another super-cluster); restore, restored, abandon (one that is under way); move, plan_move (its dry run), cancel_move, remove_peer."""
    info: ClientInfo
    name: str
    config: StreamConfig | None
    respond: Respond
    asked_at: str = ""
    """The broker where the client is."""
    account: str = ""
    """The stream's account where that is not the client's."""
    placement: Placement | None = None
    """Of move and plan_move."""
    replicas: int = 0
    """Of move and plan_move, instead of a placement: the count to change to."""
    nodes: tuple[str, ...] = ()
    """Of move: the nodes that its plan named, no others will do; empty: whichever are best now."""
    bytes_per_s: int = 0
    move_id: str = ""
    """The caller's name for a move; empty: one is made. Of cancel_move: the only one that is meant; empty: any."""
    peer: str = ""
    """The node that remove_peer names."""
    replace: tuple[str, ...] = ()
    """Of move and plan_move, instead of a placement: the nodes in whose places others come."""
    add: tuple[str, ...] = ()
    """Of move and plan_move, instead of a placement: nodes that get a copy beyond the count."""
    remove: tuple[str, ...] = ()
    """Of move and plan_move, instead of a placement: nodes whose copies go, down to the count."""
    min_usable: int = 0
    """With `remove`: only if so many usable copies are left."""
    restore_id: str = ""
    """Of restore, restored and abandon: which one."""
    group: str = ""
    """Of restored: the group that has the stream. Of follow: the one that it is to have here."""
    following: Following | None = None
    """Of follow and unfollow: which group of another super-cluster's, and which attempt. The members are to be found."""
    created_ns: int = 0
    """Of follow: when the stream was created there."""
    pedantic: bool = False
    """Of create and update: the configuration of a mirror says what its origin makes of it."""
    away_ms: int = 0
    """With `replace`: only if the map says that they have been out of contact for so long."""

    @property
    def names_members(self) -> bool:
        """Does it say by name who joins or leaves, whatever the count?"""
        return bool(self.add or self.remove)

    @property
    def key(self) -> tuple[str, str]:
        return self.account or self.info.account, self.name


class NotAppendedError(Exception):
    """Raft did not take an entry: this replica hands over, or its disk has no room."""


class FactsNeededError(Exception):
    """The stream's leader has to be asked before this can be decided."""

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment.group)
        self.assignment = assignment


@dataclass(frozen=True, slots=True)
class Asked:
    """What the leader of a stream's group said; no facts when it said nothing in time."""

    group: str
    facts: StreamFacts | None
