"""Transfer of a group's whole state: from the disk, from a leader and to a follower, each in slices
(`docs/adr/checkpoints.md`).

The incoming state is decoded beside the current one. The group switches to it, and to its log, in one step.
"""

from __future__ import annotations

from collections.abc import Generator

from supercluster.broker.jetstream.encoding.codec import Reader, blob
from supercluster.broker.jetstream.replica.checkpoints import Checkpoints
from supercluster.broker.jetstream.replica.replicated_state import ReplicatedState
from supercluster.broker.jetstream.turn.slices import Job
from supercluster.broker.ports import Ticket
from supercluster.broker.raft.confchange import Membership
from supercluster.broker.raft.config import Snapshot


class StateTransfer:
    """Of one group."""

    def __init__(self, replica: ReplicatedState, checkpoints: Checkpoints) -> None:
        self._replica = replica
        self._checkpoints = checkpoints
        self._recovery: Job | None = None
        self._arrived: Snapshot | None = None
        self._membership: Membership | None = None
        self._state: object = None
        """What the arrived snapshot is of."""
        self._ticket: Ticket | None = None
        self._making: Job | None = None
        self._made: tuple[int, bytes] | None = None
        """The emptied state at the log's base, and that base."""
        self._missing_index = -1
        """The last base that was found without a state."""

    # ---- from the disk --------------------------------------------------------------------------------------------

    def recover(self, commit_index: int) -> Job:
        """After opening: the newest checkpoint; the entries behind it that are known to be committed are applied then.

        A head drop has a checkpoint that needs nothing of what it drops. Where that one is damaged, an older one may stand on
        messages that are gone: then all is replayed from the log's base, with the base's state emptied.
        """
        self._recovery = self._recover(commit_index)
        return self._recovery

    def _recover(self, commit_index: int) -> Job:
        replica = self._replica
        log = replica.log
        found = log.load_checkpoint()
        yield 0
        if found is not None:
            yield from self._restore(*found)
        if log.base_index and (found is None or not replica.holds_its_head()):
            base = log.base_state()
            if base is None:
                raise log.lose("the state at the log's beginning is gone, and nothing else stands for it")
            yield from self._restore(log.base_index, (yield from self.emptied(base, for_member=False)))
        self._recovery = None
        replica.recovered(commit_index)

    def _restore(self, index: int, data: bytes) -> Job:
        reader = Reader(data)
        membership = Membership.decode(reader.blob())
        state = yield from self._replica.restoring(reader.rest())
        self._take(index, membership, state)

    def _take(self, index: int, membership: Membership, state: object) -> None:
        replica = self._replica
        replica.applied_index, replica.membership_applied = index, membership
        replica.take_state(state)
        self._checkpoints.restored(index)

    # ---- from a leader --------------------------------------------------------------------------------------------

    @property
    def is_arriving(self) -> bool:
        """Is a snapshot about to take the place of log and state?"""
        return self._arrived is not None

    def arrived(self, snapshot: Snapshot) -> None:
        """A snapshot is here as a whole."""
        replica = self._replica
        self._checkpoints.give_up()
        self._arrived, self._checkpoints.is_held = snapshot, True
        replica.host.in_slices(replica, self._install(snapshot))

    def _install(self, snapshot: Snapshot) -> Job:
        reader = Reader(snapshot.state)
        self._membership = Membership.decode(reader.blob())
        self._state = yield from self._replica.restoring(reader.rest())
        self._wait_for(
            self._replica.log.begin_base(snapshot.base_index, snapshot.base_term, [snapshot.state])
        )

    def saved(self, ticket: Ticket) -> None:
        """A ticket was run. Raises DiskError."""
        if ticket is self._ticket:
            self._wait_for(self._replica.log.finish_checkpoint(ticket))

    def _wait_for(self, ticket: Ticket | None) -> None:
        """None: the snapshot is durable."""
        replica, self._ticket = self._replica, ticket
        if ticket is not None:
            replica.host.save_checkpoint(replica.id, ticket)
            return
        snapshot, self._arrived = self._arrived, None
        self._checkpoints.is_held = False
        state, self._state = self._state, None
        assert snapshot is not None
        assert self._membership is not None
        raft, log, now_ms = replica.raft, replica.log, replica.host.clock.monotonic_ms()
        index = snapshot.base_index
        if raft.commit_index >= index or log.term(index) == snapshot.base_term:
            raft.snapshot_failed(now_ms)  # Another leader has sent the entries meanwhile: they stay.
            replica.let_go(state)
        else:
            if self._recovery is not None:
                self._recovery.close()
                self._recovery = None
            log.install_base(index, snapshot.base_term, snapshot.state)
            self._take(index, self._membership, state)
            raft.snapshot_installed(index, now_ms)
            replica.recovered(index)
        replica.host.touch(replica.id)

    # ---- to a follower --------------------------------------------------------------------------------------------

    def provide(self, members: list[str]) -> bool:
        """Give these members the emptied state at the log's base. False: it is being made; they are named again."""
        replica = self._replica
        made = self._made
        if made is not None and made[0] == replica.log.base_index:
            self._made = None
            for member in members:
                replica.raft.provide_snapshot(member, made[1])
            return True
        if self._making is None and self._recovery is None:
            self._making = self._make()
            replica.host.in_slices(replica, self._making)
        return False

    def _make(self) -> Job:
        replica = self._replica
        index = replica.log.base_index
        try:
            base = replica.log.base_state()
            yield 0
            if base is None and index != self._missing_index:
                self._missing_index = index
                replica.host.event(
                    replica.id,
                    "SnapshotMissing",
                    f"the state at entry {index} is damaged: members that need it wait until the log's beginning moves on",
                )
            if base is not None:
                self._made = index, (yield from self.emptied(base, for_member=True))
                replica.host.touch(replica.id)
        finally:
            self._making = None

    def emptied(self, base: bytes, *, for_member: bool) -> Generator[int, None, bytes]:
        """A job that returns a checkpoint's state without any message."""
        reader = Reader(base)
        membership = reader.blob()
        pieces = yield from self._replica.emptied_state(reader.rest(), for_member=for_member)
        return b"".join((blob(membership), *pieces))
