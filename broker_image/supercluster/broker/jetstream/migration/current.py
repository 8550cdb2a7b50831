"""The migration that a stream's leader carries out: on blue one that takes the stream away, on green the one
that brought it.

Each new leader determines it from the log and the map.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from supercluster.broker.jetstream.links.migration_frames import CutAsk, CutTold, Prepared
from supercluster.broker.jetstream.meta.migration import StreamMigration, StreamStage, next_group
from supercluster.broker.jetstream.migration.green_copies import change_learners, far_learners
from supercluster.broker.jetstream.migration.migrating_stream import MigratingStream
from supercluster.broker.jetstream.migration.migrator import Migrator
from supercluster.broker.jetstream.migration.opening import Opening
from supercluster.broker.jetstream.state.cut import Cut, CutStage
from supercluster.broker.raft.confchange import node_of

# Learners of another super-cluster that the map has no migration for are dropped after this: it may be older than they are.
STRAY_MS = 10_000
STRAY_AGAIN_MS = 1000


class CurrentMigration:
    """Of one stream's replica. While it does not lead there is none."""

    def __init__(self, migrating: MigratingStream, reopened: Callable[[], None]) -> None:
        """`reopened`: whoever waits for the stream is to be served again."""
        self._migrating = migrating
        self._reopened = reopened
        self._replica, self._stream, self._host = migrating.replica, migrating.stream, migrating.host
        self.migrator: Migrator | None = None
        self._opening: Opening | None = None
        self._stray_ms: int | None = None
        """When to drop learners that no migration explains."""

    @property
    def _came_here(self) -> bool:
        """Has the group begun behind another super-cluster's?"""
        found, cut = self._stream.assignment, self._stream.state.cut
        is_here = bool(found.source_group) and found.group == self._replica.id and not found.far_world
        return is_here and cut.stage in (CutStage.HANDED, CutStage.OPEN, CutStage.REFUSED)

    def _record(self) -> StreamMigration | None:
        """How the stream goes away: as its own log says first, since the map may have lost it."""
        cut, found = self._stream.state.cut, self._stream.assignment.migration
        is_known = found is not None and (found.id, found.attempt) == (cut.migration, cut.attempt)
        if cut.is_closed and not self._came_here and not is_known:
            return _record_of(cut, self._replica.id)
        return found if found is not None and not found.is_far else None

    def follow(self, now_ms: int) -> None:
        """The map shows something else; or this replica leads from now on."""
        if not self._replica.serves:
            self.stop()
            return
        if self._came_here:
            self._opening = self._opening or Opening(self._migrating)
            self._opening.wake()
        else:
            self._opening = None
        record = self._record()
        if record is None or (self.migrator is not None and self.migrator.record.id != record.id):
            self.migrator = None
        if record is not None and self.migrator is None:
            self.migrator = Migrator(self._migrating, record, now_ms)
        elif record is not None and self.migrator is not None:
            self.migrator.set_record(record)
        self._hold()
        if self.migrator is not None or self._opening is not None:
            self._host.touch(self._replica.id)

    def _hold(self) -> None:
        held, self._stream.is_held = self._stream.is_held, self.migrator is not None and self.migrator.holds
        if held and not self._stream.is_held:
            self._reopened()
            self._host.touch_next(self._replica.id)

    def wake(self) -> None:
        """What a migration may wait for is applied."""
        if not self._replica.serves:
            return
        self.follow(self._host.clock.monotonic_ms())
        if self.migrator is not None:
            self.migrator.wake()

    def stop(self) -> None:
        """This replica does not lead any more."""
        self.migrator = self._opening = None
        self._stray_ms = None
        self._stream.is_held = False

    # ---- what comes in --------------------------------------------------------------------------------------------

    def asked_to_join(self, member: str) -> None:
        """A copy of another super-cluster is open."""
        if self.migrator is not None:
            self.migrator.asked_to_join(member)

    def on_prepared(self, told: Prepared) -> None:
        if self.migrator is not None:
            self.migrator.on_prepared(told)

    def on_told(self, told: CutTold) -> None:
        if self.migrator is not None:
            self.migrator.on_told(told)

    def on_asked(self, node: str, ask: CutAsk) -> None:
        if self._opening is not None:
            self._opening.asked(node, ask)

    # ---- the turn -------------------------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> None:
        """In the turn of a serving leader: take the next step."""
        if self._opening is not None:
            self._opening.advance(now_ms)
        if self.migrator is not None:
            self.migrator.advance(now_ms)
            self._hold()
            self._stray_ms = None
        else:
            self._drop_strays(now_ms)

    def _drop_strays(self, now_ms: int) -> None:
        strays = far_learners(self._replica)
        if not strays:
            self._stray_ms = None
        elif self._stray_ms is None or not self._host.map.is_fresh:
            self._stray_ms = now_ms + STRAY_MS
        elif now_ms >= self._stray_ms:
            self._stray_ms = now_ms + STRAY_AGAIN_MS
            kept = tuple(m for m in self._replica.raft.membership.learners if m not in strays)
            if not change_learners(self._replica, kept):
                nodes = ", ".join(map(node_of, strays))
                self._host.event(
                    self._replica.id,
                    "MigrationLost",
                    f"no migration explains the learners of {nodes}: they are removed",
                )

    def info(self) -> dict[str, Any] | None:
        """What people are told of a stream that goes away, or that came and was refused."""
        if self.migrator is not None:
            return self.migrator.info()
        return self._opening.info() if self._opening is not None else None

    def deadline_ms(self) -> int | None:
        """When there is something to do."""
        found = (
            self.migrator.deadline_ms() if self.migrator is not None else None,
            self._opening.deadline_ms() if self._opening is not None else None,
            self._stray_ms,
        )
        return min((at for at in found if at is not None), default=None)


def _record_of(cut: Cut, group: str) -> StreamMigration:
    """What a map that has lost it is to know of a stream whose own log says that it is fenced."""
    group_then = next_group(group, cut.migration, cut.attempt)
    return StreamMigration(cut.migration, cut.attempt, StreamStage.HANDING, cut.world, group, group_then)
