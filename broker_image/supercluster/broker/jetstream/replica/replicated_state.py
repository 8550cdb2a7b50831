"""A group's state on one broker and its sources: the log, the Raft node, and the applied entries.

The parts of a replica work on it. Subclasses are the state machines; `replica/replica.py` applies the log to
them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator

from supercluster.broker.jetstream.replica.host import GroupHost
from supercluster.broker.jetstream.turn.slices import Job
from supercluster.broker.jetstream.turn.state_view import StateView
from supercluster.broker.ports import StreamLog
from supercluster.broker.raft.entry import Entry
from supercluster.broker.raft.errors import ReplicaError
from supercluster.broker.raft.node import RaftNode


class ReplicatedState(ABC):
    takes_learners = False
    """Do brokers without a vote follow the group? The meta group's map has to be known to every broker (SF-14)."""

    def __init__(self, group: str, member: str, log: StreamLog, raft: RaftNode, host: GroupHost) -> None:
        self.id = group
        self.member = member
        self.log = log
        log.frees_room = self.frees_room
        self.raft = raft
        self.host = host
        self.applied_index = log.base_index
        self.membership_applied = raft.committed_membership
        """The newest committed one: one that is only in force may yet be truncated, and a checkpoint keeps this one (SF-5)."""
        self.failed: ReplicaError | None = None
        self.serves = False
        """Does this replica lead, with everything applied that its predecessors committed?"""
        self._head_is_due = True

    # ---- what a state machine adds --------------------------------------------------------------------------------

    @abstractmethod
    def apply_entry(self, entry: Entry) -> Job:
        """A job that applies a committed entry. It yields how many messages it took away since the last time."""

    @abstractmethod
    def state_view(self) -> StateView:
        """The state machine's state as it is now."""

    @abstractmethod
    def restoring(self, data: memoryview) -> Generator[int, None, object]:
        """A job that returns the state that a snapshot is of."""

    @abstractmethod
    def take_state(self, state: object) -> None:
        """Go on with such a state in place of one's own."""

    @abstractmethod
    def let_go(self, state: object) -> None:
        """Nobody uses such a state any more."""

    @abstractmethod
    def emptied_state(self, data: memoryview, *, for_member: bool) -> Generator[int, None, list[bytes]]:
        """A job that returns the pieces of a snapshot as of the log's base, without what is before the base: every entry up to
        there was dropped because nothing of it is alive at the log's end, so a replay of all that follows ends in the
        same state."""

    @abstractmethod
    def applied_time_ns(self) -> int:
        """Leader time of the newest applied entry."""

    @abstractmethod
    def keep_from_index(self) -> int:
        """The first entry that the state machine still reads; those before it may go with their segments."""

    @abstractmethod
    def holds_its_head(self) -> bool:
        """Is what the state says is there, from its beginning on, in the log?"""

    @property
    def is_at_its_end(self) -> bool:
        """Is nothing to be applied behind what is applied, whatever is committed?"""
        return False

    @property
    def may_checkpoint(self) -> bool:
        """Is the state one that recovery may start from?"""
        return True

    def checkpointed(self, index: int, needs_from: int) -> None:  # noqa: B027 (few groups mind)
        """A checkpoint is on the disk, which needs the entries from `needs_from` on."""

    def kept_durably(self) -> int:
        """The first entry that has to stay because what is behind it may be in memory only."""
        return 1 << 62

    @property
    def waits_for_disk(self) -> bool:
        """Is something about to become durable that lets the log's beginning go?"""
        return False

    def frees_room(self, entry: Entry) -> bool:
        """Must the entry be written however full the disk is, since it frees room, or leads to one that does (SF-18)?"""
        return True

    # ---- what a replica adds --------------------------------------------------------------------------------------

    @abstractmethod
    def recovered(self, commit_index: int) -> None:
        """The state is there, of `applied_index`; entries up to `commit_index` are to be applied."""

    @abstractmethod
    def fail(self, error: ReplicaError) -> None:
        """The disk did not take a vote, a checkpoint or a snapshot, or the code raised: be silent until the log is opened
        anew."""

    @abstractmethod
    def halt(self, cause: Exception) -> None:
        """The code raised: this copy is of no use until its log is opened anew. The process and all other groups go on (SF-25).

        A committed entry that cannot be applied halts every replica at that entry: opened anew, they come to it again.
        """

    def head_may_go(self) -> None:
        """Something happened that may let the log's beginning go."""
        self._head_is_due = True
        self.host.touch(self.id)

    def leader_time_ns(self) -> int:
        """The larger of the last entry's time and the clock (SF-13)."""
        last = self.log.entry(self.log.last_index) if self.log.last_index > self.log.base_index else None
        # Raft's own entry may be the first behind a snapshot: then only the state knows the time before it.
        floor = max(last.time_ns if last is not None else 0, self.applied_time_ns())
        return max(floor, self.host.clock.now_ns())
