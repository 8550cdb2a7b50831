"""Opens, sets aside and drops a broker's copies of streams as the map says.

The rules (SF-4, SF-5): a replica exists because this volume joined the group before, or because the meta
group assigned the stream to this very volume. A copy that is not in the map is closed, kept for a while, and
then dropped; only a map that was read decides that. `node/copy_rules.py` determines which copy the broker is
to hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Protocol

from isal.isal_zlib import crc32

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.config.metadata_keys import (
    FSYNC_KEY,
    PREFERRED_LEADER_KEY,
    fsync_of,
    unknown_fsync,
)
from supercluster.broker.jetstream.encoding.codec import blob
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.node.copy_rules import Copy, Hold, copy_of
from supercluster.broker.jetstream.node.failed_copies import FailedCopies
from supercluster.broker.jetstream.node.joining import Joining
from supercluster.broker.jetstream.node.opener import Opener
from supercluster.broker.jetstream.publish.host import StreamHost
from supercluster.broker.jetstream.replica.lineage import is_meta
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.stream.copy import StreamCopy
from supercluster.broker.jetstream.stream.replica import StreamReplica, ends_before
from supercluster.broker.jetstream.turn.slices import SLICE_UNITS, Job
from supercluster.broker.ports import OpenedGroup
from supercluster.broker.raft.confchange import Membership, membership_of, node_of
from supercluster.broker.raft.errors import DiskError

# More copies than this are opened in turns of their own.
OPENED_AT_ONCE = 2
# Of a new group's members one stands for election so soon, when the others have the map that names the group too.
FIRST_ELECTION_MS = 50
# Whether a retired copy's grace time is over is looked at this often at least: clocks jump.
RETIRED_CHECK_MS = 60_000
# Where the broker does not know the time yet, this often.
TIME_CHECK_MS = 1000
# Whether the group can do without a copy that nobody can explain is looked at this often.
UNEXPLAINED_CHECK_MS = 1000
# A copy that the disk had no room for, or that failed later, is opened anew after so long, as long as the map gives it to
# this broker; one that fails again and again is tried at the second pace in the end.
OPEN_RETRY_MS = 5000
OPEN_RETRY_MS_MAX = 60_000
# That a copy which was to join lost its data is said at this pace, until the map names another.
LOST_RETRY_MS = 1000


def first_to_stand(assignment: Assignment) -> str:
    """The member that stands for a new group's first election, before the time-out that would decide it by lot: the
    preferred broker's, else any, the same for everybody and another one for each group."""
    members = assignment.members
    preferred = (
        dict(assignment.config.metadata).get(PREFERRED_LEADER_KEY) or assignment.config.placement.preferred
    )
    chosen = next((member for member in members if preferred and node_of(member) == preferred), None)
    return chosen or members[crc32(assignment.group.encode()) % len(members)]


def _takes_part(replica: Replica) -> bool:
    """Does the replica's own log say so? Who is taken out of a group is told."""
    return replica.failed is None and replica.member in replica.raft.membership


class StreamLineages(Protocol):
    """What became of streams by forced recoveries (`recovery/stream_lineages.py`)."""

    def is_ready(self, found: Assignment, /) -> bool:
        """May the stream's group be opened here?"""

    def takes(self, group_id: str, /) -> bool:
        """Is the group, which the map does not have, one of an older lineage? Then its copy is dealt with."""


class MigratingCopies(Protocol):
    """Copies of streams that go to another super-cluster, or come from one (`recovery/migrating_copies.py`)."""

    def takes(self, found: Assignment, /) -> bool:
        """Was the copy of the stream dealt with?"""

    def takes_group(self, group_id: str, /) -> bool:
        """Is the group, which the map does not have, one that a stream on its way had? Then its copy is dealt with."""


class OrphanedCopies(Protocol):
    """Copies that a recovered map does not know (`recovery/orphaned_copies.py`)."""

    def takes(self, group_id: str, /) -> bool:
        """Is the copy, whose group the map does not have, one that has to be kept? Then it is closed."""

    def map_was_read(self) -> None:
        """Note what the map does not know, the first time."""


class CopyManager:
    """Opens, puts away and drops the copies of one broker."""

    def __init__(
        self,
        env: Environment,
        copies: Copies,
        map_view: MapView,
        leaderships: Leaderships,
        opener: Opener,
        joining: Joining,
        failed_copies: FailedCopies,
        host: StreamHost,
    ) -> None:
        self._env = env
        self._copies = copies
        self._map = map_view
        self._leaderships = leaderships
        self._opener = opener
        self._joining = joining
        self._failed_copies = failed_copies
        self._host = host
        self.lineages: StreamLineages
        self.migrating: MigratingCopies
        self.orphans: OrphanedCopies
        """All are set by the wiring before a group is looked at: they need this manager first."""
        self._look_again: dict[str, int] = {}
        """Copies that are kept for a while or that could not be opened, and when to look at each again."""
        self._lost_targets: dict[str, str] = {}
        """Copies that were to join and lost their data: the meta group is told until it names others."""
        self._lost_ms = 0
        self._unexplained_ms: dict[str, int] = {}
        """Copies that the map has no explanation for, and since when this process has known them."""
        self.closed: dict[str, StreamCopy] = {}
        """A copy that was closed just now, by the group that goes on with its log and its state."""
        self._tries: dict[str, tuple[int, int]] = {}
        """Copies that a disk error kept out of their group: when each is opened anew, and how long that is waited for."""

    def is_unexplained(self, group_id: str) -> bool:
        """Is the copy here one that the map has no explanation for?"""
        return group_id in self._unexplained_ms

    # ---- following the map ----------------------------------------------------------------------------------------

    def follow_map(self, touched: list[str]) -> None:
        """Hold what the map says, and remove what was deleted."""
        assert self._map.replica is not None
        assigned = {found.group for found in self._map.replica.state.streams.values()}
        to_open = (
            set(touched) | (assigned if self._map.index == 0 else set())
        ) & assigned - self._copies.groups.keys()
        is_much = len(to_open) > OPENED_AT_ONCE
        for group_id in sorted(set(touched) - to_open if is_much else set(touched) | to_open):
            self.look_at(group_id)
        if is_much:
            self._look_soon(to_open)

    def map_was_read(self) -> None:
        """Remove what was deleted while this broker was away, and hold what was assigned. Only on a map that was read:
        one from the disk may be older than an assignment that this volume has already taken part in."""
        assert self._map.replica is not None
        state = self._map.replica.state
        assigned = {found.group for found in state.streams.values()}
        self.orphans.map_was_read()
        for group_id in self._env.store.registered():
            if not is_meta(group_id) and group_id not in assigned and group_id not in state.other_groups:
                self._opener.attempt(group_id, partial(self._deleted, group_id))
        self._look_soon(assigned)

    def _look_soon(self, group_ids: Iterable[str]) -> None:
        """At one after the other and not all in one turn: opening a copy may read much of its log."""
        self._copies.slices.begin(None, self._looking_at(sorted(group_ids)))

    def _looking_at(self, group_ids: list[str]) -> Job:
        for group_id in group_ids:
            is_open = group_id in self._copies.groups
            self.look_at(group_id)
            yield SLICE_UNITS // 40 if is_open else 2 * SLICE_UNITS

    def _follow(self, found: Assignment) -> None:
        """Hold the copy that this broker should hold of a stream, and no other. A copy that the volume does not know is
        begun, and one is put away, only on a map that was read: by one from the disk, a stream that was deleted since
        would come to life again, empty, and vote with an identity that has voted before (SF-4)."""
        if self.migrating.takes(found) or not self.lineages.is_ready(found):
            return
        registered = self._env.store.registered().get(found.group)
        if found.is_unconfirmed:
            # By a recovered map nobody knows who the members are (SF-5): what is here takes part, whatever it is.
            if registered is not None:
                self._open(found, partial(self._open_member, found))
            return
        copy = copy_of(
            found, self._env.volume_member, registered, self._env.settings.retired_grace_ms * 1_000_000
        )
        if self._lost_targets.get(found.group) != copy.member:
            # It is named no more as one that is to join: what is said of it now would be believed of its successor.
            self._lost_targets.pop(found.group, None)
        if copy.hold is not Hold.UNEXPLAINED:
            self._unexplained_ms.pop(found.group, None)
        if copy.hold is Hold.MEMBER:
            if registered is not None or self._map.is_fresh:
                self._open(found, partial(self._open_member, found))
        elif copy.hold is Hold.TARGET:
            if self._lost_targets.get(found.group) == copy.member:
                return
            if registered is not None or self._map.is_fresh:
                self._open(found, partial(self._open_target, found, copy.member))
        elif registered is None or not self._map.is_fresh:
            return
        elif not self._opener.attempt(found.group, partial(self._put_away, found, copy)):
            self._try_again_later(found.group)

    def _open(self, found: Assignment, act: Callable[[], None]) -> None:
        copy = self._copies.streams.get(found.group)
        if copy is not None:
            self._reassign(copy, found)
            self._copies.touch(found.group)
        elif not self._opener.attempt(found.group, act):
            # The stream has a replica less than it was given until the disk takes this one.
            self._try_again_later(found.group)
            self._failed_copies.failed(found.group, None)

    def _reassign(self, copy: StreamCopy, found: Assignment) -> None:
        """What is open follows what the map says now."""
        copy.set_assignment(found)
        self._env.store.set_fsync(found.group, fsync_of(found.config.metadata))

    def _put_away(self, found: Assignment, copy: Copy) -> None:
        """The map does not name the copy that is here: close it, and drop it when its time has come (SF-5). One that halted
        stays, and no other begins in its place (SF-34)."""
        group_id, is_halted = found.group, self._failed_copies.is_halted(found.group)
        if copy.hold is Hold.UNDECIDED:
            self._open(found, partial(self._open_member, found))
            group = self._copies.groups.get(group_id)
            if group is None or group.raft.doubtful or group.raft.membership.is_voter(group.member):
                # Its own log has the last word while the move runs; one that may have lost its end says nothing. A replica
                # that a disk error took out of its group confirmed nothing as a voter without knowing that it is one.
                return
        if copy.hold in (Hold.UNDECIDED, Hold.SUPERSEDED) and not is_halted:
            self._drop(found, "the move does not name it")
            if copy.member:
                self._open(found, partial(self._open_target, found, copy.member))
            return
        left_ms = (copy.until_ns - self._env.clock.now_ns()) // 1_000_000
        if not self._env.knows_time():
            left_ms = max(left_ms, TIME_CHECK_MS)
        if copy.hold is Hold.UNEXPLAINED:
            left_ms = self._look_at_unexplained(found)
            group = self._copies.groups.get(group_id)
            if left_ms > 0 and group is not None and _takes_part(group):
                self._look_again[group_id] = self._env.clock.monotonic_ms() + UNEXPLAINED_CHECK_MS
                return
        if not is_halted and (copy.hold is Hold.DROPPED or left_ms <= 0):
            self._drop(found, copy.why or "its grace time is over")
            return
        wait_ms = RETIRED_CHECK_MS if is_halted else min(left_ms, RETIRED_CHECK_MS)
        self._look_again[group_id] = self._env.clock.monotonic_ms() + wait_ms
        self._failed_copies.forget(group_id)
        group = self._copies.drop(group_id)
        if group is not None:
            group.stop()
            group.log.close(clean=True)
        if is_halted and (group is not None or copy.member):
            where = self._env.store.directory_of(group_id)
            self._env.event(
                group_id,
                "CopyKept",
                f"the copy halted, and is kept, closed, in {where} of the data directory: to let it go, remove {where}/halted",
            )
        elif group is not None:
            self._env.event(
                group_id, "CopyRetired", f"{group.member} is kept, closed, for {left_ms // 1000} s more"
            )

    def _look_at_unexplained(self, found: Assignment) -> int:
        """How long the copy is still kept: the grace time, from when it was first seen. It is opened once, to see what its
        own log says."""
        group_id = found.group
        now_ms, copy = self._env.clock.monotonic_ms(), self._copies.streams.get(group_id)
        is_new = group_id not in self._unexplained_ms
        since_ms = self._unexplained_ms.setdefault(group_id, now_ms)
        if copy is not None:
            self._reassign(copy, found)
        elif is_new:
            opened = self._open_log(found, create=False)
            if opened.lost:
                opened.log.close(clean=False)
            else:
                self._begin(found, self._env.store.registered()[group_id], opened, Membership())
        self._joining.end(group_id)
        return since_ms + self._env.settings.retired_grace_ms - now_ms

    def _drop(self, found: Assignment, why: str) -> None:
        registered = self._env.store.registered().get(found.group)
        self._env.event(found.group, "CopyDropped", f"{registered} is dropped: {why}")
        self._remove(found.group)

    def _open_target(self, found: Assignment, member: str) -> None:
        """A move names a copy on this broker: it begins empty, and learns."""
        registered = self._env.store.registered().get(found.group)
        opened = self._open_log(found, create=registered is None)
        if registered is None and (opened.lost or opened.log.last_index):
            # What an earlier copy left behind, whose files the disk would not let go.
            opened.log.destroy()
            opened = self._open_log(found, create=True)
        if opened.lost:
            # It may have voted: it never does again. The meta group names another copy.
            self._env.event(
                found.group, "RecordLost", f"{member} lost its data while it was to join {found.name}"
            )
            opened.log.close(clean=False)
            self._lost_targets[found.group] = member
            return
        if registered is None:
            self._env.store.register(found.group, member)
        self._begin(found, member, opened, Membership())

    def _open_log(self, found: Assignment, *, create: bool) -> OpenedGroup:
        fsync, unknown = fsync_of(found.config.metadata), unknown_fsync(found.config.metadata)
        if unknown:
            self._env.event(
                found.group,
                "UnknownPolicy",
                f"stream {found.name}: metadata {FSYNC_KEY} is {unknown!r}, which this broker does not know; it works "
                f"with {fsync!r}",
            )
        memory = found.config.storage == "memory"
        opened = self._env.store.open(found.group, memory=memory, fsync=fsync, create=create)
        if opened.end != (0, 0) and len(found.members) == 1:
            return replace(opened, lost=True, end=(0, 0))  # Nobody else has what it lost.
        return opened

    def _open_member(self, assignment: Assignment) -> None:
        group_id = assignment.group
        registered = self._env.store.registered().get(group_id)
        mine = next((member for member in assignment.members if node_of(member) == self._env.node), "")
        opened = self._open_log(assignment, create=registered is None)
        if opened.lost and registered is not None and not self._map.is_fresh:
            # By an older map it is a member's; a move since may name it as a target, and an identity that was forgotten
            # here would be taken again, empty (SF-4). So whose it was is kept until the map was read.
            opened.log.close(clean=False)
            return
        # Only the first members begin a stream: behind a move everybody else comes to a group that exists.
        first = (
            registered is None
            and mine.startswith(self._env.volume_member)
            and not assignment.has_begun_before
        )
        if first:
            member = mine
        elif registered is not None and not opened.lost:
            member = registered
        else:
            member = self._env.new_member()
            self._env.event(
                group_id,
                "RecordLost",
                f"{self._env.node} lost its copy of {assignment.name}: rejoins as {member}",
            )
        membership = membership_of(assignment.members) if first else Membership()
        if member != registered:
            if first:
                opened.log.save_checkpoint(
                    0, blob(membership.encode()) + StreamReplica.blank_state(assignment)
                )
            self._env.store.register(group_id, member)
        self._begin(assignment, member, opened, membership)
        copy = self._copies.streams[group_id]
        if copy.has_no_voter:
            refusal = errors.no_voter_left(assignment.name, self._env.node)
            where = self._env.store.directory_of(group_id)
            self._env.event(group_id, "NoVoterLeft", f"{refusal.description}: {where} of the data directory")
        if first and member == first_to_stand(assignment):
            copy.replica.raft.stand_within(FIRST_ELECTION_MS, self._env.clock.monotonic_ms())

    def _begin(
        self, assignment: Assignment, member: str, opened: OpenedGroup, membership: Membership
    ) -> None:
        group_id = assignment.group
        raft = self._opener.raft_over(group_id, opened, member, membership)
        replica = StreamReplica(assignment, member, opened.log, raft, self._host)
        self._copies.add_stream(replica.copy)
        closed = self.closed.get(group_id)
        try:
            if closed is not None and ends_before(closed, opened):
                replica.go_on_from(closed, opened.commit_index)
            else:
                replica.recover(opened.commit_index)
        except DiskError as error:
            replica.fail(error)
        except Exception as error:
            fault = replica.fault(error)
            self._failed_copies.failed(group_id, fault)
            raise fault from error
        if not raft.membership.is_voter(member):
            self._joining.begin(group_id)

    def _deleted(self, group_id: str) -> None:
        """The stream was deleted: by a person, through the meta group; its copy goes at once. Or it was recovered by force,
        and goes on in another group."""
        if self.migrating.takes_group(group_id) or self.lineages.takes(group_id):
            return
        if self.orphans.takes(group_id):
            self._forget(group_id)
            return
        self._remove(group_id, is_deleted=True)
        self._leaderships.forget(group_id)

    def look_at(self, group_id: str) -> None:
        """What does the map say of the copy now?"""
        assert self._map.replica is not None
        found = self._map.replica.state.by_group(group_id)
        if found is not None:
            self._follow(found)
        else:
            self._opener.attempt(group_id, partial(self._deleted, group_id))

    def may_remove(self, group_id: str) -> bool:
        """Not what halted (SF-34), nor while the disk does not say whether it did."""
        try:
            return not self._failed_copies.is_halted(group_id)
        except DiskError:
            return False

    def remove_copy(self, group_id: str) -> None:
        """Nobody needs it any more."""
        self._remove(group_id)

    def hold_member(self, found: Assignment) -> None:
        """The copy here is a member's: have it open."""
        self._open(found, partial(self._open_member, found))

    def hold_learner(self, found: Assignment, member: str) -> None:
        """The copy here learns, as that member: have it open, begun empty where there is none."""
        if self._lost_targets.get(found.group) == member:
            return
        self._lost_targets.pop(found.group, None)
        self._open(found, partial(self._open_target, found, member))

    def lost_learner(self, group_id: str, member: str) -> None:
        """What that member had is gone: the map's leader is told, until it names another."""
        self._lost_targets[group_id] = member

    def try_again_later(self, group_id: str) -> None:
        """The disk refused what was to be done with the copy."""
        self._try_again_later(group_id)

    def _forget(self, group_id: str) -> None:
        self._look_again.pop(group_id, None)
        self._joining.end(group_id)
        self._failed_copies.forget(group_id)
        self._lost_targets.pop(group_id, None)
        self._unexplained_ms.pop(group_id, None)
        self._tries.pop(group_id, None)

    def _remove(self, group_id: str, *, is_deleted: bool = False) -> None:
        self._forget(group_id)
        group = self._copies.drop(group_id)
        try:
            if group is not None:
                group.stop(is_deleted=is_deleted)
                group.log.destroy()
            elif group_id in self._env.store.registered():
                self._env.store.destroy(group_id)
        except DiskError as error:
            self._env.event(group_id, "DiskFailed", f"files of a dropped copy could not be removed: {error}")
            if is_deleted:
                # Nobody takes the name again: it stays known, so that they go later, at the next start at the latest.
                self._look_again[group_id] = self._env.clock.monotonic_ms() + OPEN_RETRY_MS_MAX
                return
        self._env.store.forget(group_id)

    # ---- copies that failed ---------------------------------------------------------------------------------------

    def copy_failed(self, replica: Replica) -> None:
        """A disk error took the copy out of its group: it is opened anew."""
        if replica.id in self._copies.streams:
            self._try_again_later(replica.id)
            self._failed_copies.failed(replica.id, replica.failed)

    def _try_again_later(self, group_id: str) -> None:
        """After a while, and after a longer one each time that it goes wrong again soon. A try that came before its time, because the map
        changed, counts for nothing: seed 28 of the simulator had five within 14 s, and the next a minute later."""
        now_ms = self._env.clock.monotonic_ms()
        at_ms, waited_ms = self._tries.get(group_id, (0, 0))
        if now_ms < at_ms:
            self._look_again[group_id] = at_ms
            return
        is_again = waited_ms and now_ms - at_ms < OPEN_RETRY_MS_MAX
        wait_ms = min(2 * waited_ms, OPEN_RETRY_MS_MAX) if is_again else OPEN_RETRY_MS
        self._tries[group_id] = (now_ms + wait_ms, wait_ms)
        self._look_again[group_id] = now_ms + wait_ms

    def _let_go_of_failed(self, group_id: str, now_ms: int) -> None:
        """Close what failed, for it to be opened again; where only a new process may do that, leave it as it is."""
        group = self._copies.groups.get(group_id)
        if group is None or group.failed is None:
            return
        if group.log.may_open_anew:
            self._env.event(group_id, "CopyReopened", f"{group.member} is opened anew after: {group.failed}")
            self._copies.drop(group_id)
            group.log.close(clean=False)
        elif group.log.may_ever_open_anew:
            self._look_again[group_id] = now_ms + OPEN_RETRY_MS  # An fsync is under way.

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Look again at copies whose time has come, and say again which were lost."""
        self._look_again_at_copies(now_ms)
        for group_id, member in self._lost_targets.items() if now_ms >= self._lost_ms else ():
            self._lost_ms = now_ms + LOST_RETRY_MS
            self._joining.tell_lost(group_id, member)

    def _look_again_at_copies(self, now_ms: int) -> None:
        meta = self._map.replica
        for group_id, at_ms in list(self._look_again.items()):
            if now_ms >= at_ms and meta is not None and self._map.is_fresh:
                del self._look_again[group_id]
                self._let_go_of_failed(group_id, now_ms)
                if meta.state.by_group(group_id) is not None or group_id in self._env.store.registered():
                    self.look_at(group_id)

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        due = list(self._look_again.values()) if self._map.is_fresh else []
        if self._lost_targets:
            due.append(self._lost_ms)
        return min(due, default=None)
