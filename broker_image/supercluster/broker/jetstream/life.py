"""How groups come to life on a broker, and how they leave it.

The rules (SF-4, SF-5): a replica exists because this volume joined the group before, or because the meta group
assigned the stream to this very volume. An empty volume never votes with an identity that had data: it comes under a
new one, learns, and takes the old one's place by a change of membership. The meta group is started once, by the first
of the founders, and only while every one of them is linked and nobody who is linked says that its volume holds a meta
log; clusters that come later have the founders' names, and so never start one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from zlib import crc32

from supercluster.broker.jetstream import frames
from supercluster.broker.jetstream.copies import Copy, Hold, copy_of
from supercluster.broker.jetstream.frames import Frame, Leadership
from supercluster.broker.jetstream.group import APPLY_BYTES_MAX, Group
from supercluster.broker.jetstream.meta import FSYNC_KEY, PREFERRED_LEADER_KEY, Assignment
from supercluster.broker.jetstream.meta_group import META_GROUP, MetaGroup
from supercluster.broker.jetstream.stream_group import StreamGroup
from supercluster.broker.jetstream.wire import Reader, blob
from supercluster.broker.ports import OpenedGroup, StreamLog
from supercluster.broker.raft.confchange import Membership, membership_of, node_of
from supercluster.broker.raft.entry import Entry, EntryKind
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.raft.node import Raft

if TYPE_CHECKING:
    from supercluster.broker.jetstream.core import BrokerCore

# While the meta group is not started, its starter looks this often whether all voters are there.
BOOTSTRAP_RETRY_MS = 200
# While the meta group's leader is not known, the other brokers are asked this often: its own word may have been lost.
LEADER_SEARCH_MS = 500
# Of a new group's members one stands for election so soon, when the others have the map that names the group too.
FIRST_ELECTION_MS = 50
# A member that waits to be taken in repeats its request at this pace.
JOIN_RETRY_MS = 1000
# Whether a retired copy's grace time is over is looked at this often at least: clocks jump.
RETIRED_CHECK_MS = 60_000
# A copy that the disk had no room for is tried again at this pace, as long as the map gives it to this broker.
OPEN_RETRY_MS = 5000


def first_to_stand(assignment: Assignment) -> str:
    """The member that stands for a new group's first election, before the time-out that would decide it by lot: the
    preferred broker's, else any, the same for everybody and another one for each group."""
    members = assignment.members
    preferred = (
        dict(assignment.config.metadata).get(PREFERRED_LEADER_KEY) or assignment.config.placement.preferred
    )
    chosen = next((member for member in members if preferred and node_of(member) == preferred), None)
    return chosen or members[crc32(assignment.group.encode()) % len(members)]


def committed_entries(log: StreamLog, first: int, last: int) -> Iterator[Entry]:
    """Entries first … last, a stretch at a time."""
    while first <= last:
        entries = log.entries(first, last, APPLY_BYTES_MAX)
        if not entries:
            return
        yield from entries
        first = entries[-1].index + 1


class GroupLife:
    """Opens, starts, joins and removes the groups of one broker."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._joining: dict[str, int] = {}
        self._look_again: dict[str, int] = {}
        """Copies that are kept for a while or that could not be opened, and when to look at each again."""
        self._lost_targets: dict[str, str] = {}
        """Copies that were to join and lost their data: the meta group is told until it names others."""
        self._lost_ms = 0
        self._retry_ms = 0
        self._search_ms = 0
        self._founding_from_ms = core.clock.monotonic_ms() + core.settings.founding_wait_ms

    # ---- what this volume has joined before -----------------------------------------------------------------------

    def open_registered(self) -> None:
        """Open the meta group's replica; streams follow from its state and from what the volume remembers."""
        registered = self._core.store.registered()
        if META_GROUP in registered:
            self._open_meta(registered[META_GROUP])
        elif (
            self._core.settings.meta_voters == (self._core.node,) and not self._core.settings.founding_wait_ms
        ):
            self._start_meta((self._member(),))

    def _member(self) -> str:
        return f"{self._core.node}@{self._core.store.incarnation}"

    def _raft(self, opened: OpenedGroup, member: str, fallback: Membership) -> Raft:
        """Raft over an opened log. The membership is the checkpoint's; a group without one has the fallback."""
        core = self._core
        found = opened.log.load_checkpoint()
        state = found[1] if found is not None else opened.log.base_state()
        membership = Membership.decode(Reader(state).blob()) if state is not None else fallback
        term, vote = opened.log.load_vote()
        index = max(found[0] if found is not None else 0, opened.log.base_index)
        for entry in committed_entries(opened.log, index + 1, opened.commit_index):
            if entry.kind == EntryKind.CONFIG:
                membership = replace(Membership.decode(entry.payload), index=entry.index)
        return Raft(
            core.raft_config(member),
            opened.log,
            term=term,
            vote=vote,
            membership=membership,
            commit_index=max(index, opened.commit_index),
            rng=core.rng,
            now_ms=core.clock.monotonic_ms(),
            doubtful=opened.doubtful,
        )

    # ---- the meta group -------------------------------------------------------------------------------------------

    def _open_meta(self, member: str) -> None:
        opened = self._core.store.open(META_GROUP, memory=False, fsync="always", create=False)
        if opened.lost:
            member = f"{self._member()}.{self._core.new_token()}"
            self._core.event(
                META_GROUP, "RecordLost", f"the meta log is damaged: this broker rejoins as {member}"
            )
            self._core.store.register(META_GROUP, member)
        self._install_meta(member, opened, Membership())

    def _install_meta(self, member: str, opened: OpenedGroup, membership: Membership) -> None:
        core = self._core
        group = MetaGroup(member, opened.log, self._raft(opened, member, membership), core)
        core.meta = group
        core.add_group(group)
        group.recover(opened.commit_index)
        if not core.map.is_fresh:
            core.ingest.hold()

    def _start_meta(self, members: tuple[str, ...]) -> None:
        """Take the first membership of a new meta group, durably, before anything is sent or voted."""
        core = self._core
        membership = membership_of(members)
        opened = core.store.open(META_GROUP, memory=False, fsync="always", create=True)
        opened.log.save_checkpoint(
            0, blob(membership.encode()) + b'{"applied":0,"brokers":[],"streams":[],"time":0}'
        )
        core.store.register(META_GROUP, self._member())
        self._install_meta(self._member(), opened, membership)

    def peers_changed(self) -> None:
        """A broker was linked: it may have been the last founder missing."""
        core = self._core
        voters = core.settings.meta_voters
        if core.meta is not None or not voters or core.node != min(voters):
            return
        peers = core.peers
        if any(node != core.node and node not in peers for node in voters):
            return
        if core.clock.monotonic_ms() < self._founding_from_ms:
            return  # Where there are other clusters, they may know of a group that all founders lost with their volumes.
        if any(peer.meta_state for peer in peers.values()):
            return  # A group exists: this volume was lost, and joins it under its new identity (SF-4).
        members = tuple(
            self._member() if node == core.node else f"{node}@{peers[node].incarnation}" for node in voters
        )
        if self._try(META_GROUP, lambda: self._start_meta(members)):
            self._tell_first_members()

    def _try(self, group_id: str, act: Callable[[], None]) -> bool:
        """A disk that does not take what a group needs costs this broker that group, and nothing else."""
        try:
            act()
        except DiskError as error:
            self._core.event(
                group_id, "DiskFailed", f"{self._core.node} cannot follow what is decided: {error}"
            )
            return False
        return True

    def _tell_first_members(self) -> None:
        """Until the group has elected somebody: the word may be lost, or its sender may die before it is out."""
        core = self._core
        assert core.meta is not None
        membership = core.meta.raft.membership
        for member in membership.voters:
            if node_of(member) != core.node and node_of(member) in core.peers:
                core.post(node_of(member), Frame.BOOTSTRAP, [membership.encode()])

    def _tell_absent_members(self) -> None:
        """Nobody leads, and a voter is linked whose volume holds nothing of the group: the word of its beginning has not
        reached it, and its vote may be the one that is lacking. Under that very identity it never had anything that it
        could have lost, so it may begin with an empty log, like a follower to whom nothing came so far (SF-4)."""
        core = self._core
        if core.meta is None or core.meta.log.last_index == 0:
            return
        membership = core.meta.raft.committed_membership
        for member in membership.voters if not membership.is_joint else ():
            peer = core.peers.get(node_of(member))
            if peer is not None and not peer.meta_state and member == f"{peer.node}@{peer.incarnation}":
                core.post(peer.node, Frame.BOOTSTRAP, [membership.encode()])

    @property
    def _is_starting(self) -> bool:
        """Is the meta group's replica here, as it was begun, without a leader so far?"""
        meta = self._core.meta
        return meta is not None and meta.log.last_index == 0 and bool(meta.raft.membership.voters)

    def bootstrap_received(self, body: bytes) -> None:
        """A member of the meta group says who votes in it: valid for this very volume only, and only while it holds no
        meta log."""
        membership = Membership.decode(body)
        if self._core.meta is None and self._member() in membership.voters:
            self._try(META_GROUP, lambda: self._start_meta(membership.voters))

    # ---- streams --------------------------------------------------------------------------------------------------

    def follow_map(self, touched: list[str]) -> None:
        """Hold what the map says, and remove what was deleted."""
        core = self._core
        assert core.meta is not None
        assigned = {found.group: found for found in core.meta.state.streams.values()}
        for group_id in sorted(set(touched) | (assigned.keys() if core.map.index == 0 else set())):
            found = assigned.get(group_id)
            if found is None:
                self._try(group_id, partial(self._deleted, group_id))
            else:
                self._follow(found)

    def map_was_read(self) -> None:
        """Remove what was deleted while this broker was away, and hold what was assigned. Only on a map that was read:
        one from the disk may be older than an assignment that this volume has already taken part in."""
        core = self._core
        assert core.meta is not None
        assigned = {found.group: found for found in core.meta.state.streams.values()}
        for group_id in core.store.registered():
            if group_id != META_GROUP and group_id not in assigned:
                self._try(group_id, partial(self._deleted, group_id))
        for _, found in sorted(assigned.items()):
            self._follow(found)

    def _follow(self, found: Assignment) -> None:
        """Hold the copy that this broker should hold of a stream, and no other. A copy that the volume does not know is
        begun, and one is put away, only on a map that was read: by one from the disk, a stream that was deleted since
        would come to life again, empty, and vote with an identity that has voted before (SF-4)."""
        core = self._core
        registered = core.store.registered().get(found.group)
        copy = copy_of(found, self._member(), registered, core.settings.retired_grace_ms * 1_000_000)
        if self._lost_targets.get(found.group) != copy.member:
            # It is named no more as one that is to join: what is said of it now would be believed of its successor.
            self._lost_targets.pop(found.group, None)
        if copy.hold is Hold.MEMBER:
            if registered is not None or core.map.is_fresh:
                self._open(found, partial(self._open_member, found))
        elif copy.hold is Hold.TARGET:
            if self._lost_targets.get(found.group) == copy.member:
                return
            if registered is not None or core.map.is_fresh:
                self._open(found, partial(self._open_target, found, copy.member))
        elif registered is not None and core.map.is_fresh:
            self._try(found.group, partial(self._put_away, found, copy))

    def _open(self, found: Assignment, act: Callable[[], None]) -> None:
        group = self._core.groups.get(found.group)
        if isinstance(group, StreamGroup):
            group.set_assignment(found)
            self._core.touch(found.group)
        elif group is None and not self._try(found.group, act):
            # The stream has a replica less than it was given until the disk takes this one.
            self._look_again[found.group] = self._core.clock.monotonic_ms() + OPEN_RETRY_MS

    def _put_away(self, found: Assignment, copy: Copy) -> None:
        """The map does not name the copy that is here: close it, and drop it when its time has come (SF-5)."""
        core = self._core
        group_id = found.group
        if copy.hold is Hold.UNDECIDED:
            self._open(found, partial(self._open_member, found))
            group = core.groups.get(group_id)
            if group is None or group.failed is not None or group.raft.membership.is_voter(group.member):
                return  # Its own log has the last word while the move runs.
        if copy.hold in (Hold.UNDECIDED, Hold.SUPERSEDED):
            self._drop(found, "the move does not name it")
            if copy.member:
                self._open(found, partial(self._open_target, found, copy.member))
            return
        left_ms = (copy.until_ns - core.clock.now_ns()) // 1_000_000
        if copy.hold is Hold.DROPPED or left_ms <= 0:
            self._drop(found, copy.why or "its grace time is over")
            return
        self._look_again[group_id] = core.clock.monotonic_ms() + min(left_ms, RETIRED_CHECK_MS)
        group = core.drop_group(group_id)
        if group is not None:
            group.stop()
            group.log.close(clean=True)
            core.event(
                group_id, "CopyRetired", f"{group.member} is kept, closed, for {left_ms // 1000} s more"
            )

    def _drop(self, found: Assignment, why: str) -> None:
        registered = self._core.store.registered().get(found.group)
        self._core.event(found.group, "CopyDropped", f"{registered} is dropped: {why}")
        self._remove(found.group)

    def _open_target(self, found: Assignment, member: str) -> None:
        """A move names a copy on this broker: it begins empty, and learns."""
        core = self._core
        registered = core.store.registered().get(found.group)
        opened = self._open_log(found, create=registered is None)
        if registered is None and (opened.lost or opened.log.last_index):
            # What an earlier copy left behind, whose files the disk would not let go.
            opened.log.destroy()
            opened = self._open_log(found, create=True)
        if opened.lost:
            # It may have voted: it never does again. The meta group names another copy.
            core.event(found.group, "RecordLost", f"{member} lost its data while it was to join {found.name}")
            opened.log.close(clean=False)
            self._lost_targets[found.group] = member
            return
        if registered is None:
            core.store.register(found.group, member)
        self._begin(found, member, opened, Membership())

    def _open_log(self, found: Assignment, *, create: bool) -> OpenedGroup:
        fsync = dict(found.config.metadata).get(FSYNC_KEY, "interval")
        memory = found.config.storage == "memory"
        return self._core.store.open(found.group, memory=memory, fsync=fsync, create=create)

    def _open_member(self, assignment: Assignment) -> None:
        core = self._core
        group_id = assignment.group
        registered = core.store.registered().get(group_id)
        mine = next((member for member in assignment.members if node_of(member) == core.node), "")
        opened = self._open_log(assignment, create=registered is None)
        if opened.lost and registered is not None and not core.map.is_fresh:
            # By an older map it is a member's; a move since may name it as a target, and an identity that was forgotten
            # here would be taken again, empty (SF-4). So whose it was is kept until the map was read.
            opened.log.close(clean=False)
            return
        # Only the first members begin a stream: behind a move everybody else comes to a group that exists.
        first = registered is None and mine.startswith(self._member()) and not assignment.has_moved
        if first:
            member = mine
        elif registered is not None and not opened.lost:
            member = registered
        else:
            member = f"{self._member()}.{core.new_token()}"
            core.event(
                group_id, "RecordLost", f"{core.node} lost its copy of {assignment.name}: rejoins as {member}"
            )
        membership = membership_of(assignment.members) if first else Membership()
        if member != registered:
            if first:
                opened.log.save_checkpoint(0, blob(membership.encode()) + StreamGroup.blank_state(assignment))
            core.store.register(group_id, member)
        self._begin(assignment, member, opened, membership)
        if first and member == first_to_stand(assignment):
            core.groups[group_id].raft.stand_within(FIRST_ELECTION_MS, core.clock.monotonic_ms())

    def _begin(
        self, assignment: Assignment, member: str, opened: OpenedGroup, membership: Membership
    ) -> None:
        core = self._core
        group_id = assignment.group
        raft = self._raft(opened, member, membership)
        group = StreamGroup(assignment, member, opened.log, raft, core)
        core.add_group(group)
        try:
            group.recover(opened.commit_index)
        except DiskError as error:
            group.fail(error)
        if not raft.membership.is_voter(member):
            # The leader may have said long ago that it serves: do not wait for it to say so again.
            self._joining[group_id] = core.clock.monotonic_ms() - JOIN_RETRY_MS

    def _deleted(self, group_id: str) -> None:
        """The stream was deleted: by a person, through the meta group; its copy goes at once."""
        self._remove(group_id)
        self._core.leaders.pop(group_id, None)

    def _remove(self, group_id: str) -> None:
        core = self._core
        self._look_again.pop(group_id, None)
        self._joining.pop(group_id, None)
        self._lost_targets.pop(group_id, None)
        group = core.drop_group(group_id)
        try:
            if group is not None:
                group.stop()
                group.log.destroy()
            elif group_id in core.store.registered():
                core.store.open(group_id, memory=False, fsync="never", create=False).log.destroy()
        except DiskError as error:
            core.event(group_id, "DiskFailed", f"files of a copy that was to go stay behind: {error}")
        core.store.forget(group_id)

    # ---- joining under a new identity -----------------------------------------------------------------------------

    def leader_serves(self, news: Leadership) -> None:
        """A leader told the membership in force: ask to be taken in where this broker is only an old identity."""
        core = self._core
        membership = Membership.decode(news.membership)
        group = core.groups.get(news.group)
        if group is None:
            if news.group != META_GROUP:
                return
            if membership.index == 0 and self._member() in membership.voters:
                # One of the first members, whom the word of it has not reached: nothing in the log says it again.
                self._try(META_GROUP, lambda: self._start_meta(membership.voters))
                return
            if not self._try(META_GROUP, self._join_meta):
                return
            group = core.groups[META_GROUP]
        if self._is_in(group, membership):
            self._joining.pop(news.group, None)
            return
        if news.node != core.node:
            self._joining[news.group] = core.clock.monotonic_ms()
            self._ask_to_join(group)

    def _is_in(self, group: Group, membership: Membership) -> bool:
        """Is this broker's replica what it should be: a voter; in the meta group a learner as well, unless the broker
        votes there by an identity that it lost?"""
        if group.member in membership.all_voters:
            return True
        if group.member not in membership.learners:
            return False
        if group.id == META_GROUP:
            return all(node_of(voter) != self._core.node for voter in membership.voters)
        move = group.assignment.move if isinstance(group, StreamGroup) else None
        return move is not None and group.member in move.targets

    def _join_meta(self) -> None:
        """A meta group exists and this volume holds none of it: come as a learner without a vote."""
        core = self._core
        opened = core.store.open(META_GROUP, memory=False, fsync="always", create=True)
        core.store.register(META_GROUP, self._member())
        self._install_meta(self._member(), opened, Membership())

    def _ask_to_join(self, group: Group) -> None:
        leader = self._core.leader_of(group.id)
        if leader is None:
            self._who_leads(group.id)
        elif leader != self._core.node:
            self._core.post(leader, Frame.JOIN, frames.encode_texts(group.id, group.member))

    def _tell_of_lost_copy(self, group: Group) -> None:
        """A copy in memory went with its process. Where that was true of all copies, nobody leads: the meta group
        has to begin the stream anew."""
        if isinstance(group, StreamGroup) and group.assignment.config.storage == "memory":
            move = group.assignment.move
            named = move is not None and group.member in move.targets
            if not group.raft.membership.voters and not named:
                self._tell_lost(group.id, group.member)

    def _tell_lost(self, group_id: str, member: str) -> None:
        leader = self._core.leader_of(META_GROUP)
        if leader is not None:
            self._core.post(leader, Frame.COPY_LOST, frames.encode_texts(group_id, member))

    def _who_leads(self, group_id: str) -> None:
        for node in self._core.peers:
            self._core.post(node, Frame.WHO_LEADS, frames.encode_texts(group_id))

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        if self._is_searching and now_ms >= self._search_ms:
            self._search_ms = now_ms + LEADER_SEARCH_MS
            self._who_leads(META_GROUP)
            self._tell_absent_members()
        if self._core.meta is None and now_ms >= self._retry_ms:
            self._retry_ms = now_ms + BOOTSTRAP_RETRY_MS
            self.peers_changed()
        elif self._is_starting and now_ms >= self._retry_ms:
            self._retry_ms = now_ms + BOOTSTRAP_RETRY_MS
            self._tell_first_members()
        self._look_again_at_copies(now_ms)
        for group_id, member in self._lost_targets.items() if now_ms >= self._lost_ms else ():
            self._lost_ms = now_ms + JOIN_RETRY_MS
            self._tell_lost(group_id, member)
        for group_id, asked_ms in list(self._joining.items()):
            group = self._core.groups.get(group_id)
            if group is None or self._is_in(group, group.raft.membership):
                del self._joining[group_id]
            elif now_ms - asked_ms >= JOIN_RETRY_MS:
                self._joining[group_id] = now_ms
                self._ask_to_join(group)
                self._tell_of_lost_copy(group)

    def _look_again_at_copies(self, now_ms: int) -> None:
        meta = self._core.meta
        for group_id, at_ms in list(self._look_again.items()):
            if now_ms >= at_ms and meta is not None and self._core.map.is_fresh:
                del self._look_again[group_id]
                found = meta.state.by_group(group_id)
                if found is not None:
                    self._follow(found)

    @property
    def _is_searching(self) -> bool:
        core = self._core
        return bool(core.peers) and (core.meta is None or core.leader_of(META_GROUP) is None)

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        due = [asked + JOIN_RETRY_MS for asked in self._joining.values()]
        if self._core.map.is_fresh:
            due += self._look_again.values()
        if self._lost_targets:
            due.append(self._lost_ms)
        if self._is_searching:
            due.append(self._search_ms)
        if self._core.meta is None or self._is_starting:
            due.append(self._retry_ms)
        return min(due, default=None)
