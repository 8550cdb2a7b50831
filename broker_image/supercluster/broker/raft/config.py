"""The input of a Raft node besides messages (`RaftConfig`), and its output (`Ready`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from isal.isal_zlib import crc32

from supercluster.broker.raft.confchange import Membership, node_of
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.raft.messages import Message

NEVER_MS = 1 << 62
"""A deadline that never comes: the node waits for a message, a proposal or a wake."""


class Rng(Protocol):
    """The part of `random.Random` that elections use."""

    def randrange(self, start: int, /) -> int: ...


class SendPace(Protocol):
    """How fast learners may be fed (the bandwidth of a move). Voters are never held back, because commits need them."""

    def may_send(self, now_ms: int) -> bool: ...

    def sent(self, size_bytes: int, now_ms: int) -> None: ...

    def next_ms(self, now_ms: int) -> int:
        """When something may be sent again."""


class Role(IntEnum):
    """The part that a member plays in its current term."""

    FOLLOWER = 0
    PRECANDIDATE = 1
    """Asks whether it could win, without disturbing anyone's term."""
    CANDIDATE = 2
    LEADER = 3


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Settings of one member. All times are milliseconds of the clock that `now_ms` comes from."""

    member: str
    """Own identity, `"<node>@<incarnation>"` (SF-4)."""
    process: int = 0
    """The number of this process on its volume: answers carry it, and the leader's heartbeats give it back."""
    heartbeat_ms: int = 100
    election_timeout_ms: int = 500
    """A follower waits between one and two of these without a leader; a leader without a majority gives up after one."""
    append_bytes_max: int = 1 << 20
    """One append message carries at most this much (one entry always fits)."""
    inflight_max: int = 64
    """Unanswered append messages per follower."""
    inflight_bytes_max: int = 8 << 20
    """Unanswered bytes per follower. A follower that stopped reading pins no more."""
    snapshot_chunk_bytes: int = 1 << 20
    snapshot_inflight_max: int = 4
    """Unanswered snapshot chunks per follower."""
    snapshot_bytes_max: int = 1 << 30
    """A larger snapshot is refused by its receiver: bounds what a damaged frame can make it hold."""
    quiesce_after_ms: int = 2000
    """A group in which nothing happened for so long falls silent (SF-7)."""
    reads_max: int = 4096
    """Read-index requests that may wait; more are failed at once."""
    lot: int = 0
    """The same for all members of a group, another one for each group: decides who stands first when a leader is lost."""
    is_linked: Callable[[str], bool] = lambda node: True
    """Can messages reach a node at all? Where nobody knows: yes."""
    patience_ms: Callable[[str], int] = lambda node: 0
    """By how much longer a node may be silent, which is known to stand still now and then (SF-29)."""
    may_lead: Callable[[], bool] = lambda: True
    """May this member stand for election by now? If not, it asks again after a heartbeat (SF-28)."""

    def __post_init__(self) -> None:
        if self.heartbeat_ms < 1 or self.election_timeout_ms < 2 * self.heartbeat_ms:
            raise ValueError(
                f"election_timeout_ms is {self.election_timeout_ms} and heartbeat_ms {self.heartbeat_ms}: "
                "heartbeats must be positive and at least twice as frequent as the time-out"
            )

    def is_linked_to(self, member: str) -> bool:
        return self.is_linked(node_of(member))

    def linked(self, members: Iterable[str]) -> set[str]:
        """Those of the members whose brokers are linked."""
        return {member for member in members if self.is_linked_to(member)}

    def patience_of(self, member: str) -> int:
        return self.patience_ms(node_of(member))

    def lot_of(self, member: str) -> tuple[int, str]:
        """The member with the greater lot stands first. All members agree on it, and it differs from group to group."""
        return crc32(member.encode(), self.lot), member


@dataclass(frozen=True, slots=True)
class ReadState:
    """A confirmed read: once entries up to `index` are applied, the state is at least as new as the request."""

    context: int
    index: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A received state that replaces the log: install it, then call `RaftNode.snapshot_installed`."""

    base_index: int
    base_term: int
    membership: Membership
    state: bytes


@dataclass(slots=True)
class Ready:
    """The work of a turn, in this order: make `hard_state` durable, install `snapshot`, then everything else."""

    hard_state: tuple[int, str] | None = None
    """(term, vote): durable before any message leaves and before anything else here is acted upon (SF-4)."""
    messages: list[Message] = field(default_factory=list)
    committed: tuple[int, int] | None = None
    """First and last index that became committed: apply them in order."""
    reads: list[ReadState] = field(default_factory=list)
    failed_reads: list[int] = field(default_factory=list)
    """Contexts of reads that nobody can confirm now; ask again."""
    snapshot: Snapshot | None = None
    snapshot_wanted: list[str] = field(default_factory=list)
    """Members that need the state at the log's base: answer with `RaftNode.provide_snapshot`."""
    doubtful_election: bool = False
    """This member was elected by doubtful members: entries that they had confirmed may be lost (SF-4)."""
    disk_error: DiskError | None = None
    """The log refused a write. A leader has stepped down; a follower answers nothing it could not keep."""
    snapshot_refused_bytes: int = 0
    """Not 0: a snapshot of that size is beyond `RaftConfig.snapshot_bytes_max`; this member cannot catch up. Once per snapshot."""
