"""Handles a broker's copy of a stream that goes to another super-cluster, or comes from one
(`docs/adr/cutover.md`).

In green a copy follows blue's group under a far name and never votes there. When it has applied HANDED it
converts (`recovery/conversion.py`). In blue, copies of a stream that green has are closed and kept until both
sides have given evidence.
"""

from __future__ import annotations

from dataclasses import replace

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.config.metadata_keys import fsync_of
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import Following, StreamStage
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.node.copy_manager import CopyManager, first_to_stand
from supercluster.broker.jetstream.recovery.conversion import (
    attempt_near_end,
    begin_group,
    begun_at_end,
    members_of,
    why_not,
)
from supercluster.broker.jetstream.recovery.durable_map import DurableMap
from supercluster.broker.jetstream.replica.lineage import is_same_stream, lineage_of
from supercluster.broker.jetstream.state.cut import CutStage
from supercluster.broker.jetstream.stream.copy import StreamCopy
from supercluster.broker.migration.worlds import near_member, world_of
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.errors import DiskError

# While copies follow, they are looked at this often: a copy that was just opened may have HANDED already.
LOOK_MS = 500
# A conversion that the disk refused is tried again after this.
RETRY_MS = 1000
# A copy that did not convert before the others had opened the stream has so long to hear HANDED from blue. Then it is begun anew, and
# learns from the others.
LATE_MS = 30_000
# The first pre-vote of green's group reaches nobody where the other copies have yet to convert. For half a second it is repeated, since
# publishers wait for a leader.
STAND_AGAIN_MS = 10
FIRST_ELECTIONS = 50
# How often the reasons why a copy does not convert are said: once for each of so many groups.
SAID_MAX = 1024


class MigratingCopies:
    """Of one broker."""

    def __init__(
        self,
        env: Environment,
        copies: Copies,
        map_view: MapView,
        leaderships: Leaderships,
        copy_manager: CopyManager,
    ) -> None:
        self._env = env
        self._copies = copies
        self._map = map_view
        self._leaderships = leaderships
        self._copy_manager = copy_manager
        self._durable_map = DurableMap(map_view)
        self._due_ms: dict[str, int] = {}
        """Blue's groups that copies here follow, and when to look at each."""
        self._late_since_ms: dict[str, int] = {}
        self._said: set[str] = set()

    # ---- the copy manager asks ------------------------------------------------------------------------------------

    def takes(self, found: Assignment) -> bool:
        """Was the copy of the stream dealt with? Else it is a copy as any other, of `found.group`."""
        if found.far_world:
            self._put_away(found)
            return True
        if found.following is None and found.arrival is None:
            return False
        registered = self._env.store.registered()
        if found.group in registered:
            self._forget_source(found)
            if found.following is not None:
                self._copy_manager.hold_member(found)
                return True
            return False
        if found.following is not None:
            self._follow(found)
            return True
        return found.source_group in registered and self._is_late(found)

    def takes_group(self, group_id: str) -> bool:
        """Is the group, which the map does not have, one of an earlier attempt at a stream that still comes? Its copy is dealt with by
        what the map has of that. And of blue's groups only a map that was read says that they are not followed: unlike others, they
        come back under the same name, and what this broker reads again of the map's log may be older than the copy here."""
        registered = self._env.store.registered().get(group_id, "")
        if world_of(node_of(registered)) and not self._map.is_fresh:
            return True
        meta = self._map.replica
        if meta is None:
            return False
        state = meta.state
        comes = (state.streams[key] for key in state.coming)
        found = next((one for one in comes if is_same_stream(one.group, group_id)), None)
        if found is None or lineage_of(group_id) != lineage_of(found.group):
            return False
        self.takes(found)
        return True

    # ---- blue -----------------------------------------------------------------------------------------------------

    def _put_away(self, found: Assignment) -> None:
        """Green has it. The copy is closed and kept, until green's answer and its own record agree."""
        way = found.migration
        assert way is not None
        group_id = way.source
        if group_id not in self._env.store.registered():
            return
        is_final = way.stage is StreamStage.CLEANED and self._map.is_fresh
        if is_final and self._copy_manager.may_remove(group_id):
            self._env.event(group_id, "CopyDropped", f"{found.name} is in another super-cluster for good")
            self._copy_manager.remove_copy(group_id)
            return
        if self._close(group_id):
            self._env.event(
                group_id,
                "CopyKept",
                f"migration {way.id} has handed {found.name} over: the copy on {self._env.node} is kept, closed, until the migration "
                "is final",
            )

    def _close(self, group_id: str) -> bool:
        group = self._copies.drop(group_id)
        if group is None:
            return False
        served = group.serves
        group.stop()
        group.log.close(clean=group.log.failed is None)
        if served:
            self._leaderships.resign(group_id)
        return True

    # ---- green ----------------------------------------------------------------------------------------------------

    def _follow(self, found: Assignment) -> None:
        """Hold the copy under blue's group, as long as it has not converted."""
        following = found.following
        assert following is not None
        store, source = self._env.store, following.source
        mine = next((far for far in following.members if self._is_mine(far)), "")
        if not self._may_begin(found, mine):
            return
        registered = store.registered().get(source)
        if registered is not None and registered != mine:
            if not self._map.is_fresh:
                return
            self._env.event(source, "CopyDropped", f"{registered} is dropped: green's map does not name it")
            self._copy_manager.remove_copy(source)
            registered = None
        if not mine or (registered is None and not self._map.is_fresh):
            self._due_ms.pop(source, None)
            return
        if self._finishes(found, mine):
            self._copy_manager.look_at(found.group)
            return
        self._copy_manager.hold_learner(as_followed(found), mine)
        if source in self._copies.streams:
            self._due_ms.setdefault(source, self._env.clock.monotonic_ms())

    def _is_mine(self, member: str) -> bool:
        near = near_member(member)
        return near.startswith(f"{self._env.volume_member}.") or near == self._env.volume_member

    def _may_begin(self, found: Assignment, mine: str) -> bool:
        """Is nothing here of an earlier attempt that had converted? What it had acknowledged to blue beyond HANDED is gone, so the copy
        comes under another name, which the map's leader gives it."""
        following = found.following
        assert following is not None
        for group_id, member in self._env.store.registered().items():
            is_older = is_same_stream(group_id, found.group) and lineage_of(group_id) == lineage_of(
                found.group
            )
            if not is_older or group_id == found.group:
                continue
            was_refused = self._was_refused(following, group_id)
            self._close(group_id)
            if mine and member == near_member(mine):
                self._copy_manager.lost_learner(following.source, mine)
                return False
            if not self._map.is_fresh:
                return False
            if not was_refused:
                self._keep(
                    group_id, f"{member} is kept, closed: by the map {found.name} never came under that group"
                )
                return False  # Its files are where the new copy's would be.
            self._env.event(group_id, "CopyDropped", f"{member} is dropped: its attempt was refused")
            self._copy_manager.remove_copy(group_id)
        return True

    def _was_refused(self, following: Following, group_id: str) -> bool:
        """Is the group of an attempt before this one? A map that was recovered by force may name an attempt from before the one that
        was opened, whose copies are all that there is."""
        copy = self._copies.streams.get(group_id)
        if copy is None:
            opened = self._env.store.open(group_id, memory=False, fsync=fsync_of({}), create=False)
            attempt = attempt_near_end(opened.log) if not opened.lost else None
            opened.log.close(clean=not opened.lost)
        elif copy.stream.state.cut.stage in (CutStage.OPEN, CutStage.REFUSED):
            return copy.stream.state.cut.stage is CutStage.REFUSED
        else:
            attempt = copy.stream.state.cut.attempt
        return attempt is not None and attempt < following.attempt

    def _keep(self, group_id: str, why: str) -> None:
        """Said once."""
        if group_id not in self._said:
            self._said = {*list(self._said)[-SAID_MAX:], group_id}
            self._env.event(group_id, "CopyKept", why)

    def _finishes(self, found: Assignment, mine: str) -> bool:
        """Was the copy converted by a process that did not come to say so? Then that is said now."""
        following, store = found.following, self._env.store
        assert following is not None
        source = following.source
        if source in self._copies.groups or source not in store.registered():
            return False
        opened = store.open(source, memory=False, fsync=fsync_of(found.config.metadata), create=False)
        begun = begun_at_end(opened.log) if not opened.lost else None
        opened.log.close(clean=not opened.lost)
        if begun is None:
            return False
        if begun.attempt != following.attempt or near_member(mine) not in begun.members:
            self._copy_manager.lost_learner(source, mine)
            return True
        self._register(found, mine)
        return True

    def _register(self, found: Assignment, far: str) -> None:
        self._env.store.register(found.group, near_member(far), home=found.source_group)
        self._forget_source(found)

    def _forget_source(self, found: Assignment) -> None:
        """Blue's group is not this volume's any more: its files are those of green's."""
        source = found.source_group
        self._due_ms.pop(source, None)
        self._late_since_ms.pop(source, None)
        self._close(source)
        self._leaderships.forget(source)
        if source in self._env.store.registered():
            self._env.store.forget(source)

    def _is_late(self, found: Assignment) -> bool:
        """The others have opened the stream, and this copy has not heard HANDED: it still may, for a while."""
        source, now_ms = found.source_group, self._env.clock.monotonic_ms()
        since_ms = self._late_since_ms.setdefault(source, now_ms)
        registered = self._env.store.registered()[source]
        if now_ms - since_ms < LATE_MS or not self._map.is_fresh:
            self._copy_manager.hold_learner(replace(found, group=source), registered)
            self._due_ms.setdefault(source, now_ms)
            return True
        self._env.event(source, "CopyDropped", f"{registered} is dropped: {found.name} was opened without it")
        self._due_ms.pop(source, None)
        self._late_since_ms.pop(source, None)
        self._copy_manager.remove_copy(source)
        return False

    # ---- conversion -----------------------------------------------------------------------------------------------

    def cut_moved(self, group_id: str) -> None:
        """The copy of that group applied an entry that takes its stream's cut further."""
        if group_id in self._due_ms:
            self._due_ms[group_id] = 0

    def _look_at(self, source: str, now_ms: int) -> None:
        found, copy = self._map.by_group(source), self._copies.streams.get(source)
        if found is None or found.source_group != source or found.far_world or copy is None:
            self._due_ms.pop(source, None)
            return
        self._due_ms[source] = now_ms + LOOK_MS
        if found.arrival is not None:
            self._copy_manager.look_at(source)
        why = self._why_not(found, copy)
        if not why:
            self._convert(found, copy)
        elif copy.stream.state.cut.handed_index and source not in self._said:
            self._said = {*list(self._said)[-SAID_MAX:], source}
            self._env.event(source, "CopyWaits", f"{copy.replica.member} does not become green's: {why}")

    def _why_not(self, found: Assignment, copy: StreamCopy) -> str:
        told = found.following or found.arrival
        assert told is not None
        replica, cut = copy.replica, copy.stream.state.cut
        if replica.failed is not None or replica.raft.doubtful:
            return "it may lack entries that it had confirmed"
        if not replica.is_recovered or self._is_behind:
            return "it is not read yet"
        return why_not(cut, told.migration, told.attempt, replica.member, replica.applied_index, replica.log)

    @property
    def _is_behind(self) -> bool:
        return self._map.replica is None or self._map.replica.is_behind

    def _convert(self, found: Assignment, copy: StreamCopy) -> None:
        """See the module of that name."""
        source, replica, cut = found.source_group, copy.replica, copy.stream.state.cut
        try:
            self._durable_map.keep()
        except DiskError as error:
            self._env.event(source, "DiskFailed", f"the copy waits to become green's: {error}")
            self._due_ms[source] = self._env.clock.monotonic_ms() + RETRY_MS
            return
        self._due_ms.pop(source, None)
        self._copies.drop(source)
        replica.stop()
        try:
            begin_group(replica.log, cut)
            replica.log.close(clean=True)
            self._register(found, replica.member)
        except DiskError as error:
            self._env.event(source, "DiskFailed", f"the copy waits to become green's: {error}")
            replica.log.close(clean=False)
            self._copy_manager.try_again_later(source)
            return
        near = near_member(replica.member)
        self._env.event(found.group, "LineageStarted", f"stream {found.name} goes on here, as {near}")
        self._copy_manager.closed[found.group] = copy
        try:
            self._copy_manager.look_at(found.group)
        finally:
            self._copy_manager.closed.pop(found.group, None)
        begun = self._copies.streams.get(found.group)
        if begun is not None and near == first_to_stand(replace(found, members=members_of(cut))):
            now_ms = self._env.clock.monotonic_ms()
            begun.replica.raft.stand_within(STAND_AGAIN_MS, now_ms, FIRST_ELECTIONS)

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        for source, at_ms in list(self._due_ms.items()):
            if now_ms >= at_ms:
                self._look_at(source, now_ms)

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        return min(self._due_ms.values(), default=None)


def as_followed(found: Assignment) -> Assignment:
    """The stream as its copy in blue's group has it: that group, and green's copies under their far names."""
    assert found.following is not None
    return replace(found, group=found.following.source, members=found.following.members)
