"""Checkpoints of a group's state: when they are taken, and how they are encoded in slices and written by a
thread (`docs/adr/checkpoints.md`).

A checkpoint is the state after one entry. It counts when it is durable (SF-17). Until then the previous one
counts, and no entry that it needs is dropped.
"""

from __future__ import annotations

from supercluster.broker.jetstream.encoding.codec import blob
from supercluster.broker.jetstream.replica.replicated_state import ReplicatedState
from supercluster.broker.jetstream.turn.slices import Job
from supercluster.broker.jetstream.turn.state_view import StateView
from supercluster.broker.ports import Ticket
from supercluster.broker.raft.errors import DiskError

# One that the disk did not take is tried again at this pace.
RETRY_MS = 1000
# A start replays no more entries than about so many, some seconds' work.
ENTRIES_MAX = 100_000
# Voters begin theirs so far apart: each costs a part of a processor for a while.
STAGGER_MS = 2000


class Checkpoints:
    """Of one group."""

    def __init__(self, replica: ReplicatedState) -> None:
        self._replica = replica
        self._view: StateView | None = None
        self._job: Job | None = None
        self._ticket: Ticket | None = None
        self._needs_from = 0
        """The first entry that the state needs which is being saved."""
        self._begun_index = 0
        """Of the newest one, whatever became of it."""
        self._due_ms: int | None = None
        self.is_held = False
        """Is another state about to take the place of this one?"""
        self.deferred: DiskError | None = None
        """Why the last one was not taken, until one is."""
        self.index = 0
        """The newest durable checkpoint; 0: there is none."""
        self.needs_from = 0
        """The first entry that it needs: those before it may go."""

    @property
    def is_under_way(self) -> bool:
        """Is a checkpoint being made?"""
        return self._job is not None or self._ticket is not None

    @property
    def _must_wait(self) -> bool:
        return self.is_under_way or self.is_held

    def restored(self, index: int) -> None:
        """The state of the newest checkpoint was read."""
        self._is_durable(index, self._replica.keep_from_index())

    def taken_over(self, other: Checkpoints) -> None:
        """The state is another replica's, which had the same log. What that one had under way is given up."""
        if other.index:
            self._is_durable(other.index, other.needs_from)

    def _is_durable(self, index: int, needs_from: int) -> None:
        self._begun_index, self.index, self.needs_from = index, index, needs_from
        self._replica.checkpointed(index, needs_from)

    def applied(self, index: int) -> None:
        """An entry was applied: is a checkpoint due?"""
        if self._replica.log.checkpoint_at(index) or index - self._begun_index >= ENTRIES_MAX:
            replica = self._replica
            voters = sorted(replica.raft.membership.voters)
            rank = voters.index(replica.member) if replica.member in voters else 0
            if rank == 0:
                self.begin()
            elif self._due_ms is None:
                self._due_ms = replica.host.clock.monotonic_ms() + rank * STAGGER_MS

    def tick(self, now_ms: int) -> None:
        if self._due_ms is not None and now_ms >= self._due_ms and not self._must_wait:
            self.begin()

    def deadline_ms(self) -> int | None:
        return None if self._must_wait else self._due_ms

    # ---- one checkpoint -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Save the state as it is now; behind the one that is under way, the state as it is then."""
        replica = self._replica
        if not replica.may_checkpoint:
            return
        if self._must_wait:
            self._due_ms = self._due_ms or replica.host.clock.monotonic_ms()
            return
        self._due_ms = None
        self._begun_index = replica.applied_index
        self._needs_from = replica.keep_from_index()
        self._view = replica.state_view()
        self._job = self._encode(replica.applied_index, blob(replica.membership_applied.encode()), self._view)
        replica.host.in_slices(replica, self._job)

    def _encode(self, index: int, head: bytes, view: StateView) -> Job:
        pieces = [head]
        for piece in view.pieces():
            if piece.data:
                pieces.append(piece.data)
            yield piece.units
        self._close_view()
        self._job = None
        try:
            self._wait_for(self._replica.log.begin_checkpoint(index, pieces))
        except DiskError as error:
            self._defer(error)

    def _wait_for(self, ticket: Ticket | None) -> None:
        """None: it is durable."""
        replica, self._ticket = self._replica, ticket
        if ticket is not None:
            replica.host.save_checkpoint(replica.id, ticket)
            return
        self.deferred = None
        self._is_durable(self._begun_index, self._needs_from)
        replica.head_may_go()

    def saved(self, ticket: Ticket) -> None:
        """A ticket was run."""
        if ticket is not self._ticket:
            return
        try:
            self._wait_for(self._replica.log.finish_checkpoint(ticket))
        except DiskError as error:
            self._ticket = None
            self._defer(error)

    def at_once(self) -> bool:
        """Save the state while the caller waits. Without a checkpoint the log is longer and the next start slower, and nothing
        else: a disk that has no room for one is no reason to leave the group (SF-18)."""
        self.give_up()
        replica = self._replica
        if not replica.may_checkpoint:
            return False
        view = replica.state_view()
        try:
            state = b"".join(piece.data for piece in view.pieces())
            replica.log.save_checkpoint(
                replica.applied_index, blob(replica.membership_applied.encode()) + state
            )
        except DiskError as error:
            self._defer(error)
            return False
        finally:
            view.close()
        self.deferred = None
        self._is_durable(replica.applied_index, replica.keep_from_index())
        return True

    def drop_head(self, keep_from_index: int) -> None:
        """Let go what neither the state nor the durable checkpoint needs."""
        try:
            self._replica.log.drop_head(keep_from_index)
        except DiskError as error:
            self._defer(error)

    def give_up(self) -> None:
        """Whatever is under way is of no use any more."""
        if self._job is not None:
            self._job.close()
        if self._ticket is not None:
            self._replica.log.drop_checkpoint()
        self._job = self._ticket = None
        self._close_view()

    def _close_view(self) -> None:
        view, self._view = self._view, None
        if view is not None:
            view.close()

    def _defer(self, error: DiskError) -> None:
        replica = self._replica
        if replica.log.failed is not None:
            raise error
        if self.deferred is None:
            replica.host.event(
                replica.id,
                "CheckpointDeferred",
                f"{replica.member} keeps its log as it is until the disk has room: {error}",
            )
        self.deferred = error
        self._due_ms = replica.host.clock.monotonic_ms() + RETRY_MS
        replica.host.touch(replica.id)
